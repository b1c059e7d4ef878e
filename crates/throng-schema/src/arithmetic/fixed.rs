use super::{Element, Real};
use crate::Quantiser;

/// Fixed point in a range: code `c` stands for `(c + min / step) * step`.
///
/// Zero is exact when `min` is a multiple of `step`. The error is at most half a step (and the rounding of the type).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fixed {
    min: f64,
    max: f64,
    step: f64,
    scale: f64,
    /// `min` in steps; a whole number when it is within a millionth of one, so that zero and other round values stay
    /// exact although `step` is not a binary fraction.
    offset: f64,
    last: u32,
}

impl Fixed {
    /// Values from `min` to `max` at a distance of `step`.
    ///
    /// The values must be accepted by [`Quantiser::check`], or codes mean nothing.
    pub const fn new(min: f64, max: f64, step: f64) -> Fixed {
        let exact = min / step;
        let whole = nearest(exact);
        let offset = if (exact - whole).abs() < 1e-6 { whole } else { exact };
        Fixed { min, max, step, scale: 1.0 / step, offset, last: nearest((max - min) / step) as u32 }
    }

    /// The quantiser that this computes.
    pub const fn quantiser(self) -> Quantiser {
        Quantiser::Fixed { min: self.min, max: self.max, step: self.step }
    }

    /// The highest code.
    pub const fn last(self) -> u32 {
        self.last
    }

    /// The code of the nearest value in the range.
    #[inline]
    pub fn code(self, value: f64) -> u32 {
        let value = if value.is_nan() { 0.0 } else { value };
        // The cast truncates, saturates below zero, and so rounds what lies in the range.
        ((value * self.scale - self.offset + 0.5) as u32).min(self.last)
    }

    /// The value of a code.
    #[inline]
    pub fn value(self, code: u32) -> f64 {
        // The last step may end beyond the range by up to half a step.
        ((f64::from(code) + self.offset) * self.step).min(self.max)
    }
}

impl<T: Real> Element<T> for Fixed {
    #[inline]
    fn store(&self, value: &T, words: &mut [u32]) {
        words[0] = self.code(value.to_f64());
    }
    #[inline]
    fn load(&self, words: &[u32]) -> T {
        T::from_f64(self.value(words[0]))
    }
}

/// The nearest whole number, for magnitudes below 2^52.
const fn nearest(value: f64) -> f64 {
    if value < 0.0 { ((value - 0.5) as i64) as f64 } else { ((value + 0.5) as i64) as f64 }
}
