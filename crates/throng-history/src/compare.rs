//! Two sides of runs, part by part.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_judge::{Change, ChangeKind, ChangeOptions, Estimate, VALUES_MIN, have_moved_together, mean};
use throng_report::{Kind, RunHead};

use throng_telemetry::WHOLE_FRAME;

use super::{HistoryError, Part, StoredRun};

/// Seconds of fewer runs are joined to so many values: neighbouring seconds are alike.
const VALUES: usize = 20;
/// Subsystems that take a smaller share of all are left alone.
const SMALL: f64 = 0.01;

const SAME: &str = "both sides are the same runs, so nothing can have changed";

/// A comparison of two sides.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The head that every kind of run has. The workload is that of all runs; it is valid if there are enough of them.
    #[serde(flatten)]
    pub head: RunHead,
    /// The revisions of the first side.
    pub first: Vec<String>,
    /// The revisions of the second side.
    pub second: Vec<String>,
    /// Valid runs on each side.
    pub runs: (usize, usize),
    /// `runs`: each value is a run. `seconds`: there are too few runs to decide anything, and each value is some seconds of them.
    pub values: String,
    /// Smaller changes are called none, as a share.
    pub least: f64,
    /// So many more runs each side needs, before anything can be decided.
    pub runs_missing: (usize, usize),
    /// Whether most parts changed alike: then the machine has changed, and not the code.
    pub moved_together: bool,
    /// The parts, the largest first.
    pub parts: Vec<PartChange>,
    /// Warnings, in words.
    pub notes: Vec<String>,
}

/// A part on both sides.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartChange {
    /// Its name.
    pub name: String,
    /// Unit of the values.
    pub unit: String,
    /// The mean of the first side's runs.
    pub first: f64,
    /// The mean of the second side's runs.
    pub second: f64,
    /// `no change`, `slower`, `faster`, `worse`, `better`, `undecided`, or `small`: less than 1 % of all parts of its unit.
    pub verdict: String,
    /// The verdict with its interval, in words.
    pub words: String,
    /// The second side's median divided by the first side's; `null` if it is not known.
    pub ratio: Option<f64>,
    /// Its interval of 95 %.
    pub interval: Option<(f64, f64)>,
    /// The probability of such a difference without a cause; 1 if it is not known.
    pub p: f64,
    /// Of an undecided part: about so many more runs on each side decide it; `null` if that is not known.
    pub more: Option<usize>,
}

impl Comparison {
    /// Whether there are too few runs for any verdict.
    pub fn has_too_few_runs(&self) -> bool {
        self.runs_missing != (0, 0)
    }

    /// The parts that became worse.
    pub fn worse(&self) -> impl Iterator<Item = &PartChange> {
        self.parts.iter().filter(|part| ["slower", "worse"].contains(&part.verdict.as_str()))
    }
}

