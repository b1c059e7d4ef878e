//! Why a server refuses a genuine token, and how it answers.
//!
//! The standard's *denied* packet has no body. Its reason travels in its sequence number, which is authenticated (it is the
//! nonce) and means nothing else to a client:
//!
//! ```text
//! bit 63       1   outside of connections, as in the reference implementation
//! bit 62       1   the low four bits are a reason (0 from other implementations: they deny when they are full)
//! bits 4..62       counts up from a random start, so that two servers use other nonces under the same key
//! bits 0..4        the reason; 0 in a challenge
//! ```
//!
//! Which requests get an answer: an answer must not help an attacker who only recorded a request. An attacker who
//! replays it gets an answer that its owner would believe. So a server says only what is true of the token wherever it
//! is shown, and only if the token names this server. *Made with another key*, *for another server* and *shown from
//! another address before* stay without an answer.

use super::seal::UNCONNECTED_SEQUENCE;

const HAS_REASON: u64 = 1 << 62;
const REASON_BITS: u32 = 4;
/// Random bits of the first count: as many packets as that again can be sent before the counts end.
const START_BITS: u32 = 57;

/// Why a server turns a client away whose token is genuine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Denial {
    /// All seats are taken.
    Full = 0,
    /// The client is connected, and the server does not replace connections or the other token is newer.
    AlreadyConnected = 1,
    /// The token has led to a connection already. Each connection needs a token of its own.
    TokenSpent = 2,
    /// The token's lifetime is over, by the server's clock.
    TokenExpired = 3,
    /// The token is for another protocol id: another game, or another version of it.
    OtherProtocol = 4,
}

impl Denial {
    /// All of them, in the order of their numbers.
    pub const ALL: [Denial; 5] =
        [Denial::Full, Denial::AlreadyConnected, Denial::TokenSpent, Denial::TokenExpired, Denial::OtherProtocol];

    /// A short stable name, for metrics.
    pub const fn tag(self) -> &'static str {
        match self {
            Denial::Full => "denied_full",
            Denial::AlreadyConnected => "denied_already_connected",
            Denial::TokenSpent => "denied_token_spent",
            Denial::TokenExpired => "denied_token_expired",
            Denial::OtherProtocol => "denied_other_protocol",
        }
    }

    /// The meaning of the sequence number of a *denied* packet. An unknown reason of a newer server reads as
    /// [`Denial::Full`].
    pub(super) fn from_sequence(sequence: u64) -> Denial {
        let number = (sequence & ((1 << REASON_BITS) - 1)) as usize;
        let is_told = sequence & HAS_REASON != 0;
        Denial::ALL.get(number).copied().filter(|_| is_told).unwrap_or(Denial::Full)
    }
}

impl std::fmt::Display for Denial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Denial::Full => "the server has no free seat: try again later, or another server",
            Denial::AlreadyConnected => "this client is connected already, or has a newer token: leave there first",
            Denial::TokenSpent => "the connect token was used before: ask the backend for a new one for each connection",
            Denial::TokenExpired => {
                "the connect token has expired by the server's clock: ask for a new one; if it is new, compare the clocks \
                 of backend and server"
            }
            Denial::OtherProtocol => {
                "the connect token is for another protocol id: client and server belong to different games or versions"
            }
        })
    }
}

/// The sequence numbers of a server's packets outside of connections. None is used twice.
pub(super) struct UnconnectedSequences {
    next: u64,
}

impl UnconnectedSequences {
    pub(super) fn new(random: &mut dyn FnMut(&mut [u8])) -> UnconnectedSequences {
        let mut start = [0; 8];
        random(&mut start);
        UnconnectedSequences { next: u64::from_le_bytes(start) >> (64 - START_BITS) }
    }

    /// The next number, for a challenge.
    pub(super) fn challenge(&mut self) -> u64 {
        self.take(0)
    }

    /// The next number, for a denial.
    pub(super) fn denial(&mut self, denial: Denial) -> u64 {
        self.take(denial as u64)
    }

    fn take(&mut self, reason: u64) -> u64 {
        let count = self.next;
        self.next += 1;
        UNCONNECTED_SEQUENCE | HAS_REASON | count << REASON_BITS | reason
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_reason_survives_its_sequence_number_and_no_number_comes_twice() {
        for random in [0x00, 0x5a, 0xff] {
            let mut sequences = UnconnectedSequences::new(&mut |bytes| bytes.fill(random));
            let mut seen = BTreeSet::new();
            for round in 0..100 {
                assert!(seen.insert(sequences.challenge()), "round {round}");
                for denial in Denial::ALL {
                    let sequence = sequences.denial(denial);
                    assert!(sequence >= UNCONNECTED_SEQUENCE && seen.insert(sequence));
                    assert_eq!(Denial::from_sequence(sequence), denial);
                }
            }
        }
    }

    #[test]
    fn what_another_implementation_denies_is_a_full_server() {
        for sequence in UNCONNECTED_SEQUENCE..UNCONNECTED_SEQUENCE + 20 {
            assert_eq!(Denial::from_sequence(sequence), Denial::Full);
        }
        assert_eq!(Denial::from_sequence(u64::MAX), Denial::Full, "a reason that we do not know");
    }
}
