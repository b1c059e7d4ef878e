//! The frames between a gateway and an edge, with any bytes changed, and frames left out, doubled and exchanged.
//!
//! The checks: nothing panics; the gateway serves those who are connected to it; after a fault the path is closed, and over a
//! new one a client is served again.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use throng_channeld::proto::{
    AuthMessage, AuthResultMessage, ChannelDataUpdateMessage, ChannelSubscriptionOptions, ChannelType,
    CreateChannelMessage, SubscribedToChannelMessage,
};
use throng_channeld::{Header, Message, Messages, message_type};
use throng_gateway_engine::Engine;
use throng_gateway_engine::edge::{EdgeFault, EdgeKey, EdgeOutbox};
use throng_gateway_engine::port::{AuthVerdict, EndCause, Key, Outbox, Side};
use throng_gateway_engine::settings::EngineSettings;
use throng_protostate::Schemas;
use throng_wire::Time;

use super::choices::Choices;

/// The bytes that a connection was sent.
type Line = Arc<Mutex<Vec<u8>>>;

struct LineOutbox(Line);

impl Outbox for LineOutbox {
    fn queued_bytes(&self) -> usize {
        0
    }

    fn send(&self, entries: &mut Vec<u8>) {
        self.0.lock().expect("nobody panics").append(entries);
    }

    fn close(&self) {}
}

/// Frames on their way down.
#[derive(Clone, Default)]
struct Down(Arc<Mutex<Vec<Bytes>>>);

impl EdgeOutbox for Down {
    fn queued_bytes(&self) -> usize {
        0
    }

    fn send(&self, frame: Bytes) {
        self.0.lock().expect("nobody panics").push(frame);
    }

    fn close(&self, _fault: EdgeFault) {}
}

struct World {
    now: Time,
    home: Engine,
    edge: Engine,
    key: EdgeKey,
    down: Down,
    faults: usize,
}

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut world = World::new();
    let (server, ..) = world.join(Side::Server, "world");
    let create = CreateChannelMessage { channel_type: ChannelType::Global.into(), ..Default::default() };
    world.say(Side::Server, server, (0, message_type::CREATE_CHANNEL), &create);
    let mut clients: Vec<(Key, u32)> = Vec::new();
    for number in 0..24_u32 {
        match choices.below(6) {
            0 => clients.extend(world.try_join(&format!("client {number}")).map(|(key, id, _)| (key, id))),
            1 if !clients.is_empty() => {
                let (gone, _) = clients.swap_remove(choices.below(clients.len()));
                world.edge.closed(world.now, gone, EndCause::Lost);
            }
            2 if !clients.is_empty() => {
                let reader = clients[choices.below(clients.len())].1;
                let options = ChannelSubscriptionOptions {
                    fan_out_interval_ms: Some(choices.below(100) as u32),
                    ..Default::default()
                };
                let subscribe = SubscribedToChannelMessage { conn_id: reader, sub_options: Some(options) };
                world.say(Side::Server, server, (0, message_type::SUB_TO_CHANNEL), &subscribe);
            }
            _ => world.write(server, number),
        }
        let ms = u64::from(choices.byte());
        world.pass(&mut choices, ms);
    }
    // Both serve clients again over a new path.
    world.link();
    let (_, reader, line) = world.join(Side::Client, "last");
    let subscribe = SubscribedToChannelMessage { conn_id: reader, sub_options: None };
    world.say(Side::Server, server, (0, message_type::SUB_TO_CHANNEL), &subscribe);
    world.write(server, 4_711);
    for _ in 0..50 {
        world.settle();
        world.now = Time(world.now.0 + 5_000);
    }
    let told = std::mem::take(&mut *line.lock().expect("nobody panics"));
    let is_update = |message: &Message| message.msg_type == message_type::CHANNEL_DATA_UPDATE;
    let updates = Messages::new(told.into()).filter(|message| message.as_ref().is_ok_and(is_update)).count();
    assert!(updates > 0, "a client of a new path is served, after {} faults", world.faults);
}

impl World {
    fn new() -> World {
        let settings = EngineSettings { development: true, ..EngineSettings::default() };
        let schemas = Schemas::from_descriptor_set(throng_channeld::proto::DESCRIPTORS).expect("sound");
        let (settings, schemas) = (Arc::new(settings), Arc::new(schemas));
        let now = Time(1_000_000);
        let mut home = Engine::new(Arc::clone(&settings), Arc::clone(&schemas), 1, (now, 0));
        let mut edge = Engine::new(settings, schemas, 2, (now, 0));
        edge.set_edge();
        let down = Down::default();
        let key = home.open_edge(now, Box::new(down.clone()));
        let mut world = World { now, home, edge, key, down, faults: 0 };
        world.link();
        world
    }

