//! Faults that a run has on purpose, at their moments.

use std::time::Duration;

use throng_crowd::scenario::{Fault, FaultKind, Part};
use throng_machine::piped::Signal;
use throng_summary::{FaultFigures, ServerFigures};

use super::disk::Disk;
use super::parts::Parts;
use crate::bots::EdgePoint;
use crate::control::Command;
use crate::edge::EdgeReport;
use crate::server::ServerPoint;
use crate::slow_reader::Read;

/// The faults of a run.
pub(super) struct Faults(Vec<(Fault, Stage)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Planned,
    Begun,
    Over,
}

/// All to which something can be done: the processes of a run, and the disk of its own.
pub(super) type Processes<'a> =
    (&'a mut Parts<EdgePoint, EdgeReport>, &'a mut Parts<ServerPoint, ServerFigures>, &'a Disk);

impl Faults {
    pub(super) fn new(faults: &[Fault]) -> Faults {
        Faults(faults.iter().map(|fault| (*fault, Stage::Planned)).collect())
    }

    /// Begins and ends those that are due at a moment of the measured part. Returns what has happened, in words.
    /// A server that starts again lets players move if the run `has_begun`.
    pub(super) fn turn(
        &mut self,
        (elapsed, has_begun): (Duration, bool),
        (edges, servers, disk): Processes<'_>,
    ) -> Vec<String> {
        let mut happened = Vec::new();
        for (fault, stage) in &mut self.0 {
            if *stage == Stage::Planned && elapsed >= fault.at {
                begin(fault, (edges, servers, disk));
                *stage = if fault.lasts() { Stage::Begun } else { Stage::Over };
                happened.push(fault.to_string());
            }
            if *stage == Stage::Begun && elapsed >= fault.ends() {
                match (fault.kind, fault.part) {
                    (FaultKind::Restart(_), Part::Server(number)) => restart(number, servers, has_begun),
                    _ => end(fault, (edges, servers, disk)),
                }
                *stage = Stage::Over;
                happened.push(format!("{fault} is over"));
            }
        }
        happened
    }

    /// Nothing stands still or is cut off any more. Nobody starts again in a run that ends.
    pub(super) fn end(&mut self, processes: Processes<'_>) {
        let (edges, servers, disk) = processes;
        for (fault, stage) in self.0.iter_mut().filter(|(_, stage)| *stage == Stage::Begun) {
            end(fault, (edges, servers, disk));
            *stage = Stage::Over;
        }
    }
}

fn begin(fault: &Fault, processes: Processes<'_>) {
    match fault.kind {
        FaultKind::Kill | FaultKind::Restart(_) => send(fault.part, Signal::Kill, processes),
        FaultKind::Pause(_) => send(fault.part, Signal::Stop, processes),
        FaultKind::Cut(_) => tell(fault.part, Command::Cut, processes),
        FaultKind::SlowConsumer(_) => tell(fault.part, Command::ReadSlowly, processes),
        FaultKind::SlowDisk(_) => processes.2.set_slow(true),
        FaultKind::Drain => tell(fault.part, Command::Drain, processes),
    }
}

fn end(fault: &Fault, processes: Processes<'_>) {
    match fault.kind {
        FaultKind::Pause(_) => send(fault.part, Signal::Continue, processes),
        FaultKind::Cut(_) => tell(fault.part, Command::Mend, processes),
        FaultKind::SlowConsumer(_) => tell(fault.part, Command::ReadAll, processes),
        FaultKind::SlowDisk(_) => processes.2.set_slow(false),
        FaultKind::Kill | FaultKind::Restart(_) | FaultKind::Drain => {}
    }
}

fn send(part: Part, signal: Signal, (edges, servers, _): Processes<'_>) {
    match part {
        Part::Edge(number) => edges.signal(place(number, 1), signal),
        Part::Server(number) => servers.signal(place(number, FIRST_SERVER), signal),
    }
}

fn tell(part: Part, command: Command, (edges, servers, _): Processes<'_>) {
    match part {
        Part::Edge(number) => edges.tell_one(place(number, 1), command),
        Part::Server(number) => servers.tell_one(place(number, FIRST_SERVER), command),
    }
}

/// The run is measured when a server starts again, and players move if it has begun.
fn restart(number: u32, servers: &mut Parts<ServerPoint, ServerFigures>, has_begun: bool) {
    let first = [Command::Measure, Command::Begin];
    servers.restart(place(number, FIRST_SERVER), if has_begun { &first } else { &first[..1] });
}

/// Adds what was slow, and what was lost by that, to the figures of the same faults: by the reports of the edges, and by the writes
/// of the disk.
pub(super) fn note_slow(faults: &mut [FaultFigures], edges: &[Read], disk: Read) {
    for figures in faults {
        let Ok(fault) = figures.fault.parse::<Fault>() else { continue };
        let read = match (fault.kind, fault.part) {
            (FaultKind::SlowDisk(_), _) => Some(disk),
            // One that did not report has said nothing.
            (FaultKind::SlowConsumer(_), Part::Edge(number)) => edges.get(place(number, 1)).copied(),
            _ => None,
        };
        (figures.delayed, figures.lost) = (read.map(|read| read.delayed), read.map(|read| read.lost));
    }
}

/// The first server is this process, and has no place among the others.
const FIRST_SERVER: u32 = 2;

fn place(number: u32, first: u32) -> usize {
    number.checked_sub(first).map_or(usize::MAX, |place| place as usize)
}
