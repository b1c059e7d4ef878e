use std::time::Duration;

use throng_judge::{
    Block, CapacitySearch, Criterion, Judged, Left, Order, Outcome, Purpose, Samples, SearchOptions, Steadiness,
    StepOptions, StepPressure, Trial, Verdict, load_at_limits,
};

/// A server whose largest load is known, and whose measurements are noisy.
struct Server {
    /// It uses 85 % of its processor at this load.
    processor_knee: f64,
    /// 2 % of the decisions are late at this load, and four times as many at a twentieth more.
    late_knee: f64,
    /// The standard deviation of a second's processor share.
    noise: f64,
    /// In the first quarter of each hold, the level is so many times as high.
    cold: f64,
    random: fastrand::Rng,
}

impl Server {
    fn new(processor_knee: f64, late_knee: f64, seed: u64) -> Server {
        Server { processor_knee, late_knee, noise: 0.01, cold: 1.0, random: fastrand::Rng::with_seed(seed) }
    }

    /// The largest load that keeps both limits.
    fn knee(&self) -> f64 {
        self.processor_knee.min(self.late_knee)
    }

    fn hold(&mut self, order: Order) -> Trial {
        let Server { processor_knee, late_knee, noise, cold, ref mut random } = *self;
        let load = f64::from(order.amount);
        // Some work is there without any load, and contention makes the rest grow faster than the load.
        let base = 0.03;
        let used = load / processor_knee;
        let level = base + (0.85 - base) * (0.8 * used + 0.2 * used * used);
        let late = 0.02 * 4.0_f64.powf((load / late_knee - 1.0) * 20.0);
        let seconds = order.hold.as_secs();
        let mut drift = 0.0;
        let mut levels = Vec::new();
        let mut blocks = Vec::new();
        for second in 0..seconds {
            let level = if second < seconds / 4 { level * cold } else { level };
            drift = 0.5 * drift + noise * (random.f64() + random.f64() + random.f64() - 1.5) * 2.0 * 0.866;
            levels.push((level + drift).clamp(0.0, 1.0));
            let of = (load * 100.0) as u64;
            // A block's share varies by a half around the mean.
            let share = (late * (0.5 + random.f64())).min(1.0);
            blocks.push(Block { over: (share * of as f64).round() as u64, of });
        }
        let judged = vec![
            Criterion::new("processor", 0.85).judge(Samples::Level(levels)),
            Criterion::new("late decisions", 0.02).judge(Samples::Share(blocks)),
        ];
        Trial::new(order.amount, order.hold, judged).steady()
    }

    fn search(&mut self, options: SearchOptions) -> (Outcome, CapacitySearch) {
        let mut search = CapacitySearch::new(options);
        while let Some(order) = search.poll_trial() {
            let trial = self.hold(order);
            search.handle_trial(trial);
            assert!(search.trials().len() <= 100);
        }
        (search.outcome(), search)
    }

    fn steps(&mut self, hold: Duration) -> Outcome {
        let mut steps = StepPressure::new(StepOptions { start: 50, step: 50, most: 100_000, hold });
        while let Some(order) = steps.poll_trial() {
            let trial = self.hold(order);
            steps.handle_trial(trial);
            assert!(steps.trials().len() <= 5_000);
        }
        steps.outcome()
    }
}

fn from_50() -> SearchOptions {
    SearchOptions { start: 50, most: 100_000, ..SearchOptions::default() }
}

#[test]
fn a_known_knee_is_found_within_two_per_cent_wherever_it_is() {
    let (mut found, mut all, mut worst) = (0, 0, 0.0_f64);
    throng_seeds::for_seeds(200, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let knee = 60.0 * 2.0_f64.powf(random.f64() * 9.0);
        // Half of the servers have no time left before their processor is full.
        let late_knee = if random.bool() { knee * (0.8 + 0.4 * random.f64()) } else { knee * 10.0 };
        let mut server = Server::new(knee, late_knee, seed);
        let (outcome, _) = server.search(from_50());
        all += 1;
        let Some(kept) = outcome.kept else { panic!("{knee}: {outcome:?}") };
        let error = (f64::from(kept) - server.knee()).abs() / server.knee();
        worst = worst.max(error);
        found += u32::from(error <= 0.02 + 1.0 / server.knee());
        assert!(f64::from(kept) <= server.knee() * 1.015, "{kept} of {} was accepted: {outcome:?}", server.knee());
    });
    assert!(
        throng_seeds::is_partial() || found * 100 >= all * 99,
        "{found} of {all} within 2 %, the worst {:.2} %",
        worst * 100.0
    );
}

