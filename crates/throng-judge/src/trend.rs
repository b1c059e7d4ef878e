//! At which revision did a series change?
//!
//! The most likely place of one change is where the means before and after it differ most, for their numbers of values: of the
//! whole series, or of an evenly chosen part of it (Kovács et al., "Seeded binary segmentation", 2023). That difference is
//! compared with those of the same values in random orders: it is a change if none, or hardly any, of them has one as large (a
//! permutation test, as in E-divisive: Matteson and James, "A nonparametric approach for multiple change point analysis",
//! 2014). Then both sides of it are searched likewise.

use crate::stats::median;

/// Random orders to compare with: enough for a probability of one in a thousand.
const ORDERS: usize = 2_000;
/// Draws for the range of revisions.
const DRAWS: usize = 200;
/// Each end of the range is wrong with this probability.
const RANGE_END: f64 = 0.025;
/// Values farther from their neighbours than so many usual distances are outliers, and are pulled in to that distance.
const OUTLIER: f64 = 4.0;
/// A part between two changes has at least so many times as many values as one at an end: neighbouring runs that happened to be
/// slow are none.
const INNER_PARTS: usize = 2;
/// The median distance of neighbours is so many times their standard deviation, if values are normally distributed.
const NORMAL_DISTANCE: f64 = 0.9539;

/// Settings of a search for changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrendOptions {
    /// Smaller changes do not matter; as a share, 0.02 for 2 %.
    pub least: f64,
    /// The probability that a series without a change is said to have one.
    pub p: f64,
    /// So many values at least before the first change and after the last one, at least 2; twice as many between two changes.
    pub values_min: usize,
    /// The seed of the random orders.
    pub seed: u64,
}

impl Default for TrendOptions {
    /// 2 %, with a probability of one in a thousand, and three values on either side.
    fn default() -> TrendOptions {
        TrendOptions { least: 0.02, p: 0.001, values_min: 3, seed: 1 }
    }
}

/// A change in a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// The first value that is most likely after the change.
    pub at: usize,
    /// The last value that is before the change, with a probability of 97.5 %.
    pub after: usize,
    /// The first value that is after the change, with a probability of 97.5 %.
    pub until: usize,
    /// The median of the part before it.
    pub before_median: f64,
    /// The median of the part after it.
    pub after_median: f64,
    /// The probability of such a change in a random order of the same values.
    pub p: f64,
}

impl ChangePoint {
    /// The median after the change divided by that before it; infinite if that was 0.
    pub fn ratio(&self) -> f64 {
        self.after_median / self.before_median
    }
}

/// The changes of a series that has one value for each revision, in their order. Takes about n log² n × 2,000 steps. Revisions
/// without a value, which have one that is not finite, are left out: a change beside them lies between their neighbours.
pub fn change_points(series: &[f64], options: &TrendOptions) -> Vec<ChangePoint> {
    let places: Vec<usize> = (0..series.len()).filter(|place| series[*place].is_finite()).collect();
    let values: Vec<f64> = places.iter().map(|place| series[*place]).collect();
    let mut changes = changes_of(&without_outliers(values), options);
    for ChangePoint { at, after, until, .. } in &mut changes {
        for place in [at, after, until] {
            *place = places[*place];
        }
    }
    changes
}

fn changes_of(values: &[f64], options: &TrendOptions) -> Vec<ChangePoint> {
    let options = TrendOptions { values_min: options.values_min.max(2), ..*options };
    let mut random = fastrand::Rng::with_seed(options.seed);
    let mut open = vec![(0, values.len())];
    let mut cuts: Vec<(usize, f64)> = Vec::new();
    while let Some((start, end)) = open.pop() {
        if let Some((at, p)) = cut(&values[start..end], &options, &mut random) {
            cuts.push((start + at, p));
            open.push((start, start + at));
            open.push((start + at, end));
        }
    }
    cuts.sort_unstable_by_key(|cut| cut.0);
    join(values, &mut cuts, &options);
    let point = |(index, &(at, p)): (usize, &(usize, f64))| {
        let (before, after) = parts(values, &cuts, index);
        let (start, (early, late)) = (at - before.len(), range(before, after, &mut random));
        ChangePoint {
            at,
            after: (start + early).saturating_sub(1),
            until: start + late,
            before_median: median(before).unwrap_or(f64::NAN),
            after_median: median(after).unwrap_or(f64::NAN),
            p,
        }
    };
    cuts.iter().enumerate().map(point).collect()
}

/// The parts before and after a cut, each up to the next cut.
fn parts<'a>(values: &'a [f64], cuts: &[(usize, f64)], index: usize) -> (&'a [f64], &'a [f64]) {
    let (start, at) = (index.checked_sub(1).map_or(0, |before| cuts[before].0), cuts[index].0);
    let end = cuts.get(index + 1).map_or(values.len(), |cut| cut.0);
    (&values[start..at], &values[at..end])
}

