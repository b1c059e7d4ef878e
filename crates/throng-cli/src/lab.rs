//! `throng lab`: its subcommands, and what they lead to.

mod capacity;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::exit::Outcome;
use capacity::{SearchArguments, StepArguments};

pub(crate) const LONG_ABOUT: &str = "\
How much does this machine hold, and which change made it slower?

  throng lab search ai                      how many matches of AI agents fit, in about half an hour
  throng lab search match --hold 20s --confirm 1m     matches of the tactical game; shorter, and less sure
  throng lab step ai --step 50 --hold 10m --cpu 85 --timeouts 2     the published method, in hours
  throng lab search mine.toml               your own server (docs/capacity.md)";

/// Arguments of `throng lab`.
#[derive(Debug, Args)]
#[command(long_about = LONG_ABOUT)]
pub(crate) struct LabArguments {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Find the largest load that keeps its limits: raise, narrow, confirm
    #[command(long_about = capacity::SEARCH_LONG_ABOUT)]
    Search(SearchArguments),
    /// Find it by the published method: add a step, hold, step back
    #[command(long_about = capacity::STEP_LONG_ABOUT)]
    Step(StepArguments),
}

pub(crate) fn run(arguments: &LabArguments, stop: impl FnOnce() -> Result<Arc<AtomicBool>>) -> Outcome {
    match &arguments.command {
        LabCommand::Search(arguments) => capacity::search(arguments, stop()?.as_ref()),
        LabCommand::Step(arguments) => capacity::step(arguments, stop()?.as_ref()),
    }
}
