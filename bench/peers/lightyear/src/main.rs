//! The workload on lightyear. Its `Link` buffers are the packets: no transport plugin, and `raw_connection`, so neither
//! handshake nor encryption.
//!
//! Choices, after its documentation:
//! - components and their serialisation as for bevy_replicon, which it builds upon;
//! - without prediction and interpolation, which are the client's and make the server send more;
//! - dense: `Replicate::to_clients(NetworkTarget::All)`; sparse: `NetworkTarget::Single` for each object. Rooms would be a second
//!   filter;
//! - replication in every tick, no bandwidth cap (both are its defaults);
//! - Bevy's systems run in one thread;
//! - ticks are 33 ms apart in real time: its acknowledgements, resends and pings read the real clock.
//!
//! "Values written" to "packets ready" is from the end of our system in `FixedUpdate` to the last packet copied out of the
//! links after `App::update`.

mod apps;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bevy::prelude::*;
use bevy_replicon::shared::server_entity_map::ServerEntityMap;
use bytes::BytesMut;
use lightyear::prelude::server::{LinkOf, RawServer};
use lightyear::prelude::*;
use peers_harness::{
    Arguments, Clients, Packets, Part, Server, Stopwatch, Terms, Value, Workload, World as Ground, locked_version, run,
};

use apps::{Character, Contents, Numbers, Place, client_app, server_app};

fn main() {
    let arguments = Arguments::from_command_line();
    let terms = Terms {
        peer: "lightyear",
        version: locked_version(env!("CARGO_PKG_NAME"), "lightyear"),
        notes: "its own packets and reliability, no encryption; ticks paced at 30 Hz in real time",
        is_paced: true,
    };
    let ground = Ground::new(arguments.workload, arguments.players);
    let numbers = Numbers::default();
    let host = Host::new(&ground, Arc::clone(&numbers));
    let (workload, players) = (arguments.workload, arguments.players);
    run(&arguments, &terms, host, move || Crowd::new(workload, players, numbers));
}

fn server_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 1))
}

fn client_address(client: u32) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from(0x0A00_0000 + client), 1))
}

struct Host {
    app: App,
    /// By number of the client.
    links: Vec<Entity>,
    is_ready: bool,
}

/// This tick's values, and the stopwatch while the app runs.
#[derive(Resource)]
struct Turn {
    ground: Ground,
    stopwatch: Stopwatch,
}

/// Which of the world's objects an entity of the server is. Not replicated.
#[derive(Component)]
struct Number(u32);

impl Host {
    fn new(ground: &Ground, numbers: Numbers) -> Host {
        let mut app = server_app(ground.workload());
        app.insert_resource(Turn { ground: ground.clone(), stopwatch: Stopwatch::default() });
        app.add_systems(FixedUpdate, assign);
        app.finish();
        let server = app.world_mut().spawn(RawServer).id();
        app.update();
        app.world_mut().entity_mut(server).insert(Linked);
        app.update();
        let mut links = Vec::new();
        for number in 0..ground.players() {
            let addresses = (LocalAddr(server_address()), PeerAddr(client_address(number)));
            let link = (LinkOf { server }, Link::default(), addresses, ReplicationSender);
            let link = app.world_mut().spawn(link).id();
            app.world_mut().flush();
            app.world_mut().entity_mut(link).insert(Linked);
            links.push(link);
        }
        spawn_objects(app.world_mut(), ground, &numbers);
        Host { app, links, is_ready: false }
    }
}

fn spawn_objects(world: &mut World, ground: &Ground, numbers: &Numbers) {
    let mut numbers = numbers.lock().expect("nobody panics with it");
    let is_dense = ground.workload() == Workload::Dense;
    let seen_by = |owner| match is_dense {
        true => Replicate::to_clients(NetworkTarget::All),
        false => Replicate::to_clients(NetworkTarget::Single(PeerId::Raw(client_address(owner)))),
    };
    for (number, character) in (0..).zip(ground.characters()) {
        let object = (seen_by(number), Number(number), Character(character.units()));
        numbers.insert(world.spawn(object).id(), number);
    }
    for (chest, &contents) in (0..).zip(ground.chests()) {
        let number = ground.players() + chest;
        let place = Place(ground.chest_position_m(chest));
        let object = (seen_by(ground.chest_owner(chest)), Number(number), place, Contents(contents));
        numbers.insert(world.spawn(object).id(), number);
    }
}

