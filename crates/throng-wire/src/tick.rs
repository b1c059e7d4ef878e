use std::fmt;
use std::time::Duration;

/// One step of the simulation, counted from the server's start.
///
/// Ticks wrap around after 2^32 steps (828 days at 60 Hz). Comparison is circular: of two ticks at most 2^31 - 1 steps
/// apart the one that is reached by counting up from the other is newer. There is therefore no `Ord`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Tick(pub u32);

impl Tick {
    /// Whether `self` comes after `other`. False when they are equal.
    #[inline]
    pub fn is_newer_than(self, other: Tick) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }

    /// Steps from `older` to `self`; 0 when `older` is not older.
    #[inline]
    pub fn since(self, older: Tick) -> u32 {
        let steps = self.0.wrapping_sub(older.0) as i32;
        steps.max(0) as u32
    }

    /// The tick `steps` later.
    #[inline]
    pub fn after(self, steps: u32) -> Tick {
        Tick(self.0.wrapping_add(steps))
    }

    /// The tick `steps` earlier.
    #[inline]
    pub fn before(self, steps: u32) -> Tick {
        Tick(self.0.wrapping_sub(steps))
    }

    /// The newer of two ticks.
    #[inline]
    pub fn newest(self, other: Tick) -> Tick {
        if other.is_newer_than(self) { other } else { self }
    }
}

impl fmt::Debug for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

/// Microseconds since an origin chosen by whoever drives the machine (usually the start of the process).
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
    fn ticks_compare_around_the_wrap() {
        let old = Tick(u32::MAX - 1);
        let new = old.after(5);
        assert_eq!(new, Tick(3));
        assert!(new.is_newer_than(old));
        assert!(!old.is_newer_than(new));
        assert!(!old.is_newer_than(old));
        assert_eq!(new.since(old), 5);
        assert_eq!(old.since(new), 0);
        assert_eq!(new.before(5), old);
        assert_eq!(old.newest(new), new);
    }

    #[test]
    fn times_never_go_negative() {
        assert_eq!(Time(3).micros_since(Time(5)), 0);
        assert_eq!(Time(5).since(Time(3)), Duration::from_micros(2));
        assert_eq!(Time::from_secs(1).after(Duration::from_millis(5)), Time(1_005_000));
    }
}
