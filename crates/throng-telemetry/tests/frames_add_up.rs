//! Subsystems add up to their frame, and spans say the same as sums.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use throng_telemetry::{Clock, ManualClock, Phase, Scopes, Subsystem, Telemetry, TelemetryOptions};

const LIVE: Phase = Phase::new("live");

fn any_subsystem(random: &mut fastrand::Rng) -> Subsystem {
    Subsystem::STAGES[random.usize(..Subsystem::STAGES.len())]
}

/// Random scopes within each other and after each other.
fn play(scopes: &mut Scopes, random: &mut fastrand::Rng, hand: &ManualClock, depth: u32) {
    for _ in 0..random.u32(..4) {
        hand.work(random.u64(..5_000));
        let mut scope = scopes.enter(any_subsystem(random));
        hand.work(random.u64(..5_000));
        if depth < 5 {
            play(&mut scope, random, hand, depth + 1);
        }
        if random.bool() {
            let _next = scope.then(any_subsystem(random));
            hand.work(random.u64(..5_000));
        }
    }
}

/// An event of a trace: name, begin and end in nanoseconds.
type Span = (String, u64, u64);

fn ns(value: &Value) -> u64 {
    (value.as_f64().expect("a number") * 1e3).round() as u64
}

/// The frames of a trace, each with its spans.
fn frames(trace: &str) -> Vec<(Value, Vec<Span>)> {
    let trace: Value = serde_json::from_str(trace).expect("the trace is JSON");
    let mut frames: Vec<(Value, Vec<Span>)> = Vec::new();
    for event in trace["traceEvents"].as_array().expect("events").iter().filter(|event| event["ph"] == "X") {
        if event["name"] == "frame" {
            frames.push((event.clone(), Vec::new()));
        } else {
            let begin_ns = ns(&event["ts"]);
            let span = (event["name"].as_str().expect("a name").to_owned(), begin_ns, begin_ns + ns(&event["dur"]));
            frames.last_mut().expect("a frame comes first").1.push(span);
        }
    }
    frames
}

/// Exclusive time by name. Panics if two spans overlap without one being within the other.
fn exclusive(frame: &Value, spans: &[Span]) -> BTreeMap<String, u64> {
    let begin_ns = ns(&frame["ts"]);
    let mut sums = BTreeMap::new();
    let mut open: Vec<Span> = vec![("other".to_owned(), begin_ns, begin_ns + ns(&frame["dur"]))];
    // Sorted so that a span comes before those within it; spans come out when they end, so inner ones first.
    let mut spans: Vec<_> = spans.iter().enumerate().collect();
    spans.sort_by_key(|(place, (_, begin, end))| (*begin, std::cmp::Reverse(*end), std::cmp::Reverse(*place)));
    for (_, (name, begin, end)) in spans {
        while open.len() > 1 && open.last().is_some_and(|(_, _, outer_end)| *outer_end <= *begin && *begin < *end) {
            open.pop();
        }
        let (outer, outer_begin, outer_end) = open.last().expect("the frame itself");
        if begin < end {
            assert!(
                outer_begin <= begin && end <= outer_end,
                "{name} {begin}..{end} crosses {outer} {outer_begin}..{outer_end}"
            );
            *sums.entry(outer.clone()).or_insert(0_i64) -= (end - begin) as i64;
            *sums.entry(name.clone()).or_insert(0) += (end - begin) as i64;
            open.push((name.clone(), *begin, *end));
        }
    }
    *sums.entry("other".to_owned()).or_insert(0) += ns(&frame["dur"]) as i64;
    sums.into_iter().filter(|(_, sum)| *sum != 0).map(|(name, sum)| (name, sum as u64)).collect()
}

#[test]
fn random_frames_add_up_and_their_spans_say_the_same() {
    throng_seeds::for_seeds(200, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let (clock, hand) = Clock::manual();
        let telemetry = Telemetry::start_with_clock(TelemetryOptions::default(), clock).expect("no files");
        let mut recorder = telemetry.recorder("match");
        for tick in 0..5 {
            let mut frame = recorder.begin(tick, LIVE);
            play(&mut frame, &mut random, &hand, 0);
            let times = frame.finish();
            let record = recorder.last();
            assert_eq!(record.subsystem_ns.iter().sum::<u64>(), times.wall_ns, "seed {seed}");
            assert_eq!((record.tick, times.cpu_ns), (tick, Some(times.wall_ns)));
            hand.wait(1_000_000);
        }
        let frames = frames(&telemetry.trace(Duration::from_secs(1)));
        assert_eq!(frames.len(), 5, "seed {seed}");
        for (frame, spans) in frames {
            let told = frame["args"]["self_us"].as_object().expect("times of subsystems");
            let told: BTreeMap<_, _> = told.iter().map(|(name, us)| (name.clone(), ns(us))).collect();
            assert_eq!(exclusive(&frame, &spans), told, "seed {seed}");
        }
    });
}

