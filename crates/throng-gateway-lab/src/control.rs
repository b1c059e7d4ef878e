//! The messages between the processes of a run, one line each.
//!
//! ```text
//! run -> world, clients   {"load": ...} first, then "go" | {"players": N} | "measure" | "kill" | "settle" | "stop"
//! world, clients -> run   {"progress": ...} every second, {"done": ...} at the end, {"failed": "why"}
//! ```
//!
//! The end of the input means stop.

use std::sync::mpsc::{Receiver, TryRecvError};

use serde::{Deserialize, Serialize};
use throng_machine::piped;

/// A command to the world servers and the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Command {
    /// Everybody has joined: play.
    Go,
    /// So many clients play from now on: more connect, or the newest leave.
    Players(u32),
    /// The warm-up is over: measure from now on.
    Measure,
    /// One world server of several dies without a word, and comes back.
    Kill,
    /// The measurement is over: the clients stop sending, and messages in flight arrive.
    Settle,
    /// Leave and report.
    Stop,
}

/// A line of the world or of the clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line<P, R> {
    /// Once a second.
    Progress(P),
    /// The last line.
    Done(Box<R>),
    /// The last line, if it could not be done.
    Failed(String),
}

/// Commands from the standard input, read by a thread of its own.
pub(super) struct Commands(Receiver<Command>);

impl Commands {
    pub(super) fn listen() -> Commands {
        Commands(piped::hear(|line| serde_json::from_str(line).ok()))
    }

    /// The next command, if there is one; the end of the input is a command to stop.
    pub(super) fn poll(&self) -> Option<Command> {
        match self.0.try_recv() {
            Ok(command) => Some(command),
            Err(TryRecvError::Disconnected) => Some(Command::Stop),
            Err(TryRecvError::Empty) => None,
        }
    }
}
