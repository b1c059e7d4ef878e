//! A run: matches, bots, checks, summary, report.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use throng_machine::clock::{self, MachineUse};
use throng_machine::piped::{Gone, Piped};
use throng_match::{InputLog, Replayed, build_id};
use throng_report::{Kind, Profile, RunHead, with_room};
use throng_tactical::{ROUNDS_TO_WIN_MAX, Rules, Tactical};
use throng_telemetry::{Percentiles, Snapshot, SubsystemFigures};

use crate::bots::{self, BotsReport, Order, Step, Wanted};
use crate::check::{Checks, check};
use crate::levels::Levels;
use crate::show::Show;
use crate::site::{GAME, RulesText, SiteOrder, budgets, new_game};
use crate::sites::Sites;
use crate::stage::file_error;
use crate::summary::{Found, MatchLevel, Samples, Sight, Summary, summarise};
use crate::{MapSource, RangeError, Stage, rays, report};

/// Bots have so long to read the map and to join.
const JOIN_PATIENCE: Duration = Duration::from_secs(60);
/// How often the run looks around.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How often it says where it is.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);
/// Matches have so long to end by themselves after the bots have ended.
const ENDING_PATIENCE: Duration = Duration::from_secs(3);
/// Processes that are asked to end write their reports within this, or are ended.
pub(crate) const REPORT_PATIENCE: Duration = Duration::from_secs(60);
/// The longest run, in seconds.
const SECONDS_MAX: u32 = 24 * 3_600;

/// Where players come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Players {
    /// Bots over UDP, in a thread of this process.
    Thread,
    /// Bots over UDP, in a process that this command starts.
    Process(Vec<OsString>),
}

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The map.
    pub map: MapSource,
    /// The seed of the first match.
    pub seed: u64,
    /// The rules.
    pub rules: Rules,
    /// Seats of each match that the server plays itself; bots over UDP have the others.
    pub agents: u16,
    /// Matches at once, 1 to 1,000; with a profile, the most that are possible.
    pub matches: u32,
    /// How many of them play at each moment of the measured part. One that is no longer wanted ends, the newest first, and none
    /// that has ended begins again. All but a constant one need [`seconds`](RunOptions::seconds), and rules by which matches
    /// last so long.
    pub profile: Profile,
    /// Threads that play them.
    pub workers: usize,
    /// Each match in a process of its own, started by this command.
    pub processes: Option<Vec<OsString>>,
    /// Whether each process has a copy of the map of its own, for comparison.
    pub has_own_maps: bool,
    /// The bots.
    pub players: Players,
    /// The run ends after so many seconds of its measured part; `None`: when all matches are over. Of several matches, all have
    /// to play until then, or the figures are not valid.
    pub seconds: Option<u32>,
    /// The input log of the first match; `None`: in the folder, or in a temporary file.
    pub record: Option<PathBuf>,
    /// The budget file.
    pub budgets: Option<PathBuf>,
    /// Whether the first match is replayed and checked.
    pub is_checked: bool,
    /// The folder of the report; `None`: none.
    pub folder: Option<PathBuf>,
    /// Late ticks that are made up for; 0 skips them.
    pub catch_up: u32,
    /// Timer slack of the workers in nanoseconds; 0 leaves it.
    pub timer_slack_ns: u64,
    /// Microseconds of looking at the clock before each deadline.
    pub spin_us: u64,
    /// Whether workers have cores of their own.
    pub is_pinned: bool,
    /// Takes what is told about the progress.
    pub note: fn(Note<'_>),
    /// Filled with metrics about once a second; only for matches in this process.
    pub metrics: Option<LiveMetrics>,
    /// Where a live page takes figures about once a second; only of matches in this process.
    pub live: Option<SocketAddr>,
    /// Told which matches are played.
    pub playing: Option<Playing>,
}

/// Told the numbers of the matches that are played, from 1, whenever they change: at the beginning all, at the end none.
#[derive(Clone)]
pub struct Playing(pub Arc<TellPlaying>);

