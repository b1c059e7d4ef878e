//! Two edges behind slow and broken paths, clients that go from one to the other, and what everybody has in the end.
//!
//! The truth is what the server wrote, put together here. The checks: at every moment a player has one connection at the home;
//! calls come at most once, in order, and to whom they are for; nobody hears of a channel that it does not read; when the paths
//! are whole again, every client has the truth. Where edges only end in order, every call to a player who is there comes, and
//! players come back as who they were though nothing proves their names.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use prost::Message as _;
use throng_channeld::proto::unrealpb::{SpatialChannelData, SpatialEntityState, UnrealObjectRef};
use throng_channeld::proto::{
    Any, AuthMessage, AuthResultMessage, ChannelDataMergeOptions, ChannelDataUpdateMessage, ChannelSubscriptionOptions,
    ChannelType, CreateChannelMessage, ServerForwardMessage, SubscribedToChannelMessage,
    UnsubscribedFromChannelMessage, UnsubscribedFromChannelResultMessage,
};
use throng_channeld::{Broadcast, Header, Message, Messages, message_type};
use throng_gateway_engine::edge::{EdgeFault, EdgeKey, EdgeOutbox};
use throng_gateway_engine::port::{AuthVerdict, EndCause, Key, Side};
use throng_gateway_engine::{Coming, Engine};
use throng_protostate::Schemas;
use throng_wire::Time;

use crate::stage::{Line, LineOutbox, settings};

const CALL: u32 = 150;
const PLAYERS: usize = 8;
const ROOMS: u32 = 3;
/// How long a player waits before it tries again, in ms.
const RETRY_MS: u64 = 200;

/// Objects of a room and what was written last about each.
type Objects = BTreeMap<u32, u32>;

fn write(objects: &mut Objects, state: SpatialChannelData) {
    for (id, entity) in state.entities {
        match entity.removed {
            true => objects.remove(&id),
            false => objects.insert(id, entity.obj_ref.and_then(|object| object.owning_conn_id).unwrap_or_default()),
        };
    }
}

/// Frames on their way, in order.
#[derive(Default)]
struct Path(VecDeque<(u64, Bytes)>);

impl Path {
    fn put(&mut self, due_ms: u64, frame: Bytes) {
        let due_ms = self.0.back().map_or(due_ms, |&(last, _)| last.max(due_ms));
        self.0.push_back((due_ms, frame));
    }

    fn take(&mut self, now_ms: u64) -> Option<Bytes> {
        self.0.front().filter(|(due, _)| *due <= now_ms)?;
        self.0.pop_front().map(|(_, frame)| frame)
    }
}

#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<Bytes>>>);

impl EdgeOutbox for Sent {
    fn queued_bytes(&self) -> usize {
        0
    }

    fn send(&self, frame: Bytes) {
        self.0.lock().unwrap().push(frame);
    }

    fn close(&self, fault: EdgeFault) {
        panic!("{fault}");
    }
}

struct Edge {
    engine: Engine,
    link: Option<(EdgeKey, Sent)>,
    up: Path,
    down: Path,
    /// When there is a path again.
    back_ms: u64,
    slow_ms: u64,
    /// It has told its home that it ends.
    is_leaving: bool,
}

/// How edges and clients end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Paths break, clients are lost, and edges end in order.
    Any,
    /// Edges end in order, and nothing else ends.
    InOrder,
}

struct Player {
    name: String,
    /// The edge, the connection there, and what it was sent.
    at: Option<(usize, Key, Arc<Mutex<Line>>)>,
    id: u32,
    retry_ms: u64,
    rooms: BTreeMap<u32, Objects>,
    wanted: Vec<u32>,
    last_call: u32,
    /// Calls that came, and calls made while the home had its connection.
    calls: (Vec<u32>, Vec<u32>),
    returns: u32,
}

