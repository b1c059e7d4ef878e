use super::{Element, Vector};
use crate::Quantiser;

/// Directions, projected to an octahedron that is unfolded to a square (Meyer et al., "On floating-point normal
/// vectors", 2010; Cigolle et al., "A survey of efficient representations for independent unit vectors", 2014).
///
/// ```text
///   word:  0 .. bits  u | bits .. 2 * bits  v       each 0 ..= 2^bits - 2, the middle is 0
/// ```
///
/// Only the direction counts, not the length. The six axes are exact. The error is at most
/// `4.25 / (2^bits - 2)` radians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Octahedral {
    bits: u32,
    /// The code of coordinate 0, and the number of codes to either side of it.
    middle: u32,
}

impl Octahedral {
    /// Directions of `2 * bits` bits, `bits` from 2 to 16.
    pub const fn new(bits: u32) -> Octahedral {
        Octahedral { bits, middle: (1 << (bits - 1)) - 1 }
    }

    /// The quantiser that this computes.
    pub const fn quantiser(self) -> Quantiser {
        Quantiser::UnitVector { bits: self.bits }
    }

    /// Whether a word is the code of a direction.
    #[inline]
    pub fn is_code(self, word: u32) -> bool {
        let [u, v] = self.unpack(word);
        u <= 2 * self.middle && v <= 2 * self.middle
    }

    /// The code of the direction of a vector; straight up (0, 0, 1) if it has none.
    #[inline]
    pub fn code(self, [x, y, z]: [f64; 3]) -> u32 {
        let length = x.abs() + y.abs() + z.abs();
        if !(length > 0.0 && length < f64::INFINITY) {
            return self.pack(self.middle, self.middle);
        }
        let (mut u, mut v) = (x / length, y / length);
        if z < 0.0 {
            (u, v) = fold(u, v);
        }
        self.canonical(self.coordinate_code(u), self.coordinate_code(v))
    }

    /// The direction of a code, of length 1.
    #[inline]
    pub fn value(self, word: u32) -> [f64; 3] {
        let [u, v] = self.unpack(word).map(|code| (f64::from(code) / f64::from(self.middle) - 1.0).min(1.0));
        let z = 1.0 - u.abs() - v.abs();
        let (x, y) = if z < 0.0 { fold(u, v) } else { (u, v) };
        let scale = 1.0 / (x * x + y * y + z * z).sqrt();
        [x * scale, y * scale, z * scale]
    }

    #[inline]
    fn coordinate_code(self, coordinate: f64) -> u32 {
        (((coordinate + 1.0) * f64::from(self.middle) + 0.5) as u32).min(2 * self.middle)
    }

    /// Points of the square's border are the same direction as their mirror images: the higher code is taken.
    #[inline]
    fn canonical(self, u: u32, v: u32) -> u32 {
        let last = 2 * self.middle;
        let mirrored = |code: u32| code.max(last - code);
        let on_u_border = u == 0 || u == last;
        let on_v_border = v == 0 || v == last;
        let u = if on_v_border { mirrored(u) } else { u };
        let v = if on_u_border { mirrored(v) } else { v };
        self.pack(u, v)
    }

    #[inline]
    fn pack(self, u: u32, v: u32) -> u32 {
        u | v << self.bits
    }

    #[inline]
    fn unpack(self, word: u32) -> [u32; 2] {
        let mask = (1u32 << self.bits) - 1;
        [word & mask, (word >> self.bits) & mask]
    }
}

impl<V: Vector<3>> Element<V> for Octahedral {
    #[inline]
    fn store(&self, value: &V, words: &mut [u32]) {
        words[0] = self.code(value.components());
    }
    #[inline]
    fn load(&self, words: &[u32]) -> V {
        V::from_components(self.value(words[0]))
    }
}

/// Turns a point of the lower half over the edge of the upper half's diamond, and back.
#[inline]
fn fold(u: f64, v: f64) -> (f64, f64) {
    let sign = |value: f64| if value < 0.0 { -1.0 } else { 1.0 };
    ((1.0 - v.abs()) * sign(u), (1.0 - u.abs()) * sign(v))
}
