//! A frame allocates nothing, once its recorder is made.
#![allow(unsafe_code, reason = "an allocator that counts has to be an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use throng_telemetry::{Clock, Phase, Subsystem, Telemetry, TelemetryOptions};

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory came from `alloc` above, that is from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the memory came from the system with this layout; the caller keeps the contract of `realloc`.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn frames_allocate_nothing_with_more_spans_and_frames_than_fit_too() {
    let telemetry = Telemetry::start_with_clock(TelemetryOptions::default(), Clock::new()).expect("no files");
    let mut recorder = telemetry.recorder("m");
    assert!(COUNT.get() > 0, "the allocator counts");
    let mut allocations = 0;
    for tick in 0..2_000_u64 {
        // Nobody collects during the last 500 frames, so frames are lost.
        if tick < 1_500 && tick % 50 == 0 {
            telemetry.collect();
        }
        let before = COUNT.get();
        let mut frame = recorder.begin(tick, Phase::new("live"));
        for _ in 0..if tick % 500 == 3 { 10_000 } else { 50 } {
            let mut scope = frame.enter(Subsystem::GAMEPLAY);
            scope.time(Subsystem::PHYSICS, |_| std::hint::black_box(tick));
            scope.claim(Subsystem::NETWORK, 3);
            drop(scope.then(Subsystem::AI));
        }
        frame.finish();
        allocations += COUNT.get() - before;
    }
    assert_eq!(allocations, 0);
    assert!(telemetry.snapshot().lost_frames > 100);
}
