//! A small real game, and a world around it in memory with virtual time.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of this")]

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throng::net::{Condition, MemoryNetwork};
use throng::prelude::*;
use throng::{ChannelKey, ConnectionId, Key};
use throng_match::{
    CommandLimits, Flow, Game, GameError, Match, MatchOptions, Phase, Recording, Scopes, Seat, Seats, Stage, Subsystem,
    TickInput,
};
use throng_telemetry::{Clock, ManualClock, Telemetry, TelemetryOptions};

pub const BALLS: usize = 12;
pub const RATE_HZ: u32 = 64;
const CHANNEL: ChannelKey = ChannelKey::Global(0);
const PROTOCOL_ID: u64 = 0x6261_6C6C;

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
pub struct Ball {
    #[replicate(position(step = 0.01))]
    pub position: [f32; 3],
    #[replicate(integer(min = 0, max = 255))]
    pub number: u8,
    #[replicate(integer)]
    pub hits: u32,
}

pub fn schema() -> Arc<Schema> {
    Arc::new(Schema::builder().kind::<Ball>().build().expect("a schema"))
}

/// A fault, and the step in which it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Panic,
    PanicInPublish,
    Fail,
    PanicInDigest,
    PanicInOutcome,
    /// Later, when the game is dropped.
    PanicInDrop,
    /// Does not come back.
    Hang,
}

/// A dozen balls in a box of 20 m, each steered by a seat. Balls bounce, and a seed kicks them now and then.
pub struct Balls {
    pub ticks: u64,
    pub last: u64,
    pub balls: [Ball; BALLS],
    pub velocities: [[f32; 2]; BALLS],
    pub present: [bool; BALLS],
    pub newest: [Option<u32>; BALLS],
    pub rtt_us: u64,
    pub rng: fastrand::Rng,
    pub fault: Option<(u64, Fault)>,
    pub trap: Trap,
    /// Burns time in each step.
    pub work: u32,
    /// The outcome, instead of the ball that bounced most.
    pub said: Option<String>,
    pub objects: Vec<ObjectId>,
    pub subscribed: [Option<ConnectionId>; BALLS],
}

impl Balls {
    /// A game of `last` steps.
    pub fn new(seed: u64, last: u64) -> Balls {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut balls = [Ball::default(); BALLS];
        let mut velocities = [[0.0; 2]; BALLS];
        for (number, ball) in balls.iter_mut().enumerate() {
            ball.number = number as u8;
            ball.position = [rng.f32() * 20.0, rng.f32() * 20.0, 0.0];
            velocities[number] = [rng.f32() - 0.5, rng.f32() - 0.5];
        }
        Balls {
            ticks: 0,
            last,
            balls,
            velocities,
            present: [false; BALLS],
            newest: [None; BALLS],
            rtt_us: 0,
            rng,
            fault: None,
            trap: Trap::default(),
            work: 0,
            said: None,
            objects: Vec::new(),
            subscribed: [None; BALLS],
        }
    }

    fn break_down(&self, fault: Fault) -> bool {
        self.fault == Some((self.ticks, fault))
    }

    fn bounce(&mut self) {
        for (ball, velocity) in self.balls.iter_mut().zip(&mut self.velocities) {
            for (position, speed) in ball.position.iter_mut().zip(velocity) {
                let at = *position + *speed / RATE_HZ as f32;
                if !(0.0..=20.0).contains(&at) {
                    *speed = -*speed;
                    ball.hits += 1;
                }
                *position = at.clamp(0.0, 20.0);
            }
        }
    }
}

