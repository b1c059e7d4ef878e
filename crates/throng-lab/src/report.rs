//! The output of a run: a directory with `summary.json`, and `report.html`, one file that opens without a network.
//!
//! ```text
//! runs/20260131-120000-crowd/
//!   frames.parquet  each frame by subsystem, written while the run goes on: docs/telemetry.md
//!   summary.json    the figures, see docs/run-summary.md
//!   limits.json     the limits that were set, with verdicts, if there were some
//!   report.html     the same to look at, by throng-report
//! ```

mod crowd;
mod index;
mod models;
mod sides;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use thiserror::Error;
use throng_machine::Moment;
use throng_report::{FolderError, Kind, LIMITS_FILE, Page, Verdicts};

use throng_summary::{RunSummary, SummaryError};

pub use crowd::render;
pub use index::{INDEX_FILE, RunFolders, SIDES_FILE, figures_of, run_folders, write_index};

/// Name of the file with the figures.
pub const SUMMARY_FILE: &str = "summary.json";
/// Name of the file to look at.
pub const REPORT_FILE: &str = "report.html";
/// The largest summary that is read, in bytes.
pub const MAX_SUMMARY_BYTES: u64 = 64 << 20;

/// Why there is no report. Each text is one line that says what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A file or directory could not be written.
    #[error("cannot write {}: {source}; check the free space and the permissions, or choose another directory", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is a page that this program did not write.
    #[error("{} is not a page of this program, and is left as it is: choose another directory with --runs", path.display())]
    Foreign {
        /// The page.
        path: PathBuf,
    },
    /// The summary could not be read.
    #[error("cannot read {}: {source}; give the directory of a run, such as runs/20260131-120000-crowd", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The summary is not one of this program's.
    #[error("{}: {source}", path.display())]
    Summary {
        /// The file.
        path: PathBuf,
        /// The error.
        source: SummaryError,
    },
    /// The figures are none of this program's.
    #[error("{}: these are no figures of a {} run: {reason}; use the program that wrote them", path.display(), kind.name())]
    Figures {
        /// The folder.
        path: PathBuf,
        /// The kind of run.
        kind: Kind,
        /// The reason.
        reason: String,
    },
    /// The page could not be made from the template, which is a defect of this program.
    #[error("the report's template failed: {0}")]
    Template(#[from] throng_report::RenderError),
}

impl ReportError {
    /// A stable short name.
    pub fn tag(&self) -> &'static str {
        match self {
            ReportError::Write { .. } => "write",
            ReportError::Foreign { .. } => "foreign",
            ReportError::Read { .. } => "read",
            ReportError::Summary { .. } => "summary",
            ReportError::Figures { .. } => "figures",
            ReportError::Template(_) => "template",
        }
    }
}

/// The moment as the summary's `started_at` has it: `2026-01-31T12:00:00Z`.
pub fn started_at(now: SystemTime) -> String {
    Moment::of(now).long()
}

/// Writes both files to the run's folder. The path of the report, which is made from the summary as it was written.
///
/// # Errors
/// If something cannot be written; what was written until then stays.
pub fn write(folder: &Path, summary: &RunSummary) -> Result<PathBuf, ReportError> {
    write_file(&folder.join(SUMMARY_FILE), &summary.to_json())?;
    rebuild(folder)
}

/// Makes `report.html` again from the figures in `dir`, of any kind of run but matches, whose crate does that. The path of
/// the report.
///
/// # Errors
/// If the figures cannot be read or the page cannot be written.
pub fn rebuild(dir: &Path) -> Result<PathBuf, ReportError> {
    let mut page = page(dir)?;
    let path = || dir.join(LIMITS_FILE);
    let verdicts = Verdicts::read(dir).map_err(|source| ReportError::Read { path: path(), source })?;
    verdicts.inspect(|verdicts| verdicts.show_on(&mut page));
    page.index = Some(format!("../{INDEX_FILE}"));
    let path = dir.join(REPORT_FILE);
    write_file(&path, &page.render()?)?;
    Ok(path)
}

