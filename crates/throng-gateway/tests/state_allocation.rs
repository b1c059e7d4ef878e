//! Updates of the same shape, merged and encoded, allocate nothing once the first few are behind them.
#![allow(unsafe_code, reason = "an allocator that counts has to be an allocator")]
#![allow(missing_docs)]

mod state_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use state_support::*;
use throng_gateway::state::{Chunks, MergeOptions};
use throng_wire::Tick;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory came from `alloc` above, that is from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_world_in_motion_allocates_nothing() {
    let mut state = world(MergeOptions::default());
    let type_url = url("World");
    let all = (1..201).fold(message(), |wire, key| wire.entry(1, key, moving(key as f32).text(8, "name")));
    let one: Vec<Wire> = (1..201).map(|key| message().entry(1, key, moving(2.0))).collect();
    let mut chunks = Chunks::new();
    let mut frame = |tick: u32| {
        state.merge(&all.0, &type_url, 1, Tick(2 * tick)).unwrap();
        for (writer, update) in (1..).zip(&one) {
            state.merge(&update.0, &type_url, writer, Tick(2 * tick + 1)).unwrap();
        }
        state.encode(Some(Tick(2 * tick)), None, None, 2_000, &mut chunks);
        state.encode(Some(Tick(2 * tick - 2)), None, Some(9), 60_000, &mut chunks);
        state.encode(None, None, None, 4_000, &mut chunks);
    };
    (1..10).for_each(&mut frame);
    let before = ALLOCATIONS.with(Cell::get);
    (10..30).for_each(&mut frame);
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
}
