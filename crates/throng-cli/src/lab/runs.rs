//! `throng lab runs` and `throng lab upload`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use clap::Args;
use throng_history::StoredRun;
use throng_report::{Cell, Table};
use throng_store::{RunAge, RunStore};

use super::history::digits;
use crate::exit::Outcome;
use crate::store;

pub(super) const RUNS_LONG_ABOUT: &str = "\
Which runs are there?

Lists the runs of a folder or of a store, the oldest first, by the index of the store (index.jsonl, one line for each run). \
Runs that the index does not have are read.

  throng lab runs                                the runs below runs/
  throng lab runs s3://measurements/throng       those of a bucket
  throng lab runs s3://measurements/throng --rebuild     reads all summaries, and writes the index again";

/// Main figures of a run in the list.
const FIGURES_SHOWN: usize = 3;

/// Arguments of `throng lab runs`.
#[derive(Debug, Args)]
pub(super) struct RunsArguments {
    /// A folder with the folders of runs, or the address of a store
    #[arg(default_value = "runs", value_name = "PLACE")]
    place: String,
    /// Read all summaries, and write the index again
    #[arg(long)]
    rebuild: bool,
    /// Print a line of JSON for each run
    #[arg(long)]
    json: bool,
}

/// Arguments of `throng lab upload`.
#[derive(Debug, Args)]
pub(super) struct UploadArguments {
    /// The folder of a run
    folder: PathBuf,
    /// The store: a folder, file:///folder or s3://bucket/prefix
    #[arg(long, value_name = "URL")]
    store: String,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

pub(super) fn runs(arguments: &RunsArguments, stop: &AtomicBool) -> Outcome {
    let listed = store::list(&arguments.place, arguments.rebuild, stop)?;
    if arguments.json {
        listed.runs.iter().for_each(|run| outln!("{}", run.to_line()));
    } else {
        out!("{}", table(&listed.runs));
    }
    listed.notes.iter().for_each(|note| errln!("note: {note}"));
    if listed.runs.is_empty() {
        errln!("{} has no run", arguments.place);
    }
    Ok(ExitCode::SUCCESS)
}

/// A line for each run.
fn table(runs: &[StoredRun]) -> String {
    let mut table = Table::new("", "");
    for run in runs {
        let figures = run.main_figures();
        let figures = figures.map(|(name, part)| format!("{name} {} {}", digits(part.value), part.unit));
        let invalid = (!run.is_valid).then(|| "not valid".to_owned());
        let figures: Vec<String> = invalid.into_iter().chain(figures.take(FIGURES_SHOWN)).collect();
        let name = Cell::from(run.name());
        table.push([
            name,
            run.workload[..].into(),
            run.revision[..].into(),
            run.cpu[..].into(),
            figures.join(", ").into(),
        ]);
    }
    table.text("")
}

pub(super) fn upload(arguments: &UploadArguments, stop: &AtomicBool) -> Outcome {
    let store = RunStore::open_to_write(&arguments.store, stop).map_err(store::failure)?;
    store::upload(&store, &arguments.folder, RunAge::Old, arguments.quiet, stop)?;
    Ok(ExitCode::SUCCESS)
}
