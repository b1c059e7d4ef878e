//! The cost of a scope, on and off, and of a frame around it. See docs/telemetry.md.
//!
//! All variants take turns in many short rounds, and are measured in processor time of the thread, so that a busy machine
//! disturbs all of them alike. It prints the median of the rounds, and the best one.
#![allow(missing_docs)]

use std::hint::black_box;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use throng_meter::MAX_SUBSYSTEMS;
use throng_telemetry::{Clock, FrameTimes, Phase, Recorder, Subsystem, Telemetry, TelemetryOptions};

const LIVE: Phase = Phase::new("live");
const ROUNDS: usize = 300;
/// Scopes in a frame: as many as have room for their spans.
const SCOPES: u64 = 4_000;
const FRAMES: u64 = 200;

fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds for each of `count` pieces of `work`.
fn time(count: u64, mut work: impl FnMut()) -> f64 {
    let begin = cpu_ns();
    work();
    (cpu_ns() - begin) / count as f64
}

fn scopes(recorder: &mut Recorder) -> f64 {
    let mut frame = recorder.begin(1, LIVE);
    time(SCOPES, || {
        for _ in 0..SCOPES {
            drop(frame.enter(black_box(Subsystem::PHYSICS)));
        }
    })
}

fn nested(recorder: &mut Recorder) -> f64 {
    let mut frame = recorder.begin(1, LIVE);
    time(SCOPES, || {
        for _ in 0..SCOPES / 2 {
            let mut scope = frame.enter(black_box(Subsystem::PHYSICS));
            drop(scope.enter(black_box(Subsystem::AI)));
        }
    })
}

fn parts(recorder: &mut Recorder) -> f64 {
    let mut frame = recorder.begin(1, LIVE);
    time(SCOPES, || {
        let mut scope = frame.enter(black_box(Subsystem::PHYSICS));
        for _ in 1..SCOPES {
            scope = scope.then(black_box(Subsystem::AI));
        }
    })
}

/// Frames with ten scopes, right after each other.
fn frames(recorder: &mut Recorder) -> f64 {
    time(FRAMES, || {
        for tick in 0..FRAMES {
            let mut frame = recorder.begin(tick, LIVE);
            for _ in 0..10 {
                drop(frame.enter(black_box(Subsystem::PHYSICS)));
            }
        }
    })
}

/// Frames of 30 Hz that another clock has measured, with twelve subsystems each.
fn handed_over(recorder: &mut Recorder, first: u64) -> f64 {
    let mut parts_ns = [0; MAX_SUBSYSTEMS];
    time(FRAMES, || {
        for tick in first..first + FRAMES {
            let start_ns = tick * 33_333_333;
            Subsystem::STAGES.iter().for_each(|part| parts_ns[part.index()] = 100_000 + tick * 7_919 % 400_000);
            let wall_ns = parts_ns.iter().sum();
            recorder.add(FrameTimes { tick, phase: LIVE, start_ns, wall_ns, cpu_ns: None, late_ns: 0 }, &parts_ns);
        }
    })
}

fn main() {
    let telemetry = Telemetry::start(TelemetryOptions::default()).expect("no files");
    let folder = tempfile::tempdir().expect("a folder");
    let table = Some(folder.path().join("frames.parquet"));
    let written = Telemetry::start(TelemetryOptions { table, ..TelemetryOptions::default() }).expect("a file");
    let (mut measured, mut tick) = (telemetry.recorder("measured"), 0);
    let (mut row, mut row_tick) = (written.recorder("row"), 0);
    let (mut on, mut off) = (telemetry.recorder("on"), telemetry.recorder("off"));
    off.set_on(false);
    let mut more = telemetry.recorder("more");
    let mut last = telemetry.recorder("last");
    let mut whole = telemetry.recorder("whole");
    let mut whole_off = telemetry.recorder("whole off");
    whole_off.set_on(false);
    let (clock, counter) = (Clock::new(), quanta::Clock::new());
    let counter_twice = || {
        time(SCOPES, || {
            for _ in 0..SCOPES {
                black_box((counter.raw(), counter.raw()));
            }
        })
    };
    let clock_twice = || {
        time(SCOPES, || {
            for _ in 0..SCOPES {
                black_box((clock.now_ns(), clock.now_ns()));
            }
        })
    };
    let instant_twice = || {
        time(SCOPES, || {
            for _ in 0..SCOPES {
                black_box((Instant::now(), Instant::now()));
            }
        })
    };
    let cpu_once = || {
        time(FRAMES, || {
            for _ in 0..FRAMES {
                black_box(cpu_ns());
            }
        })
    };
    let hand_over = || {
        tick += FRAMES;
        handed_over(&mut measured, tick)
    };
    let write_rows = || {
        row_tick += FRAMES;
        handed_over(&mut row, row_tick);
        time(FRAMES, || written.collect())
    };
    let nothing = || {
        time(SCOPES, || {
            for _ in 0..SCOPES {
                black_box(Subsystem::PHYSICS);
            }
        })
    };
    type Variant<'a> = (&'static str, Box<dyn FnMut() -> f64 + 'a>);
    let mut variants: Vec<Variant<'_>> = vec![
        ("the counter, read twice", Box::new(counter_twice)),
        ("the clock, read twice", Box::new(clock_twice)),
        ("Instant, read twice", Box::new(instant_twice)),
        ("processor time, read once", Box::new(cpu_once)),
        ("an empty loop", Box::new(nothing)),
        ("scope, on", Box::new(|| scopes(&mut on))),
        ("scope within a scope, on", Box::new(|| nested(&mut more))),
        ("next part (then), on", Box::new(|| parts(&mut last))),
        ("scope, off", Box::new(|| scopes(&mut off))),
        ("frame with ten scopes, on", Box::new(|| frames(&mut whole))),
        ("frame with ten scopes, off", Box::new(|| frames(&mut whole_off))),
        ("frame, handed over", Box::new(hand_over)),
        ("frame, 12 rows in a table", Box::new(write_rows)),
    ];
    let mut times = vec![Vec::with_capacity(ROUNDS); variants.len()];
    for _ in 0..ROUNDS {
        for ((_, run), times) in variants.iter_mut().zip(&mut times) {
            times.push(run());
        }
        telemetry.collect();
    }
    println!("clock: {}; ns, median of {ROUNDS} rounds (best)", Clock::new().source());
    for ((name, _), times) in variants.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("{name:<28} {:>8.1} ({:.1})", times[ROUNDS / 2], times[0]);
    }
}
