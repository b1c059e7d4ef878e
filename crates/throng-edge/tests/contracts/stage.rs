//! A world with origins, edges and clients.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use throng::net::{Condition, Driver, MemoryNetwork};
use throng::prelude::*;
use throng::{ConnectionId, Decode, EndReason, LaneOptions};
use throng_bus::{Limits, LocalBus, LocalHub, MemberId};
use throng_edge::{
    Balance, BorderWatch, Edge, EdgeOptions, Origin, OriginEvent, OriginOptions, PlayerId, ToEdge, ToOrigin,
    edge_user_data,
};

pub(crate) const PROTOCOL: u64 = 0x6564_6765;
pub(crate) const TICK: Duration = Duration::from_millis(33);
/// The error of predicted positions, and the step of their quantiser.
pub(crate) const ERROR_M: f32 = 0.03;
pub(crate) const STEP_M: f32 = 0.01;
/// Everything within this distance is sent.
pub(crate) const SIGHT_M: f32 = 40.0;

/// A character. `name` is the same at every process.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Hero {
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03))]
    pub(crate) position: [f32; 3],
    #[replicate(fixed(min = -8.0, max = 8.0, step = 0.05))]
    pub(crate) velocity: [f32; 3],
    #[replicate(integer)]
    pub(crate) name: u32,
    /// Inputs that were applied.
    #[replicate(integer)]
    pub(crate) acts: u32,
    #[replicate(text(max_bytes = 20))]
    pub(crate) mood: String,
    #[replicate(integer, owner_only)]
    pub(crate) secret: u32,
}

/// Words from a client, and the answer.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Word {
    #[replicate(text(max_bytes = 80))]
    pub(crate) text: String,
}

pub(crate) fn schema() -> Arc<Schema> {
    let kinds = Schema::builder().kind::<Hero>().kind::<Word>().kind::<ToOrigin>().kind::<ToEdge>();
    Arc::new(kinds.build().unwrap())
}

pub(crate) fn server_options(key: &throng::Key) -> ServerOptions {
    let mut grid = GridOptions::new(Up::Z);
    let ring = |radius_m: f32, interval_ticks| Ring { radius_m: radius_m.into(), interval_ticks };
    grid.rings = vec![ring(15.0, 1), ring(SIGHT_M, 3)];
    ServerOptions {
        grids: vec![grid],
        tick_interval: TICK,
        client_bytes_per_s: 200_000,
        ..ServerOptions::new(PROTOCOL, key.clone())
    }
}

/// An origin with its game.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) origin: Origin,
    /// By player, with the client's id.
    pub(crate) heroes: BTreeMap<PlayerId, (ObjectId, u64)>,
    /// Those whose heroes another world goes on with.
    pub(crate) ghosts: BTreeSet<PlayerId>,
    /// Players who went on as a world that is gone had them.
    pub(crate) resumed: usize,
    /// Nobody is released who is free to go.
    pub(crate) holds_back: bool,
    /// A player who is free to go is given one more object, until it has left.
    pub(crate) gives_late: bool,
    gifts: Vec<ObjectId>,
    /// A player who comes from another world gets nothing here.
    pub(crate) ignores_arrivals: bool,
    /// A player who comes from another world is sent away here.
    pub(crate) refuses_arrivals: bool,
    /// West of x = 0 is the first world's, east of it the second's.
    pub(crate) has_border: bool,
    /// Borders that follow the load, and the bus over which they are agreed on.
    pub(crate) balance: Option<(Balance, LocalBus)>,
    number: u16,
    pub(crate) edges: Vec<ConnectionId>,
    pub(crate) left: Vec<PlayerId>,
    pub(crate) away: Vec<PlayerId>,
    pub(crate) words: Vec<String>,
    /// Inputs of players who have no hero.
    pub(crate) vain_inputs: u32,
    /// The versions of borders by which its edges have said that they look.
    pub(crate) looks: Vec<u64>,
    pub(crate) is_frozen: bool,
    /// A count changes in each tick.
    pub(crate) is_restless: bool,
    /// Those from the third on walk straight on from their first places, for so many ticks.
    walks_on: Option<u32>,
    rng: fastrand::Rng,
}

impl World {
    fn new(driver: Box<dyn Driver>, number: u8, key: &throng::Key, seed: u64) -> World {
        World::with_options(driver, number, server_options(key), seed)
    }

