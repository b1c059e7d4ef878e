//! A gateway without sockets, in virtual time: what each connection was sent is a list.
#![allow(dead_code)] // each test file uses its part

pub(crate) mod world;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use throng_channeld::proto::{
    Any, AuthMessage, AuthResultMessage, ChannelDataMergeOptions, ChannelDataUpdateMessage, ChannelSubscriptionOptions,
    ChannelType, CreateChannelMessage, CreateChannelResultMessage, SubscribedToChannelMessage,
};
use throng_channeld::{Header, Message, Messages, message_type};
use throng_gateway_engine::Engine;
use throng_gateway_engine::edge::{EdgeFault, EdgeKey, EdgeOutbox, FRAME_MAX_BYTES};
use throng_gateway_engine::port::{AuthVerdict, EndCause, Key, Outbox, Side};
use throng_gateway_engine::settings::EngineSettings;
use throng_protostate::Schemas;
use throng_wire::Time;

/// Random worlds of the longest test.
pub(crate) const WORLDS: u64 = 1_000;

/// The messages that a connection got and has not read, and whether it was closed.
#[derive(Default)]
pub(crate) struct Line {
    pub(crate) bytes: Vec<u8>,
    /// How often something was handed over.
    pub(crate) writes: usize,
    pub(crate) is_closed: bool,
    /// The gateway has thrown away what waited.
    pub(crate) is_abandoned: bool,
    /// The kernel takes nothing from it.
    pub(crate) is_stuck: bool,
    stuck_bytes: usize,
}

pub(crate) struct LineOutbox(pub(crate) Arc<Mutex<Line>>);

impl Outbox for LineOutbox {
    fn queued_bytes(&self) -> usize {
        self.0.lock().unwrap().stuck_bytes
    }

    fn send(&self, entries: &mut Vec<u8>) {
        let mut line = self.0.lock().unwrap();
        line.writes += 1;
        if line.is_stuck {
            line.stuck_bytes += entries.len();
        }
        line.bytes.append(entries);
    }

    fn close(&self) {
        self.0.lock().unwrap().is_closed = true;
    }

    fn abandon(&self) {
        let mut line = self.0.lock().unwrap();
        (line.is_abandoned, line.stuck_bytes) = (true, 0);
    }
}

/// One end of a connection, as its peer.
#[derive(Clone)]
pub(crate) struct Peer {
    /// In the gateway, or in its edge.
    pub(crate) key: Key,
    pub(crate) side: Side,
    /// The connection id that the gateway gave it.
    pub(crate) id: u32,
    pub(crate) line: Arc<Mutex<Line>>,
}

/// A gateway and its clock, where clients connect to it.
pub(crate) type Stage = StageOf<false>;

/// A gateway and its clock. With an edge, all clients are there.
pub(crate) struct StageOf<const EDGE: bool> {
    pub(crate) engine: Engine,
    pub(crate) edge: Option<Edge>,
    pub(crate) now: Time,
    /// The provider's answer to everybody.
    pub(crate) verdict: AuthVerdict,
}

/// Arguments that most tests begin with: known connection ids, clients that may subscribe and write.
pub(crate) fn open_settings() -> EngineSettings {
    settings(&["-dev", "-cfsm=client_authoratative_fsm.json"])
}

pub(crate) fn settings(arguments: &[&str]) -> EngineSettings {
    throng_gateway::settings::load(arguments).expect("the arguments are sound").engine
}

/// The same with files that are nowhere but here.
pub(crate) fn settings_with(arguments: &[&str], files: &[(&str, &str)]) -> EngineSettings {
    let read = |name: &str| {
        let file = files.iter().find(|(known, _)| *known == name);
        file.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| std::io::ErrorKind::NotFound.into())
    };
    throng_gateway::settings::load_with(arguments, &read).expect("the arguments and files are sound").engine
}

/// The spatial controller of `columns` times `rows` cells of 10 m, shared among this many servers.
pub(crate) fn grid_file((columns, rows): (u32, u32), (server_columns, server_rows): (u32, u32)) -> String {
    format!(
        r#"{{"SpatialControllerType": "StaticGrid2DSpatialController", "Config": {{
            "WorldOffsetX": 0, "WorldOffsetZ": 0, "GridWidth": 10, "GridHeight": 10,
            "GridCols": {columns}, "GridRows": {rows}, "ServerCols": {server_columns}, "ServerRows": {server_rows},
            "ServerInterestBorderSize": 0}}}}"#
    )
}

