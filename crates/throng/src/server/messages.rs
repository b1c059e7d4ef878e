//! Messages of a server: to one client, to all, to the readers of a channel, to clients near a position.

use thiserror::Error;
use throng_link::session::{Input, LaneId, SendError};
use throng_replica::ChannelKey;
use throng_schema::Replicate;
use throng_wire::ConnectionId;

use super::Server;
use crate::greeting::Stage;
use crate::message;
use crate::replication::Replication;

/// Why a message could not be sent. Our misuse, or a queue that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The connection is gone.
    #[error("the connection does not exist: it has ended, or its `ServerEvent::Connected` has not been polled yet")]
    UnknownConnection,
    /// The client is not connected.
    #[error("the client is not connected: messages can be sent from ClientEvent::Connected to ClientEvent::Ended")]
    NotConnected,
    /// The type is not in the schema.
    #[error("the type is not in the schema: add it with Schema::builder().kind()")]
    UnknownKind,
    /// The session refused it.
    #[error(transparent)]
    Session(#[from] SendError),
}

/// The result of a message to several clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queued {
    /// Clients for which it was queued.
    pub clients: usize,
    /// Clients that do not get it, because their lane was full: [`Server::limits_reached`] counts them as
    /// `messages_refused`. On an unreliable lane there are none; it drops its oldest messages instead.
    pub refused: usize,
}

impl<R: Replication> Server<R> {
    /// Sends a message to one client, on one of the lanes of [`ServerOptions::lanes`](crate::ServerOptions::lanes).
    ///
    /// # Errors
    /// The connection does not exist or is closing, the type is not in the schema, the lane does not exist or is full,
    /// or the message is too long for it.
    pub fn send<T: Replicate>(&mut self, connection: ConnectionId, lane: u8, message: &T) -> Result<(), MessageError> {
        self.encode(message)?;
        let peer = self.peers.get_mut(connection).filter(|peer| peer.stage == Stage::Live);
        let peer = peer.ok_or(MessageError::UnknownConnection)?;
        peer.session.send(LaneId(lane.saturating_add(1)), &self.scratch)?;
        Ok(())
    }

    /// Sends a message to every client that is connected. It is encoded once.
    ///
    /// # Errors
    /// The type is not in the schema, the lane does not exist, or the message is too long for it: then no client gets
    /// it.
    pub fn broadcast<T: Replicate>(&mut self, lane: u8, message: &T) -> Result<Queued, MessageError> {
        self.send_where(lane, message, |_, _| true)
    }

    /// Sends a message to every client that receives a channel, by its viewpoint or by [`subscribe`](Self::subscribe):
    /// the members of a team, the viewers of a cell. It is encoded once.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub fn send_to_channel<T: Replicate>(
        &mut self,
        channel: ChannelKey,
        lane: u8,
        message: &T,
    ) -> Result<Queued, MessageError> {
        self.send_where(lane, message, |replication, connection| replication.is_reader(connection, channel))
    }

    /// Sends a message to every client that looks from within `radius_m` of a position, in metres: an explosion, a shout.
    /// The viewpoint ([`set_viewpoint`](Self::set_viewpoint)) counts, not the client's objects. It is encoded once.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub fn send_near<T: Replicate>(
        &mut self,
        place: [f64; 3],
        radius_m: f64,
        lane: u8,
        message: &T,
    ) -> Result<Queued, MessageError> {
        self.send_where(lane, message, |replication, connection| replication.is_near(connection, place, radius_m))
    }

    fn send_where<T: Replicate>(
        &mut self,
        lane: u8,
        message: &T,
        is_wanted: impl Fn(&R, ConnectionId) -> bool,
    ) -> Result<Queued, MessageError> {
        self.encode(message)?;
        let limit = self.options.lanes.get(usize::from(lane)).ok_or(SendError::UnknownLane)?.message_bytes;
        if self.scratch.len() > limit {
            return Err(SendError::TooLarge { bytes: self.scratch.len(), limit }.into());
        }
        let mut queued = Queued::default();
        for peer in self.peers.iter_mut().filter(|peer| peer.stage == Stage::Live && !peer.session.is_closing()) {
            if is_wanted(&self.replication, peer.id) {
                match peer.session.send(LaneId(lane + 1), &self.scratch) {
                    Ok(_) => queued.clients += 1,
                    Err(_) => queued.refused += 1,
                }
            }
        }
        self.messages_refused += queued.refused as u64;
        Ok(queued)
    }

    /// Writes the message into `scratch`.
    fn encode<T: Replicate>(&mut self, message: &T) -> Result<(), MessageError> {
        self.scratch.clear();
        message::encode(&self.schema, message, &mut self.scratch).ok_or(MessageError::UnknownKind)
    }

    /// An input as the type that the client sent, if it is one.
    pub fn read_input<T: Replicate>(&self, input: &Input) -> Option<T> {
        message::decode(&self.schema, input.bytes())
    }

    /// The name of an input's kind: compare it with [`Replicate::KIND`] of a type. `None` if it names none of the schema.
    pub fn input_kind(&self, input: &Input) -> Option<&'static str> {
        message::kind(&self.schema, input.bytes())
    }
}
