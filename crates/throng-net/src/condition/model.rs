use fastrand::Rng;
use throng_wire::Time;

use super::bottleneck::{HEADER_BYTES, depart};
use super::{Condition, ConditionError, Reordering};
use crate::ConditionCounters;

/// One way of one path: decides what happens to each datagram, and holds none.
///
/// Sans-IO and deterministic: the same seed, times and lengths give the same fates. About 150 bytes.
#[derive(Clone, Debug)]
pub struct PathModel {
    condition: Condition,
    rng: Rng,
    in_burst: bool,
    /// When the bottleneck has sent everything that it took, in nanoseconds.
    bottleneck_idle_at_ns: u64,
    last_push: Option<Time>,
    jitter_us: u64,
    /// No ordinary datagram arrives before this.
    in_order_at: Time,
}

/// The fate of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It does not arrive.
    Lost(LossCause),
    /// It arrives.
    Arrives {
        /// When.
        at: Time,
        /// When a copy of it arrives too.
        copy_at: Option<Time>,
        /// Whether later datagrams may overtake it.
        held_back: bool,
    },
}

/// Where a datagram was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// By itself.
    Alone,
    /// In the bad state of the burst model.
    InBurst,
    /// At the full queue of the bottleneck.
    QueueFull,
    /// It is too long for the path.
    TooLong,
}

impl PathModel {
    /// A fresh path in its good state.
    ///
    /// # Errors
    ///
    /// [`ConditionError`] when a figure of `condition` is out of range.
    pub fn new(condition: Condition, seed: u64) -> Result<PathModel, ConditionError> {
        condition.check()?;
        Ok(PathModel::fresh(condition, seed))
    }

    /// A fresh path in the same condition.
    pub(crate) fn reseeded(&self, seed: u64) -> PathModel {
        PathModel::fresh(self.condition.clone(), seed)
    }

    pub(crate) fn fresh(condition: Condition, seed: u64) -> PathModel {
        PathModel {
            condition,
            rng: Rng::with_seed(seed),
            in_burst: false,
            bottleneck_idle_at_ns: 0,
            last_push: None,
            jitter_us: 0,
            in_order_at: Time(0),
        }
    }

    /// The condition of the path.
    pub fn condition(&self) -> &Condition {
        &self.condition
    }

    /// Changes the condition. Datagrams already under way keep their fate.
    ///
    /// # Errors
    ///
    /// [`ConditionError`]; the old condition stays.
    pub fn set_condition(&mut self, condition: Condition) -> Result<(), ConditionError> {
        condition.check()?;
        self.in_burst &= condition.burst.is_some();
        self.condition = condition;
        Ok(())
    }

    /// Decides over a datagram of `bytes` that enters the path at `now`.
    pub fn fate(&mut self, now: Time, bytes: usize) -> Fate {
        if self.condition.mtu.is_some_and(|mtu| bytes as u64 + HEADER_BYTES > u64::from(mtu)) {
            return Fate::Lost(LossCause::TooLong);
        }
        let Some(departs) = self.pass_bottleneck(now, bytes) else {
            return Fate::Lost(LossCause::QueueFull);
        };
        if let Some(cause) = self.loss() {
            return Fate::Lost(cause);
        }
        if self.last_push != Some(now) {
            self.last_push = Some(now);
            self.jitter_us = self.draw_jitter_us();
        }
        let at = self.arrival(departs, self.jitter_us);
        let reorder = self.condition.reorder;
        let held = reorder.filter(|reorder| self.happens(reorder.probability));
        let copy_at = self.happens(self.condition.duplicate).then(|| {
            let jitter_us = self.draw_jitter_us();
            self.arrival(departs, jitter_us).max(at)
        });
        let Some(Reordering { hold_us, .. }) = held else {
            self.in_order_at = at;
            return Fate::Arrives { at, copy_at, held_back: false };
        };
        Fate::Arrives { at: Time(at.0.saturating_add(u64::from(hold_us))), copy_at, held_back: true }
    }

    /// When the datagram leaves the bottleneck; `None` when its queue is full.
    fn pass_bottleneck(&mut self, now: Time, bytes: usize) -> Option<Time> {
        match self.condition.rate {
            Some(rate) => depart(&mut self.bottleneck_idle_at_ns, rate, now, bytes),
            None => Some(now),
        }
    }

    fn loss(&mut self) -> Option<LossCause> {
        if let Some(burst) = self.condition.burst {
            let turn = if self.in_burst { burst.leave } else { burst.enter };
            self.in_burst ^= self.happens(turn);
            if self.in_burst {
                return self.happens(burst.loss).then_some(LossCause::InBurst);
            }
        }
        self.happens(self.condition.loss).then_some(LossCause::Alone)
    }

    fn arrival(&self, departs: Time, jitter_us: u64) -> Time {
        let under_way_us = u64::from(self.condition.delay_us) + jitter_us;
        Time(departs.0.saturating_add(under_way_us)).max(self.in_order_at)
    }

    fn draw_jitter_us(&mut self) -> u64 {
        match self.condition.jitter_us {
            0 => 0,
            most => self.rng.u64(0..=u64::from(most)),
        }
    }

    fn happens(&mut self, probability: f64) -> bool {
        // Nothing is drawn for what cannot happen: switching one trouble off leaves the others' sequence as it was.
        probability > 0.0 && self.rng.f64() < probability
    }
}

impl ConditionCounters {
    /// Counts what happens to a datagram that entered a path.
    pub(crate) fn count_fate(&mut self, fate: &Fate) {
        self.pushed += 1;
        match fate {
            Fate::Lost(LossCause::Alone) => self.lost += 1,
            Fate::Lost(LossCause::InBurst) => self.lost_in_burst += 1,
            Fate::Lost(LossCause::QueueFull) => self.dropped_by_rate += 1,
            Fate::Lost(LossCause::TooLong) => self.dropped_by_mtu += 1,
            Fate::Arrives { copy_at, held_back, .. } => {
                self.duplicated += u64::from(copy_at.is_some());
                self.reordered += u64::from(*held_back);
            }
        }
    }
}
