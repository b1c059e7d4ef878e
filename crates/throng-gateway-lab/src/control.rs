//! The messages between the processes of a run, one line each.
//!
//! ```text
//! run -> world, clients   {"load": ...} first, then go | measure | settle | stop      (the end of the input means stop)
//! world, clients -> run   {"progress": ...} every second, {"done": ...} at the end, {"failed": "why"}
//! ```

use std::sync::mpsc::{Receiver, TryRecvError};

use serde::{Deserialize, Serialize};
use throng_machine::piped;

/// A command to the world servers and the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Everybody has joined: play.
    Go,
    /// The warm-up is over: measure from now on.
    Measure,
    /// The measurement is over: the clients stop sending, and messages in flight arrive.
    Settle,
    /// Leave and report.
    Stop,
}

impl Command {
    const ALL: [Command; 4] = [Command::Go, Command::Measure, Command::Settle, Command::Stop];

    pub(super) fn word(self) -> &'static str {
        match self {
            Command::Go => "go",
            Command::Measure => "measure",
            Command::Settle => "settle",
            Command::Stop => "stop",
        }
    }

    fn read(line: &str) -> Option<Command> {
        Command::ALL.into_iter().find(|command| command.word() == line.trim())
    }
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
        Commands(piped::hear(Command::read))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_words() {
        for command in Command::ALL {
            assert_eq!(Command::read(&format!("{}\n", command.word())), Some(command));
        }
        assert_eq!(Command::read("jump"), None);
    }
}
