//! The client: a sans-IO core, and the same with a driver.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use throng_link::netcode::{
    ClientHandshake, ClientOutcome, ClientState, ConnectError, ConnectToken, DISCONNECT_REPEATS, Opener, PacketKind,
    Sealer, TAG_LEN,
};
use throng_link::session::{
    Blame, CloseCause, CloseCode, CloseReason, InputError, LaneId, LaneOptions, OptionsError, PacketPlan, Session,
    SessionOptions, Statistics,
};
use throng_net::{BindError, Driver, ReceiveError, Transmit, UdpDriver, UdpOptions};
use throng_replica::{ClientOptions as ReplicaOptions, ReplicaClient};
use throng_schema::{FieldMask, Replicate, Schema};
use throng_wire::{ConnectionId, ObjectId, Tick, Time};

use crate::decoder::{Decoder, ObjectView};
use crate::handshake::{self, Welcome};
use crate::message::{self, Received};
use crate::options::{DATAGRAM_BYTES, default_lanes, session_options};
use crate::server::MessageError;

const CONTROL: LaneId = LaneId(0);

/// Messages kept for a game that has not polled them when the connection ends.
const MAX_LATE_MESSAGES: usize = 4_096;

/// Settings of a [`Client`].
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Message lanes; the same as the server's.
    pub lanes: Vec<LaneOptions>,
    /// What this client may send, in bytes per second with all headers down to IP.
    pub bytes_per_s: u32,
    /// A server that is silent for this long is given up.
    pub idle_timeout: Duration,
    /// Inputs that each packet carries: the newest and those before it.
    pub input_redundancy: usize,
    /// Whether objects are decoded. Without, the client is a load for a server and nothing more: it acknowledges, and
    /// throws away what it does not need for that.
    pub decode: Decode,
    /// Bounds of what is decoded.
    pub replica: ReplicaOptions,
}

/// What a client does with replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decode {
    /// Applies it.
    Objects,
    /// Counts its bytes.
    Nothing,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            lanes: default_lanes(),
            bytes_per_s: 32_000,
            idle_timeout: Duration::from_secs(10),
            input_redundancy: 4,
            decode: Decode::Objects,
            replica: ReplicaOptions::default(),
        }
    }
}

/// Why a client ended, or never came to be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EndReason {
    /// The server did not let us in.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection was open and has ended.
    #[error("{0}")]
    Closed(CloseCause),
    /// The server sent something that makes no sense. Its fault.
    #[error("the server sent something malformed: {0}")]
    Malformed(String),
}

impl EndReason {
    /// A stable short name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            EndReason::Connect(_) => "connect",
            EndReason::Closed(cause) => cause.tag(),
            EndReason::Malformed(_) => "malformed",
        }
    }
}

/// Something happened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ClientEvent {
    /// The server has let us in and speaks the same schema.
    Connected {
        /// What the server calls us; objects that we own name it.
        connection: ConnectionId,
        /// Time between the server's ticks.
        tick_interval: Duration,
    },
    /// An object is there.
    Spawned(ObjectId),
    /// Fields of an object have new values: those marked `notify`, or any if the kind marks none.
    Changed {
        /// The object.
        id: ObjectId,
        /// Which fields; compare with the constants of the type, as `Player::FIELD_HEALTH`.
        fields: FieldMask,
    },
    /// An object is gone: ended, or out of sight.
    Despawned(ObjectId),
    /// A message came.
    Message {
        /// On which lane, counted as in [`ClientOptions::lanes`].
        lane: u8,
        /// The message.
        message: Received,
    },
    /// It is over.
    Ended(EndReason),
}

/// A client without a socket: datagrams go in and come out as bytes.
///
/// Drain in this order: [`handle`](Self::handle) each datagram that has come, [`poll_event`](Self::poll_event) until
/// `None`, then [`poll_transmit`](Self::poll_transmit) until `false`. `now` never falls.
///
/// `D` is the other end of the server's replication model; games leave it as it is.
pub struct ClientCore<D = ReplicaClient> {
    schema: Arc<Schema>,
    options: Arc<ClientOptions>,
    session_options: Arc<SessionOptions>,
    state: State,
    replica: Option<Box<D>>,
    ended: Option<EndReason>,
    is_end_polled: bool,
    /// Messages that came before the end and were not polled by then; as many as a session holds.
    late: VecDeque<ClientEvent>,
    connected: Option<ClientEvent>,
    server_tick: Option<Tick>,
    /// Bytes of replication that came, whether decoded or not.
    replication_bytes: u64,
}

