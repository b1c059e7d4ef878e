//! How long a subsystem may take.

use crate::{MAX_SUBSYSTEMS, Subsystem};

/// The share of every frame that each subsystem may take. A subsystem without a budget never exceeds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budgets {
    limit_ns: [Option<u64>; MAX_SUBSYSTEMS],
}

impl Budgets {
    /// No subsystem has a budget.
    pub fn new() -> Budgets {
        Budgets { limit_ns: [None; MAX_SUBSYSTEMS] }
    }

    /// From now on `subsystem` may take `limit_ns` nanoseconds of each frame.
    pub fn set(&mut self, subsystem: Subsystem, limit_ns: u64) {
        self.limit_ns[subsystem.index()] = Some(limit_ns);
    }

    /// The budget of `subsystem`, in nanoseconds.
    pub fn limit_ns(&self, subsystem: Subsystem) -> Option<u64> {
        self.limit_ns[subsystem.index()]
    }

    /// The subsystem's budget, if `spent_ns` is more than that.
    pub fn exceeded_by(&self, subsystem: Subsystem, spent_ns: u64) -> Option<u64> {
        self.limit_ns(subsystem).filter(|&limit_ns| spent_ns > limit_ns)
    }
}

impl Default for Budgets {
    fn default() -> Budgets {
        Budgets::new()
    }
}
