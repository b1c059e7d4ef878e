//! From when on is a series steady?

use crate::stats::mean;

/// Whether the measurements of a held load were steady.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Steadiness {
    /// From this share of the hold on, 0 to less than 1.
    From(f64),
    /// Not even the second half is.
    Never,
    /// There are too few samples to tell.
    #[default]
    Unknown,
}

impl Steadiness {
    /// Of samples in the order of their time.
    pub fn of(samples: &[f64]) -> Steadiness {
        match steady_from(samples) {
            Some(count) => Steadiness::From(count as f64 / samples.len() as f64),
            None if samples.len() < SAMPLES_MIN => Steadiness::Unknown,
            None => Steadiness::Never,
        }
    }

    /// Of two series of one hold: from when on both are steady.
    pub fn and(self, other: Steadiness) -> Steadiness {
        match (self, other) {
            (Steadiness::Never, _) | (_, Steadiness::Never) => Steadiness::Never,
            (Steadiness::From(a), Steadiness::From(b)) => Steadiness::From(a.max(b)),
            (known, Steadiness::Unknown) | (Steadiness::Unknown, known) => known,
        }
    }

    /// This share of the hold does not count. If it never was steady, that is the first half: what comes later is nearer to
    /// where it goes.
    pub fn left_out(self) -> f64 {
        match self {
            Steadiness::From(share) => share,
            Steadiness::Never => 1.0 - STEADY_MIN,
            Steadiness::Unknown => 0.0,
        }
    }
}

/// A series is cut into so many blocks.
const BLOCKS: usize = 20;
/// Of fewer samples nothing is said.
const SAMPLES_MIN: usize = 6;
/// At least this share of the series has to be steady.
const STEADY_MIN: f64 = 0.5;
/// Means that are as close as this are the same, as a share of the larger one.
const SAME: f64 = 0.05;
/// Means that differ by so many of their standard errors are not the same.
const ERRORS: f64 = 3.0;

/// The number of samples at the beginning that do not belong to the steady rest. `None` if less than half of the series is
/// steady, or there are fewer than 6 samples.
///
/// A rest is steady if its first block agrees with what follows, and its first half with its second half: their means differ by
/// 5 % or by three standard errors at most. The error comes from the differences of neighbours, which a trend does not enlarge
/// (von Neumann, "Distribution of the ratio of the mean square successive difference to the variance", 1941).
pub fn steady_from(samples: &[f64]) -> Option<usize> {
    if samples.len() < SAMPLES_MIN || samples.iter().any(|sample| !sample.is_finite()) {
        return None;
    }
    let block = samples.len().div_ceil(BLOCKS).max(2);
    let latest = (samples.len() as f64 * (1.0 - STEADY_MIN)) as usize;
    (0..=latest).step_by(block).find(|&from| {
        let rest = &samples[from..];
        let squares = rest.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum::<f64>();
        let deviation = (squares / (2.0 * (rest.len() - 1) as f64)).sqrt();
        agree(rest.split_at(block.min(rest.len() / 2)), deviation) && agree(rest.split_at(rest.len() / 2), deviation)
    })
}

fn agree((a, b): (&[f64], &[f64]), deviation: f64) -> bool {
    let (Some(mean_a), Some(mean_b)) = (mean(a), mean(b)) else { return false };
    let error = deviation * (1.0 / a.len() as f64 + 1.0 / b.len() as f64).sqrt();
    (mean_a - mean_b).abs() <= (ERRORS * error).max(SAME * mean_a.abs().max(mean_b.abs()))
}
