//! How fast one connection may send: a bucket that drains with time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throng_wire::Time;

/// Counts what is taken against a rate per second. A peer above the rate is not refused, but has to wait: the bucket
/// says how long. It never forgets what is over, so that no order of taking and waiting goes beyond the rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    per_s: u64,
    burst: u64,
    /// Charged cost that has not drained, in millionths.
    level: u64,
    since: Time,
}

impl Rate {
    /// `per_s` 0 is without limit; `burst` may come at once.
    pub(crate) fn new(per_s: u32, burst: u32, now: Time) -> Rate {
        Rate { per_s: per_s.into(), burst: burst.into(), level: 0, since: now }
    }

    /// Takes `count`. Above the burst it has to [`wait`](Rate::wait).
    pub(crate) fn take(&mut self, now: Time, count: usize) {
        self.drain(now);
        if self.per_s > 0 {
            self.level = self.level.saturating_add((count as u64).saturating_mul(1_000_000));
        }
    }

    /// Takes `count` if that needs no waiting. False: nothing was taken.
    pub(crate) fn try_take(&mut self, now: Time, count: usize) -> bool {
        self.drain(now);
        let level = self.level.saturating_add((count as u64).saturating_mul(1_000_000));
        let is_there = self.per_s == 0 || level <= self.burst * 1_000_000;
        if is_there && self.per_s > 0 {
            self.level = level;
        }
        is_there
    }

    /// How long what was taken last has to wait from `now` on. `None`: it may pass.
    pub(crate) fn wait(&mut self, now: Time) -> Option<Duration> {
        self.drain(now);
        let over = self.level.saturating_sub(self.burst * 1_000_000);
        (over > 0 && self.per_s > 0).then(|| Duration::from_micros(over / self.per_s + 1))
    }

    /// Another rate from now on. Charges that have not drained stay.
    pub(crate) fn set(&mut self, per_s: u32, burst: u32, now: Time) {
        self.drain(now);
        (self.per_s, self.burst) = (per_s.into(), burst.into());
        if self.per_s == 0 {
            self.level = 0;
        }
    }

    fn drain(&mut self, now: Time) {
        let drained = now.micros_since(self.since).saturating_mul(self.per_s);
        self.since = now;
        self.level = self.level.saturating_sub(drained);
    }
}

/// A rate that all connections of the gateway share: each takes its turn, or learns that it would have to wait too
/// long.
#[derive(Debug)]
pub(crate) struct Throttle(Mutex<Rate>);

impl Throttle {
    pub(crate) fn new() -> Throttle {
        Throttle(Mutex::new(Rate::new(0, 0, Time(0))))
    }

    /// Whether one would not have to wait for its turn.
    pub(crate) fn has_turn(&self, now: Time, per_s: u32) -> bool {
        let mut rate = self.at(now, per_s);
        let before = *rate;
        rate.take(now, 1);
        let has_turn = rate.wait(now).is_none();
        *rate = before;
        has_turn
    }

    /// Takes one at `per_s`, 0 for any number, a tenth of which may come at once. How long it has to wait for its turn;
    /// `None` if that is longer than `patience`: then nothing was taken.
    pub(crate) fn take(&self, now: Time, per_s: u32, patience: Duration) -> Option<Duration> {
        let mut rate = self.at(now, per_s);
        let before = *rate;
        rate.take(now, 1);
        let wait = rate.wait(now).unwrap_or_default();
        if wait > patience {
            *rate = before;
            return None;
        }
        Some(wait)
    }

    fn at(&self, now: Time, per_s: u32) -> MutexGuard<'_, Rate> {
        let mut rate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // With less than one at once, nobody ever had a turn.
        rate.set(per_s, (per_s / BURST_PARTS).max(1), now);
        rate
    }
}

/// Of a second's number, this many parts may come at once.
const BURST_PARTS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes one, and how long it has to wait.
    fn one(rate: &mut Rate, now: Time) -> Option<Duration> {
        rate.take(now, 1);
        rate.wait(now)
    }

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let mut now = Time::from_secs(5);
        let mut rate = Rate::new(100, 200, now);
        assert!((0..200).all(|_| one(&mut rate, now).is_none()));
        let begin = now;
        for _ in 0..300 {
            if let Some(wait) = one(&mut rate, now) {
                now = now.after(wait);
            }
        }
        let took = now.since(begin);
        assert!(took >= Duration::from_millis(2_900) && took <= Duration::from_millis(3_100), "{took:?}");
    }

    #[test]
    fn a_peer_below_the_rate_never_waits() {
        let mut now = Time(0);
        let mut rate = Rate::new(100, 200, now);
        for _ in 0..10_000 {
            assert_eq!(one(&mut rate, now), None);
            now = now.after(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_peer_far_above_the_burst_waits_for_all_of_it() {
        let mut now = Time(0);
        let mut rate = Rate::new(100, 0, now);
        rate.take(now, 100_000);
        let mut waited = Duration::ZERO;
        while let Some(wait) = rate.wait(now) {
            let slept = wait.min(Duration::from_secs(7));
            waited += slept;
            now = now.after(slept);
        }
        assert!(waited >= Duration::from_secs(1_000) && waited < Duration::from_secs(1_001), "{waited:?}");
    }

    #[test]
    fn without_limit_nothing_waits() {
        let mut rate = Rate::new(0, 0, Time(0));
        rate.take(Time(0), 1 << 40);
        assert_eq!(rate.wait(Time(0)), None);
    }

    #[test]
    fn many_who_share_a_rate_take_turns_and_who_would_wait_too_long_is_told_at_once() {
        let (throttle, now, patience) = (Throttle::new(), Time::from_secs(5), Duration::from_secs(1));
        let waits: Vec<_> = (0..1_000).map(|_| throttle.take(now, 100, patience)).collect();
        let taken: Vec<Duration> = waits.iter().flatten().copied().collect();
        assert!((109..=110).contains(&taken.len()), "the burst and a second of the rate: {}", taken.len());
        assert!(taken.is_sorted() && taken[9].is_zero() && !taken[10].is_zero());
        assert!(!throttle.has_turn(now, 100));
        let later = now.after(Duration::from_secs(2));
        assert!((0..1_000).all(|_| throttle.has_turn(later, 100)), "to ask takes nothing");
        assert_eq!(throttle.take(later, 100, patience), Some(Duration::ZERO));
        assert!((0..1_000).all(|_| throttle.take(later, 0, patience) == Some(Duration::ZERO)));
    }

    #[test]
    fn a_rate_of_less_than_ten_lets_one_after_the_other_in() {
        for per_s in 1..10 {
            let (throttle, mut now) = (Throttle::new(), Time::from_secs(5));
            for number in 0..20 {
                assert!(throttle.has_turn(now, per_s), "{per_s} per second, number {number}");
                assert_eq!(throttle.take(now, per_s, Duration::MAX), Some(Duration::ZERO));
                assert!(!throttle.has_turn(now, per_s));
                now = now.after(Duration::from_secs(1) / per_s);
                now = now.after(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn another_rate_holds_from_now_on() {
        let mut rate = Rate::new(10, 0, Time(0));
        rate.take(Time(0), 100);
        rate.set(1_000, 0, Time(0));
        assert!(rate.wait(Time(0)).is_some_and(|wait| wait < Duration::from_millis(101)));
        rate.set(0, 0, Time(0));
        assert_eq!(rate.wait(Time(0)), None);
    }
}
