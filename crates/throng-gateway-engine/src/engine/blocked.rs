//! Names that misbehaved and are banned for a while.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use throng_wire::Time;

use super::port::Side;
use crate::bans::Census;

/// A side, a claimed name, and an address. Never the name alone: otherwise anybody who knows a player's name could get
/// that player banned by misbehaving under it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Who {
    pub(super) side: Side,
    /// The beginning of the name, for operators. Peers choose their names, and thousands of them are remembered.
    pub(super) name: Arc<str>,
    /// Of the whole name. A peer that finds two names with the same hash gets its own network banned under both.
    name_hash: u64,
    /// An IPv4 address, or the 64 bits of an IPv6 address that a subscriber of a network has.
    network: IpAddr,
}

impl Who {
    pub(super) fn new(side: Side, name: &str, address: SocketAddr) -> Who {
        let network = match address.ip().to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        };
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Who { side, name: beginning(name).into(), name_hash: hasher.finish(), network }
    }
}

/// So much of a name is remembered.
const NAME_CHARS_MAX: usize = 64;

fn beginning(name: &str) -> &str {
    name.char_indices().nth(NAME_CHARS_MAX).map_or(name, |(end, _)| &name[..end])
}

/// Names that are refused. Hashed with the standard library's keyed hash: peers choose their names.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    until: HashMap<Who, Time>,
    /// As they came.
    order: VecDeque<(Time, Who)>,
    census: Census,
}

impl Blocked {
    /// Refuses a name until a time. Of more than `limit` names the oldest are forgotten. Returns how many were, before
    /// their time was over.
    pub(super) fn add(&mut self, now: Time, who: Who, until: Time, limit: usize) -> usize {
        self.forget_past(now);
        if let Some(former) = self.until.insert(who.clone(), until) {
            self.census.remove(former);
        }
        self.census.add(now, until);
        self.order.push_back((until, who));
        let mut forgotten = 0;
        while self.order.len() > limit {
            forgotten += usize::from(self.forget_first());
        }
        forgotten
    }

    /// Whether a name is refused now.
    pub(super) fn contains(&mut self, who: &Who, now: Time) -> bool {
        self.forget_past(now);
        self.until.get(who).is_some_and(|&until| until > now)
    }

    /// The names that are refused now, and for how long yet.
    pub(super) fn iter(&self, now: Time) -> impl Iterator<Item = (&Who, Duration)> {
        let refused = self.until.iter().filter(move |&(_, &until)| until > now);
        refused.map(move |(who, until)| (who, until.since(now)))
    }

    /// How many they are.
    pub(super) fn count(&mut self, now: Time) -> usize {
        self.census.present(now)
    }

    /// Lifts the refusal of a name at a door, for all addresses. Only the first 64 characters of a name count. Returns
    /// whether it was refused.
    pub(super) fn forgive(&mut self, side: Side, name: &str) -> bool {
        let before = self.until.len();
        self.until.retain(|who, until| {
            let stays = who.side != side || *who.name != *beginning(name);
            if !stays {
                self.census.remove(*until);
            }
            stays
        });
        self.until.len() < before
    }

    fn forget_past(&mut self, now: Time) {
        while self.order.front().is_some_and(|&(until, _)| until <= now) {
            self.forget_first();
        }
    }

    /// Returns whether a name was refused until then, and not for longer.
    fn forget_first(&mut self) -> bool {
        let Some((until, who)) = self.order.pop_front() else { return false };
        let is_newest = self.until.get(&who) == Some(&until);
        if is_newest {
            self.until.remove(&who);
            self.census.remove(until);
        }
        is_newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(side: Side, name: &str, address: &str) -> Who {
        Who::new(side, name, address.parse().expect("an address"))
    }

    fn who(name: &str) -> Who {
        at(Side::Client, name, "203.0.113.7:4711")
    }

    #[test]
    fn a_player_is_not_shut_out_by_who_misbehaves_elsewhere_under_its_name() {
        let mut blocked = Blocked::default();
        blocked.add(Time(0), who("ada"), Time(100), 10);
        assert!(!blocked.contains(&at(Side::Client, "ada", "203.0.113.8:4711"), Time(1)));
        assert!(blocked.contains(&at(Side::Client, "ada", "203.0.113.7:1"), Time(1)), "another port is nobody else");
        blocked.add(Time(0), at(Side::Client, "bob", "[2001:db8::1]:1"), Time(100), 10);
        assert!(blocked.contains(&at(Side::Client, "bob", "[2001:db8::2]:1"), Time(1)), "nor is the same network");
        assert!(!blocked.contains(&at(Side::Client, "bob", "[2001:db8:0:1::1]:1"), Time(1)));
    }

    #[test]
    fn names_are_refused_until_their_time_is_over() {
        let mut blocked = Blocked::default();
        blocked.add(Time(0), who("ada"), Time(100), 10);
        blocked.add(Time(0), who("ada"), Time(200), 10);
        assert!(blocked.contains(&who("ada"), Time(150)) && !blocked.contains(&who("bob"), Time(150)));
        assert!(!blocked.contains(&at(Side::Server, "ada", "203.0.113.7:4711"), Time(150)), "that is another door");
        assert!(!blocked.contains(&who("ada"), Time(200)));
        assert!(blocked.until.is_empty() && blocked.order.is_empty());
    }

    #[test]
    fn a_ban_that_is_over_is_not_listed() {
        let mut blocked = Blocked::default();
        blocked.add(Time(0), who("ada"), Time(100), 10);
        let left = |now: u64| -> Vec<Duration> { blocked.iter(Time(now)).map(|(_, left)| left).collect() };
        assert_eq!((left(99), left(100)), (vec![Duration::from_micros(1)], vec![]));
    }

    #[test]
    fn long_names_are_told_apart_and_only_their_beginning_is_remembered() {
        let mut blocked = Blocked::default();
        let names = ["x", "y"].map(|end| "ä".repeat(2_000) + end);
        blocked.add(Time(0), who(&names[0]), Time(100), 10);
        assert!(blocked.contains(&who(&names[0]), Time(1)) && !blocked.contains(&who(&names[1]), Time(1)));
        assert!(blocked.iter(Time(1)).all(|(who, _)| who.name.chars().count() <= NAME_CHARS_MAX));
        assert!(blocked.forgive(Side::Client, &names[0]) && !blocked.contains(&who(&names[0]), Time(1)));
    }

    #[test]
    fn of_too_many_the_oldest_are_forgotten() {
        let mut blocked = Blocked::default();
        let forgotten = ["a", "b", "c"].map(|name| blocked.add(Time(1), who(name), Time(100), 2));
        assert_eq!(forgotten, [0, 0, 1]);
        assert!(!blocked.contains(&who("a"), Time(1)) && blocked.contains(&who("c"), Time(1)));
        // Names whose time is over make room.
        assert_eq!(blocked.add(Time(100), who("d"), Time(200), 1), 0);
    }

    #[test]
    fn names_are_counted_as_they_come_and_go() {
        let mut blocked = Blocked::default();
        let mut random = fastrand::Rng::with_seed(1);
        let mut most = 0;
        for second in 0..10_000 {
            let (now, name) = (Time::from_secs(second), random.u8(0..60).to_string());
            if random.u8(0..10) == 0 {
                blocked.forgive(Side::Client, &name);
            } else {
                // The time changes with the settings.
                blocked.add(now, who(&name), Time::from_secs(second + random.u64(0..100)), 40);
            }
            assert_eq!(blocked.count(now), blocked.iter(now).count());
            most = most.max(blocked.count(now));
        }
        assert!(most > 20, "{most}");
    }
}
