//! The replication model of games: objects in channels, encoded once for all subscriptions at the same point.

use std::sync::Arc;

use throng_interest::{CellBounds, CellId, Grid, InterestError, Ring, RingInterest, RingOptions, Rings, Shape};
use throng_replica::{
    CellGrid, ChannelKey, ConnectionCounters, ConnectionSlot, Executor, HubCounters, Layers, LimitReached,
    ObjectsOutgoing, Placed, Placement, Replicator, ReplicatorOptions, RowChanges, SubscriptionId, Up,
};
use throng_schema::{Facet, Schema, ValuesMut};
use throng_wire::{ConnectionId, KindId, ObjectId, Tick};

use crate::options::{FarOptions, GridOptions, LooksFrom, ServerOptions};
use crate::replication::{Replicated, Replication};
use crate::server::StartError;
use crate::view::{GridView, ListPlaces, Looker, Seats, View, Views, subscribe};
use crate::watches::Watches;

/// The most subscriptions that a connection can have, whatever the options say.
const SUBSCRIPTIONS_MAX: usize = 16_383;

/// The least number of channels that are checked for removal in each tick.
const SWEEP_CHANNELS: usize = 256;

/// Servers with at most so many seats keep the memory of their connections' lists, so that a tick allocates nothing: 20 MB at most.
/// With more seats memory is shorter than time.
const KEEPING_SEATS: u32 = 2_048;

/// A client that looks from its cell stays there until it is outside by this part of the cell's side.
const STAY_PARTS: f64 = 16.0;

/// Subscriptions of a connection that are reserved for channels other than cells in view: its own channel, and the
/// game's subscriptions.
const OTHER_SUBSCRIPTIONS: usize = 16;

/// A [`Replicator`], and the views of its connections: the default model of a [`Server`](crate::Server).
pub struct Channels {
    replicator: Replicator,
    pub(crate) views: Views,
    seats: Seats,
    list_places: ListPlaces,
    /// Clients in whose own channel something has begun to live.
    inhabited: Vec<ConnectionId>,
    /// One for each row of connections.
    lookers: Vec<Looker>,
    changes: Vec<RowChanges>,
    watches: Watches,
    retention_ticks: u32,
}

impl Channels {
    /// Channels without objects.
    pub fn new(schema: &Arc<Schema>, options: &ServerOptions) -> Result<Channels, StartError> {
        let replicator_options = ReplicatorOptions {
            tick_interval_us: options.tick_interval_us(),
            saves_memory: options.replicator.saves_memory || options.max_clients > KEEPING_SEATS,
            ..options.replicator
        };
        let mut replicator = Replicator::new(Arc::clone(schema), replicator_options);
        let mut grids = Vec::new();
        for grid in &options.grids {
            match grid.bounds() {
                Some([min, max]) => replicator.add_bounded_grid(grid.shape, min, max)?,
                None => replicator.add_grid(grid.shape)?,
            };
            let number = grids.len() as u8;
            let stray = |cells: &CellGrid| match options.far.is_some_and(|far| far.grid == number) {
                true => std::array::from_fn(|axis| cells.stray_m()[axis].max(cells.far_stray_m()[axis])),
                false => cells.stray_m(),
            };
            let stray_m = replicator.grid(number).map_or([0.0; 3], stray);
            grids.push(grid_view(grid, stray_m)?);
        }
        if let Some(FarOptions { grid, parts }) = options.far {
            replicator.set_far_grid(grid, parts)?;
        }
        let channels = |(number, grid): (usize, &GridView)| {
            let parts = options.far.filter(|far| usize::from(far.grid) == number).map_or(1, |far| far.parts);
            grid.interest.max_cells() * usize::from(parts)
        };
        let cells = grids.iter().enumerate().map(channels).sum();
        let limit = options.replicator.limits.subscriptions_per_connection.min(SUBSCRIPTIONS_MAX);
        if cells + OTHER_SUBSCRIPTIONS > limit {
            return Err(StartError::View { cells, limit });
        }
        replicator.begin_tick();
        Ok(Channels {
            replicator,
            views: Views::new(grids, options),
            seats: Seats::default(),
            list_places: ListPlaces::default(),
            inhabited: Vec::new(),
            lookers: Vec::new(),
            changes: Vec::new(),
            watches: Watches::default(),
            retention_ticks: options.replicator.retention_ticks,
        })
    }

    /// The replication core, to look at.
    pub fn replicator(&self) -> &Replicator {
        &self.replicator
    }

