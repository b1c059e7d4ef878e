//! Several engines with the channels shared out among them: what each peer is told, and in which order, whatever the
//! engines' queues do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::stage::{Line, LineOutbox, every, settings};
use throng_channeld::proto::{
    Any, AuthMessage, AuthResultMessage, ChannelDataUpdateMessage, ChannelType, CreateChannelMessage,
    CreateChannelResultMessage, ListChannelMessage, ListChannelResultMessage, RemoveChannelMessage,
    ServerForwardMessage, SubscribedToChannelMessage,
};
use throng_channeld::{Header, Message, Messages, message_type};
use throng_gateway_engine::port::{EndCause, Key, Side};
use throng_gateway_engine::shards::{Route, Session, Shards};
use throng_gateway_engine::{Engine, Member};
use throng_protostate::Schemas;
use throng_wire::Time;

/// Something in the queue of an engine.
enum Event {
    Join {
        peer: usize,
        member: Arc<Member>,
    },
    Sorted {
        peer: usize,
        message: Message,
    },
    Unsorted {
        peer: usize,
        message: Message,
    },
    /// Everything that the peer said before is in front of this.
    Fence {
        peer: usize,
    },
    Closed {
        peer: usize,
    },
    Master(Option<u32>),
}

struct Peer {
    line: Arc<std::sync::Mutex<Line>>,
    keys: Vec<Option<Key>>,
    /// It has logged in.
    is_member: bool,
    session: Option<Session>,
    /// Its messages while the first engine makes its session.
    waits: Option<Vec<Message>>,
    /// Its number in the protocol.
    id: u32,
}

/// Engines, each with a queue, and time that is the same for all. The queues advance in any order.
struct Fleet {
    engines: Vec<Engine>,
    queues: Vec<VecDeque<Event>>,
    peers: Vec<Peer>,
    shards: Shards,
    now: Time,
    master: Option<u32>,
    random: fastrand::Rng,
}

impl Fleet {
    fn new(count: u32, seed: u64) -> Fleet {
        Fleet::with(count, seed, &[])
    }

    fn with(count: u32, seed: u64, flags: &[&str]) -> Fleet {
        let flags = [&["-dev", "-cfsm=client_authoratative_fsm.json"], flags].concat();
        let settings = Arc::new(settings(&flags));
        let shards = Shards::new(count, settings.spatial_channel_start);
        let now = Time::from_secs(1_000);
        let engine = |number| {
            let mut engine = Engine::new(Arc::clone(&settings), Arc::new(Schemas::default()), 7, (now, 0));
            engine.set_share(number, shards.clone());
            engine
        };
        Fleet {
            engines: (0..count).map(engine).collect(),
            queues: (0..count).map(|_| VecDeque::new()).collect(),
            peers: Vec::new(),
            now,
            master: None,
            random: fastrand::Rng::with_seed(seed),
            shards,
        }
    }

    fn join(&mut self, side: Side) -> usize {
        let peer = self.connect(side);
        self.say(peer, Header::new(0, message_type::AUTH), &AuthMessage::default());
        self.settle();
        let answer = self.read(peer).into_iter().find(|message| message.msg_type == message_type::AUTH);
        let answer: AuthResultMessage = answer.expect("an answer").decode().expect("an AuthResultMessage");
        self.peers[peer].id = answer.conn_id;
        peer
    }

    fn connect(&mut self, side: Side) -> usize {
        let line = Arc::new(std::sync::Mutex::new(Line::default()));
        let address = "127.0.0.1:40000".parse().expect("an address");
        let outbox = Box::new(LineOutbox(Arc::clone(&line)));
        let key = self.engines[0].open(self.now, side, address, outbox).expect("there is room");
        let mut keys = vec![None; self.engines.len()];
        keys[0] = Some(key);
        self.peers.push(Peer { line, keys, is_member: false, session: None, waits: None, id: 0 });
        self.peers.len() - 1
    }

    fn say(&mut self, peer: usize, header: Header, body: &impl prost::Message) {
        let Header { channel_id, broadcast, stub_id, msg_type } = header;
        let message = Message { channel_id, broadcast, stub_id, msg_type, body: body.encode_to_vec().into() };
        self.sort_or_wait(peer, message);
    }