    /// A new path, and the old one is over.
    fn link(&mut self) {
        self.home.close_edge(self.now, self.key);
        self.down = Down::default();
        self.key = self.home.open_edge(self.now, Box::new(self.down.clone()));
        self.edge.linked(self.now, (self.home.edge_tick(self.now), 5));
        self.edge.advance(self.now);
    }

    fn at(&mut self, side: Side) -> &mut Engine {
        match side {
            Side::Server => &mut self.home,
            Side::Client => &mut self.edge,
        }
    }

    fn join(&mut self, side: Side, name: &str) -> (Key, u32, Line) {
        let line = Line::default();
        let (now, outbox) = (self.now, Box::new(LineOutbox(Arc::clone(&line))));
        let address = "127.0.0.1:40000".parse().expect("an address");
        let key = self.at(side).open(now, side, address, outbox).expect("there is room");
        let login = AuthMessage { player_identifier_token: name.into(), ..Default::default() };
        self.say(side, key, (0, message_type::AUTH), &login);
        self.settle();
        let told = line.lock().expect("nobody panics").clone();
        let answer = Messages::new(told.into()).next().and_then(Result::ok);
        let answer = answer.and_then(|answer| answer.decode::<AuthResultMessage>().ok());
        (key, answer.map_or(0, |answer| answer.conn_id), line)
    }

    fn try_join(&mut self, name: &str) -> Option<(Key, u32, Line)> {
        self.edge.is_linked().then(|| self.join(Side::Client, name))
    }

    fn say(&mut self, side: Side, from: Key, (channel, msg_type): (u32, u32), body: &impl prost::Message) {
        let Header { channel_id, broadcast, stub_id, .. } = Header::new(channel, msg_type);
        let message = Message { channel_id, broadcast, stub_id, msg_type, body: body.encode_to_vec().into() };
        let now = self.now;
        self.at(side).receive(now, from, message);
    }

    fn write(&mut self, server: Key, value: u32) {
        let data =
            throng_channeld::proto::unrealpb::SpawnObjectMessage { channel_id: Some(value), ..Default::default() };
        let data = throng_channeld::proto::Any::pack(&data);
        let update = ChannelDataUpdateMessage { data: Some(data), context_conn_id: 0 };
        self.say(Side::Server, server, (0, message_type::CHANNEL_DATA_UPDATE), &update);
    }

    /// Does everything that is due, and carries all frames unchanged.
    fn settle(&mut self) {
        for _ in 0..4 {
            self.advance();
            let up: Vec<Bytes> = std::iter::from_fn(|| self.edge.poll_up()).collect();
            up.into_iter().for_each(|frame| self.hear_edge(frame));
            self.advance();
            let down = std::mem::take(&mut *self.down.0.lock().expect("nobody panics"));
            down.into_iter().for_each(|frame| self.hear_home(frame));
        }
    }

    fn advance(&mut self) {
        self.home.advance(self.now);
        while let Some(request) = self.home.poll_auth() {
            self.home.authenticated(self.now, request.key, AuthVerdict::Accepted);
        }
        while self.home.poll_coming().is_some() {}
        self.home.advance(self.now);
        self.edge.advance(self.now);
    }

    /// Time passes, and frames come as it happens.
    fn pass(&mut self, choices: &mut Choices<'_>, ms: u64) {
        self.now = Time(self.now.0 + ms * 1_000);
        self.advance();
        let up = std::iter::from_fn(|| self.edge.poll_up()).collect();
        mishandled(choices, up).into_iter().for_each(|frame| self.hear_edge(frame));
        self.advance();
        let down = std::mem::take(&mut *self.down.0.lock().expect("nobody panics"));
        mishandled(choices, down).into_iter().for_each(|frame| self.hear_home(frame));
        self.advance();
    }

    fn hear_edge(&mut self, frame: Bytes) {
        if let Err(fault) = self.home.hear_edge(self.now, self.key, frame) {
            self.fail(fault);
        }
    }

    fn hear_home(&mut self, frame: Bytes) {
        if self.edge.is_linked()
            && let Err(fault) = self.edge.hear_home(self.now, frame)
        {
            self.fail(fault);
        }
    }

    fn fail(&mut self, fault: EdgeFault) {
        assert!(!fault.tag().is_empty() && !fault.to_string().contains('\n'));
        self.faults += 1;
        self.link();
    }
}

/// Frames left out, doubled, exchanged and bent.
fn mishandled(choices: &mut Choices<'_>, frames: Vec<Bytes>) -> Vec<Bytes> {
    let mut out: Vec<Bytes> = Vec::new();
    for frame in frames {
        match choices.below(16) {
            0 => {}
            1 => out.extend([frame.clone(), frame]),
            2 => out.insert(0, frame),
            3 | 4 => {
                let mut bytes = frame.to_vec();
                choices.bend(&mut bytes);
                out.push(bytes.into());
            }
            _ => out.push(frame),
        }
    }
    out
}
