//! The matches of one process: a host with servers, games, telemetry, and the figures of all of it.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use throng::meter::Histogram;
use throng::{Key, Schema, Server};
use throng_machine::clock::process_cpu_s;
use throng_machine::piped;
use throng_match::{
    Host, HostOptions, Match, MatchEnd, MatchId, MatchOptions, Overrun, Pinning, Recording, Scheduling, Seats, build_id,
};
use throng_tactical::brain::{self, Squad, SquadOptions};
use throng_tactical::{PHASE_S, Rules, Tactical, kinds};
use throng_telemetry::{
    Collecting, Distributions, FlightOptions, FrameBudgets, Percentiles, Snapshot, Subsystem, SubsystemFigures,
    Subsystems, Telemetry, TelemetryOptions,
};

use crate::levels::Counts;
use crate::observe::Observed;
use crate::stage::file_error;
use crate::watch::{Watched, Watcher, Window};
use crate::{RangeError, Stage};

/// The name of the game in input logs.
pub(crate) const GAME: &str = "tactical";
/// How often a process with matches tells its progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// The phase in which the fog works.
pub(crate) const LIVE: &str = "live";
/// Budgets of a match at 128 Hz with three matches per core.
const BUDGETS: &str = include_str!("../assets/budgets.toml");
/// A trace of some seconds, for Perfetto.
const TRACE: &str = "trace.json";
/// The time of the trace.
const TRACED: Duration = Duration::from_secs(5);
/// The trace is written so long after the beginning of the measured part: a match that has ended has none.
const TRACED_AFTER: Duration = Duration::from_secs(15);
/// Time for the last messages after a match.
const FAREWELL: Duration = Duration::from_millis(500);
/// Time in which all matches of a host have to end.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// The orders for a process with matches. It goes to other processes as one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteOrder {
    /// The number of the first match, from 0.
    pub first: u32,
    /// Matches.
    pub matches: u32,
    /// Workers.
    pub workers: usize,
    /// The cores of the workers; none: the system's choice.
    pub cores: Vec<usize>,
    /// The map file.
    pub map: PathBuf,
    /// Whether the map is copied into the memory of this process.
    pub has_own_map: bool,
    /// The seed of the first match; each other one has the next.
    pub seed: u64,
    /// The key of tokens.
    pub key: [u8; 32],
    /// The rules.
    pub rules: RulesText,
    /// The input log of the first match.
    pub record: Option<PathBuf>,
    /// The budget file; `None`: the budgets of this crate.
    pub budgets: Option<PathBuf>,
    /// The folder for files of slow frames, a table with each frame, and a trace of the last seconds.
    pub files: Option<PathBuf>,
    /// Late ticks that are made up for; 0 skips them.
    pub catch_up: u32,
    /// The timer slack of workers in nanoseconds; 0 leaves it.
    pub timer_slack_ns: u64,
    /// Microseconds of looking at the clock before each deadline.
    pub spin_us: u64,
}

/// The rules of a match, as text in input logs and between processes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RulesText {
    /// The rules.
    #[serde(flatten)]
    pub rules: Rules,
    /// Whether the server plays the seats that no client has taken.
    pub has_agents: bool,
}

/// Percentiles of times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Values.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
    /// The values in rising order, each with how often: to join those of several processes.
    pub values: Vec<(u64, u64)>,
}

impl Times {
    /// Of values with how often each was found. The mean, which these do not have exactly, is that of `percentiles`.
    fn of(percentiles: Percentiles, values: Vec<(u64, u64)>) -> Times {
        let Percentiles { count, mean, p50, p99, max } = percentiles;
        Times { count, mean, p50: p50 as f64, p99: p99 as f64, max: max as f64, values }
    }

    /// Of values in a histogram.
    pub(crate) fn from(histogram: &Histogram) -> Times {
        Times::of(histogram.percentiles(), histogram.values().collect())
    }