    fn sort_or_wait(&mut self, peer: usize, message: Message) {
        if self.peers[peer].is_member && self.peers[peer].session.is_none() && self.peers[peer].waits.is_none() {
            self.peers[peer].waits = Some(Vec::new());
            self.queues[0].push_back(Event::Fence { peer });
        }
        match &mut self.peers[peer].waits {
            Some(waits) => waits.push(message),
            None => self.sort(peer, message),
        }
    }

    fn sort(&mut self, peer: usize, message: Message) {
        let Some(session) = &mut self.peers[peer].session else {
            return self.queues[0].push_back(Event::Unsorted { peer, message });
        };
        match session.route(&message) {
            Route::To(engine) => self.queues[engine as usize].push_back(Event::Sorted { peer, message }),
            Route::ToAll => {
                for queue in &mut self.queues {
                    queue.push_back(Event::Sorted { peer, message: message.clone() });
                }
            }
            Route::Forbidden => {
                let key = self.peers[peer].keys[0].expect("it is known");
                self.engines[0].violated(self.now, key);
            }
        }
    }

    /// One engine does some of what waits for it, and what is due.
    fn turn(&mut self, number: usize) {
        for _ in 0..self.random.usize(0..4) {
            let Some(event) = self.queues[number].pop_front() else { break };
            self.handle(number, event);
        }
        let engine = &mut self.engines[number];
        while let Some(request) = engine.poll_auth() {
            engine.authenticated(self.now, request.key, throng_gateway_engine::port::AuthVerdict::Accepted);
        }
        self.share_out(number);
        if number == 0 && self.engines[0].master_id() != self.master {
            self.master = self.engines[0].master_id();
            self.queues[1..].iter_mut().for_each(|queue| queue.push_back(Event::Master(self.master)));
        }
        self.engines[number].advance(self.now);
    }

    /// Tells the other engines what they have to know.
    fn share_out(&mut self, number: usize) {
        while let Some(member) = self.engines[number].poll_member() {
            let peer = self.peers.iter().position(|peer| peer.keys[0] == Some(member.key)).expect("it is here");
            self.peers[peer].is_member = true;
            let member = Arc::new(member);
            for queue in &mut self.queues[1..] {
                queue.push_back(Event::Join { peer, member: Arc::clone(&member) });
            }
        }
        while let Some(misrouted) = self.engines[number].poll_misrouted() {
            let peer = self.peers.iter().position(|peer| peer.keys[0] == Some(misrouted.key)).expect("it is here");
            self.queues[misrouted.to as usize].push_back(Event::Sorted { peer, message: misrouted.message });
        }
        while let Some(ban) = self.engines[number].poll_ban() {
            self.engines[0].ban(self.now, &ban);
        }
    }

    fn handle(&mut self, number: usize, event: Event) {
        if let Event::Fence { peer } = event {
            self.share_out(number);
            let key = self.peers[peer].keys[0].expect("it was opened");
            self.peers[peer].session = self.engines[0].session(key);
            for message in self.peers[peer].waits.take().into_iter().flatten() {
                self.sort(peer, message);
            }
            return;
        }
        let (engine, now) = (&mut self.engines[number], self.now);
        match event {
            Event::Join { peer, member } => {
                let outbox = Box::new(LineOutbox(Arc::clone(&self.peers[peer].line)));
                self.peers[peer].keys[number] = Some(engine.join(now, &member, outbox).expect("there is room"));
            }
            Event::Sorted { peer, message } => {
                if let Some(key) = self.peers[peer].keys[number] {
                    engine.receive_sorted(now, key, message);
                }
            }
            Event::Unsorted { peer, message } => {
                engine.receive(now, self.peers[peer].keys[0].expect("it was opened"), message);
            }
            Event::Closed { peer } => {
                if let Some(key) = self.peers[peer].keys[number].take() {
                    engine.closed(now, key, EndCause::PeerClosed);
                }
            }
            Event::Master(id) => engine.set_master(id),
            Event::Fence { .. } => unreachable!("handled above"),
        }
    }

    fn close(&mut self, peer: usize) {
        self.queues.iter_mut().for_each(|queue| queue.push_back(Event::Closed { peer }));
    }

