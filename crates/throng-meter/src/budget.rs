//! How long a subsystem may take, and how often it took longer.

use crate::{Subsystem, TickRecord};

/// A share of every tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The subsystem.
    pub subsystem: Subsystem,
    /// Wall time per tick, in microseconds.
    pub micros: u64,
}

/// The budgets of a server. A subsystem without one is never over it.
#[derive(Clone, Debug, Default)]
pub struct Budgets {
    limit_ns: [Option<u64>; Subsystem::COUNT],
    exceeded: [u64; Subsystem::COUNT],
}

impl Budgets {
    /// Takes a list of budgets; of two for the same subsystem the later one holds.
    pub fn new(budgets: &[Budget]) -> Budgets {
        let mut all = Budgets::default();
        for budget in budgets {
            all.limit_ns[budget.subsystem.index()] = Some(budget.micros.saturating_mul(1_000));
        }
        all
    }

    /// The budget of `subsystem`, in nanoseconds.
    pub fn limit_ns(&self, subsystem: Subsystem) -> Option<u64> {
        self.limit_ns[subsystem.index()]
    }

    /// Which subsystems took longer in this tick than their budget allows; counts them.
    pub fn check(&mut self, record: &TickRecord) -> Exceeded {
        let mut exceeded = Exceeded::default();
        for subsystem in Subsystem::ALL {
            let is_over = self.limit_ns(subsystem).is_some_and(|limit_ns| record.ns(subsystem) > limit_ns);
            exceeded.over[subsystem.index()] = is_over;
            self.exceeded[subsystem.index()] += u64::from(is_over);
        }
        exceeded
    }

    /// In how many of the ticks checked `subsystem` was over its budget.
    pub fn times_exceeded(&self, subsystem: Subsystem) -> u64 {
        self.exceeded[subsystem.index()]
    }
}

/// The subsystems that were over their budget in one tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exceeded {
    over: [bool; Subsystem::COUNT],
}

impl Exceeded {
    /// Whether `subsystem` was over its budget.
    pub fn contains(&self, subsystem: Subsystem) -> bool {
        self.over[subsystem.index()]
    }

    /// Whether all kept to their budgets.
    pub fn is_empty(&self) -> bool {
        !self.over.contains(&true)
    }

    /// Those over their budget, in display order.
    pub fn iter(&self) -> impl Iterator<Item = Subsystem> + '_ {
        Subsystem::ALL.into_iter().filter(|&subsystem| self.contains(subsystem))
    }
}