/// The game: writes every value.
fn assign(
    mut turn: ResMut<Turn>,
    mut characters: Query<(&Number, &mut Character)>,
    mut chests: Query<(&Number, &mut Contents)>,
) {
    turn.stopwatch.enter(Part::Assign);
    for (number, mut character) in &mut characters {
        character.0 = turn.ground.characters()[number.0 as usize].units();
    }
    let first_chest = turn.ground.players();
    for (number, mut contents) in &mut chests {
        contents.0 = turn.ground.chests()[(number.0 - first_chest) as usize];
    }
    turn.stopwatch.enter(Part::Replicate);
}

impl Server for Host {
    fn tick(&mut self, _: u32, ground: &Ground, incoming: &Packets, outgoing: &mut Packets, stopwatch: &mut Stopwatch) {
        let world = self.app.world_mut();
        let mut turn = world.resource_mut::<Turn>();
        turn.ground.clone_from(ground);
        std::mem::swap(&mut turn.stopwatch, stopwatch);
        turn.stopwatch.enter(Part::Receive);
        for packet in incoming.iter() {
            if let Some(mut link) = world.get_mut::<Link>(self.links[packet.client as usize]) {
                link.recv.push_raw(BytesMut::from(packet.bytes));
            }
        }
        self.app.update();
        let world = self.app.world_mut();
        for (number, &link) in (0..).zip(&self.links) {
            let Some(mut link) = world.get_mut::<Link>(link) else { continue };
            for payload in link.send.drain() {
                outgoing.push(number, 0, &payload);
            }
        }
        let mut turn = world.resource_mut::<Turn>();
        turn.stopwatch.stop();
        std::mem::swap(&mut turn.stopwatch, stopwatch);
        self.is_ready = true;
    }

    fn is_ready(&self) -> bool {
        self.is_ready
    }
}

struct Crowd {
    apps: Vec<(App, Entity)>,
    numbers: Numbers,
}

impl Crowd {
    fn new(workload: Workload, players: u32, numbers: Numbers) -> Crowd {
        let client = |number| {
            let mut app = client_app(workload);
            let addresses = (LocalAddr(client_address(number)), PeerAddr(server_address()));
            let link = (client::RawClient, Link::default(), addresses, ReplicationReceiver::default());
            let link = app.world_mut().spawn(link).id();
            app.world_mut().flush();
            app.world_mut().entity_mut(link).insert(Linked);
            (app, link)
        };
        Crowd { apps: (0..players).map(client).collect(), numbers }
    }
}

impl Clients for Crowd {
    fn tick(&mut self, _: u32, incoming: &Packets, outgoing: &mut Packets) {
        for packet in incoming.iter() {
            let (app, link) = &mut self.apps[packet.client as usize];
            if let Some(mut link) = app.world_mut().get_mut::<Link>(*link) {
                link.recv.push_raw(BytesMut::from(packet.bytes));
            }
        }
        for (number, (app, link)) in (0..).zip(&mut self.apps) {
            app.update();
            let Some(mut link) = app.world_mut().get_mut::<Link>(*link) else { continue };
            for payload in link.send.drain() {
                outgoing.push(number, 0, &payload);
            }
        }
    }

    fn look(&mut self, client: u32, found: &mut dyn FnMut(u32, Value)) {
        let world = self.apps[client as usize].0.world_mut();
        let numbers: &HashMap<Entity, u32> = &self.numbers.lock().expect("nobody panics with it");
        let mut objects =
            world.query_filtered::<(Entity, Option<&Character>, Option<&Contents>), With<client::Remote>>();
        let map = world.resource::<ServerEntityMap>();
        for (entity, character, contents) in objects.iter(world) {
            let Some(&number) = map.to_server().get(&entity).and_then(|server| numbers.get(server)) else { continue };
            match (character, contents) {
                (Some(character), _) => found(number, Value::Character(character.0.steps())),
                (_, Some(contents)) => found(number, Value::Chest(contents.0)),
                _ => {}
            }
        }
    }
}