/// Compares the valid runs of two sides, with five runs or more on each. With fewer, nothing tells how much runs of one program
/// differ, so every part is undecided. The difference of their seconds is shown all the same: in pairs of the same second.
///
/// # Errors
/// A side has no valid run, or the workloads differ.
pub fn compare(first: &[StoredRun], second: &[StoredRun], least: f64) -> Result<Comparison, HistoryError> {
    let (before, after) = (valid(first, "first")?, valid(second, "second")?);
    let workload = before[0].workload.clone();
    if let Some(other) = before.iter().chain(&after).find(|run| run.workload != workload) {
        let words = format!(
            "{} is a run of {}, and {} one of {workload}: only runs of one workload can be compared",
            other.folder.display(),
            other.workload,
            before[0].folder.display()
        );
        return Err(HistoryError::Nothing(words));
    }
    let are_same = are_same(&before, &after);
    let missing = match are_same {
        true => (0, 0),
        false => (VALUES_MIN.saturating_sub(before.len()), VALUES_MIN.saturating_sub(after.len())),
    };
    let by_runs = missing == (0, 0);
    let mut parts: Vec<(PartChange, Change)> = Vec::new();
    let mut only_once: Vec<PartChange> = Vec::new();
    let parts_of = |runs: &[&StoredRun]| runs.iter().flat_map(|run| run.parts.clone()).collect::<BTreeMap<_, _>>();
    let (there_before, there_after) = (parts_of(&before), parts_of(&after));
    let mut all = there_before.clone();
    all.extend(there_after.clone());
    for (name, part) in &all {
        let side = |runs: &[&StoredRun]| values(runs, name, by_runs);
        let (values_before, values_after) = (side(&before), side(&after));
        let of = |runs: &[&StoredRun]| {
            let all: Vec<f64> = runs.iter().filter_map(|run| Some(run.parts.get(name)?.value)).collect();
            mean(&all).unwrap_or(f64::NAN)
        };
        let (first, second) = (of(&before), of(&after));
        let only = match (there_before.contains_key(name), there_after.contains_key(name)) {
            (true, false) => Some("only in the first side"),
            (false, true) => Some("only in the second side"),
            _ => None,
        };
        if let Some(words) = only {
            let zero = |value: f64| if value.is_finite() { value } else { 0.0 };
            let change = PartChange {
                name: name.clone(),
                unit: part.unit.clone(),
                first: zero(first),
                second: zero(second),
                verdict: "undecided".to_owned(),
                words: words.to_owned(),
                ratio: None,
                interval: None,
                p: 1.0,
                more: None,
            };
            only_once.push(change);
            continue;
        }
        // Parts that are never entered.
        if !(first.is_finite() && second.is_finite()) || (first == 0.0 && second == 0.0) {
            continue;
        }
        let options = ChangeOptions { least, ..ChangeOptions::default() };
        let change = match () {
            () if are_same => Change::ALIKE,
            () if by_runs => throng_judge::compare(&values_before, &values_after, &options),
            () => by_seconds(&joined(&values_before, &values_after), missing.0.max(missing.1)),
        };
        let Estimate { value: ratio, low, high } = change.ratio;
        let is_bounded = low.is_finite() && high.is_finite();
        let is_small = is_small(name, part, (&before, &after));
        let change_of = PartChange {
            name: name.clone(),
            unit: part.unit.clone(),
            first,
            second,
            verdict: if is_small { "small" } else { verdict(change.kind, part.is_more_better, &part.unit) }.to_owned(),
            words: if is_small { "too small to matter".to_owned() } else { change.words() },
            ratio: ratio.is_finite().then_some(ratio),
            // JSON has no infinite numbers.
            interval: is_bounded.then_some((low, high)),
            p: change.p,
            more: change.more,
        };
        parts.push((change_of, change));
    }
    parts.sort_by(|a, b| a.0.unit.cmp(&b.0.unit).then(b.0.first.total_cmp(&a.0.first)));
    let counted = parts.iter().filter(|(part, _)| part.verdict != "small");
    let changes: Vec<Change> = counted.map(|(_, change)| *change).collect();
    let moved_together = have_moved_together(&changes);
    let revisions = |runs: &[&StoredRun]| {
        let mut revisions: Vec<String> = runs.iter().map(|run| run.revision.clone()).collect();
        revisions.dedup();
        revisions
    };
    let few = missing_words(missing);
    let head = RunHead {
        valid: few.is_none(),
        invalid_reasons: few.iter().cloned().collect(),
        ..RunHead::new(Kind::Comparison, &workload, SystemTime::now())
    };
    Ok(Comparison {
        head,
        first: revisions(&before),
        second: revisions(&after),
        runs: (before.len(), after.len()),
        values: if by_runs { "runs" } else { "seconds" }.to_owned(),
        least,
        runs_missing: missing,
        moved_together,
        parts: parts.into_iter().map(|(part, _)| part).chain(only_once).collect(),
        notes: are_same
            .then(|| SAME.to_owned())
            .into_iter()
            .chain(few)
            .chain(notes((&before, &after), moved_together))
            .collect(),
    })
}

/// Whether both sides are the very same runs.
fn are_same(before: &[&StoredRun], after: &[&StoredRun]) -> bool {
    let folders = |runs: &[&StoredRun]| -> BTreeSet<PathBuf> {
        runs.iter().map(|run| fs::canonicalize(&run.folder).unwrap_or_else(|_| run.folder.clone())).collect()
    };
    folders(before) == folders(after)
}

