//! Is one side higher than the other, by how much, and could that be noise?

use crate::stats::{Estimate, median, quantile};

/// The interval of a ratio is drawn from so many samples with replacement.
const DRAWS: usize = 2_000;
/// Both ends of the interval together are wrong with this probability.
const INTERVAL: f64 = 0.05;
/// Fewer values on a side cannot be told apart by ranks: of four and four, one order in 35 is the most extreme one.
const VALUES_MIN: usize = 5;
/// Beyond so many values, their medians by groups are compared: enough for any interval, and quick.
const VALUES_MAX: usize = 400;

/// The verdict of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// No difference beyond the noise.
    None,
    /// The second side is higher.
    Higher,
    /// The second side is lower.
    Lower,
    /// There are too few values, or they vary too much, to exclude a difference that matters.
    Undecided,
}

/// Settings of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangeOptions {
    /// Smaller differences do not matter, or are known to be noise of the machine; as a share, 0.03 for 3 %.
    pub least: f64,
    /// The probability of a difference without a cause, by ranks.
    pub p: f64,
    /// The seed of the draws.
    pub seed: u64,
}

impl Default for ChangeOptions {
    /// 3 %, with a probability of 1 % to be wrong.
    fn default() -> ChangeOptions {
        ChangeOptions { least: 0.03, p: 0.01, seed: 1 }
    }
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The verdict.
    pub kind: ChangeKind,
    /// The median of the second side divided by that of the first, with an interval of 95 % (2.5 % at each end).
    pub ratio: Estimate,
    /// The probability of ranks as different as these, if both sides were alike.
    pub p: f64,
}

impl Change {
    const UNKNOWN: Change = Change { kind: ChangeKind::Undecided, ratio: Estimate::UNKNOWN, p: 1.0 };

    /// The verdict in words, as "5.2 % higher (4.1 to 6.3 %)".
    pub fn words(&self) -> String {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let Estimate { value, low, high } = self.ratio;
        let interval = format!("({:+.1} to {:+.1} %)", percent(low), percent(high));
        match self.kind {
            ChangeKind::None => format!("no change {interval}"),
            ChangeKind::Higher => format!("{:.1} % higher {interval}", percent(value)),
            ChangeKind::Lower => format!("{:.1} % lower {interval}", -percent(value)),
            ChangeKind::Undecided if low.is_finite() => format!("undecided {interval}"),
            ChangeKind::Undecided => "undecided: too few values".to_owned(),
        }
    }
}

/// Compares the values of two sides: figures of several runs, or of blocks of one run each. A difference needs three things:
/// ranks that differ (the test of Mann and Whitney, 1947), an interval of the ratio that excludes 1 (percentile bootstrap,
/// Efron 1979), and a size that matters.
///
/// Values that are not finite are left out. At most 400 values of each side are compared: of more, the medians of groups of
/// neighbours.
pub fn compare(first: &[f64], second: &[f64], options: &ChangeOptions) -> Change {
    let (first, second) = (condensed(first), condensed(second));
    let (Some(before), Some(after)) = (median(&first), median(&second)) else { return Change::UNKNOWN };
    if before == after && first.iter().chain(&second).all(|value| *value == before) {
        return Change { kind: ChangeKind::None, ratio: Estimate { value: 1.0, low: 1.0, high: 1.0 }, p: 1.0 };
    }
    if before <= 0.0 {
        return Change::UNKNOWN;
    }
    let ratio = Estimate { value: after / before, ..bootstrap(&first, &second, options.seed) };
    let p = rank_probability(&first, &second);
    let is_few = first.len().min(second.len()) < VALUES_MIN;
    let (lowest, highest) = (1.0 - options.least, 1.0 + options.least);
    let is_told_apart = !is_few && p <= options.p;
    let kind = match () {
        () if is_told_apart && ratio.low > 1.0 && ratio.value > highest => ChangeKind::Higher,
        () if is_told_apart && ratio.high < 1.0 && ratio.value < lowest => ChangeKind::Lower,
        () if is_few && !(ratio.low >= lowest && ratio.high <= highest) => ChangeKind::Undecided,
        // The ranks are alike, or the size does not matter, and a large difference is excluded.
        () if ratio.value >= lowest && ratio.value <= highest => ChangeKind::None,
        () => ChangeKind::Undecided,
    };
    Change { kind, ratio, p }
}

