//! The workload on throng: its `Server`, with a driver that puts datagrams where all peers put them.
//!
//! Used as the lab uses it: kinds as in `throng-crowd`, one cell for the dense square, cells of 250 m and one ring for
//! the sparse ones, one thread. Viewpoints are set in every tick, so visibility is computed in every tick.
//!
//! "Values written" to "packets ready" is the call of `Server::tick`: quantise and compare, interest, encode, write packets,
//! seal them (with the faster cipher), hand them to the driver. A second row takes off the sealing, by throng's own meter.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use peers_harness::{
    Arguments, CELL_M, Clients, HEIGHT_M, Packets, Part, SIGHT_M, Server, Stopwatch, TICK_US, Terms, Units, Value,
    Workload, World, locked_version, run,
};
use throng::meter::Subsystem;
use throng::net::{Driver, DriverCounters, ReceiveError, SendError, Transmit};
use throng::{
    ClientCore, ClientOptions, GridOptions, GridShape, LooksFrom, ObjectId, Placement, Replicate, ReplicateEnum, Ring, Schema,
    ServerEvent, ServerOptions, Time, TokenIssuer, random_key,
};

#[derive(Clone, Debug, Default, Replicate)]
struct Character {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
    #[replicate(fixed(min = -20.0, max = 20.0, step = 0.1))]
    velocity: [f32; 3],
    #[replicate(angle(bits = 9))]
    yaw: f32,
    #[replicate(fixed(min = -1.5, max = 1.5, step = 0.02))]
    pitch: f32,
    #[replicate(enumeration)]
    stance: Stance,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ReplicateEnum)]
enum Stance {
    #[default]
    Standing,
    Walking,
    Airborne,
}

#[derive(Clone, Debug, Default, Replicate)]
struct Chest {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
    #[replicate(integer)]
    contents: u16,
}

/// For the check: the number of each object. Written when objects are made.
type Numbers = Arc<Mutex<HashMap<ObjectId, u32>>>;

fn main() {
    let arguments = Arguments::from_command_line();
    let terms = Terms {
        peer: "throng",
        version: locked_version(env!("CARGO_PKG_NAME"), "throng"),
        notes: "Server::tick, one thread: quantise, interest, encode, write, seal",
        is_paced: false,
    };
    let schema = Schema::builder().kind::<Character>().kind::<Chest>().build();
    let schema = Arc::new(schema.expect("the kinds are possible"));
    let options = options(&World::new(arguments.workload, arguments.players));
    let issuer = options.token_issuer();
    let numbers = Numbers::default();
    let host = Host::new(Arc::clone(&schema), options, Arc::clone(&numbers));
    let players = arguments.players;
    run(&arguments, &terms, host, move || Crowd::new(players, &schema, &issuer, numbers));
}

/// Names the benchmark.
const PROTOCOL_ID: u64 = 1;

fn options(world: &World) -> ServerOptions {
    let side_m = world.side_m();
    let (cell_m, radius_m, kbit_per_s, looks_from) = match world.workload() {
        Workload::Dense => (side_m, side_m.hypot(side_m), 4_000, LooksFrom::Cell),
        Workload::Sparse { .. } => (CELL_M, SIGHT_M, 1_000, LooksFrom::Position),
    };
    let height_m = f64::from(HEIGHT_M);
    let grid = GridOptions {
        shape: GridShape::flat(throng::Up::Z, [cell_m, cell_m, height_m]),
        bounds_m: Some([[0.0; 3], [side_m, side_m, height_m]]),
        rings: vec![Ring { radius_m, interval_ticks: 1 }],
        looks_from,
    };
    ServerOptions {
        tick_interval: std::time::Duration::from_micros(TICK_US),
        max_clients: world.players(),
        client_bytes_per_s: kbit_per_s * 125,
        grids: vec![grid],
        threads: 1,
        ..ServerOptions::new(PROTOCOL_ID, random_key())
    }
}

fn server_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 1, 0, 1), 40_000))
}

fn client_address(client: u32) -> SocketAddr {
    let [_, _, high, low] = client.to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(10, 2, high, low), 50_000))
}

fn client_of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(address) => u32::from(*address.ip()) & 0xFFFF,
        SocketAddr::V6(_) => unreachable!("all addresses are ours"),
    }
}

fn time(tick: u32) -> Time {
    Time(u64::from(tick) * TICK_US)
}

/// The driver: datagrams go straight into the harness's buffer and come from it.
struct Wire {
    shared: Arc<Mutex<Ports>>,
    scratch: Vec<u8>,
    counters: DriverCounters,
}

#[derive(Default)]
struct Ports {
    incoming: Packets,
    outgoing: Packets,
}

fn lock(ports: &Mutex<Ports>) -> MutexGuard<'_, Ports> {
    ports.lock().expect("nobody panics with it")
}

