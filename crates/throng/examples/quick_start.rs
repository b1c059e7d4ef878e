//! A server and a client in one process: one object moves, the client sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use throng::prelude::*;

#[derive(Default, Replicate)]
struct Player {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
    #[replicate(integer(min = 0, max = 100))]
    health: u8,
    #[replicate(integer(min = 0, max = 999), owner_only)]
    ammunition: u16,
}

/// A number for this game and its version.
const PROTOCOL_ID: u64 = 1;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = Arc::new(Schema::builder().kind::<Player>().build()?);
    let grids = vec![GridOptions::new(Up::Z)];
    let options = ServerOptions { grids, ..ServerOptions::new(PROTOCOL_ID, random_key()) };
    let issuer = options.token_issuer();
    let mut server = Server::bind("127.0.0.1:0".parse()?, Arc::clone(&schema), options)?;

    let token = issuer.issue(1, &[server.local_address()])?;
    let start = Instant::now();
    let now = || Time::from(start.elapsed());
    let mut client = Client::connect(token, schema, ClientOptions::default(), now())?;

    let mut player = None;
    for _ in 0..60 {
        server.receive(now())?;
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Connected { connection, .. } = event {
                let hero = Player { position: [1.0, 2.0, 0.0], health: 100, ammunition: 30 };
                player = Some(server.spawn_owned(hero, Placement::Cell(0), Some(connection))?);
                server.set_viewpoint(connection, [1.0, 2.0, 0.0]);
            }
        }
        if let Some(hero) = player.and_then(|id| server.get_mut::<Player>(id)) {
            hero.position[0] += 0.1;
        }
        server.tick(now());

        client.update(now())?;
        while let Some(event) = client.poll_event() {
            match event {
                ClientEvent::Spawned(id) => println!("there is {id}"),
                ClientEvent::Changed { id, .. } => {
                    let hero: Player = client.get(id).ok_or("the object is there")?;
                    println!("{id} is at {:.2} m with {} shots", hero.position[0], hero.ammunition);
                }
                _ => {}
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
