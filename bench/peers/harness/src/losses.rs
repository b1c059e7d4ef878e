//! Which packets are lost: the same sequence of decisions for every peer and in every run.

/// Where the sequence begins.
const SEED: u64 = 0x7468_726F_6E67;

/// Loses packets at random, each independently.
#[derive(Clone, Debug)]
pub(crate) struct Losses {
    percent: u64,
    state: u64,
}

impl Losses {
    /// So many of a hundred packets are lost.
    pub(crate) fn new(percent: u32) -> Losses {
        Losses { percent: u64::from(percent), state: SEED }
    }

    /// Whether the next packet is lost (SplitMix64, Steele, Lea and Flood 2014).
    pub(crate) fn is_next_lost(&mut self) -> bool {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % 100 < self.percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_lost_as_was_said() {
        for percent in [0, 2, 5, 100] {
            let mut losses = Losses::new(percent);
            let lost = (0..10_000).filter(|_| losses.is_next_lost()).count() as f64 / 100.0;
            assert!((lost - f64::from(percent)).abs() < 1.0, "{lost} of {percent} %");
        }
    }
}
