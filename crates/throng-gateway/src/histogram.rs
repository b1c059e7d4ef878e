//! Durations in fixed buckets, cheap to count from one thread and to read from others.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of the buckets, in µs; the last one takes the rest.
const BOUNDS_US: [u64; 14] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 40_000, 60_000, 100_000, 250_000, 1_000_000, 5_000_000];

/// How often durations of which length were seen.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
    last_us: AtomicU64,
}

impl Histogram {
    /// Counts a duration, `count` times.
    pub fn record(&self, us: u64, count: u64) {
        let bucket = BOUNDS_US.partition_point(|&bound| bound < us);
        self.buckets[bucket].fetch_add(count, Ordering::Relaxed);
        self.sum_us.fetch_add(us.saturating_mul(count), Ordering::Relaxed);
        self.last_us.store(us, Ordering::Relaxed);
    }

    /// The last duration, in seconds.
    pub fn last_s(&self) -> f64 {
        self.last_us.load(Ordering::Relaxed) as f64 / 1e6
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// Appends the histogram in Prometheus' text format.
    pub fn write(&self, name: &str, help: &str, text: &mut String) {
        let mut total = 0;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS_US.map(Some).into_iter().chain([None])) {
            total += bucket.load(Ordering::Relaxed);
            let bound = bound.map_or("+Inf".to_owned(), |us| (us as f64 / 1e6).to_string());
            let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {total}");
        }
        let sum = self.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(text, "{name}_sum {sum}\n{name}_count {total}");
    }
}

impl Clone for Histogram {
    fn clone(&self) -> Histogram {
        let copy = |counter: &AtomicU64| AtomicU64::new(counter.load(Ordering::Relaxed));
        Histogram {
            buckets: std::array::from_fn(|index| copy(&self.buckets[index])),
            sum_us: copy(&self.sum_us),
            last_us: copy(&self.last_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up() {
        let histogram = Histogram::default();
        histogram.record(100, 1);
        histogram.record(101, 2);
        histogram.record(u64::MAX, 1);
        let mut text = String::new();
        histogram.write("x_seconds", "X.", &mut text);
        assert!(text.contains("x_seconds_bucket{le=\"0.0001\"} 1\n"), "{text}");
        assert!(text.contains("x_seconds_bucket{le=\"0.00025\"} 3\n"), "{text}");
        assert!(text.contains("x_seconds_bucket{le=\"+Inf\"} 4\n"), "{text}");
        assert!(text.contains("x_seconds_count 4\n"), "{text}");
        assert_eq!(histogram.count(), 4);
    }
}
