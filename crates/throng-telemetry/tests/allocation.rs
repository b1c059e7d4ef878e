//! A frame allocates nothing, once its recorder is made.

use throng_counting::so_far;
use throng_telemetry::{Clock, Phase, Subsystem, Telemetry, TelemetryOptions};

#[test]
fn frames_allocate_nothing_with_more_spans_and_frames_than_fit_too() {
    let telemetry = Telemetry::start_with_clock(TelemetryOptions::default(), Clock::new()).expect("no files");
    let mut recorder = telemetry.recorder("m");
    assert!(so_far() > 0, "the allocator counts");
    let mut allocations = 0;
    for tick in 0..2_000_u64 {
        // Nobody collects during the last 500 frames, so frames are lost.
        if tick < 1_500 && tick % 50 == 0 {
            telemetry.collect();
        }
        let before = so_far();
        let mut frame = recorder.begin(tick, Phase::new("live"));
        for _ in 0..if tick % 500 == 3 { 10_000 } else { 50 } {
            let mut scope = frame.enter(Subsystem::GAMEPLAY);
            scope.time(Subsystem::PHYSICS, |_| std::hint::black_box(tick));
            scope.claim(Subsystem::NETWORK, 3);
            drop(scope.then(Subsystem::AI));
        }
        frame.finish();
        allocations += so_far() - before;
    }
    assert_eq!(allocations, 0);
    assert!(telemetry.snapshot().lost_frames > 100);
}