enum State {
    Connecting(Box<ClientHandshake>),
    Open(Box<Link>),
    /// Saying good-bye: so many disconnect packets are left.
    Leaving(Box<Link>, usize),
    Over,
}

struct Link {
    server: SocketAddr,
    session: Session,
    sealer: Sealer,
    opener: Opener,
    is_live: bool,
}

impl ClientCore {
    /// A client that begins to connect. The token's lifetime counts from `now`.
    pub fn new(
        token: ConnectToken,
        schema: Arc<Schema>,
        options: Arc<ClientOptions>,
        now: Time,
    ) -> Result<ClientCore, OptionsError> {
        ClientCore::with_decoder(token, schema, options, now)
    }
}

impl<D: Decoder> ClientCore<D> {
    /// The same as [`ClientCore::new`], for a server of another replication model.
    pub fn with_decoder(
        token: ConnectToken,
        schema: Arc<Schema>,
        options: Arc<ClientOptions>,
        now: Time,
    ) -> Result<ClientCore<D>, OptionsError> {
        let sessions =
            session_options(&options.lanes, options.bytes_per_s, options.idle_timeout, options.input_redundancy);
        sessions.check()?;
        Ok(ClientCore {
            schema,
            session_options: Arc::new(sessions),
            options,
            state: State::Connecting(Box::new(ClientHandshake::new(token, now))),
            replica: None,
            ended: None,
            is_end_polled: false,
            late: VecDeque::new(),
            connected: None,
            server_tick: None,
            replication_bytes: 0,
        })
    }

