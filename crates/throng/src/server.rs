//! The server that a game embeds in its own loop.

mod leaving;
mod messages;
mod objects;
mod relay;
mod run;
mod views;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rayon::{ThreadPool, ThreadPoolBuilder};
use thiserror::Error;
use throng_interest::{InterestError, RingsError};
use throng_link::netcode::{DropReason, NetcodeCounters, Now, ServerHandshake};
use throng_link::session::{
    CloseCause, CloseCode, CloseReason, Input, LaneId, OptionsError, SessionOptions, Statistics,
};
use throng_meter::{Subsystem, TickMeter, TickRecord};
use throng_net::{BindError, Driver, DriverCounters, ReceiveError, SocketBuffers, UdpDriver, UdpOptions};
use throng_replica::{
    ConnectionCounters, EntryTooLong, Executor, GridError, GridShape, Inline, LimitReached, Placement,
    RETENTION_TICKS_MAX, Replicator,
};
use throng_schema::{Replicate, Schema};
use throng_wire::{ConnectionId, ObjectId, Tick, Time};

use crate::arena::Values;
use crate::channels::Channels;
use crate::event::ServerEvent;
use crate::farewell::Farewells;
use crate::greeting::{self, CONTROL, GREETING_TIMEOUT, Stage, Step};
use crate::handshake::{OpenError, Welcome};
use crate::inbound::{Inbound, Peers};
use crate::intake::{Moment, Shares};
use crate::message::Received;
use crate::options::{GridOptions, ServerOptions, TICK_INTERVAL_MOST, session_options};
use crate::outbound::{GROUP, Helpers, Job, Stopwatch, Way, Worker, work_on};
use crate::peer::Peer;
use crate::replication::Replication;

use leaving::Leaving;

/// Packets are spread over the time between two ticks if `drain_socket` was called so often between the two before.
const SPREADING_DRAINS: u32 = 4;
pub use messages::{MessageError, Queued};

/// Why a server could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The socket could not be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A grid does not fit the schema.
    #[error(transparent)]
    Grid(#[from] GridError),
    /// A grid is invalid.
    #[error(transparent)]
    InterestGrid(#[from] throng_interest::GridError),
    /// The rings are invalid.
    #[error(transparent)]
    Rings(#[from] RingsError),
    /// The rings and the grid do not fit together.
    #[error(transparent)]
    Interest(#[from] InterestError),
    /// A client could not be subscribed to all cells that it may see.
    #[error(
        "a view can have {cells} cells, more than the {limit} subscriptions of a connection allow: use larger cells, \
         smaller rings, or raise ReplicatorOptions::limits (16,383 at most)"
    )]
    View {
        /// Cells that all grids' rings reach at most.
        cells: usize,
        /// Subscriptions of one connection.
        limit: usize,
    },
    /// The replication model cannot replicate a kind of the schema.
    #[error(transparent)]
    Kind(#[from] EntryTooLong),
    /// The lanes or times are invalid.
    #[error(transparent)]
    Session(#[from] OptionsError),
    /// The threads could not be started.
    #[error("the threads could not be started: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// The private key is all zeros.
    #[error(
        "the private key is all zeros, so anybody could issue tokens: take one from random_key() or a secret store"
    )]
    ZeroKey,
    /// The server is bound to all addresses of the machine, so a token cannot name its address.
    #[error(
        "the server is bound to {local}, which is every address of the machine: set ServerOptions::public_addresses to \
         the addresses that clients connect to"
    )]
    NoPublicAddress {
        /// The address that it is bound to.
        local: SocketAddr,
    },
    /// No client can connect to one of the public addresses.
    #[error("{address} cannot be a public address: name an address of the server and a port other than 0")]
    BadPublicAddress {
        /// The address.
        address: SocketAddr,
    },
    /// A number is out of its range.
    #[error("{0}")]
    Options(&'static str),
}

/// A server: objects, and the clients that see them.
///
/// The game's loop calls, once per tick: [`receive`](Self::receive), then [`poll_event`](Self::poll_event) and
/// [`poll_input`](Self::poll_input) until `None`, then changes its objects, then
/// [`tick`](Self::tick). `now` never falls.
///
/// `R` is the replication model; games leave it as it is.
pub struct Server<R = Channels> {
    schema: Arc<Schema>,
    options: ServerOptions,
    driver: Box<dyn Driver>,
    inbound: Inbound,
    peers: Peers,
    replication: R,
    values: Values,
    workers: Vec<Worker>,
    /// Threads beside the caller's own.
    helpers: Option<ThreadPool>,
    events: VecDeque<ServerEvent>,
    events_dropped: u64,
    greetings_timed_out: u64,
    messages_refused: u64,
    flushes_timed_out: u64,
    ticks_skipped: u64,
    /// Of the connections that have ended.
    inputs_overflowed: u64,
    /// Calls of `drain_socket` since the last tick.
    drains: u32,
    /// The time of the last tick.
    sent_at: Time,
    leaving: Vec<Leaving>,
    farewells: Farewells,
    inputs: VecDeque<(ConnectionId, Input)>,
    meter: TickMeter,
    metering: bool,
    stopwatch: Stopwatch,
    last_record: TickRecord,
    scratch: Vec<u8>,
}

