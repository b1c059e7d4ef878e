//! Learns the code tables of the lab's kinds: plays its workloads in memory, with clients that count the values which they
//! are sent. Prints the tables; `crates/throng-crowd/src/kinds.codes` holds them.
//!
//! ```text
//! cargo run --release -p throng-crowd --example learn_codes > crates/throng-crowd/src/kinds.codes
//! ```
//!
//! Time is virtual: every run prints the same. How many bits the state took goes to standard error. With names of scenarios, or
//! paths, it plays those instead, and prints that alone:
//!
//! ```text
//! cargo run --release -p throng-crowd --example learn_codes -- erratic ./mine.toml
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use throng::net::{Condition, MemoryNetwork};
use throng::schema::CodeCounts;
use throng::{Client, ClientEvent, ClientOptions, Key, Placement, Server, ServerEvent, ServerOptions, Time, replica};
use throng_crowd::kinds::{self, Character};
use throng_crowd::scenario::{Overrides, Scenario};
use throng_crowd::world::{BotBrain, CharacterId, World};

/// Workloads, and of how many characters. A larger crowd of the same density has nothing else to teach.
const WORKLOADS: [(&str, u32, Option<f32>); 4] =
    [("dense", 100, None), ("crowd", 1_000, None), ("crowd-10k", 2_000, Some(134.0)), ("converge", 100, None)];
const CLIENTS: u8 = 6;
const SECONDS: u64 = 20;
/// Seconds of play before something is counted.
const WARMUP_SECONDS: u64 = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scenarios: Vec<String> = std::env::args().skip(1).collect();
    for scenario in &scenarios {
        play(&Scenario::resolve(scenario, &Overrides::default())?)?;
    }
    if !scenarios.is_empty() {
        return Ok(());
    }
    let mut counts = CodeCounts::new(&kinds::schema());
    for (name, players, area_m) in WORKLOADS {
        let overrides = Overrides { players: Some(players), area_m, ..Overrides::default() };
        counts.add(&play(&Scenario::resolve(name, &overrides)?)?);
    }
    print!(
        "# Learnt by the example learn_codes of throng-crowd; docs/wire-format.md has the format.\n{}",
        counts.tables()
    );
    Ok(())
}

/// The values that clients were sent.
fn play(scenario: &Scenario) -> Result<CodeCounts, Box<dyn std::error::Error>> {
    let network = MemoryNetwork::new(Condition::NONE, 1)?;
    let home: SocketAddr = "10.0.0.1:40000".parse()?;
    let schema = kinds::schema();
    let options = ServerOptions {
        grids: scenario.grids(),
        far: scenario.far_options(),
        tick_interval: Duration::from_secs_f64(1.0 / f64::from(scenario.tick_hz)),
        client_bytes_per_s: scenario.budget_bytes_per_s(),
        ..ServerOptions::new(1, Key::new([1; 32]))
    };
    let issuer = options.token_issuer();
    let mut server = Server::new(Box::new(network.endpoint(home)?), Arc::clone(&schema), options)?;
    let mut clients = Vec::new();
    for number in 1..=CLIENTS {
        let token = issuer.issue(number.into(), &[home])?;
        let driver = Box::new(network.endpoint(([10, 1, 0, number], 50_000).into())?);
        let replica =
            replica::ClientOptions { counts_bits: true, learns_codes: true, ..replica::ClientOptions::default() };
        let options = ClientOptions { replica, ..ClientOptions::default() };
        clients.push(Client::new(driver, token, Arc::clone(&schema), options, Time(0))?);
    }

    let mut world = World::new(scenario);
    let mut brains = Vec::new();
    let mut objects = Vec::new();
    for bot in 0..scenario.players {
        let id = world.spawn();
        brains.push(BotBrain::new(scenario, bot));
        let state = world.state(id).ok_or("it was spawned")?;
        let character = Character { position: scenario.from_corner(state.position), ..state.into() };
        objects.push(server.spawn(character, Placement::Cell(0))?);
    }
    let hz = u64::from(scenario.tick_hz);
    for tick in 0..(WARMUP_SECONDS + SECONDS) * hz {
        let now = Time(tick * 1_000_000 / hz);
        server.receive(now)?;
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Disconnected { .. } = event {
                return Err("a client has lost its connection".into());
            }
        }
        for (slot, brain) in brains.iter_mut().enumerate() {
            world.apply(CharacterId(slot as u32), brain.decide());
        }
        world.step(|id, state| {
            if let Some(value) = server.get_mut::<Character>(objects[id.0 as usize]) {
                *value = Character { position: scenario.from_corner(state.position), ..state.into() };
            }
        });
        for (number, connection) in server.connections().collect::<Vec<_>>().into_iter().enumerate() {
            let character = CharacterId(number as u32 * scenario.players / u32::from(CLIENTS));
            let position = world.state(character).ok_or("it stays")?.position;
            server.set_viewpoint(connection, scenario.from_corner(position).map(f64::from));
        }
        server.tick(now);
        for client in &mut clients {
            client.update(now)?;
            while let Some(event) = client.poll_event() {
                if let ClientEvent::Ended(reason) = event {
                    return Err(format!("a client has lost its connection: {reason:?}").into());
                }
            }
        }
    }

    let mut counts = CodeCounts::new(&schema);
    for client in &clients {
        counts.add(client.replica().and_then(|replica| replica.code_counts()).ok_or("a client is not connected")?);
    }
    report(scenario, &clients);
    Ok(counts)
}

/// How long an update was.
fn report(scenario: &Scenario, clients: &[Client]) {
    let bits = || clients.iter().filter_map(|client| client.replica()).filter_map(|replica| replica.bits().first());
    let updates: u64 = bits().map(|bits| bits.updates).sum();
    let per_update = |sum: u64| sum as f64 / updates.max(1) as f64;
    let heads = per_update(bits().map(|bits| bits.head_bits).sum());
    let schema = kinds::schema();
    let fields: Vec<String> = schema.kinds()[0]
        .fields
        .iter()
        .enumerate()
        .map(|(index, field)| {
            let sum = bits().map(|bits| bits.field_bits[index]).sum();
            format!("{} {:.1}", field.name, per_update(sum))
        })
        .collect();
    let bytes: u64 = clients.iter().map(|client| client.replication_bytes()).sum();
    let seconds = (WARMUP_SECONDS + SECONDS) as f64;
    eprintln!(
        "{}: {:.1} kbit/s of state per client, {:.2} updates per tick; bits per update: head {heads:.1}, {}",
        scenario.name,
        bytes as f64 * 8.0 / 1_000.0 / seconds / f64::from(CLIENTS),
        updates as f64 / f64::from(CLIENTS) / seconds / f64::from(scenario.tick_hz),
        fields.join(", ")
    );
}
