//! Durations and counts in fixed buckets, cheap to count from some threads and to read from others.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

const BOUNDS: usize = 14;

/// Upper bounds of the buckets of durations, in µs; the last one takes the rest.
const BOUNDS_US: [u64; BOUNDS] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 40_000, 60_000, 100_000, 250_000, 1_000_000, 5_000_000];

/// Upper bounds of the buckets of counts; the last one takes the rest.
const BOUNDS_COUNT: [u64; BOUNDS] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 4_096, 16_384, 65_536];

/// The measured quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Microseconds, told as seconds.
    #[default]
    Micros,
    /// A number of things.
    Count,
}

impl Scale {
    fn bounds(self) -> &'static [u64; BOUNDS] {
        match self {
            Scale::Micros => &BOUNDS_US,
            Scale::Count => &BOUNDS_COUNT,
        }
    }

    fn told(self, value: u64) -> f64 {
        match self {
            Scale::Micros => value as f64 / 1e6,
            Scale::Count => value as f64,
        }
    }
}

/// How often durations of which length, or counts of which size, were seen.
#[derive(Debug, Default)]
pub struct Histogram {
    scale: Scale,
    buckets: [AtomicU64; BOUNDS + 1],
    sum: AtomicU64,
    last: AtomicU64,
}

impl Histogram {
    /// An empty one for this quantity.
    pub fn with_scale(scale: Scale) -> Histogram {
        Histogram { scale, ..Histogram::default() }
    }

    /// Counts a value, in µs if these are durations, `count` times.
    pub fn record(&self, value: u64, count: u64) {
        let bucket = self.scale.bounds().partition_point(|&bound| bound < value);
        self.buckets[bucket].fetch_add(count, Ordering::Relaxed);
        self.sum.fetch_add(value.saturating_mul(count), Ordering::Relaxed);
        self.last.store(value, Ordering::Relaxed);
    }

    /// Counts all that another one of the same quantity has counted.
    pub fn add(&self, other: &Histogram) {
        for (own, other) in self.buckets.iter().zip(&other.buckets).chain([(&self.sum, &other.sum)]) {
            own.fetch_add(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The last duration, in seconds.
    pub fn last_s(&self) -> f64 {
        self.last.load(Ordering::Relaxed) as f64 / 1e6
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// Appends the histogram in Prometheus' text format.
    pub fn write(&self, name: &str, help: &str, text: &mut String) {
        write_head(name, help, text);
        self.write_series(name, "", text);
    }

    /// Appends the samples alone. `labels` are further ones, as `type="ENTITY"`; empty for none.
    pub fn write_series(&self, name: &str, labels: &str, text: &mut String) {
        let mut total = 0;
        let (comma, braces) = match labels {
            "" => ("", ["", ""]),
            _ => (",", ["{", "}"]),
        };
        for (bucket, bound) in self.buckets.iter().zip(self.scale.bounds().map(Some).into_iter().chain([None])) {
            total += bucket.load(Ordering::Relaxed);
            let bound = bound.map_or("+Inf".to_owned(), |bound| self.scale.told(bound).to_string());
            let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {total}");
        }
        let [open, close] = braces;
        let sum = self.scale.told(self.sum.load(Ordering::Relaxed));
        let _ = writeln!(text, "{name}_sum{open}{labels}{close} {sum}\n{name}_count{open}{labels}{close} {total}");
    }
}

/// Appends what precedes the samples of a histogram.
pub fn write_head(name: &str, help: &str, text: &mut String) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
}

impl Clone for Histogram {
    fn clone(&self) -> Histogram {
        let copy = |counter: &AtomicU64| AtomicU64::new(counter.load(Ordering::Relaxed));
        Histogram {
            scale: self.scale,
            buckets: std::array::from_fn(|index| copy(&self.buckets[index])),
            sum: copy(&self.sum),
            last: copy(&self.last),
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

    #[test]
    fn counts_are_told_as_they_are_and_labels_stand_before_the_bound() {
        let histogram = Histogram::with_scale(Scale::Count);
        histogram.record(3, 2);
        let mut text = String::new();
        histogram.write_series("waiting", "type=\"ENTITY\"", &mut text);
        assert!(text.contains("waiting_bucket{type=\"ENTITY\",le=\"2\"} 0\n"), "{text}");
        assert!(text.contains("waiting_bucket{type=\"ENTITY\",le=\"4\"} 2\n"), "{text}");
        assert!(text.contains("waiting_sum{type=\"ENTITY\"} 6\nwaiting_count{type=\"ENTITY\"} 2\n"), "{text}");
    }
}
