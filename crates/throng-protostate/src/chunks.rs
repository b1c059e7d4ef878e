//! Encoded changes: byte strings that a receiver merges one after the other, and who wrote which bytes of them.
//!
//! ```text
//!  chunk 0                                          chunk 1
//!  | field | entry | entry | entry | entry |        | entry | entry | ...
//!  |<--- writer 7 --->|<- 9 ->|<- several ->|
//!        part 0         part 1    mixed
//! ```
//!
//! Each chunk is a complete message of the state's type, and so is what remains when some of its parts are cut out: a
//! part begins and ends between two fields of the outermost message. So a subscriber that does not receive its own
//! updates gets the chunk without its parts, copied, not encoded again.

use std::ops::Range;

/// Bytes of one chunk that one connection wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// The connection.
    pub writer: u32,
    /// First byte, in the chunk.
    pub start: u32,
    /// End, in the chunk.
    pub end: u32,
}

impl Part {
    /// The bytes, as a range of the chunk's.
    pub fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// A connection's view of encoded changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Involvement {
    /// It wrote nothing of them.
    None,
    /// Its writes can be left out: [`Chunk::without`].
    Parts,
    /// It wrote fields of a map entry of which others wrote other fields, and an entry cannot be said in two halves.
    /// Without its own updates the changes must be encoded for it alone.
    Mixed,
}

/// The result of an encoding; used again and again, so that a steady state allocates nothing.
#[derive(Debug, Default)]
pub struct Chunks {
    pub(super) bytes: Vec<u8>,
    ends: Vec<ChunkEnd>,
    /// Of each chunk: sorted by writer, then by place.
    parts: Vec<Part>,
    pub(super) mixed: Vec<u32>,
    pub(super) oversized: u32,
    /// Elements are appended to lists.
    pub(super) appends: bool,
    /// Scratch of the encoder.
    pub(super) slots: Vec<u32>,
    pub(super) tail: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct ChunkEnd {
    byte: usize,
    part: usize,
}

/// One message to be merged.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The message's bytes.
    pub value: &'a [u8],
    /// The byte ranges of each writer, sorted by writer and then by place. Bytes of several writers belong to no part.
    pub parts: &'a [Part],
}

impl<'a> Chunk<'a> {
    /// The parts that `writer` wrote, in order.
    pub fn parts_of(&self, writer: u32) -> &'a [Part] {
        let start = self.parts.partition_point(|part| part.writer < writer);
        let length = self.parts[start..].partition_point(|part| part.writer == writer);
        &self.parts[start..start + length]
    }

    /// Bytes of [`Chunk::without`].
    pub fn len_without(&self, writer: u32) -> usize {
        self.value.len() - self.parts_of(writer).iter().map(|part| part.range().len()).sum::<usize>()
    }

    /// The message without what `writer` wrote, in pieces to be put together. Only right if
    /// [`Chunks::involvement`] is not [`Involvement::Mixed`].
    pub fn without(&self, writer: u32) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let value = self.value;
        let mut parts = self.parts_of(writer).iter();
        let mut at = Some(0);
        std::iter::from_fn(move || {
            let start = at?;
            match parts.next() {
                Some(part) => {
                    at = Some(part.end as usize);
                    Some(&value[start..part.start as usize])
                }
                None => {
                    at = None;
                    Some(&value[start..])
                }
            }
        })
        .filter(|piece| !piece.is_empty())
    }
}

impl Chunks {
    /// No chunks yet.
    pub fn new() -> Chunks {
        Chunks::default()
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.parts.clear();
        self.mixed.clear();
        self.oversized = 0;
        self.appends = false;
        self.slots.clear();
        self.tail.clear();
    }

    /// Number of chunks; 0 when there was nothing to say.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there was nothing to say.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all chunks together.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Values that do not fit into a chunk and cannot be cut: each is in a chunk of its own that is too long.
    pub fn oversized(&self) -> u32 {
        self.oversized
    }

    /// Whether a receiver that merges the same chunks twice has list elements twice.
    pub fn appends(&self) -> bool {
        self.appends
    }

    /// Chunk `index`; they are to be merged in order.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn chunk(&self, index: usize) -> Chunk<'_> {
        let before = match index {
            0 => ChunkEnd { byte: 0, part: 0 },
            _ => self.ends[index - 1],
        };
        let end = self.ends[index];
        Chunk { value: &self.bytes[before.byte..end.byte], parts: &self.parts[before.part..end.part] }
    }

    /// All chunks, in the order in which they are to be merged.
    pub fn iter(&self) -> impl Iterator<Item = Chunk<'_>> {
        (0..self.len()).map(|index| self.chunk(index))
    }

    /// The relation of `writer` to these changes.
    pub fn involvement(&self, writer: u32) -> Involvement {
        if self.mixed.binary_search(&writer).is_ok() {
            Involvement::Mixed
        } else if self.iter().any(|chunk| !chunk.parts_of(writer).is_empty()) {
            Involvement::Parts
        } else {
            Involvement::None
        }
    }

    /// The writers whose [`Involvement`] is mixed, in ascending order.
    pub fn mixed_writers(&self) -> &[u32] {
        &self.mixed
    }

    /// Where the chunk that is being written begins.
    pub(super) fn open_start(&self) -> usize {
        self.ends.last().map_or(0, |end| end.byte)
    }

    /// Notes that `writer` wrote the bytes from `start` (of the chunk) to the end.
    pub(super) fn push_part(&mut self, writer: u32, start: usize) {
        let end = self.bytes.len() - self.open_start();
        let first = self.ends.last().map_or(0, |end| end.part);
        if let Some(last) = self.parts[first..].last_mut()
            && last.writer == writer
            && last.end as usize == start
        {
            last.end = end as u32;
        } else if end > start {
            self.parts.push(Part { writer, start: start as u32, end: end as u32 });
        }
    }

    /// Ends the chunk that is being written, if anything is in it.
    pub(super) fn end_chunk(&mut self) {
        if self.bytes.len() == self.open_start() {
            return;
        }
        let first = self.ends.last().map_or(0, |end| end.part);
        if !self.parts[first..].is_sorted() {
            self.parts[first..].sort_unstable();
        }
        self.ends.push(ChunkEnd { byte: self.bytes.len(), part: self.parts.len() });
    }

    /// Ends the last chunk.
    pub(super) fn finish(&mut self) {
        self.end_chunk();
        self.mixed.sort_unstable();
        self.mixed.dedup();
    }
}
