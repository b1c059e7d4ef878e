//! A whole server and its clients in one process, with a driver that carries bytes and knows no kernel: what a tick
//! costs beyond the system calls.
#![allow(dead_code)]

use std::f32::consts::TAU;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fastrand::Rng;
use throng::meter::{Subsystem, TickRecord};
use throng::net::{Driver, DriverCounters, ReceiveError, SendError, Transmit};
use throng::prelude::*;
use throng::{ClientCore, Decode, GridShape, Key};

const WALK_M_PER_S: f32 = 4.0;
/// Ticks after the last client has connected until every buffer has its working size.
const WARM_UP_TICKS: u32 = 90;
const CONNECT_TICKS_MAX: u32 = 60;

#[derive(Clone, Copy, Debug, Default, PartialEq, ReplicateEnum)]
pub(crate) enum Mode {
    #[default]
    Standing,
    Walking,
    Airborne,
}

/// The public state of a character.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Character {
    #[replicate(position(step = 0.01))]
    pub(crate) position: [f32; 3],
    #[replicate(fixed(min = -40.0, max = 40.0, step = 0.1))]
    pub(crate) velocity: [f32; 3],
    #[replicate(angle(bits = 9))]
    pub(crate) yaw: f32,
    #[replicate(fixed(min = -1.5, max = 1.5, step = 0.025))]
    pub(crate) pitch: f32,
    #[replicate(enumeration)]
    pub(crate) mode: Mode,
}

/// The inhabitants of the town, and which of them each client receives.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) players: u32,
    pub(crate) area_m: f32,
    pub(crate) cell_m: f64,
    pub(crate) tick_interval: Duration,
    pub(crate) client_bytes_per_s: u32,
    /// Radius in metres, interval in ticks.
    pub(crate) rings: &'static [(f64, u32)],
    pub(crate) looks_from: LooksFrom,
    /// Of the server.
    pub(crate) threads: usize,
    /// Of 100 datagrams, so many are lost in each direction once everybody has come in.
    pub(crate) lost_percent: u32,
    /// The budget of each client once everybody has come in, if it is another one than before.
    pub(crate) later_bytes_per_s: Option<u32>,
    /// Objects that nobody ever touches, in an area of `IDLE_AREA_M`. Most are out of everybody's sight.
    pub(crate) idle: u32,
}

/// The side of the square in which idle objects are.
const IDLE_AREA_M: f32 = 8_000.0;

const TICK: Duration = Duration::from_micros(33_333);

/// Everybody is sent every change of everybody.
pub(crate) const DENSE_100: Shape = Shape {
    players: 100,
    area_m: 200.0,
    cell_m: 100.0,
    tick_interval: TICK,
    client_bytes_per_s: 500_000,
    rings: &[(400.0, 1)],
    looks_from: LooksFrom::Position,
    threads: 1,
    lost_percent: 0,
    later_bytes_per_s: None,
    idle: 0,
};

/// Each sees only itself.
pub(crate) const SPARSE_100: Shape = Shape {
    players: 100,
    area_m: 8_000.0,
    cell_m: 10.0,
    tick_interval: TICK,
    client_bytes_per_s: 125_000,
    rings: &[(5.0, 1)],
    looks_from: LooksFrom::Position,
    threads: 1,
    lost_percent: 0,
    later_bytes_per_s: None,
    idle: 0,
};

/// Near ones often, far ones seldom.
pub(crate) const CROWD_1000: Shape = Shape {
    players: 1_000,
    area_m: 100.0,
    cell_m: 10.0,
    tick_interval: TICK,
    client_bytes_per_s: 64_000,
    rings: &[(10.0, 2), (50.0, 6), (150.0, 30)],
    looks_from: LooksFrom::Position,
    threads: 1,
    lost_percent: 0,
    later_bytes_per_s: None,
    idle: 0,
};

/// The same crowd in shared views, with the rings of the scenario `crowd`.
pub(crate) const VIEWS_1000: Shape =
    Shape { rings: &[(9.0, 2), (49.0, 8), (150.0, 40)], looks_from: LooksFrom::Cell, ..CROWD_1000 };

/// The same, of which each connection loses packets.
pub(crate) const VIEWS_LOSSY: Shape = Shape { lost_percent: 5, ..VIEWS_1000 };

