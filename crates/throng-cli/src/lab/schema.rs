//! `throng lab schema`.

use std::process::ExitCode;

use clap::Args;
use schemars::generate::SchemaSettings;
use throng_capacity::Capacity;
use throng_gateway_lab::GatewaySummary;
use throng_range::Summary;
use throng_summary::RunSummary;

use crate::exit::Outcome;
use crate::out;

pub(super) const LONG_ABOUT: &str = "\
Print the JSON Schema of a kind of summary (draft 2020-12)

It is made from the types that the program writes, with the meaning of each key.

  throng lab schema crowd > crowd.schema.json";

/// Arguments of `throng lab schema`.
#[derive(Debug, Args)]
pub(super) struct SchemaArguments {
    /// The kind of run
    #[arg(default_value = "crowd", value_parser = ["crowd", "match", "gateway", "capacity", "models", "comparison"])]
    kind: String,
}

pub(super) fn print(arguments: &SchemaArguments) -> Outcome {
    let made = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let schema = match &arguments.kind[..] {
        "crowd" => made.into_root_schema_for::<RunSummary>(),
        "match" => made.into_root_schema_for::<Summary>(),
        "gateway" => made.into_root_schema_for::<GatewaySummary>(),
        "models" => made.into_root_schema_for::<throng_lab::compare::Comparison>(),
        "comparison" => made.into_root_schema_for::<throng_history::Comparison>(),
        _ => made.into_root_schema_for::<Capacity>(),
    };
    out::json(&schema)?;
    Ok(ExitCode::SUCCESS)
}
