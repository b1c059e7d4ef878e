//! Budgets for the work that unknown addresses and clients may cause.

use super::counters::DropReason;
use super::seal::{Opened, Opener};
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

    /// Takes one unit out for a datagram of an unknown address.
    pub(super) fn take(&mut self, now: Time) -> Result<(), DropReason> {
        if !self.has(now, 1) {
            return Err(DropReason::TooManyRequests);
        }
        self.spend(1);
        Ok(())
    }

    /// Takes units out, as far as there are any.
    pub fn spend(&mut self, units: u32) {
        self.micro_units = self.micro_units.saturating_sub(u64::from(units) * MICROS_PER_S);
    }
}

/// An authentic packet takes this many units of a client's budget, any other packet takes one. So an attacker who forges
/// a client's packets needs many more of them than the client to use up its budget.
const AUTHENTIC_UNITS: u32 = 8;

/// A client's [`Opener`], with a bound for how many packets are opened.
#[derive(Debug)]
pub struct RationedOpener {
    opener: Opener,
    budget: WorkBudget,
}

impl RationedOpener {
    /// Opens `packets_per_s` authentic packets in a second, and as many at once.
    pub fn new(opener: Opener, packets_per_s: u32, now: Time) -> RationedOpener {
        RationedOpener { opener, budget: Self::budget(packets_per_s, now) }
    }

    /// Opens so many from now on. The budget is full again.
    pub fn set_packets_per_s(&mut self, packets_per_s: u32, now: Time) {
        self.budget = Self::budget(packets_per_s, now);
    }

    fn budget(packets_per_s: u32, now: Time) -> WorkBudget {
        let units_per_s = packets_per_s.saturating_mul(AUTHENTIC_UNITS);
        WorkBudget::new(units_per_s, units_per_s, now)
    }

    /// As [`Opener::open`]. Packets above the bound are not looked at.
    ///
    /// # Errors
    /// The datagram is to be dropped and counted; its content is then undefined.
    pub fn open<'a>(&mut self, now: Time, datagram: &'a mut [u8]) -> Result<Opened<'a>, DropReason> {
        if !self.budget.has(now, AUTHENTIC_UNITS) {
            return Err(DropReason::TooManyPackets);
        }
        let opened = self.opener.open(datagram).inspect_err(|_| self.budget.spend(1))?;
        self.budget.spend(AUTHENTIC_UNITS);
        Ok(opened)
    }

    /// The newest sequence number that was received.
    pub fn newest(&self) -> u64 {
        self.opener.newest()
    }

    /// The opener without its bound, for a change of address: such packets have the budget of strangers.
    pub fn opener_mut(&mut self) -> &mut Opener {
        &mut self.opener
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
