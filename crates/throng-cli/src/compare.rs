//! `throng compare`: its arguments, and what they lead to.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use throng_lab::compare::{self, CompareOptions, Comparison, Contestant, Turn};
use throng_lab::report;
use throng_lab::scenario::{Overrides, Scenario};
use throng_summary::RunSummary;

use crate::exit::{self, Failure, Outcome};

const LONG_ABOUT: &str = "\
What does a replication model cost?

`throng compare` runs a workload with each model, several times in turn, each run in a separate process. It prints one
table: the cost of a tick, the data sent to clients, and the age of that data at the clients.

  throng compare --pin                             100 players who all see each other, with every model
  throng compare --workload sparse,sparse-20 --models graph,shared-state,throng
  throng compare --growth 25,50,200,400,1000       growth of cost with the number of players
  throng compare --workload converge --models legacy,shared-state:per-connection,shared-state
  throng compare --models throng,throng:again,throng:slower --repeat 5 --pin     a check of the comparison itself

`cargo run -p throng-page` writes docs/benchmarks/comparison.md from the folders of comparisons.";

/// Arguments of `throng compare`.
#[derive(Debug, Args)]
#[command(long_about = LONG_ABOUT)]
pub(crate) struct CompareArguments {
    /// Workloads to run: dense, sparse, sparse-10, sparse-20, converge, crowd, or TOML files
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "dense")]
    workload: Vec<String>,
    /// Models to compare: legacy, legacy-push, graph, shared-state, shared-state:per-connection,
    /// shared-state:baselines, throng [default: all without `:`]. To check the comparison itself, add `:again` (runs the
    /// same model again; the comparison must find no difference) or `:slower` (send calls take 25 % longer; the comparison
    /// must find the difference)
    #[arg(long, value_name = "MODEL,...", value_delimiter = ',')]
    models: Vec<Contestant>,
    /// Number of runs of each workload with each model
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Number of players
    #[arg(long, value_name = "N")]
    players: Option<u32>,
    /// Also run the first workload with these numbers of players, and show the growth of cost
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=65_536))]
    growth: Vec<u32>,
    /// Length of the measured part of each run, in seconds
    #[arg(long, value_name = "S", default_value_t = 8)]
    seconds: u32,
    /// Length of the warm-up before the measured part, in seconds [default: the workload's; converge 165, until all
    /// have arrived]
    #[arg(long, value_name = "S")]
    warmup: Option<u32>,
    /// Reserve the first core for the server; the bots use the next ones
    #[arg(long)]
    pin: bool,
    /// Parent folder of the comparison's folder
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// Print the figures of all runs as JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

impl CompareArguments {
    fn options(&self) -> Result<CompareOptions, Failure> {
        let overrides = Overrides {
            players: self.players,
            seconds: Some(self.seconds),
            warmup_seconds: self.warmup,
            pin: self.pin,
            ..Overrides::default()
        };
        let sizes = self.growth.iter().map(|&players| Some(players)).chain([self.players]);
        // Wrong arguments are reported before the first run, not at the last.
        for players in sizes {
            let overrides = Overrides { players, ..overrides.clone() };
            for workload in &self.workload {
                Scenario::resolve(workload, &overrides).map_err(|error| Failure::Usage(error.into()))?;
            }
        }
        Ok(CompareOptions {
            workloads: self.workload.clone(),
            contestants: if self.models.is_empty() { Contestant::usual() } else { self.models.clone() },
            repeat: self.repeat,
            overrides,
            growth: self.growth.clone(),
            runs: self.runs.clone(),
        })
    }
}

/// Runs the comparison and prints the result.
pub(crate) fn compare(arguments: &CompareArguments) -> Outcome {
    let options = arguments.options()?;
    let stop = crate::stop_on_interrupt()?;
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let note = |line: &str| {
        if !arguments.quiet {
            errln!("{line}");
        }
    };
    let result = compare::compare(&options, &stop, |turn, folder| play(&program, turn, folder), note)
        .map_err(|error| Failure::Usage(error.into()))?;
    if arguments.json {
        out!("{}", throng_report::to_json(&result.comparison));
    } else {
        out!("{}", report::models_text(&result.comparison));
    }
    result.written.context("the figures above are on no disk")?;
    crate::pages::write(&result.folder, &arguments.runs, arguments.quiet);
    Ok(ExitCode::from(code(&result.comparison)))
}

/// The exit code: failure if no model has a completed run of some workload and size; invalid if some model has no valid
/// run of one.
fn code(comparison: &Comparison) -> u8 {
    if !comparison.failed_cells().is_empty() {
        return exit::FAILED;
    }
    if comparison.is_complete() { 0 } else { exit::INVALID_RUN }
}