struct World {
    now_ms: u64,
    home: Engine,
    server: (Key, Arc<Mutex<Line>>),
    edges: Vec<Edge>,
    players: Vec<Player>,
    truth: BTreeMap<u32, Objects>,
    calls: u32,
    ends: Ends,
    leaves: u32,
    random: fastrand::Rng,
}

fn message(header: Header, body: &impl prost::Message) -> Message {
    let Header { channel_id, broadcast, stub_id, msg_type } = header;
    Message { channel_id, broadcast, stub_id, msg_type, body: body.encode_to_vec().into() }
}

impl World {
    fn new(seed: u64, ends: Ends) -> World {
        let limits = ["-limit", "client_resume_ms=60000"];
        let mut settings = settings(&[&["-dev", "-cfsm=client_authoratative_fsm.json"], &limits[..]].concat());
        // A player may be at the other edge before the home hears that the first one has lost it. An edge that ends in order
        // has told the home before.
        settings.proves_names = ends == Ends::Any;
        let settings = Arc::new(settings);
        let schemas = Arc::new(Schemas::from_descriptor_set(throng_channeld::proto::DESCRIPTORS).expect("sound"));
        let mut home = Engine::new(Arc::clone(&settings), Arc::clone(&schemas), seed, (Time(0), 0));
        let line = Arc::<Mutex<Line>>::default();
        let address = "127.0.0.1:40000".parse().expect("an address");
        let key = home.open(Time(0), Side::Server, address, Box::new(LineOutbox(Arc::clone(&line)))).expect("room");
        home.receive(Time(0), key, message(Header::new(0, message_type::AUTH), &AuthMessage::default()));
        home.advance(Time(0));
        let options = ChannelDataMergeOptions { should_check_removable_map_field: true, ..Default::default() };
        for _ in 0..ROOMS {
            let create = CreateChannelMessage {
                channel_type: ChannelType::Test.into(),
                merge_options: Some(options),
                data: Some(Any::pack(&SpatialChannelData::default())),
                ..Default::default()
            };
            home.receive(Time(0), key, message(Header::new(0, message_type::CREATE_CHANNEL), &create));
        }
        let edge = |number: u64| {
            let mut engine = Engine::new(Arc::clone(&settings), Arc::clone(&schemas), seed + number, (Time(0), 0));
            engine.set_edge();
            Edge {
                engine,
                link: None,
                up: Path::default(),
                down: Path::default(),
                back_ms: 0,
                slow_ms: 3,
                is_leaving: false,
            }
        };
        let edges = vec![edge(1), edge(2)];
        let player = |number: usize| Player {
            name: format!("player {number}"),
            at: None,
            id: 0,
            retry_ms: 0,
            rooms: BTreeMap::new(),
            wanted: vec![1 + number as u32 % ROOMS],
            last_call: 0,
            calls: (Vec::new(), Vec::new()),
            returns: 0,
        };
        let players = (0..PLAYERS).map(player).collect();
        let truth = (1..=ROOMS).map(|room| (room, Objects::new())).collect();
        let random = fastrand::Rng::with_seed(seed);
        World { now_ms: 0, home, server: (key, line), edges, players, truth, calls: 0, ends, leaves: 0, random }
    }

    fn now(&self) -> Time {
        Time(self.now_ms * 1_000)
    }

