//! The pages of runs, made from the figures in their folders: one file that opens without a network.
//!
//! ```text
//! runs/20260131-120000-crowd/
//!   frames.parquet  each frame by subsystem, written while the run goes on: docs/telemetry.md
//!   summary.json    the figures, see docs/run-summary.md
//!   limits.json     the limits that were set, with verdicts, if there were some
//!   report.html     the same to look at, by throng-report
//! ```

mod agents;
mod crowd;
mod index;
mod models;
mod sides;

use std::path::{Path, PathBuf};

use thiserror::Error;
use throng_file::write_whole;
use throng_report::{Kind, LIMITS_FILE, Page, RunFile, RunFileError, Verdicts};

use throng_summary::RunSummary;

use crate::compare::Comparison;

pub use crowd::render;
pub use index::{INDEX_FILE, write_index};

/// Name of the file to look at.
pub const REPORT_FILE: &str = "report.html";

/// Why there is no report. Each text is one line that says what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The figures cannot be read, or the page cannot be written.
    #[error(transparent)]
    File(#[from] RunFileError),
    /// There is a page that this program did not write.
    #[error("{} is not a page of this program, and is left as it is: choose another directory with --runs", path.display())]
    Foreign {
        /// The page.
        path: PathBuf,
    },
    /// The page could not be made from the template, which is a defect of this program.
    #[error("the report's template failed: {0}")]
    Template(#[from] throng_report::RenderError),
}

impl ReportError {
    /// A stable short name.
    pub fn tag(&self) -> &'static str {
        match self {
            ReportError::File(error) => error.tag(),
            ReportError::Foreign { .. } => "foreign",
            ReportError::Template(_) => "template",
        }
    }
}

/// Writes figures and page to the run's folder. The path of the page, which is made from the figures as they were written.
///
/// # Errors
/// If something cannot be written; what was written until then stays.
pub fn write(folder: &Path, summary: &RunSummary) -> Result<PathBuf, ReportError> {
    RunFile::write(folder, summary)?;
    rebuild(folder)
}

/// Makes `report.html` again from the figures in `dir`, of any kind of run but matches, whose crate does that. The path of
/// the report.
///
/// # Errors
/// If the figures cannot be read or the page cannot be written.
pub fn rebuild(dir: &Path) -> Result<PathBuf, ReportError> {
    let mut page = page(RunFile::open(dir)?)?;
    let limits = |source| RunFileError::Read { path: dir.join(LIMITS_FILE), source };
    Verdicts::read(dir).map_err(limits)?.inspect(|verdicts| verdicts.show_on(&mut page));
    page.index = Some(format!("../{INDEX_FILE}"));
    let path = dir.join(REPORT_FILE);
    write_file(&path, &page.render()?)?;
    Ok(path)
}

/// The most important figures of a crowd, for a terminal.
pub fn text(summary: &RunSummary) -> String {
    crowd::page(summary).text()
}

/// The tables of a comparison of models, for a terminal.
pub fn models_text(comparison: &Comparison) -> String {
    models::page(comparison).text()
}

fn page(file: RunFile) -> Result<Page, RunFileError> {
    Ok(match file.head.kind {
        Kind::Gateway => throng_gateway_lab::page(&file.into_figures(Kind::Gateway)?),
        Kind::Ai => agents::page(&file),
        Kind::Capacity => throng_capacity::page(&file.into_figures(Kind::Capacity)?),
        Kind::Models => models::page(&file.into_figures(Kind::Models)?),
        Kind::Comparison => sides::page(&file.into_figures(Kind::Comparison)?),
        Kind::Crowd | Kind::Match | Kind::Index => crowd::page(&file.into_figures(Kind::Crowd)?),
    })
}

