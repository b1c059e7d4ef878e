//! The entities: a channel each, in at most one cell of the world.

use std::collections::BTreeSet;

use bytes::Bytes;
use rustc_hash::FxHashMap;

use super::pace::EntityPace;
use super::position::Positions;
use super::unborn::Unborn;
use crate::group::{EntityGroupLimits, EntityGroups};
use crate::snapshot::EntityData;

/// The engine's data about an entity, beside its channel.
#[derive(Clone, Debug, Default)]
pub(super) struct Entity {
    /// The cell that lists it, or will once it exists.
    cell: Option<u32>,
    /// The encoded `UnrealObjectRef` of its SPAWN; empty if there was none.
    pub(super) object: Bytes,
    pub(super) pace: EntityPace,
    pub(super) is_well_known: bool,
}

impl Entity {
    /// For a snapshot.
    pub(super) fn to_record(&self) -> EntityData {
        EntityData { cell: self.cell, object: self.object.clone(), is_well_known: self.is_well_known }
    }

    pub(super) fn cell(&self) -> Option<u32> {
        self.cell
    }
}

/// All entities of an engine, by the ids of their channels.
pub(super) struct Entities {
    rows: FxHashMap<u32, Entity>,
    /// Those that cells list, by cell.
    by_cell: FxHashMap<u32, BTreeSet<u32>>,
    /// Those that are listed in another cell than the one in which they stand: what keeps them there may end.
    strays: BTreeSet<u32>,
    /// Those that were spawned and have no channel yet.
    pub(super) unborn: Unborn,
    /// Where states of each type say where an entity is.
    pub(super) positions: Positions,
    /// Those that change cells together.
    pub(super) groups: EntityGroups,
}

impl Entities {
    pub(super) fn new(limits: EntityGroupLimits) -> Entities {
        Entities {
            rows: FxHashMap::default(),
            by_cell: FxHashMap::default(),
            strays: BTreeSet::new(),
            unborn: Unborn::default(),
            positions: Positions::default(),
            groups: EntityGroups::new(limits),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn has(&self, id: u32) -> bool {
        self.rows.contains_key(&id)
    }

    pub(super) fn get(&self, id: u32) -> Option<&Entity> {
        self.rows.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Entity> {
        self.rows.get_mut(&id)
    }

    /// The entity of this id, new if there is none.
    pub(super) fn get_or_add(&mut self, id: u32) -> &mut Entity {
        self.rows.entry(id).or_default()
    }

    /// All of them, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Entity)> {
        self.rows.iter().map(|(&id, entity)| (id, entity))
    }

    /// The cell that lists an entity.
    pub(super) fn cell_of(&self, id: u32) -> Option<u32> {
        self.rows.get(&id)?.cell
    }

    /// The encoded object reference of an entity, for connections that need it.
    pub(super) fn object_of(&self, id: u32) -> Bytes {
        self.rows.get(&id).map(|entity| entity.object.clone()).unwrap_or_default()
    }

    /// Whether it is an object that a server has spawned.
    pub(super) fn is_spawned(&self, id: u32) -> bool {
        self.rows.get(&id).is_some_and(|entity| !entity.object.is_empty())
    }

    /// An entity is listed in this cell from now on, or in none. Returns where it was listed. It is new if it was not there
    /// and a cell lists it.
    pub(super) fn put_into(&mut self, id: u32, cell: Option<u32>) -> Option<u32> {
        let entity = match cell {
            Some(_) => self.get_or_add(id),
            None => self.rows.get_mut(&id)?,
        };
        let former = std::mem::replace(&mut entity.cell, cell);
        if let Some(former) = former
            && let Some(there) = self.by_cell.get_mut(&former)
        {
            there.remove(&id);
            if there.is_empty() {
                self.by_cell.remove(&former);
            }
        }
        if let Some(cell) = cell {
            self.by_cell.entry(cell).or_default().insert(id);
        }
        former
    }

    /// Those that a cell lists, in ascending order.
    pub(super) fn in_cell(&self, cell: u32) -> Vec<u32> {
        self.by_cell.get(&cell).into_iter().flatten().copied().collect()
    }

    /// An entity stands in this cell, or nowhere. Remembers it if another cell lists it.
    pub(super) fn note_place(&mut self, id: u32, at: Option<u32>) {
        let listed = self.cell_of(id);
        match listed.is_some() && at.is_some() && listed != at {
            true => _ = self.strays.insert(id),
            false => _ = self.strays.remove(&id),
        }
    }

    /// Those that stand in another cell than the one that lists them, in ascending order.
    pub(super) fn strays(&self) -> impl Iterator<Item = u32> + '_ {
        self.strays.iter().copied()
    }

    /// Whether it stands in another cell than the one that lists it.
    pub(super) fn is_astray(&self, id: u32) -> bool {
        self.strays.contains(&id)
    }

    /// It stands in the cell that lists it.
    pub(super) fn has_come_home(&mut self, id: u32) {
        self.strays.remove(&id);
    }

    /// Forgets an entity that no cell lists.
    pub(super) fn remove(&mut self, id: u32) -> Option<Entity> {
        self.strays.remove(&id);
        self.rows.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_is_in_one_cell_at_most_and_astray_as_long_as_it_stands_in_another() {
        let mut entities = Entities::new(EntityGroupLimits::default());
        assert_eq!(entities.put_into(7, None), None);
        assert!(!entities.has(7), "an entity that is in no cell is not made by saying so");
        assert_eq!((entities.put_into(7, Some(1)), entities.put_into(7, Some(2))), (None, Some(1)));
        assert_eq!((entities.in_cell(1), entities.in_cell(2)), (vec![], vec![7]));
        let strays = |entities: &Entities| entities.strays().collect::<Vec<_>>();
        entities.note_place(7, Some(3));
        assert_eq!(strays(&entities), [7]);
        entities.note_place(7, None);
        assert!(strays(&entities).is_empty(), "nobody knows where it stands");
        entities.note_place(7, Some(3));
        entities.put_into(7, None);
        assert_eq!((entities.in_cell(2), entities.remove(7).is_some()), (vec![], true));
        assert!(strays(&entities).is_empty() && entities.by_cell.is_empty());
    }
}
