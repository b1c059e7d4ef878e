//! A key-value store in memory: that of the bus in process, and of the simulated server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use throng_wire::Time;

use crate::{Entry, Expect, Pattern, Revision, StoreError, Subject};

/// Most bytes of keys and values of a store in memory.
pub const STORE_BYTES_MAX: usize = 1 << 30;

/// A change of an entry, for watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: Subject,
    pub(crate) revision: Revision,
    pub(crate) value: Option<Bytes>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    entries: BTreeMap<Subject, Stored>,
    ends: BTreeSet<(Time, Subject)>,
    newest: Revision,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Stored {
    entry: Entry,
    ends: Option<Time>,
}

impl Store {
    pub(crate) fn get(&self, key: &Subject) -> Option<Entry> {
        self.entries.get(key).map(|stored| stored.entry.clone())
    }

    /// Writes. Entries whose time is over must have been removed before, see [`Store::expire`].
    pub(crate) fn put(
        &mut self,
        now: Time,
        key: &Subject,
        value: Bytes,
        expect: Expect,
        lives_for: Option<Duration>,
    ) -> Result<Change, StoreError> {
        self.check(key, expect)?;
        let of = |value: &Bytes| key.as_str().len() + value.len();
        let before = self.entries.get(key).map_or(0, |stored| of(&stored.entry.value));
        let bytes = self.bytes - before + of(&value);
        if bytes > STORE_BYTES_MAX {
            return Err(StoreError::Full);
        }
        self.take(key);
        self.bytes = bytes;
        self.newest.0 += 1;
        let ends = lives_for.map(|life| now.after(life));
        self.ends.extend(ends.map(|end| (end, key.clone())));
        let entry = Entry { value: value.clone(), revision: self.newest };
        self.entries.insert(key.clone(), Stored { entry, ends });
        Ok(Change { key: key.clone(), revision: self.newest, value: Some(value) })
    }

    pub(crate) fn delete(&mut self, key: &Subject, expect: Expect) -> Result<Change, StoreError> {
        self.check(key, expect)?;
        self.take(key);
        self.newest.0 += 1;
        Ok(Change { key: key.clone(), revision: self.newest, value: None })
    }

    /// Removes an entry whose time is over. Each removal is a write with a number of its own.
    pub(crate) fn expire(&mut self, now: Time) -> Option<Change> {
        let (end, key) = self.ends.first()?.clone();
        if end > now {
            return None;
        }
        self.take(&key);
        self.newest.0 += 1;
        Some(Change { key, revision: self.newest, value: None })
    }

    pub(crate) fn next_end(&self) -> Option<Time> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// All entries whose keys match, in order of their writes.
    pub(crate) fn list(&self, pattern: &Pattern) -> Vec<Change> {
        let matching = self.entries.iter().filter(|(key, _)| pattern.matches(key));
        let mut list: Vec<Change> = matching
            .map(|(key, stored)| Change {
                key: key.clone(),
                revision: stored.entry.revision,
                value: Some(stored.entry.value.clone()),
            })
            .collect();
        list.sort_by_key(|change| change.revision);
        list
    }

    fn check(&self, key: &Subject, expect: Expect) -> Result<(), StoreError> {
        let found = self.entries.get(key).map(|stored| stored.entry.revision);
        let is_expected = match expect {
            Expect::Anything => true,
            Expect::Absent => found.is_none(),
            Expect::Revision(revision) => found == Some(revision),
        };
        if is_expected { Ok(()) } else { Err(StoreError::Refused) }
    }

    fn take(&mut self, key: &Subject) {
        if let Some(stored) = self.entries.remove(key) {
            self.bytes -= key.as_str().len() + stored.entry.value.len();
            if let Some(end) = stored.ends {
                self.ends.remove(&(end, key.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_store_takes_a_value_in_the_place_of_one_as_long() {
        let key = Subject::new("a").unwrap();
        let mut store = Store::default();
        let first = store.put(Time(0), &key, Bytes::from_static(b"old"), Expect::Absent, None).unwrap();
        // Other entries have the rest of the room.
        let others = STORE_BYTES_MAX - store.bytes;
        store.bytes += others;
        let mut put = |value: &'static [u8]| {
            let expect = Expect::Revision(first.revision);
            store.put(Time(1), &key, Bytes::from_static(value), expect, None).map(|change| change.value)
        };
        assert_eq!(put(b"long"), Err(StoreError::Full));
        assert_eq!(put(b"new"), Ok(Some(Bytes::from_static(b"new"))));
        assert_eq!(store.bytes, STORE_BYTES_MAX);
    }

    #[test]
    fn a_renewed_entry_lives_on_and_others_end_on_time() {
        let mut store = Store::default();
        let [a, b] = ["a", "b"].map(|name| Subject::new(name).unwrap());
        let life = Some(Duration::from_secs(2));
        let first = store.put(Time(0), &a, Bytes::new(), Expect::Absent, life).unwrap();
        store.put(Time(0), &b, Bytes::new(), Expect::Absent, life).unwrap();
        assert_eq!(store.put(Time(0), &a, Bytes::new(), Expect::Absent, life), Err(StoreError::Refused));
        store.put(Time::from_secs(1), &a, Bytes::new(), Expect::Revision(first.revision), life).unwrap();
        assert_eq!(store.expire(Time::from_secs(2)).map(|change| change.key), Some(b));
        assert_eq!(store.expire(Time::from_secs(2)), None);
        assert_eq!(store.next_end(), Some(Time::from_secs(3)));
        assert_eq!(store.expire(Time::from_secs(3)).map(|change| change.key), Some(a));
        assert_eq!((store.bytes, store.next_end()), (0, None));
    }
}
