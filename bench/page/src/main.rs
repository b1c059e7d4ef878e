//! Writes the generated blocks of docs/benchmarks/comparison.md.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use throng_page::Sources;

const LONG_ABOUT: &str = "\
Writes the generated blocks of docs/benchmarks/comparison.md (models and peers) from the folders of comparisons, and the plots
into a folder beside it. The text around the blocks stays unchanged. Run it in the repository's folder: paths on the page are
relative to that.

  cargo run -p throng-page -- runs/20260131-120000-compare --peers bench/peers/results/results.json

The page has every measurement and names missing ones. A separate list repeats every measurement in which another model
or library is better.";

#[derive(Debug, Parser)]
#[command(long_about = LONG_ABOUT)]
struct Arguments {
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

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let sources = Sources::read(&arguments.folders, arguments.peers.as_deref())?;
    let root = std::env::current_dir().context("the current folder is unknown")?;
    let written = sources.publish(&arguments.out, &root)?;
    written.iter().for_each(|path| println!("{}", path.display()));
    Ok(())
}
