use std::fmt;
use std::time::Duration;

/// One step of the simulation, counted from the server's start.
///
/// 64 bits never wrap around, so ticks of any age compare as numbers do. Packets carry the low half of a tick, see
/// [`ShortTick`].
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

impl Tick {
    /// Whether `self` comes after `other`. False when they are equal.
    #[inline]
    pub fn is_newer_than(self, other: Tick) -> bool {
        self > other
    }

    /// Steps from `older` to `self`; 0 when `older` is not older, `u32::MAX` when there are more.
    #[inline]
    pub fn since(self, older: Tick) -> u32 {
        u32::try_from(self.0.saturating_sub(older.0)).unwrap_or(u32::MAX)
    }

    /// The tick `steps` later.
    #[inline]
    pub fn after(self, steps: u32) -> Tick {
        Tick(self.0 + u64::from(steps))
    }

    /// The tick `steps` earlier; tick 0 when there were fewer.
    #[inline]
    pub fn before(self, steps: u32) -> Tick {
        Tick(self.0.saturating_sub(u64::from(steps)))
    }

    /// The newer of two ticks.
    #[inline]
    pub fn newest(self, other: Tick) -> Tick {
        self.max(other)
    }

    /// The low half of the tick, for packets and for tables in which 4 bytes count.
    #[inline]
    pub fn short(self) -> ShortTick {
        ShortTick(self.0 as u32)
    }
}

/// The low 32 bits of a [`Tick`].
///
/// Short ticks are never compared with each other: they wrap around after 2^32 steps, which is 388 days at 128 Hz. A
/// reader makes a whole tick of one with the help of a tick that it knows.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ShortTick(pub u32);

impl ShortTick {
    /// The whole tick, which is less than 2^31 steps older or newer than `known`.
    #[inline]
    pub fn near(self, known: Tick) -> Tick {
        let steps = self.0.wrapping_sub(known.short().0) as i32;
        Tick(known.0.saturating_add_signed(i64::from(steps)))
    }

    /// The whole tick, which is less than 2^32 steps older than `now`, or `now` itself.
    #[inline]
    pub fn until(self, now: Tick) -> Tick {
        now.before(self.ticks_until(now))
    }

    /// Steps from the whole tick to `now`, less than 2^32.
    #[inline]
    pub fn ticks_until(self, now: Tick) -> u32 {
        now.short().0.wrapping_sub(self.0)
    }
}

impl fmt::Debug for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

impl fmt::Debug for ShortTick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t..{}", self.0)
    }
}

/// Microseconds since an origin chosen by the caller (usually the start of the process).
///
/// The protocol crates never ask for the time: it comes in as an argument, so a test decides how it passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The time `seconds` after the origin.
    pub const fn from_secs(seconds: u64) -> Time {
        Time(seconds * 1_000_000)
    }

    /// The time `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Time {
        Time(millis * 1_000)
    }

    /// From `earlier` to `self`; zero when `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Microseconds from `earlier` to `self`; 0 when `earlier` is later.
    #[inline]
    pub fn micros_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time `duration` later.
    #[inline]
    pub fn after(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(duration.as_micros() as u64))
    }
}

impl From<Duration> for Time {
    /// The time that lies `elapsed` after the origin.
    fn from(elapsed: Duration) -> Time {
        Time(elapsed.as_micros() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_any_age_compare_as_numbers() {
        let first = Tick(1);
        for steps in [1, 1 << 31, (1 << 31) + 1, 1 << 32, 1 << 40] {
            let later = Tick(1 + steps);
            assert!(later.is_newer_than(first) && !first.is_newer_than(later));
            assert_eq!((later.newest(first), first.newest(later)), (later, later));
            assert_eq!(u64::from(later.since(first)), steps.min(u32::MAX.into()));
            assert_eq!(first.since(later), 0);
        }
        assert_eq!(Tick(7).before(5), Tick(2));
        assert_eq!(Tick(7).before(8), Tick(0));
        assert_eq!(Tick(u64::from(u32::MAX)).after(1), Tick(1 << 32));
    }

    #[test]
    fn a_short_tick_becomes_whole_next_to_a_known_one() {
        for known in [0, 5, (1 << 31) - 1, 1 << 32, (1 << 40) + 3, u64::MAX >> 1].map(Tick) {
            for steps in [0, 1, 1_000, (1 << 31) - 1] {
                let (newer, older) = (known.after(steps), known.before(steps));
                assert_eq!(newer.short().near(known), newer);
                assert_eq!(older.short().near(known), older);
                assert_eq!(older.short().until(known), older);
            }
            assert_eq!(known.before(u32::MAX).short().until(known), known.before(u32::MAX));
        }
        assert_eq!(ShortTick(u32::MAX).near(Tick(0)), Tick(0), "there is nothing before the first tick");
    }

    #[test]
    fn times_never_go_negative() {
        assert_eq!(Time(3).micros_since(Time(5)), 0);
        assert_eq!(Time(5).since(Time(3)), Duration::from_micros(2));
        assert_eq!(Time::from_secs(1).after(Duration::from_millis(5)), Time(1_005_000));
    }
}
