//! `throng lab search`, `step`, `run` and `soak`.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use throng_capacity::{self as capacity, CapacityOptions, Load, Method, SoakOptions};
use throng_judge::{HoldOptions, SearchOptions, StepOptions};

use crate::ai_server::cores::{self, Cores};
use crate::exit::{self, Failure, Outcome};
use crate::live::LiveArgument;
use crate::store::{self, StoreArgument};

pub(super) const SEARCH_LONG_ABOUT: &str = "\
How large a load keeps its limits?

Raises the load until it is rejected, narrows the answer down to 1 %, and holds the answer and the next load for longer.
Each limit is judged with its bounds: a load is accepted if all limits hold with a probability of 95 % each. If the load
generator is too slow, a trial is invalid, not failed.

Loads: ai (matches of AI agents), match (5 against 5 with bots over UDP), crowd (players in one place), gateway (clients of
a gateway), or the path of a load file: docs/capacity.md tells how to measure your own server.

  throng lab search ai
  throng lab search match --hold 20s --confirm 1m --most 64
  throng lab search crowd --cpu 70 --timeouts 0.5
  throng lab search ai --cores 2,3";

pub(super) const RUN_LONG_ABOUT: &str = "\
Does a load keep its limits, and how do its levels grow?

Holds each load, and judges its limits with their bounds. With three loads or more, a curve is laid through each level, and the
largest load is compared with the forecast of the smaller ones.

  throng lab run match --amounts 16 --repeats 3 --junit limits.xml
  throng lab run ai --amounts 50,100,200,300 --hold 20s";

pub(super) const STEP_LONG_ABOUT: &str = "\
How large a load keeps its limits, by the published method?

Adds a step of load and holds it, as long as the means of the newest 30 samples keep all limits. Then it steps back until
they do: to the middle between the largest load that kept them and the smallest that did not.

  throng lab step ai --step 50 --hold 10m --cpu 85 --timeouts 2
  throng lab step crowd --step 100 --hold 1m";

pub(super) const SOAK_LONG_ABOUT: &str = "\
Does memory stand still for hours?

Holds one load, and samples the memory of this program and of all processes that it starts. The samples go to memory.jsonl as
they come. The growth in the second half is judged by its forecast for 24 hours, with its bounds.

  throng lab soak crowd --start 300 --hours 8
  throng lab soak mine.toml --hours 24 --growth 5";

/// The load of a measurement.
#[derive(Debug, Args)]
struct LoadArguments {
    /// ai, match, crowd, gateway, or the path of a load file
    load: String,
    /// The limit called cpu, in per cent [default: the load file's]
    #[arg(long, value_name = "PERCENT")]
    cpu: Option<f64>,
    /// The limit called timeouts, in per cent [default: the load file's]
    #[arg(long, value_name = "PERCENT")]
    timeouts: Option<f64>,
    /// Another limit, in the unit of its samples, as memory=0.9; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = limit)]
    limit: Vec<(String, f64)>,
    /// Cores that the load is put on, as 1 or 0,2-3, if its command has {cores} [default: the last one that this process may use]
    #[arg(long, value_name = "LIST")]
    cores: Option<Cores>,
    /// Parent folder of the run's folder
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    #[command(flatten)]
    live: LiveArgument,
    #[command(flatten)]
    store: StoreArgument,
    /// Print the figures as JSON instead of the table (docs/capacity.md)
    #[arg(long)]
    json: bool,
    /// Also write the trials as JUnit XML, for a build server; a file that exists is overwritten
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Also write answer and trials as a table in Markdown, for a pull request; a file that exists is overwritten
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
    /// Further arguments of the load's command, as -- --rays 64
    #[arg(last = true, value_name = "ARGUMENT")]
    further: Vec<String>,
}

/// The loads between which an answer is looked for.
#[derive(Debug, Args)]
struct RangeArguments {
    /// The first load [default: the load file's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    start: Option<u32>,
    /// The largest load [default: the load file's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
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
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
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
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
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
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    amounts: Vec<u32>,
    /// Each load is held so often
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    repeats: u32,
    /// Each load is held so long, as 90s or 10m
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = hold)]
    hold: Duration,
}

/// Arguments of `throng lab soak`.
#[derive(Debug, Args)]
pub(super) struct SoakArguments {
    #[command(flatten)]
    load: LoadArguments,
    /// The load [default: the load file's first]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    start: Option<u32>,
    /// The load is held so long, in hours: 0.001 to 24
    #[arg(long, value_name = "H")]
    hours: f64,
    /// The memory of each process may grow so much in 24 hours, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    growth: f64,
}

/// A time of a hold: 1 s to 1 day.
fn hold(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| format!("{error}; write it as 90s, 10m or 1h"))?;
    let is_fine = (Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(&time);
    is_fine.then_some(time).ok_or_else(|| "a hold takes 1s to 1day".to_owned())
}

fn limit(text: &str) -> Result<(String, f64), String> {
    let expected = || "a name and a number are expected, as cpu=0.85".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(expected)?;
    Ok((name.to_owned(), value.parse().map_err(|_| expected())?))
}

