//! The channels, by their index in the hub and by their id.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use throng_channeld::GLOBAL_CHANNEL;
use throng_replica::ChannelIndex;

use super::absent;
use super::channel::Channel;
use super::connections::Connections;
use super::place::{Place, Table};
use crate::settings::EngineSettings;

/// All channels of an engine, beside what the hub keeps of them.
pub(super) struct Channels {
    /// By index in the hub.
    table: Table<ChannelIndex, Channel>,
    by_id: FxHashMap<u32, ChannelIndex>,
    /// How many there are of each type.
    by_type: BTreeMap<u32, usize>,
    /// Channels made so far.
    births: u64,
    /// The ids that ordinary channels can have.
    ids: ChannelIds,
    /// Channels of entities that all clients see.
    well_known: Vec<ChannelIndex>,
}

impl Channels {
    pub(super) fn new(settings: &EngineSettings) -> Channels {
        Channels {
            table: Table::new(absent::channel(settings)),
            by_id: FxHashMap::default(),
            by_type: BTreeMap::new(),
            births: 0,
            ids: ChannelIds::default(),
            well_known: Vec::new(),
        }
    }

    pub(super) fn get(&self, at: ChannelIndex) -> Option<&Channel> {
        self.table.get(at)
    }

    pub(super) fn get_mut(&mut self, at: ChannelIndex) -> Option<&mut Channel> {
        self.table.get_mut(at)
    }

    /// One that is there. If it is not, that is [counted](Self::take_absences).
    pub(super) fn at(&self, at: ChannelIndex) -> &Channel {
        self.table.at(at)
    }

    pub(super) fn at_mut(&mut self, at: ChannelIndex) -> &mut Channel {
        self.table.at_mut(at)
    }

    /// How many were missing since the last time.
    pub(super) fn take_absences(&mut self) -> u64 {
        self.table.take_absences()
    }

    /// The index of the channel with this id.
    pub(super) fn find(&self, id: u32) -> Option<ChannelIndex> {
        self.by_id.get(&id).copied()
    }

    /// Whether there is one with this id.
    pub(super) fn has(&self, id: u32) -> bool {
        self.by_id.contains_key(&id)
    }

    /// The channel with this id.
    pub(super) fn named(&self, id: u32) -> Option<&Channel> {
        self.find(id).map(|index| self.at(index))
    }

    /// The same, if it is the one that was made then, and not another one that has its id by now.
    pub(super) fn born(&self, id: u32, birth: u64) -> Option<ChannelIndex> {
        self.find(id).filter(|&index| self.at(index).birth == birth)
    }

    /// The id and the birth of a channel.
    pub(super) fn identity(&self, index: ChannelIndex) -> (u32, u64) {
        let channel = self.at(index);
        (channel.id, channel.birth)
    }

    /// GLOBAL, which is always there.
    pub(super) fn global(&self) -> ChannelIndex {
        self.by_id[&GLOBAL_CHANNEL]
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// How many there are of each type.
    pub(super) fn by_type(&self) -> &BTreeMap<u32, usize> {
        &self.by_type
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.table.iter()
    }

    /// All indices, in no particular order.
    pub(super) fn indices(&self) -> impl Iterator<Item = ChannelIndex> + '_ {
        self.by_id.values().copied()
    }

    /// Number of slots so far.
    pub(super) fn slot_count(&self) -> usize {
        self.table.slot_count()
    }

    /// The one in this slot.
    pub(super) fn nth(&self, number: usize) -> Option<&Channel> {
        self.table.nth(number)
    }

    /// A number that no channel had before.
    pub(super) fn next_birth(&mut self) -> u64 {
        self.births += 1;
        self.births
    }

    /// Adds a channel with an id that none has.
    pub(super) fn add(&mut self, index: ChannelIndex, channel: Channel) {
        self.by_id.insert(channel.id, index);
        *self.by_type.entry(channel.kind as i32 as u32).or_default() += 1;
        self.table.put(index, channel);
    }

