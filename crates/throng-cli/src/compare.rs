//! `throng compare`: its arguments, and what they lead to.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Error};
use clap::Args;
use throng_lab::compare::{self, CompareOptions, CompareResult, Comparison, Contestant, Turn};
use throng_lab::report;
use throng_lab::scenario::{Overrides, Scenario};
use throng_machine::bounded::{Cut, Limits, Running};
use throng_report::{Kind, RunHead, SUMMARY_BYTES_MAX};
use throng_summary::RunSummary;

use crate::exit::{self, Failure, Outcome};
use crate::number::number;
use crate::pages;
use crate::play::{Figures, Load, OutputArguments, Run};

const LONG_ABOUT: &str = "\
What does a replication model cost?

`throng compare` runs a workload with each model, several times in turn, each run in a separate process. It prints one \
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
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number(1u32..=100))]
    repeat: u32,
    /// Number of players
    #[arg(long, value_name = "N", value_parser = number::<u32>(..))]
    players: Option<u32>,
    /// Also run the first workload with these numbers of players, and show the growth of cost
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = number(1u32..=65_536))]
    growth: Vec<u32>,
    /// Length of the measured part of each run, in seconds
    #[arg(long, value_name = "S", default_value_t = 8, value_parser = number::<u32>(..))]
    seconds: u32,
    /// Length of the warm-up before the measured part, in seconds [default: the workload's; converge 165, until all
    /// have arrived]
    #[arg(long, value_name = "S", value_parser = number::<u32>(..))]
    warmup: Option<u32>,
    /// Reserve the first core for the server; the bots use the next one
    #[arg(long)]
    pin: bool,
    #[command(flatten)]
    output: OutputArguments,
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
                Scenario::resolve(workload, &overrides).map_err(Failure::usage)?;
            }
        }
        Ok(CompareOptions {
            workloads: self.workload.clone(),
            contestants: if self.models.is_empty() { Contestant::usual() } else { self.models.clone() },
            repeat: self.repeat,
            overrides,
            growth: self.growth.clone(),
            runs: self.output.runs.clone(),
        })
    }
}

/// Runs the comparison and prints the result.
pub(crate) fn compare(arguments: &CompareArguments) -> Outcome {
    let options = arguments.options()?;
    let stop = crate::stop_on_interrupt()?;
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let note = arguments.output.note();
    arguments.output.play(Models { options, program, note }, &stop)
}

/// Models that play the same workloads in turns.
struct Models {
    options: CompareOptions,
    program: PathBuf,
    note: fn(&str),
}

impl Load for Models {
    type Figures = Comparison;

    const KIND: Kind = Kind::Models;

    fn name(&self) -> &str {
        "compare"
    }

    fn play(&mut self, stop: &Arc<AtomicBool>) -> Result<Run<Comparison>, Failure> {
        let Models { options, program, note } = self;
        let played = compare::compare(options, stop, |turn, folder| play(program, turn, folder, stop), note);
        let CompareResult { comparison: figures, folder, written } = played.map_err(Error::from)?;
        let page = written.map_err(Error::from).and_then(|()| pages::rebuild(&folder));
        Ok(Run { figures, folder: Some(folder), page: Some(page) })
    }
}

impl Figures for Comparison {
    fn head(&self) -> &RunHead {
        &self.head
    }

    fn text(&self) -> String {
        report::models_text(self)
    }

    /// A failure if no model has a completed run of some workload and size. Else the head says whether the comparison is valid:
    /// to the page, the terminal, the files for a build server, and the exit code.
    fn answer(&self) -> Option<Result<u8, Failure>> {
        (!self.failed_cells().is_empty()).then_some(Ok(exit::FAILED))
    }
}

/// A run that takes this much longer than planned is stopped: bots cannot connect to a server that slow.
const PATIENCE: Duration = Duration::from_secs(90);
/// A run that was asked to end writes its figures in this time.
const GRACE: Duration = Duration::from_secs(30);

/// One run, in its own process: no model inherits another's heap, threads or cores. If `stop` is set, it ends with what it has
/// measured until then.
fn play(program: &Path, turn: &Turn, folder: &Path, stop: &AtomicBool) -> Result<RunSummary, String> {
    let running = Running::start(Command::new(program).args(arguments(turn, folder)))
        .map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
    let patience = Duration::from_secs(turn.seconds().into()) + PATIENCE;
    let limits = Limits { patience, grace: GRACE, output_max: SUMMARY_BYTES_MAX, errors_max: u64::MAX };
    let finished = running.wait(&limits, stop, |_| ());
    match finished.cut {
        Some(Cut::Late) => {
            return Err(format!("it was stopped because it was not done after {} s", patience.as_secs()));
        }
        Some(Cut::TooMuch) => return Err(format!("it printed more than {} MiB", SUMMARY_BYTES_MAX >> 20)),
        Some(Cut::Stopped) | None => {}
    }
    RunSummary::from_json(&finished.output).map_err(|_| finished.last_words)
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
    use std::process::ExitCode;

    use crate::limits::{LimitArguments, Played};
    use throng_lab::compare::Run;

    /// A comparison of one model in two rounds, as `spoiled` makes the second one.
    fn code_and_head(spoiled: impl Fn(&mut Run)) -> (ExitCode, RunHead) {
        let run = Run {
            workload: "dense".to_owned(),
            contestant: "throng".to_owned(),
            players: 100,
            valid: true,
            figures: Some(compare::Figures::default()),
            ..Run::default()
        };
        let mut second = Run { round: 1, ..run.clone() };
        spoiled(&mut second);
        let mut comparison = Comparison {
            head: RunHead::example(Kind::Models),
            contestants: vec!["throng".to_owned()],
            workloads: vec!["dense".to_owned()],
            planned: Vec::new(),
            runs: vec![run, second],
            published: Vec::new(),
            advantages: Default::default(),
        };
        comparison.head.invalid_reasons.clear();
        comparison.head.conclude(comparison.complaints());
        let gate = LimitArguments::default().open(Kind::Models, &[]).unwrap();
        let played = Played { name: "compare", figures: &comparison, folder: None };
        (gate.judge(&played).unwrap(), comparison.head)
    }

    #[test]
    fn the_exit_code_says_what_the_page_says_also_of_a_round_that_is_spoiled_beside_a_valid_one() {
        let (code, head) = code_and_head(|_| ());
        assert!(head.valid && code == ExitCode::SUCCESS, "{code:?}");
        let (code, head) = code_and_head(|run| run.valid = false);
        assert!(!head.valid && code == ExitCode::from(exit::INVALID_RUN), "{code:?}");
    }

    #[test]
    fn a_cell_in_which_everybody_failed_is_a_failure() {
        let (code, _) =
            code_and_head(|run| *run = Run { workload: "sparse".to_owned(), players: 50, ..Run::default() });
        assert_eq!(code, ExitCode::from(exit::FAILED));
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