    /// Of several parts together: the percentiles of all values, and not percentiles of percentiles.
    pub(crate) fn joined<'a>(parts: impl Iterator<Item = &'a Times>) -> Times {
        let (mut all, mut sum, mut max) = (Histogram::new(), 0.0, 0.0_f64);
        for part in parts.filter(|part| part.count > 0) {
            part.values.iter().for_each(|&(value, count)| all.record_many(value, count));
            sum += part.mean * part.count as f64;
            max = max.max(part.max);
        }
        let mean = if all.is_empty() { 0.0 } else { sum / all.len() as f64 };
        Times { mean, max, ..Times::from(&all) }
    }
}

/// One subsystem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubsystemTimes {
    /// Its name.
    pub name: String,
    /// Exclusive time per frame.
    pub times: Times,
    /// Its budget in nanoseconds.
    pub budget_ns: Option<u64>,
    /// Frames over it.
    pub breaches: u64,
}

/// How a match ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndLine {
    /// Of the first match of the run.
    pub is_first: bool,
    /// All in one line.
    pub line: String,
    /// The result.
    pub outcome: Option<String>,
    /// Whether it was over by itself, or stopped at the end of the time.
    pub is_sound: bool,
    /// The input log is whole.
    pub is_logged: bool,
    /// Commands that reached the game.
    pub taken: u64,
    /// Commands that were refused.
    pub refused: u64,
}

/// The figures of a process with matches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SiteReport {
    /// Wall time of frames.
    pub frame: Times,
    /// How late frames began.
    pub late: Times,
    /// How late workers woke up.
    pub wake_late: Times,
    /// Time in frames in which threads did not run, in nanoseconds.
    pub not_running_ns: u64,
    /// Time that measuring took: scopes, collector, files, and the look at each match from inside. `None` if unknown.
    #[serde(default)]
    pub measuring_ns: Option<u64>,
    /// Frames that telemetry lost.
    pub lost_frames: u64,
    /// Deadlines that were skipped.
    pub missed_ticks: u64,
    /// Subsystems.
    pub subsystems: Vec<SubsystemTimes>,
    /// Each phase with the wall time of its frames.
    pub phases: Vec<(String, Times)>,
    /// Time of the fog in all frames of the live phase, in nanoseconds.
    pub fog_live_ns: f64,
    /// Files of slow frames.
    pub slow_files: usize,
    /// Why a file of telemetry could not be written.
    pub file_error: Option<String>,
    /// The newest breaches, in one line each.
    pub breaches: Vec<String>,
    /// Ends of matches.
    pub ends: Vec<EndLine>,
    /// Matches whose frames did not end.
    pub stuck: Vec<String>,
    /// Processor time of the process since the start of the measured part, in seconds.
    pub cpu_s: Option<f64>,
    /// Resident memory of the process before its matches were made, and at the end.
    #[serde(default)]
    pub rss_bytes: Option<[u64; 2]>,
    /// Length of the measured part in seconds.
    pub seconds: f64,
    /// Memory of one player's pose history, in bytes.
    pub history_bytes: usize,
    /// Shots judged.
    pub shots: u64,
    /// Hits.
    pub hits: u64,
    /// Claims of shots that were clamped.
    pub clamped: u64,
    /// Commands and shots that the games refused.
    pub refused_by_game: u64,
    /// Poses evaluated, and poses spared by cadence and by phase.
    pub poses: [u64; 3],
    /// Rays of the fog.
    pub fog_rays: u64,
}

/// The budgets of a file, or those of this crate.
pub(crate) fn budgets(path: Option<&Path>) -> Result<FrameBudgets, RangeError> {
    let subsystems = Subsystems::new();
    match path {
        Some(path) => FrameBudgets::read(path, &subsystems),
        None => FrameBudgets::parse(BUDGETS, Path::new("budgets.toml"), &subsystems),
    }
    .map_err(|error| RangeError::Options(error.to_string()))
}

/// The matches of this process.
pub(crate) struct Site {
    telemetry: Telemetry,
    _collecting: Collecting,
    host: Host,
    /// Matches that have not begun.
    waiting: VecDeque<Match>,
    /// Those that have.
    begun: Vec<MatchId>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) windows: Vec<Window>,
    pub(crate) ends: Vec<(MatchId, MatchEnd)>,
    files: Option<PathBuf>,
    is_traced: bool,
    trace_error: Option<io::Error>,
    matches: usize,
    measured_from: Instant,
    cpu_from: Option<f64>,
    rss_before: Option<u64>,
}

