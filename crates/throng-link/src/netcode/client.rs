//! The client's half of the handshake: from a connect token to a connection.

use super::SEND_INTERVAL;
use super::counters::DropReason;
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
    /// The last server was full.
    #[error("the server has no free seat")]
    Denied,
    /// The last server did not answer.
    #[error("the server does not answer")]
    RequestTimedOut,
    /// The last server answered once and then no more.
    #[error("the server stopped answering during the handshake")]
    ResponseTimedOut,
    /// The token's lifetime is over.
    #[error("the connect token has expired")]
    TokenExpired,
}

impl ConnectError {
    /// A short stable name, for metrics.
    pub const fn tag(self) -> &'static str {
        match self {
            ConnectError::Denied => "denied",
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

/// What became of a datagram.
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
    /// When the present state began: its timeout counts from here.
    state_since: Time,
    next_send: Time,
    /// The body of the response: a challenge as it came.
    response: [u8; CHALLENGE_BODY_LEN],
    /// Both until they are handed over. One sealer for all servers, since their tokens' keys are the same.
    ends: Option<(Sealer, Opener)>,
}

impl ClientHandshake {
    /// Starts to connect. The token's lifetime counts from `now`.
    pub fn new(token: ConnectToken, now: Time) -> ClientHandshake {
        let sealer = Sealer::new(&token.client_to_server, token.protocol_id());
        let opener = Opener::new(&token.server_to_client, token.protocol_id(), Side::Client);
        ClientHandshake {
            expires: now.after(token.lifetime()),
            token,
            state: ClientState::SendingRequest,
            server_index: 0,
            state_since: now,
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
    /// Also notices that a server is silent or that the token has expired, so it must be called when
    /// [`poll_timeout`](ClientHandshake::poll_timeout) says so.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<SocketAddr> {
        out.clear();
        self.notice_time(now);
        if now < self.next_send {
            return None;
        }
        match self.state {
            ClientState::SendingRequest => packet::write_request(
                out,
                self.token.protocol_id(),
                self.token.expire_unix_s(),
                &self.token.nonce,
                &self.token.private_section,
            ),
            ClientState::SendingResponse => {
                let (sealer, _) = self.ends.as_mut()?;
                sealer
                    .seal_body(PacketKind::Response, &self.response, out)
                    .expect("a token expires long before its sequence numbers are used up");
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
        let Opened { kind, body, .. } = opener.open(datagram)?;
        match (kind, self.state) {
            (PacketKind::Denied, _) => {
                self.next_server(now, ConnectError::Denied);
                Ok(ClientOutcome::Progress)
            }
            (PacketKind::Challenge, ClientState::SendingRequest) => {
                self.response.copy_from_slice(body);
                self.state = ClientState::SendingResponse;
                self.state_since = now;
                self.next_send = now;
                Ok(ClientOutcome::Progress)
            }
            (PacketKind::KeepAlive, ClientState::SendingResponse) => {
                let (index, seats) = body.split_first_chunk().ok_or(DropReason::BodyLength)?;
                let seats = seats.try_into().map_err(|_| DropReason::BodyLength)?;
                self.connect(u32::from_le_bytes(*index), u32::from_le_bytes(seats))
            }
            _ => Err(DropReason::UnexpectedKind),
        }
    }

    fn connect(&mut self, client_index: u32, max_clients: u32) -> Result<ClientOutcome, DropReason> {
        let (sealer, opener) = self.ends.take().ok_or(DropReason::HandshakeOver)?;
        self.state = ClientState::Connected;
        Ok(ClientOutcome::Connected(Box::new(Connected {
            server: self.server(),
            client_index,
            max_clients,
            timeout: self.token.timeout(),
            sealer,
            opener,
        })))
    }

    fn is_trying(&self) -> bool {
        matches!(self.state, ClientState::SendingRequest | ClientState::SendingResponse)
    }

    fn silence_ends(&self) -> Option<Time> {
        self.token.timeout().map(|timeout| self.state_since.after(timeout))
    }

    /// Expiry ends everything; silence only this server.
    fn notice_time(&mut self, now: Time) {
        if !self.is_trying() {
            return;
        }
        if now >= self.expires {
            self.state = ClientState::Failed(ConnectError::TokenExpired);
        } else if self.silence_ends().is_some_and(|end| now >= end) {
            let is_asking = self.state == ClientState::SendingRequest;
            self.next_server(
                now,
                if is_asking { ConnectError::RequestTimedOut } else { ConnectError::ResponseTimedOut },
            );
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
