//! The events of a server.

use throng_link::netcode::{Denial, USER_DATA_LEN};
use throng_link::session::CloseCause;
use throng_wire::ConnectionId;

use crate::handshake::OpenError;
use crate::message::Received;

/// Something happened on a connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ServerEvent {
    /// A client has connected: it has a valid token, has proved its address, and has the same schema.
    Connected {
        /// Its id from now on.
        connection: ConnectionId,
        /// The client's id, from its token.
        client_id: u64,
        /// The user data of its token.
        user_data: Box<[u8; USER_DATA_LEN]>,
    },
    /// A client has left. If a newer connection of the same client replaced it, the cause is
    /// [`CloseCode::REPLACED`](crate::CloseCode::REPLACED), and *connected* with the new id may follow.
    Disconnected {
        /// Its former id.
        connection: ConnectionId,
        /// The client's id, from its token.
        client_id: u64,
        /// Why.
        cause: CloseCause,
    },
    /// A client with a valid token was refused, because its protocol or schema differs.
    Refused {
        /// The client's id, from its token.
        client_id: u64,
        /// Why.
        error: OpenError,
    },
    /// A client with a genuine token was refused at the door and got the reason: the server is full, it refuses second
    /// connections, or the token is for another protocol id. (Old tokens are only counted.)
    Denied {
        /// The client's id, from its token.
        client_id: u64,
        /// Why.
        denial: Denial,
    },
    /// A message came.
    Message {
        /// The sender.
        connection: ConnectionId,
        /// The lane, counted as in [`ServerOptions::lanes`](crate::ServerOptions::lanes).
        lane: u8,
        /// The message.
        message: Received,
    },
}
