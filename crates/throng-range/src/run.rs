//! A run: matches, bots, checks, summary, report.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use throng_match::{InputLog, Replayed, build_id};
use throng_tactical::{Rules, Tactical};

use crate::bots::{self, BotsReport, Order};
use crate::check::{Checks, check};
use crate::site::{GAME, RulesText, Site, SiteOrder, SiteReport};
use crate::stage::file_error;
use crate::summary::{Found, Summary, summarise};
use crate::watch::Watched;
use crate::{MapSource, RangeError, Stage, rays, report};

/// Bots have so long to read the map and to join.
const JOIN_PATIENCE: Duration = Duration::from_secs(60);
/// How often the run looks around.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How often it says where it is.
const NOTE_INTERVAL: Duration = Duration::from_secs(5);
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
    /// Matches at once, 1 to 1,000.
    pub matches: u32,
    /// Threads that play them.
    pub workers: usize,
    /// Each match in a process of its own, started by this command.
    pub processes: Option<Vec<OsString>>,
    /// Whether each process has a copy of the map of its own, for comparison.
    pub has_own_maps: bool,
    /// The bots.
    pub players: Players,
    /// The run ends after so many seconds of its measured part; `None`: when all matches are over.
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
    /// Takes a line about the progress.
    pub note: fn(&str),
}

impl RunOptions {
    /// One match on a generated town with ten bots in a thread, to its result.
    pub fn new() -> RunOptions {
        RunOptions {
            map: MapSource::Town { seed: 1, triangles: 200_000 },
            seed: 1,
            rules: Rules::default(),
            matches: 1,
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
        }
    }

    fn check(&self) -> Result<(), RangeError> {
        if !(1..=1_000).contains(&self.matches) {
            return Err(RangeError::Options(format!("a run has 1 to 1000 matches, and not {}", self.matches)));
        }
        if self.seconds.is_some_and(|seconds| !(1..=SECONDS_MAX).contains(&seconds)) {
            return Err(RangeError::Options(format!("a run has 1 to {SECONDS_MAX} seconds")));
        }
        self.rules.check().map_err(|error| RangeError::Options(error.to_string()))
    }
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions::new()
    }
}

/// A run that is over.
#[derive(Debug)]
pub struct Finished {
    /// Its figures.
    pub summary: Summary,
    /// The report's page, if there is one.
    pub page: Option<PathBuf>,
}

/// Plays matches with bots until they are over, the time is over, or `stop` is set.
///
/// # Errors
/// The map, the options or a file cannot be used, or the matches could not be started. A match that fails is no error: it
/// is in the summary.
pub fn play(options: &RunOptions, stop: &AtomicBool) -> Result<Finished, RangeError> {
    options.check()?;
    (options.note)("reading the map");
    let stage = Stage::open(&options.map)?;
    if let Some(folder) = &options.folder {
        std::fs::create_dir_all(folder).map_err(|error| file_error(folder, error))?;
    }
    let scratch = tempfile::tempdir().map_err(|error| file_error(&std::env::temp_dir(), error))?;
    let default_log = options.folder.as_deref().unwrap_or(scratch.path()).join("match-1.log");
    let log_path = options.record.clone().unwrap_or(default_log);
    let cores: Vec<usize> = core_affinity::get_core_ids().unwrap_or_default().iter().map(|core| core.id).collect();
    let order = site_order(options, &stage, &cores, &log_path)?;
    let mut sites = Sites::start(options, &order, &stage)?;
    let mut bots = start_bots(options, &order, sites.addresses(), &cores, &stage)?;
    (options.note)("the bots read the map");
    bots.wait_for(bots::READY, &mut || stop.load(Ordering::Relaxed));
    sites.begin();
    (options.note)("the bots join");
    bots.wait_for(bots::JOINED, &mut || stop.load(Ordering::Relaxed) || sites.has_lost_any());
    sites.measure();
    (options.note)("the matches are measured");
    wait_for_end(options, &mut sites, stop);
    let (reports, watched) = sites.finish()?;
    let bots = bots.finish()?;
    let checks = match options.is_checked {
        true => {
            (options.note)("replaying the first match");
            check_log(&log_path, &stage, &mut |line| (options.note)(line))?
        }
        false => Checks::default(),
    };
    let players = options.matches * options.rules.seats() as u32;
    let summary = summarise(&Found {
        matches: options.matches,
        players,
        tick_hz: options.rules.tick_hz,
        is_by_processes: options.processes.is_some(),
        workers: if options.processes.is_some() { options.workers.min(cores.len().max(1)) } else { options.workers },
        sites: &reports,
        bots,
        has_bots: true,
        checks: &checks,
        rays: options.is_checked.then(|| rays::measure(stage.map())),
        triangles: stage.map().triangle_count(),
        build: build_id().map_err(|error| file_error(Path::new("this program"), error))?,
    });
    let page = match &options.folder {
        Some(folder) => Some(report::write(folder, &summary, watched.first(), &stage)?),
        None => None,
    };
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
    Ok(Tactical::new(stage.arena.clone(), rules.rules(), log.head().seed)?)
}

