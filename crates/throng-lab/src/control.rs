//! The messages between the processes of a run, one line each.
//!
//! ```text
//! host -> bots, standard input    {"players": N} | "measure" | {"measure-at": US} | "settle" | "stop"
//! bots -> host, standard output   {"second": {...}}  every second, {"done": {...}} at the end
//! host -> edge, standard input    "measure" | "settle" | "drain" | "cut" | "mend" | "read-slowly" | "read-all" | "stop"
//! host -> server, standard input  "begin" | "measure" | "settle" | "cut" | "mend" | "freeze" | "last" | "stop"
//! both -> host, standard output   {"ready": {...}} at the beginning, {"players": {...}} when they change, {"done": {...}} at the end
//! host -> both, standard input    bus {...}, what the bus between servers and edges says
//! both -> host, standard output   {"bus": {...}}, what they say to it
//! ```
//!
//! The end of the input means stop.

use std::sync::mpsc::{Receiver, sync_channel};

use serde::{Deserialize, Serialize};
use throng_machine::piped;
use throng_summary::{Bots, Difference, FaultFigures, FieldBytes, Known, Neighbours, WorstClient};

use crate::bots::{Gathered, SecondCounts};
use crate::bus::{Down, Up};

/// A command to a process of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Command {
    /// So many bots play from now on: more connect, or the newest leave.
    Players(u32),
    /// All players are there: they may move.
    Begin,
    /// Nothing moves any more.
    Freeze,
    /// All is at rest: write the last state.
    Last,
    /// The warm-up is over: measure from now on.
    Measure,
    /// The same, from this moment of the machine's clock on, in microseconds.
    MeasureAt(u64),
    /// The measurement is over: continue to play.
    Settle,
    /// Send all clients away, report, and end.
    Drain,
    /// Its network is cut.
    Cut,
    /// Its network is there again.
    Mend,
    /// It reads only a little of what servers send.
    ReadSlowly,
    /// It reads all again.
    ReadAll,
    /// Compare with the server's final state, disconnect and report.
    Stop,
}

/// A line from the bus begins so.
const BUS: &str = "bus ";
/// Lines from the bus that wait to be read.
const BUS_LINES: usize = 4_096;

/// A word of the bus to a process, as a line.
pub(crate) fn bus_line(down: &Down) -> serde_json::Result<String> {
    Ok(format!("{BUS}{}", serde_json::to_string(down)?))
}

/// Says something to the bus.
pub(crate) fn say_to_bus(up: Up) {
    piped::answer(&PartLine::<(), ()>::Bus(up));
}

/// The commands on the standard input, and what the bus says; the channels close with the input.
pub(crate) fn listen() -> (Receiver<Command>, Receiver<Down>) {
    let (to_bus, from_bus) = sync_channel(BUS_LINES);
    let commands = piped::hear(move |line| {
        if let Some(json) = line.strip_prefix(BUS) {
            // A line that cannot be read is a gap, and so is a new connection. Nobody reads it in a process that has come to its end.
            let _ = to_bus.send(serde_json::from_str(json).unwrap_or(Down::Anew));
            return None;
        }
        serde_json::from_str(line).ok()
    });
    (commands, from_bus)
}

/// A line of the bots.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BotsLine {
    Second(Box<SecondCounts>),
    Done(Box<Gathered>),
    Failed(String),
}

/// A line of an edge or of a further server. `P` is where it is reached, `F` are its figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PartLine<P, F> {
    /// It can be connected to.
    Ready(P),
    /// So many players are there now.
    Players(PlayerCount),
    /// It says something to the bus.
    Bus(Up),
    /// It has ended.
    Done(F),
    Failed(String),
}

/// The players of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlayerCount {
    /// Players that are there.
    pub(crate) connected: u32,
    /// Players that have left the world. Those whom another server has taken over are not among them.
    pub(crate) ended: u32,
}

/// The bots' report of each second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Bots that are connected.
    pub connected: u32,
    /// Connections that ended.
    pub ended: u32,
    /// Mean payload to a bot in the last second, in kbit/s.
    pub kbit_per_s: f64,
    /// Age of near neighbours' state in the last second, 99th percentile, in milliseconds.
    pub near_age_p99_ms: Option<f64>,
    /// Processor time by wall time in the last second.
    pub cpu_cores: f64,
    /// How late the bots are, 99th percentile of the last second, in milliseconds.
    pub late_p99_ms: f64,
}

/// The measurements of the bots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BotsReport {
    /// Their part of the summary.
    pub bots: Bots,
    /// The faults of the scenario, and the bots that they met.
    #[serde(default)]
    pub faults: Vec<FaultFigures>,
    /// Why connections ended early, with counts. Bots that were told to leave are not among them.
    pub ends: Vec<(String, u32)>,
    /// The servers, from 1, that have left no last state to compare with.
    #[serde(default)]
    pub without_last: Vec<u32>,
    /// The first objects that differed, described.
    #[serde(default)]
    pub differences: Vec<Difference>,
    /// Processor time by wall time of each process of bots, with the name of its machine as [`boot_id`](throng_machine::boot_id)
    /// has it.
    pub cpu_cores_of: Vec<(Option<String>, f64)>,
    /// Payload to each bot, mean and 99th percentile of the bots, in kbit/s.
    pub kbit_per_s: (f64, f64),
    /// The same with the headers of IP and UDP, 99th percentile of the bots.
    pub kbit_per_s_with_headers_p99: f64,
    /// Number of objects that decoding bots held.
    pub known: Known,
    /// Smallest share of the characters within 40 m that a decoding bot held.
    pub known_within_40_m: Option<f64>,
    /// Age and position error of neighbours at decoding bots. Without the server's state there are ages of moving
    /// neighbours only, by their distance as the bots know it, and no position errors.
    pub neighbours: Neighbours,
    /// How far these ages can be off, if the bots had to estimate the server's clock: the largest error of all samples.
    #[serde(default)]
    pub age_error_ms: Option<f64>,
    /// State by kind and field.
    #[serde(default)]
    pub fields: Vec<FieldBytes>,
    /// The clients that fare worst.
    #[serde(default)]
    pub worst: Vec<WorstClient>,
    /// The folder on the server's machine that has the report of both; `null` if none has.
    #[serde(default)]
    pub kept_in: Option<String>,
}

impl BotsReport {
    /// Processor time of the bots on this machine, by wall time. `None` if a machine has no name: it could be this one.
    pub(crate) fn cpu_cores_here(&self) -> Option<f64> {
        let here = throng_machine::boot_id()?;
        let on_this =
            |(machine, cores): &(Option<String>, f64)| Some(if *machine.as_ref()? == here { *cores } else { 0.0 });
        self.cpu_cores_of.iter().map(on_this).sum()
    }
}
