//! Rows of one run each become rows of all rounds.

use serde::{Deserialize, Serialize};

use crate::peers::{Case, Peer};

/// A run's ticks in a run's row. In the table: the median of the rounds' means, of their medians and of their 99th
/// percentiles, and the lowest and the highest of their means.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// One peer on one workload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) peer: String,
    pub(crate) version: String,
    pub(crate) workload: String,
    pub(crate) players: u32,
    pub(crate) ticks: u32,
    /// How often it was run, whether that succeeded or not.
    #[serde(default)]
    pub(crate) rounds: usize,
    pub(crate) ms_per_tick: Spread,
    /// The mean of each round, in order; `None` for a round that failed. Factors between peers belong within a round.
    #[serde(default)]
    pub(crate) round_ms: Vec<Option<f64>>,
    /// The fastest tick of all runs: what the machine can do when nobody disturbs it.
    #[serde(default)]
    pub(crate) fastest_tick_ms: f64,
    pub(crate) us_per_client: f64,
    pub(crate) assign_ms_per_tick: f64,
    pub(crate) receive_ms_per_tick: f64,
    pub(crate) client_us_per_client: f64,
    pub(crate) allocations_per_tick: Option<f64>,
    pub(crate) bytes_per_client_tick: f64,
    pub(crate) packets_per_client_tick: f64,
    pub(crate) state_age_ticks: f64,
    pub(crate) state_age_ticks_max: u64,
    pub(crate) checked: bool,
    pub(crate) notes: String,
}

/// Everything that was run.
#[derive(Default)]
pub(crate) struct Results {
    groups: Vec<Group>,
}

/// All rounds of one program on one workload. A program may print several rows, and all of them stand or fall together.
struct Group {
    program: &'static str,
    workload: &'static str,
    players: u32,
    rounds: Vec<Result<Vec<Row>, String>>,
}

impl Results {
    /// Adds the next round of a peer on a workload.
    pub(crate) fn add(&mut self, peer: &Peer, case: &Case, rows: Result<Vec<Row>, String>) {
        let round = rows.and_then(|rows| if rows.is_empty() { Err("it printed nothing".to_owned()) } else { Ok(rows) });
        if let Err(why) = &round {
            eprintln!("  FAILED: {why}");
        }
        let (program, workload, players) = (peer.name, case.workload, case.players);
        let same = |group: &&mut Group| (group.program, group.workload, group.players) == (program, workload, players);
        match self.groups.iter_mut().find(same) {
            Some(group) => group.rounds.push(round),
            None => self.groups.push(Group { program, workload, players, rounds: vec![round] }),
        }
    }

    /// One row for each row that a program prints on a workload, those of a workload together.
    pub(crate) fn rows(&self) -> Vec<Row> {
        self.groups.iter().flat_map(Group::rows).collect()
    }
}

impl Group {
    fn rows(&self) -> Vec<Row> {
        let Some(printed) = self.rounds.iter().find_map(|round| round.as_ref().ok()) else {
            return vec![self.judged(Row::default(), self.program)];
        };
        let of_row = |row: &Row| -> Vec<Option<&Row>> {
            let in_round = |rows: &'_ Vec<Row>| rows.iter().position(|other| other.peer == row.peer);
            self.rounds.iter().map(|round| round.as_ref().ok().and_then(|rows| Some(&rows[in_round(rows)?]))).collect()
        };
        printed.iter().map(|row| self.judged(merge(&of_row(row)), &row.peer)).collect()
    }

    /// The row, unchecked if any round failed.
    fn judged(&self, mut row: Row, peer: &str) -> Row {
        let failures: Vec<&String> = self.rounds.iter().filter_map(|round| round.as_ref().err()).collect();
        row.peer = peer.to_owned();
        (row.workload, row.players, row.rounds) = (self.workload.to_owned(), self.players, self.rounds.len());
        row.round_ms.resize(row.rounds, None);
        if let Some(why) = failures.first() {
            row.checked = false;
            row.notes = format!("{} of {} rounds failed: {why}", failures.len(), row.rounds);
        }
        row
    }
}

/// The middle of some values, and the lowest and the highest. Between two in the middle lies the median.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let (upper, lower) = (values[values.len() / 2], values[(values.len() - 1) / 2]);
    [(lower + upper) / 2.0, values[0], values[values.len() - 1]]
}