#[test]
fn the_best_estimate_lies_around_the_knee_and_the_answer_below_it() {
    let (mut estimates, mut answers, mut none) = (Vec::new(), Vec::new(), 0);
    throng_seeds::for_seeds(200, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let knee = 200.0 * 2.0_f64.powf(random.f64() * 7.0);
        let late_knee = if random.bool() { knee * (0.8 + 0.4 * random.f64()) } else { knee * 10.0 };
        let mut server = Server::new(knee, late_knee, seed);
        let (outcome, search) = server.search(from_50());
        let Some(estimate) = load_at_limits(search.trials()) else {
            none += 1;
            return;
        };
        estimates.push(estimate / server.knee() - 1.0);
        answers.extend(outcome.kept.map(|kept| f64::from(kept) / server.knee() - 1.0));
    });
    let median = |values: &[f64]| throng_judge::median(values).unwrap_or(f64::NAN);
    if throng_seeds::is_partial() {
        return;
    }
    assert!(none <= 2, "{none} searches of 200 without an estimate");
    assert!(estimates.iter().all(|error| error.abs() < 0.005), "{estimates:?}");
    assert!(
        median(&estimates).abs() < 0.001 && median(&answers) < -0.002,
        "{} and {}",
        median(&estimates),
        median(&answers)
    );
}

#[test]
fn there_is_no_estimate_without_a_load_on_each_side_of_the_limit() {
    let trial = |amount: u32, level: f64| {
        let judged = Criterion::new("processor", 0.8).judge(Samples::Level(vec![level; 20]));
        Trial::new(amount, Duration::from_secs(60), vec![judged])
    };
    let of = |trials: &[(u32, f64)]| {
        let trials: Vec<Trial> = trials.iter().map(|(amount, level)| trial(*amount, *level)).collect();
        load_at_limits(&trials).map(|load| load.round())
    };
    assert_eq!(of(&[(400, 0.79), (408, 0.81)]), Some(404.0));
    assert_eq!([of(&[]), of(&[(400, 0.7), (404, 0.75)]), of(&[(400, 0.9), (404, 0.95)])], [None; 3]);
    assert_eq!(of(&[(100, 0.2), (400, 0.9)]), None, "the loads are too far apart");
    // Both trials of one load count, and a level that falls with the load is noise.
    assert_eq!(of(&[(408, 0.82), (400, 0.80), (408, 0.80), (400, 0.78)]), Some(404.0));
    assert_eq!(of(&[(390, 0.78), (400, 0.81), (402, 0.79), (410, 0.82)]), Some(401.0));
    let fault = Trial::invalid(404, Duration::from_secs(60), "the bots were late");
    assert_eq!(load_at_limits(&[trial(400, 0.79), fault, trial(408, 0.81)]).map(f64::round), Some(404.0));
}

#[test]
fn a_limit_that_is_met_somewhere_above_the_estimate_takes_nothing_from_it() {
    let judged = |name: &str, level: f64| Criterion::new(name, 1.0).judge(Samples::Level(vec![level; 20]));
    let of = |trials: &[(u32, f64, f64)]| {
        let trial = |(amount, cpu, late): &(u32, f64, f64)| {
            Trial::new(*amount, Duration::from_secs(60), vec![judged("cpu", *cpu), judged("late", *late)])
        };
        load_at_limits(&trials.iter().map(trial).collect::<Vec<_>>()).map(f64::round)
    };
    assert_eq!(of(&[(400, 0.5, 0.0), (792, 0.99, 0.1), (800, 1.01, 0.1), (1_250, 1.6, 2.0)]), Some(796.0));
    // "late" may be met before the processor is.
    assert_eq!(of(&[(400, 0.5, 0.0), (792, 0.99, 1.1), (800, 1.01, 1.2)]), None);
    assert_eq!(of(&[(792, 0.99, 1.1), (800, 1.01, 1.2)]), None, "the first load exceeds a limit");
}

