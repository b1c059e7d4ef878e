//! Which change made it slower? Runs are read from their folders, compared with each other, and put in a row.
//!
//! ```text
//!  runs/<stamp>-<scenario>/            StoredRun             throng_judge
//!    summary.json     ----------->   revision, moment   -->  compare       two sides: a verdict for each part
//!    frames.parquet   ----------->   parts by name      -->  change_points one series by revision: which range of them
//! ```
//!
//! A part is a subsystem's time, or a figure of the whole run. The parts of a run have one value each. Those of a single run
//! have also a value for each second, so that two runs can be compared.
#![forbid(unsafe_code)]

mod bisect;
mod compare;
mod index;
mod trend;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use throng_report::{Better, Kind, RUNS_MAX, RunFile, RunFileError, RunFolders, printable, run_folders};
use throng_telemetry::{WHOLE_FRAME, read_seconds};

pub use bisect::{BisectOptions, Bisected, Tried, bisect};
pub use compare::{Comparison, PartChange, compare};
pub use trend::{PartTrend, Trend, trend};

/// So many damaged runs are named, the others are counted.
const NAMED_MAX: usize = 10;
/// The file with the times of all frames.
const FRAMES_FILE: &str = "frames.parquet";
/// So many frames of a summary's series are one value, at 30 Hz a second.
const SERIES_BLOCK: usize = 30;

/// The object of a kind whose numbers are the times of subsystems: its path, the key below each name, and the unit.
fn subsystems(kind: Kind) -> Option<(&'static str, Option<&'static str>, &'static str)> {
    match kind {
        Kind::Crowd => Some(("server.us_per_connection", None, "µs per connection")),
        Kind::Match | Kind::Ai => Some(("subsystems", Some("mean_ms"), "ms per frame")),
        _ => None,
    }
}

/// A part of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Unit of the value.
    pub unit: String,
    /// The value of the run.
    pub value: f64,
    /// Whether a larger value is better.
    pub is_more_better: bool,
    /// Milliseconds of a frame in about each second, if they are known.
    #[serde(skip)]
    pub seconds: Vec<f64>,
}

/// A run as its folder has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredRun {
    /// Its folder.
    #[serde(rename = "name")]
    pub folder: PathBuf,
    /// Its workload: runs of different ones cannot be compared.
    pub workload: String,
    /// The program: its revision, or the build's checksum.
    pub revision: String,
    /// When it began, as text that sorts by time.
    pub started_at: String,
    /// The processor.
    pub cpu: String,
    /// Whether its figures are valid.
    #[serde(rename = "valid")]
    pub is_valid: bool,
    /// Its parts by name.
    pub parts: BTreeMap<String, Part>,
}

/// Why runs cannot be read or compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// The figures of a run, or the folder of runs, cannot be read.
    #[error(transparent)]
    File(#[from] RunFileError),
    /// The times of frames make no sense.
    #[error("{}: {reason}; the file is damaged: measure again", path.display())]
    Frames {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// There is nothing to compare.
    #[error("{0}")]
    Nothing(String),
    /// It was stopped.
    #[error("stopped before the end")]
    Stopped,
}

impl HistoryError {
    /// A stable short name.
    pub fn tag(&self) -> &'static str {
        match self {
            HistoryError::File(error) => error.tag(),
            HistoryError::Frames { .. } => "frames",
            HistoryError::Nothing(_) => "nothing",
            HistoryError::Stopped => "stopped",
        }
    }
}

/// The runs of a folder.
#[derive(Debug)]
pub struct Found {
    /// Those that can be read, oldest first.
    pub runs: Vec<StoredRun>,
    /// Why others cannot be read, in the order of their folders.
    pub damaged: Vec<HistoryError>,
    /// Runs that were not read because there are more than a program reads: those with the first names.
    pub not_read: usize,
}

impl Found {
    /// Notes on the runs that are left out.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let (damaged, all) = (self.damaged.len(), self.runs.len() + self.damaged.len() + self.not_read);
        if damaged > 0 {
            notes.push(format!("{damaged} of {all} runs are left out, because they are damaged"));
            notes.extend(self.damaged.iter().take(NAMED_MAX).map(|error| format!("left out: {error}")));
        }
        if damaged > NAMED_MAX {
            notes.push(format!("left out: {} more", damaged - NAMED_MAX));
        }
        if self.not_read > 0 {
            let (oldest, most) = (self.not_read, RUNS_MAX);
            notes.push(format!("{oldest} of {all} runs are left out, the oldest by name: at most {most} are read"));
        }
        notes
    }
}

