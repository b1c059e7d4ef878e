//! Failed logins: who has guessed too often, and for how long that is remembered.
//!
//! What is counted is a player's name together with an address, never the name alone: otherwise whoever knows a
//! player's name could lock that player out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use throng_wire::Time;

/// Of a longer name only the beginning counts.
const NAME_BYTES: usize = 64;

/// Who guesses at whose token.
type Guesser = (IpAddr, Box<[u8]>);

/// Failed logins by player and address.
#[derive(Debug)]
pub(crate) struct Book {
    failures_max: u32,
    ban: Duration,
    remembered: usize,
    /// Hashed with the standard library's keyed hash: peers choose their names.
    failures: HashMap<Guesser, (u32, Time)>,
}

impl Book {
    /// `failures_max` 0 never shuts anybody out. When `remembered` pairs are remembered, those whose time is over are
    /// forgotten first, and then nothing new is remembered.
    pub(crate) fn new(failures_max: u32, ban: Duration, remembered: usize) -> Book {
        Book { failures_max, ban, remembered, failures: HashMap::new() }
    }

    /// Other bounds from now on, as for [`Book::new`]. What was noted stays.
    pub(crate) fn set_limits(&mut self, failures_max: u32, ban: Duration, remembered: usize) {
        (self.failures_max, self.ban, self.remembered) = (failures_max, ban, remembered);
    }

    pub(crate) fn is_banned(&mut self, now: Time, address: IpAddr, player: &str) -> bool {
        let entry = (address, name(player));
        match self.failures.get(&entry) {
            Some(&(_, until)) if until <= now => {
                self.failures.remove(&entry);
                false
            }
            Some(&(count, _)) => self.failures_max > 0 && count >= self.failures_max,
            None => false,
        }
    }

    pub(crate) fn failed(&mut self, now: Time, address: IpAddr, player: &str) {
        if self.failures.len() >= self.remembered {
            self.failures.retain(|_, &mut (_, until)| until > now);
            if self.failures.len() >= self.remembered {
                return;
            }
        }
        let entry = self.failures.entry((address, name(player))).or_insert((0, now));
        *entry = (entry.0.saturating_add(1), now.after(self.ban));
    }

    pub(crate) fn succeeded(&mut self, address: IpAddr, player: &str) {
        self.failures.remove(&(address, name(player)));
    }
}

fn name(player: &str) -> Box<[u8]> {
    player.as_bytes()[..player.len().min(NAME_BYTES)].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 2));

    #[test]
    fn who_guesses_too_often_waits_and_nobody_else() {
        let mut book = Book::new(3, Duration::from_secs(60), 100);
        let mut now = Time(0);
        for _ in 0..3 {
            assert!(!book.is_banned(now, HERE, "ada"));
            book.failed(now, HERE, "ada");
        }
        assert!(book.is_banned(now, HERE, "ada"));
        assert!(!book.is_banned(now, HERE, "bob") && !book.is_banned(now, THERE, "ada"));
        now = now.after(Duration::from_secs(60));
        assert!(!book.is_banned(now, HERE, "ada"));
        assert!(book.failures.is_empty());
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
    fn what_is_remembered_is_bounded() {
        let mut book = Book::new(2, Duration::from_secs(60), 100);
        for number in 0..110 {
            book.failed(Time(0), HERE, &number.to_string());
        }
        assert_eq!(book.failures.len(), 100);
        book.failed(Time::from_secs(61), HERE, &"long".repeat(100));
        assert_eq!(book.failures.len(), 1);
    }
}
