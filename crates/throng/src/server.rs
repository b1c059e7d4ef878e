//! The server that a game embeds in its own loop.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rayon::{ThreadPool, ThreadPoolBuilder};
use thiserror::Error;
use throng_interest::{InterestError, RingsError};
use throng_link::netcode::{NetcodeCounters, Now, ServerHandshake};
use throng_link::session::{
    CloseCause, CloseCode, CloseReason, Input, LaneId, OptionsError, SendError, SessionOptions, Statistics,
};
use throng_meter::{Subsystem, TickMeter, TickRecord};
use throng_net::{BindError, Driver, DriverCounters, ReceiveError, UdpDriver, UdpOptions};
use throng_replica::{
    ChannelKey, ConnectionCounters, EntryTooLong, GridError, Inline, LimitReached, Placement, Replicator,
};
use throng_schema::{Replicate, Schema};
use throng_wire::{ConnectionId, ObjectId, Tick, Time};

use crate::arena::Values;
use crate::channels::Channels;
use crate::event::ServerEvent;
use crate::handshake::{self, OpenError, Welcome};
use crate::inbound::{Inbound, Peers};
use crate::message::{self, Received};
use crate::options::{ServerOptions, session_options};
use crate::outbound::{Job, Pool, Stopwatch, Way, Worker, is_delivered};
use crate::peer::Stage;
use crate::replication::Replication;

