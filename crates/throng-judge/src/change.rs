//! Is one side higher than the other, by how much, and could that be noise?

use crate::stats::{Estimate, median, quantile};

/// The interval of a ratio is drawn from so many samples with replacement.
const DRAWS: usize = 2_000;
/// Both ends of the interval together are wrong with this probability.
const INTERVAL: f64 = 0.05;
/// Fewer values on a side cannot be told apart by ranks: of four and four, one order in 35 is the most extreme one.
const VALUES_MIN: usize = 5;
/// Without a difference, changes of so many times the smallest one that matters have to be excluded.
const UNDECIDED: f64 = 3.0;
/// The ranks of up to twice so many values are counted, of more estimated.
const COUNTED_MAX: usize = 20;
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
    const ALIKE: Change =
        Change { kind: ChangeKind::None, ratio: Estimate { value: 1.0, low: 1.0, high: 1.0 }, p: 1.0 };
    const UNKNOWN: Change = Change { kind: ChangeKind::Undecided, ratio: Estimate::UNKNOWN, p: 1.0 };

    /// The verdict in words, as "5.2 % higher (4.1 to 6.3 %)".
    pub fn words(&self) -> String {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let Estimate { value, low, high } = self.ratio;
        let interval = format!("({:+.1} to {:+.1} %)", percent(low), percent(high));
        match self.kind {
            ChangeKind::None => format!("no change {interval}"),
            ChangeKind::Higher if value.is_infinite() => "higher, from zero".to_owned(),
            ChangeKind::Higher => format!("{:.1} % higher {interval}", percent(value)),
            ChangeKind::Lower => format!("{:.1} % lower {interval}", -percent(value)),
            ChangeKind::Undecided if low.is_finite() => format!("undecided {interval}"),
            ChangeKind::Undecided => "undecided: too few values".to_owned(),
        }
    }
}

/// Compares the values of two sides: figures of several runs. A difference needs three things: ranks that differ (the test of
/// Mann and Whitney, 1947), an interval of the ratio that excludes 1 (percentile bootstrap, Efron 1979), and a size that
/// matters. Without a difference, the interval has to exclude three times that size: else it is undecided.
///
/// Values that are not finite are left out. At most 400 values of each side are compared: of more, the medians of groups of
/// neighbours.
pub fn compare(first: &[f64], second: &[f64], options: &ChangeOptions) -> Change {
    let (first, second) = (condensed(first), condensed(second));
    let (Some(before), Some(after)) = (median(&first), median(&second)) else { return Change::UNKNOWN };
    if before == after && first.iter().chain(&second).all(|value| *value == before) {
        return Change::ALIKE;
    }
    if before <= 0.0 {
        return from_zero(&first, &second, options);
    }
    let mut random = fastrand::Rng::with_seed(options.seed);
    let ratios = (0..DRAWS).map(|_| drawn_median(&second, &mut random) / drawn_median(&first, &mut random));
    let ratio = Estimate { value: after / before, ..interval(ratios.collect()) };
    judge(ratio, rank_probability(&first, &second), first.len().min(second.len()), options)
}

/// Growth from nothing has no ratio: it is certain if every value of the second side is above every one of the first, and there
/// are enough of both.
fn from_zero(first: &[f64], second: &[f64], options: &ChangeOptions) -> Change {
    let largest = first.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let is_above = second.iter().all(|value| *value > largest);
    let p = rank_probability(first, second);
    if largest > 0.0 || !is_above || first.len().min(second.len()) < VALUES_MIN || p > options.p {
        return Change { p, ..Change::UNKNOWN };
    }
    Change { kind: ChangeKind::Higher, ratio: Estimate { value: f64::INFINITY, ..Estimate::UNKNOWN }, p }
}

/// Compares two sides whose values belong together in pairs, as the same stretches of one workload: by the ratios of the pairs,
/// and their signed ranks (Wilcoxon 1945). Otherwise as [`compare`]. Pairs without a positive first value are left out.
pub fn compare_pairs(pairs: &[(f64, f64)], options: &ChangeOptions) -> Change {
    let is_usable = |pair: &&(f64, f64)| pair.0 > 0.0 && pair.0.is_finite() && pair.1.is_finite();
    let ratios: Vec<f64> = pairs.iter().filter(is_usable).map(|(first, second)| second / first).collect();
    let ratios = condensed(&ratios);
    let Some(value) = median(&ratios) else { return Change::UNKNOWN };
    if ratios.iter().all(|ratio| *ratio == 1.0) {
        return Change::ALIKE;
    }
    let mut random = fastrand::Rng::with_seed(options.seed);
    let drawn = (0..DRAWS).map(|_| drawn_median(&ratios, &mut random));
    let ratio = Estimate { value, ..interval(drawn.collect()) };
    judge(ratio, signed_rank_probability(&ratios), ratios.len(), options)
}

