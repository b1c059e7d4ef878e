//! The log of one channel of objects: its slots, ordered by last change.
//!
//! ```text
//!  newest <-> ... <-> oldest         live slots and tombstones in one list; a change moves a slot to the front
//!  free:  slots whose tombstone is older than the retention, used again first freed first
//! ```
//!
//! An update carries a slot number instead of an object id, so the number must mean the same object to every client
//! that can still receive an update for it: hence the retention (see [`ChannelState::retention_ticks`]).

use std::collections::VecDeque;

use throng_schema::{Facet, FieldMask};
use throng_wire::{ObjectId, Tick};

use crate::encode;
use crate::frame::{Frame, Since, Variant};
use crate::hub::ChannelState;
use crate::store::ObjectStore;

const NIL: u32 = u32::MAX;

/// Slots of one channel: what fits into the 24 bits of a complete segment's range. Fewer in unit tests, which fill one.
pub(crate) const SLOTS_MAX: usize = if cfg!(test) { 1 << 12 } else { 1 << 24 };

/// Slots for which a cell takes memory when the first object comes: 3 KiB.
const CELL_SLOTS: usize = 64;

/// With more objects than this, a channel's frames are long.
const CROWDED_OBJECTS: u32 = 48;

/// If this many enter in one tick, it is a rush: introducing them again would cost a packet.
const RUSH: u32 = 64;

/// The objects that live in one channel, newest change first.
#[derive(Debug)]
pub struct ObjectLog {
    slots: Vec<Slot>,
    newest: u32,
    oldest: u32,
    live: u32,
    /// Tombstones, oldest first.
    tombstones: VecDeque<u32>,
    free: VecDeque<u32>,
    last_change: Tick,
    horizon: Tick,
    retention_ticks: u32,
    /// The tick of the last entry, and the number of objects that entered in it.
    entered: (Tick, u32),
    rush: Option<Tick>,
    /// The cell this channel stands for: grid and cell number.
    cell: Option<(u8, [i32; 3])>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) content: Content,
    /// Last change of any kind.
    pub(crate) changed: Tick,
    newer: u32,
    older: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Free,
    /// An object's facet, by its index in the store, and when it came.
    Live {
        object: u32,
        facet: Facet,
        entered: Tick,
    },
    /// The occupant has gone. `again` if this was said once already, when it was otherwise.
    Tombstone {
        index: u32,
        generation: u32,
        again: bool,
        fate: Fate,
        entered: Tick,
    },
}

/// How an occupant has left its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It lives elsewhere.
    Left,
    /// It has ended.
    Destroyed,
    /// It lives in another cell of the same grid, this many cells farther along each axis, at most [`MOVE_MAX_CELLS`].
    /// A reader that also gets that cell knows that the object will be introduced there. Farther cells are not named:
    /// where an object went that is out of sight is a secret.
    Moved([i8; 3]),
}

/// The farthest that a tombstone says how an object moved, in cells.
pub(crate) const MOVE_MAX_CELLS: u8 = 3;

/// Bits of each axis of such a move.
pub(crate) const MOVE_BITS: u32 = 3;

impl ObjectLog {
    /// An empty log. `cell` is the cell of the channel, if positions in it are written relative to one.
    pub fn new(cell: Option<(u8, [i32; 3])>, retention_ticks: u32, now: Tick) -> ObjectLog {
        ObjectLog {
            slots: Vec::new(),
            newest: NIL,
            oldest: NIL,
            live: 0,
            tombstones: VecDeque::new(),
            free: VecDeque::new(),
            last_change: now,
            horizon: now,
            retention_ticks,
            entered: (now, 0),
            rush: None,
            cell,
        }
    }

    /// Objects that live here.
    pub fn live_count(&self) -> usize {
        self.live as usize
    }

