//! The replication model of games: objects in channels, encoded once for all who stand at the same point.

use std::sync::Arc;

use throng_interest::{CellBounds, CellId, Grid, RingInterest, RingOptions, Rings};
use throng_replica::{
    ChannelKey, ConnectionCounters, ConnectionSlot, Executor, HubCounters, Layers, LimitReached, ObjectLog, Outgoing,
    Placement, Replicator, SubscriptionId,
};
use throng_schema::{Facet, Schema, ValuesMut};
use throng_wire::{ConnectionId, KindId, ObjectId, Tick};

use crate::options::{GridOptions, ServerOptions};
use crate::replication::{Replicated, Replication};
use crate::server::StartError;
use crate::view::{View, Views, subscribe};

/// Channels looked at for removal each tick.
const SWEEP_CHANNELS: usize = 256;

/// The weight of what only its owner may know, by that of a cell.
const OWN_WEIGHT: u8 = 8;

/// A [`Replicator`], and the views of its connections: the model that a [`Server`](crate::Server) has unless it is told
/// otherwise.
pub struct Channels {
    replicator: Replicator,
    views: Views,
    /// By connection index.
    seats: Vec<Option<Box<View>>>,
}

impl Channels {
    /// Channels without objects.
    pub fn new(schema: &Arc<Schema>, options: &ServerOptions) -> Result<Channels, StartError> {
        let mut replicator = Replicator::new(Arc::clone(schema), options.replicator)?;
        let mut interests = Vec::new();
        for grid in &options.grids {
            match grid.bounds() {
                Some([min, max]) => replicator.add_bounded_grid(grid.shape, min, max)?,
                None => replicator.add_grid(grid.shape)?,
            };
            interests.push(interest_of(grid)?);
        }
        let has_others = schema.kinds().iter().any(|kind| kind.facet_mask(Facet::Others) != 0);
        replicator.begin_tick();
        Ok(Channels { replicator, views: Views::new(interests, has_others), seats: Vec::new() })
    }

    /// The replication core, to look at.
    pub fn replicator(&self) -> &Replicator {
        &self.replicator
    }

    fn seat(&mut self, id: ConnectionId) -> Option<&mut View> {
        seat_in(&mut self.seats, id)
    }

    fn set_rate(&mut self, id: ConnectionId, subscription: SubscriptionId, interval_ticks: u16) {
        if let Some(connection) = self.replicator.hub().connection_mut(id) {
            connection.set_rate(subscription, interval_ticks, 1);
        }
    }
}

fn seat_in(seats: &mut [Option<Box<View>>], id: ConnectionId) -> Option<&mut View> {
    seats.get_mut(id.index as usize)?.as_deref_mut().filter(|view| view.connection == id)
}

fn interest_of(grid: &GridOptions) -> Result<RingInterest, StartError> {
    let mut cell_m = grid.shape.cell_m;
    if grid.shape.layers == Layers::Single {
        cell_m[2] = f64::INFINITY;
    }
    let cell = |[x, y, z]: [i32; 3]| CellId { x, y, z };
    let bounds = grid.bounds().map(|[min, max]| CellBounds { min: cell(min), max: cell(max) });
    let options = RingOptions { bounds, ..RingOptions::default() };
    Ok(RingInterest::new(Grid::new(cell_m)?, Rings::new(&grid.rings)?, options)?)
}

