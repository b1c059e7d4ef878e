//! The results of `bench/peers/run` for the open libraries.

use serde::Deserialize;

use super::evidence::rounds;

/// The results of `bench/peers/run`: rows, and their origin.
///
/// ```text
/// { "machine": { "cpu", "cores", "kernel" }, "revision", "started_at", "command_line", "rows": [ .. ] }
/// [ .. ]                                                      rows alone: where they are from is not known
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peers {
    /// Where they were run; `None` if it was not noted.
    pub machine: Option<PeerMachine>,
    /// Revision of the repository; empty if it was not noted.
    pub revision: String,
    /// When, in UTC; empty if it was not noted.
    pub started_at: String,
    /// How; empty if it was not noted.
    pub command_line: String,
    /// Every row.
    pub rows: Vec<PeerRow>,
}

/// The machine that peers were run on.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PeerMachine {
    /// Model of the processor.
    pub cpu: String,
    /// Cores; 0 if it was not noted.
    pub cores: u32,
    /// Name and release of the kernel.
    pub kernel: String,
}

/// Both layouts of the file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Layout {
    Rows(Vec<PeerRow>),
    Whole {
        machine: Option<PeerMachine>,
        #[serde(default)]
        revision: String,
        #[serde(default)]
        started_at: String,
        command_line: Option<Words>,
        rows: Vec<PeerRow>,
    },
}

/// A command, in one text or in words.
#[derive(Deserialize)]
#[serde(untagged)]
enum Words {
    Text(String),
    List(Vec<String>),
}

impl Peers {
    pub(super) fn from_json(text: &str) -> Result<Peers, serde_json::Error> {
        Ok(match serde_json::from_str(text)? {
            Layout::Rows(rows) => Peers { rows, ..Peers::default() },
            Layout::Whole { machine, revision, started_at, command_line, rows } => {
                let command_line = match command_line {
                    Some(Words::Text(text)) => text,
                    Some(Words::List(words)) => words.join(" "),
                    None => String::new(),
                };
                Peers { machine, revision, started_at, command_line, rows }
            }
        })
    }
}

/// `peers, 3 rounds`.
pub(super) fn origin(count: u32) -> String {
    format!("peers, {}", rounds(count as usize))
}

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
    /// Taking what clients sent, in milliseconds per tick; `None` if it was not noted.
    pub receive_ms_per_tick: Option<f64>,
    /// Writing the new values to where the library looks for them.
    pub assign_ms_per_tick: Option<f64>,
    /// A client's work by tick, in microseconds.
    pub client_us_per_client: Option<f64>,
    /// Packets handed to the network by client and tick.
    pub packets_per_client_tick: Option<f64>,
    /// Heap allocations; `None` where the runtime does not count them.
    pub allocations_per_tick: Option<f64>,
    /// Bytes handed to the network by client and tick.
    pub bytes_per_client_tick: f64,
    /// Age of what a client holds, in ticks.
    pub state_age_ticks: f64,
    /// Whether every client ended with the right state.
    pub checked: bool,
    /// The error.
    pub notes: String,
}

/// Mean, median and range over rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Range {
    /// Mean over ticks, median of the rounds; `None` in files of versions that did not note it.
    pub mean: Option<f64>,
    /// Median.
    pub median: f64,
    /// Lowest.
    pub min: f64,
    /// Highest.
    pub max: f64,
}

/// The kind of work that a peer does for each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Ours.
    Ours,
    /// One patch for all: nothing is chosen for a client.
    Broadcast,
    /// Chooses for each client.
    Filters,
}

impl Range {
    /// The figure by which peers are compared: the mean, which also counts rare work.
    pub fn usual(&self) -> f64 {
        self.mean.unwrap_or(self.median)
    }
}

impl PeerRow {
    /// All of a server's work: receive, assign and replicate, in milliseconds per tick; `None` if a part was not noted.
    pub fn sum_ms(&self) -> Option<f64> {
        Some(self.receive_ms_per_tick? + self.assign_ms_per_tick? + self.ms_per_tick.usual())
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_with_their_origin_and_without() {
        let rows = r#"[{"peer": "naia", "rounds": 2, "receive_ms_per_tick": 1.0, "assign_ms_per_tick": 0.5,
            "ms_per_tick": {"median": 2.0, "min": 1.0, "max": 3.0}}]"#;
        let alone = Peers::from_json(rows).unwrap();
        assert_eq!((alone.machine, alone.rows[0].sum_ms()), (None, Some(3.5)));
        let text = format!(
            r#"{{"machine": {{"cpu": "A", "cores": 2, "kernel": "Linux", "more": 1}}, "revision": "abc-dirty",
                "started_at": "2026-01-31T12:00:00Z", "command_line": ["bench/peers/run", "--quick"], "rows": {rows}}}"#
        );
        let whole = Peers::from_json(&text).unwrap();
        assert_eq!(whole.machine.unwrap().cpu, "A");
        assert_eq!((whole.revision.as_str(), whole.command_line.as_str()), ("abc-dirty", "bench/peers/run --quick"));
        assert_eq!(whole.rows, alone.rows);
        let text = text
            .replace(r#"["bench/peers/run", "--quick"]"#, r#""run --quick""#)
            .replace("\"median\"", "\"mean\": 4.0, \"median\"");
        let mean = Peers::from_json(&text).unwrap();
        assert_eq!((mean.command_line.as_str(), mean.rows[0].sum_ms()), ("run --quick", Some(5.5)));
        assert!(Peers::from_json("{}").is_err() && Peers::from_json("7").is_err());
    }
}