#[test]
fn a_trace_names_its_recorders_and_keeps_to_its_time() {
    let (clock, hand) = Clock::manual();
    let telemetry = Telemetry::start_with_clock(TelemetryOptions::default(), clock).expect("no files");
    let mut recorder = telemetry.recorder("match \"1\"\\\n");
    for tick in 0..20 {
        let mut frame = recorder.begin(tick, LIVE);
        frame.time(Subsystem::AI, |_| hand.work(1_500));
        drop(frame);
        hand.wait(100_000_000 - 1_500);
    }
    let trace = telemetry.trace(Duration::from_millis(450));
    let ticks: Vec<u64> =
        frames(&trace).iter().map(|(frame, _)| frame["args"]["tick"].as_u64().expect("a tick")).collect();
    assert_eq!(ticks, [19, 18, 17, 16, 15]);
    let trace: Value = serde_json::from_str(&trace).expect("JSON");
    assert_eq!(trace["traceEvents"][0]["args"]["name"], "match \"1\"\\\n");
    let span = &trace["traceEvents"][2];
    assert_eq!((span["name"].as_str(), ns(&span["dur"])), (Some("ai"), 1_500));
}

#[test]
fn a_scope_that_is_forgotten_ends_with_its_frame() {
    let (clock, hand) = Clock::manual();
    let telemetry = Telemetry::start_with_clock(TelemetryOptions::default(), clock).expect("no files");
    let mut recorder = telemetry.recorder("match");
    for tick in 0..2 {
        let mut frame = recorder.begin(tick, LIVE);
        std::mem::forget(frame.enter(Subsystem::PHYSICS));
        hand.work(700);
        assert_eq!(frame.finish().wall_ns, 700);
        assert_eq!(recorder.last().ns(Subsystem::PHYSICS), 700);
    }
    let frames = frames(&telemetry.trace(Duration::from_secs(1)));
    assert!(frames.iter().all(|(_, spans)| spans.len() == 1 && spans[0].2 - spans[0].1 == 700), "{frames:?}");
}

#[test]
fn a_frame_with_too_many_spans_keeps_its_sums_and_counts_them() {
    let (clock, hand) = Clock::manual();
    let telemetry = Telemetry::start_with_clock(TelemetryOptions::default(), clock).expect("no files");
    let mut recorder = telemetry.recorder("match");
    let mut frame = recorder.begin(1, LIVE);
    let mut scope = frame.enter(Subsystem::GAMEPLAY);
    for _ in 0..10_000 {
        scope.time(Subsystem::PHYSICS, |_| hand.work(1));
    }
    drop(scope);
    drop(frame);
    assert_eq!(recorder.last().ns(Subsystem::PHYSICS), 10_000);
    let frames = frames(&telemetry.trace(Duration::from_secs(1)));
    let (frame, spans) = &frames[0];
    let skipped = frame["args"]["spans_skipped"].as_u64().expect("a count") as usize;
    assert!(skipped > 0 && !spans.is_empty() && spans.len() + skipped == 10_001, "{} and {skipped}", spans.len());
    assert!(spans.iter().any(|(name, begin, end)| name == "gameplay" && end - begin == 10_000));
}

#[test]
fn claims_are_taken_from_what_runs_and_nothing_is_measured_when_off() {
    let (clock, hand) = Clock::manual();
    let telemetry = Telemetry::start_with_clock(TelemetryOptions::default(), clock).expect("no files");
    let mut recorder = telemetry.recorder("match");
    let mut frame = recorder.begin(1, LIVE);
    let mut scope = frame.enter(Subsystem::REPLICATION);
    hand.work(1_000);
    scope.claim(Subsystem::NETWORK, 300);
    drop(scope);
    drop(frame);
    assert_eq!([Subsystem::REPLICATION, Subsystem::NETWORK].map(|part| recorder.last().ns(part)), [700, 300]);
    recorder.set_on(false);
    let mut frame = recorder.begin(2, LIVE);
    assert!(!frame.is_on());
    frame.time(Subsystem::AI, |scopes| scopes.claim(Subsystem::NETWORK, 5));
    frame.finish();
    assert_eq!((recorder.last().tick, telemetry.snapshot().frames), (1, 1));
}
