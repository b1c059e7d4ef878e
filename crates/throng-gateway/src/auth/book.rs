//! Failed logins: counts wrong guesses, and remembers bans for a while.
//!
//! The counter belongs to a player's name together with an address, never to the name alone: otherwise anybody who
//! knows a player's name could lock that player out. For IPv6, the first 64 bits count as the address, as at the door.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Duration;

use throng_gateway_engine::Census;
use throng_wire::Time;

use crate::place::place_of;
use crate::recent::{BanCounts, Recent};

/// The key of a guess: an address, and a keyed hash of the name.
type Guesser = (IpAddr, u64);

/// Failed logins by player and address.
#[derive(Debug)]
pub(crate) struct Book {
    failures_max: u32,
    ban: Duration,
    hasher: RandomState,
    failures: Recent<Guesser, Failures>,
    /// Those of them that are bans.
    census: Census,
    /// Bans that were forgotten before their end, because there were too many failures.
    forgotten: u64,
}

/// How many, and until when they count.
#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    until: Time,
}

impl Book {
    /// `failures_max` 0 never shuts anybody out. When `remembered` pairs are remembered, the oldest are forgotten.
    pub(crate) fn new(failures_max: u32, ban: Duration, remembered: usize) -> Book {
        Book {
            failures_max,
            ban,
            hasher: RandomState::new(),
            failures: Recent::new(remembered, ban),
            census: Census::default(),
            forgotten: 0,
        }
    }

    /// Other bounds from now on, as for [`Book::new`]. Existing entries stay, and may be bans now, or none any more.
    pub(crate) fn set_limits(&mut self, now: Time, failures_max: u32, ban: Duration, remembered: usize) {
        (self.failures_max, self.ban) = (failures_max, ban);
        self.failures.set_bounds(remembered, ban);
        self.census = Census::default();
        for (_, failures) in self.failures.iter().filter(|(_, failures)| failures.are_too_many(failures_max)) {
            self.census.add(now, failures.until);
        }
    }

    pub(crate) fn is_banned(&self, now: Time, address: IpAddr, player: &str) -> bool {
        self.failures.get(&self.guesser(address, player)).is_some_and(|failures| self.is_ban(now, &failures))
    }

    pub(crate) fn failed(&mut self, now: Time, address: IpAddr, player: &str) {
        let guesser = self.guesser(address, player);
        let former = self.failures.get(&guesser).filter(|failures| failures.until > now);
        let count = former.map_or(0, |failures| failures.count).saturating_add(1);
        let failures = Failures { count, until: now.after(self.ban) };
        let failures_max = self.failures_max;
        let former = self.failures.replace(now, guesser, failures, |forgotten| {
            if forgotten.are_too_many(failures_max) {
                self.census.remove(forgotten.until);
                self.forgotten += u64::from(forgotten.until > now);
            }
        });
        self.uncount(former);
        if failures.are_too_many(failures_max) {
            self.census.add(now, failures.until);
        }
    }

    /// How many guessers are banned, and how many of their bans were forgotten before their end.
    pub(crate) fn ban_counts(&mut self, now: Time) -> BanCounts {
        BanCounts { present: self.census.present(now), forgotten: self.forgotten }
    }

    pub(crate) fn succeeded(&mut self, address: IpAddr, player: &str) {
        let guesser = self.guesser(address, player);
        let failures = self.failures.remove(&guesser);
        self.uncount(failures);
    }

    /// The key that has guessed too often, and the rest of its ban.
    pub(crate) fn bans(&self, now: Time) -> impl Iterator<Item = (IpAddr, Duration)> {
        let shut_out = self.failures.iter().filter(move |&(_, failures)| self.is_ban(now, failures));
        shut_out.map(move |(&(address, _), failures)| (address, failures.until.since(now)))
    }

    /// Forgets everything about an address. Returns whether there was anything. For operators only, because it looks at
    /// all entries.
    pub(crate) fn forgive(&mut self, address: IpAddr) -> bool {
        let place = place_of(address);
        let all: Vec<Guesser> =
            self.failures.iter().map(|(&guesser, _)| guesser).filter(|guesser| guesser.0 == place).collect();
        for guesser in &all {
            let failures = self.failures.remove(guesser);
            self.uncount(failures);
        }
        !all.is_empty()
    }

