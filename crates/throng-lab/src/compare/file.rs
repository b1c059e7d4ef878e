//! The file of a comparison: every run of it.
//!
//! ```text
//! { head of a run, "contestants", "workloads",
//!   "planned": [ { "workload", "players" }, .. ],
//!   "runs": [ { "workload", "contestant", "players", "round", "valid", "figures": { .. } | null, .. }, .. ],
//!   "published": [ { "workload", "rows": [ .. ] }, .. ],
//!   "advantages": { contestant: { "outgoing", "outside_kernel", "bytes" }, .. } }
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_report::{Kind, RunFile, RunFileError, RunHead};

use super::{CompareOptions, Figures, OUTGOING, OUTSIDE_KERNEL, Turn, advantage, bytes_if_not_overloaded, turns};
use throng_summary::{Published, RunSummary};

/// Every run of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The head that every kind of run has.
    #[serde(flatten)]
    pub head: RunHead,
    /// The contestants, as named on the command line.
    pub contestants: Vec<String>,
    /// The workloads.
    pub workloads: Vec<String>,
    /// Every planned workload and size, in this order.
    pub planned: Vec<Cell>,
    /// Every run, in the order in which they were played.
    pub runs: Vec<Run>,
    /// Published figures of other systems for the same workloads.
    pub published: Vec<PublishedTable>,
    /// The advantages of each contestant, by its name.
    #[serde(default)]
    pub advantages: BTreeMap<String, Advantages>,
}

/// How many times less than the base a contestant costs: in each workload the median of the rounds, and the smallest of all
/// workloads. `null` if a workload does not tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Advantages {
    /// The work of sending state, by connection and tick.
    pub outgoing: Option<f64>,
    /// The same without the kernel's part.
    pub outside_kernel: Option<f64>,
    /// Data to a client. An overloaded server sends less, and has no advantage by that.
    pub bytes: Option<f64>,
}

/// A workload at a size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// The workload.
    pub workload: String,
    /// How many play.
    pub players: u32,
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// The scenario as it was named on the command line.
    pub workload: String,
    /// The contestant's name.
    pub contestant: String,
    /// Planned number of players.
    pub players: u32,
    /// Which repetition, from 0.
    pub round: u32,
    /// Ticks per second.
    pub tick_hz: u32,
    /// Length of the measured part.
    pub seconds: f64,
    /// Start in UTC.
    pub started_at: String,
    /// The arguments that repeat this run alone.
    pub command_line: Vec<String>,
    /// Whether the figures may be quoted.
    pub valid: bool,
    /// Why not.
    pub invalid_reasons: Vec<String>,
    /// The measurements; `None` if the run failed.
    pub figures: Option<Figures>,
}

/// Published figures of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedTable {
    /// The workload.
    pub workload: String,
    /// The figures; `ours` is empty.
    pub rows: Vec<Published>,
}

