//! Snapshots of a gateway: any bytes, and a genuine one with any bytes changed, also with checksums put right.
//!
//! The checks: nothing panics; a gateway that starts from one lets a server and a client in and passes a message on; what
//! it writes of itself is read again.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use throng_channeld::proto::{AuthMessage, ChannelDataUpdateMessage, ChannelType, CreateChannelMessage};
use throng_channeld::{Header, Messages, message_type, put_body};
use throng_gateway_engine::Engine;
use throng_gateway_engine::port::{AuthVerdict, Key, Outbox, Side};
use throng_gateway_engine::settings::EngineSettings;
use throng_gateway_engine::snapshot::{Framing, Records, SnapshotError, Survey};
use throng_protostate::Schemas;
use throng_wire::Time;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::choices::Choices;

static GENUINE: LazyLock<Vec<u8>> = LazyLock::new(genuine);

/// Bytes before the first record, and before the content of a record.
const BEGIN_BYTES: usize = 12;
const HEAD_BYTES: usize = 13;

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut file = match choices.below(8) {
        0 => choices.bytes(usize::MAX).to_vec(),
        _ => GENUINE.clone(),
    };
    match choices.below(4) {
        0 => choices.bend(&mut file),
        _ => file = bent_within(&mut choices, &file),
    }
    let mut engine = match start(&file) {
        Ok(engine) => engine,
        Err(error) => return assert!(!error.tag().is_empty() && !error.to_string().contains('\n')),
    };
    serve(&mut engine, Time(1_000));
    let again = snapshot(&mut engine);
    start(&again).expect("what a gateway writes it can read");
}

/// The content of records changed, with checksums that fit.
fn bent_within(choices: &mut Choices<'_>, file: &[u8]) -> Vec<u8> {
    let mut out = file[..BEGIN_BYTES].to_vec();
    let mut rest = &file[BEGIN_BYTES..];
    let mut number = 0;
    while let Some((head, more)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (content, more) = more.split_at(length);
        rest = more;
        let (mut kind, mut content) = (head[0], content.to_vec());
        if choices.below(4) == 0 {
            choices.bend(&mut content);
        }
        if choices.below(16) == 1 {
            kind = choices.byte() & 15;
        }
        if kind == 0 {
            content = u64::to_le_bytes(number).to_vec();
        }
        out.push(kind);
        out.extend((content.len() as u32).to_le_bytes());
        out.extend(xxh3_64_with_seed(&content, number << 8 | u64::from(kind)).to_le_bytes());
        out.extend(content);
        number += 1;
    }
    out
}

fn settings() -> Arc<EngineSettings> {
    Arc::new(EngineSettings { development: true, server_recovery: true, ..EngineSettings::default() })
}

fn start(file: &[u8]) -> Result<Engine, SnapshotError> {
    let survey = Survey::of(file)?;
    let mut engine = Engine::restored(settings(), Arc::new(Schemas::default()), 7, (Time(0), 0), &survey);
    let mut records = Records::new(file);
    while let Some(record) = records.read_next()? {
        engine.restore(&record)?;
    }
    engine.finish_restore();
    Ok(engine)
}

fn snapshot(engine: &mut Engine) -> Vec<u8> {
    let mut file = Vec::new();
    let mut framing = Framing::begin(&mut file);
    engine.begin_snapshot();
    loop {
        let part = engine.snapshot_part(100);
        framing.put(&part, &mut file);
        if part.is_last() {
            break;
        }
    }
    framing.end(&mut file);
    file
}

fn genuine() -> Vec<u8> {
    let mut engine = Engine::new(settings(), Arc::new(Schemas::default()), 7, (Time(0), 0));
    serve(&mut engine, Time(1_000));
    snapshot(&mut engine)
}

struct Nowhere;

impl Outbox for Nowhere {
    fn queued_bytes(&self) -> usize {
        0
    }

    fn send(&self, entries: &mut Vec<u8>) {
        entries.clear();
    }

    fn close(&self) {}
}

/// A server and a client log in, rooms are made, and something is written into them.
fn serve(engine: &mut Engine, now: Time) {
    let server = join(engine, now, Side::Server, "world");
    join(engine, now, Side::Client, "ada");
    for kind in [ChannelType::Global, ChannelType::Subworld] {
        let data =
            Some(throng_channeld::proto::Any { type_url: "x/y".into(), value: vec![8, 1, 0x12, 2, 8, 1].into() });
        let create = CreateChannelMessage {
            channel_type: kind.into(),
            metadata: "a room".into(),
            data: data.clone(),
            ..CreateChannelMessage::default()
        };
        say(engine, (now, server), Header::new(0, message_type::CREATE_CHANNEL), &create);
        let update = ChannelDataUpdateMessage { data, context_conn_id: 0 };
        say(engine, (now, server), Header::new(1, message_type::CHANNEL_DATA_UPDATE), &update);
    }
    engine.advance(now);
    engine.advance(Time(now.0 + 1_000_000));
}

fn join(engine: &mut Engine, now: Time, side: Side, name: &str) -> Key {
    let address: SocketAddr = "127.0.0.1:40000".parse().expect("an address");
    let key = engine.open(now, side, address, Box::new(Nowhere)).expect("there is room");
    let login = AuthMessage { player_identifier_token: name.into(), ..AuthMessage::default() };
    say(engine, (now, key), Header::new(0, message_type::AUTH), &login);
    while let Some(request) = engine.poll_auth() {
        engine.authenticated(now, request.key, AuthVerdict::Accepted);
    }
    key
}

fn say(engine: &mut Engine, (now, from): (Time, Key), header: Header, body: &impl prost::Message) {
    let mut packet = Vec::new();
    put_body(&mut packet, header, body);
    for message in Messages::new(packet.into()) {
        engine.receive(now, from, message.expect("our own bytes"));
    }
}
