//! The time of a step in which few of many connections are due.
//!
//! In each step of 5 ms one room changes, which has 20 clients. All other clients are subscribed to rooms in which nothing
//! happens, and everybody to one more that is looked at every ten seconds.
#![allow(missing_docs)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use throng_channeld::proto::{
    Any, AuthMessage, ChannelDataUpdateMessage, ChannelSubscriptionOptions, ChannelType, CreateChannelMessage,
    SubscribedToChannelMessage,
};
use throng_channeld::{Header, Messages, message_type, put_body};
use throng_gateway_engine::Engine;
use throng_gateway_engine::fsm::Machine;
use throng_gateway_engine::port::{Key, Outbox, Side};
use throng_gateway_engine::settings::EngineSettings;
use throng_protostate::Schemas;
use throng_wire::Time;

/// Clients of the room that changes.
const ACTIVE: usize = 20;
const STEPS: u64 = 2_000;
const STEP_US: u64 = 5_000;

struct Sink;

impl Outbox for Sink {
    fn queued_bytes(&self) -> usize {
        0
    }

    fn send(&self, entries: &mut Vec<u8>) {
        entries.clear();
    }

    fn close(&self) {}
}

fn say(engine: &mut Engine, (now, from): (Time, Key), header: Header, body: &impl prost::Message) {
    let mut packet = Vec::new();
    put_body(&mut packet, header, body);
    for message in Messages::new(packet.into()) {
        engine.receive(now, from, message.expect("our own bytes"));
    }
}

fn join(engine: &mut Engine, now: Time, side: Side) -> Key {
    let address = "127.0.0.1:40000".parse().expect("an address");
    let key = engine.open(now, side, address, Box::new(Sink)).expect("there is room");
    say(engine, (now, key), Header::new(0, message_type::AUTH), &AuthMessage::default());
    while let Some(request) = engine.poll_auth() {
        engine.authenticated(now, request.key, throng_gateway_engine::port::AuthVerdict::Accepted);
    }
    key
}

fn update(engine: &mut Engine, at: (Time, Key), room: u32, value: u64) {
    let value = [&[8][..], &value.to_le_bytes().map(|byte| byte | 0x80)[..7], &[1]].concat();
    let data = Any { type_url: "type.googleapis.com/game.Room".into(), value: value.into() };
    let body = ChannelDataUpdateMessage { data: Some(data), context_conn_id: 0 };
    say(engine, at, Header::new(room, message_type::CHANNEL_DATA_UPDATE), &body);
}

/// Microseconds of a step with this many clients.
fn step_us(clients: usize) -> f64 {
    let mut settings = EngineSettings { development: true, ..EngineSettings::default() };
    settings.client_machine = Arc::new(Machine::client_authoritative());
    settings.limits.max_connections = 1 << 17;
    let start = Time::from_secs(1_000);
    let mut now = start;
    let mut engine = Engine::new(Arc::new(settings), Arc::new(Schemas::default()), 1, (now, 0));
    let server = join(&mut engine, now, Side::Server);
    let rooms = clients / ACTIVE;
    let wanted = CreateChannelMessage { channel_type: ChannelType::Subworld.into(), ..Default::default() };
    for _ in 0..=rooms {
        say(&mut engine, (now, server), Header::new(0, message_type::CREATE_CHANNEL), &wanted);
    }
    // Numbers are given out from 1 on.
    let slow = rooms as u32 + 1;
    for number in 0..clients {
        let client = join(&mut engine, now, Side::Client);
        for (room, interval_ms) in [((number / ACTIVE) as u32 + 1, 20), (slow, 10_000)] {
            let options = ChannelSubscriptionOptions { fan_out_interval_ms: Some(interval_ms), ..Default::default() };
            let body = SubscribedToChannelMessage { conn_id: 0, sub_options: Some(options) };
            say(&mut engine, (now, client), Header::new(room, message_type::SUB_TO_CHANNEL), &body);
        }
    }
    for room in 1..=slow {
        update(&mut engine, (now, server), room, 1);
    }
    let mut run = |engine: &mut Engine, steps: u64| {
        let begin = Instant::now();
        for step in 0..steps {
            now = now.after(Duration::from_micros(STEP_US));
            update(engine, (now, server), 1, step);
            engine.advance(now);
            std::hint::black_box(engine.next_deadline());
        }
        begin.elapsed().as_secs_f64() * 1e6 / steps as f64
    };
    run(&mut engine, 500);
    run(&mut engine, STEPS)
}

fn main() {
    let [thousand, ten_thousand] = [1_000, 10_000].map(step_us);
    println!(
        "1,000 connections: {thousand:.1} us a step; 10,000: {ten_thousand:.1} us; {ACTIVE} are sent something every 20 ms"
    );
    println!("ratio {:.2}", ten_thousand / thousand);
}
