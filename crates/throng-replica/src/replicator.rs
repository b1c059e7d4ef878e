//! The server half for objects: the store, the hub, and which facet lives in which channel.

use std::sync::Arc;

use throng_schema::{Facet, FieldMask, Schema, ValuesMut};
use throng_wire::{ConnectionId, KindId, ObjectId, Tick};

use crate::encode::ENTRY_MAX_BYTES;
use crate::grid::{CellGrid, GridError, GridShape};
use crate::hub::{ChannelIndex, Executor, Hub};
use crate::key::ChannelKey;
use crate::limits::{HubLimits, LimitReached};
use crate::log::ObjectLog;
use crate::store::{Home, ObjectStore};

/// Where the public facet of an object lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In the cell of grid number `0` that its position lies in. For crowds.
    Cell(u8),
    /// In a channel of its own, so that each viewer can be let in one by one. For hidden or rare things.
    Entity,
    /// In this channel, wherever it stands.
    Channel(ChannelKey),
}

/// Sizes and times of a [`Replicator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicatorOptions {
    /// Bounds of the hub.
    pub limits: HubLimits,
    /// Objects at once; at most 2^24.
    pub objects: usize,
    /// How long a slot of a channel rests after its occupant has gone, and tombstones are kept. Longer serves slower
    /// clients without complete frames, shorter keeps slot numbers small.
    pub retention_ticks: u32,
    /// The tick before the first.
    pub first_tick: Tick,
}

impl Default for ReplicatorOptions {
    fn default() -> ReplicatorOptions {
        ReplicatorOptions { limits: HubLimits::default(), objects: 1 << 20, retention_ticks: 256, first_tick: Tick(0) }
    }
}

/// What happened at the last commit; for the embedder that keeps subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// A facet began to live in a channel.
    Entered {
        /// The object's index in the store.
        object: u32,
        /// The facet.
        facet: Facet,
        /// The channel.
        channel: ChannelIndex,
    },
    /// A facet left a channel.
    Left {
        /// The object's index in the store.
        object: u32,
        /// The facet.
        facet: Facet,
        /// The channel.
        channel: ChannelIndex,
    },
}

/// Objects, channels and connections of one server.
///
/// Call in each tick, in this order: [`begin_tick`](Self::begin_tick); any number of spawns, updates, placements,
/// despawns and subscriptions; [`plan`](Self::plan); [`encode`](Self::encode); then write through
/// [`hub`](Self::hub).
#[derive(Debug)]
pub struct Replicator {
    store: ObjectStore,
    hub: Hub<ObjectLog>,
    /// By object index.
    ownership: Vec<Ownership>,
    placed: Vec<Placed>,
    retention_ticks: u32,
    now: Tick,
}

/// A kind whose facet does not fit into a packet. Our side's mistake: shorten its texts and byte lists, or send what is
/// long as messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kind {kind}: its {facet:?} fields can take {bytes} bytes together, and {ENTRY_MAX_BYTES} is the limit")]
pub struct EntryTooLong {
    /// The kind.
    pub kind: &'static str,
    /// The facet.
    pub facet: Facet,
    /// The most bytes that its fields can take.
    pub bytes: u64,
}

fn check_entries(schema: &Schema) -> Result<(), EntryTooLong> {
    for kind in schema.kinds() {
        for facet in Facet::ALL {
            let bytes = kind.max_bits(kind.facet_mask(facet)).div_ceil(8) + ENTRY_HEAD_BYTES;
            if bytes > ENTRY_MAX_BYTES as u64 {
                return Err(EntryTooLong { kind: kind.name, facet, bytes });
            }
        }
    }
    Ok(())
}

/// Slot, id and mask of an entry at their longest.
const ENTRY_HEAD_BYTES: u64 = 20;

#[derive(Clone, Copy, Debug)]
struct Ownership {
    placement: Placement,
    owner: Option<ConnectionId>,
}

impl Replicator {
    /// A replicator without objects.
    ///
    /// Fails if the fields of one facet of a kind can be longer than a packet holds.
    pub fn new(schema: Arc<Schema>, options: ReplicatorOptions) -> Result<Replicator, EntryTooLong> {
        check_entries(&schema)?;
        Ok(Replicator {
            store: ObjectStore::new(schema, options.objects.min(1 << 24)),
            hub: Hub::new(options.limits, options.first_tick),
            ownership: Vec::new(),
            placed: Vec::new(),
            retention_ticks: options.retention_ticks.max(1),
            now: options.first_tick,
        })
    }

