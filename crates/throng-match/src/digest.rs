//! A hash of a game's state.

/// Adds up the state of a game for [`Game::digest`](crate::Game::digest). Order counts, and each bit of each value.
///
/// It is a hash for comparing replays, not for keys or maps: multiplication with folding, as in wyhash.
///
/// ```
/// use throng_match::Digest;
///
/// let mut digest = Digest::new();
/// digest.add(7).add_f32(1.5);
/// assert_ne!(digest.finish(), Digest::new().add_f32(1.5).add(7).finish());
/// assert_ne!(Digest::new().add_f32(0.0).finish(), Digest::new().add_f32(-0.0).finish());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    sum: u64,
}

impl Digest {
    /// The digest of nothing.
    pub const fn new() -> Digest {
        Digest { sum: 0x9E37_79B9_7F4A_7C15 }
    }

    /// Adds a number.
    #[inline]
    pub const fn add(&mut self, value: u64) -> &mut Digest {
        // The first factor is never 0 for more than one value, and the second is odd.
        let product = ((self.sum ^ value) as u128 + 1) * 0xD6E8_FEB8_6659_FD93_u128;
        self.sum = (product as u64 ^ (product >> 64) as u64).rotate_left(29).wrapping_add(value);
        self
    }

    /// Adds the bits of a number.
    #[inline]
    pub const fn add_f32(&mut self, value: f32) -> &mut Digest {
        self.add(value.to_bits() as u64)
    }

    /// Adds the bits of several numbers, such as the parts of a vector. Their count is not added.
    #[inline]
    pub fn add_f32s(&mut self, values: &[f32]) -> &mut Digest {
        values.iter().fold(self, |digest, &value| digest.add_f32(value))
    }

    /// Adds the bits of a number.
    #[inline]
    pub const fn add_f64(&mut self, value: f64) -> &mut Digest {
        self.add(value.to_bits())
    }

    /// Adds bytes, and how many there are.
    pub fn add_bytes(&mut self, bytes: &[u8]) -> &mut Digest {
        self.add(bytes.len() as u64).add(xxhash_rust::xxh3::xxh3_64(bytes))
    }

    /// The hash.
    pub const fn finish(&self) -> u64 {
        self.sum
    }
}

impl Default for Digest {
    fn default() -> Digest {
        Digest::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn states_that_differ_in_one_bit_have_different_digests() {
        let state = [0_u64, 1, 77, u64::MAX, 1 << 63, 0];
        let of = |state: &[u64]| {
            let mut digest = Digest::new();
            for &value in state {
                digest.add(value);
            }
            digest.finish()
        };
        assert_ne!(of(&[]), of(&[0]));
        let mut seen = HashSet::from([of(&state), of(&state[1..]), of(&[])]);
        for place in 0..state.len() {
            for bit in 0..64 {
                let mut other = state;
                other[place] ^= 1 << bit;
                assert!(seen.insert(of(&other)), "value {place}, bit {bit}");
            }
            let mut other = state;
            other.swap(place, (place + 1) % state.len());
            assert!(seen.insert(of(&other)) || other == state, "values {place} and after it");
        }
        assert_eq!(Digest::new().add_f32s(&[1.0, -0.0]), Digest::new().add_f32(1.0).add_f32(-0.0));
        assert_ne!(Digest::new().add_bytes(b"ab").finish(), Digest::new().add_bytes(b"a").add_bytes(b"b").finish());
    }
}
