//! Datagrams of addresses that are not connected, kept until those of connections are handled.

use super::counters::DropReason;
use super::packet::REQUEST_LEN;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// A bounded queue in front of a [`ServerHandshake`](super::ServerHandshake): a flood of requests does not delay a player's
/// input.
#[derive(Debug, Default)]
pub struct Strangers {
    /// The datagrams, one behind the other, and from where on they are not taken yet.
    bytes: Vec<u8>,
    taken_bytes: usize,
    senders: VecDeque<(SocketAddr, usize)>,
    len_max: usize,
}

impl Strangers {
    /// A queue for `len_max` datagrams.
    pub fn new(len_max: usize) -> Strangers {
        Strangers { len_max, ..Strangers::default() }
    }

    /// How many datagrams wait.
    pub fn len(&self) -> usize {
        self.senders.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    /// Keeps a copy of a datagram.
    ///
    /// # Errors
    /// [`DropReason::TooManyRequests`]: too many wait. The client will ask again.
    pub fn keep(&mut self, from: SocketAddr, datagram: &[u8]) -> Result<(), DropReason> {
        if self.senders.len() >= self.len_max {
            return Err(DropReason::TooManyRequests);
        }
        // At least as many bytes are given back as are moved, also if the queue is never empty.
        if self.taken_bytes >= self.bytes.len() - self.taken_bytes {
            self.bytes.drain(..self.taken_bytes);
            self.taken_bytes = 0;
        }
        // No packet for the door is longer than a request. Of a longer one, one byte more tells that it is.
        let kept = &datagram[..datagram.len().min(REQUEST_LEN + 1)];
        self.senders.push_back((from, kept.len()));
        self.bytes.extend_from_slice(kept);
        Ok(())
    }

    /// The next datagram, and its sender.
    pub fn take(&mut self) -> Option<(SocketAddr, &mut [u8])> {
        let (from, len) = self.senders.pop_front()?;
        let start = self.taken_bytes;
        self.taken_bytes += len;
        Some((from, &mut self.bytes[start..start + len]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_out_as_they_went_in_and_no_more_than_there_is_room_for() {
        let mut strangers = Strangers::new(2);
        let from = |port| SocketAddr::from(([10, 0, 0, 1], port));
        for _ in 0..3 {
            assert_eq!(strangers.keep(from(1), &[7; 5_000]), Ok(()));
            assert_eq!(strangers.keep(from(2), b"two"), Ok(()));
            assert_eq!(strangers.keep(from(3), b"three"), Err(DropReason::TooManyRequests));
            assert_eq!(strangers.take(), Some((from(1), &mut [7; REQUEST_LEN + 1][..])));
            assert_eq!(strangers.take(), Some((from(2), &mut b"two".to_owned()[..])));
            assert!(strangers.is_empty() && strangers.take().is_none());
        }
        assert!(strangers.bytes.capacity() < 5_000);
    }

    #[test]
    fn a_flood_that_never_ends_takes_no_more_memory_than_the_queue() {
        let mut strangers = Strangers::new(10);
        let (from, mut kept) = (SocketAddr::from(([10, 0, 0, 1], 1)), VecDeque::new());
        for number in 0..10_000u16 {
            let datagram = number.to_le_bytes().repeat(usize::from(number % 500) + 1);
            if strangers.keep(from, &datagram).is_ok() {
                kept.push_back(datagram);
            }
            if number % 3 > 0 {
                let expected = kept.pop_front();
                assert_eq!(strangers.take().map(|(_, bytes)| bytes.to_vec()), expected);
            }
            assert!(strangers.bytes.capacity() < 64 * REQUEST_LEN, "{} bytes", strangers.bytes.capacity());
        }
        assert_eq!(strangers.len(), 10, "they come faster than they are taken");
    }
}
