//! Typed messages on lanes: a client asks, the server answers, both over a path that loses a fifth of all datagrams.
//!
//! Any kind of the schema can be sent once as a message. Lane 0 is reliable and ordered, 1 reliable and unordered, 2
//! unreliable. The network is in memory and time is virtual, so every run prints the same.

use std::sync::Arc;

use throng::net::{Condition, MemoryNetwork};
use throng::prelude::*;

#[derive(Default, Replicate)]
struct Question {
    #[replicate(integer(min = 0, max = 1000))]
    number: u16,
}

#[derive(Default, Replicate)]
struct Answer {
    #[replicate(integer(min = 0, max = 1000))]
    number: u16,
    #[replicate(text(max_bytes = 40))]
    text: String,
}

const ORDERED: u8 = 0;

/// A number for this game and its version.
const PROTOCOL_ID: u64 = 1;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = Arc::new(Schema::builder().kind::<Question>().kind::<Answer>().build()?);
    let network = MemoryNetwork::new(Condition { delay_us: 20_000, loss: 0.2, ..Condition::NONE }, 1)?;
    let address = "10.0.0.1:40000".parse()?;
    let options = ServerOptions::new(PROTOCOL_ID, random_key());
    let token = options.token_issuer().issue(1, &[address])?;
    let mut server = Server::new(Box::new(network.endpoint(address)?), Arc::clone(&schema), options)?;
    let driver = Box::new(network.endpoint("10.0.0.2:50000".parse()?)?);
    let mut client = Client::new(driver, token, Arc::clone(&schema), ClientOptions::default(), Time(0))?;

    let (mut asked, mut answered) = (0, 0);
    for now in (0..).map(|tick| Time::from_millis(tick * 33)).take_while(|&now| now < Time::from_secs(20)) {
        server.receive(now)?;
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Message { connection, lane, message } = event
                && let Some(Question { number }) = message.get::<Question>()
            {
                let text = format!("{number} squared is {}", u32::from(number) * u32::from(number));
                server.send(connection, lane, &Answer { number, text })?;
            }
        }
        server.tick(now);

        client.update(now)?;
        while let Some(event) = client.poll_event() {
            if let ClientEvent::Message { message, .. } = event
                && let Some(Answer { number, text }) = message.get::<Answer>()
            {
                println!("answer {number}: {text}");
                answered += 1;
            }
        }
        if client.is_connected() && asked < 10 {
            asked += 1;
            client.send(ORDERED, &Question { number: asked })?;
        }
        if answered == 10 {
            break;
        }
    }
    println!("{answered} answers of {asked}, in order");
    Ok(())
}
