//! The client: a sans-IO core, and the same with a driver.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use throng_link::netcode::{
    ClientHandshake, ClientOutcome, ClientState, ConnectError, ConnectToken, DISCONNECT_REPEATS, Opener, PacketKind,
    PathProbe, Sealer, plain_address,
};
use throng_link::session::{
    CloseCause, CloseCode, CloseReason, InputError, LaneId, LaneOptions, OptionsError, Rest, Session, SessionOptions,
    Statistics,
};
use throng_net::{BindError, Driver, ReceiveError, SendError, Transmit, UdpDriver, UdpOptions};
use throng_replica::{ClientOptions as ReplicaOptions, DespawnReason, LIMBO_SLACK_TICKS, ReplicaClient};
use throng_schema::{Facet, FieldMask, Replicate, Schema};
use throng_wire::{ConnectionId, ObjectId, Tick, Time};

use crate::decoder::{Decoder, ObjectView};
use crate::greeting::CONTROL;
use crate::handshake::{self, Welcome};
use crate::message::{self, Received};
use crate::options::{default_lanes, session_options, whole_us};
use crate::server::MessageError;

/// Messages kept for a game that has not polled them when the connection ends.
const MAX_LATE_MESSAGES: usize = 4_096;

/// Settings of a [`Client`].
///
/// ```
/// # use std::time::Duration;
/// # use throng::{ClientOptions, Decode, default_lanes, replica};
/// let defaults = ClientOptions::default();
/// assert_eq!(defaults.lanes, default_lanes()); // one lane of each kind, as the server has
/// assert_eq!(defaults.bytes_per_s, 32_000);
/// assert_eq!(defaults.idle_timeout, Duration::from_secs(10));
/// assert_eq!(defaults.input_redundancy, 4);
/// assert_eq!(defaults.decode, Decode::Objects);
/// assert_eq!(defaults.replica, replica::ClientOptions::default());
/// ```
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Message lanes; the same as the server's.
    pub lanes: Vec<LaneOptions>,
    /// The send budget of this client, in bytes per second with all headers down to IP.
    pub bytes_per_s: u32,
    /// The connection ends if the server is silent for this long.
    pub idle_timeout: Duration,
    /// Inputs that each packet carries: the newest and those before it.
    pub input_redundancy: usize,
    /// Whether objects are decoded. If not, the client is only a load for a server: it acknowledges packets and
    /// discards their state.
    pub decode: Decode,
    /// Bounds of decoded state.
    pub replica: ReplicaOptions,
}

/// The client's half of a replication model.
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

/// Why a client ended, or could not connect.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EndReason {
    /// The server did not accept the connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection was open and has ended.
    #[error("{0}")]
    Closed(CloseCause),
    /// The server sent something malformed. Its fault.
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
    /// The server has accepted the client, and has the same schema.
    Connected {
        /// The server's id for this connection.
        connection: ConnectionId,
        /// Time between the server's ticks.
        tick_interval: Duration,
    },
    /// An object is in sight, with all fields that this client may know.
    Spawned(ObjectId),
    /// An object belongs to this client from now on.
    Owned(ObjectId),
    /// An object that is still in sight belongs to this client no longer: the fields for its owner are forgotten.
    Disowned(ObjectId),
    /// Fields of an object have new values, or are no longer known: those marked `notify`, or any if the kind marks
    /// none.
    Changed {
        /// The object.
        id: ObjectId,
        /// Which fields; compare with the constants of the type, as `Player::FIELD_HEALTH`.
        fields: FieldMask,
    },
    /// An object is gone, and no longer this client's if it was.
    Despawned {
        /// The object.
        id: ObjectId,
        /// Whether the server has ended it, or only sends no more updates of it.
        reason: DespawnReason,
    },
    /// A message came.
    Message {
        /// The lane, counted as in [`ClientOptions::lanes`].
        lane: u8,
        /// The message.
        message: Received,
    },
    /// It is over.
    Ended(EndReason),
}

/// Counts of what a client did not take, since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounters {
    /// Datagrams of another address, forged, repeated, too old or out of place. Those that come after the end count as well.
    pub datagrams_refused: u64,
    /// Messages that came before the welcome, or that are none of the game's.
    pub messages_refused: u64,
    /// Bytes of replication that came before the welcome.
    pub early_replication_bytes: u64,
}

