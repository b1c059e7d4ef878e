use throng_judge::{Change, ChangeKind, ChangeOptions, VALUES_MIN, compare, compare_pairs, have_moved_together};

fn values(random: &mut fastrand::Rng, middle: f64, spread: f64, count: usize) -> Vec<f64> {
    (0..count).map(|_| middle * (1.0 + spread * (random.f64() + random.f64() + random.f64() - 1.5))).collect()
}

/// A distribution: its name, and one value by a random number.
type Shape = (&'static str, fn(&mut fastrand::Rng) -> f64);

/// Distributions of the figures of runs.
const SHAPES: [Shape; 5] = [
    ("even", |random| 1.0 + 0.05 * random.f64()),
    ("a sum of many", |random| 1.0 + 0.02 * (0..12).map(|_| random.f64() - 0.5).sum::<f64>()),
    ("two speeds of the machine", |random| if random.u8(..4) == 0 { 1.5 } else { 1.0 } + 0.01 * random.f64()),
    ("rare large ones", |random| 1.0 + 0.01 / (random.f64() + 1e-3)),
    ("few different values", |random| 1.0 + 0.1 * f64::from(random.u8(..3))),
];

#[test]
fn equal_distributions_are_called_different_as_seldom_as_stated_and_intervals_hold_the_true_ratio() {
    const TRIALS: u64 = 1_000;
    // No change is too small here: only the noise decides.
    let options = ChangeOptions { least: 0.0, ..ChangeOptions::default() };
    for (shape, draw) in SHAPES {
        for (count, other) in [(5, 5), (5, 12), (9, 9), (30, 30)] {
            let (mut alarms, mut outside) = (0, 0);
            throng_seeds::for_seeds(TRIALS, |seed| {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut side = |count: usize, factor: f64| (0..count).map(|_| factor * draw(&mut random)).collect();
                let (first, second): (Vec<f64>, Vec<f64>) = (side(count, 1.0), side(other, 1.0));
                alarms += u32::from(matches!(
                    compare(&first, &second, &options).kind,
                    ChangeKind::Higher | ChangeKind::Lower
                ));
                let scaled: Vec<f64> = side(other, 1.1);
                let ratio = compare(&first, &scaled, &options).ratio;
                outside += u32::from(ratio.low > 1.1 + 1e-9 || ratio.high < 1.1 - 1e-9);
            });
            // 1 % and 5 %, and three standard deviations of a simulation of 1,000.
            let of = format!("of {TRIALS}: {shape}, {count} and {other} runs");
            assert!(
                throng_seeds::is_partial() || (alarms <= 19 && outside <= 71),
                "{alarms} alarms, {outside} outside {of}"
            );
        }
    }
}

#[test]
fn too_few_runs_decide_nothing_and_say_how_many_more_are_needed() {
    for count in 1..VALUES_MIN {
        let (first, second) = (vec![1.0; count], vec![2.0; count + 3]);
        for (first, second) in [(&first, &second), (&second, &first), (&first, &first)] {
            let change = compare(first, second, &ChangeOptions::default());
            assert_eq!((change.kind, change.more), (ChangeKind::Undecided, Some(VALUES_MIN - count)), "{change:?}");
            assert!(
                change.words().starts_with("undecided: ") && change.words().contains(" more run"),
                "{}",
                change.words()
            );
        }
    }
    assert_eq!(compare(&[], &[1.0], &ChangeOptions::default()).words(), "undecided: 5 more runs on each side");
}

#[test]
fn so_many_more_runs_as_are_asked_for_mostly_decide() {
    let (mut decided, mut all) = (0, 0);
    throng_seeds::for_seeds(100, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut first, mut second) = (values(&mut random, 2.0, 0.12, 6), values(&mut random, 2.2, 0.12, 6));
        let change = compare(&first, &second, &ChangeOptions::default());
        let Some(more) = change.more else { return };
        first.extend(values(&mut random, 2.0, 0.12, more));
        second.extend(values(&mut random, 2.2, 0.12, more));
        all += 1;
        decided += u32::from(compare(&first, &second, &ChangeOptions::default()).kind != ChangeKind::Undecided);
    });
    assert!(throng_seeds::is_partial() || (all >= 30 && decided * 2 >= all), "{decided} of {all} are decided");
}

#[test]
fn a_against_a_says_no_change() {
    let mut wrong = 0;
    throng_seeds::for_seeds(300, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let (first, second) = (values(&mut random, 2.0, 0.02, 8), values(&mut random, 2.0, 0.02, 8));
        wrong += u32::from(compare(&first, &second, &ChangeOptions::default()).kind != ChangeKind::None);
    });
    assert!(throng_seeds::is_partial() || wrong <= 1, "{wrong} of 300 say that something has changed");
}

#[test]
fn a_change_of_five_per_cent_is_found_in_both_directions() {
    throng_seeds::for_seeds(100, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let (first, second) = (values(&mut random, 2.0, 0.02, 8), values(&mut random, 2.1, 0.02, 8));
        let slower = compare(&first, &second, &ChangeOptions::default());
        assert_eq!(slower.kind, ChangeKind::Higher, "{slower:?}");
        assert!(slower.ratio.low < 1.05 + 0.02 && slower.ratio.high > 1.05 - 0.02, "{slower:?}");
        assert_eq!(compare(&second, &first, &ChangeOptions::default()).kind, ChangeKind::Lower);
    });
}

