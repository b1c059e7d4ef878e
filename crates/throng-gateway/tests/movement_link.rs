//! Movement over real sockets, with a network between that delays and loses: it comes fresher than on the reliable lane,
//! and what is reliable comes complete and in order beside it.
//!
//! `cargo test -p throng-gateway --test movement_link -- --nocapture` prints the ages.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use prost::Message as _;
use throng_channeld::client::{Client, ClientOptions};
use throng_channeld::link::LinkClient;
use throng_channeld::proto::unrealpb::UnrealObjectRef;
use throng_channeld::proto::{
    Any, ChannelDataAccess, ChannelDataUpdateMessage, ChannelSubscriptionOptions, ChannelType, CreateChannelMessage,
    CreateEntityChannelMessage, ServerForwardMessage, SubscribedToChannelMessage,
};
use throng_channeld::{Broadcast, Header, Message, message_type};
use throng_gateway::auth::AcceptAll;
use throng_gateway::serve::{LinkOptions, Transport};
use throng_net::{Condition, Conditioner, InFlightLimit};
use throng_wire::Time;

use crate::serving::{LINK_KEY, bare, soon, token};

/// The channel of the first entity.
const ENTITY: u32 = 0x8_0001;
const ENTITIES: u32 = 12;
const TICK: Duration = Duration::from_millis(33);
/// A numbered message of the game: to the client on the reliable lane, from the client as movement.
const NUMBERED: u32 = 160;
const RUN: Duration = Duration::from_secs(4);

/// One way of 40 ms on which one datagram in twenty is lost.
const BAD_PATH: Condition = Condition { delay_us: 40_000, jitter_us: 4_000, loss: 0.05, ..Condition::NONE };