    /// A millisecond, with everything that is due in it.
    fn pass(&mut self) {
        self.now_ms += 1;
        let now = self.now();
        for edge in &mut self.edges {
            if edge.link.is_none() && edge.back_ms <= self.now_ms {
                let sent = Sent::default();
                let key = self.home.open_edge(now, Box::new(sent.clone()));
                edge.engine.linked(now, (self.home.edge_tick(now), 5));
                (edge.up, edge.down, edge.link) = (Path::default(), Path::default(), Some((key, sent)));
            }
            let Some((key, _)) = edge.link else { continue };
            while let Some(frame) = edge.up.take(self.now_ms) {
                self.home.hear_edge(now, key, frame).expect("the edge says sound things");
            }
        }
        self.home.advance(now);
        while let Some(request) = self.home.poll_auth() {
            self.home.authenticated(now, request.key, AuthVerdict::Accepted);
        }
        self.home.advance(now);
        while let Some(coming) = self.home.poll_coming() {
            assert!(!matches!(coming, Coming::Opened { address, .. } if address.port() == 0));
        }
        for edge in &mut self.edges {
            if let Some((_, sent)) = &edge.link {
                for frame in sent.0.lock().unwrap().drain(..) {
                    edge.down.put(self.now_ms + self.random.u64(1..=edge.slow_ms), frame);
                }
            }
            while let Some(frame) = edge.down.take(self.now_ms) {
                edge.engine.hear_home(now, frame).expect("the home says sound things");
            }
            edge.engine.advance(now);
            while let Some(frame) = edge.engine.poll_up() {
                edge.up.put(self.now_ms + self.random.u64(1..=edge.slow_ms), frame);
            }
            if edge.is_leaving && edge.engine.has_left() {
                edge.engine.shut_down(now);
                let away_ms = self.random.u64(1..800);
                edge.cut(&mut self.home, now, self.now_ms + away_ms);
                edge.engine.advance(now);
                self.leaves += 1;
            }
        }
        for number in 0..self.players.len() {
            self.play(number);
        }
        self.server.1.lock().unwrap().bytes.clear();
    }

    fn play(&mut self, number: usize) {
        let (now, now_ms) = (self.now(), self.now_ms);
        let player = &mut self.players[number];
        if player.at.is_none() && player.retry_ms <= now_ms {
            player.retry_ms = now_ms + RETRY_MS;
            let place = self.random.usize(..self.edges.len());
            let engine = &mut self.edges[place].engine;
            let line = Arc::<Mutex<Line>>::default();
            let address = "127.0.0.1:50000".parse().expect("an address");
            let outbox = Box::new(LineOutbox(Arc::clone(&line)));
            if let Ok(key) = engine.open(now, Side::Client, address, outbox) {
                let login = AuthMessage { player_identifier_token: player.name.clone(), ..Default::default() };
                engine.receive(now, key, message(Header::new(0, message_type::AUTH), &login));
                player.at = Some((place, key, line));
            }
        }
        let Some((place, key, line)) = player.at.clone() else { return };
        let bytes = std::mem::take(&mut line.lock().unwrap().bytes);
        for told in Messages::new(bytes.into()) {
            let told = told.expect("sound messages");
            if let Some(answer) = player.hear(&told) {
                self.edges[place].engine.receive(now, key, answer);
            }
        }
        let player = &mut self.players[number];
        if line.lock().unwrap().is_closed {
            player.at = None;
            player.retry_ms = now_ms + RETRY_MS;
        }
    }

    fn step(&mut self) {
        let now = self.now();
        let drawn = self.random.u8(..41);
        if self.ends == Ends::InOrder && matches!(drawn, 0 | 2) {
            return;
        }
        match drawn {
            // A path breaks, and the frames on it are lost.
            0 => {
                let (place, away_ms) = (self.random.usize(..self.edges.len()), self.random.u64(1..800));
                self.edges[place].cut(&mut self.home, now, self.now_ms + away_ms);
            }
            // An edge ends in order.
            40 => {
                let edge = self.random.choice(&mut self.edges).expect("there are edges");
                if edge.link.is_some() {
                    edge.engine.leave(now);
                    edge.is_leaving = true;
                }
            }
            1 => {
                let place = self.random.usize(..self.edges.len());
                self.edges[place].slow_ms = self.random.u64(1..40);
            }
            // A client's own network breaks.
            2 => {
                let number = self.random.usize(..PLAYERS);
                let player = &mut self.players[number];
                if let Some((place, key, _)) = player.at.take() {
                    self.edges[place].engine.closed(now, key, EndCause::Lost);
                    player.retry_ms = self.now_ms + self.random.u64(0..RETRY_MS);
                }
            }
            // It reads another room, or one less.
            3 | 4 => {
                let number = self.random.usize(..PLAYERS);
                let room = self.random.u32(1..=ROOMS);
                self.change_room(number, room);
            }
            5..8 => self.call(),
            _ => self.write(),
        }
    }