impl Server {
    /// A server on a UDP socket.
    pub fn bind(address: SocketAddr, schema: Arc<Schema>, options: ServerOptions) -> Result<Server, StartError> {
        check(&options)?;
        Server::bind_with(address, Channels::new(&schema, &options)?, options)
    }

    /// A server on any driver.
    pub fn new(driver: Box<dyn Driver>, schema: Arc<Schema>, options: ServerOptions) -> Result<Server, StartError> {
        check(&options)?;
        Server::with_replication(driver, Channels::new(&schema, &options)?, options)
    }

    /// The replication core, read-only.
    pub fn replicator(&self) -> &Replicator {
        self.replication.replicator()
    }
}

impl<R: Replication> Server<R> {
    /// A server on a UDP socket, with a replication model of one's own, made for the same options.
    pub fn bind_with(address: SocketAddr, replication: R, options: ServerOptions) -> Result<Server<R>, StartError> {
        let driver = UdpDriver::bind(address, &UdpOptions::server())?;
        let mut senders = Vec::new();
        for _ in 1..options.threads.max(1) {
            senders.push(Some(driver.sender()?));
        }
        if options.threads > 1 {
            senders.push(Some(driver.sender()?));
        }
        Server::start(Box::new(driver), senders, replication, options)
    }

    /// A server on any driver, with a replication model of one's own, made for the same options.
    pub fn with_replication(
        driver: Box<dyn Driver>,
        replication: R,
        options: ServerOptions,
    ) -> Result<Server<R>, StartError> {
        Server::start(driver, Vec::new(), replication, options)
    }

    fn start(
        driver: Box<dyn Driver>,
        mut senders: Vec<Option<throng_net::LightUdpSocket>>,
        replication: R,
        options: ServerOptions,
    ) -> Result<Server<R>, StartError> {
        check(&options)?;
        let sessions = Arc::new(sessions_of(&options));
        sessions.check()?;
        let addresses = addresses_of(&options, driver.local_address())?;
        let door = ServerHandshake::new(door_options(&options, addresses), &mut random);
        senders.resize_with(options.threads.max(1), || None);
        let helpers = match options.threads {
            0 | 1 => None,
            threads => Some(ThreadPoolBuilder::new().num_threads(threads - 1).build()?),
        };
        Ok(Server {
            inbound: Inbound::new(door, sessions, options.client_packets_per_s, options.threads.max(1)),
            peers: Peers::new(options.max_clients),
            workers: senders.into_iter().map(Worker::with_sender).collect(),
            schema: Arc::clone(replication.schema()),
            driver,
            replication,
            values: Values::default(),
            helpers,
            events: VecDeque::new(),
            events_dropped: 0,
            greetings_timed_out: 0,
            messages_refused: 0,
            flushes_timed_out: 0,
            ticks_skipped: 0,
            inputs_overflowed: 0,
            drains: 0,
            sent_at: Time(0),
            leaving: Vec::new(),
            farewells: Farewells::default(),
            inputs: VecDeque::new(),
            meter: TickMeter::new(),
            metering: false,
            stopwatch: Stopwatch::new(),
            last_record: TickRecord::default(),
            scratch: Vec::new(),
            options,
        })
    }

    /// The address that clients send to.
    pub fn local_address(&self) -> SocketAddr {
        self.driver.local_address()
    }

    /// The tick that changes made now will belong to.
    pub fn current_tick(&self) -> Tick {
        self.replication.now()
    }

    /// The time between ticks, as clients are told it: in whole microseconds.
    pub fn tick_interval(&self) -> Duration {
        Duration::from_micros(self.options.tick_interval_us().into())
    }