/// The same with a third of the bytes that everybody wants.
pub(crate) const VIEWS_SHORT: Shape = Shape { later_bytes_per_s: Some(10_000), ..VIEWS_1000 };

/// Both at once.
pub(crate) const VIEWS_SHORT_LOSSY: Shape = Shape { lost_percent: 5, ..VIEWS_SHORT };

/// The people of `SPARSE_100` and of `VIEWS_1000` among many objects that rest.
pub(crate) const SPARSE_100_IDLE: Shape = Shape { idle: 100_000, ..SPARSE_100 };
pub(crate) const VIEWS_1000_IDLE: Shape = Shape { idle: 100_000, ..VIEWS_1000 };

/// A thousand players at the density and with the budget of the scenario `crowd-10k`, in three rings.
pub(crate) const VIEWS_10HZ: Shape = Shape {
    players: 1_000,
    area_m: 95.0,
    cell_m: 10.0,
    tick_interval: Duration::from_millis(100),
    client_bytes_per_s: 32_000,
    rings: &[(9.0, 1), (29.0, 5), (59.0, 20)],
    looks_from: LooksFrom::Cell,
    threads: 1,
    lost_percent: 0,
    later_bytes_per_s: None,
    idle: 0,
};

pub(crate) struct Town {
    server: Server,
    now: Time,
    wire: Wire,
    clients: Vec<ClientCore>,
    citizens: Vec<(ConnectionId, ObjectId)>,
    rng: Rng,
    shape: Shape,
    datagram: Vec<u8>,
}

impl Town {
    /// A town whose people have all come in and walk about.
    pub(crate) fn new(shape: Shape) -> Town {
        let schema = Arc::new(Schema::builder().kind::<Character>().build().expect("a good schema"));
        let rings = shape.rings.iter().map(|&(radius_m, interval_ticks)| Ring { radius_m, interval_ticks });
        let options = ServerOptions {
            max_clients: shape.players,
            tick_interval: shape.tick_interval,
            client_bytes_per_s: shape.client_bytes_per_s,
            threads: shape.threads,
            grids: vec![GridOptions {
                shape: GridShape::flat(throng::Up::Z, [shape.cell_m, shape.cell_m, 20.0]),
                // Without bounds, so that the empty cells around the area are part of the measurement.
                bounds_m: None,
                rings: rings.collect(),
                looks_from: shape.looks_from,
            }],
            ..ServerOptions::new(7, Key::new([7; 32]))
        };
        let issuer = options.token_issuer();
        let wire = Wire::default();
        let driver = Box::new(WireDriver { wire: wire.clone(), counters: DriverCounters::default() });
        let server = Server::new(driver, Arc::clone(&schema), options).expect("good options");
        let options = Arc::new(ClientOptions { decode: Decode::Nothing, ..ClientOptions::default() });
        let clients = (0..shape.players).map(|client| {
            let token = issuer.issue(u64::from(client) + 1, &[server_address()]).expect("a good token");
            ClientCore::new(token, Arc::clone(&schema), Arc::clone(&options), Time(0)).expect("good options")
        });
        let clients = clients.collect();
        let (rng, datagram) = (Rng::with_seed(1), Vec::new());
        let mut town = Town { server, now: Time(0), wire, clients, citizens: Vec::new(), rng, shape, datagram };
        town.fill();
        town
    }

    fn fill(&mut self) {
        // People have the same luck without them.
        let (half, mut rng) = (IDLE_AREA_M / 2.0, Rng::with_seed(3));
        for _ in 0..self.shape.idle {
            let position = [(rng.f32() * 2.0 - 1.0) * half, (rng.f32() * 2.0 - 1.0) * half, 0.0];
            self.server.spawn(Character { position, ..Character::default() }, Placement::Cell(0)).expect("room");
        }
        for _ in 0..CONNECT_TICKS_MAX {
            self.clients_turn();
            self.receive();
            self.simulate();
            self.tick();
        }
        assert_eq!(self.citizens.len(), self.shape.players as usize, "somebody did not get in");
        self.wire.lock().lost_percent = self.shape.lost_percent;
        for &(connection, _) in &self.citizens {
            if let Some(bytes_per_s) = self.shape.later_bytes_per_s {
                self.server.set_budget(connection, bytes_per_s, self.now);
            }
        }
        for _ in 0..WARM_UP_TICKS {
            self.clients_turn();
            self.receive();
            self.simulate();
            self.tick();
        }
    }

