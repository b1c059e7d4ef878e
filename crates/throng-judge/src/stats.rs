//! Estimates with bounds.

use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::function::beta::beta_reg;

/// The probability that a one-sided bound holds.
const CONFIDENCE: f64 = 0.95;
/// A normally distributed value is below so many standard deviations with that probability.
const NORMAL_95: f64 = 1.644_853_626_951_472_7;
/// Of more events the exact bound is not computed: its series has too few terms there, and the approximation is within 1 %.
const EXACT_MAX: f64 = 10_000.0;
/// Halvings of an interval until it is as small as a number's last digits.
const BISECTIONS: u32 = 60;
/// Student's t of one degree of freedom is below 6.4 with that probability; of more, below less.
const T_MAX: f64 = 16.0;
/// Late frames come in bursts. Where no burst was seen, nothing tells how long bursts are: then so many frames count as one.
const BURST_ASSUMED: f64 = 4.0;
/// Neighbouring samples are never taken for more alike than this: else a flat line would have no information at all.
const CORRELATION_MAX: f64 = 0.9;

/// The events of a stretch of time, as 1 s of one match: neighbouring events are alike, those of two blocks are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Events over the limit, as frames that took too long.
    pub over: u64,
    /// All events.
    pub of: u64,
}

/// A value and its one-sided bounds. Each bound holds with a probability of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The measured value.
    pub value: f64,
    /// The true value is not below it, with a probability of 95 %.
    pub low: f64,
    /// The true value is not above it, with a probability of 95 %.
    pub high: f64,
}

impl Estimate {
    /// Nothing is known: any value is possible.
    pub const UNKNOWN: Estimate = Estimate { value: f64::NAN, low: f64::NEG_INFINITY, high: f64::INFINITY };
}

/// The share of events over a limit, by Clopper and Pearson's interval ("The use of confidence or fiducial limits", 1934).
///
/// Events within a block are alike, so they count as fewer: the number of events is divided by the design effect, the ratio
/// of the variance between blocks to the variance that independent events would have (Kish, "Survey Sampling", 1965).
/// Where no event was seen, the bound is that for bursts of four: with longer ones, it holds less often. With fewer than some six
/// events it is not below that either.
///
/// Without a frame, the share may be anything.
pub fn share_estimate(blocks: &[Block]) -> Estimate {
    let (over, of) = blocks.iter().fold((0, 0), |(over, of), block| (over + block.over.min(block.of), of + block.of));
    if of == 0 {
        return Estimate::UNKNOWN;
    }
    let share = over as f64 / of as f64;
    let effect = design_effect(blocks, share, of as f64);
    let (events, all) = (over as f64 / effect, of as f64 / effect);
    let low = if over == 0 { 0.0 } else { 1.0 - largest_share(all - events, all) };
    // A run with a few late frames is never better than one without any.
    let none = largest_share(0.0, of as f64 / BURST_ASSUMED.min(of as f64));
    let high = if over == of { 1.0 } else { largest_share(events, all).max(none) };
    Estimate { value: share, low: low.min(share), high: high.max(share) }
}

/// The largest share with which so few events of all happen with a probability of 5 %.
fn largest_share(events: f64, all: f64) -> f64 {
    if all > EXACT_MAX {
        return wilson_high(events, all);
    }
    // Shapes are positive: there are fewer events than all.
    let (a, b) = (events + 1.0, (all - events).max(f64::MIN_POSITIVE));
    bisect(0.0, 1.0, |share| beta_reg(a, b, share) < CONFIDENCE)
}

/// Wilson's bound with correction for continuity (Newcombe, "Two-sided confidence intervals for the single proportion", 1998).
fn wilson_high(events: f64, all: f64) -> f64 {
    let share = events / all;
    let root = (NORMAL_95 * NORMAL_95 + 2.0 - 1.0 / all + 4.0 * share * (all * (1.0 - share) - 1.0)).max(0.0).sqrt();
    ((2.0 * events + NORMAL_95 * NORMAL_95 + 1.0 + NORMAL_95 * root) / (2.0 * (all + NORMAL_95 * NORMAL_95))).min(1.0)
}

/// The place between `low` and `high` where `is_below` stops being true.
fn bisect(mut low: f64, mut high: f64, is_below: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..BISECTIONS {
        let middle = low + (high - low) / 2.0;
        if is_below(middle) { low = middle } else { high = middle }
    }
    high
}

fn design_effect(blocks: &[Block], share: f64, of: f64) -> f64 {
    let independent = share * (1.0 - share) / of;
    let count = blocks.len() as f64;
    // An event is at least itself, and all events are at least one.
    let most = of.max(1.0);
    if blocks.len() < 2 {
        return BURST_ASSUMED.min(most);
    }
    if independent <= 0.0 {
        return 1.0;
    }
    let deviations = blocks.iter().map(|block| (block.over as f64 - share * block.of as f64).powi(2)).sum::<f64>();
    let between = deviations * count / (count - 1.0) / (of * of);
    (between / independent).clamp(1.0, most)
}

/// The mean of samples that were taken one after the other, by Student's t. Samples that are like their neighbours count as
/// fewer, by the correlation of neighbours. Fewer than two samples tell nothing about the bounds.
pub fn level_estimate(samples: &[f64]) -> Estimate {
    let Some(value) = mean(samples) else { return Estimate::UNKNOWN };
    let count = samples.len() as f64;
    let deviations: Vec<f64> = samples.iter().map(|sample| sample - value).collect();
    let squares = deviations.iter().map(|deviation| deviation * deviation).sum::<f64>();
    if samples.len() < 2 || !value.is_finite() {
        return Estimate { value, ..Estimate::UNKNOWN };
    }
    if squares <= 0.0 {
        return Estimate { value, low: value, high: value };
    }
    let neighbours = deviations.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>();
    let correlation = (neighbours / squares).clamp(0.0, CORRELATION_MAX);
    let independent = (count * (1.0 - correlation) / (1.0 + correlation)).max(2.0);
    let error = (squares / (count - 1.0) / independent).sqrt();
    let factor = t_quantile(independent - 1.0);
    Estimate { value, low: value - factor * error, high: value + factor * error }
}

/// The value below which Student's t lies with a probability of 95 %.
fn t_quantile(freedom: f64) -> f64 {
    let Ok(t) = StudentsT::new(0.0, 1.0, freedom) else { return f64::NAN };
    bisect(0.0, T_MAX, |value| t.cdf(value) < CONFIDENCE)
}

/// The mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The median; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value below which the share `at` (0 to 1) of the values lies, between two values by their distance; `None` of nothing.
pub fn quantile(values: &[f64], at: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let place = at.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}