fn judge(ratio: Estimate, p: f64, values: usize, options: &ChangeOptions) -> Change {
    let is_few = values < VALUES_MIN;
    let (lowest, highest) = (1.0 - options.least, 1.0 + options.least);
    let is_narrow = ratio.low >= 1.0 - UNDECIDED * options.least && ratio.high <= 1.0 + UNDECIDED * options.least;
    let is_told_apart = !is_few && p <= options.p;
    let kind = match () {
        () if is_told_apart && ratio.low > 1.0 && ratio.value > highest => ChangeKind::Higher,
        () if is_told_apart && ratio.high < 1.0 && ratio.value < lowest => ChangeKind::Lower,
        () if !is_few && is_narrow && (lowest..=highest).contains(&ratio.value) => ChangeKind::None,
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

/// The median of as many values, drawn with replacement.
fn drawn_median(values: &[f64], random: &mut fastrand::Rng) -> f64 {
    let mut drawn: Vec<f64> = (0..values.len()).map(|_| values[random.usize(..values.len())]).collect();
    let half = drawn.len() / 2;
    let (_, upper, _) = drawn.select_nth_unstable_by(half, f64::total_cmp);
    let upper = *upper;
    if drawn.len() % 2 == 1 {
        return upper;
    }
    let lower = drawn[..half].iter().copied().fold(f64::NEG_INFINITY, f64::max);
    lower.midpoint(upper)
}

/// The ends of the interval, of drawn ratios.
fn interval(mut ratios: Vec<f64>) -> Estimate {
    ratios.retain(|ratio| ratio.is_finite());
    match (quantile(&ratios, INTERVAL / 2.0), quantile(&ratios, 1.0 - INTERVAL / 2.0)) {
        (Some(low), Some(high)) => Estimate { value: f64::NAN, low, high },
        _ => Estimate::UNKNOWN,
    }
}

/// The two-sided probability of so many ratios above and below 1, by their distances: by the normal distribution.
fn signed_rank_probability(ratios: &[f64]) -> f64 {
    let mut distances: Vec<f64> = ratios.iter().filter(|ratio| **ratio > 0.0).map(|ratio| ratio.ln()).collect();
    distances.retain(|distance| *distance != 0.0);
    distances.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
    let count = distances.len() as f64;
    // Equal distances hardly happen among times; they take the ranks in which they come.
    let above: f64 =
        (1_u32..).zip(&distances).filter(|(_, distance)| **distance > 0.0).map(|(rank, _)| f64::from(rank)).sum();
    let (middle, variance) = (count * (count + 1.0) / 4.0, count * (count + 1.0) * (2.0 * count + 1.0) / 24.0);
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((above - middle).abs() - 0.5).max(0.0) / variance.sqrt();
    statrs::function::erf::erfc(z / std::f64::consts::SQRT_2).min(1.0)
}

/// The two-sided probability of the ranks: counted for few values, by the normal distribution for more.
fn rank_probability(first: &[f64], second: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = first.iter().map(|value| (*value, false)).collect();
    all.extend(second.iter().map(|value| (*value, true)));
    all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    // Equal values share the mean of their ranks; doubled, it is a whole number.
    let (mut doubled, mut rank_sum, mut ties, mut start) = (Vec::with_capacity(all.len()), 0, 0.0, 0);
    while start < all.len() {
        let end = start + all[start..].iter().take_while(|value| value.0 == all[start].0).count();
        let count = (end - start) as f64;
        doubled.resize(end, start + end + 1);
        rank_sum += (start + end + 1) * all[start..end].iter().filter(|value| value.1).count();
        ties += count * count * count - count;
        start = end;
    }
    if all.len() <= 2 * COUNTED_MAX {
        return counted_probability(&doubled, second.len(), rank_sum);
    }
    let (m, n, count) = (first.len() as f64, second.len() as f64, all.len() as f64);
    let u = rank_sum as f64 / 2.0 - n * (n + 1.0) / 2.0;
    let variance = m * n / 12.0 * ((count + 1.0) - ties / (count * (count - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((m * n / 2.0 - u).abs() - 0.5).max(0.0) / variance.sqrt();
    statrs::function::erf::erfc(z / std::f64::consts::SQRT_2).min(1.0)
}

/// Among all choices of `chosen` of the ranks, the share of those whose sum is as far out as `sum`, on either side.
fn counted_probability(ranks: &[usize], chosen: usize, sum: usize) -> f64 {
    let most = ranks.iter().sum::<usize>();
    // ways[k][s]: choices of k ranks, of those looked at so far, with the sum s.
    let mut ways = vec![vec![0.0_f64; most + 1]; chosen + 1];
    ways[0][0] = 1.0;
    for (seen, rank) in ranks.iter().enumerate() {
        for taken in (0..chosen.min(seen + 1)).rev() {
            let (fewer, more) = ways.split_at_mut(taken + 1);
            let sums = more[0][*rank..].iter_mut().zip(&fewer[taken]);
            sums.for_each(|(with, without)| *with += without);
        }
    }
    let of = &ways[chosen];
    let all: f64 = of.iter().sum();
    let (low, high) = (of[..=sum].iter().sum::<f64>(), of[sum..].iter().sum::<f64>());
    (2.0 * low.min(high) / all).min(1.0)
}