    /// The grids, by number.
    pub fn grids(&self) -> impl ExactSizeIterator<Item = GridShape> + '_ {
        self.options.grids.iter().map(|grid| grid.shape)
    }

    /// The schema of all objects, messages and inputs.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Reads all waiting datagrams, and handles them.
    pub fn receive(&mut self, now: Time) -> Result<(), ReceiveError> {
        let received = self.drain(now);
        self.settle_sessions(now);
        self.meter.enter(Subsystem::SIMULATE, self.stopwatch.ns());
        received
    }

    /// Reads all waiting datagrams from the socket, so that the kernel's buffer does not overflow while the game waits
    /// for its next tick, and sends packets that wait for their time. [`receive`](Self::receive) finds out what the
    /// datagrams mean.
    ///
    /// Call it about each millisecond between two ticks, as [`run`](Self::run) does. If it is called often enough, the
    /// packets for a client whose path is congested are spread over the time to the next tick, which loses fewer of them
    /// and lets several streams share a path equally. All other clients are sent all packets of a tick at once.
    ///
    /// If the game only waits, call [`wait`](Self::wait) before, so that the time does not count as work.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn drain_socket(&mut self, now: Time) -> Result<(), ReceiveError> {
        self.drains += 1;
        self.drain(now)
    }

    fn drain(&mut self, now: Time) -> Result<(), ReceiveError> {
        self.begin_metering();
        let stopwatch = self.stopwatch;
        self.meter.enter(Subsystem::OPEN, stopwatch.ns());
        let clocks = Now { unix_s: unix_s(), time: now };
        let (inbound, peers, replication) = (&mut self.inbound, &mut self.peers, &mut self.replication);
        let (datagrams, bytes) = (inbound.datagrams, inbound.bytes);
        let moment = Moment { now, sent_tick: inbound.sent_tick, stopwatch };
        let helpers = self.helpers.as_ref().map(Helpers);
        inbound.begin(Shares::new(peers.seats_used(), self.workers.len()));
        let kernel_ns = self.driver.counters().receive_ns;
        let received = self.driver.receive(now, &mut |arrived, from, datagram| {
            inbound.handle((arrived, from), datagram, (peers, moment), helpers.as_ref());
        });
        inbound.settle(peers, moment, helpers.as_ref());
        for intake in &mut inbound.intakes {
            self.meter.merge(&intake.lap);
            intake.lap.reset();
        }
        self.meter.claim(Subsystem::RECEIVE, self.driver.counters().receive_ns.saturating_sub(kernel_ns));
        self.meter.enter(Subsystem::SETTLE, stopwatch.ns());
        inbound.serve_strangers(clocks, (peers, moment), replication);
        let counters = self.meter.counters();
        counters.packets_received += inbound.datagrams - datagrams;
        counters.bytes_received += inbound.bytes - bytes;
        if inbound.take_answered() {
            // An answer has a higher number than the packets that wait, and comes after them.
            self.send_held(now, Time(u64::MAX));
        }
        let driver = &mut self.driver;
        self.inbound.drain_replies(|to, reply| {
            // A reply that cannot be sent is a lost packet; the driver counts it.
            let _ = driver.send(now, &throng_net::Transmit::single(to, reply));
        });
        self.end_replaced(now);
        for event in std::mem::take(&mut self.inbound.denied) {
            self.tell(event);
        }
        self.send_held(now, now);
        received.map(|_| ())
    }

    /// Sends the packets that have waited until `due`.
    fn send_held(&mut self, now: Time, due: Time) {
        if !self.workers.iter().any(Worker::holds) {
            return;
        }
        self.meter.enter(Subsystem::SEND, self.stopwatch.ns());
        for worker in &mut self.workers {
            let sent = worker.send_held(now, due, &mut self.peers, &mut *self.driver);
            let counters = self.meter.counters();
            counters.packets_sent += sent.packets;
            counters.bytes_sent += sent.bytes;
        }
    }

    /// Declares that the game waits until its next call: that time counts for no subsystem.
    pub fn wait(&mut self) {
        self.stopwatch.stop();
    }

    /// The next event; `None` when all have been returned.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        let event = self.events.pop_front()?;
        if let ServerEvent::Message { connection, message, .. } = &event
            && let Some(peer) = self.peers.get_mut(*connection)
        {
            peer.waiting.messages -= 1;
            peer.waiting.message_bytes -= message.bytes().len();
        }
        Some(event)
    }

    /// The next input of a client. Inputs of one client come in order, each at most once, and no more in a tick than
    /// [`ServerOptions::inputs_per_tick`]. Inputs that still wait when their connection ends are dropped: none comes
    /// after [`ServerEvent::Disconnected`].
    pub fn poll_input(&mut self) -> Option<(ConnectionId, Input)> {
        let tick = self.replication.now();
        while let Some((connection, input)) = self.inputs.pop_front() {
            if let Some(peer) = self.peers.get_mut(connection) {
                peer.waiting.give_input(tick);
                return Some((connection, input));
            }
        }
        None
    }

    /// Declares that the state of this tick includes the effect of this input and of all before it. The client gets the
    /// number together with that state of its own objects, as one piece: see
    /// [`ClientCore::input_acked`](crate::ClientCore::input_acked).
    ///
    /// Call it in the tick in which the input takes effect, before [`tick`](Self::tick), also if it changes nothing;
    /// the object that the input moves has to belong to the connection ([`spawn_owned`](Self::spawn_owned)).
    pub fn acknowledge_input(&mut self, connection: ConnectionId, number: u32) {
        self.replication.acknowledge_input(connection, number);
        if let Some(peer) = self.peers.get_mut(connection) {
            peer.session.set_input_ack(number);
        }
    }

    /// Adds an object to the channel that `placement` names.
    ///
    /// # Errors
    /// The fields of the type that go to the same audience can be longer together than a packet holds (such a type is
    /// for messages), the placement names a grid that does not exist or needs a position that the type does not have,
    /// or there is no room for another object or channel.
    ///
    /// # Panics
    /// If the type is not in the schema.
    pub fn spawn<T: Replicate>(&mut self, value: T, placement: Placement) -> Result<ObjectId, LimitReached> {
        self.spawn_owned(value, placement, None)
    }

    /// Adds an object that belongs to a connection: only its owner gets the owner's fields, and the owner gets the
    /// object in each of its send ticks, wherever the object is, before anything else.
    ///
    /// # Errors
    /// As [`Server::spawn`].
    ///
    /// # Panics
    /// As [`Server::spawn`].
    pub fn spawn_owned<T: Replicate>(
        &mut self,
        value: T,
        placement: Placement,
        owner: Option<ConnectionId>,
    ) -> Result<ObjectId, LimitReached> {
        let kind = self.schema.kind_id::<T>().expect("the type was added to the schema");
        let id = self.replication.spawn(kind, placement, owner, |to| value.quantise(to))?;
        self.values.insert(id, value);
        Ok(id)
    }

    /// The value of an object, `None` if it is gone or of another type.
    pub fn get<T: Replicate>(&self, id: ObjectId) -> Option<&T> {
        self.values.get(id)
    }

    /// The value of an object, to be changed: marks it as touched. Only fields that really differ after quantisation
    /// are sent.
    pub fn get_mut<T: Replicate>(&mut self, id: ObjectId) -> Option<&mut T> {
        self.values.touch(id)
    }

    /// Ends an object.
    pub fn despawn(&mut self, id: ObjectId) {
        self.values.remove(id);
        self.replication.despawn(id);
    }

    /// Moves an object to the channel that `placement` names.
    ///
    /// # Errors
    /// The placement names a grid that does not exist or needs a position that the type does not have: the
    /// object stays in its channel. Or there is no room for another channel: the object stays in its channel, and the
    /// move is tried again each tick.
    pub fn set_placement(&mut self, id: ObjectId, placement: Placement) -> Result<(), LimitReached> {
        self.replication.set_placement(id, placement)
    }

    /// Sets the send budget for one client, in bytes per second with all headers down to IP, in place of
    /// [`ServerOptions::client_bytes_per_s`], for phones beside desktops. At least 1; congestion control stays below
    /// it.
    pub fn set_budget(&mut self, connection: ConnectionId, bytes_per_s: u32, now: Time) {
        if let Some(peer) = self.peers.get_mut(connection) {
            peer.session.set_rate_limit(now, bytes_per_s.max(1));
        }
    }

    /// Sets how many datagrams of one client are handled, per second and in a burst, in place of
    /// [`ServerOptions::client_packets_per_s`], for one that speaks for many. Less than that changes nothing.
    pub fn set_packets_per_s(&mut self, connection: ConnectionId, packets_per_s: u32, now: Time) {
        if let Some(peer) = self.peers.get_mut(connection) {
            peer.set_packets_per_s(packets_per_s.max(self.options.client_packets_per_s), now);
        }
    }

    /// Ends the tick: quantises the touched objects, encodes the due updates, and sends them.
    pub fn tick(&mut self, now: Time) {
        self.begin_metering();
        self.quantise();
        match self.helpers.take() {
            Some(helpers) => {
                self.prepare(&Helpers(&helpers));
                self.helpers = Some(helpers);
            }
            None => self.prepare(&Inline),
        }
        self.send_all(now);
        self.meter.enter(Subsystem::OTHER, self.stopwatch.ns());
        let shared = self.replication.counters();
        let counters = self.meter.counters();
        counters.frames_encoded = shared.frames_encoded;
        counters.frames_shared = shared.frames_shared;
        counters.channels_encoded = shared.channels_encoded;
        counters.connections = self.peers.len() as u64;
        self.inbound.sent_tick = self.replication.now();
        self.replication.end_tick();
        self.last_record = *self.meter.end(self.stopwatch.ns());
        self.metering = false;
    }

    /// The time of the last tick, from `receive` to the end of `tick`. The time between the two calls belongs to the
    /// simulation.
    pub fn last_tick(&self) -> &TickRecord {
        &self.last_record
    }

    /// Number of clients whose connection is open or closing.
    pub fn connection_count(&self) -> usize {
        self.peers.len()
    }

    /// The connections that can read everything.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.peers.slots.iter().flatten().filter(|peer| peer.stage == Stage::Live).map(|peer| peer.id)
    }

    /// When the token of a connection expires, in seconds of Unix time; `None` if it is over. Of two tokens of a client, the one that expires
    /// later is the newer one.
    pub fn token_expires_unix_s(&self, connection: ConnectionId) -> Option<u64> {
        self.peers.get(connection).map(|peer| peer.expire_unix_s)
    }

    /// The client id of a connection, from its token; `None` if it is over.
    pub fn client_id(&self, connection: ConnectionId) -> Option<u64> {
        self.peers.get(connection).map(|peer| peer.client_id)
    }

    /// The address from which a client sends.
    pub fn address(&self, connection: ConnectionId) -> Option<SocketAddr> {
        self.peers.get(connection).map(|peer| peer.address)
    }

    /// The driver, for other uses than connections: measurements, discovery.
    pub fn driver_mut(&mut self) -> &mut dyn Driver {
        &mut *self.driver
    }

    /// Measurements of one connection's link.
    pub fn link_statistics(&self, connection: ConnectionId) -> Option<Statistics> {
        self.peers.get(connection).map(|peer| peer.session.statistics())
    }

    /// The counters of one connection's link alone. With thousands of connections that is faster than
    /// [`link_statistics`](Server::link_statistics), which looks at all parts of a session.
    pub fn link_counters(&self, connection: ConnectionId) -> Option<&throng_link::session::Counters> {
        self.peers.get(connection).map(|peer| peer.session.counters())
    }

    /// Counters of the object data sent to one connection.
    pub fn replication_counters(&self, connection: ConnectionId) -> Option<ConnectionCounters> {
        self.replication.connection_counters(connection)
    }

    /// The replication model, read-only.
    pub fn replication(&self) -> &R {
        &self.replication
    }

    /// Accepted and refused requests of the door, by reason.
    pub fn door_counters(&self) -> &NetcodeCounters {
        self.inbound.door.counters()
    }

    /// Counters of the socket, over all threads.
    pub fn driver_counters(&self) -> DriverCounters {
        let mut total = *self.driver.counters();
        for worker in &self.workers {
            total += worker.driver_counters();
        }
        total
    }

    /// Datagrams that the kernel dropped because the socket's receive buffer was full; `None` if the system does not
    /// report it. Looks at all sockets of the machine: ask once per second, not once per tick.
    pub fn kernel_dropped(&self) -> Option<u64> {
        self.driver.kernel_dropped()
    }

    /// The buffers that the kernel granted, if they are smaller than requested. Worth a warning at the start: datagrams
    /// that come while the server is busy are lost sooner. On Linux raise `net.core.rmem_max` and `net.core.wmem_max`
    /// to 4 MiB.
    pub fn buffer_shortfall(&self) -> Option<SocketBuffers> {
        self.driver.buffer_shortfall()
    }

    /// Counters of data that was dropped because of a limit, by name.
    pub fn limits_reached(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let own = [
            ("events_dropped", self.events_dropped),
            ("greetings_timed_out", self.greetings_timed_out),
            ("messages_refused", self.messages_refused),
            ("flushes_timed_out", self.flushes_timed_out),
            ("ticks_skipped", self.ticks_skipped),
            ("inputs_overflowed", self.inputs_overflowed + self.peers.iter().map(inputs_overflowed).sum::<u64>()),
            ("denials_untold", self.inbound.denials_untold),
            ("farewells_left_out", self.farewells.left_out),
            ("send_errors", self.workers.iter().map(|worker| worker.send_errors).sum()),
            ("send_dropped", self.workers.iter().map(|worker| worker.send_dropped).sum()),
        ];
        let door = self.inbound.door.counters();
        let evicted = [("pending_evicted", door.pending_evicted), ("used_tokens_evicted", door.used_tokens_evicted)];
        let flooded = [DropReason::TooManyRequests, DropReason::TooManyPackets, DropReason::RepeatedTooSoon];
        let flooded = flooded.map(|reason| (reason.tag(), door.dropped(reason)));
        own.into_iter().chain(evicted).chain(flooded).chain(self.replication.refusals())
    }

    /// How many entries each table holds, by name. Once all clients and objects have gone they return to 0, channels after
    /// the retention; but used tokens and pending addresses are remembered until newer ones replace them. Walks through the
    /// tables of the replication: ask now and then, not in each tick.
    pub fn records_held(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let clients = self.peers.clients_len();
        let mut held = vec![
            ("connections", self.peers.len()),
            ("addresses", self.inbound.door.addresses_len()),
            ("clients", clients),
            ("leaving", self.leaving.len()),
            ("farewells", self.farewells.len()),
            ("events", self.events.len()),
            ("inputs", self.inputs.len()),
            ("pending", self.inbound.door.handshake().pending_len()),
            ("used_tokens", self.inbound.door.handshake().used_tokens_len()),
            ("objects", self.replication.objects().count()),
        ];
        self.replication.records_held(&mut |name, count| held.push((name, count)));
        held.into_iter()
    }

    fn begin_metering(&mut self) {
        self.stopwatch.go_on();
        if !self.metering {
            self.metering = true;
            self.meter.begin(self.replication.now().0, self.stopwatch.ns());
        }
    }

    /// Decides what is sent, and encodes it.
    fn prepare(&mut self, executor: &impl Executor) {
        self.meter.enter(Subsystem::INTEREST, self.stopwatch.ns());
        self.replication.look(executor);
        self.meter.enter(Subsystem::PLAN, self.stopwatch.ns());
        self.replication.plan(executor);
        self.meter.enter(Subsystem::ENCODE, self.stopwatch.ns());
        self.replication.encode(executor);
    }

    /// Quantises the touched objects, and compares.
    fn quantise(&mut self) {
        self.meter.enter(Subsystem::QUANTISE, self.stopwatch.ns());
        let touched = self.values.take_touched();
        for batch in touched.chunks(GROUP) {
            std::hint::black_box(batch.iter().fold(0, |sum, &index| sum ^ self.replication.fetch_object(index)));
            for &index in batch {
                let Some(object) = self.values.commit(index) else { continue };
                self.meter.counters().objects_quantised += 1;
                self.replication.update(object.id, |to| object.quantise(to));
            }
        }
        self.values.give_back(touched);
    }

    fn send_all(&mut self, now: Time) {
        let driver = &mut self.driver;
        self.farewells.drain(now, |to, packet| {
            let _ = driver.send(now, &throng_net::Transmit::single(to, packet));
        });
        // Packets that are sent later have to come later.
        self.send_held(now, Time(u64::MAX));
        // Held packets are sent before the next tick, so no packet may wait for longer than a tick lasts.
        let since_last = now.since(self.sent_at).min(2 * self.options.tick_interval);
        self.sent_at = now;
        let is_drained = std::mem::take(&mut self.drains) >= SPREADING_DRAINS;
        let spread_within = if is_drained { since_last } else { Duration::ZERO };
        self.meter.enter(Subsystem::WRITE, self.stopwatch.ns());
        let tick = self.replication.now();
        let max_clients = self.options.max_clients;
        let (outgoing, slots) = self.replication.writers();
        let job = Job::<R> { now, tick, max_clients, spread_within, outgoing, stopwatch: self.stopwatch };
        let count = slots.len().min(self.peers.slots.len());
        let (peers, slots) = (&mut self.peers.slots[..count], &mut slots[..count]);
        match &self.helpers {
            None => self.workers[0].serve(job, 0, (peers, slots), Way::Driver(&mut *self.driver)),
            Some(helpers) => {
                let shares = Shares::new(count, self.workers.len());
                let parts = shares.divide(peers).zip(shares.divide(slots)).zip(&mut self.workers);
                work_on(parts, Some(&Helpers(helpers)), |(((base, peers), (_, slots)), worker)| {
                    worker.serve(job, base, (peers, slots), Way::Own);
                });
                for worker in self.workers.iter_mut().filter(|worker| worker.keeps()) {
                    worker.send_kept(job, &mut self.peers.slots, &mut *self.driver);
                }
            }
        }
        for worker in &mut self.workers {
            self.meter.merge(&worker.lap);
            worker.lap.reset();
        }
        // A conditioned driver sends its due datagrams now; it counts errors itself.
        let _ = self.driver.flush(now);
    }

    /// Takes the events of all sessions, and ends those that are over.
    fn settle_sessions(&mut self, now: Time) {
        self.close_flushed(now);
        self.meter.enter(Subsystem::SETTLE, self.stopwatch.ns());
        let tick = self.replication.now();
        let context = (now, tick, &self.options, self.stopwatch);
        let shares = Shares::new(self.peers.seats_used(), self.workers.len());
        let helpers = self.helpers.as_ref().map(Helpers);
        let parts = shares.divide(&mut self.peers.slots).zip(&mut self.inbound.intakes);
        match self.replication.settlers() {
            Some(slots) => {
                let parts = parts.zip(shares.divide(slots));
                work_on(parts, helpers.as_ref(), |(((_, peers), intake), (_, slots))| {
                    intake.settle_sessions::<R>(context, peers, Some(slots));
                });
            }
            None => work_on(parts, helpers.as_ref(), |((_, peers), intake)| {
                intake.settle_sessions::<R>(context, peers, None);
            }),
        }
        for thread in 0..self.inbound.intakes.len() {
            let intake = &mut self.inbound.intakes[thread];
            self.meter.merge(&intake.lap);
            intake.lap.reset();
            self.inputs.extend(intake.inputs.drain(..));
            for (id, sequence, has_arrived) in intake.fates.drain(..) {
                match has_arrived {
                    true => self.replication.delivered(id, sequence),
                    false => self.replication.lost(id, sequence),
                }
            }
            for (id, bytes) in intake.allowances.drain(..) {
                self.replication.set_allowance(id, bytes);
            }
        }
        for thread in 0..self.inbound.intakes.len() {
            let calls = std::mem::take(&mut self.inbound.intakes[thread].calls);
            calls.iter().for_each(|&index| self.attend(index as usize, now));
            self.inbound.intakes[thread].calls = calls;
            self.inbound.intakes[thread].calls.clear();
        }
    }

    /// Takes what a session has to say beside inputs of a live client, and ends it if it is over.
    fn attend(&mut self, index: usize, now: Time) {
        self.take_inputs(index);
        while let Some((lane, bytes)) = self.next_message(index) {
            self.take_message(index, now, lane, bytes);
        }
        self.end_late_greeting(index, now);
        let Some(peer) = &mut self.peers.slots[index] else { return };
        if peer.stage == Stage::Live {
            self.replication.set_allowance(peer.id, peer.replication_allowance_bytes(now));
        }
        // The end comes after everything that was said before it: what the game has no room for yet is polled first.
        let is_over = peer.session.is_closed() || peer.gone.is_some();
        if is_over
            && (peer.stage != Stage::Live || peer.waiting.has_room(&self.options))
            && let Some(cause) = peer.session.poll_close().or_else(|| peer.gone.take())
        {
            self.end(index, cause);
        }
    }

    /// Whether a peer may become live: the game gets an event, and has to poll it.
    fn may_go_live(&self) -> bool {
        self.events.len() < self.options.event_limit
    }

    /// Inputs come after *connected*. Those of a welcomed client say that it has read the welcome.
    fn take_inputs(&mut self, index: usize) {
        loop {
            let may_go_live = self.may_go_live();
            let Some(peer) = &mut self.peers.slots[index] else { return };
            // Data that the game does not need yet waits in the session, which is bounded.
            let may_wait = peer.waiting.may_take_input(self.replication.now(), self.options.inputs_per_tick);
            let may_say = peer.stage == Stage::Live || (peer.stage == Stage::Welcomed && may_go_live);
            let is_readable = may_wait && may_say && !peer.is_turned_away();
            let Some(input) = is_readable.then(|| peer.session.poll_input()).flatten() else { return };
            peer.waiting.take_input();
            self.inputs.push_back((peer.id, input));
            if peer.stage == Stage::Welcomed {
                self.go_live(index);
            }
        }
    }

    /// The next message of a peer. The message of a welcomed client makes it live, so it waits until there is room for
    /// the event. Messages of a client that was turned away are not read.
    fn next_message(&mut self, index: usize) -> Option<(LaneId, Vec<u8>)> {
        let may_go_live = self.may_go_live();
        let peer = self.peers.slots[index].as_mut()?;
        let is_readable = peer.waiting.has_room(&self.options) && (peer.stage != Stage::Welcomed || may_go_live);
        (is_readable && !peer.is_turned_away()).then(|| peer.session.poll_message()).flatten()
    }

    fn take_message(&mut self, index: usize, now: Time, lane: LaneId, bytes: Vec<u8>) {
        let Some(peer) = &mut self.peers.slots[index] else { return };
        let id = peer.id;
        let step = greeting::step(peer.stage, lane, &bytes, &self.schema, &self.options.lanes);
        match step {
            Step::Nothing => {}
            Step::Misbehaved(why) => peer.close(now, CloseReason::new(CloseCode::PROTOCOL, why)),
            Step::Welcome => self.welcome(index, now),
            Step::Refuse(error) => self.refuse(index, now, error),
            Step::GoLive => self.go_live(index),
            Step::GoLiveAndDeliver => {
                self.go_live(index);
                self.tell_message(id, lane, bytes);
            }
            Step::Deliver => self.tell_message(id, lane, bytes),
        }
    }

    fn tell_message(&mut self, connection: ConnectionId, lane: LaneId, bytes: Vec<u8>) {
        if let Some(peer) = self.peers.get_mut(connection) {
            peer.waiting.messages += 1;
            peer.waiting.message_bytes += bytes.len();
        }
        let message = Received::new(bytes, &self.schema);
        self.events.push_back(ServerEvent::Message { connection, lane: lane.0 - 1, message });
    }

    /// Queues an event that may be dropped if the game does not poll. (*Connected* and *disconnected* are reported in
    /// any case: there are at most as many as [`ServerOptions::event_limit`] and the seats together.)
    fn tell(&mut self, event: ServerEvent) {
        if self.events.len() < self.options.event_limit {
            self.events.push_back(event);
        } else {
            self.events_dropped += 1;
        }
    }

    /// Ends a connection that does not become live in time.
    fn end_late_greeting(&mut self, index: usize, now: Time) {
        let Some(peer) = &mut self.peers.slots[index] else { return };
        let is_late = peer.stage != Stage::Live && now.since(peer.since) >= GREETING_TIMEOUT;
        if is_late && !peer.session.is_closing() {
            self.greetings_timed_out += 1;
            peer.close(now, CloseReason::new(CloseCode::PROTOCOL, "the greeting did not come in time"));
        }
    }

    /// Tells the game and the old programs of connections whose seats were taken by newer ones of the same clients.
    fn end_replaced(&mut self, now: Time) {
        for mut old in std::mem::take(&mut self.inbound.replaced) {
            self.inputs_overflowed += inputs_overflowed(&old);
            let reason = CloseReason::new(CloseCode::REPLACED, "replaced by a newer connection of the same client");
            if old.stage == Stage::Live {
                // Its earlier messages are still delivered. Its earlier inputs are not: they would come after its end.
                while let Some((lane, bytes)) = old.session.poll_message() {
                    if lane != CONTROL {
                        self.tell_message(old.id, lane, bytes);
                    }
                }
                let (connection, client_id, cause) = (old.id, old.client_id, CloseCause::Local(reason.clone()));
                self.events.push_back(ServerEvent::Disconnected { connection, client_id, cause });
            }
            self.say_farewell(now, &mut old, reason);
        }
    }

    /// The address may be the same, if the old program is gone: the new program there cannot open these packets.
    fn say_farewell(&mut self, now: Time, old: &mut Peer, reason: CloseReason) {
        if old.stage != Stage::Unconfirmed {
            self.farewells.add(old.address, old.farewell(now, reason));
            let driver = &mut self.driver;
            self.farewells.drain(now, |to, packet| {
                let _ = driver.send(now, &throng_net::Transmit::single(to, packet));
            });
        }
    }

    fn welcome(&mut self, index: usize, now: Time) {
        let Some(peer) = &mut self.peers.slots[index] else { return };
        let welcome = Welcome {
            connection: peer.id,
            tick_interval: self.options.tick_interval,
            tick: self.replication.now(),
            slowest_ticks: self.options.slowest_interval_ticks(),
            grids: self.options.grids.iter().map(|grid| grid.shape).collect(),
        };
        peer.stage = Stage::Welcomed;
        peer.since = now;
        // The control lane holds more than the handshake needs; a client that floods it only harms itself.
        let _ = peer.session.send(CONTROL, &welcome.encode());
    }

    fn refuse(&mut self, index: usize, now: Time, error: OpenError) {
        let Some(peer) = self.peers.slots[index].as_mut().filter(|peer| !peer.session.is_closing()) else { return };
        peer.close(now, CloseReason::new(CloseCode::INCOMPATIBLE, &error.to_string()));
        let client_id = peer.client_id;
        self.tell(ServerEvent::Refused { client_id, error });
    }

    /// A welcomed client has read the welcome.
    fn go_live(&mut self, index: usize) {
        let Some(peer) = &mut self.peers.slots[index] else { return };
        if peer.stage != Stage::Welcomed {
            return;
        }
        peer.stage = Stage::Live;
        self.replication.admit(peer.id);
        self.events.push_back(ServerEvent::Connected {
            connection: peer.id,
            client_id: peer.client_id,
            user_data: peer.user_data.take().unwrap_or_else(|| Box::new([0; 256])),
        });
    }

    fn end(&mut self, index: usize, cause: CloseCause) {
        let Some(peer) = self.peers.remove(index) else { return };
        self.inbound.door.forget(peer.id.index, peer.address);
        self.inputs_overflowed += inputs_overflowed(&peer);
        self.replication.disconnect(peer.id);
        if peer.stage == Stage::Live {
            self.events.push_back(ServerEvent::Disconnected { connection: peer.id, client_id: peer.client_id, cause });
        }
    }
}

