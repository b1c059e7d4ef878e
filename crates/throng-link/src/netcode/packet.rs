//! The bytes of every packet. All integers little-endian.
//!
//! ```text
//! request, 1078 bytes, in the clear       every other packet
//!   0                    1                  prefix          1      kind | sequence bytes << 4
//!   version             13                  sequence     1..8      without its high zero bytes
//!   protocol id          8                  body         0..1200   encrypted
//!   expires, unix s      8                  tag            16
//!   nonce               24
//!   private section   1024                authenticated with it: version 13 | protocol id 8 | prefix 1
//!
//! kind  packet       body                                           direction
//!   0   request      (see above)                                    client to server
//!   1   denied       nothing                                        server to client
//!   2   challenge    challenge sequence 8 | challenge token 300     server to client
//!   3   response     challenge sequence 8 | challenge token 300     client to server
//!   4   keep-alive   seat 4 | number of seats 4 (0, 0 from clients) both
//!   5   payload      1..1200 bytes                                  both
//!   6   disconnect   nothing                                        both
//! ```

use super::aead::{TAG_LEN, TOKEN_NONCE_LEN};
use super::challenge::CHALLENGE_LEN;
use super::fields::{FieldReader, FieldWriter};
use super::seal::OpenError;
use super::suite::{Suite, VERSION_LEN};
use super::{PAYLOAD_MAX, PRIVATE_TOKEN_LEN};
use std::ops::RangeInclusive;

/// Bytes of a connection request.
pub(super) const REQUEST_LEN: usize = 1 + VERSION_LEN + 8 + 8 + TOKEN_NONCE_LEN + PRIVATE_TOKEN_LEN;
/// Bytes of the longest header of a sealed packet.
pub(super) const HEADER_MAX: usize = 9;
/// Bytes of the body of a challenge and of a response.
pub(super) const CHALLENGE_BODY_LEN: usize = 8 + CHALLENGE_LEN;
/// Bytes of the body of a keep-alive.
pub(super) const KEEP_ALIVE_BODY_LEN: usize = 8;
/// Bytes of what is authenticated with every sealed packet.
pub(super) const ADDITIONAL_LEN: usize = VERSION_LEN + 8 + 1;
/// No sealed packet is shorter: one byte of prefix, one of sequence, the tag.
const SEALED_LEN_MIN: usize = 2 + TAG_LEN;

/// The purpose of a packet. The numbers are those on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketKind {
    /// A client shows its connect token. The only kind that is not sealed.
    Request = 0,
    /// The server is full.
    Denied = 1,
    /// The server asks the client to prove its address.
    Challenge = 2,
    /// The client proves its address.
    Response = 3,
    /// Nothing to say, still there. From the server it also names the client's seat.
    KeepAlive = 4,
    /// Data of the application.
    Payload = 5,
    /// The sender has left.
    Disconnect = 6,
}

impl PacketKind {
    pub(super) fn from_prefix(prefix: u8) -> Option<PacketKind> {
        Some(match prefix & 0x0f {
            0 => PacketKind::Request,
            1 => PacketKind::Denied,
            2 => PacketKind::Challenge,
            3 => PacketKind::Response,
            4 => PacketKind::KeepAlive,
            5 => PacketKind::Payload,
            6 => PacketKind::Disconnect,
            _ => return None,
        })
    }

    /// Whether a packet of this kind may be accepted once only. The others belong to the handshake and are repeated.
    pub(super) fn is_replay_protected(self) -> bool {
        matches!(self, PacketKind::KeepAlive | PacketKind::Payload | PacketKind::Disconnect)
    }

    fn body_lens(self) -> RangeInclusive<usize> {
        match self {
            PacketKind::Request => 0..=0,
            PacketKind::Denied | PacketKind::Disconnect => 0..=0,
            PacketKind::Challenge | PacketKind::Response => CHALLENGE_BODY_LEN..=CHALLENGE_BODY_LEN,
            PacketKind::KeepAlive => KEEP_ALIVE_BODY_LEN..=KEEP_ALIVE_BODY_LEN,
            PacketKind::Payload => 1..=PAYLOAD_MAX,
        }
    }
}

