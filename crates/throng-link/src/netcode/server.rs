//! The server's half of the handshake: one function from datagrams of unknown addresses to answers.

use super::aead::{Key, TAG_LEN};
use super::challenge::{Challenge, ChallengeSealer};
use super::counters::{DropReason, NetcodeCounters};
use super::packet::{self, CHALLENGE_BODY_LEN, PacketKind, REQUEST_LEN, Side};
use super::pending::{Pending, PendingTable};
use super::seal::{self, Opener, Sealer, UNCONNECTED_SEQUENCE};
use super::token::{PrivateToken, TokenError};
use super::used_tokens::{Claim, UsedTokens};
use super::{PRIVATE_TOKEN_LEN, USER_DATA_LEN, VERSION, plain_address};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use throng_wire::Time;

/// What a server's door needs to know once.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The protocol id that tokens must name.
    pub protocol_id: u64,
    /// The key that this server shares with the backend.
    pub private_key: Key,
    /// Under which addresses clients know this server; a token must name one of them.
    pub addresses: Vec<SocketAddr>,
    /// How many addresses may be between request and response at a time; at least 1 is taken. About 200 bytes each.
    pub pending_max: usize,
    /// How many unexpired connect tokens are remembered; at least 1 is taken. About 200 bytes each. Should exceed the
    /// number of clients that can connect during the lifetime of a token: a forgotten token could be replayed.
    pub used_tokens_max: usize,
}

impl ServerOptions {
    /// Options with 1,024 pending addresses and 65,536 remembered tokens.
    pub fn new(protocol_id: u64, private_key: Key, addresses: Vec<SocketAddr>) -> ServerOptions {
        ServerOptions { protocol_id, private_key, addresses, pending_max: 1_024, used_tokens_max: 65_536 }
    }
}

/// The two clocks of a server: tokens expire by the calendar, handshakes by the machine's own time.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Seconds since 1970.
    pub unix_s: u64,
    /// The time by which deadlines are kept.
    pub time: Time,
}

/// What the door may give away at the moment of a datagram.
pub struct Seats<'a> {
    /// The seat for the next client; `None` when all are taken.
    pub free: Option<u32>,
    /// How many seats there are, for the client's information.
    pub max_clients: u32,
    /// Whether the client with this id is connected.
    pub is_connected: &'a dyn Fn(u64) -> bool,
}

/// What became of a datagram.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing: dropped, and counted under this reason.
    Ignored(DropReason),
    /// The reply is to be sent back; nobody is connected yet.
    Reply,
    /// A client has proved its address and is connected. The reply, its first keep-alive, is to be sent back.
    Accept(Box<Accepted>),
}

/// A new connection, with everything its owner needs.
pub struct Accepted {
    /// The client's id, from the connect token.
    pub client_id: u64,
    /// The seat that was free: the client has been told this number.
    pub client_index: u32,
    /// What the backend said about the player.
    pub user_data: [u8; USER_DATA_LEN],
    /// How long the client may be silent; `None` for ever.
    pub timeout: Option<Duration>,
    /// When the connect token expires, in seconds since 1970. Connections outlive their tokens.
    pub expire_unix_s: u64,
    /// Seals what goes to the client. The keep-alive in the reply was its first packet.
    pub sealer: Sealer,
    /// Opens what comes from the client.
    pub opener: Opener,
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepted")
            .field("client_id", &self.client_id)
            .field("client_index", &self.client_index)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// A server's door: takes the datagrams of all addresses that are not connected.
///
/// Memory is bounded by the two limits of [`ServerOptions`], and only datagrams with a genuine connect token use any.
/// A reply is always shorter than the datagram it answers.
///
/// One datagram is one call of [`handle`](ServerHandshake::handle): there is nothing to poll and no timer to serve.
pub struct ServerHandshake {
    protocol_id: u64,
    private_key: Key,
    addresses: Vec<SocketAddr>,
    challenges: ChallengeSealer,
    /// Of the next packet outside of a connection. Starts at a random number with bit 63 set.
    next_sequence: u64,
    pending: PendingTable,
    used_tokens: UsedTokens,
    counters: NetcodeCounters,
}

impl ServerHandshake {
    /// A door for one server. `random` fills a buffer with bytes that nobody can predict.
    pub fn new(options: ServerOptions, random: &mut dyn FnMut(&mut [u8])) -> ServerHandshake {
        let mut start = [0; 8];
        random(&mut start);
        ServerHandshake {
            protocol_id: options.protocol_id,
            private_key: options.private_key,
            addresses: options.addresses.into_iter().map(plain_address).collect(),
            challenges: ChallengeSealer::new(&Key::generate(random)),
            // 62 random bits leave the upper half of the range: 2^62 packets before it ends.
            next_sequence: UNCONNECTED_SEQUENCE | (u64::from_le_bytes(start) >> 2),
            pending: PendingTable::new(options.pending_max),
            used_tokens: UsedTokens::new(options.used_tokens_max),
            counters: NetcodeCounters::default(),
        }
    }