#[test]
fn the_search_agrees_with_linear_steps_in_less_than_a_tenth_of_their_time() {
    let (mut ratios, mut differences) = (Vec::new(), Vec::new());
    throng_seeds::for_seeds(20, |seed| {
        let linear = Server::new(1_821.0, 1_900.0, seed).steps(Duration::from_secs(600));
        let (quick, _) = Server::new(1_821.0, 1_900.0, seed + 1_000).search(from_50());
        let (Some(slow), Some(fast)) = (linear.kept, quick.kept) else { panic!("{linear:?} {quick:?}") };
        ratios.push(quick.spent.as_secs_f64() / linear.spent.as_secs_f64());
        differences.push((f64::from(fast) - f64::from(slow)).abs() / f64::from(slow));
    });
    let median = |values: &[f64]| throng_judge::median(values).unwrap_or(f64::NAN);
    assert!(median(&ratios) < 0.1, "{ratios:?} of the time of steps");
    assert!(differences.iter().all(|difference| *difference <= 0.02), "{differences:?} from the answer of steps");
}

#[test]
fn the_first_raise_is_predicted_by_a_level_and_at_most_eight_times_the_start() {
    let second = |knee: f64| {
        let mut search = CapacitySearch::new(from_50());
        let first = search.poll_trial().map_or(0, |order| order.amount);
        search.handle_trial(Trial::new(first, Duration::from_secs(60), vec![levels(first, knee)]));
        search.poll_trial().map(|order| order.amount)
    };
    assert_eq!(second(5_000.0), Some(400));
    assert!(second(100.0).is_some_and(|amount| (94..=95).contains(&amount)), "{:?}", second(100.0));
}

#[test]
fn the_next_load_after_the_answer_is_held_and_not_accepted() {
    let (outcome, search) = Server::new(700.0, 7_000.0, 3).search(from_50());
    let (kept, beyond) = (outcome.kept.unwrap_or(0), outcome.beyond.unwrap_or(0));
    assert!(beyond > kept && beyond <= kept + kept / 100 + 1, "{outcome:?}");
    let last = search.trials().last().map(|trial| (trial.amount, trial.held, trial.verdict()));
    assert!(last.is_some_and(|(amount, held, verdict)| {
        amount == beyond && held == Duration::from_secs(600) && verdict != Verdict::Accepted
    }));
    assert_eq!(outcome.limit.as_deref(), Some("processor"));
    assert!(outcome.why.contains("processor"), "{}", outcome.why);
}

#[test]
fn a_server_that_begins_cold_is_judged_by_its_steady_part() {
    let (mut warm, mut all) = (0, 0);
    throng_seeds::for_seeds(20, |seed| {
        let mut server = Server { cold: 1.3, ..Server::new(800.0, 8_000.0, seed) };
        let (outcome, search) = server.search(from_50());
        assert!(outcome.kept.is_some_and(|kept| (784..=812).contains(&kept)), "seed {seed}: {outcome:?}");
        let is_warm = |trial: &Trial| match trial.steadiness {
            Steadiness::From(share) => (0.2..=0.35).contains(&share),
            Steadiness::Never | Steadiness::Unknown => false,
        };
        warm += search.trials().iter().filter(|trial| is_warm(trial)).count();
        all += search.trials().len();
    });
    assert!(warm * 10 >= all * 9, "the beginning of {warm} of {all} trials was left out");
}

#[test]
fn a_search_keeps_no_samples_of_settled_trials() {
    let (_, search) = Server::new(700.0, 7_000.0, 4).search(from_50());
    let samples = |judged: &Judged| match &judged.samples {
        Samples::Level(samples) => samples.len(),
        Samples::Share(blocks) => blocks.len(),
    };
    let kept: usize = search.trials().iter().flat_map(|trial| &trial.judged).map(samples).sum();
    assert_eq!(kept, 0);
    assert!(search.trials().iter().all(|trial| trial.judged.len() == 2 && trial.judged[0].used().is_some()));
}

#[test]
fn the_time_left_is_near_the_time_that_it_takes() {
    let (mut first, mut half) = (Vec::new(), Vec::new());
    throng_seeds::for_seeds(60, |seed| {
        let mut server = Server::new(60.0 * 2.0_f64.powf(seed as f64 % 9.0), 1e6, seed);
        let mut search = CapacitySearch::new(from_50());
        let mut forecasts = Vec::new();
        while let Some(order) = search.poll_trial() {
            forecasts.push((search.left(), search.outcome().spent));
            let trial = server.hold(order);
            search.handle_trial(trial);
        }
        assert_eq!(search.left(), Left::default());
        let spent = search.outcome().spent;
        let ratio = |(left, before): (Left, Duration)| left.holds.as_secs_f64() / (spent - before).as_secs_f64();
        first.push(ratio(forecasts[0]));
        half.push(ratio(forecasts[forecasts.len() / 2]));
    });
    let median = |values: &[f64]| throng_judge::median(values).unwrap_or(f64::NAN);
    assert!((0.7..=1.3).contains(&median(&first)) && (0.7..=1.3).contains(&median(&half)), "{first:?} {half:?}");
}

