//! What a server tells the game.

use throng_link::netcode::{Denial, USER_DATA_LEN};
use throng_link::session::CloseCause;
use throng_wire::ConnectionId;

use crate::handshake::OpenError;
use crate::message::Received;

/// Something happened on a connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ServerEvent {
    /// A client is there: it has a valid token, has proved its address, and replicates the same kinds.
    Connected {
        /// Its name from now on.
        connection: ConnectionId,
        /// Who it is, from its token.
        client_id: u64,
        /// What the token's issuer said about it.
        user_data: Box<[u8; USER_DATA_LEN]>,
    },
    /// A client is gone. If a newer connection of the same client took its place, the cause is
    /// [`CloseCode::REPLACED`](crate::CloseCode::REPLACED), and *connected* with the new name may follow.
    Disconnected {
        /// Its former name.
        connection: ConnectionId,
        /// Who it was, from its token.
        client_id: u64,
        /// Why.
        cause: CloseCause,
    },
    /// A client with a valid token was turned away, because it cannot understand us.
    Refused {
        /// Who it is, from its token.
        client_id: u64,
        /// Why.
        error: OpenError,
    },
    /// A client with a genuine token was turned away at the door, and has been told why: the server is full, it refuses
    /// second connections, or the token is for another protocol id. (Old tokens are only counted.)
    Denied {
        /// Who it is, from its token.
        client_id: u64,
        /// Why.
        denial: Denial,
    },
    /// A message came.
    Message {
        /// From whom.
        connection: ConnectionId,
        /// On which lane, counted as in [`ServerOptions::lanes`](crate::ServerOptions::lanes).
        lane: u8,
        /// The message.
        message: Received,
    },
}
