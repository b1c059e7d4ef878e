//! Distributions.

/// The largest value that a [`Histogram`] tells apart; larger ones count as this. 2^40: in nanoseconds 18 minutes.
pub const HISTOGRAM_MAX: u64 = 1 << 40;

/// Digits kept of a value: one part in a thousand.
const SIGNIFICANT_DIGITS: u8 = 3;

/// The distribution of any number of values (nanoseconds, bytes, millimetres), to three significant digits.
///
/// An HDR histogram (Gil Tene's HdrHistogram): constant memory of about 250 KiB, recording without allocation. The
/// maximum and the mean are exact.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: hdrhistogram::Histogram<u64>,
    sum: u128,
    max: u64,
}

impl Histogram {
    /// An empty histogram. Allocates all that it will ever need.
    pub fn new() -> Histogram {
        let counts = hdrhistogram::Histogram::new_with_bounds(1, HISTOGRAM_MAX, SIGNIFICANT_DIGITS)
            .expect("constant bounds that the crate accepts");
        Histogram { counts, sum: 0, max: 0 }
    }

    /// Adds one value. One above [`HISTOGRAM_MAX`] counts as that.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_many(value, 1);
    }

    /// Adds `count` equal values.
    #[inline]
    pub fn record_many(&mut self, value: u64, count: u64) {
        let kept = value.min(HISTOGRAM_MAX);
        if count > 0 {
            self.max = self.max.max(kept);
            self.sum += u128::from(kept) * u128::from(count);
            self.counts.saturating_record_n(kept, count);
        }
    }

    /// Forgets all values. Keeps the memory.
    pub fn clear(&mut self) {
        self.counts.reset();
        (self.sum, self.max) = (0, 0);
    }

    /// Number of values.
    pub fn len(&self) -> u64 {
        self.counts.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sum of all values.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The value that a share `quantile` (0 to 1) of all values does not exceed, to three digits; 0 when there are none.
    pub fn quantile(&self, quantile: f64) -> u64 {
        // The crate answers with the upper end of a bucket, which may lie above every value.
        self.counts.value_at_quantile(quantile.clamp(0.0, 1.0)).min(self.max)
    }

    /// The values that were recorded, in rising order, each with how often; to three digits. With
    /// [`record_many`](Histogram::record_many), another process gets the same distribution from them.
    pub fn values(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts
            .iter_recorded()
            .map(|bucket| (bucket.value_iterated_to().min(self.max), bucket.count_since_last_iteration()))
    }

    /// The usual figures.
    pub fn percentiles(&self) -> Percentiles {
        let count = self.len();
        Percentiles {
            count,
            p50: self.quantile(0.50),
            p99: self.quantile(0.99),
            max: self.max,
            mean: if count == 0 { 0.0 } else { self.sum as f64 / count as f64 },
        }
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

/// The figures by which a distribution is usually judged, in the unit of its values. All 0 when there are no values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Percentiles {
    /// Number of values.
    pub count: u64,
    /// Half of the values are at most this, to three digits.
    pub p50: u64,
    /// 99 of 100 values are at most this, to three digits.
    pub p99: u64,
    /// The largest value, exactly (up to [`HISTOGRAM_MAX`]).
    pub max: u64,
    /// The mean, exactly.
    pub mean: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_several_histograms_give_the_percentiles_of_all() {
        let (mut all, mut joined) = (Histogram::new(), Histogram::new());
        for part in 0..5_u64 {
            let mut histogram = Histogram::new();
            for value in (0..1_000).map(|number| number * number * (part + 1)) {
                histogram.record(value);
                all.record(value);
            }
            let values: Vec<(u64, u64)> = histogram.values().collect();
            assert!(values.is_sorted() && values.iter().map(|(_, count)| count).sum::<u64>() == 1_000);
            values.iter().for_each(|&(value, count)| joined.record_many(value, count));
        }
        for quantile in [0.0, 0.25, 0.5, 0.9, 0.99, 1.0] {
            assert_eq!(joined.quantile(quantile), all.quantile(quantile));
        }
    }
}
