//! How often entities change cells: bounded for each second, for each entity and for all.

use std::collections::VecDeque;

use throng_wire::Time;

use super::refusal::Refusal;
use crate::limits::Limits;

/// Handovers whose actions have no room in this second.
pub(super) const TOO_MANY_ACTIONS: Refusal = Refusal::Limit("handover_actions_per_s");

/// Something that is counted for each second.
#[derive(Clone, Copy, Debug, Default)]
struct PerSecond {
    second: u64,
    count: u32,
}

impl PerSecond {
    fn in_second(self, second: u64) -> u32 {
        if self.second == second { self.count } else { 0 }
    }

    fn add(&mut self, second: u64, more: u32) {
        *self = PerSecond { second, count: self.in_second(second).saturating_add(more) };
    }
}

/// Number of handovers in the present second, and the entities that wait for the next one.
#[derive(Debug, Default)]
pub(super) struct Pace {
    moves: PerSecond,
    /// Subscriptions, ends of them and notices that the moves took.
    actions: PerSecond,
    all_actions: u64,
    /// In the order in which they wanted to move. Each is in here once, unless its channel is removed and created
    /// again.
    late: VecDeque<u32>,
    /// When they are looked at again.
    retry_at: Option<Time>,
}

impl Pace {
    /// Whether so many entities may move now, together.
    pub(super) fn check(&self, second: u64, movers: usize, limits: &Limits) -> Result<(), Refusal> {
        let done = self.moves.in_second(second);
        // A group that is larger than a second's worth has a second for itself.
        if done > 0 && u64::from(done) + movers as u64 > u64::from(limits.max_handovers_per_s) {
            return Err(Refusal::Limit("handovers_per_s"));
        }
        match self.actions.in_second(second) >= limits.max_handover_actions_per_s {
            true => Err(TOO_MANY_ACTIONS),
            false => Ok(()),
        }
    }

    /// Whether the actions of a handover have room in this second. If not, there is no room for others either: it is the
    /// first of the next one. A handover of more than a second's worth has a second for itself.
    pub(super) fn may_act(&mut self, second: u64, actions: usize, limits: &Limits) -> bool {
        let (done, most) = (self.actions.in_second(second), limits.max_handover_actions_per_s);
        let may = done == 0 || u64::from(done) + actions as u64 <= u64::from(most);
        if !may {
            self.actions.count = most;
        }
        may
    }

    /// So many entities move, which takes so many actions.
    pub(super) fn note(&mut self, second: u64, moves: usize, actions: usize) {
        self.all_actions += actions as u64;
        self.actions.add(second, actions as u32);
        self.moves.add(second, moves as u32);
    }

    /// Subscriptions, ends of them and notices that handovers took so far.
    pub(super) fn all_actions(&self) -> u64 {
        self.all_actions
    }

    /// An entity waits until `next`, on behalf of `context`. At most `most` wait.
    pub(super) fn postpone(&mut self, (id, entity): (u32, &mut EntityPace), context: u32, (next, most): (Time, usize)) {
        // Beyond the bound, the next update of the entity makes up for it.
        if entity.late.is_none() && self.late.len() < most {
            self.late.push_back(id);
            self.retry_at.get_or_insert(next);
        }
        entity.late = Some(context);
    }

    /// When [`take_late`](Self::take_late) has something.
    pub(super) fn retry_at(&self) -> Option<Time> {
        self.retry_at
    }

    /// The entities that had to wait, if their time has come.
    pub(super) fn take_late(&mut self, now: Time) -> VecDeque<u32> {
        if self.retry_at.is_none_or(|at| at > now) {
            return VecDeque::new();
        }
        self.retry_at = None;
        std::mem::take(&mut self.late)
    }
}

/// The same of one entity.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EntityPace {
    moves: PerSecond,
    /// On whose behalf it wanted to move, if it waits.
    late: Option<u32>,
}

impl EntityPace {
    /// Whether it may move now.
    pub(super) fn check(self, second: u64, limits: &Limits) -> Result<(), Refusal> {
        match self.moves.in_second(second) >= limits.max_entity_handovers_per_s {
            true => Err(Refusal::Limit("entity_handovers_per_s")),
            false => Ok(()),
        }
    }

    /// It moves.
    pub(super) fn note(&mut self, second: u64) {
        self.moves.add(second, 1);
    }

    /// On whose behalf it waited, if it did. It waits no longer.
    pub(super) fn take_late(&mut self) -> Option<u32> {
        self.late.take()
    }
}
