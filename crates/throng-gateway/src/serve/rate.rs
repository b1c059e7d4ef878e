//! How fast one connection may send: a bucket that drains with time.

use std::time::Duration;

use throng_wire::Time;

/// Counts what was taken against a rate per second. What is over the rate is not refused, but has to wait: the bucket
/// says how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    per_s: u64,
    burst: u64,
    /// What was taken and has not drained, in millionths.
    level: u64,
    since: Time,
}

impl Rate {
    /// `per_s` 0 is without limit; `burst` may come at once.
    pub(crate) fn new(per_s: u32, burst: u32, now: Time) -> Rate {
        Rate { per_s: per_s.into(), burst: burst.into(), level: 0, since: now }
    }

    /// Takes `count`, and says how long to wait before taking more.
    pub(crate) fn take(&mut self, now: Time, count: usize) -> Option<Duration> {
        if self.per_s == 0 {
            return None;
        }
        let drained = now.micros_since(self.since).saturating_mul(self.per_s);
        self.since = now;
        self.level = self.level.saturating_sub(drained) + count as u64 * 1_000_000;
        let over = self.level.saturating_sub(self.burst * 1_000_000);
        (over > 0).then(|| Duration::from_micros(over / self.per_s + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let mut now = Time::from_secs(5);
        let mut rate = Rate::new(100, 200, now);
        assert!((0..200).all(|_| rate.take(now, 1).is_none()));
        let begin = now;
        for _ in 0..300 {
            if let Some(wait) = rate.take(now, 1) {
                now = now.after(wait);
            }
        }
        let took = now.since(begin);
        assert!(took >= Duration::from_millis(2_900) && took <= Duration::from_millis(3_100), "{took:?}");
    }

    #[test]
    fn whoever_keeps_to_the_rate_never_waits() {
        let mut now = Time(0);
        let mut rate = Rate::new(100, 200, now);
        for _ in 0..10_000 {
            assert_eq!(rate.take(now, 1), None);
            now = now.after(Duration::from_millis(10));
        }
    }

    #[test]
    fn without_limit_nothing_waits() {
        let mut rate = Rate::new(0, 0, Time(0));
        assert_eq!(rate.take(Time(0), 1 << 40), None);
    }
}
