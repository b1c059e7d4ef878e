//! The report: all rows, the worst first, as text or JSON.

use std::fmt::Write;

use serde::Serialize;

use crate::apply::is_applied;
use crate::check::{CHECKS, Check, Finding, OF_PROCESS, PROCESS_CHECKS, Setting, Source, Verdict};
use crate::host::{Host, ReadError};
use crate::machine::Machine;
use crate::probes::Probes;
use crate::subject::Subject;

/// The most columns of the text.
pub const WIDTH: usize = 100;
/// The column at which the details begin.
const INDENT: usize = 20;

/// The finding of one check.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The check's name.
    pub check: &'static str,
    /// Its meaning.
    pub verdict: Verdict,
    /// The value in words, or why it cannot be read.
    pub read: String,
    /// The tag of the error, if it cannot be read.
    pub error: Option<&'static str>,
    /// Why it matters.
    pub why: &'static str,
    /// The gain that others saw.
    pub worth: &'static str,
    /// Where that was seen.
    pub sources: &'static [Source],
    /// How to fix it.
    pub fix: &'static str,
    /// How to undo that.
    pub undo: &'static str,
    /// Whether `--apply` can set it.
    pub can_apply: bool,
    /// Whether `--measure` can compare it.
    pub can_measure: bool,
    /// Whether it was applied, and not undone since.
    pub applied: bool,
}

/// All rows, the worst first.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The rows.
    pub rows: Vec<Row>,
}

/// Runs all checks of the machine.
pub fn examine(host: &Host, probes: &dyn Probes) -> Report {
    report(&Machine::look(host, probes, Subject::this()), CHECKS.iter())
}

/// Runs the checks of a process that runs: [`PROCESS_CHECKS`], and those of [`CHECKS`] that are about processes.
///
/// # Errors
///
/// There is no process of this id.
pub fn examine_process(host: &Host, probes: &dyn Probes, pid: u32) -> Result<Report, ReadError> {
    let machine = Machine::look(host, probes, Subject::other(host, pid)?);
    let shared = CHECKS.iter().filter(|check| OF_PROCESS.contains(&check.name));
    Ok(report(&machine, PROCESS_CHECKS.iter().chain(shared)))
}

fn report<'a>(machine: &Machine<'_>, checks: impl Iterator<Item = &'a Check>) -> Report {
    let mut rows: Vec<Row> = checks.map(|check| row(machine, check)).collect();
    // The sort is stable: rows of one verdict keep the order of the table.
    rows.sort_by_key(|row| row.verdict);
    Report { rows }
}

fn row(machine: &Machine<'_>, check: &Check) -> Row {
    let found = (check.read)(machine);
    let error = found.as_ref().err().map(ReadError::tag);
    let Finding { read, verdict } = found.unwrap_or_else(|error| {
        let hint = match error {
            ReadError::Absent { .. } => format!("; {}", check.if_absent),
            _ => String::new(),
        };
        Finding { read: format!("{error}{hint}"), verdict: Verdict::CannotRead }
    });
    Row {
        check: check.name,
        verdict,
        read,
        error,
        why: check.why,
        worth: check.worth,
        sources: check.sources,
        fix: check.fix,
        undo: check.undo,
        can_apply: matches!(check.setting, Setting::Host(_)),
        can_measure: !matches!(check.setting, Setting::None),
        applied: is_applied(machine.host, check),
    }
}

impl Report {
    /// How many rows have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// The text for a terminal, of at most [`WIDTH`] columns. Warnings and advice come in full, and so do the checks that
    /// `in_full` names; the others have a line each.
    pub fn text(&self, in_full: &[&str]) -> String {
        let mut text = String::new();
        let mut was_full = true;
        for row in &self.rows {
            let is_full = row.verdict <= Verdict::Advice || in_full.contains(&row.check);
            if is_full && !was_full {
                text.push('\n');
            }
            was_full = is_full;
            let head = format!("{:<11}  {:<15}  ", row.verdict.word(), row.check);
            text.push_str(&wrapped(&head, &row.read));
            if is_full {
                let sources: Vec<&str> = row.sources.iter().map(|source| source.title()).collect();
                let sources = if sources.is_empty() { String::new() } else { format!(" [{}]", sources.join("; ")) };
                let detail = |name: &str, words: &str| wrapped(&format!("{:>INDENT$}", format!("{name:<7}")), words);
                text.push_str(&detail("why", row.why));
                text.push_str(&detail("worth", &format!("{}{sources}", row.worth)));
                text.push_str(&detail("fix", row.fix));
                text.push_str(&detail("undo", row.undo));
                if row.can_apply || row.can_measure {
                    text.push_str(&detail("try", &commands(row)));
                }
                text.push('\n');
            }
        }
        let [warnings, advice, unread, ok] =
            [Verdict::Warning, Verdict::Advice, Verdict::CannotRead, Verdict::Ok].map(|verdict| self.count(verdict));
        let blank = if was_full { "" } else { "\n" };
        let _ = writeln!(
            text,
            "{blank}warnings {warnings}, advice {advice}, cannot read {unread}, ok {ok}; nothing was changed"
        );
        text
    }
}

fn commands(row: &Row) -> String {
    let name = row.check;
    let apply = match (row.can_apply, row.applied) {
        (true, true) => format!("applied before; --undo {name}"),
        (true, false) => format!("--apply {name}, --undo {name}"),
        (false, _) => "each process sets it for itself".to_owned(),
    };
    format!("{apply}; --measure {name}")
}

/// A paragraph whose first line begins with `head`. The others are indented as deep.
pub fn wrapped(head: &str, words: &str) -> String {
    let indent = head.chars().count();
    let mut text = head.to_owned();
    let mut column = indent;
    for (index, word) in words.split_whitespace().enumerate() {
        let length = word.chars().count();
        if index > 0 && column + 1 + length > WIDTH {
            let _ = write!(text, "\n{:indent$}", "");
            column = indent;
        } else if index > 0 {
            text.push(' ');
            column += 1;
        }
        // A word longer than a line, as a long path, is cut.
        text.extend(word.chars().take(WIDTH - indent));
        column += length.min(WIDTH - indent);
    }
    text.push('\n');
    text
}
