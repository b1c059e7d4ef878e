use super::steps::ROUNDING;
use super::{Element, Real};
use crate::Quantiser;
use std::f64::consts::TAU;

/// Angles in radians: a full turn in 2^bits codes, so any number of turns is the same code.
///
/// Restored angles are in -π ..= π (-π itself, never +π). The error is at most half of `2π / 2^bits`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Angle {
    bits: u32,
    scale: f64,
    step: f64,
}

/// The step of angles of so many bits, in radians.
pub(crate) fn angle_step(bits: u32) -> f64 {
    TAU / (1u64 << bits) as f64
}

impl Angle {
    /// Angles of `bits` bits, 1 to 22.
    pub const fn new(bits: u32) -> Angle {
        let codes = (1u64 << bits) as f64;
        Angle { bits, scale: codes / TAU, step: TAU / codes }
    }

    /// The quantiser that this computes.
    pub const fn quantiser(self) -> Quantiser {
        Quantiser::Angle { bits: self.bits }
    }

    /// The code of the nearest angle. Infinities and numbers beyond 2^50 codes have no angle left and give 0.
    #[inline]
    pub fn code(self, radians: f64) -> u32 {
        let codes = radians * self.scale;
        let codes = if codes.abs() < (1u64 << 50) as f64 { codes } else { 0.0 };
        // The lowest bits of the rounded sum are the code in two's complement: turns fall off by themselves.
        ((codes + ROUNDING).to_bits() as u32) & ((1u32 << self.bits) - 1)
    }

    /// The angle of a code.
    #[inline]
    pub fn value(self, code: u32) -> f64 {
        let unused = 32 - self.bits;
        f64::from((code << unused) as i32 >> unused) * self.step
    }
}

impl<T: Real> Element<T> for Angle {
    #[inline]
    fn store(&self, value: &T, words: &mut [u32]) {
        words[0] = self.code(value.to_f64());
    }
    #[inline]
    fn load(&self, words: &[u32]) -> T {
        T::from_f64(self.value(words[0]))
    }
}
