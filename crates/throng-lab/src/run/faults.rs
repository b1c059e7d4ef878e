//! Faults that a run has on purpose, at their moments.

use std::time::Duration;

use throng_crowd::scenario::{Fault, FaultKind, Part};
use throng_machine::piped::Signal;
use throng_summary::FaultFigures;

use super::disk::Disk;
use super::parts::Parts;
use crate::bots::EdgePoint;
use crate::control::Command;
use crate::edge::EdgeReport;
use crate::server::{ServerPoint, ServerReport};
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
    (&'a mut Parts<EdgePoint, EdgeReport>, &'a mut Parts<ServerPoint, ServerReport>, &'a Disk);

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
fn restart(number: u32, servers: &mut Parts<ServerPoint, ServerReport>, has_begun: bool) {
    let first = [Command::Measure, Command::Begin];
    servers.restart(place(number, FIRST_SERVER), if has_begun { &first } else { &first[..1] });
}

/// Adds what was slow, and what was lost by that, to the figures of the same faults: by the reports of the edges, and by the writes
/// of the disk.
pub(super) fn note_slow(faults: &mut [FaultFigures], edges: &[Option<Read>], disk: Read) {
    for figures in faults {
        let Ok(fault) = figures.fault.parse::<Fault>() else { continue };
        let read = match (fault.kind, fault.part) {
            (FaultKind::SlowDisk(_), _) => Some(disk),
            // One that did not report has said nothing.
            (FaultKind::SlowConsumer(_), Part::Edge(number)) => edges.get(place(number, 1)).copied().flatten(),
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::super::parts::spawn;
    use super::*;
    use crate::control::PlayerCount;

    /// A server that says by its players which commands it has had: 7 are there after `begin`, and 3 have left after `measure`.
    fn script() -> Vec<OsString> {
        let text = r#"read order; echo '{"ready":{"address":"127.0.0.1:9","truth":"/nowhere"}}'; c=0; e=0
            while read line; do
            case "$line" in '"begin"') c=7;; '"measure"') e=3;; '"stop"') exit;; esac
            echo "{\"players\":{\"connected\":$c,\"ended\":$e}}"; done"#;
        ["sh", "-c", text].map(OsString::from).to_vec()
    }

    #[test]
    fn a_server_starts_again_at_its_moment_and_its_players_move_if_the_run_has_begun() {
        for (has_begun, connected) in [(true, 7), (false, 0)] {
            let disk = Disk::default();
            let mut edges = Parts::default();
            let mut servers: Parts<ServerPoint, ServerReport> =
                Parts::start(&script(), None, std::iter::once(("server 2".to_owned(), 1, ()))).expect("it starts");
            servers.set_again(Box::new(|_, _| spawn(&script(), None, 2, &())));
            let ms = Duration::from_millis;
            let mut faults = Faults::new(&["restart:server-2:1s:2s".parse().expect("a fault")]);
            let mut turn = |servers: &mut _, at| faults.turn((ms(at), has_begun), (&mut edges, servers, &disk));
            assert!(turn(&mut servers, 999).is_empty());
            assert_eq!(turn(&mut servers, 1_000), ["restart:server-2:1s:2s"]);
            assert!(turn(&mut servers, 2_999).is_empty() && servers.players_of_each().eq([None]));
            assert_eq!(turn(&mut servers, 3_000), ["restart:server-2:1s:2s is over"]);
            let end = std::time::Instant::now() + Duration::from_secs(20);
            while servers.players() != (PlayerCount { connected, ended: 3 }) {
                assert!(std::time::Instant::now() < end, "{:?}", servers.players());
                servers.listen();
                std::thread::sleep(ms(5));
            }
            assert!(turn(&mut servers, 9_000).is_empty(), "once");
        }
    }

    #[test]
    fn nobody_starts_again_in_a_run_that_ends() {
        let (disk, mut edges) = (Disk::default(), Parts::default());
        let mut servers: Parts<ServerPoint, ServerReport> =
            Parts::start(&script(), None, std::iter::once(("server 2".to_owned(), 1, ()))).expect("it starts");
        servers.set_again(Box::new(|_, _| panic!("it starts again")));
        let mut faults = Faults::new(&["restart:server-2:1s:2s".parse().expect("a fault")]);
        faults.turn((Duration::from_secs(1), true), (&mut edges, &mut servers, &disk));
        faults.end((&mut edges, &mut servers, &disk));
        faults.turn((Duration::from_secs(9), true), (&mut edges, &mut servers, &disk));
        assert!(servers.players_of_each().eq([None]));
    }
}
