//! How often entities change cells: bounded for each second, for each entity and for all.

use std::collections::VecDeque;

use throng_wire::Time;

/// Number of handovers in the present second, and the entities that wait for the next one.
#[derive(Debug, Default)]
pub(super) struct Pace {
    pub(super) second: u64,
    pub(super) moves: u32,
    /// Subscriptions, ends of them and notices that the moves took.
    pub(super) actions: u32,
    /// In the order in which they wanted to move. Each is in here once, unless its channel is removed and created
    /// again.
    pub(super) late: VecDeque<u32>,
    /// When they are looked at again.
    pub(super) retry_at: Option<Time>,
}

/// The same of one entity.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EntityPace {
    pub(super) second: u64,
    pub(super) moves: u32,
    /// On whose behalf it wanted to move, if it waits.
    pub(super) late: Option<u32>,
}