    /// Failures are gone. They may have been a ban.
    fn uncount(&mut self, failures: Option<Failures>) {
        if let Some(failures) = failures.filter(|failures| failures.are_too_many(self.failures_max)) {
            self.census.remove(failures.until);
        }
    }

    fn is_ban(&self, now: Time, failures: &Failures) -> bool {
        failures.until > now && failures.are_too_many(self.failures_max)
    }

    fn guesser(&self, address: IpAddr, player: &str) -> Guesser {
        (place_of(address), self.hasher.hash_one(player))
    }
}

impl Failures {
    /// Whether they are a ban until their time is over.
    fn are_too_many(&self, failures_max: u32) -> bool {
        failures_max > 0 && self.count >= failures_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 2));

    #[test]
    fn too_many_wrong_guesses_block_only_the_guesser() {
        let mut book = Book::new(3, Duration::from_secs(60), 100);
        let mut now = Time(0);
        for _ in 0..3 {
            assert!(!book.is_banned(now, HERE, "ada"));
            book.failed(now, HERE, "ada");
        }
        assert!(book.is_banned(now, HERE, "ada"));
        assert!(!book.is_banned(now, HERE, "bob") && !book.is_banned(now, THERE, "ada"));
        assert_eq!(book.bans(now).map(|(address, _)| address).collect::<Vec<_>>(), [HERE]);
        now = now.after(Duration::from_secs(60));
        assert!(!book.is_banned(now, HERE, "ada"));
        assert_eq!(book.bans(now).count(), 0);
    }

    #[test]
    fn success_forgives() {
        let mut book = Book::new(2, Duration::from_secs(60), 100);
        book.failed(Time(0), HERE, "ada");
        book.succeeded(HERE, "ada");
        book.failed(Time(0), HERE, "ada");
        assert!(!book.is_banned(Time(0), HERE, "ada"));
    }

    #[test]
    fn another_address_of_the_same_ipv6_network_is_no_new_guesser() {
        let mut book = Book::new(3, Duration::from_secs(60), 100);
        let address = |last: u16| IpAddr::from(std::net::Ipv6Addr::new(0x2001, 0xDB8, 0, 1, 0, 0, 0, last));
        (0..3).for_each(|last| book.failed(Time(0), address(last), "ada"));
        assert!(book.is_banned(Time(0), address(1_000), "ada"));
        assert!(book.forgive(address(7)) && !book.is_banned(Time(0), address(1_000), "ada"));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_a_flood_costs_no_sweeps() {
        let mut book = Book::new(2, Duration::from_secs(60), 100);
        for number in 0..10_000 {
            book.failed(Time(0), HERE, &number.to_string());
            assert!(book.failures.iter().count() <= 100);
        }
    }

    #[test]
    fn bans_that_are_forgotten_for_others_are_counted_and_single_failures_are_not() {
        let mut book = Book::new(2, Duration::from_secs(60), 100);
        (0..10).for_each(|number| (0..2).for_each(|_| book.failed(Time(0), HERE, &number.to_string())));
        (10..120).for_each(|number| book.failed(Time(0), HERE, &number.to_string()));
        assert_eq!(book.bans(Time(0)).count(), 0);
        assert_eq!(book.ban_counts(Time(0)), BanCounts { present: 0, forgotten: 10 });
    }

    /// The limits change meanwhile.
    #[test]
    fn bans_are_counted_as_they_come_and_go() {
        let (max, ban) = (3, Duration::from_secs(60));
        let mut book = Book::new(max, ban, 200);
        let mut random = fastrand::Rng::with_seed(1);
        let (mut now, mut most) = (Time(0), 0);
        for _ in 0..20_000 {
            now = now.after(Duration::from_secs(random.u64(0..2)));
            let (address, player) = (IpAddr::from([203, 0, 113, random.u8(0..20)]), random.u8(0..4).to_string());
            match random.u8(0..100) {
                0 => book.set_limits(now, random.u32(0..max + 2), ban, 200),
                1..4 => book.succeeded(address, &player),
                4 => _ = book.forgive(address),
                _ => book.failed(now, address, &player),
            }
            assert_eq!(book.ban_counts(now).present, book.bans(now).count());
            most = most.max(book.bans(now).count());
        }
        assert!(most > 20, "{most}");
    }
}
