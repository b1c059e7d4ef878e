//! Pieces on their way: how one is written into a packet, and what each packet in flight carries.

use std::collections::VecDeque;
use std::sync::Arc;

use throng_wire::{Room, Roomy, ShortTick, Tick};

use crate::encode::ENTRY_MAX_BYTES;
use crate::frame::Frame;
use crate::key::KEY_MAX_BYTES;
use crate::shared_view::SharedPieces;
use crate::subscription::Stage;

/// A segment that is to be sent, or was.
#[derive(Debug)]
pub(crate) struct Piece {
    /// `None`: the end of the subscription.
    pub(crate) frame: Option<Arc<Frame>>,
    pub(crate) opened: ShortTick,
    /// Where its reader stood when it was sent.
    pub(crate) since: ShortTick,
    pub(crate) segment: u32,
    pub(crate) subscription: u16,
    pub(crate) parity: bool,
    pub(crate) named: bool,
}

impl Piece {
    /// Where the subscription stood before it was sent this piece, if the piece is a whole frame of changes and nothing
    /// was sent after it. The subscription stands at `stands_at` now.
    pub(crate) fn is_all_since(&self, stage: Stage, stands_at: Tick) -> Option<Tick> {
        let frame = self.frame.as_ref()?;
        let since = self.since.until(frame.tick);
        let is_last = stage == Stage::Open && stands_at == frame.tick;
        (is_last && frame.segments.len() == 1 && since != frame.tick).then_some(since)
    }
}

/// A list of a connection that rests keeps the memory of so many entries, and none if it has room for more.
const RESTING_ROOM: usize = 8;

/// Gives back the memory of an empty list that has more room than a resting connection keeps.
pub(crate) fn give_back(list: &mut (impl Roomy + Default)) {
    if list.length() == 0 && list.room() > RESTING_ROOM {
        *list = Default::default();
    }
}

/// Makes room for more in a list that is full: for what a resting connection keeps, then for a step into the next cell, then step
/// by step for a join. Ten thousand that join at once leave holes in the heap as large as their longest lists.
pub(crate) fn make_room<T>(list: &mut VecDeque<T>) {
    const STEP_ROOM: usize = 4 * RESTING_ROOM;
    let len = list.len();
    if len == list.capacity() {
        list.reserve_exact(match len {
            0 => RESTING_ROOM,
            1..STEP_ROOM => STEP_ROOM - len,
            _ => len / 2,
        });
    }
}

/// Room that a packet must offer so that any piece fits: the longest segment with the longest head before it. In the
/// segment, 8 bytes stand before a run, 3 begin it, and the entry ends with a byte.
pub const PIECE_MAX_BYTES: usize = 3 + 5 + KEY_MAX_BYTES + 5 + 2 + 16 + ENTRY_MAX_BYTES;

/// The part of a packet that pieces may fill.
pub(crate) struct PieceWriter<'a> {
    pub(crate) buffer: &'a mut [u8],
    pub(crate) len: usize,
    /// The length of the last piece that did not fit.
    pub(crate) missed_bytes: usize,
}