    /// Adds a grid of cells; the first is number 0. Both sides must add grids of the same shapes.
    pub fn add_grid(&mut self, shape: GridShape) -> Result<u8, GridError> {
        let grid = CellGrid::new(shape, self.store.schema())?;
        Ok(self.add_cell_grid(grid))
    }

    /// Adds a grid for a world that ends: see [`CellGrid::bounded`].
    pub fn add_bounded_grid(&mut self, shape: GridShape, min: [i32; 3], max: [i32; 3]) -> Result<u8, GridError> {
        let grid = CellGrid::new(shape, self.store.schema())?.bounded(min, max);
        Ok(self.add_cell_grid(grid))
    }

    fn add_cell_grid(&mut self, grid: CellGrid) -> u8 {
        self.store.add_grid(grid);
        self.store.grids().len() as u8 - 1
    }

    /// The objects' quantised state.
    pub fn store(&self) -> &ObjectStore {
        &self.store
    }

    /// Channels and connections.
    pub fn hub(&mut self) -> &mut Hub<ObjectLog> {
        &mut self.hub
    }

    /// Channels and connections, to look at.
    pub fn hub_ref(&self) -> &Hub<ObjectLog> {
        &self.hub
    }

    /// The tick that changes made now will belong to.
    pub fn now(&self) -> Tick {
        self.now
    }

    /// Opens the next tick: all changes up to [`plan`](Self::plan) are of this tick.
    pub fn begin_tick(&mut self) -> Tick {
        self.now = self.now.after(1);
        self.placed.clear();
        self.now
    }

    /// The comings and goings of this tick, in order.
    pub fn placed(&self) -> &[Placed] {
        &self.placed
    }