    /// Slots ever used and not given up: live, tombstones and free.
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// The objects that live here, newest change first, by store index.
    pub fn objects(&self) -> impl Iterator<Item = (u32, Facet)> + '_ {
        self.walk().filter_map(|(_, slot)| match slot.content {
            Content::Live { object, facet, .. } => Some((object, facet)),
            _ => None,
        })
    }

    /// Whether a slot still tells of an occupant that has gone.
    pub(crate) fn has_tombstones(&self) -> bool {
        !self.tombstones.is_empty()
    }

    pub(crate) fn cell(&self) -> Option<(u8, [i32; 3])> {
        self.cell
    }

    pub(crate) fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    /// All slots in use, newest change first.
    pub(crate) fn walk(&self) -> impl Iterator<Item = (u32, &Slot)> + '_ {
        let mut next = self.newest;
        std::iter::from_fn(move || {
            let slot = self.slots.get(next as usize)?;
            let number = std::mem::replace(&mut next, slot.older);
            Some((number, slot))
        })
    }

    /// Whether another facet can enter: there is a slot that is not in use, nor rests.
    pub(crate) fn has_room(&mut self, now: Tick) -> bool {
        self.bury(now);
        !self.free.is_empty() || self.slots.len() < SLOTS_MAX
    }

    /// Gives an object's facet a slot.
    ///
    /// # Panics
    /// If there is no room: ask [`has_room`](Self::has_room).
    pub(crate) fn enter(&mut self, object: u32, facet: Facet, now: Tick) -> u32 {
        self.bury(now);
        if self.cell.is_some() && self.slots.is_empty() {
            // The capacity for a cell with coming and going objects, allocated at once and not step by step while the
            // world plays.
            self.slots.reserve(CELL_SLOTS);
            self.tombstones.reserve(CELL_SLOTS);
            self.free.reserve(CELL_SLOTS);
        }
        let content = Content::Live { object, facet, entered: now };
        let slot = match self.free.pop_front() {
            Some(slot) => slot,
            None => {
                assert!(self.slots.len() < SLOTS_MAX, "a channel is full");
                self.slots.push(Slot { content: Content::Free, changed: now, newer: NIL, older: NIL });
                self.slots.len() as u32 - 1
            }
        };
        self.slots[slot as usize].content = content;
        self.live += 1;
        self.push_newest(slot, now);
        self.entered = if self.entered.0 == now { (now, self.entered.1 + 1) } else { (now, 1) };
        if self.entered.1 >= RUSH {
            self.rush = Some(now);
        }
        slot
    }

    /// The occupant of `slot`, which has this id, leaves or ends.
    pub(crate) fn leave(&mut self, slot: u32, id: ObjectId, fate: Fate, now: Tick) {
        let Content::Live { entered, .. } = self.slots[slot as usize].content else { return };
        self.unlink(slot);
        let (index, generation) = (id.index, id.generation);
        self.slots[slot as usize].content = Content::Tombstone { index, generation, again: false, fate, entered };
        self.live -= 1;
        self.push_newest(slot, now);
        self.tombstones.push_back(slot);
    }

    /// A former occupant of `slot` has ended elsewhere: readers that knew it here get its end, if the slot still holds
    /// its tombstone.
    pub(crate) fn end_former(&mut self, slot: u32, id: ObjectId, now: Tick) {
        let Some(entry) = self.slots.get_mut(slot as usize) else { return };
        if let Content::Tombstone { index, generation, again, fate, .. } = &mut entry.content
            && (*index, *generation) == (id.index, id.generation)
        {
            (*again, *fate) = (true, Fate::Destroyed);
            self.unlink(slot);
            self.push_newest(slot, now);
        }
    }

    /// The occupant of `slot` has changed.
    pub(crate) fn touch(&mut self, slot: u32, now: Tick) {
        if self.newest != slot {
            self.unlink(slot);
            self.push_newest(slot, now);
        } else {
            self.slots[slot as usize].changed = now;
            self.last_change = now;
        }
    }

    /// Whether the channel says nothing any more to anybody: no objects, and no tombstone young enough to matter.
    pub(crate) fn is_idle(&self, now: Tick) -> bool {
        self.live == 0 && now.since(self.last_change) > self.retention_ticks
    }

    /// Gives up the slots whose tombstones are old enough.
    fn bury(&mut self, now: Tick) {
        while let Some(&slot) = self.tombstones.front() {
            let left = self.slots[slot as usize].changed;
            if now.since(left) < self.retention_ticks {
                return;
            }
            self.tombstones.pop_front();
            self.unlink(slot);
            self.slots[slot as usize].content = Content::Free;
            self.free.push_back(slot);
            // Not simply the last one: a tombstone that got an end later is younger than its neighbours.
            self.horizon = self.horizon.newest(left);
        }
    }

    fn push_newest(&mut self, slot: u32, now: Tick) {
        let next = std::mem::replace(&mut self.newest, slot);
        let entry = &mut self.slots[slot as usize];
        entry.changed = now;
        entry.newer = NIL;
        entry.older = next;
        match self.slots.get_mut(next as usize) {
            Some(next) => next.newer = slot,
            None => self.oldest = slot,
        }
        self.last_change = now;
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { newer, older, .. } = self.slots[slot as usize];
        match self.slots.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
    }
}

impl ChannelState for ObjectLog {
    type Context = ObjectStore;

    fn is_large(&self) -> bool {
        self.live > CROWDED_OBJECTS
    }

    fn new_frame(saves_memory: bool) -> Frame {
        Frame::of_a_crowd(if saves_memory { 16 } else { 32 })
    }