    /// See [`Server::channels_read`](crate::Server::channels_read).
    pub(crate) fn channels_read(&self) -> Vec<(ChannelKey, u16)> {
        let hub = self.replicator.hub_ref();
        let mut read = Vec::new();
        hub.intervals(|channel, interval_ticks| read.push((hub.key(channel), interval_ticks)));
        read
    }

    fn view(&self, id: ConnectionId) -> Option<&View> {
        self.seats.view(id)
    }

    fn seat(&mut self, id: ConnectionId) -> Option<&mut View> {
        self.seats.change(id)
    }

    /// Ends the subscriptions to single objects that have ended, after the subscribers have received the end.
    fn end_watches(&mut self) {
        let now = self.replicator.now();
        while let Some(key) = self.watches.next_told(now) {
            while let Some(watcher) = self.watches.first_of(key) {
                self.watches.remove(key, watcher);
                let Some(view) = self.seats.change(watcher) else { continue };
                if let Some((subscription, _)) = view.explicit.remove(&key) {
                    view.intervals_changed = true;
                    self.replicator.hub().unsubscribe(watcher, subscription);
                }
            }
        }
    }

    /// The tick by which all watchers of a channel have received that its object has ended: the longest interval passes until the
    /// last of them is told, and the same time is left for what is lost. `None` if there are none.
    fn told_at(&self, key: ChannelKey) -> Option<Tick> {
        let intervals = self.watches.of(key).filter_map(|id| Some(self.view(id)?.explicit.get(&key)?.1));
        let longest = intervals.max()?;
        Some(self.replicator.now().after(self.retention_ticks.max(2 * u32::from(longest)).max(1)))
    }

    /// Follows what has changed about the views, in rows of connections. Views that need a channel that does not exist have
    /// to wait for [`make_channels`](Self::make_channels), so that channels are made in the same order whatever the rows are.
    fn look_in_rows(&mut self, executor: &impl Executor) {
        let count = executor.parts().max(1);
        self.lookers.resize_with(count, Looker::default);
        self.changes.resize_with(count, RowChanges::default);
        let len = self.replicator.hub().slots().len().div_ceil(count).max(1);
        let (views, at_all) = (&self.views, self.views.others.have_changed());
        let rows = self.replicator.rows(len, self.changes.iter_mut()).zip(self.seats.rows(len)).zip(&mut self.lookers);
        executor.for_each_part(rows, |((mut row, seats), looker)| {
            seats.look(at_all, |index, view| looker.look(views, (index, view), &mut row));
        });
        self.changes.iter_mut().for_each(|changes| self.replicator.note_row(changes));
    }

    /// Makes the channels that views need, and lets these views go on.
    fn make_channels(&mut self) {
        for looker in &mut self.lookers {
            // The hub counts those for which there is no room.
            for key in looker.missing.drain(..) {
                let _ = self.replicator.channel(key);
            }
        }
        for looker in &mut self.lookers {
            let mut waiting = std::mem::take(&mut looker.waiting);
            for (index, entered) in waiting.drain(..) {
                let rows = self.replicator.rows(usize::MAX, self.changes.iter_mut().take(1));
                for mut row in rows {
                    self.seats.look_at(index, |index, view| {
                        let looked = looker.look(&self.views, (index, view), &mut row);
                        looker.refused += entered.min(view.unsubscribed_cells());
                        looked
                    });
                }
                // The others wait for the next tick.
                looker.missing.clear();
                looker.waiting.clear();
            }
            looker.waiting = waiting;
            self.views.note_refused(looker);
        }
        self.changes.iter_mut().for_each(|changes| self.replicator.note_row(changes));
    }

    /// Subscribes clients to their own channels as soon as something lives there. Most clients' channels stay empty, and do not
    /// exist. A client that has no room for another subscription is tried again in the next tick.
    fn follow_own_channels(&mut self) {
        let mut inhabited = std::mem::take(&mut self.inhabited);
        inhabited.sort_unstable();
        inhabited.dedup();
        inhabited.retain(|&id| !self.follow_own_channel(id));
        self.inhabited = inhabited;
    }

    /// False if there is no room for the subscription.
    fn follow_own_channel(&mut self, id: ConnectionId) -> bool {
        let (own, interval) = (ChannelKey::Owner(id), self.views.turns.interval());
        let Some(view) =
            self.seats.change(id).filter(|view| view.is_live && !view.leaves_own && !view.explicit.contains_key(&own))
        else {
            return true;
        };
        let weight = view.own.weight(own);
        let Some(subscription) = subscribe(&mut self.replicator, id, own, interval, weight) else { return false };
        view.explicit.insert(own, (subscription, interval));
        (view.explicit_changed, view.intervals_changed) = (true, true);
        true
    }