#[test]
fn a_difference_that_does_not_matter_is_no_change() {
    let mut random = fastrand::Rng::with_seed(3);
    let (first, second) = (values(&mut random, 2.0, 0.01, 300), values(&mut random, 2.02, 0.01, 300));
    let change = compare(&first, &second, &ChangeOptions::default());
    assert!(change.p < 0.001 && change.kind == ChangeKind::None, "{change:?}");
    assert!(change.words().starts_with("no change"), "{}", change.words());
}

#[test]
fn a_wide_spread_is_undecided_and_not_called_alike() {
    let (first, second) = ([1.0, 1.4, 0.8, 1.2, 0.9], [1.3, 1.0, 1.5, 0.9, 1.4]);
    assert_eq!(compare(&first, &second, &ChangeOptions::default()).kind, ChangeKind::Undecided);
}

/// Of five and five values, 2 of 252 orders are as extreme as complete separation; of six and four, 2 of 210.
#[test]
fn the_probability_of_ranks_is_counted() {
    let p = |first: &[f64], second: &[f64]| compare(first, second, &ChangeOptions::default()).p;
    let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(close(p(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]), 2.0 / 252.0));
    assert!(close(p(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[7.0, 8.0, 9.0, 10.0]), 2.0 / 210.0));
    assert!(close(p(&[1.0, 4.0], &[2.0, 3.0]), 1.0));
    // With ties: of 252 choices, one is as low as {1, 1, 2, 2, 3} and one as high.
    assert!(close(p(&[1.0, 1.0, 2.0, 2.0, 3.0], &[4.0, 4.0, 5.0, 5.0, 5.0]), 2.0 / 252.0));
    // Counted and estimated probabilities meet: 20 and 20 values, and 21 and 21.
    let shifted = |count: usize, by: f64| (0..count).map(|i| i as f64 + by).collect::<Vec<f64>>();
    let (counted, estimated) = (p(&shifted(20, 0.0), &shifted(20, 6.5)), p(&shifted(21, 0.0), &shifted(21, 6.5)));
    assert!((counted / estimated).ln().abs() < 0.5, "{counted} and {estimated}");
}

#[test]
fn many_values_are_compared_quickly() {
    let mut random = fastrand::Rng::with_seed(4);
    let (first, second) = (values(&mut random, 1.0, 0.3, 200_000), values(&mut random, 1.06, 0.3, 200_000));
    assert_eq!(compare(&first, &second, &ChangeOptions::default()).kind, ChangeKind::Higher);
}

#[test]
fn parts_that_move_together_are_the_machines_doing() {
    let change = |first: f64, second: f64| -> Change {
        let spread = [0.99, 0.995, 1.0, 1.005, 1.01];
        compare(&spread.map(|s| s * first), &spread.map(|s| s * second), &ChangeOptions::default())
    };
    let together: Vec<Change> = [1.0, 2.0, 0.3, 5.0, 0.7].iter().map(|part| change(*part, part * 1.1)).collect();
    assert!(have_moved_together(&together));
    let mut alone: Vec<Change> = [1.0, 2.0, 0.3, 5.0, 0.7].iter().map(|part| change(*part, *part)).collect();
    alone[1] = change(2.0, 2.4);
    assert!(!have_moved_together(&alone));
}

#[test]
fn values_that_are_no_numbers_are_left_out() {
    let (first, second) = ([1.0, f64::NAN, 1.0, f64::INFINITY, 1.0, 1.0, 1.0], [1.0, 1.0, f64::NAN, 1.0, 1.0, 1.0]);
    assert_eq!(compare(&first, &second, &ChangeOptions::default()).kind, ChangeKind::None);
}

#[test]
fn growth_from_zero_is_told_if_every_value_grew() {
    let kind = |first: &[f64], second: &[f64]| compare(first, second, &ChangeOptions::default()).kind;
    assert_eq!(kind(&[0.0; 6], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), ChangeKind::Higher);
    assert_eq!(kind(&[0.0; 6], &[0.0, 2.0, 3.0, 4.0, 5.0, 6.0]), ChangeKind::Undecided);
    assert_eq!(kind(&[0.0; 3], &[1.0; 3]), ChangeKind::Undecided, "too few");
    assert_eq!(kind(&[0.0; 6], &[0.0; 6]), ChangeKind::None);
}

#[test]
fn pairs_are_compared_whatever_the_workload_does_meanwhile() {
    let (mut wrong, mut missed) = (0, 0);
    throng_seeds::for_seeds(200, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        // The buy phase costs a tenth of the live phase.
        let mut pairs = |ratio: f64| -> Vec<(f64, f64)> {
            let noise = |random: &mut fastrand::Rng| 1.0 + 0.04 * (random.f64() + random.f64() - 1.0);
            let level = |index: u32| if index.is_multiple_of(4) { 0.1 } else { 1.0 };
            (0..20)
                .map(|index| (level(index) * noise(&mut random), ratio * level(index) * noise(&mut random)))
                .collect()
        };
        wrong += u32::from(compare_pairs(&pairs(1.0), &ChangeOptions::default()).kind != ChangeKind::None);
        missed += u32::from(compare_pairs(&pairs(1.06), &ChangeOptions::default()).kind != ChangeKind::Higher);
    });
    assert!(
        throng_seeds::is_partial() || (wrong <= 2 && missed <= 2),
        "{wrong} false alarms and {missed} misses of 200"
    );
    assert_eq!(compare_pairs(&[(0.0, 1.0); 9], &ChangeOptions::default()).kind, ChangeKind::Undecided);
    assert_eq!(compare_pairs(&[(2.0, 2.0); 9], &ChangeOptions::default()).kind, ChangeKind::None);
}