impl Game for Balls {
    fn step(&mut self, input: &TickInput<'_>, scopes: &mut Scopes) -> Flow {
        self.ticks += 1;
        if self.break_down(Fault::Panic) {
            let empty: [u8; 0] = [];
            let index = self.ticks as usize;
            assert!(empty.len() > index, "ball {index} is nowhere");
        }
        while self.break_down(Fault::Hang) {
            std::thread::yield_now();
        }
        self.trap.0 |= self.break_down(Fault::PanicInDrop);
        input.left.iter().for_each(|seat| self.present[seat.index()] = false);
        for seat in input.joined {
            (self.present[seat.index()], self.newest[seat.index()]) = (true, None);
        }
        for latency in input.latencies {
            assert!(self.present[latency.seat.index()], "{latency:?} of a seat that is not there");
            self.rtt_us = self.rtt_us.wrapping_mul(31).wrapping_add(latency.rtt_us.into());
        }
        scopes.time(Subsystem::GAMEPLAY, |_| {
            for command in input.commands {
                let newest = &mut self.newest[command.seat.index()];
                assert!(newest.is_none_or(|newest| newest < command.number), "commands come in order");
                *newest = Some(command.number);
                if let [right, forward, ..] = command.bytes {
                    let velocity = &mut self.velocities[command.seat.index()];
                    velocity[0] += f32::from(*right as i8) / 128.0;
                    velocity[1] += f32::from(*forward as i8) / 128.0;
                }
            }
        });
        if self.rng.u8(..) == 0 {
            let ball = self.rng.usize(..BALLS);
            self.velocities[ball][0] += self.rng.f32() - 0.5;
        }
        scopes.time(Subsystem::PHYSICS, |_| {
            self.bounce();
            std::hint::black_box((0..self.work).fold(1_u64, |sum, turn| sum.rotate_left(7) ^ u64::from(turn)));
        });
        if self.ticks >= self.last { Flow::Over } else { Flow::Continue }
    }

    fn publish(&mut self, server: &mut Server, seats: &Seats, _scopes: &mut Scopes) -> Result<(), GameError> {
        if self.break_down(Fault::PanicInPublish) {
            panic!("nothing to publish");
        }
        if self.break_down(Fault::Fail) {
            return Err(GameError::new("the balls are flat"));
        }
        if self.objects.is_empty() {
            for ball in self.balls {
                self.objects.push(server.spawn(ball, Placement::Channel(CHANNEL))?);
            }
        }
        for (seat, connection) in seats.connected() {
            let subscribed = &mut self.subscribed[seat.index()];
            if *subscribed != Some(connection) {
                server.subscribe(connection, CHANNEL, 1)?;
                *subscribed = Some(connection);
            }
        }
        for (ball, &id) in self.balls.iter().zip(&self.objects) {
            if let Some(shown) = server.get_mut::<Ball>(id) {
                *shown = *ball;
            }
        }
        Ok(())
    }

    fn phase(&self) -> Phase {
        Phase::new(if self.ticks < 10 { "warm_up" } else { "live" })
    }

    fn digest(&self) -> u64 {
        assert!(!self.break_down(Fault::PanicInDigest), "the state makes no sense");
        let mut sum = self.ticks ^ self.rtt_us.rotate_left(17) ^ self.rng.get_seed().rotate_left(40);
        let mut add = |value: u64| sum = (sum ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
        for (index, ball) in self.balls.iter().enumerate() {
            ball.position.iter().for_each(|at| add(at.to_bits().into()));
            self.velocities[index].iter().for_each(|speed| add(speed.to_bits().into()));
            add(ball.hits.into());
            add(self.present[index].into());
            add(self.newest[index].map_or(0, |newest| 1 + u64::from(newest)));
        }
        sum
    }

    fn outcome(&self) -> Option<String> {
        assert!(!self.break_down(Fault::PanicInOutcome), "nobody knows who has won");
        let best = self.balls.iter().max_by_key(|ball| ball.hits).expect("there are balls");
        let said = || self.said.clone().unwrap_or_else(|| format!("ball {} bounced {} times", best.number, best.hits));
        (self.ticks >= self.last).then(said)
    }
}

/// Panics when it is dropped, once it is set.
#[derive(Default)]
pub struct Trap(bool);

impl Drop for Trap {
    fn drop(&mut self) {
        assert!(!self.0, "dropped balls");
    }
}

/// Bytes that a test can read while a match writes them.
#[derive(Clone, Default)]
pub struct Shared(pub Arc<Mutex<Vec<u8>>>);

impl Shared {
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("nobody panics with it").clone()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics with it").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub fn recording(sink: impl Write + Send + 'static, seed: u64) -> Recording {
    let (build, game) = ("build 1".to_owned(), "balls".to_owned());
    Recording { sink: Box::new(sink), build, game, seed, map_checksum: 77, settings: b"twelve".to_vec() }
}

pub fn server_options() -> ServerOptions {
    let tick_interval = Duration::from_nanos(1_000_000_000 / u64::from(RATE_HZ));
    ServerOptions {
        tick_interval,
        max_clients: 32,
        idle_timeout: Duration::from_secs(4),
        ..ServerOptions::new(PROTOCOL_ID, Key::new([7; 32]))
    }
}

/// Settings of a [`World`].
pub struct Rules {
    pub seed: u64,
    pub condition: Condition,
    pub seats: Seats,
    pub commands: CommandLimits,
    pub server: ServerOptions,
    pub sink: Option<Box<dyn Write + Send>>,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            seed: 1,
            condition: Condition::NONE,
            seats: Seats::open(BALLS as u16),
            commands: CommandLimits::default(),
            server: server_options(),
            sink: None,
        }
    }
}