#[test]
fn steps_say_how_many_are_left_once_a_level_tells() {
    let hold = Duration::from_secs(600);
    let mut steps = StepPressure::new(StepOptions { start: 50, step: 50, most: 5_000, hold });
    assert!(steps.left().trials >= 100, "nothing is known yet: up to the most");
    let mut forecasts = Vec::new();
    while let Some(order) = steps.poll_trial() {
        let judged = levels(order.amount, 1_000.0);
        steps.handle_trial(Trial::new(order.amount, order.hold, vec![judged]));
        forecasts.push(steps.left().trials);
    }
    let all = forecasts.len() as u32;
    for (done, left) in (1..).zip(forecasts) {
        assert!(left.abs_diff(all - done) <= 3, "{left} left after {done} of {all}");
    }
}

#[test]
fn the_limit_that_binds_is_named() {
    let (outcome, _) = Server::new(9_000.0, 400.0, 5).search(from_50());
    assert_eq!((outcome.verdict, outcome.limit.as_deref()), (Verdict::Accepted, Some("late decisions")));
}

#[test]
fn a_load_that_nothing_limits_ends_at_the_most() {
    let options = SearchOptions { start: 1, most: 77, ..SearchOptions::default() };
    let (outcome, _) = Server::new(1e6, 1e7, 1).search(options);
    assert_eq!((outcome.verdict, outcome.kept, outcome.beyond), (Verdict::Accepted, Some(77), None));
    assert!(outcome.why.contains("the most"), "{}", outcome.why);
}

#[test]
fn a_server_that_carries_nothing_is_rejected() {
    let (outcome, _) = Server::new(0.4, 0.4, 1).search(from_50());
    assert_eq!((outcome.verdict, outcome.kept, outcome.beyond), (Verdict::Rejected, None, Some(1)));
}

#[test]
fn a_slow_load_generator_makes_trials_invalid_and_never_failed() {
    let mut search = CapacitySearch::new(from_50());
    let mut count = 0;
    while let Some(order) = search.poll_trial() {
        search.handle_trial(Trial::invalid(order.amount, order.hold, "bots were late"));
        count += 1;
    }
    let outcome = search.outcome();
    assert_eq!((count, outcome.verdict, outcome.beyond), (3, Verdict::Undecided, None));
    assert!(outcome.why.contains("bots were late"), "{}", outcome.why);
}

#[test]
fn one_invalid_trial_is_made_again() {
    let mut server = Server::new(300.0, 3_000.0, 2);
    let mut search = CapacitySearch::new(from_50());
    let mut count = 0;
    while let Some(order) = search.poll_trial() {
        count += 1;
        let trial = server.hold(order);
        search.handle_trial(if count % 3 == 0 { Trial::invalid(order.amount, order.hold, "late") } else { trial });
    }
    let kept = search.outcome().kept.unwrap_or(0);
    assert!((290..=304).contains(&kept), "{kept}");
}

#[test]
fn an_undecided_trial_is_held_on_once() {
    let mut search = CapacitySearch::new(from_50());
    let trial = |amount, hold| {
        let blocks = vec![Block { over: 3, of: 200 }; 3];
        Trial::new(amount, hold, vec![Criterion::new("late", 0.02).judge(Samples::Share(blocks))])
    };
    let order = search.poll_trial().expect("it has begun");
    assert_eq!(trial(order.amount, order.hold).verdict(), Verdict::Undecided);
    search.handle_trial(trial(order.amount, order.hold));
    let again = search.poll_trial().expect("it goes on");
    assert_eq!((again.amount, again.purpose), (50, Purpose::HoldOn));
    search.handle_trial(trial(again.amount, again.hold));
    let next = search.poll_trial().expect("it goes on");
    assert!(next.amount < 50 && next.purpose == Purpose::Narrow, "{next:?}");
}

