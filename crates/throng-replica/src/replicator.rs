//! The server half for objects: the store, the hub, and which facet lives in which channel.

use std::sync::Arc;

use throng_schema::{Facet, FieldMask, Kind, Schema, ValuesMut};
use throng_wire::{ConnectionId, KindId, ObjectId, Tick};

use crate::encode::ENTRY_MAX_BYTES;
use crate::grid::{CellGrid, GridError, GridShape, Layers};
use crate::hub::{ChannelIndex, Executor, Hub, Inline};
use crate::key::ChannelKey;
use crate::limits::{HubLimits, LimitReached};
use crate::log::{Fate, MOVE_MAX_CELLS, ObjectLog, SLOTS_MAX};
use crate::own::ObjectsOutgoing;
use crate::reader::ConnectionSlot;
use crate::rows::{RowChanges, SubscriberRow};
use crate::store::{Home, ObjectStore, Updated};

/// Where the public facet of an object lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In the cell of grid number `0` that its position lies in. For crowds.
    Cell(u8),
    /// In a separate channel, so that each viewer can be subscribed one by one. For hidden or rare things.
    Entity,
    /// In this channel, wherever it stands.
    Channel(ChannelKey),
}

/// The longest [`ReplicatorOptions::retention_ticks`]: eighteen minutes at 60 ticks per second.
pub const RETENTION_TICKS_MAX: u32 = 65_536;

/// Sizes and times of a [`Replicator`].
///
/// ```
/// # use throng_replica::{HubLimits, ReplicatorOptions};
/// # use throng_wire::Tick;
/// let defaults = ReplicatorOptions::default();
/// assert_eq!(defaults.limits, HubLimits::default());
/// assert_eq!(defaults.objects, 1 << 20);
/// assert_eq!(defaults.retention_ticks, 256);
/// assert_eq!(defaults.first_tick, Tick(0));
/// assert_eq!(defaults.tick_interval_us, 33_333);
/// assert!(!defaults.saves_memory);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicatorOptions {
    /// Bounds of the hub.
    pub limits: HubLimits,
    /// Objects at once; at most 2^24.
    pub objects: usize,
    /// How long a slot of a channel rests after its occupant has gone, and tombstones are kept. Longer serves slower
    /// clients without complete frames, shorter keeps slot numbers small. At most [`RETENTION_TICKS_MAX`]. A subscription
    /// with an interval of more than half of it is planned and written for its client alone, and for no shared view.
    pub retention_ticks: u32,
    /// The tick before the first.
    pub first_tick: Tick,
    /// Microseconds from one tick to the next: positions with `predict` are reckoned by it, at clients too, so these must
    /// have the same. A `throng` server sets it from its own interval.
    pub tick_interval_us: u32,
    /// Lists that a connection or a channel needs only now and then are given back in between: for a join, a step into the next cell,
    /// a loss. So each step allocates again. A `throng` server sets it if it has more than 2,048 seats.
    pub saves_memory: bool,
}

/// The interval of ticks where nothing else is said: 30 ticks per second.
pub(crate) const TICK_INTERVAL_US: u32 = 33_333;

impl Default for ReplicatorOptions {
    fn default() -> ReplicatorOptions {
        ReplicatorOptions {
            limits: HubLimits::default(),
            objects: 1 << 20,
            retention_ticks: 256,
            first_tick: Tick(0),
            tick_interval_us: TICK_INTERVAL_US,
            saves_memory: false,
        }
    }
}

/// The results of the last commit, for the embedder that keeps subscriptions.
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
/// [`hub`](Self::hub). A change after `plan` belongs to the next tick.
#[derive(Debug)]
pub struct Replicator {
    store: ObjectStore,
    hub: Hub<ObjectLog>,
    /// By object index.
    ownership: Vec<Ownership>,
    placed: Vec<Placed>,
    /// Objects that a limit keeps in a channel where they do not belong any more: they are tried again each tick.
    misplaced: Vec<ObjectId>,
    /// By kind: why there can be no objects of it.
    too_long: Vec<Option<EntryTooLong>>,
    retention_ticks: u32,
    /// The grid in whose cells far facets live, and the number of channels that each of its cells has.
    far_grid: Option<(u8, u16)>,
    now: Tick,
}

