//! Buffers that connections fill and give back, so that a few are used over and over, and stay in the cache.

use std::sync::{Mutex, PoisonError};

/// Unused buffers.
#[derive(Debug, Default)]
pub(super) struct Buffers(Mutex<Vec<Vec<u8>>>);

/// A buffer with less room is not worth keeping.
const KEPT_BYTES_MIN: usize = 2 << 10;
/// One with more was made for something rare.
const KEPT_BYTES_MAX: usize = 256 << 10;
/// Each thread that writes state uses one at a time; a client's messages may take one now and then.
const KEPT: usize = 64;

impl Buffers {
    /// Makes `buffer` a large one, with what is in it, if it is small.
    pub(super) fn exchange(&self, buffer: &mut Vec<u8>) {
        if buffer.capacity() >= KEPT_BYTES_MIN {
            return;
        }
        if let Some(mut large) = self.lock().pop() {
            large.extend_from_slice(buffer);
            *buffer = large;
        }
    }

    /// Takes an empty buffer back, unless it is small.
    pub(super) fn take_back(&self, buffer: &mut Vec<u8>) {
        if !buffer.is_empty() || buffer.capacity() < KEPT_BYTES_MIN {
            return;
        }
        let buffer = std::mem::take(buffer);
        let mut kept = self.lock();
        if buffer.capacity() <= KEPT_BYTES_MAX && kept.len() < KEPT {
            kept.push(buffer);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_buffer_goes_from_hand_to_hand_with_what_is_in_it() {
        let buffers = Buffers::default();
        let mut first = Vec::with_capacity(8 << 10);
        let place = first.as_ptr();
        buffers.take_back(&mut first);
        assert_eq!(first.capacity(), 0);
        let mut second = vec![1, 2, 3];
        buffers.exchange(&mut second);
        assert_eq!((second.as_ptr(), &second[..]), (place, &[1, 2, 3][..]));
        buffers.take_back(&mut second);
        assert_eq!(second.len(), 3, "what is in use is not taken back");
    }

    #[test]
    fn neither_small_nor_enormous_ones_nor_too_many_are_kept() {
        let buffers = Buffers::default();
        buffers.take_back(&mut Vec::with_capacity(100));
        buffers.take_back(&mut Vec::with_capacity(KEPT_BYTES_MAX + 1));
        assert_eq!(buffers.lock().len(), 0);
        for _ in 0..KEPT + 10 {
            buffers.take_back(&mut Vec::with_capacity(KEPT_BYTES_MIN));
        }
        assert_eq!(buffers.lock().len(), KEPT);
    }
}