/// Of a row's rounds, of which at least one succeeded.
fn merge(rounds: &[Option<&Row>]) -> Row {
    let runs: Vec<&Row> = rounds.iter().copied().flatten().collect();
    let middle = |of: &dyn Fn(&Row) -> f64| spread(runs.iter().map(|row| of(row)).collect());
    let [mean, min, max] = middle(&|row| row.ms_per_tick.mean);
    let [median, p99] = [middle(&|row| row.ms_per_tick.median)[0], middle(&|row| row.ms_per_tick.p99)[0]];
    let has_allocations = runs.iter().all(|row| row.allocations_per_tick.is_some());
    Row {
        ms_per_tick: Spread { mean, median, p99, min, max },
        round_ms: rounds.iter().map(|round| round.map(|row| row.ms_per_tick.mean)).collect(),
        fastest_tick_ms: middle(&|row| row.ms_per_tick.min)[1],
        us_per_client: middle(&|row| row.us_per_client)[0],
        assign_ms_per_tick: middle(&|row| row.assign_ms_per_tick)[0],
        receive_ms_per_tick: middle(&|row| row.receive_ms_per_tick)[0],
        client_us_per_client: middle(&|row| row.client_us_per_client)[0],
        allocations_per_tick: has_allocations.then(|| middle(&|row| row.allocations_per_tick.unwrap_or(0.0))[0]),
        bytes_per_client_tick: middle(&|row| row.bytes_per_client_tick)[0],
        packets_per_client_tick: middle(&|row| row.packets_per_client_tick)[0],
        state_age_ticks: middle(&|row| row.state_age_ticks)[0],
        state_age_ticks_max: runs.iter().map(|row| row.state_age_ticks_max).max().unwrap_or(0),
        checked: runs.iter().all(|row| row.checked),
        ..runs[0].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::PEERS;

    const CASE: Case = Case { workload: "dense", players: 25 };

    fn run(ms: f64) -> Result<Vec<Row>, String> {
        let ms_per_tick = Spread { mean: ms, median: ms, p99: ms, min: ms, max: ms };
        let row = |peer: &str| Row { peer: peer.to_owned(), ms_per_tick, checked: true, ..Row::default() };
        Ok(vec![row("throng"), row("throng, not sealed")])
    }

    fn rows_of(rounds: Vec<Result<Vec<Row>, String>>) -> Vec<Row> {
        let mut results = Results::default();
        rounds.into_iter().for_each(|round| results.add(&PEERS[1], &CASE, round));
        results.rows()
    }

    #[test]
    fn the_median_of_an_even_number_of_runs_lies_between_the_middle_two() {
        assert_eq!(spread(vec![4.0, 1.0, 3.0, 2.0]), [2.5, 1.0, 4.0]);
        assert_eq!(spread(vec![7.0, 1.0, 3.0]), [3.0, 1.0, 7.0]);
        assert_eq!(spread(vec![5.0]), [5.0, 5.0, 5.0]);
    }

    #[test]
    fn rounds_that_succeed_are_merged_and_kept_one_by_one() {
        let rows = rows_of(vec![run(3.0), run(1.0), run(2.0)]);
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert!(row.checked && row.rounds == 3);
            assert_eq!(row.round_ms, [Some(3.0), Some(1.0), Some(2.0)]);
            assert_eq!((row.ms_per_tick.mean, row.ms_per_tick.min, row.ms_per_tick.max), (2.0, 1.0, 3.0));
        }
    }

    #[test]
    fn one_failed_round_makes_all_rows_of_the_program_unchecked() {
        let rows = rows_of(vec![run(3.0), Err("client 1 lacks object 2".to_owned()), run(2.0)]);
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert!(!row.checked && row.rounds == 3);
            assert_eq!(row.notes, "1 of 3 rounds failed: client 1 lacks object 2");
            assert_eq!(row.round_ms, [Some(3.0), None, Some(2.0)]);
        }
    }

    #[test]
    fn a_program_that_never_succeeds_or_says_nothing_keeps_one_row() {
        let rows = rows_of(vec![Err("it was not built".to_owned()), Ok(Vec::new())]);
        assert_eq!((rows.len(), rows[0].peer.as_str(), rows[0].players), (1, "throng", 25));
        assert!(!rows[0].checked && rows[0].notes.starts_with("2 of 2 rounds failed"));
        assert_eq!(rows[0].round_ms, [None, None]);
    }
}
