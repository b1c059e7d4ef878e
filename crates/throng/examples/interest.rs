//! Interest: near objects are sent often, far objects seldom, objects out of sight never.
//!
//! Rings define this once for all clients. A client's viewpoint then decides which cells it is subscribed to, and how
//! often each of them is sent. The network is in memory and time is virtual, so every run prints the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use throng::net::{Condition, MemoryNetwork};
use throng::prelude::*;

#[derive(Default, Replicate)]
struct Walker {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
}

/// Walkers stand at these distances from the viewer, in metres.
const DISTANCES_M: [f32; 4] = [5.0, 35.0, 95.0, 400.0];

/// A number for this game and its version.
const PROTOCOL_ID: u64 = 1;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = Arc::new(Schema::builder().kind::<Walker>().build()?);
    let network = MemoryNetwork::new(Condition::NONE, 1)?;
    let address = "10.0.0.1:40000".parse()?;
    let grid = GridOptions {
        rings: vec![
            Ring { radius_m: 10.0, interval_ticks: 1 },
            Ring { radius_m: 50.0, interval_ticks: 5 },
            Ring { radius_m: 100.0, interval_ticks: 30 },
        ],
        ..GridOptions::new(throng::Up::Z)
    };
    let options = ServerOptions { grids: vec![grid], ..ServerOptions::new(PROTOCOL_ID, random_key()) };
    let token = options.token_issuer().issue(1, &[address])?;
    let mut server = Server::new(Box::new(network.endpoint(address)?), Arc::clone(&schema), options)?;
    let driver = Box::new(network.endpoint("10.0.0.2:50000".parse()?)?);
    let mut client = Client::new(driver, token, schema, ClientOptions::default(), Time(0))?;

    let mut walkers = Vec::new();
    for distance in DISTANCES_M {
        walkers.push(server.spawn(Walker { position: [distance, 0.5, 0.0] }, Placement::Cell(0))?);
    }
    let mut updates = BTreeMap::new();
    for tick in 0..300 {
        let now = Time::from_millis(tick * 33);
        server.receive(now)?;
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Connected { connection, .. } = event {
                server.set_viewpoint(connection, [0.0, 0.0, 0.0]);
            }
        }
        for &walker in &walkers {
            let walker = server.get_mut::<Walker>(walker).ok_or("it was spawned")?;
            walker.position[1] = 0.5 + (tick % 7) as f32 / 10.0;
        }
        server.tick(now);

        client.update(now)?;
        while let Some(event) = client.poll_event() {
            if let ClientEvent::Changed { id, .. } = event {
                *updates.entry(id).or_insert(0) += 1;
            }
        }
    }
    for (walker, distance) in walkers.iter().zip(DISTANCES_M) {
        println!("{distance} m away: {} updates in 300 ticks", updates.get(walker).unwrap_or(&0));
    }
    Ok(())
}
