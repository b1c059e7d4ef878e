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
pub mod newest;
mod trend;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use throng_crowd::scenario::Profile;
use throng_report::Better;
use throng_telemetry::{WHOLE_FRAME, read_seconds};

use crate::newest::{Newest, RUNS_MAX, newest};

pub use bisect::{BisectOptions, Bisected, Tried, bisect};
pub use compare::{Comparison, PartChange, compare};
pub use trend::{PartTrend, Trend, trend};

/// A summary is at most so long.
const SUMMARY_BYTES_MAX: u64 = 64 << 20;
/// So many damaged runs are named, the others are counted.
const NAMED_MAX: usize = 10;
/// The files that can tell about a run, the first that is there counts.
const FILES: [&str; 2] = ["summary.json", "capacity.json"];
/// The file with the times of all frames.
const FRAMES_FILE: &str = "frames.parquet";
/// So many frames of a summary's series are one value, at 30 Hz a second.
const SERIES_BLOCK: usize = 30;

/// Objects whose numbers are the times of subsystems: path of the object, the key below each name, and the unit.
const SUBSYSTEMS: [(&str, Option<&str>, &str); 2] =
    [("server.us_per_connection", None, "µs per connection"), ("subsystems", Some("mean_ms"), "ms per frame")];

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
    /// A file or folder cannot be read.
    #[error("cannot read {}: {source}; give the folder of a run, or one with such folders", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A file makes no sense.
    #[error("{}: {reason}; the file is damaged: measure again", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// There is nothing to compare.
    #[error("{0}")]
    Nothing(String),
}

