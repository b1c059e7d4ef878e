//! A worth is claimed only if it is more than noise.

use throng_doctor::{REPEATS, Trial, compare};

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
    assert_eq!((round(compared.confidence), round(compared.noise)), (0.6667, 0.0488));
    assert!(compared.is_claimed);
    let words = "frame_ms.p99 17.1 % lower on this machine (-20.0 to -10.0 %, 66 % confidence; noise 4.9 %)";
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
fn normal(random: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

/// The figures of so many loads that are all alike.
type Noise = fn(usize, &mut fastrand::Rng) -> Vec<f64>;

const NOISES: [(&str, Noise); 8] = [
    ("normal", |count, random| (0..count).map(|_| 1.0 + 0.05 * normal(random)).collect()),
    ("log-normal", |count, random| (0..count).map(|_| (0.3 * normal(random)).exp()).collect()),
    ("exponential", |count, random| (0..count).map(|_| 1.0 - 0.3 * (1.0 - random.f64()).ln()).collect()),
    // A few loads are disturbed, or each is in one of two modes.
    ("spikes", |count, random| modes(count, 0.15, random)),
    ("two modes", |count, random| modes(count, 0.5, random)),
    ("heavy tails", |count, random| {
        let cauchy = |random: &mut fastrand::Rng| (std::f64::consts::PI * (random.f64() - 0.5)).tan();
        (0..count).map(|_| (1.0 + 0.02 * cauchy(random)).max(0.01)).collect()
    }),
    // The machine changes slowly, or from time to time.
    ("a walk", |count, random| {
        let mut level = 1.0;
        let mut step = || {
            level += 0.01 * normal(random);
            level + 0.01 * normal(random)
        };
        (0..count).map(|_| step()).collect()
    }),
    ("states", |count, random| {
        let mut level = 1.0;
        let mut step = || {
            level = if random.f64() < 0.2 { 2.3 - level } else { level };
            level + 0.01 * normal(random)
        };
        (0..count).map(|_| step()).collect()
    }),
];

fn modes(count: usize, share: f64, random: &mut fastrand::Rng) -> Vec<f64> {
    let level = |random: &mut fastrand::Rng| if random.f64() < share { 1.3 } else { 1.0 };
    (0..count).map(|_| level(random) + 0.02 * normal(random)).collect()
}

/// The shares of trials without an effect that claim a worth, and whose interval does not hold zero.
fn shares(repeats: usize, noise: Noise) -> (f64, f64) {
    const TRIALS: u32 = 40_000;
    let mut random = fastrand::Rng::with_seed(7);
    let (mut claimed, mut missed) = (0, 0);
    for _ in 0..TRIALS {
        let compared = compare(&trial(&noise(2 * repeats + 1, &mut random))).unwrap();
        claimed += u32::from(compared.is_claimed);
        missed += u32::from(compared.interval[0] > 0.0 || compared.interval[1] < 0.0);
    }
    (f64::from(claimed) / f64::from(TRIALS), f64::from(missed) / f64::from(TRIALS))
}

/// The table of docs/doctor.md: repeats, confidence, and the largest share of trials that claim noise alone, in per cent.
const PROMISES: [(usize, f64, f64); 5] =
    [(3, 66.0, 7.5), (4, 81.0, 3.5), (5, 89.0, 1.5), (6, 93.0, 0.6), (9, 98.0, 0.1)];

#[test]
fn noise_alone_is_claimed_as_seldom_and_missed_as_seldom_as_the_page_says() {
    let page = include_str!("../../../docs/doctor.md");
    for (repeats, confidence, claimed_max) in PROMISES {
        let row = format!("| {repeats} | {confidence} % | {claimed_max} % |");
        assert!(page.contains(&row), "docs/doctor.md lacks {row}");
        let told = 100.0 * compare(&trial(&vec![1.0; 2 * repeats + 1])).unwrap().confidence;
        assert_eq!((told + 1e-9).floor(), confidence);
        let words = compare(&trial(&vec![1.0; 2 * repeats + 1])).unwrap().verdict("x");
        assert!(words.contains(&format!(", {confidence} % confidence")), "{words}");
        for (name, noise) in NOISES {
            let (claimed, missed) = shares(repeats, noise);
            assert!(100.0 * claimed <= claimed_max, "{claimed} of trials claim {name} with {repeats} repeats");
            assert!(100.0 * missed <= 100.0 - told, "{missed} of intervals miss {name} with {repeats} repeats");
        }
    }
    assert!(PROMISES.iter().any(|(repeats, ..)| *repeats == REPEATS));
}

#[test]
fn a_real_difference_is_found() {
    for (repeats, effect, deviation) in [(3, -0.1, 0.01), (REPEATS, -0.1, 0.02)] {
        let mut random = fastrand::Rng::with_seed(7);
        let mut found = 0;
        for _ in 0..2_000 {
            let level = |index: usize| if index % 2 == 1 { 1.0 + effect } else { 1.0 };
            let figures = (0..=2 * repeats).map(|index| level(index) * (1.0 + deviation * normal(&mut random)));
            found += u32::from(compare(&trial(&figures.collect::<Vec<f64>>())).unwrap().is_claimed);
        }
        assert!(found > 1_900, "{found} of 2,000 with {repeats} repeats");
    }
}
