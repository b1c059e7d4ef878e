//! Budgets and distributions.

use throng_meter::{Budgets, HISTOGRAM_MAX, Histogram, Percentiles, Subsystem};

/// A random number of up to `bits` bits, small ones as likely as large ones.
fn any_size(random: &mut fastrand::Rng, bits: u32) -> u64 {
    let shift = random.u32(64 - bits..64);
    random.u64(..) >> shift
}

#[test]
fn a_budget_is_exceeded_only_beyond_its_last_nanosecond() {
    let mut budgets = Budgets::new();
    budgets.set(Subsystem::SEND, 9_000);
    budgets.set(Subsystem::ENCODE, 2_000);
    budgets.set(Subsystem::SEND, 3_000);
    assert_eq!(budgets.exceeded_by(Subsystem::ENCODE, 2_000), None);
    assert_eq!(budgets.exceeded_by(Subsystem::ENCODE, 2_001), Some(2_000));
    assert_eq!(budgets.exceeded_by(Subsystem::SEND, 3_001), Some(3_000));
    assert_eq!(budgets.exceeded_by(Subsystem::SIMULATE, u64::MAX), None);
    assert_eq!(budgets.limit_ns(Subsystem::SEND), Some(3_000));
}

#[test]
fn percentiles_match_a_sorted_list_to_three_digits() {
    throng_seeds::for_seeds(50, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut values: Vec<u64> = (0..random.usize(1..2_000)).map(|_| any_size(&mut random, 39)).collect();
        let mut histogram = Histogram::new();
        values.iter().for_each(|&value| histogram.record(value));
        let figures = histogram.percentiles();
        values.sort_unstable();
        let rank = |share: f64| values[((values.len() as f64 * share).ceil() as usize).max(1) - 1];
        for (found, exact) in [(figures.p50, rank(0.5)), (figures.p99, rank(0.99))] {
            assert!(found.abs_diff(exact) * 1_000 <= exact + 1_000, "seed {seed}: {found} instead of {exact}");
        }
        assert_eq!((figures.count, figures.max), (values.len() as u64, values[values.len() - 1]), "seed {seed}");
        let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
        assert!((figures.mean - mean).abs() <= mean * 1e-12, "seed {seed}");
    });
}

#[test]
fn many_equal_values_count_like_one_after_the_other() {
    let (mut at_once, mut singly) = (Histogram::new(), Histogram::new());
    for (value, count) in [(0, 40), (7_000, 3), (12, 0), (1 << 50, 2)] {
        at_once.record_many(value, count);
        (0..count).for_each(|_| singly.record(value));
    }
    assert_eq!(at_once.percentiles(), singly.percentiles());
    assert_eq!((at_once.sum(), at_once.len()), (u128::from(21_000 + 2 * HISTOGRAM_MAX), 45));
    at_once.clear();
    assert_eq!((at_once.percentiles(), at_once.is_empty()), (Percentiles::default(), true));
}

#[test]
fn values_beyond_the_range_count_as_its_end() {
    let mut histogram = Histogram::new();
    for value in [0, HISTOGRAM_MAX, HISTOGRAM_MAX + 1, u64::MAX] {
        histogram.record(value);
    }
    let figures = histogram.percentiles();
    assert_eq!((figures.count, figures.max), (4, HISTOGRAM_MAX));
    assert_eq!(
        (histogram.quantile(0.0), histogram.quantile(1.0), histogram.quantile(7.0)),
        (0, HISTOGRAM_MAX, HISTOGRAM_MAX)
    );
}
