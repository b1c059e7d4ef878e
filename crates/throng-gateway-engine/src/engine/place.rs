//! Where the engine keeps its connections and channels.
//!
//! A connection has several numbers: its key, its id in the protocol, its number as a writer, and its index in the engine's
//! table. A channel has its id and its index. Each kind of number has a type of its own, so that none is taken for
//! another, and a table takes only the type of its own index.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// A party to a subscription: a connection, or one that is lost and may come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party {
    Here(Place),
    /// By its connection id.
    Away(u32),
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
    /// In place of one that is missing, and how often that was needed.
    substitute: Box<T>,
    absences: AtomicU64,
    numbers: PhantomData<N>,
}

impl<N: Number, T> Table<N, T> {
    /// An empty one. See `absent.rs` for the substitute.
    pub(super) fn new(substitute: Box<T>) -> Table<N, T> {
        Table { slots: Vec::new(), substitute, absences: AtomicU64::new(0), numbers: PhantomData }
    }

    /// One that is there. If it is not, that is [counted](Self::take_absences).
    pub(super) fn at(&self, at: N) -> &T {
        self.get(at).unwrap_or_else(|| {
            self.absences.fetch_add(1, Ordering::Relaxed);
            &self.substitute
        })
    }

    /// The same, to change it.
    pub(super) fn at_mut(&mut self, at: N) -> &mut T {
        match self.slots.get_mut(at.number()).and_then(Option::as_deref_mut) {
            Some(thing) => thing,
            None => {
                *self.absences.get_mut() += 1;
                &mut self.substitute
            }
        }
    }

    /// How many were missing since the last time.
    pub(super) fn take_absences(&mut self) -> u64 {
        std::mem::take(self.absences.get_mut())
    }

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

    /// For a walk past some of the slots, in their order.
    pub(super) fn walk_mut(&mut self) -> Walk<'_, T> {
        Walk { rest: &mut self.slots, begin: 0 }
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

/// Gives out things of a table that lie behind each other.
pub(super) struct Walk<'a, T> {
    rest: &'a mut [Option<Box<T>>],
    begin: usize,
}

impl<'a, T> Walk<'a, T> {
    /// The thing at this index, which is above all indices before. Nothing for an index that is not.
    pub(super) fn at(&mut self, number: usize) -> Option<&'a mut T> {
        let steps = number.checked_sub(self.begin).filter(|&steps| steps < self.rest.len())?;
        let (slot, rest) = std::mem::take(&mut self.rest)[steps..].split_first_mut()?;
        (self.rest, self.begin) = (rest, number + 1);
        slot.as_deref_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_place_or_one_that_never_was_holds_nothing() {
        let mut table = Table::<Place, u8>::new(Box::new(0));
        table.put(Place(3), 7);
        assert_eq!((table.get(Place(3)), table.get(Place(2)), table.get(Place(u32::MAX))), (Some(&7), None, None));
        assert_eq!((table.slot_count(), table.iter().count()), (4, 1));
        assert_eq!(table.take(Place(3)).as_deref(), Some(&7));
        assert_eq!((table.take(Place(3)), table.take(Place(4_000)), table.get_mut(Place(9))), (None, None, None));
    }

    #[test]
    fn a_walk_gives_each_thing_once_and_in_order() {
        let mut table = Table::<Place, u8>::new(Box::new(0));
        [(1, 10), (2, 20), (5, 50)].into_iter().for_each(|(place, thing)| table.put(Place(place), thing));
        let mut walk = table.walk_mut();
        let (one, none, five) = (walk.at(1), walk.at(3), walk.at(5));
        assert_eq!((one.as_deref(), none.as_deref(), five.as_deref()), (Some(&10), None, Some(&50)));
        assert_eq!((walk.at(2), walk.at(5), walk.at(6)), (None, None, None));
    }
}
