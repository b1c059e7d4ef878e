//! Audiences: some fields are only for the owner, and some are known better by the owner than by the server.
//!
//! A condition on a field selects its audience. Fields for the owner are sent outside of all channels, so they are in
//! no packet to another client. When the object gets another owner, the former owner forgets them. The network is in
//! memory and time is virtual.

use std::sync::Arc;

use throng::net::{Condition, MemoryNetwork};
use throng::prelude::*;

#[derive(Clone, Debug, Default, Replicate)]
struct Player {
    /// For everybody who sees the player.
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
    /// For the owner.
    #[replicate(integer(min = 0, max = 999), owner_only)]
    ammunition: u16,
    /// For everybody, but the owner's client skips it: the owner turned the mouse and knows the value.
    #[replicate(angle(bits = 12), skip_owner)]
    yaw: f32,
    /// For everybody, once.
    #[replicate(text(max_bytes = 16), initial_only)]
    name: String,
}

/// A number for this game and its version.
const PROTOCOL_ID: u64 = 1;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = Arc::new(Schema::builder().kind::<Player>().build()?);
    let network = MemoryNetwork::new(Condition::NONE, 1)?;
    let address = "10.0.0.1:40000".parse()?;
    let grids = vec![GridOptions::new(Up::Z)];
    let options = ServerOptions { grids, ..ServerOptions::new(PROTOCOL_ID, random_key()) };
    let issuer = options.token_issuer();
    let mut server = Server::new(Box::new(network.endpoint(address)?), Arc::clone(&schema), options)?;
    let mut clients = Vec::new();
    for (client_id, client_address) in [(1, "10.0.0.2:50000"), (2, "10.0.0.3:50000")] {
        let driver = Box::new(network.endpoint(client_address.parse()?)?);
        let token = issuer.issue(client_id, &[address])?;
        clients.push(Client::new(driver, token, Arc::clone(&schema), ClientOptions::default(), Time(0))?);
    }

    let (mut ada, mut connections) = (None, Vec::new());
    for tick in 0..90 {
        let now = Time::from_millis(tick * 33);
        server.receive(now)?;
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Connected { connection, client_id, .. } = event {
                server.set_viewpoint(connection, [0.0, 0.0, 0.0]);
                connections.push(connection);
                if client_id == 1 {
                    let name = "Ada".to_owned();
                    let player = Player { position: [2.0, 3.0, 0.0], ammunition: 30, yaw: 1.5, name };
                    ada = Some(server.spawn_owned(player, Placement::Cell(0), Some(connection))?);
                }
            }
        }
        if let (30, Some(id)) = (tick, ada) {
            // The owner turns. It does not wait for the server's confirmation, and does not get its own changes back.
            let turned = Player { yaw: 3.0, ..Player::default() };
            clients[0].predict(id, &turned);
        }
        if let (60, Some(id)) = (tick, ada) {
            server.set_owner(id, Some(connections[1]))?;
        }
        server.tick(now);
        for (number, client) in clients.iter_mut().enumerate() {
            client.update(now)?;
            while let Some(event) = client.poll_event() {
                match event {
                    ClientEvent::Owned(_) => println!("tick {tick}: client {number} owns it"),
                    ClientEvent::Disowned(_) => println!("tick {tick}: client {number} owns it no longer"),
                    _ => {}
                }
            }
            if let (59 | 89, Some(id)) = (tick, ada) {
                let player: Player = client.get(id).ok_or("it is in sight")?;
                let whose = if client.is_mine(id) { "mine" } else { "not mine" };
                let Player { name, ammunition, yaw, .. } = player;
                println!("client {number}: {name} is {whose}, ammunition {ammunition}, yaw {yaw:.1}");
            }
        }
    }
    Ok(())
}
