//! A disk that is made slow on purpose.
//!
//! Nothing is done to the disk itself: the threads that write a run's files wait before each write, as they would for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A write of a slow disk takes so much longer.
const SLOW_WRITE: Duration = Duration::from_secs(1);

/// The disk of a run's files. Clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Disk(Arc<State>);

#[derive(Debug)]
struct State {
    slow_write: Duration,
    is_slow: AtomicBool,
    delayed: AtomicU64,
}

impl Default for Disk {
    fn default() -> Disk {
        Disk::with(SLOW_WRITE)
    }
}

impl Disk {
    /// While it is slow, a write takes so much longer.
    pub(super) fn with(slow_write: Duration) -> Disk {
        Disk(Arc::new(State { slow_write, is_slow: AtomicBool::new(false), delayed: AtomicU64::new(0) }))
    }

    pub(super) fn set_slow(&self, is_slow: bool) {
        self.0.is_slow.store(is_slow, Ordering::Relaxed);
    }

    /// To be called before each write, on the thread that writes.
    pub(super) fn before_write(&self) {
        if self.0.is_slow.load(Ordering::Relaxed) {
            self.0.delayed.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(self.0.slow_write);
        }
    }

    /// Writes that it delayed.
    pub(super) fn delayed(&self) -> u64 {
        self.0.delayed.load(Ordering::Relaxed)
    }
}
