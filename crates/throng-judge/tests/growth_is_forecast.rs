use throng_judge::{Drift, Point};

/// Samples by second: a level that grows in steps of `step` on average every `every` seconds.
fn steps(seed: u64, step: f64, every: f64) -> Vec<Point> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut value = 50e6;
    (0..600)
        .map(|second| {
            if random.f64() < 1.0 / every {
                value += step;
            }
            Point { load: f64::from(second), value }
        })
        .collect()
}

#[test]
fn a_level_that_stands_still_has_no_growth() {
    let flat: Vec<Point> = (0..30).map(|second| Point { load: f64::from(second), value: 7e6 }).collect();
    let drift = Drift::fit(&flat).unwrap();
    assert_eq!((drift.slope.value, drift.slope.low, drift.slope.high), (0.0, 0.0, 0.0));
    assert_eq!(drift.forecast(86_400.0).high, 7e6);
}

#[test]
fn growth_in_steps_lies_within_its_bounds_as_often_as_they_say() {
    // 4 kB every other second, or 64 kB twice a minute: 2 kB/s.
    for (step, every) in [(4_096.0, 2.0), (65_536.0, 32.0)] {
        let fits: Vec<Drift> = (0..500).map(|seed| Drift::fit(&steps(seed, step, every)).unwrap()).collect();
        let within = |slope: fn(&Drift) -> bool| fits.iter().filter(|drift| slope(drift)).count();
        let (low, high) = (within(|drift| drift.slope.low <= 2_048.0), within(|drift| drift.slope.high >= 2_048.0));
        assert!(low >= 450 && high >= 450, "steps of {step}: {low} and {high} of 500");
        let mean = fits.iter().map(|drift| drift.slope.value).sum::<f64>() / 500.0;
        assert!((mean / 2_048.0 - 1.0).abs() < 0.05, "{mean}");
    }
}

#[test]
fn a_forecast_goes_on_from_the_end() {
    let line: Vec<Point> = (0..100).map(|t| Point { load: f64::from(t), value: 100.0 + 2.0 * f64::from(t) }).collect();
    let drift = Drift::fit(&line).unwrap();
    // The last of 20 blocks has its middle at 97.
    assert_eq!((drift.slope.value, drift.level), (2.0, 294.0));
    assert!((drift.forecast(10.0).value - 314.0).abs() < 1e-9);
}

#[test]
fn too_little_says_nothing() {
    let point = |load: f64| Point { load, value: 1.0 };
    assert_eq!(Drift::fit(&[point(0.0); 20]), None);
    assert_eq!(Drift::fit(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(point)), None);
}