/// Takes the numbers of the matches that are played.
pub type TellPlaying = dyn Fn(&[u32]) + Send + Sync;

impl fmt::Debug for Playing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Playing(..)")
    }
}

/// The newest metrics of a run that goes on, in Prometheus' text format. Empty before the matches begin. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct LiveMetrics(Arc<Mutex<String>>);

impl LiveMetrics {
    /// The newest metrics.
    pub fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

/// Something to show while a run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note<'a> {
    /// A line that stays.
    Line(&'a str),
    /// The state now, about once a second; the next one takes its place.
    Now(&'a str),
    /// The frame by subsystem so far, some lines, before each [`Note::Now`]; the next one takes its place.
    Table(&'a str),
}

impl Default for RunOptions {
    /// One match on a generated town with ten bots in a thread, to its result.
    fn default() -> RunOptions {
        RunOptions {
            map: MapSource::Town { seed: 1, triangles: 200_000 },
            seed: 1,
            rules: Rules::default(),
            agents: 0,
            matches: 1,
            profile: Profile::Constant,
            workers: 1,
            processes: None,
            has_own_maps: false,
            players: Players::Thread,
            seconds: None,
            record: None,
            budgets: None,
            is_checked: true,
            folder: None,
            catch_up: 0,
            timer_slack_ns: 0,
            spin_us: 0,
            is_pinned: true,
            note: |_| (),
            metrics: None,
            live: None,
            playing: None,
        }
    }
}

impl RunOptions {
    /// Whether a run can begin, as far as that is known without the map. Makes the folder of the report.
    ///
    /// # Errors
    /// The first option that is not possible.
    pub fn check(&self) -> Result<(), RangeError> {
        if !(1..=1_000).contains(&self.matches) {
            return Err(RangeError::Options(format!("a run has 1 to 1000 matches, and not {}", self.matches)));
        }
        if self.seconds.is_some_and(|seconds| !(1..=SECONDS_MAX).contains(&seconds)) {
            return Err(RangeError::Options(format!("a run has 1 to {SECONDS_MAX} seconds")));
        }
        if self.has_profile() {
            let fault = match self.seconds {
                Some(seconds) => self.profile.fault((self.matches, "matches (--matches)"), seconds),
                None => Some("it needs the length of the measured part (--seconds)".to_owned()),
            };
            if let Some(fault) = fault {
                return Err(RangeError::Options(format!("profile {}: {fault}", self.profile)));
            }
        }
        if let Some(path) = self.record.as_deref().filter(|path| path.exists()) {
            let words = "it is there already, and is not written over: name another file";
            return Err(file_error(path, io::Error::new(io::ErrorKind::AlreadyExists, words)));
        }
        if self.metrics.is_some() && self.processes.is_some() {
            let words = "live metrics are those of matches in one process: leave out --processes, or --metrics";
            return Err(RangeError::Options(words.to_owned()));
        }
        self.rules.check().map_err(|error| RangeError::Options(error.to_string()))?;
        let match_s = self.longest_match_s();
        if let Some(seconds) = self.seconds.filter(|seconds| self.has_profile() && f64::from(*seconds) > match_s) {
            let words = format!(
                "{seconds} s are longer than a match to {} won rounds can last: at most {} s",
                self.rules.rounds_to_win,
                match_s.floor()
            );
            return Err(RangeError::Options(format!("profile {}: {words}", self.profile)));
        }
        let seats = self.rules.seats();
        if usize::from(self.agents) >= seats {
            let most = seats - 1;
            return Err(RangeError::Options(format!(
                "a match has 0 to {most} agents beside its bots, and not {}",
                self.agents
            )));
        }
        // Arguments that cannot be used are found before the map is read.
        budgets(self.budgets.as_deref())?;
        let Some(folder) = &self.folder else { return Ok(()) };
        std::fs::create_dir_all(folder).map_err(|source| RangeError::Folder { path: folder.clone(), source })
    }

    /// The longest time of the measured part, in seconds: that of a match, or the one that is asked for.
    pub fn longest_s(&self) -> f64 {
        let longest_s = self.longest_match_s();
        self.seconds.map_or(longest_s, |seconds| longest_s.min(seconds.into()))
    }

    /// A match lasts so many seconds at most: each round with all of its phases, and all rounds.
    fn longest_match_s(&self) -> f64 {
        let Rules { buy_s, live_s, end_s, fuse_s, rounds_to_win, .. } = self.rules;
        let rounds = 2.0 * f64::from(rounds_to_win) - 1.0;
        rounds * [buy_s, live_s, fuse_s, end_s].map(f64::from).iter().sum::<f64>()
    }

    /// The load, and the settings that change what is measured.
    pub(crate) fn workload(&self, load: &str) -> String {
        let RunOptions { rules, agents, workers, processes, map, .. } = self;
        let agents = if *agents > 0 { format!(", {agents} of them agents,") } else { String::new() };
        let processes = if processes.is_some() { ", each match in a process" } else { "" };
        let map = match map {
            MapSource::Town { triangles, .. } => format!("a town of {triangles} triangles"),
            MapSource::File(path) => path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned()),
        };
        format!(
            "{load}, {} players each{agents} at {} Hz, {workers} workers{processes}, {map}",
            rules.seats(),
            rules.tick_hz
        )
    }

    fn has_profile(&self) -> bool {
        self.profile != Profile::Constant
    }

    /// How many matches are wanted so long after the beginning of the measured part.
    fn wanted_at(&self, elapsed: Duration) -> u32 {
        self.profile.players_at(self.matches, elapsed)
    }

    fn line(&self, line: &str) {
        (self.note)(Note::Line(line));
    }

    fn tell_playing(&self, matches: &[u32]) {
        if let Some(Playing(tell)) = &self.playing {
            tell(matches);
        }
    }
}

/// A run that is over.
#[derive(Debug)]
pub struct Finished {
    /// Its figures.
    pub summary: Summary,
    /// The report's page, if there is to be one, or why it could not be written.
    pub page: Option<Result<PathBuf, RangeError>>,
}

/// Plays matches with bots until they are over, the time is over, or `stop` is set.
///
/// # Errors
/// The map, the options or a file cannot be used, or the matches could not be started. A match or a process of bots that
/// fails is no error: the figures until then are in the summary, which is not valid and says why. Nor is a report that cannot
/// be written.
pub fn play(options: &RunOptions, stop: &AtomicBool) -> Result<Finished, RangeError> {
    options.check()?;
    let started_at = SystemTime::now();
    options.line("reading the map");
    let stage = Stage::open(&options.map)?;
    let scratch = throng_machine::TemporaryFolder::new().map_err(|error| file_error(&std::env::temp_dir(), error))?;
    let default_log = options.folder.as_deref().unwrap_or(scratch.path()).join("match-1.log");
    let log_path = options.record.clone().unwrap_or(default_log);
    let cores: Vec<usize> = core_affinity::get_core_ids().unwrap_or_default().iter().map(|core| core.id).collect();
    let order = site_order(options, &stage, &cores, &log_path)?;
    let mut sites = Sites::start(options, &order, &stage)?;
    let mut bots = start_bots(options, &order, sites.addresses(), &cores, &stage)?;
    options.line("the bots read the map");
    bots.wait_for(Step::Ready, &mut || stop.load(Ordering::Relaxed));
    sites.begin(options.profile.first(options.matches));
    options.tell_playing(&sites.playing());
    options.line("the bots join");
    bots.wait_for(Step::Joined, &mut || stop.load(Ordering::Relaxed) || sites.has_lost_any());
    sites.measure();
    let others = Others::measure(sites.ids().into_iter().chain(bots.id()).collect());
    let mut faults = Vec::new();
    let mut sampler = Sampler::new(options.seconds.unwrap_or(3_600));
    faults.extend(wait_for_end(options, (&mut sites, &mut sampler), &mut bots, stop));
    let others_cpu_cores = others.cores();
    options.tell_playing(&[]);
    options.line("the matches are over");
    let begun = sites.begun();
    let (reports, watched) = sites.finish();
    let (bots, fault) = bots.finish();
    // The cause first.
    fault.into_iter().for_each(|fault| faults.insert(0, fault));
    let checks = match options.is_checked {
        true => {
            options.line("replaying the first match");
            check_log(&log_path, &stage).unwrap_or_else(|error| {
                faults.push(format!("the first match could not be replayed: {error}"));
                Checks::default()
            })
        }
        false => Checks::default(),
    };
    let course = if options.has_profile() { format!(" ({})", options.profile) } else { String::new() };
    let measures_rays = options.is_checked && !stop.load(Ordering::Relaxed);
    let summary = summarise(&Found {
        options,
        begun,
        workers: match options.processes.is_some() {
            // They may use the cores that they are pinned to, or all.
            true if options.is_pinned => options.workers.min(cores.len().max(1)),
            true => cores.len().max(1),
            false => options.workers,
        },
        sites: &reports,
        bots,
        faults,
        samples: sampler.samples,
        steps: if options.has_profile() { sampler.steps } else { Vec::new() },
        checks: &checks,
        rays: if measures_rays { rays::measure(stage.map()) } else { Sight::default() },
        triangles: stage.map().triangle_count(),
        head: RunHead {
            others_cpu_cores,
            partial: stop.load(Ordering::Relaxed),
            ..RunHead::new(Kind::Match, &options.workload(&format!("match {}{course}", options.matches)), started_at)
        },
    });
    let watched = watched.first().or(checks.watched.as_ref());
    let inside = report::Inside { watched, fog: &checks.moments };
    let page = options.folder.as_deref().map(|folder| report::write(folder, &summary, &inside, &stage));
    Ok(Finished { summary, page })
}

/// Plays an input log again, on its map.
///
/// # Errors
/// The log or the map cannot be used, or the replay differs. Each names the file and says why.
pub fn replay_file(path: &Path, map: &MapSource) -> Result<Replayed, RangeError> {
    let bytes = std::fs::read(path).map_err(|error| file_error(path, error))?;
    let refused = |source| RangeError::Log { path: path.to_owned(), source };
    let log = InputLog::open(&bytes).map_err(refused)?;
    let build = build_id().map_err(|error| file_error(Path::new("this program"), error))?;
    let stage = Stage::open(map)?;
    log.check(&build, GAME, stage.map().checksum()).map_err(refused)?;
    let mut game = game_of(&log, path, &stage)?;
    log.replay(&mut game).map_err(|source| RangeError::Replay { path: path.to_owned(), source })
}

fn game_of(log: &InputLog<'_>, path: &Path, stage: &Stage) -> Result<Tactical, RangeError> {
    let rules: RulesText = serde_json::from_slice(&log.head().settings)
        .map_err(|error| RangeError::Options(format!("{}: its rules make no sense: {error}", path.display())))?;
    new_game(&rules, log.head().seed, stage)
}

fn check_log(path: &Path, stage: &Stage) -> Result<Checks, RangeError> {
    let bytes = std::fs::read(path).map_err(|error| file_error(path, error))?;
    let log = InputLog::open(&bytes).map_err(|source| RangeError::Log { path: path.to_owned(), source })?;
    check(&log, || game_of(&log, path, stage))
}

fn site_order(options: &RunOptions, stage: &Stage, cores: &[usize], log: &Path) -> Result<SiteOrder, RangeError> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| RangeError::Options(format!("the system has no random key: {error}")))?;
    let pinned = || cores.iter().copied().take(options.workers.max(1)).collect();
    Ok(SiteOrder {
        first: 0,
        matches: options.matches,
        workers: options.workers,
        cores: if options.is_pinned { pinned() } else { Vec::new() },
        map: stage.path.clone(),
        has_own_map: options.has_own_maps,
        seed: options.seed,
        key,
        rules: RulesText { rules: options.rules, has_agents: options.agents > 0 },
        record: Some(log.to_owned()),
        budgets: options.budgets.clone(),
        files: options.folder.clone(),
        catch_up: options.catch_up,
        timer_slack_ns: options.timer_slack_ns,
        spin_us: options.spin_us,
    })
}

