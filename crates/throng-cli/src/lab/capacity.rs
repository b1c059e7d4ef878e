//! `throng lab search`, `step`, `run` and `soak`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use throng_capacity::{self as capacity, Capacity, CapacityOptions, Load, Method, SoakOptions};
use throng_judge::{HoldOptions, SearchOptions, StepOptions};
use throng_report::{Case, Kind, MetricLimit, RunHead, find};

use crate::ai_server::cores::{self, Cores};
use crate::exit::{self, Failure, Outcome};
use crate::live::LiveArgument;
use crate::number::number;
use crate::pages;
use crate::play::{self, Figures, OutputArguments};

pub(super) const SEARCH_LONG_ABOUT: &str = "\
How large a load keeps its limits?

Raises the load until it is rejected, narrows the answer down to 1 %, and holds the answer and the next load for longer. \
Each limit is judged with its bounds: a load is accepted if all limits hold with a probability of 95 % each. If the load \
generator is too slow, a trial is invalid, not failed.

Loads: ai (matches of AI agents), match (5 against 5 with bots over UDP), crowd (players in one place), gateway (clients of \
a gateway), or the path of a load file: docs/capacity.md tells how to measure your own server.

  throng lab search ai
  throng lab search match --hold 20s --confirm 1m --most 64
  throng lab search crowd --cpu 70 --timeouts 0.5
  throng lab search ai --cores 2,3";

pub(super) const RUN_LONG_ABOUT: &str = "\
Does a load keep its limits, and how do its levels grow?

Holds each load, and judges its limits with their bounds. With three loads or more, a curve is laid through each level, and the \
largest load is compared with the forecast of the smaller ones.

  throng lab run match --amounts 16 --repeats 3 --junit limits.xml
  throng lab run ai --amounts 50,100,200,300 --hold 20s";

pub(super) const STEP_LONG_ABOUT: &str = "\
How large a load keeps its limits, by the published method?

Adds a step of load and holds it, as long as the means of the newest 30 samples keep all limits. Then it steps back until \
they do: to the middle between the largest load that kept them and the smallest that did not.

  throng lab step ai --step 50 --hold 10m --cpu 85 --timeouts 2
  throng lab step crowd --step 100 --hold 1m";

pub(super) const SOAK_LONG_ABOUT: &str = "\
Does memory stand still for hours?

Holds one load, and samples the memory of this program and of all processes that it starts. The samples go to memory.jsonl as \
they come. The growth in the second half is judged by its forecast for 24 hours, with its bounds.

  throng lab soak crowd --start 300 --hours 8
  throng lab soak mine.toml --hours 24 --growth 5";

/// The load of a measurement.
#[derive(Debug, Args)]
struct LoadArguments {
    /// ai, match, crowd, gateway, or the path of a load file
    load: String,
    /// The limit called cpu, in per cent; --limit sets one that has a unit [default: the load file's]
    #[arg(long, value_name = "PERCENT", value_parser = number::<f64>(..))]
    cpu: Option<f64>,
    /// The limit called timeouts, in per cent; --limit sets one that has a unit [default: the load file's]
    #[arg(long, value_name = "PERCENT", value_parser = number::<f64>(..))]
    timeouts: Option<f64>,
    /// Cores that the load is put on, as 1 or 0,2-3, if its command has {cores} [default: the last one that this process may use]
    #[arg(long, value_name = "LIST")]
    cores: Option<Cores>,
    #[command(flatten)]
    live: LiveArgument,
    #[command(flatten)]
    output: OutputArguments,
    /// Further arguments of the load's command, as -- --rays 64
    #[arg(last = true, value_name = "ARGUMENT")]
    further: Vec<String>,
}

/// The loads between which an answer is looked for.
#[derive(Debug, Args)]
struct RangeArguments {
    /// The first load [default: the load file's]
    #[arg(long, value_name = "N", value_parser = number(1u32..))]
    start: Option<u32>,
    /// The largest load [default: the load file's]
    #[arg(long, value_name = "N", value_parser = number(1u32..))]
    most: Option<u32>,
}

