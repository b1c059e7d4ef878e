//! The server's half of the handshake: one function from datagrams of unknown addresses to answers.

use super::aead::{Key, KeyForm, TAG_LEN};
use super::budget::WorkBudget;
use super::challenge::{Challenge, ChallengeSealer, Purpose, bound_to};
use super::counters::{DropReason, NetcodeCounters};
use super::denial::{Denial, UnconnectedSequences};
use super::packet::{self, CHALLENGE_BODY_LEN, PacketKind, REQUEST_LEN, Side};
use super::pending::{Pending, PendingTable};
use super::seal::{self, Opener, Sealer};
use super::strangers::Strangers;
use super::suite::Suite;
use super::token::{PrivateToken, TokenError};
use super::used_tokens::{Claim, UsedTokens};
use super::{PRIVATE_TOKEN_LEN, USER_DATA_LEN, plain_address};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use throng_wire::Time;

/// The fixed options of a server's door.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The protocol id that tokens must name.
    pub protocol_id: u64,
    /// The key that this server shares with the backend.
    pub private_key: Key,
    /// The key before that one: tokens that were sealed with it are taken too, while the backends change over.
    pub previous_private_key: Option<Key>,
    /// The handling of a connected client that comes with another token.
    pub second_connection: SecondConnection,
    /// Under which addresses clients know this server; a token must name one of them.
    pub addresses: Vec<SocketAddr>,
    /// How many addresses may be between request and response at a time; at least 1 is taken. About 600 bytes each.
    pub pending_max: usize,
    /// How many unexpired connect tokens are remembered; at least 1 is taken. About 200 bytes each. Should exceed the
    /// number of clients that can connect during the lifetime of a token: a forgotten token could be replayed.
    pub used_tokens_max: usize,
    /// How many requests and wishes to move are decrypted in a second, and how many of those at once. As many answers to
    /// challenges are decrypted, so that requests without tokens hinder no client that has shown one. Each takes some
    /// 2 µs; further ones are dropped and counted, and honest clients ask again.
    pub requests_per_s: u32,
    /// See [`requests_per_s`](ServerOptions::requests_per_s).
    pub requests_burst: u32,
    /// How connections hold their keys.
    pub key_form: KeyForm,
}

/// The handling of a connected client that comes with another token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SecondConnection {
    /// The newest token of a client has its place: a program that crashed is back at once. A token that expires earlier
    /// than that of the present connection counts as older and is denied.
    #[default]
    Replace,
    /// The present connection stays; the other is denied.
    Refuse,
}

impl ServerOptions {
    /// Options with one key, 1,024 pending addresses, 65,536 remembered tokens, 20,000 requests per second and 4,096 at
    /// once; the newest token of a client replaces its connection.
    pub fn new(protocol_id: u64, private_key: Key, addresses: Vec<SocketAddr>) -> ServerOptions {
        ServerOptions {
            protocol_id,
            private_key,
            previous_private_key: None,
            second_connection: SecondConnection::Replace,
            addresses,
            pending_max: 1_024,
            used_tokens_max: 65_536,
            requests_per_s: 20_000,
            requests_burst: 4_096,
            key_form: KeyForm::Prepared,
        }
    }

    /// Room for `max_clients` who all come at once, after a restart, and for the tokens of several such generations. Above 2,048,
    /// keys are [bare](KeyForm::Bare).
    pub fn sized_for(self, max_clients: u32) -> ServerOptions {
        let clients = max_clients as usize;
        ServerOptions {
            pending_max: clients.saturating_mul(2).max(1_024),
            used_tokens_max: clients.saturating_mul(8).max(65_536),
            requests_burst: max_clients.saturating_mul(4).clamp(1_024, 32_768),
            key_form: if max_clients > PREPARED_KEYS_MAX { KeyForm::Bare } else { KeyForm::Prepared },
            ..self
        }
    }
}

/// Servers with more seats hold bare keys: two prepared ones for each of so many connections take 2 MiB, about what a core has
/// in caches of its own.
const PREPARED_KEYS_MAX: u32 = 2_048;

/// A token counts as expired this many seconds after its expiry, because the clocks of backend and servers differ a
/// little.
const CLOCK_SKEW_S: u64 = 10;

/// The two clocks of a server: tokens expire by the calendar, handshakes by the machine's own time.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Seconds since 1970.
    pub unix_s: u64,
    /// The time by which deadlines are kept.
    pub time: Time,
}

