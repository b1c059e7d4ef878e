//! The values of a histogram, so that those of several processes become one.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// How often each value of a histogram was there: `[value, count]` pairs. A value is the largest of its bucket, so that another
/// histogram with the same bounds puts it into the same bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counted(Vec<(u64, u64)>);

/// The largest count of a value that is taken.
const COUNT_MAX: u64 = 1 << 40;

impl Counted {
    /// All that a histogram holds.
    pub fn of(histogram: &Histogram<u64>) -> Counted {
        let pairs = histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_since_last_iteration()));
        Counted(pairs.collect())
    }

    /// Adds it to a histogram with the same bounds. Values beyond them count as the nearest that it has.
    pub fn add_to(&self, histogram: &mut Histogram<u64>) {
        // From another machine may come any count: so many that no sum of them overflows.
        self.0.iter().for_each(|&(value, count)| histogram.saturating_record_n(value, count.min(COUNT_MAX)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histograms_of_two_processes_become_the_one_that_all_values_would_have_made() {
        let histogram = || Histogram::<u64>::new_with_bounds(1, 60_000_000, 3).expect("possible bounds");
        let (mut all, mut first, mut second) = (histogram(), histogram(), histogram());
        for number in 0..5_000u64 {
            let value = number * number % 7_000_001;
            all.saturating_record(value);
            if number % 3 == 0 { &mut first } else { &mut second }.saturating_record(value);
        }
        let text = serde_json::to_string(&[Counted::of(&first), Counted::of(&second)]).expect("JSON");
        let sent: [Counted; 2] = serde_json::from_str(&text).expect("the same");
        let mut joined = histogram();
        sent.iter().for_each(|counted| counted.add_to(&mut joined));
        assert_eq!(joined, all);
        // From another machine may come anything.
        Counted(vec![(0, u64::MAX), (u64::MAX, u64::MAX), (5, 0)]).add_to(&mut joined);
        assert!(joined.value_at_quantile(1.0) >= 60_000_000);
    }
}
