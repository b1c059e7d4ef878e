//! Counts the bytes of unfinished messages where a library keeps them.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::memory::{Holding, Memory, Part};
use crate::engine::port::Side;

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

    /// No client begins a long message while there is no memory for it.
    fn add(&self, bytes: usize) -> io::Result<()> {
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

/// A connection whose bytes are counted as they come.
pub(crate) struct Counted<S> {
    pub(crate) stream: S,
    pub(crate) inflow: Arc<Inflow>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(Ok(())) => Poll::Ready(self.inflow.add(buffer.filled().len() - before)),
            other => other,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
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
        inflow.add(4_000).expect("there is room");
        assert_eq!(counted(), 0, "so much is part of the connection");
        inflow.add(6_000).expect("there is room");
        assert_eq!(counted(), 10_000);
        inflow.take_message();
        inflow.add(500).expect("there is room");
        inflow.take_message();
        assert_eq!(counted(), 10_000, "the buffer keeps its size");
        memory.set_part(Part::Engine, 95_000);
        inflow.add(500).expect("a short message needs nothing more");
        assert_eq!(inflow.add(9_000).expect_err("there is no room").kind(), io::ErrorKind::OutOfMemory);
        drop(inflow);
        assert_eq!(counted(), 0);
    }
}