impl<const EDGE: bool> StageOf<EDGE> {
    pub(crate) fn new(settings: EngineSettings) -> Self {
        Self::with_schemas(settings, Schemas::default())
    }

    pub(crate) fn with_schemas(settings: EngineSettings, mut schemas: Schemas) -> Self {
        schemas
            .add(Schemas::from_descriptor_set(throng_channeld::proto::DESCRIPTORS).expect("our own files are sound"));
        let now = Time::from_secs(1_000);
        let (settings, schemas) = (Arc::new(settings), Arc::new(schemas));
        let mut engine = Engine::new(Arc::clone(&settings), Arc::clone(&schemas), 7, (now, 0));
        let edge = EDGE.then(|| Edge::new(&mut engine, (settings, schemas), now));
        StageOf { engine, edge, now, verdict: AuthVerdict::Accepted }
    }

    /// Where connections of this side are.
    pub(crate) fn engine_of(&mut self, side: Side) -> &mut Engine {
        match &mut self.edge {
            Some(edge) if side == Side::Client => &mut edge.engine,
            _ => &mut self.engine,
        }
    }

    /// A connection that has not said anything yet.
    pub(crate) fn connect(&mut self, side: Side) -> Peer {
        self.connect_from(side, "127.0.0.1:40000")
    }

    /// The same, from another address.
    pub(crate) fn connect_from(&mut self, side: Side, address: &str) -> Peer {
        let line = Arc::new(Mutex::new(Line::default()));
        let address = address.parse().expect("an address");
        let (now, outbox) = (self.now, Box::new(LineOutbox(Arc::clone(&line))));
        let key = self.engine_of(side).open(now, side, address, outbox).expect("room");
        Peer { key, side, id: 0, line }
    }

    /// A connection that logs in under a name; messages meanwhile are discarded.
    pub(crate) fn join_as(&mut self, side: Side, name: &str) -> Peer {
        let mut peer = self.connect(side);
        let result = self.authenticate(&mut peer, name);
        assert_eq!(result.result, 0, "{name} is let in");
        peer
    }

    pub(crate) fn server(&mut self) -> Peer {
        self.join_as(Side::Server, "server")
    }

    pub(crate) fn client(&mut self) -> Peer {
        self.join_as(Side::Client, "client")
    }

    /// A server that owns the global channel, with nothing left to read.
    pub(crate) fn master(&mut self) -> Peer {
        let master = self.server();
        let create = CreateChannelMessage { channel_type: ChannelType::Global.into(), ..Default::default() };
        self.say(&master, Header::new(0, message_type::CREATE_CHANNEL), &create);
        self.read(&master);
        master
    }

    pub(crate) fn authenticate(&mut self, peer: &mut Peer, name: &str) -> AuthResultMessage {
        let auth =
            AuthMessage { player_identifier_token: name.into(), login_token: "secret".into(), ..Default::default() };
        self.say(peer, Header::new(0, message_type::AUTH), &auth);
        let messages = self.read(peer);
        let answer = messages.iter().find(|message| message.msg_type == message_type::AUTH).expect("an answer");
        let answer: AuthResultMessage = answer.decode().expect("an AuthResultMessage");
        peer.id = answer.conn_id;
        answer
    }

    /// Sends a message and lets the gateway do what it has to do at once.
    pub(crate) fn say(&mut self, from: &Peer, header: Header, body: &impl prost::Message) {
        self.say_bytes(from, header, body.encode_to_vec());
    }

    pub(crate) fn say_bytes(&mut self, from: &Peer, header: Header, body: impl Into<Bytes>) {
        let Header { channel_id, broadcast, stub_id, msg_type } = header;
        let message = Message { channel_id, broadcast, stub_id, msg_type, body: body.into() };
        self.receive(from, message);
        self.settle();
    }

