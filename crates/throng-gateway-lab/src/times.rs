//! Times in microseconds, and how they are distributed.

use hdrhistogram::Histogram;

/// Up to a minute.
pub(super) fn histogram() -> Histogram<u32> {
    // The bounds are constants that the library accepts.
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("sound bounds")
}

/// A quantile in milliseconds; `None` of nothing.
pub(super) fn quantile_ms(us: &Histogram<u32>, share: f64) -> Option<f64> {
    (!us.is_empty()).then(|| us.value_at_quantile(share) as f64 / 1e3)
}