/// Whether a token with this expiry counts as expired.
pub(super) fn is_expired(expire_unix_s: u64, now: Now) -> bool {
    expire_unix_s.saturating_add(CLOCK_SKEW_S) <= now.unix_s
}

/// The resources of the door at the moment of a datagram.
pub struct Seats<'a> {
    /// The seat for the next client; `None` when all are taken.
    pub free: Option<u32>,
    /// How many seats there are, for the client's information.
    pub max_clients: u32,
    /// The seat that the client with this id has, if it is connected.
    pub held: &'a dyn Fn(u64) -> Option<Held>,
    /// Asked once for each response of a client that has proved its address and for which there is a seat. A client that
    /// is granted admission is accepted in the same call; until then its token stays unspent and its address pending.
    pub admission: &'a dyn Fn() -> Admission,
}

/// Whether a client with a seat comes in: for owners that count more than seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It comes in.
    Granted,
    /// It gets no answer now, and comes in with one of its next responses.
    Later,
    /// It learns that the server is full.
    Denied,
}

/// A seat that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The seat.
    pub seat: u32,
    /// [`Accepted::expire_unix_s`] of the connection: tells which of two tokens is newer.
    pub expire_unix_s: u64,
}

/// The result of a datagram.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing: dropped, and counted under this reason.
    Ignored(DropReason),
    /// The reply, a challenge, has to be sent; the client is not connected yet.
    Reply,
    /// The reply, a denial, has to be sent: this client has a genuine token, but was refused.
    Denied {
        /// The client's id.
        client_id: u64,
        /// Why.
        denial: Denial,
    },
    /// A client has proved its address and is connected. The reply, its first keep-alive, is to be sent back.
    Accept(Box<Accepted>),
}

/// A new connection, with everything its owner needs.
pub struct Accepted {
    /// The client's id, from the connect token.
    pub client_id: u64,
    /// The seat that was free: the client knows this number. If the client was connected, its own.
    pub client_index: u32,
    /// The client was connected at that seat. That connection is over: its owner tells it so, and frees the seat, before
    /// it gives the seat to the new one.
    pub is_replacement: bool,
    /// From the first challenge to its answer: a round trip, and whatever the client waited for before it answered.
    pub round_trip: Duration,
    /// The backend's data about the player.
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
    previous_private_key: Option<Key>,
    second_connection: SecondConnection,
    addresses: Vec<SocketAddr>,
    challenges: ChallengeSealer,
    pub(super) sequences: UnconnectedSequences,
    pending: PendingTable,
    used_tokens: UsedTokens,
    /// One unit for each request or wish to move that is decrypted.
    pub(super) work: WorkBudget,
    /// One unit for each answer to a challenge that is decrypted.
    pub(super) answers: WorkBudget,
    requests_burst: u32,
    key_form: KeyForm,
    pub(super) counters: NetcodeCounters,
}

