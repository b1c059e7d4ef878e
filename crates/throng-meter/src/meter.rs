//! The stopwatches: one for the tick, one for each worker.

use crate::{Counters, Subsystem, TickRecord};

type PerSubsystem = [u64; Subsystem::COUNT];

/// Divides the wall time of a tick between subsystems.
///
/// Call order: [`begin`](TickMeter::begin), then any of [`enter`](TickMeter::enter), [`add`](TickMeter::add),
/// [`merge`](TickMeter::merge) and [`counters`](TickMeter::counters), then [`end`](TickMeter::end). Times are
/// nanoseconds; one that lies before its predecessor counts as its predecessor. Nothing here allocates.
///
/// The time between two switches is a *section*. It belongs to the subsystem entered at its beginning, except for what
/// was claimed by `add` and `merge` meanwhile. Claims beyond the length of the section, as parallel workers make them,
/// are scaled down to it for [`TickRecord::subsystem_ns`], and stand in full in [`TickRecord::work_ns`].
#[derive(Clone, Debug)]
pub struct TickMeter {
    record: TickRecord,
    running: Subsystem,
    section_start_ns: u64,
    /// The time claimed by others in this section.
    claimed_ns: PerSubsystem,
}

impl TickMeter {
    /// A meter that has measured nothing yet.
    pub fn new() -> TickMeter {
        TickMeter {
            record: TickRecord::default(),
            running: Subsystem::Other,
            section_start_ns: 0,
            claimed_ns: PerSubsystem::default(),
        }
    }

    /// Begins a tick, with [`Subsystem::Other`] running. A tick that was not ended is forgotten.
    pub fn begin(&mut self, tick: u64, now_ns: u64) {
        self.record = TickRecord { tick, start_ns: now_ns, ..TickRecord::default() };
        self.running = Subsystem::Other;
        self.section_start_ns = now_ns;
        self.claimed_ns = PerSubsystem::default();
    }

    /// From now on the time is `subsystem`'s.
    #[inline]
    pub fn enter(&mut self, subsystem: Subsystem, now_ns: u64) {
        self.close_section(now_ns);
        self.running = subsystem;
    }

    /// Claims `ns` of the current section for `subsystem`: for parts too small to switch for, timed by the caller.
    #[inline]
    pub fn add(&mut self, subsystem: Subsystem, ns: u64) {
        let claimed_ns = &mut self.claimed_ns[subsystem.index()];
        *claimed_ns = claimed_ns.saturating_add(ns);
    }

    /// Claims what a worker measured in the current section, and adds its counters. Merge every worker's lap before
    /// the next switch.
    pub fn merge(&mut self, lap: &Lap) {
        for subsystem in Subsystem::ALL {
            self.add(subsystem, lap.ns[subsystem.index()]);
        }
        self.record.counters += lap.counters;
    }

    /// The counters of the current tick, to be added to.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.record.counters
    }

    /// Ends the tick. The record stays until the next [`begin`](TickMeter::begin).
    pub fn end(&mut self, now_ns: u64) -> &TickRecord {
        self.close_section(now_ns);
        self.running = Subsystem::Other;
        self.record.total_ns = self.section_start_ns - self.record.start_ns;
        &self.record
    }

    /// Divides the section that ends now between its claims and the running subsystem.
    fn close_section(&mut self, now_ns: u64) {
        let length_ns = now_ns.saturating_sub(self.section_start_ns);
        self.section_start_ns += length_ns;
        let total_claimed_ns: u128 = self.claimed_ns.iter().map(|&ns| u128::from(ns)).sum();
        let mut left_ns = length_ns;
        if total_claimed_ns > 0 {
            let (part, whole) = (u128::from(length_ns), total_claimed_ns.max(u128::from(length_ns)));
            for (index, claimed_ns) in self.claimed_ns.iter_mut().enumerate() {
                // At most `length_ns`, as `part` is at most `whole` and a claim at most all claims.
                let granted_ns = (u128::from(*claimed_ns) * part / whole) as u64;
                self.record.subsystem_ns[index] += granted_ns;
                self.record.work_ns[index] = self.record.work_ns[index].saturating_add(*claimed_ns);
                left_ns -= granted_ns;
                *claimed_ns = 0;
            }
        }
        // The rest after rounding goes to the running subsystem too: fewer nanoseconds than there are subsystems.
        self.record.subsystem_ns[self.running.index()] += left_ns;
        if total_claimed_ns <= u128::from(length_ns) {
            let work_ns = &mut self.record.work_ns[self.running.index()];
            *work_ns = work_ns.saturating_add(left_ns);
        }
    }
}

impl Default for TickMeter {
    fn default() -> TickMeter {
        TickMeter::new()
    }
}

/// The stopwatch of one worker within a section of a tick, handed in with [`TickMeter::merge`].
///
/// Unlike the meter's it stands still between [`pause`](Lap::pause) and [`enter`](Lap::enter), so that a worker's
/// waiting counts for no subsystem.
#[derive(Clone, Debug, Default)]
pub struct Lap {
    ns: PerSubsystem,
    running: Option<(Subsystem, u64)>,
    /// The worker's record.
    pub counters: Counters,
}

impl Lap {
    /// A stopwatch at zero, standing still.
    pub fn new() -> Lap {
        Lap::default()
    }

    /// From now on the worker's time is `subsystem`'s.
    #[inline]
    pub fn enter(&mut self, subsystem: Subsystem, now_ns: u64) {
        self.pause(now_ns);
        self.running = Some((subsystem, now_ns));
    }

    /// Stands still from now on.
    #[inline]
    pub fn pause(&mut self, now_ns: u64) {
        if let Some((subsystem, since_ns)) = self.running.take() {
            self.add(subsystem, now_ns.saturating_sub(since_ns));
        }
    }

    /// Charges `ns` measured by the caller.
    #[inline]
    pub fn add(&mut self, subsystem: Subsystem, ns: u64) {
        let sum_ns = &mut self.ns[subsystem.index()];
        *sum_ns = sum_ns.saturating_add(ns);
    }

    /// The time charged to `subsystem` so far, in nanoseconds, without the running section.
    pub fn ns(&self, subsystem: Subsystem) -> u64 {
        self.ns[subsystem.index()]
    }

    /// Back to zero, standing still.
    pub fn reset(&mut self) {
        *self = Lap::default();
    }
}