fn write_file(path: &Path, text: &str) -> Result<(), RunFileError> {
    write_whole(path, text).map_err(|source| RunFileError::Write { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use throng_report::{RunHead, SUMMARY_FILE, to_json};

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
    fn the_page_of_all_runs_says_how_many_it_leaves_out() {
        let runs = tempfile::tempdir().unwrap();
        let add = |name: &str, text: &str| {
            fs::create_dir(runs.path().join(name)).unwrap();
            fs::write(runs.path().join(name).join(SUMMARY_FILE), text).unwrap();
        };
        let text = || fs::read_to_string(write_index(runs.path()).unwrap()).unwrap();
        add("20260131-120000-crowd", "{");
        assert!(text().contains("There is no run in this folder that can be read. Not listed: 1 damaged."));
        add("20260131-120001-crowd", &to_json(&RunSummary::example()));
        assert!(text().contains("All runs of this folder, the newest first. Not listed: 1 damaged."));
    }

    /// Figures of each kind of run but matches, with this text wherever a text may stand.
    fn figures(text: &str) -> Vec<(Kind, String)> {
        let mut crowd = RunSummary::example();
        crowd.settings.description = text.to_owned();
        let mut gateway = throng_gateway_lab::GatewaySummary::example(throng_gateway_lab::Scene::Spatial);
        gateway.gateway.name = text.to_owned();
        let mut models = crate::compare::example();
        let spoilt = |head: &mut RunHead| {
            (head.revision, head.environment.cpu, head.workload) = (text.to_owned(), text.to_owned(), text.to_owned());
            head.conclude([text.to_owned()]);
        };
        [&mut crowd.head, &mut gateway.head, &mut models.head].into_iter().for_each(spoilt);
        let with_head = |kind: Kind, mut figures: serde_json::Value| {
            let mut head = RunHead::example(kind);
            spoilt(&mut head);
            let head = serde_json::to_value(head).unwrap();
            figures.as_object_mut().unwrap().extend(head.as_object().unwrap().clone());
            (kind, figures.to_string())
        };
        let limit = |name: &str, value: f64| serde_json::json!({ "name": name, "at_most": 0.85, "unit": null, "value": value, "low": value, "high": value, "verdict": "rejected" });
        let trial = |amount: u32, value: f64| {
            serde_json::json!({
                "amount": amount, "purpose": text, "held_s": 9.5, "wall_s": 12.0, "verdict": "rejected", "fault": null,
                "steadiness": text, "limits": [limit("cpu", value), limit(text, value)], "cores": 1.0,
                "memory_bytes_per_unit": 5_000.0,
            })
        };
        let capacity = serde_json::json!({
            "load": "ai", "unit": text, "method": "search", "arguments": [], "verdict": "accepted", "why": text, "kept": 20,
            "beyond": 22, "limited_by": text, "per_core": 20.0, "cores": 1.0, "threads_per_core": 2.0, "growth": [],
            "extrapolated_to_machine": { "cores": 4, "amount": 80.0 }, "memory_bytes_per_unit": 5_000.0, "wall_s": 70.0,
            "memory": [], "trials": [trial(10, 0.4), trial(20, 0.8), trial(22, 0.9)],
            "settings": throng_capacity::Load::resolve("ai").unwrap(),
        });
        let part = serde_json::json!({
            "name": text, "unit": "ms", "first": 1.0, "second": 1.2, "verdict": "slower", "words": text, "ratio": 1.2,
            "interval": [1.1, 1.3], "p": 0.001,
        });
        let sides = serde_json::json!({
            "first": [text], "second": ["b"], "runs": [5, 5], "runs_missing": [0, 0], "values": "runs", "least": 0.03, "moved_together": false,
            "parts": [part], "notes": [text],
        });
        vec![
            (Kind::Crowd, to_json(&crowd)),
            (Kind::Gateway, to_json(&gateway)),
            (Kind::Models, to_json(&models)),
            with_head(Kind::Capacity, capacity),
            with_head(Kind::Comparison, sides),
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
            .map(|(kind, json)| {
                let dir = runs.path().join(kind.name());
                fs::create_dir(&dir).unwrap();
                fs::write(dir.join(SUMMARY_FILE), json).unwrap();
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
        for part in ["href=\"crowd/report.html\"", "href=\"capacity/report.html\"", ">words<", "12.5 ms", ">20 units<"]
        {
            assert!(index.contains(part), "no {part} in:\n{index}");
        }
    }
}
