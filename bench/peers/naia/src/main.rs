//! The workload on naia's core crates, with a world and sockets of our own.
//!
//! Choices, after its documentation and its own benchmarks:
//! - a character is one component with one `Property` that holds the whole quantised state in naia's bit-packed numbers, as
//!   its benchmarks' quantised components do: one bit of dirtiness instead of nine. Values are quantised when they are
//!   written, so quantising is not in "values written" to "packets ready";
//! - one room for everyone (dense), a room for each player (sparse): its plainest visibility, decided once;
//! - time is naia's `test_time` clock, one step of 33 ms per tick, as in its own benchmarks: no waiting, no needless resends;
//! - the bandwidth budget is lifted far above need; priorities are left alone;
//! - clients bypass the jitter buffer, so that the age of state is the network's;
//! - our sockets push into one buffer. Its own in-memory hub walks all connections for each packet.
//!
//! "Values written" to "packets ready" is `Server::send_all_packets`. Writing a value pushes a dirty mark to every user: naia
//! does that work before, and it is in the column "assign".

mod components;
mod objects;
mod sockets;

use std::collections::HashMap;
use std::time::Duration;

use naia_client::{Client, ClientConfig, JitterBufferType};
use naia_server::{ConnectEvent, RoomKey, ServerConfig, UserKey};
use naia_shared::{Instant, Protocol, TestClock, WorldMutType, WorldRefType};
use peers_harness::{
    Arguments, Clients, Packets, Part, Server, Stopwatch, Terms, Value, Workload, World, locked_version, run,
};

use components::{Character, Chest, State, protocol};
use objects::Objects;
use sockets::{ClientPort, ServerPort, client_of};

/// Milliseconds per tick: its clock knows no fractions.
const TICK_MS: u64 = 33;

fn main() {
    let arguments = Arguments::from_command_line();
    let terms = Terms {
        peer: "naia",
        version: locked_version(env!("CARGO_PKG_NAME"), "naia-server"),
        notes: "values are quantised and marked dirty for every user when written, before the timed part",
        is_paced: false,
    };
    let world = World::new(arguments.workload, arguments.players);
    let port = ServerPort::default();
    let host = Host::new(&world, port.clone());
    let (workload, players) = (arguments.workload, arguments.players);
    run(&arguments, &terms, host, move || Crowd::new(workload, players, &port));
}

fn timed_protocol(workload: Workload) -> Protocol {
    let mut protocol = protocol(workload);
    protocol.tick_interval(Duration::from_millis(TICK_MS));
    protocol
}

struct Host {
    server: naia_server::Server<u32>,
    objects: Objects,
    port: ServerPort,
    users: HashMap<u32, UserKey>,
    /// One for each player in the sparse workloads.
    rooms: Vec<RoomKey>,
    characters: Vec<u32>,
    chests: Vec<u32>,
}

impl Host {
    fn new(world: &World, port: ServerPort) -> Host {
        TestClock::init(0);
        let mut config = ServerConfig { require_auth: false, ..ServerConfig::default() };
        config.connection.bandwidth.target_bytes_per_sec = 100_000_000;
        let mut server = naia_server::Server::new(config, timed_protocol(world.workload()));
        server.listen(port.clone());
        for number in 0..world.players() {
            port.knock(number);
        }
        let rooms = match world.workload() {
            Workload::Dense => 1,
            Workload::Sparse { .. } => world.players(),
        };
        let rooms = (0..rooms).map(|_| server.create_room().key()).collect();
        let mut host = Host {
            server,
            objects: Objects::default(),
            port,
            users: HashMap::new(),
            rooms,
            characters: Vec::new(),
            chests: Vec::new(),
        };
        host.spawn(world);
        host
    }