/// The two ends of a connection. Each accepts only the kinds that the other end sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Accepts denied, challenge, keep-alive, payload and disconnect.
    Client,
    /// Accepts response, keep-alive, payload and disconnect.
    Server,
}

impl Side {
    fn accepts(self, kind: PacketKind) -> bool {
        match kind {
            PacketKind::Request => false,
            PacketKind::Denied | PacketKind::Challenge => self == Side::Client,
            PacketKind::Response => self == Side::Server,
            PacketKind::KeepAlive | PacketKind::Payload | PacketKind::Disconnect => true,
        }
    }
}

/// Bytes in front of the body of a sealed packet with this sequence number: 2 to 9.
#[inline]
pub const fn header_len(sequence: u64) -> usize {
    // At least one byte, also for sequence number 0.
    1 + (71 - (sequence | 1).leading_zeros() as usize) / 8
}

/// Writes the header of a sealed packet and returns its prefix byte and its length. `packet` is at least that long.
#[inline]
pub(super) fn write_header(kind: PacketKind, sequence: u64, packet: &mut [u8]) -> (u8, usize) {
    let len = header_len(sequence);
    let prefix = (kind as u8) | (((len - 1) as u8) << 4);
    packet[0] = prefix;
    packet[1..len].copy_from_slice(&sequence.to_le_bytes()[..len - 1]);
    (prefix, len)
}

/// The bytes before the body of a sealed packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: PacketKind,
    pub(super) prefix: u8,
    pub(super) sequence: u64,
    pub(super) len: usize,
}

/// Reads the header of a sealed packet that came to `side`, and checks everything that can be checked without a key.
#[inline]
pub(super) fn read_header(side: Side, packet: &[u8]) -> Result<Header, OpenError> {
    if packet.len() < SEALED_LEN_MIN {
        return Err(OpenError::TooShort);
    }
    let prefix = packet[0];
    let kind = PacketKind::from_prefix(prefix).ok_or(OpenError::UnknownKind)?;
    if !side.accepts(kind) {
        return Err(OpenError::UnexpectedKind);
    }
    let sequence_len = usize::from(prefix >> 4);
    if !(1..=8).contains(&sequence_len) {
        return Err(OpenError::SequenceLength);
    }
    let len = 1 + sequence_len;
    let body_len = packet.len().checked_sub(len + TAG_LEN).ok_or(OpenError::TooShort)?;
    if !kind.body_lens().contains(&body_len) {
        return Err(OpenError::BodyLength);
    }
    let mut sequence = [0; 8];
    sequence[..sequence_len].copy_from_slice(&packet[1..len]);
    Ok(Header { kind, prefix, sequence: u64::from_le_bytes(sequence), len })
}

/// The data that is authenticated with a sealed packet. The prefix byte, the last one, differs between packets.
pub(super) fn additional_data(suite: Suite, protocol_id: u64, prefix: u8) -> [u8; ADDITIONAL_LEN] {
    let mut bytes = [0; ADDITIONAL_LEN];
    let mut w = FieldWriter::new(&mut bytes);
    w.bytes(&suite.version());
    w.u64(protocol_id);
    w.bytes(&[prefix]);
    bytes
}

/// The fields of a connection request.
pub(super) struct Request {
    pub(super) version: [u8; VERSION_LEN],
    pub(super) protocol_id: u64,
    pub(super) expire_unix_s: u64,
    pub(super) nonce: [u8; TOKEN_NONCE_LEN],
}

