//! A world that outlives its process: objects, owners and the game's own bytes go on from a snapshot.
//!
//! The server writes a snapshot to a file each second, and one when it ends. Another one reads the file: it spawns the objects
//! again, and gives each to its owner when that client has connected again. The network is in memory and time is virtual.

use std::collections::HashMap;
use std::sync::Arc;

use throng::net::{Condition, MemoryNetwork};
use throng::prelude::*;
use throng::{Snapshot, SnapshotWriter};

#[derive(Clone, Debug, Default, Replicate)]
struct Player {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
    #[replicate(integer(min = 0, max = 9_999), owner_only)]
    gold: u16,
}

/// A number for this game and its version.
const PROTOCOL_ID: u64 = 1;
const TICK_MS: u64 = 33;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = Arc::new(Schema::builder().kind::<Player>().build()?);
    let network = MemoryNetwork::new(Condition::NONE, 1)?;
    let key = random_key();
    let start = |address: &str| -> Result<Server, Box<dyn std::error::Error>> {
        let options =
            ServerOptions { grids: vec![GridOptions::new(Up::Z)], ..ServerOptions::new(PROTOCOL_ID, key.clone()) };
        Ok(Server::new(Box::new(network.endpoint(address.parse()?)?), Arc::clone(&schema), options)?)
    };
    let connect = |number: u64, port: u16, server: &str, now: Time| -> Result<Client, Box<dyn std::error::Error>> {
        let issuer = ServerOptions::new(PROTOCOL_ID, key.clone()).token_issuer();
        let driver = Box::new(network.endpoint(format!("10.0.1.{number}:{port}").parse()?)?);
        let token = issuer.issue(number, &[server.parse()?])?;
        Ok(Client::new(driver, token, Arc::clone(&schema), ClientOptions::default(), now)?)
    };
    let file = std::env::temp_dir().join(format!("throng-restart-{}", std::process::id()));

    // Two players find gold.
    let mut server = start("10.0.0.1:40000")?;
    let mut clients = [connect(1, 1_000, "10.0.0.1:40000", Time(0))?, connect(2, 1_000, "10.0.0.1:40000", Time(0))?];
    let writer = SnapshotWriter::start(&file)?;
    for tick in 0..90 {
        let now = Time::from_millis(tick * TICK_MS);
        server.receive(now)?;
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Connected { connection, client_id, .. } = event {
                let player = Player { position: [client_id as f32, 0.0, 0.0], gold: 0 };
                server.spawn_owned(player, Placement::Cell(0), Some(connection))?;
                server.set_viewpoint(connection, [0.0; 3]);
            }
        }
        server.objects_mut::<Player>().for_each(|(_, player)| player.gold += player.position[0] as u16);
        server.tick(now);
        if tick % 30 == 0 {
            // The game adds whatever else it needs: here the time of its world.
            writer.write(server.snapshot(&tick.to_le_bytes()));
        }
        clients.iter_mut().try_for_each(|client| client.update(now))?;
    }
    writer.end_with(server.snapshot(&89u64.to_le_bytes()))?;
    drop(server);

    // Another process, with nothing but the file.
    let mut server = start("10.0.0.2:40000")?;
    let snapshot = Snapshot::read(std::fs::read(&file)?, &schema)?;
    std::fs::remove_file(&file)?;
    let began = u64::from_le_bytes(snapshot.game().try_into()?);
    println!("the world goes on after tick {began} with {} objects", snapshot.objects().len());
    let mut owned: HashMap<u64, ObjectId> = HashMap::new();
    for object in snapshot.objects() {
        let (Some(player), Some(placement)) = (object.get::<Player>(), object.placement) else { continue };
        let id = server.spawn(player, placement)?;
        if let Some(client_id) = object.owner {
            owned.insert(client_id, id);
        }
    }
    let restarted = Time::from_millis(began * TICK_MS);
    let mut clients =
        [connect(1, 2_000, "10.0.0.2:40000", restarted)?, connect(2, 2_000, "10.0.0.2:40000", restarted)?];
    for tick in began + 1..began + 61 {
        let now = Time::from_millis(tick * TICK_MS);
        server.receive(now)?;
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Connected { connection, client_id, .. } = event {
                owned.remove(&client_id).into_iter().try_for_each(|id| server.set_owner(id, Some(connection)))?;
                server.set_viewpoint(connection, [0.0; 3]);
            }
        }
        server.tick(now);
        clients.iter_mut().try_for_each(|client| client.update(now))?;
    }
    for (number, client) in clients.iter().enumerate() {
        let (_, own) = client.objects::<Player>().find(|(id, _)| client.is_mine(*id)).ok_or("it has its player")?;
        println!("client {number} has {} gold, and sees {} players", own.gold, client.objects::<Player>().count());
    }
    Ok(())
}
