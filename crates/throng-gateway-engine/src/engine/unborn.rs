//! Objects that were spawned and have no channel yet. A game makes it a moment later; an object whose channel never comes
//! is given up.

use std::collections::BTreeSet;
use std::time::Duration;

use rustc_hash::FxHashMap;
use throng_wire::Time;

/// How long an object waits for its channel.
pub(super) const UNBORN_MAX: Duration = Duration::from_secs(600);

/// Bytes of the reference that is kept of such an object. Unreal's have some hundred.
pub(super) const UNBORN_REFERENCE_MAX_BYTES: usize = 4 << 10;

/// All of them, by the id that the channel will have.
#[derive(Debug, Default)]
pub(super) struct Unborn {
    ends: FxHashMap<u32, Time>,
    in_order: BTreeSet<(Time, u32)>,
}

impl Unborn {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        self.ends.contains_key(&id)
    }

    /// All of them, in no particular order.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.ends.keys().copied()
    }

    /// Waits for the channel of an object until `end`.
    pub(super) fn insert(&mut self, id: u32, end: Time) {
        self.remove(id);
        self.ends.insert(id, end);
        self.in_order.insert((end, id));
    }

    /// Waits no longer for this entity. Returns whether it did so far.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        let Some(end) = self.ends.remove(&id) else { return false };
        self.in_order.remove(&(end, id))
    }

    /// When the first of them is given up.
    pub(super) fn next_end(&self) -> Option<Time> {
        self.in_order.first().map(|&(end, _)| end)
    }

    /// One that has waited long enough.
    pub(super) fn take_late(&mut self, now: Time) -> Option<u32> {
        let &(_, id) = self.in_order.first().filter(|&&(end, _)| end <= now)?;
        self.remove(id);
        Some(id)
    }
}
