//! The border between engine and sockets.
//!
//! The engine never touches a socket. For each connection it is given an [`Outbox`]; what comes in is handed to it as
//! [messages](throng_channeld::packet::Message). The order of calls is that of all state machines here: everything that
//! has come, then [`Engine::advance`](super::Engine::advance), then whatever the `poll_*` methods have, until `None`.

use std::fmt;
use std::net::SocketAddr;

use throng_replica::SubscriptionId;
use throng_wire::Tick;

/// The kind of peers of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// World servers: trusted with what they say about the world.
    Server,
    /// Players: trusted with nothing.
    Client,
}

impl Side {
    /// A stable name, for metric labels; channeld's.
    pub fn tag(self) -> &'static str {
        match self {
            Side::Server => "SERVER",
            Side::Client => "CLIENT",
        }
    }
}

/// A connection of the engine. Never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Its place among the connections.
    pub index: u32,
    /// How many connections had the place before.
    pub generation: u32,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// Where a connection's bytes go.
pub trait Outbox: Send + Sync {
    /// Bytes that were given to [`send`](Self::send) and not yet taken by the kernel. The engine sends no state to a
    /// connection that has more than a bound of these: what it lacks is merged until it has caught up.
    fn queued_bytes(&self) -> usize;

    /// Takes entries, and leaves the buffer empty: `0A <length> <MessagePack>` each, one behind the other, which is what a
    /// `Packet` is made of. The shell cuts them into packets, compresses and frames. If nothing is queued it may exchange
    /// the buffer for an empty one of its own instead of copying.
    fn send(&self, entries: &mut Vec<u8>);

    /// The peer has logged in. Until then the shell takes little from it.
    fn admitted(&self) {}

    /// Something about the peer's login that counts when its connection ends.
    fn note_login(&self, _note: LoginNote) {}

    /// Ends the connection, after what is queued has gone out.
    fn close(&self);

    /// Ends the connection, and gives back the memory of what is queued at once.
    fn abandon(&self) {
        self.close();
    }

    /// The way beside it on which things may get lost, if the transport has one and the peer has asked for it. Once
    /// there, it stays.
    fn datagrams(&self) -> Option<&dyn Datagrams> {
        None
    }
}

/// A way for state that may get lost, because a newer one is made in any case.
pub trait Datagrams: Send + Sync {
    /// How many of the bytes that were given to [`Outbox::send`], counted from the first, the peer has received without a
    /// gap.
    fn settled_bytes(&self) -> u64;

    /// Takes the entries of one frame, at most [1,000 bytes](throng_channeld::link::section::MAX_ENTRY_BYTES), to be sent
    /// once and together. If an earlier frame of the same subscription still waits, this one takes its place: it tells
    /// all that the other did.
    ///
    /// Data given to [`Outbox::send`] after the first `after_bytes` bytes is newer. If the peer may have taken some of
    /// that before the frame, the frame must be thrown away instead, and counts as lost.
    ///
    /// Each frame has one fate, unless a later one took its place or the connection ends.
    fn send(&self, ticket: Ticket, after_bytes: u64, entries: &[u8]);

    /// Appends the results of frames since the last call. After a lost one,
    /// [`Engine::datagrams_settled`](super::Engine::datagrams_settled) is to be called before long.
    fn take_fates(&self, into: &mut Vec<(Ticket, Fate)>);
}

/// The name of a frame that was sent as a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The number of the subscription.
    pub subscription: SubscriptionId,
    /// Which of the subscriptions that had this number.
    pub epoch: u32,
    /// The tick of the frame.
    pub tick: Tick,
}

impl Ticket {
    /// Whether both are frames of one subscription.
    pub fn is_sibling(&self, other: &Ticket) -> bool {
        (self.subscription, self.epoch) == (other.subscription, other.epoch)
    }
}

/// The result of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The peer has it.
    Delivered,
    /// It has probably not arrived, or was never sent.
    Lost,
}

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndCause {
    /// The peer said good-bye, in a way that a process which is killed does not: a close frame, the end of a TLS session.
    /// That a TCP connection has ended does not tell one from the other.
    PeerClosed,
    /// The transport failed or just ended: reset, timeout, a malformed frame.
    Lost,
    /// It read too slowly, for too long or by too much: the peer hangs, or is unreachable. It may come back, as one
    /// that was lost.
    Stalled,
    /// We ended it: kicked, refused, over a limit, shutting down.
    Ours,
}

/// A login was refused, or a connection was closed: for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Which door it came through.
    pub side: Side,
    /// Where it comes from.
    pub address: SocketAddr,
    /// Its number in the protocol.
    pub connection: u32,
    /// Its claimed name. Anything that a peer may say.
    pub identifier: String,
    /// A stable name of why.
    pub reason: &'static str,
}

/// A question to the authentication provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthRequest {
    /// The peer that wants to log in.
    pub key: Key,
    /// Which door it came through.
    pub side: Side,
    /// `playerIdentifierToken`: its claimed name.
    pub player_identifier_token: String,
    /// `loginToken`: what is to prove it.
    pub login_token: String,
}

/// Something about a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginNote {
    /// It waits for us: from now on it is not the peer's fault if it is not logged in.
    Waits = 0,
    /// The peer has guessed wrong, and that is its own fault.
    Guessed = 1,
}

impl LoginNote {
    /// The note with this number.
    pub fn from_number(number: u32) -> Option<LoginNote> {
        [LoginNote::Waits, LoginNote::Guessed].into_iter().find(|&note| note as u32 == number)
    }
}

/// The provider's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthVerdict {
    /// Let in.
    Accepted,
    /// The identifier is not known.
    InvalidIdentifier,
    /// The login token does not fit the identifier.
    InvalidLogin,
    /// It could not decide now. The login fails, but does not count against the peer.
    Unavailable,
}
