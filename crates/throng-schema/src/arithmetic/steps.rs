use super::{Element, Vector};
use crate::Quantiser;

/// World positions in steps per axis, each an `i32`.
///
/// The error is at most half a step (and the rounding of the type) within 2^31 steps of zero; beyond, the border.
/// An `f32` tells steps apart up to 2^23 of them: 84 km at 1 cm. Larger worlds take `[f64; 3]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps {
    step: f64,
    scale: f64,
}

/// Adding this moves the binary point of a double behind its last bit: the sum is rounded to a whole number.
pub(super) const ROUNDING: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52

impl Steps {
    /// Positions at a distance of `step` world units, above 0.
    pub const fn new(step: f64) -> Steps {
        Steps { step, scale: 1.0 / step }
    }

    /// The quantiser that this computes.
    pub const fn quantiser(self) -> Quantiser {
        Quantiser::Position { step: self.step }
    }

    /// The number of steps nearest to a coordinate.
    #[inline]
    pub fn steps(self, value: f64) -> i32 {
        let steps = (value * self.scale).clamp(f64::from(i32::MIN), f64::from(i32::MAX));
        // NaN passes through both lines and is 0 after the cast.
        ((steps + ROUNDING) - ROUNDING) as i32
    }

    /// The coordinate of a number of steps.
    #[inline]
    pub fn value(self, steps: i32) -> f64 {
        f64::from(steps) * self.step
    }
}

impl<V: Vector<3>> Element<V> for Steps {
    #[inline]
    fn store(&self, value: &V, words: &mut [u32]) {
        let [x, y, z] = value.components();
        words[..3].copy_from_slice(&[self.steps(x) as u32, self.steps(y) as u32, self.steps(z) as u32]);
    }
    #[inline]
    fn load(&self, words: &[u32]) -> V {
        V::from_components([self.value(words[0] as i32), self.value(words[1] as i32), self.value(words[2] as i32)])
    }
}