#[test]
fn a_load_that_was_held_on_counts_by_both_of_its_holds() {
    let trial = |order: Order, levels: [f64; 2]| {
        let samples = Samples::Level(levels.repeat(15));
        Trial::new(order.amount, order.hold, vec![Criterion::new("processor", 0.85).judge(samples)])
    };
    let mut search = CapacitySearch::new(from_50());
    let open = trial(search.poll_trial().expect("it has begun"), [0.87, 0.83]);
    assert_eq!(search.handle_trial(open).verdict(), Verdict::Undecided);
    // By itself, the second hold would be accepted.
    let alone = trial(search.poll_trial().expect("it goes on"), [0.850, 0.846]);
    assert_eq!(alone.verdict(), Verdict::Accepted);
    let counted = search.handle_trial(alone.clone());
    assert_eq!((counted.verdict(), counted.held), (Verdict::Undecided, alone.held));
    assert!(counted.judged[0].estimate.high > 0.85, "{counted:?}");
    assert!(search.poll_trial().is_some_and(|next| next.amount < 50), "it counts as rejected");
}

#[test]
fn a_long_hold_that_contradicts_the_trials_is_noise_and_the_search_goes_on() {
    // The processor slows down after two minutes: short trials see another server than long ones.
    let (mut fast, mut slow) = (Server::new(500.0, 5_000.0, 8), Server::new(450.0, 4_500.0, 9));
    let mut search = CapacitySearch::new(from_50());
    while let Some(order) = search.poll_trial() {
        let is_long = order.hold > Duration::from_secs(120);
        let trial = if is_long { slow.hold(order) } else { fast.hold(order) };
        search.handle_trial(trial);
    }
    let outcome = search.outcome();
    let is_honest = match outcome.verdict {
        Verdict::Accepted => outcome.kept.is_some_and(|kept| kept <= 455),
        verdict => verdict == Verdict::Undecided && outcome.why.contains("contradict"),
    };
    assert!(is_honest, "{outcome:?}");
}

#[test]
fn repeated_searches_agree_within_three_per_cent() {
    let answers: Vec<f64> = (0..30)
        .map(|seed| f64::from(Server::new(1_200.0, 12_000.0, seed).search(from_50()).0.kept.unwrap_or(0)))
        .collect();
    let (least, most) = (throng_judge::quantile(&answers, 0.0), throng_judge::quantile(&answers, 1.0));
    assert!(most.zip(least).is_some_and(|(most, least)| (most - least) / least <= 0.03), "{answers:?}");
}

#[test]
fn steps_are_raised_by_fifty_and_taken_back() {
    let mut steps =
        StepPressure::new(StepOptions { start: 100, step: 50, most: 1_000, hold: Duration::from_secs(600) });
    let mut loads = Vec::new();
    while let Some(order) = steps.poll_trial() {
        loads.push(order.amount);
        let level = 0.85 * f64::from(order.amount) / 230.5;
        let judged = Criterion::new("processor", 0.85).judge(Samples::Level(vec![level; 600]));
        steps.handle_trial(Trial::new(order.amount, order.hold, vec![judged]));
    }
    assert_eq!(loads, [100, 150, 200, 250, 225, 237, 231, 228, 229], "the loads of the published method");
    let outcome = steps.outcome();
    assert_eq!((outcome.kept, outcome.limit.as_deref()), (Some(229), Some("processor")));
    assert_eq!(outcome.spent, Duration::from_secs(9 * 600));
}

#[test]
fn steps_find_every_limit_within_one_per_cent_wherever_they_start() {
    for knee in 1..2_000 {
        for start in [1, 100, 700] {
            let mut steps =
                StepPressure::new(StepOptions { start, step: 50, most: 5_000, hold: Duration::from_secs(9) });
            while let Some(order) = steps.poll_trial() {
                let level = 0.85 * f64::from(order.amount) / (f64::from(knee) + 0.5);
                let judged = Criterion::new("processor", 0.85).judge(Samples::Level(vec![level; 9]));
                steps.handle_trial(Trial::new(order.amount, order.hold, vec![judged]));
            }
            let kept = steps.outcome().kept.unwrap_or(0);
            assert!(kept <= knee && knee - kept <= knee / 99, "{kept} of {knee}, from {start}");
        }
    }
}

