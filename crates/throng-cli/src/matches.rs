//! `throng match`, `throng density`, and the processes that they start.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use clap::Args;
use throng_range::{
    DensityOptions, Finished, MapSource, Note, Players, RangeError, Rules, RunOptions, Summary, bots, density, play,
    replay_file, site,
};
use throng_report::{Kind, Profile, RunHead};
use throng_tactical::{PHASE_S, ROUNDS_TO_WIN_MAX, TICK_HZ};

use crate::agones::Agones;
use crate::exit::{Failure, Outcome};
use crate::live::LiveArgument;
use crate::metrics_page;
use crate::number::number;
use crate::play::{Figures, Load, OutputArguments, Run};
use crate::scenario_file::ScenarioArgument;

/// The command that starts the bots' process.
pub(crate) const BOTS_FOR_MATCH: &str = "bots-for-match";
/// The command that starts a process with one match.
pub(crate) const SITE_FOR_MATCH: &str = "site-for-match";

/// Rounds that a team has to win.
const ROUNDS: u8 = 1;
/// The same in a run that ends with its time. Each takes as long as the buy phase at least.
const ROUNDS_BY_TIME: u8 = ROUNDS_TO_WIN_MAX;

/// Options of a match that is played. A replay has its map alone.
const NOT_OF_A_REPLAY: [&str; 31] = [
    "hz",
    "rounds",
    "buy_seconds",
    "live_seconds",
    "fuse_seconds",
    "agents",
    "threads",
    "processes",
    "own_maps",
    "no_pin",
    "budgets",
    "catch_up",
    "timer_slack",
    "spin",
    "metrics",
    "live",
    "no_check",
    "runs",
    "store",
    "limits",
    "limit",
    "junit",
    "markdown",
    "json",
    "quiet",
    "no_report",
    "matches",
    "profile",
    "seconds",
    "record",
    "agones",
];

pub(crate) const LONG_ABOUT: &str = "\
Play a match of the tactical game with ten bots over UDP, and write a report

Two teams of five play on a generated town, or on a map that `throng bake` made. A server plays the match at 128 ticks per \
second; the bots are a second process, and know what their clients were sent. Afterwards the match is replayed from its \
input log. The report shows the frame by subsystem, the map from above with the ways of the players, the shots with their \
verdicts, and what the fog hid.

  throng match                          one match to its result: at most 96 s, and some seconds for the replay
  throng match --rounds 3               a longer one: to 3 rounds
  throng match --agents 5               five bots, and five agents that the server plays itself
  throng match --matches 12 --seconds 60 --json     twelve at once for a minute, figures as JSON (docs/match-summary.md)
  throng match --matches 6 --profile staircase:2+2:20s      two matches, four, six, each for 20 s
  throng match --metrics 127.0.0.1:9128 metrics for Prometheus while it goes on
  throng match --record a.log           keep the input log
  throng match --replay a.log           play it again, and compare every digest";

pub(crate) const DENSITY_LONG_ABOUT: &str = "\
Find how many matches at once keep their frames within 2.34 ms (p99)

Plays more and more matches with ten UDP bots each: --first, twice as many, and so on; then halves the interval. A step \
that misses the goal, or whose figures are not valid, is too much. The report has the steps and the figures of the answer.";

