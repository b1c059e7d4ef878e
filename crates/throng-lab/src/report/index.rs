//! The page of all runs of a folder.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;
use throng_report::{Cell, Figures, Kind, Page, Section, Table, Verdict, of_kind};

use super::{MAX_SUMMARY_BYTES, REPORT_FILE, ReportError, SUMMARY_FILE, write_file};
use crate::compare::COMPARISON_FILE;
use throng_history::newest::{Newest, newest};

/// Name of the page.
pub const INDEX_FILE: &str = "index.html";
/// Name of the file of a comparison of two sides.
pub const SIDES_FILE: &str = "comparison.json";
/// The words by which this program knows its page.
const SOURCE: &str = "throng lab report writes this page again.";
/// The page of the most runs is shorter.
const INDEX_BYTES_MAX: u64 = 64 << 20;
/// The files with the figures of a run, the first that is there counts, and the kind of run.
const FIGURES: [(&str, Kind); 4] = [
    (COMPARISON_FILE, Kind::Models),
    (SIDES_FILE, Kind::Comparison),
    (throng_capacity::FILE, Kind::Capacity),
    (SUMMARY_FILE, Kind::Crowd),
];

/// The kinds of the page, in their order, with a heading.
const KINDS: [(Kind, &str); 6] = [
    (Kind::Crowd, "Crowds"),
    (Kind::Match, "Matches"),
    (Kind::Capacity, "Capacity"),
    (Kind::Gateway, "Gateway"),
    (Kind::Models, "Models"),
    (Kind::Comparison, "Comparisons"),
];

/// The file with the figures of a run, and the kind of run; `None` if the folder has none.
pub fn figures_of(folder: &Path) -> Option<(Kind, Value)> {
    let (path, kind) =
        FIGURES.iter().map(|(file, kind)| (folder.join(file), *kind)).find(|(path, _)| path.is_file())?;
    if fs::metadata(&path).ok()?.len() > MAX_SUMMARY_BYTES {
        return None;
    }
    let json: Value = serde_json::from_str(&fs::read_to_string(&path).ok()?).ok()?;
    let has = |key: &str| json.get(key).is_some();
    let kind = match kind {
        Kind::Crowd if has("scene") => Kind::Gateway,
        Kind::Crowd if has("matches") => Kind::Match,
        kind => kind,
    };
    Some((kind, json))
}

/// The folders of runs in a folder.
#[derive(Debug)]
pub struct RunFolders {
    /// The newest 10,000, the newest first.
    pub folders: Vec<PathBuf>,
    /// So many older ones are left out.
    pub left_out: usize,
}

/// The folders of runs in a folder, by their names.
///
/// # Errors
/// The folder cannot be read.
pub fn run_folders(runs: &Path) -> Result<RunFolders, ReportError> {
    let found = newest(runs, &FIGURES.map(|(file, _)| file));
    let Newest { mut folders, left_out } =
        found.map_err(|source| ReportError::Read { path: runs.to_owned(), source })?;
    folders.reverse();
    Ok(RunFolders { folders, left_out })
}

/// Writes the page of all runs of a folder into it. Its path.
///
/// # Errors
/// The folder cannot be read or written.
pub fn write_index(runs: &Path) -> Result<PathBuf, ReportError> {
    let path = runs.join(INDEX_FILE);
    if !is_ours(&path) {
        return Err(ReportError::Foreign { path });
    }
    write_file(&path, &page(runs)?.render()?)?;
    Ok(path)
}

/// Whether there is no page yet, or one that this program wrote: the folder may be that of a web site.
fn is_ours(path: &Path) -> bool {
    let Ok(file) = fs::File::open(path) else { return true };
    let mut text = String::new();
    file.take(INDEX_BYTES_MAX).read_to_string(&mut text).is_ok() && text.contains(SOURCE)
}

fn page(runs: &Path) -> Result<Page, ReportError> {
    let name = runs.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let RunFolders { folders, left_out } = run_folders(runs)?;
    let all = folders.len();
    let found: Vec<(PathBuf, Kind, Value)> =
        folders.into_iter().filter_map(|folder| figures_of(&folder).map(|(kind, json)| (folder, kind, json))).collect();
    let mut page = Page::new(Kind::Index, &name);
    page.subtitle = format!("{} runs", found.len());
    page.lead = "All runs of this folder, the newest first.".to_owned();
    for (kind, title) in KINDS {
        let keys: Vec<_> = of_kind(kind).filter(|metric| metric.is_key).collect();
        let mut table = Table::new("", &["run", "load", "revision", "valid"]).wide();
        table.head.extend(keys.iter().map(|metric| Cell { is_number: true, ..Cell::of(metric.term()) }));
        for (folder, _, json) in found.iter().filter(|(_, of, _)| *of == kind) {
            let figures = Figures::new(kind, json);
            let mut row = vec![
                link(folder),
                Cell::from(load(kind, &figures)),
                Cell::from(revision(&figures)),
                validity(&figures),
            ];
            row.extend(keys.iter().map(|metric| Cell::number(metric.show(figures.number(metric.path)))));
            table.push(row);
        }
        if !table.rows.is_empty() {
            page.sections.push(Section::new(title).with(table));
        }
    }
    if page.sections.is_empty() {
        page.lead = "There is no run in this folder".to_owned() + if all > 0 { " that can be read." } else { "." };
    }
    let missing = [(left_out, "older"), (all - found.len(), "damaged")].into_iter().filter(|(count, _)| *count > 0);
    let missing: Vec<String> = missing.map(|(count, word)| format!("{count} {word}")).collect();
    if !missing.is_empty() {
        page.lead += &format!(" Not listed: {}.", missing.join(", "));
    }
    page.source = SOURCE.to_owned();
    Ok(page)
}

fn link(folder: &Path) -> Cell {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let link = folder.join(REPORT_FILE).is_file().then(|| format!("{name}/{REPORT_FILE}"));
    Cell { link, ..Cell::from(name) }
}

fn load(kind: Kind, figures: &Figures<'_>) -> String {
    let number = |path: &str| figures.number(path).map_or("–".to_owned(), |value| value.to_string());
    match kind {
        Kind::Crowd => format!("{}, {} players", figures.text("scenario"), number("players")),
        Kind::Match => format!("{} matches, {} players", number("matches"), number("players")),
        Kind::Capacity => format!("{} ({})", figures.text("load"), figures.text("method")),
        Kind::Gateway => format!("{}, {} clients", figures.text("scene"), number("clients")),
        _ => match figures.at("workloads").and_then(Value::as_array) {
            Some(workloads) => workloads.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
            None => figures.text("workload").to_owned(),
        },
    }
}

fn revision(figures: &Figures<'_>) -> String {
    let texts = ["revision", "environment.build"].map(|path| figures.text(path));
    texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default().to_owned()
}

fn validity(figures: &Figures<'_>) -> Cell {
    let is_valid = figures.at("valid").and_then(Value::as_bool);
    let is_whole = figures.at("partial").and_then(Value::as_bool).map(|is_partial| !is_partial);
    match is_valid.or(is_whole) {
        Some(true) => Cell::verdict(Verdict::Kept, "✓ valid"),
        Some(false) => Cell::verdict(Verdict::Missed, "✗ not valid"),
        None => Cell::from(""),
    }
}
