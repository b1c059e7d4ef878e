//! The cipher of a connection's packets.
//!
//! ```text
//! version on the wire, 13 bytes    packets                standard
//! "NETCODE 1.02" and a zero        ChaCha20-Poly1305      yes: works with other implementations
//! "THRONG 1.02B" and a zero        AES-256-GCM            no: other implementations refuse the token
//! ```
//!
//! The backend chooses when it makes a connect token. The version stands at the token's begin, in the request, and in the data
//! that are authenticated with the token's private section and with each packet. So nobody on the way can change the choice.
//! The private section itself is sealed with XChaCha20-Poly1305 in both: its nonce is random; 24 bytes are enough for random nonces,
//! the 12 of AES-GCM are not.
//!
//! No nonce comes twice under one key of AES, because that would give its authentication key away:
//!
//! - A key belongs to one token and direction. A [`Sealer`] cannot be cloned, counts its packets, and takes no number from outside.
//! - A server could accept a token a second time after a restart, and two servers of one token could both accept it. So the
//!   server's nonces contain the number of the challenge that was answered, which begins at random in each server.
//! - Packets outside of the connection, challenges and denials, have numbers with bit 63 set, which begin at random too.
//!
//! AES has 256 bits, because the keys of the token have: with 128, half of each would have to be left out, and 1,200 bytes would
//! be sealed 8 % faster (206 instead of 224 ns on an EPYC of Zen 4).

use std::time::Duration;

use super::aead::{KEY_LEN, Key, TAG_LEN};
use super::seal::{Sealer, UNCONNECTED_SEQUENCE};
use super::{PAYLOAD_MAX, SEAL_OVERHEAD_MAX, header_len};

/// The cipher of a connection's packets. All have a key of 32 bytes and a tag of 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Suite {
    /// The cipher of the netcode standard. The faster one on processors without instructions for AES.
    #[default]
    ChaCha20Poly1305,
    /// Several times as fast on processors with instructions for AES, which servers have nearly always.
    Aes256Gcm,
}

/// Bytes of a version on the wire.
pub(super) const VERSION_LEN: usize = 13;

impl Suite {
    /// All suites.
    pub const ALL: [Suite; 2] = [Suite::ChaCha20Poly1305, Suite::Aes256Gcm];

    /// Its name on the wire.
    pub const fn version(self) -> [u8; VERSION_LEN] {
        match self {
            Suite::ChaCha20Poly1305 => *b"NETCODE 1.02\0",
            Suite::Aes256Gcm => *b"THRONG 1.02B\0",
        }
    }

    pub(super) fn from_version(version: [u8; VERSION_LEN]) -> Option<Suite> {
        Suite::ALL.into_iter().find(|suite| suite.version() == version)
    }

    /// A short stable name, for metrics.
    pub const fn tag(self) -> &'static str {
        match self {
            Suite::ChaCha20Poly1305 => "chacha20_poly1305",
            Suite::Aes256Gcm => "aes_256_gcm",
        }
    }

    /// The most packets that one side of a connection may seal with its key; then the connection has to end. A new token has
    /// new keys.
    ///
    /// AES-GCM: with packets of at most 2,048 bytes, an attacker who sees them all has an advantage of at most 2^-57 (RFC 9001,
    /// section B.1.1). At 100 packets a second, they last a month. ChaCha20-Poly1305 has no such limit; here it is that of the
    /// sequence numbers.
    pub const fn packets_max(self) -> u64 {
        match self {
            Suite::ChaCha20Poly1305 => UNCONNECTED_SEQUENCE,
            Suite::Aes256Gcm => 1 << 28,
        }
    }

    /// The most packets that are not authentic which one side tries to open with a key; after them it opens none, so the
    /// connection ends by its timeout. From RFC 9001, sections 6.6 and B.1.2.
    pub const fn forgeries_max(self) -> u64 {
        match self {
            Suite::ChaCha20Poly1305 => 1 << 36,
            Suite::Aes256Gcm => 1 << 57,
        }
    }

    /// The suite that seals full packets faster here. `clock` returns the time since any fixed moment. Takes about 1 ms.
    ///
    /// The shortest of several turns counts, so a thread that is interrupted does not change the answer. Where both are about
    /// equal, it is the standard's.
    pub fn faster(mut clock: impl FnMut() -> Duration) -> Suite {
        const TURNS: usize = 8;
        const PACKETS: usize = 16;
        const CLEARLY: u32 = 10;
        let mut packet = [0; PAYLOAD_MAX + SEAL_OVERHEAD_MAX];
        let [standard, aes] = Suite::ALL.map(|suite| {
            let mut sealer = Sealer::new(suite, &Key::new([0; KEY_LEN]), 0);
            let turn = |_| {
                let began = clock();
                for _ in 0..PACKETS {
                    let len = header_len(sealer.next_sequence()) + PAYLOAD_MAX + TAG_LEN;
                    sealer.seal_payload(&mut packet[..len]).expect("a full packet");
                }
                clock().saturating_sub(began)
            };
            (0..TURNS).map(turn).min().unwrap_or_default()
        });
        if aes + aes / CLEARLY < standard { Suite::Aes256Gcm } else { Suite::ChaCha20Poly1305 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_apart() {
        for suite in Suite::ALL {
            assert_eq!(Suite::from_version(suite.version()), Some(suite));
        }
        assert_eq!(Suite::from_version(*b"NETCODE 1.01\0"), None);
        assert_eq!(Suite::default().version(), *b"NETCODE 1.02\0");
    }

    #[test]
    fn the_faster_one_is_chosen_by_the_clock_alone() {
        // Each turn reads the clock twice; the first eight turns belong to the standard's suite.
        let chosen = |standard_us: u64, aes_us: u64| {
            let (mut reads, mut now) = (0, Duration::ZERO);
            Suite::faster(|| {
                let turn_us = if reads < 16 { standard_us } else { aes_us };
                now += Duration::from_micros(if reads % 2 == 1 { turn_us } else { 1_000 });
                reads += 1;
                now
            })
        };
        assert_eq!(chosen(20, 5), Suite::Aes256Gcm);
        assert_eq!(chosen(20, 19), Suite::ChaCha20Poly1305, "about equal");
        assert_eq!(chosen(20, 60), Suite::ChaCha20Poly1305);
        assert_eq!(chosen(0, 0), Suite::ChaCha20Poly1305, "a clock that stands still");
    }
}