#[test]
fn steps_that_never_keep_their_limits_end_at_one_without_an_answer() {
    let mut steps = StepPressure::new(StepOptions { start: 100, step: 50, most: 1_000, hold: Duration::from_secs(9) });
    let mut last = 0;
    while let Some(order) = steps.poll_trial() {
        last = order.amount;
        // With everything late, the processor is idle.
        let idle = Criterion::new("processor", 0.85).judge(Samples::Level(vec![0.1; 9]));
        let late = Criterion::new("late", 0.02).judge(Samples::Share(vec![Block { over: 50, of: 100 }; 9]));
        steps.handle_trial(Trial::new(order.amount, order.hold, vec![idle, late]));
    }
    let Outcome { verdict, kept, limit, .. } = steps.outcome();
    assert_eq!((last, verdict, kept, limit.as_deref()), (1, Verdict::Rejected, None, Some("late")));
}

#[test]
fn a_full_processor_is_named_before_the_decisions_that_it_makes_late() {
    let full = |order: Order| {
        let processor = Criterion::new("processor", 0.85).judge(Samples::Level(vec![0.99; 30]));
        let late = Criterion::new("late", 0.02).judge(Samples::Share(vec![Block { over: 99, of: 100 }; 30]));
        Trial::new(order.amount, order.hold, vec![processor, late])
    };
    let mut steps = StepPressure::new(StepOptions { start: 1, step: 1, most: 9, hold: Duration::from_secs(30) });
    steps.handle_trial(full(steps.poll_trial().expect("it has begun")));
    assert_eq!(steps.outcome().limit.as_deref(), Some("processor"));
    let mut search = CapacitySearch::new(SearchOptions { start: 1, ..from_50() });
    search.handle_trial(full(search.poll_trial().expect("it has begun")));
    assert_eq!(search.outcome().limit.as_deref(), Some("processor"));
}

#[test]
fn steps_count_the_newest_thirty_samples_alone() {
    let mut steps = StepPressure::new(StepOptions { start: 10, step: 5, most: 12, hold: Duration::from_secs(60) });
    while let Some(order) = steps.poll_trial() {
        // The first half of the hold was far too much; the matches were still loading.
        let levels = [vec![1.0; 30], vec![0.5; 30]].concat();
        let judged = Criterion::new("processor", 0.85).judge(Samples::Level(levels));
        steps.handle_trial(Trial::new(order.amount, order.hold, vec![judged]));
    }
    assert_eq!((steps.outcome().kept, steps.outcome().beyond), (Some(12), None));
}

#[test]
fn steps_make_a_trial_again_whose_newest_samples_have_no_event() {
    // All events were in the first half of the hold.
    let trial = |order: Order, newest_of: u64| {
        let blocks = [vec![Block { over: 0, of: 100 }; 30], vec![Block { over: 0, of: newest_of }; 30]].concat();
        Trial::new(order.amount, order.hold, vec![Criterion::new("late", 0.02).judge(Samples::Share(blocks))])
    };
    let options = StepOptions { start: 10, step: 5, most: 10, hold: Duration::from_secs(60) };
    let mut steps = StepPressure::new(options);
    for newest_of in [0, 0, 100] {
        let order = steps.poll_trial().expect("not over");
        assert_eq!(order.amount, 10);
        steps.handle_trial(trial(order, newest_of));
    }
    let outcome = steps.outcome();
    assert_eq!((outcome.verdict, outcome.kept, outcome.beyond), (Verdict::Accepted, Some(10), None));
    let mut steps = StepPressure::new(options);
    while let Some(order) = steps.poll_trial() {
        steps.handle_trial(trial(order, 0));
    }
    let outcome = steps.outcome();
    assert_eq!((outcome.verdict, outcome.kept, steps.trials().len()), (Verdict::Undecided, None, 3));
    assert!(outcome.why.contains("the newest samples of late have no value"), "{}", outcome.why);
}

#[test]
fn steps_see_a_limit_that_is_exceeded_though_another_one_has_no_value() {
    let processor = |level: Vec<f64>| Criterion::new("processor", 0.85).judge(Samples::Level(level));
    let late = |over, of| Criterion::new("late", 0.02).judge(Samples::Share(vec![Block { over, of }; 30]));
    for (judged, limit) in [
        (vec![late(0, 0), processor(vec![0.99; 30])], "processor"),
        (vec![processor(Vec::new()), late(50, 100)], "late"),
    ] {
        let hold = Duration::from_secs(60);
        let mut steps = StepPressure::new(StepOptions { start: 10, step: 5, most: 10, hold });
        steps.handle_trial(Trial::new(10, hold, judged));
        let outcome = steps.outcome();
        assert_eq!((outcome.beyond, outcome.limit.as_deref()), (Some(10), Some(limit)), "{}", outcome.why);
        assert_eq!(steps.trials()[0].fault, None);
    }
}