/// Waits for the end of all matches. Returns why they were ended before, and what could not be measured.
fn wait_for_end(
    options: &RunOptions,
    (sites, sampler): (&mut Sites, &mut Sampler),
    bots: &mut Bots,
    stop: &AtomicBool,
) -> Vec<String> {
    let began = Instant::now();
    let mut show = options.live.map(|address| Show::new(address, options.matches, options.rules.tick_hz));
    let mut noted = None;
    let mut left: Option<Instant> = None;
    let mut playing = sites.playing();
    let mut wanted = options.wanted_at(Duration::ZERO);
    let mut levels = Levels::new(options.profile, options.matches, options.seconds.unwrap_or(0));
    let why = loop {
        let are_over = sites.wait(LOOK_INTERVAL);
        let passed_s = began.elapsed().as_secs_f64();
        levels.look(passed_s, || sites.counts());
        let now_wanted = options.wanted_at(began.elapsed());
        if now_wanted != wanted {
            wanted = now_wanted;
            sites.want(wanted);
            bots.want(wanted);
        }
        let now_playing = sites.playing();
        if now_playing != playing {
            options.tell_playing(&now_playing);
            playing = now_playing;
        }
        let ended = (1..=wanted).find(|number| options.has_profile() && !playing.contains(number));
        if let Some(number) = ended {
            let words = "was over before the profile let it go, so the run was stopped; give it";
            let advice = match options.rules.rounds_to_win {
                ROUNDS_TO_WIN_MAX => "longer rounds, or a shorter profile",
                _ => "more --rounds",
            };
            break Some(format!("match {number} {words} {advice}"));
        }
        if are_over {
            break None;
        }
        if stop.load(Ordering::Relaxed) {
            let passed = began.elapsed().as_secs();
            break Some(format!("the run was interrupted after {passed} s, before the matches were over"));
        }
        if options.seconds.is_some_and(|seconds| began.elapsed() >= Duration::from_secs(seconds.into())) {
            break None;
        }
        if bots.have_ended() && left.get_or_insert_with(Instant::now).elapsed() >= ENDING_PATIENCE {
            break Some("the bots ended before the matches did, so the matches were stopped".to_owned());
        }
        if noted.is_none_or(|noted: Instant| noted.elapsed() >= NOTE_INTERVAL) {
            noted = Some(Instant::now());
            let left_s = (options.longest_s() - passed_s).max(0.0);
            let at_most = if options.seconds.is_some() { "" } else { "at most " };
            if let Some(snapshot) = sites.snapshot() {
                sampler.take(&snapshot, options.workers, (playing.len() as u32, wanted));
                if let Some(Err(error)) = show.as_mut().map(|show| show.take(&snapshot, playing.len() as u32)) {
                    (options.note)(Note::Line(&error.to_string()));
                }
                (options.note)(Note::Table(&frame_table(&snapshot)));
            }
            if let Some((page, text)) = options.metrics.as_ref().zip(sites.prometheus()) {
                page.set(text);
            }
            let progress = sites.progress().unwrap_or_else(|| "the matches begin".to_owned());
            (options.note)(Note::Now(&format!("{passed_s:3.0} s, {at_most}{left_s:.0} s left; {progress}")));
        }
    };
    let uncounted;
    (sampler.steps, uncounted) = levels.end(began.elapsed().as_secs_f64(), || sites.counts());
    let lacks = || format!("{uncounted} levels have no figures, because a match did not tell its counts in time");
    why.into_iter().chain((uncounted > 0).then(lacks)).collect()
}