    fn set_interval(&mut self, id: ConnectionId, subscription: SubscriptionId, interval_ticks: u16) {
        if let Some(connection) = self.replicator.hub().connection_mut(id) {
            connection.set_interval(subscription, interval_ticks);
        }
    }
}

/// Cells by distance. The rings are larger by the distance that an object may be outside of its cell.
fn grid_view(grid: &GridOptions, stray_m: [f64; 3]) -> Result<GridView, StartError> {
    let mut cell_m = grid.shape.cell_m;
    let mut stray_m = stray_m;
    if grid.shape.layers == Layers::Single {
        let up = grid.shape.up.axis();
        (cell_m[up], stray_m[up]) = (f64::INFINITY, 0.0);
    }
    let farther_m = stray_m.iter().map(|along| along * along).sum::<f64>().sqrt();
    let rings: Vec<Ring> =
        grid.rings.iter().map(|ring| Ring { radius_m: ring.radius_m + farther_m, ..*ring }).collect();
    let cell = |[x, y, z]: [i32; 3]| CellId { x, y, z };
    let bounds = grid.bounds().map(|[min, max]| CellBounds { min: cell(min), max: cell(max) });
    // Equally fine in both directions along the ground.
    let subcells = if grid.shape.up == Up::Y { [4, 2, 4] } else { RingOptions::default().subcells };
    let options = match grid.looks_from {
        LooksFrom::Position => RingOptions { bounds, subcells, ..RingOptions::default() },
        LooksFrom::Cell => {
            let side_m = cell_m.into_iter().fold(f64::INFINITY, f64::min);
            RingOptions { bounds, subcells: [1; 3], margin_m: Some(0.0), stay_m: side_m / STAY_PARTS }
        }
    };
    let interest = RingInterest::new(Grid::new(cell_m)?, Rings::new(&rings)?, options)?;
    Ok(GridView { interest, stray_m: farther_m })
}

impl Replication for Channels {
    type Outgoing<'a> = ObjectsOutgoing<'a>;
    type Slot = ConnectionSlot;

    fn schema(&self) -> &Arc<Schema> {
        self.replicator.store().schema()
    }

    fn now(&self) -> Tick {
        self.replicator.now()
    }