/// A network between one client and the gateway.
struct Relay {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Binds the side of the client; received datagrams are forwarded once [`Relay::run`] knows where to.
    fn bind() -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("it is bound");
        (socket, address)
    }

    fn run(near: UdpSocket, gateway: SocketAddr, seed: u64) -> Relay {
        let address = near.local_addr().expect("it is bound");
        let far = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        far.connect(gateway).expect("an address");
        for socket in [&near, &far] {
            socket.set_nonblocking(true).expect("it can be set");
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let way = |seed| Conditioner::new(BAD_PATH, seed, InFlightLimit::PEER).expect("sound");
            let (mut up, mut down) = (way(2 * seed), way(2 * seed + 1));
            let (began, mut client, mut bytes) = (Instant::now(), None, [0; 2_048]);
            while !stop.load(Ordering::Relaxed) {
                let now = Time(began.elapsed().as_micros() as u64);
                while let Ok((count, from)) = near.recv_from(&mut bytes) {
                    client = Some(from);
                    up.push(now, &bytes[..count]);
                }
                while let Ok(count) = far.recv(&mut bytes) {
                    down.push(now, &bytes[..count]);
                }
                while let Some(arrival) = up.pop(now) {
                    let _ = far.send(arrival.bytes);
                }
                while let (Some(client), Some(arrival)) = (client, down.pop(now)) {
                    let _ = near.send_to(arrival.bytes, client);
                }
                thread::sleep(Duration::from_micros(500));
            }
        });
        Relay { address, is_over, thread: Some(thread) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A world server that moves entities all the time, and numbers messages to its clients.
struct World {
    server: Client,
    began: Instant,
    clients: Vec<u32>,
    ticks: u32,
    /// The clients' numbers, in order of arrival.
    heard: Vec<(u32, u32)>,
}

impl World {
    fn new(address: SocketAddr, began: Instant) -> World {
        let mut server = Client::connect(address, ClientOptions::default()).expect("the door is open");
        server.authenticate("world", "", soon()).expect("servers are let in");
        let create = CreateChannelMessage { channel_type: ChannelType::Global.into(), ..Default::default() };
        server.send(Header::new(0, message_type::CREATE_CHANNEL), &create).expect("connected");
        for entity in ENTITY..ENTITY + ENTITIES {
            let create = CreateEntityChannelMessage {
                entity_id: entity,
                sub_options: Some(ChannelSubscriptionOptions {
                    data_access: Some(ChannelDataAccess::WriteAccess.into()),
                    ..Default::default()
                }),
                data: Some(stamp(0)),
                ..Default::default()
            };
            server.send(Header::new(0, message_type::CREATE_ENTITY_CHANNEL), &create).expect("connected");
        }
        World { server, began, clients: Vec::new(), ticks: 0, heard: Vec::new() }
    }

    fn subscribe(&mut self, client: u32) {
        self.clients.push(client);
        for entity in ENTITY..ENTITY + ENTITIES {
            let sub_options = Some(ChannelSubscriptionOptions { fan_out_interval_ms: Some(33), ..Default::default() });
            let subscribe = SubscribedToChannelMessage { conn_id: client, sub_options };
            self.server.send(Header::new(entity, message_type::SUB_TO_CHANNEL), &subscribe).expect("connected");
        }
    }

    fn tick(&mut self) {
        self.ticks += 1;
        let data = Some(stamp(self.began.elapsed().as_millis() as u32));
        let update = ChannelDataUpdateMessage { data, context_conn_id: 0 };
        for entity in ENTITY..ENTITY + ENTITIES {
            self.server.send(Header::new(entity, message_type::CHANNEL_DATA_UPDATE), &update).expect("connected");
        }
        for &client_conn_id in &self.clients {
            let payload = self.ticks.to_le_bytes().to_vec().into();
            let header = Header { broadcast: Broadcast::SINGLE_CONNECTION.0, ..Header::new(0, NUMBERED) };
            self.server.send(header, &ServerForwardMessage { client_conn_id, payload }).expect("connected");
        }
        let next = self.began + TICK * (self.began.elapsed().as_micros() / TICK.as_micros() + 1) as u32;
        while let Some(message) = self.server.poll(next).expect("connected") {
            if message.msg_type == NUMBERED {
                let forward: ServerForwardMessage = message.decode().expect("forwarded");
                self.heard.push((forward.client_conn_id, number(&forward.payload)));
            }
        }
    }
}

fn stamp(ms: u32) -> Any {
    Any::pack(&UnrealObjectRef { owning_conn_id: Some(ms), ..Default::default() })
}

fn number(payload: &[u8]) -> u32 {
    u32::from_le_bytes(payload.try_into().expect("four bytes"))
}

/// The state that one client has seen.
struct Watch {
    /// By entity: the newest stamp.
    stamps: Vec<u32>,
    numbers: Vec<u32>,
    ages_ms: Vec<u32>,
    updates: u32,
}

impl Watch {
    fn take(&mut self, message: &Message) {
        match message.msg_type {
            message_type::CHANNEL_DATA_UPDATE => {
                let update: ChannelDataUpdateMessage = message.decode().expect("an update");
                let state = UnrealObjectRef::decode(update.data.expect("data").value).expect("its type");
                let stamp = &mut self.stamps[(message.channel_id - ENTITY) as usize];
                let new = state.owning_conn_id.expect("a stamp");
                assert!(new >= *stamp, "{new} after {stamp}");
                *stamp = new;
                self.updates += 1;
            }
            NUMBERED => {
                let forward: ServerForwardMessage = message.decode().expect("forwarded");
                self.numbers.push(number(&forward.payload));
            }
            _ => {}
        }
    }

    fn look(&mut self, now_ms: u32) {
        self.ages_ms.extend(self.stamps.iter().map(|&stamp| now_ms.saturating_sub(stamp)));
    }

    fn percentile(&self, percent: usize) -> u32 {
        let mut ages = self.ages_ms.clone();
        ages.sort_unstable();
        ages[ages.len() * percent / 100]
    }
}

/// Plays a client until `stop`; what it has seen, and how many of its own messages it has sent.
fn play(mut client: LinkClient, began: Instant, stop: &AtomicU64) -> (Watch, u32, LinkClient) {
    let mut watch = Watch { stamps: vec![0; ENTITIES as usize], numbers: Vec::new(), ages_ms: Vec::new(), updates: 0 };
    let mut said = 0;
    let mut next = Instant::now();
    // The first second is for the states at the beginning.
    let first_look = next + Duration::from_secs(1);
    while stop.load(Ordering::Relaxed) == 0 {
        next += Duration::from_millis(10);
        while let Some(message) = client.poll(next).expect("connected") {
            watch.take(&message);
        }
        if next > first_look {
            watch.look(began.elapsed().as_millis() as u32);
        }
        said += 1u32;
        client.send_movement(Header::new(0, NUMBERED), &said.to_le_bytes()).expect("it is short");
    }
    // Nothing new is written any more.
    let last = stop.load(Ordering::Relaxed) as u32;
    let deadline = soon();
    while watch.stamps.iter().any(|&stamp| stamp != last) {
        assert!(Instant::now() < deadline, "it ends with {:?} instead of {last}", watch.stamps);
        if let Some(message) = client.poll(Instant::now() + Duration::from_millis(10)).expect("connected") {
            watch.take(&message);
        }
    }
    (watch, said, client)
}

#[test]
fn movement_is_fresher_where_some_is_lost_and_the_rest_is_complete_and_in_order() {
    // Everything but the ages has to hold each time. Of ages a busy machine may spoil one run, not three.
    let mut runs = Vec::new();
    while runs.len() < 3 {
        let (with_ms, without_ms) = both();
        if with_ms < without_ms {
            return;
        }
        runs.push((with_ms, without_ms));
    }
    panic!("p99 of the age with movement and without, ms: {runs:?}");
}

/// Plays with and without movement at the same time; the 99th percentile of the age of what is seen, in ms.
fn both() -> (u32, u32) {
    let (near, addresses): (Vec<_>, Vec<_>) = (0..2).map(|_| Relay::bind()).unzip();
    let link = LinkOptions { public_addresses: addresses.clone(), ..LinkOptions::new(LINK_KEY) };
    let gateway = bare(Transport::Link(link), &[], Arc::new(AcceptAll), |_| {});
    let (doors, began) = (gateway.addresses(), Instant::now());
    let relays: Vec<Relay> = near.into_iter().zip(1..).map(|(near, seed)| Relay::run(near, doors[1], seed)).collect();
    let mut world = World::new(doors[0], began);
    let stop = Arc::new(AtomicU64::new(0));
    let mut players = Vec::new();
    for (relay, takes_movement) in relays.iter().zip([true, false]) {
        let token = token(relay.address, u64::from(takes_movement));
        let mut client = LinkClient::connect_with(token, takes_movement, soon()).expect("the door is open");
        client.authenticate("lin", "", soon()).expect("everybody is let in");
        world.subscribe(client.connection_id());
        let stop = Arc::clone(&stop);
        players.push((client.connection_id(), thread::spawn(move || play(client, began, &stop))));
    }
    let end = Instant::now() + RUN;
    while Instant::now() < end {
        world.tick();
    }
    // The last word.
    let last = began.elapsed().as_millis() as u32;
    let update = ChannelDataUpdateMessage { data: Some(stamp(last)), context_conn_id: 0 };
    for entity in ENTITY..ENTITY + ENTITIES {
        world.server.send(Header::new(entity, message_type::CHANNEL_DATA_UPDATE), &update).expect("connected");
    }
    stop.store(last.into(), Ordering::Relaxed);
    let mut seen = Vec::new();
    for (id, player) in players {
        let (watch, said, client) = player.join().expect("it has seen nothing strange");
        let of_client: Vec<u32> = world.heard.iter().filter(|heard| heard.0 == id).map(|heard| heard.1).collect();
        assert!(of_client.is_sorted_by(|a, b| a < b), "late or doubled: {of_client:?}");
        assert!(of_client.len() as u32 > said * 3 / 4, "{} of {said} came", of_client.len());
        let first = watch.numbers[0];
        let expected: Vec<u32> = (first..first + watch.numbers.len() as u32).collect();
        assert_eq!(watch.numbers, expected, "reliable messages");
        let counters = client.end().counters();
        println!(
            "{}: age of what is seen p50 {} ms, p99 {} ms, worst {} ms; {} updates, {counters:?}",
            if counters.taken > 0 { "movement" } else { "reliable" },
            watch.percentile(50),
            watch.percentile(99),
            watch.ages_ms.iter().max().expect("it has looked"),
            watch.updates,
        );
        seen.push((watch, counters.taken));
    }
    assert!(seen[0].1 > 500, "{} movement messages", seen[0].1);
    assert_eq!(seen[1].1, 0, "it has not asked for movement");
    let report = gateway.report().expect("it runs");
    assert!(report.counters.datagrams_lost > 0 && report.counters.datagrams_delivered > 0);
    gateway.shut_down();
    (seen[0].0.percentile(99), seen[1].0.percentile(99))
}
