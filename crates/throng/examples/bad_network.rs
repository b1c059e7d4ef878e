//! A bad network: 100 ms each way, jitter, bursts of loss, duplicates, reordering, 1 Mbit/s. The client still ends with
//! exactly the server's state.
//!
//! Twenty seconds pass in a moment, because no part of the library reads a clock: time is an argument.

use std::sync::Arc;

use throng::net::{Condition, MemoryNetwork};
use throng::prelude::*;

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Particle {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
}

const PARTICLES: u64 = 100;

/// A number for this game and its version.
const PROTOCOL_ID: u64 = 1;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = Arc::new(Schema::builder().kind::<Particle>().build()?);
    let network = MemoryNetwork::new("bad".parse::<Condition>()?, 42)?;
    let address = "10.0.0.1:40000".parse()?;
    let grids = vec![GridOptions::new(Up::Z)];
    let options = ServerOptions { grids, ..ServerOptions::new(PROTOCOL_ID, random_key()) };
    let token = options.token_issuer().issue(1, &[address])?;
    let mut server = Server::new(Box::new(network.endpoint(address)?), Arc::clone(&schema), options)?;
    let driver = Box::new(network.endpoint("10.0.0.2:50000".parse()?)?);
    let mut client = Client::new(driver, token, schema, ClientOptions::default(), Time(0))?;

    let mut particles = Vec::new();
    for _ in 0..PARTICLES {
        particles.push(server.spawn(Particle::default(), Placement::Cell(0))?);
    }
    let mut connection = None;
    for tick in 0..600 {
        let now = Time::from_millis(tick * 33);
        server.receive(now)?;
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Connected { connection: id, .. } = event {
                server.set_viewpoint(id, [0.0, 0.0, 0.0]);
                connection = Some(id);
            }
        }
        // For 15 seconds a fifth of them jumps in each tick; then they rest, and the client catches up.
        for number in (tick % 5..PARTICLES).step_by(5).filter(|_| tick < 450) {
            let particle = server.get_mut::<Particle>(particles[number as usize]).ok_or("it was spawned")?;
            let steps = tick * 7 + number * 13;
            particle.position = [(steps % 50) as f32 - 25.0, (steps % 31) as f32 - 15.0, 1.0];
        }
        server.tick(now);
        client.update(now)?;
    }

    let connection = connection.ok_or("the client got in")?;
    let wrong = particles.iter().filter(|&&id| client.get::<Particle>(id) != server.get::<Particle>(id).copied());
    println!("{} of {PARTICLES} particles differ", wrong.count());
    let link = server.link_statistics(connection).ok_or("still connected")?.counters;
    println!("{} of {} packets were lost", link.packets_lost, link.packets_sent);
    let sent_again = server.replication_counters(connection).ok_or("still connected")?.resent_segments;
    println!("{sent_again} segments were sent again");
    Ok(())
}