    /// Bytes of all datagrams that the server has sent so far.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.wire.lock().sent_bytes
    }

    pub(crate) fn connections(&self) -> u64 {
        self.citizens.len() as u64
    }

    /// The time of the last tick, by subsystem.
    pub(crate) fn record(&self) -> &TickRecord {
        self.server.last_tick()
    }

    /// The clients take in what came, acknowledge it, and send their input.
    pub(crate) fn clients_turn(&mut self) {
        self.now = self.now.after(self.shape.tick_interval);
        for (index, client) in self.clients.iter_mut().enumerate() {
            let address = client_address(index);
            self.wire.lock().deliver(index, |datagram| client.handle(self.now, server_address(), datagram));
            while client.poll_event().is_some() {}
            // Before the connection is open there is no peer to send it to.
            let _ = client.send_input(&[7; 8]);
            while client.poll_transmit(self.now, &mut self.datagram) {
                self.wire.lock().send_to_server(address, &self.datagram);
            }
        }
        self.wire.lock().to_clients.clear();
    }

    /// The server takes in what came.
    pub(crate) fn receive(&mut self) {
        self.server.receive(self.now).expect("the wire never fails");
    }

    /// The game: everybody walks on.
    pub(crate) fn simulate(&mut self) {
        while let Some(event) = self.server.poll_event() {
            if let ServerEvent::Connected { connection, .. } = event {
                self.settle_down(connection);
            }
        }
        while let Some((connection, input)) = self.server.poll_input() {
            self.server.acknowledge_input(connection, input.number);
        }
        let (half, step) = (self.shape.area_m / 2.0, self.shape.tick_interval.as_secs_f32());
        for &(connection, object) in &self.citizens {
            let turns = self.rng.u32(..50) == 0;
            let yaw = self.rng.f32() * TAU;
            let Some(character) = self.server.get_mut::<Character>(object) else { continue };
            if turns {
                turn(character, yaw);
            }
            for axis in 0..2 {
                let next = character.position[axis] + character.velocity[axis] * step;
                if next.abs() > half {
                    character.velocity[axis] = -character.velocity[axis];
                } else {
                    character.position[axis] = next;
                }
            }
            let position = character.position.map(f64::from);
            self.server.set_viewpoint(connection, position);
        }
    }

    fn settle_down(&mut self, connection: ConnectionId) {
        let half = self.shape.area_m / 2.0;
        let position = [(self.rng.f32() * 2.0 - 1.0) * half, (self.rng.f32() * 2.0 - 1.0) * half, 0.0];
        let mut character = Character { position, mode: Mode::Walking, ..Character::default() };
        turn(&mut character, self.rng.f32() * TAU);
        let object = self.server.spawn_owned(character, Placement::Cell(0), Some(connection)).expect("room");
        self.citizens.push((connection, object));
    }

    /// The end of the server's tick: quantise, look, encode, write, seal, send.
    pub(crate) fn tick(&mut self) {
        self.server.tick(self.now);
    }
}

/// The time of `receive` and `tick`, and of each stage in them.
pub(crate) struct Times {
    ticks_ns: Vec<u64>,
    pub(crate) stages_ns: Vec<u64>,
}

impl Times {
    pub(crate) fn new() -> Times {
        Times { ticks_ns: Vec::new(), stages_ns: vec![0; Subsystem::STAGES.len()] }
    }

    /// One more tick of the town. Returns the time of `receive` and `tick`.
    pub(crate) fn measure(&mut self, town: &mut Town) -> Duration {
        town.clients_turn();
        let start = Instant::now();
        town.receive();
        let received = start.elapsed();
        town.simulate();
        let start = Instant::now();
        town.tick();
        let time = received + start.elapsed();
        self.ticks_ns.push(time.as_nanos() as u64);
        for (sum, stage) in self.stages_ns.iter_mut().zip(Subsystem::STAGES) {
            *sum += town.record().ns(stage);
        }
        time
    }

    pub(crate) fn ticks(&self) -> u64 {
        self.ticks_ns.len() as u64
    }

    pub(crate) fn median_ms(&self) -> f64 {
        let mut ticks_ns = self.ticks_ns.clone();
        ticks_ns.sort_unstable();
        ticks_ns[ticks_ns.len() / 2] as f64 / 1e6
    }
}

