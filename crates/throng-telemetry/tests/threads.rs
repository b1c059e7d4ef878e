//! Many recorders on many threads, and readers beside them.

use throng_telemetry::{Clock, Phase, Subsystem, Telemetry, TelemetryOptions, WAITING_FRAMES_MAX};

const LIVE: Phase = Phase::new("live");

#[test]
fn every_frame_of_every_thread_is_counted_while_others_read() {
    const FRAMES: u64 = 2_000;
    let telemetry = Telemetry::start_with_clock(TelemetryOptions::default(), Clock::system()).expect("no files");
    let collecting = telemetry.collect_in_background().expect("a thread");
    std::thread::scope(|scope| {
        for number in 0..4 {
            let telemetry = &telemetry;
            scope.spawn(move || {
                let mut recorder = telemetry.recorder(&format!("match {number}"));
                for tick in 0..FRAMES {
                    // Frames do not come faster than anybody could take them.
                    if tick % 100 == 0 {
                        telemetry.collect();
                    }
                    recorder.begin(tick, LIVE).time(Subsystem::AI, |_| std::hint::black_box(tick));
                }
            });
        }
        scope.spawn(|| {
            let mut frames = 0;
            while frames < 4 * FRAMES {
                let snapshot = telemetry.snapshot();
                assert!(snapshot.frames >= frames && !telemetry.prometheus().is_empty());
                frames = snapshot.frames + snapshot.lost_frames;
            }
        });
    });
    drop(collecting);
    let snapshot = telemetry.snapshot();
    assert_eq!((snapshot.frames, snapshot.lost_frames, snapshot.recorders.len()), (4 * FRAMES, 0, 0));
    let sum: f64 = snapshot.subsystems.iter().map(|figures| figures.frame_ns.mean).sum();
    assert!((sum - snapshot.frame_ns.mean).abs() < 1e-6 * sum, "{sum} {snapshot:?}");
}

#[test]
fn frames_that_nobody_collects_are_lost_and_counted() {
    let (clock, hand) = Clock::manual();
    let telemetry = Telemetry::start_with_clock(TelemetryOptions::default(), clock).expect("no files");
    let mut recorder = telemetry.recorder("m");
    for tick in 0..1_000 {
        recorder.begin(tick, LIVE).time(Subsystem::AI, |_| hand.work(10));
    }
    let snapshot = telemetry.snapshot();
    assert_eq!((snapshot.frames, snapshot.lost_frames), (WAITING_FRAMES_MAX as u64, 1_000 - WAITING_FRAMES_MAX as u64));
    recorder.begin(1_000, LIVE).time(Subsystem::AI, |_| hand.work(10));
    assert_eq!(telemetry.snapshot().recorders[0].last.map(|frame| frame.tick), Some(1_000));
}

#[test]
fn a_frame_that_panics_ends_and_leaves_the_next_one_whole() {
    let (clock, hand) = Clock::manual();
    let telemetry = Telemetry::start_with_clock(TelemetryOptions::default(), clock).expect("no files");
    let mut recorder = telemetry.recorder("m");
    let crash = std::panic::AssertUnwindSafe(|| {
        let mut frame = recorder.begin(1, LIVE);
        let _scope = frame.enter(Subsystem::AI);
        hand.work(100);
        panic!("planted");
    });
    std::panic::catch_unwind(crash).expect_err("it panics");
    let mut frame = recorder.begin(2, LIVE);
    frame.time(Subsystem::PHYSICS, |_| hand.work(30));
    frame.finish();
    assert_eq!((recorder.last().total_ns, recorder.last().ns(Subsystem::PHYSICS)), (30, 30));
    let snapshot = telemetry.snapshot();
    assert_eq!((snapshot.frames, snapshot.frame_ns.max), (2, 100));
}
