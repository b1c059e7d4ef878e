//! An allocator that counts, for tests of what allocates nothing. A test that uses a function of this crate has the allocator.
//! All counts are those of the thread that asks.
//!
//! ```
//! use throng_counting::{allocations, so_far};
//!
//! let before = so_far();
//! assert_eq!(allocations(|| drop(Box::new(1))), 1);
//! assert_eq!(so_far(), before + 1);
//! ```
#![allow(unsafe_code, reason = "an allocator that counts has to be an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};

struct Counting;

thread_local! {
    static IS_COUNTING: Cell<bool> = const { Cell::new(false) };
    static SO_FAR: Cell<u64> = const { Cell::new(0) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static HELD_BYTES: Cell<i64> = const { Cell::new(0) };
    static LARGEST_BYTES: Cell<usize> = const { Cell::new(0) };
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Memory that the thread holds changes by so much.
fn hold(bytes: i64) {
    let _ = HELD_BYTES.try_with(|held| held.set(held.get() + bytes));
}

fn note(bytes: usize) {
    // While the thread ends its cells are gone, and nothing is to be counted.
    let _ = SO_FAR.try_with(|count| count.set(count.get() + 1));
    // A panic writes its own backtrace meanwhile, and a second one would wait for the first without end.
    if IS_COUNTING.try_with(Cell::get).unwrap_or(false) && !std::thread::panicking() {
        IS_COUNTING.set(false);
        COUNT.set(COUNT.get() + 1);
        LARGEST_BYTES.set(LARGEST_BYTES.get().max(bytes));
        if COUNT.get() == 1 {
            let before = SO_FAR.get();
            let trace = Backtrace::force_capture().to_string();
            FIRST.with(|first| *first.borrow_mut() = Some(trace));
            SO_FAR.set(before);
        }
        IS_COUNTING.set(true);
    }
}

// SAFETY: every call is handed on to the system's allocator unchanged; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        hold(layout.size() as i64);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        hold(-(layout.size() as i64));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(new_size);
        hold(new_size as i64 - layout.size() as i64);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this thread has asked for memory since it began.
pub fn so_far() -> u64 {
    SO_FAR.get()
}

/// Runs `work` and returns how often it asked for memory.
pub fn allocations(work: impl FnOnce()) -> u64 {
    COUNT.set(0);
    LARGEST_BYTES.set(0);
    IS_COUNTING.set(true);
    work();
    IS_COUNTING.set(false);
    COUNT.get()
}

/// Bytes that this thread has allocated and not freed. Other threads do not count.
pub fn held_bytes() -> i64 {
    HELD_BYTES.get()
}

/// The most that the last counted work asked for at once, in bytes.
pub fn largest_bytes() -> usize {
    LARGEST_BYTES.get()
}

/// Where the first allocation came from, since this was asked last.
pub fn first_allocation() -> String {
    FIRST.with(|first| first.borrow_mut().take()).unwrap_or_default()
}