impl ClientCounters {
    /// All of them with stable names, for metrics.
    pub fn named(&self) -> [(&'static str, u64); 3] {
        let ClientCounters { datagrams_refused, messages_refused, early_replication_bytes } = *self;
        [
            ("datagrams_refused", datagrams_refused),
            ("messages_refused", messages_refused),
            ("early_replication_bytes", early_replication_bytes),
        ]
    }
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
    counters: ClientCounters,
}

enum State {
    Connecting(Box<ClientHandshake>),
    Open(Box<Link>),
    /// Closing: the number of disconnect packets that are left.
    Leaving(Box<Link>, usize),
    Over,
}

struct Link {
    server: SocketAddr,
    session: Session,
    sealer: Sealer,
    opener: Opener,
    /// Proves our address again when it has changed.
    probe: PathProbe,
    is_live: bool,
    /// It is closed when all that was sent has arrived, or at this time.
    leaving: Option<Box<(Time, CloseReason)>>,
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
    /// Reads a little of every part, so that the processor fetches the whole client at once instead of waiting for memory at
    /// each part in turn. The value means nothing. For a program that is about to serve many clients: it calls this for all of
    /// them, then [`fetch_behind`](ClientCore::fetch_behind) for all.
    pub fn fetch(&self) -> u64 {
        let State::Open(link) = &self.state else { return self.replication_bytes };
        let own = self.is_end_polled ^ self.connected.is_some() ^ self.ended.is_some() ^ link.is_live;
        let counted = self.replication_bytes ^ self.late.len() as u64 ^ u64::from(own);
        counted ^ link.session.fetch() ^ link.sealer.next_sequence() ^ link.opener.newest()
    }

