//! Real time in the library's form, and the times of ticks.

use std::time::{Duration, Instant};

use throng_wire::Time;

/// Most ticks that a server makes up for after a pause. Further ones are skipped.
const MAKE_UP_TICKS: u32 = 4;

/// The time since its start: the `now` of programs that run in real time.
///
/// ```
/// let clock = throng::Clock::start();
/// let before = clock.now();
/// assert!(clock.now() >= before);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that begins at 0 now.
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// The time since the start; never falls.
    pub fn now(&self) -> Time {
        Time::from(self.start.elapsed())
    }
}

/// When the next tick is due: every `interval` from the first, whatever time each tick takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    interval: Duration,
    due: Time,
}

impl Pace {
    /// The first tick is due now.
    pub(crate) fn new(now: Time, interval: Duration) -> Pace {
        Pace { interval, due: now }
    }

    /// The time at which the next tick is due, after one that has ended now; and how many were skipped to get there.
    pub(crate) fn next(&mut self, now: Time) -> (Time, u64) {
        self.due = self.due.after(self.interval);
        let allowed = self.interval * MAKE_UP_TICKS;
        let late = now.since(self.due);
        let mut skipped = 0;
        if late > allowed {
            skipped = (late - allowed).as_nanos().div_ceil(self.interval.as_nanos().max(1)) as u64;
            self.due = self.due.after(Duration::from_nanos(self.interval.as_nanos() as u64 * skipped));
        }
        (self.due, skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(10);

    #[test]
    fn ticks_keep_their_times_however_long_each_takes() {
        let mut pace = Pace::new(Time::from_millis(100), INTERVAL);
        for (ended_ms, due_ms) in [(103, 110), (119, 120), (125, 130), (145, 140), (146, 150), (150, 160)] {
            assert_eq!(pace.next(Time::from_millis(ended_ms)), (Time::from_millis(due_ms), 0));
        }
    }

    #[test]
    fn a_short_pause_is_made_up_for_and_of_a_long_one_the_rest_is_skipped() {
        let mut pace = Pace::new(Time(0), INTERVAL);
        // Due at 10, and 40 late: the ticks are made up for.
        assert_eq!(pace.next(Time::from_millis(50)), (Time::from_millis(10), 0));
        // Due at 20, and 480 late: at most 40 of them are made up for.
        assert_eq!(pace.next(Time::from_millis(500)), (Time::from_millis(460), 44));
        for due_ms in [470, 480, 490, 500, 510] {
            assert_eq!(pace.next(Time::from_millis(501)), (Time::from_millis(due_ms), 0));
        }
    }
}
