//! Tests and intervals by ranks: exact for few values, by the normal distribution for more. They hold for any distribution.

use statrs::function::erf::erfc;

use crate::stats::Estimate;

/// Both ends of an interval together are wrong with this probability.
const INTERVAL: f64 = 0.05;
/// A normally distributed value lies so many standard deviations away, or less, with a probability of 95 %.
const NORMAL_95_BOTH: f64 = 1.959_963_984_540_054;
/// The ranks of up to twice so many values are counted, of more estimated.
const COUNTED_MAX: usize = 20;

/// The ratio of the second side to the first: the median of the ratios of all pairs, and the interval that the test of Mann and
/// Whitney leaves (Hodges and Lehmann, "Estimates of location based on rank tests", 1963).
pub(crate) fn ratio_of_sides(first: &[f64], second: &[f64]) -> Estimate {
    // Two zeros are alike.
    let ratio = |(after, before): (f64, f64)| if after == before { 1.0 } else { after / before };
    let pairs = second.iter().flat_map(|after| first.iter().map(move |before| (*after, *before)));
    let mut ratios: Vec<f64> = pairs.map(ratio).collect();
    let (m, n) = (first.len() as f64, second.len() as f64);
    let outside = match first.len() * second.len() <= COUNTED_MAX * COUNTED_MAX {
        true => counted_outside(&sides_ways(first.len(), second.len())),
        false => estimated_outside(m * n / 2.0, m * n * (m + n + 1.0) / 12.0),
    };
    inside(&mut ratios, outside)
}

/// The ratio of pairs, from their ratios: the median of the means of each two of their logarithms, and the interval that the
/// test of Wilcoxon leaves (Tukey, "The simplest signed-rank tests", 1949). Ratios are above zero.
pub(crate) fn ratio_of_pairs(ratios: &[f64]) -> Estimate {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let with_itself_and_later =
        logs.iter().enumerate().flat_map(|(at, log)| logs[at..].iter().map(move |other| (log, other)));
    let mut means: Vec<f64> = with_itself_and_later.map(|(a, b)| a.midpoint(*b).exp()).collect();
    let count = logs.len() as f64;
    let outside = match logs.len() <= COUNTED_MAX {
        true => counted_outside(&pairs_ways(logs.len())),
        false => estimated_outside(count * (count + 1.0) / 4.0, count * (count + 1.0) * (2.0 * count + 1.0) / 24.0),
    };
    inside(&mut means, outside)
}

/// The median, and the values that are left if so many are taken away at each end. Without any, nothing bounds the value.
fn inside(values: &mut [f64], outside: usize) -> Estimate {
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len();
    let Some(&upper) = values.get(count / 2) else { return Estimate::UNKNOWN };
    let value = if count % 2 == 1 { upper } else { values[count / 2 - 1].midpoint(upper) };
    match outside {
        0 => Estimate { value, ..Estimate::UNKNOWN },
        _ => Estimate { value, low: values[outside - 1], high: values[count - outside] },
    }
}

/// So many values lie at or beyond an end of the interval, by the ways in which a rank statistic of 0, 1, 2 ... comes about.
fn counted_outside(ways: &[f64]) -> usize {
    let all: f64 = ways.iter().sum();
    let mut below = 0.0;
    ways.iter()
        .take_while(|ways| {
            below += **ways;
            below / all <= INTERVAL / 2.0
        })
        .count()
}

fn estimated_outside(middle: f64, variance: f64) -> usize {
    (middle - NORMAL_95_BOTH * variance.sqrt()).max(0.0) as usize
}

/// The ways to each value of Mann and Whitney's statistic, for so many values without ties: the terms of a Gaussian binomial
/// coefficient, a factor at a time.
fn sides_ways(m: usize, n: usize) -> Vec<f64> {
    let mut ways = vec![0.0_f64; m * n + 1];
    ways[0] = 1.0;
    for factor in 1..=n {
        for place in (factor + m..ways.len()).rev() {
            ways[place] -= ways[place - factor - m];
        }
        for place in factor..ways.len() {
            ways[place] += ways[place - factor];
        }
    }
    ways
}

/// The ways to each value of Wilcoxon's statistic, for so many pairs without ties.
fn pairs_ways(count: usize) -> Vec<f64> {
    let mut ways = vec![0.0_f64; count * (count + 1) / 2 + 1];
    ways[0] = 1.0;
    for rank in 1..=count {
        for place in (rank..ways.len()).rev() {
            ways[place] += ways[place - rank];
        }
    }
    ways
}

/// The two-sided probability of so many ratios above and below 1, by their distances: by the normal distribution.
pub(crate) fn signed_rank_probability(ratios: &[f64]) -> f64 {
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
    erfc(z / std::f64::consts::SQRT_2).min(1.0)
}

/// The two-sided probability of the ranks: counted for few values, by the normal distribution for more.
pub(crate) fn rank_probability(first: &[f64], second: &[f64]) -> f64 {
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
    erfc(z / std::f64::consts::SQRT_2).min(1.0)
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