/// The arguments of every command that plays matches.
#[derive(Debug, Args)]
pub(crate) struct MatchWorkload {
    #[command(flatten)]
    scenario: ScenarioArgument,
    /// A map file of `throng bake`; without it, a town is generated
    #[arg(long, value_name = "FILE.map")]
    map: Option<PathBuf>,
    /// Triangles of the generated town, at least
    #[arg(long, value_name = "N", default_value_t = 200_000, conflicts_with = "map", value_parser = number(crate::args::TRIANGLES))]
    triangles: usize,
    /// Seed of the town, of the first match, and of the bots
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u64>(..))]
    seed: u64,
    /// Ticks per second
    #[arg(long, value_name = "HZ", default_value_t = 128, value_parser = number(TICK_HZ))]
    hz: u32,
    /// Rounds that a team has to win [default: 1; with --seconds or a load profile 100, the most that are possible]
    #[arg(long, value_name = "N", value_parser = number(1u8..=ROUNDS_TO_WIN_MAX))]
    rounds: Option<u8>,
    /// Length of the buy phase of a round
    #[arg(long, value_name = "S", default_value_t = 8.0, value_parser = number(PHASE_S))]
    buy_seconds: f32,
    /// Length of the live phase of a round, until the bomb is planted
    #[arg(long, value_name = "S", default_value_t = 60.0, value_parser = number(PHASE_S))]
    live_seconds: f32,
    /// Time from the planting of the bomb to its explosion
    #[arg(long, value_name = "S", default_value_t = 25.0, value_parser = number(PHASE_S))]
    fuse_seconds: f32,
    /// Players of each match that the server plays itself, as agents; bots over UDP are the others
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::<u16>(..))]
    agents: u16,
    /// Threads that play matches, each on a core of its own
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = number(1u16..=throng_match::WORKERS_MAX as u16))]
    threads: u16,
    /// Each match in a process of its own
    #[arg(long)]
    processes: bool,
    /// With --processes: each process has a copy of the map of its own, for comparison
    #[arg(long, requires = "processes")]
    own_maps: bool,
    /// Let the system choose the cores of the threads
    #[arg(long)]
    no_pin: bool,
    /// A budget file: times that a frame and its subsystems may take (docs/telemetry.md)
    #[arg(long, value_name = "FILE.toml")]
    budgets: Option<PathBuf>,
    /// Late ticks that are made up for; without it, late ticks are skipped
    #[arg(long, value_name = "TICKS", default_value_t = 0, value_parser = number(0u32..=1_000))]
    catch_up: u32,
    /// Timer slack of the threads, in nanoseconds; 0 leaves that of the system
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = number(0u64..=1_000_000_000))]
    timer_slack: u64,
    /// Look at the clock for so many microseconds before each deadline, instead of sleeping until it
    #[arg(long, value_name = "US", default_value_t = 0, value_parser = number(0u64..=1_000_000))]
    spin: u64,
    /// Show the metrics of the matches for Prometheus at http://ADDR/metrics while they are played
    #[arg(long, value_name = "ADDR", conflicts_with = "processes", value_parser = crate::args::address)]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    live: LiveArgument,
    /// Neither replay nor check the first match
    #[arg(long)]
    no_check: bool,
    #[command(flatten)]
    output: OutputArguments,
    /// Write no report
    #[arg(long, conflicts_with = "store")]
    no_report: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MatchArguments {
    #[command(flatten)]
    workload: MatchWorkload,
    /// Matches at once; with a load profile, the largest number that is possible
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(1u32..=1_000))]
    matches: u32,
    /// How many of the matches play at each moment of the measured part: constant, ramp:1..8:60s, step:2..6:20s,
    /// staircase:2+2:20s, spike:2..8:20s:10s, soak:10m; no longer than a match can last
    #[arg(long, value_name = "PROFILE", default_value = "constant")]
    profile: Profile,
    /// End after so many seconds, for which several matches have to play; without it, after the load profile, or when all matches
    /// are over
    #[arg(long, value_name = "S", value_parser = number(1u32..=86_400))]
    seconds: Option<u32>,
    /// Write the input log of the first match to this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Play an input log again, on the same map, and compare it with the match
    #[arg(long, value_name = "FILE", conflicts_with_all = NOT_OF_A_REPLAY)]
    replay: Option<PathBuf>,
    /// Tell the Agones sidecar of this pod when the process is ready, what it plays, and when it ends (docs/fleet.md)
    #[arg(long)]
    agones: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DensityArguments {
    #[command(flatten)]
    workload: MatchWorkload,
    /// The first number of matches
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(1u32..=1_000))]
    first: u32,
    /// The largest number of matches, at most 1000
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = number(1u32..=1_000))]
    most: u32,
    /// Length of each step, in seconds
    #[arg(long, value_name = "S", default_value_t = 25, value_parser = number(1u32..=86_400))]
    seconds: u32,
}

impl MatchWorkload {
    fn map(&self) -> MapSource {
        match &self.map {
            Some(path) => MapSource::File(path.clone()),
            None => MapSource::Town { seed: self.seed, triangles: self.triangles },
        }
    }

