//! The replication models beside each other: the same workloads played by each in turn, and one table of what came of it.
//!
//! Runs are interleaved: every round plays each contestant once, and begins with another one, so that a machine that is
//! slow for a while is slow for all. Ratios are taken within a round, and their median is what the table shows.
//!
//! ```text
//! runs/20260131-120000-compare/
//!   compare.json                  every run's figures, written anew after each
//!   20260131-120004-dense/        the first run, as `throng crowd` leaves it
//!   ...
//! ```

mod contestant;
mod figures;
mod file;
mod growth;
mod measure;
mod plan;
mod sample;
mod table;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use crate::report::{self, ReportError};
use crate::scenario::Overrides;
use crate::summary::RunSummary;

pub use contestant::Contestant;
pub use figures::Figures;
pub use file::{COMPARISON_FILE, Comparison, ComparisonError, FORMAT, Machine, PublishedTable, Run};
pub use growth::{Curve, Fit, GROWTHS, Point, curves, fit};
pub use measure::{Measure, OUTGOING, OUTSIDE_KERNEL, measures};
pub use plan::{Turn, turns};
pub use sample::{Sample, advantage};
pub use table::table;

/// What is compared.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// Names or files of scenarios, in the order in which they are played.
    pub workloads: Vec<String>,
    /// Who plays. The first is the one that others are held against, unless `legacy` is among them.
    pub contestants: Vec<Contestant>,
    /// How often each contestant plays each workload, at least 1.
    pub repeat: u32,
    /// What is changed in every workload. Model and scratch are the contestants' business.
    pub overrides: Overrides,
    /// Numbers of players with which the first workload is played too; empty: none.
    pub growth: Vec<u32>,
    /// The program's arguments, to be kept with the figures.
    pub command_line: Vec<String>,
    /// The folder in which the comparison's folder is made.
    pub runs: PathBuf,
}

/// What a comparison leaves behind.
pub struct CompareResult {
    /// Every run's figures.
    pub comparison: Comparison,
    /// The folder with `compare.json` and the runs' own folders.
    pub folder: PathBuf,
}

/// Plays every turn with `play`, which is given the folder for its run, and keeps what comes of it. A run that fails is
/// kept as failed, and the others go on. Ends after the run that is playing when `stop` is set.
///
/// `note` is told, in one line, what is about to be played.
///
/// # Errors
/// If the folder or the file in it cannot be written.
pub fn compare(
    options: &CompareOptions,
    stop: &AtomicBool,
    mut play: impl FnMut(&Turn, &Path) -> Result<RunSummary, String>,
    mut note: impl FnMut(&str),
) -> Result<CompareResult, ReportError> {
    let started_at = SystemTime::now();
    let folder = report::new_folder(&options.runs, started_at, "compare")?;
    let mut comparison = Comparison::new(options, report::started_at(started_at));
    let turns = turns(options);
    for (number, turn) in turns.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        note(&format!("{} of {}: {turn}", number + 1, turns.len()));
        let outcome = play(turn, &folder);
        if let Err(error) = &outcome {
            note(&format!("  failed: {error}"));
        }
        comparison.add(turn, outcome);
        comparison.write(&folder)?;
    }
    Ok(CompareResult { comparison, folder })
}