/// The runs of a folder: the folder of one run, or one whose folders are runs. Folders that are no runs are left out. A damaged
/// run is left out too if there are others.
///
/// # Errors
/// The folder cannot be read, or has no run that can be read.
pub fn runs(folder: &Path) -> Result<Found, HistoryError> {
    if let Some(run) = StoredRun::read(folder)?.filter(StoredRun::has_parts) {
        return Ok(Found { runs: vec![run], damaged: Vec::new(), not_read: 0 });
    }
    let error = |source| RunFileError::Read { path: folder.to_owned(), source };
    let RunFolders { folders, left_out, .. } = run_folders(folder).map_err(error)?;
    let mut found = Found { runs: Vec::new(), damaged: Vec::new(), not_read: left_out };
    for path in &folders {
        match StoredRun::read(path) {
            Ok(run) => found.runs.extend(run.filter(StoredRun::has_parts)),
            Err(error) => found.damaged.push(error),
        }
    }
    if found.runs.is_empty() {
        let place = folder.display();
        let words = match found.damaged.first() {
            Some(error) => {
                let all = found.damaged.len();
                format!("none of the {all} runs in {place} can be read. The first one: {error}")
            }
            None => format!("{place} has no run: give the folder of a run, or one with such folders"),
        };
        return Err(HistoryError::Nothing(words));
    }
    found.runs.sort_by(|a, b| (&a.started_at, &a.folder).cmp(&(&b.started_at, &b.folder)));
    Ok(found)
}

impl StoredRun {
    /// The run of a folder; `None` if it has no figures, or those of a comparison of two sides. That of several models has no
    /// parts: it is listed, and its own folders are the runs that are compared.
    ///
    /// # Errors
    /// Its files cannot be read, or are damaged.
    pub fn read(folder: &Path) -> Result<Option<StoredRun>, HistoryError> {
        StoredRun::read_with(folder, read_seconds)
    }

    /// The same without the seconds of its frames, which a line of an index does not have.
    ///
    /// # Errors
    /// Its summary cannot be read, or is damaged.
    pub fn read_summary(folder: &Path) -> Result<Option<StoredRun>, HistoryError> {
        StoredRun::read_with(folder, |_| Ok(BTreeMap::new()))
    }

    fn read_with(
        folder: &Path,
        read_seconds: impl FnOnce(&Path) -> io::Result<BTreeMap<String, Vec<f64>>>,
    ) -> Result<Option<StoredRun>, HistoryError> {
        let is_run = |file: &RunFile| !matches!(file.head.kind, Kind::Comparison | Kind::Index);
        let Some(RunFile { head, json, .. }) = RunFile::find(folder)?.filter(is_run) else { return Ok(None) };
        let frames = folder.join(FRAMES_FILE);
        let seconds = match frames.is_file() {
            true => {
                let read = read_seconds(&frames);
                let ns =
                    read.map_err(|error| HistoryError::Frames { path: frames, reason: printable(&error.to_string()) })?;
                ns.into_iter().map(|(name, ns)| (name, ns.into_iter().map(|ns| ns / 1e6).collect())).collect()
            }
            false if head.kind == Kind::Crowd => series(&json),
            false => BTreeMap::new(),
        };
        let run = StoredRun {
            folder: folder.to_owned(),
            parts: parts(head.kind, &json, seconds),
            workload: head.workload,
            revision: head.revision,
            started_at: head.started_at,
            cpu: head.environment.cpu,
            is_valid: head.valid,
        };
        Ok(Some(run.printable()))
    }
}

impl StoredRun {
    /// Whether it has figures that can be compared.
    pub(crate) fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, part| value.get(part))
}

/// Values by second of a summary that has curves of its frames.
fn series(summary: &Value) -> BTreeMap<String, Vec<f64>> {
    let Some(frames) = at(summary, "series.frames").and_then(Value::as_object) else { return BTreeMap::new() };
    let lists = frames.iter().filter(|(name, _)| *name != "time_s");
    let of = |(name, list): (&String, &Value)| {
        let values: Vec<f64> = list.as_array()?.iter().filter_map(Value::as_f64).collect();
        let name = if name == "total" { WHOLE_FRAME } else { name };
        let means = values.chunks(SERIES_BLOCK).filter_map(throng_judge::mean).collect();
        Some((name.to_owned(), means))
    };
    lists.filter_map(of).collect()
}

fn parts(kind: Kind, summary: &Value, mut seconds: BTreeMap<String, Vec<f64>>) -> BTreeMap<String, Part> {
    let mut parts = BTreeMap::new();
    if let Some((path, key, unit)) = subsystems(kind) {
        for (name, value) in at(summary, path).and_then(Value::as_object).into_iter().flatten() {
            let value = key.map_or(Some(value), |key| value.get(key)).and_then(Value::as_f64);
            if let Some(value) = value {
                let seconds = seconds.remove(name).unwrap_or_default();
                let part = Part { unit: unit.to_owned(), value, is_more_better: false, seconds };
                parts.insert(name.clone(), part);
            }
        }
    }
    for metric in throng_report::keys().filter(|metric| metric.kind == kind) {
        if let Some(value) = at(summary, metric.path).and_then(Value::as_f64) {
            let (unit, is_more_better) = (metric.unit.to_owned(), metric.better == Better::More);
            let part = Part { unit, value, is_more_better, seconds: Vec::new() };
            parts.insert(metric.name.to_owned(), part);
        }
    }
    if let Some(whole) = seconds.remove(WHOLE_FRAME) {
        let path = if kind == Kind::Crowd { "server.frame_ms.mean" } else { "frame_ms.mean" };
        let mean = at(summary, path).and_then(Value::as_f64);
        let value = mean.or_else(|| throng_judge::mean(&whole)).unwrap_or(f64::NAN);
        let unit = "ms per frame".to_owned();
        parts.insert(WHOLE_FRAME.to_owned(), Part { unit, value, is_more_better: false, seconds: whole });
    }
    parts
}

#[cfg(test)]
mod tests;