/// Arguments of `throng lab search`.
#[derive(Debug, Args)]
pub(super) struct SearchArguments {
    #[command(flatten)]
    load: LoadArguments,
    #[command(flatten)]
    range: RangeArguments,
    /// Time of a trial, as 90s or 2m
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = hold)]
    hold: Duration,
    /// Time of each confirming hold
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = hold)]
    confirm: Duration,
    /// How far the answer and the next load may be apart, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = number(0.1f64..=50.0))]
    resolution: f64,
}

/// Arguments of `throng lab step`.
#[derive(Debug, Args)]
pub(super) struct StepArguments {
    #[command(flatten)]
    load: LoadArguments,
    #[command(flatten)]
    range: RangeArguments,
    /// A step adds so much
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = number(1u32..))]
    step: u32,
    /// Each load is held so long, as 90s or 10m
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = hold)]
    hold: Duration,
}

/// Arguments of `throng lab run`.
#[derive(Debug, Args)]
pub(super) struct RunArguments {
    #[command(flatten)]
    load: LoadArguments,
    /// The loads to hold, as 8,16,32 [default: the load file's first]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = number(1u32..))]
    amounts: Vec<u32>,
    /// Each load is held so often
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(1u32..=1_000))]
    repeats: u32,
    /// Each load is held so long, as 90s or 10m
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = hold)]
    hold: Duration,
}

/// Arguments of `throng lab soak`.
#[derive(Debug, Args)]
pub(super) struct SoakArguments {
    #[command(flatten)]
    load: LoadArguments,
    /// The load [default: the load file's first]
    #[arg(long, value_name = "N", value_parser = number(1u32..))]
    start: Option<u32>,
    /// The load is held so long, in hours: 0.001 to 24
    #[arg(long, value_name = "H", value_parser = number(0.001f64..=24.0))]
    hours: f64,
    /// The memory of each process may grow so much in 24 hours, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = number(0.0f64..=1_000.0))]
    growth: f64,
}

/// A time of a hold: 1 s to 1 day.
fn hold(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| format!("{error}; write it as 90s, 10m or 1h"))?;
    let is_fine = (Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(&time);
    is_fine.then_some(time).ok_or_else(|| "a hold takes 1s to 1day".to_owned())
}

impl LoadArguments {
    fn load(&self) -> Result<Load, Failure> {
        let usage = |error| Failure::Usage(anyhow!("{error}"));
        let mut load = Load::resolve(&self.load).map_err(|error| usage(error.to_string()))?;
        let given = [("cpu", self.cpu), ("timeouts", self.timeouts)].into_iter();
        let limits: Vec<_> = given.filter_map(|(name, value)| Some((name.to_owned(), value? / 100.0))).collect();
        let unit = |name: &str| load.limits.iter().find(|limit| limit.name == name)?.unit.clone();
        if let Some((name, unit)) = limits.iter().find_map(|(name, _)| Some((name, unit(name)?))) {
            refuse!(
                "--{name} is in per cent, and the limit {name} of {} is in {unit}: use --limit '{name}<=N'",
                load.name
            );
        }
        let own = self.output.limits.limit.iter().filter(|limit| is_of(limit, &load)).map(|limit| {
            let bound = limit.at_most.filter(|_| limit.at_least.is_none());
            let refused = || usage(format!("limit {}: samples of a load have an upper limit alone", limit.metric));
            Ok((limit.metric.clone(), bound.ok_or_else(refused)?))
        });
        let own: Vec<(String, f64)> = own.collect::<Result<_, Failure>>()?;
        for (name, at_most) in limits.into_iter().chain(own) {
            load.set_limit(&name, at_most).map_err(|error| usage(error.to_string()))?;
        }
        if self.cores.is_some() || load.takes_cores() {
            let cores = cores::choose(self.cores.as_ref()).map_err(Failure::Usage)?;
            let list = cores.iter().map(ToString::to_string).collect::<Vec<String>>().join(",");
            load.pin(&list).map_err(|error| usage(error.to_string()))?;
            // More cores are another question.
            self.cores.iter().for_each(|_| load.added.extend(["--cores".to_owned(), list.clone()]));
        }
        load.add_arguments(&self.further);
        Ok(load)
    }