    /// Something has come from a peer, and nothing is done yet but what is done at once.
    pub(crate) fn receive(&mut self, from: &Peer, message: Message) {
        let now = self.now;
        self.engine_of(from.side).receive(now, from.key, message);
    }

    /// Sends a request, and returns everything that its sender receives at once.
    pub(crate) fn ask(&mut self, from: &Peer, header: Header, body: &impl prost::Message) -> Vec<Message> {
        self.read(from);
        self.say(from, header, body);
        self.read(from)
    }

    /// Asks with a stub, and gives the answer that repeats it, if there is one.
    pub(crate) fn answer<M: prost::Message + Default>(
        &mut self,
        from: &Peer,
        header: Header,
        body: &impl prost::Message,
    ) -> Option<M> {
        let told = self.ask(from, header.with_stub(0x5AB), body);
        let mut answers = told.iter().filter(|message| message.stub_id == 0x5AB);
        let answer = answers.next()?;
        assert!(answers.next().is_none(), "one answer for one question");
        assert_eq!((answer.channel_id, answer.msg_type), (header.channel_id, header.msg_type));
        Some(answer.decode().expect("the answer's type"))
    }

    /// Everything that is due now, with a provider that lets everybody in.
    pub(crate) fn settle(&mut self) {
        self.carry_up();
        self.engine.advance(self.now);
        while let Some(request) = self.engine.poll_auth() {
            self.engine.authenticated(self.now, request.key, self.verdict);
        }
        self.engine.advance(self.now);
        while self.carry_down() {
            self.engine.advance(self.now);
        }
    }

    /// Hands the gateway what its edge says.
    fn carry_up(&mut self) -> bool {
        let Some(edge) = &mut self.edge else { return false };
        let mut has_any = false;
        while let Some(frame) = edge.engine.poll_up() {
            has_any = true;
            edge.up_bytes += frame.len();
            self.engine.hear_edge(self.now, edge.key, frame).expect("the edge says sound things");
        }
        has_any
    }

    /// Lets the edge do what the gateway says, and hands the gateway what it says to that, if it does.
    fn carry_down(&mut self) -> bool {
        let Some(edge) = &mut self.edge else { return false };
        for frame in std::mem::take(&mut *edge.down.lock().unwrap()) {
            assert!(frame.len() <= FRAME_MAX_BYTES);
            edge.down_bytes += frame.len();
            edge.engine.hear_home(self.now, frame).expect("the home says sound things");
        }
        edge.engine.advance(self.now);
        self.carry_up()
    }

    /// The gateway and its edge do what is due, each by itself; `send` is given their frames, and whether they go up.
    pub(crate) fn advance_apart(&mut self, send: &mut impl FnMut(bool, Bytes)) {
        self.engine.advance(self.now);
        while let Some(request) = self.engine.poll_auth() {
            self.engine.authenticated(self.now, request.key, self.verdict);
        }
        self.engine.advance(self.now);
        let Some(edge) = &mut self.edge else { return };
        std::mem::take(&mut *edge.down.lock().unwrap()).into_iter().for_each(|frame| send(false, frame));
        edge.engine.advance(self.now);
        while let Some(frame) = edge.engine.poll_up() {
            send(true, frame);
        }
    }

    /// Another edge in place of the present one, which is lost.
    pub(crate) fn exchange_edge(&mut self, slack_ticks: u32) {
        let edge = self.edge.as_mut().expect("an edge");
        self.engine.close_edge(self.now, edge.key);
        edge.engine.linked(self.now, (self.engine.edge_tick(self.now), slack_ticks));
        edge.down.lock().unwrap().clear();
        edge.key =
            self.engine.open_edge(self.now, Box::new(Down(Arc::clone(&edge.down), Arc::clone(&edge.queued_bytes))));
        self.settle();
    }

    /// A frame of the edge has come.
    pub(crate) fn hear_edge(&mut self, frame: Bytes) {
        let key = self.edge.as_ref().expect("an edge").key;
        self.engine.hear_edge(self.now, key, frame).expect("the edge says sound things");
        self.engine.advance(self.now);
    }

