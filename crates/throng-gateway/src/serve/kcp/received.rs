//! The memory of the segments that the machine has received and nobody has read.
//!
//! The machine does not tell what it holds, so its two lists are repeated here, without the data: segments that wait for
//! an earlier one, and segments in order that wait for the reader.

use std::collections::{BTreeMap, VecDeque};

use super::segment::{Segment, WINDOW_IN};

/// Memory of a segment in the state machine and here, without its data.
const SEGMENT_BYTES: usize = 160;

/// A segment as it is counted: its bytes of data, and whether it is the last one of its message.
#[derive(Clone, Copy, Debug)]
struct Kept {
    data_bytes: usize,
    is_last: bool,
}

/// The segments of a conversation that are held.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// The number of the next segment in order.
    next: u32,
    ahead: BTreeMap<u32, Kept>,
    in_order: VecDeque<Kept>,
    /// Of both.
    bytes: usize,
    ahead_bytes: usize,
}

impl Received {
    /// Whether a segment may be taken, if those in order and those ahead of a gap have so many bytes at most. A segment that is here
    /// already may be taken again: it has to be acknowledged again.
    pub(super) fn has_room(&self, segment: &Segment, most_bytes: usize) -> bool {
        let ahead = segment.number.wrapping_sub(self.next);
        if ahead == 0 {
            return self.bytes - self.ahead_bytes < most_bytes;
        }
        let is_known = ahead >= u32::from(WINDOW_IN) || self.ahead.contains_key(&segment.number);
        is_known || self.ahead_bytes + segment.data_bytes < most_bytes
    }

    /// Notes the segments of a datagram that the machine has taken.
    pub(super) fn note(&mut self, datagram: &[u8]) {
        for segment in Segment::all(datagram).filter(Segment::has_data) {
            let is_in_window = segment.number.wrapping_sub(self.next) < u32::from(WINDOW_IN);
            if is_in_window && !self.ahead.contains_key(&segment.number) {
                let kept = Kept { data_bytes: segment.data_bytes, is_last: segment.is_last() };
                self.ahead.insert(segment.number, kept);
                self.bytes += kept.data_bytes + SEGMENT_BYTES;
                self.ahead_bytes += kept.data_bytes + SEGMENT_BYTES;
            }
            self.put_in_order();
        }
    }

    /// The reader has taken a message.
    pub(super) fn take_message(&mut self) {
        while let Some(kept) = self.in_order.pop_front() {
            self.bytes -= kept.data_bytes + SEGMENT_BYTES;
            if kept.is_last {
                break;
            }
        }
        self.put_in_order();
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn put_in_order(&mut self) {
        while self.in_order.len() < usize::from(WINDOW_IN)
            && let Some(kept) = self.ahead.remove(&self.next)
        {
            self.ahead_bytes -= kept.data_bytes + SEGMENT_BYTES;
            self.in_order.push_back(kept);
            self.next = self.next.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::sink;

    use kcp::Kcp;

    use super::super::segment::{PUSH, segment};
    use super::*;

    const DATA_BYTES: usize = 100;

    fn push(number: u32, fragment: u8) -> Vec<u8> {
        let mut segment = segment(PUSH, 0, number, &[1; DATA_BYTES]);
        segment[5] = fragment;
        segment
    }

    #[test]
    fn data_in_order_and_ahead_of_a_gap_has_room_each_and_no_gap_stays_open() {
        let segment = |number: u32| Segment::first(&push(number, 0)).expect("a segment");
        let most_bytes = 10 * (DATA_BYTES + SEGMENT_BYTES);
        let mut received = Received::default();
        // The first one is missing.
        let ahead = (1..200).filter(|&number| {
            let has_room = received.has_room(&segment(number), most_bytes);
            if has_room {
                received.note(&push(number, 0));
            }
            has_room
        });
        assert_eq!(ahead.count(), 10);
        assert!(received.has_room(&segment(0), most_bytes) && received.has_room(&segment(3), most_bytes));
        received.note(&push(0, 0));
        assert_eq!(received.bytes(), 11 * (DATA_BYTES + SEGMENT_BYTES));
        // Now it is the reader's turn.
        assert!(!received.has_room(&segment(11), most_bytes) && !received.has_room(&segment(11), 0));
        (0..11).for_each(|_| received.take_message());
        assert!(received.has_room(&segment(11), most_bytes));
        assert_eq!((received.bytes(), received.ahead_bytes), (0, 0));
    }

    #[test]
    fn what_is_counted_is_what_the_machine_gives_out_in_the_end() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..50 {
            let (mut machine, mut received) = (Kcp::new_stream(7, sink()), Received::default());
            machine.set_wndsize(64, WINDOW_IN);
            machine.update(0).expect("it runs");
            let mut read = 0;
            for _ in 0..2_000 {
                if random.u8(0..10) == 0 {
                    let mut room = vec![0; 300 * DATA_BYTES];
                    while let Ok(bytes) = machine.recv(&mut room) {
                        received.take_message();
                        read += bytes / DATA_BYTES;
                    }
                }
                // Messages of two segments, some of them far ahead or known.
                let number = (read as u32 / 2 * 2 + random.u32(0..700)).saturating_sub(20);
                let datagram = push(number, 1 - (number % 2) as u8);
                machine.input(&datagram).expect("sound");
                received.note(&datagram);
            }
            let next = received.next;
            // The missing segments arrive, and everything can be read.
            for number in next.saturating_sub(1)..next + 600 {
                machine.input(&push(number, 1 - (number % 2) as u8)).expect("sound");
                received.note(&push(number, 1 - (number % 2) as u8));
                let mut room = vec![0; 300 * DATA_BYTES];
                while machine.recv(&mut room).is_ok() {
                    received.take_message();
                }
            }
            let held = received.bytes() / (DATA_BYTES + SEGMENT_BYTES);
            assert!(held <= 1, "{held} segments");
        }
    }

    #[test]
    fn segments_that_wait_for_one_that_is_lost_are_counted_once_each() {
        let mut received = Received::default();
        for _ in 0..3 {
            (1..1_000).for_each(|number| received.note(&push(number, 0)));
        }
        assert_eq!(received.bytes(), 255 * (DATA_BYTES + SEGMENT_BYTES));
        received.note(&push(0, 0));
        assert_eq!(received.bytes(), 256 * (DATA_BYTES + SEGMENT_BYTES));
        (0..256).for_each(|_| received.take_message());
        assert_eq!(received.bytes(), 0);
    }
}
