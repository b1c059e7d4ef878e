use std::time::Duration;

use throng_judge::{Criterion, HoldOptions, Holds, Order, Samples, Trial, Verdict};

const HOLD: Duration = Duration::from_secs(5);

fn trial(order: Order, level: f64) -> Trial {
    let wobble = |index: u32| level * (1.0 + 0.001 * f64::from(index % 3));
    let judged = Criterion::new("frame", 2.34).judge(Samples::Level((0..30).map(wobble).collect()));
    Trial::new(order.amount, order.hold, vec![judged])
}

fn hold(amounts: &[u32], repeats: u32, level: impl Fn(u32) -> f64) -> Holds {
    let mut holds = Holds::new(HoldOptions { amounts: amounts.to_vec(), repeats, hold: HOLD });
    while let Some(order) = holds.poll_trial() {
        holds.handle_trial(trial(order, level(order.amount)));
    }
    holds
}

#[test]
fn all_loads_are_held_in_rounds_and_keep_their_limits() {
    let mut holds = Holds::new(HoldOptions { amounts: vec![8, 16], repeats: 2, hold: HOLD });
    let mut order_of = Vec::new();
    while let Some(order) = holds.poll_trial() {
        order_of.push(order.amount);
        holds.handle_trial(trial(order, 0.1));
    }
    assert_eq!(order_of, [8, 16, 8, 16]);
    let outcome = holds.outcome();
    assert_eq!((outcome.verdict, outcome.kept, outcome.spent), (Verdict::Accepted, Some(16), 4 * HOLD));
}

#[test]
fn a_load_beyond_a_limit_is_named() {
    let outcome = hold(&[8, 16, 32], 1, |amount| f64::from(amount) * 0.1).outcome();
    assert_eq!((outcome.verdict, outcome.kept, outcome.beyond), (Verdict::Rejected, Some(16), Some(32)));
    assert_eq!(outcome.why, "32 exceeds frame");
    // In whatever order: the smallest load that exceeds a limit counts, and what is kept lies below it.
    let outcome = hold(&[64, 8, 32, 16], 1, |amount| f64::from(amount) * 0.1).outcome();
    assert_eq!((outcome.kept, outcome.beyond), (Some(16), Some(32)));
}

#[test]
fn a_load_of_which_one_hold_is_not_sure_is_not_kept() {
    let mut holds = Holds::new(HoldOptions { amounts: vec![8, 16], repeats: 2, hold: HOLD });
    let mut is_first = true;
    while let Some(order) = holds.poll_trial() {
        let noisy = Criterion::new("frame", 2.34).judge(Samples::Level(vec![1.0, 3.0, 2.0, 0.5, 2.5, 1.5]));
        let noisy = Trial::new(order.amount, order.hold, vec![noisy]);
        assert_eq!(noisy.verdict(), Verdict::Undecided);
        let is_noisy = order.amount == 16 && std::mem::take(&mut is_first);
        holds.handle_trial(if is_noisy { noisy } else { trial(order, 0.1) });
    }
    let outcome = holds.outcome();
    assert_eq!((outcome.verdict, outcome.kept, outcome.beyond), (Verdict::Undecided, Some(8), None));
}

#[test]
fn holds_that_tell_nothing_are_made_again_and_then_left_out() {
    let mut holds = Holds::new(HoldOptions { amounts: vec![8, 16], repeats: 1, hold: HOLD });
    let mut count = 0;
    while let Some(order) = holds.poll_trial() {
        count += 1;
        let is_late = order.amount == 8;
        holds.handle_trial(if is_late { Trial::invalid(8, HOLD, "bots were late") } else { trial(order, 0.1) });
    }
    assert_eq!(count, 4);
    let outcome = holds.outcome();
    assert!(outcome.verdict == Verdict::Undecided && outcome.why.contains("bots were late"), "{outcome:?}");
}

#[test]
fn a_hold_of_hours_is_not_made_again() {
    let mut holds = Holds::new(HoldOptions { amounts: vec![300], repeats: 1, hold: HOLD }).without_repeats();
    assert!(holds.poll_trial().is_some());
    holds.handle_trial(Trial::invalid(300, HOLD, "bots were late"));
    assert_eq!(holds.poll_trial(), None);
    assert!(holds.outcome().why.contains("bots were late"));
}

#[test]
fn the_largest_load_is_forecast_from_the_smaller_ones() {
    let frame_ms = |amount: u32| 0.3 + 0.01 * f64::from(amount);
    let growth = hold(&[1, 8, 16, 64], 2, frame_ms).growth();
    let [frame] = &growth[..] else { panic!("{growth:?}") };
    assert_eq!((frame.name.as_str(), frame.largest), ("frame", 64));
    assert!((frame.forecast / frame.measured - 1.0).abs() < 0.01, "{frame:?}");
    assert!((frame.curve.slope - 0.01).abs() < 0.001 && frame.curve.largest_error < 0.01, "{frame:?}");
    // A cache that is full beyond 16 is not in the forecast: that is what the comparison shows.
    let leap = |amount: u32| frame_ms(amount) + if amount > 16 { 0.5 } else { 0.0 };
    let growth = hold(&[1, 8, 16, 64], 1, leap).growth();
    assert!(growth[0].forecast < 0.7 * growth[0].measured, "{growth:?}");
    assert!(hold(&[1, 8], 1, frame_ms).growth().is_empty());
}

#[test]
fn no_load_is_nothing() {
    let holds = hold(&[], 3, |_| 0.1);
    assert!(holds.poll_trial().is_none() && holds.growth().is_empty());
}