    fn spawn(
        &mut self,
        kind: KindId,
        placement: Placement,
        owner: Option<ConnectionId>,
        quantise: impl FnOnce(ValuesMut<'_>),
    ) -> Result<ObjectId, LimitReached> {
        let id = self.replicator.spawn(kind, placement, owner, quantise)?;
        if let Some(view) = owner.and_then(|owner| self.seats.change(owner)) {
            view.own.add(id, &mut self.list_places);
        }
        Ok(id)
    }

    fn update(&mut self, id: ObjectId, quantise: impl FnOnce(ValuesMut<'_>)) {
        // An object that finds no channel stays where it was; the hub counts the limit.
        let _ = self.replicator.update(id, quantise);
    }

    #[inline]
    fn fetch_object(&self, index: u32) -> u64 {
        self.replicator.fetch_object(index)
    }

    fn despawn(&mut self, id: ObjectId) {
        for facet in Facet::ALL {
            let key = ChannelKey::Entity { object: id, facet };
            if let Some(told_at) = self.told_at(key).filter(|_| self.replicator.store().contains(id)) {
                self.watches.end(key, told_at);
            }
        }
        if let Some(view) = self.replicator.owner(id).and_then(|owner| self.seats.change(owner)) {
            view.own.remove(id, &mut self.list_places);
        }
        self.replicator.despawn(id);
    }

    fn set_owner(&mut self, id: ObjectId, owner: Option<ConnectionId>) -> Result<(), LimitReached> {
        self.views.others.note_owner_change(id.index);
        if let Some(view) = self.replicator.owner(id).and_then(|former| self.seats.change(former)) {
            view.own.remove(id, &mut self.list_places);
        }
        let owner_of_something = owner.filter(|_| self.replicator.store().contains(id));
        if let Some(view) = owner_of_something.and_then(|owner| self.seats.change(owner)) {
            view.own.add(id, &mut self.list_places);
        }
        if let Some(owner) = owner_of_something {
            // It may not know these fields any longer.
            self.unsubscribe(owner, ChannelKey::Entity { object: id, facet: Facet::Others });
        }
        self.replicator.set_owner(id, owner)
    }

    fn acknowledge_input(&mut self, id: ConnectionId, number: u32) {
        self.replicator.acknowledge_input(id, number);
    }

    fn set_placement(&mut self, id: ObjectId, placement: Placement) -> Result<(), LimitReached> {
        self.replicator.set_placement(id, placement)
    }

    fn connect(&mut self, index: usize) -> ConnectionId {
        let id = self.replicator.hub().connect_at(index);
        self.seats.open(index, self.views.open(id));
        id
    }

    fn admit(&mut self, id: ConnectionId) {
        let Some(view) = self.seats.change(id) else { return };
        view.is_live = true;
        self.replicator.admit(id);
        view.intervals_changed = true;
        view.send_offset = Some(self.views.turns.take());
        if self.replicator.hub_ref().find(ChannelKey::Owner(id)).is_some() {
            self.inhabited.push(id);
        }
    }

    fn disconnect(&mut self, id: ConnectionId) {
        if let Some(view) = self.seats.close(id) {
            view.explicit.keys().for_each(|&key| self.watches.remove(key, id));
            view.send_offset.into_iter().for_each(|offset| self.views.turns.give_back(offset));
        }
        self.replicator.hub().disconnect(id);
    }

    fn set_viewpoint(&mut self, id: ConnectionId, position: [f64; 3]) {
        self.seats.set_viewpoint(id, position);
    }

    fn set_viewpoints(&mut self, id: ConnectionId, positions: &[[f64; 3]]) -> Result<(), InterestError> {
        self.seat(id).map_or(Ok(()), |view| view.set_viewpoints(positions))
    }

    fn set_shapes(&mut self, id: ConnectionId, shapes: &[Shape]) -> Result<(), InterestError> {
        self.seats.change(id).map_or(Ok(()), |view| self.views.set_shapes(view, shapes))
    }

    fn subscribe(&mut self, id: ConnectionId, key: ChannelKey, interval_ticks: u16) -> Result<(), LimitReached> {
        let Some(view) = self.seats.change(id).filter(|view| view.is_live) else {
            return Err(LimitReached::UnknownConnection);
        };
        match key {
            _ if interval_ticks == 0 => return Err(LimitReached::Interval),
            ChannelKey::Owner(owner) if owner != id => return Err(LimitReached::ForeignOwner),
            ChannelKey::Entity { object, .. } if !self.replicator.store().contains(object) => {
                return Err(LimitReached::UnknownObject);
            }
            ChannelKey::Entity { object, facet: Facet::Others } if self.replicator.owner(object) == Some(id) => {
                return Err(LimitReached::ForeignOwner);
            }
            _ => {}
        }
        let in_view = view.in_view(key).map(|(subscription, ring)| (subscription, self.views.ring_interval(key, ring)));
        let by_hand = view.explicit.get(&key).map(|&(subscription, _)| subscription);
        let by_hand = by_hand.or_else(|| view.take_followed(key));
        let present = in_view.or(by_hand.map(|subscription| (subscription, interval_ticks)));
        let subscription = match present {
            Some((subscription, ring_interval)) => {
                self.set_interval(id, subscription, interval_ticks.min(ring_interval));
                subscription
            }
            None => {
                let index = self.replicator.channel(key)?;
                let weight = view.own.weight(key);
                self.replicator.hub().subscribe(id, index, interval_ticks, weight)?
            }
        };
        if let Some(view) = self.seat(id) {
            let present = Some((subscription, interval_ticks));
            view.explicit_changed |= view.explicit.insert(key, (subscription, interval_ticks)) != present;
            view.intervals_changed = true;
            view.leaves_own &= key != ChannelKey::Owner(id);
            self.watches.add(key, id);
        }
        Ok(())
    }

    fn unsubscribe(&mut self, id: ConnectionId, key: ChannelKey) {
        let Some(view) = self.seats.change(id) else { return };
        view.leaves_own |= key == ChannelKey::Owner(id);
        let Some((subscription, _)) = view.explicit.remove(&key) else { return };
        self.watches.remove(key, id);
        view.explicit_changed = true;
        view.intervals_changed = true;
        match view.in_view(key) {
            Some((seen, ring)) if seen == subscription => {
                let interval = self.views.ring_interval(key, ring);
                self.set_interval(id, subscription, interval);
            }
            _ => self.replicator.hub().unsubscribe(id, subscription),
        }
    }

    fn is_reader(&self, id: ConnectionId, key: ChannelKey) -> bool {
        let is_own = |view: &View| key == ChannelKey::Owner(id) && !view.leaves_own;
        self.view(id).is_some_and(|view| view.is_live && (is_own(view) || view.reads(key)))
    }

    fn is_near(&self, id: ConnectionId, place: [f64; 3], radius_m: f64) -> bool {
        self.seats.looks_from_within(id, place, radius_m)
    }

    fn look(&mut self, executor: &impl Executor) {
        for placed in self.replicator.placed() {
            let Placed::Entered { object, facet: Facet::Public, channel } = *placed else { continue };
            if let ChannelKey::Owner(client) = self.replicator.hub_ref().key(channel) {
                self.inhabited.push(client);
            }
            let id = self.replicator.store().id_at(object);
            if let Some(view) = self.replicator.owner(id).and_then(|owner| self.seats.change(owner)) {
                view.own.has_moved = true;
            }
        }
        // However something has come there: a limit may have kept it elsewhere for a while.
        self.follow_own_channels();
        self.views.others.note(&self.replicator);
        self.seats.take_census(&mut self.views.turns);
        self.look_in_rows(executor);
        self.make_channels();
        self.views.others.forget_changes();
    }

    fn set_allowance(&mut self, id: ConnectionId, bytes: usize) {
        self.replicator.hub().set_allowance(id, bytes);
    }

    fn plan(&mut self, executor: &impl Executor) {
        self.replicator.plan_with(executor);
    }

    fn encode(&mut self, executor: &impl Executor) {
        self.replicator.encode(executor);
    }

    fn writers(&mut self) -> (ObjectsOutgoing<'_>, &mut [ConnectionSlot]) {
        self.replicator.writers()
    }

    #[inline]
    fn begin_write(slot: &mut ConnectionSlot, outgoing: ObjectsOutgoing<'_>, budget_bytes: usize) {
        if let Some(mut connection) = slot.writer() {
            connection.begin_objects(outgoing, budget_bytes);
        }
    }

    #[inline]
    fn has_more(slot: &ConnectionSlot) -> bool {
        slot.reader().is_some_and(|connection| connection.has_more_objects())
    }

    #[inline]
    fn needs_full_packet(slot: &ConnectionSlot) -> bool {
        slot.reader().is_some_and(|connection| connection.needs_full_packet())
    }

    #[inline]
    fn fetch(slot: &ConnectionSlot) -> u64 {
        slot.reader().map_or(0, |connection| connection.fetch())
    }

    #[inline]
    fn fetch_behind(slot: &ConnectionSlot) -> u64 {
        slot.reader().map_or(0, |connection| connection.fetch_behind())
    }

    #[inline]
    fn fetch_shared(slot: &ConnectionSlot, outgoing: ObjectsOutgoing<'_>) -> u64 {
        slot.reader().map_or(0, |connection| connection.fetch_own(outgoing))
    }

    #[inline]
    fn write_packet(slot: &mut ConnectionSlot, outgoing: ObjectsOutgoing<'_>, sequence: u64, room: &mut [u8]) -> usize {
        slot.writer().map_or(0, |mut connection| connection.write_objects(outgoing, sequence, room))
    }

    fn delivered(&mut self, id: ConnectionId, sequence: u64) {
        self.replicator.hub().delivered(id, sequence);
    }

    fn settlers(&mut self) -> Option<&mut [ConnectionSlot]> {
        Some(self.replicator.hub().slots())
    }

    fn settle(slot: &mut ConnectionSlot, sequence: u64) {
        slot.delivered(sequence);
    }

    fn lost(&mut self, id: ConnectionId, sequence: u64) {
        self.replicator.lost(id, sequence);
    }

    fn end_tick(&mut self) {
        self.end_watches();
        self.replicator.sweep(SWEEP_CHANNELS);
        self.replicator.begin_tick();
    }

    fn objects(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.replicator.store().ids()
    }

    fn owned(&self, id: ConnectionId) -> impl Iterator<Item = ObjectId> + '_ {
        let view = self.view(id);
        let listed = view.into_iter().flat_map(|view| view.own.objects().iter().copied());
        let is_gone = view.is_none();
        let searched = is_gone.then(|| self.objects()).into_iter().flatten();
        listed.chain(searched.filter(move |&object| self.replicator.owner(object) == Some(id)))
    }

    fn object(&self, id: ObjectId) -> Option<Replicated<'_>> {
        let store = self.replicator.store();
        self.replicator.placement(id).map(|placement| Replicated {
            kind: store.kind_id(id.index),
            owner: self.replicator.owner(id),
            placement,
            values: store.values(id.index),
        })
    }

