//! A budget for the work that unknown addresses may cause.

use throng_wire::Time;

const MICROS_PER_S: u64 = 1_000_000;

/// A token bucket: this many units at once, and this many more in each second.
///
/// `now` never falls; if it does, no unit is added.
#[derive(Debug, Clone)]
pub struct WorkBudget {
    per_s: u64,
    /// Units times a million, so that no microsecond is rounded away.
    micro_units: u64,
    micro_burst: u64,
    refilled_at: Time,
}

impl WorkBudget {
    /// A full bucket.
    pub fn new(per_s: u32, burst: u32, now: Time) -> WorkBudget {
        let micro_burst = u64::from(burst) * MICROS_PER_S;
        WorkBudget { per_s: u64::from(per_s), micro_units: micro_burst, micro_burst, refilled_at: now }
    }

    /// Whether at least `units` are left.
    pub fn has(&mut self, now: Time, units: u32) -> bool {
        let micros = now.0.saturating_sub(self.refilled_at.0);
        self.refilled_at = Time(self.refilled_at.0.max(now.0));
        self.micro_units = self.micro_units.saturating_add(micros.saturating_mul(self.per_s)).min(self.micro_burst);
        self.micro_units >= u64::from(units) * MICROS_PER_S
    }

    /// Takes units out, as far as there are any.
    pub fn spend(&mut self, units: u32) {
        self.micro_units = self.micro_units.saturating_sub(u64::from(units) * MICROS_PER_S);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut budget = WorkBudget::new(10, 3, Time(0));
        let mut take = |at_ms| {
            let has = budget.has(Time::from_millis(at_ms), 1);
            if has {
                budget.spend(1);
            }
            has
        };
        assert_eq!([0, 0, 0, 0, 99, 100, 100, 90].map(&mut take), [true, true, true, false, false, true, false, false]);
        assert!((0..3).all(|_| take(10_000)) && !take(10_000), "no more than the burst is saved");
    }
}
