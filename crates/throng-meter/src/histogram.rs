//! Distributions.

/// The largest value that a [`Histogram`] tells apart; larger ones count as this. 2^40: in nanoseconds 18 minutes.
pub const HISTOGRAM_MAX: u64 = 1 << 40;

/// Digits kept of a value: one part in a thousand.
const SIGNIFICANT_DIGITS: u8 = 3;

/// The distribution of any number of values (nanoseconds, bytes, millimetres), to three significant digits.
///
/// An HDR histogram (Gil Tene's HdrHistogram): constant memory of about 250 KiB, recording without allocation, and two
/// of them can be added. The maximum and the mean are exact.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: hdrhistogram::Histogram<u64>,
    sum: u128,
    max: u64,
    saturated: u64,
}

impl Histogram {
    /// An empty histogram. Allocates all that it will ever need.
    pub fn new() -> Histogram {
        let counts = hdrhistogram::Histogram::new_with_bounds(1, HISTOGRAM_MAX, SIGNIFICANT_DIGITS)
            .expect("constant bounds that the crate accepts");
        Histogram { counts, sum: 0, max: 0, saturated: 0 }
    }

    /// Adds one value. One above [`HISTOGRAM_MAX`] counts as that, and in [`saturated`](Histogram::saturated).
    #[inline]
    pub fn record(&mut self, value: u64) {
        let kept = value.min(HISTOGRAM_MAX);
        self.saturated += u64::from(kept != value);
        self.max = self.max.max(kept);
        self.sum += u128::from(kept);
        self.counts.saturating_record(kept);
    }

    /// Adds all values of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts.add(&other.counts).expect("all histograms have the same bounds");
        self.sum += other.sum;
        self.max = self.max.max(other.max);
        self.saturated += other.saturated;
    }

    /// Forgets all values. Keeps the memory.
    pub fn clear(&mut self) {
        self.counts.reset();
        (self.sum, self.max, self.saturated) = (0, 0, 0);
    }

    /// Number of values.
    pub fn len(&self) -> u64 {
        self.counts.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The largest value; 0 when there are none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean of all values; 0 when there are none.
    pub fn mean(&self) -> f64 {
        if self.is_empty() { 0.0 } else { self.sum as f64 / self.len() as f64 }
    }

    /// The value that a share `quantile` (0 to 1) of all values does not exceed, to three digits; 0 when there are none.
    pub fn quantile(&self, quantile: f64) -> u64 {
        // The crate answers with the upper end of a bucket, which may lie above every value.
        self.counts.value_at_quantile(quantile.clamp(0.0, 1.0)).min(self.max)
    }

    /// How many values were larger than [`HISTOGRAM_MAX`].
    pub fn saturated(&self) -> u64 {
        self.saturated
    }

    /// The usual figures.
    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            count: self.len(),
            p50: self.quantile(0.50),
            p99: self.quantile(0.99),
            max: self.max,
            mean: self.mean(),
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

impl Percentiles {
    /// The figures of a list of values, in any order. Allocates a [`Histogram`]; for use after a run.
    pub fn of(values: &[u64]) -> Percentiles {
        Percentiles::from_values(values.iter().copied())
    }

    pub(crate) fn from_values(values: impl Iterator<Item = u64>) -> Percentiles {
        let mut histogram = Histogram::new();
        values.for_each(|value| histogram.record(value));
        histogram.percentiles()
    }
}