/// The processor time of other programs since a moment.
struct Others {
    /// The processes of this run beside this one.
    processes: Vec<u32>,
    since: Instant,
    own_from_s: Option<f64>,
    machine: MachineUse,
}

impl Others {
    fn measure(processes: Vec<u32>) -> Others {
        let own_from_s = clock::family_cpu_s(&processes);
        Others { processes, since: Instant::now(), own_from_s, machine: MachineUse::begin() }
    }

    fn cores(&self) -> Option<f64> {
        let own_s = clock::family_cpu_s(&self.processes)? - self.own_from_s?;
        self.machine.so_far().of_others([own_s / self.since.elapsed().as_secs_f64().max(1e-9)])
    }
}

/// Takes a sample of the matches in this process about once a second.
struct Sampler {
    samples: Samples,
    steps: Vec<MatchLevel>,
    before: Option<Sampled>,
}

/// Counts since the beginning of the measured part.
struct Sampled {
    at: Instant,
    cpu_s: f64,
    frames: u64,
    frames_over: u64,
}

impl Sampler {
    /// With room for the samples of so many seconds.
    fn new(seconds: u32) -> Sampler {
        let seconds = seconds as usize + 1;
        let samples = Samples {
            cpu_share: with_room(seconds, 1.0),
            frames: with_room(seconds, u64::MAX),
            frames_over: with_room(seconds, u64::MAX),
            matches: with_room(seconds, u32::MAX),
            matches_wanted: with_room(seconds, u32::MAX),
        };
        Sampler { samples, steps: Vec::new(), before: None }
    }

