//! The common part of all older models, as a [`Replication`]: each model adds its own [`Model`].

use std::sync::Arc;

use throng::replica::{ConnectionCounters, EntryTooLong, Executor, HubCounters, LimitReached, Placement};
use throng::schema::{FieldMask, Schema, ValuesMut};
use throng::{ChannelKey, ConnectionId, Facet, ObjectId, Replicated, Replication, ServerOptions, StartError, Tick};
use throng_wire::KindId;

use crate::due::DueList;
use crate::link::{Channel, Link, Packet};
use crate::viewer::Viewer;
use crate::world::World;

/// The most that all fields of an object may take, in bytes: a record fits into any packet.
const RECORD_MAX_BYTES: u64 = 1_000;

/// The differences between the older models.
///
/// The order of calls in a tick is that of [`Replication`]. The methods about objects are called after the world has
/// changed, `ended` before.
pub trait Model: Send + Sync + Sized {
    /// The model's data for each connection.
    type Own: Default + Send;

    /// There is a new connection.
    fn seated(&self, _seat: &mut Seat<Self::Own>) {}

    /// There is a new object.
    fn began(&mut self, _world: &World, _object: u32) {}

    /// The game has touched an object; the fields of `mask` differ.
    fn touched(&mut self, _world: &World, _object: u32, _mask: FieldMask) {}

    /// An object has another placement or owner.
    fn moved(&mut self, _world: &World, _object: u32) {}

    /// An object is about to end.
    fn ended(&mut self, _world: &World, _object: u32) {}

    /// Scratch for all connections, used once or for one after the other.
    fn look(&mut self, _world: &World, _places: &mut [Place<Self::Own>]) {}

    /// The second part of that.
    fn encode(&mut self, _world: &World, _places: &mut [Place<Self::Own>]) {}

    /// Fills [`Seat::due`] with the channels whose turn has come.
    fn begin_write(&self, world: &World, seat: &mut Seat<Self::Own>);

    /// The fields of a channel that is due that have to be sent.
    fn pending(&self, world: &World, seat: &mut Seat<Self::Own>, channel: u32) -> FieldMask;

    /// The fields of `mask` have been written.
    fn sent(&self, world: &World, seat: &mut Seat<Self::Own>, channel: u32, mask: FieldMask);

    /// Fields have to be sent again: they are in the channel's resend mask.
    fn lost(&self, _own: &mut Self::Own, _channel: u32, _state: &Channel) {}

    /// Other fields may be sent now than before: those that are new are in the channel's resend mask.
    fn role_changed(&self, _own: &mut Self::Own, _channel: u32, _state: &Channel) {}

    /// The channel's number is free again.
    fn freed(&self, _own: &mut Self::Own, _channel: u32, _state: &Channel) {}
}

/// The slot of one connection.
pub struct Place<O> {
    generation: u32,
    pub(crate) seat: Option<Box<Seat<O>>>,
}

/// One connection.
pub struct Seat<O> {
    pub(crate) viewer: Viewer,
    pub(crate) link: Link,
    pub(crate) own: O,
    /// Channels to be written in this tick.
    pub(crate) due: DueList,
    /// The fields to send for the channel at the cursor; 0 only if just its existence has to be sent.
    mask: FieldMask,
}

/// An older replication model.
pub struct Modelled<M: Model> {
    world: World,
    model: M,
    places: Vec<Place<M::Own>>,
}

/// Shared data of a tick's writers.
pub struct Shared<'a, M> {
    world: &'a World,
    model: &'a M,
}

impl<M> Clone for Shared<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Shared<'_, M> {}

impl<O: Default> Seat<O> {
    fn new(id: ConnectionId) -> Seat<O> {
        let (viewer, link, own) = (Viewer::new(id), Link::default(), O::default());
        Seat { viewer, link, own, due: DueList::default(), mask: 0 }
    }
}

impl<O> Seat<O> {
    /// Moves to the next channel that really has something to send.
    fn advance<M: Model<Own = O>>(&mut self, shared: Shared<'_, M>) {
        while let Some(channel) = self.due.current() {
            self.mask = shared.model.pending(shared.world, self, channel);
            if self.mask != 0 || self.link.channel(channel).is_untold {
                return;
            }
            self.due.advance();
        }
    }

