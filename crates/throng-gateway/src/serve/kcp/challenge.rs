//! A new peer has to prove its address before the gateway stores anything about it.
//!
//! ```text
//!  stranger                                          gateway
//!    PUSH, number 0, data  ----------------------->  keeps nothing
//!                          <-----------------------  PUSH, number -1, time: the challenge, no data
//!    ACK, number -1, the same time  -------------->  the conversation begins
//!    PUSH, number 0, data, sent again  ----------->  is its first
//! ```
//! Every KCP acknowledges a segment that it takes for an old one, and repeats its time, without looking at what is in
//! it. Numbers begin at 0, so the one before is old for everybody. A challenge is made from the address, the
//! conversation and a secret, as SYN cookies are (RFC 4987, 3.6): a peer that has not received it cannot guess it, and
//! the gateway need not remember it. It is shorter than the datagram that it answers.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A challenge is good for this long, and at most twice that.
const ERA: Duration = Duration::from_secs(32);

/// Makes challenges, and knows them again.
#[derive(Debug)]
pub(super) struct Challenges {
    /// The standard library's keyed hash.
    secret: RandomState,
    began: Instant,
}

impl Challenges {
    pub(super) fn new(now: Instant) -> Challenges {
        Challenges { secret: RandomState::new(), began: now }
    }

    /// The number that a peer at this address has to repeat to begin this conversation.
    pub(super) fn make(&self, now: Instant, address: SocketAddr, conversation: u32) -> u32 {
        self.of_era(self.era(now), address, conversation)
    }

    /// Whether the answer is that number.
    pub(super) fn is_answered(&self, now: Instant, (address, conversation): (SocketAddr, u32), answer: u32) -> bool {
        let era = self.era(now);
        let is_of = |era| self.of_era(era, address, conversation) == answer;
        is_of(era) || era.checked_sub(1).is_some_and(is_of)
    }

    fn era(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_secs() / ERA.as_secs()
    }

    fn of_era(&self, era: u64, address: SocketAddr, conversation: u32) -> u32 {
        self.secret.hash_one((era, address, conversation)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([203, 0, 113, 7], port))
    }

    #[test]
    fn only_who_was_asked_can_answer_and_not_for_ever() {
        let now = Instant::now();
        let challenges = Challenges::new(now);
        let challenge = challenges.make(now, address(1), 7);
        assert!(challenges.is_answered(now, (address(1), 7), challenge));
        assert!(challenges.is_answered(now + ERA, (address(1), 7), challenge));
        assert!(!challenges.is_answered(now + 2 * ERA, (address(1), 7), challenge));
        assert!(!challenges.is_answered(now, (address(2), 7), challenge));
        assert!(!challenges.is_answered(now, (address(1), 8), challenge));
        assert!(!challenges.is_answered(now, (address(1), 7), challenge ^ 1));
        assert!(!Challenges::new(now).is_answered(now, (address(1), 7), challenge), "another gateway's");
    }
}