    /// Lets time pass, with the engines' turns in any order.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now = self.now.after(Duration::from_millis(1));
            for _ in 0..self.engines.len() * 2 {
                let number = self.random.usize(0..self.engines.len());
                self.turn(number);
            }
        }
    }

    /// Until nothing waits.
    fn settle(&mut self) {
        self.pass(30);
        assert!(self.queues.iter().all(VecDeque::is_empty), "everything is done");
    }

    fn read(&mut self, peer: usize) -> Vec<Message> {
        let bytes = std::mem::take(&mut self.peers[peer].line.lock().unwrap().bytes);
        Messages::new(bytes.into()).map(|message| message.expect("sound")).collect()
    }

    fn create(&mut self, peer: usize) -> u32 {
        let wanted = CreateChannelMessage { channel_type: ChannelType::Subworld.into(), ..Default::default() };
        self.say(peer, Header::new(0, message_type::CREATE_CHANNEL), &wanted);
        self.settle();
        let messages = self.read(peer);
        let result = messages.iter().find(|message| message.msg_type == message_type::CREATE_CHANNEL);
        result.expect("an answer").decode::<CreateChannelResultMessage>().expect("a result").channel_id
    }

    fn subscribe(&mut self, peer: usize, channel: u32) {
        let body = SubscribedToChannelMessage { conn_id: 0, sub_options: Some(every(10)) };
        self.say(peer, Header::new(channel, message_type::SUB_TO_CHANNEL), &body);
    }

    fn update(&mut self, peer: usize, channel: u32, number: u32) {
        let data = Any::pack(&RemoveChannelMessage { channel_id: number });
        let body = ChannelDataUpdateMessage { data: Some(data), context_conn_id: 0 };
        self.say(peer, Header::new(channel, message_type::CHANNEL_DATA_UPDATE), &body);
    }
}

/// The numbers of a channel's updates in these messages, in their order.
fn numbers(messages: &[Message], channel: u32) -> Vec<u32> {
    let of_channel = messages.iter().filter(|message| message.channel_id == channel);
    let updates = of_channel.filter(|message| message.msg_type == message_type::CHANNEL_DATA_UPDATE);
    let data = updates.map(|message| message.decode::<ChannelDataUpdateMessage>().expect("an update").data);
    let decoded =
        data.flatten().map(|data| <RemoveChannelMessage as prost::Message>::decode(data.value).expect("ours"));
    decoded.map(|body| body.channel_id).collect()
}

#[test]
fn within_each_channel_everything_is_in_order_however_the_engines_take_turns() {
    throng_seeds::for_seeds(8, |seed| {
        let mut fleet = Fleet::new(1 + (seed % 4) as u32, seed);
        let owner = fleet.join(Side::Server);
        let rooms: Vec<u32> = (0..6).map(|_| fleet.create(owner)).collect();
        let homes: std::collections::BTreeSet<u32> = rooms.iter().map(|&room| fleet.shards.home(room)).collect();
        assert_eq!(homes.len(), fleet.engines.len().min(6), "the rooms are spread over all engines");
        let clients: Vec<usize> = (0..4).map(|_| fleet.join(Side::Client)).collect();
        for &client in &clients {
            rooms.iter().for_each(|&room| fleet.subscribe(client, room));
        }
        fleet.settle();
        clients.iter().for_each(|&client| drop(fleet.read(client)));
        fleet.read(owner);
        for number in 1..=60 {
            for &room in &rooms {
                fleet.update(owner, room, number);
            }
            for &client in &clients {
                let body = SubscribedToChannelMessage { conn_id: number, ..Default::default() };
                let room = rooms[number as usize % rooms.len()];
                fleet.say(client, Header::new(room, message_type::USER_SPACE_START + 7), &body);
            }
            fleet.pass(3);
        }
        fleet.pass(200);
        for &client in &clients {
            let messages = fleet.read(client);
            for &room in &rooms {
                let seen = numbers(&messages, room);
                assert!(seen.is_sorted() && seen.last() == Some(&60), "room {room}: {seen:?}");
            }
        }
        // The messages of each client in each room reached the owner once, in their order.
        let messages = fleet.read(owner);
        let mut heard = std::collections::BTreeMap::<(u32, u32), Vec<u32>>::new();
        for message in messages.iter().filter(|message| message.msg_type == message_type::USER_SPACE_START + 7) {
            let forwarded: ServerForwardMessage = message.decode().expect("wrapped");
            let said = <SubscribedToChannelMessage as prost::Message>::decode(forwarded.payload).expect("ours");
            heard.entry((forwarded.client_conn_id, message.channel_id)).or_default().push(said.conn_id);
        }
        assert_eq!(heard.len(), clients.len() * rooms.len());
        assert_eq!(heard.values().map(Vec::len).sum::<usize>(), clients.len() * 60);
        assert!(heard.values().all(|said| said.is_sorted()));
    });
}