impl LoadArguments {
    fn load(&self) -> Result<Load, Failure> {
        let usage = |error| Failure::Usage(anyhow!("{error}"));
        let mut load = Load::resolve(&self.load).map_err(|error| usage(error.to_string()))?;
        let percent = |name: &str, value: Option<f64>| value.map(|value| (name.to_owned(), value / 100.0));
        let limits = [percent("cpu", self.cpu), percent("timeouts", self.timeouts)];
        for (name, at_most) in limits.into_iter().flatten().chain(self.limit.iter().cloned()) {
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
            return Err(Failure::Usage(anyhow!("--start {} is above --most {}", load.start, load.most)));
        }
        Ok(load)
    }

    fn measure(&self, load: Load, method: Method, stop: &AtomicBool) -> Outcome {
        let program = std::env::current_exe().context("the path of this program is unknown")?;
        let note: fn(&str) = if self.quiet { |_| () } else { |line| errln!("{line}") };
        let store = self.store.open(stop)?;
        let junit = self.junit.as_deref().map(|path| build_file("--junit", path)).transpose()?;
        let markdown = self.markdown.as_deref().map(|path| build_file("--markdown", path)).transpose()?;
        note(&format!("{}: {}", load.name, load.about));
        let (runs, live) = (self.runs.clone(), self.live.address()?);
        let shows_progress = !self.quiet;
        let options = CapacityOptions { load, method, runs, program, note, shows_progress, live };
        let (mut capacity, folder) = capacity::measure(&options, stop)?;
        let texts = [(junit, capacity.to_junit()), (markdown, capacity.to_markdown())];
        for (file, text) in texts {
            if let Some((path, mut file)) = file
                && let Err(error) = file.write_all(text.as_bytes())
            {
                capacity.head.missing.push(format!("{} cannot be written: {error}", path.display()));
            }
        }
        if self.json {
            out!("{}", throng_report::to_json(&capacity));
        } else {
            outln!("{}\nfiles: {}", capacity.table(), folder.display());
        }
        crate::pages::write(&folder, &self.runs, self.quiet);
        if let Some(store) = store {
            store::upload(&store, &folder, self.quiet, stop)?;
        }
        if let Some(missing) = capacity.head.missing.first() {
            return Err(Failure::Run(anyhow!("{missing}")));
        }
        Ok(match capacity.verdict.as_str() {
            "accepted" => ExitCode::SUCCESS,
            "rejected" => ExitCode::from(exit::LIMIT),
            _ => ExitCode::from(exit::INVALID_RUN),
        })
    }
}

/// A file for the build server, opened before the measurement: a wrong path costs no run. The results of an earlier measurement
/// there go, so that they are not taken for those of one that was cut off.
fn build_file<'a>(option: &str, path: &'a Path) -> Result<(&'a Path, File), Failure> {
    let file = File::create(path).with_context(|| format!("cannot write {option} {}", path.display()));
    Ok((path, file.map_err(Failure::Usage)?))
}

pub(super) fn search(arguments: &SearchArguments, stop: &AtomicBool) -> Outcome {
    let load = arguments.load.load_within(&arguments.range)?;
    if !(0.1..=50.0).contains(&arguments.resolution) {
        return Err(Failure::Usage(anyhow!("--resolution {}: it goes from 0.1 to 50 per cent", arguments.resolution)));
    }
    let options = SearchOptions {
        start: load.start,
        most: load.most,
        resolution: arguments.resolution / 100.0,
        trial: arguments.hold,
        confirm: arguments.confirm,
    };
    arguments.load.measure(load, Method::Search(options), stop)
}

pub(super) fn run(arguments: &RunArguments, stop: &AtomicBool) -> Outcome {
    let load = arguments.load.load()?;
    let amounts = if arguments.amounts.is_empty() { vec![load.start] } else { arguments.amounts.clone() };
    let options = HoldOptions { amounts, repeats: arguments.repeats, hold: arguments.hold };
    arguments.load.measure(load, Method::Holds(options), stop)
}

pub(super) fn soak(arguments: &SoakArguments, stop: &AtomicBool) -> Outcome {
    let load = arguments.load.load()?;
    let usage = |text: String| Err(Failure::Usage(anyhow!(text)));
    // NaN is in no range.
    if !(0.001..=24.0).contains(&arguments.hours) {
        return usage(format!("--hours {}: it goes from 0.001 to 24", arguments.hours));
    }
    if !(0.0..=1_000.0).contains(&arguments.growth) {
        return usage(format!("--growth {}: it goes from 0 to 1000 per cent", arguments.growth));
    }
    let hold = Duration::from_secs((arguments.hours * 3_600.0).round() as u64);
    let options =
        SoakOptions { amount: arguments.start.unwrap_or(load.start), hold, growth_max: arguments.growth / 100.0 };
    arguments.load.measure(load, Method::Soak(options), stop)
}

pub(super) fn step(arguments: &StepArguments, stop: &AtomicBool) -> Outcome {
    let load = arguments.load.load_within(&arguments.range)?;
    let options = StepOptions { start: load.start, step: arguments.step, most: load.most, hold: arguments.hold };
    arguments.load.measure(load, Method::Steps(options), stop)
}
