//! Is one side higher than the other, by how much, and could that be noise?

use crate::ranks::{rank_probability, ratio_of_pairs, ratio_of_sides, signed_rank_probability};
use crate::stats::{Estimate, median};

/// Fewer values on a side decide nothing: of four and four, one order in 35 is the most extreme one.
pub const VALUES_MIN: usize = 5;
/// Without a difference, changes of so many times the smallest one that matters have to be excluded.
const UNDECIDED: f64 = 3.0;
/// Beyond so many values, their medians by groups are compared: enough for any interval, and quick.
const VALUES_MAX: usize = 400;
/// An interval has to be so many times narrower for a probability of 1 % to be wrong, instead of 5 %.
const NARROWER: f64 = 1.31;
/// It is no use to ask for more values than this.
const MORE_MAX: f64 = 1_000.0;

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
}

impl Default for ChangeOptions {
    /// 3 %, with a probability of 1 % to be wrong.
    fn default() -> ChangeOptions {
        ChangeOptions { least: 0.03, p: 0.01 }
    }
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The verdict.
    pub kind: ChangeKind,
    /// The second side divided by the first, with an interval of 95 % (2.5 % at each end).
    pub ratio: Estimate,
    /// The probability of ranks as different as these, if both sides were alike.
    pub p: f64,
    /// Of an undecided comparison: about so many more values on each side would decide it. `None` if no number that can be
    /// measured would.
    pub more: Option<usize>,
}

impl Change {
    /// No change: both sides are the same values.
    pub const ALIKE: Change =
        Change { kind: ChangeKind::None, ratio: Estimate { value: 1.0, low: 1.0, high: 1.0 }, p: 1.0, more: None };
    const UNKNOWN: Change = Change { kind: ChangeKind::Undecided, ratio: Estimate::UNKNOWN, p: 1.0, more: None };

    /// The verdict in words, as "5.2 % higher (4.1 to 6.3 %)". The values are figures of runs.
    pub fn words(&self) -> String {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let Estimate { value, low, high } = self.ratio;
        let is_bounded = low.is_finite() && high.is_finite();
        let interval =
            if is_bounded { format!(" ({:+.1} to {:+.1} %)", percent(low), percent(high)) } else { String::new() };
        match self.kind {
            ChangeKind::None => format!("no change{interval}"),
            ChangeKind::Higher if value.is_infinite() => "higher, from zero".to_owned(),
            ChangeKind::Higher => format!("{:.1} % higher{interval}", percent(value)),
            ChangeKind::Lower => format!("{:.1} % lower{interval}", -percent(value)),
            ChangeKind::Undecided => match self.more {
                Some(1) => format!("undecided: 1 more run on each side{interval}"),
                Some(more) => format!("undecided: {more} more runs on each side{interval}"),
                None => format!("undecided: it varies too much{interval}"),
            },
        }
    }
}

/// Compares the values of two sides: figures of several runs. A difference needs three things: ranks that differ (the test of
/// Mann and Whitney, 1947), an interval of the ratio that excludes 1 (Hodges and Lehmann, 1963), and a size that matters.
/// Without a difference, the interval has to exclude three times that size: else it is undecided. If both sides have the same
/// distribution, whatever it is, a difference is reported with the probability `p` of the options at most.
///
/// Values that are not finite are left out. At most 400 values of each side are compared: of more, the medians of groups of
/// neighbours.
pub fn compare(first: &[f64], second: &[f64], options: &ChangeOptions) -> Change {
    let (first, second) = (condensed(first), condensed(second));
    let values = first.len().min(second.len());
    let (Some(before), Some(after)) = (median(&first), median(&second)) else {
        return Change { more: Some(VALUES_MIN), ..Change::UNKNOWN };
    };
    let is_flat = before == after && first.iter().chain(&second).all(|value| *value == before);
    if is_flat && values >= VALUES_MIN {
        return Change::ALIKE;
    }
    if before <= 0.0 {
        return from_zero(&first, &second, options);
    }
    judge(ratio_of_sides(&first, &second), rank_probability(&first, &second), values, options)
}

/// Growth from nothing has no ratio: it is certain if every value of the second side is above every one of the first, and there
/// are enough of both.
fn from_zero(first: &[f64], second: &[f64], options: &ChangeOptions) -> Change {
    let largest = first.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let is_above = second.iter().all(|value| *value > largest);
    let (p, values) = (rank_probability(first, second), first.len().min(second.len()));
    if values < VALUES_MIN {
        return Change { p, more: Some(VALUES_MIN - values), ..Change::UNKNOWN };
    }
    if largest > 0.0 || !is_above || p > options.p {
        return Change { p, ..Change::UNKNOWN };
    }
    let ratio = Estimate { value: f64::INFINITY, ..Estimate::UNKNOWN };
    Change { kind: ChangeKind::Higher, ratio, p, more: None }
}

/// Compares two sides whose values belong together in pairs, as the same stretches of one workload: by the ratios of the pairs,
/// and their signed ranks (Wilcoxon, 1945). Otherwise as [`compare`]. Pairs with a value that is not above zero are left out.
pub fn compare_pairs(pairs: &[(f64, f64)], options: &ChangeOptions) -> Change {
    let is_usable = |value: f64| value > 0.0 && value.is_finite();
    let usable = pairs.iter().filter(|pair| is_usable(pair.0) && is_usable(pair.1));
    let ratios = condensed(&usable.map(|(first, second)| second / first).collect::<Vec<f64>>());
    if ratios.is_empty() {
        return Change { more: Some(VALUES_MIN), ..Change::UNKNOWN };
    }
    if ratios.len() >= VALUES_MIN && ratios.iter().all(|ratio| *ratio == 1.0) {
        return Change::ALIKE;
    }
    judge(ratio_of_pairs(&ratios), signed_rank_probability(&ratios), ratios.len(), options)
}

fn judge(ratio: Estimate, p: f64, values: usize, options: &ChangeOptions) -> Change {
    let (lowest, highest) = (1.0 - options.least, 1.0 + options.least);
    let is_narrow = ratio.low >= 1.0 - UNDECIDED * options.least && ratio.high <= 1.0 + UNDECIDED * options.least;
    let is_told_apart = p <= options.p;
    let kind = match () {
        () if values < VALUES_MIN => ChangeKind::Undecided,
        () if is_told_apart && ratio.low > 1.0 && ratio.value > highest => ChangeKind::Higher,
        () if is_told_apart && ratio.high < 1.0 && ratio.value < lowest => ChangeKind::Lower,
        () if is_narrow && (lowest..=highest).contains(&ratio.value) => ChangeKind::None,
        () => ChangeKind::Undecided,
    };
    let more = if kind == ChangeKind::Undecided { more(ratio, values, options) } else { None };
    Change { kind, ratio, p, more }
}

/// About so many more values make the interval narrow enough: its width falls with the root of their number.
fn more(ratio: Estimate, values: usize, options: &ChangeOptions) -> Option<usize> {
    if values < VALUES_MIN {
        return Some(VALUES_MIN - values);
    }
    let distance = (ratio.value - 1.0).abs();
    let width = (ratio.high - ratio.value).max(ratio.value - ratio.low);
    let narrowing = match distance > options.least {
        true => NARROWER * width / distance,
        false => width / (UNDECIDED * options.least - distance),
    };
    let more = (values as f64 * narrowing.powi(2)).ceil() - values as f64;
    (more.is_finite() && more <= MORE_MAX).then(|| more.max(1.0) as usize)
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
