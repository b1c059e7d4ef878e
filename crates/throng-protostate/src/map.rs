//! The entries of a map, linked in the order of their last change.
//!
//! ```text
//!  newest <-> ... <-> oldest      a change moves an entry to the front; encode(since) walks until it meets `since`
//!  departed: removed entries, first removed first; they stay in the list as tombstones
//!  guess: the entry that was changed after the last one, the time before
//! ```
//!
//! World servers write the same objects in the same order, frame after frame, so the guess is nearly always right and
//! no key is hashed. Where it is wrong, std's keyed hash finds the entry: keys are chosen by peers. The index holds
//! places of entries only, not a second copy of the keys.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use super::tree::{MESSAGE_BYTES, Message, Stamp, Usage, Value, allocated};

/// Bytes by which the index of a map grows for one entry.
pub(super) const INDEX_BYTES: usize = 2 * (size_of::<u32>() + 1);

pub(super) const NIL: u32 = u32::MAX;

/// Notes of removals that no longer hold are cleared away when there are as many as tombstones, and this many.
const STALE_MAX: usize = 16;

/// The key of a map entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MapKey {
    /// An integer or a boolean, as it is on the wire: zigzag for `sint32` and `sint64`, sign-extended for `int32`.
    Number(u64),
    /// A string.
    Text(Box<[u8]>),
}

impl From<u32> for MapKey {
    fn from(key: u32) -> MapKey {
        MapKey::Number(u64::from(key))
    }
}

impl From<&str> for MapKey {
    fn from(key: &str) -> MapKey {
        MapKey::Text(key.as_bytes().into())
    }
}

/// A key that is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyRef<'a> {
    Number(u64),
    Text(&'a [u8]),
    /// Not a key: a value that cannot be found again.
    Nameless,
}

/// The key of an entry.
#[derive(Debug)]
pub(super) enum Name {
    Number(u64),
    Text(Box<[u8]>),
    Nameless,
}

#[derive(Debug)]
pub(super) struct Map {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Places of the entries that have a key, by the hash of it.
    index: HashTable<u32>,
    hasher: RandomState,
    newest: u32,
    oldest: u32,
    guess: u32,
    /// Removed entries with the stamp of their removal. One that has come back is still in here.
    departed: VecDeque<(Stamp, u32)>,
    tombstones: usize,
    /// Entries without a key, first written first.
    nameless: VecDeque<u32>,
    /// Without a schema: what the oldest entries without a key said, merged.
    pub(super) residue: Option<Box<Message>>,
    /// Entries are sent in the order of their last change. Otherwise any order will do.
    pub(super) is_ordered: bool,
    /// Tag of the key in an entry.
    pub(super) key_tag: u32,
    /// The value of a removed entry; empty if nothing was ever removed.
    pub(super) farewell: Vec<u8>,
    /// Of a field without a schema: more than one occurrence was seen in one message.
    pub(super) repeats: bool,
    /// The part of `own_bytes` in the state's usage.
    pub(super) counted: usize,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Name,
    /// Tag of the value in the entry.
    pub(super) value_tag: u32,
    pub(super) writer: u32,
    pub(super) stamp: Stamp,
    newer: u32,
    older: u32,
    /// The entry was removed; `value` is what was sent with the removal.
    pub(super) is_gone: bool,
    /// When the key was last removed, if it has come back since; [`Stamp::NEVER`] otherwise.
    pub(super) removed: Stamp,
    pub(super) value: Value,
}

impl Map {
    pub(super) fn new(key_tag: u32) -> Map {
        Map {
            entries: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            hasher: RandomState::new(),
            newest: NIL,
            oldest: NIL,
            guess: NIL,
            departed: VecDeque::new(),
            tombstones: 0,
            nameless: VecDeque::new(),
            residue: None,
            is_ordered: false,
            key_tag,
            farewell: Vec::new(),
            repeats: false,
            counted: 0,
        }
    }

    /// Bytes of the memory for the entries and for what finds them, without what is in them.
    pub(super) fn own_bytes(&self) -> usize {
        allocated(self.entries.capacity() * size_of::<Entry>())
            + allocated(self.free.capacity() * size_of::<u32>())
            + allocated(self.index.allocation_size())
            + allocated(self.departed.capacity() * size_of::<(Stamp, u32)>())
            + allocated(self.nameless.capacity() * size_of::<u32>())
            + allocated(self.farewell.capacity())
    }

    /// Counts its memory again: the former count, and the present one.
    pub(super) fn resettle(&mut self) -> (usize, usize) {
        let own = self.own_bytes();
        (std::mem::replace(&mut self.counted, own), own)
    }

    /// Brings a state's usage up to date with the memory that the map takes now.
    #[inline]
    pub(super) fn settle(&mut self, usage: &mut Usage) {
        let (before, own) = self.resettle();
        usage.resize(before, own);
    }

