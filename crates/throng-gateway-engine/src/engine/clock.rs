//! The time of the engine, as its caller says it: in ticks of a millisecond, and by the calendar.

use std::time::Duration;

use throng_wire::{Tick, Time};

/// The present time, and how ticks are counted.
#[derive(Debug)]
pub(super) struct Clock {
    now: Time,
    /// When the first tick began.
    start: Time,
    first_tick: Tick,
    /// Nanoseconds since 1970 at the start.
    unix_start_ns: i64,
}

impl Clock {
    /// It is `now`, and `unix_ns` by the calendar: `first_tick` begins.
    pub(super) fn new((now, unix_ns): (Time, i64), first_tick: Tick) -> Clock {
        Clock { now, start: now, first_tick, unix_start_ns: unix_ns }
    }

    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// The caller says what time it is.
    pub(super) fn set(&mut self, now: Time) {
        self.now = now;
    }

    /// The present tick.
    pub(super) fn tick(&self) -> Tick {
        self.tick_at(self.now)
    }

    pub(super) fn tick_at(&self, now: Time) -> Tick {
        Tick(self.first_tick.0 + now.micros_since(self.start) / 1_000)
    }

    /// When a tick begins.
    pub(super) fn time_of(&self, tick: Tick) -> Time {
        Time(self.start.0.saturating_add(tick.0.saturating_sub(self.first_tick.0).saturating_mul(1_000)))
    }

    /// The first of the points that are `step` apart, counted from the start, after `last`.
    pub(super) fn step_after(&self, last: Time, step: Duration) -> Time {
        let step_micros = (step.as_micros() as u64).max(1);
        let steps = last.micros_since(self.start) / step_micros + 1;
        Time(self.start.0 + steps * step_micros)
    }

    /// Seconds since the start.
    pub(super) fn second(&self) -> u64 {
        self.now.micros_since(self.start) / 1_000_000
    }

    /// When the next of these seconds begins.
    pub(super) fn next_second(&self) -> Time {
        self.start.after(Duration::from_secs(self.second() + 1))
    }

    /// Nanoseconds since 1970, as far as the caller of [`Engine::new`](super::Engine::new) knew.
    pub(super) fn unix_ns(&self) -> i64 {
        self.unix_start_ns.saturating_add(self.now.micros_since(self.start) as i64 * 1_000)
    }

    /// The same at the beginning of a tick.
    pub(super) fn unix_ns_at(&self, tick: Tick) -> i64 {
        let since_start = tick.0.wrapping_sub(self.first_tick.0) as i64;
        self.unix_start_ns.saturating_add(since_start.saturating_mul(1_000_000))
    }

    /// This tick begins now.
    pub(super) fn begin_at(&mut self, now: Time, tick: Tick) {
        (self.start, self.first_tick) = (now, tick);
    }

    /// All ticks begin so much later; earlier, if it is negative.
    pub(super) fn put_off(&mut self, ticks: i64) {
        self.start = Time(self.start.0.saturating_add_signed(ticks.saturating_mul(1_000)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_begins_at_its_time_and_steps_lie_on_a_lattice_from_the_start() {
        let mut clock = Clock::new((Time(10_500), 7_000), Tick(40));
        clock.set(Time(13_499));
        assert_eq!(
            (clock.tick(), clock.time_of(Tick(43)), clock.time_of(Tick(1))),
            (Tick(42), Time(13_500), Time(10_500))
        );
        let step = |last| clock.step_after(Time(last), Duration::from_millis(5)).0;
        assert_eq!((step(10_500), step(15_499), step(15_500)), (15_500, 15_500, 20_500));
        assert_eq!((clock.unix_ns(), clock.unix_ns_at(Tick(42))), (7_000 + 2_999_000, 7_000 + 2_000_000));
        clock.put_off(-1);
        assert_eq!(clock.tick(), Tick(43));
        clock.begin_at(Time(13_499), Tick(9));
        assert_eq!((clock.tick(), clock.second(), clock.next_second()), (Tick(9), 0, Time(1_013_499)));
    }
}