#[test]
fn channels_of_all_engines_are_listed_removed_and_left() {
    let mut fleet = Fleet::new(3, 1);
    let (owner, client) = (fleet.join(Side::Server), fleet.join(Side::Client));
    let rooms: Vec<u32> = (0..6).map(|_| fleet.create(owner)).collect();
    let list = |fleet: &mut Fleet| {
        fleet.say(client, Header::new(0, message_type::LIST_CHANNEL).with_stub(5), &ListChannelMessage::default());
        fleet.settle();
        let messages = fleet.read(client);
        let lists = messages.iter().filter(|message| message.msg_type == message_type::LIST_CHANNEL);
        let lists = lists.map(|message| message.decode::<ListChannelResultMessage>().expect("a list"));
        let mut ids: Vec<u32> = lists.flat_map(|list| list.channels).map(|channel| channel.channel_id).collect();
        ids.sort_unstable();
        ids
    };
    let mut expected = [&[0], &rooms[..]].concat();
    expected.sort_unstable();
    assert_eq!(list(&mut fleet), expected, "each once, GLOBAL too");

    fleet.say(owner, Header::new(0, message_type::REMOVE_CHANNEL), &RemoveChannelMessage { channel_id: rooms[1] });
    fleet.settle();
    expected.retain(|&id| id != rooms[1]);
    assert_eq!(list(&mut fleet), expected);

    // A client's own rooms count together, because they are all in one engine.
    let own: Vec<u32> = (0..4).map(|_| fleet.create(client)).collect();
    assert!(own.iter().all(|&room| fleet.shards.home(room) == fleet.shards.home(own[0])));
    fleet.close(client);
    fleet.settle();
    let known = fleet.engines.iter().flat_map(|engine| engine.connections());
    assert_eq!(known.filter(|connection| connection.side == Side::Client).count(), 0, "no engine knows it any more");
}

#[test]
fn what_is_said_before_the_answer_to_the_login_is_done_too() {
    let mut fleet = Fleet::new(3, 2);
    let server = fleet.connect(Side::Server);
    fleet.say(server, Header::new(0, message_type::AUTH), &AuthMessage::default());
    let wanted = CreateChannelMessage { channel_type: ChannelType::Subworld.into(), ..Default::default() };
    for _ in 0..6 {
        fleet.say(server, Header::new(0, message_type::CREATE_CHANNEL), &wanted);
    }
    fleet.settle();
    let messages = fleet.read(server);
    assert_eq!(messages[0].msg_type, message_type::AUTH, "the answer to the login comes first");
    let created = messages.iter().filter(|message| message.msg_type == message_type::CREATE_CHANNEL);
    let ids: std::collections::BTreeSet<u32> =
        created.map(|message| message.decode::<CreateChannelResultMessage>().expect("a result").channel_id).collect();
    assert_eq!(ids.len(), 6);
}

/// A message type that the clients' state machine does not allow.
const FORBIDDEN: u32 = 9;

#[test]
fn a_forbidden_message_reaches_no_engine_and_counts() {
    let mut fleet = Fleet::new(2, 4);
    let client = fleet.join(Side::Client);
    for _ in 0..20 {
        fleet.say(client, Header::new(3, FORBIDDEN), &AuthMessage::default());
    }
    fleet.settle();
    assert!(fleet.peers[client].line.lock().unwrap().is_closed, "too many are too many");
}

