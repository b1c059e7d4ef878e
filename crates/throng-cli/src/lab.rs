//! `throng lab`: its subcommands, and what they lead to.

mod capacity;
mod history;
mod metrics;
mod runs;
mod schema;
mod serve;
mod worker;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::exit::Outcome;
use crate::pages::{self, PagesArguments};
use capacity::{RunArguments, SearchArguments, SoakArguments, StepArguments};
use history::{BisectArguments, CompareArguments, TrendArguments};
use metrics::MetricsArguments;
use runs::{RunsArguments, UploadArguments};
use schema::SchemaArguments;
use serve::ServeArguments;
use worker::WorkerArguments;

pub(crate) const LONG_ABOUT: &str = "\
How much does this machine hold, and which change made it slower?

  throng lab search ai                      how many matches of AI agents fit, in about half an hour
  throng lab search match --hold 20s --confirm 1m     matches of the tactical game; shorter, and less sure
  throng lab step ai --step 50 --hold 10m --cpu 85 --timeouts 2     the published method, in hours
  throng lab search mine.toml               your own server (docs/capacity.md)
  throng lab run match --amounts 4,8,16     whether given loads keep their limits, and how levels grow
  throng lab soak crowd --start 300 --hours 8         whether memory stands still
  throng lab compare before/ after/         what became slower, with its interval
  throng lab trend runs                     which revisions changed a part of the frame
  throng lab serve crowd --players 2000     a web page of a load while it runs
  throng lab worker --listen ADDR --key KEY --own IP     play a part of the bots of a run on another machine
  throng lab runs s3://bucket/prefix        the runs of a store
  throng lab bisect --good v1 --bad main --run COMMAND     which revision made it slower
  throng lab report                         runs/index.html: all runs, with a page for each";

/// Arguments of `throng lab`.
#[derive(Debug, Args)]
#[command(long_about = LONG_ABOUT)]
pub(crate) struct LabArguments {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Hold given loads: do they keep their limits, and how do levels grow?
    #[command(long_about = capacity::RUN_LONG_ABOUT)]
    Run(RunArguments),
    /// Find the largest load that keeps its limits: raise, narrow, confirm
    #[command(long_about = capacity::SEARCH_LONG_ABOUT)]
    Search(SearchArguments),
    /// Find it by the published method: add a step, hold, step back
    #[command(long_about = capacity::STEP_LONG_ABOUT)]
    Step(StepArguments),
    /// Hold a load for hours, and judge the growth of memory
    #[command(long_about = capacity::SOAK_LONG_ABOUT)]
    Soak(SoakArguments),
    /// Compare two runs, or two sides of several runs, part by part
    #[command(long_about = history::COMPARE_LONG_ABOUT)]
    Compare(CompareArguments),
    /// Find the revisions that changed a part of the frame, among stored runs
    #[command(long_about = history::TREND_LONG_ABOUT)]
    Trend(TrendArguments),
    /// Find the revision that made it slower, by building and measuring
    #[command(long_about = history::BISECT_LONG_ABOUT)]
    Bisect(BisectArguments),
    /// List the runs of a folder or of a store
    #[command(long_about = runs::RUNS_LONG_ABOUT)]
    Runs(RunsArguments),
    /// Show loads in a web page while they run
    #[command(long_about = serve::LONG_ABOUT)]
    Serve(ServeArguments),
    /// Play a part of the bots of runs on other machines
    #[command(long_about = worker::LONG_ABOUT)]
    Worker(WorkerArguments),
    /// Send the folder of a run to a store
    Upload(UploadArguments),
    /// Print the figures of a kind of runs, by which limits name them
    #[command(long_about = metrics::LONG_ABOUT)]
    Metrics(MetricsArguments),
    /// Print the JSON Schema of a kind of summary
    #[command(long_about = schema::LONG_ABOUT)]
    Schema(SchemaArguments),
    /// Write the pages of runs again, and the page of all runs of a folder
    #[command(long_about = pages::LONG_ABOUT)]
    Report(PagesArguments),
}

pub(crate) fn run(arguments: &LabArguments, stop: impl FnOnce() -> Result<Arc<AtomicBool>>) -> Outcome {
    match &arguments.command {
        LabCommand::Run(arguments) => capacity::run(arguments, &stop()?),
        LabCommand::Search(arguments) => capacity::search(arguments, &stop()?),
        LabCommand::Step(arguments) => capacity::step(arguments, &stop()?),
        LabCommand::Soak(arguments) => capacity::soak(arguments, &stop()?),
        LabCommand::Compare(arguments) => history::compare(arguments, stop()?.as_ref()),
        LabCommand::Trend(arguments) => history::trend(arguments, stop()?.as_ref()),
        LabCommand::Bisect(arguments) => history::bisect(arguments, stop()?.as_ref()),
        LabCommand::Runs(arguments) => runs::runs(arguments, stop()?.as_ref()),
        LabCommand::Serve(arguments) => serve::serve(arguments, stop()?.as_ref()),
        LabCommand::Worker(arguments) => worker::work(arguments, stop()?.as_ref()),
        LabCommand::Upload(arguments) => runs::upload(arguments, stop()?.as_ref()),
        LabCommand::Metrics(arguments) => metrics::print(arguments),
        LabCommand::Schema(arguments) => schema::print(arguments),
        LabCommand::Report(arguments) => pages::rebuild_all(arguments, stop),
    }
}
