//! Lost connections that may come back, with their deadlines.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rustc_hash::{FxHashMap, FxHashSet};
use throng_channeld::proto::ChannelType;
use throng_replica::ChannelIndex;
use throng_wire::{Tick, Time};

use super::channel::{Access, Wanted};
use super::ends::Ended;
use super::port::{Key, Side};
use throng_protostate::allocated;

/// The belongings of a lost connection, by the ids of channels. Channels that get another owner meanwhile are removed
/// from it. Removed channels stay in here; their creation time distinguishes them from new channels with the same id.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) connection_id: u32,
    pub(super) owned: FxHashSet<u32>,
    pub(super) subscriptions: FxHashMap<u32, Kept>,
    /// Subscriptions that a client may believe to have, and will not get back. It learns of that when it is back.
    pub(super) ended: FxHashMap<u32, Ended>,
    /// Its key, by which the channels that it has created know it.
    pub(super) key: Key,
    /// These channels. Some of them may be gone, and others in their place.
    pub(super) created: FxHashSet<ChannelIndex>,
    /// When it is given up; `None`: never.
    pub(super) until: Option<Time>,
}

impl Lost {
    /// Bytes of memory, with the names under which it is known.
    fn bytes(&self, (_, name): &LostKey) -> u64 {
        let of_map = |capacity: usize, entry_bytes: usize| capacity * 8 / 7 * (entry_bytes + 1);
        let owned_bytes = of_map(self.owned.capacity(), size_of::<u32>() + size_of::<(u32, u64)>());
        let subscriptions_bytes = of_map(self.subscriptions.capacity(), size_of::<(u32, Kept)>());
        let ended_bytes = of_map(self.ended.capacity(), size_of::<(u32, Ended)>());
        let created_bytes = of_map(self.created.capacity(), size_of::<ChannelIndex>());
        let of_channels_bytes = owned_bytes + subscriptions_bytes + ended_bytes + created_bytes;
        (LOSS_BYTES + 3 * allocated(name.len()) + of_channels_bytes) as u64
    }

    fn kept(&self, (id, birth): (u32, u64)) -> Option<&Kept> {
        self.subscriptions.get(&id).filter(|kept| kept.birth == birth)
    }

    fn keep(&mut self, id: u32, kept: Kept) {
        let birth = kept.birth;
        let former = self.subscriptions.insert(id, kept);
        if let Some(former) = former.filter(|former| former.birth != birth) {
            self.note_end(id, former, Ended::Removed);
        }
    }

    /// It does not get a subscription back.
    fn end(&mut self, id: u32) {
        if let Some(former) = self.subscriptions.remove(&id) {
            self.note_end(id, former, Ended::Unsubscribed(former.kind));
        }
    }

    /// Subscriptions to channels that are gone make room for others. Returns them.
    fn purge(&mut self, is_there: impl Fn(u32, u64) -> bool) -> Vec<(u32, Kept)> {
        let gone: Vec<(u32, Kept)> = self.subscriptions.extract_if(|id, kept| !is_there(*id, kept.birth)).collect();
        for &(id, former) in &gone {
            self.note_end(id, former, Ended::Removed);
        }
        gone
    }

    fn note_end(&mut self, id: u32, former: Kept, ended: Ended) {
        if former.is_known {
            self.ended.insert(id, ended);
        }
    }
}

/// Memory of a loss without its name and its belongings: its entries in all tables.
const LOSS_BYTES: usize = 384;

/// Memory of an entry of the table of viewers, in which half of the places may be free.
const VIEW_BYTES: u64 = 2 * (size_of::<u64>() as u64 + 1);

/// A subscription that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// Which of the channels that had this id.
    pub(super) birth: u64,
    pub(super) kind: ChannelType,
    pub(super) wanted: Wanted,
    pub(super) since: Tick,
    /// It had this subscription when it was lost.
    pub(super) is_known: bool,
}

/// Connections that may come back.
pub(super) type LostKey = (Side, String);

