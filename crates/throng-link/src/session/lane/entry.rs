//! Entries of the message section.
//!
//! A message is cut into pieces of 256 bytes, the last as short as need be; an empty message is one empty piece. An
//! entry carries a whole message or a run of neighbouring pieces. Bytes and not pieces are counted, because both follow
//! from each other.
//!
//! ```text
//! [lane and flags u8]    bits 0-2 lane, bit 3 PART, bits 4-7 zero
//! [number u16]           low half of the message's number on its lane       if the lane is reliable
//!                        number among the lane's messages in parts           if it is not, and PART
//! [first piece u16]      position of the run's first piece                  if PART
//! [message length]       varint, of the whole message in bytes              if PART
//! [length]               varint, of the bytes that follow
//! bytes
//! ```
//!
//! The bytes of a part begin at 256 x first piece and end at a multiple of 256 or at the message's end. A varint has its
//! lowest 7 bits first, and bit 7 set while more follow; at most 4 bytes.

use super::super::error::PacketError;
use super::super::wire::{ByteReader, varint_bytes, write_varint};

/// Length of every piece of a message but the last, in bytes.
pub(super) const PIECE_BYTES: usize = 256;

const LANE_MASK: u8 = 0b111;
const PART: u8 = 1 << 3;

/// Pieces of a message of this length.
pub(super) fn piece_count(message_bytes: usize) -> usize {
    message_bytes.div_ceil(PIECE_BYTES).max(1)
}

/// Some neighbouring pieces of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct PieceRun {
    pub(super) lane: u8,
    pub(super) number: u32,
    pub(super) first: u16,
    pub(super) count: u16,
}

impl PieceRun {
    /// Where the run's bytes lie in its message.
    pub(super) fn range(&self, message_bytes: usize) -> std::ops::Range<usize> {
        let first = usize::from(self.first);
        (first * PIECE_BYTES).min(message_bytes)..((first + usize::from(self.count)) * PIECE_BYTES).min(message_bytes)
    }
}

/// Position of a part in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) first: u16,
    pub(super) message_bytes: u32,
}

/// An entry. The lane is any number below 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) lane: u8,
    /// There unless the lane is unreliable and the message whole.
    pub(super) number: Option<u16>,
    /// There unless the message is whole.
    pub(super) part: Option<Part>,
    pub(super) bytes: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Bytes of an entry before its content.
    pub(super) fn head_bytes(number: bool, message_bytes: Option<usize>, bytes: usize) -> usize {
        let part = message_bytes.map_or(0, |length| 2 + varint_bytes(length as u32));
        1 + if number { 2 } else { 0 } + part + varint_bytes(bytes as u32)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(self.lane | if self.part.is_some() { PART } else { 0 });
        if let Some(number) = self.number {
            out.extend_from_slice(&number.to_le_bytes());
        }
        if let Some(part) = self.part {
            out.extend_from_slice(&part.first.to_le_bytes());
            write_varint(part.message_bytes, out);
        }
        write_varint(self.bytes.len() as u32, out);
        out.extend_from_slice(self.bytes);
    }

    /// Reads an entry. `is_reliable` answers for a lane, `None` if there is no such lane.
    pub(super) fn read(
        reader: &mut ByteReader<'a>,
        is_reliable: impl Fn(u8) -> Option<bool>,
    ) -> Result<Entry<'a>, PacketError> {
        let head = reader.u8()?;
        if head & !(LANE_MASK | PART) != 0 {
            return Err(PacketError::BadEntry);
        }
        let (lane, is_part) = (head & LANE_MASK, head & PART != 0);
        let has_number = is_part || is_reliable(lane).ok_or(PacketError::UnknownLane)?;
        let number = if has_number { Some(reader.u16()?) } else { None };
        let part = if is_part { Some(Part { first: reader.u16()?, message_bytes: reader.varint()? }) } else { None };
        let length = reader.varint()? as usize;
        let bytes = reader.take(length)?;
        if part.is_some_and(|part| !is_within(part, bytes.len())) {
            return Err(PacketError::BadEntry);
        }
        Ok(Entry { lane, number, part, bytes })
    }
}

/// Whether a part consists of whole pieces of its message and is not all of it.
fn is_within(part: Part, bytes: usize) -> bool {
    let (start, total) = (usize::from(part.first) * PIECE_BYTES, part.message_bytes as usize);
    let end = start + bytes;
    bytes > 0 && bytes < total && end <= total && (end == total || bytes.is_multiple_of(PIECE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Entry<'_>, PacketError> {
        Entry::read(&mut ByteReader::new(bytes), |lane| match lane {
            0 => Some(true),
            1 => Some(false),
            _ => None,
        })
    }

    #[test]
    fn entries_look_as_drawn() {
        let piece = [7u8; 256];
        let cases: [(Entry<'_>, &[u8]); 3] = [
            (Entry { lane: 0, number: Some(0x0102), part: None, bytes: b"hi" }, &[0, 2, 1, 2, b'h', b'i']),
            (Entry { lane: 1, number: None, part: None, bytes: b"" }, &[1, 0]),
            (
                Entry { lane: 1, number: Some(5), part: Some(Part { first: 1, message_bytes: 513 }), bytes: &piece },
                &[0b1001, 5, 0, 1, 0, 0x81, 4, 0x80, 2, 7],
            ),
        ];
        for (entry, head) in cases {
            let mut bytes = Vec::new();
            entry.write(&mut bytes);
            assert_eq!(bytes[..head.len()], *head);
            let length = entry.part.map(|part| part.message_bytes as usize);
            let head_bytes = Entry::head_bytes(entry.number.is_some(), length, entry.bytes.len());
            assert_eq!(bytes.len(), head_bytes + entry.bytes.len());
            assert_eq!(read(&bytes), Ok(entry));
        }
    }

    #[test]
    fn parts_outside_their_message_are_refused() {
        let part = |first, message_bytes, length: usize| {
            let bytes = vec![0; length];
            let mut out = Vec::new();
            Entry { lane: 0, number: Some(0), part: Some(Part { first, message_bytes }), bytes: &bytes }
                .write(&mut out);
            read(&out).map(|_| ())
        };
        assert_eq!(part(1, 600, 256), Ok(()));
        assert_eq!(part(1, 600, 344), Ok(()));
        for (first, message_bytes, length) in [(1, 600, 345), (1, 600, 100), (3, 600, 1), (0, 256, 256), (0, 600, 0)] {
            assert_eq!(
                part(first, message_bytes, length),
                Err(PacketError::BadEntry),
                "{first} {message_bytes} {length}"
            );
        }
        assert_eq!(read(&[2, 0]), Err(PacketError::UnknownLane));
        assert_eq!(read(&[0x10, 0]), Err(PacketError::BadEntry));
    }
}