    /// The slot of the entry with that key, tombstones included.
    #[inline]
    pub(super) fn find(&self, key: KeyRef<'_>) -> Option<u32> {
        if let Some(entry) = self.entries.get(self.guess as usize)
            && entry.name.is(key)
        {
            return Some(self.guess);
        }
        let is_it = |slot: &u32| self.entries[*slot as usize].name.is(key);
        self.index.find(hash(&self.hasher, key)?, is_it).copied()
    }

    /// A new entry, the newest one, with value [`Value::Gone`].
    pub(super) fn insert(&mut self, key: KeyRef<'_>, value_tag: u32) -> u32 {
        let entry = Entry {
            name: Name::of(key),
            value_tag,
            writer: 0,
            stamp: Stamp::NEVER,
            newer: NIL,
            older: NIL,
            is_gone: false,
            removed: Stamp::NEVER,
            value: Value::Gone,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                if self.entries.len() == self.entries.capacity() {
                    // An entry is large: a quarter more is enough for few copies, and half of it is no waste.
                    self.entries.reserve_exact((self.entries.len() / 4).max(1));
                }
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        match hash(&self.hasher, key) {
            Some(hash_of_key) => {
                let (entries, hasher) = (&self.entries, &self.hasher);
                let rehash = |slot: &u32| hash(hasher, entries[*slot as usize].name.as_key()).unwrap_or_default();
                self.index.insert_unique(hash_of_key, slot, rehash);
            }
            None => self.nameless.push_back(slot),
        }
        self.push_newest(slot);
        slot
    }

    /// Moves an entry to the front.
    #[inline]
    pub(super) fn touch(&mut self, slot: u32, stamp: Stamp, writer: u32) -> &mut Entry {
        let next = self.entries[slot as usize].newer;
        if next != NIL {
            self.unlink(slot);
            self.push_newest(slot);
        }
        self.guess = if next == NIL { self.oldest } else { next };
        let entry = &mut self.entries[slot as usize];
        entry.stamp = stamp;
        entry.writer = writer;
        entry
    }

    #[inline]
    pub(super) fn entry(&self, slot: u32) -> &Entry {
        &self.entries[slot as usize]
    }

    pub(super) fn entry_mut(&mut self, slot: u32) -> &mut Entry {
        &mut self.entries[slot as usize]
    }

    /// Notes that the entry is removed at its stamp.
    pub(super) fn bury(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        if !std::mem::replace(&mut entry.is_gone, true) {
            self.tombstones += 1;
        }
        self.departed.push_back((entry.stamp, slot));
        if self.departed.len() > 2 * self.tombstones + STALE_MAX {
            let entries = &self.entries;
            self.departed.retain(|&(stamp, slot)| {
                let entry = &entries[slot as usize];
                entry.is_gone && entry.stamp == stamp
            });
        }
    }

    /// Notes that a removed entry comes back.
    pub(super) fn revive(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        entry.is_gone = false;
        entry.removed = entry.stamp;
        self.tombstones -= 1;
    }

    /// Takes an entry out, finally.
    pub(super) fn delete(&mut self, slot: u32) -> Value {
        self.unlink(slot);
        let entry = &mut self.entries[slot as usize];
        let name = std::mem::replace(&mut entry.name, Name::Nameless);
        if std::mem::replace(&mut entry.is_gone, false) {
            self.tombstones -= 1;
        }
        entry.stamp = Stamp::NEVER;
        let value = std::mem::replace(&mut entry.value, Value::Gone);
        match hash(&self.hasher, name.as_key()) {
            Some(hash_of_key) => {
                if let Ok(found) = self.index.find_entry(hash_of_key, |known| *known == slot) {
                    found.remove();
                }
            }
            // They go in the order in which they came.
            None => _ = self.nameless.pop_front(),
        }
        if self.guess == slot {
            self.guess = NIL;
        }
        self.free.push(slot);
        if self.free.len() == self.entries.len() {
            self.give_back_memory();
        }
        value
    }

    /// The last entry is gone: so is the room for them.
    fn give_back_memory(&mut self) {
        self.entries = Vec::new();
        self.free = Vec::new();
        self.index = HashTable::new();
        self.departed = VecDeque::new();
        self.nameless = VecDeque::new();
        (self.newest, self.oldest, self.guess) = (NIL, NIL, NIL);
    }

    /// The first removed entry, if it was removed up to `until`: its slot, to be deleted.
    pub(super) fn next_departed(&mut self, until: Stamp) -> Option<u32> {
        loop {
            let &(stamp, slot) = self.departed.front()?;
            let entry = &self.entries[slot as usize];
            let is_current = entry.is_gone && entry.stamp == stamp;
            if is_current && stamp > until {
                return None;
            }
            self.departed.pop_front();
            if is_current {
                return Some(slot);
            }
        }
    }

    /// The stamps of all tombstones, first removed first.
    pub(super) fn tombstone_stamps(&self) -> impl Iterator<Item = Stamp> + '_ {
        let is_current = |&&(stamp, slot): &&(Stamp, u32)| {
            let entry = &self.entries[slot as usize];
            entry.is_gone && entry.stamp == stamp
        };
        self.departed.iter().filter(is_current).map(|&(stamp, _)| stamp)
    }

