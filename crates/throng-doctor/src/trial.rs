//! Whether a setting is worth something: loads without it (A) and with it (B), in turns A B A ... B A.
//!
//! Each B is compared with the mean of the A before and the A after it, so a machine that gets slower evenly cancels. The
//! interval is that of the smallest and the largest difference: it misses the true difference if chance puts all of them on
//! one side of it. Neighbouring differences share an A, so that happens more often than with independent ones: [`misses`] is
//! a bound that holds for all kinds of noise in the tests. Neighbouring A against A show the noise. A worth is claimed if the
//! interval is on one side of zero, and the median lies outside of the noise.

use serde::Serialize;

/// The fewest repeats of B. Noise alone is claimed in up to 75 of 1,000 trials with so few.
pub const REPEATS_MIN: usize = 3;
/// The usual repeats of B. Noise alone is claimed in up to 6 of 1,000 trials.
pub const REPEATS: usize = 6;

/// The figures of the loads, in the order in which they ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Trial {
    /// Without the setting: one more than with it.
    pub without: Vec<f64>,
    /// With the setting.
    pub with: Vec<f64>,
}

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The median difference with the setting, as a share of the figure without: -0.1 is 10 % less.
    pub difference: f64,
    /// The smallest and the largest difference.
    pub interval: [f64; 2],
    /// The least probability that such an interval holds the true difference, over the kinds of noise that were simulated.
    pub confidence: f64,
    /// The largest difference between neighbouring loads without the setting.
    pub noise: f64,
    /// Whether the difference is more than noise.
    pub is_claimed: bool,
}

/// Compares the loads of a trial. `None` if there are fewer than [`REPEATS_MIN`] with the setting, if the two lists do
/// not belong together, or if a figure is not a positive number.
pub fn compare(trial: &Trial) -> Option<Comparison> {
    let Trial { without, with } = trial;
    let is_usable = |figure: &f64| figure.is_finite() && *figure > 0.0;
    let is_whole = with.len() >= REPEATS_MIN && without.len() == with.len() + 1;
    if !is_whole || !without.iter().chain(with).all(is_usable) {
        return None;
    }
    let pairs = || without.windows(2).map(|pair| (pair[0], pair[1]));
    let mut differences: Vec<f64> =
        with.iter().zip(pairs()).map(|(with, (before, after))| 2.0 * with / (before + after) - 1.0).collect();
    differences.sort_by(f64::total_cmp);
    let count = differences.len();
    let difference = (differences[count / 2] + differences[(count - 1) / 2]) / 2.0;
    let noise = pairs().map(|(before, after)| 2.0 * (after - before).abs() / (before + after)).fold(0.0, f64::max);
    let interval = [differences[0], differences[count - 1]];
    let is_one_sided = interval[0] > 0.0 || interval[1] < 0.0;
    let confidence = 1.0 - misses(count);
    Some(Comparison { difference, interval, confidence, noise, is_claimed: is_one_sided && difference.abs() > noise })
}

/// An upper bound of the share of intervals that do not hold the true difference. Three differences of normal noise miss in
/// 30.3 % (Sheppard 1899, with a correlation of 1/6 between neighbours); noise with heavy tails is worse, and each further one
/// takes at least 43 % of the misses away.
fn misses(differences: usize) -> f64 {
    let more = differences.saturating_sub(REPEATS_MIN);
    0.57f64.powi(i32::try_from(more).unwrap_or(i32::MAX)) / 3.0
}

impl Comparison {
    /// The verdict in words; `name` is that of the figure.
    pub fn verdict(&self, name: &str) -> String {
        let percent = |share: f64| 100.0 * share;
        let [low, high] = self.interval.map(percent);
        // It is the least one, so it is rounded down.
        let bounds =
            format!("{low:+.1} to {high:+.1} %, {:.0} % confidence", (percent(self.confidence) + 1e-9).floor());
        let noise = percent(self.noise);
        if self.is_claimed {
            let (size, way) = (percent(self.difference.abs()), if self.difference < 0.0 { "lower" } else { "higher" });
            format!("{name} {size:.1} % {way} on this machine ({bounds}; noise {noise:.1} %)")
        } else {
            let middle = percent(self.difference);
            format!(
                "none: {name} changed by {middle:+.1} % ({bounds}), within the noise of {noise:.1} % or not certain"
            )
        }
    }
}
