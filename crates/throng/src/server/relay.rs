//! For programs that pass on what another server says: objects and messages as they came, and which channels have readers.

use throng_link::session::LaneId;
use throng_replica::{ChannelKey, LimitReached, Placement};
use throng_schema::{Replicate, Values, ValuesMut};
use throng_wire::{ConnectionId, KindId, ObjectId};

use super::{MessageError, Server};
use crate::channels::Channels;
use crate::greeting::Stage;
use crate::message::{self, Received};
use crate::replication::Replication;

impl<R: Replication> Server<R> {
    /// Adds an object whose fields are quantised, as [`ClientCore::replica`](crate::ClientCore::replica) has them. It has no
    /// value of a type: [`get`](Self::get) and [`objects`](Self::objects) do not know it, and
    /// [`write_quantised`](Self::write_quantised) changes it.
    ///
    /// # Errors
    /// As [`Server::spawn`], or the values are not those of the kind.
    pub fn spawn_quantised(
        &mut self,
        kind: KindId,
        values: Values<'_>,
        placement: Placement,
        owner: Option<ConnectionId>,
    ) -> Result<ObjectId, LimitReached> {
        let fits = self.schema.get(kind).is_some_and(|kind| {
            let (words, blobs) = kind.empty_values();
            (words.len(), blobs.len()) == (values.words.len(), values.blobs.len())
        });
        if !fits {
            return Err(LimitReached::Values);
        }
        self.replication.spawn(kind, placement, owner, |to| copy(values, to))
    }

    /// Sets all fields of an object that [`spawn_quantised`](Self::spawn_quantised) has added. Only fields that differ are
    /// sent. False if there is no such object.
    pub fn write_quantised(&mut self, id: ObjectId, values: Values<'_>) -> bool {
        let fits = self.replication.object(id).is_some_and(|object| {
            (object.values.words.len(), object.values.blobs.len()) == (values.words.len(), values.blobs.len())
        });
        if fits {
            self.replication.update(id, |to| copy(values, to));
        }
        fits
    }

    /// Sends a message that is encoded, as [`Received::bytes`] has it. [`Server::send`] encodes one.
    ///
    /// # Errors
    /// As [`Server::send`].
    pub fn send_encoded(&mut self, connection: ConnectionId, lane: u8, message: &[u8]) -> Result<(), MessageError> {
        let peer = self.peers.get_mut(connection).filter(|peer| peer.stage == Stage::Live);
        let peer = peer.ok_or(MessageError::UnknownConnection)?;
        peer.session.send(LaneId(lane.saturating_add(1)), message)?;
        Ok(())
    }

    /// A message as it is sent.
    ///
    /// # Errors
    /// The type is not in the schema.
    pub fn encoded<T: Replicate>(&self, message: &T) -> Result<Vec<u8>, MessageError> {
        let mut bytes = Vec::new();
        message::encode(&self.schema, message, &mut bytes).ok_or(MessageError::UnknownKind)?;
        Ok(bytes)
    }

    /// A message from its bytes, whatever they are.
    pub fn received(&self, bytes: Vec<u8>) -> Received {
        Received::new(bytes, &self.schema)
    }
}

impl Server<Channels> {
    /// The channels that clients are subscribed to, each with the shortest interval of its subscriptions in ticks, in no
    /// particular order. Takes a look at all subscriptions of all clients.
    pub fn channels_read(&self) -> Vec<(ChannelKey, u16)> {
        self.replication.channels_read()
    }
}

fn copy(values: Values<'_>, to: ValuesMut<'_>) {
    to.words.copy_from_slice(values.words);
    to.blobs.clone_from_slice(values.blobs);
}
