//! The work of one server with all clients, beside that of an origin with the same clients at edges: in memory, without the
//! kernel. See docs/edges.md.
#![allow(missing_docs)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use throng::net::{Condition, MemoryNetwork};
use throng::prelude::*;
use throng::{Decode, Key};
use throng_edge::{Edge, EdgeOptions, Origin, OriginEvent, OriginOptions, ToEdge, ToOrigin, edge_user_data};

const PLAYERS: usize = 1_000;
const EDGES: usize = 2;
const SIDE_M: f32 = 100.0;
const TICK: Duration = Duration::from_millis(33);
const WARM_UP: usize = 150;
const MEASURED: usize = 200;

#[derive(Clone, Default, Replicate)]
struct Hero {
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03))]
    position: [f32; 3],
    #[replicate(fixed(min = -8.0, max = 8.0, step = 0.05))]
    velocity: [f32; 3],
    #[replicate(angle(bits = 8))]
    yaw: f32,
}

fn schema() -> Arc<Schema> {
    Arc::new(Schema::builder().kind::<Hero>().kind::<ToOrigin>().kind::<ToEdge>().build().expect("possible kinds"))
}

fn options(key: &Key) -> ServerOptions {
    let mut grid = GridOptions::new(Up::Z);
    grid.rings = vec![Ring { radius_m: 10.0, interval_ticks: 2 }, Ring { radius_m: 50.0, interval_ticks: 8 }];
    grid.looks_from = LooksFrom::Cell;
    ServerOptions { grids: vec![grid], tick_interval: TICK, ..ServerOptions::new(77, key.clone()) }
}

fn address(host: u8, number: usize) -> SocketAddr {
    ([10, host, (number >> 8) as u8, number as u8], 40_000).into()
}

/// Characters that walk, and turn now and then.
struct Game {
    heroes: Vec<ObjectId>,
    rng: fastrand::Rng,
}

impl Game {
    fn spawn(&mut self, server: &mut Server) -> (ObjectId, [f32; 3]) {
        let position = [self.rng.f32() * SIDE_M, self.rng.f32() * SIDE_M, 1.0];
        let hero = server.spawn(Hero { position, ..Hero::default() }, Placement::Cell(0)).expect("room");
        self.heroes.push(hero);
        (hero, position)
    }

    fn step(&mut self, server: &mut Server, mut seen: impl FnMut(&mut Server, usize, [f64; 3])) {
        for (number, &hero) in self.heroes.iter().enumerate() {
            let Some(hero) = server.get_mut::<Hero>(hero) else { continue };
            if self.rng.u8(..) < 6 {
                let angle = self.rng.f32() * std::f32::consts::TAU;
                (hero.velocity, hero.yaw) = ([angle.cos() * 3.0, angle.sin() * 3.0, 0.0], angle);
            }
            for axis in 0..2 {
                hero.position[axis] += hero.velocity[axis] * TICK.as_secs_f32();
                if !(0.0..SIDE_M).contains(&hero.position[axis]) {
                    hero.velocity[axis] = -hero.velocity[axis];
                    hero.position[axis] = hero.position[axis].clamp(0.0, SIDE_M - 0.01);
                }
            }
            let position = hero.position.map(f64::from);
            seen(server, number, position);
        }
    }
}

/// Times of a kind of work.
#[derive(Default)]
struct Work {
    spent: Duration,
}

impl Work {
    fn of<T>(&mut self, is_counted: bool, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = work();
        if is_counted {
            self.spent += began.elapsed();
        }
        done
    }

    fn ms_per_tick(&self) -> f64 {
        self.spent.as_secs_f64() * 1e3 / MEASURED as f64
    }
}

struct Clients {
    clients: Vec<Client>,
}

impl Clients {
    fn new(network: &MemoryNetwork, key: &Key, server_of: impl Fn(usize) -> SocketAddr) -> Clients {
        let issuer = options(key).token_issuer();
        let client = |number: usize| {
            let driver = Box::new(network.endpoint(address(9, number)).expect("a free address"));
            let token = issuer.issue(number as u64, &[server_of(number)]).expect("one server");
            let options = ClientOptions { decode: Decode::Nothing, ..ClientOptions::default() };
            Client::new(driver, token, schema(), options, Time(0)).expect("sound options")
        };
        Clients { clients: (0..PLAYERS).map(client).collect() }
    }

    fn turn(&mut self, now: Time) {
        for client in &mut self.clients {
            let _ = client.send_input(&[1, 2, 3, 4]);
            client.update(now).expect("memory does not fail");
            while client.poll_event().is_some() {}
        }
    }

    fn received_bytes(&self) -> u64 {
        self.clients.iter().map(|client| client.replication_bytes()).sum()
    }
}

fn network() -> MemoryNetwork {
    MemoryNetwork::new(Condition::NONE, 1).expect("no condition is possible")
}

fn now(tick: usize) -> Time {
    Time(1_000_000 + tick as u64 * TICK.as_micros() as u64)
}