fn page(dir: &Path) -> Result<Page, ReportError> {
    fn read<T: DeserializeOwned>(dir: &Path, kind: Kind, json: serde_json::Value) -> Result<T, ReportError> {
        let reason = |error: serde_json::Error| error.to_string();
        serde_json::from_value(json).map_err(reason).map_err(|reason| ReportError::Figures {
            path: dir.to_owned(),
            kind,
            reason,
        })
    }
    match figures_of(dir) {
        Some((Kind::Gateway, json)) => Ok(throng_gateway_lab::page(&read(dir, Kind::Gateway, json)?)),
        Some((Kind::Capacity, json)) => Ok(throng_capacity::page(&read(dir, Kind::Capacity, json)?)),
        Some((Kind::Models, json)) => Ok(models::page(&read(dir, Kind::Models, json)?)),
        Some((Kind::Comparison, json)) => Ok(sides::page(&read(dir, Kind::Comparison, json)?)),
        _ => Ok(crowd::page(&load(dir)?)),
    }
}

/// The summary in a run's directory.
///
/// # Errors
/// If there is none, or it is none of this program's.
pub fn load(dir: &Path) -> Result<RunSummary, ReportError> {
    let path = dir.join(SUMMARY_FILE);
    let read = || {
        if fs::metadata(&path)?.len() > MAX_SUMMARY_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 64 MiB"));
        }
        fs::read_to_string(&path)
    };
    match read() {
        Ok(text) => RunSummary::from_json(&text).map_err(|source| ReportError::Summary { path, source }),
        Err(source) => Err(ReportError::Read { path, source }),
    }
}

/// `<runs>/<stamp>-<name>`, made new: `runs/20260131-120000-compare`. Two runs of one second get two folders.
///
/// # Errors
/// The folder cannot be made.
pub fn new_folder(runs: &Path, now: SystemTime, name: &str) -> Result<PathBuf, ReportError> {
    let folder = throng_report::new_folder(runs, &format!("{}-{name}", Moment::of(now).short()));
    folder.map_err(|FolderError { path, source }| ReportError::Write { path, source })
}

