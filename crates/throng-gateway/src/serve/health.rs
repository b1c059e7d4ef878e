//! Whether the engine's thread works: it updates an atomic, so that a probe costs one load and never waits.
//!
//! ```text
//!   waits for events        RESTS     nothing can be stuck
//!   deals with an event     the time at which it began, again with each one
//! ```
//! A busy engine moves it many times in a second. One that has not moved it for [`STUCK_AFTER`] is in an endless loop or
//! waits for something that does not come; nothing but another process helps then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use throng_wire::Time;

/// One event, or one step of the engine, never takes so long, however much there is to do and however slow the machine is.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(60);

/// The engine's thread waits for events.
const RESTS: u64 = u64::MAX;

/// When the engine's thread was last seen to move.
#[derive(Debug)]
pub(crate) struct Heart(AtomicU64);

impl Heart {
    pub(crate) fn new() -> Heart {
        Heart(AtomicU64::new(RESTS))
    }

    /// It begins with something.
    pub(crate) fn beat(&self, now: Time) {
        self.0.store(now.0, Ordering::Relaxed);
    }

    /// It waits for something to do.
    pub(crate) fn rest(&self) {
        self.0.store(RESTS, Ordering::Relaxed);
    }

    /// How long it has been with the same thing.
    pub(crate) fn silence(&self, now: Time) -> Duration {
        match self.0.load(Ordering::Relaxed) {
            RESTS => Duration::ZERO,
            beat => now.since(Time(beat)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_engine_is_not_stuck_and_one_that_works_on_one_step_is_silent() {
        let heart = Heart::new();
        assert_eq!(heart.silence(Time::from_secs(1_000_000)), Duration::ZERO);
        heart.beat(Time::from_secs(10));
        assert_eq!(heart.silence(Time::from_secs(12)), Duration::from_secs(2));
        heart.beat(Time::from_secs(12));
        assert_eq!(heart.silence(Time::from_secs(12)), Duration::ZERO);
        heart.rest();
        assert_eq!(heart.silence(Time::from_secs(100)), Duration::ZERO);
    }
}
