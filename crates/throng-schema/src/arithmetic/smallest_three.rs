use super::{Element, Vector};
use crate::Quantiser;
use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2};

/// Rotations: the largest of the four components follows from the other three (Gaffer On Games, "Snapshot
/// compression", 2015), which lie within ±1/√2.
///
/// ```text
///   words 0, 1 as 64 bits:  0 .. 2  which is left out (x, y, z, w) | bits each  the others, in this order
///   each 0 ..= 2^bits - 2, the middle is 0
/// ```
///
/// Only the direction of the quaternion counts, not its length; `q` and `-q` are the same rotation, and what is
/// restored has its left-out component positive. The identity is exact.
///
/// With `m = 2^(bits - 1) - 1`, the rotation is off by at most `2.5 / m` radians (2√3 / √2 by the geometry) where one
/// component clearly leads. Where several are equally large, one code is chosen for all that a value may become when
/// it is restored and quantised again, which can be farther away: a search over 5 million rotations, half of them with
/// four nearly equal components, found at most `3.02 / m`. `3.3 / m` is what the tests hold it to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmallestThree {
    bits: u32,
    /// The code of component 0, and the number of codes to either side of it.
    middle: u32,
}

/// How far the left-out component must lead, in codes: half a code is lost by each of the others, and so at most one and
/// a half by what follows from them.
const CLEAR_MARGIN: f64 = 2.5;

/// A chain of requantisations is followed so far to reach its ring, and so far around it. Not proved to suffice: the
/// same search found no code that did not stay. See [`SmallestThree::code`].
const CHAIN_LIMIT: usize = 16;

impl SmallestThree {
    /// Rotations of `2 + 3 * bits` bits, `bits` from 2 to 16.
    pub const fn new(bits: u32) -> SmallestThree {
        SmallestThree { bits, middle: (1 << (bits - 1)) - 1 }
    }

    /// The quantiser that this computes.
    pub const fn quantiser(self) -> Quantiser {
        Quantiser::Quaternion { bits: self.bits }
    }

    /// Whether a number is the code of a rotation.
    #[inline]
    pub fn is_code(self, code: u64) -> bool {
        self.unpack(code).1.iter().all(|&component| component <= 2 * self.middle)
    }

    /// The code of the rotation of a quaternion x, y, z, w; the identity if it has none.
    ///
    /// When two components are equally large up to the rounding, the code of what is restored can leave out the other
    /// one. Such codes form a ring, and its lowest member stands for all of them.
    #[inline]
    pub fn code(self, quaternion: [f64; 4]) -> u64 {
        let (code, clear) = self.nearest_code(quaternion);
        if clear { code } else { self.lowest_of_ring(code) }
    }

    /// The rotation of a code, as a quaternion of length 1.
    #[inline]
    pub fn value(self, code: u64) -> [f64; 4] {
        let (left_out, codes) = self.unpack(code);
        let scale = FRAC_1_SQRT_2 / f64::from(self.middle);
        let mut others = codes.map(|code| (f64::from(code) - f64::from(self.middle)) * scale);
        let square: f64 = others.iter().map(|other| other * other).sum();
        if square > 1.0 {
            others = others.map(|other| other / square.sqrt());
        }
        let mut quaternion = [(1.0 - square).max(0.0).sqrt(); 4];
        for (other, axis) in others.into_iter().zip(remaining(left_out)) {
            quaternion[axis] = other;
        }
        quaternion
    }

    /// The code, and whether the left-out component is so much larger than the others that rounding cannot change it.
    #[inline]
    fn nearest_code(self, quaternion: [f64; 4]) -> (u64, bool) {
        let square: f64 = quaternion.iter().map(|component| component * component).sum();
        if !(square > 1e-200 && square < f64::INFINITY) {
            return self.nearest_code([0.0, 0.0, 0.0, 1.0]);
        }
        let mut left_out = 3;
        for axis in 0..3 {
            if quaternion[axis].abs() > quaternion[left_out].abs() {
                left_out = axis;
            }
        }
        let largest = quaternion[left_out];
        let scale = SQRT_2 * f64::from(self.middle) / square.sqrt().copysign(largest);
        let others = remaining(left_out).map(|axis| quaternion[axis] * scale);
        let runner_up = others.iter().fold(0.0f64, |highest, other| highest.max(other.abs()));
        let middle = f64::from(self.middle);
        let codes = others.map(|other| ((other + middle + 0.5) as u32).min(2 * self.middle));
        (self.pack(left_out, codes), largest * scale - runner_up > CLEAR_MARGIN)
    }

    /// The lowest code of the ring into which repeated restoring and quantising leads.
    #[cold]
    fn lowest_of_ring(self, mut code: u64) -> u64 {
        for _ in 0..CHAIN_LIMIT {
            code = self.next_in_chain(code);
        }
        let mut lowest = code;
        for _ in 0..CHAIN_LIMIT {
            code = self.next_in_chain(code);
            lowest = lowest.min(code);
        }
        lowest
    }

    /// A code after its way through a game that stores rotations in single precision.
    fn next_in_chain(self, code: u64) -> u64 {
        self.nearest_code(self.value(code).map(|component| f64::from(component as f32))).0
    }

    #[inline]
    fn pack(self, left_out: usize, [a, b, c]: [u32; 3]) -> u64 {
        let bits = self.bits;
        left_out as u64 | u64::from(a) << 2 | u64::from(b) << (2 + bits) | u64::from(c) << (2 + 2 * bits)
    }

    #[inline]
    fn unpack(self, code: u64) -> (usize, [u32; 3]) {
        let mask = (1u64 << self.bits) - 1;
        let component = |index: u32| ((code >> (2 + index * self.bits)) & mask) as u32;
        ((code & 3) as usize, [component(0), component(1), component(2)])
    }
}

impl<V: Vector<4>> Element<V> for SmallestThree {
    #[inline]
    fn store(&self, value: &V, words: &mut [u32]) {
        let code = self.code(value.components());
        words[..2].copy_from_slice(&[code as u32, (code >> 32) as u32]);
    }
    #[inline]
    fn load(&self, words: &[u32]) -> V {
        V::from_components(self.value(u64::from(words[0]) | u64::from(words[1]) << 32))
    }
}

/// The axes that are written when one is left out.
#[inline]
fn remaining(left_out: usize) -> [usize; 3] {
    [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]][left_out]
}
