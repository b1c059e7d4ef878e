//! How a level grows with time, as the memory of a process does.

use crate::curve::Point;
use crate::stats::{Estimate, level_estimate, mean};

/// Samples are put together in so many blocks at most.
const BLOCKS_MAX: usize = 20;
/// And of fewer blocks nothing is said.
const BLOCKS_MIN: usize = 4;

/// The growth of a level, and its forecast: a random walk with drift (Hyndman and Athanasopoulos, "Forecasting: principles and
/// practice", section 5.2). Memory grows in steps, so the bounds come from the differences between blocks of samples, and not
/// from the distances to a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// Growth by unit of time.
    pub slope: Estimate,
    /// The level at the end: the mean of the last block.
    pub level: f64,
}

impl Drift {
    /// Of samples in the order of time; `load` of a point is its time. `None` of fewer than 8 samples, or if times do not rise.
    pub fn fit(samples: &[Point]) -> Option<Drift> {
        let size = samples.len().div_ceil(BLOCKS_MAX).max(2);
        // The oldest samples are left out if they fill no block.
        let blocks: Vec<&[Point]> = samples.rchunks_exact(size).rev().collect();
        if blocks.len() < BLOCKS_MIN {
            return None;
        }
        let means: Vec<f64> = blocks.iter().filter_map(|block| mean(&values(block))).collect();
        let times = |block: &[Point]| block.iter().map(|point| point.load).sum::<f64>() / block.len() as f64;
        let length = (times(blocks[blocks.len() - 1]) - times(blocks[0])) / (blocks.len() - 1) as f64;
        let growth = level_estimate(&means.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<f64>>());
        let is_possible = length > 0.0 && growth.value.is_finite();
        let by_time = |growth: f64| growth / length;
        is_possible.then(|| Drift {
            slope: Estimate { value: by_time(growth.value), low: by_time(growth.low), high: by_time(growth.high) },
            level: means[means.len() - 1],
        })
    }

    /// The level after another while.
    pub fn forecast(&self, after: f64) -> Estimate {
        let at = |slope: f64| self.level + slope * after;
        Estimate { value: at(self.slope.value), low: at(self.slope.low), high: at(self.slope.high) }
    }
}

fn values(points: &[Point]) -> Vec<f64> {
    points.iter().map(|point| point.value).collect()
}
