//! How long an engine is held up by a snapshot, and how long a gateway takes to start from it.
//!
//! 20,000 rooms with an object of 200 bytes each, and one room whose state is as large as a state may be.
#![allow(missing_docs)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use throng_channeld::proto::{Any, AuthMessage, ChannelDataUpdateMessage, ChannelType, CreateChannelMessage};
use throng_channeld::{Header, Messages, message_type, put_body};
use throng_gateway_engine::Engine;
use throng_gateway_engine::port::{Key, Outbox, Side};
use throng_gateway_engine::settings::EngineSettings;
use throng_gateway_engine::snapshot::{Framing, Records, Survey};
use throng_protostate::Schemas;
use throng_wire::Time;

const ROOMS: u32 = 20_000;
const NOW: Time = Time(1_000_000_000);

/// As the gateway asks for them.
const PART_BYTES: usize = 32 << 10;

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

fn say(engine: &mut Engine, from: Key, header: Header, body: &impl prost::Message) {
    let mut packet = Vec::new();
    put_body(&mut packet, header, body);
    for message in Messages::new(packet.into()) {
        engine.receive(NOW, from, message.expect("our own bytes"));
    }
}

/// An update with entries of a map: objects of `bytes` bytes.
fn objects(keys: std::ops::Range<u32>, bytes: u8) -> Any {
    let mut value = Vec::new();
    for key in keys {
        let key = key.to_le_bytes().map(|byte| byte & 0x7F);
        let content = [&[0x0A, bytes][..], &vec![b'x'; bytes.into()]].concat();
        let entry = [&[8, key[0] | 0x80, key[1] | 0x80, key[2], 0x12, content.len() as u8][..], &content].concat();
        value.push(0x0A);
        value.extend([entry.len() as u8 | 0x80, (entry.len() >> 7) as u8]);
        value.extend(entry);
    }
    Any { type_url: "type.googleapis.com/game.Room".into(), value: value.into() }
}

fn world(settings: &Arc<EngineSettings>) -> (Engine, u64) {
    let mut engine = Engine::new(Arc::clone(settings), Arc::new(Schemas::default()), 1, (NOW, 0));
    let address = "127.0.0.1:40000".parse().expect("an address");
    let server = engine.open(NOW, Side::Server, address, Box::new(Sink)).expect("there is room");
    let login = AuthMessage { player_identifier_token: "world".into(), ..Default::default() };
    say(&mut engine, server, Header::new(0, message_type::AUTH), &login);
    for _ in 0..=ROOMS {
        let data = Some(objects(1..2, 100));
        let create = CreateChannelMessage { channel_type: ChannelType::Subworld.into(), data, ..Default::default() };
        say(&mut engine, server, Header::new(0, message_type::CREATE_CHANNEL), &create);
    }
    engine.advance(NOW);
    let mut keys = 0;
    let small_bytes = engine.state_bytes();
    // Numbers are given out from 1 on.
    while engine.state_bytes() - small_bytes < 60 << 20 && keys < 1 << 20 {
        let update = ChannelDataUpdateMessage { data: Some(objects(keys..keys + 400, 100)), context_conn_id: 0 };
        say(&mut engine, server, Header::new(ROOMS + 1, message_type::CHANNEL_DATA_UPDATE), &update);
        keys += 400;
    }
    let bytes = engine.state_bytes();
    (engine, bytes)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn main() {
    let settings = EngineSettings { development: true, server_recovery: true, ..EngineSettings::default() };
    let settings = Arc::new(settings);
    let (mut engine, state_bytes) = world(&settings);
    let (mut file, mut took) = (Vec::new(), Vec::new());
    let mut framing = Framing::begin(&mut file);
    loop {
        let begin = Instant::now();
        if took.is_empty() {
            engine.begin_snapshot();
        }
        let part = engine.snapshot_part(PART_BYTES);
        took.push(begin.elapsed());
        framing.put(&part, &mut file);
        if part.is_last() {
            break;
        }
    }
    framing.end(&mut file);
    let all: Duration = took.iter().sum();
    let first = took[0];
    took.sort_unstable();
    let [median, p99, second, worst] =
        [took.len() / 2, took.len() * 99 / 100, took.len() - 2, took.len() - 1].map(|at| took[at]);
    println!("{} rooms, {} MiB of states, a file of {} MiB", ROOMS + 1, state_bytes >> 20, file.len() >> 20);
    println!(
        "{} parts in {:.0} ms of the engine: median {:.2} ms, p99 {:.2}, second worst {:.2}, worst {:.2} (the large state); first {:.2}",
        took.len(),
        ms(all),
        ms(median),
        ms(p99),
        ms(second),
        ms(worst),
        ms(first)
    );
    let begin = Instant::now();
    let survey = Survey::of(&file[..]).expect("it is whole");
    let surveyed = begin.elapsed();
    let mut engine = Engine::restored(settings, Arc::new(Schemas::default()), 1, (NOW, 0), &survey);
    let mut records = Records::new(&file[..]);
    while let Some(record) = records.read_next().expect("it is whole") {
        engine.restore(&record).expect("it fits");
    }
    let restored = engine.finish_restore();
    assert_eq!(restored.channels as u32, ROOMS + 2);
    println!("read in {:.0} ms, of which {:.0} ms to check it", ms(begin.elapsed()), ms(surveyed));
}
