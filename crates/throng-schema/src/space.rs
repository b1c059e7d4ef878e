/// How the positions of a channel are written: as the distance from an origin, in this many bits per axis.
///
/// A spatial cell names its lowest corner and the bits that its size needs, so a position in a 10 m cell costs 10 bits
/// per axis at 1 cm instead of 32. Everything is in quantised units (steps of the position field).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Space {
    /// The lowest position that is written shortly, in steps.
    pub origin: [i32; 3],
    /// Bits per axis, 0 to 32. An axis of 0 bits is not written and reads as the origin; one of 32 bits reaches every
    /// position from every origin, in two's complement. With 1 to 31 bits, what lies outside takes 32 bits more: all ones,
    /// then the coordinate.
    pub bits: [u8; 3],
}

impl Space {
    /// The whole world: 32 bits per axis around zero.
    pub const WORLD: Space = Space { origin: [0; 3], bits: [32; 3] };

    /// Whether `position` (in steps) can be written in this space with [`position_bits`](Self::position_bits).
    pub fn contains(&self, position: [i32; 3]) -> bool {
        (0..3).all(|axis| {
            let distance = i64::from(position[axis]) - i64::from(self.origin[axis]);
            self.outside(axis)
                .map_or(self.bits[axis] > 0 || distance == 0, |outside| (0..i64::from(outside)).contains(&distance))
        })
    }

    /// Bits that one position takes that lies in the space.
    pub fn position_bits(&self) -> u32 {
        self.bits.iter().map(|&bits| u32::from(bits)).sum()
    }

    /// The code of one coordinate; `None` if it lies outside the space.
    #[inline]
    pub(crate) fn code(&self, axis: usize, value: i32) -> Option<u32> {
        let distance = i64::from(value) - i64::from(self.origin[axis]);
        match self.outside(axis) {
            None if self.bits[axis] == 0 => Some(0),
            None => Some(value.wrapping_sub(self.origin[axis]) as u32),
            Some(outside) => (0..i64::from(outside)).contains(&distance).then_some(distance as u32),
        }
    }

    /// The code of an axis, all ones, that says that the coordinate follows whole. None where nothing can be outside, or
    /// nothing is written.
    #[inline]
    pub(crate) fn outside(&self, axis: usize) -> Option<u32> {
        let bits = u32::from(self.bits[axis]);
        (1..32).contains(&bits).then(|| u32::MAX >> (32 - bits))
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