/// The folder of slow frames, in the folder of a run.
pub const SLOW_FOLDER: &str = "slow";

impl Site {
    /// Makes hosts, servers and games. Clients may come; no match is played yet.
    pub(crate) fn new(order: &SiteOrder, stage: &Stage) -> Result<Site, RangeError> {
        let rss_before = throng_machine::rss_bytes();
        let subsystems = Subsystems::new();
        let budgets = budgets(order.budgets.as_deref())?;
        let has_limit = budgets.frame_ns.or(budgets.slow_frame_ns).is_some();
        let flight =
            order.files.as_ref().filter(|_| has_limit).map(|folder| FlightOptions::new(folder.join(SLOW_FOLDER)));
        let table = order.files.as_ref().map(|folder| folder.join("frames.parquet"));
        let options = TelemetryOptions { subsystems, budgets, flight, table, ..TelemetryOptions::default() };
        let telemetry = Telemetry::start(options)?;
        let collecting = telemetry.collect_in_background().map_err(|error| RangeError::Options(error.to_string()))?;
        let pinning = if order.cores.is_empty() { Pinning::None } else { Pinning::Cores(order.cores.clone()) };
        let options = HostOptions {
            workers: order.workers,
            pinning,
            overrun: match order.catch_up {
                0 => Overrun::SkipLate,
                at_most => Overrun::CatchUp { at_most },
            },
            spin: Duration::from_micros(order.spin_us),
            scheduling: Scheduling { timer_slack_ns: std::num::NonZeroU64::new(order.timer_slack_ns) },
            ..HostOptions::default()
        };
        let host = Host::start(options, telemetry.clock().clone())?;
        let mut site = Site {
            telemetry,
            _collecting: collecting,
            host,
            waiting: VecDeque::new(),
            begun: Vec::new(),
            addresses: Vec::new(),
            windows: Vec::new(),
            ends: Vec::new(),
            files: order.files.clone(),
            is_traced: false,
            trace_error: None,
            matches: order.matches as usize,
            measured_from: Instant::now(),
            cpu_from: None,
            rss_before,
        };
        for number in 0..order.matches {
            site.make(number, order, stage)?;
        }
        Ok(site)
    }

