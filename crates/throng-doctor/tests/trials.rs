//! A worth is claimed only if it is more than noise.

use throng_doctor::{Trial, compare};

fn trial(figures: &[f64]) -> Trial {
    let half = |rest: usize| figures.iter().skip(rest).step_by(2).copied().collect();
    Trial { without: half(0), with: half(1) }
}

#[test]
fn the_figures_of_a_small_trial_are_these() {
    let compared = compare(&trial(&[10.0, 9.0, 10.0, 8.0, 10.0, 8.5, 10.5])).unwrap();
    let round = |value: f64| (value * 1e4).round() / 1e4;
    assert_eq!(round(compared.difference), -0.1707);
    assert_eq!(compared.interval.map(round), [-0.2, -0.1]);
    assert_eq!((compared.confidence, round(compared.noise)), (0.75, 0.0488));
    assert!(compared.is_claimed);
    let words = "frame_ms.p99 17.1 % lower on this machine (-20.0 to -10.0 %, 75 % confidence; noise 4.9 %)";
    assert_eq!(compared.verdict("frame_ms.p99"), words);
}

#[test]
fn a_difference_within_the_noise_or_on_both_sides_is_none() {
    let within = compare(&trial(&[10.0, 9.8, 10.5, 9.9, 10.0, 9.9, 10.4])).unwrap();
    assert!(within.interval[1] < 0.0 && !within.is_claimed, "{within:?}");
    assert!(within.verdict("x").starts_with("none: x changed by -"), "{}", within.verdict("x"));
    let both = compare(&trial(&[10.0, 8.0, 10.0, 8.0, 10.0, 10.1, 10.0])).unwrap();
    assert!(both.difference < -0.1 && both.noise == 0.0 && !both.is_claimed, "{both:?}");
}

#[test]
fn a_machine_that_gets_slower_evenly_is_no_difference() {
    let drift = compare(&trial(&[10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0])).unwrap();
    assert!(drift.difference.abs() < 1e-9 && !drift.is_claimed, "{drift:?}");
}

#[test]
fn what_cannot_be_compared_is_nothing() {
    for figures in [&[1.0, 2.0, 1.0, 2.0, 1.0][..], &[1.0; 8], &[], &[1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 0.0]] {
        assert_eq!(compare(&trial(figures)), None, "{figures:?}");
    }
    assert_eq!(compare(&trial(&[1.0, 2.0, 1.0, f64::NAN, 1.0, 2.0, 1.0])), None);
}

/// About normal, from a mean of twelve even numbers.
fn noise(random: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

fn claims(repeats: usize, effect: f64, deviation: f64) -> f64 {
    const TRIALS: u64 = 2_000;
    let mut random = fastrand::Rng::with_seed(7);
    let mut claims = 0;
    for _ in 0..TRIALS {
        let figure = |index: usize| {
            let level = if index % 2 == 1 { 1.0 + effect } else { 1.0 };
            level * (1.0 + deviation * noise(&mut random))
        };
        let figures: Vec<f64> = (0..=2 * repeats).map(figure).collect();
        claims += u32::from(compare(&trial(&figures)).unwrap().is_claimed);
    }
    f64::from(claims) / TRIALS as f64
}

#[test]
fn noise_alone_is_seldom_claimed_and_a_real_difference_is_found() {
    assert!(claims(3, 0.0, 0.05) < 0.08, "{}", claims(3, 0.0, 0.05));
    assert!(claims(6, 0.0, 0.05) < 0.01, "{}", claims(6, 0.0, 0.05));
    assert!(claims(3, -0.1, 0.01) > 0.99, "{}", claims(3, -0.1, 0.01));
    assert!(claims(6, -0.1, 0.02) > 0.95, "{}", claims(6, -0.1, 0.02));
}