impl ServerHandshake {
    /// A door for one server. `random` fills a buffer with unpredictable bytes.
    pub fn new(options: ServerOptions, random: &mut dyn FnMut(&mut [u8])) -> ServerHandshake {
        ServerHandshake {
            protocol_id: options.protocol_id,
            private_key: options.private_key,
            previous_private_key: options.previous_private_key,
            second_connection: options.second_connection,
            addresses: options.addresses.into_iter().map(plain_address).collect(),
            challenges: ChallengeSealer::new(random),
            sequences: UnconnectedSequences::new(random),
            pending: PendingTable::new(options.pending_max),
            used_tokens: UsedTokens::new(options.used_tokens_max),
            work: WorkBudget::new(options.requests_per_s, options.requests_burst, Time(0)),
            answers: WorkBudget::new(options.requests_per_s, options.requests_burst, Time(0)),
            requests_burst: options.requests_burst,
            key_form: options.key_form,
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

    /// A queue in front of this door, for as many datagrams as it decrypts at once.
    pub fn queue(&self) -> Strangers {
        Strangers::new(self.requests_burst as usize)
    }

    /// How many addresses are between request and response.
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// Whether an address has shown a token and was challenged.
    pub fn is_pending(&self, address: SocketAddr) -> bool {
        self.pending.has(plain_address(address))
    }

    /// How many connect tokens are remembered.
    pub fn used_tokens_len(&self) -> usize {
        self.used_tokens.len()
    }

    /// Handles a datagram from an address that is not connected. Its content is undefined afterwards.
    ///
    /// Two kinds of datagrams from a connected address belong here too, because a program that crashed comes back from the
    /// same address: requests (they begin with a zero byte), and responses while the address
    /// [is pending](ServerHandshake::is_pending).
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
        if self.challenge_again(now, from, request, seats, reply)? {
            return Ok(Outcome::Reply);
        }
        let shown = self.read_token(now, request)?;
        if let Some(denial) = shown.denial {
            return Ok(self.deny(&shown, denial, reply));
        }
        let seat = self.seat_for(shown.token.client_id, shown.expire_unix_s, seats);
        if seat == Err(Denial::AlreadyConnected) && !self.used_tokens.is_spent(&shown.tag) {
            // The token stays as it was: it may be of use later.
            return Ok(self.deny(&shown, Denial::AlreadyConnected, reply));
        }
        let (claim, evicted) =
            self.used_tokens.claim(&shown.tag, from, shown.expire_unix_s, now.unix_s.saturating_sub(CLOCK_SKEW_S));
        self.counters.used_tokens_evicted += evicted;
        match claim {
            Claim::Ours => {}
            Claim::Elsewhere => return Err(DropReason::TokenUsedElsewhere),
            Claim::Spent => return Ok(self.deny(&shown, Denial::TokenSpent, reply)),
        }
        if let Err(denial) = seat {
            return Ok(self.deny(&shown, denial, reply));
        }
        let (first_challenge, challenge) = self.challenge(&shown, from, reply);
        let Shown { token, tag, expire_unix_s, .. } = shown;
        let pending = Pending {
            client_id: token.client_id,
            suite: token.suite,
            client_to_server: token.client_to_server,
            server_to_client: token.server_to_client,
            token_tag: tag,
            timeout_s: token.timeout_s,
            expire_unix_s,
            first_challenge,
            challenged_at: now.time,
            challenge: Box::new(challenge),
            answered_at: now.time,
            deadline: super::timeout_of(token.timeout_s).map(|timeout| now.time.after(timeout)),
        };
        self.counters.pending_evicted += u64::from(self.pending.insert(from, pending));
        Ok(Outcome::Reply)
    }

    /// The seat that a client would get, and whether it has that seat already.
    fn seat_for(&self, client_id: u64, expire_unix_s: u64, seats: &Seats<'_>) -> Result<(u32, bool), Denial> {
        match (seats.held)(client_id) {
            None => seats.free.map(|seat| (seat, false)).ok_or(Denial::Full),
            Some(held)
                if self.second_connection == SecondConnection::Replace && held.expire_unix_s <= expire_unix_s =>
            {
                Ok((held.seat, true))
            }
            Some(_) => Err(Denial::AlreadyConnected),
        }
    }

    /// The checks of a request that need no memory, cheapest first. A denied token is genuine and names this server.
    fn read_token(&mut self, now: Now, request: &mut [u8; REQUEST_LEN]) -> Result<Shown, DropReason> {
        let (fields, section) = packet::read_request(request);
        let suite = Suite::from_version(fields.version).ok_or(DropReason::RequestVersion)?;
        self.work.take(now.time)?;
        let is_other_protocol = fields.protocol_id != self.protocol_id;
        let is_expired = is_expired(fields.expire_unix_s, now);
        let token = self.open_token(suite, &fields, section).map_err(|error| match error {
            TokenError::NotAuthentic if is_other_protocol => DropReason::RequestProtocol,
            TokenError::NotAuthentic if is_expired => DropReason::TokenExpired,
            TokenError::NotAuthentic => DropReason::TokenNotAuthentic,
            _ => DropReason::TokenMalformed,
        })?;
        if !token.servers.iter().any(|server| self.addresses.contains(server)) {
            return Err(DropReason::TokenForOtherServer);
        }
        let tag = token_tag(section);
        let denial = if is_other_protocol {
            Some(Denial::OtherProtocol)
        } else if is_expired || self.used_tokens.may_be_forgotten(&tag, fields.expire_unix_s) {
            Some(Denial::TokenExpired)
        } else {
            None
        };
        Ok(Shown { token, tag, protocol_id: fields.protocol_id, expire_unix_s: fields.expire_unix_s, denial })
    }

    /// Tries the key, and then the one before it.
    fn open_token(
        &self,
        suite: Suite,
        fields: &packet::Request,
        section: &mut [u8; PRIVATE_TOKEN_LEN],
    ) -> Result<PrivateToken, TokenError> {
        let (protocol, expire_unix_s) = ((suite, fields.protocol_id), fields.expire_unix_s);
        let sealed = self.previous_private_key.as_ref().map(|key| (key, *section));
        let opened = PrivateToken::open(section, protocol, expire_unix_s, &fields.nonce, &self.private_key);
        match (opened, sealed) {
            (Err(TokenError::NotAuthentic), Some((previous, sealed))) => {
                // A key that fails leaves nothing that the next one could try.
                *section = sealed;
                PrivateToken::open(section, protocol, expire_unix_s, &fields.nonce, previous)
            }
            (opened, _) => opened,
        }
    }

    fn handle_response(
        &mut self,
        now: Now,
        from: SocketAddr,
        datagram: &mut [u8],
        seats: &Seats<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Outcome, DropReason> {
        let (number, challenge, opener) = self.open_response(now, from, datagram)?;
        let pending = self.pending.find(from, now).ok_or(DropReason::UnknownAddress)?;
        let (suite, send_key, expire_unix_s) = (pending.suite, pending.server_to_client.clone(), pending.expire_unix_s);
        let client_id = challenge.client_id;
        if self.used_tokens.is_spent(&challenge.token_tag) {
            // Its claim had given way to others, and it has led to a connection of another address. A client that joins
            // does not believe that its token is spent.
            self.pending.remove(from);
            return Err(DropReason::TokenUsedElsewhere);
        }
        let seat = match self.used_tokens.may_be_forgotten(&challenge.token_tag, expire_unix_s) {
            true => Err(Denial::TokenExpired),
            false => self.seat_for(client_id, expire_unix_s, seats),
        };
        let seat = seat.and_then(|seat| match (seats.admission)() {
            Admission::Granted => Ok(Some(seat)),
            Admission::Later => Ok(None),
            Admission::Denied => Err(Denial::Full),
        });
        let (client_index, is_replacement) = match seat {
            Ok(seat) => seat.ok_or(DropReason::AdmittedLater)?,
            // The address stays pending, so that a lost denial is repeated.
            Err(denial) => {
                return Ok(self.turn_away(client_id, ((suite, &send_key), self.protocol_id), denial, reply));
            }
        };
        let pending = self.pending.remove(from).ok_or(DropReason::UnknownAddress)?;
        let mut sealer = Sealer::new(suite, &send_key, self.protocol_id).after(number);
        sealer
            .seal_keep_alive(client_index, seats.max_clients, reply)
            .expect("a new connection has all its sequence numbers");
        let now_unix_s = now.unix_s.saturating_sub(CLOCK_SKEW_S);
        self.counters.used_tokens_evicted +=
            self.used_tokens.spend(&pending.token_tag, from, pending.expire_unix_s, now_unix_s);
        self.counters.accepted += 1;
        self.counters.replaced += u64::from(is_replacement);
        Ok(Outcome::Accept(Box::new(Accepted {
            client_id,
            client_index,
            is_replacement,
            round_trip: now.time.since(pending.challenged_at),
            user_data: challenge.user_data,
            timeout: super::timeout_of(pending.timeout_s),
            expire_unix_s: pending.expire_unix_s,
            sealer: sealer.in_form(self.key_form),
            opener: opener.in_form(self.key_form),
        })))
    }

    /// The challenge that a response answers, and its number, if it comes from the address and under the token that were
    /// challenged; with the connection's opener.
    fn open_response(
        &mut self,
        now: Now,
        from: SocketAddr,
        datagram: &mut [u8],
    ) -> Result<(u64, Challenge, Opener), DropReason> {
        let header = packet::read_header(Side::Server, datagram)?;
        let pending = self.pending.find(from, now).ok_or(DropReason::UnknownAddress)?;
        if header.kind != PacketKind::Response {
            return Err(DropReason::UnexpectedKind);
        }
        let (first_challenge, token_tag) = (pending.first_challenge, pending.token_tag);
        self.answers.take(now.time)?;
        let mut opener = Opener::new(pending.suite, &pending.client_to_server, self.protocol_id, Side::Server);
        let (number, challenge) = self.open_challenge(Purpose::Join, from, opener.open(datagram)?.body)?;
        if challenge.token_tag != token_tag {
            return Err(DropReason::ChallengeForOtherToken);
        }
        if number < first_challenge {
            return Err(DropReason::ChallengeOutdated);
        }
        Ok((number, challenge, opener))
    }

    /// The challenge in the body of a response that came from `from`, and its number.
    pub(super) fn open_challenge(
        &self,
        purpose: Purpose,
        from: SocketAddr,
        body: &mut [u8],
    ) -> Result<(u64, Challenge), DropReason> {
        let (number, sealed) = body.split_first_chunk_mut().ok_or(DropReason::BodyLength)?;
        let sealed = sealed.try_into().map_err(|_| DropReason::BodyLength)?;
        let number = u64::from_le_bytes(*number);
        let challenge = self.challenges.open(&bound_to(purpose, from), number, sealed);
        Ok((number, challenge.map_err(|_| DropReason::ChallengeNotAuthentic)?))
    }

    /// The body of a challenge for an address, and its number.
    pub(super) fn challenge_body(
        &mut self,
        purpose: Purpose,
        to: SocketAddr,
        challenge: &Challenge,
    ) -> (u64, [u8; CHALLENGE_BODY_LEN]) {
        let (number, sealed) = self.challenges.seal(&bound_to(purpose, to), challenge);
        let mut body = [0; CHALLENGE_BODY_LEN];
        body[..8].copy_from_slice(&number.to_le_bytes());
        body[8..].copy_from_slice(&sealed);
        (number, body)
    }

    /// A request with the same token from the same address gets the same challenge again, because the first answer may
    /// still be in flight or lost. That takes no decryption: a restart brings back everybody at once, and everybody
    /// asks ten times a second. A request that comes sooner after the last answer is dropped.
    fn challenge_again(
        &mut self,
        now: Now,
        from: SocketAddr,
        request: &[u8; REQUEST_LEN],
        seats: &Seats<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<bool, DropReason> {
        let Some(pending) = self.pending.find(from, now) else { return Ok(false) };
        let (client_id, expire_unix_s) = (pending.client_id, pending.expire_unix_s);
        if !request.ends_with(&pending.token_tag) || self.seat_for(client_id, expire_unix_s, seats).is_err() {
            return Ok(false);
        }
        let Some(pending) = self.pending.find(from, now) else { return Ok(false) };
        if pending.is_answered(now.time) {
            return Err(DropReason::RepeatedTooSoon);
        }
        let sequence = self.sequences.challenge();
        let (key, body) = ((pending.suite, &pending.server_to_client), &pending.challenge[..]);
        seal::seal_unconnected(key, self.protocol_id, PacketKind::Challenge, sequence, body, reply);
        let timeout = super::timeout_of(pending.timeout_s);
        self.pending.renew(from, now.time, timeout.map(|timeout| now.time.after(timeout)));
        self.counters.challenged += 1;
        Ok(true)
    }

    fn challenge(&mut self, shown: &Shown, to: SocketAddr, reply: &mut Vec<u8>) -> (u64, [u8; CHALLENGE_BODY_LEN]) {
        let token = &shown.token;
        let challenge = Challenge { client_id: token.client_id, user_data: token.user_data, token_tag: shown.tag };
        let (number, body) = self.challenge_body(Purpose::Join, to, &challenge);
        let sequence = self.sequences.challenge();
        let key = (token.suite, &token.server_to_client);
        seal::seal_unconnected(key, self.protocol_id, PacketKind::Challenge, sequence, &body, reply);
        self.counters.challenged += 1;
        (number, body)
    }

    /// Turns a genuine token away. The answer is for the client that it was made for: sealed with its key, for its protocol.
    fn deny(&mut self, shown: &Shown, denial: Denial, reply: &mut Vec<u8>) -> Outcome {
        let key = (shown.token.suite, &shown.token.server_to_client);
        self.turn_away(shown.token.client_id, (key, shown.protocol_id), denial, reply)
    }

    fn turn_away(
        &mut self,
        client_id: u64,
        (key, protocol_id): ((Suite, &Key), u64),
        denial: Denial,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let sequence = self.sequences.denial(denial);
        seal::seal_unconnected(key, protocol_id, PacketKind::Denied, sequence, &[], reply);
        self.counters.deny(denial);
        Outcome::Denied { client_id, denial }
    }
}

/// A token that is genuine and names this server.
struct Shown {
    token: PrivateToken,
    tag: [u8; TAG_LEN],
    /// That of the request, for which it was sealed.
    protocol_id: u64,
    expire_unix_s: u64,
    /// Why it is refused nevertheless.
    denial: Option<Denial>,
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