impl PieceWriter<'_> {
    pub(crate) fn room(&self) -> usize {
        self.buffer.len() - self.len
    }

    /// Puts a segment that was just encoded, of a channel that the client knows. False, with nothing written, if there is
    /// not room for the longest head before it.
    #[inline]
    pub(crate) fn put_plain(&mut self, number: u16, body: &[u8]) -> bool {
        const HEAD_MAX_BYTES: usize = 8;
        if body.len() + HEAD_MAX_BYTES > self.room() || body.len() >= 1 << 14 {
            return false;
        }
        // The head is put together in a register, and what is too much of it is written over by the body.
        let (head, head_bytes) = varint_of_three(u32::from(number) << 2);
        let (length, length_bytes) = varint_of_three(body.len() as u32);
        let head = u64::from(head) | u64::from(length) << (8 * head_bytes);
        let (at, body_at) = (self.len, self.len + head_bytes + length_bytes);
        self.buffer[at..at + HEAD_MAX_BYTES].copy_from_slice(&head.to_le_bytes());
        self.len = body_at + body.len();
        self.buffer[body_at..self.len].copy_from_slice(body);
        true
    }

    pub(crate) fn put_segment(
        &mut self,
        number: u16,
        frame: &Frame,
        segment: u32,
        name: &[u8],
        opened: ShortTick,
        now: Tick,
    ) -> bool {
        let body = frame.segment_bytes(segment as usize);
        let age = now.since(frame.tick);
        let head = u64::from(number) << 2 | u64::from(!name.is_empty()) << 1 | u64::from(age > 0);
        let opened_ago = u64::from(now.since(opened.until(now)));
        let mut needed = varint_len(head) + varint_len(body.len() as u64) + body.len();
        if age > 0 {
            needed += varint_len(u64::from(age));
        }
        if !name.is_empty() {
            needed += name.len() + varint_len(opened_ago);
        }
        if needed > self.room() {
            self.missed_bytes = needed;
            return false;
        }
        self.put_varint(head);
        if age > 0 {
            self.put_varint(u64::from(age));
        }
        if !name.is_empty() {
            self.put(name);
            self.put_varint(opened_ago);
        }
        self.put_varint(body.len() as u64);
        self.put(body);
        true
    }

    fn put(&mut self, bytes: &[u8]) {
        self.buffer[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub(crate) fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.buffer[self.len] = value as u8 | 0x80;
            self.len += 1;
            value >>= 7;
        }
        self.buffer[self.len] = value as u8;
        self.len += 1;
    }
}

/// A number below 2^21 as a varint, lowest byte first, and its length.
#[inline]
fn varint_of_three(value: u32) -> (u32, usize) {
    let (low, middle, high) = (value & 0x7F, value >> 7 & 0x7F, value >> 14);
    match value {
        0..0x80 => (value, 1),
        0x80..0x4000 => (low | 0x80 | middle << 8, 2),
        _ => (low | 0x80 | (middle | 0x80) << 8 | high << 16, 3),
    }
}

fn varint_len(value: u64) -> usize {
    ((64 - (value | 1).leading_zeros()) as usize).div_ceil(7)
}

/// The segments in each packet in flight, in order of sequence.
#[derive(Debug, Default)]
pub(crate) struct PacketRecords {
    packets: VecDeque<PacketRecord>,
    pieces: VecDeque<Option<Piece>>,
    /// Number of the first of `pieces`, counted from the connection's start.
    base: u64,
    room: Room,
}

#[derive(Debug)]
struct PacketRecord {
    sequence: u64,
    first: u64,
    end: u64,
    shared: Option<SharedRange>,
    settled: bool,
}

/// Some pieces of a shared view, in a packet.
#[derive(Debug)]
pub(crate) struct SharedRange {
    pub(crate) first: u32,
    pub(crate) end: u32,
    pub(crate) pieces: Arc<SharedPieces>,
}

impl PacketRecords {
    /// See [`Connection::fetch`](crate::Connection::fetch).
    pub(crate) fn fetch(&self) -> u64 {
        self.base ^ (self.packets.len() ^ self.pieces.len()) as u64
    }

    /// See [`Connection::fetch_behind`](crate::Connection::fetch_behind).
    pub(crate) fn fetch_behind(&self) -> u64 {
        self.packets.front().map_or(0, |packet| packet.sequence ^ packet.end)
            ^ self.packets.back().map_or(0, |packet| packet.sequence ^ packet.end)
    }

    pub(crate) fn end(&self) -> u64 {
        self.base + self.pieces.len() as u64
    }

    pub(crate) fn push(&mut self, piece: Piece) {
        make_room(&mut self.pieces);
        self.pieces.push_back(Some(piece));
    }

    pub(crate) fn extend(&mut self, pieces: Option<Piece>) {
        self.pieces.extend(pieces.map(Some));
    }