    /// The options of a run to so many rounds, if no other number is given.
    fn options(&self, rounds: u8) -> Result<RunOptions, Failure> {
        let program: OsString = std::env::current_exe().context("the path of this program is unknown")?.into();
        let command = |name: &str| vec![program.clone(), name.into()];
        Ok(RunOptions {
            map: self.map(),
            seed: self.seed,
            rules: Rules {
                tick_hz: self.hz,
                rounds_to_win: self.rounds.unwrap_or(rounds),
                buy_s: self.buy_seconds,
                live_s: self.live_seconds,
                fuse_s: self.fuse_seconds,
                ..Rules::default()
            },
            agents: self.agents,
            workers: self.threads.into(),
            processes: self.processes.then(|| command(SITE_FOR_MATCH)),
            has_own_maps: self.own_maps,
            players: Players::Process(command(BOTS_FOR_MATCH)),
            budgets: self.budgets.clone(),
            is_checked: !self.no_check,
            catch_up: self.catch_up,
            timer_slack_ns: self.timer_slack,
            spin_us: self.spin,
            is_pinned: !self.no_pin,
            note: if self.output.quiet { |_| () } else { show },
            metrics: self.metrics.map(metrics_page::of_matches).transpose()?,
            live: self.live.address()?,
            ..RunOptions::default()
        })
    }

    /// A new folder for the report, if there is to be one.
    fn folder(&self, name: &str) -> Result<Option<PathBuf>, Failure> {
        if self.no_report {
            return Ok(None);
        }
        let folder = throng_report::new_folder(&self.output.runs, SystemTime::now(), name);
        let advice = "name another folder with --runs, or use --no-report";
        folder.map(Some).map_err(|error| Failure::Usage(anyhow!("{error}; {advice}")))
    }
}

/// Matches that are played once.
struct Matches<'a> {
    arguments: &'a MatchArguments,
    options: RunOptions,
    /// With `--agones`, set once they begin.
    agones: &'a mut Option<Agones>,
}

impl Load for Matches<'_> {
    type Figures = Summary;

    const KIND: Kind = Kind::Match;

    fn name(&self) -> &str {
        "match"
    }

    fn play(&mut self, stop: &Arc<AtomicBool>) -> Result<Run<Summary>, Failure> {
        let workload = &self.arguments.workload;
        self.options.folder = workload.folder("match")?;
        if !workload.output.quiet {
            announce(&self.options);
        }
        *self.agones = self.arguments.agones.then(|| Agones::start(&mut self.options)).transpose()?;
        played(play(&self.options, stop), self.options.folder.as_deref())
    }
}

/// More and more matches.
struct Density<'a> {
    workload: &'a MatchWorkload,
    options: DensityOptions,
}

impl Load for Density<'_> {
    type Figures = Summary;

    const KIND: Kind = Kind::Match;

    fn name(&self) -> &str {
        "density"
    }

    fn play(&mut self, stop: &Arc<AtomicBool>) -> Result<Run<Summary>, Failure> {
        self.options.run.folder = self.workload.folder("density")?;
        if let Some(seconds) = self.options.run.seconds.filter(|_| !self.workload.output.quiet) {
            errln!("each step takes {seconds} s and some seconds to begin and to end; press Ctrl-C to stop");
        }
        played(density(&self.options, stop), self.options.run.folder.as_deref())
    }
}

impl Figures for Summary {
    fn head(&self) -> &RunHead {
        &self.head
    }

    fn text(&self) -> String {
        self.table()
    }
}

fn played(finished: Result<Finished, RangeError>, folder: Option<&Path>) -> Result<Run<Summary>, Failure> {
    if let (Err(_), Some(folder)) = (&finished, folder) {
        // Only folders without files go: a run that has failed before its first frame leaves nothing.
        let _ = std::fs::remove_dir(folder.join(site::SLOW_FOLDER));
        let _ = std::fs::remove_dir(folder);
    }
    let Finished { summary: figures, page } = finished.map_err(failure)?;
    let folder = folder.map(Path::to_owned);
    Ok(Run { figures, folder, page: page.map(|page| page.map_err(Into::into)) })
}