    fn take(&mut self, snapshot: &Snapshot, workers: usize, (matches, wanted): (u32, u32)) {
        let now = Sampled {
            at: Instant::now(),
            cpu_s: clock::process_cpu_s(),
            frames: snapshot.frames,
            frames_over: snapshot.frame_breaches,
        };
        if let Some(before) = &self.before {
            let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-9);
            let samples = &mut self.samples;
            samples.cpu_share.push((now.cpu_s - before.cpu_s) / seconds / workers.max(1) as f64);
            samples.frames.push(now.frames.saturating_sub(before.frames));
            samples.matches.push(matches);
            samples.matches_wanted.push(wanted);
            samples.frames_over.push(now.frames_over.saturating_sub(before.frames_over));
        }
        self.before = Some(now);
    }
}

/// Exclusive time by subsystem, the largest first.
fn frame_table(snapshot: &Snapshot) -> String {
    let ms = |ns: f64| format!("{:.3}", ns / 1e6);
    let mut subsystems: Vec<&SubsystemFigures> = snapshot.subsystems.iter().collect();
    subsystems.sort_by(|a, b| b.frame_ns.mean.total_cmp(&a.frame_ns.mean));
    let mut text = format!("{:16}{:>10}{:>10}{:>10}{:>10}\n", "ms per frame", "mean", "p99", "budget", "breaches");
    for of in subsystems {
        let budget = of.budget_ns.map_or("-".to_owned(), |ns| ms(ns as f64));
        let (mean, p99) = (ms(of.frame_ns.mean), ms(of.frame_ns.p99 as f64));
        text += &format!("{:16}{mean:>10}{p99:>10}{budget:>10}{:>10}\n", of.name, of.breaches);
    }
    let Percentiles { mean, p99, .. } = snapshot.frame_ns;
    let budget = snapshot.frame_budget_ns.map_or("-".to_owned(), |ns| ms(ns as f64));
    text +=
        &format!("{:16}{:>10}{:>10}{budget:>10}{:>10}\n", "frame", ms(mean), ms(p99 as f64), snapshot.frame_breaches);
    text
}