impl HistoryError {
    /// A stable short name.
    pub fn tag(&self) -> &'static str {
        match self {
            HistoryError::Read { .. } => "read",
            HistoryError::Invalid { .. } => "invalid",
            HistoryError::Nothing(_) => "nothing",
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
    if let Some(run) = StoredRun::read(folder)? {
        return Ok(Found { runs: vec![run], damaged: Vec::new(), not_read: 0 });
    }
    let Newest { folders, left_out } =
        newest(folder, &FILES).map_err(|source| HistoryError::Read { path: folder.to_owned(), source })?;
    let mut found = Found { runs: Vec::new(), damaged: Vec::new(), not_read: left_out };
    for path in &folders {
        match StoredRun::read(path) {
            Ok(run) => found.runs.extend(run),
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
    /// The run of a folder; `None` if it has none of the files of a run.
    ///
    /// # Errors
    /// Its files cannot be read, or are damaged.
    pub fn read(folder: &Path) -> Result<Option<StoredRun>, HistoryError> {
        let Some(path) = FILES.iter().map(|name| folder.join(name)).find(|path| path.is_file()) else {
            return Ok(None);
        };
        let error = |source| HistoryError::Read { path: path.clone(), source };
        if fs::metadata(&path).map_err(error)?.len() > SUMMARY_BYTES_MAX {
            return Err(error(std::io::ErrorKind::FileTooLarge.into()));
        }
        let text = fs::read_to_string(&path).map_err(error)?;
        let invalid = |reason: String| HistoryError::Invalid { path: path.clone(), reason };
        let summary: Value = serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        if !summary.is_object() {
            return Err(invalid("it is no JSON object".to_owned()));
        }
        let frames = folder.join(FRAMES_FILE);
        let seconds = match frames.is_file() {
            true => {
                let read = read_seconds(&frames);
                let ns = read.map_err(|error| HistoryError::Invalid { path: frames, reason: error.to_string() })?;
                ns.into_iter().map(|(name, ns)| (name, ns.into_iter().map(|ns| ns / 1e6).collect())).collect()
            }
            false => series(&summary),
        };
        let text = |paths: &[&str]| {
            let of = |path: &&str| at(&summary, path)?.as_str().map(str::to_owned);
            paths.iter().find_map(of)
        };
        // The folder's name begins with the moment: 20260131-120000-match.
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let stamp = name.get(..15).unwrap_or(&name).to_owned();
        let kind =
            name.splitn(3, '-').nth(2).map(|kind| kind.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-'));
        let size = ["players", "matches", "clients"].iter().find_map(|key| at(&summary, key)?.as_u64());
        let workload = text(&["scenario", "scene", "load"]).or(kind.map(str::to_owned)).unwrap_or_default();
        Ok(Some(StoredRun {
            folder: folder.to_owned(),
            workload: size.map_or(workload.clone(), |size| format!("{workload} {size}"))
                + &settings(&summary)
                + &question(&summary),
            revision: text(&["revision", "environment.build"]).unwrap_or_else(|| "unknown".to_owned()),
            started_at: text(&["started_at"]).unwrap_or(stamp),
            cpu: text(&["environment.cpu", "machine.cpu", "cpu"]).unwrap_or_else(|| "unknown".to_owned()),
            is_valid: is_valid(&summary),
            parts: parts(&summary, seconds),
        }))
    }
}

/// Settings that change what is measured: a run on a simulated network is no run on a clean one.
fn settings(summary: &Value) -> String {
    let rate = at(summary, "tick_hz").map_or(String::new(), |hz| format!(" at {hz} Hz"));
    let net = at(summary, "environment.settings.net").and_then(Value::as_str).filter(|net| *net != "none");
    let profile = at(summary, "environment.settings.profile").filter(|profile| profile["kind"] != "constant");
    // As on the command line, if this program knows it.
    let words = |profile: &Value| Profile::deserialize(profile).map_or(profile.to_string(), |known| known.to_string());
    rate + &rings(summary)
        + &net.map_or(String::new(), |net| format!(", net {net}"))
        + &profile.map_or(String::new(), |profile| format!(", profile {}", words(profile)))
}

/// How far and how often a crowd's clients are told: a scenario file may change and keep its name.
fn rings(summary: &Value) -> String {
    let of = |path: &str| at(summary, path).and_then(Value::as_array).into_iter().flatten();
    let rings = of("environment.settings.rings").chain(of("environment.settings.far.rings"));
    let ring = |ring: &Value| Some(format!("{}/{}", ring.get("radius_m")?, ring.get("interval_ticks")?));
    let rings: Vec<String> = rings.filter_map(ring).collect();
    if rings.is_empty() { String::new() } else { format!(", rings {}", rings.join(" ")) }
}

/// The question of a measurement of capacity: answers to different ones are no series.
fn question(summary: &Value) -> String {
    let Some(method) = at(summary, "method").and_then(Value::as_str) else { return String::new() };
    let trials = || at(summary, "trials").and_then(Value::as_array).into_iter().flatten();
    // An invalid trial has judged no limit.
    let limits = trials().filter_map(|trial| trial.get("limits")?.as_array()).find(|limits| !limits.is_empty());
    let limit = |limit: &Value| Some(format!("{} {}", limit.get("name")?.as_str()?, limit.get("at_most")?));
    let limits: Vec<String> = limits.into_iter().flatten().filter_map(limit).collect();
    // Other methods choose their loads by themselves.
    let is_given = ["holds", "soak"].contains(&method);
    let given = trials().filter_map(|trial| trial.get("amount")?.as_u64()).filter(|_| is_given);
    let given: BTreeSet<u64> = given.collect();
    let given: Vec<String> = given.iter().map(u64::to_string).collect();
    let of = if given.is_empty() { String::new() } else { format!(" of {}", given.join(" ")) };
    let arguments = at(summary, "arguments").and_then(Value::as_array).into_iter().flatten();
    let arguments: Vec<&str> = arguments.filter_map(Value::as_str).collect();
    let with = if arguments.is_empty() { String::new() } else { format!(", with {}", arguments.join(" ")) };
    format!(" by {method}{of}, {}{with}", limits.join(", "))
}

/// Whether its figures count. A measurement of capacity that was cut off, or undecided, has no answer.
fn is_valid(summary: &Value) -> bool {
    let is_whole = at(summary, "partial").is_none_or(|partial| partial.as_bool() == Some(false));
    let is_decided =
        at(summary, "kept").is_none() || at(summary, "verdict").is_none_or(|verdict| verdict != "undecided");
    at(summary, "valid").is_none_or(|valid| valid.as_bool() == Some(true)) && is_whole && is_decided
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

fn parts(summary: &Value, mut seconds: BTreeMap<String, Vec<f64>>) -> BTreeMap<String, Part> {
    let mut parts = BTreeMap::new();
    for (path, key, unit) in SUBSYSTEMS {
        for (name, value) in at(summary, path).and_then(Value::as_object).into_iter().flatten() {
            let value = key.map_or(Some(value), |key| value.get(key)).and_then(Value::as_f64);
            if let Some(value) = value {
                let seconds = seconds.remove(name).unwrap_or_default();
                let part = Part { unit: unit.to_owned(), value, is_more_better: false, seconds };
                parts.insert(name.clone(), part);
            }
        }
    }
    for metric in throng_report::keys() {
        if let Some(value) = at(summary, metric.path).and_then(Value::as_f64) {
            let (unit, is_more_better) = (metric.unit.to_owned(), metric.better == Better::More);
            let part = Part { unit, value, is_more_better, seconds: Vec::new() };
            parts.insert(metric.name.to_owned(), part);
        }
    }
    if let Some(whole) = seconds.remove(WHOLE_FRAME) {
        let mean = ["server.frame_ms.mean", "frame_ms.mean"].iter().find_map(|path| at(summary, path)?.as_f64());
        let value = mean.or_else(|| throng_judge::mean(&whole)).unwrap_or(f64::NAN);
        let unit = "ms per frame".to_owned();
        parts.insert(WHOLE_FRAME.to_owned(), Part { unit, value, is_more_better: false, seconds: whole });
    }
    parts
}

#[cfg(test)]
mod tests;