    /// Packet `sequence` carries all that was pushed since `first`, which is [`PacketRecords::end`] of that time, and
    /// pieces of a shared view.
    pub(crate) fn push_packet(&mut self, sequence: u64, first: u64, shared: Option<SharedRange>) {
        let end = self.end();
        self.packets.push_back(PacketRecord { sequence, first, end, shared, settled: false });
        self.room.trim(&mut self.pieces);
    }

    /// Gives memory back if no pieces are under way that were written for this connection alone.
    pub(crate) fn give_back(&mut self) {
        give_back(&mut self.pieces);
    }

    /// The index of a packet that is neither acknowledged nor lost so far.
    pub(crate) fn find(&self, sequence: u64) -> Option<usize> {
        if self.packets.front().is_some_and(|packet| packet.sequence == sequence && !packet.settled) {
            return Some(0);
        }
        let place = self.packets.binary_search_by_key(&sequence, |packet| packet.sequence).ok()?;
        (!self.packets[place].settled).then_some(place)
    }

    /// The number of pieces that the packet at `place` carried.
    pub(crate) fn count_at(&self, place: usize) -> usize {
        let packet = &self.packets[place];
        (packet.end - packet.first) as usize
    }

    /// The segments that the packet at `place` carried.
    pub(crate) fn pieces_at(&self, place: usize) -> impl Iterator<Item = &Piece> {
        let packet = &self.packets[place];
        self.pieces.range((packet.first - self.base) as usize..(packet.end - self.base) as usize).flatten()
    }

    /// The shared pieces that the packet at `place` carried, once.
    pub(crate) fn take_shared(&mut self, place: usize) -> Option<SharedRange> {
        self.packets[place].shared.take()
    }

    /// Until when the fate of some shared pieces has to be known, if they are under way.
    pub(crate) fn shared_deadline(&self) -> Option<Tick> {
        let under_way = self.packets.iter().filter(|packet| !packet.settled);
        under_way.filter_map(|packet| Some(packet.shared.as_ref()?.pieces.deadline)).min()
    }

    /// Hands out what the packet at `place` carried, once, and forgets it.
    pub(crate) fn settle(&mut self, place: usize, mut each: impl FnMut(Piece)) {
        let packet = &mut self.packets[place];
        packet.settled = true;
        if place > 0 {
            for number in packet.first..packet.end {
                if let Some(piece) = self.pieces[(number - self.base) as usize].take() {
                    each(piece);
                }
            }
            return;
        }
        while let Some(packet) = self.packets.front().filter(|packet| packet.settled) {
            let count = packet.end - self.base;
            self.packets.pop_front();
            for _ in 0..count {
                if let Some(piece) = self.pieces.pop_front().flatten() {
                    each(piece);
                }
            }
            self.base += count;
        }
    }

    /// Packets that are remembered.
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Bytes of memory beyond the struct's own, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.pieces.capacity() * size_of::<Option<Piece>>() + self.packets.capacity() * size_of::<PacketRecord>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_head_is_written_as_any_other() {
        let written = |write: &dyn Fn(&mut PieceWriter<'_>)| {
            let mut buffer = vec![0; 20_000];
            let mut out = PieceWriter { buffer: &mut buffer, len: 0, missed_bytes: 0 };
            write(&mut out);
            let len = out.len;
            buffer.truncate(len);
            buffer
        };
        for number in [1, 31, 32, 4_095, 4_096, 5_555, u16::MAX] {
            for bytes in [1, 127, 128, 5_555, (1 << 14) - 1] {
                let body = vec![7; bytes];
                let plain = written(&|out| assert!(out.put_plain(number, &body)));
                let usual = written(&|out| {
                    out.put_varint(u64::from(number) << 2);
                    out.put_varint(bytes as u64);
                    out.put(&body);
                });
                assert!(plain == usual, "subscription {number}, {bytes} bytes");
            }
        }
    }
}