pub(crate) fn process_error(error: io::Error) -> RangeError {
    RangeError::Process(error.to_string())
}

/// The bots: a thread, or a process.
enum Bots {
    Thread { wanted: Arc<Wanted>, thread: JoinHandle<Result<BotsReport, RangeError>>, words: Receiver<Step> },
    Process(Piped),
}

fn start_bots(
    options: &RunOptions,
    site: &SiteOrder,
    servers: Vec<SocketAddr>,
    cores: &[usize],
    stage: &Stage,
) -> Result<Bots, RangeError> {
    let order = Order {
        servers,
        key: site.key,
        first: options.profile.first(options.matches),
        bots_per_match: options.rules.seats() as u16 - options.agents,
        seats: options.rules.seats() as u16,
        tick_hz: options.rules.tick_hz,
        seed: options.seed,
        map: stage.path.clone(),
        core: if options.is_pinned { cores.get(site.cores.len()).copied() } else { None },
    };
    match &options.players {
        Players::Thread => {
            let (sender, words) = channel();
            let wanted = Arc::new(Wanted::new(order.first));
            let shared = Arc::clone(&wanted);
            let work = move || {
                bots::play(&order, &shared, |step| {
                    let _ = sender.send(step);
                })
            };
            let failed = |error: io::Error| RangeError::Bots(error.to_string());
            let thread = std::thread::Builder::new().name("bots".to_owned()).spawn(work).map_err(failed)?;
            Ok(Bots::Thread { wanted, thread, words })
        }
        Players::Process(command) => Ok(Bots::Process(Piped::start(command, &order).map_err(process_error)?)),
    }
}