    fn with_options(driver: Box<dyn Driver>, number: u8, options: ServerOptions, seed: u64) -> World {
        World {
            server: Server::new(driver, schema(), options).unwrap(),
            origin: Origin::new(OriginOptions::default()),
            heroes: BTreeMap::new(),
            ghosts: BTreeSet::new(),
            resumed: 0,
            holds_back: false,
            gives_late: false,
            gifts: Vec::new(),
            ignores_arrivals: false,
            refuses_arrivals: false,
            has_border: false,
            balance: None,
            number: number.into(),
            edges: Vec::new(),
            left: Vec::new(),
            away: Vec::new(),
            words: Vec::new(),
            vain_inputs: 0,
            looks: Vec::new(),
            is_frozen: false,
            is_restless: false,
            walks_on: None,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    pub(crate) fn tick(&mut self, now: Time) {
        self.server.receive(now).unwrap();
        while let Some(event) = self.server.poll_event() {
            self.origin.take(&mut self.server, event, now);
        }
        while let Some(event) = self.origin.poll_event() {
            let is_of_borders = self.balance.as_mut().is_some_and(|(balance, _)| balance.take(&event, now));
            if !is_of_borders {
                self.take(now, event);
            }
        }
        self.walk();
        self.follow_load(now);
        self.hand_over();
        self.origin.before_tick(&mut self.server);
        self.server.tick(now);
    }

    fn take(&mut self, now: Time, event: OriginEvent) {
        match event {
            OriginEvent::EdgeJoined(edge) => self.edges.push(edge),
            OriginEvent::EdgeLeft(edge) => self.edges.retain(|known| *known != edge),
            OriginEvent::Joined { player, client_id, user_data } => {
                assert_eq!(user_data[0], client_id as u8, "the client's own data come through");
                let saved = self.balance.as_mut().and_then(|(balance, _)| balance.take_saved(now, client_id));
                self.resumed += usize::from(saved.is_some());
                let begins = || Hero { position: place_of(client_id), name: client_id as u32, ..Hero::default() };
                let hero = saved.map_or_else(begins, |state| hero_of(&state));
                let hero = self.server.spawn(hero, Placement::Cell(0)).unwrap();
                self.origin.give(&mut self.server, player, hero).unwrap();
                self.heroes.insert(player, (hero, client_id));
            }
            OriginEvent::Free { player, to } => {
                assert!(to != self.number && (to < 2 || self.balance.is_some()));
                let hero = self.heroes[&player].0;
                let state = state_of(self.server.get::<Hero>(hero).unwrap());
                if self.holds_back {
                    return;
                }
                if self.gives_late {
                    let gift = self.server.spawn(Hero { name: 99, ..Hero::default() }, Placement::Cell(0)).unwrap();
                    self.origin.give(&mut self.server, player, gift).unwrap();
                    self.gifts.push(gift);
                }
                // It may have left meanwhile.
                if self.origin.release(player, hero, &state).is_ok() {
                    self.ghosts.insert(player);
                    self.server.get_mut::<Hero>(hero).unwrap().velocity = [0.0; 3];
                }
            }
            OriginEvent::Stays(_) => {}
            OriginEvent::Looks { version, .. } => self.looks.push(version),
            OriginEvent::Away(player) => self.away.push(player),
            OriginEvent::Returned { player, former } => {
                let (hero, client_id) = self.heroes.remove(&former).unwrap();
                self.origin.give(&mut self.server, player, hero).unwrap();
                self.heroes.insert(player, (hero, client_id));
            }
            OriginEvent::Arrived { player, client_id, user_data, former, state } => {
                assert_eq!(user_data[0], client_id as u8, "the client's own data come through");
                assert!(former.is_none_or(|former| former.origin < 4));
                if self.ignores_arrivals {
                    return;
                }
                if self.refuses_arrivals {
                    return self.origin.disconnect(player, "there is no room for you").unwrap();
                }
                let hero = self.server.spawn(hero_of(&state), Placement::Cell(0)).unwrap();
                // It may have left meanwhile.
                match self.origin.give(&mut self.server, player, hero) {
                    Ok(()) => drop(self.heroes.insert(player, (hero, client_id))),
                    Err(_) => self.server.despawn(hero),
                }
            }
            OriginEvent::Left(player) => {
                self.ghosts.remove(&player);
                self.gifts.drain(..).for_each(|gift| self.server.despawn(gift));
                self.left.push(player);
                if let Some((hero, _)) = self.heroes.remove(&player) {
                    self.server.despawn(hero);
                }
            }
            OriginEvent::Input { player, bytes, .. } => {
                let Some(&(hero, _)) = self.heroes.get(&player) else {
                    self.vain_inputs += 1;
                    return;
                };
                let hero = self.server.get_mut::<Hero>(hero).unwrap();
                hero.acts += u32::from(bytes[0]);
                hero.secret = hero.acts * 7;
            }
            OriginEvent::Message { player, lane, message } => {
                let Some(word) = message.get::<Word>() else { return };
                self.words.push(word.text.clone());
                match word.text.as_str() {
                    "bye" => self.origin.disconnect(player, "you said bye").unwrap(),
                    text => {
                        let answer = Word { text: format!("{text}!") };
                        self.origin.send(&self.server, player, lane, &answer).unwrap();
                    }
                }
            }
        }
    }

    /// Hands over who has walked a metre beyond the border.
    fn hand_over(&mut self) {
        let World { server, origin, heroes, has_border, number, .. } = self;
        for (player, (hero, _)) in heroes.iter().filter(|_| *has_border) {
            let x = server.get::<Hero>(*hero).unwrap().position[0];
            let is_beyond = if *number == 0 { x > 1.0 } else { x < -1.0 };
            if is_beyond {
                // It may be on its way already.
                let _ = origin.hand_over(*player, 1 - *number);
            }
        }
    }

    /// Tells the other worlds where its heroes are, and hands over those that belong to another one.
    fn follow_load(&mut self, now: Time) {
        let World { server, origin, heroes, ghosts, balance: Some((balance, bus)), .. } = self else { return };
        let own = heroes.iter().filter(|(player, _)| !ghosts.contains(player));
        balance.save(now, own.map(|(_, &(hero, id))| (id, state_of(server.get::<Hero>(hero).unwrap()))));
        let steps: Vec<(PlayerId, u16)> = heroes
            .iter()
            .map(|(player, (hero, _))| (*player, step_of(server.get::<Hero>(*hero).unwrap().position[0])))
            .collect();
        balance.settle(bus, origin, now, steps.iter().map(|&(_, step)| step));
        for (player, step) in steps {
            if let Some(to) = balance.goes_to(step) {
                // It may be on its way already.
                let _ = origin.hand_over(player, to);
            }
        }
    }

    /// In the next tick everybody from the third on has walked straight on for so many ticks.
    pub(crate) fn walk_on(&mut self, ticks: u32) {
        self.walks_on = Some(ticks);
    }

    /// Everybody stands where it stood at first, and its turns are those of this seed.
    pub(crate) fn begin_anew(&mut self, seed: u64) {
        self.rng = fastrand::Rng::with_seed(seed);
        for (hero, id) in self.heroes.values() {
            let hero = self.server.get_mut::<Hero>(*hero).unwrap();
            *hero = Hero { position: place_of(*id), name: hero.name, ..Hero::default() };
        }
    }

    /// Everybody walks straight on, and turns now and then.
    fn walk(&mut self) {
        let (seconds, walks_on) = (TICK.as_secs_f32(), self.walks_on.take());
        for (_, (hero, id)) in self.heroes.iter().filter(|(player, _)| !self.ghosts.contains(player)) {
            let hero = self.server.get_mut::<Hero>(*hero).unwrap();
            hero.acts += u32::from(self.is_restless);
            if let Some(ticks) = walks_on.filter(|_| *id >= 2) {
                hero.velocity = [2.0, 0.0, 0.0];
                hero.position = place_of(*id);
                hero.position[0] += 2.0 * seconds * ticks as f32;
                continue;
            }
            if self.is_frozen {
                hero.velocity = [0.0; 3];
                continue;
            }
            if self.rng.u8(..) < 12 {
                hero.velocity = [self.rng.f32() * 8.0 - 4.0, self.rng.f32() * 8.0 - 4.0, 0.0];
                hero.mood = ["calm", "glad", ""][self.rng.usize(..3)].to_owned();
            }
            for (axis, speed) in hero.velocity.into_iter().enumerate() {
                hero.position[axis] += speed * seconds;
            }
        }
    }
}

/// Where borders may be: at whole metres from -64 to 64 along x.
pub(crate) const STEPS: u16 = 128;

pub(crate) fn step_of(x: f32) -> u16 {
    (x + f32::from(STEPS / 2)).clamp(0.0, f32::from(STEPS - 1)) as u16
}

/// A hero as one world tells it to the other.
pub(crate) fn state_of(hero: &Hero) -> Vec<u8> {
    let floats = hero.position.iter().chain(&hero.velocity).flat_map(|number| number.to_le_bytes());
    let numbers = [hero.name, hero.acts, hero.secret].into_iter().flat_map(u32::to_le_bytes);
    floats.chain(numbers).chain(hero.mood.bytes()).collect()
}

fn hero_of(state: &[u8]) -> Hero {
    let word = |at: usize| *state[at * 4..].first_chunk::<4>().unwrap();
    let vector = |at: usize| std::array::from_fn(|axis| f32::from_le_bytes(word(at + axis)));
    let [name, acts, secret] = [6, 7, 8].map(|at| u32::from_le_bytes(word(at)));
    let mood = String::from_utf8(state[36..].to_vec()).unwrap();
    Hero { position: vector(0), velocity: vector(3), name, acts, mood, secret }
}

/// Clients stand in a row of pairs, some of them out of each other's sight.
pub(crate) fn place_of(client_id: u64) -> [f32; 3] {
    [(client_id % 12) as f32 * 9.0 - 50.0, (client_id / 12) as f32 * 5.0, 1.0]
}

/// A process between which and others there may be a network of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Origin(usize),
    Edge(usize),
}

/// Opens an endpoint of a process.
type Endpoints = Box<dyn FnMut(Side) -> Box<dyn Driver>>;

pub(crate) struct Stage {
    pub(crate) network: MemoryNetwork,
    pub(crate) key: throng::Key,
    pub(crate) worlds: Vec<World>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) clients: Vec<Client>,
    /// The last connection of each client has ended for this reason.
    pub(crate) ends: HashMap<usize, EndReason>,
    pub(crate) heard: Vec<(usize, String)>,
    pub(crate) now: Time,
    edge_options: EdgeOptions,
    /// Borders that follow the load, as each edge knows them, and its member of the bus.
    pub(crate) watches: Vec<(Arc<RwLock<BorderWatch>>, LocalBus)>,
    pub(crate) hub: LocalHub,
    /// Of the way between edges and origins, if it is another one than that of clients.
    between: Option<Endpoints>,
    members: u64,
    addresses: u16,
    /// Of the way between edges and origins.
    pub(crate) lanes: Vec<LaneOptions>,
}

