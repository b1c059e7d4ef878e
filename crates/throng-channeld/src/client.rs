//! A blocking client: for tests, stand-ins and tools. One connection, no threads.
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//! use throng_channeld::client::{Client, ClientOptions};
//! use throng_channeld::{Header, message_type};
//!
//! let mut client = Client::connect("127.0.0.1:12108", ClientOptions::default())?;
//! let soon = Instant::now() + Duration::from_secs(2);
//! client.authenticate("ada", "secret", soon)?;
//! client.send_bytes(Header::new(0, message_type::UNREAL_RPC), b"jump")?;
//! while let Some(message) = client.poll(soon)? {
//!     println!("{} bytes", message.body.len());
//! }
//! # Ok::<(), throng_channeld::client::ClientError>(())
//! ```

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::compression::{Compression, CompressionError, decompress};
use crate::frame::{Dialect, FrameError, FrameReader};
use crate::packet::{Header, Message, Messages, PacketError, Packets, put_body, put_message};
use crate::proto::{AuthMessage, AuthResultMessage};
use crate::websocket::{self, Event, Incoming};
use crate::writer::PacketWriter;
use crate::{message_type, proto};

/// The largest decompressed packet from the gateway.
const UNPACKED_BYTES: usize = 1 << 20;
/// A read never waits for less: zero would mean for ever.
const WAIT_MIN: Duration = Duration::from_micros(200);
const READ_BYTES: usize = 32 << 10;

/// How to speak to the gateway.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// How headers are written and read.
    pub dialect: Dialect,
    /// How packets are packed.
    pub compression: Compression,
    /// Use WebSocket, and ask for this path.
    pub websocket_path: Option<String>,
    /// The page that the WebSocket client claims to come from. Empty: none.
    pub origin: String,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// Ask for a [`RefusedMessage`](crate::proto::RefusedMessage) whenever something is not done. Only Throng's gateway
    /// understands it.
    pub wants_refusals: bool,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            dialect: Dialect::Fixed,
            compression: Compression::None,
            websocket_path: None,
            origin: String::new(),
            connect_timeout: Duration::from_secs(5),
            wants_refusals: false,
        }
    }
}

/// Why a client cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The gateway closed the connection.
    #[error("the gateway closed the connection")]
    Closed,
    /// The gateway sent something that is no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The gateway sent a payload that cannot be unpacked.
    #[error(transparent)]
    Compression(#[from] CompressionError),
    /// The gateway sent a packet that cannot be read.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// The gateway sent a message whose body is something else.
    #[error(transparent)]
    Body(#[from] prost::DecodeError),
    /// The expected message did not arrive in time.
    #[error("no message of type {msg_type} came in time")]
    Late {
        /// The type of message.
        msg_type: u32,
    },
    /// The gateway does not let us in.
    #[error("not let in: {0:?}")]
    Refused(proto::auth_result_message::AuthResult),
}

impl ClientError {
    /// A stable name for metrics and logs.
    pub fn tag(&self) -> &'static str {
        match self {
            ClientError::Io(_) => "client_io",
            ClientError::Closed => "client_closed",
            ClientError::Frame(error) => error.tag(),
            ClientError::Compression(error) => error.tag(),
            ClientError::Packet(error) => error.tag(),
            ClientError::Body(_) => "client_body",
            ClientError::Late { .. } => "client_late",
            ClientError::Refused(_) => "client_refused",
        }
    }
}

/// A connection to a gateway.
pub struct Client {
    stream: TcpStream,
    websocket: Option<Incoming>,
    reader: FrameReader,
    writer: PacketWriter,
    dialect: Dialect,
    received: VecDeque<Message>,
    entries: Vec<u8>,
    out: Vec<u8>,
    wrapped: Vec<u8>,
    connection_id: u32,
    wants_refusals: bool,
}

