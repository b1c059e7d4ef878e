//! Sealed packets that wait between two ticks for the time at which they are to leave.
//!
//! They belong to the few clients whose path is the bound (`throng_link`'s `pace.rs`), or did not fit into a full socket.
//! All others are sent their packets at once. The packets of one tick are gone before the next tick adds its own.

use throng_net::Transmit;
use throng_wire::{ConnectionId, Time};

/// The waiting packets of one thread that writes.
#[derive(Debug, Default)]
pub(crate) struct Held {
    packets: Vec<Packet>,
    bytes: Vec<u8>,
    /// Those of `packets` before this one are gone.
    gone: usize,
    is_sorted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    departs: Time,
    to: ConnectionId,
    start: u32,
    len: u32,
}

/// Packets of one connection that leave together: all of one length, but the last may be shorter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Batch<'a> {
    pub(crate) to: ConnectionId,
    pub(crate) bytes: &'a [u8],
    pub(crate) segment_bytes: usize,
}

/// Packets that have left, with their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Held {
    /// Takes a packet. Those of one connection are given in the order of their departure.
    pub(crate) fn push(&mut self, departs: Time, to: ConnectionId, packet: &[u8]) {
        if self.is_empty() {
            self.packets.clear();
            self.bytes.clear();
            self.gone = 0;
        }
        let (start, len) = (self.bytes.len() as u32, packet.len() as u32);
        self.bytes.extend_from_slice(packet);
        self.packets.push(Packet { departs, to, start, len });
        self.is_sorted = false;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.gone == self.packets.len()
    }

    /// Takes out what departs by `due`.
    pub(crate) fn take_due(&mut self, due: Time) -> impl Iterator<Item = Batch<'_>> {
        let waiting = &mut self.packets[self.gone..];
        if !std::mem::replace(&mut self.is_sorted, true) {
            waiting.sort_unstable_by_key(|packet| (packet.departs, packet.start));
        }
        let count = waiting.partition_point(|packet| packet.departs <= due);
        // A connection's packets lie behind each other.
        waiting[..count].sort_unstable_by_key(|packet| packet.start);
        let leaving = self.gone..self.gone + count;
        self.gone = leaving.end;
        let (packets, bytes) = (&self.packets[leaving], &self.bytes[..]);
        let in_row = packets.chunk_by(|one, next| one.to == next.to && one.start + one.len == next.start);
        in_row.flat_map(|row| batches(row, bytes))
    }
}

/// Packets that lie behind each other.
fn batches<'a>(mut packets: &'a [Packet], bytes: &'a [u8]) -> impl Iterator<Item = Batch<'a>> {
    std::iter::from_fn(move || {
        let first = *packets.first()?;
        let count = Transmit::fitting(packets.iter().map(|packet| packet.len as usize));
        let last = packets[count - 1];
        packets = &packets[count..];
        let bytes = &bytes[first.start as usize..(last.start + last.len) as usize];
        Some(Batch { to: first.to, bytes, segment_bytes: first.len as usize })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_waits_for_its_time_and_those_of_one_time_leave_together() {
        let id = |index| ConnectionId { index, generation: 0 };
        let mut held = Held::default();
        let mut seen = Vec::new();
        for round in 0..3u64 {
            for (at, index, packet) in [(10, 1, "aa"), (11, 1, "bb"), (20, 1, "c"), (5, 2, "dd"), (21, 2, "ee")] {
                held.push(Time(100 * round + at), id(index), packet.as_bytes());
            }
            for due in [4, 5, 15, 30] {
                let due = Time(100 * round + due);
                let batches = held.take_due(due).map(|batch| {
                    (batch.to.index, String::from_utf8_lossy(batch.bytes).into_owned(), batch.segment_bytes)
                });
                seen.push(batches.collect::<Vec<_>>());
            }
            let batch = |index, bytes: &str, segment| (index, bytes.to_owned(), segment);
            let expected =
                [vec![], vec![batch(2, "dd", 2)], vec![batch(1, "aabb", 2)], vec![batch(1, "c", 1), batch(2, "ee", 2)]];
            assert_eq!(std::mem::take(&mut seen), expected);
        }
        assert!(held.bytes.len() < 20, "{} bytes are kept", held.bytes.len());
    }
}