impl Stage {
    pub(crate) fn new(condition: &str, seed: u64) -> Stage {
        Stage::with_origins(condition, seed, 1, EdgeOptions::default())
    }

    pub(crate) fn with_origins(condition: &str, seed: u64, origins: u8, edge_options: EdgeOptions) -> Stage {
        let network = MemoryNetwork::new(condition.parse::<Condition>().unwrap(), seed).unwrap();
        let key = random_key();
        let world = |number: u8| {
            let driver = Box::new(network.endpoint(origin_address(number)).unwrap());
            World::new(driver, number, &key, seed + u64::from(number))
        };
        let worlds = (0..origins).map(world).collect();
        Stage {
            network,
            key,
            worlds,
            between: None,
            edges: Vec::new(),
            clients: Vec::new(),
            ends: HashMap::new(),
            heard: Vec::new(),
            now: Time(1_000_000),
            edge_options,
            watches: Vec::new(),
            hub: LocalHub::new(),
            members: 0,
            addresses: 0,
            lanes: throng::default_lanes(),
        }
    }

    /// From now on edges and origins, whose worlds begin anew, meet at these endpoints.
    pub(crate) fn link_over(&mut self, seed: u64, mut endpoints: Endpoints) {
        for number in 0..self.worlds.len() {
            let driver = endpoints(Side::Origin(number));
            let World { has_border, is_frozen, .. } = self.worlds[number];
            self.worlds[number] = World::new(driver, number as u8, &self.key, seed + number as u64);
            (self.worlds[number].has_border, self.worlds[number].is_frozen) = (has_border, is_frozen);
        }
        self.between = Some(endpoints);
    }

