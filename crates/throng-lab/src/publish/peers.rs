//! What `bench/peers/run` wrote of the open libraries.

use serde::Deserialize;

/// One library on one workload; `bench/peers/README.md` describes the keys.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PeerRow {
    /// The library, and how it was used.
    pub peer: String,
    /// Its version.
    pub version: String,
    /// The workload.
    pub workload: String,
    /// How many play.
    pub players: u32,
    /// How often it was run.
    pub rounds: u32,
    /// The server's work, from "values written" to "packets ready".
    pub ms_per_tick: Range,
    /// The same by client, in microseconds.
    pub us_per_client: f64,
    /// Heap allocations; `None` where the runtime does not count them.
    pub allocations_per_tick: Option<f64>,
    /// Bytes handed to the network by client and tick.
    pub bytes_per_client_tick: f64,
    /// Age of what a client holds, in ticks.
    pub state_age_ticks: f64,
    /// Whether every client ended with the right state.
    pub checked: bool,
    /// What went wrong.
    pub notes: String,
}

/// Median and range over rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Range {
    /// Median.
    pub median: f64,
    /// Lowest.
    pub min: f64,
    /// Highest.
    pub max: f64,
}

/// What a peer does for each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Ours.
    Ours,
    /// One patch for all: nothing is chosen for a client.
    Broadcast,
    /// Chooses for each client.
    Filters,
}

impl PeerRow {
    /// Library and version: two versions of one library are two peers.
    pub(super) fn name(&self) -> String {
        if self.version.is_empty() { self.peer.clone() } else { format!("{} {}", self.peer, self.version) }
    }

    pub(super) fn kind(&self) -> Kind {
        if self.peer.starts_with("throng") {
            Kind::Ours
        } else if self.peer.starts_with("naive") || self.peer.ends_with("one patch") {
            Kind::Broadcast
        } else {
            Kind::Filters
        }
    }

    /// Whether this is ours at equal terms with libraries that do not encrypt.
    pub(super) fn is_ours_not_sealed(&self) -> bool {
        self.kind() == Kind::Ours && self.peer.ends_with("not sealed")
    }
}

/// The workloads and sizes that were run, in the order of the file.
pub(super) fn cases(rows: &[PeerRow]) -> Vec<(&str, u32)> {
    let mut cases: Vec<(&str, u32)> = Vec::new();
    for row in rows {
        let case = (row.workload.as_str(), row.players);
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    cases
}

/// The rows of a case.
pub(super) fn of<'a>(rows: &'a [PeerRow], workload: &str, players: u32) -> Vec<&'a PeerRow> {
    rows.iter().filter(|row| row.workload == workload && row.players == players).collect()
}
