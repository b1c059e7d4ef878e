//! `throng lab schema`.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use schemars::generate::SchemaSettings;
use throng_capacity::Capacity;
use throng_gateway_lab::GatewaySummary;
use throng_range::Summary;
use throng_summary::RunSummary;

use crate::exit::Outcome;

pub(super) const LONG_ABOUT: &str = "\
Print the JSON Schema of a kind of summary (draft 2020-12)

It is made from the types that the program writes, with the meaning of each key.

  throng lab schema crowd > crowd.schema.json";

/// Arguments of `throng lab schema`.
#[derive(Debug, Args)]
pub(super) struct SchemaArguments {
    /// The kind: summary.json of a crowd, match or gateway, or capacity.json, compare.json, comparison.json
    #[arg(default_value = "crowd")]
    kind: Kind,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Crowd,
    Match,
    Gateway,
    Capacity,
    /// compare.json of throng compare
    Models,
    /// comparison.json of throng lab compare
    Comparison,
}

pub(super) fn print(arguments: &SchemaArguments) -> Outcome {
    let made = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let schema = match arguments.kind {
        Kind::Crowd => made.into_root_schema_for::<RunSummary>(),
        Kind::Match => made.into_root_schema_for::<Summary>(),
        Kind::Gateway => made.into_root_schema_for::<GatewaySummary>(),
        Kind::Models => made.into_root_schema_for::<throng_lab::compare::Comparison>(),
        Kind::Comparison => made.into_root_schema_for::<throng_history::Comparison>(),
        Kind::Capacity => made.into_root_schema_for::<Capacity>(),
    };
    outln!("{}", serde_json::to_string_pretty(&schema).context("cannot write JSON")?);
    Ok(ExitCode::SUCCESS)
}