/// A run that takes this much longer than planned is stopped: bots cannot connect to a server that slow.
const PATIENCE: Duration = Duration::from_secs(90);
/// Interval of the checks whether a run has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// One run, in its own process: no model inherits another's heap, threads or cores.
fn play(program: &Path, turn: &Turn, folder: &Path) -> Result<RunSummary, String> {
    let mut child = Command::new(program)
        .args(arguments(turn, folder))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
    let [out, err] = [read_all(child.stdout.take()), read_all(child.stderr.take())];
    let limit = Duration::from_secs(turn.seconds().into()) + PATIENCE;
    let status =
        ended(&mut child, Instant::now() + limit).map_err(|error| format!("it cannot be waited for: {error}"))?;
    let Some(status) = status else {
        return Err(format!("it was stopped because it was not done after {} s", limit.as_secs()));
    };
    let [out, err] = [out, err].map(|reader| reader.join().unwrap_or_default());
    RunSummary::from_json(&out)
        .map_err(|_| err.lines().last().map_or_else(|| format!("it ended with {status}"), str::to_owned))
}

/// Reads a pipe to its end in a separate thread, because a full pipe would stop the run.
fn read_all(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // The text before an error is still useful.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for the process until `deadline`, then kills it: `None`.
fn ended(child: &mut Child, deadline: Instant) -> std::io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// The arguments of `throng` that run a turn.
fn arguments(turn: &Turn, folder: &Path) -> Vec<OsString> {
    let of = &turn.overrides;
    let mut words: Vec<OsString> = ["crowd", "--scenario", &turn.workload].map(OsString::from).to_vec();
    let options = [
        ("--model", of.model.map(|model| model.name().to_owned())),
        ("--scratch", of.scratch.map(|scratch| scratch.name().to_owned())),
        ("--players", of.players.map(|players| players.to_string())),
        ("--send-slowdown", of.send_slowdown_percent.map(|percent| percent.to_string())),
        ("--seconds", of.seconds.map(|seconds| seconds.to_string())),
        ("--warmup", of.warmup_seconds.map(|seconds| seconds.to_string())),
    ];
    for (option, value) in options {
        words.extend(value.into_iter().flat_map(|value| [option.into(), value.into()]));
    }
    words.extend(of.baselines.then(|| "--baselines".into()));
    words.extend(of.pin.then(|| "--pin".into()));
    words.extend(["--runs".into(), folder.into(), "--json".into(), "--quiet".into()]);
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_lab::compare::{Figures, Run};
    use throng_report::{Kind, RunHead};

    #[cfg(unix)]
    #[test]
    fn a_run_that_never_ends_is_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(ended(&mut child, Instant::now()).unwrap(), None);
        let mut child = Command::new("true").spawn().unwrap();
        let status = ended(&mut child, Instant::now() + Duration::from_secs(60)).unwrap();
        assert!(status.is_some_and(|status| status.success()));
    }

    #[test]
    fn a_cell_in_which_everybody_failed_is_a_failure() {
        let code_of = |valid: bool, figures: Option<Figures>| {
            let names = || vec!["throng".to_owned()];
            let run =
                Run { workload: "dense".to_owned(), contestant: names().remove(0), players: 100, ..Run::default() };
            code(&Comparison {
                head: RunHead::example(Kind::Models),
                contestants: names(),
                workloads: vec!["dense".to_owned()],
                planned: Vec::new(),
                runs: vec![Run { valid, figures, ..run }],
                published: Vec::new(),
            })
        };
        assert_eq!(code_of(true, Some(Figures::default())), 0);
        assert_eq!(code_of(false, Some(Figures::default())), exit::INVALID_RUN);
        assert_eq!(code_of(false, None), exit::FAILED);
    }

    #[test]
    fn a_turn_is_played_by_the_command_that_anybody_can_repeat() {
        let contestant: Contestant = "shared-state:per-connection".parse().unwrap();
        let overrides = Overrides {
            model: Some(contestant.model),
            scratch: Some(contestant.scratch),
            baselines: true,
            players: Some(50),
            seconds: Some(4),
            pin: true,
            ..Overrides::default()
        };
        let turn = Turn { workload: "dense".to_owned(), contestant, round: 0, overrides };
        let words = arguments(&turn, Path::new("runs/x"));
        let text = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        assert_eq!(
            text,
            "crowd --scenario dense --model shared-state --scratch per-connection --players 50 --seconds 4 --baselines --pin \
             --runs runs/x --json --quiet"
        );
    }
}
