//! Bits, lowest first, packed without gaps:
//!
//! ```text
//! byte 0                    byte 1
//! 7 6 5 4 3 2 1 0           7 6 5 4 3 2 1 0
//!         └second┘└─first─┘
//! varint: groups of 7 bits, lowest first, each followed by 1 bit "another group follows"; at most 10 groups
//! ```

use thiserror::Error;

/// Why a read failed. Always the fault of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The bytes ended before the value did.
    #[error("the data ends in the middle of a value")]
    UnexpectedEnd,
    /// A varint went on beyond 64 bits.
    #[error("a varint is longer than 64 bits")]
    VarintTooLong,
}

impl ReadError {
    /// A stable short name, for metric labels.
    pub fn tag(self) -> &'static str {
        match self {
            ReadError::UnexpectedEnd => "unexpected_end",
            ReadError::VarintTooLong => "varint_too_long",
        }
    }
}

/// Appends bits to a byte vector. Whole bytes appear in the vector as they fill; [`BitWriter::finish`] pads the last.
///
/// Allocates only when the vector grows.
#[derive(Debug)]
pub struct BitWriter<'a> {
    bytes: &'a mut Vec<u8>,
    pending: u64,
    pending_bits: u32,
}

/// A position in a [`BitWriter`] to which it can be rewound.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    len: usize,
    pending: u64,
    pending_bits: u32,
}

impl<'a> BitWriter<'a> {
    /// Writes behind what `bytes` already holds.
    pub fn new(bytes: &'a mut Vec<u8>) -> BitWriter<'a> {
        BitWriter { bytes, pending: 0, pending_bits: 0 }
    }

    /// Writes the lowest `bits` bits of `value`; the bits above are ignored.
    ///
    /// # Panics
    /// In debug builds if `bits` is above 64.
    #[inline]
    pub fn write(&mut self, value: u64, bits: u32) {
        debug_assert!(bits <= 64, "{bits} bits do not fit in a value");
        if bits > 32 {
            self.write_up_to_32(value & 0xFFFF_FFFF, 32);
            self.write_up_to_32(value >> 32, bits - 32);
        } else {
            self.write_up_to_32(value, bits);
        }
    }

    #[inline]
    fn write_up_to_32(&mut self, value: u64, bits: u32) {
        let value = value & ((1u64 << bits) - 1);
        self.pending |= value << self.pending_bits;
        self.pending_bits += bits;
        if self.pending_bits >= 32 {
            self.bytes.extend_from_slice(&(self.pending as u32).to_le_bytes());
            self.pending >>= 32;
            self.pending_bits -= 32;
        }
    }

    /// Writes the lowest `bits` bits of `value`, at most 32; the bits above are ignored.
    ///
    /// # Panics
    /// In debug builds if `bits` is above 32.
    #[inline]
    pub fn write_word(&mut self, value: u32, bits: u32) {
        debug_assert!(bits <= 32, "{bits} bits do not fit in a word");
        self.write_up_to_32(value.into(), bits);
    }

    /// Writes one bit.
    #[inline]
    pub fn write_bool(&mut self, value: bool) {
        self.write_up_to_32(u64::from(value), 1);
    }

    /// Writes a number in groups of 7 bits, 8 to 80 bits in all.
    #[inline]
    pub fn write_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.write_up_to_32((value & 0x7F) | 0x80, 8);
            value >>= 7;
        }
        self.write_up_to_32(value, 8);
    }

    /// Writes bytes, at whatever bit position.
    #[inline]
    pub fn write_bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for &word in words {
            self.write_up_to_32(u32::from_le_bytes(word).into(), 32);
        }
        for &byte in rest {
            self.write_up_to_32(byte.into(), 8);
        }
    }

    /// Bits written to the vector so far, what was in it before included.
    #[inline]
    pub fn bit_len(&self) -> usize {
        self.bytes.len() * 8 + self.pending_bits as usize
    }

    /// Bytes that the vector will hold after [`BitWriter::finish`].
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.bit_len().div_ceil(8)
    }

    /// The present position.
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark { len: self.bytes.len(), pending: self.pending, pending_bits: self.pending_bits }
    }

    /// Takes back everything that was written after `mark`.
    #[inline]
    pub fn rewind(&mut self, mark: Mark) {
        self.bytes.truncate(mark.len);
        self.pending = mark.pending;
        self.pending_bits = mark.pending_bits;
    }

    /// Overwrites a whole byte written earlier, for counts that are known only later.
    ///
    /// # Panics
    /// If `position` (an index into the vector) is not complete yet: align first.
    pub fn patch_byte(&mut self, position: usize, value: u8) {
        self.bytes[position] = value;
    }

    /// Pads with zero bits to the end of the byte.
    pub fn align(&mut self) {
        while self.pending_bits > 0 {
            self.bytes.push(self.pending as u8);
            self.pending >>= 8;
            self.pending_bits = self.pending_bits.saturating_sub(8);
        }
        self.pending = 0;
    }

    /// Pads the last byte and ends the writer.
    pub fn finish(mut self) {
        self.align();
    }
}

