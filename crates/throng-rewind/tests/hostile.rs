//! Each claim of a client is refused and counted, or judged within the limits.

use crate::support::{pose, skeleton};
use proptest::prelude::*;
use throng_rewind::{
    BodyId, Case, Flags, HistoryOptions, JudgeRules, Latency, MAX_REWIND_MS, Models, Moment, OpenSpace, Rewind,
    RewindOptions, Shot, ShotError, Transform, ViewRules,
};
use throng_wire::Tick;

fn scene() -> Rewind {
    let mut models = Models::new();
    let skeleton = models.add_skeleton(skeleton()).unwrap();
    let mut rewind = Rewind::new(RewindOptions::default(), models).unwrap();
    let body = rewind.add_body(skeleton).unwrap();
    for tick in 0..=400 {
        rewind.record(body, Tick(tick), &Transform::at([10.0, 0.0, 0.0]), &pose(0.0, 0.0, 0.0)).unwrap();
    }
    rewind
}

fn shot() -> Shot {
    Shot {
        shooter: BodyId(9),
        now: Tick(400),
        claim: Moment::at(Tick(396)),
        latency: Latency { rtt_us: 20_000, interpolation_us: 7_812 },
        origin_m: [0.0, 0.0, 1.65],
        direction: [1.0, 0.0, 0.0],
        range_m: 100.0,
        mask: 1,
    }
}

#[test]
fn shots_with_impossible_numbers_are_refused_and_counted() {
    let mut rewind = scene();
    let mut case = Case::new();
    let mut refused = |shot: Shot, targets: &[BodyId]| {
        let error = rewind.judge(&shot, targets, &OpenSpace, &mut case).unwrap_err();
        assert_eq!(case, Case::new(), "nothing of it is kept");
        error
    };
    let all = [BodyId(0)];
    for fraction in [f32::NAN, 1.0, -0.1, f32::INFINITY] {
        assert_eq!(refused(Shot { claim: Moment::new(Tick(396), fraction), ..shot() }, &all), ShotError::Claim);
    }
    for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e7] {
        assert_eq!(refused(Shot { origin_m: [0.0, wrong, 0.0], ..shot() }, &all), ShotError::Origin);
    }
    for wrong in [[0.0; 3], [f64::NAN, 1.0, 0.0], [f64::INFINITY, 0.0, 0.0], [0.0, f64::NEG_INFINITY, 1.0]] {
        assert_eq!(refused(Shot { direction: wrong, ..shot() }, &all), ShotError::Direction);
    }
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(refused(Shot { range_m: wrong, ..shot() }, &all), ShotError::Range);
    }
    assert_eq!(refused(shot(), &[BodyId(0), BodyId(1)]), ShotError::UnknownTarget(BodyId(1)));
    assert_eq!(refused(shot(), &[BodyId(0); 257]), ShotError::TooManyTargets);
    let counters = rewind.counters();
    assert_eq!((counters.refused_claim, counters.refused_origin), (4, 4));
    assert_eq!((counters.refused_direction, counters.refused_misuse, counters.shots), (4, 6, 0));
}

#[test]
fn impossible_view_times_are_replaced_and_counted() {
    let mut rewind = scene();
    let mut case = Case::new();
    let mut judge = |claim: Moment| {
        let verdict = rewind.judge(&Shot { claim, ..shot() }, &[BodyId(0)], &OpenSpace, &mut case).unwrap();
        assert!(verdict.hit().is_some());
        ((verdict.view.rewound_ms * 1e3).round() / 1e3, verdict.flags)
    };
    for tick in [0, 1, 300, 440, u64::MAX] {
        assert_eq!(judge(Moment::at(Tick(tick))), (27.812, Flags::REPLACED), "{tick}");
    }
    assert_eq!(judge(Moment::new(Tick(410), 0.5)), (0.0, Flags::FUTURE));
    assert_eq!((rewind.counters().replaced, rewind.counters().future), (5, 1));
}

