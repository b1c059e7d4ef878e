//! An allocator that counts, for each thread, what it does and holds.
#![allow(unsafe_code, reason = "an allocator that counts has to be an allocator")]
#![allow(dead_code)] // each test binary uses its part

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes of memory that this thread holds, with what the system's allocator adds to each piece: 8 bytes, in steps of
    /// 16 and never less than 32 (glibc).
    static HELD: Cell<i64> = const { Cell::new(0) };
}

fn hold(sign: i64, bytes: usize) {
    let chunk = (bytes + 8).next_multiple_of(16).max(32) as i64;
    HELD.with(|held| held.set(held.get() + sign * chunk));
}

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        hold(1, layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        hold(-1, layout.size());
        // SAFETY: the memory came from `alloc` above, that is from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Bytes of memory that this thread holds.
pub(crate) fn held_bytes() -> i64 {
    HELD.with(Cell::get)
}

/// Pieces of memory that this thread has asked for.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