fn turn(character: &mut Character, yaw: f32) {
    character.yaw = yaw;
    character.velocity = [WALK_M_PER_S * yaw.cos(), WALK_M_PER_S * yaw.sin(), 0.0];
}

fn server_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 40_000))
}

fn client_address(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, (index >> 8) as u8, index as u8], 1))
}

fn client_index(address: SocketAddr) -> usize {
    let SocketAddr::V4(address) = address else { unreachable!("the wire carries our own addresses only") };
    let [_, _, high, low] = address.ip().octets();
    usize::from(high) << 8 | usize::from(low)
}

/// Datagrams one behind the other, with their peer.
#[derive(Default)]
struct Heap {
    bytes: Vec<u8>,
    /// Peer, length of all datagrams together, length of each but the last.
    batches: Vec<(SocketAddr, usize, usize)>,
}

impl Heap {
    fn push(&mut self, peer: SocketAddr, datagram: &[u8]) {
        self.push_batch(peer, datagram, datagram.len());
    }

    fn push_batch(&mut self, peer: SocketAddr, bytes: &[u8], segment_bytes: usize) {
        self.bytes.extend_from_slice(bytes);
        self.batches.push((peer, bytes.len(), segment_bytes));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.batches.clear();
    }
}

/// The datagrams in flight in both directions.
#[derive(Default)]
struct UnderWay {
    to_server: Heap,
    to_clients: Heap,
    /// The batches of each client, by its index: filled when the first client asks.
    by_client: Vec<Vec<(usize, usize, usize)>>,
    lost_percent: u32,
    luck: Luck,
    sent_bytes: u64,
}

/// Decides which datagrams are lost; the same in each run.
struct Luck(Rng);

impl Default for Luck {
    fn default() -> Luck {
        Luck(Rng::with_seed(2))
    }
}

impl UnderWay {
    fn send_to_server(&mut self, from: SocketAddr, datagram: &[u8]) {
        if self.luck.0.u32(..100) >= self.lost_percent {
            self.to_server.push(from, datagram);
        }
    }

    fn deliver(&mut self, client: usize, mut sink: impl FnMut(&mut [u8])) {
        if client == 0 {
            self.sort();
        }
        let Some(batches) = self.by_client.get(client) else { return };
        for &(start, len, segment_bytes) in batches {
            let datagrams = self.to_clients.bytes[start..start + len].chunks_mut(segment_bytes);
            datagrams.filter(|_| self.luck.0.u32(..100) >= self.lost_percent).for_each(&mut sink);
        }
    }

    fn sort(&mut self) {
        self.by_client.iter_mut().for_each(Vec::clear);
        let mut start = 0;
        for &(peer, len, segment_bytes) in &self.to_clients.batches {
            let client = client_index(peer);
            if self.by_client.len() <= client {
                self.by_client.resize_with(client + 1, Vec::new);
            }
            self.by_client[client].push((start, len, segment_bytes));
            start += len;
        }
    }
}

#[derive(Clone, Default)]
struct Wire(Arc<Mutex<UnderWay>>);

impl Wire {
    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.0.lock().expect("nobody panics with the wire in hand")
    }
}

/// The server's end of the wire.
struct WireDriver {
    wire: Wire,
    counters: DriverCounters,
}

impl Driver for WireDriver {
    fn send(&mut self, _now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        let mut under_way = self.wire.lock();
        under_way.sent_bytes += transmit.bytes.len() as u64;
        under_way.to_clients.push_batch(transmit.to, transmit.bytes, transmit.segment_bytes);
        Ok(transmit.datagrams())
    }

    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8])) -> Result<usize, ReceiveError> {
        let mut under_way = self.wire.lock();
        let heap = &mut under_way.to_server;
        let mut rest = &mut heap.bytes[..];
        for &(peer, len, _) in &heap.batches {
            let (datagram, behind) = rest.split_at_mut(len);
            sink(now, peer, datagram);
            rest = behind;
        }
        let count = heap.batches.len();
        heap.clear();
        Ok(count)
    }

    fn local_address(&self) -> SocketAddr {
        server_address()
    }

    fn max_segments(&self) -> usize {
        64
    }

    fn counters(&self) -> &DriverCounters {
        &self.counters
    }
}
