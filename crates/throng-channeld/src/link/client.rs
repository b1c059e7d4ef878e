//! A blocking client of the link: for tests, stand-ins and tools. One connection, no threads.
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//! use throng_channeld::link::LinkClient;
//! use throng_channeld::{Header, message_type};
//! use throng_link::netcode::ConnectToken;
//!
//! # fn play(token_from_our_backend: ConnectToken) -> Result<(), throng_channeld::link::LinkClientError> {
//! let soon = Instant::now() + Duration::from_secs(5);
//! let mut client = LinkClient::connect(token_from_our_backend, soon)?;
//! client.authenticate("ada", "secret", soon)?;
//! client.send_movement(Header::new(0, message_type::USER_SPACE_START), b"one step north")?;
//! while let Some(message) = client.poll(soon)? {
//!     println!("{} bytes", message.body.len());
//! }
//! # Ok(())
//! # }
//! ```

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use throng_link::netcode::{ClientHandshake, ClientOutcome, ClientState, ConnectError, ConnectToken, Connected};
use throng_wire::Time;

use super::{LinkEnd, LinkError};
use crate::message_type;
use crate::packet::{Header, Message, put_body, put_message};
use crate::proto::{AuthMessage, AuthResultMessage, auth_result_message::AuthResult};

/// Longer datagrams than any of the protocol, so that they are noticed.
const DATAGRAM_BYTES_MAX: usize = 2_048;
/// A socket never waits for less (zero would mean for ever), nor for more: acknowledgements are to go out.
const WAIT_MIN: Duration = Duration::from_micros(200);
const WAIT_MAX: Duration = Duration::from_millis(20);
/// Datagrams that are sent in a row; more go with the next look at the socket.
const DATAGRAMS_PER_TURN: usize = 48;

/// Why a client of the link cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkClientError {
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The connection failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The gateway sent a message whose body is something else.
    #[error(transparent)]
    Body(#[from] prost::DecodeError),
    /// The handshake failed: the gateway turned us away and said why, or none of the token's gateways answers.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The gateway did not answer in time, or not with what was waited for.
    #[error("nothing of type {msg_type} came in time")]
    Late {
        /// The type of message; 0 for the handshake.
        msg_type: u32,
    },
    /// The gateway does not let us in.
    #[error("not let in: {0:?}")]
    Refused(AuthResult),
}

impl LinkClientError {
    /// A stable name for metrics and logs.
    pub fn tag(&self) -> &'static str {
        match self {
            LinkClientError::Io(_) => "client_io",
            LinkClientError::Link(error) => error.tag(),
            LinkClientError::Connect(error) => error.tag(),
            LinkClientError::Body(_) => "client_body",
            LinkClientError::Late { .. } => "client_late",
            LinkClientError::Refused(_) => "client_refused",
        }
    }
}

/// A connection to a gateway over the link. It has to be polled several times in a second: it sends and acknowledges
/// only then.
pub struct LinkClient {
    socket: UdpSocket,
    began: Instant,
    end: LinkEnd,
    datagram: Vec<u8>,
    entries: Vec<u8>,
    connection_id: u32,
}

impl LinkClient {
    /// Connects with a token of the game's backend, and asks the gateway for movement sections.
    ///
    /// # Errors
    /// The connection was not accepted by the deadline.
    pub fn connect(token: ConnectToken, deadline: Instant) -> Result<LinkClient, LinkClientError> {
        LinkClient::connect_with(token, true, deadline)
    }

