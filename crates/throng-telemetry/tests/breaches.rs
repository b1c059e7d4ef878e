//! Breaches name what took too long, when, and in which phase.

use std::path::Path;

use throng_telemetry::{
    BREACHES_KEPT, Cause, Clock, FrameBudgets, ManualClock, PHASES_MAX, Phase, Recorder, Subsystem, Subsystems,
    Telemetry, TelemetryOptions,
};

const BUY: Phase = Phase::new("buy");
const LIVE: Phase = Phase::new("live");

fn start(budgets: &str) -> (Telemetry, ManualClock) {
    let (clock, hand) = Clock::manual();
    let budgets = FrameBudgets::parse(budgets, Path::new("budgets.toml"), &Subsystems::new()).expect("a good file");
    let options = TelemetryOptions { budgets, ..TelemetryOptions::default() };
    (Telemetry::start_with_clock(options, clock).expect("no files"), hand)
}

fn play(recorder: &mut Recorder, hand: &ManualClock, (tick, phase): (u64, Phase), physics_ns: u64) {
    let mut frame = recorder.begin(tick, phase);
    frame.time(Subsystem::GAMEPLAY, |scopes| {
        hand.work(10_000);
        scopes.time(Subsystem::PHYSICS, |_| hand.work(physics_ns));
    });
    frame.note_lateness_ns(tick * 100);
}

#[test]
fn a_planted_slow_subsystem_is_named_with_phase_and_tick() {
    let (telemetry, hand) = start("frame_ms = 0.3\n[subsystem_ms]\nphysics = 0.2\ngameplay = 0.2\n");
    let (mut first, mut second) = (telemetry.recorder("match 1"), telemetry.recorder("match 2"));
    for tick in 0..100 {
        let phase = if tick < 50 { BUY } else { LIVE };
        play(&mut first, &hand, (tick, phase), 200_000);
        play(&mut second, &hand, (tick, phase), if tick == 77 { 250_000 } else { 1_000 });
    }
    let snapshot = telemetry.snapshot();
    let breaches: Vec<String> = snapshot.breaches.iter().map(ToString::to_string).collect();
    assert_eq!(breaches, ["match 2, phase live, tick 77: physics took 0.250 ms of 0.200 ms"]);
    assert_eq!(snapshot.breaches[0].cause, Cause::Slow);
    let physics = snapshot.subsystems.iter().find(|figures| figures.subsystem == Subsystem::PHYSICS).expect("it ran");
    assert_eq!((physics.breaches, physics.budget_ns, physics.frame_ns.max), (1, Some(200_000), 250_000));
    assert_eq!((physics.frame_ns.count, snapshot.frames, snapshot.frame_breaches), (200, 200, 0));
}

#[test]
fn what_is_over_its_budget_because_the_thread_did_not_run_says_so() {
    let (telemetry, hand) = start("frame_ms = 0.3\nslow_frame_ms = 0.4\n[subsystem_ms]\nphysics = 0.2\n");
    let mut recorder = telemetry.recorder("m");
    let mut frame = recorder.begin(5, LIVE);
    frame.time(Subsystem::PHYSICS, |_| {
        hand.work(100_000);
        hand.wait(500_000);
    });
    let times = frame.finish();
    assert_eq!((times.wall_ns, times.cpu_ns, times.not_running_ns()), (600_000, Some(100_000), Some(500_000)));
    hand.wait(1_000_000);
    play(&mut recorder, &hand, (6, LIVE), 450_000);
    let snapshot = telemetry.snapshot();
    let told: Vec<_> = snapshot.breaches.iter().map(|breach| (breach.tick, &*breach.subsystem, breach.cause)).collect();
    let expected = [
        (5, "physics", Cause::NotRunning),
        (5, "frame", Cause::NotRunning),
        (6, "physics", Cause::Slow),
        (6, "frame", Cause::Slow),
    ];
    assert_eq!(told, expected);
    assert!(snapshot.breaches[0].to_string().ends_with("(the thread did not run for a part of it)"));
    assert_eq!((snapshot.slow_frames, snapshot.not_running_frames, snapshot.not_running_ns), (1, 1, 500_000));
}

#[test]
fn frames_in_which_a_subsystem_does_not_run_count_as_zero() {
    let (telemetry, hand) = start("");
    let mut recorder = telemetry.recorder("m");
    for tick in 0..100 {
        let mut frame = recorder.begin(tick, if tick < 40 { BUY } else { LIVE });
        hand.work(1_000);
        if tick % 4 == 0 && tick >= 40 {
            frame.time(Subsystem::ANIMATION, |_| hand.work(60_000));
        }
        frame.note_lateness_ns(tick);
    }
    let snapshot = telemetry.snapshot();
    let animation = snapshot.subsystems.iter().position(|figures| figures.name == "animation").expect("it ran");
    let figures = &snapshot.subsystems[animation];
    assert_eq!((figures.frame_ns.count, figures.frame_ns.p50, figures.frame_ns.max), (100, 0, 60_000));
    assert_eq!(figures.frame_ns.mean, 15.0 * 60_000.0 / 100.0);
    assert_eq!(figures.frame_ns.p99.abs_diff(60_000) / 60, 0);
    let phases: Vec<_> = snapshot
        .phases
        .iter()
        .map(|phase| (phase.phase, phase.frames, phase.mean_ns[animation], phase.mean_frame_ns))
        .collect();
    assert_eq!(phases, [(BUY, 40, 0.0, 1_000.0), (LIVE, 60, 15_000.0, 16_000.0)]);
    let times: Vec<_> = snapshot.phases.iter().map(|phase| (phase.frame_ns.p50, phase.frame_ns.max)).collect();
    assert_eq!(times, [(1_000, 1_000), (1_000, 61_000)]);
    assert_eq!(
        (snapshot.late_ns.max, snapshot.recorders[0].frames, snapshot.recorders[0].max_frame_ns),
        (99, 100, 61_000)
    );
    telemetry.reset_figures();
    let snapshot = telemetry.snapshot();
    assert_eq!((snapshot.frames, snapshot.subsystems.len(), snapshot.recorders[0].frames), (0, 0, 0));
}

#[test]
fn breaches_and_phases_have_bounds() {
    let (telemetry, hand) = start("[subsystem_ms]\nphysics = 0.001\n");
    let mut recorder = telemetry.recorder("m");
    let names: Vec<&'static str> = (0..20).map(|number| &*format!("phase {number}").leak()).collect();
    for tick in 0..200 {
        play(&mut recorder, &hand, (tick, Phase::new(names[tick as usize / 10])), 2_000);
    }
    let snapshot = telemetry.snapshot();
    let ticks: Vec<u64> = snapshot.breaches.iter().map(|breach| breach.tick).collect();
    assert_eq!(ticks, (200 - BREACHES_KEPT as u64..200).collect::<Vec<_>>());
    assert_eq!((snapshot.phases.len(), snapshot.frames), (PHASES_MAX, 200));
    let physics = snapshot.subsystems.iter().find(|figures| figures.name == "physics").expect("it ran");
    assert_eq!(physics.breaches, 200);
    assert!(
        telemetry.prometheus().contains("throng_subsystem_breaches_total{phase=\"others\",subsystem=\"physics\"} 40\n")
    );
}