impl Replication for Channels {
    type Outgoing<'a> = Outgoing<'a, ObjectLog>;
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
        self.replicator.spawn(kind, placement, owner, quantise)
    }

    fn update(&mut self, id: ObjectId, quantise: impl FnOnce(ValuesMut<'_>)) {
        // An object that finds no channel stays where it was; the hub counts the limit.
        let _ = self.replicator.update(id, quantise);
    }

    fn despawn(&mut self, id: ObjectId) {
        self.replicator.despawn(id);
    }

    fn set_owner(&mut self, id: ObjectId, owner: Option<ConnectionId>) -> Result<(), LimitReached> {
        self.views.note_owner_change();
        self.replicator.set_owner(id, owner)
    }

    fn set_placement(&mut self, id: ObjectId, placement: Placement) -> Result<(), LimitReached> {
        self.replicator.set_placement(id, placement)
    }

    fn connect(&mut self, index: usize) -> ConnectionId {
        let id = self.replicator.hub().connect_at(index);
        if self.seats.len() <= index {
            self.seats.resize_with(index + 1, || None);
        }
        self.seats[index] = Some(Box::new(self.views.open(id)));
        id
    }

    fn admit(&mut self, id: ConnectionId) {
        let Some(view) = seat_in(&mut self.seats, id) else { return };
        view.is_live = true;
        let own = ChannelKey::Owner(id);
        if let Some(subscription) = subscribe(&mut self.replicator, id, own, 1, OWN_WEIGHT) {
            view.explicit.insert(own, (subscription, 1));
        }
    }

    fn disconnect(&mut self, id: ConnectionId) {
        if self.seat(id).is_some() {
            self.seats[id.index as usize] = None;
        }
        self.replicator.hub().disconnect(id);
    }

    fn set_viewpoint(&mut self, id: ConnectionId, position: [f64; 3]) {
        if let Some(view) = self.seat(id) {
            view.viewpoint = Some(position);
            view.viewpoint_moved = true;
        }
    }

    fn subscribe(&mut self, id: ConnectionId, key: ChannelKey, interval_ticks: u16) -> Result<(), LimitReached> {
        let Some(view) = seat_in(&mut self.seats, id).filter(|view| view.is_live) else {
            return Err(LimitReached::UnknownConnection);
        };
        let in_view = view.in_view(key).map(|(subscription, ring)| (subscription, self.views.ring_interval(key, ring)));
        let by_hand = view.explicit.get(&key).map(|&(subscription, _)| subscription);
        let present = in_view.or(by_hand.map(|subscription| (subscription, interval_ticks)));
        let subscription = match present {
            Some((subscription, ring_interval)) => {
                self.set_rate(id, subscription, interval_ticks.min(ring_interval));
                subscription
            }
            None => {
                let index = self.replicator.channel(key)?;
                self.replicator.hub().subscribe(id, index, interval_ticks, 1)?
            }
        };
        if let Some(view) = self.seat(id) {
            view.explicit_changed |= view.explicit.insert(key, (subscription, interval_ticks)).is_none();
        }
        Ok(())
    }

    fn unsubscribe(&mut self, id: ConnectionId, key: ChannelKey) {
        let Some(view) = self.seat(id) else { return };
        let Some((subscription, _)) = view.explicit.remove(&key) else { return };
        view.explicit_changed = true;
        match view.in_view(key) {
            Some((seen, ring)) if seen == subscription => {
                let interval = self.views.ring_interval(key, ring);
                self.set_rate(id, subscription, interval);
            }
            _ => self.replicator.hub().unsubscribe(id, subscription),
        }
    }

    fn look(&mut self) {
        let follows = self.views.follows(self.replicator.placed());
        for view in self.seats.iter_mut().flatten() {
            let changed = view.viewpoint_moved | std::mem::take(&mut view.explicit_changed);
            self.views.update(view, &mut self.replicator);
            if view.is_live && (follows || changed && self.views.has_others()) {
                self.views.follow(view, &mut self.replicator);
            }
        }
    }

    fn encode(&mut self, executor: &impl Executor) {
        self.replicator.plan();
        self.replicator.encode(executor);
    }

    fn writers(&mut self) -> (Outgoing<'_, ObjectLog>, &mut [ConnectionSlot]) {
        self.replicator.hub().writers()
    }

    #[inline]
    fn begin_write(slot: &mut ConnectionSlot, outgoing: Outgoing<'_, ObjectLog>, budget_bytes: usize) {
        if let Some(connection) = &mut slot.connection {
            connection.begin_write(outgoing, budget_bytes);
        }
    }

    #[inline]
    fn has_more(slot: &ConnectionSlot) -> bool {
        slot.connection.as_ref().is_some_and(|connection| connection.has_more())
    }

    #[inline]
    fn write_packet(
        slot: &mut ConnectionSlot,
        outgoing: Outgoing<'_, ObjectLog>,
        sequence: u64,
        room: &mut [u8],
    ) -> usize {
        slot.connection.as_mut().map_or(0, |connection| connection.write_packet(outgoing, sequence, room))
    }

    fn delivered(&mut self, id: ConnectionId, sequence: u64) {
        self.replicator.hub().delivered(id, sequence);
    }

    fn lost(&mut self, id: ConnectionId, sequence: u64) {
        self.replicator.lost(id, sequence);
    }

    fn end_tick(&mut self) {
        self.replicator.sweep(SWEEP_CHANNELS);
        self.replicator.begin_tick();
    }

    fn objects(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.replicator.store().ids()
    }

    fn object(&self, id: ObjectId) -> Option<Replicated<'_>> {
        let store = self.replicator.store();
        store.contains(id).then(|| Replicated {
            kind: store.kind_id(id.index),
            owner: self.replicator.owner(id),
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

    fn refusals(&self) -> [(&'static str, u64); 2] {
        [("views_refused", self.views.refused), ("hub_limits", self.replicator.hub_ref().counters().limit_reached)]
    }
}
