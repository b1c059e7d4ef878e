use std::time::Duration;

use throng_judge::{Block, Criterion, Samples, Steadiness, Trial, Verdict, steady_from};

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

#[test]
fn all_limits_of_a_trial_are_judged_from_the_moment_on_when_all_are_steady() {
    // The processor is busy with loading for 20 of 60 s; the late events end after 12 s.
    let levels = series(7, 0.1, |second| if second < 20.0 { 5.0 } else { 0.0 });
    let blocks = (0..60).map(|second| Block { over: if second < 12 { 40 } else { 0 }, of: 100 }).collect();
    let judged = vec![
        Criterion::new("processor", 11.0).judge(Samples::Level(levels)),
        Criterion::new("late", 0.02).judge(Samples::Share(blocks)),
    ];
    let cold = Trial::new(5, Duration::from_secs(60), judged);
    assert_eq!((cold.verdict(), cold.steadiness), (Verdict::Rejected, Steadiness::Unknown));
    let warm = cold.steady();
    assert_eq!(warm.verdict(), Verdict::Accepted);
    let Steadiness::From(share) = warm.steadiness else { panic!("{warm:?}") };
    assert!((0.3..=0.4).contains(&share), "{share}");
    let left = warm.judged.iter().map(|judged| match &judged.samples {
        Samples::Level(samples) => samples.len(),
        Samples::Share(blocks) => blocks.len(),
    });
    let left: Vec<usize> = left.collect();
    assert!(left[0] == left[1] && (36..=42).contains(&left[0]), "{left:?}");
}

#[test]
fn a_trial_that_never_is_steady_is_judged_by_its_second_half() {
    let growing = series(3, 0.1, |second| second / 5.0);
    let judged = vec![Criterion::new("memory", 17.0).judge(Samples::Level(growing))];
    let value = |trial: &Trial| trial.judged[0].estimate.value;
    let trial = Trial::new(5, Duration::from_secs(60), judged);
    assert!((15.5..16.5).contains(&value(&trial)), "{trial:?}");
    let trial = trial.steady();
    assert!(trial.steadiness == Steadiness::Never && (18.5..19.5).contains(&value(&trial)), "{trial:?}");
    // A level that goes somewhere has wide bounds: nothing is sure.
    assert_eq!(trial.verdict(), Verdict::Undecided, "{trial:?}");
    let few = vec![Criterion::new("memory", 17.0).judge(Samples::Level(vec![1.0, 2.0, 1.5]))];
    let few = Trial::new(5, Duration::from_secs(3), few).steady();
    assert_eq!(
        (few.steadiness, few.judged[0].samples.clone()),
        (Steadiness::Unknown, Samples::Level(vec![1.0, 2.0, 1.5]))
    );
}