    fn spawn(&mut self, world: &World) {
        for (number, character) in (0..).zip(world.characters()) {
            let room = self.rooms[number as usize % self.rooms.len()];
            let mut entity = self.server.spawn_entity(&mut self.objects);
            entity.insert_component(Character::new(number as u16, &character.units())).enter_room(&room);
            self.characters.push(entity.id());
        }
        for (chest, &contents) in (0..).zip(world.chests()) {
            let room = self.rooms[world.chest_owner(chest) as usize % self.rooms.len()];
            let number = (world.players() + chest) as u16;
            let mut entity = self.server.spawn_entity(&mut self.objects);
            entity.insert_component(Chest::new(number, world.chest_position_m(chest), contents)).enter_room(&room);
            self.chests.push(entity.id());
        }
    }

    fn receive(&mut self, incoming: &Packets) {
        TestClock::advance(TICK_MS);
        let now = Instant::now();
        self.port.fill(incoming);
        self.server.receive_all_packets();
        self.server.process_all_packets(&mut self.objects, &now);
        let mut events = self.server.take_world_events();
        for user in events.read::<ConnectEvent>() {
            let address = self.server.user_address(&user).expect("it has just connected");
            let number = client_of(address);
            self.users.insert(number, user);
            let room = self.rooms[number as usize % self.rooms.len()];
            self.server.room_mut(&room).add_user(&user);
        }
        let _ = self.server.take_tick_events(&now);
    }

    fn assign(&mut self, world: &World) {
        let mut objects = &mut self.objects;
        for (character, entity) in world.characters().iter().zip(&self.characters) {
            let mut component = objects.component_mut::<Character>(entity).expect("it was spawned");
            *component.state = State::from(&character.units());
        }
        for (&contents, entity) in world.chests().iter().zip(&self.chests) {
            let mut component = objects.component_mut::<Chest>(entity).expect("it was spawned");
            *component.contents = contents;
        }
    }
}

impl Server for Host {
    fn tick(&mut self, _: u32, world: &World, incoming: &Packets, outgoing: &mut Packets, stopwatch: &mut Stopwatch) {
        self.port.swap_outgoing(outgoing);
        stopwatch.enter(Part::Receive);
        self.receive(incoming);
        stopwatch.enter(Part::Assign);
        self.assign(world);
        stopwatch.enter(Part::Replicate);
        self.server.send_all_packets(&self.objects);
        stopwatch.stop();
        self.port.swap_outgoing(outgoing);
    }

    fn is_ready(&self) -> bool {
        self.users.len() == self.characters.len()
    }
}

struct Crowd {
    clients: Vec<(Client<u32>, Objects, ClientPort)>,
}

impl Crowd {
    fn new(workload: Workload, players: u32, server: &ServerPort) -> Crowd {
        TestClock::init(0);
        let client = |number| {
            let config = ClientConfig { jitter_buffer: JitterBufferType::Bypass, ..ClientConfig::default() };
            let port = ClientPort::new(number, server);
            let mut client = Client::new(config, timed_protocol(workload));
            client.connect(port.clone());
            (client, Objects::default(), port)
        };
        Crowd { clients: (0..players).map(client).collect() }
    }
}

impl Clients for Crowd {
    fn tick(&mut self, _: u32, incoming: &Packets, outgoing: &mut Packets) {
        TestClock::advance(TICK_MS);
        let now = Instant::now();
        for packet in incoming.iter() {
            self.clients[packet.client as usize].2.fill(packet.bytes);
        }
        for (number, (client, objects, port)) in (0..).zip(&mut self.clients) {
            client.receive_all_packets();
            client.process_all_packets(&mut *objects, &now);
            drop(client.take_tick_events(&now));
            // Bypassing the jitter buffer, a packet is decoded by the call above: apply it now and not in the next tick.
            client.process_all_packets(&mut *objects, &now);
            drop(client.take_world_events());
            client.send_all_packets(&*objects);
            port.drain(|bytes| outgoing.push(number, 0, bytes));
        }
    }

    fn look(&mut self, client: u32, found: &mut dyn FnMut(u32, Value)) {
        let objects = &self.clients[client as usize].1;
        for entity in objects.entities() {
            if let Some(character) = objects.component::<Character>(&entity) {
                found(u32::from(*character.number), Value::Character(character.state.steps()));
            }
            if let Some(chest) = objects.component::<Chest>(&entity) {
                found(u32::from(*chest.number), Value::Chest(*chest.contents));
            }
        }
    }
}
