use super::{Element, Real};
use crate::Quantiser;
use half::f16;

/// IEEE 754 half precision: 11 significant bits, up to 65,504. Larger numbers become infinite; infinities are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Float16;

/// IEEE 754 single precision. Infinities are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Float32;

impl Float16 {
    /// The quantiser that this computes.
    pub const fn quantiser(self) -> Quantiser {
        Quantiser::Float16
    }

    /// Whether a word is the code of a number: 16 bits, not NaN.
    #[inline]
    pub fn is_code(self, word: u32) -> bool {
        word <= 0xFFFF && word & 0x7FFF <= 0x7C00
    }
}

impl Float32 {
    /// The quantiser that this computes.
    pub const fn quantiser(self) -> Quantiser {
        Quantiser::Float32
    }

    /// Whether a word is the code of a number: not NaN.
    #[inline]
    pub fn is_code(self, word: u32) -> bool {
        word & 0x7FFF_FFFF <= 0x7F80_0000
    }
}

impl<T: Real> Element<T> for Float16 {
    #[inline]
    fn store(&self, value: &T, words: &mut [u32]) {
        let code = f16::from_f32(number(value.to_f64()) as f32);
        // Small negative numbers round to -0, which is not told from 0.
        words[0] = if code.to_bits() == 0x8000 { 0 } else { u32::from(code.to_bits()) };
    }
    #[inline]
    fn load(&self, words: &[u32]) -> T {
        T::from_f64(f16::from_bits(words[0] as u16).to_f64())
    }
}

impl<T: Real> Element<T> for Float32 {
    #[inline]
    fn store(&self, value: &T, words: &mut [u32]) {
        // The addition turns -0 into 0, also when the number was too small for single precision.
        words[0] = (number(value.to_f64()) as f32 + 0.0).to_bits();
    }
    #[inline]
    fn load(&self, words: &[u32]) -> T {
        T::from_f64(f64::from(f32::from_bits(words[0])))
    }
}

#[inline]
fn number(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value }
}