#[test]
fn a_trial_of_another_load_than_the_ordered_one_is_ignored() {
    let mut search = CapacitySearch::new(from_50());
    search.handle_trial(Trial::invalid(49, Duration::from_secs(1), "wrong"));
    assert!(search.trials().is_empty() && search.poll_trial().is_some_and(|order| order.amount == 50));
}

/// Levels of a server that would keep `knee` units, with some scatter.
fn levels(amount: u32, knee: f64) -> Judged {
    let level = 0.85 * f64::from(amount) / knee;
    let samples = (0..60).map(|number| level * (1.0 + f64::from(number * 7 % 11) * 1e-3 - 5e-3)).collect();
    Criterion::new("processor", 0.85).judge(Samples::Level(samples))
}

#[test]
fn a_load_generator_that_can_do_no_more_bounds_the_search_and_the_answer_says_so() {
    for (most_loaded, start) in [(300, 50), (300, 299), (37, 1)] {
        let mut search = CapacitySearch::new(SearchOptions { start, ..from_50() });
        while let Some(order) = search.poll_trial() {
            let trial = match order.amount <= most_loaded {
                true => Trial::new(order.amount, order.hold, vec![levels(order.amount, 1_000.0)]),
                false => Trial::invalid(order.amount, order.hold, "the bots were overloaded"),
            };
            search.handle_trial(trial);
        }
        let outcome = search.outcome();
        let kept = outcome.kept.expect("smaller loads are kept");
        assert_eq!(outcome.verdict, Verdict::Undecided);
        assert!(
            kept <= most_loaded && f64::from(kept) >= 0.99 * f64::from(most_loaded) - 1.0,
            "{kept} of {most_loaded}"
        );
        assert!(outcome.beyond.is_some_and(|beyond| beyond > most_loaded), "{outcome:?}");
        assert!(outcome.why.contains("could not be loaded, because the bots were overloaded"), "{}", outcome.why);
        assert!(search.trials().len() < 40, "{} trials", search.trials().len());
        let confirmed = search.trials().iter().any(|trial| trial.amount == kept && trial.held == from_50().confirm);
        assert!(confirmed, "the answer was held for long");
    }
}

#[test]
fn an_answer_that_cannot_be_held_for_long_gives_way_to_the_next_smaller_load() {
    let search = |longest: u32| {
        let mut search = CapacitySearch::new(from_50());
        while let Some(order) = search.poll_trial() {
            let trial = match order.purpose {
                Purpose::Confirm if order.amount > longest => {
                    Trial::invalid(order.amount, order.hold, "the bots were late")
                }
                _ => Trial::new(order.amount, order.hold, vec![levels(order.amount, 230.0)]),
            };
            search.handle_trial(trial);
        }
        search
    };
    let found = search(220);
    let outcome = found.outcome();
    let kept = outcome.kept.expect("a smaller load was held for long");
    assert!((50..=220).contains(&kept) && outcome.verdict == Verdict::Undecided, "{outcome:?}");
    assert!(outcome.why.contains("could not be loaded, because the bots were late"), "{}", outcome.why);
    let confirmed = |trial: &Trial| trial.amount == kept && trial.held == from_50().confirm && trial.fault.is_none();
    assert!(found.trials().iter().any(confirmed), "{kept}");
}