#[derive(Debug)]
struct Loss {
    key: LostKey,
    /// Its memory.
    bytes: u64,
    lost: Lost,
}

/// All of them. The last connection lost under a name is the one that can come back.
#[derive(Debug, Default)]
pub(super) struct LostOnes {
    /// By number: losses are numbered in their order.
    losses: BTreeMap<u64, Loss>,
    /// The number of the loss, by name. Hashed with the standard library's keyed hash: peers choose their names.
    by_name: HashMap<LostKey, u64>,
    /// The losses that have an end of their wait, by that end and the number of the loss.
    by_end: BTreeSet<(Time, u64)>,
    /// The number of the loss, by connection id.
    connection_ids: FxHashMap<u32, u64>,
    /// Losses that wait for a channel: the number of the loss, by the id of the channel.
    owners: FxHashMap<u32, u64>,
    /// Losses that are subscribed to a cell, by the id of the cell.
    viewers: FxHashMap<u32, FxHashSet<u64>>,
    /// Entries of that table.
    views: u64,
    newest: u64,
    bytes: u64,
}

impl LostOnes {
    pub(super) fn len(&self) -> usize {
        self.losses.len()
    }

    /// Bytes of memory of all of them.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes + self.views * VIEW_BYTES
    }

    /// Whether an awaited connection has this connection id.
    pub(super) fn has_connection_id(&self, id: u32) -> bool {
        self.connection_ids.contains_key(&id)
    }

    fn find(&self, connection_id: u32) -> Option<&Loss> {
        self.losses.get(self.connection_ids.get(&connection_id)?)
    }

    /// Awaits the connection with this connection id no longer.
    pub(super) fn take_connection(&mut self, connection_id: u32) -> Option<(LostKey, Lost)> {
        self.take_numbered(*self.connection_ids.get(&connection_id)?)
    }

    pub(super) fn side_of(&self, connection_id: u32) -> Option<Side> {
        self.find(connection_id).map(|loss| loss.key.0)
    }

    /// How many subscriptions a lost connection has.
    pub(super) fn subscription_count(&self, connection_id: u32) -> usize {
        self.find(connection_id).map_or(0, |loss| loss.lost.subscriptions.len())
    }

    /// The subscription of a lost connection to the channel with this id and birth.
    pub(super) fn kept(&self, connection_id: u32, channel: (u32, u64)) -> Option<&Kept> {
        self.find(connection_id)?.lost.kept(channel)
    }

    /// Whether a lost connection gets this subscription back, or it was taken from it. One to a channel that was removed says nothing about a
    /// newer channel with its id.
    pub(super) fn has_or_had(&self, connection_id: u32, channel: (u32, u64)) -> bool {
        let had = |loss: &Loss| {
            loss.lost.kept(channel).is_some() || matches!(loss.lost.ended.get(&channel.0), Some(Ended::Unsubscribed(_)))
        };
        self.find(connection_id).is_some_and(had)
    }

    /// The cells that a lost connection is subscribed to, by id and birth, in no particular order.
    pub(super) fn cells_of(&self, connection_id: u32) -> impl Iterator<Item = (u32, u64)> {
        let subscriptions = self.find(connection_id).into_iter().flat_map(|loss| &loss.lost.subscriptions);
        let cells = subscriptions.filter(|(_, kept)| kept.kind == ChannelType::Spatial);
        cells.map(|(&id, kept)| (id, kept.birth))
    }

    /// The connection ids of the lost connections that are subscribed to a cell, in no particular order.
    pub(super) fn viewers_of(&self, cell: (u32, u64)) -> impl Iterator<Item = u32> {
        let losses = self.viewers.get(&cell.0).into_iter().flatten().filter_map(|number| self.losses.get(number));
        losses.map(|loss| &loss.lost).filter(move |lost| lost.kept(cell).is_some()).map(|lost| lost.connection_id)
    }

    /// A lost connection gets this subscription to the channel with this id when it is back.
    pub(super) fn keep(&mut self, connection_id: u32, channel: u32, kept: Kept) {
        let Some(&number) = self.connection_ids.get(&connection_id) else { return };
        self.change(number, |lost| lost.keep(channel, kept));
        if kept.kind == ChannelType::Spatial {
            self.add_viewer(channel, number);
        }
    }

    /// A lost connection does not get its subscription to a channel back. Returns whether it would have got one.
    pub(super) fn unsubscribe(&mut self, connection_id: u32, channel: (u32, u64)) -> bool {
        let Some(&number) = self.connection_ids.get(&connection_id) else { return false };
        let has = self.kept(connection_id, channel).is_some();
        if has {
            self.change(number, |lost| lost.end(channel.0));
            self.forget_viewer(channel.0, number);
        }
        has
    }

    /// Forgets the subscriptions of a lost connection to channels that are gone.
    pub(super) fn purge(&mut self, connection_id: u32, is_there: impl Fn(u32, u64) -> bool) {
        let Some(&number) = self.connection_ids.get(&connection_id) else { return };
        let gone = self.change(number, |lost| lost.purge(is_there));
        for (id, _) in gone.into_iter().flatten() {
            self.forget_viewer(id, number);
        }
    }

    /// Changes what a lost connection has, and counts its memory anew.
    fn change<T>(&mut self, number: u64, change: impl FnOnce(&mut Lost) -> T) -> Option<T> {
        let loss = self.losses.get_mut(&number)?;
        let changed = change(&mut loss.lost);
        let bytes = loss.lost.bytes(&loss.key);
        self.bytes = self.bytes + bytes - loss.bytes;
        loss.bytes = bytes;
        Some(changed)
    }

    fn add_viewer(&mut self, cell: u32, number: u64) {
        self.views += u64::from(self.viewers.entry(cell).or_default().insert(number));
    }

    fn forget_viewer(&mut self, cell: u32, number: u64) {
        if let Some(viewers) = self.viewers.get_mut(&cell) {
            self.views -= u64::from(viewers.remove(&number));
            if viewers.is_empty() {
                self.viewers.remove(&cell);
            }
        }
    }

    pub(super) fn get(&self, key: &LostKey) -> Option<&Lost> {
        self.losses.get(self.by_name.get(key)?).map(|loss| &loss.lost)
    }

    /// Remembers a lost connection; an older one of the same name is not awaited any more.
    pub(super) fn insert(&mut self, key: LostKey, lost: Lost) -> Option<Lost> {
        let former = self.take(&key);
        self.newest += 1;
        let number = self.newest;
        self.connection_ids.insert(lost.connection_id, number);
        self.owners.extend(lost.owned.iter().map(|&id| (id, number)));
        for (&id, _) in lost.subscriptions.iter().filter(|(_, kept)| kept.kind == ChannelType::Spatial) {
            self.add_viewer(id, number);
        }
        if let Some(until) = lost.until {
            self.by_end.insert((until, number));
        }
        let loss = Loss { bytes: lost.bytes(&key), key: key.clone(), lost };
        self.bytes += loss.bytes;
        self.by_name.insert(key, number);
        self.losses.insert(number, loss);
        former
    }

    /// Awaits one no longer.
    pub(super) fn take(&mut self, key: &LostKey) -> Option<Lost> {
        let number = *self.by_name.get(key)?;
        self.take_numbered(number).map(|(_, lost)| lost)
    }

    fn take_numbered(&mut self, number: u64) -> Option<(LostKey, Lost)> {
        let Loss { key, bytes, lost } = self.losses.remove(&number)?;
        self.bytes -= bytes;
        self.by_name.remove(&key);
        self.connection_ids.remove(&lost.connection_id);
        for id in &lost.owned {
            if self.owners.get(id) == Some(&number) {
                self.owners.remove(id);
            }
        }
        for &id in lost.subscriptions.keys() {
            self.forget_viewer(id, number);
        }
        if let Some(until) = lost.until {
            self.by_end.remove(&(until, number));
        }
        Some((key, lost))
    }

    /// When the first of them is given up.
    pub(super) fn next_end(&self) -> Option<Time> {
        self.by_end.first().map(|&(until, _)| until)
    }

    /// Takes a peer that has not come back in time.
    pub(super) fn take_late(&mut self, now: Time) -> Option<(LostKey, Lost)> {
        let &(until, number) = self.by_end.first()?;
        if until > now { None } else { self.take_numbered(number) }
    }

    /// The least important loss: the first of those that own nothing, or of all.
    pub(super) fn take_least(&mut self) -> Option<(LostKey, Lost)> {
        let first = self.losses.iter().find(|(_, loss)| loss.lost.owned.is_empty());
        let (&number, _) = first.or_else(|| self.losses.first_key_value())?;
        self.take_numbered(number)
    }

    /// The names of all of them, in no particular order.
    pub(super) fn names(&self) -> impl Iterator<Item = &LostKey> {
        self.by_name.keys()
    }

    /// The connection ids of lost clients, in the order of their losses.
    pub(super) fn clients(&self) -> Vec<u32> {
        let clients = self.losses.values().filter(|loss| loss.key.0 == Side::Client);
        clients.map(|loss| loss.lost.connection_id).collect()
    }

    /// The connection id of the lost owner of a channel.
    pub(super) fn owner_of(&self, channel: u32) -> Option<u32> {
        self.losses.get(self.owners.get(&channel)?).map(|loss| loss.lost.connection_id)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Lost> {
        self.losses.values().map(|loss| &loss.lost)
    }

    /// Takes a channel away from the loss that waits for it. Returns the number of that loss.
    pub(super) fn disown(&mut self, id: u32) -> Option<u64> {
        let number = self.owners.remove(&id)?;
        self.change(number, |lost| lost.owned.remove(&id));
        Some(number)
    }

    /// Somebody else decides over a channel that a loss waits for. With its return it may read what is in a cell that it
    /// sees: `cell` is the one that the channel's entity is in, and when that cell was made.
    pub(super) fn take_over(&mut self, id: u32, cell: Option<(u32, u64)>) {
        let Some(number) = self.disown(id) else { return };
        self.change(number, |lost| {
            let sees_cell = cell.is_some_and(|cell| lost.kept(cell).is_some());
            match lost.subscriptions.get_mut(&id) {
                Some(kept) if sees_cell => kept.wanted.access = Access::Read,
                _ => lost.end(id),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    fn lost(connection_id: u32, owned: &[u32], until: Option<u64>) -> Lost {
        let owned = owned.iter().copied().collect();
        let (subscriptions, ended, created) = Default::default();
        let key = Key { index: connection_id, generation: 0 };
        Lost { connection_id, owned, subscriptions, ended, key, created, until: until.map(Time) }
    }

    fn name(name: &str) -> LostKey {
        (Side::Server, name.to_owned())
    }

    #[test]
    fn each_is_given_up_at_its_own_time_whatever_the_order_of_losses() {
        let mut ones = LostOnes::default();
        ones.insert(name("late"), lost(1, &[], Some(300)));
        ones.insert(name("soon"), lost(2, &[], Some(100)));
        ones.insert(name("never"), lost(3, &[], None));
        assert_eq!(ones.next_end(), Some(Time(100)));
        assert_eq!(ones.take_late(Time(300)).map(|(key, _)| key), Some(name("soon")));
        assert_eq!(ones.take_late(Time(300)).map(|(key, _)| key), Some(name("late")));
        assert!(ones.take_late(Time(u64::MAX)).is_none() && ones.next_end().is_none());
        assert!(ones.has_connection_id(3) && !ones.has_connection_id(1));
    }

    #[test]
    fn a_lost_connection_without_channels_is_given_up_first() {
        let mut ones = LostOnes::default();
        ones.insert(name("world"), lost(1, &[7], None));
        ones.insert(name("stranger"), lost(2, &[], None));
        ones.insert(name("other"), lost(3, &[8], None));
        let order: Vec<u32> = std::iter::from_fn(|| ones.take_least()).map(|(_, lost)| lost.connection_id).collect();
        assert_eq!(order, [2, 1, 3]);
        assert!(ones.len() == 0 && ones.by_end.is_empty() && ones.by_name.is_empty() && ones.connection_ids.is_empty());
    }

    #[test]
    fn nobody_can_choose_names_that_collide_in_every_gateway() {
        let hash = |_: ()| LostOnes::default().by_name.hasher().hash_one(name("world"));
        let [first, second] = [(); 2].map(hash);
        assert_ne!(first, second, "each table has a key of its own");
    }

    #[test]
    fn a_lost_world_is_charged_for_its_channels_what_the_tables_take() {
        let mut ones = LostOnes::default();
        ones.insert(name("empty"), lost(1, &[], None));
        let empty = ones.bytes();
        let channels: Vec<u32> = (0..1_700).collect();
        ones.insert(name("world"), lost(2, &channels, None));
        let charged = ones.bytes() - empty - empty;
        // A table has a byte for each place beside the entry; one in eight places is free.
        let places = |capacity: usize| capacity as u64 * 8 / 7;
        let owned = &ones.get(&name("world")).expect("it waits").owned;
        let set_bytes = places(owned.capacity()) * (size_of::<u32>() as u64 + 1);
        let taken = set_bytes + places(ones.owners.capacity()) * (size_of::<(u32, u64)>() as u64 + 1);
        assert!(charged.abs_diff(taken) * 10 < taken, "{charged} for {taken}");
    }

    #[test]
    fn a_lost_connection_is_known_as_a_viewer_of_its_cells_and_of_nothing_else() {
        let kept = |kind| {
            let wanted = Wanted::usual(&crate::channel_types::ChannelSettings::default());
            Kept { birth: 1, kind, wanted, since: Tick(0), is_known: true }
        };
        let mut ones = LostOnes::default();
        let mut first = lost(1, &[], None);
        first.subscriptions.extend([(10, kept(ChannelType::Spatial)), (11, kept(ChannelType::Entity))]);
        ones.insert(name("first"), first);
        ones.insert(name("second"), lost(2, &[], None));
        for cell in 10..15 {
            ones.keep(2, cell, kept(ChannelType::Spatial));
        }
        let viewers = |ones: &LostOnes, cell| {
            let mut viewers: Vec<u32> = ones.viewers_of((cell, 1)).collect();
            viewers.sort_unstable();
            viewers
        };
        assert_eq!([10, 11, 12].map(|cell| viewers(&ones, cell)), [vec![1, 2], vec![2], vec![2]]);
        assert!(ones.viewers_of((10, 2)).next().is_none(), "another cell with this id");
        assert!(ones.unsubscribe(2, (12, 1)) && !ones.unsubscribe(2, (12, 1)));
        ones.purge(2, |id, _| id != 13);
        assert_eq!([12, 13, 14].map(|cell| viewers(&ones, cell)), [vec![], vec![], vec![2]]);
        assert_eq!(ones.get(&name("second")).expect("it waits").ended.len(), 2);
        while ones.take_least().is_some() {}
        assert!(ones.viewers.is_empty() && ones.bytes() == 0);
    }

    #[test]
    fn of_one_name_the_last_counts() {
        let mut ones = LostOnes::default();
        assert!(ones.insert(name("world"), lost(1, &[], Some(100))).is_none());
        assert_eq!(ones.insert(name("world"), lost(2, &[], Some(200))).map(|lost| lost.connection_id), Some(1));
        assert_eq!((ones.len(), ones.next_end()), (1, Some(Time(200))));
        assert!(!ones.has_connection_id(1));
    }
}