    /// Everything counted so far.
    pub fn counters(&self) -> &NetcodeCounters {
        &self.counters
    }

    /// The counters, for adding what connections have dropped.
    pub fn counters_mut(&mut self) -> &mut NetcodeCounters {
        &mut self.counters
    }

    /// How many addresses are between request and response.
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// How many connect tokens are remembered.
    pub fn used_tokens_len(&self) -> usize {
        self.used_tokens.len()
    }

    /// Handles a datagram from an address that is not connected. Its content is undefined afterwards.
    ///
    /// Unless the datagram is ignored, `reply` holds what is to be sent back to `from`; otherwise it is empty.
    /// After [`Outcome::Accept`] the seat must count as taken, and datagrams from that address must go to the
    /// connection's opener, before the next call.
    pub fn handle(
        &mut self,
        now: Now,
        from: SocketAddr,
        datagram: &mut [u8],
        seats: &Seats<'_>,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        reply.clear();
        let from = plain_address(from);
        let outcome = match datagram.first() {
            None => Err(DropReason::TooShort),
            Some(0) => self.handle_request(now, from, datagram, seats, reply),
            Some(_) => self.handle_response(now, from, datagram, seats, reply),
        };
        outcome.unwrap_or_else(|reason| {
            self.counters.drop(reason);
            Outcome::Ignored(reason)
        })
    }

