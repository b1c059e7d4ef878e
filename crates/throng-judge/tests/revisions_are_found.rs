use throng_judge::{TrendOptions, change_points};

/// The time of a subsystem at each revision, with the noise of a quiet machine.
fn series(random: &mut fastrand::Rng, count: usize, noise: f64, level: impl Fn(usize) -> f64) -> Vec<f64> {
    let wobble = |random: &mut fastrand::Rng| 1.0 + noise * 2.0 * (random.f64() + random.f64() + random.f64() - 1.5);
    (0..count).map(|index| level(index) * wobble(random)).collect()
}

#[test]
fn a_planted_slowdown_of_five_per_cent_is_found_in_the_right_interval() {
    let (mut inside, mut found) = (0, 0);
    throng_seeds::for_seeds(100, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let at = 10 + random.usize(..80);
        let values = series(&mut random, 100, 0.015, |index| if index < at { 0.8 } else { 0.84 });
        let points = change_points(&values, &TrendOptions::default());
        found += usize::from(points.len() == 1);
        let is_inside = points.iter().any(|point| point.after < at && at <= point.until);
        inside += usize::from(is_inside);
        if let Some(point) = points.first() {
            assert!((point.ratio() - 1.05).abs() < 0.03, "{point:?}");
            assert!(point.until - point.after <= 15, "{point:?} names too many revisions");
        }
    });
    assert!(
        throng_seeds::is_partial() || found >= 97 && inside >= 93,
        "{found} found, {inside} in the interval, of 100"
    );
}

/// Ten subsystems, a hundred revisions, a hundred times: 1,000 clean series, each with an alarm at a probability of 0.1 %.
#[test]
fn a_thousand_clean_series_give_hardly_an_alarm() {
    let (mut alarms, mut clean) = (0, 0);
    throng_seeds::for_seeds(100, |project| {
        let mut random = fastrand::Rng::with_seed(project);
        for part in 0..10 {
            let values = series(&mut random, 100, 0.03, |_| f64::from(part + 1));
            clean += 1;
            alarms += change_points(&values, &TrendOptions { seed: project, ..TrendOptions::default() }).len();
        }
    });
    // Of 1,000 series one is expected, and more than five hardly ever.
    assert!(alarms <= 5 + clean / 500, "{alarms} alarms in {clean} clean series");
}

#[test]
fn one_slow_run_is_no_change() {
    let mut random = fastrand::Rng::with_seed(5);
    let values = series(&mut random, 60, 0.01, |index| if index == 30 { 1.5 } else { 1.0 });
    assert_eq!(change_points(&values, &TrendOptions::default()), []);
}

#[test]
fn two_changes_are_two() {
    let mut random = fastrand::Rng::with_seed(6);
    let level = |index: usize| {
        if index < 40 {
            1.0
        } else if index < 70 {
            1.1
        } else {
            0.9
        }
    };
    let values = series(&mut random, 100, 0.01, level);
    let found: Vec<(usize, bool)> =
        change_points(&values, &TrendOptions::default()).iter().map(|point| (point.at, point.ratio() > 1.0)).collect();
    assert_eq!(found, [(40, true), (70, false)]);
}

#[test]
fn a_change_that_does_not_matter_is_left_out() {
    let values: Vec<f64> =
        (0..100).map(|index| if index < 50 { 1.0 } else { 1.01 } + 1e-4 * f64::from(index % 7)).collect();
    assert_eq!(change_points(&values, &TrendOptions::default()), []);
}

#[test]
fn gaps_and_short_series_have_no_changes() {
    for values in [vec![], vec![1.0], vec![1.0, 2.0, 3.0], vec![f64::NAN; 50], vec![0.0; 50]] {
        assert_eq!(change_points(&values, &TrendOptions::default()), []);
    }
}

