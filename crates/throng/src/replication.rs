//! The server's half of a replication model. [`Channels`](crate::Channels) is the one for games; others are for
//! comparison.

use std::sync::Arc;

use throng_interest::{InterestError, Shape};
use throng_replica::{ChannelKey, ConnectionCounters, Executor, HubCounters, LimitReached, Placement};
use throng_schema::{Schema, Values, ValuesMut};
use throng_wire::{ConnectionId, KindId, ObjectId, Tick};

/// Objects, and the updates that each connection gets: the part of a server between the game's values and the bytes of
/// packets.
///
/// A server is compiled for one model, so nothing is decided at run time. The order of calls in a tick:
///
/// ```text
/// connect, admit, disconnect, delivered, settle, lost    while datagrams are taken in
/// spawn, update, despawn, set_*, subscribe ...     while the game plays; update again for what it touched
/// look                                             who sees what
/// set_allowance                                    what each connection can be sent
/// plan                                             which updates are due
/// encode                                           what all connections share
/// writers, then for each connection, in parallel:  begin_write, (has_more, write_packet) until there is no room
/// end_tick                                         the next tick begins
/// ```
pub trait Replication: Send + Sized {
    /// Data that the writers of a tick share.
    type Outgoing<'a>: Copy + Send + Sync
    where
        Self: 'a;
    /// The data of one connection. Slots have the index of the connection, and may be empty.
    type Slot: Send;

    /// The schema of all objects.
    fn schema(&self) -> &Arc<Schema>;

    /// The tick that changes made now will belong to.
    fn now(&self) -> Tick;

