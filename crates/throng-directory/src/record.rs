//! The formats of the directory: an entry of the store, and the messages of a move.
//!
//! ```text
//! entry    | 1 | owner u64 | term u64 | offer u64 |
//! part     | 1 | 1 | offer u64 | fence u64 | part u16 | parts u16 | key length u8 | key | bytes ... |
//! abort    | 1 | 2 | offer u64 | fence u64 | 0 u16    | 0 u16     | key length u8 | key |
//! hold     | 1 | 3 | offer u64 | fence u64 | 0 u16    | 0 u16     | key length u8 | key |
//! answer   | 1 | term u64: 0 is a refusal |
//! ```
//!
//! All numbers are little-endian. The offer is 0 in an entry that was claimed, and the number of the move in one that was moved to.

use bytes::{BufMut, Bytes, BytesMut};
use throng_bus::{Fence, MemberId, Revision, Subject};

use crate::HomeKey;

const VERSION: u8 = 1;
const PART: u8 = 1;
const ABORT: u8 = 2;
const HOLD: u8 = 3;

/// A home, as its entry in the store says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The member that serves it.
    pub owner: MemberId,
    /// The number of the owner's own lease. The home ends with it.
    pub term: Fence,
    /// The number of this home: that of the write that made the owner its owner.
    pub fence: Fence,
    pub(crate) offer: u64,
}

impl Home {
    /// Reads an entry of anybody. `None` if it is no home, or has numbers that are not possible.
    pub fn read(value: &[u8], revision: Revision) -> Option<Home> {
        let (&version, rest) = value.split_first()?;
        let [owner, term, offer] = numbers(rest)?;
        let is_possible = version == VERSION && rest.len() == 24 && term < revision.0;
        is_possible.then_some(Home { owner: MemberId(owner), term: Fence(term), fence: Fence(revision.0), offer })
    }

    pub(crate) fn value(owner: MemberId, term: Fence, offer: u64) -> Bytes {
        let mut value = BytesMut::with_capacity(25);
        value.put_u8(VERSION);
        [owner.0, term.0, offer].into_iter().for_each(|number| value.put_u64_le(number));
        value.freeze()
    }
}

/// A message of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) key: HomeKey,
    pub(crate) offer: u64,
    pub(crate) fence: Fence,
    pub(crate) content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Part `part` of `parts` of the state.
    Part { part: u16, parts: u16, bytes: Bytes },
    /// The state will not be needed.
    Abort,
    /// The state is still needed: its move is being written.
    Hold,
}

impl Note {
    pub(crate) fn encode(&self) -> Bytes {
        let key = self.key.home_subject();
        let (kind, part, parts, bytes) = match &self.content {
            Content::Part { part, parts, bytes } => (PART, *part, *parts, &bytes[..]),
            Content::Abort => (ABORT, 0, 0, &[][..]),
            Content::Hold => (HOLD, 0, 0, &[][..]),
        };
        let mut note = BytesMut::with_capacity(32 + key.as_str().len() + bytes.len());
        note.put_slice(&[VERSION, kind]);
        note.put_u64_le(self.offer);
        note.put_u64_le(self.fence.0);
        note.put_u16_le(part);
        note.put_u16_le(parts);
        note.put_u8(key.as_str().len() as u8);
        note.put_slice(key.as_str().as_bytes());
        note.put_slice(bytes);
        note.freeze()
    }

    /// Reads bytes of anybody.
    pub(crate) fn read(bytes: &Bytes) -> Option<Note> {
        let &[VERSION, kind, ..] = &bytes[..] else { return None };
        let [offer, fence] = numbers(bytes.get(2..)?)?;
        let &[p0, p1, n0, n1, length] = bytes.get(18..23)? else { return None };
        let (part, parts) = (u16::from_le_bytes([p0, p1]), u16::from_le_bytes([n0, n1]));
        let end = 23 + usize::from(length);
        let key = std::str::from_utf8(bytes.get(23..end)?).ok()?;
        let key = HomeKey::read(&Subject::new(key).ok()?)?;
        let is_bare = bytes.len() == end && part == 0 && parts == 0;
        let content = match kind {
            PART if part < parts => Content::Part { part, parts, bytes: bytes.slice(end..) },
            ABORT if is_bare => Content::Abort,
            HOLD if is_bare => Content::Hold,
            _ => return None,
        };
        Some(Note { key, offer, fence: Fence(fence), content })
    }
}

/// The answer to a part: the term of the member that takes it, or a refusal.
pub(crate) fn answer(term: Option<Fence>) -> Bytes {
    let mut answer = BytesMut::with_capacity(9);
    answer.put_u8(VERSION);
    answer.put_u64_le(term.map_or(0, |term| term.0));
    answer.freeze()
}

pub(crate) fn read_answer(bytes: &[u8]) -> Option<Fence> {
    let (&version, rest) = bytes.split_first()?;
    let [term] = numbers(rest)?;
    (version == VERSION && rest.len() == 8 && term != 0).then_some(Fence(term))
}

fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    for (number, bytes) in numbers.iter_mut().zip(bytes.get(..8 * N)?.chunks_exact(8)) {
        *number = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_as_drawn_and_read_as_they_were_written() {
        let content = Content::Part { part: 1, parts: 3, bytes: Bytes::from_static(b"hi") };
        let note = Note { key: HomeKey::Channel(7), offer: 2, fence: Fence(3), content };
        let mut expected = vec![1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 3, 0, 14];
        expected.extend(b"home.channel.7hi");
        assert_eq!(&note.encode()[..], &expected[..]);
        assert_eq!(Note::read(&note.encode()), Some(note.clone()));
        for (kind, content) in [(2, Content::Abort), (3, Content::Hold)] {
            let bare = Note { content, ..note.clone() };
            assert_eq!((bare.encode()[1], Note::read(&bare.encode())), (kind, Some(bare)));
        }
        assert_eq!(read_answer(&answer(Some(Fence(9)))), Some(Fence(9)));
        assert_eq!(read_answer(&answer(None)), None);
        let value = Home::value(MemberId(4), Fence(5), 6);
        let home = Home { owner: MemberId(4), term: Fence(5), fence: Fence(8), offer: 6 };
        assert_eq!(Home::read(&value, Revision(8)), Some(home));
        assert_eq!(Home::read(&value, Revision(5)), None);
    }
}