/// Reads bits from a byte slice. Never allocates, never panics on any input.
#[derive(Clone, Debug)]
pub struct BitReader<'a> {
    bytes: &'a [u8],
    bit: usize,
}

impl<'a> BitReader<'a> {
    /// Reads from the first bit of `bytes`.
    pub fn new(bytes: &'a [u8]) -> BitReader<'a> {
        BitReader { bytes, bit: 0 }
    }

    /// Reads `bits` bits, 0 to 64.
    ///
    /// # Panics
    /// In debug builds if `bits` is above 64: a width is never taken from the data unchecked.
    #[inline]
    pub fn read(&mut self, bits: u32) -> Result<u64, ReadError> {
        debug_assert!(bits <= 64, "{bits} bits do not fit in a value");
        if bits as usize > self.remaining_bits() {
            return Err(ReadError::UnexpectedEnd);
        }
        if bits > 32 {
            let low = self.take_up_to_32(32);
            let high = self.take_up_to_32(bits - 32);
            return Ok(low | high << 32);
        }
        Ok(self.take_up_to_32(bits))
    }

    #[inline]
    fn take_up_to_32(&mut self, bits: u32) -> u64 {
        let start = self.bit / 8;
        let word = match self.bytes.get(start..start + 8) {
            Some(eight) => u64::from_le_bytes(eight.try_into().expect("eight bytes")),
            None => {
                let mut word = [0u8; 8];
                let tail = &self.bytes[start.min(self.bytes.len())..];
                word[..tail.len()].copy_from_slice(tail);
                u64::from_le_bytes(word)
            }
        };
        let value = (word >> (self.bit % 8)) & ((1u64 << bits) - 1);
        self.bit += bits as usize;
        value
    }

    /// The next bits, 0 to 32, without reading them; zeros beyond the end.
    ///
    /// # Panics
    /// In debug builds if `bits` is above 32.
    #[inline]
    pub fn peek(&self, bits: u32) -> u32 {
        debug_assert!(bits <= 32, "{bits} bits do not fit in a word");
        let mut ahead = self.clone();
        ahead.take_up_to_32(bits) as u32
    }

    /// Reads bits that [`peek`](Self::peek) has shown.
    #[inline]
    pub fn skip(&mut self, bits: u32) -> Result<(), ReadError> {
        if bits as usize > self.remaining_bits() {
            return Err(ReadError::UnexpectedEnd);
        }
        self.bit += bits as usize;
        Ok(())
    }

    /// Reads one bit.
    #[inline]
    pub fn read_bool(&mut self) -> Result<bool, ReadError> {
        Ok(self.read(1)? == 1)
    }

    /// Reads what [`BitWriter::write_varint`] wrote. Longer forms of a number are accepted up to 10 groups.
    #[inline]
    pub fn read_varint(&mut self) -> Result<u64, ReadError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let group = self.read(8)?;
            let payload = group & 0x7F;
            if shift == 63 && payload > 1 {
                return Err(ReadError::VarintTooLong);
            }
            value |= payload << shift;
            if group & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ReadError::VarintTooLong)
    }

    /// Appends `count` bytes to `out`, at whatever bit position they start. Nothing is appended when they are not
    /// all there, so `out` never grows by more than the data holds.
    pub fn read_bytes(&mut self, count: usize, out: &mut Vec<u8>) -> Result<(), ReadError> {
        if count > self.remaining_bits() / 8 {
            return Err(ReadError::UnexpectedEnd);
        }
        if self.bit.is_multiple_of(8) {
            let start = self.bit / 8;
            out.extend_from_slice(&self.bytes[start..start + count]);
            self.bit += count * 8;
        } else {
            for _ in 0..count / 4 {
                out.extend_from_slice(&(self.take_up_to_32(32) as u32).to_le_bytes());
            }
            for _ in 0..count % 4 {
                out.push(self.take_up_to_32(8) as u8);
            }
        }
        Ok(())
    }

    /// Bits not read yet.
    #[inline]
    pub fn remaining_bits(&self) -> usize {
        self.bytes.len() * 8 - self.bit
    }

    /// Skips to the next byte boundary.
    pub fn align(&mut self) {
        self.bit = self.bit.next_multiple_of(8);
    }

    /// The bytes not begun yet.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.bit.div_ceil(8)..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(throng_seeds::cases(256))]

        #[test]
        fn what_is_shown_ahead_is_read(bytes in prop::collection::vec(any::<u8>(), 0..24), widths in prop::collection::vec(0u32..=32, 0..12)) {
            let mut r = BitReader::new(&bytes);
            for bits in widths {
                let shown = r.peek(bits);
                let mut other = r.clone();
                let skipped = r.skip(bits);
                prop_assert_eq!(other.read(bits).map(|value| value as u32), skipped.map(|()| shown));
                prop_assert_eq!(r.remaining_bits(), other.remaining_bits());
            }
        }

        #[test]
        fn bytes_at_any_position_are_written_as_one_by_one_and_read_back(blob in prop::collection::vec(any::<u8>(), 0..24), before in 0u32..32) {
            let (mut bytes, mut one_by_one) = (Vec::new(), Vec::new());
            for (to, is_whole) in [(&mut bytes, true), (&mut one_by_one, false)] {
                let mut w = BitWriter::new(to);
                w.write(0, before);
                match is_whole {
                    true => w.write_bytes(&blob),
                    false => blob.iter().for_each(|&byte| w.write(byte.into(), 8)),
                }
                w.finish();
            }
            prop_assert_eq!(&bytes, &one_by_one);
            let (mut r, mut read) = (BitReader::new(&bytes), Vec::new());
            prop_assert_eq!(r.skip(before).and_then(|()| r.read_bytes(blob.len(), &mut read)), Ok(()));
            prop_assert_eq!(read, blob);
        }

        #[test]
        fn what_is_written_is_read(values in prop::collection::vec((any::<u64>(), 0u32..=64), 0..200)) {
            let mut bytes = vec![7];
            let mut w = BitWriter::new(&mut bytes);
            for &(value, bits) in &values {
                w.write(value, bits);
            }
            let bits: u32 = values.iter().map(|v| v.1).sum();
            prop_assert_eq!(w.bit_len(), 8 + bits as usize);
            w.finish();
            prop_assert_eq!(bytes.len(), 1 + (bits as usize).div_ceil(8));
            let mut r = BitReader::new(&bytes[1..]);
            for (value, bits) in values {
                let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
                prop_assert_eq!(r.read(bits).unwrap(), value & mask);
            }
            prop_assert!(r.remaining_bits() < 8);
            prop_assert_eq!(r.read(8), Err(ReadError::UnexpectedEnd));
        }

        #[test]
        fn varints_survive(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            let mut w = BitWriter::new(&mut bytes);
            w.write(1, 3);
            w.write_varint(value);
            w.finish();
            let mut r = BitReader::new(&bytes);
            r.read(3).unwrap();
            prop_assert_eq!(r.read_varint().unwrap(), value);
        }

        #[test]
        fn a_rewind_takes_back_everything(before in 0u32..64, after in prop::collection::vec(any::<u64>(), 0..20)) {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            let mut w = BitWriter::new(&mut a);
            w.write(u64::MAX, before);
            let mark = w.mark();
            for value in after {
                w.write(value, 61);
            }
            w.rewind(mark);
            w.write(2, 2);
            w.finish();
            let mut plain = BitWriter::new(&mut b);
            plain.write(u64::MAX, before);
            plain.write(2, 2);
            plain.finish();
            prop_assert_eq!(a, b);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40), skip in 0u32..9, count in 0usize..50) {
            let mut r = BitReader::new(&bytes);
            let _ = r.read(skip);
            let _ = r.read_varint();
            let mut out = Vec::new();
            if r.read_bytes(count, &mut out).is_ok() {
                prop_assert_eq!(out.len(), count);
            } else {
                prop_assert!(out.is_empty());
            }
            r.align();
            prop_assert!(r.rest().len() <= bytes.len());
        }
    }

    #[test]
    fn an_endless_varint_is_refused() {
        assert_eq!(BitReader::new(&[0xFF; 12]).read_varint(), Err(ReadError::VarintTooLong));
        assert_eq!(BitReader::new(&[0xFF; 3]).read_varint(), Err(ReadError::UnexpectedEnd));
    }
}