    /// A frame of the gateway has come to the edge.
    pub(crate) fn hear_home(&mut self, frame: Bytes) {
        let edge = self.edge.as_mut().expect("an edge");
        edge.engine.hear_home(self.now, frame).expect("the home says sound things");
        edge.engine.advance(self.now);
    }

    fn next_deadline(&self) -> Option<Time> {
        let edge = self.edge.as_ref().and_then(|edge| edge.engine.next_deadline());
        [self.engine.next_deadline(), edge].into_iter().flatten().min()
    }

    /// Lets time pass, stopping wherever the gateway wants to do something.
    pub(crate) fn pass(&mut self, ms: u64) {
        let end = self.now.after(Duration::from_millis(ms));
        for _ in 0..100_000 {
            let next = self.next_deadline().map_or(end, |deadline| deadline.min(end));
            self.now = next.max(self.now.after(Duration::from_micros(100))).min(end);
            self.settle();
            if self.now >= end {
                return;
            }
        }
        panic!("the gateway never rests");
    }

    /// Lets what may wait for state that is due go out.
    pub(crate) fn let_go(&mut self) {
        self.pass(20);
    }

    /// Everything that a connection was sent since the last time.
    pub(crate) fn read(&mut self, peer: &Peer) -> Vec<Message> {
        let bytes = std::mem::take(&mut peer.line.lock().unwrap().bytes);
        Messages::new(bytes.into()).map(|message| message.expect("the gateway sends sound messages")).collect()
    }

    /// The same, of one type only.
    pub(crate) fn read_type(&mut self, peer: &Peer, msg_type: u32) -> Vec<Message> {
        self.read(peer).into_iter().filter(|message| message.msg_type == msg_type).collect()
    }

    /// State updates of a channel that came since the last time, decoded as `M`.
    pub(crate) fn updates<M: prost::Message + Default>(&mut self, peer: &Peer, channel: u32) -> Vec<M> {
        let messages = self.read_type(peer, message_type::CHANNEL_DATA_UPDATE);
        let of_channel = messages.into_iter().filter(|message| message.channel_id == channel);
        of_channel
            .map(|message| {
                let update: ChannelDataUpdateMessage = message.decode().expect("an update");
                M::decode(update.data.expect("data").value).expect("the type of the channel")
            })
            .collect()
    }

    /// Makes a channel; its id.
    pub(crate) fn create(&mut self, from: &Peer, kind: ChannelType, data: Option<Any>) -> u32 {
        let create = CreateChannelMessage { channel_type: kind.into(), data, ..Default::default() };
        self.say(from, Header::new(0, message_type::CREATE_CHANNEL).with_stub(77), &create);
        let messages = self.read(from);
        let answer = messages.iter().find(|message| message.stub_id == 77).expect("an answer with the stub");
        let answer: CreateChannelResultMessage = answer.decode().expect("a result");
        answer.channel_id
    }

    /// Makes a channel that removes entries of maps; the answer stays to be read.
    pub(crate) fn create_with_removals(&mut self, from: &Peer) {
        let options = ChannelDataMergeOptions { should_check_removable_map_field: true, ..Default::default() };
        let create = CreateChannelMessage {
            channel_type: ChannelType::Test.into(),
            merge_options: Some(options),
            ..Default::default()
        };
        self.say(from, Header::new(0, message_type::CREATE_CHANNEL), &create);
    }

    /// Subscribes a connection, itself or by a server; answers stay to be read.
    pub(crate) fn subscribe(&mut self, from: &Peer, target: &Peer, channel: u32, options: ChannelSubscriptionOptions) {
        let subscribe = SubscribedToChannelMessage { conn_id: target.id, sub_options: Some(options) };
        self.say(from, Header::new(channel, message_type::SUB_TO_CHANNEL), &subscribe);
    }

    pub(crate) fn update(&mut self, from: &Peer, channel: u32, data: Any) {
        let update = ChannelDataUpdateMessage { data: Some(data), context_conn_id: 0 };
        self.say(from, Header::new(channel, message_type::CHANNEL_DATA_UPDATE), &update);
    }

    /// The same without doing anything at once.
    pub(crate) fn write(&mut self, from: &Peer, channel: u32, data: Any) {
        let body = ChannelDataUpdateMessage { data: Some(data), context_conn_id: 0 };
        self.write_message(from, Header::new(channel, message_type::CHANNEL_DATA_UPDATE), &body);
    }

