//! The messages between the processes of a run, one line each.
//!
//! ```text
//! host -> bots, standard input    players N | measure | measure AT | settle | stop   (the end of the input means stop)
//! bots -> host, standard output   {"second": {...}}  every second, {"done": {...}} at the end
//! host -> edge, standard input    measure | settle | drain | cut | mend | read-slowly | read-all | stop
//! host -> server, standard input  begin | measure | settle | cut | mend | freeze | last | stop
//! both -> host, standard output   {"ready": {...}} at the beginning, {"players": {...}} when they change, {"done": {...}} at the end
//! host -> both, standard input    bus {...}, what the bus between servers and edges says
//! both -> host, standard output   {"bus": {...}}, what they say to it
//! ```

use std::sync::mpsc::{Receiver, sync_channel};

use serde::{Deserialize, Serialize};
use throng::Time;
use throng_machine::piped;
use throng_summary::{Difference, FaultFigures, FieldBytes, Known, Neighbours, WorstClient};

use crate::bots::{Gathered, SecondCounts};
use crate::bus::{Down, Up};

/// A command to a process of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// The same, from this moment of the machine's clock on.
    MeasureAt(Time),
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

impl Command {
    const WORDS: [(Command, &'static str); 11] = [
        (Command::Begin, "begin"),
        (Command::Measure, "measure"),
        (Command::Settle, "settle"),
        (Command::Drain, "drain"),
        (Command::Freeze, "freeze"),
        (Command::Last, "last"),
        (Command::Cut, "cut"),
        (Command::Mend, "mend"),
        (Command::ReadSlowly, "read-slowly"),
        (Command::ReadAll, "read-all"),
        (Command::Stop, "stop"),
    ];

    pub(crate) fn line(self) -> String {
        let word = Command::WORDS.iter().find(|(command, _)| *command == self).map(|(_, word)| *word);
        match self {
            Command::Players(number) => format!("players {number}\n"),
            Command::MeasureAt(at) => format!("measure {}\n", at.0),
            _ => format!("{}\n", word.unwrap_or_default()),
        }
    }

    pub(crate) fn read(line: &str) -> Option<Command> {
        let mut words = line.split_whitespace();
        match (words.next()?, words.next()) {
            ("players", Some(number)) => number.parse().ok().map(Command::Players),
            ("measure", Some(at)) => at.parse().ok().map(|at| Command::MeasureAt(Time(at))),
            (word, None) => Command::WORDS.iter().find(|(_, known)| *known == word).map(|(command, _)| *command),
            _ => None,
        }
    }
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
        Command::read(line)
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
    /// Bots that have connected: of those that were there at the same time, the most.
    pub connected: u32,
    /// Connections that ended early. Bots that were told to leave are not among them.
    pub disconnects: u32,
    /// How often bots connected again, to another edge.
    #[serde(default)]
    pub reconnected: u32,
    /// The faults of the scenario, and the bots that they met.
    #[serde(default)]
    pub faults: Vec<FaultFigures>,
    /// Their reasons, with counts.
    pub ends: Vec<(String, u32)>,
    /// Bots that decoded.
    pub decoded: u32,
    /// Objects that were compared with the server's final truth.
    pub objects_compared: u64,
    /// Of those, the objects that differed from the server's state.
    pub state_mismatches: u64,
    /// Objects that were compared with the server's truth while everything moved.
    pub compared_in_play: u64,
    /// They had no way to know that truth.
    #[serde(default)]
    pub without_truth_in_play: bool,
    /// Of those, the objects that differed from the server's state.
    pub mismatches_in_play: u64,
    /// Bots that decode and were compared with nothing at the end.
    #[serde(default)]
    pub not_compared: u32,
    /// The servers, from 1, that have left no last state to compare with.
    #[serde(default)]
    pub without_last: Vec<u32>,
    /// The first objects that differed, described.
    #[serde(default)]
    pub differences: Vec<Difference>,
    /// Bots that were stalled for a while.
    pub stalled: u32,
    /// Of the measured part.
    pub cpu_cores: f64,
    /// Inputs sent by inputs due.
    pub inputs_sent_ratio: f64,
    /// 99th percentile, in milliseconds.
    pub input_delay_p99_ms: Option<f64>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_they_are_written() {
        let numbers = [Command::Players(0), Command::Players(300), Command::MeasureAt(Time(u64::MAX))];
        for command in Command::WORDS.map(|(command, _)| command).into_iter().chain(numbers) {
            assert_eq!(Command::read(&command.line()), Some(command));
        }
        for nonsense in ["", "players", "players -1", "players many", "measure soon", "stop now", "leave"] {
            assert_eq!(Command::read(nonsense), None, "{nonsense}");
        }
    }
}