    fn change_room(&mut self, number: usize, room: u32) {
        let now = self.now();
        let player = &mut self.players[number];
        let Some((place, key, _)) = player.at.clone().filter(|_| player.id > 0 && player.is_settled()) else { return };
        let reads = player.wanted.contains(&room);
        player.wanted.retain(|&wanted| wanted != room);
        let said = match reads {
            true => message(
                Header::new(room, message_type::UNSUB_FROM_CHANNEL),
                &UnsubscribedFromChannelMessage { conn_id: 0 },
            ),
            false => {
                player.wanted.push(room);
                subscription(room)
            }
        };
        self.edges[place].engine.receive(now, key, said);
    }

    fn write(&mut self) {
        let room = self.random.u32(1..=ROOMS);
        let (id, stamp) = (self.random.u32(..6), self.random.u32(1..1_000_000));
        let object = UnrealObjectRef { owning_conn_id: Some(stamp), ..Default::default() };
        let entity = match self.random.u8(..4) {
            0 => SpatialEntityState { removed: true, ..Default::default() },
            _ => SpatialEntityState { obj_ref: Some(object), ..Default::default() },
        };
        let state = SpatialChannelData { entities: [(id, entity)].into() };
        let update = ChannelDataUpdateMessage { data: Some(Any::pack(&state)), context_conn_id: 0 };
        let said = message(Header::new(room, message_type::CHANNEL_DATA_UPDATE), &update);
        self.home.receive(self.now(), self.server.0, said);
        write(self.truth.entry(room).or_default(), state);
    }

    /// The server calls one player.
    fn call(&mut self) {
        let to = self.players[self.random.usize(..PLAYERS)].id;
        self.calls += 1;
        let mut payload = to.to_le_bytes().to_vec();
        payload.extend(self.calls.to_le_bytes());
        let body = ServerForwardMessage { client_conn_id: to, payload: payload.into() };
        let header = Header { broadcast: Broadcast::SINGLE_CONNECTION.0, ..Header::new(0, CALL) };
        if to > 0 {
            if self.home.connections().any(|connection| connection.id == to) {
                let called = self.players.iter_mut().find(|player| player.id == to).expect("a player");
                called.calls.1.push(self.calls);
            }
            self.home.receive(self.now(), self.server.0, message(header, &body));
        }
    }

    fn check(&self) {
        let mut ids: Vec<u32> = self.home.connections().map(|connection| connection.id).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "two connections have one number");
    }
}

impl Edge {
    /// Ends its path, with the frames on it.
    fn cut(&mut self, home: &mut Engine, now: Time, back_ms: u64) {
        self.is_leaving = false;
        if let Some((key, _)) = self.link.take() {
            home.close_edge(now, key);
            self.engine.unlinked(now);
            (self.up, self.down) = (Path::default(), Path::default());
            self.back_ms = back_ms;
        }
    }
}

fn subscription(room: u32) -> Message {
    let options = ChannelSubscriptionOptions { fan_out_interval_ms: Some(20), ..Default::default() };
    let wanted = SubscribedToChannelMessage { conn_id: 0, sub_options: Some(options) };
    message(Header::new(room, message_type::SUB_TO_CHANNEL), &wanted)
}

impl Player {
    /// Whether it reads what it wants, as far as it has heard.
    fn is_settled(&self) -> bool {
        self.rooms.len() == self.wanted.len() && self.wanted.iter().all(|room| self.rooms.contains_key(room))
    }