    /// A message, of which nothing is done at once.
    pub(crate) fn write_message(&mut self, from: &Peer, header: Header, body: &impl prost::Message) {
        let Header { channel_id, broadcast, stub_id, msg_type } = header;
        let body = body.encode_to_vec().into();
        self.receive(from, Message { channel_id, broadcast, stub_id, msg_type, body });
    }

    pub(crate) fn drop_connection(&mut self, peer: &Peer, cause: EndCause) {
        let now = self.now;
        self.engine_of(peer.side).closed(now, peer.key, cause);
        self.settle();
    }

    /// Whether there is nothing to do for long, if nothing comes.
    pub(crate) fn is_at_rest(&self) -> bool {
        let soon = self.now.after(Duration::from_secs(600));
        self.next_deadline().is_none_or(|deadline| deadline > soon)
    }

    /// How often something was refused for this reason.
    pub(crate) fn refused(&self, tag: &str) -> u64 {
        self.engine.counters().refused.get(tag).copied().unwrap_or_default()
    }
}

/// An edge of the gateway, and the path to it, which takes no time.
pub(crate) struct Edge {
    pub(crate) engine: Engine,
    pub(crate) key: EdgeKey,
    pub(crate) down: Arc<Mutex<Vec<Bytes>>>,
    /// Bytes that the path says it has not taken.
    pub(crate) queued_bytes: Arc<AtomicUsize>,
    pub(crate) up_bytes: usize,
    pub(crate) down_bytes: usize,
}

pub(crate) struct Down(pub(crate) Arc<Mutex<Vec<Bytes>>>, pub(crate) Arc<AtomicUsize>);

impl EdgeOutbox for Down {
    fn queued_bytes(&self) -> usize {
        self.1.load(Ordering::Relaxed)
    }

    fn send(&self, frame: Bytes) {
        self.0.lock().unwrap().push(frame);
    }

    fn close(&self, _fault: EdgeFault) {}
}

impl Edge {
    pub(crate) fn new(home: &mut Engine, (settings, schemas): (Arc<EngineSettings>, Arc<Schemas>), now: Time) -> Edge {
        let down = Arc::<Mutex<Vec<Bytes>>>::default();
        let mut engine = Engine::new(settings, schemas, 8, (now, 0));
        engine.set_edge();
        engine.linked(now, (home.edge_tick(now), 0));
        let queued_bytes = Arc::<AtomicUsize>::default();
        let key = home.open_edge(now, Box::new(Down(Arc::clone(&down), Arc::clone(&queued_bytes))));
        Edge { engine, key, down, queued_bytes, up_bytes: 0, down_bytes: 0 }
    }
}

impl Peer {
    /// From now on the kernel takes nothing from this connection.
    pub(crate) fn stop_reading(&self) {
        self.line.lock().unwrap().is_stuck = true;
    }

    /// From now on the kernel accepts nothing from this connection, and this many bytes are waiting already.
    pub(crate) fn stall(&self, bytes: usize) {
        let mut line = self.line.lock().unwrap();
        line.is_stuck = true;
        line.stuck_bytes = bytes;
    }

    /// It takes everything that has been waiting.
    pub(crate) fn read_on(&self) {
        let mut line = self.line.lock().unwrap();
        line.is_stuck = false;
        line.stuck_bytes = 0;
    }

    /// The kernel takes this many of the bytes that wait.
    pub(crate) fn takes(&self, bytes: usize) {
        let mut line = self.line.lock().unwrap();
        line.stuck_bytes = line.stuck_bytes.saturating_sub(bytes);
    }

    /// Bytes that the kernel has not taken.
    pub(crate) fn waiting(&self) -> usize {
        self.line.lock().unwrap().stuck_bytes
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.line.lock().unwrap().is_closed
    }
}

/// Options with an interval.
pub(crate) fn every(interval_ms: u32) -> ChannelSubscriptionOptions {
    ChannelSubscriptionOptions { fan_out_interval_ms: Some(interval_ms), ..Default::default() }
}
