//! The workload on bevy_replicon, without a messaging backend: what it hands to its backend are the packets.
//!
//! Choices, after its documentation:
//! - a character is one component, packed by hand to 11 bytes (dense) or 12 (sparse) in its serialisation function (`RuleFns::new`): the cheapest and
//!   smallest form that we know; 4 components with the default serialisation cost more time and 40 % more bytes;
//! - what never changes about a chest is a component with `replicate_once`;
//! - `max_size` is 1,200, so that mutations are split into messages that a packet takes;
//! - replication runs in each update (`ServerPlugin::new(PostUpdate)`), the server has no client plugins and the other way
//!   round, `AuthMethod::None`, Bevy's systems run in one thread;
//! - dense registers no visibility filter, as a game in which everyone sees everyone would; sparse has one filter of
//!   `FilterScope` `Entity`: who it belongs to;
//! - priorities are left at 1: every change to everyone in every tick.
//!
//! "Values written" to "packets ready" is from the end of our system in `Update` to the last message copied out of
//! `ServerMessages` after `App::update`. Bevy's own schedules are in it, about 10 µs for an empty world.

mod apps;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bevy::prelude::*;
use bevy_replicon::prelude::*;
use bytes::Bytes;
use peers_harness::{
    Arguments, Clients, Packets, Part, Server, Stopwatch, Terms, Value, Workload, World as Ground, locked_version, run,
};

use apps::{BelongsTo, Character, Contents, Numbers, Place, Viewer, client_app, server_app};

fn main() {
    let arguments = Arguments::from_command_line();
    let terms = Terms {
        peer: "bevy_replicon",
        version: locked_version(env!("CARGO_PKG_NAME"), "bevy_replicon"),
        notes: "messages before any transport: no packet headers, no encryption; reliable messages and losses are its backend's",
        is_paced: false,
    };
    let ground = Ground::new(arguments.workload, arguments.players);
    let numbers = Numbers::default();
    let host = Host::new(&ground, Arc::clone(&numbers));
    let (workload, players) = (arguments.workload, arguments.players);
    run(&arguments, &terms, host, move || Crowd::new(workload, players, numbers));
}

struct Host {
    app: App,
    /// By number of the client.
    clients: Vec<Entity>,
    client_numbers: HashMap<Entity, u32>,
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
        app.add_systems(Update, assign);
        app.finish();
        app.world_mut().resource_mut::<NextState<ServerState>>().set(ServerState::Running);
        app.update();
        spawn_objects(app.world_mut(), ground, &numbers);
        let world = app.world_mut();
        let clients: Vec<_> = (0..ground.players())
            .map(|number| world.spawn((ConnectedClient { max_size: 1200 }, Viewer(number))).id())
            .collect();
        let client_numbers = clients.iter().copied().zip(0..).collect();
        Host { app, clients, client_numbers, is_ready: false }
    }
}

fn spawn_objects(world: &mut World, ground: &Ground, numbers: &Mutex<HashMap<Entity, u32>>) {
    let mut numbers = numbers.lock().expect("nobody panics with it");
    for (number, character) in (0..).zip(ground.characters()) {
        let object = (Replicated, BelongsTo(number), Number(number), Character(character.units()));
        numbers.insert(world.spawn(object).id(), number);
    }
    for (chest, &contents) in (0..).zip(ground.chests()) {
        let (owner, number) = (ground.chest_owner(chest), ground.players() + chest);
        let place = Place(ground.chest_position_m(chest));
        let object = (Replicated, BelongsTo(owner), Number(number), place, Contents(contents));
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
        let mut turn = self.app.world_mut().resource_mut::<Turn>();
        turn.ground.clone_from(ground);
        std::mem::swap(&mut turn.stopwatch, stopwatch);
        turn.stopwatch.enter(Part::Receive);
        let mut messages = self.app.world_mut().resource_mut::<ServerMessages>();
        for packet in incoming.iter() {
            let client = self.clients[packet.client as usize];
            messages.insert_received(client, packet.channel as usize, Bytes::copy_from_slice(packet.bytes));
        }
        self.app.update();
        let mut messages = self.app.world_mut().resource_mut::<ServerMessages>();
        for (client, channel, message) in messages.drain_sent() {
            outgoing.push(self.client_numbers[&client], channel as u32, &message);
        }
        let mut turn = self.app.world_mut().resource_mut::<Turn>();
        turn.stopwatch.stop();
        std::mem::swap(&mut turn.stopwatch, stopwatch);
        self.is_ready = true;
    }

    fn is_ready(&self) -> bool {
        self.is_ready
    }
}

struct Crowd {
    apps: Vec<App>,
    numbers: Numbers,
}

impl Crowd {
    fn new(workload: Workload, players: u32, numbers: Numbers) -> Crowd {
        Crowd { apps: (0..players).map(|_| client_app(workload)).collect(), numbers }
    }
}

impl Clients for Crowd {
    fn tick(&mut self, _: u32, incoming: &Packets, outgoing: &mut Packets) {
        for packet in incoming.iter() {
            let world = self.apps[packet.client as usize].world_mut();
            let mut messages = world.resource_mut::<ClientMessages>();
            messages.insert_received(packet.channel as usize, Bytes::copy_from_slice(packet.bytes));
        }
        for (number, app) in (0..).zip(&mut self.apps) {
            app.update();
            for (channel, message) in app.world_mut().resource_mut::<ClientMessages>().drain_sent() {
                outgoing.push(number, channel as u32, &message);
            }
        }
    }

    fn look(&mut self, client: u32, found: &mut dyn FnMut(u32, Value)) {
        let world = self.apps[client as usize].world_mut();
        let numbers = self.numbers.lock().expect("nobody panics with it");
        let mut objects = world.query_filtered::<(Entity, Option<&Character>, Option<&Contents>), With<Remote>>();
        let map = world.resource::<bevy_replicon::shared::server_entity_map::ServerEntityMap>();
        for (entity, character, contents) in objects.iter(world) {
            let number = numbers[&map.to_server()[&entity]];
            match (character, contents) {
                (Some(character), _) => found(number, Value::Character(character.0.steps())),
                (_, Some(contents)) => found(number, Value::Chest(contents.0)),
                _ => {}
            }
        }
    }
}