/// Whether most parts of a comparison changed the same way by about as much: then the machine has changed, and not the code.
/// Needs at least five parts.
pub fn have_moved_together(parts: &[Change]) -> bool {
    let ratios: Vec<f64> = parts.iter().map(|part| part.ratio.value).filter(|ratio| ratio.is_finite()).collect();
    let Some(middle) = median(&ratios).filter(|_| ratios.len() >= VALUES_MIN) else { return false };
    let moved = (middle - 1.0).abs();
    let near = ratios.iter().filter(|ratio| (*ratio - middle).abs() <= moved / 2.0).count();
    moved > 0.02 && near * 4 >= ratios.len() * 3
}

fn condensed(values: &[f64]) -> Vec<f64> {
    let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    if finite.len() <= VALUES_MAX {
        return finite;
    }
    finite.chunks(finite.len().div_ceil(VALUES_MAX)).filter_map(median).collect()
}

/// The interval of the ratio of medians.
fn bootstrap(first: &[f64], second: &[f64], seed: u64) -> Estimate {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut drawn = Vec::with_capacity(first.len().max(second.len()));
    let mut draw = |values: &[f64]| {
        drawn.clear();
        drawn.extend((0..values.len()).map(|_| values[random.usize(..values.len())]));
        drawn.sort_unstable_by(f64::total_cmp);
        let half = drawn.len() / 2;
        if drawn.len() % 2 == 1 { drawn[half] } else { (drawn[half - 1] + drawn[half]) / 2.0 }
    };
    let ratios: Vec<f64> = (0..DRAWS).map(|_| draw(second) / draw(first)).filter(|ratio| ratio.is_finite()).collect();
    let end = |at: f64| quantile(&ratios, at);
    match (end(INTERVAL / 2.0), end(1.0 - INTERVAL / 2.0)) {
        (Some(low), Some(high)) => Estimate { value: f64::NAN, low, high },
        _ => Estimate::UNKNOWN,
    }
}

/// The two-sided probability of the ranks: exact for few values without ties, by the normal distribution for more.
fn rank_probability(first: &[f64], second: &[f64]) -> f64 {
    let (m, n) = (first.len(), second.len());
    let mut all: Vec<(f64, bool)> = first.iter().map(|value| (*value, false)).collect();
    all.extend(second.iter().map(|value| (*value, true)));
    all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut rank_sum, mut ties, mut start) = (0.0, 0.0, 0);
    while start < all.len() {
        let end = start + all[start..].iter().take_while(|value| value.0 == all[start].0).count();
        let count = (end - start) as f64;
        let rank = (start + end + 1) as f64 / 2.0;
        rank_sum += rank * all[start..end].iter().filter(|value| value.1).count() as f64;
        ties += count * count * count - count;
        start = end;
    }
    let (m_f, n_f, all_f) = (m as f64, n as f64, (m + n) as f64);
    let u = rank_sum - n_f * (n_f + 1.0) / 2.0;
    let u = u.min(m_f * n_f - u);
    if ties == 0.0 && m.min(n) <= 20 && m.max(n) <= 20 {
        return (2.0 * exact_share(m, n, u as usize)).min(1.0);
    }
    let variance = m_f * n_f / 12.0 * ((all_f + 1.0) - ties / (all_f * (all_f - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((m_f * n_f / 2.0 - u) - 0.5).max(0.0) / variance.sqrt();
    statrs::function::erf::erfc(z / std::f64::consts::SQRT_2).min(1.0)
}

/// The share of all orders of `m` and `n` values whose statistic is at most `u`: counted, not estimated.
fn exact_share(m: usize, n: usize, u: usize) -> f64 {
    // ways[j][s]: orders of i firsts and j seconds with the statistic s, row by row over i.
    let most = m * n;
    let mut ways = vec![vec![0.0_f64; most + 1]; n + 1];
    ways.iter_mut().for_each(|row| row[0] = 1.0);
    for _ in 1..=m {
        // The last value is a first, which lies above all j seconds, or a second, which lies above none.
        let mut next = vec![vec![0.0; most + 1]; n + 1];
        next[0][0] = 1.0;
        for j in 1..=n {
            for s in 0..=most {
                let is_first = if s >= j { ways[j][s - j] } else { 0.0 };
                next[j][s] = is_first + next[j - 1][s];
            }
        }
        ways = next;
    }
    let all: f64 = ways[n].iter().sum();
    ways[n][..=u.min(most)].iter().sum::<f64>() / all
}
