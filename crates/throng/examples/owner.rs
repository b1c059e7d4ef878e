//! Audiences: some fields are for the owner alone, some for everyone but the owner.
//!
//! A condition on a field is all that it takes. Fields of different audiences travel in different channels, so what a
//! client may not know is in no packet that it is sent. The network is in memory and time is virtual.

use std::sync::Arc;

use throng::net::{Condition, MemoryNetwork};
use throng::prelude::*;

#[derive(Clone, Debug, Default, Replicate)]
#[replicate(crate = "throng::schema")]
struct Player {
    /// For everybody who sees the player.
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
    /// For the owner.
    #[replicate(integer(min = 0, max = 999), owner_only)]
    ammunition: u16,
    /// For everyone but the owner, who knows it already: it turned the mouse.
    #[replicate(angle(bits = 12), skip_owner)]
    yaw: f32,
    /// For everybody, once.
    #[replicate(text(max_bytes = 16), initial_only)]
    name: String,
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = Arc::new(Schema::builder().kind::<Player>().build()?);
    let network = MemoryNetwork::new(Condition::NONE, 1)?;
    let (address, key) = ("10.0.0.1:40000".parse()?, random_key());
    let options = ServerOptions { private_key: key.clone(), ..ServerOptions::default() };
    let issuer = TokenIssuer::new(options.protocol_id, key);
    let mut server = Server::new(Box::new(network.endpoint(address)?), Arc::clone(&schema), options)?;
    let mut clients = Vec::new();
    for (client_id, client_address) in [(1, "10.0.0.2:50000"), (2, "10.0.0.3:50000")] {
        let driver = Box::new(network.endpoint(client_address.parse()?)?);
        let token = issuer.issue(client_id, &[address])?;
        clients.push(Client::new(driver, token, Arc::clone(&schema), ClientOptions::default(), Time(0))?);
    }

    for tick in 0..60 {
        let now = Time::from_millis(tick * 33);
        server.receive(now)?;
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Connected { connection, client_id, .. } = event {
                server.set_viewpoint(connection, [0.0, 0.0, 0.0]);
                if client_id == 1 {
                    let name = "Ada".to_owned();
                    let ada = Player { position: [2.0, 3.0, 0.0], ammunition: 30, yaw: 1.5, name };
                    server.spawn_owned(ada, Placement::Cell(0), Some(connection))?;
                }
            }
        }
        server.tick(now);
        for client in &mut clients {
            client.update(now)?;
        }
    }
    for (client, who) in clients.iter().zip(["the owner", "another"]) {
        let object = client.replica().and_then(|replica| replica.objects().next()).ok_or("it is in sight")?;
        let player: Player = client.get(object.id()).ok_or("it is a player")?;
        let knows = |field| object.known_fields() & field != 0;
        println!(
            "{who} knows: {} at {:.1} m, ammunition {:?}, yaw {:?}",
            player.name,
            player.position[0],
            knows(Player::FIELD_AMMUNITION).then_some(player.ammunition),
            knows(Player::FIELD_YAW).then(|| format!("{:.1}", player.yaw)),
        );
    }
    Ok(())
}