/// One server with all clients. Its work in milliseconds per tick, and bytes to all clients per tick.
fn direct(key: &Key) -> (f64, f64) {
    let network = network();
    let driver = Box::new(network.endpoint(address(0, 1)).expect("a free address"));
    let mut server = Server::new(driver, schema(), options(key)).expect("sound options");
    let mut clients = Clients::new(&network, key, |_| address(0, 1));
    let mut game = Game { heroes: Vec::new(), rng: fastrand::Rng::with_seed(5) };
    let (mut owners, mut work, mut before) = (Vec::new(), Work::default(), 0);
    for tick in 0..WARM_UP + MEASURED {
        let is_counted = tick >= WARM_UP;
        if tick == WARM_UP {
            before = clients.received_bytes();
        }
        clients.turn(now(tick));
        work.of(is_counted, || {
            server.receive(now(tick)).expect("memory does not fail");
            while let Some(event) = server.poll_event() {
                if let ServerEvent::Connected { connection, .. } = event {
                    let (hero, _) = game.spawn(&mut server);
                    server.set_owner(hero, Some(connection)).expect("room");
                    owners.push(connection);
                }
            }
            while let Some((connection, input)) = server.poll_input() {
                server.acknowledge_input(connection, input.number);
            }
            game.step(&mut server, |server, number, position| server.set_viewpoint(owners[number], position));
            server.tick(now(tick));
        });
    }
    assert_eq!(owners.len(), PLAYERS);
    (work.ms_per_tick(), (clients.received_bytes() - before) as f64 / MEASURED as f64)
}

/// The work of the origin and of all edges in milliseconds per tick, and bytes per tick to all edges and to all clients.
fn at_edges(key: &Key) -> ([f64; 2], [f64; 2]) {
    let network = network();
    let driver = Box::new(network.endpoint(address(0, 1)).expect("a free address"));
    let mut server = Server::new(driver, schema(), options(key)).expect("sound options");
    let mut origin = Origin::new(OriginOptions::default());
    let issuer = options(key).token_issuer();
    let edge = |number: usize| {
        let driver = Box::new(network.endpoint(address(2, number)).expect("a free address"));
        let token =
            issuer.issue_with(1_000_000 + number as u64, &[address(0, 1)], &edge_user_data()).expect("one server");
        let client_options = ClientOptions { bytes_per_s: 4_000_000, ..ClientOptions::default() };
        let upstream = Client::new(driver, token, schema(), client_options, Time(0)).expect("sound options");
        let driver = Box::new(network.endpoint(address(1, number)).expect("a free address"));
        let server = Server::new(driver, schema(), options(key)).expect("sound options");
        Edge::new(server, vec![upstream], EdgeOptions::default()).expect("kinds that an edge can pass on")
    };
    let mut edges: Vec<Edge> = (0..EDGES).map(edge).collect();
    let mut clients = Clients::new(&network, key, |number| address(1, number % EDGES));
    let mut game = Game { heroes: Vec::new(), rng: fastrand::Rng::with_seed(5) };
    let (mut of_origin, mut of_edges, mut before) = (Work::default(), Work::default(), [0, 0]);
    let bytes = |edges: &[Edge], clients: &Clients| {
        let upstream = edges.iter().filter_map(|edge| edge.origin(0)).map(|client| client.replication_bytes()).sum();
        [upstream, clients.received_bytes()]
    };
    for tick in 0..WARM_UP + MEASURED {
        let is_counted = tick >= WARM_UP;
        if tick == WARM_UP {
            before = bytes(&edges, &clients);
        }
        clients.turn(now(tick));
        of_edges.of(is_counted, || {
            edges.iter_mut().for_each(|edge| edge.step(now(tick)).expect("memory does not fail"));
        });
        of_origin.of(is_counted, || {
            server.receive(now(tick)).expect("memory does not fail");
            while let Some(event) = server.poll_event() {
                origin.take(&mut server, event, now(tick));
            }
            while let Some(event) = origin.poll_event() {
                if let OriginEvent::Joined { player, .. } = event {
                    let (hero, _) = game.spawn(&mut server);
                    origin.give(&mut server, player, hero).expect("room");
                }
            }
            game.step(&mut server, |_, _, _| ());
            origin.before_tick(&mut server);
            server.tick(now(tick));
        });
    }
    assert_eq!(game.heroes.len(), PLAYERS);
    let after = bytes(&edges, &clients);
    let per_tick = [0, 1].map(|side| (after[side] - before[side]) as f64 / MEASURED as f64);
    ([of_origin.ms_per_tick(), of_edges.ms_per_tick()], per_tick)
}

fn main() {
    if std::env::args().any(|word| word == "--test") {
        return;
    }
    let key = random_key();
    println!("{PLAYERS} players in {SIDE_M} m x {SIDE_M} m, {EDGES} edges, in memory; milliseconds and bytes per tick");
    for _ in 0..3 {
        let (one_ms, one_bytes) = direct(&key);
        let ([origin_ms, edges_ms], [upstream, downstream]) = at_edges(&key);
        let all = origin_ms + edges_ms;
        println!(
            "one server {one_ms:.2} ms, {one_bytes:.0} B   origin {origin_ms:.2} ms ({:.2} of it), {upstream:.0} B   \
             {EDGES} edges {edges_ms:.2} ms, {downstream:.0} B   in all {:.2} times the work, {:.2} per byte to clients",
            origin_ms / one_ms,
            all / one_ms,
            all / downstream / (one_ms / one_bytes),
        );
    }
}
