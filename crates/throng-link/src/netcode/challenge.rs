//! Challenge tokens: what a server asks a client to send back, so that it proves its address. Only the server that
//! made one can read it.
//!
//! ```text
//! client id          8
//! user data        256    of a move: when it was sent (8), the number of the wish (8), zeros
//! connect token tag 16    the standard leaves this to zeros; ties the challenge to one connect token
//! zeros              4
//! tag               16    ChaCha20-Poly1305, nonce from the challenge sequence number
//! ```
//!
//! Authenticated with it is what the challenge is bound to: its purpose and the address that it was sent to. So a
//! challenge that is passed on to another address proves nothing there, and neither does a recorded answer. (The
//! standard binds it to nothing; clients cannot tell.)

use super::USER_DATA_LEN;
use super::aead::{Key, KeyForm, Nonces, NotAuthentic, PacketKey, TAG_LEN};
use super::fields::{ADDRESS_LEN_MAX, FieldReader, FieldWriter};
use super::suite::Suite;
use std::net::SocketAddr;
use throng_wire::Time;

/// Bytes of a sealed challenge token.
pub(super) const CHALLENGE_LEN: usize = 300;

/// The data that a server needs again when the client proves its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Challenge {
    pub(super) client_id: u64,
    pub(super) user_data: [u8; USER_DATA_LEN],
    pub(super) token_tag: [u8; TAG_LEN],
}

impl Challenge {
    /// The challenge of a client that wants to move: the answer to the wish with this sequence number.
    pub(super) fn of_move(client_id: u64, sent_at: Time, wish: u64) -> Challenge {
        let mut user_data = [0; USER_DATA_LEN];
        let mut w = FieldWriter::new(&mut user_data);
        w.u64(sent_at.0);
        w.u64(wish);
        Challenge { client_id, user_data, token_tag: [0; TAG_LEN] }
    }

    /// When the challenge of a move was sent, and the sequence number of its wish.
    pub(super) fn sent_at_and_wish(&self) -> (Time, u64) {
        let mut r = FieldReader::new(&self.user_data);
        let mut fields = || Some((Time(r.u64()?), r.u64()?));
        fields().expect("user data has room for two numbers")
    }
}

/// The purpose of a challenge. One cannot be used for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Purpose {
    /// Somebody with a connect token wants a connection.
    Join = 1,
    /// A connection continues from another address.
    Move = 2,
}

/// The bytes that bind a challenge to its purpose and to an address.
pub(super) fn bound_to(purpose: Purpose, address: SocketAddr) -> [u8; 1 + ADDRESS_LEN_MAX] {
    let mut bytes = [0; 1 + ADDRESS_LEN_MAX];
    let mut w = FieldWriter::new(&mut bytes);
    w.bytes(&[purpose as u8]);
    w.address(address);
    bytes
}

fn packet_key(key: &Key) -> PacketKey {
    PacketKey::new(Suite::ChaCha20Poly1305, key, KeyForm::Bare)
}

/// Seals and opens the challenges of one server. The key is made when the server starts and never leaves it.
pub(super) struct ChallengeSealer {
    key: PacketKey,
    next_sequence: u64,
}

impl ChallengeSealer {
    /// The first challenge has a number from `random`, because connections with AES take it into their nonces: challenges of
    /// two servers, or of one before and after a restart, must have different numbers.
    pub(super) fn new(random: &mut dyn FnMut(&mut [u8])) -> ChallengeSealer {
        let key = Key::generate(random);
        let mut start = [0; 8];
        random(&mut start);
        // Half of the numbers are left to count on.
        ChallengeSealer::starting_at(&key, u64::from_le_bytes(start) >> 1)
    }

    pub(super) fn starting_at(key: &Key, next_sequence: u64) -> ChallengeSealer {
        ChallengeSealer { key: packet_key(key), next_sequence }
    }

    /// The sequence number of the sealed challenge, and its bytes. `bound` is authenticated with it.
    pub(super) fn seal(&mut self, bound: &[u8], challenge: &Challenge) -> (u64, [u8; CHALLENGE_LEN]) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let mut sealed = [0; CHALLENGE_LEN];
        let (body, tag) = sealed.split_last_chunk_mut::<TAG_LEN>().expect("a challenge is longer than a tag");
        let mut w = FieldWriter::new(body);
        w.u64(challenge.client_id);
        w.bytes(&challenge.user_data);
        w.bytes(&challenge.token_tag);
        *tag = self.key.with(|key| key.seal(Nonces::Standard.nonce(sequence), bound, body));
        (sequence, sealed)
    }

    pub(super) fn open(
        &self,
        bound: &[u8],
        sequence: u64,
        sealed: &mut [u8; CHALLENGE_LEN],
    ) -> Result<Challenge, NotAuthentic> {
        let body = self.key.with(|key| key.open(Nonces::Standard.nonce(sequence), bound, sealed))?;
        let mut r = FieldReader::new(body);
        let mut fields = || Some(Challenge { client_id: r.u64()?, user_data: r.array()?, token_tag: r.array()? });
        Ok(fields().expect("a challenge has room for its fields"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netcode::KEY_LEN;

    fn challenge() -> Challenge {
        let user_data = std::array::from_fn(|i| i as u8);
        Challenge { client_id: 0x0102_0304_0506_0708, user_data, token_tag: [0; TAG_LEN] }
    }

    #[test]
    fn a_challenge_opens_only_unchanged_and_under_its_own_sequence_number() {
        let mut sealer = ChallengeSealer::starting_at(&Key::new([5; KEY_LEN]), 1000);
        let (first, sealed) = sealer.seal(b"here", &challenge());
        let (second, _) = sealer.seal(b"here", &challenge());
        assert_ne!(first, second);
        assert_eq!(sealer.open(b"here", first, &mut sealed.clone()), Ok(challenge()));
        assert_eq!(sealer.open(b"here", second, &mut sealed.clone()), Err(NotAuthentic));
        for at in [0, 8, 299] {
            let mut forged = sealed;
            forged[at] ^= 1;
            assert_eq!(sealer.open(b"here", first, &mut forged), Err(NotAuthentic));
        }
    }

    #[test]
    fn a_challenge_is_worth_nothing_at_another_address_or_for_another_purpose() {
        let here = SocketAddr::from(([10, 0, 0, 1], 7));
        let mut sealer = ChallengeSealer::starting_at(&Key::new([5; KEY_LEN]), 1000);
        let (sequence, sealed) = sealer.seal(&bound_to(Purpose::Join, here), &challenge());
        let open = |purpose, address| sealer.open(&bound_to(purpose, address), sequence, &mut sealed.clone());
        assert_eq!(open(Purpose::Join, here), Ok(challenge()));
        assert_eq!(open(Purpose::Move, here), Err(NotAuthentic));
        assert_eq!(open(Purpose::Join, SocketAddr::from(([10, 0, 0, 1], 8))), Err(NotAuthentic));
        assert_eq!(open(Purpose::Join, SocketAddr::from(([10, 0, 0, 2], 7))), Err(NotAuthentic));
    }
}