    /// A new process with an empty world at the address of one that is gone.
    pub(crate) fn revive(&mut self, number: u8) {
        self.revive_with(number, server_options(&self.key));
    }

    pub(crate) fn revive_with(&mut self, number: u8, options: ServerOptions) {
        let driver = Box::new(self.network.endpoint(origin_address(number)).unwrap());
        let world = World::with_options(driver, number, options, u64::from(number) + 99);
        self.worlds.insert(usize::from(number), world);
    }

    /// A new member of the bus between worlds and edges.
    pub(crate) fn join_bus(&mut self) -> LocalBus {
        self.members += 1;
        self.hub.join(MemberId(self.members), Limits::default())
    }

    fn next_address(&mut self) -> SocketAddr {
        self.addresses += 1;
        ([10, 9, (self.addresses >> 8) as u8, self.addresses as u8], 50_000).into()
    }

    /// A connection of the next edge to an origin.
    pub(crate) fn connection_to_origin(&mut self, number: u8, user_data: &[u8; 256]) -> Client {
        self.connection_of_edge(self.edges.len(), number, user_data)
    }

    /// A connection of an edge to an origin.
    pub(crate) fn connection_of_edge(&mut self, edge: usize, number: u8, user_data: &[u8; 256]) -> Client {
        let address = self.next_address();
        let (driver, origin) = match &mut self.between {
            Some(endpoints) => (endpoints(Side::Edge(edge)), self.worlds[usize::from(number)].server.local_address()),
            None => (Box::new(self.network.endpoint(address).unwrap()) as Box<dyn Driver>, origin_address(number)),
        };
        let issuer = server_options(&self.key).token_issuer();
        let id = 1_000_000 + u64::from(self.addresses);
        let token = issuer.issue_with(id, &[origin], user_data).unwrap();
        let lanes = self.lanes.clone();
        let options =
            ClientOptions { bytes_per_s: 1_000_000, decode: Decode::Objects, lanes, ..ClientOptions::default() };
        Client::new(driver, token, schema(), options, self.now).unwrap()
    }

