//! The stopwatches: one for the tick, one for each worker.

use crate::{Counters, MAX_SUBSYSTEMS, Subsystem, TickRecord};

type PerSubsystem = [u64; MAX_SUBSYSTEMS];

/// Most scopes that may be open within each other. The time of deeper ones belongs to the deepest that had room.
pub const MAX_DEPTH: usize = 64;

/// Divides the wall time of a tick between subsystems.
///
/// Call order: [`begin`](TickMeter::begin), then any of [`enter`](TickMeter::enter), [`push`](TickMeter::push),
/// [`pop`](TickMeter::pop), [`claim`](TickMeter::claim), [`merge`](TickMeter::merge) and
/// [`counters`](TickMeter::counters), then [`end`](TickMeter::end). Times are nanoseconds; one that lies before its
/// predecessor counts as its predecessor. Nothing here allocates.
///
/// The time between two switches is a *section*. It belongs to the subsystem that runs, except for what was claimed by
/// `claim` and `merge` meanwhile. Claims beyond the length of the section, as parallel workers make them, are scaled down
/// to it.
#[derive(Clone, Debug)]
pub struct TickMeter {
    record: TickRecord,
    running: Subsystem,
    section_start_ns: u64,
    /// Scopes that are open, those without room included.
    depth: usize,
    /// For each open scope, the subsystem that ran before it.
    interrupted: [Subsystem; MAX_DEPTH],
    has_claims: bool,
    /// The time claimed by others in this section.
    claimed_ns: PerSubsystem,
}

impl TickMeter {
    /// A meter that has measured nothing yet.
    pub fn new() -> TickMeter {
        TickMeter {
            record: TickRecord::default(),
            running: Subsystem::OTHER,
            section_start_ns: 0,
            depth: 0,
            interrupted: [Subsystem::OTHER; MAX_DEPTH],
            has_claims: false,
            claimed_ns: [0; MAX_SUBSYSTEMS],
        }
    }

    /// Begins a tick, with [`Subsystem::OTHER`] running and no scope open. A tick that was not ended is forgotten.
    pub fn begin(&mut self, tick: u64, now_ns: u64) {
        self.record = TickRecord { tick, start_ns: now_ns, ..TickRecord::default() };
        self.running = Subsystem::OTHER;
        self.section_start_ns = now_ns;
        self.depth = 0;
        self.has_claims = false;
        self.claimed_ns = [0; MAX_SUBSYSTEMS];
    }

    /// From now on the time is `subsystem`'s, instead of that of the subsystem that runs.
    #[inline]
    pub fn enter(&mut self, subsystem: Subsystem, now_ns: u64) {
        self.close_section(now_ns);
        if self.depth <= MAX_DEPTH {
            self.running = subsystem;
        }
    }

    /// Opens a scope: the time is `subsystem`'s until the [`pop`](TickMeter::pop) that belongs to it.
    #[inline]
    pub fn push(&mut self, subsystem: Subsystem, now_ns: u64) {
        self.close_section(now_ns);
        if let Some(interrupted) = self.interrupted.get_mut(self.depth) {
            *interrupted = self.running;
            self.running = subsystem;
        }
        self.depth += 1;
    }

    /// Closes the newest open scope: what it interrupted runs again. Nothing happens if none is open.
    #[inline]
    pub fn pop(&mut self, now_ns: u64) {
        self.close_section(now_ns);
        let Some(depth) = self.depth.checked_sub(1) else { return };
        self.depth = depth;
        if let Some(&interrupted) = self.interrupted.get(depth) {
            self.running = interrupted;
        }
    }

    /// Claims `ns` of the current section for `subsystem`: for parts too small to switch for, timed by the caller.
    #[inline]
    pub fn claim(&mut self, subsystem: Subsystem, ns: u64) {
        self.has_claims = true;
        let claimed_ns = &mut self.claimed_ns[subsystem.index()];
        *claimed_ns = claimed_ns.saturating_add(ns);
    }

    /// Claims what a worker measured in the current section, and adds its counters. Merge every worker's lap before
    /// the next switch.
    pub fn merge(&mut self, lap: &Lap) {
        for (claimed_ns, &ns) in self.claimed_ns.iter_mut().zip(&lap.ns) {
            *claimed_ns = claimed_ns.saturating_add(ns);
        }
        self.has_claims = true;
        self.record.counters += lap.counters;
    }

    /// The counters of the current tick, to be added to.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.record.counters
    }

    /// The latest time that the meter was given, in nanoseconds: it never decreases within a tick.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.section_start_ns
    }

    /// Ends the tick, and with it all scopes that are open. The record stays until the next
    /// [`begin`](TickMeter::begin).
    pub fn end(&mut self, now_ns: u64) -> &TickRecord {
        self.close_section(now_ns);
        (self.running, self.depth) = (Subsystem::OTHER, 0);
        self.record.total_ns = self.section_start_ns - self.record.start_ns;
        &self.record
    }

    /// The newest tick that has ended, or what is known of the one that runs.
    pub fn record(&self) -> &TickRecord {
        &self.record
    }

    /// Divides the section that ends now between its claims and the running subsystem.
    #[inline]
    fn close_section(&mut self, now_ns: u64) {
        let mut left_ns = now_ns.saturating_sub(self.section_start_ns);
        self.section_start_ns += left_ns;
        if self.has_claims {
            left_ns -= self.grant_claims(left_ns);
        }
        self.record.subsystem_ns[self.running.index()] += left_ns;
    }

    /// Gives the claims their parts of a section of `length_ns`, and returns the sum of these parts. The remainder of
    /// rounding goes to the running subsystem: fewer nanoseconds than there are subsystems.
    #[cold]
    fn grant_claims(&mut self, length_ns: u64) -> u64 {
        let total_claimed_ns: u128 = self.claimed_ns.iter().map(|&ns| u128::from(ns)).sum();
        let (part, whole) = (u128::from(length_ns), total_claimed_ns.max(u128::from(length_ns)).max(1));
        let mut all_ns = 0;
        let claims = self.record.subsystem_ns.iter_mut().zip(&mut self.claimed_ns);
        for (sum_ns, claimed_ns) in claims.filter(|(_, claimed_ns)| **claimed_ns > 0) {
            // At most `length_ns`, as `part` is at most `whole` and a claim at most all claims.
            let granted_ns = (u128::from(*claimed_ns) * part / whole) as u64;
            *sum_ns += granted_ns;
            all_ns += granted_ns;
            *claimed_ns = 0;
        }
        self.has_claims = false;
        all_ns
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
#[derive(Clone, Debug)]
pub struct Lap {
    ns: PerSubsystem,
    running: Option<(Subsystem, u64)>,
    /// The worker's record.
    pub counters: Counters,
}

impl Lap {
    /// A stopwatch at zero, standing still.
    pub fn new() -> Lap {
        Lap { ns: [0; MAX_SUBSYSTEMS], running: None, counters: Counters::default() }
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
            let sum_ns = &mut self.ns[subsystem.index()];
            *sum_ns = sum_ns.saturating_add(now_ns.saturating_sub(since_ns));
        }
    }

    /// The time charged to `subsystem` so far, in nanoseconds, without the running section.
    pub fn ns(&self, subsystem: Subsystem) -> u64 {
        self.ns[subsystem.index()]
    }

    /// Back to zero, standing still.
    pub fn reset(&mut self) {
        *self = Lap::new();
    }
}

impl Default for Lap {
    fn default() -> Lap {
        Lap::new()
    }
}
