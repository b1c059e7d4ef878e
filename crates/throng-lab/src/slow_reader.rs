//! A reader that is slow for a while: it takes a few datagrams in a second, and the rest wait as in the buffer of a socket.
//!
//! The buffer is one of this program and not of the kernel, so that what finds no room in it can be counted exactly.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::Time;
use throng::net::{Driver, ReceiveError, Wrapper};

/// A slow reader takes a datagram in this time.
const READ_INTERVAL: Duration = Duration::from_millis(250);
/// The buffer of a socket, as Linux gives it to a program that asks for nothing.
const BUFFER_BYTES: usize = 212_992;
/// The kernel counts so much more for each datagram.
const DATAGRAM_OVERHEAD_BYTES: usize = 768;

/// The fate of datagrams, or of writes, while their process was slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Read {
    /// They had to wait.
    pub(crate) delayed: u64,
    /// They found no room.
    pub(crate) lost: u64,
}

/// Makes its drivers slow readers, and quick ones again.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlowReader(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_slow: AtomicBool,
    delayed: AtomicU64,
    lost: AtomicU64,
}

impl SlowReader {
    /// A driver that reads slowly while this says so.
    pub(crate) fn driver(&self, inner: Box<dyn Driver>) -> SlowDriver {
        SlowDriver { inner, slow: self.clone(), waiting: VecDeque::new(), waiting_bytes: 0, next_read: Time(0) }
    }

    pub(crate) fn set(&self, is_slow: bool) {
        self.0.is_slow.store(is_slow, Ordering::Relaxed);
    }

    /// So far.
    pub(crate) fn read(&self) -> Read {
        Read { delayed: self.0.delayed.load(Ordering::Relaxed), lost: self.0.lost.load(Ordering::Relaxed) }
    }

    fn is_slow(&self) -> bool {
        self.0.is_slow.load(Ordering::Relaxed)
    }
}

/// See [`SlowReader::driver`].
pub(crate) struct SlowDriver {
    inner: Box<dyn Driver>,
    slow: SlowReader,
    /// Arrival, sender and bytes of what is not read yet, oldest first.
    waiting: VecDeque<(Time, SocketAddr, Vec<u8>)>,
    waiting_bytes: usize,
    next_read: Time,
}

impl SlowDriver {
    /// Takes all that has come into the buffer.
    fn fill(&mut self, now: Time) -> Result<(), ReceiveError> {
        let SlowDriver { inner, slow, waiting, waiting_bytes, .. } = self;
        let received = inner.receive(now, &mut |arrived, from, bytes| {
            let room = bytes.len() + DATAGRAM_OVERHEAD_BYTES;
            let (count, fits) = match *waiting_bytes + room <= BUFFER_BYTES {
                true => (&slow.0.delayed, true),
                false => (&slow.0.lost, false),
            };
            count.fetch_add(1, Ordering::Relaxed);
            if fits {
                *waiting_bytes += room;
                waiting.push_back((arrived, from, bytes.to_vec()));
            }
        });
        received.map(drop)
    }

    /// Hands over so many of those that wait.
    fn read(&mut self, most: usize, sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8])) -> usize {
        let count = most.min(self.waiting.len());
        for (arrived, from, mut bytes) in self.waiting.drain(..count) {
            self.waiting_bytes -= bytes.len() + DATAGRAM_OVERHEAD_BYTES;
            sink(arrived, from, &mut bytes);
        }
        count
    }
}

impl Wrapper for SlowDriver {
    type Inner = Box<dyn Driver>;

    fn inner(&self) -> &Box<dyn Driver> {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut Box<dyn Driver> {
        &mut self.inner
    }

    fn wrap_receive(
        &mut self,
        now: Time,
        sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8]),
    ) -> Result<usize, ReceiveError> {
        if !self.slow.is_slow() {
            let waited = self.read(usize::MAX, sink);
            return self.inner.receive(now, sink).map(|received| waited + received);
        }
        self.fill(now)?;
        if now < self.next_read {
            return Ok(0);
        }
        self.next_read = now.after(READ_INTERVAL);
        Ok(self.read(1, sink))
    }
}

#[cfg(test)]
mod tests {
    use throng::net::{Transmit, UdpDriver, UdpOptions};

    use super::*;

    #[test]
    fn a_slow_reader_takes_little_keeps_a_bounded_rest_and_counts_what_finds_no_room() {
        let bind = || UdpDriver::bind(([127, 0, 0, 1], 0).into(), &UdpOptions::client()).expect("a port");
        let (slow, mut sender) = (SlowReader::default(), bind());
        let mut driver = slow.driver(Box::new(bind()));
        let there = driver.local_address();
        let mut numbers = Vec::new();
        // The datagrams that are read at a moment, by the number in each.
        let mut turn = |driver: &mut SlowDriver, sent: std::ops::Range<u16>, now_ms: u64| {
            for number in sent {
                let mut bytes = [0; 1_200];
                bytes[..2].copy_from_slice(&number.to_le_bytes());
                sender.send(Time(0), &Transmit::single(there, &bytes)).expect("loopback");
            }
            numbers.clear();
            let sink = &mut |_, _, bytes: &mut [u8]| numbers.push(u16::from_le_bytes([bytes[0], bytes[1]]));
            driver.receive(Time(now_ms * 1_000), sink).expect("loopback");
            numbers.clone()
        };
        assert_eq!(turn(&mut driver, 0..3, 1_000), [0, 1, 2]);
        slow.set(true);
        assert_eq!(turn(&mut driver, 3..8, 1_010), [3]);
        assert_eq!(turn(&mut driver, 8..10, 1_200), [0; 0]);
        assert_eq!(turn(&mut driver, 10..10, 1_260), [4]);
        assert_eq!(slow.read(), Read { delayed: 7, lost: 0 });
        // Those that wait are 5 to 9. In all, 108 find room: the others are lost.
        for first in (10..210).step_by(20) {
            turn(&mut driver, first..first + 20, 1_261);
        }
        let kept = BUFFER_BYTES / (1_200 + DATAGRAM_OVERHEAD_BYTES);
        assert_eq!((driver.waiting.len(), slow.read().lost), (kept, 205 - kept as u64));
        slow.set(false);
        let rest = turn(&mut driver, 500..501, 1_262);
        assert_eq!((rest.len(), rest[0], rest.last()), (kept + 1, 5, Some(&500)), "all that waits is read, in order");
        assert_eq!((driver.waiting_bytes, turn(&mut driver, 600..601, 1_263)), (0, vec![600]));
    }
}