    fn last_change(&self) -> Tick {
        self.last_change
    }

    fn horizon(&self) -> Tick {
        self.horizon
    }

    fn retention_ticks(&self) -> u32 {
        self.retention_ticks
    }

    fn is_empty(&self) -> bool {
        self.live == 0
    }

    fn last_rush(&self) -> Option<Tick> {
        self.rush
    }

    fn catch_up(&self, since: Tick) -> (Since, Variant) {
        (Since::Tick(since), encode::ROSTER)
    }

    fn encode(&self, store: &ObjectStore, since: Since, _now: Tick, frame: &mut Frame) {
        encode::encode(self, store, since, frame);
    }

    fn is_superseded(&self, store: &ObjectStore, frame: &Frame, segment: usize) -> bool {
        let entries = frame.segment_entries(segment);
        // A segment without entries says that a range of slots is empty.
        !entries.is_empty()
            && entries.iter().all(|entry| {
                if entry.mask == 0 {
                    return false;
                }
                match self.slots[entry.slot as usize].content {
                    Content::Live { object, entered, .. } if !entered.is_newer_than(frame.tick) => {
                        all_newer(store, object, entry.mask, frame.tick)
                    }
                    // The object has left since: a later frame tells of that.
                    _ => true,
                }
            })
    }
}

fn all_newer(store: &ObjectStore, object: u32, mask: FieldMask, tick: Tick) -> bool {
    let ticks = store.field_ticks(object);
    let mut rest = mask;
    while rest != 0 {
        let field = rest.trailing_zeros() as usize;
        if !ticks[field].is_newer_than(tick) {
            return false;
        }
        rest &= rest - 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(index: u32) -> ObjectId {
        ObjectId { index, generation: 1 }
    }

    fn order(log: &ObjectLog) -> Vec<u32> {
        log.walk().map(|(number, _)| number).collect()
    }

    #[test]
    fn a_change_moves_to_the_front() {
        let mut log = ObjectLog::new(None, 8, Tick(0));
        for object in 0..4 {
            log.enter(object, Facet::Public, Tick(1));
        }
        assert_eq!(order(&log), [3, 2, 1, 0]);
        log.touch(1, Tick(2));
        log.touch(0, Tick(3));
        log.touch(0, Tick(4));
        assert_eq!(order(&log), [0, 1, 3, 2]);
        log.leave(3, id(3), Fate::Destroyed, Tick(5));
        assert_eq!(order(&log), [3, 0, 1, 2]);
        assert_eq!(log.last_change(), Tick(5));
        assert_eq!(log.live_count(), 3);
    }

    #[test]
    fn a_slot_rests_before_it_is_used_again() {
        let mut log = ObjectLog::new(None, 8, Tick(0));
        let slot = log.enter(0, Facet::Public, Tick(1));
        log.leave(slot, id(0), Fate::Destroyed, Tick(2));
        assert_ne!(log.enter(1, Facet::Public, Tick(9)), slot);
        assert_eq!(log.horizon(), Tick(0));
        assert_eq!(log.enter(2, Facet::Public, Tick(10)), slot);
        assert_eq!(log.horizon(), Tick(2), "who stands before the forgotten tombstone needs everything");
        assert_eq!(order(&log), [slot, 1]);
    }

    #[test]
    fn the_list_survives_random_operations() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut log = ObjectLog::new(None, 20, Tick(0));
        let mut live = Vec::new();
        for tick in 1..2_000 {
            let now = Tick(tick);
            match rng.u32(..3) {
                0 => live.push(log.enter(tick as u32, Facet::Public, now)),
                1 if !live.is_empty() => log.leave(live.swap_remove(rng.usize(..live.len())), id(0), Fate::Left, now),
                _ if !live.is_empty() => log.touch(live[rng.usize(..live.len())], now),
                _ => {}
            }
            let ticks: Vec<u64> = log.walk().map(|(_, slot)| slot.changed.0).collect();
            assert!(ticks.is_sorted_by(|a, b| a >= b));
            assert_eq!(ticks.len() + log.free.len(), log.slots.len());
            assert_eq!(log.live_count(), live.len());
        }
    }

    #[test]
    fn it_is_a_rush_when_many_enter_in_one_tick() {
        let mut log = ObjectLog::new(None, 8, Tick(0));
        for object in 0..RUSH - 1 {
            log.enter(object, Facet::Public, Tick(1));
        }
        log.enter(RUSH, Facet::Public, Tick(2));
        assert_eq!(log.last_rush(), None);
        for object in 0..RUSH {
            log.enter(2 * RUSH + object, Facet::Public, Tick(3));
        }
        assert_eq!(log.last_rush(), Some(Tick(3)));
    }
}
