//! Slow, or not running: with the clocks of this machine.

use std::time::Duration;

use throng_telemetry::{Cause, Clock, FrameBudgets, Phase, Subsystem, Telemetry, TelemetryOptions};

const LIVE: Phase = Phase::new("live");
const LIMIT: Duration = Duration::from_millis(15);
const LONG: Duration = Duration::from_millis(40);

fn start(clock: Clock) -> Telemetry {
    let budgets = FrameBudgets { frame_ns: Some(LIMIT.as_nanos() as u64), ..FrameBudgets::default() };
    Telemetry::start_with_clock(TelemetryOptions { budgets, ..TelemetryOptions::default() }, clock).expect("no files")
}

fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Works for so much processor time, however busy the machine is.
fn work(time: Duration) {
    let begin = thread_cpu();
    while thread_cpu() - begin < time {
        std::hint::spin_loop();
    }
}

#[test]
fn a_stopped_thread_shows_as_not_running_and_a_busy_loop_as_slow() {
    for clock in [Clock::new(), Clock::system()] {
        let telemetry = start(clock);
        let mut recorder = telemetry.recorder("m");
        let mut frame = recorder.begin(1, LIVE);
        frame.time(Subsystem::AI, |_| std::thread::sleep(LONG));
        let stopped = frame.finish();
        let mut frame = recorder.begin(2, LIVE);
        frame.time(Subsystem::AI, |_| work(LONG));
        let busy = frame.finish();
        let breaches = telemetry.snapshot().breaches;
        let causes: Vec<_> = breaches.iter().map(|breach| (breach.tick, breach.cause)).collect();
        assert_eq!(causes, [(1, Cause::NotRunning), (2, Cause::Slow)], "{stopped:?} {busy:?}");
        // A reading of 20 µs before the frame may count for it, so what did not run is somewhat less.
        assert!(stopped.not_running_ns() > Some(30_000_000), "{stopped:?}");
        assert!(busy.cpu_ns >= Some(39_000_000), "{busy:?}");
    }
}

#[test]
fn the_clocks_show_the_same_time() {
    let (best, system) = (Clock::new(), Clock::system());
    let begin = (best.now_ns(), system.now_ns());
    work(Duration::from_millis(100));
    let (best_ns, system_ns) = (best.now_ns() - begin.0, system.now_ns() - begin.1);
    // Between the two readings this thread may have waited for others.
    assert!(best_ns.abs_diff(system_ns) < system_ns / 10 + 20_000_000, "{best_ns} and {system_ns}");
    assert!(["counter", "system"].contains(&best.source()) && system.source() == "system");
}