/// Our own lane for control messages; the game's lanes come after it.
const CONTROL: LaneId = LaneId(0);

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
    /// A grid is not possible.
    #[error(transparent)]
    InterestGrid(#[from] throng_interest::GridError),
    /// The rings are not possible.
    #[error(transparent)]
    Rings(#[from] RingsError),
    /// The rings and the grid do not fit together.
    #[error(transparent)]
    Interest(#[from] InterestError),
    /// A kind is too long for a packet.
    #[error(transparent)]
    Kind(#[from] EntryTooLong),
    /// The lanes or times are not possible.
    #[error(transparent)]
    Session(#[from] OptionsError),
    /// The threads could not be started.
    #[error("the threads could not be started: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// A number is out of its range.
    #[error("{0}")]
    Options(&'static str),
}

/// Why a message could not be sent. Our misuse, or a queue that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The connection is gone.
    #[error("the connection does not exist")]
    UnknownConnection,
    /// The type is not in the schema.
    #[error("the type is not in the schema: add it with Schema::builder().kind()")]
    UnknownKind,
    /// The session refused it.
    #[error(transparent)]
    Session(#[from] SendError),
}

/// A server: objects, and the clients that see them.
///
/// The game's loop calls, once per tick: [`receive`](Self::receive), then [`poll_event`](Self::poll_event) and
/// [`poll_input`](Self::poll_input) until `None`, then whatever it wants to do with its objects, then
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
    pool: Option<ThreadPool>,
    events: VecDeque<ServerEvent>,
    events_dropped: u64,
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

    /// The replication core, to look at.
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
        let addresses = match options.public_addresses.is_empty() {
            true => vec![driver.local_address()],
            false => options.public_addresses.clone(),
        };
        let door =
            throng_link::netcode::ServerOptions::new(options.protocol_id, options.private_key.clone(), addresses);
        let door = ServerHandshake::new(door, &mut random);
        senders.resize_with(options.threads.max(1), || None);
        let pool = match options.threads {
            0 | 1 => None,
            threads => Some(ThreadPoolBuilder::new().num_threads(threads).build()?),
        };
        Ok(Server {
            inbound: Inbound::new(door, sessions),
            peers: Peers::new(options.max_clients),
            workers: senders.into_iter().map(Worker::with_sender).collect(),
            schema: Arc::clone(replication.schema()),
            driver,
            replication,
            values: Values::default(),
            pool,
            events: VecDeque::new(),
            events_dropped: 0,
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

    /// The schema of all objects, messages and inputs.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Takes in everything that has come, and finds out what it means.
    pub fn receive(&mut self, now: Time) -> Result<(), ReceiveError> {
        let received = self.drain_socket(now);
        self.settle_sessions(now);
        self.meter.enter(Subsystem::Simulate, self.stopwatch.ns());
        received
    }

    /// Takes what has come from the socket, so that the kernel's buffer does not overflow while the game waits for its
    /// next tick. What it means is found out by [`receive`](Self::receive).
    ///
    /// Waiting is not work: say so with [`wait`](Self::wait).
    pub fn drain_socket(&mut self, now: Time) -> Result<(), ReceiveError> {
        self.begin_metering();
        self.meter.enter(Subsystem::Receive, self.stopwatch.ns());
        let clocks = Now { unix_s: unix_s(), time: now };
        let (inbound, peers, replication) = (&mut self.inbound, &mut self.peers, &mut self.replication);
        let (datagrams, bytes) = (inbound.datagrams, inbound.bytes);
        let received = self.driver.receive(now, &mut |from, datagram| {
            inbound.handle(clocks, from, datagram, peers, replication);
        });
        let counters = self.meter.counters();
        counters.packets_received += inbound.datagrams - datagrams;
        counters.bytes_received += inbound.bytes - bytes;
        let driver = &mut self.driver;
        inbound.drain_replies(|to, reply| {
            // A reply that cannot be sent is a lost packet; the driver counts it.
            let _ = driver.send(now, &throng_net::Transmit::single(to, reply));
        });
        received.map(|_| ())
    }

    /// The game has nothing to do until its next call: the time until then is nobody's work.
    pub fn wait(&mut self) {
        self.stopwatch.stop();
    }

    /// The next thing that happened, `None` when all have been told.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// The next input of a client. Inputs of one client come in order, each at most once.
    pub fn poll_input(&mut self) -> Option<(ConnectionId, Input)> {
        self.inputs.pop_front()
    }

    /// An input as the type that the client sent, if it is one.
    pub fn read_input<T: Replicate>(&self, input: &Input) -> Option<T> {
        message::decode(&self.schema, input.bytes())
    }

    /// Notes that the state sent from now on includes the effect of this input: the client's prediction needs to know.
    pub fn acknowledge_input(&mut self, connection: ConnectionId, number: u32) {
        if let Some(peer) = self.peers.get_mut(connection) {
            peer.session.set_input_ack(number);
        }
    }

    /// Adds an object that lives in the place that `placement` says.
    ///
    /// # Panics
    /// If the type is not in the schema, or the placement names a grid that does not exist.
    pub fn spawn<T: Replicate>(&mut self, value: T, placement: Placement) -> Result<ObjectId, LimitReached> {
        self.spawn_owned(value, placement, None)
    }

    /// Adds an object that belongs to a connection: only it gets the owner's fields.
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

    /// The value of an object, to be changed: marks it as touched. What really differs, after quantisation, is sent.
    pub fn get_mut<T: Replicate>(&mut self, id: ObjectId) -> Option<&mut T> {
        self.values.touch(id)
    }

    /// Ends an object.
    pub fn despawn(&mut self, id: ObjectId) {
        self.values.remove(id);
        self.replication.despawn(id);
    }

    /// Gives an object to another connection, or to none.
    pub fn set_owner(&mut self, id: ObjectId, owner: Option<ConnectionId>) -> Result<(), LimitReached> {
        self.replication.set_owner(id, owner)
    }

    /// Moves an object to where `placement` says.
    pub fn set_placement(&mut self, id: ObjectId, placement: Placement) -> Result<(), LimitReached> {
        self.replication.set_placement(id, placement)
    }

    /// Where the client looks from, in metres: decides which cells of the grids it is sent, and how often.
    pub fn set_viewpoint(&mut self, connection: ConnectionId, position: [f64; 3]) {
        self.replication.set_viewpoint(connection, position);
    }

    /// Sends the client what lives in a channel, every `interval_ticks` ticks, from now on.
    pub fn subscribe(
        &mut self,
        connection: ConnectionId,
        channel: ChannelKey,
        interval_ticks: u16,
    ) -> Result<(), LimitReached> {
        self.replication.subscribe(connection, channel, interval_ticks)
    }

    /// Ends what [`Server::subscribe`] began.
    pub fn unsubscribe(&mut self, connection: ConnectionId, channel: ChannelKey) {
        self.replication.unsubscribe(connection, channel);
    }

    /// Sends a message to one client, on one of the lanes of [`ServerOptions::lanes`].
    pub fn send<T: Replicate>(&mut self, connection: ConnectionId, lane: u8, message: &T) -> Result<(), MessageError> {
        self.scratch.clear();
        message::encode(&self.schema, message, &mut self.scratch).ok_or(MessageError::UnknownKind)?;
        let peer = self.peers.get_mut(connection).ok_or(MessageError::UnknownConnection)?;
        peer.session.send(LaneId(lane.saturating_add(1)), &self.scratch)?;
        Ok(())
    }

    /// Ends a connection; the client is told why.
    pub fn disconnect(&mut self, connection: ConnectionId, now: Time, reason: &str) {
        if let Some(peer) = self.peers.get_mut(connection) {
            peer.close(now, CloseReason::new(CloseCode::DONE, reason));
        }
    }

    /// Ends all connections; go on ticking until [`connection_count`](Self::connection_count) is 0.
    pub fn shut_down(&mut self, now: Time, reason: &str) {
        for peer in self.peers.iter_mut() {
            peer.close(now, CloseReason::new(CloseCode::SHUTDOWN, reason));
        }
    }

    /// Ends the tick: quantises what was touched, encodes what is due, and sends it.
    pub fn tick(&mut self, now: Time) {
        self.begin_metering();
        self.quantise();
        self.meter.enter(Subsystem::Interest, self.stopwatch.ns());
        self.replication.look();
        self.meter.enter(Subsystem::Encode, self.stopwatch.ns());
        match &self.pool {
            Some(pool) => self.replication.encode(&Pool(pool)),
            None => self.replication.encode(&Inline),
        }
        self.send_all(now);
        self.meter.enter(Subsystem::Other, self.stopwatch.ns());
        let shared = self.replication.counters();
        let counters = self.meter.counters();
        counters.frames_encoded = shared.frames_encoded;
        counters.frames_shared = shared.frames_shared;
        counters.channels_encoded = shared.channels_encoded;
        counters.connections = self.peers.len() as u64;
        self.replication.end_tick();
        self.last_record = *self.meter.end(self.stopwatch.ns());
        self.metering = false;
    }

    /// What the last tick cost, from `receive` to the end of `tick`. What lies between belongs to the simulation.
    pub fn last_tick(&self) -> &TickRecord {
        &self.last_record
    }

    /// Clients whose connection is open, or not yet quite closed.
    pub fn connection_count(&self) -> usize {
        self.peers.len()
    }

    /// The connections that can read everything.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.peers.slots.iter().flatten().filter(|peer| peer.stage == Stage::Live).map(|peer| peer.id)
    }

    /// Where a client sends from.
    pub fn address(&self, connection: ConnectionId) -> Option<SocketAddr> {
        self.peers.get(connection).map(|peer| peer.address)
    }

    /// The driver, for what goes beside the connections: measurements, discovery.
    pub fn driver_mut(&mut self) -> &mut dyn Driver {
        &mut *self.driver
    }

    /// What was measured of one connection's link.
    pub fn link_statistics(&self, connection: ConnectionId) -> Option<Statistics> {
        self.peers.get(connection).map(|peer| peer.session.statistics())
    }

    /// What one connection was sent of objects.
    pub fn replication_counters(&self, connection: ConnectionId) -> Option<ConnectionCounters> {
        self.replication.connection_counters(connection)
    }

    /// The replication model, to look at.
    pub fn replication(&self) -> &R {
        &self.replication
    }

    /// What the door has let in and turned away, by reason.
    pub fn door_counters(&self) -> &NetcodeCounters {
        self.inbound.door.counters()
    }

    /// What passed through the socket.
    pub fn driver_counters(&self) -> &DriverCounters {
        self.driver.counters()
    }

    /// What was dropped because some limit was reached, by name.
    pub fn limits_reached(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let own = [
            ("events_dropped", self.events_dropped),
            ("replies_dropped", self.inbound.replies_dropped),
            ("send_errors", self.workers.iter().map(|worker| worker.send_errors).sum()),
        ];
        own.into_iter().chain(self.replication.refusals())
    }

    fn begin_metering(&mut self) {
        self.stopwatch.go_on();
        if !self.metering {
            self.metering = true;
            self.meter.begin(self.replication.now().0, self.stopwatch.ns());
        }
    }

    /// Quantises what was touched, and compares.
    fn quantise(&mut self) {
        self.meter.enter(Subsystem::Quantise, self.stopwatch.ns());
        let (replication, counters) = (&mut self.replication, self.meter.counters());
        self.values.drain_touched(|id, quantise| {
            counters.objects_quantised += 1;
            replication.update(id, quantise);
        });
    }

    fn send_all(&mut self, now: Time) {
        self.meter.enter(Subsystem::Write, self.stopwatch.ns());
        let tick = self.replication.now();
        let max_clients = self.options.max_clients;
        let (outgoing, slots) = self.replication.writers();
        let job = Job::<R> { now, tick, max_clients, outgoing, stopwatch: self.stopwatch };
        let count = slots.len().min(self.peers.slots.len());
        let (peers, slots) = (&mut self.peers.slots[..count], &mut slots[..count]);
        match &self.pool {
            None => self.workers[0].serve(job, 0, (peers, slots), Way::Driver(&mut *self.driver)),
            Some(pool) => {
                let share = count.div_ceil(self.workers.len()).max(1);
                let shares = peers.chunks_mut(share).zip(slots.chunks_mut(share)).enumerate();
                pool.scope(|scope| {
                    for ((index, share_of), worker) in shares.zip(&mut self.workers) {
                        scope.spawn(move |_| worker.serve(job, index * share, share_of, Way::Own));
                    }
                });
                for worker in self.workers.iter_mut().filter(|worker| worker.keeps()) {
                    worker.send_kept(job, &self.peers.slots, &mut *self.driver);
                }
            }
        }
        for worker in &mut self.workers {
            self.meter.merge(&worker.lap);
            worker.lap.reset();
        }
        // What a conditioned driver holds back goes out now; errors are counted there.
        let _ = self.driver.flush(now);
    }

    /// Everything that sessions want to tell, and the end of those that are over.
    fn settle_sessions(&mut self, now: Time) {
        for index in 0..self.peers.slots.len() {
            let Some(peer) = &mut self.peers.slots[index] else { continue };
            peer.session.handle_timeout(now);
            while let Some((sequence, delivery)) = peer.session.poll_delivery() {
                match is_delivered(delivery) {
                    Some(true) => self.replication.delivered(peer.id, sequence),
                    Some(false) => self.replication.lost(peer.id, sequence),
                    None => {}
                }
            }
            while let Some(input) = peer.session.poll_input() {
                if self.inputs.len() < self.options.event_limit {
                    self.inputs.push_back((peer.id, input));
                } else {
                    self.events_dropped += 1;
                }
            }
            while let Some((lane, bytes)) =
                self.peers.slots[index].as_mut().and_then(|peer| peer.session.poll_message())
            {
                self.take_message(index, now, lane, bytes);
            }
            let Some(peer) = &mut self.peers.slots[index] else { continue };
            let cause = peer.session.poll_close().or_else(|| peer.gone.take());
            if let Some(cause) = cause {
                self.end(index, cause);
            }
        }
    }

    fn take_message(&mut self, index: usize, now: Time, lane: LaneId, bytes: Vec<u8>) {
        let Some(peer) = &mut self.peers.slots[index] else { return };
        if lane != CONTROL {
            if peer.stage == Stage::Live {
                let message = Received::new(bytes);
                let event = ServerEvent::Message { connection: peer.id, lane: lane.0 - 1, message };
                if self.events.len() < self.options.event_limit {
                    self.events.push_back(event);
                } else {
                    self.events_dropped += 1;
                }
            }
            return;
        }
        if handshake::is_ready(&bytes) {
            self.begin_replication(index);
        } else if peer.stage != Stage::Live {
            let (client_id, checked) = (peer.client_id, handshake::check_hello(&bytes, &self.schema));
            match checked {
                Ok(()) => self.welcome(index),
                Err(error) => self.refuse(index, now, client_id, error),
            }
        }
    }

    fn welcome(&mut self, index: usize) {
        let Some(peer) = &mut self.peers.slots[index] else { return };
        let welcome = Welcome {
            connection: peer.id,
            tick_interval: self.options.tick_interval,
            tick: self.replication.now(),
            grids: self.options.grids.iter().map(|grid| grid.shape).collect(),
        };
        peer.welcomed = true;
        // The control lane holds more than the handshake needs; a client that floods it only harms itself.
        let _ = peer.session.send(CONTROL, &welcome.encode());
    }

    fn refuse(&mut self, index: usize, now: Time, client_id: u64, error: OpenError) {
        let Some(peer) = self.peers.slots[index].as_mut().filter(|peer| !peer.session.is_closing()) else { return };
        peer.close(now, CloseReason::new(CloseCode::INCOMPATIBLE, &error.to_string()));
        self.events.push_back(ServerEvent::Refused { client_id, error });
    }

    fn begin_replication(&mut self, index: usize) {
        let Some(peer) = &mut self.peers.slots[index] else { return };
        if peer.stage == Stage::Live || !peer.welcomed {
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
        self.replication.disconnect(peer.id);
        if peer.stage == Stage::Live {
            self.events.push_back(ServerEvent::Disconnected { connection: peer.id, client_id: peer.client_id, cause });
        }
    }
}

fn check(options: &ServerOptions) -> Result<(), StartError> {
    if !(1..=65_536).contains(&options.max_clients) {
        return Err(StartError::Options("a server takes 1 to 65,536 clients"));
    }
    if options.tick_interval.is_zero() {
        return Err(StartError::Options("the time between ticks must be above 0"));
    }
    if options.threads > 256 {
        return Err(StartError::Options("more than 256 threads are not possible"));
    }
    if options.grids.len() > 16 {
        return Err(StartError::Options("more than 16 grids are not possible"));
    }
    Ok(())
}

fn sessions_of(options: &ServerOptions) -> SessionOptions {
    session_options(&options.lanes, options.client_bytes_per_s, options.idle_timeout, options.input_redundancy)
}

pub(crate) fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system has random numbers");
}

pub(crate) fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