impl Comparison {
    pub(super) fn new(options: &CompareOptions, began: SystemTime) -> Comparison {
        Comparison {
            head: RunHead { partial: true, ..RunHead::new(Kind::Models, &options.workloads.join(", "), began) },
            contestants: options.contestants.iter().map(ToString::to_string).collect(),
            workloads: options.workloads.clone(),
            planned: planned(options),
            runs: Vec::new(),
            published: Vec::new(),
            advantages: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, turn: &Turn, outcome: Result<RunSummary, String>) {
        let (workload, contestant) = (turn.workload.clone(), turn.contestant.to_string());
        let run = match &outcome {
            Ok(summary) => {
                self.note_published(&workload, summary);
                Run {
                    players: summary.players,
                    tick_hz: summary.tick_hz,
                    seconds: summary.head.seconds,
                    started_at: summary.head.started_at.clone(),
                    command_line: summary.head.environment.command_line.clone(),
                    valid: summary.head.valid,
                    invalid_reasons: summary.head.invalid_reasons.clone(),
                    figures: Some(Figures::of(summary)),
                    ..Run::default()
                }
            }
            Err(error) => Run { players: turn.players(), invalid_reasons: vec![error.clone()], ..Run::default() },
        };
        self.head.seconds += run.seconds;
        self.runs.push(Run { workload, contestant, round: turn.round, ..run });
    }

    /// Says how large the advantages are, and what is not valid. To be called after the last run.
    pub(crate) fn conclude(&mut self) {
        self.advantages = self.contestants.iter().map(|who| (who.clone(), self.advantages_of(who))).collect();
        let missing =
            (!self.is_complete()).then(|| "a model has no valid run of a workload that was planned".to_owned());
        self.head.conclude(self.complaints().into_iter().chain(missing));
    }

    fn advantages_of(&self, contestant: &str) -> Advantages {
        let smallest = |of| {
            let in_workload = |workload: &String| {
                let players = self.usual_size(workload)?;
                let base = self.counted(workload, players, self.base()?);
                advantage(&base, &self.counted(workload, players, contestant), of).map(|sample| sample.median)
            };
            let all: Option<Vec<f64>> = self.workloads.iter().map(in_workload).collect();
            all?.into_iter().min_by(f64::total_cmp)
        };
        Advantages {
            outgoing: smallest(OUTGOING.of),
            outside_kernel: smallest(OUTSIDE_KERNEL.of),
            bytes: smallest(bytes_if_not_overloaded),
        }
    }

    pub(crate) fn note_published(&mut self, workload: &str, summary: &RunSummary) {
        if summary.published.is_empty() || self.published.iter().any(|table| table.workload == workload) {
            return;
        }
        let rows = summary.published.iter().map(|row| Published { ours: None, ..row.clone() }).collect();
        self.published.push(PublishedTable { workload: workload.to_owned(), rows });
    }

    /// The comparison in a folder.
    ///
    /// # Errors
    /// If there is none, or it is none of this program's.
    pub fn load(folder: &Path) -> Result<Comparison, RunFileError> {
        RunFile::figures(folder, Kind::Models)
    }

    /// Every workload and size that was to be played or was, in the order of the plan.
    pub fn cells(&self) -> Vec<(&str, u32)> {
        let planned = self.planned.iter().map(|cell| (cell.workload.as_str(), cell.players));
        let played = self.runs.iter().map(|run| (run.workload.as_str(), run.players));
        let mut cells: Vec<(&str, u32)> = Vec::new();
        for cell in planned.chain(played).filter(|(_, players)| *players > 0) {
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        cells
    }

    /// The numbers of players with which a workload was to be played, smallest first.
    pub fn sizes(&self, workload: &str) -> Vec<u32> {
        let cells = self.cells().into_iter().filter(|(name, _)| *name == workload);
        let mut sizes: Vec<u32> = cells.map(|(_, players)| players).collect();
        sizes.sort_unstable();
        sizes
    }

    /// The number of players of the workload itself, not of its growth: that of the first run. `None` if no run of that
    /// size ended.
    pub fn usual_size(&self, workload: &str) -> Option<u32> {
        let (_, players) = self.cells().into_iter().find(|(name, _)| *name == workload)?;
        self.has_ended((workload, players)).then_some(players)
    }

    /// Whether the cell has a completed run of any contestant.
    pub fn has_ended(&self, (workload, players): (&str, u32)) -> bool {
        self.runs.iter().any(|run| run.workload == workload && run.players == players && run.figures.is_some())
    }

    /// The cells without a completed run.
    pub fn failed_cells(&self) -> Vec<(&str, u32)> {
        self.cells().into_iter().filter(|&cell| !self.has_ended(cell)).collect()
    }

    /// A contestant's runs of a workload and size that count for verdicts: valid, and without an overloaded server.
    pub fn sound(&self, (workload, players): (&str, u32), contestant: &str) -> Vec<&Run> {
        let counted = self.counted(workload, players, contestant).into_iter();
        let is_overloaded = |run: &Run| run.figures.as_ref().is_none_or(Figures::is_overloaded);
        counted.filter(|run| run.valid && !is_overloaded(run)).collect()
    }

    /// A contestant's runs of a workload and size that count: the valid ones or, if there are none, all completed ones.
    pub fn counted(&self, workload: &str, players: u32, contestant: &str) -> Vec<&Run> {
        let is_asked = |run: &&Run| {
            run.workload == workload && run.players == players && run.contestant == contestant && run.figures.is_some()
        };
        let all: Vec<&Run> = self.runs.iter().filter(is_asked).collect();
        if all.iter().any(|run| run.valid) { all.into_iter().filter(|run| run.valid).collect() } else { all }
    }

    /// Whether a contestant's server was overloaded in the runs of such a cell that count: in all of them together it
    /// missed more than [`OVERLOADED_SHARE`](super::OVERLOADED_SHARE) of its ticks.
    pub fn is_overloaded(&self, workload: &str, players: u32, contestant: &str) -> bool {
        let mut all = Figures::default();
        for figures in self.counted(workload, players, contestant).iter().filter_map(|run| run.figures.as_ref()) {
            all.ticks += figures.ticks;
            all.missed_ticks += figures.missed_ticks;
        }
        all.is_overloaded()
    }

    /// The contestants whose server was overloaded, with their shares of missed ticks, a line for each workload and
    /// size.
    pub fn overloads(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for workload in &self.workloads {
            for players in self.sizes(workload) {
                let overloaded = self.contestants.iter().filter(|who| self.is_overloaded(workload, players, who));
                let names: Vec<&str> = overloaded.map(String::as_str).collect();
                if !names.is_empty() {
                    lines.push(format!("{workload} with {players}: {}", names.join(", ")));
                }
            }
        }
        lines
    }

    /// The base of the ratios: `legacy`, or the first contestant.
    pub fn base(&self) -> Option<&str> {
        let legacy = self.contestants.iter().find(|name| *name == "legacy");
        legacy.or(self.contestants.first()).map(String::as_str)
    }

    /// Why runs failed or are invalid, a line each: workload, contestant, round, reason.
    pub fn complaints(&self) -> Vec<String> {
        let spoilt = self.runs.iter().filter(|run| !run.valid);
        let line = |run: &Run| {
            let players = if run.players > 0 { format!(" with {}", run.players) } else { String::new() };
            let why = run.invalid_reasons.join("; ");
            let what = if run.figures.is_some() { "not valid" } else { "failed" };
            format!("{}{players}, {}, round {}: {what}: {why}", run.workload, run.contestant, run.round + 1)
        };
        spoilt.map(line).collect()
    }

    /// Whether every contestant has a valid run of every workload and size that was planned.
    pub fn is_complete(&self) -> bool {
        let cells = self.cells();
        let has_valid = |(workload, players): &(&str, u32), who: &String| {
            self.counted(workload, *players, who).iter().any(|run| run.valid)
        };
        !cells.is_empty() && cells.iter().all(|cell| self.contestants.iter().all(|who| has_valid(cell, who)))
    }
}

/// The cells of a plan.
fn planned(options: &CompareOptions) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for turn in turns(options) {
        let cell = Cell { players: turn.players(), workload: turn.workload };
        if !cells.contains(&cell) {
            cells.push(cell);
        }
    }
    cells
}

impl PublishedTable {
    /// The systems, in the order of the file.
    pub fn systems(&self) -> Vec<&str> {
        let mut systems: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !systems.contains(&row.system.as_str()) {
                systems.push(&row.system);
            }
        }
        systems
    }

