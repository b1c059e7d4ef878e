//! Counts the bytes of unfinished messages where a library keeps them.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::counted::Count;
use super::memory::{Holding, Memory, Part};
use throng_gateway_engine::port::Side;

/// A buffer of so much is part of what a connection costs.
const FREE_BYTES: usize = 4 << 10;

/// Counts a library's buffer: what came since the last message, and never less than the longest message so far, because
/// the buffer keeps its size.
pub(crate) struct Inflow {
    side: Side,
    memory: Arc<Memory>,
    unfinished_bytes: AtomicUsize,
    longest_bytes: AtomicUsize,
    holding: Mutex<Holding>,
}

impl Inflow {
    pub(crate) fn new(side: Side, memory: &Arc<Memory>) -> Arc<Inflow> {
        Arc::new(Inflow {
            side,
            memory: Arc::clone(memory),
            unfinished_bytes: AtomicUsize::new(0),
            longest_bytes: AtomicUsize::new(0),
            holding: Mutex::new(Holding::new(memory, Part::Inbound, 0)),
        })
    }

    /// A message has come whole.
    pub(crate) fn take_message(&self) {
        let bytes = self.unfinished_bytes.swap(0, Ordering::Relaxed);
        self.longest_bytes.fetch_max(bytes, Ordering::Relaxed);
        self.count();
    }

    /// A control frame of so many bytes came in between: the message goes on.
    pub(crate) fn take_control(&self, bytes: usize) {
        let less = |unfinished: usize| Some(unfinished.saturating_sub(bytes));
        let _ = self.unfinished_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.count();
    }

    /// No client begins a long message while there is no memory for it.
    fn take_bytes(&self, bytes: usize) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.unfinished_bytes.fetch_add(bytes, Ordering::Relaxed);
        let counted_bytes = self.count();
        match self.side == Side::Client && counted_bytes > 0 && !self.memory.has_room(Side::Client) {
            true => Err(io::ErrorKind::OutOfMemory.into()),
            false => Ok(()),
        }
    }

    fn count(&self) -> usize {
        let unfinished_bytes = self.unfinished_bytes.load(Ordering::Relaxed);
        let bytes = unfinished_bytes.max(self.longest_bytes.load(Ordering::Relaxed));
        let counted_bytes = if bytes > FREE_BYTES { bytes } else { 0 };
        self.holding.lock().unwrap_or_else(PoisonError::into_inner).set(counted_bytes);
        if unfinished_bytes > FREE_BYTES { counted_bytes } else { 0 }
    }
}

impl Count for Arc<Inflow> {
    fn add(&mut self, bytes: usize) -> io::Result<()> {
        self.take_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_while_it_comes_and_its_buffer_afterwards() {
        let memory = Arc::new(Memory::new(100_000));
        let inflow = Inflow::new(Side::Client, &memory);
        let counted = || memory.part_bytes(Part::Inbound);
        inflow.take_bytes(4_000).expect("there is room");
        assert_eq!(counted(), 0, "so much is part of the connection");
        inflow.take_bytes(6_000).expect("there is room");
        assert_eq!(counted(), 10_000);
        inflow.take_message();
        inflow.take_bytes(500).expect("there is room");
        inflow.take_message();
        assert_eq!(counted(), 10_000, "the buffer keeps its size");
        inflow.take_bytes(20_000).expect("there is room");
        inflow.take_bytes(100).expect("there is room");
        inflow.take_control(100);
        assert_eq!(counted(), 20_000, "a control frame between its parts hides no message");
        (0..1_000).for_each(|_| inflow.take_control(100));
        assert_eq!(counted(), 10_000, "control frames alone are no message");
        memory.set_part(Part::Engine, 95_000);
        inflow.take_bytes(500).expect("a short message needs nothing more");
        assert_eq!(inflow.take_bytes(9_000).expect_err("there is no room").kind(), io::ErrorKind::OutOfMemory);
        drop(inflow);
        assert_eq!(counted(), 0);
    }
}