    /// Number of entries that are not removed.
    pub(super) fn live_count(&self) -> usize {
        self.entries.len() - self.free.len() - self.tombstones
    }

    /// Number of entries that are removed and still remembered.
    pub(super) fn tombstone_count(&self) -> usize {
        self.tombstones
    }

    /// All entries, tombstones included, newest change first.
    #[inline]
    pub(super) fn walk(&self) -> impl Iterator<Item = (u32, &Entry)> + '_ {
        let mut next = self.newest;
        std::iter::from_fn(move || {
            let entry = self.entries.get(next as usize)?;
            Some((std::mem::replace(&mut next, entry.older), entry))
        })
    }

    /// The same, oldest change first.
    pub(super) fn walk_from_oldest(&self) -> impl Iterator<Item = &Entry> + '_ {
        let mut next = self.oldest;
        std::iter::from_fn(move || {
            let entry = self.entries.get(next as usize)?;
            next = entry.newer;
            Some(entry)
        })
    }

    /// Changes the value of each entry. Places that are free are not looked at: there may be many more of them.
    pub(super) fn each_value(&mut self, mut change: impl FnMut(&mut Value)) {
        let mut next = self.newest;
        while let Some(entry) = self.entries.get_mut(next as usize) {
            change(&mut entry.value);
            next = entry.older;
        }
    }

    /// Entries without a key: how many, and the one that was written first.
    pub(super) fn nameless(&self) -> (usize, Option<u32>) {
        (self.nameless.len(), self.nameless.front().copied())
    }

    /// The entry that was changed first.
    pub(super) fn oldest(&self) -> Option<(u32, &Entry)> {
        Some((self.oldest, self.entries.get(self.oldest as usize)?))
    }

    pub(super) fn get(&self, key: &MapKey) -> Option<&Entry> {
        let slot = self.find(match key {
            MapKey::Number(number) => KeyRef::Number(*number),
            MapKey::Text(text) => KeyRef::Text(text),
        })?;
        Some(&self.entries[slot as usize]).filter(|entry| !entry.is_gone)
    }

    pub(super) fn live_keys(&self) -> impl Iterator<Item = MapKey> + '_ {
        self.walk().filter(|(_, entry)| !entry.is_gone).filter_map(|(_, entry)| match &entry.name {
            Name::Number(number) => Some(MapKey::Number(*number)),
            Name::Text(text) => Some(MapKey::Text(text.clone())),
            Name::Nameless => None,
        })
    }

    pub(super) fn count(&self, usage: &mut Usage) {
        usage.bytes += self.counted;
        for (_, entry) in self.walk() {
            entry.count(usage);
        }
        if let Some(residue) = &self.residue {
            usage.add(MESSAGE_BYTES);
            residue.count(usage);
        }
        usage.tombstones += self.tombstones;
    }

    fn push_newest(&mut self, slot: u32) {
        let older = std::mem::replace(&mut self.newest, slot);
        let entry = &mut self.entries[slot as usize];
        entry.newer = NIL;
        entry.older = older;
        match self.entries.get_mut(older as usize) {
            Some(older) => older.newer = slot,
            None => self.oldest = slot,
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Entry { newer, older, .. } = self.entries[slot as usize];
        match self.entries.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
    }
}

impl Entry {
    pub(super) fn count(&self, usage: &mut Usage) {
        usage.add(self.name.own_bytes());
        self.value.count(usage);
    }
}

impl Name {
    fn of(key: KeyRef<'_>) -> Name {
        match key {
            KeyRef::Number(number) => Name::Number(number),
            KeyRef::Text(text) => Name::Text(text.into()),
            KeyRef::Nameless => Name::Nameless,
        }
    }

    #[inline]
    fn is(&self, key: KeyRef<'_>) -> bool {
        match (self, key) {
            (Name::Number(number), KeyRef::Number(key)) => *number == key,
            (Name::Text(text), KeyRef::Text(key)) => **text == *key,
            _ => false,
        }
    }

    /// Bytes of memory beside the entry.
    pub(super) fn own_bytes(&self) -> usize {
        match self {
            Name::Text(text) => allocated(text.len()),
            _ => 0,
        }
    }

    fn as_key(&self) -> KeyRef<'_> {
        match self {
            Name::Number(number) => KeyRef::Number(*number),
            Name::Text(text) => KeyRef::Text(text),
            Name::Nameless => KeyRef::Nameless,
        }
    }
}

/// The keyed hash of a key; `None` if there is none to be found by.
fn hash(hasher: &RandomState, key: KeyRef<'_>) -> Option<u64> {
    match key {
        KeyRef::Number(number) => Some(hasher.hash_one(number)),
        KeyRef::Text(text) => Some(hasher.hash_one(text)),
        KeyRef::Nameless => None,
    }
}
