//! The page of all runs of a folder.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use throng_report::{
    Cell, Figures, Kind, Metric, Page, RunFile, RunFileError, RunFolders, RunHead, Section, Table, Verdict, of_kind,
    run_folders,
};

use super::{REPORT_FILE, ReportError, write_file};

/// Name of the page.
pub const INDEX_FILE: &str = "index.html";
/// The words by which this program knows its page.
const SOURCE: &str = "throng lab report writes this page again.";
/// The page of the most runs is shorter.
const INDEX_BYTES_MAX: u64 = 64 << 20;
/// The kinds of the page, in their order, with a heading.
const KINDS: [(Kind, &str); 7] = [
    (Kind::Crowd, "Crowds"),
    (Kind::Match, "Matches"),
    (Kind::Ai, "Matches of agents"),
    (Kind::Capacity, "Capacity"),
    (Kind::Gateway, "Gateway"),
    (Kind::Models, "Models"),
    (Kind::Comparison, "Comparisons"),
];

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
    // An older program that found a full disk left an empty one.
    file.take(INDEX_BYTES_MAX).read_to_string(&mut text).is_ok() && (text.is_empty() || text.contains(SOURCE))
}

fn page(runs: &Path) -> Result<Page, ReportError> {
    let name = runs.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let error = |source| RunFileError::Read { path: runs.to_owned(), source };
    let RunFolders { folders, left_out, unfinished } = run_folders(runs).map_err(error)?;
    let all = folders.len();
    let mut tables = KINDS.map(|(kind, _)| {
        let mut table = Table::new("", "run | load | revision | valid").wide();
        table.head.extend(keys(kind).map(|metric| Cell { is_number: true, ..Cell::of(metric.term()) }));
        table
    });
    let mut found = 0;
    // One at a time: the figures of thousands of runs would take gigabytes.
    for folder in folders.iter().rev() {
        let Ok(RunFile { head, json, .. }) = RunFile::open(folder) else { continue };
        found += 1;
        let Some(table) = KINDS.iter().position(|(kind, _)| *kind == head.kind) else { continue };
        let figures = Figures::new(head.kind, &json);
        let mut row =
            vec![link(folder), Cell::from(&head.workload[..]), Cell::from(&head.revision[..]), validity(&head)];
        row.extend(keys(head.kind).map(|metric| Cell::number(metric.show(figures.number(metric.path)))));
        tables[table].push(row);
    }
    let mut page = Page::new(Kind::Index, &name);
    page.subtitle = format!("{found} runs");
    page.lead = "All runs of this folder, the newest first.".to_owned();
    for ((_, title), table) in KINDS.iter().zip(tables).filter(|(_, table)| !table.rows.is_empty()) {
        page.sections.push(Section::new(title).with(table));
    }
    if page.sections.is_empty() {
        page.lead = "There is no run in this folder".to_owned() + if all > 0 { " that can be read." } else { "." };
    }
    let missing = [(left_out, "older"), (all - found, "damaged"), (unfinished, "unfinished")]
        .into_iter()
        .filter(|(count, _)| *count > 0);
    let missing: Vec<String> = missing.map(|(count, word)| format!("{count} {word}")).collect();
    if !missing.is_empty() {
        page.lead += &format!(" Not listed: {}.", missing.join(", "));
    }
    page.source = SOURCE.to_owned();
    Ok(page)
}

fn keys(kind: Kind) -> impl Iterator<Item = Metric> {
    of_kind(kind).filter(|metric| metric.is_key)
}

fn link(folder: &Path) -> Cell {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let link = folder.join(REPORT_FILE).is_file().then(|| format!("{name}/{REPORT_FILE}"));
    Cell { link, ..Cell::from(name) }
}

fn validity(head: &RunHead) -> Cell {
    match head.valid {
        true => Cell::verdict(Verdict::Kept, "✓ valid"),
        false => Cell::verdict(Verdict::Missed, "✗ not valid"),
    }
}
