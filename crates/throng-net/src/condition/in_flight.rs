use std::cmp::Ordering;
use std::collections::BinaryHeap;

use throng_wire::Time;

use super::Fate;
use crate::ConditionCounters;

/// Buffers beyond this capacity are given back to the allocator instead of being kept: a few jumbo datagrams shall
/// not fix their size for all.
const KEPT_BUFFER_BYTES: usize = 2_048;

/// Datagrams under way, each with the time of its arrival and a tag (its peer, say).
///
/// Those that arrive at the same time come out in the order in which they went in. Memory is bounded by
/// [`InFlightLimit`]; buffers are reused.
#[derive(Debug)]
pub struct InFlight<T> {
    heap: BinaryHeap<Entry<T>>,
    spare: Vec<Vec<u8>>,
    /// The datagram that [`pop`](InFlight::pop) lent last.
    lent: Vec<u8>,
    bytes: usize,
    limit: InFlightLimit,
    next_sequence: u64,
}

/// How much may be under way. Further datagrams are dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlightLimit {
    /// Datagrams.
    pub datagrams: usize,
    /// Their payload bytes together.
    pub bytes: usize,
}

impl InFlightLimit {
    /// For one peer: 4,096 datagrams, 4 MiB.
    pub const PEER: InFlightLimit = InFlightLimit { datagrams: 4_096, bytes: 4 << 20 };
    /// For a server's socket: 1,048,576 datagrams, 1 GiB.
    pub const SERVER: InFlightLimit = InFlightLimit { datagrams: 1 << 20, bytes: 1 << 30 };
}

/// A datagram that has arrived.
#[derive(Debug, PartialEq, Eq)]
pub struct Arrival<'a, T> {
    /// When it arrived: at or before the time asked for.
    pub at: Time,
    /// The tag given with it.
    pub tag: T,
    /// Its contents, valid until the next call.
    pub bytes: &'a mut [u8],
}

impl<T> InFlight<T> {
    /// Nothing under way. Allocates as it fills.
    pub fn new(limit: InFlightLimit) -> InFlight<T> {
        InFlight { heap: BinaryHeap::new(), spare: Vec::new(), lent: Vec::new(), bytes: 0, limit, next_sequence: 0 }
    }

    /// Puts a datagram on its way. Returns false, and does nothing, when the limit is reached.
    pub fn push(&mut self, at: Time, tag: T, bytes: &[u8]) -> bool {
        if self.heap.len() >= self.limit.datagrams || self.bytes + bytes.len() > self.limit.bytes {
            return false;
        }
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        self.bytes += bytes.len();
        self.heap.push(Entry { at, sequence: self.next_sequence, tag, bytes: buffer });
        self.next_sequence += 1;
        true
    }

    /// The next datagram that arrived at or before `now`.
    pub fn pop(&mut self, now: Time) -> Option<Arrival<'_, T>> {
        self.keep_lent();
        if self.next_at()? > now {
            return None;
        }
        let entry = self.heap.pop()?;
        self.bytes -= entry.bytes.len();
        self.lent = entry.bytes;
        Some(Arrival { at: entry.at, tag: entry.tag, bytes: &mut self.lent })
    }

    /// When the next datagram arrives.
    pub fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// How many datagrams are under way.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    fn keep_lent(&mut self) {
        let buffer = std::mem::take(&mut self.lent);
        if (1..=KEPT_BUFFER_BYTES).contains(&buffer.capacity()) {
            self.spare.push(buffer);
        }
    }
}

impl<T: Copy> InFlight<T> {
    /// Puts a datagram and its copy on their way as `fate` says, and counts both.
    pub(crate) fn follow(&mut self, fate: Fate, tag: T, bytes: &[u8], counters: &mut ConditionCounters) {
        counters.count_fate(&fate);
        let Fate::Arrives { at, copy_at, .. } = fate else { return };
        for at in std::iter::once(at).chain(copy_at) {
            counters.dropped_by_memory += u64::from(!self.push(at, tag, bytes));
        }
    }
}

#[derive(Debug)]
struct Entry<T> {
    at: Time,
    sequence: u64,
    tag: T,
    bytes: Vec<u8>,
}

impl<T> Ord for Entry<T> {
    /// The heap gives out the greatest: the earliest, and of equals the first pushed.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_come_out_by_time_and_then_in_order() {
        let mut flight = InFlight::new(InFlightLimit::PEER);
        for (at, tag) in [(30, 'd'), (10, 'a'), (20, 'b'), (20, 'c')] {
            assert!(flight.push(Time(at), tag, &[tag as u8]));
        }
        let mut seen = Vec::new();
        while let Some(arrival) = flight.pop(Time(25)) {
            assert_eq!(arrival.bytes, [arrival.tag as u8]);
            seen.push(arrival.tag);
        }
        assert_eq!(seen, ['a', 'b', 'c']);
        assert_eq!(flight.next_at(), Some(Time(30)));
    }

    #[test]
    fn both_limits_hold() {
        let mut flight = InFlight::new(InFlightLimit { datagrams: 2, bytes: 10 });
        assert!(flight.push(Time(1), (), &[0; 8]));
        assert!(!flight.push(Time(1), (), &[0; 3]));
        assert!(flight.push(Time(1), (), &[0; 2]));
        assert!(!flight.push(Time(1), (), &[]));
        assert!(flight.pop(Time(1)).is_some());
        assert!(flight.push(Time(1), (), &[0; 8]));
        assert_eq!(flight.len(), 2);
    }

    #[test]
    fn buffers_are_reused_but_jumbo_ones_are_not_kept() {
        let mut flight = InFlight::new(InFlightLimit::PEER);
        for bytes in [100, 60_000, 1_000] {
            assert!(flight.push(Time(1), (), &vec![0; bytes]));
        }
        while flight.pop(Time(1)).is_some() {}
        assert_eq!(flight.spare.len(), 2);
        assert!(flight.push(Time(2), (), &[0; 50]));
        assert_eq!(flight.spare.len(), 1);
    }
}
