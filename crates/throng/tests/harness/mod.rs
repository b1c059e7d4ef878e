//! One server and some clients on a simulated network, on virtual time and seeds.
//!
//! ```text
//! step():   time advances by a tick
//!           server.receive, its events and inputs are noted     (the test changes the world before or in between)
//!           server.tick
//!           each client: update, its events are noted
//! ```
#![allow(dead_code, unreachable_pub, reason = "every test file is a crate of its own and uses a part of this")]

pub mod oracle;
pub mod storm;
pub mod truth;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use throng::net::{Condition, Driver, MemoryNetwork};
use throng::{
    Channels, Client, ClientEvent, ClientOptions, ConnectToken, ConnectionId, Decoder, EndReason, GridOptions,
    GridShape, Input, Key, LooksFrom, Replication, Ring, Schema, Server, ServerEvent, ServerOptions, StartError, Time,
};
use throng_link::netcode::{ConnectTokenOptions, KEY_LEN, Opener, Side, Suite, USER_DATA_LEN};
use throng_testkit::{Homes, Tap};

/// The protocol of all tests.
pub const PROTOCOL_ID: u64 = 0x7465_7374;
/// Tokens are made at this moment, far enough in the future that no test's run time matters.
const TOKEN_UNIX_S: u64 = 4_000_000_000;

/// The server's address.
pub fn server_address() -> SocketAddr {
    "10.0.0.1:40000".parse().expect("an address")
}

/// The address of the `number`th client ever made.
pub fn client_address(number: usize) -> SocketAddr {
    SocketAddr::from(([10, 1, (number >> 8) as u8, number as u8], 50_000))
}

/// The parameters of the tests.
#[derive(Clone)]
pub struct WorldOptions {
    pub seed: u64,
    pub schema: Arc<Schema>,
    pub server: ServerOptions,
    pub client: ClientOptions,
}

impl WorldOptions {
    /// 30 Hz, one grid of stacked 8 m cells seen up to 12 m every tick and up to 24 m every third, 64 kB/s, 4 s of
    /// silence.
    pub fn new(seed: u64) -> WorldOptions {
        let grid = GridOptions {
            shape: GridShape::stacked([8.0; 3]),
            rings: vec![Ring { radius_m: 12.0, interval_ticks: 1 }, Ring { radius_m: 24.0, interval_ticks: 3 }],
            // With every second seed, clients in a cell may share a view.
            looks_from: if seed.is_multiple_of(2) { LooksFrom::Cell } else { LooksFrom::Position },
            ..GridOptions::new(throng::Up::Z)
        };
        let server = ServerOptions {
            grids: vec![grid],
            max_clients: 64,
            idle_timeout: Duration::from_secs(4),
            ..ServerOptions::new(PROTOCOL_ID, Key::new([7; 32]))
        };
        let client = ClientOptions { idle_timeout: Duration::from_secs(4), ..ClientOptions::default() };
        WorldOptions { seed, schema: throng_testkit::schema(), server, client }
    }
}

/// A replication model, its other end, and what a client should hold.
pub trait Contender: Replication {
    /// The reader of its output.
    type Decoder: Decoder;
    /// Whether a client forgets the fields that it may not know any more, after a change of the owner.
    const FORGETS: bool;

    /// Whether an object that is placed in a grid has to be seen: by its position, or by the cells in which it may live.
    fn hears_place(
        grid: (u8, &GridOptions),
        audience: &oracle::Audience,
        position_m: [f64; 3],
        homes: &Homes,
    ) -> oracle::Verdict;

    /// The first difference between what a client holds and what it should hold.
    fn compare(
        server: &Server<Self>,
        grids: &[GridOptions],
        audience: &oracle::Audience,
        connection: ConnectionId,
        client: &Client<Self::Decoder>,
    ) -> Result<(), String>;
}

/// One client, and what it has told.
pub struct Guest<R: Contender = Channels> {
    pub client: Client<R::Decoder>,
    pub token: ConnectToken,
    pub address: SocketAddr,
    pub client_id: u64,
    /// The server's name for it, once it is connected.
    pub connection: Option<ConnectionId>,
    pub events: Vec<ClientEvent>,
    /// It does nothing: a process that is suspended.
    pub is_frozen: bool,
    /// On what it sends. Open if [`World::hears_guests`].
    pub tap: Tap,
}

impl<R: Contender> Guest<R> {
    /// Why it ended.
    pub fn end(&self) -> Option<&EndReason> {
        self.client.end_reason()
    }
}