/// Takes out the cuts beside parts of too few values, and those that do not matter. The smallest go first: small steps may be a
/// change that matters together.
fn join(values: &[f64], cuts: &mut Vec<(usize, f64)>, options: &TrendOptions) {
    let size = |cuts: &[(usize, f64)], index: usize| {
        let (before, after) = parts(values, cuts, index);
        let ratio = median(after).zip(median(before)).map(|(after, before)| after / before);
        // From nothing to nothing is no change, and from nothing to something an infinite one.
        ratio.filter(|ratio| !ratio.is_nan()).map_or(0.0, |ratio| (ratio - 1.0).abs())
    };
    let inner_min = INNER_PARTS * options.values_min;
    let is_beside_few = |cuts: &[(usize, f64)], index: usize| {
        let pairs = cuts[index.saturating_sub(1)..(index + 2).min(cuts.len())].windows(2);
        pairs.map(|pair| pair[1].0 - pair[0].0).any(|count| count < inner_min)
    };
    let next = |cuts: &[(usize, f64)]| {
        let all = (0..cuts.len()).map(|index| (index, is_beside_few(cuts, index), size(cuts, index)));
        let smallest = all.min_by(|a, b| b.1.cmp(&a.1).then(a.2.total_cmp(&b.2)));
        smallest.filter(|(_, is_beside_few, size)| *is_beside_few || *size < options.least)
    };
    while let Some((index, ..)) = next(cuts) {
        cuts.remove(index);
    }
}

fn without_outliers(values: Vec<f64>) -> Vec<f64> {
    let distances: Vec<f64> = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    let spread = OUTLIER * median(&distances).unwrap_or(0.0) / NORMAL_DISTANCE;
    if spread <= 0.0 {
        return values;
    }
    let near = |index: usize| {
        let around = &values[index.saturating_sub(2)..(index + 3).min(values.len())];
        let middle = median(around).unwrap_or(values[index]);
        values[index].clamp(middle - spread, middle + spread)
    };
    (0..values.len()).map(near).collect()
}

/// The most likely place of one change, if there is one. Whether it matters shows when all are known.
fn cut(values: &[f64], options: &TrendOptions, random: &mut fastrand::Rng) -> Option<(usize, f64)> {
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // No medians of parts of these values differ by more than the values do.
    if highest - lowest < options.least * lowest {
        return None;
    }
    let (at, size) = best_of_parts(values, options.values_min)?;
    if median(&values[..at])? < 0.0 {
        return None;
    }
    let mut shuffled = values.to_vec();
    let allowed = (options.p * (ORDERS + 1) as f64) as usize;
    let mut larger = 1;
    for _ in 0..ORDERS {
        random.shuffle(&mut shuffled);
        larger += usize::from(best_of_parts(&shuffled, options.values_min).is_some_and(|other| other.1 >= size));
        if larger > allowed.max(1) {
            return None;
        }
    }
    Some((at, larger as f64 / (ORDERS + 1) as f64))
}

/// The best place of all values, of their halves, of quarters and so on. Each length begins anew after its half. A change that is
/// taken back is alone in some of them.
fn best_of_parts(values: &[f64], values_min: usize) -> Option<(usize, f64)> {
    let mut found = best(values, values_min)?;
    let mut length = values.len() / 2;
    while length >= 2 * values_min {
        for start in (0..=values.len() - length).step_by(length / 2) {
            let part = best(&values[start..start + length], values_min);
            found = part.filter(|part| part.1 > found.1).map_or(found, |(at, size)| (start + at, size));
        }
        length /= 2;
    }
    Some(found)
}

/// The place where the means differ most, and by how much: the difference of the sums from evenly growing ones, divided by
/// its standard deviation for values of variance 1.
fn best(values: &[f64], values_min: usize) -> Option<(usize, f64)> {
    let count = values.len();
    if count < 2 * values_min {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count as f64;
    let (mut sum, mut found) = (0.0, (0, -1.0));
    for (index, value) in values.iter().enumerate() {
        if index >= values_min && index <= count - values_min {
            let (before, after) = (index as f64, (count - index) as f64);
            let size = f64::abs(sum) / (before * after / count as f64).sqrt();
            if size > found.1 {
                found = (index, size);
            }
        }
        sum += value - mean;
    }
    Some(found)
}

/// Between which places the change lies, from the start of `before`: by drawing both parts again, with replacement.
fn range(before: &[f64], after: &[f64], random: &mut fastrand::Rng) -> (usize, usize) {
    let mut places: Vec<usize> = (0..DRAWS)
        .filter_map(|_| {
            let mut draw =
                |part: &[f64]| (0..part.len()).map(|_| part[random.usize(..part.len())]).collect::<Vec<f64>>();
            let drawn = [draw(before), draw(after)].concat();
            Some(best(&drawn, 1)?.0)
        })
        .collect();
    places.sort_unstable();
    let end = |at: f64| places.get((at * places.len() as f64) as usize).copied().unwrap_or(before.len());
    (end(RANGE_END).min(before.len()), end(1.0 - RANGE_END).max(before.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_differ_by_less_than_the_least_change_are_not_compared_with_random_orders() {
        let values: Vec<f64> = (0..100).map(|index| if index < 50 { 1.0 } else { 1.01 }).collect();
        let mut random = fastrand::Rng::with_seed(1);
        assert_eq!(cut(&values, &TrendOptions::default(), &mut random), None);
        assert_eq!(random.get_seed(), 1);
        let options = TrendOptions { least: 0.005, ..TrendOptions::default() };
        assert_eq!(cut(&values, &options, &mut random).map(|cut| cut.0), Some(50));
    }
}
