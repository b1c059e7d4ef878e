//! The objects of a model: their quantised values, and where they are.
//!
//! The game's own values are behind the library; what stands here is the copy that models look at. Data that all models
//! read for every connection is in separate arrays, by object index.

use std::sync::Arc;

use throng::replica::{Layers, LimitReached, Placement};
use throng::schema::{FieldMask, Kind, Schema, Values, ValuesMut};
use throng::{ChannelKey, ConnectionId, Facet, GridOptions, GridShape, ObjectId, Replicated, Ring, Tick};
use throng_wire::KindId;

use crate::arena::Arena;
use crate::record::max_bits;

/// No connection: its index is above every other.
pub(crate) const NOBODY: u32 = u32::MAX;

/// How an object is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// It does not exist.
    Nowhere,
    /// By its distance, in grid number `0`.
    Place(u8),
    /// By the name of its channel.
    Named(ChannelKey),
}

/// Where an object's values are, and who owns it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    generation: u32,
    kind: KindId,
    row: u32,
    owner: Option<ConnectionId>,
}

/// All objects of a server.
#[derive(Debug)]
pub struct World {
    schema: Arc<Schema>,
    kinds: Vec<KindFacts>,
    grids: Vec<GridOptions>,
    reaches: Vec<Reach>,
    limit: usize,
    now: Tick,
    entries: Vec<Entry>,
    free: Vec<u32>,
    arenas: Vec<Arena>,
    /// In metres, by object index.
    positions_m: Vec<[f32; 3]>,
    scopes: Vec<Scope>,
    /// Connection indices.
    owners: Vec<u32>,
    /// When the game last touched each object.
    marked: Vec<Tick>,
}

impl World {
    pub(crate) fn new(schema: &Arc<Schema>, grids: Vec<GridOptions>, limit: usize, first_tick: Tick) -> World {
        World {
            schema: Arc::clone(schema),
            kinds: schema.kinds().iter().map(|kind| KindFacts::of(schema, kind)).collect(),
            reaches: grids.iter().map(Reach::of).collect(),
            grids,
            limit: limit.min(1 << 24),
            now: first_tick.after(1),
            entries: Vec::new(),
            free: Vec::new(),
            arenas: schema.kinds().iter().map(Arena::new).collect(),
            positions_m: Vec::new(),
            scopes: Vec::new(),
            owners: Vec::new(),
            marked: Vec::new(),
        }
    }

    pub(crate) fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    pub(crate) fn now(&self) -> Tick {
        self.now
    }

    pub(crate) fn end_tick(&mut self) {
        self.now = self.now.after(1);
    }

