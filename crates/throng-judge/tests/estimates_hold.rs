use throng_judge::{Block, Criterion, Estimate, Samples, Verdict, level_estimate, quantile, share_estimate};

fn independent(over: u64, of: u64) -> Vec<Block> {
    // Spread as evenly as possible, so that blocks vary less than independent events would.
    let blocks = 20;
    (0..blocks).map(|b| Block { over: over / blocks + u64::from(b < over % blocks), of: of / blocks }).collect()
}

/// The numbers of events that are needed to accept 2 % with 95 % were computed elsewhere (binomial tables).
#[test]
fn shares_need_as_many_events_as_the_tables_say() {
    for (share, needed) in [(0.0088, 470_u64), (0.0126, 990), (0.018, 13_200)] {
        let accepts = |of: u64| {
            let of = of / 20 * 20;
            share_estimate(&independent((share * of as f64).round() as u64, of)).high <= 0.02
        };
        assert!(!accepts(needed * 7 / 10), "{share} of {needed} is accepted too early");
        assert!(accepts(needed * 13 / 10), "{share} of {needed} is not accepted");
    }
}

#[test]
fn one_more_late_frame_never_makes_a_run_look_better() {
    for (count, of) in [(10, 30), (30, 10), (100, 30), (1_000, 30)] {
        // Every block has one late frame until all have one: as far from a burst as they can be.
        let high = |over: usize| {
            let block = |number: usize| Block { over: u64::from(number < over), of };
            share_estimate(&(0..count).map(block).collect::<Vec<_>>()).high
        };
        let highs: Vec<f64> = (0..=count.min(60)).map(high).collect();
        for (over, pair) in highs.windows(2).enumerate() {
            assert!(pair[1] >= pair[0], "{count} x {of}, {over} late: {} and then {}", pair[0], pair[1]);
        }
    }
}

#[test]
fn bounds_of_a_share_are_those_of_clopper_and_pearson() {
    // 10 of 100: 95 % one-sided bounds 0.05526 and 0.16372 (sums of binomial probabilities).
    let Estimate { value, low, high } = share_estimate(&independent(10, 100));
    assert!(
        (value - 0.1).abs() < 1e-12 && (low - 0.055_26).abs() < 2e-4 && (high - 0.163_72).abs() < 2e-4,
        "{low} {high}"
    );
}

#[test]
fn bounds_of_many_events_are_near_the_exact_ones() {
    // No event of n, if they come by four: 1 - 0.05^(4/n). 200 of 20,000, one-sided: 0.01118.
    let none = share_estimate(&independent(0, 80_000)).high;
    assert!((none / 1.498e-4 - 1.0).abs() < 0.3, "{none}");
    let some = share_estimate(&independent(200, 20_000));
    assert!((some.high - 0.011_18).abs() < 2e-4 && (some.low - 0.008_90).abs() < 2e-4, "{some:?}");
    // Where the two methods meet there is no leap.
    let (below, above) = (share_estimate(&independent(100, 10_000)), share_estimate(&independent(100, 10_020)));
    assert!((below.high / above.high - 1.0).abs() < 0.02, "{below:?} {above:?}");
}

#[test]
fn events_in_bursts_count_as_fewer() {
    let even = share_estimate(&independent(100, 10_000));
    let mut bursts = independent(0, 10_000);
    bursts[3].over = 100;
    let burst = share_estimate(&bursts);
    assert!(burst.high > 2.0 * even.high, "{burst:?} against {even:?}");
    assert_eq!(burst.value, even.value);
}

#[test]
fn the_bounds_hold_as_often_as_they_say() {
    let mut random = fastrand::Rng::with_seed(7);
    for share in [0.002, 0.02, 0.3] {
        let (mut low, mut high) = (0, 0);
        for _ in 0..1_000 {
            let block = |random: &mut fastrand::Rng| Block {
                over: (0..50).map(|_| u64::from(random.f64() < share)).sum(),
                of: 50,
            };
            let blocks: Vec<Block> = (0..40).map(|_| block(&mut random)).collect();
            let estimate = share_estimate(&blocks);
            low += u32::from(estimate.low > share);
            high += u32::from(estimate.high < share);
        }
        assert!(low <= 75 && high <= 75, "{share}: {low} and {high} of 1,000 bounds do not hold");
    }
    let (mut low, mut high) = (0, 0);
    for _ in 0..1_000 {
        // Neighbours alike: each sample is half of the one before it.
        let mut deviation = 0.0;
        let samples: Vec<f64> = (0..60)
            .map(|_| {
                deviation = 0.5 * deviation + random.f64() - 0.5;
                0.8 + 0.02 * deviation
            })
            .collect();
        let estimate = level_estimate(&samples);
        low += u32::from(estimate.low > 0.8);
        high += u32::from(estimate.high < 0.8);
    }
    assert!(low <= 90 && high <= 90, "levels: {low} and {high} of 1,000 bounds do not hold");
}

/// Frames of a second or less are late together. In holds of half a minute and less than two bursts, the bound has nothing but its
/// assumption of their length.
#[test]
fn the_bound_holds_for_bursts_as_long_as_those_that_it_assumes() {
    const PER_BLOCK: u64 = 30;
    let mut random = fastrand::Rng::with_seed(5);
    for (burst, blocks, share) in
        [(1, 30, 0.01), (2, 60, 0.003), (4, 30, 0.01), (4, 60, 0.003), (4, 120, 0.003), (20, 600, 0.01)]
    {
        let begins = share / f64::from(burst) / (1.0 - share + share / f64::from(burst));
        let mut wrong = 0;
        for _ in 0..1_000 {
            let mut left = 0;
            let mut is_late = || {
                left = if left > 0 {
                    left - 1
                } else if random.f64() < begins {
                    burst
                } else {
                    0
                };
                u64::from(left > 0)
            };
            let mut block = || Block { over: (0..PER_BLOCK).map(|_| is_late()).sum(), of: PER_BLOCK };
            let blocks: Vec<Block> = (0..blocks).map(|_| block()).collect();
            wrong += u32::from(share_estimate(&blocks).high < share);
        }
        assert!(wrong <= 80, "bursts of {burst} in {blocks} blocks, {share}: {wrong} of 1,000 bounds do not hold");
    }
}

#[test]
fn nothing_measured_is_undecided() {
    for samples in [Samples::Share(Vec::new()), Samples::Level(Vec::new()), Samples::Level(vec![0.1])] {
        assert_eq!(Criterion::new("processor", 0.85).judge(samples).verdict, Verdict::Undecided);
    }
    let broken = Samples::Level(vec![0.1, f64::NAN, 0.1]);
    assert_eq!(Criterion::new("processor", 0.85).judge(broken).verdict, Verdict::Undecided);
}

#[test]
fn counts_that_contradict_themselves_have_bounds_between_0_and_1() {
    let odd = [Block { over: 9, of: 3 }, Block { over: 1, of: 0 }];
    let estimate = share_estimate(&odd);
    assert!(estimate.value <= 1.0 && estimate.low <= estimate.value && estimate.high >= estimate.value, "{estimate:?}");
}

#[test]
fn quantiles_lie_between_values() {
    assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0], 0.5), Some(2.5));
    assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0], 1.0), Some(4.0));
    assert_eq!(quantile(&[], 0.5), None);
}
