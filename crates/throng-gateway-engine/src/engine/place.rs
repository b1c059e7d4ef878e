//! Where the engine keeps its connections and channels.
//!
//! A connection has several numbers: its key, its id in the protocol, its number as a writer, and its index in the engine's
//! table. A channel has its id and its index. Each kind of number has a type of its own, so that none is taken for
//! another, and a table takes only the type of its own index.

use std::marker::PhantomData;

use throng_replica::ChannelIndex;

use super::port::Key;

/// The index of a connection, the same as in the hub. It belongs to another connection once this one has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u32);

impl Place {
    /// Where the connection with this key is, or was.
    pub(crate) fn of(key: Key) -> Place {
        Place(key.index)
    }
}

/// The index of a row in its table.
pub(super) trait Number: Copy {
    /// Counted from 0, without large gaps.
    fn number(self) -> usize;
}

impl Number for Place {
    fn number(self) -> usize {
        self.0 as usize
    }
}

impl Number for ChannelIndex {
    fn number(self) -> usize {
        ChannelIndex::number(self)
    }
}

/// A table of things by index. Some slots are empty. No call panics.
pub(super) struct Table<N, T> {
    slots: Vec<Option<Box<T>>>,
    numbers: PhantomData<N>,
}

impl<N, T> Default for Table<N, T> {
    fn default() -> Table<N, T> {
        Table { slots: Vec::new(), numbers: PhantomData }
    }
}

impl<N: Number, T> Table<N, T> {
    pub(super) fn get(&self, at: N) -> Option<&T> {
        self.nth(at.number())
    }

    pub(super) fn get_mut(&mut self, at: N) -> Option<&mut T> {
        self.slots.get_mut(at.number())?.as_deref_mut()
    }

    pub(super) fn put(&mut self, at: N, thing: T) {
        if self.slots.len() <= at.number() {
            self.slots.resize_with(at.number() + 1, || None);
        }
        self.slots[at.number()] = Some(Box::new(thing));
    }

    pub(super) fn take(&mut self, at: N) -> Option<Box<T>> {
        self.slots.get_mut(at.number())?.take()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|thing| &**thing)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten().map(|thing| &mut **thing)
    }

    /// All slots in their order, the empty ones as well.
    pub(super) fn slots_mut(&mut self) -> impl Iterator<Item = Option<&mut T>> {
        self.slots.iter_mut().map(|slot| slot.as_deref_mut())
    }

    /// Number of slots so far.
    pub(super) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// The thing at this index, if there is one.
    pub(super) fn nth(&self, number: usize) -> Option<&T> {
        self.slots.get(number)?.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_place_or_one_that_never_was_holds_nothing() {
        let mut table = Table::<Place, u8>::default();
        table.put(Place(3), 7);
        assert_eq!((table.get(Place(3)), table.get(Place(2)), table.get(Place(u32::MAX))), (Some(&7), None, None));
        assert_eq!((table.slot_count(), table.iter().count()), (4, 1));
        assert_eq!(table.take(Place(3)).as_deref(), Some(&7));
        assert_eq!((table.take(Place(3)), table.take(Place(4_000)), table.get_mut(Place(9))), (None, None, None));
    }
}