    /// Takes a channel out. Its id may be given out again with [`give_back_id`](Self::give_back_id).
    pub(super) fn take(&mut self, index: ChannelIndex) -> Option<Box<Channel>> {
        let channel = self.table.take(index)?;
        self.by_id.remove(&channel.id);
        if let Entry::Occupied(mut count) = self.by_type.entry(channel.kind as i32 as u32) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(channel)
    }

    /// A free id of an ordinary channel below `end`, if more than `reserved` are free. `is_home` says which of them are
    /// given out here.
    pub(super) fn take_id(&mut self, end: u32, reserved: u32, is_home: impl Fn(u32) -> bool) -> Option<u32> {
        let by_id = &self.by_id;
        self.ids.take(end, reserved, |id| !is_home(id) || by_id.contains_key(&id))
    }

    /// No ordinary channel has this id any more.
    pub(super) fn give_back_id(&mut self, id: u32) {
        self.ids.give_back(id);
    }

    /// After a restart, when all channels are there: those below `end` that `is_home` says are to be given out here are
    /// free, unless there is one.
    pub(super) fn restore_ids(&mut self, end: u32, is_home: impl Fn(u32) -> bool) {
        let by_id = &self.by_id;
        self.ids.restore(by_id.keys().copied().filter(|&id| id < end), |id| is_home(id) && !by_id.contains_key(&id));
    }

    /// Sets the owner of a channel, or none.
    pub(super) fn set_owner(&mut self, connections: &mut Connections, index: ChannelIndex, owner: Option<Place>) {
        let former = std::mem::replace(&mut self.at_mut(index).owner, owner);
        if former == owner {
            return;
        }
        if let Some(former) = former.and_then(|former| connections.get_mut(former)) {
            former.owned.remove(&index);
        }
        if let Some(owner) = owner {
            connections.at_mut(owner).owned.insert(index);
        }
    }

    /// All clients see this channel, those to come as well.
    pub(super) fn make_well_known(&mut self, index: ChannelIndex) {
        self.well_known.push(index);
    }

    pub(super) fn forget_well_known(&mut self, index: ChannelIndex) {
        self.well_known.retain(|&known| known != index);
    }

    /// The channels that all clients see.
    pub(super) fn well_known(&self) -> &[ChannelIndex] {
        &self.well_known
    }
}

/// The ids of ordinary channels: 1 and up, below the first cell.
#[derive(Debug, Default)]
struct ChannelIds {
    /// All from here on are free.
    next: u32,
    /// Those below that are.
    free: BTreeSet<u32>,
}

impl ChannelIds {
    /// The first free id below `end`, if more than `reserved` are free. `is_taken` reports ids that are already in use
    /// elsewhere.
    fn take(&mut self, end: u32, reserved: u32, is_taken: impl Fn(u32) -> bool) -> Option<u32> {
        self.next = self.next.max(1);
        let room = self.free.len() + end.saturating_sub(self.next) as usize;
        // Never more than half is kept for others.
        if room <= reserved.min(end / 2) as usize {
            return None;
        }
        while let Some(id) = self.free.pop_first() {
            if id < end && !is_taken(id) {
                return Some(id);
            }
        }
        while self.next < end {
            let id = self.next;
            self.next += 1;
            if !is_taken(id) {
                return Some(id);
            }
        }
        None
    }

    /// After a restart: these are taken, and `is_free` says which of the others below them may be given out here.
    fn restore(&mut self, taken: impl Iterator<Item = u32>, is_free: impl Fn(u32) -> bool) {
        self.next = taken.max().map_or(1, |last| last + 1);
        self.free = (1..self.next).filter(|&id| is_free(id)).collect();
    }

    fn give_back(&mut self, id: u32) {
        if id > 0 && id < self.next {
            self.free.insert(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_room_gets_the_id_of_a_cell() {
        let mut ids = ChannelIds::default();
        assert_eq!([(); 4].map(|()| ids.take(4, 0, |_| false)), [Some(1), Some(2), Some(3), None]);
        // The only free id belongs to a channel that a lost server has, so it cannot be given out now.
        ids.give_back(2);
        assert_eq!(ids.take(4, 0, |id| id == 2), None);
        // The cells begin earlier after a reload.
        ids.give_back(3);
        assert_eq!(ids.take(3, 0, |_| false), None);
    }
}