/// A part that is new, one that was removed, and one that each fourth run measures, as a figure that costs time.
#[test]
fn revisions_without_a_value_are_no_values() {
    let is_there: [fn(usize) -> bool; 3] = [|index| index >= 40, |index| index < 60, |index| index % 4 == 0];
    throng_seeds::for_seeds(10, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        for is_there in is_there {
            let with_gaps = |values: Vec<f64>| -> Vec<f64> {
                values.into_iter().enumerate().map(|(at, value)| if is_there(at) { value } else { f64::NAN }).collect()
            };
            let same = with_gaps(series(&mut random, 100, 0.03, |_| 1.0));
            assert_eq!(change_points(&same, &TrendOptions { seed, ..TrendOptions::default() }), []);
            // The range is wrong in one of twenty cases, and the change is at its worst place in some.
            let slower = with_gaps(series(&mut random, 100, 0.01, for_a_while(50, 100, 1.2)));
            let points = change_points(&slower, &TrendOptions { seed, ..TrendOptions::default() });
            let [point] = points[..] else { panic!("{points:?}") };
            assert!(point.after < 50 && point.until >= 50, "{point:?}");
            assert!([point.at, point.after, point.until].into_iter().all(is_there), "{point:?}");
        }
    });
}

/// A part that is slow from one revision to another one.
fn for_a_while(from: usize, until: usize, slow: f64) -> impl Fn(usize) -> f64 {
    move |index| if (from..until).contains(&index) { slow } else { 1.0 }
}

#[test]
fn a_change_that_is_taken_back_is_two_changes() {
    for (from, until, count, slow) in [(60, 90, 150, 1.1), (50, 80, 140, 1.5), (40, 60, 100, 1.2)] {
        throng_seeds::for_seeds(10, |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let values = series(&mut random, count, 0.015, for_a_while(from, until, slow));
            let points = change_points(&values, &TrendOptions { seed, ..TrendOptions::default() });
            let [up, down] = points[..] else { panic!("{points:?} of {from} to {until}") };
            assert!(up.ratio() > 1.05 && down.ratio() < 0.95, "{points:?}");
            for (point, at) in [(up, from), (down, until)] {
                assert!(point.at.abs_diff(at) <= 2 && point.after < point.until, "{points:?} and not {at}");
            }
        });
    }
}

#[test]
fn some_neighbouring_slow_runs_are_no_change() {
    for (from, until) in [(50, 53), (20, 25)] {
        throng_seeds::for_seeds(10, |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let values = series(&mut random, 100, 0.015, for_a_while(from, until, 1.5));
            assert_eq!(change_points(&values, &TrendOptions { seed, ..TrendOptions::default() }), []);
        });
    }
}

#[test]
fn a_change_from_nothing_hides_no_other_one() {
    for levels in [[0.0, 1.0, 1.5], [1.5, 0.0, 1.0]] {
        let mut random = fastrand::Rng::with_seed(7);
        let values =
            series(&mut random, 100, 0.015, |index| levels[usize::from(index >= 30) + usize::from(index >= 70)]);
        let points = change_points(&values, &TrendOptions::default());
        let found: Vec<usize> = points.iter().map(|point| point.at).collect();
        assert_eq!(found, [30, 70], "{points:?}");
        let from_nothing = points.iter().find(|point| point.before_median == 0.0).expect("one of them");
        assert_eq!(from_nothing.ratio(), f64::INFINITY);
    }
}

#[test]
fn steps_that_matter_only_together_are_one_change() {
    let level = |index: usize| 1.0 + 0.015 * (index / 50) as f64;
    let values: Vec<f64> = (0..150).map(|index| level(index) + 1e-4 * f64::from(index as u32 % 7)).collect();
    let points = change_points(&values, &TrendOptions::default());
    let [point] = points[..] else { panic!("{points:?}") };
    assert!([50, 100].contains(&point.at) && (0.02..0.03).contains(&(point.ratio() - 1.0)), "{point:?}");
}
