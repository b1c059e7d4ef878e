//! `compare.json`: every run of a comparison.
//!
//! ```text
//! { "format": 2, "started_at", "revision", "command_line", "machine", "contestants", "workloads",
//!   "planned": [ { "workload", "players" }, .. ],
//!   "runs": [ { "workload", "contestant", "players", "round", "valid", "figures": { .. } | null, .. }, .. ],
//!   "published": [ { "workload", "rows": [ .. ] }, .. ] }
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{CompareOptions, Figures, Turn, turns};
use crate::report::ReportError;
use throng_summary::environment::Environment;
use throng_summary::{Published, RunSummary};

/// Name of the file.
pub const COMPARISON_FILE: &str = "compare.json";
/// Number of this layout. Rises when a key changes its meaning or goes away, not when one is added.
pub const FORMAT: u32 = 2;
/// The oldest layout that is still read. Before 2, `encode` included `plan`, and `receive` included `open` and `settle`.
const OLDEST_FORMAT: u32 = 1;
/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// Every run of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// [`FORMAT`].
    pub format: u32,
    /// Start of the first run, in UTC, as `2026-01-31T12:00:00Z`.
    pub started_at: String,
    /// Revision of the program's tree, with `-dirty` if it was changed; or `unknown`.
    pub revision: String,
    /// The program's arguments.
    pub command_line: Vec<String>,
    /// The machine; `None` before the first run.
    pub machine: Option<Machine>,
    /// The contestants, as named on the command line.
    pub contestants: Vec<String>,
    /// The workloads.
    pub workloads: Vec<String>,
    /// Every planned workload and size, in this order; empty in files of versions that did not record it.
    #[serde(default)]
    pub planned: Vec<Cell>,
    /// Every run, in the order in which they were played.
    pub runs: Vec<Run>,
    /// Published figures of other systems for the same workloads.
    pub published: Vec<PublishedTable>,
}

/// A workload at a size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// The workload.
    pub workload: String,
    /// How many play.
    pub players: u32,
}

/// The machine and the program: everything that affects the figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Cores.
    pub cores: u32,
    /// Whether the processor is a hypervisor's.
    pub virtual_machine: bool,
    /// Memory in bytes; 0 if unknown.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Version of the program.
    pub version: String,
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

/// Why a comparison could not be read. Each text is one line that says what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ComparisonError {
    /// The file could not be read.
    #[error("cannot read {}: {source}; give the folder of a comparison, such as runs/20260131-120000-compare", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a comparison.
    #[error("{} is not a comparison: {source}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The error.
        source: serde_json::Error,
    },
    /// Another version of the program wrote it.
    #[error("{} has format {found}, this program reads formats {OLDEST_FORMAT} to {FORMAT}: use the program that wrote it", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The format found.
        found: u32,
    },
}

impl ComparisonError {
    /// A stable short name.
    pub fn tag(&self) -> &'static str {
        match self {
            ComparisonError::Read { .. } => "read",
            ComparisonError::Malformed { .. } => "malformed",
            ComparisonError::Format { .. } => "format",
        }
    }
}

impl Comparison {
    pub(super) fn new(options: &CompareOptions, started_at: String) -> Comparison {
        Comparison {
            format: FORMAT,
            started_at,
            revision: throng_machine::revision(),
            command_line: options.command_line.clone(),
            machine: None,
            contestants: options.contestants.iter().map(ToString::to_string).collect(),
            workloads: options.workloads.clone(),
            planned: planned(options),
            runs: Vec::new(),
            published: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, turn: &Turn, outcome: Result<RunSummary, String>) {
        let (workload, contestant) = (turn.workload.clone(), turn.contestant.to_string());
        let run = match &outcome {
            Ok(summary) => {
                self.machine.get_or_insert_with(|| Machine::of(&summary.environment));
                self.note_published(&workload, summary);
                Run {
                    players: summary.players,
                    tick_hz: summary.tick_hz,
                    seconds: summary.seconds,
                    started_at: summary.started_at.clone(),
                    command_line: summary.environment.command_line.clone(),
                    valid: summary.valid,
                    invalid_reasons: summary.invalid_reasons.clone(),
                    figures: Some(Figures::of(summary)),
                    ..Run::default()
                }
            }
            Err(error) => Run { players: turn.players(), invalid_reasons: vec![error.clone()], ..Run::default() },
        };
        self.runs.push(Run { workload, contestant, round: turn.round, ..run });
    }

    pub(super) fn note_published(&mut self, workload: &str, summary: &RunSummary) {
        if summary.published.is_empty() || self.published.iter().any(|table| table.workload == workload) {
            return;
        }
        let rows = summary.published.iter().map(|row| Published { ours: None, ..row.clone() }).collect();
        self.published.push(PublishedTable { workload: workload.to_owned(), rows });
    }

    /// The comparison as JSON, with a final line break.
    ///
    /// # Panics
    /// Never: every part of it has a form in JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a comparison holds nothing that JSON cannot") + "\n"
    }

    /// The comparison in a folder.
    ///
    /// # Errors
    /// If there is none, or it is none of this program's.
    pub fn load(folder: &Path) -> Result<Comparison, ComparisonError> {
        let path = folder.join(COMPARISON_FILE);
        let read = || {
            if fs::metadata(&path)?.len() > MAX_BYTES {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 64 MiB"));
            }
            fs::read_to_string(&path)
        };
        match read() {
            Ok(text) => Comparison::from_json(&text, &path),
            Err(source) => Err(ComparisonError::Read { path, source }),
        }
    }

    fn from_json(text: &str, path: &Path) -> Result<Comparison, ComparisonError> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let malformed = |source| ComparisonError::Malformed { path: path.to_owned(), source };
        let head: Head = serde_json::from_str(text).map_err(malformed)?;
        if !(OLDEST_FORMAT..=FORMAT).contains(&head.format) {
            return Err(ComparisonError::Format { path: path.to_owned(), found: head.format });
        }
        serde_json::from_str(text).map_err(malformed)
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), ReportError> {
        let path = folder.join(COMPARISON_FILE);
        fs::write(&path, self.to_json()).map_err(|source| ReportError::Write { path, source })
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

impl Machine {
    pub(super) fn of(environment: &Environment) -> Machine {
        Machine {
            cpu: environment.cpu.clone(),
            cores: environment.cores,
            virtual_machine: environment.virtual_machine,
            memory_bytes: environment.memory_bytes,
            kernel: environment.kernel.clone(),
            version: environment.version.clone(),
        }
    }
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

    #[test]
    fn a_comparison_survives_its_file() {
        let folder = tempfile::tempdir().unwrap();
        example().write(folder.path()).unwrap();
        assert_eq!(Comparison::load(folder.path()).unwrap().to_json(), example().to_json());
    }

    #[test]
    fn what_is_no_comparison_is_refused_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let refused = || {
            let error = Comparison::load(folder.path()).unwrap_err();
            assert!(!error.to_string().contains('\n'));
            error.tag()
        };
        assert_eq!(refused(), "read");
        fs::write(folder.path().join(COMPARISON_FILE), "{}").unwrap();
        assert_eq!(refused(), "malformed");
        fs::write(folder.path().join(COMPARISON_FILE), "{\"format\": 99}").unwrap();
        assert_eq!(refused(), "format");
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
