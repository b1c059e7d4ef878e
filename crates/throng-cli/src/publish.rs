//! `throng publish`: its arguments, and what they lead to.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use throng_lab::publish::{PublishError, Sources};

use crate::exit::{Failure, Outcome};

const LONG_ABOUT: &str = "\
Makes the published page from the folders of comparisons, with its plots beside it.

  throng publish runs/20260131-120000-compare --peers bench/peers/results/results.json

Everything that was measured is on the page. What we lose at stays, and is listed once more by itself.";

/// Arguments of `throng publish`.
#[derive(Debug, Args)]
#[command(long_about = LONG_ABOUT)]
pub(crate) struct PublishArguments {
    /// The folders of comparisons: runs/...-compare
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// What bench/peers/run wrote
    #[arg(long, value_name = "FILE")]
    peers: Option<PathBuf>,
    /// The page; its plots go into a folder beside it
    #[arg(long, value_name = "FILE", default_value = "docs/benchmarks-comparison.md")]
    out: PathBuf,
}

/// Writes the page and says which files it has.
pub(crate) fn publish(arguments: &PublishArguments) -> Outcome {
    let usage = |error: PublishError| Failure::Usage(error.into());
    let sources = Sources::read(&arguments.folders, arguments.peers.as_deref()).map_err(usage)?;
    let written = sources.publish(&arguments.out).map_err(|error| Failure::Run(error.into()))?;
    written.iter().for_each(|path| println!("{}", path.display()));
    Ok(ExitCode::SUCCESS)
}