fn check_log(path: &Path, stage: &Stage, note: &mut dyn FnMut(&str)) -> Result<Checks, RangeError> {
    let bytes = std::fs::read(path).map_err(|error| file_error(path, error))?;
    let log = InputLog::open(&bytes).map_err(|source| RangeError::Log { path: path.to_owned(), source })?;
    let checks = check(&log, || game_of(&log, path, stage))?;
    if let Some(Ok(replayed)) = &checks.replay {
        note(&format!("{} ticks are the same, with {} digests", replayed.ticks, replayed.digests));
    }
    Ok(checks)
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
        rules: options.rules.into(),
        record: Some(log.to_owned()),
        budgets: options.budgets.clone(),
        files: options.folder.clone(),
        catch_up: options.catch_up,
        timer_slack_ns: options.timer_slack_ns,
        spin_us: options.spin_us,
    })
}

fn wait_for_end(options: &RunOptions, sites: &mut Sites, stop: &AtomicBool) {
    let began = Instant::now();
    let mut noted = began;
    let is_over =
        |began: Instant| options.seconds.is_some_and(|seconds| began.elapsed() >= Duration::from_secs(seconds.into()));
    while !sites.wait(LOOK_INTERVAL) && !stop.load(Ordering::Relaxed) && !is_over(began) {
        if noted.elapsed() >= NOTE_INTERVAL {
            noted = Instant::now();
            if let Some(line) = sites.progress() {
                (options.note)(&line);
            }
        }
    }
}

/// The matches: here, or in processes of their own.
enum Sites {
    Here(Box<Site>),
    Processes(Vec<Process>),
}

impl Sites {
    fn start(options: &RunOptions, order: &SiteOrder, stage: &Stage) -> Result<Sites, RangeError> {
        let Some(command) = &options.processes else { return Ok(Sites::Here(Box::new(Site::new(order, stage)?))) };
        let mut processes = Vec::new();
        for number in 0..order.matches {
            let core = order.cores.get(number as usize % order.cores.len().max(1));
            let one = SiteOrder {
                first: number,
                matches: 1,
                workers: 1,
                cores: core.copied().into_iter().collect(),
                seed: order.seed.wrapping_add(number.into()),
                record: order.record.clone().filter(|_| number == 0),
                files: order.files.clone().filter(|_| number == 0),
                ..order.clone()
            };
            processes.push(Process::start(command, &one)?);
        }
        let addresses = |process: &mut Process| process.read_addresses();
        processes.iter_mut().try_for_each(addresses)?;
        Ok(Sites::Processes(processes))
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Sites::Here(site) => site.addresses.clone(),
            Sites::Processes(processes) => processes.iter().flat_map(|process| process.addresses.clone()).collect(),
        }
    }

    fn begin(&mut self) {
        match self {
            Sites::Here(site) => site.start(),
            Sites::Processes(processes) => processes.iter_mut().for_each(|process| process.tell("start")),
        }
    }

    fn measure(&mut self) {
        match self {
            Sites::Here(site) => site.measure_from_now(),
            Sites::Processes(processes) => processes.iter_mut().for_each(|process| process.tell("measure")),
        }
    }

    /// Waits, at most `within`. Returns whether all matches are over.
    fn wait(&mut self, within: Duration) -> bool {
        match self {
            Sites::Here(site) => site.wait(within),
            Sites::Processes(processes) => {
                std::thread::sleep(within);
                processes.iter_mut().all(Process::has_ended)
            }
        }
    }

    /// Whether a match has ended already.
    fn has_lost_any(&mut self) -> bool {
        match self {
            Sites::Here(site) => {
                site.wait(Duration::ZERO);
                !site.ends.is_empty()
            }
            Sites::Processes(processes) => processes.iter_mut().any(Process::has_ended),
        }
    }

    fn progress(&self) -> Option<String> {
        let Sites::Here(site) = self else { return None };
        let snapshot = site.snapshot();
        let (score, rounds) = site.windows.first().map(|window| {
            let watched = window.look();
            (watched.score, watched.rounds)
        })?;
        let ms = |ns: u64| ns as f64 / 1e6;
        Some(format!(
            "match 1: round {rounds}, {} to {}; frames p50 {:.3} ms, p99 {:.3} ms; late p99 {:.0} µs",
            score[0],
            score[1],
            ms(snapshot.frame_ns.p50),
            ms(snapshot.frame_ns.p99),
            snapshot.late_ns.p99 as f64 / 1e3
        ))
    }

    fn finish(self) -> Result<(Vec<SiteReport>, Vec<Watched>), RangeError> {
        match self {
            Sites::Here(site) => {
                let (report, watched) = site.finish();
                Ok((vec![report], watched))
            }
            Sites::Processes(processes) => Ok((
                processes.into_iter().enumerate().map(|(number, process)| process.finish(number)).collect(),
                Vec::new(),
            )),
        }
    }
}