/// Inputs of a client that found its queue full.
fn inputs_overflowed(peer: &Peer) -> u64 {
    peer.session.statistics().counters.inputs_overflowed
}

fn check(options: &ServerOptions) -> Result<(), StartError> {
    let keys = std::iter::once(&options.private_key).chain(&options.previous_private_key);
    if keys.into_iter().any(|key| key.as_bytes().iter().all(|&byte| byte == 0)) {
        return Err(StartError::ZeroKey);
    }
    if !(1..=65_536).contains(&options.max_clients) {
        return Err(StartError::Options("a server takes 1 to 65,536 clients"));
    }
    if !(Duration::from_micros(1)..=TICK_INTERVAL_MOST).contains(&options.tick_interval) {
        return Err(StartError::Options("the time between ticks must be 1 us to 71 minutes"));
    }
    if options.send_interval_ticks.is_some_and(|ticks| ticks.get() > options.send_interval_most_ticks()) {
        return Err(StartError::Options("the time between two sends of state to a client must be at most 200 ms"));
    }
    if options.client_packets_per_s == 0 {
        return Err(StartError::Options("a client must be allowed at least 1 packet per second"));
    }
    if options.threads > 256 {
        return Err(StartError::Options("more than 256 threads are not possible"));
    }
    if options.replicator.retention_ticks > RETENTION_TICKS_MAX {
        return Err(StartError::Options("the retention of a channel's slots must be at most 65,536 ticks"));
    }
    if options.grids.len() > 16 {
        return Err(StartError::Options("more than 16 grids are not possible"));
    }
    if options.grids.iter().any(GridOptions::ends_before_it_begins) {
        return Err(StartError::Options("bounds_m of a grid must be its lowest and its highest position"));
    }
    Ok(())
}