fn valid<'a>(runs: &'a [StoredRun], side: &str) -> Result<Vec<&'a StoredRun>, HistoryError> {
    let valid: Vec<&StoredRun> = runs.iter().filter(|run| run.is_valid).collect();
    let words = || format!("the {side} side has no valid run, of {} in all", runs.len());
    if valid.is_empty() { Err(HistoryError::Nothing(words())) } else { Ok(valid) }
}

/// A crowd's summary has it among its subsystems.
const SUM_OF_PARTS: &str = "total";

/// Whether a subsystem takes next to nothing on either side: then its ratio is mostly noise.
fn is_small(name: &str, part: &Part, (before, after): (&[&StoredRun], &[&StoredRun])) -> bool {
    if !part.unit.contains(" per ") {
        return false;
    }
    let share = |run: &&StoredRun| {
        let is_whole = |other: &String| [WHOLE_FRAME, SUM_OF_PARTS].contains(&other.as_str());
        let alike = run.parts.iter().filter(|(other, of)| of.unit == part.unit && !is_whole(other));
        let all: f64 = alike.map(|(_, of)| of.value).sum();
        run.parts.get(name).map_or(0.0, |of| of.value) / all.max(f64::MIN_POSITIVE)
    };
    before.iter().chain(after).map(share).fold(0.0, f64::max) < SMALL
}

fn values(runs: &[&StoredRun], name: &str, by_runs: bool) -> Vec<f64> {
    let parts = runs.iter().filter_map(|run| run.parts.get(name));
    if by_runs {
        return parts.map(|part| part.value).collect();
    }
    parts.flat_map(|part| part.seconds.iter().copied()).collect()
}

/// The same seconds of both sides, joined to at most 20 pairs.
fn joined(before: &[f64], after: &[f64]) -> Vec<(f64, f64)> {
    let count = before.len().min(after.len());
    let size = count.div_ceil(VALUES).max(1);
    let pairs = before[..count].chunks(size).zip(after[..count].chunks(size));
    pairs.filter_map(|(before, after)| mean(before).zip(mean(after))).collect()
}

/// The difference between the seconds of few runs. It says how much these runs differ, and nothing about others of the same
/// programs.
fn by_seconds(pairs: &[(f64, f64)], missing: usize) -> Change {
    let change = throng_judge::compare_pairs(pairs, &ChangeOptions::default());
    Change { kind: ChangeKind::Undecided, p: 1.0, more: Some(missing), ..change }
}

fn verdict(kind: ChangeKind, is_more_better: bool, unit: &str) -> &'static str {
    let is_time = ["ms", "µs", "s", ""].contains(&unit) || unit.contains(" per ");
    match (kind, is_more_better, is_time) {
        (ChangeKind::None, _, _) => "no change",
        (ChangeKind::Undecided, _, _) => "undecided",
        (ChangeKind::Higher, false, true) => "slower",
        (ChangeKind::Lower, false, true) => "faster",
        (ChangeKind::Higher, false, false) | (ChangeKind::Lower, true, _) => "worse",
        (ChangeKind::Lower, false, false) | (ChangeKind::Higher, true, _) => "better",
    }
}

/// Why nothing is decided, if so many runs are missing.
fn missing_words(missing: (usize, usize)) -> Option<String> {
    (missing != (0, 0)).then(|| {
        format!(
            "fewer than {VALUES_MIN} runs on a side do not show how much runs of one program differ, so nothing is decided: {} more \
             of A and {} more of B are needed. Intervals are those of the seconds of these runs alone",
            missing.0, missing.1
        )
    })
}

fn notes((before, after): (&[&StoredRun], &[&StoredRun]), moved_together: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if moved_together {
        notes.push("most parts changed alike: the machine has probably changed, and not the program".to_owned());
    }
    let cpu = &before[0].cpu;
    if before.iter().chain(after).any(|run| run.cpu != *cpu) {
        notes.push("the runs are of different processors".to_owned());
    }
    notes
}