    /// Above every object index in use.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn spawn(
        &mut self,
        kind: KindId,
        placement: Placement,
        owner: Option<ConnectionId>,
        quantise: impl FnOnce(ValuesMut<'_>),
    ) -> Result<ObjectId, LimitReached> {
        if self.free.is_empty() && self.entries.len() >= self.limit {
            return Err(LimitReached::Objects(self.limit));
        }
        let row = self.arenas[usize::from(kind.0)].take_row(self.schema.kind(kind));
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.entries.push(Entry { generation: 0, kind, row, owner });
                self.positions_m.push([0.0; 3]);
                self.scopes.push(Scope::Nowhere);
                self.owners.push(NOBODY);
                self.marked.push(self.now);
                self.entries.len() as u32 - 1
            }
        };
        let entry = &mut self.entries[index as usize];
        *entry = Entry { generation: entry.generation.wrapping_add(1), kind, row, owner };
        let id = ObjectId { index, generation: entry.generation };
        self.set_owner(id, owner);
        self.scopes[index as usize] = scope_of(id, placement);
        self.update(id, quantise);
        Ok(id)
    }

    /// Takes over what the game says the values are now. Returns the fields that differ from before.
    pub(crate) fn update(&mut self, id: ObjectId, quantise: impl FnOnce(ValuesMut<'_>)) -> FieldMask {
        let index = id.index as usize;
        let Entry { kind, row, .. } = self.entries[index];
        let arena = &mut self.arenas[usize::from(kind.0)];
        let kind = self.schema.kind(kind);
        let mask = arena.update(kind, row, quantise);
        self.marked[index] = self.now;
        if let (Some(field), Some(step_m)) = (kind.position, arena.step_m()) {
            let word = usize::from(kind.fields[field].word);
            let words = &arena.values(kind, row).words[word..word + 3];
            self.positions_m[index] = std::array::from_fn(|axis| (f64::from(words[axis] as i32) * step_m) as f32);
        }
        mask
    }

    pub(crate) fn despawn(&mut self, id: ObjectId) {
        let entry = self.entries[id.index as usize];
        self.arenas[usize::from(entry.kind.0)].free_row(entry.row);
        self.scopes[id.index as usize] = Scope::Nowhere;
        self.owners[id.index as usize] = NOBODY;
        self.free.push(id.index);
    }

    pub(crate) fn set_owner(&mut self, id: ObjectId, owner: Option<ConnectionId>) {
        self.entries[id.index as usize].owner = owner;
        self.owners[id.index as usize] = owner.map_or(NOBODY, |owner| owner.index);
    }

    pub(crate) fn set_placement(&mut self, id: ObjectId, placement: Placement) {
        self.scopes[id.index as usize] = scope_of(id, placement);
    }

    pub(crate) fn contains(&self, id: ObjectId) -> bool {
        let entry = self.entries.get(id.index as usize);
        entry.is_some_and(|entry| entry.generation == id.generation) && self.is_alive(id.index)
    }

    pub(crate) fn placement(&self, id: ObjectId) -> Option<Placement> {
        match self.scope(id.index) {
            Scope::Nowhere => None,
            Scope::Place(grid) => Some(Placement::Cell(grid)),
            Scope::Named(ChannelKey::Entity { object, facet: Facet::Public }) if object == id => {
                Some(Placement::Entity)
            }
            Scope::Named(key) => Some(Placement::Channel(key)),
        }
    }

    pub(crate) fn is_alive(&self, index: u32) -> bool {
        self.scopes[index as usize] != Scope::Nowhere
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ObjectId> + '_ {
        (0..self.entries.len() as u32).filter(|&index| self.is_alive(index)).map(|index| self.id_at(index))
    }

    pub(crate) fn id_at(&self, index: u32) -> ObjectId {
        ObjectId { index, generation: self.entries[index as usize].generation }
    }

    pub(crate) fn object(&self, id: ObjectId) -> Option<Replicated<'_>> {
        self.contains(id).then(|| self.placement(id)).flatten().map(|placement| {
            let Entry { kind, owner, .. } = self.entries[id.index as usize];
            Replicated { kind, owner, placement, values: self.values(id.index) }
        })
    }

    pub(crate) fn kind_id(&self, index: u32) -> KindId {
        self.entries[index as usize].kind
    }

    pub(crate) fn kind(&self, index: u32) -> &Kind {
        self.schema.kind(self.kind_id(index))
    }

    pub(crate) fn values(&self, index: u32) -> Values<'_> {
        let Entry { kind, row, .. } = self.entries[index as usize];
        self.arenas[usize::from(kind.0)].values(self.schema.kind(kind), row)
    }

    #[inline]
    pub(crate) fn position_m(&self, index: u32) -> &[f32; 3] {
        &self.positions_m[index as usize]
    }

    pub(crate) fn scope(&self, index: u32) -> Scope {
        self.scopes[index as usize]
    }

    /// When the game last touched the object.
    pub(crate) fn marked(&self, index: u32) -> Tick {
        self.marked[index as usize]
    }

    /// Whether the connection owns the object.
    pub(crate) fn is_owner(&self, index: u32, connection: ConnectionId) -> bool {
        self.owners[index as usize] == connection.index && self.entries[index as usize].owner == Some(connection)
    }

    /// The fields that a connection may be sent: those for everybody, and those for the owner or for all others.
    pub(crate) fn visible(&self, index: u32, is_owner: bool) -> FieldMask {
        self.kinds[usize::from(self.kind_id(index).0)].visible[usize::from(is_owner)]
    }

    /// The most bits that a record of an object of this kind takes.
    #[inline]
    pub(crate) fn record_max_bits(&self, kind: KindId) -> u32 {
        self.kinds[usize::from(kind.0)].record_max_bits
    }

    /// The connection that owns the object, by its index; [`NOBODY`] if none does.
    #[inline]
    pub(crate) fn owner_index(&self, index: u32) -> u32 {
        self.owners[index as usize]
    }

    /// How far viewers see in a grid.
    #[inline]
    pub(crate) fn reach(&self, grid: u8) -> &Reach {
        &self.reaches[usize::from(grid)]
    }

    /// A grid's cells and rings.
    pub(crate) fn grid(&self, grid: u8) -> &GridOptions {
        &self.grids[usize::from(grid)]
    }

    /// Number of grids.
    pub(crate) fn grid_count(&self) -> usize {
        self.grids.len()
    }

    /// The cell that a position lies in.
    pub(crate) fn cell_of(&self, grid: u8, position_m: &[f32; 3]) -> [i32; 3] {
        let GridShape { cell_m, layers, .. } = self.grid(grid).shape;
        let axes = if layers == Layers::Single { 2 } else { 3 };
        std::array::from_fn(|axis| match axis < axes {
            true => (f64::from(position_m[axis]) / cell_m[axis]).floor() as i32,
            false => 0,
        })
    }
}

