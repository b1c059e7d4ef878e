//! The work of two engines in two threads, compared with that of one engine: rooms of 20 clients over connections in memory.
//!
//! Each room has a world server's update and four calls of clients in each step. The same work is done by one engine, and by
//! two that share the rooms out; each engine runs as fast as it can, without waiting for the others.
#![allow(missing_docs)]

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use throng_channeld::proto::{
    Any, AuthMessage, ChannelDataUpdateMessage, ChannelSubscriptionOptions, ChannelType, CreateChannelMessage,
    SubscribedToChannelMessage,
};
use throng_channeld::{Header, Message, message_type};
use throng_gateway_engine::fsm::Machine;
use throng_gateway_engine::port::{AuthVerdict, Key, Outbox, Side};
use throng_gateway_engine::settings::EngineSettings;
use throng_gateway_engine::shards::{Route, Session, Shards};
use throng_gateway_engine::{Engine, Member};
use throng_protostate::Schemas;
use throng_wire::Time;

const ROOMS: u32 = 32;
const CLIENTS: u32 = 20;
const CALLS: u32 = 4;
const STEPS: u64 = 1_000;
const STEP: Duration = Duration::from_millis(5);

/// A connection that takes everything. Both engines write to it, as they do to a queue.
#[derive(Clone, Default)]
struct Memory(Arc<std::sync::Mutex<(Vec<u8>, u64)>>);

impl Outbox for Memory {
    fn queued_bytes(&self) -> usize {
        0
    }

    fn send(&self, entries: &mut Vec<u8>) {
        let mut line = self.0.lock().expect("nobody panics");
        line.0.clear();
        line.1 += entries.len() as u64;
        line.0.append(entries);
    }

    fn close(&self) {}
}

fn message(header: Header, body: &impl prost::Message) -> Message {
    let Header { channel_id, broadcast, stub_id, msg_type } = header;
    Message { channel_id, broadcast, stub_id, msg_type, body: body.encode_to_vec().into() }
}

/// A connection, as all engines know it.
struct Peer {
    keys: Vec<Key>,
    session: Option<Session>,
}

struct Fleet {
    engines: Vec<Engine>,
    now: Time,
}

impl Fleet {
    fn new(count: u32) -> Fleet {
        let mut settings = EngineSettings { development: true, ..EngineSettings::default() };
        settings.client_machine = Arc::new(Machine::client_authoritative());
        settings.limits.max_client_messages_per_s = 1_000_000;
        let (settings, now) = (Arc::new(settings), Time::from_secs(1_000));
        let shards = Shards::new(count, settings.spatial_channel_start);
        let engine = |number| {
            let mut engine = Engine::new(Arc::clone(&settings), Arc::new(Schemas::default()), 1, (now, 0));
            engine.set_share(number, shards.clone());
            engine
        };
        Fleet { engines: (0..count).map(engine).collect(), now }
    }

    fn join(&mut self, side: Side, outbox: &Memory) -> Peer {
        let (now, address) = (self.now, "127.0.0.1:40000".parse().expect("an address"));
        let [first, others @ ..] = &mut self.engines[..] else { panic!("there is one") };
        let key = first.open(now, side, address, Box::new(outbox.clone())).expect("there is room");
        first.receive(now, key, message(Header::new(0, message_type::AUTH), &AuthMessage::default()));
        while let Some(request) = first.poll_auth() {
            first.authenticated(now, request.key, AuthVerdict::Accepted);
        }
        let member: Option<Member> = first.poll_member();
        let session = first.session(key);
        let join = |engine: &mut Engine| {
            let member = member.as_ref().expect("it has logged in");
            engine.join(now, member, Box::new(outbox.clone())).expect("there is room")
        };
        let keys = [key].into_iter().chain(others.iter_mut().map(join)).collect();
        Peer { keys, session }
    }