    /// The same, with or without movement: without it, all state comes on the reliable lane.
    ///
    /// # Errors
    /// As [`LinkClient::connect`].
    pub fn connect_with(
        token: ConnectToken,
        takes_movement: bool,
        deadline: Instant,
    ) -> Result<LinkClient, LinkClientError> {
        let began = Instant::now();
        let mut handshake = ClientHandshake::new(token, Time(0));
        let any: SocketAddr = match handshake.server() {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        let connected = shake_hands(&socket, &mut handshake, began, deadline)?;
        socket.connect(connected.server)?;
        let end = LinkEnd::new(connected, takes_movement, since(began))?;
        Ok(LinkClient { socket, began, end, datagram: Vec::new(), entries: Vec::new(), connection_id: 0 })
    }

    /// Sends the login, and waits for the answer.
    ///
    /// # Errors
    /// The gateway refuses, or there is no answer by the deadline.
    pub fn authenticate(
        &mut self,
        player_identifier_token: &str,
        login_token: &str,
        deadline: Instant,
    ) -> Result<AuthResultMessage, LinkClientError> {
        let auth = AuthMessage {
            player_identifier_token: player_identifier_token.to_owned(),
            login_token: login_token.to_owned(),
            ..AuthMessage::default()
        };
        self.send(Header::new(0, message_type::AUTH), &auth)?;
        let result: AuthResultMessage = self.wait_for(message_type::AUTH, deadline)?.decode()?;
        match result.result() {
            AuthResult::Successful => {
                self.connection_id = result.conn_id;
                Ok(result)
            }
            refused => Err(LinkClientError::Refused(refused)),
        }
    }

    /// The id that the gateway gave us, 0 before [`LinkClient::authenticate`].
    pub fn connection_id(&self) -> u32 {
        self.connection_id
    }

    /// The layer below the socket, read-only.
    pub fn end(&self) -> &LinkEnd {
        &self.end
    }

    /// Sends one message on the reliable lane.
    ///
    /// # Errors
    /// The connection has ended, or too much waits.
    pub fn send(&mut self, header: Header, body: &impl prost::Message) -> Result<(), LinkClientError> {
        self.entries.clear();
        put_body(&mut self.entries, header, body);
        self.send_written()
    }

    /// Sends one message whose body is encoded already on the reliable lane.
    ///
    /// # Errors
    /// The connection has ended, or too much waits.
    pub fn send_bytes(&mut self, header: Header, body: &[u8]) -> Result<(), LinkClientError> {
        self.entries.clear();
        put_message(&mut self.entries, header, body);
        self.send_written()
    }

    fn send_written(&mut self) -> Result<(), LinkClientError> {
        self.end.send_entries(&self.entries)?;
        self.transmit();
        Ok(())
    }

    /// Sends one message that is of no use late: see [`LinkEnd::send_movement`].
    ///
    /// # Errors
    /// It is too long for a datagram.
    pub fn send_movement(&mut self, header: Header, body: &[u8]) -> Result<(), LinkClientError> {
        self.end.send_movement(header, body)?;
        self.transmit();
        Ok(())
    }

    /// The next message, or `None` if none comes before the deadline. Messages that have already arrived are returned
    /// even after the end.
    ///
    /// # Errors
    /// The connection has ended, or the gateway sent something that cannot be read.
    pub fn poll(&mut self, deadline: Instant) -> Result<Option<Message>, LinkClientError> {
        loop {
            if let Some(message) = self.end.poll_message()? {
                return Ok(Some(message));
            }
            if self.end.has_ended() {
                return Err(LinkError::Ended.into());
            }
            self.transmit();
            let wait = deadline.saturating_duration_since(Instant::now());
            if !self.receive(wait.clamp(WAIT_MIN, WAIT_MAX))? && wait.is_zero() {
                return Ok(None);
            }
        }
    }

    /// Sends and acknowledges what is due without waiting, and takes no message: those that arrive stay in the client.
    ///
    /// # Errors
    /// The socket failed, or the gateway sent something that cannot be read.
    pub fn keep_up(&mut self) -> Result<(), LinkClientError> {
        self.socket.set_nonblocking(true)?;
        for _ in 0..DATAGRAMS_PER_TURN {
            if !self.receive(WAIT_MIN)? {
                break;
            }
        }
        self.transmit();
        Ok(self.socket.set_nonblocking(false)?)
    }

    /// The next message of a type. Others that come before it are lost.
    ///
    /// # Errors
    /// As [`LinkClient::poll`], or nothing came before the deadline.
    pub fn wait_for(&mut self, msg_type: u32, deadline: Instant) -> Result<Message, LinkClientError> {
        while let Some(message) = self.poll(deadline)? {
            if message.msg_type == msg_type {
                return Ok(message);
            }
        }
        Err(LinkClientError::Late { msg_type })
    }

    /// Goes on from another port of this machine, as a player whose network has changed goes on from another address.
    ///
    /// # Errors
    /// There is no free port.
    pub fn change_port(&mut self) -> Result<(), LinkClientError> {
        let (own, gateway) = (self.socket.local_addr()?, self.socket.peer_addr()?);
        let socket = UdpSocket::bind((own.ip(), 0))?;
        socket.connect(gateway)?;
        self.socket = socket;
        self.end.on_address_changed(self.now());
        self.transmit();
        Ok(())
    }

    /// Ends the connection, with a last message to the peer.
    pub fn close(mut self) {
        self.end.close(self.now());
        self.transmit();
    }

    /// The connection for a program that serves many of them in one thread: the socket, which does not block any more, the
    /// layer below it, and the moment from which its times count.
    ///
    /// # Errors
    /// The socket cannot be set so.
    pub fn into_parts(self) -> io::Result<(UdpSocket, LinkEnd, Instant)> {
        self.socket.set_nonblocking(true)?;
        Ok((self.socket, self.end, self.began))
    }

    fn now(&self) -> Time {
        since(self.began)
    }

    /// Receives one datagram. Returns whether one has come.
    fn receive(&mut self, wait: Duration) -> Result<bool, LinkClientError> {
        let mut bytes = [0; DATAGRAM_BYTES_MAX];
        self.socket.set_read_timeout(Some(wait))?;
        match self.socket.recv(&mut bytes) {
            Ok(count) => {
                self.end.handle(self.now(), &mut bytes[..count])?;
                Ok(true)
            }
            Err(error) if is_passing(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn transmit(&mut self) {
        for _ in 0..DATAGRAMS_PER_TURN {
            let now = since(self.began);
            if !self.end.poll_transmit(now, &mut self.datagram) {
                return;
            }
            // Datagrams that the kernel does not accept are lost, as on any other path.
            let _ = self.socket.send(&self.datagram);
        }
    }
}

fn shake_hands(
    socket: &UdpSocket,
    handshake: &mut ClientHandshake,
    began: Instant,
    deadline: Instant,
) -> Result<Connected, LinkClientError> {
    let mut datagram = Vec::new();
    let mut bytes = [0; DATAGRAM_BYTES_MAX];
    while Instant::now() < deadline {
        if let Some(server) = handshake.poll_transmit(since(began), &mut datagram) {
            // A failed send is a lost packet: the token may name another gateway.
            let _ = socket.send_to(&datagram, server);
        }
        if let ClientState::Failed(error) = handshake.state() {
            return Err(error.into());
        }
        socket.set_read_timeout(Some(WAIT_MAX))?;
        match socket.recv_from(&mut bytes) {
            Ok((count, from)) => {
                if let ClientOutcome::Connected(connected) = handshake.handle(since(began), from, &mut bytes[..count]) {
                    return Ok(*connected);
                }
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(LinkClientError::Late { msg_type: 0 })
}

fn since(began: Instant) -> Time {
    Time(began.elapsed().as_micros() as u64)
}

/// Nothing has arrived, or an earlier datagram found no receiver: no reason to give up.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted | ConnectionRefused)
}
