//! The client's half of the handshake: from a connect token to a connection.

use super::SEND_INTERVAL;
use super::counters::DropReason;
use super::denial::Denial;
use super::moving::PathProbe;
use super::packet::{self, CHALLENGE_BODY_LEN, PacketKind, Side};
use super::plain_address;
use super::seal::{Opened, Opener, Sealer};
use super::token::ConnectToken;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use throng_wire::Time;

/// Why a client could not connect to any server of its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The last server turned us away, and said why.
    #[error("{0}")]
    Denied(Denial),
    /// The last server did not answer. A server gives no details to a client that it cannot distinguish from a
    /// stranger.
    #[error(
        "the server does not answer: it is down or cannot be reached; or the connect token was made with another private \
         key, or for another address of the server; or the token was shown from another address before. The server's \
         door counters tell which"
    )]
    RequestTimedOut,
    /// The last server answered once and then no more.
    #[error("the server stopped answering during the handshake: it has stopped, is overloaded, or the path is broken")]
    ResponseTimedOut,
    /// The token's lifetime is over.
    #[error("the connect token has expired before a server accepted the connection: ask the backend for a new one")]
    TokenExpired,
}

impl ConnectError {
    /// A short stable name, for metrics.
    pub const fn tag(self) -> &'static str {
        match self {
            ConnectError::Denied(denial) => denial.tag(),
            ConnectError::RequestTimedOut => "request_timed_out",
            ConnectError::ResponseTimedOut => "response_timed_out",
            ConnectError::TokenExpired => "token_expired",
        }
    }
}

/// Where a client stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientState {
    /// Shows its token.
    SendingRequest,
    /// Proves its address.
    SendingResponse,
    /// Has handed over its connection.
    Connected,
    /// Has tried all servers.
    Failed(ConnectError),
}

/// The result of a datagram.
#[derive(Debug)]
pub enum ClientOutcome {
    /// Nothing: dropped for this reason.
    Ignored(DropReason),
    /// The handshake has moved on: poll for the next packet, and look at the state.
    Progress,
    /// The server has given us a seat. Comes once.
    Connected(Box<Connected>),
}

/// A connection, with everything its owner needs.
pub struct Connected {
    /// The server that took us.
    pub server: SocketAddr,
    /// Our seat at the server.
    pub client_index: u32,
    /// How many seats the server has.
    pub max_clients: u32,
    /// How long the server may be silent; `None` for ever.
    pub timeout: Option<Duration>,
    /// Seals what goes to the server.
    pub sealer: Sealer,
    /// Opens what comes from the server.
    pub opener: Opener,
    /// The shorter of the two round trips of the handshake; longer than the path's if packets were lost.
    pub round_trip: Duration,
    /// Proves our address again when it has changed.
    pub probe: PathProbe,
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connected")
            .field("server", &self.server)
            .field("client_index", &self.client_index)
            .field("max_clients", &self.max_clients)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// A server that says nothing at all is left after this time, if the token names another one. (The token's own timeout
/// counts for the last one, and for a server that has answered once.)
const MUTE_TIMEOUT: Duration = Duration::from_secs(2);
/// A client that has answered a challenge and receives nothing sends its token again after this time: under a flood of
/// requests a server may have forgotten its challenge.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Tries the servers of a connect token in their order until one gives a seat.
///
/// Drain in this order: [`handle`](ClientHandshake::handle) each datagram that has come, then
/// [`poll_transmit`](ClientHandshake::poll_transmit) until it returns `None`, then wait until
/// [`poll_timeout`](ClientHandshake::poll_timeout) or the next datagram.
pub struct ClientHandshake {
    token: ConnectToken,
    state: ClientState,
    server_index: usize,
    expires: Time,
    /// When the present state began.
    state_since: Time,
    /// The timeout counts from here: when this server was first asked, or gave its first challenge.
    patient_since: Time,
    /// This server has given us a challenge.
    was_challenged: bool,
    /// When the first request and the first response went to this server.
    request_at: Option<Time>,
    response_at: Option<Time>,
    /// The shortest round trip seen.
    round_trip: Option<Duration>,
    next_send: Time,
    /// The body of the response: a challenge as it came.
    response: [u8; CHALLENGE_BODY_LEN],
    /// Both until they are handed over. One sealer for all servers, since their tokens' keys are the same.
    ends: Option<(Sealer, Opener)>,
}

impl ClientHandshake {
    /// Starts to connect. The token's lifetime counts from `now`.
    pub fn new(token: ConnectToken, now: Time) -> ClientHandshake {
        let sealer = Sealer::new(token.suite(), &token.client_to_server, token.protocol_id());
        let opener = Opener::new(token.suite(), &token.server_to_client, token.protocol_id(), Side::Client);
        ClientHandshake {
            expires: now.after(token.lifetime()),
            token,
            state: ClientState::SendingRequest,
            server_index: 0,
            state_since: now,
            patient_since: now,
            was_challenged: false,
            request_at: None,
            response_at: None,
            round_trip: None,
            next_send: now,
            response: [0; CHALLENGE_BODY_LEN],
            ends: Some((sealer, opener)),
        }
    }

