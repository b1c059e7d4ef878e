//! A hash of the simulation's state: the same on every machine, for the comparison of replays.

use glam::Vec3;

/// Collects values. After the mixing step of SplitMix64 (Steele, Lea, Flood, 2014).
#[derive(Clone, Copy, Debug)]
pub struct Digest(u64);

impl Digest {
    /// Nothing so far.
    pub fn new() -> Digest {
        Digest(0x7468_726f_6e67_3131)
    }

    /// Adds a number.
    pub fn put(&mut self, value: u64) {
        let mut mixed = (self.0 ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = mixed ^ (mixed >> 31);
    }

    /// Adds a truth.
    pub fn flag(&mut self, value: bool) {
        self.put(value.into());
    }

    /// Adds a number by its bits.
    pub fn float(&mut self, value: f32) {
        self.put(value.to_bits().into());
    }

    /// Adds a vector by its bits.
    pub fn vector(&mut self, value: Vec3) {
        value.to_array().into_iter().for_each(|part| self.float(part));
    }

    /// Adds bytes, and how many they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.put(bytes.len() as u64);
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.put(u64::from_le_bytes(word));
        }
    }

    /// The hash of everything that was added.
    pub fn finish(self) -> u64 {
        self.0
    }
}

impl Default for Digest {
    fn default() -> Digest {
        Digest::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_and_the_order_count() {
        let of = |values: &[u64]| {
            let mut digest = Digest::new();
            values.iter().for_each(|value| digest.put(*value));
            digest.finish()
        };
        assert_eq!(of(&[1, 2]), of(&[1, 2]));
        assert_ne!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(of(&[]), of(&[0]));
        for bit in 0..64 {
            assert_ne!(of(&[7, 1 << bit]), of(&[7, 0]), "bit {bit}");
        }
        let (mut a, mut b) = (Digest::new(), Digest::new());
        a.float(0.0);
        b.float(-0.0);
        assert_ne!(a.finish(), b.finish());
    }
}
