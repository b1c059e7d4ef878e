//! When ticks are due, and the counts of late and missed ones. Knows no clock: `now` comes in.
//!
//! ```text
//! planned   0         33        67        100       133
//!           |---------|---------|---------|---------|
//! work      [===]     [==============]    [===]            the second tick is late: it ends after the third was due
//!                               ^ begins at once, late
//! work      [===]     [=====================]   [===]      the third tick is skipped: when the second ends, its interval is over
//! ```

use std::time::Duration;

use throng::Time;

/// The plan of a loop with a fixed rate. Ticks that are lost are not made up for: that would only make the next ones late.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    interval: Duration,
    planned: Time,
    late: u64,
    skipped: u64,
}

/// How a tick went against its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finish {
    /// From the planned beginning of the tick to its end.
    pub(crate) after_plan: Duration,
    /// Ticks that were due meanwhile and will not be played.
    pub(crate) skipped: u64,
}

impl Pace {
    /// The first tick is due at `first`. An interval below a microsecond counts as one.
    pub(crate) fn new(interval: Duration, first: Time) -> Pace {
        Pace { interval: interval.max(Duration::from_micros(1)), planned: first, late: 0, skipped: 0 }
    }

    /// When the next tick is due.
    pub(crate) fn planned(&self) -> Time {
        self.planned
    }

    /// The next tick is due at `now`, and the rate counts from there.
    pub(crate) fn restart(&mut self, now: Time) {
        self.planned = now;
    }

    /// Ticks that were played and ended after the next one was due.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// Ticks that were never played.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The tick that was planned has ended.
    pub(crate) fn finish(&mut self, now: Time) -> Finish {
        let after_plan = now.since(self.planned);
        let intervals = after_plan.as_micros() / self.interval.as_micros();
        // A tick that ends within its own interval or the next one delays others, and skips none.
        let skipped = u64::try_from(intervals).unwrap_or(u64::MAX).saturating_sub(1);
        self.late += u64::from(intervals >= 1 && after_plan > self.interval);
        self.skipped += skipped;
        let steps = u32::try_from(skipped + 1).unwrap_or(u32::MAX);
        self.planned = self.planned.after(self.interval.saturating_mul(steps));
        Finish { after_plan, skipped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(30);

    /// Plays ticks that take `work_ms` each on virtual time, for this many planned intervals.
    fn play(intervals: u64, mut work_ms: impl FnMut(u64) -> u64) -> (Pace, u64, Vec<Finish>) {
        let (mut pace, mut now, mut played, mut finishes) = (Pace::new(INTERVAL, Time(0)), Time(0), 0, Vec::new());
        while pace.planned() < Time(0).after(INTERVAL * intervals as u32) {
            now = now.max(pace.planned()).after(Duration::from_millis(work_ms(played)));
            finishes.push(pace.finish(now));
            played += 1;
        }
        (pace, played, finishes)
    }

    #[test]
    fn a_server_that_keeps_up_is_never_late() {
        let (pace, played, finishes) = play(300, |_| 29);
        assert_eq!((played, pace.late(), pace.skipped()), (300, 0, 0));
        assert!(finishes.iter().all(|finish| finish.after_plan == Duration::from_millis(29)));
    }

    #[test]
    fn a_tick_that_ends_exactly_when_the_next_is_due_is_on_time() {
        let (pace, played, _) = play(10, |_| 30);
        assert_eq!((played, pace.late(), pace.skipped()), (10, 0, 0));
    }

    #[test]
    fn a_late_tick_is_played_and_does_not_count_as_lost() {
        let (pace, played, finishes) = play(100, |tick| if tick == 50 { 45 } else { 10 });
        assert_eq!((played, pace.late(), pace.skipped()), (100, 1, 0));
        assert_eq!(finishes[51].after_plan, Duration::from_millis(25), "the next one begins 15 ms late and says so");
    }

    #[test]
    fn a_stall_skips_what_was_due_meanwhile() {
        let (pace, played, finishes) = play(100, |tick| if tick == 50 { 100 } else { 10 });
        // 100 ms of work from the plan of tick 50: ticks 51 and 52 are over, 53 is due at 90 ms and begins at 100.
        assert_eq!((played, pace.late(), pace.skipped()), (98, 1, 2));
        assert_eq!(finishes[50], Finish { after_plan: Duration::from_millis(100), skipped: 2 });
        assert_eq!(finishes[51].after_plan, Duration::from_millis(20));
    }

    #[test]
    fn played_and_skipped_ticks_make_up_the_plan() {
        for work_ms in [31, 45, 59, 60, 61, 90, 250] {
            let (pace, played, _) = play(1_000, |_| work_ms);
            let planned = pace.planned().since(Time(0)).as_micros() / INTERVAL.as_micros();
            assert_eq!(u128::from(played + pace.skipped()), planned, "ticks of {work_ms} ms");
            let held = played as f64 * 30.0 / (planned as f64 * 30.0);
            let possible = 30.0 / work_ms as f64;
            assert!((held - possible).abs() < 0.02, "{work_ms} ms: {held} of the rate is held, {possible} is possible");
        }
    }
}