    /// The measures, with their units, in the order of the file.
    pub fn measures(&self) -> Vec<(&str, &str)> {
        let mut measures: Vec<(&str, &str)> = Vec::new();
        for row in &self.rows {
            if !measures.iter().any(|(measure, _)| *measure == row.measure) {
                measures.push((&row.measure, &row.unit));
            }
        }
        measures
    }

    /// The origin of all rows, if it is the same; then they make a table. Otherwise each stands by itself, with its own.
    pub fn origin(&self) -> Option<&str> {
        let origin = self.rows.first()?.origin.as_str();
        self.rows.iter().all(|row| row.origin == origin).then_some(origin)
    }

    /// A system's value of a measure.
    pub fn value(&self, system: &str, measure: &str) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.system == system && row.measure == measure);
        row.map(|row| row.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::example;
    use throng_report::to_json;

    #[test]
    fn a_comparison_survives_its_file() {
        let folder = tempfile::tempdir().unwrap();
        RunFile::write(folder.path(), &example()).unwrap();
        assert_eq!(to_json(&Comparison::load(folder.path()).unwrap()), to_json(&example()));
    }

    #[test]
    fn a_cell_in_which_everybody_failed_is_still_a_cell() {
        let mut comparison = example();
        assert!(comparison.failed_cells().is_empty() && comparison.is_complete());
        for run in comparison.runs.iter_mut().filter(|run| run.players == 400) {
            (run.valid, run.figures) = (false, None);
        }
        assert_eq!(comparison.failed_cells(), [("dense", 400)]);
        assert_eq!(comparison.sizes("dense"), [25, 100, 400]);
        assert!(!comparison.is_complete());
        comparison.runs.retain(|run| run.players != 400);
        comparison.planned = [100, 25, 400].map(|players| Cell { workload: "dense".to_owned(), players }).to_vec();
        assert_eq!(comparison.failed_cells(), [("dense", 400)], "it was planned and never played");
    }

    #[test]
    fn an_advantage_is_the_smallest_of_all_workloads_and_unknown_where_one_does_not_tell() {
        let mut comparison = example();
        comparison.conclude();
        let of = |comparison: &Comparison, who: &str| comparison.advantages[who];
        assert_eq!(of(&comparison, "legacy").outgoing, Some(1.0));
        assert!(of(&comparison, "throng").outside_kernel.is_some_and(|times| (times - 50.0).abs() < 0.1));
        // A second workload in which it has half of the advantage, and then none.
        let mut second: Vec<Run> = comparison.runs.iter().filter(|run| run.players == 100).cloned().collect();
        for run in &mut second {
            run.workload = "sparse".to_owned();
            let figures = run.figures.as_mut().unwrap();
            let factor = if run.contestant == "throng" { 2.0 } else { 1.0 };
            figures.us_per_connection = figures.us_per_connection.scaled(factor);
        }
        comparison.workloads.push("sparse".to_owned());
        comparison.runs.extend(second);
        comparison.conclude();
        assert!(of(&comparison, "throng").outside_kernel.is_some_and(|times| (times - 25.0).abs() < 0.1));
        comparison.runs.retain(|run| (&run.workload[..], &run.contestant[..]) != ("sparse", "throng"));
        comparison.conclude();
        assert_eq!(of(&comparison, "throng"), Advantages::default());
    }

    #[test]
    fn verdicts_are_drawn_from_valid_runs_of_servers_that_were_not_overloaded() {
        let mut comparison = example();
        let rounds = |comparison: &Comparison| {
            comparison.sound(("dense", 100), "throng").iter().map(|run| run.round).collect::<Vec<_>>()
        };
        assert_eq!(rounds(&comparison), [0, 1]);
        let mut ours: Vec<&mut Run> =
            comparison.runs.iter_mut().filter(|run| run.contestant == "throng" && run.players == 100).collect();
        ours[0].valid = false;
        let figures = ours[1].figures.as_mut().unwrap();
        figures.missed_ticks = figures.ticks;
        assert!(rounds(&comparison).is_empty());
        assert_eq!(comparison.counted("dense", 100, "throng").len(), 1, "it is shown all the same");
    }

    #[test]
    fn invalid_runs_count_only_where_there_are_no_others() {
        let mut comparison = example();
        let first = comparison.runs.iter_mut().find(|run| run.contestant == "throng").unwrap();
        first.valid = false;
        let rounds = |comparison: &Comparison| {
            comparison.counted("dense", 100, "throng").iter().map(|run| run.round).collect::<Vec<_>>()
        };
        assert_eq!(rounds(&comparison), [1]);
        comparison.runs.iter_mut().for_each(|run| run.valid = false);
        assert_eq!(rounds(&comparison), [0, 1]);
    }
}