/// A kind of which an audience's fields do not fit into a packet, so that there can be no objects of it; messages and
/// inputs can have any length. The owner's audience gets the public fields as well. Our side's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "objects of kind {kind} cannot be replicated: its fields for {} can take {bytes} bytes together, and \
     {ENTRY_MAX_BYTES} is the limit; shorten its texts and byte lists, or send it as a message",
    audience(*.facet)
)]
pub struct EntryTooLong {
    /// The kind.
    pub kind: &'static str,
    /// The facet of the audience.
    pub facet: Facet,
    /// The most bytes that its fields can take.
    pub bytes: u64,
}

fn audience(facet: Facet) -> &'static str {
    match facet {
        Facet::Public => "everybody",
        Facet::Owner => "the owner, the public ones included,",
        Facet::Others => "everybody but the owner",
        Facet::Far => "clients far away",
    }
}

impl EntryTooLong {
    /// Whether there can be objects of a kind.
    ///
    /// # Errors
    /// The first audience whose fields can be longer than a packet holds.
    pub fn check(kind: &Kind) -> Result<(), EntryTooLong> {
        for facet in Facet::ALL {
            let mask = if facet == Facet::Owner { kind.own_mask() } else { kind.facet_mask(facet) };
            let bytes = kind.max_bits(mask).div_ceil(8) + ENTRY_HEAD_BYTES;
            if bytes > ENTRY_MAX_BYTES as u64 {
                return Err(EntryTooLong { kind: kind.name, facet, bytes });
            }
        }
        Ok(())
    }
}

/// Slot, id and mask of an entry at their longest.
const ENTRY_HEAD_BYTES: u64 = 20;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ownership {
    placement: Placement,
    pub(crate) owner: Option<ConnectionId>,
    /// The object's number among those of its owner, if that is connected.
    place: Option<u32>,
    /// Where the public and the far facet lived before, newest first.
    former: [Option<FormerHome>; FORMER_HOMES],
}

#[derive(Clone, Copy, Debug)]
struct FormerHome {
    home: Home,
    left: Tick,
}

/// Channels that an object has left and that still have to learn its end. A client that has not received an earlier
/// leave gets the end in the last channel, or stops waiting for it.
const FORMER_HOMES: usize = 4;

/// For this many ticks after it left a channel, an object's end is written to that channel too. Later the end is
/// written only to the object's last channel, at that channel's turn.
const FORMER_TICKS: u32 = 64;

impl Ownership {
    fn new(placement: Placement, owner: Option<ConnectionId>) -> Ownership {
        Ownership { placement, owner, place: None, former: [None; FORMER_HOMES] }
    }
}

/// The owner of an object, by the table of owners; `None` too if there is no such object.
pub(crate) fn owner_of(store: &ObjectStore, ownership: &[Ownership], id: ObjectId) -> Option<ConnectionId> {
    if store.contains(id) { ownership[id.index as usize].owner } else { None }
}

