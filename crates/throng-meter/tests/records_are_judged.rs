//! Budgets, history and distributions.

use throng_meter::{
    Budget, Budgets, HISTOGRAM_MAX, Histogram, History, MAX_HISTORY_TICKS, Percentiles, Subsystem, TickRecord,
};

fn record(tick: u64, parts: &[(Subsystem, u64)]) -> TickRecord {
    let mut record = TickRecord { tick, ..TickRecord::default() };
    for &(subsystem, ns) in parts {
        record.subsystem_ns[subsystem.index()] = ns;
        record.total_ns += ns;
    }
    record
}

/// A random number of up to `bits` bits, small ones as likely as large ones.
fn any_size(random: &mut fastrand::Rng, bits: u32) -> u64 {
    let shift = random.u32(64 - bits..64);
    random.u64(..) >> shift
}

#[test]
fn a_budget_is_exceeded_only_beyond_its_last_nanosecond() {
    let mut budgets = Budgets::new(&[
        Budget { subsystem: Subsystem::Send, micros: 9 },
        Budget { subsystem: Subsystem::Encode, micros: 2 },
        Budget { subsystem: Subsystem::Send, micros: 3 },
    ]);
    let kept = record(1, &[(Subsystem::Encode, 2_000), (Subsystem::Send, 3_000), (Subsystem::Simulate, 1 << 50)]);
    assert!(budgets.check(&kept).is_empty());
    let over = record(2, &[(Subsystem::Encode, 2_001), (Subsystem::Send, 9_000)]);
    assert_eq!(budgets.check(&over).iter().collect::<Vec<_>>(), [Subsystem::Encode, Subsystem::Send]);
    let half = budgets.check(&record(3, &[(Subsystem::Encode, 2_001)]));
    assert!(half.contains(Subsystem::Encode) && !half.contains(Subsystem::Send) && !half.is_empty());
    assert_eq!([Subsystem::Encode, Subsystem::Send, Subsystem::Simulate].map(|s| budgets.times_exceeded(s)), [2, 1, 0]);
}

#[test]
fn a_full_history_drops_the_oldest_and_counts_it() {
    let mut history = History::new(3);
    assert_eq!((history.len(), history.newest()), (0, None));
    for tick in 1..=8 {
        history.push(&record(tick, &[(Subsystem::Other, tick)]));
        let kept: Vec<u64> = history.iter().map(|record| record.tick).collect();
        let expected: Vec<u64> = (tick.saturating_sub(2).max(1)..=tick).collect();
        assert_eq!(kept, expected);
        assert_eq!(history.newest().map(|record| record.tick), Some(tick));
    }
    assert_eq!((history.len(), history.dropped()), (3, 5));
    let figures = history.percentiles(|record| record.total_ns);
    assert_eq!((figures.count, figures.p50, figures.max, figures.mean), (3, 7, 8, 7.0));
    history.clear();
    history.push(&record(20, &[]));
    assert_eq!((history.iter().map(|record| record.tick).collect::<Vec<_>>(), history.dropped()), (vec![20], 0));
}

#[test]
fn a_history_has_a_size_within_its_limits() {
    assert_eq!(History::new(0).capacity(), 1);
    assert_eq!(History::new(usize::MAX).capacity(), MAX_HISTORY_TICKS);
}

#[test]
fn percentiles_match_a_sorted_list_to_three_digits() {
    throng_seeds::for_seeds(50, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut values: Vec<u64> = (0..random.usize(1..2_000)).map(|_| any_size(&mut random, 39)).collect();
        let figures = Percentiles::of(&values);
        values.sort_unstable();
        let rank = |share: f64| values[((values.len() as f64 * share).ceil() as usize).max(1) - 1];
        for (found, exact) in [(figures.p50, rank(0.5)), (figures.p99, rank(0.99))] {
            assert!(found.abs_diff(exact) * 1_000 <= exact + 1_000, "seed {seed}: {found} instead of {exact}");
        }
        assert_eq!((figures.count, figures.max), (values.len() as u64, values[values.len() - 1]), "seed {seed}");
        let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
        assert!((figures.mean - mean).abs() <= mean * 1e-12, "seed {seed}");
    });
    assert_eq!(Percentiles::of(&[]), Percentiles::default());
}

#[test]
fn merged_histograms_equal_one_that_saw_everything() {
    let mut random = fastrand::Rng::with_seed(3);
    let (mut one, mut two, mut all) = (Histogram::new(), Histogram::new(), Histogram::new());
    for _ in 0..10_000 {
        let value = any_size(&mut random, 64);
        if random.bool() {
            one.record(value)
        } else {
            two.record(value)
        }
        all.record(value);
    }
    one.merge(&two);
    assert_eq!(one.percentiles(), all.percentiles());
    assert_eq!((one.quantile(0.01), one.saturated()), (all.quantile(0.01), all.saturated()));
    assert!(all.saturated() > 0);
    one.clear();
    assert_eq!((one.percentiles(), one.saturated(), one.is_empty()), (Percentiles::default(), 0, true));
}

#[test]
fn values_beyond_the_range_count_as_its_end() {
    let mut histogram = Histogram::new();
    for value in [0, HISTOGRAM_MAX, HISTOGRAM_MAX + 1, u64::MAX] {
        histogram.record(value);
    }
    assert_eq!((histogram.len(), histogram.max(), histogram.saturated()), (4, HISTOGRAM_MAX, 2));
    assert_eq!(
        (histogram.quantile(0.0), histogram.quantile(1.0), histogram.quantile(7.0)),
        (0, HISTOGRAM_MAX, HISTOGRAM_MAX)
    );
}
