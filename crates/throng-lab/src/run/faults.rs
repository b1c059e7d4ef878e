//! Faults that a run has on purpose, at their moments.

use std::time::Duration;

use throng_crowd::scenario::{Fault, FaultKind, Part};
use throng_machine::piped::Signal;
use throng_summary::{EdgeFigures, ServerFigures};

use super::parts::Parts;
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
                    (FaultKind::Cut(_), part) => {
                        tell(part, Command::Cut, (edges, servers));
                        Stage::Begun
                    }
                    (FaultKind::Drain, part) => {
                        tell(part, Command::Drain, (edges, servers));
                        Stage::Over
                    }
                };
                happened.push(fault.to_string());
            }
            if *stage == Stage::Begun && elapsed >= fault.ends() {
                end(fault, (edges, servers));
                *stage = Stage::Over;
                happened.push(format!("{fault} is over"));
            }
        }
        happened
    }

    /// Nothing stands still or is cut off any more.
    pub(super) fn end(&mut self, processes: Processes<'_>) {
        let (edges, servers) = processes;
        for (fault, stage) in self.0.iter_mut().filter(|(_, stage)| *stage == Stage::Begun) {
            end(fault, (edges, servers));
            *stage = Stage::Over;
        }
    }
}

fn end(fault: &Fault, processes: Processes<'_>) {
    match fault.kind {
        FaultKind::Pause(_) => send(fault.part, Signal::Continue, processes),
        FaultKind::Cut(_) => tell(fault.part, Command::Mend, processes),
        FaultKind::Kill | FaultKind::Drain => {}
    }
}

fn send(part: Part, signal: Signal, (edges, servers): Processes<'_>) {
    match part {
        Part::Edge(number) => edges.signal(place(number, 1), signal),
        Part::Server(number) => servers.signal(place(number, FIRST_SERVER), signal),
    }
}

fn tell(part: Part, command: Command, (edges, servers): Processes<'_>) {
    match part {
        Part::Edge(number) => edges.tell_one(place(number, 1), command),
        Part::Server(number) => servers.tell_one(place(number, FIRST_SERVER), command),
    }
}

/// The first server is this process, and has no place among the others.
const FIRST_SERVER: u32 = 2;

fn place(number: u32, first: u32) -> usize {
    number.checked_sub(first).map_or(usize::MAX, |place| place as usize)
}
