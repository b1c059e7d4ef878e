//! The netcode 1.02 standard: connect tokens, handshake, and sealed packets.
//!
//! Throng does not decide who may play: a backend that has authenticated a player makes a [`ConnectToken`] and hands it
//! over on a secure channel (HTTPS). The token carries the keys of one connection twice, once readable for the client
//! and once sealed with a private key that only backend and servers know. So the server needs no account database, and
//! a datagram without a valid token costs it one failed decryption and no memory.
//!
//! ```text
//! backend                     client                                          server
//!    |------ ConnectToken ------>|                                               |
//!    |                           |-- request 1078 B (sealed token, in the clear) >|  token valid? used elsewhere?
//!    |                           |<-- challenge 333 B (sealed, opaque token) ----|  keys of this address: pending
//!    |                           |-- response 326..333 B (the same token back) -->|  address proved: seat taken
//!    |                           |<-- keep-alive 26 B (seat, number of seats) ----|
//!    |                           |<============ payloads, both ways =============>|
//! ```
//!
//! Nothing here owns a socket, a clock or a source of randomness. The parts:
//!
//! | part | what it does | drain |
//! |---|---|---|
//! | [`ServerHandshake`] | answers datagrams from addresses that are not connected | one [`Outcome`] per datagram |
//! | [`Door`] | sorts a server's datagrams by address, and keeps those addresses, in front of a [`ServerHandshake`] | calls of its [`House`] |
//! | [`ClientHandshake`] | walks through the token's servers until one takes it | [`ClientHandshake::poll_transmit`], then `handle` |
//! | [`Sealer`] | seals outgoing packets in place: owns key and sequence number | one call per packet |
//! | [`Opener`] | authenticates and decrypts in place: owns key and replay window | one call per datagram |
//! | [`PathProbe`] | the client's side of a change of address | [`PathProbe::poll_transmit`] |
//!
//! # Duties of the owner of a connection
//!
//! - Datagrams from a connected address go to its [`Opener`], all others to the [`ServerHandshake`]: to
//!   [`handle_move`](ServerHandshake::handle_move) if they name a seat ([`move_seat`]), otherwise to
//!   [`handle`](ServerHandshake::handle).
//! - While nothing was sent for [`SEND_INTERVAL`], it sends a keep-alive ([`Sealer::seal_keep_alive`]).
//! - The server's side is *unconfirmed* until a payload or keep-alive arrives from the client. Until then it sends a
//!   keep-alive in front of each payload, because the client discards payloads until it knows its seat. A
//!   [`PacketKind::Response`] from a connected address means that the keep-alive was lost: answer with another one.
//! - Nothing authentic for the token's timeout ([`Accepted::timeout`], [`Connected::timeout`]): the peer is gone.
//! - To leave, it sends [`DISCONNECT_REPEATS`] disconnect packets, because they are not acknowledged.
//!
//! # Where this is stricter than the standard
//!
//! With the standard's cipher ([`Suite::ChaCha20Poly1305`]) the wire format is the standard's, and both ends work with other
//! implementations. These decisions are ours:
//!
//! - A token that has led to a connection is *spent* on this server, also for the address that used it. A second
//!   connection would start again at sequence number 0 under the same keys, which repeats nonces and lets a recorded
//!   session be replayed. A client that comes back needs a new token.
//! - The server's packets outside of a connection (challenge, denied) use sequence numbers with bit 63 set, as in the
//!   reference implementation, and start at a random one: two servers that challenge the same token use other nonces.
//! - A challenge is bound to the address that it was sent to, to one connect token, and to the time since that address was
//!   first challenged. So neither a challenge that was passed on nor a recorded answer proves anything. Clients echo
//!   challenge tokens without reading them.
//! - Decryptions for strangers have two budgets ([`ServerOptions::requests_per_s`]): one for requests and wishes to move, and
//!   one for answers to challenges. An address that was challenged and shows the same tag again gets the same challenge
//!   again, unread, but no sooner than 25 ms after the last answer.
//!
//! # Where this does more than the standard
//!
//! - Packets may be sealed with AES-256-GCM instead of ChaCha20-Poly1305 ([`Suite`]); the token says which.
//! - *Denied* says why ([`Denial`]), and not only full servers deny. The packet is the standard's.
//! - A server that counts more than seats lets a client wait, or turns it away, before its token is spent ([`Admission`]).
//! - The newest token of a client replaces its connection ([`SecondConnection`]); the standard ignores the new token.
//! - A server takes the tokens of two private keys while backends change over, and tokens that have expired a few seconds
//!   ago, since clocks differ. A wall clock that is set back does not bring spent tokens back.
//! - A client that has answered a challenge and receives nothing sends its token again after a second; it leaves a
//!   silent server after two seconds if the token names another one.
//! - A connection can continue from another address ([`PathProbe`], [`ServerHandshake::handle_move`]). One kind of
//!   packet is new for that; servers of other implementations ignore it.
//!
//! [`Key`]s are wiped when dropped; the prepared states of AES in a [`Sealer`] and an [`Opener`] belong to `ring`, which
//! does not wipe them. Tags are compared in constant time, inside the two cryptography crates. The connect token's
//! tag, which recognises a used token, travels in the clear and is looked up only after it has been verified.
//!
//! Source of the format: STANDARD.md and IMPLEMENTERS.md of <https://github.com/mas-bandwidth/netcode> (errata for
//! the nonce, address types and challenge size included).