/// The addresses that tokens must name.
fn addresses_of(options: &ServerOptions, local: SocketAddr) -> Result<Vec<SocketAddr>, StartError> {
    let public = &options.public_addresses;
    if let Some(&address) = public.iter().find(|address| address.ip().is_unspecified() || address.port() == 0) {
        return Err(StartError::BadPublicAddress { address });
    }
    match public.is_empty() {
        true if local.ip().is_unspecified() => Err(StartError::NoPublicAddress { local }),
        true => Ok(vec![local]),
        false => Ok(public.clone()),
    }
}

fn door_options(options: &ServerOptions, addresses: Vec<SocketAddr>) -> throng_link::netcode::ServerOptions {
    let door = throng_link::netcode::ServerOptions::new(options.protocol_id, options.private_key.clone(), addresses);
    throng_link::netcode::ServerOptions {
        previous_private_key: options.previous_private_key.clone(),
        second_connection: options.second_connection,
        ..door.sized_for(options.max_clients)
    }
}

fn sessions_of(options: &ServerOptions) -> SessionOptions {
    let sessions =
        session_options(&options.lanes, options.client_bytes_per_s, options.idle_timeout, options.input_redundancy);
    // The client asks first; while it does, the server need not.
    SessionOptions { keep_alive_interval: sessions.keep_alive_interval * 3 / 2, ..sessions }
}

pub(crate) fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system has random numbers");
}

pub(crate) fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
