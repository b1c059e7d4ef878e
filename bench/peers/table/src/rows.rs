//! Rows of one run each become rows of all runs.

use serde::{Deserialize, Serialize};

use crate::peers::{Case, Peer};

/// Median, lowest and highest: of a run's ticks in a run's row, of the runs' medians in the table.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

/// One peer on one workload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) peer: String,
    version: String,
    pub(crate) workload: String,
    pub(crate) players: u32,
    ticks: u32,
    #[serde(default)]
    rounds: usize,
    ms_per_tick: Spread,
    /// The fastest tick of all runs: what the machine can do when nobody disturbs it.
    #[serde(default)]
    fastest_tick_ms: f64,
    us_per_client: f64,
    assign_ms_per_tick: f64,
    receive_ms_per_tick: f64,
    client_us_per_client: f64,
    allocations_per_tick: Option<f64>,
    bytes_per_client_tick: f64,
    packets_per_client_tick: f64,
    state_age_ticks: f64,
    state_age_ticks_max: u64,
    pub(crate) checked: bool,
    notes: String,
}

/// Everything that was run.
#[derive(Default)]
pub(crate) struct Results {
    groups: Vec<Vec<Row>>,
}

impl Results {
    pub(crate) fn add(&mut self, peer: &Peer, case: &Case, rows: Result<Vec<Row>, String>) {
        let failed = |why: String| {
            eprintln!("  FAILED: {why}");
            let (peer, workload) = (peer.name.to_owned(), case.workload.to_owned());
            vec![Row { peer, workload, players: case.players, notes: format!("failed: {why}"), ..Row::default() }]
        };
        for row in rows.unwrap_or_else(failed) {
            let same = |group: &&mut Vec<Row>| group[0].key() == row.key();
            match self.groups.iter_mut().find(same) {
                Some(group) => group.push(row),
                None => self.groups.push(vec![row]),
            }
        }
    }

    /// One row for each peer and workload, those of a workload together.
    pub(crate) fn rows(&self) -> Vec<Row> {
        self.groups.iter().map(|group| merge(group)).collect()
    }
}

impl Row {
    fn key(&self) -> (&str, &str, &str, u32) {
        (&self.peer, &self.version, &self.workload, self.players)
    }
}

/// Median, lowest and highest of at least one value. Between two in the middle lies the median.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let (upper, lower) = (values[values.len() / 2], values[(values.len() - 1) / 2]);
    [(lower + upper) / 2.0, values[0], values[values.len() - 1]]
}

fn merge(runs: &[Row]) -> Row {
    let middle = |of: &dyn Fn(&Row) -> f64| spread(runs.iter().map(of).collect());
    let [median, min, max] = middle(&|row| row.ms_per_tick.median);
    let has_allocations = runs.iter().all(|row| row.allocations_per_tick.is_some());
    Row {
        rounds: runs.len(),
        ms_per_tick: Spread { median, min, max },
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

/// The table, with what is measured stated above it.
pub(crate) fn print(rows: &[Row]) {
    println!(
        "Server, one thread, from \"values written\" to \"packets ready\"; every client checked. See bench/peers/README.md."
    );
    println!(
        "ms/tick: median of the runs' medians [lowest, highest]; best: fastest tick; assign and receive are not in it."
    );
    let mut of = None;
    for row in rows {
        if of != Some((&row.workload, row.players)) {
            of = Some((&row.workload, row.players));
            println!();
            println!("{} with {}", row.workload, row.players);
            println!(
                "  {:<24} {:>8} {:>26} {:>9} {:>10} {:>8} {:>8} {:>10} {:>9} {:>8} {:>5}",
                "peer",
                "version",
                "ms/tick",
                "best",
                "us/client",
                "assign",
                "receive",
                "allocs",
                "bytes/cl",
                "packets",
                "age"
            );
        }
        println!("{}", line(row));
    }
}

fn line(row: &Row) -> String {
    if !row.checked {
        return format!("  {:<24} {}", row.peer, row.notes);
    }
    let Spread { median, min, max } = row.ms_per_tick;
    let allocations = row.allocations_per_tick.map_or("-".to_owned(), |count| format!("{count:.0}"));
    format!(
        "  {:<24} {:>8} {:>26} {:>9.3} {:>10.2} {:>8.3} {:>8.3} {:>10} {:>9.0} {:>8.1} {:>5.2}",
        row.peer,
        row.version,
        format!("{median:.3} [{min:.3}, {max:.3}]"),
        row.fastest_tick_ms,
        row.us_per_client,
        row.assign_ms_per_tick,
        row.receive_ms_per_tick,
        allocations,
        row.bytes_per_client_tick,
        row.packets_per_client_tick,
        row.state_age_ticks,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_of_runs_lies_between_the_middle_two() {
        assert_eq!(spread(vec![4.0, 1.0, 3.0, 2.0]), [2.5, 1.0, 4.0]);
        assert_eq!(spread(vec![7.0, 1.0, 3.0]), [3.0, 1.0, 7.0]);
        assert_eq!(spread(vec![5.0]), [5.0, 5.0, 5.0]);
    }
}