    /// The engine that does a message, and the sender's key there.
    fn sort(peer: &mut Peer, message: &Message) -> (usize, Key) {
        let engine = match peer.session.as_mut().map(|session| session.route(message)) {
            Some(Route::To(engine)) => engine as usize,
            _ => 0,
        };
        (engine, peer.keys[engine])
    }

    fn say(&mut self, peer: &mut Peer, header: Header, body: &impl prost::Message) {
        let message = message(header, body);
        let (engine, key) = Fleet::sort(peer, &message);
        self.engines[engine].receive_sorted(self.now, key, message);
    }
}

/// The work of all steps, sorted: for each engine the messages of each step.
type Work = Vec<Vec<(Key, Message)>>;

/// Seconds that the work takes.
fn measure(count: u32) -> f64 {
    let mut fleet = Fleet::new(count);
    let server_line = Memory::default();
    let mut server = fleet.join(Side::Server, &server_line);
    let wanted = CreateChannelMessage { channel_type: ChannelType::Subworld.into(), ..Default::default() };
    for _ in 0..ROOMS {
        fleet.say(&mut server, Header::new(0, message_type::CREATE_CHANNEL), &wanted);
    }
    // Engines take turns, and each gives out its own numbers: the first rooms have the first numbers in any case.
    let rooms: Vec<u32> = (1..=ROOMS).collect();
    let mut clients = Vec::new();
    for &room in &rooms {
        for _ in 0..CLIENTS {
            let mut client = fleet.join(Side::Client, &Memory::default());
            let options = ChannelSubscriptionOptions { fan_out_interval_ms: Some(10), ..Default::default() };
            let body = SubscribedToChannelMessage { conn_id: 0, sub_options: Some(options) };
            fleet.say(&mut client, Header::new(room, message_type::SUB_TO_CHANNEL), &body);
            clients.push((room, client));
        }
    }
    let mut work: Vec<Work> = fleet.engines.iter().map(|_| Work::new()).collect();
    for step in 0..STEPS {
        work.iter_mut().for_each(|work| work.push(Vec::new()));
        let mut add = |peer: &mut Peer, message: Message| {
            let (engine, key) = Fleet::sort(peer, &message);
            work[engine].last_mut().expect("this step's").push((key, message));
        };
        for (place, &room) in rooms.iter().enumerate() {
            let value = [&[10, 64][..], &[step as u8; 64]].concat();
            let data = Any { type_url: "type.googleapis.com/game.Room".into(), value: value.into() };
            let update = ChannelDataUpdateMessage { data: Some(data), context_conn_id: 0 };
            add(&mut server, message(Header::new(room, message_type::CHANNEL_DATA_UPDATE), &update));
            for call in 0..CALLS {
                let number = place as u32 * CLIENTS + (step as u32 + call) % CLIENTS;
                let call = message(Header::new(room, message_type::USER_SPACE_START), &AuthMessage::default());
                add(&mut clients[number as usize].1, call);
            }
        }
    }
    let (start, barrier) = (fleet.now, Barrier::new(fleet.engines.len() + 1));
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (mut engine, work) in fleet.engines.drain(..).zip(work) {
            let barrier = &barrier;
            threads.push(scope.spawn(move || {
                barrier.wait();
                let mut now = start;
                for step in work {
                    now = now.after(STEP);
                    for (key, message) in step {
                        engine.receive_sorted(now, key, message);
                    }
                    engine.advance(now);
                }
            }));
        }
        barrier.wait();
        let begin = Instant::now();
        threads.into_iter().for_each(|thread| thread.join().expect("no engine fails"));
        begin.elapsed().as_secs_f64()
    })
}

fn main() {
    // In turns, so that both meet the same machine; the best of each, because whatever else runs only takes time.
    let rounds: Vec<[f64; 2]> = (0..5).map(|_| [measure(1), measure(2)]).collect();
    let best = |number: usize| rounds.iter().map(|round| round[number]).fold(f64::MAX, f64::min);
    println!("one engine {:.3} s, two engines {:.3} s: {:.2} times the work", best(0), best(1), best(0) / best(1));
}