    /// The load with the first and the largest one that the command line gives.
    fn load_within(&self, range: &RangeArguments) -> Result<Load, Failure> {
        let mut load = self.load()?;
        load.start = range.start.unwrap_or(load.start);
        load.most = range.most.unwrap_or(load.most.max(load.start));
        if load.start > load.most {
            refuse!("--start {} is above --most {}", load.start, load.most);
        }
        Ok(load)
    }

    fn measure(&self, load: Load, method: Method, stop: &Arc<AtomicBool>) -> Outcome {
        let mut output = self.output.clone();
        // The others are limits of the samples, and judge each trial.
        output.limits.limit.retain(|limit| !is_of(limit, &load));
        let options = CapacityOptions {
            load,
            method,
            runs: output.runs.clone(),
            program: std::env::current_exe().context("the path of this program is unknown")?,
            note: output.note(),
            shows_progress: !output.quiet,
            live: self.live.address()?,
        };
        output.play(options, stop)
    }
}

/// Whether a limit is one of the samples of a load, and not of the answer. A name that is neither is the load's: its error lists
/// those that it has.
fn is_of(limit: &MetricLimit, load: &Load) -> bool {
    load.limits.iter().any(|own| own.name == limit.metric) || find(Kind::Capacity, &limit.metric).is_none()
}

impl play::Load for CapacityOptions {
    type Figures = Capacity;

    const KIND: Kind = Kind::Capacity;

    fn name(&self) -> &str {
        &self.load.name
    }

    fn play(&mut self, stop: &Arc<AtomicBool>) -> Result<play::Run<Capacity>, Failure> {
        (self.note)(&format!("{}: {}", self.load.name, self.load.about));
        let (figures, folder) = capacity::measure(self, stop)?;
        // Without its figures there is no page, and the first file that is not whole says why.
        let page =
            pages::rebuild(&folder).map_err(|error| figures.head.missing.first().map_or(error, |why| anyhow!("{why}")));
        Ok(play::Run { figures, folder: Some(folder), page: Some(page) })
    }
}

impl Figures for Capacity {
    fn head(&self) -> &RunHead {
        &self.head
    }

    fn text(&self) -> String {
        capacity::page(self).text()
    }

    fn answer(&self) -> Option<Result<u8, Failure>> {
        if let Some(missing) = self.head.missing.first() {
            return Some(Err(Failure::Run(anyhow!("{missing}"))));
        }
        Some(Ok(match self.verdict.as_str() {
            "accepted" => exit::SUCCESS,
            "rejected" => exit::LIMIT,
            _ => exit::INVALID_RUN,
        }))
    }

    fn cases(&self) -> Vec<Case> {
        self.cases()
    }

    fn markdown(&self) -> String {
        capacity::page(self).markdown()
    }
}

pub(super) fn search(arguments: &SearchArguments, stop: &Arc<AtomicBool>) -> Outcome {
    let load = arguments.load.load_within(&arguments.range)?;
    let options = SearchOptions {
        start: load.start,
        most: load.most,
        resolution: arguments.resolution / 100.0,
        trial: arguments.hold,
        confirm: arguments.confirm,
    };
    arguments.load.measure(load, Method::Search(options), stop)
}

pub(super) fn run(arguments: &RunArguments, stop: &Arc<AtomicBool>) -> Outcome {
    let load = arguments.load.load()?;
    let amounts = if arguments.amounts.is_empty() { vec![load.start] } else { arguments.amounts.clone() };
    let options = HoldOptions { amounts, repeats: arguments.repeats, hold: arguments.hold };
    arguments.load.measure(load, Method::Holds(options), stop)
}

pub(super) fn soak(arguments: &SoakArguments, stop: &Arc<AtomicBool>) -> Outcome {
    let load = arguments.load.load()?;
    let hold = Duration::from_secs((arguments.hours * 3_600.0).round() as u64);
    let options =
        SoakOptions { amount: arguments.start.unwrap_or(load.start), hold, growth_max: arguments.growth / 100.0 };
    arguments.load.measure(load, Method::Soak(options), stop)
}

pub(super) fn step(arguments: &StepArguments, stop: &Arc<AtomicBool>) -> Outcome {
    let load = arguments.load.load_within(&arguments.range)?;
    let options = StepOptions { start: load.start, step: arguments.step, most: load.most, hold: arguments.hold };
    arguments.load.measure(load, Method::Steps(options), stop)
}