/// Server, clients, network.
pub struct World<R: Contender = Channels> {
    pub network: MemoryNetwork,
    pub server: Server<R>,
    /// On what the server sends.
    pub tap: Tap,
    /// On what the clients send.
    pub client_tap: Tap,
    /// Whether the taps of guests that join from now on are open.
    pub hears_guests: bool,
    pub guests: Vec<Guest<R>>,
    pub now: Time,
    pub rng: Rng,
    pub schema: Arc<Schema>,
    pub events: Vec<ServerEvent>,
    pub inputs: Vec<(ConnectionId, Input)>,
    options: WorldOptions,
    made: usize,
}

impl World {
    /// A server without clients, on a perfect network.
    pub fn new(options: WorldOptions) -> World {
        World::with_model(options, Channels::new)
    }

    /// A world of `guests` connected clients.
    pub fn with_guests(options: WorldOptions, guests: usize) -> World {
        let mut world = World::new(options);
        for _ in 0..guests {
            world.join();
        }
        world.connect_all();
        world
    }
}

impl<R: Contender> World<R> {
    /// A server of any model without clients, on a perfect network.
    pub fn with_model(
        options: WorldOptions,
        model: impl FnOnce(&Arc<Schema>, &ServerOptions) -> Result<R, StartError>,
    ) -> World<R> {
        let network = MemoryNetwork::new(Condition::NONE, options.seed).expect("a good condition");
        let tap = Tap::new();
        let driver = tap.on(network.endpoint(server_address()).expect("a free address"));
        let schema = Arc::clone(&options.schema);
        let model = model(&schema, &options.server).expect("good options");
        let server = Server::with_replication(Box::new(driver), model, options.server.clone()).expect("good options");
        World {
            network,
            server,
            tap,
            client_tap: Tap::new(),
            hears_guests: false,
            guests: Vec::new(),
            now: Time(0),
            rng: Rng::with_seed(options.seed),
            schema,
            events: Vec::new(),
            inputs: Vec::new(),
            options,
            made: 0,
        }
    }

    /// Its options.
    pub fn options(&self) -> &WorldOptions {
        &self.options
    }

    /// A token for the server, from the world's own random numbers.
    pub fn token(&mut self, client_id: u64) -> ConnectToken {
        self.token_with(client_id, self.options.server.private_key.clone())
    }

    /// A token sealed with another key.
    pub fn token_with(&mut self, client_id: u64, key: Key) -> ConnectToken {
        let options = ConnectTokenOptions {
            protocol_id: PROTOCOL_ID,
            client_id,
            create_unix_s: TOKEN_UNIX_S,
            expire_unix_s: TOKEN_UNIX_S + 600,
            suite: Suite::default(),
            timeout_s: self.options.server.idle_timeout.as_secs() as i32 + 1,
            servers: vec![server_address()],
            user_data: [0; USER_DATA_LEN],
        };
        let rng = &mut self.rng;
        ConnectToken::generate(&options, &key, &mut |bytes| rng.fill(bytes)).expect("good token options")
    }

    /// One more client begins to connect. Returns its index in [`World::guests`].
    pub fn join(&mut self) -> usize {
        let client_id = self.made as u64 + 1;
        let token = self.token(client_id);
        let (schema, options) = (Arc::clone(&self.schema), self.options.client.clone());
        self.join_with(client_id, token, schema, options)
    }

    /// One more client, with everything about it given.
    pub fn join_with(
        &mut self,
        client_id: u64,
        token: ConnectToken,
        schema: Arc<Schema>,
        options: ClientOptions,
    ) -> usize {
        let address = client_address(self.made);
        self.made += 1;
        let driver = self.network.endpoint(address).expect("a free address");
        let tap = Tap::new();
        if self.hears_guests {
            tap.open();
        }
        let driver = self.client_tap.on(tap.on(driver));
        let client =
            Client::with_decoder(Box::new(driver), copy_of(&token), schema, options, self.now).expect("good options");
        let events = Vec::new();
        let (connection, is_frozen) = (None, false);
        self.guests.push(Guest { client, token, address, client_id, connection, events, is_frozen, tap });
        self.guests.len() - 1
    }

    /// The client's process is gone: no good-bye.
    pub fn kill(&mut self, guest: usize) -> Guest<R> {
        self.guests.remove(guest)
    }