    fn handle_request(
        &mut self,
        now: Now,
        from: SocketAddr,
        datagram: &mut [u8],
        seats: &Seats<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Outcome, DropReason> {
        let request: &mut [u8; REQUEST_LEN] = datagram.try_into().map_err(|_| DropReason::RequestLength)?;
        let (token, tag, expire_unix_s) = self.read_token(now, request)?;
        if (seats.is_connected)(token.client_id) {
            return Err(DropReason::ClientConnected);
        }
        let (claim, evicted) = self.used_tokens.claim(&tag, from, expire_unix_s, now.unix_s);
        self.counters.used_tokens_evicted += evicted;
        match claim {
            Claim::Ours => {}
            Claim::Elsewhere => return Err(DropReason::TokenUsedElsewhere),
            Claim::Spent => return Err(DropReason::TokenSpent),
        }
        if seats.free.is_none() {
            self.deny(&token.server_to_client, reply);
            return Ok(Outcome::Reply);
        }
        self.challenge(&token, tag, reply);
        let pending = Pending {
            client_to_server: token.client_to_server,
            server_to_client: token.server_to_client,
            token_tag: tag,
            timeout_s: token.timeout_s,
            expire_unix_s,
            deadline: super::timeout_of(token.timeout_s).map(|timeout| now.time.after(timeout)),
        };
        self.counters.pending_evicted += u64::from(self.pending.insert(from, pending));
        Ok(Outcome::Reply)
    }

    /// The checks of a request that need no memory, cheapest first. Returns the token, its tag and its expiry.
    fn read_token(
        &self,
        now: Now,
        request: &mut [u8; REQUEST_LEN],
    ) -> Result<(PrivateToken, [u8; TAG_LEN], u64), DropReason> {
        let (fields, section) = packet::read_request(request);
        if fields.version != VERSION {
            return Err(DropReason::RequestVersion);
        }
        if fields.protocol_id != self.protocol_id {
            return Err(DropReason::RequestProtocol);
        }
        if fields.expire_unix_s <= now.unix_s {
            return Err(DropReason::TokenExpired);
        }
        let token =
            PrivateToken::open(section, self.protocol_id, fields.expire_unix_s, &fields.nonce, &self.private_key)
                .map_err(|error| match error {
                    TokenError::NotAuthentic => DropReason::TokenNotAuthentic,
                    _ => DropReason::TokenMalformed,
                })?;
        if !token.servers.iter().any(|server| self.addresses.contains(server)) {
            return Err(DropReason::TokenForOtherServer);
        }
        Ok((token, token_tag(section), fields.expire_unix_s))
    }

    fn handle_response(
        &mut self,
        now: Now,
        from: SocketAddr,
        datagram: &mut [u8],
        seats: &Seats<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Outcome, DropReason> {
        let (challenge, opener, send_key) = self.open_response(now, from, datagram)?;
        if (seats.is_connected)(challenge.client_id) {
            return Err(DropReason::ClientConnected);
        }
        let Some(client_index) = seats.free else {
            // The address stays pending, so that a lost denial is repeated.
            self.deny(&send_key, reply);
            return Ok(Outcome::Reply);
        };
        let pending = self.pending.remove(from).ok_or(DropReason::UnknownAddress)?;
        let mut sealer = Sealer::new(&send_key, self.protocol_id);
        sealer
            .seal_keep_alive(client_index, seats.max_clients, reply)
            .expect("a new connection has all its sequence numbers");
        self.used_tokens.spend(&pending.token_tag, from, pending.expire_unix_s);
        self.counters.accepted += 1;
        Ok(Outcome::Accept(Box::new(Accepted {
            client_id: challenge.client_id,
            client_index,
            user_data: challenge.user_data,
            timeout: super::timeout_of(pending.timeout_s),
            expire_unix_s: pending.expire_unix_s,
            sealer,
            opener,
        })))
    }

    /// The challenge that a response answers, if it comes from the address and under the token that were challenged;
    /// with the connection's opener and the key for our answers.
    fn open_response(
        &mut self,
        now: Now,
        from: SocketAddr,
        datagram: &mut [u8],
    ) -> Result<(Challenge, Opener, Key), DropReason> {
        let header = packet::read_header(Side::Server, datagram)?;
        let pending = self.pending.find(from, now.time).ok_or(DropReason::UnknownAddress)?;
        if header.kind != PacketKind::Response {
            return Err(DropReason::UnexpectedKind);
        }
        let mut opener = Opener::new(&pending.client_to_server, self.protocol_id, Side::Server);
        let body = opener.open(datagram)?.body;
        let (sequence, sealed) = body.split_first_chunk_mut().ok_or(DropReason::BodyLength)?;
        let sealed = sealed.try_into().map_err(|_| DropReason::BodyLength)?;
        let challenge = self
            .challenges
            .open(u64::from_le_bytes(*sequence), sealed)
            .map_err(|_| DropReason::ChallengeNotAuthentic)?;
        if challenge.token_tag != pending.token_tag {
            return Err(DropReason::ChallengeForOtherToken);
        }
        Ok((challenge, opener, pending.server_to_client.clone()))
    }

    fn challenge(&mut self, token: &PrivateToken, token_tag: [u8; TAG_LEN], reply: &mut Vec<u8>) {
        let challenge = Challenge { client_id: token.client_id, user_data: token.user_data, token_tag };
        let (sequence, sealed) = self.challenges.seal(&challenge);
        let mut body = [0; CHALLENGE_BODY_LEN];
        body[..8].copy_from_slice(&sequence.to_le_bytes());
        body[8..].copy_from_slice(&sealed);
        self.seal(PacketKind::Challenge, &token.server_to_client, &body, reply);
        self.counters.challenged += 1;
    }

    fn deny(&mut self, key: &Key, reply: &mut Vec<u8>) {
        self.seal(PacketKind::Denied, key, &[], reply);
        self.counters.denied += 1;
    }

    fn seal(&mut self, kind: PacketKind, key: &Key, body: &[u8], reply: &mut Vec<u8>) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        seal::seal_unconnected(key, self.protocol_id, kind, sequence, body, reply);
    }
}

impl fmt::Debug for ServerHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandshake")
            .field("protocol_id", &self.protocol_id)
            .field("addresses", &self.addresses)
            .field("pending_len", &self.pending_len())
            .field("used_tokens_len", &self.used_tokens_len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// The tag at the end of a private section, which recognises the token.
fn token_tag(section: &[u8; PRIVATE_TOKEN_LEN]) -> [u8; TAG_LEN] {
    *section.last_chunk().expect("the section is longer than a tag")
}
