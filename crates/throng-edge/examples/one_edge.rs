//! A server, an edge beside it, and eight clients at the edge, in virtual time.
//!
//! ```text
//!   server (game, Origin)  <-- memory network -->  edge (Edge)  <-- memory network -->  8 clients
//! ```
//!
//! Each client walks east by its inputs, and sees the others. Run it with `cargo run -p throng-edge --example one_edge`.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use throng::net::{Condition, MemoryNetwork};
use throng::prelude::*;
use throng_edge::{Edge, EdgeOptions, Origin, OriginEvent, OriginOptions, PlayerId, ToEdge, ToOrigin, edge_user_data};

#[derive(Default, Replicate)]
struct Walker {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
}

const PROTOCOL_ID: u64 = 1;
const CLIENTS: u64 = 8;
const TICKS: u32 = 120;
const TICK: Duration = Duration::from_millis(33);

/// The game, and beside it the players who come through edges.
struct Game {
    server: Server,
    origin: Origin,
    walkers: HashMap<PlayerId, ObjectId>,
}

impl Game {
    fn tick(&mut self, now: Time) -> Result<(), Box<dyn Error>> {
        let Game { server, origin, walkers } = self;
        server.receive(now)?;
        while let Some(event) = server.poll_event() {
            // All clients come through edges here, so no event is about another one.
            origin.take(server, event, now);
        }
        while let Some(event) = origin.poll_event() {
            match event {
                OriginEvent::Joined { player, client_id, .. } => {
                    let walker = Walker { position: [0.0, client_id as f32, 0.0] };
                    let walker = server.spawn(walker, Placement::Cell(0))?;
                    origin.give(server, player, walker)?;
                    walkers.insert(player, walker);
                }
                OriginEvent::Input { player, bytes, .. } => {
                    let walker = walkers.get(&player).and_then(|walker| server.get_mut::<Walker>(*walker));
                    if let (Some(walker), &[speed_dm_per_tick]) = (walker, &bytes[..]) {
                        walker.position[0] += f32::from(speed_dm_per_tick.min(2)) / 10.0;
                    }
                }
                OriginEvent::Left(player) => walkers.remove(&player).into_iter().for_each(|gone| server.despawn(gone)),
                _ => {}
            }
        }
        origin.before_tick(server);
        server.tick(now);
        Ok(())
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let schema = Arc::new(Schema::builder().kind::<Walker>().kind::<ToOrigin>().kind::<ToEdge>().build()?);
    let network = MemoryNetwork::new("none".parse::<Condition>()?, 1)?;
    let address = |last: u8| SocketAddr::from(([10, 0, 0, last], 4_000));
    let endpoint = |last: u8| network.endpoint(address(last)).map(Box::new);
    // The edge shows its clients the same grid as the server. Each of them may have a key of its own.
    let key = random_key();
    let options = || ServerOptions {
        grids: vec![GridOptions::new(Up::Z)],
        tick_interval: TICK,
        ..ServerOptions::new(PROTOCOL_ID, key.clone())
    };
    let mut now = Time(0);

    let server = Server::new(endpoint(1)?, Arc::clone(&schema), options())?;
    let mut game = Game { server, origin: Origin::new(OriginOptions::default()), walkers: HashMap::new() };

    // The edge is a client of the server, whose token says that it is an edge, and a server of its own.
    let token = options().token_issuer().issue_with(1_000, &[address(1)], &edge_user_data())?;
    let way = ClientOptions { bytes_per_s: 1_000_000, ..ClientOptions::default() };
    let to_origin = Client::new(endpoint(2)?, token, Arc::clone(&schema), way, now)?;
    let for_clients = Server::new(endpoint(3)?, Arc::clone(&schema), options())?;
    let mut edge = Edge::new(for_clients, vec![to_origin], EdgeOptions::default())?;

    let mut clients = Vec::new();
    for id in 1..=CLIENTS {
        let token = options().token_issuer().issue(id, &[address(3)])?;
        let driver = endpoint(10 + id as u8)?;
        clients.push(Client::new(driver, token, Arc::clone(&schema), ClientOptions::default(), now)?);
    }

    for _ in 0..TICKS {
        game.tick(now)?;
        edge.step(now)?;
        for client in &mut clients {
            client.update(now)?;
            if client.owned().next().is_some() {
                client.send_input(&[1])?;
            }
        }
        now = now.after(TICK);
    }

    for (number, client) in clients.iter().enumerate() {
        let farthest = client.objects::<Walker>().map(|(_, walker)| walker.position[0]).fold(0.0, f32::max);
        let seen = client.objects::<Walker>().count();
        println!("client {}: sees {seen} walkers, the farthest at {farthest:.1} m", number + 1);
        assert!(seen == CLIENTS as usize && farthest > 5.0);
    }
    println!("the server has {} connection and {} players", game.server.connection_count(), game.walkers.len());
    Ok(())
}