/// Splits a request into its fields and the sealed private section, which follows them.
pub(super) fn read_request(packet: &mut [u8; REQUEST_LEN]) -> (Request, &mut [u8; PRIVATE_TOKEN_LEN]) {
    let (head, section) = packet.split_last_chunk_mut().expect("a request is longer than the private section");
    let mut r = FieldReader::new(&head[1..]);
    let mut fields =
        || Some(Request { version: r.array()?, protocol_id: r.u64()?, expire_unix_s: r.u64()?, nonce: r.array()? });
    (fields().expect("the head of a request has room for its fields"), section)
}

/// Replaces `out` with a connection request.
pub(super) fn write_request(
    out: &mut Vec<u8>,
    (suite, protocol_id): (Suite, u64),
    expire_unix_s: u64,
    nonce: &[u8; TOKEN_NONCE_LEN],
    section: &[u8; PRIVATE_TOKEN_LEN],
) {
    out.clear();
    out.resize(REQUEST_LEN, 0);
    let mut w = FieldWriter::new(&mut out[1..]);
    w.bytes(&suite.version());
    w.u64(protocol_id);
    w.u64(expire_unix_s);
    w.bytes(nonce);
    w.bytes(section);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_grows_with_each_byte_of_the_sequence_number() {
        assert_eq!(header_len(0), 2);
        for bytes in 1..8 {
            let first_longer = 1u64 << (8 * bytes);
            assert_eq!(header_len(first_longer - 1), 1 + bytes);
            assert_eq!(header_len(first_longer), 2 + bytes);
        }
        assert_eq!(header_len(u64::MAX), HEADER_MAX);
    }

    #[test]
    fn the_sequence_number_stands_low_byte_first() {
        let mut packet = [0xee; 40];
        assert_eq!(write_header(PacketKind::Payload, 1000, &mut packet), (0x25, 3));
        assert_eq!(packet[..4], [0x25, 0xe8, 0x03, 0xee]);
        let header = read_header(Side::Server, &packet).unwrap();
        assert_eq!(header, Header { kind: PacketKind::Payload, prefix: 0x25, sequence: 1000, len: 3 });
    }

    #[test]
    fn headers_that_cannot_be_right_are_refused_without_a_key() {
        let check = |side, prefix: u8, len: usize| {
            let mut packet = vec![1; len];
            packet[0] = prefix;
            read_header(side, &packet).map(|h| h.kind)
        };
        use PacketKind::*;
        assert_eq!(check(Side::Client, 0x15, 17), Err(OpenError::TooShort));
        assert_eq!(check(Side::Client, 0x85, 24), Err(OpenError::TooShort));
        assert_eq!(check(Side::Client, 0x17, 40), Err(OpenError::UnknownKind));
        assert_eq!(check(Side::Client, 0x1f, 40), Err(OpenError::UnknownKind));
        assert_eq!(check(Side::Client, 0x05, 40), Err(OpenError::SequenceLength));
        assert_eq!(check(Side::Client, 0x95, 40), Err(OpenError::SequenceLength));
        assert_eq!(check(Side::Client, 0x15, 18), Err(OpenError::BodyLength));
        assert_eq!(check(Side::Client, 0x15, 18 + PAYLOAD_MAX), Ok(Payload));
        assert_eq!(check(Side::Client, 0x15, 18 + PAYLOAD_MAX + 1), Err(OpenError::BodyLength));
        assert_eq!(check(Side::Client, 0x14, 26), Ok(KeepAlive));
        assert_eq!(check(Side::Client, 0x14, 27), Err(OpenError::BodyLength));
        for kind in [Request, Response] {
            assert_eq!(check(Side::Client, 0x10 | kind as u8, 326), Err(OpenError::UnexpectedKind));
        }
        for kind in [Request, Denied, Challenge] {
            assert_eq!(check(Side::Server, 0x10 | kind as u8, 326), Err(OpenError::UnexpectedKind));
        }
        assert_eq!(check(Side::Client, 0x12, 326), Ok(Challenge));
        assert_eq!(check(Side::Server, 0x13, 326), Ok(Response));
    }
}
