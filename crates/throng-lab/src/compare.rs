//! A comparison of replication models: each of them runs the same workloads, and one table shows the results.
//!
//! Runs are interleaved: every round runs each contestant once in each workload and size. Each round begins with
//! another contestant, so that a temporarily slow machine slows all of them. Ratios are taken within a round, and their
//! median is what the table shows.
//!
//! ```text
//! runs/20260131-120000-compare/
//!   summary.json                  every run's figures, written again after each run
//!   20260131-120004-dense/        the first run, as `throng crowd` leaves it
//!   ...
//! ```

mod contestant;
#[cfg(any(test, feature = "examples"))]
mod example;
mod figures;
mod file;
mod growth;
mod measure;
mod noise;
mod plan;
mod sample;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use throng_crowd::scenario::Overrides;

use throng_report::{FolderError, RunFile, RunFileError};
use throng_summary::RunSummary;

pub use contestant::{Check, Contestant};
#[cfg(any(test, feature = "examples"))]
pub use example::example;
pub use figures::{Figures, OVERLOADED, OVERLOADED_SHARE};
pub use file::{Advantages, Cell, Comparison, PublishedTable, Run};
pub use growth::{Curve, Fit, GROWTHS, Point, curves, fit};
pub use measure::{
    Measure, OUTGOING, OUTSIDE_KERNEL, PER_CONNECTION, PER_CONNECTION_OUTSIDE_KERNEL, bytes_if_not_overloaded, measures,
};
pub use noise::{Difference, Outcome};
pub use plan::{Turn, turns};
pub use sample::{Sample, advantage, by_round, spoken};

/// Options of a comparison.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// Names or files of scenarios, in the order in which they are played.
    pub workloads: Vec<String>,
    /// The contestants. The base of the ratios is `legacy` or, without it, the first contestant.
    pub contestants: Vec<Contestant>,
    /// Number of runs of each workload with each contestant, at least 1.
    pub repeat: u32,
    /// Settings that are overridden in every workload. Each contestant sets model and scratch itself.
    pub overrides: Overrides,
    /// Further numbers of players for the first workload; may be empty.
    pub growth: Vec<u32>,
    /// The folder in which the comparison's folder is made.
    pub runs: PathBuf,
}

/// The result of a comparison.
pub struct CompareResult {
    /// Every run's figures.
    pub comparison: Comparison,
    /// The folder with the figures of all runs, and the runs' own folders.
    pub folder: PathBuf,
    /// Why the figures could not be written, if they could not: then the comparison ended there.
    pub written: Result<(), RunFileError>,
}

/// Time of a run outside its measured part and warm-up: starting, connecting, the floor, and its report; in seconds.
const OVERHEAD_S: u32 = 6;