impl Client {
    /// Connects over TCP, and switches to WebSocket if the options ask for it.
    ///
    /// # Errors
    /// No server answers, or the handshake of WebSocket fails.
    pub fn connect(address: impl ToSocketAddrs, options: ClientOptions) -> Result<Client, ClientError> {
        let address =
            address.to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable).map_err(io::Error::from)?;
        let mut stream = TcpStream::connect_timeout(&address, options.connect_timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(options.connect_timeout))?;
        if let Some(path) = &options.websocket_path {
            websocket::handshake(&mut stream, &address.to_string(), path, &options.origin)?;
        }
        let mut writer = PacketWriter::new();
        writer.follow(options.compression);
        Ok(Client {
            stream,
            websocket: options.websocket_path.map(|_| Incoming::default()),
            reader: FrameReader::with_dialect(options.dialect),
            writer,
            dialect: options.dialect,
            received: VecDeque::new(),
            entries: Vec::new(),
            out: Vec::new(),
            wrapped: Vec::new(),
            connection_id: 0,
            wants_refusals: options.wants_refusals,
        })
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
    ) -> Result<AuthResultMessage, ClientError> {
        let auth = AuthMessage {
            player_identifier_token: player_identifier_token.to_owned(),
            login_token: login_token.to_owned(),
            wants_refusals: self.wants_refusals,
        };
        self.send(Header::new(0, message_type::AUTH), &auth)?;
        let result: AuthResultMessage = self.wait_for(message_type::AUTH, deadline)?.decode()?;
        match result.result() {
            proto::auth_result_message::AuthResult::Successful => {
                self.connection_id = result.conn_id;
                Ok(result)
            }
            refused => Err(ClientError::Refused(refused)),
        }
    }

    /// The id that the gateway gave us, 0 before [`Client::authenticate`].
    pub fn connection_id(&self) -> u32 {
        self.connection_id
    }

    /// Our end of the connection.
    ///
    /// # Errors
    /// The socket is gone.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Sends one message in a packet of its own.
    ///
    /// # Errors
    /// The connection failed.
    pub fn send(&mut self, header: Header, body: &impl prost::Message) -> Result<(), ClientError> {
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        put_body(&mut entries, header, body);
        let result = self.send_entries(&entries);
        self.entries = entries;
        result
    }

    /// Sends one message whose body is encoded already.
    ///
    /// # Errors
    /// The connection failed.
    pub fn send_bytes(&mut self, header: Header, body: &[u8]) -> Result<(), ClientError> {
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        put_message(&mut entries, header, body);
        let result = self.send_entries(&entries);
        self.entries = entries;
        result
    }

    /// Sends many messages in as few packets as they fit into: see [`put_message`].
    ///
    /// # Errors
    /// The connection failed.
    pub fn send_entries(&mut self, entries: &[u8]) -> Result<(), ClientError> {
        let mut packets = Packets::new(entries, crate::frame::MAX_PAYLOAD_BYTES);
        self.wrapped.clear();
        self.out.clear();
        while self.writer.write_next(self.dialect, &mut packets, &mut self.out) {
            if self.websocket.is_some() {
                websocket::put_binary(&mut self.wrapped, &self.out);
                self.out.clear();
            }
        }
        let bytes = if self.websocket.is_some() { &self.wrapped } else { &self.out };
        Ok(self.stream.write_all(bytes)?)
    }

    /// Sends any bytes, right or wrong; over WebSocket as one binary frame.
    ///
    /// # Errors
    /// The connection failed.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        if self.websocket.is_none() {
            return Ok(self.stream.write_all(bytes)?);
        }
        self.wrapped.clear();
        websocket::put_binary(&mut self.wrapped, bytes);
        Ok(self.stream.write_all(&self.wrapped)?)
    }

    /// The next message, or `None` if none comes before the deadline. Messages that have already arrived are returned
    /// even after the end.
    ///
    /// # Errors
    /// The connection failed, or the gateway sent something that cannot be read.
    pub fn poll(&mut self, deadline: Instant) -> Result<Option<Message>, ClientError> {
        let mut is_last = false;
        loop {
            if let Some(message) = self.received.pop_front() {
                return Ok(Some(message));
            }
            let wait = deadline.saturating_duration_since(Instant::now());
            if is_last {
                return Ok(None);
            }
            is_last = wait.is_zero();
            self.stream.set_read_timeout(Some(wait.max(WAIT_MIN)))?;
            self.read()?;
        }
    }

    /// The next message of a type. Others that come before it are lost.
    ///
    /// # Errors
    /// As [`Client::poll`], or nothing came before the deadline.
    pub fn wait_for(&mut self, msg_type: u32, deadline: Instant) -> Result<Message, ClientError> {
        while let Some(message) = self.poll(deadline)? {
            if message.msg_type == msg_type {
                return Ok(message);
            }
        }
        Err(ClientError::Late { msg_type })
    }

    /// Ends the connection without a word.
    pub fn close(self) {}

    fn read(&mut self) -> Result<(), ClientError> {
        let mut bytes = [0; READ_BYTES];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(ClientError::Closed),
            Ok(count) => self.take(&bytes[..count]),
            Err(error) if is_timeout(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let Some(incoming) = &mut self.websocket else { return self.take_frames(bytes) };
        incoming.push(bytes);
        while let Some(event) = self.websocket.as_mut().map_or(Ok(None), Incoming::next_event)? {
            match event {
                Event::Data(bytes) => self.take_frames(&bytes)?,
                Event::Reply(bytes) => self.stream.write_all(&bytes)?,
                Event::Closed => return Err(ClientError::Closed),
            }
        }
        Ok(())
    }

    fn take_frames(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.reader.push(bytes)?;
        while let Some(frame) = self.reader.next_frame()? {
            for message in Messages::new(decompress(frame.compression, frame.payload, UNPACKED_BYTES)?) {
                self.received.push_back(message?);
            }
        }
        Ok(())
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