    /// Adds an object. `quantise` writes its first values.
    fn spawn(
        &mut self,
        kind: KindId,
        placement: Placement,
        owner: Option<ConnectionId>,
        quantise: impl FnOnce(ValuesMut<'_>),
    ) -> Result<ObjectId, LimitReached>;

    /// The game may have changed the object: `quantise` writes what its values are now.
    fn update(&mut self, id: ObjectId, quantise: impl FnOnce(ValuesMut<'_>));

    /// Reads a little of everything that an [`update`](Self::update) of the object with this index looks at, so that the
    /// processor fetches that of many objects at once. The value means nothing.
    fn fetch_object(&self, index: u32) -> u64 {
        let _ = index;
        0
    }

    /// Ends an object.
    fn despawn(&mut self, id: ObjectId);

    /// Gives an object to another connection, or to none.
    fn set_owner(&mut self, id: ObjectId, owner: Option<ConnectionId>) -> Result<(), LimitReached>;

    /// The state of this tick includes the effect of this input of the connection. Does nothing in models that use the
    /// packets' headers for it.
    fn acknowledge_input(&mut self, _id: ConnectionId, _number: u32) {}

    /// Moves an object to where `placement` says.
    fn set_placement(&mut self, id: ObjectId, placement: Placement) -> Result<(), LimitReached>;

    /// Takes the slot `index` for a connection, which cannot read anything yet.
    ///
    /// # Panics
    /// May panic if the slot is taken.
    fn connect(&mut self, index: usize) -> ConnectionId;

    /// The connection can read everything from now on.
    fn admit(&mut self, id: ConnectionId);

    /// Frees the slot of a connection.
    fn disconnect(&mut self, id: ConnectionId);

    /// Where the connection looks from, in metres.
    fn set_viewpoint(&mut self, id: ConnectionId, position: [f64; 3]);

    /// The viewpoints of the connection, in metres, if it has several. Models with one viewpoint for each connection
    /// take the first.
    fn set_viewpoints(&mut self, id: ConnectionId, positions: &[[f64; 3]]) -> Result<(), InterestError> {
        positions.first().into_iter().for_each(|&position| self.set_viewpoint(id, position));
        Ok(())
    }

    /// The shapes that the connection sees in addition to the surroundings of its viewpoints. Models without cells
    /// ignore them.
    fn set_shapes(&mut self, id: ConnectionId, shapes: &[Shape]) -> Result<(), InterestError> {
        let _ = (id, shapes);
        Ok(())
    }

    /// Sends the connection the state of a channel, every `interval_ticks` ticks if the model has rates for channels.
    fn subscribe(&mut self, id: ConnectionId, key: ChannelKey, interval_ticks: u16) -> Result<(), LimitReached>;

    /// Ends what [`subscribe`](Self::subscribe) began.
    fn unsubscribe(&mut self, id: ConnectionId, key: ChannelKey);

    /// Whether the connection receives a channel. Never in models without channels.
    fn is_reader(&self, id: ConnectionId, key: ChannelKey) -> bool {
        let _ = (id, key);
        false
    }

    /// Whether the connection looks from within `radius_m` of a position, in metres. Never in models that keep no viewpoints.
    fn is_near(&self, id: ConnectionId, place: [f64; 3], radius_m: f64) -> bool {
        let _ = (id, place, radius_m);
        false
    }

    /// Follows the viewpoints.
    fn look(&mut self, executor: &impl Executor);

    /// How much may be written to a connection in the coming tick, in bytes; 0 for nothing at all. A model with shared
    /// encoding need not encode state that cannot be sent to any connection.
    fn set_allowance(&mut self, id: ConnectionId, bytes: usize) {
        let _ = (id, bytes);
    }

    /// Decides which updates are due. Does nothing in models that decide it when they encode.
    fn plan(&mut self, executor: &impl Executor);

    /// Encodes the updates that connections share. A model without a [`plan`](Self::plan) decides here what is due.
    fn encode(&mut self, executor: &impl Executor);

    /// The shared data of the writers, and the slots of all connections, to divide among threads.
    fn writers(&mut self) -> (Self::Outgoing<'_>, &mut [Self::Slot]);

    /// Decides the order of a connection's due updates, in a tick in which `budget_bytes` may be written.
    fn begin_write(slot: &mut Self::Slot, outgoing: Self::Outgoing<'_>, budget_bytes: usize);

    /// Whether there is anything left to write to the connection in this tick.
    fn has_more(slot: &Self::Slot) -> bool;

    /// Whether the next piece needs an empty packet.
    fn needs_full_packet(slot: &Self::Slot) -> bool {
        let _ = slot;
        false
    }

    /// Reads a little of every part of a connection that is about to be written to, so that the processor fetches them all at
    /// once. The value means nothing.
    fn fetch(slot: &Self::Slot) -> u64 {
        u64::from(Self::has_more(slot))
    }

    /// As [`fetch`](Self::fetch), for what lies behind pointers. Called after it.
    fn fetch_behind(slot: &Self::Slot) -> u64 {
        let _ = slot;
        0
    }

    /// As [`fetch`](Self::fetch), for what is not the connection's own. Called after [`fetch_behind`](Self::fetch_behind).
    fn fetch_shared(slot: &Self::Slot, outgoing: Self::Outgoing<'_>) -> u64 {
        let _ = (slot, outgoing);
        0
    }

    /// Writes as much as fits into `room`, and remembers that packet `sequence`, greater than any before, carries it.
    /// Returns the bytes written; 0 when nothing is left or the next thing does not fit.
    fn write_packet(slot: &mut Self::Slot, outgoing: Self::Outgoing<'_>, sequence: u64, room: &mut [u8]) -> usize;

    /// A packet has arrived.
    fn delivered(&mut self, id: ConnectionId, sequence: u64);

    /// The slots of all connections, to divide among threads, if what has arrived can be told to slots:
    /// [`settle`](Self::settle) is called in place of [`delivered`](Self::delivered) then.
    fn settlers(&mut self) -> Option<&mut [Self::Slot]> {
        None
    }

    /// A packet of the connection in this slot has arrived.
    fn settle(slot: &mut Self::Slot, sequence: u64) {
        let _ = (slot, sequence);
    }

    /// A packet counts as lost.
    fn lost(&mut self, id: ConnectionId, sequence: u64);

    /// The tick is over; the next begins.
    fn end_tick(&mut self);

    /// The objects alive, by index.
    fn objects(&self) -> impl Iterator<Item = ObjectId> + '_;

    /// The objects that belong to a connection, whether it is still there or not.
    fn owned(&self, id: ConnectionId) -> impl Iterator<Item = ObjectId> + '_ {
        self.objects().filter(move |&object| self.object(object).is_some_and(|object| object.owner == Some(id)))
    }

    /// An object, as it was at the last update.
    fn object(&self, id: ObjectId) -> Option<Replicated<'_>>;

    /// Counters of shared work, as far as the model shares any.
    fn counters(&self) -> HubCounters;

    /// Counters of the data sent to one connection.
    fn connection_counters(&self, id: ConnectionId) -> Option<ConnectionCounters>;

    /// Channels with subscribers; 0 if the model has no channels.
    fn channel_count(&self) -> usize;

    /// The number of channels (or objects) that the connection follows.
    fn followed_count(&self, id: ConnectionId) -> usize;

    /// Reports how many entries each table of clients and objects holds, by name.
    fn records_held(&self, _report: &mut dyn FnMut(&'static str, usize)) {}

    /// Counts of refusals because of a limit, by the name of the limit.
    fn refusals(&self) -> [(&'static str, u64); 2];
}

/// An object as the server replicates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicated<'a> {
    /// Its kind.
    pub kind: KindId,
    /// Its owner.
    pub owner: Option<ConnectionId>,
    /// Where its public facet lives.
    pub placement: Placement,
    /// Its quantised values.
    pub values: Values<'a>,
}