/// A process with a match.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    addresses: Vec<SocketAddr>,
}

impl Process {
    fn start(command: &[OsString], order: &SiteOrder) -> Result<Process, RangeError> {
        let (child, input, output) = spawn(command, &serde_json::to_string(order))?;
        Ok(Process { child, input: Some(input), output, addresses: Vec::new() })
    }

    fn read_addresses(&mut self) -> Result<(), RangeError> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).map_err(|error| error.to_string());
        let addresses = read.and_then(|_| serde_json::from_str(&line).map_err(|error| error.to_string()));
        self.addresses = addresses.map_err(|error| RangeError::Options(format!("a match did not start: {error}")))?;
        Ok(())
    }

    /// A process that is gone hears nothing; its end is reported.
    fn tell(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        }
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn finish(mut self, number: usize) -> SiteReport {
        drop(self.input.take());
        let mut line = String::new();
        let report = self.output.read_line(&mut line).ok().and_then(|_| serde_json::from_str(&line).ok());
        let status = self.child.wait();
        report.unwrap_or_else(|| {
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            let line = format!("match {}: its process died: {status}", number + 1);
            let end =
                crate::site::EndLine { line, outcome: None, is_sound: false, is_logged: false, taken: 0, refused: 0 };
            SiteReport { ends: vec![end], ..SiteReport::default() }
        })
    }
}

fn spawn(
    command: &[OsString],
    order: &Result<String, serde_json::Error>,
) -> Result<(Child, ChildStdin, BufReader<ChildStdout>), RangeError> {
    let failed = |error: String| RangeError::Options(format!("a process could not be started: {error}"));
    let (program, arguments) = command.split_first().ok_or_else(|| failed("no program is named".to_owned()))?;
    let order = order.as_ref().map_err(|error| failed(error.to_string()))?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(failed("it has no pipes".to_owned()));
    };
    writeln!(input, "{order}").and_then(|()| input.flush()).map_err(|error| failed(error.to_string()))?;
    Ok((child, input, BufReader::new(output)))
}

/// The bots: a thread, or a process.
struct Bots {
    /// What they tell, in lines; the report of a process last.
    lines: Receiver<String>,
    body: Body,
}

enum Body {
    Thread { stop: Arc<AtomicBool>, thread: JoinHandle<Result<BotsReport, RangeError>> },
    Process { child: Child, input: ChildStdin },
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
        bots_per_match: options.rules.seats() as u16,
        tick_hz: options.rules.tick_hz,
        seed: options.seed,
        map: stage.path.clone(),
        core: if options.is_pinned { cores.get(site.cores.len()).copied() } else { None },
    };
    let (sender, lines) = channel();
    let thread = std::thread::Builder::new().name("bots".to_owned());
    let failed = |error: io::Error| RangeError::Bots(error.to_string());
    let body = match &options.players {
        Players::Thread => {
            let stop = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&stop);
            let work = move || {
                bots::play(&order, &flag, |word| {
                    let _ = sender.send(word.to_owned());
                })
            };
            Body::Thread { stop, thread: thread.spawn(work).map_err(failed)? }
        }
        Players::Process(command) => {
            let (child, input, output) = spawn(command, &serde_json::to_string(&order))?;
            let work = move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line));
            thread.spawn(work).map_err(failed)?;
            Body::Process { child, input }
        }
    };
    Ok(Bots { lines, body })
}

impl Bots {
    /// Waits for a word of them, for [`JOIN_PATIENCE`] at most. Bots that fail tell no more; their end says why.
    fn wait_for(&mut self, word: &str, is_over: &mut dyn FnMut() -> bool) {
        let until = Instant::now() + JOIN_PATIENCE;
        while !is_over() && Instant::now() < until {
            match self.lines.recv_timeout(LOOK_INTERVAL) {
                Ok(line) if line == word => return,
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn finish(self) -> Result<BotsReport, RangeError> {
        match self.body {
            Body::Thread { stop, thread } => {
                stop.store(true, Ordering::Relaxed);
                thread.join().map_err(|_| RangeError::Bots("their thread panicked".to_owned()))?
            }
            Body::Process { mut child, input } => {
                drop(input);
                let last = self.lines.iter().last();
                let _ = child.wait();
                let last = last.ok_or_else(|| RangeError::Bots("their process told nothing".to_owned()))?;
                serde_json::from_str(&last)
                    .map_err(|error| RangeError::Bots(format!("they left no report, but {last:?}: {error}")))
            }
        }
    }
}