    pub(crate) fn add_edge(&mut self) {
        let origins = (0..self.worlds.len() as u8).map(|number| self.connection_to_origin(number, &edge_user_data()));
        let origins = origins.collect();
        let driver = Box::new(self.network.endpoint(edge_address(self.edges.len())).unwrap());
        let server = Server::new(driver, schema(), server_options(&self.key)).unwrap();
        self.edges.push(Edge::new(server, origins, self.edge_options.clone()).unwrap());
    }

    /// An edge that looks by borders that follow the load.
    pub(crate) fn add_watching_edge(&mut self, watch: BorderWatch) {
        let watch = Arc::new(RwLock::new(watch));
        let (cells, borders, strips) = (watch.clone(), watch.clone(), watch.clone());
        self.edge_options = EdgeOptions {
            homes: Arc::new(move |_, cell, homes| {
                let from = cell[0] as f32 * 10.0;
                cells.read().unwrap().homes(step_of(from - 8.0), step_of(from + 18.0), homes);
            }),
            entry: Arc::new(move |client_id, _| {
                borders.read().unwrap().borders().home(step_of(place_of(client_id)[0])).into()
            }),
            is_gone: Arc::new(move |origin| strips.read().unwrap().is_gone(origin)),
            ..EdgeOptions::default()
        };
        let bus = self.join_bus();
        self.watches.push((watch, bus));
        self.add_edge();
    }

    pub(crate) fn add_client(&mut self, edge: usize) {
        let client = self.connection_to_edge(self.clients.len(), edge);
        self.clients.push(client);
    }

    /// A client connects again, to this edge. The former connection says nothing more.
    pub(crate) fn reconnect(&mut self, number: usize, edge: usize) {
        self.clients[number] = self.connection_to_edge(number, edge);
        self.ends.remove(&number);
    }

    /// A connection with the id of a client.
    pub(crate) fn connection_to_edge(&mut self, number: usize, edge: usize) -> Client {
        self.connection_with_token(number, edge, server_options(&self.key).token_issuer().lifetime_s)
    }

    /// The same, with a token that expires after so many seconds: of two, the one that expires later is the newer one.
    pub(crate) fn connection_with_token(&mut self, number: usize, edge: usize, lifetime_s: u64) -> Client {
        let id = number as u64;
        let address = self.next_address();
        let driver = Box::new(self.network.endpoint(address).unwrap());
        let mut user_data = [0; 256];
        user_data[0] = id as u8;
        let issuer = TokenIssuer { lifetime_s, ..server_options(&self.key).token_issuer() };
        let token = issuer.issue_with(id, &[edge_address(edge)], &user_data).unwrap();
        Client::new(driver, token, schema(), ClientOptions::default(), self.now).unwrap()
    }