    fn write_due<M: Model<Own = O>>(&mut self, shared: Shared<'_, M>, packet: &mut Packet<'_>) {
        while let Some(channel) = self.due.current() {
            if !self.link.put(packet, shared.world, channel, self.mask) {
                return;
            }
            shared.model.sent(shared.world, self, channel, self.mask);
            self.due.advance();
            self.advance(shared);
        }
    }
}

impl<M: Model> Modelled<M> {
    /// Where an object is, if it exists.
    pub fn placement(&self, id: ObjectId) -> Option<Placement> {
        self.world.contains(id).then(|| self.world.placement(id)).flatten()
    }

    pub(crate) fn with(model: M, schema: &Arc<Schema>, options: &ServerOptions) -> Result<Modelled<M>, StartError> {
        let (objects, first_tick) = (options.replicator.objects, options.replicator.first_tick);
        Ok(Modelled {
            world: World::new(schema, options.grids.clone(), objects, first_tick),
            model,
            places: Vec::new(),
        })
    }

    fn seat(&mut self, id: ConnectionId) -> Option<&mut Seat<M::Own>> {
        self.places.get_mut(id.index as usize)?.seat.as_deref_mut().filter(|seat| seat.viewer.id == id)
    }

    fn seats(&mut self) -> impl Iterator<Item = &mut Seat<M::Own>> {
        self.places.iter_mut().filter_map(|place| place.seat.as_deref_mut())
    }
}

impl<M: Model> Replication for Modelled<M> {
    type Outgoing<'a>
        = Shared<'a, M>
    where
        M: 'a;
    type Slot = Place<M::Own>;

    fn schema(&self) -> &Arc<Schema> {
        self.world.schema()
    }

    fn now(&self) -> Tick {
        self.world.now()
    }

