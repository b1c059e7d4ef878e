//! `throng publish`: its arguments, and what they lead to.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use throng_lab::publish::{PublishError, Sources};

use crate::exit::{Failure, Outcome};

const LONG_ABOUT: &str = "\
Writes the generated blocks of the published page (models and peers) from the folders of comparisons, and the plots
into a folder beside it. The text around the blocks stays unchanged. Run it in the repository's folder: paths on the
page are relative to that.

  throng publish runs/20260131-120000-compare --peers bench/peers/results/results.json

The page has every measurement and names missing ones. A separate list repeats every measurement in which another model
or library is better.";

/// Arguments of `throng publish`.
#[derive(Debug, Args)]
#[command(long_about = LONG_ABOUT)]
pub(crate) struct PublishArguments {
    /// The folders of comparisons: runs/...-compare
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// The results file of bench/peers/run
    #[arg(long, value_name = "FILE")]
    peers: Option<PathBuf>,
    /// The page; each block begins with `<!-- generated: NAME -->`. Plots are written into a folder beside it
    #[arg(long, value_name = "FILE", default_value = "docs/benchmarks/comparison.md")]
    out: PathBuf,
}

/// Writes the page and says which files it has.
pub(crate) fn publish(arguments: &PublishArguments) -> Outcome {
    let usage = |error: PublishError| Failure::Usage(error.into());
    let sources = Sources::read(&arguments.folders, arguments.peers.as_deref()).map_err(usage)?;
    let root = std::env::current_dir().context("the current folder is unknown")?;
    let written = sources.publish(&arguments.out, &root).map_err(|error| Failure::Run(error.into()))?;
    written.iter().for_each(|path| println!("{}", path.display()));
    Ok(ExitCode::SUCCESS)
}