#[test]
fn a_load_generator_that_can_hold_nothing_for_long_ends_the_search_after_two_loads() {
    // Without levels, the loads are doubled and halved: many of them are accepted.
    for knee in [50, 51, 99, 230, 5_000, 99_999] {
        let mut search = CapacitySearch::new(from_50());
        let (mut long, mut accepted) = (Vec::new(), 0);
        while let Some(order) = search.poll_trial() {
            let is_long = order.hold == from_50().confirm;
            let late = Block { over: if order.amount > knee { 50 } else { 0 }, of: 1_000 };
            let judged = vec![Criterion::new("late", 0.02).judge(Samples::Share(vec![late; 60]))];
            let trial = match is_long {
                true => Trial::invalid(order.amount, order.hold, &format!("the bots were {} ms late", long.len())),
                false => Trial::new(order.amount, order.hold, judged),
            };
            accepted += u32::from(trial.verdict() == Verdict::Accepted);
            if is_long {
                long.push(order.amount);
            }
            search.handle_trial(trial);
        }
        let outcome = search.outcome();
        let loads: Vec<u32> = long.chunks(3).map(|loads| loads[0]).collect();
        assert!(long.chunks(3).all(|loads| loads == [loads[0]; 3]), "{long:?}");
        assert_eq!((loads.len(), outcome.verdict), (accepted.min(2) as usize, Verdict::Undecided), "{long:?}");
        assert_eq!(outcome.kept, loads.last().copied(), "{outcome:?}");
        let most = from_50().confirm * 6 + from_50().trial * 30;
        assert!(outcome.spent <= most, "{knee}: {:?} for {accepted} accepted loads", outcome.spent);
        let words = match loads[..] {
            [larger, smaller] => format!(
                "{larger} and {smaller} keep all limits in short trials, and the holds that confirm them tell nothing: \
                 the bots were 5 ms late"
            ),
            _ => format!(
                "{knee} keeps all limits in a short trial, and the hold that confirms it tells nothing: \
                 the bots were 2 ms late"
            ),
        };
        assert_eq!(outcome.why, words);
    }
}

#[test]
fn a_search_whose_every_trial_tells_nothing_ends_without_an_answer() {
    let mut search = CapacitySearch::new(from_50());
    while let Some(order) = search.poll_trial() {
        search.handle_trial(Trial::invalid(order.amount, order.hold, "no server"));
    }
    let outcome = search.outcome();
    assert_eq!((outcome.verdict, outcome.kept, search.trials().len()), (Verdict::Undecided, None, 3));
    assert!(outcome.why.contains("tell nothing about the server: no server"), "{}", outcome.why);
}

#[test]
fn the_load_after_the_answer_may_be_the_one_that_cannot_be_loaded() {
    let mut search = CapacitySearch::new(from_50());
    while let Some(order) = search.poll_trial() {
        let trial = match order.purpose {
            Purpose::ConfirmBeyond => Trial::invalid(order.amount, order.hold, "another program ran"),
            _ => Trial::new(order.amount, order.hold, vec![levels(order.amount, 230.0)]),
        };
        search.handle_trial(trial);
    }
    let outcome = search.outcome();
    assert_eq!(outcome.verdict, Verdict::Undecided);
    assert!(outcome.kept.is_some_and(|kept| (225..=230).contains(&kept)), "{outcome:?}");
    assert!(outcome.why.contains("another program ran"), "{}", outcome.why);
}

#[test]
fn few_equal_samples_tell_nothing_about_the_bounds() {
    let verdict = |count: usize| Criterion::new("processor", 0.85).judge(Samples::Level(vec![0.5; count])).verdict;
    assert_eq!((verdict(2), verdict(7)), (Verdict::Undecided, Verdict::Undecided));
    assert_eq!(verdict(8), Verdict::Accepted);
}

/// Without events, few samples say nothing about a rare one. That is no reason to stop before a load that has enough.
#[test]
fn loads_that_are_too_small_to_say_anything_are_passed() {
    let missed = |amount: u32, order: Order| {
        let of = 25 * 128 * u64::from(amount);
        let over = if amount > 40 { of / 50 } else { 0 };
        let blocks = (0..25).map(|_| Block { over: over / 25, of: of / 25 }).collect();
        Trial::new(amount, order.hold, vec![Criterion::new("missed ticks", 0.001).judge(Samples::Share(blocks))])
    };
    let hold = Duration::from_secs(25);
    let options = SearchOptions { start: 1, most: 100, resolution: 0.0, trial: hold, confirm: hold };
    let mut search = CapacitySearch::new(options);
    let mut amounts = Vec::new();
    while let Some(order) = search.poll_trial() {
        amounts.push(order.amount);
        search.handle_trial(missed(order.amount, order));
    }
    let outcome = search.outcome();
    assert_eq!((outcome.verdict, outcome.kept), (Verdict::Accepted, Some(40)), "{amounts:?}: {}", outcome.why);
    assert_eq!(amounts[..3], [1, 2, 4], "each of them is held once");
}
