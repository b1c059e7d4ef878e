use throng_judge::steady_from;

/// 60 samples around 10, with noise, after `course` was added to each.
fn series(seed: u64, noise: f64, course: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..60).map(|second| 10.0 + course(f64::from(second)) + noise * (random.f64() - 0.5)).collect()
}

#[test]
fn noise_alone_is_steady_from_the_beginning() {
    for noise in [0.0, 0.5, 8.0] {
        let early = (0..200).filter(|&seed| steady_from(&series(seed, noise, |_| 0.0)) == Some(0)).count();
        assert!(early >= 195, "noise {noise}: {early} of 200");
    }
}

#[test]
fn the_beginning_of_a_cold_server_is_cut_off() {
    throng_seeds::for_seeds(200, |seed| {
        let from = steady_from(&series(seed, 0.5, |second| 20.0 * (-second / 4.0).exp()));
        // After 12 s it is within 10 % of its level, after 20 s within 1.5 %.
        assert!(from.is_some_and(|from| (6..=24).contains(&from)), "seed {seed}: {from:?}");
    });
}

#[test]
fn growth_and_a_late_change_are_not_steady() {
    throng_seeds::for_seeds(200, |seed| {
        assert_eq!(steady_from(&series(seed, 0.5, |second| second / 10.0)), None, "seed {seed}");
        assert_eq!(
            steady_from(&series(seed, 0.5, |second| if second > 44.0 { 5.0 } else { 0.0 })),
            None,
            "seed {seed}"
        );
        let early = steady_from(&series(seed, 0.5, |second| if second < 20.0 { 5.0 } else { 0.0 }));
        assert!(early.is_some_and(|from| (18..=24).contains(&from)), "seed {seed}: {early:?}");
    });
}

#[test]
fn few_samples_and_impossible_ones_say_nothing() {
    assert_eq!(steady_from(&[1.0; 5]), None);
    assert_eq!(steady_from(&[1.0; 6]), Some(0));
    assert_eq!(steady_from(&[1.0, f64::NAN, 1.0, 1.0, 1.0, 1.0]), None);
}
