//! The system's allocator, counted per thread, so that a run can show that a steady tick takes no memory; and what it
//! keeps, given back to the system.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Allocations and reallocations of the calling thread so far.
pub(crate) fn of_this_thread() -> u64 {
    COUNT.with(Cell::get)
}

/// From now on freed memory at the end of a heap goes back to the system when it is a MiB, and blocks of a MiB and more lie
/// in pages of their own. Left alone, glibc raises both bounds to what large blocks were seen, up to 64 MiB for each heap.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn keep_little() {
    const TRIM_THRESHOLD: std::ffi::c_int = -1;
    const MMAP_THRESHOLD: std::ffi::c_int = -3;
    // SAFETY: this is how glibc declares it (malloc.h); it may be called at any time, by any thread.
    unsafe extern "C" {
        safe fn mallopt(parameter: std::ffi::c_int, value: std::ffi::c_int) -> std::ffi::c_int;
    }
    mallopt(TRIM_THRESHOLD, 1 << 20);
    mallopt(MMAP_THRESHOLD, 1 << 20);
}

/// Other allocators decide for themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn keep_little() {}

/// Gives the system back what was freed and is kept for later. Takes some milliseconds if that is much, during which others
/// may wait for memory.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn give_back() {
    // SAFETY: this is how glibc declares it (malloc.h); it may be called at any time, by any thread.
    unsafe extern "C" {
        safe fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
    malloc_trim(0);
}

/// Other allocators decide for themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_back() {}

pub(crate) struct Counting;

fn count() {
    // A thread that is ending has no counter any more; nobody asks for it either.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is handed to the system's allocator as it came, and its answer returned. Counting touches a
// constant-initialised thread-local cell without a destructor, so it allocates nothing and cannot panic.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above, that is from the system, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the pointer came from the system with this layout; the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