/// Runs every turn with `play`, which gets the folder for its run, and stores the results. A failed run is recorded as
/// failed, and the next one follows. When `stop` is set, it ends after the current run.
///
/// `note` gets one line that names the next run.
///
/// # Errors
/// If the folder cannot be made.
pub fn compare(
    options: &CompareOptions,
    stop: &AtomicBool,
    mut play: impl FnMut(&Turn, &Path) -> Result<RunSummary, String>,
    mut note: impl FnMut(&str),
) -> Result<CompareResult, FolderError> {
    let started_at = SystemTime::now();
    let folder = throng_report::new_folder(&options.runs, started_at, "compare")?;
    let mut comparison = Comparison::new(options, started_at);
    let turns = turns(options);
    let seconds: u32 = turns.iter().map(|turn| turn.seconds() + OVERHEAD_S).sum();
    let minutes = throng_report::counted(seconds.div_ceil(60), "minute");
    note(&format!("{}, about {minutes}", throng_report::counted(turns.len() as u64, "run")));
    let mut written = Ok(());
    for (number, turn) in turns.iter().enumerate() {
        if stop.load(Ordering::Relaxed) || written.is_err() {
            break;
        }
        note(&format!("{} of {}: {turn}", number + 1, turns.len()));
        let outcome = play(turn, &folder);
        if let Err(error) = &outcome {
            note(&format!("  failed: {error}"));
        }
        comparison.add(turn, outcome);
        written = RunFile::write(&folder, &comparison).map(drop);
    }
    comparison.head.partial = comparison.runs.len() < turns.len();
    comparison.conclude();
    written = written.and_then(|()| RunFile::write(&folder, &comparison).map(drop));
    Ok(CompareResult { comparison, folder, written })
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_report::{SUMMARY_FILE, to_json};

    fn options(runs: &Path) -> CompareOptions {
        CompareOptions {
            workloads: vec!["dense".to_owned()],
            contestants: ["legacy", "throng"].map(|name| name.parse().unwrap()).to_vec(),
            repeat: 2,
            overrides: Overrides::default(),
            growth: Vec::new(),
            runs: runs.to_owned(),
        }
    }

    fn played(turn: &Turn) -> RunSummary {
        let model = turn.contestant.model.name().to_owned();
        let mut run = RunSummary { scenario: turn.workload.clone(), model, ..RunSummary::example() };
        run.head.valid = true;
        example::as_read(&run)
    }

    #[test]
    fn a_run_that_fails_is_kept_as_failed_and_the_others_go_on() {
        let runs = tempfile::tempdir().unwrap();
        let mut notes = Vec::new();
        let play = |turn: &Turn, _: &Path| match (turn.round, turn.contestant.to_string().as_str()) {
            (0, "legacy") => Err("no bot has connected".to_owned()),
            _ => Ok(played(turn)),
        };
        let stop = AtomicBool::new(false);
        let result = compare(&options(runs.path()), &stop, play, |note| notes.push(note.to_owned())).unwrap();
        assert_eq!(result.comparison.runs.len(), 4);
        assert_eq!(result.comparison.complaints(), ["dense with 100, legacy, round 1: failed: no bot has connected"]);
        assert!(notes[0].starts_with("4 runs, about "), "{notes:?}");
        assert!(notes.contains(&"1 of 4: dense, legacy, round 1".to_owned()), "{notes:?}");
        assert!(notes.contains(&"  failed: no bot has connected".to_owned()), "{notes:?}");
        assert_eq!(to_json(&Comparison::load(&result.folder).unwrap()), to_json(&result.comparison));
    }

    #[test]
    fn a_comparison_in_which_everybody_failed_knows_where() {
        let runs = tempfile::tempdir().unwrap();
        let play = |_: &Turn, _: &Path| Err("no bot has connected".to_owned());
        let result = compare(&options(runs.path()), &AtomicBool::new(false), play, |_| {}).unwrap();
        assert_eq!(result.comparison.failed_cells(), [("dense", 100)]);
        assert!(!result.comparison.is_complete());
    }

    #[test]
    fn a_comparison_that_cannot_be_written_ends_with_what_was_played() {
        let runs = tempfile::tempdir().unwrap();
        let play = |turn: &Turn, folder: &Path| {
            std::fs::remove_dir(folder).unwrap();
            Ok(played(turn))
        };
        let result = compare(&options(runs.path()), &AtomicBool::new(false), play, |_| {}).unwrap();
        assert_eq!(result.comparison.runs.len(), 1);
        assert!(result.written.unwrap_err().to_string().contains(SUMMARY_FILE));
    }

    #[test]
    fn a_comparison_that_is_stopped_keeps_what_was_played() {
        let runs = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let play = |turn: &Turn, _: &Path| {
            stop.store(true, Ordering::Relaxed);
            Ok(played(turn))
        };
        let result = compare(&options(runs.path()), &stop, play, |_| {}).unwrap();
        assert_eq!(Comparison::load(&result.folder).unwrap().runs.len(), 1);
    }
}