/// One match and its clients in memory.
pub struct World {
    pub network: MemoryNetwork,
    pub game: Match,
    pub clients: Vec<Client>,
    pub now: Time,
    pub hand: ManualClock,
    pub telemetry: Telemetry,
    server: ServerOptions,
    made: u16,
}

impl World {
    pub fn new(game: Balls, rules: Rules) -> World {
        let network = MemoryNetwork::new(rules.condition, rules.seed).expect("a condition");
        let driver = Box::new(network.endpoint(server_address()).expect("a free address"));
        let server = Server::new(driver, schema(), rules.server.clone()).expect("options");
        let (clock, hand) = Clock::manual();
        let telemetry = Telemetry::start_with_clock(TelemetryOptions::default(), clock).expect("no files");
        let options = MatchOptions {
            rate_hz: RATE_HZ,
            seats: rules.seats,
            commands: rules.commands,
            recording: rules.sink.map(|sink| recording(sink, rules.seed)),
            ..MatchOptions::new("match 1")
        };
        let recorder = telemetry.recorder("match 1");
        let game = Match::new(options, Box::new(game), server, recorder).expect("a log");
        let server = rules.server;
        World { network, game, clients: Vec::new(), now: Time(0), hand, telemetry, server, made: 0 }
    }

    /// Players come, with client ids from 1.
    pub fn come_all(&mut self, players: u64) {
        for client_id in 1..=players {
            self.come(client_id);
        }
    }

    /// A player comes, from an address of its own. Returns the client's place.
    pub fn come(&mut self, client_id: u64) -> usize {
        self.made += 1;
        let address = SocketAddr::from(([10, 1, (self.made >> 8) as u8, self.made as u8], 50_000));
        let driver = Box::new(self.network.endpoint(address).expect("a free address"));
        let token = self.server.token_issuer().issue(client_id, &[server_address()]).expect("a token");
        let client = Client::new(driver, token, schema(), ClientOptions::default(), self.now).expect("options");
        self.clients.push(client);
        self.clients.len() - 1
    }

    /// One frame of the match and of all clients. `steer` returns the commands of a client.
    pub fn step<'a>(&mut self, mut steer: impl FnMut(usize) -> &'a [&'a [u8]]) -> Stage {
        self.now = self.now.after(Duration::from_micros(1_000_000 / u64::from(RATE_HZ)));
        for (number, client) in self.clients.iter_mut().enumerate() {
            for bytes in steer(number) {
                if client.is_connected() {
                    client.send_input(bytes).expect("connected");
                }
            }
            client.update(self.now).expect("in memory");
            while client.poll_event().is_some() {}
        }
        self.game.frame(self.now, 0)
    }

    /// Frames without commands.
    pub fn idle(&mut self, frames: usize) -> Stage {
        (0..frames).fold(self.game.stage(), |_, _| self.step(|_| &[]))
    }

    pub fn seat_of(&self, client_id: u64) -> Option<Seat> {
        let seats = self.game.seats();
        (0..seats.count()).map(Seat).find(|&seat| seats.client_id(seat) == Some(client_id))
    }
}

pub fn server_address() -> SocketAddr {
    "10.0.0.1:40000".parse().expect("an address")
}

/// A recorded match of `last` ticks with 6 clients that steer by a seed, on a path that loses and delays.
pub fn recorded(seed: u64, last: u64) -> (Vec<u8>, World) {
    let log = Shared::default();
    let condition = "wifi".parse().expect("a condition");
    let rules = Rules { seed, condition, sink: Some(Box::new(log.clone())), ..Rules::default() };
    let mut world = World::new(Balls::new(seed, last), rules);
    let mut rng = fastrand::Rng::with_seed(seed);
    world.come_all(6);
    while world.game.stage() == Stage::Playing {
        let bytes: Vec<[u8; 2]> = (0..world.clients.len()).map(|_| [rng.u8(..), rng.u8(..)]).collect();
        let commands: Vec<[&[u8]; 1]> = bytes.iter().map(|bytes| [&bytes[..]]).collect();
        world.step(|client| &commands[client]);
    }
    (log.bytes(), world)
}
