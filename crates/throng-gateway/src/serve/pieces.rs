//! Entries that wait for one connection, in memory that is hardly larger than they are.
//!
//! ```text
//!   push                                   pop
//!    --> [ last: has room ] [ full ] ... [ full ] -->
//!        little waits: a few KiB of the heap each
//!        much waits: pages of their own, which the kernel takes back at once
//! ```
//! One buffer that doubles as it grows would take up to twice what is in it, and as much again while it is copied. Long
//! pieces of the heap would leave holes between what lives longer: a third more was measured. Pages leave none, and those that
//! nobody has touched use no memory. The bytes of one push stay in one piece, so a piece holds whole entries.

use std::collections::VecDeque;
use std::ops::Deref;

use memmap2::MmapMut;

/// The room of a piece of the heap.
const HEAP_BYTES_MIN: usize = 2 << 10;
const HEAP_BYTES_MAX: usize = 8 << 10;
/// When so much waits, further pieces are pages.
const HEAP_QUEUE_BYTES: usize = 16 << 10;
/// The room of a piece of pages.
const PAGES_BYTES_MIN: usize = 64 << 10;
const PAGES_BYTES_MAX: usize = 256 << 10;
/// A new piece has room for this part of what waits already.
const ROOM_PARTS: usize = 4;
/// The size of a page of memory. On machines with larger pages, slightly more memory is used than is counted.
const PAGE_BYTES: usize = 4 << 10;
/// Memory that the allocator uses for its own records of an allocation.
pub(crate) const ALLOCATION_BYTES: usize = 16;

/// Entries that wait to be sent, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    pieces: VecDeque<Piece>,
    /// Bytes of entries.
    bytes: usize,
    /// Memory of the pieces.
    held_bytes: usize,
}

impl Pieces {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes of entries.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes + self.pieces.capacity() * size_of::<Piece>()
    }

    /// Appends whole entries.
    pub(crate) fn push(&mut self, entries: &[u8]) {
        if entries.is_empty() {
            return;
        }
        let last = match self.pieces.back_mut() {
            Some(last) if last.room_bytes() >= entries.len() => {
                self.held_bytes -= last.held_bytes();
                last
            }
            _ => {
                let room = self.bytes / ROOM_PARTS;
                let piece = match self.bytes + entries.len() {
                    0..HEAP_QUEUE_BYTES => {
                        Piece::of_heap(room.clamp(HEAP_BYTES_MIN, HEAP_BYTES_MAX).max(entries.len()))
                    }
                    _ => Piece::of_pages(room.clamp(PAGES_BYTES_MIN, PAGES_BYTES_MAX).max(entries.len())),
                };
                self.pieces.push_back(piece);
                let last = self.pieces.len() - 1;
                &mut self.pieces[last]
            }
        };
        last.append(entries);
        self.held_bytes += last.held_bytes();
        self.bytes += entries.len();
    }

    /// Takes the oldest piece.
    pub(crate) fn pop(&mut self) -> Option<Piece> {
        let piece = self.pieces.pop_front()?;
        self.bytes -= piece.len();
        self.held_bytes -= piece.held_bytes();
        if self.pieces.is_empty() {
            self.pieces = VecDeque::new();
        }
        Some(piece)
    }
}

/// Entries in one stretch of memory.
#[derive(Debug)]
pub(crate) struct Piece(Memory);

#[derive(Debug)]
enum Memory {
    Heap(Vec<u8>),
    /// Pages, and how many of their bytes are used.
    Pages(MmapMut, usize),
}

impl Piece {
    fn of_heap(bytes: usize) -> Piece {
        Piece(Memory::Heap(Vec::with_capacity(bytes)))
    }

    /// The heap, if the kernel gives no pages.
    fn of_pages(bytes: usize) -> Piece {
        match MmapMut::map_anon(bytes.next_multiple_of(PAGE_BYTES)) {
            Ok(pages) => Piece(Memory::Pages(pages, 0)),
            Err(_) => Piece::of_heap(bytes),
        }
    }

    fn room_bytes(&self) -> usize {
        match &self.0 {
            Memory::Heap(bytes) => bytes.capacity() - bytes.len(),
            Memory::Pages(pages, used) => pages.len() - used,
        }
    }

    /// There has to be room.
    fn append(&mut self, entries: &[u8]) {
        match &mut self.0 {
            Memory::Heap(bytes) => bytes.extend_from_slice(entries),
            Memory::Pages(pages, used) => {
                pages[*used..*used + entries.len()].copy_from_slice(entries);
                *used += entries.len();
            }
        }
    }

    /// Memory of the piece, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        match &self.0 {
            Memory::Heap(bytes) => held_bytes(bytes),
            Memory::Pages(_, used) => used.next_multiple_of(PAGE_BYTES),
        }
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Heap(bytes) => bytes,
            Memory::Pages(pages, used) => &pages[..*used],
        }
    }
}

/// Memory of a buffer, in bytes.
pub(crate) fn held_bytes(buffer: &Vec<u8>) -> usize {
    match buffer.capacity() {
        0 => 0,
        capacity => capacity + ALLOCATION_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(pieces: &mut Pieces) -> Vec<u8> {
        std::iter::from_fn(|| pieces.pop()).flat_map(|piece| piece.to_vec()).collect()
    }

    #[test]
    fn entries_come_out_as_they_went_in() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut pieces = Pieces::default();
        let (mut pushed, mut popped) = (Vec::new(), Vec::new());
        for _ in 0..2_000 {
            let entries = vec![random.u8(..); random.usize(0..3_000)];
            pieces.push(&entries);
            pushed.extend(entries);
            if random.u8(..) < 60 {
                popped.extend(pieces.pop().iter().flat_map(|piece| piece.to_vec()));
            }
            assert_eq!(pieces.bytes(), pushed.len() - popped.len());
        }
        popped.extend(take_all(&mut pieces));
        assert!(popped == pushed);
        assert!(pieces.is_empty());
        assert_eq!(pieces.held_bytes(), 0, "nothing is kept for a queue that is empty");
    }

    #[test]
    fn what_is_pushed_at_once_stays_together() {
        let mut pieces = Pieces::default();
        let lengths = [1, 5_000, 300_000, 3, 70_000, 70_000];
        for (number, bytes) in lengths.into_iter().enumerate() {
            pieces.push(&vec![number as u8; bytes]);
        }
        let mut seen = Vec::new();
        while let Some(piece) = pieces.pop() {
            for same in piece.chunk_by(|one, other| one == other) {
                seen.push(same.len());
            }
        }
        assert_eq!(seen, lengths);
    }

    #[test]
    fn a_queue_takes_hardly_more_than_what_is_in_it() {
        for bytes in [1, 50, 700, 5_000, 22_000, 33_000, 50_000, 64_000, 90_000, 400_000] {
            let mut pieces = Pieces::default();
            while pieces.bytes() < 4 << 20 {
                pieces.push(&vec![0; bytes]);
                let held = pieces.pieces.iter().map(Piece::held_bytes).sum::<usize>();
                assert_eq!(pieces.held_bytes, held);
                let list = pieces.pieces.capacity() * size_of::<Piece>();
                let least = pieces.bytes() / 8 + HEAP_BYTES_MIN + HEAP_BYTES_MAX;
                assert!(held + list <= pieces.bytes() + least, "{held} for {} of {bytes}", pieces.bytes());
            }
        }
    }
}
