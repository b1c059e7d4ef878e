//! Faults that a run has on purpose, at their moments.

use std::time::Duration;

use serde::de::DeserializeOwned;
use throng_crowd::scenario::{Fault, FaultKind, Part};
use throng_summary::{EdgeFigures, ServerFigures};

use super::parts::Parts;
use super::piped::Signal;
use crate::bots::EdgePoint;
use crate::control::Command;
use crate::server::ServerPoint;

/// The faults of a run.
pub(super) struct Faults(Vec<(Fault, Stage)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Planned,
    Begun,
    Over,
}

/// The processes of a run to which something can be done.
pub(super) type Processes<'a> = (&'a mut Parts<EdgePoint, EdgeFigures>, &'a mut Parts<ServerPoint, ServerFigures>);

impl Faults {
    pub(super) fn new(faults: &[Fault]) -> Faults {
        Faults(faults.iter().map(|fault| (*fault, Stage::Planned)).collect())
    }

    /// Begins and ends those that are due at a moment of the measured part. Returns what has happened, in words.
    pub(super) fn turn(&mut self, elapsed: Duration, (edges, servers): Processes<'_>) -> Vec<String> {
        let mut happened = Vec::new();
        for (fault, stage) in &mut self.0 {
            if *stage == Stage::Planned && elapsed >= fault.at {
                *stage = match (fault.kind, fault.part) {
                    (FaultKind::Kill, part) => {
                        send(part, Signal::Kill, (edges, servers));
                        Stage::Over
                    }
                    (FaultKind::Pause(_), part) => {
                        send(part, Signal::Stop, (edges, servers));
                        Stage::Begun
                    }
                    (FaultKind::Drain, Part::Edge(number)) => {
                        edges.tell_one(number as usize - 1, Command::Drain);
                        Stage::Over
                    }
                    (FaultKind::Drain, Part::Server(_)) => Stage::Over,
                };
                happened.push(fault.to_string());
            }
            if *stage == Stage::Begun && elapsed >= fault.ends() {
                send(fault.part, Signal::Continue, (edges, servers));
                *stage = Stage::Over;
                happened.push(format!("{fault} is over"));
            }
        }
        happened
    }

    /// Nothing stands still any more.
    pub(super) fn end(&mut self, processes: Processes<'_>) {
        let (edges, servers) = processes;
        for (fault, stage) in self.0.iter_mut().filter(|(_, stage)| *stage == Stage::Begun) {
            send(fault.part, Signal::Continue, (edges, servers));
            *stage = Stage::Over;
        }
    }
}

fn send(part: Part, signal: Signal, (edges, servers): Processes<'_>) {
    match part {
        Part::Edge(number) => to_one(edges, number, 1, signal),
        // The first server is this process.
        Part::Server(number) => to_one(servers, number, 2, signal),
    }
}

fn to_one<P: DeserializeOwned + Clone, F: DeserializeOwned + Default>(
    parts: &mut Parts<P, F>,
    number: u32,
    first: u32,
    signal: Signal,
) {
    if let Some(index) = number.checked_sub(first) {
        parts.signal(index as usize, signal);
    }
}