    /// Where the handshake stands.
    pub fn state(&self) -> ClientState {
        self.state
    }

    /// The server that is being tried, or was tried last.
    pub fn server(&self) -> SocketAddr {
        self.token.servers()[self.server_index]
    }

    /// When to poll again, if no datagram comes before; `None` when the handshake is over.
    pub fn poll_timeout(&self) -> Option<Time> {
        let silence = self.silence_ends().unwrap_or(self.expires);
        self.is_trying().then(|| self.next_send.min(silence).min(self.expires))
    }

    /// Replaces `out` with the next packet and returns where it goes, or `None` when there is nothing to send now.
    ///
    /// Also notices that a server is silent or that the token has expired, so it must be called at the time of
    /// [`poll_timeout`](ClientHandshake::poll_timeout).
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<SocketAddr> {
        out.clear();
        self.notice_time(now);
        if now < self.next_send {
            return None;
        }
        match self.state {
            ClientState::SendingRequest => {
                self.request_at.get_or_insert(now);
                packet::write_request(
                    out,
                    (self.token.suite(), self.token.protocol_id()),
                    self.token.expire_unix_s(),
                    &self.token.nonce,
                    &self.token.private_section,
                );
            }
            ClientState::SendingResponse => {
                self.response_at.get_or_insert(now);
                let (sealer, _) = self.ends.as_mut()?;
                if sealer.seal_body(PacketKind::Response, &self.response, out).is_err() {
                    // The key has sealed as many packets as it may, and none of these responses was answered.
                    out.clear();
                    self.state = ClientState::Failed(ConnectError::ResponseTimedOut);
                    return None;
                }
            }
            ClientState::Connected | ClientState::Failed(_) => return None,
        }
        self.next_send = now.after(SEND_INTERVAL);
        Some(self.server())
    }

    /// Handles a datagram. Its content is undefined afterwards.
    pub fn handle(&mut self, now: Time, from: SocketAddr, datagram: &mut [u8]) -> ClientOutcome {
        self.notice_time(now);
        self.try_handle(now, from, datagram).unwrap_or_else(ClientOutcome::Ignored)
    }

    fn try_handle(&mut self, now: Time, from: SocketAddr, datagram: &mut [u8]) -> Result<ClientOutcome, DropReason> {
        if !self.is_trying() {
            return Err(DropReason::HandshakeOver);
        }
        if plain_address(from) != self.server() {
            return Err(DropReason::UnknownAddress);
        }
        let (_, opener) = self.ends.as_mut().ok_or(DropReason::HandshakeOver)?;
        let Opened { kind, sequence, body } = opener.open(datagram)?;
        match (kind, self.state) {
            (PacketKind::Denied, _) => {
                let denial = Denial::from_sequence(sequence);
                if denial == Denial::TokenSpent && self.response_at.is_some() {
                    // We have spent it ourselves: the server took our response, and its keep-alives were lost.
                    return Err(DropReason::UnexpectedKind);
                }
                self.next_server(now, ConnectError::Denied(denial));
                Ok(ClientOutcome::Progress)
            }
            (PacketKind::Challenge, ClientState::SendingRequest) => {
                self.response.copy_from_slice(body);
                let number = *self.response.first_chunk().expect("a challenge begins with its number");
                opener.answered(u64::from_le_bytes(number));
                self.note_round_trip(now, self.request_at);
                if !std::mem::replace(&mut self.was_challenged, true) {
                    self.patient_since = now;
                }
                self.state = ClientState::SendingResponse;
                self.state_since = now;
                self.next_send = now;
                Ok(ClientOutcome::Progress)
            }
            (PacketKind::KeepAlive, _) if self.response_at.is_some() => {
                let (index, seats) = body.split_first_chunk().ok_or(DropReason::BodyLength)?;
                let seats = seats.try_into().map_err(|_| DropReason::BodyLength)?;
                let (index, seats) = (u32::from_le_bytes(*index), u32::from_le_bytes(seats));
                self.note_round_trip(now, self.response_at);
                self.connect(now, index, seats)
            }
            _ => Err(DropReason::UnexpectedKind),
        }
    }