    /// Adds an object. `quantise` writes its first values.
    pub fn spawn(
        &mut self,
        kind: KindId,
        placement: Placement,
        owner: Option<ConnectionId>,
        quantise: impl FnOnce(ValuesMut<'_>),
    ) -> Result<ObjectId, LimitReached> {
        let id = self.store.spawn(kind, self.now)?;
        let index = id.index as usize;
        if self.ownership.len() <= index {
            self.ownership.resize(index + 1, Ownership { placement, owner });
        }
        self.ownership[index] = Ownership { placement, owner };
        self.store.update(id.index, self.now, quantise);
        if let Err(error) = self.place_all(id) {
            self.despawn(id);
            return Err(error);
        }
        Ok(id)
    }

    /// Quantises an object anew and notes which fields differ. Returns them.
    pub fn update(&mut self, id: ObjectId, quantise: impl FnOnce(ValuesMut<'_>)) -> Result<FieldMask, LimitReached> {
        if !self.store.contains(id) {
            return Ok(0);
        }
        let mask = self.store.update(id.index, self.now, quantise);
        if mask == 0 {
            return Ok(0);
        }
        let kind = self.store.kind(id.index);
        let moved = kind.position.is_some_and(|position| mask >> position & 1 == 1);
        let lasting = mask & !kind.initial_only_mask();
        let touched = Facet::ALL.map(|facet| lasting & kind.facet_mask(facet) != 0);
        for facet in Facet::ALL {
            if let Some(home) = self.store.home(id.index, facet)
                && touched[facet.index()]
            {
                self.hub.state_mut(ChannelIndex(home.channel)).touch(home.slot, self.now);
            }
        }
        if moved && let Placement::Cell(_) = self.ownership[id.index as usize].placement {
            self.place(id, Facet::Public)?;
        }
        Ok(mask)
    }

    /// Moves the object's public facet to where `placement` says.
    pub fn set_placement(&mut self, id: ObjectId, placement: Placement) -> Result<(), LimitReached> {
        if !self.store.contains(id) {
            return Ok(());
        }
        self.ownership[id.index as usize].placement = placement;
        self.place(id, Facet::Public)
    }

    /// Gives the object to another connection, or to none.
    pub fn set_owner(&mut self, id: ObjectId, owner: Option<ConnectionId>) -> Result<(), LimitReached> {
        if !self.store.contains(id) {
            return Ok(());
        }
        self.ownership[id.index as usize].owner = owner;
        self.place(id, Facet::Owner)
    }

    /// Who owns the object.
    pub fn owner(&self, id: ObjectId) -> Option<ConnectionId> {
        self.store.contains(id).then(|| self.ownership[id.index as usize].owner).flatten()
    }

    /// Ends an object. Its id is not used again for a long time.
    pub fn despawn(&mut self, id: ObjectId) {
        if !self.store.contains(id) {
            return;
        }
        for facet in Facet::ALL {
            self.leave(id.index, facet, true);
        }
        self.store.despawn(id);
    }

    /// The channel with this key, made if there is none.
    pub fn channel(&mut self, key: ChannelKey) -> Result<ChannelIndex, LimitReached> {
        let (retention_ticks, now) = (self.retention_ticks, self.now);
        let cell = match key {
            ChannelKey::Cell { grid, cell } => Some((grid, cell)),
            _ => None,
        };
        self.hub.channel_or_insert(key, || ObjectLog::new(cell, retention_ticks, now))
    }

    /// The channel in which a facet of an object lives at the moment.
    pub fn home(&self, id: ObjectId, facet: Facet) -> Option<ChannelIndex> {
        self.store.contains(id).then(|| self.store.home(id.index, facet)).flatten().map(|h| ChannelIndex(h.channel))
    }

    /// Removes some of the channels that are idle, going round. Call once per tick.
    pub fn sweep(&mut self, channels: usize) {
        let now = self.now;
        self.hub.sweep(channels, |log| log.is_idle(now));
    }

    /// Decides what is due and asks for the frames.
    pub fn plan(&mut self) {
        self.hub.plan(self.now);
    }

    /// Encodes the frames asked for.
    pub fn encode(&mut self, executor: &impl Executor) {
        self.hub.encode(&self.store, executor);
    }

    /// A packet was taken for lost.
    pub fn lost(&mut self, id: ConnectionId, sequence: u64) {
        self.hub.lost(&self.store, id, sequence);
    }

    fn place_all(&mut self, id: ObjectId) -> Result<(), LimitReached> {
        Facet::ALL.into_iter().try_for_each(|facet| self.place(id, facet))
    }

    /// Moves one facet to the channel where it belongs now.
    fn place(&mut self, id: ObjectId, facet: Facet) -> Result<(), LimitReached> {
        let home = self.store.home(id.index, facet);
        let wanted = self.wanted_channel(id, facet);
        if home.map(|home| self.hub.key(ChannelIndex(home.channel))) == wanted {
            return Ok(());
        }
        let target = wanted.map(|key| self.channel(key)).transpose()?;
        self.leave(id.index, facet, false);
        if let Some(channel) = target {
            let slot = self.hub.state_mut(channel).enter(id.index, facet, self.now);
            self.store.entry_mut(id.index).homes[facet.index()] = Some(Home { channel: channel.0, slot });
            self.placed.push(Placed::Entered { object: id.index, facet, channel });
        }
        Ok(())
    }

    fn leave(&mut self, object: u32, facet: Facet, destroyed: bool) {
        if let Some(home) = self.store.entry_mut(object).homes[facet.index()].take() {
            let channel = ChannelIndex(home.channel);
            self.hub.state_mut(channel).leave(home.slot, destroyed, self.now);
            self.placed.push(Placed::Left { object, facet, channel });
        }
    }

    fn wanted_channel(&self, id: ObjectId, facet: Facet) -> Option<ChannelKey> {
        let kind = self.store.kind(id.index);
        let Ownership { placement, owner } = self.ownership[id.index as usize];
        if facet != Facet::Public && kind.facet_mask(facet) == 0 {
            return None;
        }
        match facet {
            Facet::Owner => owner.map(ChannelKey::Owner),
            Facet::Others => Some(ChannelKey::Entity { object: id, facet }),
            Facet::Public => Some(match placement {
                Placement::Cell(grid) => self.cell_key(id.index, grid),
                Placement::Entity => ChannelKey::Entity { object: id, facet },
                Placement::Channel(key) => key,
            }),
        }
    }

    fn cell_key(&self, object: u32, grid: u8) -> ChannelKey {
        let present =
            self.store.home(object, Facet::Public).and_then(|home| match self.hub.key(ChannelIndex(home.channel)) {
                ChannelKey::Cell { grid: present, cell } if present == grid => Some(cell),
                _ => None,
            });
        let position = self.store.position(object).unwrap_or([0; 3]);
        let kind = usize::from(self.store.kind_id(object).0);
        let cell = self.store.grids()[usize::from(grid)].cell_of(kind, position, present);
        ChannelKey::Cell { grid, cell }
    }
}
