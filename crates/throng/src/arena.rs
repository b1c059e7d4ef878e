//! The game's own values, not quantised: one arena per kind.

use std::any::{Any, TypeId};

use rustc_hash::FxHashMap;
use throng_schema::{Replicate, ValuesMut};
use throng_wire::ObjectId;

/// All values of one kind.
trait Arena: Send {
    fn quantise(&self, row: u32, to: ValuesMut<'_>);
    fn remove(&mut self, row: u32);
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

#[derive(Default)]
struct TypedArena<T> {
    values: Vec<T>,
    /// The object of each row; [`ObjectId::NONE`] in free rows.
    ids: Vec<ObjectId>,
    free: Vec<u32>,
}

impl<T: Replicate> Arena for TypedArena<T> {
    fn quantise(&self, row: u32, to: ValuesMut<'_>) {
        self.values[row as usize].quantise(to);
    }

    fn remove(&mut self, row: u32) {
        self.values[row as usize] = T::default();
        self.ids[row as usize] = ObjectId::NONE;
        self.free.push(row);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// The values of all objects, and which of them were touched since the last commit.
#[derive(Default)]
pub(crate) struct Values {
    arenas: Vec<Box<dyn Arena>>,
    by_type: FxHashMap<TypeId, u16>,
    /// By object index.
    places: Vec<Place>,
    touched: Vec<u32>,
}

#[derive(Clone, Copy, Default)]
struct Place {
    arena: u16,
    generation: u32,
    row: u32,
    alive: bool,
    touched: bool,
}

/// A value that the game may have changed.
pub(crate) struct Committed<'a> {
    pub(crate) id: ObjectId,
    arena: &'a dyn Arena,
    row: u32,
}

impl Committed<'_> {
    pub(crate) fn quantise(&self, to: ValuesMut<'_>) {
        self.arena.quantise(self.row, to);
    }
}

impl Values {
    pub(crate) fn insert<T: Replicate>(&mut self, id: ObjectId, value: T) {
        let arena = self.arena_of::<T>();
        let typed: &mut TypedArena<T> = self.arenas[usize::from(arena)].as_any_mut().downcast_mut().expect("its type");
        let row = match typed.free.pop() {
            Some(row) => {
                typed.values[row as usize] = value;
                typed.ids[row as usize] = id;
                row
            }
            None => {
                typed.values.push(value);
                typed.ids.push(id);
                typed.values.len() as u32 - 1
            }
        };
        let index = id.index as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, Place::default());
        }
        let touched = self.places[index].touched;
        self.places[index] = Place { arena, generation: id.generation, row, alive: true, touched };
    }

    pub(crate) fn get<T: Replicate>(&self, id: ObjectId) -> Option<&T> {
        let place = self.place(id)?;
        let typed: &TypedArena<T> = self.arenas[usize::from(place.arena)].as_any().downcast_ref()?;
        typed.values.get(place.row as usize)
    }

    /// Writes the value of an object as it is now. False if it has none.
    pub(crate) fn quantise(&self, id: ObjectId, to: ValuesMut<'_>) -> bool {
        let Some(place) = self.place(id) else { return false };
        self.arenas[usize::from(place.arena)].quantise(place.row, to);
        true
    }

    /// The value, marked as touched.
    pub(crate) fn touch<T: Replicate>(&mut self, id: ObjectId) -> Option<&mut T> {
        let place = self.place(id)?;
        let typed: &mut TypedArena<T> = self.arenas[usize::from(place.arena)].as_any_mut().downcast_mut()?;
        if !place.touched {
            self.places[id.index as usize].touched = true;
            self.touched.push(id.index);
        }
        typed.values.get_mut(place.row as usize)
    }

    /// All values of a type, by row.
    pub(crate) fn all<T: Replicate>(&self) -> impl Iterator<Item = (ObjectId, &T)> {
        let arena = self.by_type.get(&TypeId::of::<T>()).map(|&arena| &self.arenas[usize::from(arena)]);
        let typed: Option<&TypedArena<T>> = arena.and_then(|arena| arena.as_any().downcast_ref());
        let rows = typed.into_iter().flat_map(|typed| typed.ids.iter().copied().zip(&typed.values));
        rows.filter(|&(id, _)| id != ObjectId::NONE)
    }

    /// The same, each marked as touched when the iterator comes to it.
    pub(crate) fn touch_all<T: Replicate>(&mut self) -> impl Iterator<Item = (ObjectId, &mut T)> {
        let Values { arenas, by_type, places, touched } = self;
        let arena = by_type.get(&TypeId::of::<T>()).map(|&arena| &mut arenas[usize::from(arena)]);
        let typed: Option<&mut TypedArena<T>> = arena.and_then(|arena| arena.as_any_mut().downcast_mut());
        let rows = typed.into_iter().flat_map(|typed| typed.ids.iter().copied().zip(&mut typed.values));
        rows.filter(|&(id, _)| id != ObjectId::NONE).inspect(|&(id, _)| {
            let place = &mut places[id.index as usize];
            if !std::mem::replace(&mut place.touched, true) {
                touched.push(id.index);
            }
        })
    }

    pub(crate) fn remove(&mut self, id: ObjectId) {
        if let Some(place) = self.place(id) {
            self.places[id.index as usize].alive = false;
            self.arenas[usize::from(place.arena)].remove(place.row);
        }
    }

    /// The objects that were touched since the last call, by index, in the order in which they were touched first. To be
    /// given [back](Self::give_back) when they are committed.
    pub(crate) fn take_touched(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.touched)
    }

    /// The value of a touched object, if it is still there. It counts as touched no longer.
    pub(crate) fn commit(&mut self, index: u32) -> Option<Committed<'_>> {
        let place = &mut self.places[index as usize];
        place.touched = false;
        let id = ObjectId { index, generation: place.generation };
        place.alive.then(|| Committed { id, arena: &*self.arenas[usize::from(place.arena)], row: place.row })
    }

    /// Keeps the memory of the list.
    pub(crate) fn give_back(&mut self, mut touched: Vec<u32>) {
        touched.clear();
        self.touched = touched;
    }

    fn place(&self, id: ObjectId) -> Option<Place> {
        let place = self.places.get(id.index as usize)?;
        (place.alive && place.generation == id.generation).then_some(*place)
    }

    fn arena_of<T: Replicate>(&mut self) -> u16 {
        let arenas = &mut self.arenas;
        *self.by_type.entry(TypeId::of::<T>()).or_insert_with(|| {
            arenas.push(Box::new(TypedArena::<T> { values: Vec::new(), ids: Vec::new(), free: Vec::new() }));
            arenas.len() as u16 - 1
        })
    }
}