    fn note_round_trip(&mut self, now: Time, since: Option<Time>) {
        let sample = since.map(|since| now.since(since));
        self.round_trip = self.round_trip.into_iter().chain(sample).min();
    }

    fn connect(&mut self, now: Time, client_index: u32, max_clients: u32) -> Result<ClientOutcome, DropReason> {
        let (sealer, opener) = self.ends.take().ok_or(DropReason::HandshakeOver)?;
        self.state = ClientState::Connected;
        Ok(ClientOutcome::Connected(Box::new(Connected {
            server: self.server(),
            client_index,
            max_clients,
            timeout: self.token.timeout(),
            sealer,
            opener,
            round_trip: self.round_trip.unwrap_or_default(),
            probe: PathProbe::new(client_index, now),
        })))
    }

    fn is_trying(&self) -> bool {
        matches!(self.state, ClientState::SendingRequest | ClientState::SendingResponse)
    }

    fn silence_ends(&self) -> Option<Time> {
        let timeout = self.token.timeout().map(|timeout| self.patient_since.after(timeout));
        let has_next = self.server_index + 1 < self.token.servers().len();
        let is_mute = has_next && !self.was_challenged;
        timeout.into_iter().chain(is_mute.then(|| self.patient_since.after(MUTE_TIMEOUT))).min()
    }

    /// Expiry ends everything; silence only this server.
    fn notice_time(&mut self, now: Time) {
        if !self.is_trying() {
            return;
        }
        if now >= self.expires {
            self.state = ClientState::Failed(ConnectError::TokenExpired);
        } else if self.silence_ends().is_some_and(|end| now >= end) {
            self.next_server(
                now,
                if self.was_challenged { ConnectError::ResponseTimedOut } else { ConnectError::RequestTimedOut },
            );
        } else if self.state == ClientState::SendingResponse && now.since(self.state_since) >= ASK_AGAIN {
            self.state = ClientState::SendingRequest;
            self.state_since = now;
            self.next_send = now;
        }
    }

    /// Turns to the next server of the token, or fails with `error` when there is none.
    fn next_server(&mut self, now: Time, error: ConnectError) {
        if self.server_index + 1 >= self.token.servers().len() {
            self.state = ClientState::Failed(error);
            return;
        }
        self.server_index += 1;
        self.state = ClientState::SendingRequest;
        self.state_since = now;
        self.patient_since = now;
        (self.request_at, self.response_at, self.round_trip) = (None, None, None);
        self.was_challenged = false;
        self.next_send = now;
        if let Some((_, opener)) = &mut self.ends {
            opener.forget_received();
        }
    }
}

impl fmt::Debug for ClientHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientHandshake")
            .field("token", &self.token)
            .field("state", &self.state)
            .field("server", &self.server())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ConnectTokenOptions, Key, Suite, USER_DATA_LEN};
    use super::*;

    #[test]
    fn a_client_whose_key_may_seal_no_more_has_failed() {
        let options = ConnectTokenOptions {
            protocol_id: 1,
            client_id: 1,
            create_unix_s: 1,
            expire_unix_s: u64::MAX,
            suite: Suite::Aes256Gcm,
            timeout_s: -1,
            servers: vec![SocketAddr::from(([10, 0, 0, 1], 40_000))],
            user_data: [0; USER_DATA_LEN],
        };
        let token = ConnectToken::generate(&options, &Key::new([1; 32]), &mut |bytes| bytes.fill(1)).unwrap();
        let mut client = ClientHandshake::new(token, Time(0));
        client.ends = client.ends.map(|(sealer, opener)| (sealer.worn_out(), opener));
        client.state = ClientState::SendingResponse;
        let mut out = vec![1];
        assert_eq!((client.poll_transmit(Time(0), &mut out), out.len()), (None, 0));
        assert_eq!(client.state(), ClientState::Failed(ConnectError::ResponseTimedOut));
    }
}
