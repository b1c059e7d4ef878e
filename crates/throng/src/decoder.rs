//! What a client needs of a replication model: the other end of [`Replication`](crate::Replication).

use std::sync::Arc;

use throng_replica::{ClientEvent, ClientOptions, GridShape, ReplicaClient};
use throng_schema::{Facet, FieldMask, Schema, Values};
use throng_wire::{KindId, ObjectId, Tick};

/// Applies the replication part of packets, in whatever order they come.
pub trait Decoder: Send + Sized {
    /// A decoder that knows nothing yet, for a server with these grids. The error says why it cannot be, in words.
    fn open(schema: &Arc<Schema>, grids: &[GridShape], options: ClientOptions) -> Result<Self, String>;

    /// Applies what the server wrote into a packet at `tick`. After an error, which says in words what is wrong, the
    /// connection should be closed.
    fn apply(&mut self, tick: Tick, bytes: &[u8]) -> Result<(), String>;

    /// The next event; poll until `None` after each batch of packets.
    fn poll_event(&mut self) -> Option<ClientEvent>;

    /// The object of that id, if it is there.
    fn view(&self, id: ObjectId) -> Option<ObjectView<'_>>;

    /// All objects that are there.
    fn views(&self) -> impl Iterator<Item = ObjectView<'_>>;

    /// Number of objects that are there.
    fn count(&self) -> usize;
}

/// An object as a client knows it.
#[derive(Clone, Copy, Debug)]
pub struct ObjectView<'a> {
    /// Its id.
    pub id: ObjectId,
    /// Its kind.
    pub kind: KindId,
    /// Its quantised values; zero where nothing was told.
    pub values: Values<'a>,
    /// The fields that were told at least once.
    pub known_fields: FieldMask,
    /// By [`Facet::index`]: whether the client is told of changes. None of them, if the object is only kept for a while.
    pub facets: [bool; Facet::ALL.len()],
    /// The tick of the newest news of it.
    pub newest_tick: Tick,
}

impl ObjectView<'_> {
    /// Whether the client is still told anything of it.
    pub fn is_followed(&self) -> bool {
        self.facets.contains(&true)
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
        self.object(id).map(view_of)
    }

    fn views(&self) -> impl Iterator<Item = ObjectView<'_>> {
        self.objects().map(view_of)
    }

    fn count(&self) -> usize {
        self.object_count()
    }
}

fn view_of(object: &throng_replica::ReplicaObject) -> ObjectView<'_> {
    let mut facets = [false; Facet::ALL.len()];
    object.facets().for_each(|facet| facets[facet.index()] = true);
    ObjectView {
        id: object.id(),
        kind: object.kind(),
        values: object.values(),
        known_fields: object.known_fields(),
        facets,
        newest_tick: object.newest_tick(),
    }
}