/// The fields that the owner is sent.
fn owner_mask(kind: &Kind) -> FieldMask {
    kind.own_mask() & !kind.skip_owner_mask()
}

/// The fields that only the owner is sent, or only everybody else.
pub(crate) fn role_mask(kind: &Kind, is_owner: bool) -> FieldMask {
    match is_owner {
        true => kind.facet_mask(Facet::Owner),
        false => kind.facet_mask(Facet::Others) | kind.skip_owner_mask(),
    }
}

/// The part of a kind that is needed for every object and connection.
#[derive(Clone, Copy, Debug)]
struct KindFacts {
    /// The fields that everybody but the owner may be sent, and those for the owner.
    visible: [FieldMask; 2],
    record_max_bits: u32,
}

impl KindFacts {
    fn of(schema: &Schema, kind: &Kind) -> KindFacts {
        let visible = [kind.facet_mask(Facet::Public) | kind.facet_mask(Facet::Others), owner_mask(kind)];
        KindFacts { visible, record_max_bits: max_bits(schema, kind) }
    }
}

/// How far a viewer sees in one grid.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    /// 1 for the axes that count, 0 for the others.
    pub(crate) axes: [f32; 3],
    /// Up to here an object comes into sight, in metres.
    pub(crate) enter_m: f32,
    /// Beyond this distance a visible object goes out of sight, so that objects at the border do not flicker.
    pub(crate) leave_m: f32,
    /// Of each ring, from the innermost on: its squared radius, and the ticks between two updates in it.
    rings: Vec<(f32, u32)>,
}

/// How much farther an object stays in sight than it comes into it.
const LEAVE_FACTOR: f32 = 1.1;

impl Reach {
    fn of(grid: &GridOptions) -> Reach {
        let enter_m = grid.rings.last().map_or(0.0, |ring| ring.radius_m as f32);
        let height = if grid.shape.layers == Layers::Single { 0.0 } else { 1.0 };
        let ring = |ring: &Ring| ((ring.radius_m * ring.radius_m) as f32, ring.interval_ticks.max(1));
        let rings = grid.rings.iter().map(ring).collect();
        Reach { axes: [1.0, 1.0, height], enter_m, leave_m: enter_m * LEAVE_FACTOR, rings }
    }

    /// Ticks between two updates at any distance, if that is the same everywhere.
    #[inline]
    pub(crate) fn only_interval_ticks(&self) -> Option<u32> {
        match self.rings[..] {
            [] => Some(1),
            [(_, interval_ticks)] => Some(interval_ticks),
            _ => None,
        }
    }

    /// Ticks between two updates at a squared distance.
    #[inline]
    pub(crate) fn interval_ticks(&self, distance2: f32) -> u32 {
        let ring = self.rings.iter().find(|(radius2, _)| distance2 <= *radius2).or(self.rings.last());
        ring.map_or(1, |(_, interval_ticks)| *interval_ticks)
    }

    /// Squared distance, in square metres. By reference: a copy is written as one and a half words and read as another one
    /// and a half, which processors cannot forward from the store, and this is asked for every object and connection.
    #[inline]
    pub(crate) fn distance2(&self, a: &[f32; 3], b: &[f32; 3]) -> f32 {
        (0..3).map(|axis| (a[axis] - b[axis]) * (a[axis] - b[axis]) * self.axes[axis]).sum()
    }
}

fn scope_of(id: ObjectId, placement: Placement) -> Scope {
    match placement {
        Placement::Cell(grid) => Scope::Place(grid),
        Placement::Entity => Scope::Named(ChannelKey::Entity { object: id, facet: Facet::Public }),
        Placement::Channel(key) => Scope::Named(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_object_takes_no_row() {
        let mut world = World::new(&throng_testkit::schema(), Vec::new(), 1, Tick(0));
        let spawn = |world: &mut World| world.spawn(KindId(0), Placement::Entity, None, |_| ());
        assert!(spawn(&mut world).is_ok());
        assert!(spawn(&mut world).is_err() && spawn(&mut world).is_err());
        let schema = Arc::clone(&world.schema);
        assert_eq!(world.arenas[0].take_row(schema.kind(KindId(0))), 1, "the row after the only one in use");
    }
}