    /// Takes in a datagram. Its content is undefined afterwards.
    pub fn handle(&mut self, now: Time, from: SocketAddr, datagram: &mut [u8]) {
        if self.ended.is_some() {
            return;
        }
        match &mut self.state {
            State::Connecting(handshake) => match handshake.handle(now, from, datagram) {
                ClientOutcome::Connected(connected) => self.begin_session(now, *connected),
                ClientOutcome::Progress | ClientOutcome::Ignored(_) => {}
            },
            State::Open(link) if from == link.server => {
                let Ok(opened) = link.opener.open(datagram) else { return };
                match opened.kind {
                    PacketKind::Payload => self.handle_payload(now, opened.sequence, opened.body),
                    PacketKind::Disconnect => {
                        let reason = CloseReason::new(CloseCode::DONE, "disconnected");
                        self.end(EndReason::Closed(CloseCause::Peer(reason)));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Writes the next datagram into `out`, sealed and ready to be sent to [`server`](Self::server). False when there
    /// is nothing to send now.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        out.clear();
        match &mut self.state {
            State::Connecting(handshake) => {
                let sends = handshake.poll_transmit(now, out).is_some();
                if let ClientState::Failed(error) = handshake.state() {
                    self.end(EndReason::Connect(error));
                }
                sends
            }
            State::Open(link) => {
                link.session.handle_timeout(now);
                while link.session.poll_delivery().is_some() {}
                let sends = link.session.has_pending(now) && link.write(now, self.server_tick, out);
                if let Some(cause) = link.session.poll_close() {
                    self.end(EndReason::Closed(cause));
                }
                sends
            }
            State::Leaving(link, left) => {
                if *left == 0 || link.sealer.seal_disconnect(out).is_err() {
                    self.state = State::Over;
                    return false;
                }
                *left -= 1;
                true
            }
            State::Over => false,
        }
    }

    /// When [`poll_transmit`](Self::poll_transmit) next has something to do if nothing comes and nothing is said.
    pub fn poll_timeout(&self) -> Option<Time> {
        match &self.state {
            State::Connecting(handshake) => handshake.poll_timeout(),
            State::Open(link) => link.session.next_deadline(),
            State::Leaving(..) | State::Over => None,
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        if let Some(connected) = self.connected.take() {
            return Some(connected);
        }
        if let Some(event) = self.replica.as_mut().and_then(|replica| replica.poll_event()) {
            return Some(match event {
                throng_replica::ClientEvent::Spawned(id) => ClientEvent::Spawned(id),
                throng_replica::ClientEvent::Changed { id, fields } => ClientEvent::Changed { id, fields },
                throng_replica::ClientEvent::Despawned(id) => ClientEvent::Despawned(id),
            });
        }
        if let Some(message) = self.poll_message() {
            return Some(message);
        }
        if !self.is_end_polled {
            let reason = self.ended.clone()?;
            self.is_end_polled = true;
            return Some(ClientEvent::Ended(reason));
        }
        None
    }

    /// The server that datagrams go to.
    pub fn server(&self) -> Option<SocketAddr> {
        match &self.state {
            State::Connecting(handshake) => Some(handshake.server()),
            State::Open(link) | State::Leaving(link, _) => Some(link.server),
            State::Over => None,
        }
    }

    /// Whether the server has let us in, speaks our schema, and it is not over.
    pub fn is_connected(&self) -> bool {
        matches!(&self.state, State::Open(link) if link.is_live)
    }

    /// Why it is over.
    pub fn end_reason(&self) -> Option<&EndReason> {
        self.ended.as_ref()
    }

    /// Queues an input; each packet carries the last few. Returns its number.
    pub fn send_input(&mut self, input: &[u8]) -> Result<u32, InputError> {
        match &mut self.state {
            State::Open(link) => link.session.push_input(input),
            _ => Err(InputError::Closed),
        }
    }

    /// Queues an input of a type in the schema.
    pub fn send_typed_input<T: Replicate>(&mut self, input: &T) -> Result<u32, InputError> {
        let mut bytes = Vec::new();
        match message::encode(&self.schema, input, &mut bytes) {
            Some(()) => self.send_input(&bytes),
            None => Err(InputError::TooLarge),
        }
    }

    /// The newest of our inputs whose effect is in the state that has come.
    pub fn input_acked(&self) -> Option<u32> {
        match &self.state {
            State::Open(link) => link.session.input_acked(),
            _ => None,
        }
    }

    /// Sends a message on one of the lanes of [`ClientOptions::lanes`].
    pub fn send<T: Replicate>(&mut self, lane: u8, message: &T) -> Result<(), MessageError> {
        let mut bytes = Vec::new();
        message::encode(&self.schema, message, &mut bytes).ok_or(MessageError::UnknownKind)?;
        match &mut self.state {
            State::Open(link) => link.session.send(LaneId(lane.saturating_add(1)), &bytes)?,
            _ => return Err(MessageError::UnknownConnection),
        };
        Ok(())
    }

    /// Leaves; the server is told why, if there are packets to come.
    pub fn close(&mut self, now: Time, reason: &str) {
        match &mut self.state {
            State::Open(link) => link.session.close(now, CloseReason::new(CloseCode::DONE, reason)),
            State::Connecting(_) => {
                let reason = CloseReason::new(CloseCode::DONE, reason);
                self.end(EndReason::Closed(CloseCause::Local(reason)));
            }
            State::Leaving(..) | State::Over => {}
        }
    }

    /// The value of an object as the server had it, quantised; `None` if it is not there or of another type.
    pub fn get<T: Replicate>(&self, id: ObjectId) -> Option<T> {
        let object = self.replica.as_ref()?.view(id)?;
        self.value_of(&object)
    }

    /// All objects of a type.
    pub fn objects<T: Replicate>(&self) -> impl Iterator<Item = (ObjectId, T)> + '_ {
        let objects = self.replica.iter().flat_map(|replica| replica.views());
        objects.filter_map(|object| Some((object.id, self.value_of(&object)?)))
    }

    /// Everything that the client knows of the world, quantised. `None` before the welcome, or if nothing is decoded.
    pub fn replica(&self) -> Option<&D> {
        self.replica.as_deref()
    }

    /// The newest tick that the server has spoken of.
    pub fn server_tick(&self) -> Option<Tick> {
        self.server_tick
    }

    /// What was measured of the link.
    pub fn link_statistics(&self) -> Option<Statistics> {
        match &self.state {
            State::Open(link) | State::Leaving(link, _) => Some(link.session.statistics()),
            _ => None,
        }
    }

    /// Bytes of replication that came.
    pub fn replication_bytes(&self) -> u64 {
        self.replication_bytes
    }

    fn value_of<T: Replicate>(&self, object: &ObjectView<'_>) -> Option<T> {
        if self.schema.kind_id::<T>() != Some(object.kind) {
            return None;
        }
        let mut value = T::default();
        value.apply(object.known_fields, object.values);
        Some(value)
    }

    /// The next message on one of the game's lanes. Whatever else the server may say on ours means nothing.
    fn poll_message(&mut self) -> Option<ClientEvent> {
        if let Some(late) = self.late.pop_front() {
            return Some(late);
        }
        let State::Open(link) = &mut self.state else { return None };
        loop {
            let (lane, bytes) = link.session.poll_message()?;
            if lane != CONTROL {
                return Some(ClientEvent::Message { lane: lane.0 - 1, message: Received::new(bytes) });
            }
        }
    }

    fn begin_session(&mut self, now: Time, connected: throng_link::netcode::Connected) {
        let mut session =
            Session::new(Arc::clone(&self.session_options), now).expect("the options were checked at the start");
        // An empty lane takes one message.
        let _ = session.send(CONTROL, &handshake::hello(&self.schema));
        self.state = State::Open(Box::new(Link {
            server: connected.server,
            session,
            sealer: connected.sealer,
            opener: connected.opener,
            is_live: false,
        }));
    }

    fn handle_payload(&mut self, now: Time, sequence: u64, payload: &[u8]) {
        let State::Open(link) = &mut self.state else { return };
        let packet = match link.session.handle_packet(now, sequence, payload) {
            Ok(Some(packet)) => packet,
            Ok(None) => return,
            Err(error) if error.blame() == Blame::Limit => return,
            Err(error) => return self.abandon(now, error.to_string()),
        };
        if self.server_tick.is_none_or(|newest| packet.tick.is_newer_than(newest)) {
            self.server_tick = Some(packet.tick);
        }
        self.replication_bytes += packet.rest.len() as u64;
        if let Some(replica) = &mut self.replica
            && let Err(error) = replica.apply(packet.tick, packet.rest)
        {
            return self.abandon(now, error);
        }
        if !link.is_live {
            self.take_control(now);
        }
    }

    /// Looks for the welcome, until it has come.
    fn take_control(&mut self, now: Time) {
        let State::Open(link) = &mut self.state else { return };
        // Messages of the game can be here first, on lanes that do not wait. Nobody can want them yet.
        let control = std::iter::from_fn(|| link.session.poll_message()).find(|&(lane, _)| lane == CONTROL);
        let Some((_, bytes)) = control else { return };
        let welcome = match Welcome::decode(&bytes) {
            Ok(welcome) => welcome,
            Err(error) => return self.abandon(now, error.to_string()),
        };
        if self.options.decode == Decode::Objects {
            match D::open(&self.schema, &welcome.grids, self.options.replica) {
                Ok(replica) => self.replica = Some(Box::new(replica)),
                Err(error) => return self.abandon(now, error),
            }
        }
        link.is_live = true;
        // An empty lane takes one message.
        let _ = link.session.send(CONTROL, &handshake::ready());
        self.connected =
            Some(ClientEvent::Connected { connection: welcome.connection, tick_interval: welcome.tick_interval });
    }

    /// The server breaks the protocol: leave it.
    fn abandon(&mut self, now: Time, why: String) {
        if let State::Open(link) = &mut self.state {
            link.session.close(now, CloseReason::new(CloseCode::PROTOCOL, &why));
        }
        self.ended.get_or_insert(EndReason::Malformed(why));
    }

    fn end(&mut self, reason: EndReason) {
        self.ended.get_or_insert(reason);
        if let State::Open(link) = &mut self.state {
            while self.late.len() < MAX_LATE_MESSAGES
                && let Some((lane, bytes)) = link.session.poll_message()
            {
                if lane != CONTROL {
                    let message = Received::new(bytes);
                    self.late.push_back(ClientEvent::Message { lane: lane.0 - 1, message });
                }
            }
        }
        self.state = match std::mem::replace(&mut self.state, State::Over) {
            State::Open(link) => State::Leaving(link, DISCONNECT_REPEATS),
            _ => State::Over,
        };
    }
}

impl Link {
    fn write(&mut self, now: Time, tick: Option<Tick>, out: &mut Vec<u8>) -> bool {
        let header = self.sealer.header_len();
        let room_bytes = DATAGRAM_BYTES - header - TAG_LEN;
        let plan = PacketPlan {
            sequence: self.sealer.next_sequence(),
            tick: tick.unwrap_or_default(),
            room_bytes,
            message_bytes: room_bytes,
        };
        out.resize(header, 0);
        let Ok(bytes) = self.session.begin_packet(now, plan, out) else { return false };
        self.session.finish_packet(bytes);
        out.resize(header + bytes + TAG_LEN, 0);
        self.sealer.seal_payload(out).is_ok()
    }
}

/// Why a client could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectStartError {
    /// The socket could not be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The lanes or times are not possible.
    #[error(transparent)]
    Session(#[from] OptionsError),
    /// The token names no server.
    #[error("the connect token names no server")]
    NoServer,
}

/// A client with a driver: call [`update`](Self::update) once per frame, then poll the events.
pub struct Client<D = ReplicaClient> {
    core: ClientCore<D>,
    driver: Box<dyn Driver>,
    out: Vec<u8>,
}

impl Client {
    /// Begins to connect over UDP to the first server of the token.
    pub fn connect(
        token: ConnectToken,
        schema: Arc<Schema>,
        options: ClientOptions,
        now: Time,
    ) -> Result<Client, ConnectStartError> {
        let server = *token.servers().first().ok_or(ConnectStartError::NoServer)?;
        let driver = UdpDriver::connect(server, &UdpOptions::client())?;
        Ok(Client::new(Box::new(driver), token, schema, options, now)?)
    }

    /// Begins to connect over any driver.
    pub fn new(
        driver: Box<dyn Driver>,
        token: ConnectToken,
        schema: Arc<Schema>,
        options: ClientOptions,
        now: Time,
    ) -> Result<Client, OptionsError> {
        Client::with_decoder(driver, token, schema, options, now)
    }
}

impl<D: Decoder> Client<D> {
    /// The same as [`Client::new`], for a server of another replication model.
    pub fn with_decoder(
        driver: Box<dyn Driver>,
        token: ConnectToken,
        schema: Arc<Schema>,
        options: ClientOptions,
        now: Time,
    ) -> Result<Client<D>, OptionsError> {
        let core = ClientCore::with_decoder(token, schema, Arc::new(options), now)?;
        Ok(Client { core, driver, out: Vec::new() })
    }

    /// Takes in what has come and sends what is due.
    pub fn update(&mut self, now: Time) -> Result<(), ReceiveError> {
        let core = &mut self.core;
        let received = self.driver.receive(now, &mut |from, datagram| core.handle(now, from, datagram));
        self.flush(now);
        received.map(|_| ())
    }

    /// Sends what is due; part of [`update`](Self::update), to be called again where an input should not wait.
    pub fn flush(&mut self, now: Time) {
        while self.core.poll_transmit(now, &mut self.out) {
            let Some(to) = self.core.server() else { return };
            // What cannot be sent is a lost packet; the driver counts it.
            let _ = self.driver.send(now, &Transmit::single(to, &self.out));
        }
        let _ = self.driver.flush(now);
    }
}

impl<D> std::ops::Deref for Client<D> {
    type Target = ClientCore<D>;

    fn deref(&self) -> &ClientCore<D> {
        &self.core
    }
}

impl<D> std::ops::DerefMut for Client<D> {
    fn deref_mut(&mut self) -> &mut ClientCore<D> {
        &mut self.core
    }
}