    /// The reaction to a message.
    fn hear(&mut self, told: &Message) -> Option<Message> {
        match told.msg_type {
            message_type::AUTH => {
                let answer: AuthResultMessage = told.decode().expect("an answer");
                assert!(answer.result == 0 && !answer.should_recover);
                if self.id == 0 {
                    self.id = answer.conn_id;
                    return Some(subscription(self.wanted[0]));
                }
                assert_eq!(answer.conn_id, self.id, "{} is who it was", self.name);
                self.returns += 1;
                // The answer to its wish to leave a room may have been lost.
                let Player { rooms, wanted, .. } = self;
                rooms.retain(|room, _| wanted.contains(room));
            }
            message_type::SUB_TO_CHANNEL => drop(self.rooms.insert(told.channel_id, Objects::new())),
            message_type::UNSUB_FROM_CHANNEL => {
                let ended: UnsubscribedFromChannelResultMessage = told.decode().expect("a result");
                assert_eq!(ended.conn_id, self.id);
                self.rooms.remove(&told.channel_id);
            }
            message_type::CHANNEL_DATA_UPDATE => {
                let update: ChannelDataUpdateMessage = told.decode().expect("an update");
                let value = update.data.expect("data").value;
                let room = self.rooms.get_mut(&told.channel_id);
                let room = room.unwrap_or_else(|| panic!("{} hears of room {}", self.name, told.channel_id));
                write(room, SpatialChannelData::decode(value).expect("the type of the room"));
            }
            CALL => {
                let call: ServerForwardMessage = told.decode().expect("a call");
                let number = |at: usize| u32::from_le_bytes(call.payload[at..at + 4].try_into().expect("four bytes"));
                assert_eq!(number(0), self.id, "it is for somebody else");
                assert!(number(4) > self.last_call, "call {} after {}", number(4), self.last_call);
                self.last_call = number(4);
                self.calls.0.push(number(4));
            }
            kind => panic!("nobody sends {kind}"),
        }
        None
    }
}

/// Lets a world run, and checks what everybody has at the end. How often players came back, how many were called, and how many
/// edges ended in order.
fn run(seed: u64, ends: Ends) -> (u32, u32, u32) {
    let mut world = World::new(seed, ends);
    for _ in 0..600 {
        world.step();
        for _ in 0..world.random.u32(1..8) {
            world.pass();
        }
        world.check();
    }
    world.edges.iter_mut().for_each(|edge| edge.back_ms = 0);
    for _ in 0..1_500 {
        world.pass();
        // One that was about to end has ended now.
        world.edges.iter_mut().filter(|edge| edge.link.is_none()).for_each(|edge| edge.back_ms = 0);
    }
    let (mut returns, mut calls) = (0, 0);
    for player in &world.players {
        assert!(player.at.is_some() && player.id > 0, "{} is not served", player.name);
        for (room, objects) in &player.rooms {
            assert_eq!(objects, &world.truth[room], "{} in room {room}", player.name);
        }
        if ends == Ends::InOrder {
            assert_eq!(player.calls.0, player.calls.1, "the calls to {}", player.name);
        }
        returns += player.returns;
        calls += u32::from(player.last_call > 0);
    }
    assert_eq!(world.home.occupancy().clients, PLAYERS);
    (returns, calls, world.leaves)
}

fn run_all(seeds: u64, ends: Ends) {
    let (mut returns, mut calls, mut leaves) = (0, 0, 0);
    throng_seeds::for_seeds(seeds, |seed| {
        let (more_returns, more_calls, more_leaves) = run(seed, ends);
        (returns, calls, leaves) = (returns + more_returns, calls + more_calls, leaves + more_leaves);
    });
    let is_enough = u64::from(returns) > 3 * seeds && u64::from(calls) > 3 * seeds && u64::from(leaves) > 3 * seeds;
    assert!(
        throng_seeds::is_partial() || is_enough,
        "{returns} came back, {calls} were called, {leaves} edges ended in order"
    );
}

#[test]
fn whatever_happens_to_paths_and_clients_everybody_ends_with_the_truth() {
    run_all(150, Ends::Any);
}

#[test]
fn edges_that_end_in_order_lose_no_call_and_nobody_comes_back_as_another_one() {
    run_all(150, Ends::InOrder);
}
