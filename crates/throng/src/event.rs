//! What a server tells the game.

use throng_link::netcode::USER_DATA_LEN;
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
    /// A client is gone.
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