mod aead;
mod budget;
mod challenge;
mod client;
mod counters;
mod denial;
mod door;
mod fields;
#[cfg(test)]
mod golden;
mod moving;
mod packet;
mod pending;
mod replay;
mod seal;
mod server;
mod strangers;
mod suite;
mod token;
mod used_tokens;

use std::time::Duration;

pub use aead::{KEY_LEN, Key, KeyForm, TAG_LEN};
pub use budget::{RationedOpener, WorkBudget};
pub use client::{ClientHandshake, ClientOutcome, ClientState, ConnectError, Connected};
pub use counters::{DropReason, NetcodeCounters};
pub use denial::Denial;
pub use door::{Door, House, Welcome};
pub use moving::{MOVE_LEN, MOVE_TIME, Movable, MoveStep, Moves, PathProbe, is_response, move_seat};
pub use packet::{PacketKind, Side, header_len};
pub use replay::{REPLAY_WINDOW, ReplayWindow};
pub use seal::{OpenError, Opened, Opener, Row, SealError, Sealer};
pub use server::{Accepted, Admission, Held, Now, Outcome, Seats, SecondConnection, ServerHandshake, ServerOptions};
pub use strangers::Strangers;
pub use suite::Suite;
pub use token::{ConnectToken, ConnectTokenOptions, PrivateToken, TokenError};

/// Bytes of a connect token.
pub const CONNECT_TOKEN_LEN: usize = 2048;
/// Bytes of the sealed section of a connect token, its tag included.
pub const PRIVATE_TOKEN_LEN: usize = 1024;
/// Bytes of application data in a connect token.
pub const USER_DATA_LEN: usize = 256;
/// The most server addresses that a connect token can name.
pub const SERVERS_MAX: usize = 32;
/// The largest payload of one packet, in bytes. The smallest is 1.
pub const PAYLOAD_MAX: usize = 1200;
/// The largest packet that anybody may send, in bytes: no datagram buffer has to be larger.
pub const PACKET_MAX: usize = 1300;
/// The most bytes that header and tag add to a payload.
pub const SEAL_OVERHEAD_MAX: usize = packet::HEADER_MAX + TAG_LEN;
/// Bytes of a connection request, the largest packet that a server has to look at before it knows the address.
pub const REQUEST_LEN: usize = packet::REQUEST_LEN;
/// How long a side that has nothing else to send waits before it sends the next handshake packet or keep-alive.
pub const SEND_INTERVAL: Duration = Duration::from_millis(100);
/// How many disconnect packets a side sends when it leaves.
pub const DISCONNECT_REPEATS: usize = 10;

/// The address without the two IPv6 fields that a token cannot carry, flow label and scope: so addresses are compared.
pub fn plain_address(address: std::net::SocketAddr) -> std::net::SocketAddr {
    match address {
        std::net::SocketAddr::V4(_) => address,
        std::net::SocketAddr::V6(v6) => std::net::SocketAddrV6::new(*v6.ip(), v6.port(), 0, 0).into(),
    }
}

/// The timeout that a token's `timeout seconds` field means: none at or below zero.
fn timeout_of(timeout_s: i32) -> Option<Duration> {
    u64::try_from(timeout_s).ok().filter(|&s| s > 0).map(Duration::from_secs)
}