    pub(crate) fn tick(&mut self) {
        let at = |ms: u64| self.now.after(Duration::from_millis(ms));
        self.worlds.iter_mut().for_each(|world| world.tick(at(0)));
        for (number, edge) in self.edges.iter_mut().enumerate() {
            edge.receive(at(12)).unwrap();
            if let Some((watch, bus)) = self.watches.get_mut(number) {
                watch.write().unwrap().follow(bus, edge, at(12));
            }
            edge.tick(at(12));
        }
        for (number, client) in self.clients.iter_mut().enumerate() {
            client.update(at(24)).unwrap();
            while let Some(event) = client.poll_event() {
                match event {
                    ClientEvent::Ended(reason) => drop(self.ends.insert(number, reason)),
                    ClientEvent::Message { message, .. } => {
                        self.heard.push((number, message.get::<Word>().unwrap().text));
                    }
                    _ => {}
                }
            }
        }
        self.now = self.now.after(TICK);
    }

    pub(crate) fn ticks(&mut self, count: u32) {
        (0..count).for_each(|_| self.tick());
    }

    /// Until something is so, which takes fewer than `most` ticks.
    pub(crate) fn ticks_until(&mut self, most: u32, is_so: impl Fn(&Stage) -> bool) {
        for _ in 0..most {
            if is_so(self) {
                return;
            }
            self.tick();
        }
        panic!("it is not so after {most} ticks");
    }

    /// Nothing moves any more, and everything arrives.
    pub(crate) fn settle(&mut self) {
        self.network.set_condition("none".parse().unwrap()).unwrap();
        self.worlds.iter_mut().for_each(|world| world.is_frozen = true);
        self.ticks(150);
    }

    /// All characters of all origins as the game has them: with the client's id of their owner.
    pub(crate) fn truth(&self) -> Vec<(Hero, u64)> {
        let of = |world: &World| {
            let heroes = world.heroes.iter().filter(|(player, _)| !world.ghosts.contains(player));
            heroes.map(|(_, &(hero, id))| (world.server.get::<Hero>(hero).unwrap().clone(), id)).collect::<Vec<_>>()
        };
        self.worlds.iter().flat_map(of).collect()
    }

    /// Whether a client has the truth, as far as it may know it. It is told after everything has come to rest.
    pub(crate) fn check(&self, number: usize) -> Result<(), String> {
        let (client, truth) = (&self.clients[number], self.truth());
        let own = truth.iter().find(|(_, id)| *id == number as u64).ok_or(format!("{number} has no character"))?;
        let shown: Vec<Hero> = client.objects::<Hero>().map(|(_, hero)| hero).collect();
        for (hero, id) in truth.iter().filter(|(hero, _)| distance(hero, &own.0) <= SIGHT_M) {
            let copies: Vec<&Hero> = shown.iter().filter(|copy| copy.name == hero.name).collect();
            let [copy] = copies[..] else {
                return Err(format!("{number} sees {} of {}", copies.len(), hero.name));
            };
            let is_own = *id == number as u64;
            let secret = if is_own { hero.secret } else { 0 };
            let expected = Hero { position: copy.position, secret, velocity: copy.velocity, ..hero.clone() };
            let error_m = distance(copy, hero);
            // Each of the three axes is rounded twice.
            let allowed_m = ERROR_M + 3.0 * STEP_M;
            if *copy != expected || error_m > allowed_m || copy.velocity != [0.0; 3] {
                return Err(format!("{number} sees {copy:?}, {error_m} m from {hero:?}"));
            }
        }
        let strangers = shown.iter().filter(|copy| !truth.iter().any(|(hero, _)| hero.name == copy.name)).count();
        let owned = client.owned().count();
        match (strangers, owned) {
            (0, 1) => Ok(()),
            _ => Err(format!("{number} sees {strangers} who are not there, and owns {owned}")),
        }
    }
}

pub(crate) fn distance(a: &Hero, b: &Hero) -> f32 {
    a.position.iter().zip(b.position).map(|(a, b)| (a - b).powi(2)).sum::<f32>().sqrt()
}

pub(crate) fn origin_address(number: u8) -> SocketAddr {
    ([10, 0, 0, number + 1], 40_000).into()
}

pub(crate) fn edge_address(number: usize) -> SocketAddr {
    ([10, 1, 0, number as u8 + 1], 40_000).into()
}