    fn make(&mut self, number: u32, order: &SiteOrder, stage: &Stage) -> Result<(), RangeError> {
        let seed = order.seed.wrapping_add(number.into());
        let rules = rules_of(order.rules.rules, order.first + number);
        let written = RulesText { rules, ..order.rules };
        let options = kinds::server_options(&rules, Key::new(order.key));
        let server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0)), schema()?, options)?;
        self.addresses.push(server.local_address());
        let window = Window::default();
        let game = new_game(&written, seed, stage)?;
        let observer = Watcher::new(&game, window.clone(), number == 0);
        let game = Observed { game, observer };
        self.windows.push(window);
        let record = order.record.as_deref().filter(|_| number == 0);
        let recording = record.map(|path| recording(path, order, stage, seed)).transpose()?;
        let name = match_name(order.first + number + 1);
        let options = MatchOptions {
            rate_hz: rules.tick_hz,
            seats: Seats::open(rules.seats() as u16),
            farewell: FAREWELL,
            recording,
            ..MatchOptions::new(&name)
        };
        let recorder = self.telemetry.recorder(&name);
        let log_path = order.record.clone().unwrap_or_default();
        let game =
            Match::new(options, Box::new(game), server, recorder).map_err(|error| file_error(&log_path, error))?;
        self.waiting.push_back(game);
        Ok(())
    }

    /// Begins to play the first matches.
    pub(crate) fn start(&mut self, matches: u32) {
        self.want(matches);
        self.measure_from_now();
    }

    /// Has so many matches play: the first ones. Matches that have ended do not begin again.
    pub(crate) fn want(&mut self, matches: u32) {
        let wanted = matches as usize;
        while self.begun.len() < wanted
            && let Some(game) = self.waiting.pop_front()
        {
            self.begun.push(self.host.add(game));
        }
        self.begun.iter().skip(wanted).for_each(|id| self.host.end(*id, "the load falls"));
    }

    /// Matches that have begun until now.
    pub(crate) fn begun(&self) -> u32 {
        self.begun.len() as u32
    }

    /// The counts so far of what is measured.
    pub(crate) fn counts(&self) -> Counts {
        let Distributions { frame_ns, late_ns, .. } = self.telemetry.distributions();
        let missed_ticks = self.host.figures().iter().map(|worker| worker.missed_ticks).sum();
        Counts { frame_ns, late_ns, missed_ticks, cpu_s: process_cpu_s() }
    }

    /// Forgets all figures: the measured part begins.
    pub(crate) fn measure_from_now(&mut self) {
        self.host.reset_figures();
        self.telemetry.collect();
        self.telemetry.reset_figures();
        self.measured_from = Instant::now();
        self.cpu_from = Some(process_cpu_s());
    }

    /// Waits for ends, at most `within`. Returns whether all matches have ended.
    pub(crate) fn wait(&mut self, within: Duration) -> bool {
        self.ends.extend(self.host.wait_end(within));
        if !self.is_traced && self.measured_from.elapsed() >= TRACED_AFTER {
            self.is_traced = true;
            if let Some(folder) = &self.files {
                self.trace_error = std::fs::write(folder.join(TRACE), self.telemetry.trace(TRACED)).err();
            }
        }
        self.ends.len() == self.matches
    }

    /// The numbers of the matches that have begun and have not ended, from 1.
    pub(crate) fn playing(&self) -> Vec<u32> {
        let has_ended = |number: u32| self.ends.iter().any(|(_, end)| end.name == match_name(number));
        (1..=self.begun()).filter(|number| !has_ended(*number)).collect()
    }

    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Where the first match is, and its frames so far, in one line.
    pub(crate) fn progress(&self) -> Option<String> {
        let snapshot = self.telemetry.snapshot();
        let watched = self.windows.first()?.look();
        if watched.rounds == 0 {
            return None;
        }
        // With the time, it fits into 80 columns.
        Some(format!(
            "round {} {} {}:{}; frame p99 {:.2} ms, late {:.0} µs",
            watched.rounds,
            watched.phase,
            watched.score[0],
            watched.score[1],
            snapshot.frame_ns.p99 as f64 / 1e6,
            snapshot.late_ns.p99 as f64 / 1e3
        ))
    }

    /// The trace of the first seconds, if there is none yet, and the end of the table.
    fn write_files(&mut self) -> io::Result<()> {
        let Some(folder) = &self.files else { return Ok(()) };
        if !self.is_traced {
            std::fs::write(folder.join(TRACE), self.telemetry.trace(TRACED))?;
        }
        let finished = self.telemetry.finish();
        self.trace_error.take().map_or(finished, Err)
    }

    /// Ends all matches, and adds up.
    pub(crate) fn finish(mut self) -> (SiteReport, Vec<Watched>) {
        let seconds = self.measured_from.elapsed().as_secs_f64();
        let cpu_s = self.cpu_from.map(|from| process_cpu_s() - from);
        let rss_bytes = self.rss_before.zip(throng_machine::rss_bytes()).map(|(before, now)| [before, now]);
        let (snapshot, values, workers) =
            (self.telemetry.snapshot(), self.telemetry.distributions(), self.host.figures());
        let mut file_errors = self.write_files().err().map(|error| error.to_string());
        let shutdown = self.host.shut_down("the time is over", SHUTDOWN);
        self.ends.extend(shutdown.ends);
        // They come in the order in which matches ended.
        self.ends.sort_by_key(|(id, _)| *id);
        let watched: Vec<Watched> = self.windows.iter().map(|window| std::mem::take(&mut *window.look())).collect();
        let sum = |of: fn(&Watched) -> u64| watched.iter().map(of).sum::<u64>();
        let report = SiteReport {
            frame: Times::of(snapshot.frame_ns, values.frame_ns),
            late: Times::of(snapshot.late_ns, values.late_ns),
            wake_late: Times::joined(
                (workers.iter())
                    .map(|worker| Times::of(worker.wake_late_ns, worker.wake_late_values.clone()))
                    .collect::<Vec<_>>()
                    .iter(),
            ),
            not_running_ns: snapshot.not_running_ns,
            measuring_ns: measuring_ns(&snapshot, &watched),
            lost_frames: snapshot.lost_frames,
            missed_ticks: workers.iter().map(|worker| worker.missed_ticks).sum(),
            subsystems: snapshot
                .subsystems
                .iter()
                .zip(values.subsystems)
                .map(|(of, (_, values))| subsystem(of, values))
                .collect(),
            phases: (snapshot.phases.iter())
                .zip(values.phases)
                .map(|(phase, (_, values))| (phase.phase.name().to_owned(), Times::of(phase.frame_ns, values)))
                .collect(),
            fog_live_ns: fog_live_ns(&snapshot),
            slow_files: snapshot.dumps.len(),
            file_error: file_errors.take().or(snapshot.last_write_error),
            breaches: snapshot.breaches.iter().map(ToString::to_string).collect(),
            ends: self.ends.iter().map(|(_, end)| end_line(end)).collect(),
            stuck: shutdown.stuck,
            cpu_s,
            rss_bytes,
            seconds,
            history_bytes: watched.iter().map(|watched| watched.history_bytes).max().unwrap_or(0),
            shots: sum(|watched| watched.rewind.shots),
            hits: sum(|watched| watched.rewind.hits),
            clamped: sum(|watched| watched.rewind.clamped),
            refused_by_game: sum(|watched| watched.refused),
            poses: [
                sum(|watched| watched.counters.poses),
                sum(|watched| watched.counters.poses_saved_by_cadence),
                sum(|watched| watched.counters.poses_saved_by_phase),
            ],
            fog_rays: sum(|watched| watched.fog.rays),
        };
        (report, watched)
    }
}

