//! Buffers that are used again.

/// Buffers kept for reuse.
const MAX_BUFFERS: usize = 16;
/// Longer ones are given back to the allocator, so that a session's idle memory stays bounded.
const MAX_BUFFER_BYTES: usize = 1024;

/// The messages of a handshake: no more than these, in most connections. Their memory is given back; that of later ones is used
/// again.
pub(super) const FIRST_MESSAGES: u8 = 8;

/// Spare byte vectors. Holds nothing until some messages have been sent.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    spare: Vec<Vec<u8>>,
    /// Buffers that were not kept because they were among the first.
    first: u8,
}

impl Buffers {
    /// A buffer with this content.
    pub(super) fn filled(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.empty();
        buffer.extend_from_slice(bytes);
        buffer
    }

    pub(super) fn empty(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub(super) fn give_back(&mut self, mut buffer: Vec<u8>) {
        if self.first < FIRST_MESSAGES {
            self.first += 1;
            return;
        }
        if self.spare.len() < MAX_BUFFERS && (1..=MAX_BUFFER_BYTES).contains(&buffer.capacity()) {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}