#[test]
fn what_is_said_while_the_login_is_answered_is_not_overtaken_by_what_is_said_after() {
    throng_seeds::for_seeds(20, |seed| {
        let mut fleet = Fleet::new(3, seed);
        let owner = fleet.join(Side::Server);
        let rooms: Vec<u32> = (0..3).map(|_| fleet.create(owner)).collect();
        fleet.read(owner);
        let client = fleet.connect(Side::Client);
        fleet.say(client, Header::new(0, message_type::AUTH), &AuthMessage::default());
        // It does not wait for the answer: some of this reaches the first engine, the rest goes where it belongs.
        for number in 1..=40u32 {
            let body = SubscribedToChannelMessage { conn_id: number, ..Default::default() };
            fleet.say(client, Header::new(rooms[number as usize % 3], message_type::USER_SPACE_START + 7), &body);
            if fleet.random.u8(..3) == 0 {
                fleet.pass(1);
            }
        }
        fleet.settle();
        let messages = fleet.read(owner);
        let mut heard = std::collections::BTreeMap::<u32, Vec<u32>>::new();
        for message in messages.iter().filter(|message| message.msg_type == message_type::USER_SPACE_START + 7) {
            let forwarded: ServerForwardMessage = message.decode().expect("wrapped");
            let said = <SubscribedToChannelMessage as prost::Message>::decode(forwarded.payload).expect("ours");
            heard.entry(message.channel_id).or_default().push(said.conn_id);
        }
        // Messages before the provider's answer were refused, as they are with one engine.
        let refused: u64 = fleet.engines[0].counters().refused.values().sum();
        let done = heard.values().map(Vec::len).sum::<usize>();
        assert_eq!((done + refused as usize, done > 20), (40, true), "{refused} refused");
        assert!(heard.values().all(|said| said.is_sorted()), "{heard:?}");
    });
}

#[test]
fn the_bounds_of_states_and_channels_hold_for_all_engines_together() {
    const ROOMS: usize = 30;
    let mut fleet = Fleet::with(2, 5, &["-limit=max_channels=30", "-limit=max_total_state_bytes=1048576"]);
    let owner = fleet.join(Side::Server);
    let wanted = CreateChannelMessage { channel_type: ChannelType::Subworld.into(), ..Default::default() };
    for _ in 0..2 * ROOMS {
        fleet.say(owner, Header::new(0, message_type::CREATE_CHANNEL), &wanted);
        fleet.pass(3);
    }
    fleet.settle();
    let messages = fleet.read(owner);
    let results = messages.iter().filter(|message| message.msg_type == message_type::CREATE_CHANNEL);
    let rooms: Vec<u32> =
        results.map(|message| message.decode::<CreateChannelResultMessage>().expect("a result").channel_id).collect();
    assert_eq!(rooms.len(), ROOMS, "not so many in each engine");
    // 1.5 MB in all, but no engine alone has more than the bound.
    for &room in &rooms {
        let value = [&[10, 0xD0, 0x86, 3][..], &[200; 50_000]].concat();
        let data = Any { type_url: "type.googleapis.com/game.Room".into(), value: value.into() };
        let body = ChannelDataUpdateMessage { data: Some(data), context_conn_id: 0 };
        fleet.say(owner, Header::new(room, message_type::CHANNEL_DATA_UPDATE), &body);
        fleet.settle();
    }
    let bytes: u64 = fleet.engines.iter().map(Engine::state_bytes).sum();
    assert!((900_000..=1_048_576).contains(&bytes), "{bytes}");
    let refused = |engine: &Engine| engine.counters().refused.get("total_state_bytes").copied().unwrap_or(0);
    assert!(fleet.engines.iter().map(refused).sum::<u64>() > 0);
}

#[test]
fn who_misbehaves_at_one_engine_is_refused_at_the_next_login() {
    let mut fleet = Fleet::new(2, 6);
    let login = AuthMessage { player_identifier_token: "mallory".into(), ..Default::default() };
    let owner = fleet.join(Side::Server);
    let rooms = [(); 2].map(|()| fleet.create(owner));
    let room = rooms.into_iter().find(|&room| fleet.shards.home(room) == 1).expect("one of two");
    let client = fleet.connect(Side::Client);
    fleet.say(client, Header::new(0, message_type::AUTH), &login);
    fleet.settle();
    for _ in 0..40 {
        let mut header = Header::new(room, message_type::SUB_TO_CHANNEL);
        header.stub_id = 1;
        let nonsense = Message {
            channel_id: room,
            broadcast: header.broadcast,
            stub_id: 1,
            msg_type: header.msg_type,
            body: vec![0xFF; 4].into(),
        };
        fleet.sort_or_wait(client, nonsense);
    }
    fleet.settle();
    assert!(fleet.peers[client].line.lock().unwrap().is_closed, "it is sent away");
    fleet.close(client);
    fleet.settle();
    let again = fleet.connect(Side::Client);
    fleet.say(again, Header::new(0, message_type::AUTH), &login);
    fleet.settle();
    let answer = fleet.read(again).into_iter().find(|message| message.msg_type == message_type::AUTH);
    let answer: AuthResultMessage = answer.expect("an answer").decode().expect("an AuthResultMessage");
    assert_ne!(answer.result, 0, "its name is refused for a while");
}