fn match_name(number: u32) -> String {
    format!("match {number}")
}

/// A line to a process with matches.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    Start,
    /// The measured part begins.
    Measure,
    /// The matches are wanted no longer: they end, and tell their players that the load falls.
    Fall,
    /// Tell the counts so far.
    Count,
}

/// A line of such a process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SiteLine {
    /// Its servers can be connected to.
    At(Vec<SocketAddr>),
    Progress(String),
    Counts(Counts),
    Done(Box<SiteReport>),
}

/// Another process: reads a [`SiteOrder`] from the standard input, and plays as the next lines say, until the input ends.
///
/// # Errors
/// The order makes no sense, or the matches cannot be made.
pub fn serve() -> Result<(), RangeError> {
    let order: SiteOrder = piped::read_order().map_err(|error| RangeError::Options(error.to_string()))?;
    let stage = Stage::of_file(&order.map, order.has_own_map)?;
    let mut site = Site::new(&order, &stage)?;
    piped::answer(&SiteLine::At(site.addresses.clone()));
    let commands = piped::hear(|line| serde_json::from_str(line).ok());
    let mut told = Instant::now();
    loop {
        if told.elapsed() >= PROGRESS_INTERVAL {
            told = Instant::now();
            site.progress().into_iter().for_each(|line| piped::answer(&SiteLine::Progress(line)));
        }
        match commands.try_recv() {
            Ok(Command::Start) => site.start(order.matches),
            Ok(Command::Measure) => site.measure_from_now(),
            Ok(Command::Fall) => site.want(0),
            Ok(Command::Count) => piped::answer(&SiteLine::Counts(site.counts())),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => break,
        }
        if site.wait(Duration::from_millis(20)) {
            break;
        }
    }
    let (report, _) = site.finish();
    piped::last_answer(&SiteLine::Done(Box::new(report)))
        .map_err(|source| RangeError::File { path: "standard output".into(), source })
}

/// The kinds of the game.
pub(crate) fn schema() -> Result<std::sync::Arc<Schema>, RangeError> {
    kinds::schema().map_err(|error| RangeError::Options(error.to_string()))
}

/// A match at its beginning, as the server plays it and as a replay does.
pub(crate) fn new_game(text: &RulesText, seed: u64, stage: &Stage) -> Result<Tactical, RangeError> {
    let rules = text.rules;
    let game = Tactical::new(stage.arena.clone(), rules, seed)?;
    if !text.has_agents {
        return Ok(game);
    }
    let (arena, navigation) = (&stage.arena, stage.navigation()?);
    let of_match = brain::Stage { arena, navigation, seats: rules.seats(), tick_hz: rules.tick_hz, seed };
    let squad = Squad::new(&of_match, SquadOptions::default());
    let squad = squad.map_err(|error| RangeError::Options(format!("agents cannot play by these rules: {error}")))?;
    Ok(game.with_agents(Box::new(squad)))
}