    fn counters(&self) -> HubCounters {
        self.replicator.hub_ref().counters()
    }

    fn connection_counters(&self, id: ConnectionId) -> Option<ConnectionCounters> {
        self.replicator.hub_ref().connection(id).map(|connection| connection.counters())
    }

    fn channel_count(&self) -> usize {
        let hub = self.replicator.hub_ref();
        hub.channels().filter(|(_, channel)| hub.subscriber_count(*channel) > 0).count()
    }

    fn followed_count(&self, id: ConnectionId) -> usize {
        self.replicator.hub_ref().connection(id).map_or(0, |connection| connection.subscription_count())
    }

    fn records_held(&self, report: &mut dyn FnMut(&'static str, usize)) {
        let hub = self.replicator.hub_ref();
        report("viewers", self.seats.len());
        report("viewers_by_send_tick", self.views.turns.client_count());
        report("watchers", self.watches.len());
        report("ended_channels", self.watches.ended_len());
        report("objects_with_fields_for_others", self.views.others.len());
        report("misplaced", self.replicator.misplaced_count());
        report("frames", hub.frames_held());
        report("channels", hub.channel_count());
        report("subscribers", hub.channels().map(|(_, channel)| hub.subscriber_count(channel) as usize).sum());
        report("sleepers", hub.sleeper_count());
        report("shared_views", hub.shared_views().0);
    }

    fn refusals(&self) -> [(&'static str, u64); 2] {
        [("views_refused", self.views.refused), ("hub_limits", self.replicator.hub_ref().counters().limit_reached)]
    }
}

#[cfg(test)]
mod tests {
    use throng_replica::Inline;
    use throng_testkit::Score;

    use super::*;

    #[test]
    fn servers_with_few_seats_keep_the_memory_of_lists_unless_the_game_says_otherwise() {
        let schema = Arc::new(Schema::builder().build().expect("a schema without kinds"));
        let saves_memory = |max_clients, is_set| {
            let mut options = ServerOptions::new(1, crate::random_key());
            (options.max_clients, options.replicator.saves_memory) = (max_clients, is_set);
            let channels = Channels::new(&schema, &options).expect("good options");
            channels.replicator.hub_ref().saves_memory()
        };
        let seats = [(2_048, false), (2_049, false), (1, true)];
        assert_eq!(seats.map(|(seats, is_set)| saves_memory(seats, is_set)), [false, true, true]);
    }
    #[test]
    fn when_a_watched_object_has_ended_only_its_watchers_are_looked_at() {
        let schema = throng_testkit::schema();
        let mut options = ServerOptions::new(1, crate::random_key());
        options.replicator.retention_ticks = 8;
        let mut channels = Channels::new(&schema, &options).expect("good options");
        let clients: Vec<ConnectionId> = (0..100).map(|index| channels.connect(index)).collect();
        clients.iter().for_each(|&id| channels.admit(id));
        let kind = schema.kind_id::<Score>().expect("in the schema");
        let quantise = |to: ValuesMut<'_>| throng_schema::Replicate::quantise(&Score::default(), to);
        let spawn = |channels: &mut Channels| {
            let id = channels.spawn(kind, Placement::Entity, None, quantise).expect("room");
            (id, ChannelKey::Entity { object: id, facet: Facet::Public })
        };
        let watched = [spawn(&mut channels), spawn(&mut channels)];
        for (watcher, (_, key)) in [7, 50].into_iter().zip(watched) {
            channels.subscribe(clients[watcher], key, 1).expect("room");
        }
        channels.subscribe(clients[90], watched[1].1, 1).expect("room");
        let tick = |channels: &mut Channels| {
            channels.look(&Inline);
            channels.plan(&Inline);
            channels.encode(&Inline);
            channels.end_tick();
            channels.seats.changed().map(|id| id.index).collect::<Vec<_>>()
        };
        assert!(tick(&mut channels).is_empty());
        watched.iter().for_each(|&(id, _)| channels.despawn(id));
        let looks: Vec<_> = (0..20).map(|_| tick(&mut channels)).filter(|looks| !looks.is_empty()).collect();
        assert_eq!(looks, [[7, 50, 90]]);
        assert_eq!((channels.watches.len(), channels.watches.ended_len()), (0, 0));
        assert!(clients.iter().all(|&id| channels.followed_count(id) == 0));
    }
}