impl Bots {
    /// Waits until they tell a step, for [`JOIN_PATIENCE`] at most. Bots that fail tell no more; their end says why.
    fn wait_for(&mut self, step: Step, is_over: &mut dyn FnMut() -> bool) {
        let until = Instant::now() + JOIN_PATIENCE;
        while !is_over() && Instant::now() < until {
            let told = match self {
                Bots::Thread { words, .. } => match words.recv_timeout(LOOK_INTERVAL) {
                    Ok(told) => Ok(Some(told)),
                    Err(RecvTimeoutError::Timeout) => Ok(None),
                    Err(RecvTimeoutError::Disconnected) => Err(Gone),
                },
                Bots::Process(process) => {
                    process.next_line(LOOK_INTERVAL).map(|line| line.and_then(|line| serde_json::from_str(&line).ok()))
                }
            };
            match told {
                Ok(told) if told == Some(step) => return,
                Ok(_) => {}
                Err(Gone) => return,
            }
        }
    }

    /// Has the bots of so many matches play.
    fn want(&mut self, matches: u32) {
        match self {
            Bots::Thread { wanted, .. } => wanted.want(matches),
            Bots::Process(process) => process.tell(&matches),
        }
    }

    /// The process, if they have one of their own.
    fn id(&self) -> Option<u32> {
        match self {
            Bots::Thread { .. } => None,
            Bots::Process(process) => Some(process.id()),
        }
    }

    fn have_ended(&mut self) -> bool {
        match self {
            Bots::Thread { thread, .. } => thread.is_finished(),
            Bots::Process(process) => process.has_ended(),
        }
    }

    /// Ends them. Returns their report, and why there is none if there is none.
    fn finish(self) -> (BotsReport, Option<String>) {
        let report = match self {
            Bots::Thread { wanted, thread, .. } => {
                wanted.end();
                match thread.join() {
                    Ok(report) => report.map_err(|error| error.to_string()),
                    Err(_) => Err("the thread of the bots panicked".to_owned()),
                }
            }
            Bots::Process(process) => {
                let left = process.finish(REPORT_PATIENCE);
                let report = left.line.and_then(|line| serde_json::from_str(&line).ok());
                report.ok_or_else(|| format!("the bots' process died ({})", left.status))
            }
        };
        report.map_or_else(|fault| (BotsReport::default(), Some(fault)), |report| (report, None))
    }
}