    fn spawn(
        &mut self,
        kind: KindId,
        placement: Placement,
        owner: Option<ConnectionId>,
        quantise: impl FnOnce(ValuesMut<'_>),
    ) -> Result<ObjectId, LimitReached> {
        // Messages and inputs are kinds too, and may be longer than a record.
        let described = self.world.schema().kind(kind);
        let bytes = described.max_bits(described.all_mask()).div_ceil(8);
        if bytes > RECORD_MAX_BYTES {
            return Err(EntryTooLong { kind: described.name, facet: Facet::Public, bytes }.into());
        }
        let id = self.world.spawn(kind, placement, owner, quantise)?;
        self.model.began(&self.world, id.index);
        Ok(id)
    }

    fn update(&mut self, id: ObjectId, quantise: impl FnOnce(ValuesMut<'_>)) {
        if self.world.contains(id) {
            let mask = self.world.update(id, quantise);
            self.model.touched(&self.world, id.index, mask);
        }
    }

    fn despawn(&mut self, id: ObjectId) {
        if !self.world.contains(id) {
            return;
        }
        self.model.ended(&self.world, id.index);
        self.world.despawn(id);
        for seat in self.seats() {
            if let Some(channel) = seat.link.find(id.index) {
                seat.link.close(channel);
            }
        }
    }

    fn set_owner(&mut self, id: ObjectId, owner: Option<ConnectionId>) -> Result<(), LimitReached> {
        if !self.world.contains(id) {
            return Ok(());
        }
        self.world.set_owner(id, owner);
        self.model.moved(&self.world, id.index);
        for seat in self.places.iter_mut().filter_map(|place| place.seat.as_deref_mut()) {
            if let Some(channel) = seat.link.find(id.index) {
                seat.link.set_role(&self.world, channel, owner == Some(seat.viewer.id));
                self.model.role_changed(&mut seat.own, channel, seat.link.channel(channel));
            }
        }
        Ok(())
    }

    fn set_placement(&mut self, id: ObjectId, placement: Placement) -> Result<(), LimitReached> {
        if self.world.contains(id) {
            self.world.set_placement(id, placement);
            self.model.moved(&self.world, id.index);
        }
        Ok(())
    }

    fn connect(&mut self, index: usize) -> ConnectionId {
        if self.places.len() <= index {
            self.places.resize_with(index + 1, || Place { generation: 0, seat: None });
        }
        let place = &mut self.places[index];
        assert!(place.seat.is_none(), "place {index} is taken");
        place.generation = place.generation.wrapping_add(1);
        let id = ConnectionId { index: index as u32, generation: place.generation };
        let mut seat = Box::new(Seat::new(id));
        self.model.seated(&mut seat);
        place.seat = Some(seat);
        id
    }

    fn admit(&mut self, id: ConnectionId) {
        if let Some(seat) = self.seat(id) {
            seat.viewer.is_live = true;
            seat.viewer.follow(ChannelKey::Owner(id));
        }
    }

    fn disconnect(&mut self, id: ConnectionId) {
        if self.seat(id).is_some() {
            self.places[id.index as usize].seat = None;
        }
    }

    fn set_viewpoint(&mut self, id: ConnectionId, position: [f64; 3]) {
        if let Some(seat) = self.seat(id) {
            seat.viewer.viewpoint_m = Some(position.map(|axis| axis as f32));
        }
    }

    fn subscribe(&mut self, id: ConnectionId, key: ChannelKey, _: u16) -> Result<(), LimitReached> {
        let seat = self.seat(id).filter(|seat| seat.viewer.is_live).ok_or(LimitReached::UnknownConnection)?;
        seat.viewer.follow(key);
        Ok(())
    }

    fn unsubscribe(&mut self, id: ConnectionId, key: ChannelKey) {
        if let Some(seat) = self.seat(id) {
            seat.viewer.unfollow(key);
        }
    }

    fn look(&mut self, _: &impl Executor) {
        self.model.look(&self.world, &mut self.places);
    }

    fn plan(&mut self, _: &impl Executor) {}

    fn encode(&mut self, _: &impl Executor) {
        self.model.encode(&self.world, &mut self.places);
    }

    fn writers(&mut self) -> (Shared<'_, M>, &mut [Place<M::Own>]) {
        (Shared { world: &self.world, model: &self.model }, &mut self.places)
    }

    fn begin_write(place: &mut Place<M::Own>, shared: Shared<'_, M>, budget_bytes: usize) {
        let Some(seat) = place.seat.as_deref_mut() else { return };
        seat.due.clear();
        if seat.viewer.is_live {
            shared.model.begin_write(shared.world, seat);
            seat.due.order(budget_bytes);
            seat.advance(shared);
        }
    }

    fn has_more(place: &Place<M::Own>) -> bool {
        place.seat.as_ref().is_some_and(|seat| !seat.due.is_empty() || seat.link.has_closes())
    }

    fn write_packet(place: &mut Place<M::Own>, shared: Shared<'_, M>, sequence: u64, room: &mut [u8]) -> usize {
        let Some(seat) = place.seat.as_deref_mut() else { return 0 };
        let mut buffer = seat.link.take_buffer();
        let mut packet = seat.link.begin_packet(&mut buffer, room.len());
        if seat.link.put_closes(&mut packet, shared.world) {
            seat.write_due(shared, &mut packet);
        }
        let first = packet.finish();
        let len = buffer.len();
        room[..len].copy_from_slice(&buffer);
        seat.link.end_packet(buffer, sequence, first);
        len
    }

    fn delivered(&mut self, id: ConnectionId, sequence: u64) {
        let Some(seat) = self.places.get_mut(id.index as usize).and_then(|place| place.seat.as_deref_mut()) else {
            return;
        };
        let (model, own) = (&self.model, &mut seat.own);
        seat.link.delivered(sequence, |channel, state| model.freed(own, channel, state));
    }

    fn lost(&mut self, id: ConnectionId, sequence: u64) {
        let Some(seat) = self.places.get_mut(id.index as usize).and_then(|place| place.seat.as_deref_mut()) else {
            return;
        };
        let (model, own) = (&self.model, &mut seat.own);
        seat.link.lost(sequence, |channel, state| model.lost(own, channel, state));
    }

    fn end_tick(&mut self) {
        self.world.end_tick();
    }

    fn objects(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.world.ids()
    }

    fn object(&self, id: ObjectId) -> Option<Replicated<'_>> {
        self.world.object(id)
    }

    fn counters(&self) -> HubCounters {
        HubCounters::default()
    }

    fn connection_counters(&self, id: ConnectionId) -> Option<ConnectionCounters> {
        let seat = self.places.get(id.index as usize)?.seat.as_ref().filter(|seat| seat.viewer.id == id)?;
        Some(seat.link.counters)
    }

    fn channel_count(&self) -> usize {
        0
    }

    fn followed_count(&self, id: ConnectionId) -> usize {
        let seat = self.places.get(id.index as usize).and_then(|place| place.seat.as_ref());
        seat.map_or(0, |seat| seat.link.told().count())
    }

    fn refusals(&self) -> [(&'static str, u64); 2] {
        [("views_refused", 0), ("hub_limits", 0)]
    }
}