impl Driver for Wire {
    fn send(&mut self, _: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        let mut ports = lock(&self.shared);
        for datagram in transmit.iter() {
            ports.outgoing.push(client_of(transmit.to), 0, datagram);
        }
        Ok(transmit.datagrams())
    }

    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8])) -> Result<usize, ReceiveError> {
        let mut ports = lock(&self.shared);
        for packet in ports.incoming.iter() {
            self.scratch.clear();
            self.scratch.extend_from_slice(packet.bytes);
            sink(now, client_address(packet.client), &mut self.scratch);
        }
        let received = ports.incoming.len();
        ports.incoming.clear();
        Ok(received)
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

struct Host {
    server: throng::Server,
    ports: Arc<Mutex<Ports>>,
    numbers: Numbers,
    /// By number of the character.
    players: Vec<Option<Player>>,
    connected: usize,
    chests: Vec<ObjectId>,
}

#[derive(Clone, Copy)]
struct Player {
    connection: throng::ConnectionId,
    object: ObjectId,
}

impl Host {
    fn new(schema: Arc<Schema>, options: ServerOptions, numbers: Numbers) -> Host {
        let ports = Arc::new(Mutex::new(Ports::default()));
        let wire = Wire { shared: Arc::clone(&ports), scratch: Vec::new(), counters: DriverCounters::default() };
        let players = vec![None; options.max_clients as usize];
        let server = throng::Server::new(Box::new(wire), schema, options).expect("the options are possible");
        Host { server, ports, numbers, players, connected: 0, chests: Vec::new() }
    }

    fn receive(&mut self, tick: u32, world: &World, incoming: &Packets) {
        let mut ports = lock(&self.ports);
        for packet in incoming.iter() {
            ports.incoming.push(packet.client, 0, packet.bytes);
        }
        drop(ports);
        self.server.receive(time(tick)).expect("the driver has no errors");
        while let Some(event) = self.server.poll_event() {
            if let ServerEvent::Connected { connection, client_id, .. } = event {
                self.enter(connection, client_id as u32, world);
            }
        }
    }

    fn enter(&mut self, connection: throng::ConnectionId, number: u32, world: &World) {
        let mut numbers = self.numbers.lock().expect("nobody panics with it");
        let character = Character::from(&world.characters()[number as usize].units());
        let object = self.server.spawn_owned(character, Placement::Cell(0), Some(connection)).expect("there is room");
        numbers.insert(object, number);
        self.players[number as usize] = Some(Player { connection, object });
        self.connected += 1;
        if self.connected < self.players.len() {
            return;
        }
        for (chest, &contents) in (0..).zip(world.chests()) {
            let chest_value = Chest { position: world.chest_position_m(chest), contents };
            let object = self.server.spawn(chest_value, Placement::Cell(0)).expect("there is room");
            numbers.insert(object, world.players() + chest);
            self.chests.push(object);
        }
    }

    fn assign(&mut self, world: &World) {
        for (character, player) in world.characters().iter().zip(&self.players) {
            let Some(player) = player else { continue };
            let units = character.units();
            if let Some(value) = self.server.get_mut::<Character>(player.object) {
                *value = Character::from(&units);
            }
            self.server.set_viewpoint(player.connection, units.position_m.map(f64::from));
        }
        for (&contents, &chest) in world.chests().iter().zip(&self.chests) {
            if let Some(value) = self.server.get_mut::<Chest>(chest) {
                value.contents = contents;
            }
        }
    }
}

impl Server for Host {
    fn tick(
        &mut self,
        tick: u32,
        world: &World,
        incoming: &Packets,
        outgoing: &mut Packets,
        stopwatch: &mut Stopwatch,
    ) {
        std::mem::swap(outgoing, &mut lock(&self.ports).outgoing);
        stopwatch.enter(Part::Receive);
        self.receive(tick, world, incoming);
        stopwatch.enter(Part::Assign);
        self.assign(world);
        stopwatch.enter(Part::Replicate);
        self.server.tick(time(tick));
        stopwatch.stop();
        std::mem::swap(outgoing, &mut lock(&self.ports).outgoing);
        stopwatch.note_sealing(self.server.last_tick().ns(Subsystem::SEAL));
    }

    fn is_ready(&self) -> bool {
        self.connected == self.players.len()
    }
}

impl From<&Units> for Character {
    fn from(units: &Units) -> Character {
        Character {
            position: units.position_m,
            velocity: units.velocity_m_per_s,
            yaw: units.yaw_rad,
            pitch: units.pitch_rad,
            stance: match units.mode {
                0 => Stance::Standing,
                1 => Stance::Walking,
                _ => Stance::Airborne,
            },
        }
    }
}

impl From<&Character> for Units {
    fn from(character: &Character) -> Units {
        Units {
            position_m: character.position,
            velocity_m_per_s: character.velocity,
            yaw_rad: character.yaw,
            pitch_rad: character.pitch,
            mode: character.stance as u8,
        }
    }
}

struct Crowd {
    clients: Vec<ClientCore>,
    numbers: Numbers,
    scratch: Vec<u8>,
}

impl Crowd {
    fn new(players: u32, schema: &Arc<Schema>, issuer: &TokenIssuer, numbers: Numbers) -> Crowd {
        let options = Arc::new(ClientOptions::default());
        let client = |number| {
            let token = issuer.issue(number, &[server_address()]).expect("a token for one server");
            ClientCore::new(token, Arc::clone(schema), Arc::clone(&options), time(0)).expect("the options are possible")
        };
        Crowd { clients: (0..u64::from(players)).map(client).collect(), numbers, scratch: Vec::new() }
    }
}

impl Clients for Crowd {
    fn tick(&mut self, tick: u32, incoming: &Packets, outgoing: &mut Packets) {
        for packet in incoming.iter() {
            self.scratch.clear();
            self.scratch.extend_from_slice(packet.bytes);
            self.clients[packet.client as usize].handle(time(tick), server_address(), &mut self.scratch);
        }
        for (number, client) in (0..).zip(&mut self.clients) {
            while client.poll_event().is_some() {}
            while client.poll_transmit(time(tick), &mut self.scratch) {
                outgoing.push(number, 0, &self.scratch);
            }
        }
    }

    fn look(&mut self, client: u32, found: &mut dyn FnMut(u32, Value)) {
        let numbers = self.numbers.lock().expect("nobody panics with it");
        let client = &self.clients[client as usize];
        for (id, character) in client.objects::<Character>() {
            found(numbers[&id], Value::Character(Units::from(&character).steps()));
        }
        for (id, chest) in client.objects::<Chest>() {
            found(numbers[&id], Value::Chest(chest.contents));
        }
    }
}
