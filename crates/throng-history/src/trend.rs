//! A series of runs by revision, and where it changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use throng_judge::{ChangePoint, TrendOptions, change_points, median};

use super::{HistoryError, Part, StoredRun};

/// All series of one workload on one processor.
#[derive(Clone, Debug, Serialize)]
pub struct Trend {
    /// The workload.
    pub workload: String,
    /// The processor.
    pub cpu: String,
    /// The revisions, in the order of their first run.
    pub revisions: Vec<String>,
    /// Valid runs.
    pub runs: usize,
    /// Parts that changed.
    pub changes: Vec<PartTrend>,
}

/// A change of a part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartTrend {
    /// The part.
    pub part: String,
    /// Unit of the values.
    pub unit: String,
    /// Median before it.
    pub before: f64,
    /// Median after it.
    pub after: f64,
    /// Whether it is for the worse.
    pub is_worse: bool,
    /// The last revision that is before the change, with a probability of 97.5 %.
    pub last_before: String,
    /// The first revision that is after the change, with a probability of 97.5 %.
    pub first_after: String,
    /// The revision that most likely made the change.
    pub most_likely: String,
    /// The probability of such a change without a cause.
    pub p: f64,
}

impl PartTrend {
    /// The change in words.
    pub fn words(&self) -> String {
        let percent = (self.after / self.before - 1.0) * 100.0;
        let (PartTrend { part, unit, before, after, .. }, worse) =
            (self, if self.is_worse { "worse" } else { "better" });
        format!(
            "{part}: {percent:+.1} % ({before:.4} to {after:.4} {unit}), {worse}, after {} and not later than {}; most likely {}",
            self.last_before, self.first_after, self.most_likely
        )
    }
}

/// The series of all workloads and processors, with the changes of each part. Runs of one revision are one value, their median.
///
/// # Errors
/// There is no valid run, or `stop` was set.
pub fn trend(runs: &[StoredRun], options: &TrendOptions, stop: &AtomicBool) -> Result<Vec<Trend>, HistoryError> {
    let mut groups: BTreeMap<(&str, &str), Vec<&StoredRun>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.is_valid && run.has_parts()) {
        groups.entry((&run.workload, &run.cpu)).or_default().push(run);
    }
    if groups.is_empty() {
        return Err(HistoryError::Nothing(format!("there is no valid run, of {} in all", runs.len())));
    }
    groups.into_iter().map(|((workload, cpu), runs)| of_group(workload, cpu, &runs, options, stop)).collect()
}

/// A part with its values by revision.
type Series<'a> = (&'a Part, BTreeMap<usize, Vec<f64>>);

fn of_group(
    workload: &str,
    cpu: &str,
    runs: &[&StoredRun],
    options: &TrendOptions,
    stop: &AtomicBool,
) -> Result<Trend, HistoryError> {
    let (mut revisions, mut places) = (Vec::new(), HashMap::new());
    let mut parts: BTreeMap<&str, Series<'_>> = BTreeMap::new();
    for run in runs {
        let place = *places.entry(&*run.revision).or_insert_with(|| {
            revisions.push(run.revision.clone());
            revisions.len() - 1
        });
        for (name, part) in &run.parts {
            let (_, values) = parts.entry(name).or_insert_with(|| (part, BTreeMap::new()));
            values.entry(place).or_default().push(part.value);
        }
    }
    let mut changes = Vec::new();
    for (name, series) in parts {
        if stop.load(Ordering::Relaxed) {
            return Err(HistoryError::Stopped);
        }
        changes.extend(changes_of(name, &series, &revisions, options));
    }
    Ok(Trend { workload: workload.to_owned(), cpu: cpu.to_owned(), revisions, runs: runs.len(), changes })
}

fn changes_of(name: &str, (part, values): &Series<'_>, revisions: &[String], options: &TrendOptions) -> Vec<PartTrend> {
    let mut series = vec![f64::NAN; revisions.len()];
    for (place, values) in values {
        series[*place] = median(values).unwrap_or(f64::NAN);
    }
    let point = |point: ChangePoint| PartTrend {
        part: name.to_owned(),
        unit: part.unit.clone(),
        before: point.before_median,
        after: point.after_median,
        is_worse: (point.ratio() > 1.0) != part.is_more_better,
        last_before: revisions[point.after].clone(),
        first_after: revisions[point.until].clone(),
        most_likely: revisions[point.at].clone(),
        p: point.p,
    };
    change_points(&series, options).into_iter().map(point).collect()
}
