//! A message that comes in pieces.

use super::entry::{PIECE_BYTES, Part, piece_count};

/// The pieces of one message, kept in the order in which they came, so that memory grows with what was received and not
/// with what a peer says will come.
#[derive(Debug)]
pub(super) struct Reassembly {
    message_bytes: u32,
    /// Content of the pieces in order of arrival.
    content: Vec<u8>,
    /// Positions of those pieces.
    arrivals: Vec<u16>,
    /// Bit set of the positions that are there.
    present: Vec<u64>,
}

impl Reassembly {
    pub(super) fn new(message_bytes: u32, buffer: Vec<u8>) -> Reassembly {
        Reassembly { message_bytes, content: buffer, arrivals: Vec::new(), present: Vec::new() }
    }

    pub(super) fn message_bytes(&self) -> u32 {
        self.message_bytes
    }

    /// Bytes that are there.
    pub(super) fn bytes(&self) -> usize {
        self.content.len()
    }

    /// Memory of the content.
    pub(super) fn capacity(&self) -> usize {
        self.content.capacity()
    }

    /// Enters a part that lies within the message. Returns how many bytes of it are new.
    pub(super) fn add(&mut self, part: Part, bytes: &[u8]) -> usize {
        let before = self.content.len();
        for (position, piece) in (part.first..).zip(bytes.chunks(PIECE_BYTES)) {
            if self.mark(position) {
                self.arrivals.push(position);
                self.content.extend_from_slice(piece);
            }
        }
        self.content.len() - before
    }

    /// Returns whether the position is new.
    fn mark(&mut self, position: u16) -> bool {
        let (word, bit) = (usize::from(position / 64), position % 64);
        if word >= self.present.len() {
            self.present.resize(word + 1, 0);
        }
        let is_new = self.present[word] >> bit & 1 == 0;
        self.present[word] |= 1 << bit;
        is_new
    }

    pub(super) fn is_complete(&self) -> bool {
        self.arrivals.len() == piece_count(self.message_bytes as usize)
    }

    /// The message, once it is complete.
    pub(super) fn into_message(self) -> Vec<u8> {
        if self.arrivals.is_sorted() {
            return self.content;
        }
        let mut message = vec![0; self.content.len()];
        let mut from = 0;
        for position in self.arrivals {
            let start = usize::from(position) * PIECE_BYTES;
            let end = (start + PIECE_BYTES).min(message.len());
            message[start..end].copy_from_slice(&self.content[from..from + (end - start)]);
            from += end - start;
        }
        message
    }

    /// The buffer, for another use.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_any_order_make_the_message() {
        let mut random = fastrand::Rng::with_seed(1);
        for length in [257usize, 512, 700, 5000, 65_536] {
            let message: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            let mut order: Vec<usize> = (0..piece_count(length)).chain(0..piece_count(length) / 2).collect();
            random.shuffle(&mut order);
            let mut reassembly = Reassembly::new(length as u32, Vec::new());
            for position in order {
                let bytes = &message[position * PIECE_BYTES..((position + 1) * PIECE_BYTES).min(length)];
                reassembly.add(Part { first: position as u16, message_bytes: length as u32 }, bytes);
            }
            assert!(reassembly.is_complete());
            assert_eq!(reassembly.into_message(), message);
        }
    }
}