fn recording(path: &Path, order: &SiteOrder, stage: &Stage, seed: u64) -> Result<Recording, RangeError> {
    let failed = |error| file_error(path, error);
    let settings = serde_json::to_vec(&order.rules).map_err(|error| failed(error.into()))?;
    Ok(Recording {
        sink: Box::new(File::create(path).map_err(failed)?),
        build: build_id().map_err(failed)?,
        game: GAME.to_owned(),
        seed,
        map_checksum: stage.map().checksum(),
        settings,
    })
}

/// Of all frames. The cost of watching is a mean of all frames since the start, times those that are measured.
fn measuring_ns(snapshot: &Snapshot, watched: &[Watched]) -> Option<u64> {
    let (frames, ns) = watched.iter().fold((0, 0), |sum, of| (sum.0 + of.watched_frames, sum.1 + of.watching_ns));
    let watching_ns = ns as f64 / frames.max(1) as f64 * snapshot.frames as f64;
    snapshot.measuring.collector_ns.map(|_| snapshot.measuring.total_ns() + watching_ns as u64)
}

fn fog_live_ns(snapshot: &Snapshot) -> f64 {
    let fog = snapshot.subsystems.iter().position(|of| of.subsystem == Subsystem::FOG_OF_WAR);
    let live = snapshot.phases.iter().find(|phase| phase.phase.name() == LIVE);
    let mean_ns = live.zip(fog).and_then(|(live, fog)| live.mean_ns.get(fog)).copied().unwrap_or_default();
    mean_ns * live.map_or(0.0, |live| live.frames as f64)
}

/// The buy phases of several matches have lengths of their own, from an eighth of the rules' to all of it, so that their
/// rounds do not go together. The first match has that of the rules.
fn rules_of(rules: Rules, number: u32) -> Rules {
    let part = (f64::from(number) * 0.618_033_988_749).fract() as f32;
    // A short one stays possible.
    Rules { buy_s: (rules.buy_s * (1.0 - 0.875 * part)).max(*PHASE_S.start()), ..rules }
}

fn subsystem(of: &SubsystemFigures, values: Vec<(u64, u64)>) -> SubsystemTimes {
    let (name, times) = (of.name.clone(), Times::of(of.frame_ns, values));
    SubsystemTimes { name, times, budget_ns: of.budget_ns, breaches: of.breaches }
}

fn end_line(end: &MatchEnd) -> EndLine {
    let is_stopped = matches!(&end.error, Some(throng_match::MatchError::Stopped { .. }));
    EndLine {
        line: end.to_string(),
        is_first: end.name == match_name(1),
        outcome: end.outcome.clone(),
        is_sound: end.error.is_none() || is_stopped,
        is_logged: end.log_error.is_none(),
        taken: end.counters.commands.taken,
        refused: end.counters.commands.refused(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(values: impl Iterator<Item = u64>) -> Times {
        let mut histogram = Histogram::new();
        values.for_each(|value| histogram.record(value));
        Times::from(&histogram)
    }

    #[test]
    fn joined_percentiles_are_those_of_all_values() {
        // 99 processes are fast, and one is slow: one of a hundred frames is slow, and not one of each hundred.
        let mut parts: Vec<Times> = (0..99).map(|_| times((0..1_000).map(|_| 100))).collect();
        parts.push(times((0..1_000).map(|value| 10_000 + value)));
        let joined = Times::joined(parts.iter());
        let all = times((0..99_000).map(|_| 100).chain((0..1_000).map(|value| 10_000 + value)));
        assert_eq!((joined.count, joined.p50, joined.p99), (100_000, 100.0, 100.0));
        assert!((joined.mean - all.mean).abs() < 1e-6 && joined.max == 10_999.0, "{joined:?}");
        assert_eq!(joined.values, all.values);
        assert_eq!(Times::joined([].iter()), Times::default());
    }
}