    /// As [`fetch`](ClientCore::fetch), for what lies behind pointers.
    pub fn fetch_behind(&self) -> u64 {
        let State::Open(link) = &self.state else { return 0 };
        link.session.fetch_behind()
    }

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
            counters: ClientCounters::default(),
        })
    }

    /// Handles a datagram. Its content is undefined afterwards.
    pub fn handle(&mut self, now: Time, from: SocketAddr, datagram: &mut [u8]) {
        self.handle_arrived(now, now, from, datagram);
    }

    /// The same for a datagram that came to this machine at `arrived`, before it was read. The link is then measured
    /// without that wait.
    pub fn handle_arrived(&mut self, now: Time, arrived: Time, from: SocketAddr, datagram: &mut [u8]) {
        if self.ended.is_some() {
            self.counters.datagrams_refused += 1;
            return;
        }
        match &mut self.state {
            State::Connecting(handshake) => match handshake.handle(now, from, datagram) {
                ClientOutcome::Connected(connected) => self.begin_session(now, *connected),
                ClientOutcome::Progress => {}
                ClientOutcome::Ignored(_) => self.counters.datagrams_refused += 1,
            },
            State::Open(link) if plain_address(from) == plain_address(link.server) => {
                let Ok(opened) = link.opener.open(datagram) else {
                    self.counters.datagrams_refused += 1;
                    return;
                };
                match opened.kind {
                    PacketKind::Payload => {
                        link.probe.on_heard(now);
                        self.handle_payload(now, arrived, opened.sequence, opened.body);
                    }
                    PacketKind::KeepAlive => link.probe.on_heard(now),
                    PacketKind::Challenge => link.probe.on_challenge(now, opened.body),
                    PacketKind::Disconnect => {
                        let reason = CloseReason::new(CloseCode::DONE, "disconnected");
                        self.end(EndReason::Closed(CloseCause::Peer(reason)));
                    }
                    _ => self.counters.datagrams_refused += 1,
                }
            }
            _ => self.counters.datagrams_refused += 1,
        }
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) has to be called before more datagrams are handled: more came at
    /// once than one acknowledgement can name.
    pub fn is_answer_due(&self) -> bool {
        matches!(&self.state, State::Open(link) if link.session.is_answer_due())
    }

    /// Writes the next datagram into `out`, sealed and ready to be sent to [`server`](Self::server). False when there
    /// is nothing to send now, or [`ClientOptions::bytes_per_s`] allows no more: after at most
    /// [`MAX_PACKETS_PER_FLUSH`](throng_link::session::MAX_PACKETS_PER_FLUSH) datagrams for one value of `now`.
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
                link.close_if_flushed(now);
                if !link.session.is_closing() && link.probe.poll_transmit(now, &mut link.sealer, out) {
                    return true;
                }
                let sends = link.write(now, self.server_tick, out);
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

    /// The local interface has refused a datagram of [`poll_transmit`](Self::poll_transmit) that has this length: those that
    /// follow are shorter.
    pub fn handle_too_large(&mut self, now: Time, datagram_bytes: usize) {
        if let State::Open(link) = &mut self.state {
            link.session.handle_too_large(now, datagram_bytes);
        }
    }

    /// When [`poll_transmit`](Self::poll_transmit) next has something to do if nothing arrives and nothing is sent.
    pub fn poll_timeout(&self) -> Option<Time> {
        match &self.state {
            State::Connecting(handshake) => handshake.poll_timeout(),
            State::Open(link) => {
                let is_flushed = || link.session.pending_message_bytes() == 0;
                let leaves_at = link.leaving.as_ref().map(|leaving| if is_flushed() { Time(0) } else { leaving.0 });
                let asks_at = (!link.session.is_closing()).then(|| link.probe.next_deadline());
                let others = [leaves_at, asks_at].into_iter().flatten();
                link.session.next_deadline().map(|deadline| others.fold(deadline, Time::min))
            }
            State::Leaving(..) | State::Over => None,
        }
    }

    /// The next event.
    ///
    /// A game may leave events unpolled for as long as it likes: the state of all objects goes on, and inputs are sent.
    /// Of each object at most the difference to what the game was told waits. From 512 messages or 512 KiB on, the server
    /// keeps further messages back, until its lane is full too; then its calls of send fail.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        if let Some(connected) = self.connected.take() {
            return Some(connected);
        }
        if let Some(event) = self.replica.as_mut().and_then(|replica| replica.poll_event()) {
            return Some(match event {
                throng_replica::ClientEvent::Spawned(id) => ClientEvent::Spawned(id),
                throng_replica::ClientEvent::Changed { id, fields } => ClientEvent::Changed { id, fields },
                throng_replica::ClientEvent::Owned(id) => ClientEvent::Owned(id),
                throng_replica::ClientEvent::Disowned(id) => ClientEvent::Disowned(id),
                throng_replica::ClientEvent::Despawned { id, reason } => ClientEvent::Despawned { id, reason },
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

    /// The message lanes. A server with other ones refuses this client.
    pub fn lanes(&self) -> &[LaneOptions] {
        &self.options.lanes
    }

    /// The schema of all objects, messages and inputs.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Whether the connection is open: the server has accepted this client and its schema, and the connection has not
    /// ended.
    pub fn is_connected(&self) -> bool {
        self.ended.is_none() && matches!(&self.state, State::Open(link) if link.is_live)
    }

    /// Call this if the address of this machine has changed, or may have: the client at once asks the server to send to
    /// its new address. Without a call, a client finds out after about a second of silence from the server.
    pub fn on_address_changed(&mut self, now: Time) {
        if let State::Open(link) = &mut self.state {
            link.probe.on_address_changed(now);
        }
    }

    /// Why the connection has ended.
    pub fn end_reason(&self) -> Option<&EndReason> {
        self.ended.as_ref()
    }

    /// Queues an input; each packet carries the last few. Returns its number.
    ///
    /// # Errors
    /// The client is not connected (from [`ClientEvent::Connected`] to [`ClientEvent::Ended`] it is), or the input has
    /// more than 64 bytes.
    pub fn send_input(&mut self, input: &[u8]) -> Result<u32, InputError> {
        match &mut self.state {
            State::Open(link) if link.is_live => link.session.push_input(input),
            _ => Err(InputError::NotConnected),
        }
    }

    /// Queues an input of a type in the schema.
    ///
    /// # Errors
    /// As [`send_input`](Self::send_input), or the type is not in the schema.
    pub fn send_typed_input<T: Replicate>(&mut self, input: &T) -> Result<u32, InputError> {
        let mut bytes = Vec::new();
        match message::encode(&self.schema, input, &mut bytes) {
            Some(()) => self.send_input(&bytes),
            None => Err(InputError::UnknownKind),
        }
    }

    /// The number of the newest input that is included in the state of this client's own objects: the last value of
    /// [`Server::acknowledge_input`](crate::Server::acknowledge_input) before the tick whose state [`get`](Self::get)
    /// returns for them.
    ///
    /// State and number change together, in the same [`handle`](Self::handle), whatever is lost, late or cut short by
    /// the byte budget: play the inputs after this number once more on what `get` returns, and nothing is counted twice
    /// or left out. An input that changed nothing is acknowledged too, and so are all if the client owns nothing.
    ///
    /// That is promised for all own objects together as long as their changes fit into one packet. If there are more,
    /// this is the number of the object with the oldest record; [`input_acked_by`](Self::input_acked_by) is exact for
    /// each. A number that is missing between two acknowledged ones is of an input that was lost
    /// ([`ClientOptions::input_redundancy`]).
    ///
    /// A model without [`Decoder::TELLS_INPUTS`] does not promise that: there it is the newest number of any packet's header, with
    /// [`Decode::Nothing`] too, and until the connection ends. State of that tick may have been lost, or come later.
    ///
    /// `None` before the first, and with [`Decode::Nothing`] for all other models.
    pub fn input_acked(&self) -> Option<u32> {
        if D::TELLS_INPUTS {
            return self.replica.as_ref()?.input_acked();
        }
        match &self.state {
            State::Open(link) => link.session.input_acked(),
            _ => None,
        }
    }

    /// The number of the newest input that is in the state of this one object of this client.
    pub fn input_acked_by(&self, id: ObjectId) -> Option<u32> {
        self.replica.as_ref()?.input_acked_by(id)
    }

    /// The objects that belong to this client. All of them are in sight, however far away they are.
    pub fn owned(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.replica.iter().flat_map(|replica| replica.owned()).map(|object| object.id)
    }

    /// The objects of one type that belong to this client, with their values.
    pub fn owned_objects<T: Replicate>(&self) -> impl Iterator<Item = (ObjectId, T)> + '_ {
        let objects = self.replica.iter().flat_map(|replica| replica.owned());
        objects.filter_map(|object| Some((object.id, self.value_of(&object)?)))
    }

    /// Whether an object belongs to this client.
    pub fn is_mine(&self, id: ObjectId) -> bool {
        self.replica.as_ref().and_then(|replica| replica.view(id)).is_some_and(|object| object.is_own())
    }

    /// Whether the client is sent all public fields of an object in sight, or owns it. Of one that is seen from afar it knows the
    /// fields with `far` only: see [`ServerOptions::far`](crate::ServerOptions::far).
    pub fn is_near(&self, id: ObjectId) -> bool {
        let view = self.replica.as_ref().and_then(|replica| replica.view(id));
        view.is_some_and(|object| object.is_own() || object.facets[Facet::Public.index()])
    }

    /// Whether an object has moved to a cell with a longer interval that has not sent it yet. The object is in sight,
    /// with state that is as old as all state of that cell may be between two turns.
    pub fn is_stale(&self, id: ObjectId) -> bool {
        self.replica.as_ref().and_then(|replica| replica.view(id)).is_some_and(|object| object.is_awaited)
    }

    /// Sets the `skip_owner` fields of one of this client's own objects, which the server does not send to it, to the
    /// client's prediction: [`get`](Self::get) returns them. The other fields of `value` are ignored. False if the
    /// object is not this client's, or of another type.
    pub fn predict<T: Replicate>(&mut self, id: ObjectId, value: &T) -> bool {
        let kind = self.schema.kind_id::<T>();
        let Some(replica) = &mut self.replica else { return false };
        let is_one = replica.view(id).is_some_and(|object| Some(object.kind) == kind);
        is_one && replica.predict(id, |to| value.quantise(to))
    }

    /// Sends a message on one of the lanes of [`ClientOptions::lanes`]. On a reliable lane the game at the other end gets it
    /// exactly once, or the connection ends.
    ///
    /// # Errors
    /// The client is not connected (from [`ClientEvent::Connected`] to [`ClientEvent::Ended`] it is), the type is not in
    /// the schema, or the lane does not exist or is full.
    pub fn send<T: Replicate>(&mut self, lane: u8, message: &T) -> Result<(), MessageError> {
        let mut bytes = Vec::new();
        message::encode(&self.schema, message, &mut bytes).ok_or(MessageError::UnknownKind)?;
        match &mut self.state {
            State::Open(link) if link.is_live => link.session.send(LaneId(lane.saturating_add(1)), &bytes)?,
            _ => return Err(MessageError::NotConnected),
        };
        Ok(())
    }

    /// Queues a message that is encoded, as [`Received::bytes`] has it.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_encoded(&mut self, lane: u8, message: &[u8]) -> Result<(), MessageError> {
        match &mut self.state {
            State::Open(link) if link.is_live => link.session.send(LaneId(lane.saturating_add(1)), message)?,
            _ => return Err(MessageError::NotConnected),
        };
        Ok(())
    }

    /// Leaves at once; the next packets tell the server the reason: continue to call
    /// [`poll_transmit`](Self::poll_transmit) until [`is_over`](Self::is_over). Messages that have not arrived are cut
    /// off: see [`close_after_flush`](Self::close_after_flush).
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

    /// Leaves when all waiting messages have arrived, and after `within` at the latest: then later messages are cut
    /// off. Continue as before until [`is_over`](Self::is_over), and send nothing more. Of two calls the first counts.
    /// A client that is not connected yet leaves at once.
    ///
    /// Messages on unreliable lanes count as arrived when they are sent.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use throng::{Client, Clock, ReceiveError};
    /// fn leave(mut client: Client, clock: &Clock) -> Result<(), ReceiveError> {
    ///     client.close_after_flush(clock.now(), "good night", Duration::from_secs(2));
    ///     while !client.is_over() {
    ///         client.update(clock.now())?;
    ///         std::thread::sleep(Duration::from_millis(5));
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn close_after_flush(&mut self, now: Time, reason: &str, within: Duration) {
        match &mut self.state {
            State::Open(link) if link.is_live => {
                let reason = CloseReason::new(CloseCode::DONE, reason);
                link.leaving.get_or_insert_with(|| Box::new((now.after(within), reason)));
            }
            _ => self.close(now, reason),
        }
    }

    /// Whether the connection has ended, and the server has the reason: nothing is sent or received any more. Earlier
    /// events can still be polled.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// The value of an object as the server had it, quantised. A position with `predict` is that of
    /// [`server_tick`](Self::server_tick), to within its error. `None` if it is not in sight or of another type. Fields that
    /// this client may not know are those of `T::default()`.
    pub fn get<T: Replicate>(&self, id: ObjectId) -> Option<T> {
        let object = self.replica.as_ref()?.view(id)?;
        self.value_of(&object)
    }

    /// The name of an object's kind: compare it with [`Replicate::KIND`] of a type. `None` if it is not in sight.
    pub fn kind(&self, id: ObjectId) -> Option<&'static str> {
        let object = self.replica.as_ref()?.view(id)?;
        Some(self.schema.kind(object.kind).name)
    }

    /// All objects of all types that are in sight.
    pub fn ids(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.replica.iter().flat_map(|replica| replica.views()).map(|object| object.id)
    }

    /// All objects of a type that are in sight.
    pub fn objects<T: Replicate>(&self) -> impl Iterator<Item = (ObjectId, T)> + '_ {
        let objects = self.replica.iter().flat_map(|replica| replica.views());
        objects.filter_map(|object| Some((object.id, self.value_of(&object)?)))
    }

    /// The whole state that the client has, quantised. `None` before the welcome, or if nothing is decoded.
    pub fn replica(&self) -> Option<&D> {
        self.replica.as_deref()
    }

    /// The newest tick of any packet from the server; `None` before [`ClientEvent::Connected`].
    pub fn server_tick(&self) -> Option<Tick> {
        self.server_tick
    }

    /// Measurements of the link.
    pub fn link_statistics(&self) -> Option<Statistics> {
        match &self.state {
            State::Open(link) | State::Leaving(link, _) => Some(link.session.statistics()),
            _ => None,
        }
    }

    /// Counts of what it did not take.
    pub fn counters(&self) -> ClientCounters {
        self.counters
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
        value.apply(object.known_fields, object.shown(&mut Vec::new()));
        Some(value)
    }

    /// The next message on one of the game's lanes. Other messages of the server on our lane have no meaning.
    fn poll_message(&mut self) -> Option<ClientEvent> {
        if let Some(late) = self.late.pop_front() {
            return Some(late);
        }
        let State::Open(link) = &mut self.state else { return None };
        loop {
            let (lane, bytes) = link.session.poll_message()?;
            if lane != CONTROL {
                return Some(ClientEvent::Message { lane: lane.0 - 1, message: Received::new(bytes, &self.schema) });
            }
            self.counters.messages_refused += 1;
        }
    }

    fn begin_session(&mut self, now: Time, connected: throng_link::netcode::Connected) {
        let mut session =
            Session::new(Arc::clone(&self.session_options), now).expect("the options were checked at the start");
        session.follow_handshake(connected.round_trip, connected.timeout);
        // An empty lane takes one message.
        let _ = session.send(CONTROL, &handshake::hello(&self.schema, &self.options.lanes));
        self.state = State::Open(Box::new(Link {
            server: connected.server,
            session,
            sealer: connected.sealer,
            opener: connected.opener,
            probe: connected.probe,
            is_live: false,
            leaving: None,
        }));
    }

    fn handle_payload(&mut self, now: Time, arrived: Time, sequence: u64, payload: &[u8]) {
        let State::Open(link) = &mut self.state else { return };
        let packet = match link.session.handle_packet_of(now, arrived, sequence, payload) {
            Ok(Some(packet)) => packet,
            Ok(None) => return,
            Err(error) => return self.abandon(now, error.to_string()),
        };
        self.replication_bytes += packet.rest.len() as u64;
        // Before the welcome the ticks have no meaning, and nothing is replicated.
        if let Some(newest) = self.server_tick {
            let tick = packet.tick.near(newest);
            self.server_tick = Some(newest.newest(tick));
            if let Some(replica) = &mut self.replica
                && let Err(error) = replica.apply(tick, packet.rest)
            {
                return self.abandon(now, error);
            }
        } else {
            self.counters.early_replication_bytes += packet.rest.len() as u64;
        }
        if !link.is_live {
            self.take_control(now);
        }
    }

    /// Looks for the welcome, until it has come.
    fn take_control(&mut self, now: Time) {
        let State::Open(link) = &mut self.state else { return };
        // A server sends nothing for the game before it knows that the client has read the welcome.
        let control = std::iter::from_fn(|| link.session.poll_message()).find(|&(lane, _)| {
            self.counters.messages_refused += u64::from(lane != CONTROL);
            lane == CONTROL
        });
        let Some((_, bytes)) = control else { return };
        let welcome = match Welcome::decode(&bytes) {
            Ok(welcome) => welcome,
            Err(error) => return self.abandon(now, error.to_string()),
        };
        if self.options.decode == Decode::Objects {
            let mut options = self.options.replica;
            options.tick_interval_us = whole_us(welcome.tick_interval);
            options.limbo_ticks.get_or_insert(welcome.slowest_ticks.saturating_add(LIMBO_SLACK_TICKS));
            match D::open(&self.schema, &welcome.grids, options) {
                Ok(replica) => self.replica = Some(Box::new(replica)),
                Err(error) => return self.abandon(now, error),
            }
        }
        self.server_tick = Some(welcome.tick);
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
                    let message = Received::new(bytes, &self.schema);
                    self.late.push_back(ClientEvent::Message { lane: lane.0 - 1, message });
                } else {
                    self.counters.messages_refused += 1;
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
    /// Begins to close if this was requested, and all messages have arrived or the time for that has passed.
    fn close_if_flushed(&mut self, now: Time) {
        let is_due =
            |leaving: &mut Box<(Time, CloseReason)>| now >= leaving.0 || self.session.pending_message_bytes() == 0;
        if let Some(leaving) = self.leaving.take_if(is_due) {
            self.session.close(now, leaving.1);
        }
    }

    fn write(&mut self, now: Time, tick: Option<Tick>, out: &mut Vec<u8>) -> bool {
        let Some(plan) = self.session.poll_packet(now, self.sealer.envelope(0), Rest::Empty) else { return false };
        plan.begin(tick.unwrap_or_default(), out).finish();
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
    /// The lanes or times are invalid.
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
    /// The socket is our own and can be opened again when needed.
    has_socket: bool,
    out: Vec<u8>,
    /// Written while datagrams were taken in; empty between calls.
    answers: Vec<Vec<u8>>,
}

impl Client {
    /// Begins to connect over UDP, to the servers of the token in their order.
    pub fn connect(
        token: ConnectToken,
        schema: Arc<Schema>,
        options: ClientOptions,
        now: Time,
    ) -> Result<Client, ConnectStartError> {
        let server = *token.servers().first().ok_or(ConnectStartError::NoServer)?;
        let mut client = Client::new(open_socket(server)?, token, schema, options, now)?;
        client.has_socket = true;
        Ok(client)
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
        Ok(Client { core, driver, has_socket: false, out: Vec::new(), answers: Vec::new() })
    }

    /// Continues over another driver: the connection stays, once the server has received a packet from there.
    pub fn replace_driver(&mut self, now: Time, driver: Box<dyn Driver>) {
        self.driver = driver;
        self.has_socket = false;
        self.core.on_address_changed(now);
    }

    /// Continues from a new UDP socket: for when the system reports a change of the network. The connection stays, once
    /// the server has received a packet from there. A client that was not made with [`Client::connect`] keeps its
    /// driver.
    ///
    /// # Errors
    /// The socket could not be opened; the client continues with the old one.
    pub fn rebind(&mut self, now: Time) -> Result<(), BindError> {
        if let (true, Some(server)) = (self.has_socket, self.core.server()) {
            self.driver = open_socket(server)?;
        }
        self.core.on_address_changed(now);
        Ok(())
    }

    /// Handles all received datagrams, and sends all that is due.
    pub fn update(&mut self, now: Time) -> Result<(), ReceiveError> {
        let (core, out, answers) = (&mut self.core, &mut self.out, &mut self.answers);
        let received = self.driver.receive(now, &mut |arrived, from, datagram| {
            core.handle_arrived(now, arrived, from, datagram);
            // After a pause, more packets may be waiting than one acknowledgement can name.
            if core.is_answer_due() && core.poll_transmit(now, out) {
                answers.push(std::mem::take(out));
            }
        });
        for answer in self.answers.drain(..) {
            let Some(to) = self.core.server() else { break };
            send(&mut *self.driver, &mut self.core, now, &Transmit::single(to, &answer));
        }
        self.flush(now);
        received.map(|_| ())
    }

    /// Sends all packets that are due. [`update`](Self::update) does this too; call it again if an input should not wait.
    pub fn flush(&mut self, now: Time) {
        while self.core.poll_transmit(now, &mut self.out) {
            let Some(to) = self.core.server() else { return };
            // The next server of the token may be of another address family.
            if self.has_socket
                && to.is_ipv6() != self.driver.local_address().is_ipv6()
                && let Ok(driver) = open_socket(to)
            {
                self.driver = driver;
            }
            send(&mut *self.driver, &mut self.core, now, &Transmit::single(to, &self.out));
        }
        let _ = self.driver.flush(now);
    }
}

/// A failed send is a lost packet; the driver counts it.
fn send<D: Decoder>(driver: &mut dyn Driver, core: &mut ClientCore<D>, now: Time, transmit: &Transmit<'_>) {
    if let Err(SendError::TooLarge { bytes }) = driver.send(now, transmit) {
        core.handle_too_large(now, bytes);
    }
}

/// A socket for all servers of a token, which are tried one after the other: it is connected to none.
fn open_socket(server: SocketAddr) -> Result<Box<dyn Driver>, BindError> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    Ok(Box::new(UdpDriver::bind(any, &UdpOptions::client())?))
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
