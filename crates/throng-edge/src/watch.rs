//! The borders as an edge knows them.

use std::net::SocketAddr;

use throng::Time;
use throng_bus::{Bus, Command, Event, Fence, SubscriptionId, WatchId};

use crate::borders::{Borders, Division};
use crate::edge::Edge;
use crate::roster::{LoadReport, Roster, WorldCounters, WorldName};

/// Borders of before by which an edge still looks.
const FORMER_MAX: usize = 8;

/// From which servers an edge needs the objects of a place, where they are reached, and which are gone: as the bus says it.
///
/// The functions [`EdgeOptions::homes`](crate::EdgeOptions::homes) and [`entry`](crate::EdgeOptions::entry) ask it, so it lies
/// behind an `Arc<RwLock<_>>`. Call [`follow`](BorderWatch::follow) after each [`Edge::receive`](crate::Edge::receive).
#[derive(Clone, Debug)]
pub struct BorderWatch {
    roster: Roster,
    /// Borders by which some server may still hand over.
    former: Vec<Borders>,
}

impl BorderWatch {
    /// Before the bus has said anything: strips of equal width. On the member's bus, nothing else may use the last subscription and the last
    /// watch, as in [`Balance`](crate::Balance).
    pub fn new(world: WorldName, division: Division) -> BorderWatch {
        let roster = Roster::new(world, division, SubscriptionId(u32::MAX - 1), WatchId(u32::MAX - 1));
        BorderWatch { roster, former: Vec::new() }
    }

    /// The newest borders.
    pub fn borders(&self) -> &Borders {
        self.roster.borders()
    }

    /// Its counters.
    pub fn counters(&self) -> WorldCounters {
        self.roster.counters()
    }

    /// Where a server is reached; `None` while no process holds its lease.
    pub fn address(&self, server: u16) -> Option<SocketAddr> {
        self.roster.address(server)
    }

    /// The fencing number of a server's lease. With another one, it is another process, or one that was cut off from the bus.
    pub fn fence(&self, server: u16) -> Option<Fence> {
        self.roster.seat(server)?.fence()
    }

    /// One tick: takes what the bus says, and tells the servers by which borders the edge looks from now on.
    pub fn follow(&mut self, bus: &mut dyn Bus, edge: &mut Edge, now: Time) {
        self.listen(bus, now);
        edge.say_looks(self.borders().version().0);
    }

    /// The half of [`follow`](BorderWatch::follow) that knows no edge.
    pub fn listen(&mut self, bus: &mut dyn Bus, now: Time) {
        bus.handle_timeout(now);
        while let Some(event) = bus.poll_event(now) {
            self.handle_event(now, &event);
        }
        while let Some(command) = self.poll_command() {
            if bus.handle_command(now, command.clone()).is_err() {
                self.handle_refusal(&command);
                break;
            }
        }
    }

    /// Takes an event of the bus. Events of others are ignored.
    pub fn handle_event(&mut self, now: Time, event: &Event) {
        let before = matches!(event, Event::Changed { .. }).then(|| self.borders().clone());
        self.roster.handle_event(now, event);
        if let Some(before) = before.filter(|before| before.version() != self.borders().version()) {
            self.former.push(before);
            let too_many = self.former.len().saturating_sub(FORMER_MAX);
            self.former.drain(..too_many);
        }
        let newest = self.borders().version();
        let is_known = |report: &LoadReport| report.knows >= newest;
        if !self.former.is_empty() && self.roster.seats().filter_map(|seat| seat.report.as_ref()).all(is_known) {
            self.former.clear();
        }
    }

    /// The next command for the bus. If the bus refuses it, call [`handle_refusal`](BorderWatch::handle_refusal).
    pub fn poll_command(&mut self) -> Option<Command> {
        self.roster.poll_command()
    }

    /// Says that the bus refused a command: it is tried again.
    pub fn handle_refusal(&mut self, command: &Command) {
        self.roster.handle_refusal(command);
    }

    /// Whether a server has no part of the world by the newest borders: its lease has ended, and the others have its strip.
    pub fn is_gone(&self, server: usize) -> bool {
        u16::try_from(server).is_ok_and(|server| self.borders().strip(server).is_empty())
    }

    /// Pushes the numbers of all servers that have, or may soon have, objects between two steps, both included.
    pub fn homes(&self, first: u16, last: u16, homes: &mut Vec<usize>) {
        let last = last.min(self.roster.division().steps() - 1);
        let first = first.min(last);
        let all = self.former.iter().chain([self.borders()]);
        for (number, seat) in (0..).zip(self.roster.seats()) {
            let is_part = |borders: &Borders| {
                let strip = borders.strip(number);
                strip.start <= last && first < strip.end
            };
            let has_objects = || {
                let load = seat.report.as_ref().map_or(&[][..], |report| &report.load);
                let from = load.partition_point(|&(step, _)| step < first);
                load.get(from).is_some_and(|&(step, _)| step <= last)
            };
            if all.clone().any(is_part) || has_objects() {
                homes.push(number.into());
            }
        }
    }
}