pub(crate) fn run(arguments: &MatchArguments, stop: &Arc<AtomicBool>) -> Outcome {
    if let Some(path) = &arguments.replay {
        let replayed = replay_file(path, &arguments.workload.map()).map_err(failure)?;
        let outcome = replayed.outcome.as_deref().unwrap_or("no result");
        outln!("{}: identical, {} ticks, {} digests: {outcome}", path.display(), replayed.ticks, replayed.digests);
        return Ok(ExitCode::SUCCESS);
    }
    let MatchArguments { matches, profile, .. } = *arguments;
    let seconds = arguments.seconds.or_else(|| (profile != Profile::Constant).then(|| profile.seconds(matches)));
    let rounds = if seconds.is_some() { ROUNDS_BY_TIME } else { ROUNDS };
    let record = arguments.record.clone();
    let options = RunOptions { matches, profile, seconds, record, ..arguments.workload.options(rounds)? };
    options.check().map_err(failure)?;
    let mut agones = None;
    let outcome = arguments.workload.output.play(Matches { arguments, options, agones: &mut agones }, stop);
    // Agones may end the pod at once, so it is asked when the run is judged and in its store.
    agones.into_iter().for_each(Agones::end);
    outcome
}

pub(crate) fn find_density(arguments: &DensityArguments, stop: &Arc<AtomicBool>) -> Outcome {
    let DensityArguments { workload, first, most, seconds } = arguments;
    if first > most {
        refuse!("--first {first} is more than --most {most}");
    }
    let run = RunOptions { seconds: Some(*seconds), ..workload.options(ROUNDS_BY_TIME)? };
    run.check().map_err(failure)?;
    let options = DensityOptions { run, first: *first, most: *most };
    workload.output.play(Density { workload, options }, stop)
}

pub(crate) fn play_bots() -> Outcome {
    bots::serve().map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn play_site() -> Outcome {
    site::serve().map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}

/// The next steps, and how long they take.
fn announce(options: &RunOptions) {
    let (matches, longest_s) = (options.matches, options.longest_s());
    let name = if matches == 1 { "a match".to_owned() } else { format!("{matches} matches") };
    let (players, wins) = (options.rules.seats(), options.rules.rounds_to_win);
    let rounds = if wins == 1 { "one round".to_owned() } else { format!("{wins} won rounds") };
    let check = if options.is_checked { ", then a replay and checks of some seconds" } else { "" };
    errln!("{name} of {players} bots to {rounds}: at most {longest_s:.0} s{check}");
    errln!("press Ctrl-C to stop with the figures until then");
}

/// In a terminal, the state has some lines that change. Elsewhere, it has a line every 10 s.
fn show(note: Note<'_>) {
    const SILENCE_S: u64 = 10;
    static SHOWN_S: AtomicU64 = AtomicU64::new(0);
    static IS_OPEN: AtomicBool = AtomicBool::new(false);
    /// Lines of the table above the state.
    static TABLE_LINES: AtomicUsize = AtomicUsize::new(0);
    match note {
        Note::Line(line) => {
            let end = if IS_OPEN.swap(false, Ordering::Relaxed) { "\n" } else { "" };
            TABLE_LINES.store(0, Ordering::Relaxed);
            errln!("{end}{line}");
        }
        Note::Table(table) if std::io::stderr().is_terminal() => {
            // The cursor goes up to the first line of the former table, and everything from there on is erased.
            let up = match TABLE_LINES.swap(table.lines().count(), Ordering::Relaxed) {
                0 => String::new(),
                lines => format!("\x1b[{lines}A"),
            };
            err!("{up}\r\x1b[J{table}");
        }
        Note::Table(_) => {}
        Note::Now(line) if std::io::stderr().is_terminal() => {
            // The cursor goes back to the first column, and the rest of the former text is erased.
            err!("\r{line}\x1b[K");
            IS_OPEN.store(true, Ordering::Relaxed);
        }
        Note::Now(line) => {
            let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            if now_s >= SHOWN_S.load(Ordering::Relaxed) + SILENCE_S {
                SHOWN_S.store(now_s, Ordering::Relaxed);
                errln!("{line}");
            }
        }
    }
}

/// A map, log or option that cannot be used is a wrong argument.
fn failure(error: RangeError) -> Failure {
    match error.tag() {
        "map" | "arena" | "file" | "folder" | "log" | "options" | "game" => Failure::Usage(error.into()),
        _ => anyhow::Error::from(error).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_goes_with_its_map_and_with_no_other_option() {
        let command = MatchArguments::augment_args(clap::Command::new("match"));
        let ids = || command.get_arguments().map(|argument| argument.get_id().as_str());
        let others: Vec<&str> = ids().filter(|id| !NOT_OF_A_REPLAY.contains(id)).collect();
        assert_eq!(others, ["scenario", "map", "triangles", "seed", "replay"]);
        assert!(NOT_OF_A_REPLAY.iter().all(|name| ids().any(|id| id == *name)));
    }
}
