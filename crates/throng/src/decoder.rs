//! The client's half of a replication model: the other end of [`Replication`](crate::Replication).

use std::sync::Arc;

use throng_replica::{ClientEvent, ClientOptions, GridShape, KindBits, Reckoned, ReplicaClient};
use throng_schema::{Facet, FieldMask, Schema, Values, ValuesMut};
use throng_wire::{KindId, ObjectId, Tick};

/// Applies the replication part of packets, in whatever order they come.
pub trait Decoder: Send + Sized {
    /// An empty decoder, for a server with these grids. The error says in words why it is impossible.
    fn open(schema: &Arc<Schema>, grids: &[GridShape], options: ClientOptions) -> Result<Self, String>;

    /// Applies what the server wrote into a packet at `tick`. After an error, which says in words what is wrong, the
    /// connection should be closed.
    fn apply(&mut self, tick: Tick, bytes: &[u8]) -> Result<(), String>;

    /// The next event; poll until `None` after each batch of packets.
    fn poll_event(&mut self) -> Option<ClientEvent>;

    /// The object of that id, if it is in sight.
    fn view(&self, id: ObjectId) -> Option<ObjectView<'_>>;

    /// All objects that are in sight.
    fn views(&self) -> impl Iterator<Item = ObjectView<'_>>;

    /// Those objects in sight that `is_chosen` takes, by id and [`ObjectView::facets`]. For thousands of objects of which few are
    /// looked at: a view of each would wait for memory.
    fn views_of(
        &self,
        is_chosen: impl Fn(ObjectId, [bool; Facet::ALL.len()]) -> bool,
    ) -> impl Iterator<Item = ObjectView<'_>> {
        self.views().filter(move |view| is_chosen(view.id, view.facets))
    }

    /// Number of objects that are in sight.
    fn count(&self) -> usize;

    /// The objects that belong to this client.
    fn owned(&self) -> impl Iterator<Item = ObjectView<'_>> {
        self.views().filter(|view| view.is_own())
    }

    /// The length of all state that was read, by kind and field; empty if it is not counted.
    fn bits(&self) -> &[KindBits] {
        &[]
    }

    /// Whether the state comes with [`input_acked`](Self::input_acked). Otherwise the number in the packets' headers
    /// has to do.
    const TELLS_INPUTS: bool = false;

    /// The newest input whose effect is in the state of the client's own objects.
    fn input_acked(&self) -> Option<u32> {
        None
    }

    /// The newest input whose effect is in the state of one of its own objects.
    fn input_acked_by(&self, _id: ObjectId) -> Option<u32> {
        None
    }

    /// Replaces the `skip_owner` fields of an own object by those that `write` writes. False if it is not its own.
    fn predict(&mut self, _id: ObjectId, _write: impl FnOnce(ValuesMut<'_>)) -> bool {
        false
    }
}

/// An object as a client knows it.
#[derive(Clone, Copy, Debug)]
pub struct ObjectView<'a> {
    /// Its id.
    pub id: ObjectId,
    /// Its kind.
    pub kind: KindId,
    /// Its quantised values; zero for unknown fields.
    pub values: Values<'a>,
    /// The fields that the client may know and has received.
    pub known_fields: FieldMask,
    /// By [`Facet::index`]: whether the client receives changes.
    pub facets: [bool; Facet::ALL.len()],
    /// It has moved to a cell whose next turn has not come yet.
    pub is_awaited: bool,
    /// The tick of its newest update.
    pub newest_tick: Tick,
    /// Where it is, if the values hold only where it was when its position was stated: see `predict` at
    /// [`Replicate`](derive@crate::Replicate).
    pub reckoned: Option<Reckoned<'a>>,
}

impl<'a> ObjectView<'a> {
    /// The values as a client shows them: with the position at the newest tick of any packet. `room` is for the words of a
    /// kind whose position is predicted.
    pub fn shown<'b>(&self, room: &'b mut Vec<u32>) -> Values<'b>
    where
        'a: 'b,
    {
        let Some(reckoned) = self.reckoned else { return self.values };
        room.clear();
        room.extend_from_slice(self.values.words);
        reckoned.reckoning.set_position(room, reckoned.now());
        Values { words: room, blobs: self.values.blobs }
    }

    /// Whether it belongs to this client.
    pub fn is_own(&self) -> bool {
        self.facets[Facet::Owner.index()]
    }
}

impl Decoder for ReplicaClient {
    fn open(schema: &Arc<Schema>, grids: &[GridShape], options: ClientOptions) -> Result<Self, String> {
        ReplicaClient::new(Arc::clone(schema), grids, options).map_err(|error| error.to_string())
    }

    fn apply(&mut self, tick: Tick, bytes: &[u8]) -> Result<(), String> {
        ReplicaClient::apply(self, tick, bytes).map_err(|error| error.to_string())
    }

    fn poll_event(&mut self) -> Option<ClientEvent> {
        ReplicaClient::poll_event(self)
    }

    fn view(&self, id: ObjectId) -> Option<ObjectView<'_>> {
        self.object(id).map(|object| view_of(self, object))
    }

    fn views(&self) -> impl Iterator<Item = ObjectView<'_>> {
        self.objects().map(|object| view_of(self, object))
    }

    fn views_of(
        &self,
        is_chosen: impl Fn(ObjectId, [bool; Facet::ALL.len()]) -> bool,
    ) -> impl Iterator<Item = ObjectView<'_>> {
        let chosen = self.objects().filter(move |object| is_chosen(object.id(), facets_of(object)));
        chosen.map(|object| view_of(self, object))
    }

    fn count(&self) -> usize {
        self.object_count()
    }

    fn bits(&self) -> &[KindBits] {
        ReplicaClient::bits(self)
    }

    fn owned(&self) -> impl Iterator<Item = ObjectView<'_>> {
        ReplicaClient::owned(self).map(|object| view_of(self, object))
    }

    const TELLS_INPUTS: bool = true;

    fn input_acked(&self) -> Option<u32> {
        ReplicaClient::input_acked(self)
    }

    fn input_acked_by(&self, id: ObjectId) -> Option<u32> {
        ReplicaClient::input_acked_by(self, id)
    }

    fn predict(&mut self, id: ObjectId, write: impl FnOnce(ValuesMut<'_>)) -> bool {
        ReplicaClient::predict(self, id, write)
    }
}

fn facets_of(object: &throng_replica::ReplicaObject) -> [bool; Facet::ALL.len()] {
    let mut facets = [false; Facet::ALL.len()];
    object.facets().for_each(|facet| facets[facet.index()] = true);
    facets
}

fn view_of<'a>(client: &'a ReplicaClient, object: &'a throng_replica::ReplicaObject) -> ObjectView<'a> {
    ObjectView {
        id: object.id(),
        kind: object.kind(),
        values: object.values(),
        known_fields: object.known_fields(),
        facets: facets_of(object),
        is_awaited: object.is_awaited(),
        newest_tick: object.newest_tick(),
        reckoned: client.reckoned(object),
    }
}
