//! Prediction: the client moves at once and corrects itself when the server's state arrives.
//!
//! Each packet repeats the last inputs, so a lost packet loses no input. The server acknowledges an input in the tick
//! in which it takes effect. At the client the acknowledged number and the state of its own objects change together:
//! the client takes that state and plays the inputs after the number once more. The network is in memory and time is
//! virtual.

use std::collections::VecDeque;
use std::sync::Arc;

use throng::net::{Condition, MemoryNetwork};
use throng::prelude::*;

#[derive(Clone, Debug, Default, Replicate)]
struct Runner {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
}

#[derive(Clone, Default, Replicate)]
struct Stride {
    #[replicate(integer(min = 0, max = 100))]
    centimetres: u8,
}

impl Runner {
    /// The rule of the game, the same at both ends.
    fn run(&mut self, stride: &Stride) {
        self.position[0] += f32::from(stride.centimetres) / 100.0;
    }
}

/// A number for this game and its version.
const PROTOCOL_ID: u64 = 1;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = Arc::new(Schema::builder().kind::<Runner>().kind::<Stride>().build()?);
    let network = MemoryNetwork::new(Condition { delay_us: 80_000, loss: 0.1, ..Condition::NONE }, 3)?;
    let address = "10.0.0.1:40000".parse()?;
    let grids = vec![GridOptions::new(Up::Z)];
    let options = ServerOptions { grids, ..ServerOptions::new(PROTOCOL_ID, random_key()) };
    let token = options.token_issuer().issue(1, &[address])?;
    let mut server = Server::new(Box::new(network.endpoint(address)?), Arc::clone(&schema), options)?;
    let driver = Box::new(network.endpoint("10.0.0.2:50000".parse()?)?);
    let mut client = Client::new(driver, token, schema, ClientOptions::default(), Time(0))?;

    let mut runner = None;
    let (mut pending, mut pushed, mut lead_m) = (VecDeque::new(), 0, 0.0f32);
    for tick in 0..200u64 {
        let now = Time::from_millis(tick * 33);
        server.receive(now)?;
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Connected { connection, .. } = event {
                runner = Some(server.spawn_owned(Runner::default(), Placement::Cell(0), Some(connection))?);
                server.set_viewpoint(connection, [0.0; 3]);
            }
        }
        while let Some((connection, input)) = server.poll_input() {
            if let (Some(stride), Some(id)) = (server.read_input::<Stride>(&input), runner) {
                server.get_mut::<Runner>(id).ok_or("it was spawned")?.run(&stride);
                server.acknowledge_input(connection, input.number);
            }
        }
        server.tick(now);

        client.update(now)?;
        let Some((_, mut predicted)) = client.owned_objects::<Runner>().next() else { continue };
        if pushed < 100 {
            let stride = Stride { centimetres: 10 };
            pending.push_back((client.send_typed_input(&stride)?, stride));
            pushed += 1;
        }
        pending.retain(|&(number, _)| client.input_acked().is_none_or(|acked| number > acked));
        let told_m = predicted.position[0];
        pending.iter().for_each(|(_, stride)| predicted.run(stride));
        lead_m = lead_m.max(predicted.position[0] - told_m);
    }
    let at_server = server.get::<Runner>(runner.ok_or("the client got in")?).ok_or("still there")?;
    let (_, at_client) = client.owned_objects::<Runner>().next().ok_or("it is ours")?;
    println!("prediction was up to {lead_m:.1} m ahead, {} inputs are still pending", pending.len());
    println!("after {pushed} inputs: server {:.2} m, client {:.2} m", at_server.position[0], at_client.position[0]);
    Ok(())
}