    /// Time advances by one tick; everybody does what is due.
    pub fn step(&mut self) {
        self.begin_step();
        self.end_step();
    }

    /// The first half of a step: what the clients sent is there, and the world may be changed.
    pub fn begin_step(&mut self) {
        self.begin_step_at(self.now.after(self.options.server.tick_interval));
    }

    fn begin_step_at(&mut self, now: Time) {
        self.now = now;
        self.server.receive(self.now).expect("the network is in memory");
        while let Some(event) = self.server.poll_event() {
            match &event {
                ServerEvent::Connected { connection, client_id, .. } => {
                    if let Some(guest) = self.guests.iter_mut().find(|guest| guest.client_id == *client_id) {
                        guest.connection = Some(*connection);
                    }
                }
                ServerEvent::Disconnected { connection, .. } => {
                    for guest in self.guests.iter_mut().filter(|guest| guest.connection == Some(*connection)) {
                        guest.connection = None;
                    }
                }
                _ => {}
            }
            self.events.push(event);
        }
        while let Some(input) = self.server.poll_input() {
            self.inputs.push(input);
        }
    }

    /// The second half: the server sends, the clients take it in.
    pub fn end_step(&mut self) {
        self.server.tick(self.now);
        self.update_guests();
    }

    fn update_guests(&mut self) {
        for guest in self.guests.iter_mut().filter(|guest| !guest.is_frozen) {
            guest.client.update(self.now).expect("the network is in memory");
            while let Some(event) = guest.client.poll_event() {
                guest.events.push(event);
            }
        }
    }

    /// A step of `duration`, in each millisecond of which the server's socket is drained and the clients do what is due.
    pub fn step_with_drains(&mut self, duration: Duration) {
        const MILLISECOND: Duration = Duration::from_millis(1);
        let end = self.now.after(duration);
        while self.now.after(MILLISECOND) < end {
            self.now = self.now.after(MILLISECOND);
            self.server.drain_socket(self.now).expect("the network is in memory");
            self.update_guests();
        }
        self.begin_step_at(end);
        self.end_step();
    }

    /// Many steps.
    pub fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    /// Steps until `done`, at most `limit` times. Returns how many it took.
    pub fn steps_until(&mut self, limit: usize, mut done: impl FnMut(&World<R>) -> bool) -> Option<usize> {
        for taken in 0..limit {
            if done(self) {
                return Some(taken);
            }
            self.step();
        }
        done(self).then_some(limit)
    }

    /// Steps until all clients are connected.
    pub fn connect_all(&mut self) {
        let all = |world: &World<R>| world.guests.iter().all(|guest| guest.connection.is_some());
        self.steps_until(300, all).expect("all clients get in");
    }

    /// The server's id of a guest.
    ///
    /// # Panics
    /// If it is not connected.
    pub fn connection(&self, guest: usize) -> ConnectionId {
        self.guests[guest].connection.expect("the guest is connected")
    }

    /// Changes the network condition of everybody.
    pub fn set_condition(&mut self, condition: Condition) {
        self.network.set_condition(condition).expect("a good condition");
    }

    /// Changes the network condition from the server to one guest.
    pub fn set_way_to(&mut self, guest: usize, condition: Condition) {
        self.network.set_way(server_address(), self.guests[guest].address, condition).expect("a good condition");
    }
}

/// Opens what the server sent, as the receiver would. The key stands in the token, behind one address of seven bytes
/// and the other direction's key (the token's layout is drawn in throng-link).
pub fn ear(token: &ConnectToken) -> Opener {
    const BEFORE_ADDRESSES: usize = 13 + 8 + 8 + 8 + 24 + 1024 + 4 + 4;
    let bytes = token.to_bytes();
    let key: [u8; KEY_LEN] = bytes[BEFORE_ADDRESSES + 7 + KEY_LEN..][..KEY_LEN].try_into().expect("32 bytes");
    Opener::new(Suite::default(), &Key::new(key), PROTOCOL_ID, Side::Client)
}

/// The same token again, which only tests and thieves should want.
pub fn copy_of(token: &ConnectToken) -> ConnectToken {
    ConnectToken::from_bytes(&token.to_bytes()).expect("a token reads its own bytes")
}

/// The driver of an endpoint that is no client at all.
pub fn stranger(world: &World, number: u8) -> impl Driver + use<> {
    world.network.endpoint(SocketAddr::from(([10, 9, 9, number], 666))).expect("a free address")
}