#[test]
fn options_out_of_range_are_refused() {
    let history = HistoryOptions::default();
    let judge = JudgeRules::default();
    let view = ViewRules::default();
    let with_view = |view| RewindOptions { judge: JudgeRules { view, ..judge }, ..RewindOptions::default() };
    let with_history = |history| RewindOptions { history, ..RewindOptions::default() };
    let wrong = [
        with_history(HistoryOptions { poses: 33, ..history }),
        with_history(HistoryOptions { poses: 1, ..history }),
        with_history(HistoryOptions { every_ticks: 0, ..history }),
        with_history(HistoryOptions { break_distance_m: f64::NAN, ..history }),
        with_view(ViewRules { max_ms: MAX_REWIND_MS + 1.0, ..view }),
        with_view(ViewRules { max_ms: f64::NAN, ..view }),
        with_view(ViewRules { tolerance_ms: -1.0, ..view }),
        with_view(ViewRules { ticks_per_s: 0, ..view }),
        RewindOptions { judge: JudgeRules { near_miss_m: f64::INFINITY, ..judge }, history },
    ];
    for options in wrong {
        assert_eq!(Rewind::new(options, Models::new()).unwrap_err().tag(), "rewind_options", "{options:?}");
    }
    assert!(Rewind::new(with_history(history.full_rate()), Models::new()).is_ok());
}

proptest! {
    #![proptest_config(throng_seeds::cases(1_000))]

    #[test]
    fn no_claim_rewinds_beyond_the_limits(
        now in 0u64..1 << 50,
        ticks in any::<u64>(),
        ahead in -500i64..500,
        fraction in 0.0f32..1.0,
        (rtt_us, interpolation_us) in (0u32..900_000, 0u32..200_000),
        max_ms in 0.0..1_000.0f64,
        tolerance_ms in 0.0..400.0f64,
    ) {
        let rules = ViewRules { ticks_per_s: 128, tolerance_ms, max_ms };
        let latency = Latency { rtt_us, interpolation_us };
        let honest_ms = latency.age_when_handled_ms().min(max_ms);
        for tick in [ticks, now.saturating_add_signed(ahead)] {
            let claim = Moment::new(Tick(tick), fraction);
            let view = rules.decide(claim, Tick(now), latency);
            prop_assert!((0.0..=max_ms).contains(&view.rewound_ms), "{:?}", view);
            prop_assert!(view.moment.is_valid() && view.moment <= Moment::at(Tick(now)), "{:?}", view);
            let ms = rules.ms(Moment::at(Tick(now)).ticks_since(view.moment));
            prop_assert!((ms - view.rewound_ms).abs() < 1e-3 || view.moment == Moment::at(Tick(0)), "{} {:?}", ms, view);
            let gained_ms = (view.rewound_ms - honest_ms).abs();
            prop_assert!(gained_ms <= rules.most_gained_by_lying_ms(latency.age_when_handled_ms()) + 1e-9);
            if view.flags == Flags::NONE {
                prop_assert_eq!(view.moment, claim);
            }
        }
    }

    #[test]
    fn of_two_accepted_claims_the_later_one_sees_the_later_world(
        one in (350u64..=400, 0.0f32..1.0),
        other in (350u64..=400, 0.0f32..1.0),
        rtt_us in 0u32..500_000,
    ) {
        let rules = ViewRules::default();
        let latency = Latency { rtt_us, interpolation_us: 7_812 };
        let decide = |(tick, fraction)| rules.decide(Moment::new(Tick(tick), fraction), Tick(400), latency);
        let (older, newer) = if one <= other { (one, other) } else { (other, one) };
        let (older, newer) = (decide(older), decide(newer));
        if !older.flags.contains(Flags::REPLACED) && !newer.flags.contains(Flags::REPLACED) {
            prop_assert!(older.moment <= newer.moment && older.rewound_ms >= newer.rewound_ms);
        }
    }
}

/// The bound is reached: no better lie is refused, and no worse one is reported as the worst.
#[test]
fn the_gain_of_the_best_lie_is_the_documented_one() {
    let rules = ViewRules::default();
    for (rtt_us, expected_ms) in [(0, 200.0), (30_000, 200.0), (100_000, 142.0), (300_000, 142.0)] {
        let latency = Latency { rtt_us, interpolation_us: 8_000 };
        let true_ms = latency.age_when_handled_ms();
        let gain_of =
            |claim: Moment| (rules.decide(claim, Tick(400), latency).rewound_ms - true_ms.min(rules.max_ms)).abs();
        let claims = (0..500 * 64).map(|part| Moment::new(Tick(part / 64), (part % 64) as f32 / 64.0));
        let best_ms = claims.map(gain_of).fold(0.0, f64::max);
        let stated_ms = rules.most_gained_by_lying_ms(true_ms);
        assert!((stated_ms - expected_ms).abs() < 1e-9, "{stated_ms} for {rtt_us}");
        assert!(best_ms <= stated_ms + 1e-9 && best_ms > stated_ms - 0.2, "{best_ms}, stated {stated_ms}");
    }
}