impl Replicator {
    /// A replicator without objects.
    pub fn new(schema: Arc<Schema>, options: ReplicatorOptions) -> Replicator {
        let mut hub = Hub::new(options.limits, options.first_tick);
        hub.saves_memory = options.saves_memory;
        Replicator {
            too_long: schema.kinds().iter().map(|kind| EntryTooLong::check(kind).err()).collect(),
            store: ObjectStore::new(schema, options.objects.min(1 << 24), options.tick_interval_us),
            hub,
            ownership: Vec::new(),
            placed: Vec::new(),
            misplaced: Vec::new(),
            retention_ticks: options.retention_ticks.clamp(1, RETENTION_TICKS_MAX),
            far_grid: None,
            now: options.first_tick,
        }
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

    /// Far facets live in the cells of this grid from now on: those of the objects that are spawned or placed after this,
    /// have fields for clients far away, and are placed into cells by their position. Without such a grid there are no far
    /// facets.
    ///
    /// Each cell has so many channels, its `parts`: those of a grid of one layer, whose cells have the numbers of the parts
    /// along the axis that points up. An object is in a part by its number.
    ///
    /// # Errors
    /// The grid has not been added, its cells are not a whole number of steps of a kind's position for clients far away, or
    /// there are no parts, or several in cells that have layers.
    pub fn set_far_grid(&mut self, grid: u8, parts: u16) -> Result<(), GridError> {
        let cells = self.store.grids().get(usize::from(grid)).ok_or(GridError::Unknown(grid))?;
        cells.check_far(self.store.schema())?;
        if parts == 0 || parts > 1 && cells.shape().layers != Layers::Single {
            return Err(GridError::Parts(parts));
        }
        self.far_grid = Some((grid, parts));
        Ok(())
    }

    fn add_cell_grid(&mut self, grid: CellGrid) -> u8 {
        self.store.add_grid(grid);
        self.store.grids().len() as u8 - 1
    }

    /// The grid of that number.
    pub fn grid(&self, grid: u8) -> Option<&CellGrid> {
        self.store.grids().get(usize::from(grid))
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
        self.place_again();
        self.now
    }

    fn place_again(&mut self) {
        if self.misplaced.is_empty() {
            return;
        }
        let mut misplaced = std::mem::take(&mut self.misplaced);
        misplaced.sort_unstable();
        misplaced.dedup();
        misplaced.retain(|&id| self.store.contains(id) && self.place_in_cells(id).is_err());
        self.misplaced = misplaced;
    }

    /// The tick that a change made now gets. Changes after [`plan`](Self::plan) belong to the next tick: the frames of
    /// this tick are already requested, and their readers count as up to date with this tick.
    fn change_tick(&self) -> Tick {
        self.now.newest(self.hub.now().after(1))
    }

    /// The comings and goings of this tick, in order.
    pub fn placed(&self) -> &[Placed] {
        &self.placed
    }

    /// Adds an object. `quantise` writes its first values.
    ///
    /// # Errors
    /// Objects of the kind do not fit into a packet, the placement names a grid that does not exist or needs a position
    /// that the kind has not, or there is no room for another object or channel.
    pub fn spawn(
        &mut self,
        kind: KindId,
        placement: Placement,
        owner: Option<ConnectionId>,
        quantise: impl FnOnce(ValuesMut<'_>),
    ) -> Result<ObjectId, LimitReached> {
        if let Some(&Some(error)) = self.too_long.get(usize::from(kind.0)) {
            return Err(error.into());
        }
        self.check_placement(kind, placement)?;
        let id = self.store.spawn(kind, self.change_tick())?;
        let index = id.index as usize;
        if self.ownership.len() <= index {
            self.ownership.resize(index + 1, Ownership::new(placement, owner));
        }
        self.ownership[index] = Ownership::new(placement, owner);
        self.store.update(id.index, self.change_tick(), quantise);
        self.enter_own(id);
        if let Err(error) = self.place_all(id) {
            self.despawn(id);
            return Err(error);
        }
        Ok(id)
    }

    /// Quantises an object again and notes which fields differ. Returns them.
    pub fn update(&mut self, id: ObjectId, quantise: impl FnOnce(ValuesMut<'_>)) -> Result<FieldMask, LimitReached> {
        if !self.store.contains(id) {
            return Ok(0);
        }
        let Updated { changed, stated } = self.store.update(id.index, self.change_tick(), quantise);
        if changed | stated == 0 {
            return Ok(0);
        }
        let kind = self.store.kind(id.index);
        let positions = [kind.position, kind.far_position].into_iter().flatten();
        let moved = positions.fold(0, |mask, position| mask | 1 << position) & changed != 0;
        let lasting = stated & !kind.initial_only_mask();
        let now = self.change_tick();
        let touched = Facet::ALL.map(|facet| lasting & kind.facet_mask(facet) != 0);
        for facet in Facet::ALL {
            if let Some(home) = self.store.home(id.index, facet)
                && touched[facet.index()]
            {
                self.hub.state_mut(ChannelIndex(home.channel)).touch(home.slot, now);
            }
        }
        if moved
            && let Placement::Cell(_) = self.ownership[id.index as usize].placement
            && let Err(limit) = self.place_in_cells(id)
        {
            self.misplaced.push(id);
            return Err(limit);
        }
        Ok(changed)
    }

    /// Reads a little of everything that an [`update`](Self::update) of the object at `index` of the store looks at, so that
    /// the processor fetches that of many objects at once. The value means nothing.
    pub fn fetch_object(&self, index: u32) -> u64 {
        let log_of = |home: Home| (self.hub.state(ChannelIndex(home.channel)), home.slot);
        let homes = [Facet::Public, Facet::Far].into_iter().filter_map(|facet| self.store.home(index, facet));
        homes.map(log_of).fold(self.store.fetch(index), |sum, (log, slot)| sum ^ log.slot(slot).changed.0)
    }

    /// Moves the object's public facet to where `placement` says.
    ///
    /// # Errors
    /// The placement is not possible, and nothing changes; or a limit stands in the way, and each
    /// [`begin_tick`](Self::begin_tick) tries again.
    pub fn set_placement(&mut self, id: ObjectId, placement: Placement) -> Result<(), LimitReached> {
        if !self.store.contains(id) {
            return Ok(());
        }
        self.check_placement(self.store.kind_id(id.index), placement)?;
        self.ownership[id.index as usize].placement = placement;
        self.place_in_cells(id).inspect_err(|_| self.misplaced.push(id))
    }

    /// Gives the object to another connection, or to none.
    pub fn set_owner(&mut self, id: ObjectId, owner: Option<ConnectionId>) -> Result<(), LimitReached> {
        if !self.store.contains(id) {
            return Ok(());
        }
        if self.ownership[id.index as usize].owner != owner {
            self.leave_own(id, false);
            self.ownership[id.index as usize].owner = owner;
            self.enter_own(id);
        }
        Ok(())
    }

    /// The client of a connection can read the records of its own objects.
    pub fn admit(&mut self, connection: ConnectionId) {
        if let Some(connection) = self.hub.connection_quietly_mut(connection) {
            connection.own.open();
        }
    }

    /// Objects that a limit keeps where they do not belong any more: see [`LimitReached`].
    pub fn misplaced_count(&self) -> usize {
        self.misplaced.len()
    }

    /// Notes that the state of this tick includes the effect of this input and of all before it. The client gets the
    /// number together with that state of its own objects, in one piece.
    pub fn acknowledge_input(&mut self, connection: ConnectionId, number: u32) {
        if let Some(connection) = self.hub.connection_quietly_mut(connection) {
            connection.own.acknowledge_input(number);
        }
    }

    /// The frames and own objects of this tick, and the connections to write them to: split so that connections can be
    /// shared out to threads.
    pub fn writers(&mut self) -> (ObjectsOutgoing<'_>, &mut [ConnectionSlot]) {
        let (shared, slots) = self.hub.writers();
        (ObjectsOutgoing { store: &self.store, shared }, slots)
    }

    /// The owner of the object.
    pub fn owner(&self, id: ObjectId) -> Option<ConnectionId> {
        owner_of(&self.store, &self.ownership, id)
    }

    /// Where the public facet of an object lives; `None` if the object is gone.
    pub fn placement(&self, id: ObjectId) -> Option<Placement> {
        self.store.contains(id).then(|| self.ownership[id.index as usize].placement)
    }

    /// Ends an object. Its id is not used again for a long time.
    pub fn despawn(&mut self, id: ObjectId) {
        if !self.store.contains(id) {
            return;
        }
        for facet in [Facet::Public, Facet::Others, Facet::Far] {
            self.leave(id, facet, Fate::Destroyed);
        }
        self.leave_own(id, true);
        let now = self.change_tick();
        for former in self.ownership[id.index as usize].former.into_iter().flatten() {
            if now.since(former.left) <= FORMER_TICKS {
                self.hub.state_mut(ChannelIndex(former.home.channel)).end_former(former.home.slot, id, now);
            }
        }
        self.store.despawn(id);
    }

    /// The channel with this key, made if there is none.
    pub fn channel(&mut self, key: ChannelKey) -> Result<ChannelIndex, LimitReached> {
        self.check_key(key)?;
        let (retention_ticks, now) = (self.retention_ticks, self.now);
        let cell = match key {
            ChannelKey::Cell { grid, cell } => Some((grid, cell)),
            _ => None,
        };
        self.hub.channel_or_insert(key, || ObjectLog::new(cell, retention_ticks, now))
    }

    /// The channel in which a facet of an object lives at the moment.
    pub fn home(&self, id: ObjectId, facet: Facet) -> Option<ChannelIndex> {
        self.store.channel_of(id, facet).map(ChannelIndex)
    }

    /// The next tick has a number that is `ticks` higher than it would have: nothing happened in between. For a server
    /// that was suspended and whose ticks are to keep step with a clock.
    pub fn skip_ticks(&mut self, ticks: u64) {
        self.now = Tick(self.now.0.saturating_add(ticks));
    }

    /// Checks `channels` of the channels, going round, and removes those that are idle. It checks twice as many as were made
    /// since the last call, if that is more. Call once per tick.
    pub fn sweep(&mut self, channels: usize) {
        let now = self.now;
        self.hub.sweep(channels, |log| log.is_idle(now));
    }

    /// Decides what is due and asks for the frames. Objects that readers see move, and that were not updated in this tick,
    /// are compared with their reckoned positions first.
    pub fn plan(&mut self) {
        self.plan_with(&Inline);
    }

    /// The same with the executor's help. The bytes that are sent do not depend on it.
    pub fn plan_with(&mut self, executor: &impl Executor) {
        let (now, hub) = (self.change_tick(), &mut self.hub);
        self.store.restate(now, |home| hub.state_mut(ChannelIndex(home.channel)).touch(home.slot, now));
        self.hub.review(&self.store);
        self.hub.plan_with(self.now, executor);
    }

    /// The connections in rows of `len`, one for each of `changes`, so that threads can share them to subscribe and
    /// unsubscribe. Afterwards [`note_row`](Self::note_row) has to be called with each of the changes. With
    /// fewer changes than rows, the last connections are left out.
    pub fn rows<'a>(
        &'a mut self,
        len: usize,
        changes: impl Iterator<Item = &'a mut RowChanges>,
    ) -> impl Iterator<Item = SubscriberRow<'a>> {
        let (store, ownership) = (&self.store, &self.ownership[..]);
        let (by_key, channels, planned, slots) = self.hub.tables();
        let rows = slots.chunks_mut(len.max(1)).zip(changes).enumerate();
        rows.map(move |(row, (slots, changes))| SubscriberRow {
            by_key,
            channels,
            store,
            ownership,
            planned,
            first: row * len,
            slots,
            changes,
        })
    }

    /// Takes up what has changed in a row.
    pub fn note_row(&mut self, changes: &mut RowChanges) {
        self.hub.note_row(changes);
    }

    /// Encodes the frames asked for.
    pub fn encode(&mut self, executor: &impl Executor) {
        self.hub.encode(&self.store, executor);
    }

    /// A packet counts as lost.
    pub fn lost(&mut self, id: ConnectionId, sequence: u64) {
        self.hub.lost(&self.store, id, sequence);
    }

    fn check_key(&self, key: ChannelKey) -> Result<(), LimitReached> {
        match key {
            ChannelKey::Cell { grid, .. } if usize::from(grid) >= self.store.grids().len() => {
                Err(LimitReached::UnknownGrid(grid))
            }
            _ => Ok(()),
        }
    }

    fn check_placement(&self, kind: KindId, placement: Placement) -> Result<(), LimitReached> {
        match placement {
            Placement::Cell(grid) if usize::from(grid) >= self.store.grids().len() => {
                Err(LimitReached::UnknownGrid(grid))
            }
            Placement::Cell(_) => {
                let kind = self.store.schema().kind(kind);
                kind.position.map(|_| ()).ok_or(LimitReached::NoPosition(kind.name))
            }
            Placement::Channel(key) => self.check_key(key),
            Placement::Entity => Ok(()),
        }
    }

    fn place_all(&mut self, id: ObjectId) -> Result<(), LimitReached> {
        [Facet::Public, Facet::Others, Facet::Far].into_iter().try_for_each(|facet| self.place(id, facet))
    }

    /// Moves the facets whose channels depend on the object's position.
    fn place_in_cells(&mut self, id: ObjectId) -> Result<(), LimitReached> {
        let public = self.place(id, Facet::Public);
        public.and(self.place(id, Facet::Far))
    }

    /// Moves one facet to the channel where it belongs now.
    fn place(&mut self, id: ObjectId, facet: Facet) -> Result<(), LimitReached> {
        let home = self.store.home(id.index, facet);
        let wanted = self.wanted_channel(id, facet);
        if home.map(|home| self.hub.key(ChannelIndex(home.channel))) == wanted {
            return Ok(());
        }
        let target = wanted.map(|key| self.channel(key)).transpose()?;
        if let Some(channel) = target {
            let now = self.change_tick();
            if !self.hub.state_mut(channel).has_room(now) {
                return Err(LimitReached::Slots(SLOTS_MAX));
            }
        }
        let from = home.map(|home| self.hub.key(ChannelIndex(home.channel)));
        if let Some(home) = self.leave(id, facet, fate_of(from, wanted))
            && facet != Facet::Others
        {
            let former = &mut self.ownership[id.index as usize].former;
            former.rotate_right(1);
            former[0] = Some(FormerHome { home, left: self.now });
        }
        if let Some(channel) = target {
            let now = self.change_tick();
            let slot = self.hub.state_mut(channel).enter(id.index, facet, now);
            self.store.entry_mut(id.index).homes[facet.index()] = Some(Home { channel: channel.0, slot });
            self.placed.push(Placed::Entered { object: id.index, facet, channel });
        }
        Ok(())
    }

    fn leave(&mut self, id: ObjectId, facet: Facet, fate: Fate) -> Option<Home> {
        let home = self.store.entry_mut(id.index).homes[facet.index()].take()?;
        let channel = ChannelIndex(home.channel);
        let now = self.change_tick();
        self.hub.state_mut(channel).leave(home.slot, id, fate, now);
        self.placed.push(Placed::Left { object: id.index, facet, channel });
        Some(home)
    }

    /// Adds the object to its owner's records.
    fn enter_own(&mut self, id: ObjectId) {
        let now = self.change_tick();
        let ownership = &mut self.ownership[id.index as usize];
        let owner = ownership.owner.and_then(|owner| self.hub.connection_quietly_mut(owner));
        ownership.place = owner.map(|connection| connection.own.enter(id, now));
    }

    fn leave_own(&mut self, id: ObjectId, ended: bool) {
        let now = self.change_tick();
        let Ownership { owner, place, .. } = &mut self.ownership[id.index as usize];
        if let (Some(place), Some(owner)) = (place.take(), *owner)
            && let Some(connection) = self.hub.connection_quietly_mut(owner)
        {
            connection.own.leave(place, ended, now);
        }
    }

    fn wanted_channel(&self, id: ObjectId, facet: Facet) -> Option<ChannelKey> {
        let kind = self.store.kind(id.index);
        let Ownership { placement, .. } = self.ownership[id.index as usize];
        if facet != Facet::Public && kind.facet_mask(facet) == 0 {
            return None;
        }
        match facet {
            // Owner fields travel in the owner's records.
            Facet::Owner => None,
            Facet::Others => Some(ChannelKey::Entity { object: id, facet }),
            Facet::Far => {
                let is_in_cells = matches!(placement, Placement::Cell(_)) && kind.far_position.is_some();
                let (grid, parts) = self.far_grid.filter(|_| is_in_cells)?;
                let ChannelKey::Cell { grid, mut cell } = self.cell_key(id.index, grid, facet) else { return None };
                if parts > 1 {
                    cell[self.store.grids()[usize::from(grid)].shape().up.axis()] =
                        (id.index % u32::from(parts)) as i32;
                }
                Some(ChannelKey::Cell { grid, cell })
            }
            Facet::Public => Some(match placement {
                Placement::Cell(grid) => self.cell_key(id.index, grid, facet),
                Placement::Entity => ChannelKey::Entity { object: id, facet },
                Placement::Channel(key) => key,
            }),
        }
    }

    fn cell_key(&self, object: u32, grid: u8, facet: Facet) -> ChannelKey {
        let present = self.store.home(object, facet).and_then(|home| match self.hub.key(ChannelIndex(home.channel)) {
            ChannelKey::Cell { grid: present, cell } if present == grid => Some(cell),
            _ => None,
        });
        let position = self.store.position(object, facet).unwrap_or([0; 3]);
        let kind = usize::from(self.store.kind_id(object).0);
        let cell = self.store.grids()[usize::from(grid)].cell_of((kind, facet), position, present);
        ChannelKey::Cell { grid, cell }
    }
}

/// The entry in a channel for a facet that leaves it for another.
fn fate_of(from: Option<ChannelKey>, to: Option<ChannelKey>) -> Fate {
    let (Some(ChannelKey::Cell { grid, cell }), Some(ChannelKey::Cell { grid: other, cell: next })) = (from, to) else {
        return Fate::Left;
    };
    let cells: [i32; 3] = std::array::from_fn(|axis| next[axis].wrapping_sub(cell[axis]));
    let is_near = grid == other && cells.iter().all(|cells| cells.unsigned_abs() <= u32::from(MOVE_MAX_CELLS));
    if is_near { Fate::Moved(cells.map(|cells| cells as i8)) } else { Fate::Left }
}

#[cfg(test)]
mod tests {
    use throng_schema::Replicate;

    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, Replicate)]
    struct Spark {
        #[replicate(integer)]
        heat: u8,
    }

    #[test]
    fn a_channel_that_is_full_takes_no_object_until_the_slots_of_former_ones_have_rested() {
        let schema = Arc::new(Schema::builder().kind::<Spark>().build().expect("a good schema"));
        let options = ReplicatorOptions { retention_ticks: 100, ..Default::default() };
        let mut server = Replicator::new(schema, options);
        let (hall, yard) = (ChannelKey::Global(0), ChannelKey::Global(1));
        server.begin_tick();
        let spawn = |server: &mut Replicator, key| {
            server.spawn(KindId(0), Placement::Channel(key), None, |to| Spark::default().quantise(to))
        };
        for _ in 0..SLOTS_MAX {
            let spark = spawn(&mut server, hall).expect("room");
            server.despawn(spark);
        }
        assert_eq!(spawn(&mut server, hall), Err(LimitReached::Slots(SLOTS_MAX)));
        let waits = spawn(&mut server, yard).expect("room in another channel");
        assert_eq!(server.set_placement(waits, Placement::Channel(hall)), Err(LimitReached::Slots(SLOTS_MAX)));
        let home =
            |server: &Replicator| server.hub_ref().key(server.home(waits, Facet::Public).expect("it has a home"));
        assert_eq!(home(&server), yard);
        for _ in 0..102 {
            server.begin_tick();
            server.plan();
        }
        assert_eq!(home(&server), hall, "the slots have rested");
        assert!(spawn(&mut server, hall).is_ok());
    }
}
