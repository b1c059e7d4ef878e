//! `throng lab metrics`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use throng_report::{Better, Kind, of_kind};

use crate::exit::Outcome;

pub(super) const LONG_ABOUT: &str = "\
Print the figures that runs of a kind have: path, unit, which direction is better, and meaning

Limits name figures by these paths (throng crowd --limit).

  throng lab metrics crowd
  throng lab metrics gateway | grep latency";

/// Arguments of `throng lab metrics`.
#[derive(Debug, Args)]
pub(super) struct MetricsArguments {
    /// The kind of runs
    #[arg(default_value = "crowd", value_parser = ["crowd", "match", "ai", "gateway", "capacity", "models"])]
    kind: String,
}

pub(super) fn print(arguments: &MetricsArguments) -> Outcome {
    let kind: Kind = serde_json::from_value(arguments.kind[..].into()).context("there is no such kind")?;
    let longest = of_kind(kind).map(|metric| metric.path.len()).max().unwrap_or(0);
    for metric in of_kind(kind) {
        let better = match metric.better {
            Better::Less => "less is better",
            Better::More => "more is better",
            Better::Neither => "describes the run",
        };
        outln!("{:<longest$}  {:<7}  {better:<17}  {}", metric.path, metric.unit, metric.explanation);
    }
    Ok(ExitCode::SUCCESS)
}
