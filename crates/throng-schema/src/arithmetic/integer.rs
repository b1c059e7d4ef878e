use super::{Element, Whole, bits_for};
use crate::Quantiser;

/// Whole numbers in a range: the code is the distance from the lowest.
///
/// A range of all 64 bits has codes in two's complement, so it carries a whole `i64` and a whole `u64` alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegerRange {
    min: i64,
    max: i64,
}

impl IntegerRange {
    /// Numbers from `min` to `max`, both included.
    pub const fn new(min: i64, max: i64) -> IntegerRange {
        IntegerRange { min, max }
    }

    /// The quantiser that this computes.
    pub const fn quantiser(self) -> Quantiser {
        Quantiser::Integer { min: self.min, max: self.max }
    }

    /// The highest code.
    pub const fn last(self) -> u64 {
        self.max.wrapping_sub(self.min) as u64
    }

    /// Words of a code: 1, or 2 when it can take more than 32 bits.
    pub const fn words(self) -> usize {
        if bits_for(self.last()) <= 32 { 1 } else { 2 }
    }

    /// The code of the nearest number in the range.
    #[inline]
    pub fn code<T: Whole>(self, value: T) -> u64 {
        if self.last() == u64::MAX {
            return value.bits();
        }
        value.saturating_i64().clamp(self.min, self.max).wrapping_sub(self.min) as u64
    }

    /// The number of a code.
    #[inline]
    pub fn value<T: Whole>(self, code: u64) -> T {
        let lowest = if self.last() == u64::MAX { 0 } else { self.min as u64 };
        T::from_bits(code.wrapping_add(lowest))
    }
}

impl<T: Whole> Element<T> for IntegerRange {
    #[inline]
    fn store(&self, value: &T, words: &mut [u32]) {
        let code = self.code(*value);
        words[0] = code as u32;
        if self.words() == 2 {
            words[1] = (code >> 32) as u32;
        }
    }
    #[inline]
    fn load(&self, words: &[u32]) -> T {
        let high = if self.words() == 2 { words[1] } else { 0 };
        self.value(u64::from(words[0]) | u64::from(high) << 32)
    }
}
