//! The part of a run's bots that a process plays.

use serde::{Deserialize, Serialize};
use throng_crowd::scenario::Scenario;

use super::members::turn_of;

/// One of `of` parts of a run's bots, from 0. Bots that decode are spread evenly over them, and so are the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Below `of`.
    pub index: u32,
    /// At least 1.
    pub of: u32,
}

impl Default for Share {
    /// All of them.
    fn default() -> Share {
        Share { index: 0, of: 1 }
    }
}

impl Share {
    /// Shares of a run at most.
    pub const MAX: u32 = 64;

    /// Whether it is the share of a run.
    pub fn is_possible(self) -> bool {
        (1..=Share::MAX).contains(&self.of) && self.index < self.of
    }

    /// The client id of the bot that it opens as number `opened`, from 1. No other share has it.
    pub(crate) fn client_id(self, opened: u64) -> u64 {
        (opened - 1) * u64::from(self.of) + u64::from(self.index) + 1
    }
}

/// The numbers in the run of a share's bots, in order.
pub(super) fn numbers(share: Share, scenario: &Scenario) -> Vec<u32> {
    let is_here = |number: &u32| turn_of(*number, scenario, share.of as usize) == share.index as usize;
    (0..scenario.players).filter(is_here).collect()
}

#[cfg(test)]
mod tests {
    use throng_crowd::scenario::Overrides;

    use super::*;

    #[test]
    fn the_shares_of_a_run_have_each_of_its_bots_once() {
        for (of, players) in [(1, 60), (2, 1_000), (3, 100), (64, 100)] {
            let overrides = Overrides { players: Some(players), ..Overrides::default() };
            let scenario = Scenario::resolve("crowd", &overrides).expect("a scenario");
            let shares = (0..of).map(|index| Share { index, of });
            let mut all: Vec<u32> = shares.clone().flat_map(|share| numbers(share, &scenario)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..players).collect::<Vec<_>>(), "{players} in {of}");
            let ids = shares.flat_map(|share| (1..=20).map(move |opened| share.client_id(opened)));
            let mut ids: Vec<u64> = ids.collect();
            ids.sort_unstable();
            assert_eq!(ids, (1..=20 * u64::from(of)).collect::<Vec<_>>());
        }
        assert!(Share { index: 63, of: 64 }.is_possible());
        for (index, of) in [(0, 0), (1, 1), (0, 65)] {
            assert!(!Share { index, of }.is_possible());
        }
    }
}
