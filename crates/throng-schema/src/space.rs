/// How the positions of a channel are written: as the distance from an origin, in so many bits per axis.
///
/// A spatial cell names its lowest corner and the bits that its size needs, so a position in a 10 m cell costs 10 bits
/// per axis at 1 cm instead of 32. Everything is in quantised units (steps of the position field).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Space {
    /// The lowest position that can be written, in steps.
    pub origin: [i32; 3],
    /// Bits per axis, 0 to 32. An axis of 0 bits is not written and reads as the origin; one of 32 bits reaches every
    /// position from every origin, in two's complement.
    pub bits: [u8; 3],
}

impl Space {
    /// The whole world: 32 bits per axis around zero.
    pub const WORLD: Space = Space { origin: [0; 3], bits: [32; 3] };

    /// Whether `position` (in steps) can be written in this space.
    pub fn contains(&self, position: [i32; 3]) -> bool {
        (0..3).all(|axis| {
            let distance = i64::from(position[axis]) - i64::from(self.origin[axis]);
            self.bits[axis] >= 32 || (0..1i64 << self.bits[axis]).contains(&distance)
        })
    }

    /// Bits that one position takes.
    pub fn position_bits(&self) -> u32 {
        self.bits.iter().map(|&bits| u32::from(bits)).sum()
    }

    /// The code of one coordinate. What lies outside the space is moved to its border.
    #[inline]
    pub(crate) fn code(&self, axis: usize, value: i32) -> u32 {
        let bits = self.bits[axis];
        if bits >= 32 {
            return value.wrapping_sub(self.origin[axis]) as u32;
        }
        let distance = i64::from(value) - i64::from(self.origin[axis]);
        let limit = (1i64 << bits) - 1;
        distance.clamp(0, limit) as u32
    }

    /// The coordinate of a code; `None` where the world of `i32` steps has ended.
    #[inline]
    pub(crate) fn value(&self, axis: usize, code: u32) -> Option<i32> {
        if self.bits[axis] >= 32 {
            return Some(self.origin[axis].wrapping_add(code as i32));
        }
        self.origin[axis].checked_add_unsigned(code)
    }
}
