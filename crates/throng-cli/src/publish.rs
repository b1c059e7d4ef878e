//! `throng publish`: its arguments, and what they lead to.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use throng_lab::publish::{PublishError, Sources};

use crate::exit::{Failure, Outcome};

const LONG_ABOUT: &str = "\
Writes the blocks on models and peers of the published page from the folders of comparisons, with the plots beside it. What
stands around the blocks is left alone. To be called in the repository's folder: paths on the page are relative to that.

  throng publish runs/20260131-120000-compare --peers bench/peers/results/results.json

Everything that was measured is on the page, and what was not is named. What we lose at stays, and is listed once more by
itself.";

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
    /// The page, with `<!-- generated: NAME -->` where each block begins; its plots go into a folder beside it
    #[arg(long, value_name = "FILE", default_value = "docs/benchmarks.md")]
    out: PathBuf,
}

/// Writes the page and says which files it has.
pub(crate) fn publish(arguments: &PublishArguments) -> Outcome {
    let usage = |error: PublishError| Failure::Usage(error.into());
    let sources = Sources::read(&arguments.folders, arguments.peers.as_deref()).map_err(usage)?;
    let root = std::env::current_dir().context("there is no current folder")?;
    let written = sources.publish(&arguments.out, &root).map_err(|error| Failure::Run(error.into()))?;
    written.iter().for_each(|path| println!("{}", path.display()));
    Ok(ExitCode::SUCCESS)
}
