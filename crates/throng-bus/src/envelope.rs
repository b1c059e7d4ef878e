//! The head of everything that a member sends over a network.
//!
//! ```text
//! offset  0      1        2     3          11       19         27
//!        | 0xB5 | version | kind | publisher | number | previous | payload ...
//!                                   u64 LE     u64 LE   u64 LE
//!
//! kind 1, message: number of the message; number of the publisher's message before it on this subject: 0 if there is none,
//!                  its own number if the publisher has forgotten it
//! kind 2, tip:     the publisher's newest message on this subject, said again; previous 0; no payload
//! kind 3, request: the publisher's number for it, as that of no request before; previous 0
//! kind 4, answer:  number of the request; previous 0; the publisher is the one that answers
//! ```

use bytes::{Bytes, BytesMut};
use thiserror::Error;

use crate::{MemberId, Sequence, Ticket};

/// Bytes in front of a payload.
pub const HEAD_BYTES: usize = 27;

/// The version of the format.
pub const ENVELOPE_VERSION: u8 = 1;

const MAGIC: u8 = 0xB5;

/// A thing that a member sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Its sender.
    pub publisher: MemberId,
    /// Its kind.
    pub kind: Kind,
    /// Its content.
    pub payload: Bytes,
}

/// The kind of an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message.
    Message {
        /// Its number.
        sequence: Sequence,
        /// The message before it on its subject.
        previous: Previous,
    },
    /// The newest message of a subject has this number.
    Tip {
        /// The number.
        sequence: Sequence,
    },
    /// A request.
    Request {
        /// The sender's number for it.
        ticket: Ticket,
    },
    /// An answer.
    Answer {
        /// The number of the request.
        ticket: Ticket,
    },
}

/// The message of a publisher before another one on the same subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Previous {
    /// There is none.
    First,
    /// It has this number.
    Is(Sequence),
    /// The publisher has forgotten it.
    Forgotten,
}

/// Why bytes are no envelope. The peer that sent them is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// Another program writes to this subject, or the bytes are cut.
    #[error("these bytes are no envelope of Throng: check that no other program uses this cluster's subjects")]
    NotOurs,
    /// A newer or older program.
    #[error(
        "an envelope has version {0}, and this program reads version {ENVELOPE_VERSION}: use one version of Throng"
    )]
    Version(u8),
    /// Numbers that make no sense.
    #[error("an envelope has a number that is not possible: its sender is broken")]
    Numbers,
}

impl EnvelopeError {
    /// A stable word for each kind of error.
    pub fn tag(self) -> &'static str {
        match self {
            EnvelopeError::NotOurs => "not_ours",
            EnvelopeError::Version(_) => "version",
            EnvelopeError::Numbers => "numbers",
        }
    }
}

impl Envelope {
    /// The bytes.
    pub fn encode(&self) -> Bytes {
        let (kind, number, previous) = match self.kind {
            Kind::Message { sequence, previous } => (
                1,
                sequence.0,
                match previous {
                    Previous::First => 0,
                    Previous::Is(previous) => previous.0,
                    Previous::Forgotten => sequence.0,
                },
            ),
            Kind::Tip { sequence } => (2, sequence.0, 0),
            Kind::Request { ticket } => (3, ticket.0, 0),
            Kind::Answer { ticket } => (4, ticket.0, 0),
        };
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES + self.payload.len());
        bytes.extend_from_slice(&[MAGIC, ENVELOPE_VERSION, kind]);
        for number in [self.publisher.0, number, previous] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.payload);
        bytes.freeze()
    }

    /// Reads bytes of anybody. The payload shares their memory.
    ///
    /// # Errors
    /// If they are no envelope.
    pub fn decode(bytes: &Bytes) -> Result<Envelope, EnvelopeError> {
        let number = |at: usize| -> Option<u64> { Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?)) };
        let &[MAGIC, version, kind, ..] = &bytes[..] else { return Err(EnvelopeError::NotOurs) };
        if version != ENVELOPE_VERSION {
            return Err(EnvelopeError::Version(version));
        }
        let (Some(publisher), Some(first), Some(second)) = (number(3), number(11), number(19)) else {
            return Err(EnvelopeError::NotOurs);
        };
        let kind = match (kind, first, second) {
            (1, 1.., 0) => Kind::Message { sequence: Sequence(first), previous: Previous::First },
            (1, 1.., _) if first == second => {
                Kind::Message { sequence: Sequence(first), previous: Previous::Forgotten }
            }
            (1, _, _) if first > second => {
                Kind::Message { sequence: Sequence(first), previous: Previous::Is(Sequence(second)) }
            }
            (2, 1.., 0) if bytes.len() == HEAD_BYTES => Kind::Tip { sequence: Sequence(first) },
            (3, _, 0) => Kind::Request { ticket: Ticket(first) },
            (4, _, 0) => Kind::Answer { ticket: Ticket(first) },
            (1..=4, _, _) => return Err(EnvelopeError::Numbers),
            _ => return Err(EnvelopeError::NotOurs),
        };
        Ok(Envelope { publisher: MemberId(publisher), kind, payload: bytes.slice(HEAD_BYTES..) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_as_drawn() {
        let kind = Kind::Message { sequence: Sequence(0x0102), previous: Previous::Is(Sequence(3)) };
        let bytes = Envelope { publisher: MemberId(7), kind, payload: Bytes::from_static(b"hi") }.encode();
        let mut expected = vec![0xB5, 1, 1];
        expected.extend([7, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([2, 1, 0, 0, 0, 0, 0, 0]);
        expected.extend([3, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend(b"hi");
        assert_eq!(&bytes[..], &expected[..]);
    }

    #[test]
    fn every_kind_is_read_as_it_was_written() {
        let sequence = Sequence(9);
        let kinds = [
            Kind::Message { sequence, previous: Previous::First },
            Kind::Message { sequence, previous: Previous::Is(Sequence(8)) },
            Kind::Message { sequence, previous: Previous::Forgotten },
            Kind::Tip { sequence },
            Kind::Request { ticket: Ticket(0) },
            Kind::Answer { ticket: Ticket(u64::MAX) },
        ];
        for kind in kinds {
            let envelope = Envelope { publisher: MemberId(u64::MAX), kind, payload: Bytes::new() };
            assert_eq!(Envelope::decode(&envelope.encode()), Ok(envelope));
        }
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let kind = Kind::Message { sequence: Sequence(5), previous: Previous::Is(Sequence(6)) };
        let envelope = Envelope { publisher: MemberId(1), kind, payload: Bytes::new() };
        assert_eq!(Envelope::decode(&envelope.encode()), Err(EnvelopeError::Numbers));
        let tip = Envelope { kind: Kind::Tip { sequence: Sequence(5) }, payload: Bytes::from_static(b"x"), ..envelope };
        assert_eq!(Envelope::decode(&tip.encode()), Err(EnvelopeError::Numbers));
        assert_eq!(Envelope::decode(&Bytes::from_static(&[0xB5, 2, 1])), Err(EnvelopeError::Version(2)));
        assert_eq!(Envelope::decode(&Bytes::from_static(b"hello")), Err(EnvelopeError::NotOurs));
    }
}