fn write_file(path: &Path, text: &str) -> Result<(), ReportError> {
    fs::write(path, text).map_err(|source| ReportError::Write { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn noon() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_769_860_800)
    }

    #[test]
    fn a_run_gets_a_directory_of_its_own_with_both_files() {
        let runs = tempfile::tempdir().unwrap();
        let summary = RunSummary::example();
        let written = || {
            let folder = new_folder(&runs.path().join("deep/runs"), noon(), &summary.scenario).unwrap();
            write(&folder, &summary).unwrap()
        };
        let (first, second) = (written(), written());
        assert!(first.ends_with("deep/runs/20260131-120000-crowd/report.html"), "{first:?}");
        assert!(second.ends_with("deep/runs/20260131-120000-crowd-2/report.html"), "{second:?}");
        assert_eq!(load(first.parent().unwrap()).unwrap().to_json(), summary.to_json());
    }

    #[test]
    fn a_report_is_rebuilt_from_its_summary_alone() {
        let runs = tempfile::tempdir().unwrap();
        let report = write(runs.path(), &RunSummary::example()).unwrap();
        let before = fs::read_to_string(&report).unwrap();
        fs::remove_file(&report).unwrap();
        assert_eq!(rebuild(report.parent().unwrap()).unwrap(), report);
        assert!(fs::read_to_string(&report).unwrap() == before, "the rebuilt page differs");
    }

    #[test]
    fn what_is_not_a_run_is_refused_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let refused = || {
            let error = rebuild(dir.path()).unwrap_err();
            assert!(!error.to_string().contains('\n'));
            (error.tag(), error.to_string())
        };
        let (tag, text) = refused();
        assert_eq!(tag, "read");
        assert!(text.contains("give the directory of a run"), "{text}");
        fs::write(dir.path().join(SUMMARY_FILE), "{}").unwrap();
        assert_eq!(refused().0, "summary");
        let file = dir.path().join(SUMMARY_FILE);
        let error = new_folder(&file, noon(), "crowd").unwrap_err();
        assert!(error.tag() == "write" && error.to_string().contains("choose another directory"), "{error}");
    }

    #[test]
    fn the_page_of_all_runs_says_how_many_it_leaves_out() {
        let runs = tempfile::tempdir().unwrap();
        let add = |name: &str, text: &str| {
            fs::create_dir(runs.path().join(name)).unwrap();
            fs::write(runs.path().join(name).join(SUMMARY_FILE), text).unwrap();
        };
        let text = || fs::read_to_string(write_index(runs.path()).unwrap()).unwrap();
        add("20260131-120000-crowd", "{");
        assert!(text().contains("There is no run in this folder that can be read. Not listed: 1 damaged."));
        add("20260131-120001-crowd", &RunSummary::example().to_json());
        assert!(text().contains("All runs of this folder, the newest first. Not listed: 1 damaged."));
    }

    #[test]
    fn the_newest_run_comes_first() {
        let runs = tempfile::tempdir().unwrap();
        for name in ["20260131-120000-crowd", "20260131-120002-crowd", "20260131-120001-crowd"] {
            fs::create_dir(runs.path().join(name)).unwrap();
            fs::write(runs.path().join(name).join(SUMMARY_FILE), "{").unwrap();
        }
        let found = run_folders(runs.path()).unwrap();
        let names = found.folders.iter().map(|folder| folder.file_name().unwrap().to_str().unwrap());
        let names: Vec<_> = names.map(|name| &name[13..15]).collect();
        assert_eq!((names, found.left_out), (vec!["02", "01", "00"], 0));
    }

    /// Figures of each kind of run but matches, with this text wherever a text may stand.
    fn figures(text: &str) -> Vec<(&'static str, Kind, String)> {
        let mut crowd = RunSummary::example();
        for part in [&mut crowd.environment.cpu, &mut crowd.revision, &mut crowd.environment.settings.description] {
            text.clone_into(part);
        }
        let mut gateway = throng_gateway_lab::GatewaySummary::example(throng_gateway_lab::Scene::Spatial);
        (gateway.gateway.name, gateway.machine.cpu) = (text.to_owned(), text.to_owned());
        gateway.invalid_reasons = vec![text.to_owned()];
        let mut models = crate::compare::example();
        models.revision = text.to_owned();
        models.runs[0].invalid_reasons = vec![text.to_owned()];
        models.runs[0].valid = false;
        let limit = |name: &str, value: f64| serde_json::json!({ "name": name, "at_most": 0.85, "unit": null, "value": value, "low": value, "high": value, "verdict": "rejected" });
        let trial = |amount: u32, value: f64| {
            serde_json::json!({
                "amount": amount, "purpose": text, "held_s": 9.5, "wall_s": 12.0, "verdict": "rejected", "fault": null,
                "limits": [limit("cpu", value), limit(text, value)], "cores": 1.0, "memory_bytes_per_unit": 5_000.0,
            })
        };
        let capacity = serde_json::json!({
            "format": 1, "load": "ai", "unit": text, "method": "search", "verdict": "accepted", "why": text, "kept": 20,
            "beyond": 22, "limited_by": text, "per_core": 20.0, "cores": 1.0, "threads_per_core": 2.0,
            "extrapolated_to_machine": { "cores": 4, "amount": 80.0 }, "memory_bytes_per_unit": 5_000.0, "held_s": 60.0,
            "wall_s": 70.0, "partial": false, "trials": [trial(10, 0.4), trial(20, 0.8), trial(22, 0.9)],
            "started_at": "2026-01-31T12:00:00Z", "revision": text, "cpu": text,
        });
        let part = serde_json::json!({
            "name": text, "unit": "ms", "first": 1.0, "second": 1.2, "verdict": "slower", "words": text, "ratio": 1.2,
            "interval": [1.1, 1.3], "p": 0.001,
        });
        let sides = serde_json::json!({
            "workload": text, "first": [text], "second": ["b"], "runs": [5, 5], "values": "runs", "least": 0.03,
            "moved_together": false, "parts": [part], "notes": [text],
        });
        vec![
            (SUMMARY_FILE, Kind::Crowd, crowd.to_json()),
            (SUMMARY_FILE, Kind::Gateway, gateway.to_json()),
            (crate::compare::COMPARISON_FILE, Kind::Models, models.to_json()),
            (throng_capacity::FILE, Kind::Capacity, capacity.to_string()),
            (SIDES_FILE, Kind::Comparison, sides.to_string()),
        ]
    }

    #[test]
    fn a_page_of_somebody_else_is_left_as_it_is() {
        let runs = tempfile::tempdir().unwrap();
        let page = write_index(runs.path()).unwrap();
        write_index(runs.path()).expect("its own page");
        fs::write(&page, "<h1>My site</h1>").unwrap();
        assert_eq!(write_index(runs.path()).unwrap_err().tag(), "foreign");
        assert_eq!(fs::read_to_string(page).unwrap(), "<h1>My site</h1>");
    }

    /// The pages of all kinds, and of the folder.
    fn pages(text: &str) -> Vec<(Kind, String)> {
        let runs = tempfile::tempdir().unwrap();
        let mut pages: Vec<(Kind, String)> = figures(text)
            .into_iter()
            .map(|(file, kind, json)| {
                let dir = runs.path().join(kind.name());
                fs::create_dir(&dir).unwrap();
                fs::write(dir.join(file), json).unwrap();
                assert_eq!(figures_of(&dir).unwrap().0, kind);
                (kind, fs::read_to_string(rebuild(&dir).unwrap()).unwrap())
            })
            .collect();
        pages.push((Kind::Index, fs::read_to_string(write_index(runs.path()).unwrap()).unwrap()));
        pages
    }

    #[test]
    fn each_kind_of_run_has_a_page_and_text_from_outside_cannot_become_markup() {
        let attack = "</script><script>alert(1)</script><!--\"'><img onerror=alert(1)>";
        for ((kind, clean), (_, page)) in pages("words").into_iter().zip(pages(attack)) {
            for sign in ["<script", "</script", "<!--", "<img"] {
                assert_eq!(page.matches(sign).count(), clean.matches(sign).count(), "{sign} in a {} page", kind.name());
            }
            assert!(page.contains("&lt;img onerror"), "the text is on the {} page", kind.name());
            assert!(clean.contains(&format!("Throng · {}", kind.name())) && !clean.contains(">NaN"));
            let loads = [" src=", "@import", "url(", "<link"].iter().any(|sign| clean.contains(sign));
            assert!(!loads, "the {} page loads something", kind.name());
        }
    }

    #[test]
    fn limits_of_a_capacity_measurement_and_worse_parts_of_a_comparison_are_on_top() {
        let pages = pages("words");
        let top = |kind: Kind| {
            let (_, page) = pages.iter().find(|(of, _)| *of == kind).unwrap();
            page.split("<section").next().unwrap().to_owned()
        };
        assert!(top(Kind::Capacity).contains("≤ 85 %"));
        let (_, capacity) = pages.iter().find(|(of, _)| *of == Kind::Capacity).unwrap();
        assert!(capacity.contains("<dt>cpu</dt><dd>share of the core&#x27;s time</dd>"), "its load file explains it");
        assert!(top(Kind::Comparison).contains("✗ missed"));
        assert!(top(Kind::Gateway).contains("Not a valid run"));
    }

    #[test]
    fn the_page_of_a_folder_lists_its_runs_with_links_and_key_figures() {
        let (_, index) = pages("words").pop().unwrap();
        let index = index.replace("&#x2f;", "/");
        for part in
            ["href=\"crowd/report.html\"", "href=\"capacity/report.html\"", "spatial, ", "12.5 ms", ">20 units<"]
        {
            assert!(index.contains(part), "no {part} in:\n{index}");
        }
    }
}
