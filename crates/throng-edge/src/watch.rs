//! The borders as an edge knows them.

use std::net::SocketAddr;
use std::time::Duration;

use throng::Time;
use throng_bus::{Bus, Command, Event, Fence, SubscriptionId, WatchId};

use crate::borders::{Borders, Division};
use crate::edge::Edge;
use crate::roster::{Roster, WorldCounters, WorldName, WorldProblem};

/// Borders of before by which an edge still looks.
const FORMER_MAX: usize = 8;
/// An edge looks by borders of before for so long after all servers know the newest: who was on the way then arrives, and is reported.
const FORMER_LINGER: Duration = Duration::from_secs(1);

/// From which servers an edge needs the objects of a place, where they are reached, and which are gone: as the bus says it.
///
/// The functions [`EdgeOptions::homes`](crate::EdgeOptions::homes) and [`entry`](crate::EdgeOptions::entry) ask it, so it lies
/// behind an `Arc<RwLock<_>>`. Call [`follow`](BorderWatch::follow) after each [`Edge::receive`](crate::Edge::receive).
#[derive(Clone, Debug)]
pub struct BorderWatch {
    roster: Roster,
    /// Borders by which some server may still hand over.
    former: Vec<Borders>,
    /// Since when no server can hand over by them.
    settled: Option<Time>,
    forgotten: u64,
}

impl BorderWatch {
    /// Before the bus has said anything: strips of equal width. On the member's bus, nothing else may use the last subscription and the last
    /// watch, as in [`Balance`](crate::Balance).
    pub fn new(world: WorldName, division: Division) -> BorderWatch {
        let roster = Roster::new(world, division, SubscriptionId(u32::MAX - 1), WatchId(u32::MAX - 1));
        BorderWatch { roster, former: Vec::new(), settled: None, forgotten: 0 }
    }

    /// The newest borders.
    pub fn borders(&self) -> &Borders {
        self.roster.borders()
    }

    /// Its counters.
    pub fn counters(&self) -> WorldCounters {
        WorldCounters { forgotten: self.forgotten, ..self.roster.counters() }
    }

    /// Why the borders do not follow the servers; `None` if they do, as far as the store says.
    pub fn problem(&self) -> Option<WorldProblem> {
        self.roster.problem()
    }

    /// Where a server is reached; `None` while no process holds its lease.
    pub fn address(&self, server: u16) -> Option<SocketAddr> {
        self.roster.address(server)
    }

    /// The fencing number of a server's lease. With another one, it is another process, or one that was cut off from the bus.
    pub fn fence(&self, server: u16) -> Option<Fence> {
        self.roster.fence(server)
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
            self.forgotten += too_many as u64;
            self.settled = None;
        }
        self.forget_former(now);
    }

    /// A server that holds its lease and has not reported since may know old borders. One without a lease hands nobody over.
    fn forget_former(&mut self, now: Time) {
        let newest = self.borders().version();
        let is_settled = self.roster.is_current() && !self.roster.seats().any(|seat| seat.may_be_behind(newest));
        self.settled = if is_settled { self.settled.or(Some(now)) } else { None };
        if self.settled.is_some_and(|since| now.since(since) >= FORMER_LINGER) {
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
            if all.clone().any(is_part) || has_objects() || seat.is_unseen {
                homes.push(number.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use throng_bus::{MemberId, Message, Revision, Sequence, Subject};

    use super::*;
    use crate::borders::BordersVersion;
    use crate::roster::{LoadReport, borders_bytes};

    /// A world of two servers with ten steps.
    struct World(BorderWatch);

    impl World {
        fn new() -> World {
            let watch = BorderWatch::new(WorldName::new("w").unwrap(), Division::new(2, 10, 1).unwrap());
            let mut world = World(watch);
            world.0.handle_event(Time(0), &Event::Listed { watch: WatchId(u32::MAX - 1) });
            for server in 0..2_u64 {
                let lease = [&[1][..], &server.to_le_bytes(), &[0; 8]].concat();
                world.changed(0, &format!("world.w.server.{server}"), 1 + server, lease);
            }
            world
        }

        fn changed(&mut self, ms: u64, key: &str, revision: u64, value: Vec<u8>) {
            let (watch, key) = (WatchId(u32::MAX - 1), Subject::new(key).unwrap());
            let change = Event::Changed { watch, key, revision: Revision(revision), value: Some(value.into()) };
            self.0.handle_event(Time::from_millis(ms), &change);
        }

        /// The border between the two is here from now on.
        fn border(&mut self, ms: u64, revision: u64, cut: u16) {
            let borders = Borders::new(self.0.roster.division(), BordersVersion(revision), &[cut]).unwrap();
            let value = [&[1][..], &[0; 24], &borders_bytes(&borders, 0)].concat();
            self.changed(ms, "world.w.borders", revision, value);
        }

        fn report(&mut self, ms: u64, server: u64, knows: u64) {
            let (knows, ready) = (BordersVersion(knows), BordersVersion(0));
            let report = LoadReport { fence: Fence(1 + server), knows, ready, edges: 1, load: Vec::new() };
            let message = Message {
                subscription: SubscriptionId(u32::MAX - 1),
                subject: Subject::new(&format!("world.w.load.{server}")).unwrap(),
                publisher: MemberId(server),
                sequence: Sequence(1),
                payload: report.bytes(),
                reply_to: None,
            };
            self.0.handle_event(Time::from_millis(ms), &Event::Message(message));
        }

        fn homes(&self, step: u16) -> Vec<usize> {
            let mut homes = Vec::new();
            self.0.homes(step, step, &mut homes);
            homes
        }
    }

    #[test]
    fn an_edge_looks_by_old_borders_until_every_holder_of_a_lease_has_reported_the_new_ones_for_a_second() {
        let mut world = World::new();
        world.border(0, 9, 2);
        // Step 4 was of the first server.
        assert_eq!(world.homes(4), [0, 1]);
        world.report(10, 0, 9);
        world.report(2_000, 0, 9);
        assert_eq!(world.homes(4), [0, 1], "the second one has said nothing yet");
        world.report(2_100, 1, 9);
        world.report(3_099, 0, 9);
        assert_eq!(world.homes(4), [0, 1], "somebody may be on the way");
        world.report(3_100, 0, 9);
        assert_eq!(world.homes(4), [1]);
        assert_eq!(world.0.counters().forgotten, 0);
    }

    #[test]
    fn forgotten_borders_are_counted() {
        let mut world = World::new();
        (0..12).for_each(|number| world.border(number, 10 + number, 1 + (number % 8) as u16));
        assert_eq!((world.0.counters().forgotten, world.0.counters().refused), (12 - FORMER_MAX as u64, 0));
    }
}
