//! Movement over real sockets, with a network between that delays and loses: it comes in order, ends with the last state,
//! and what is reliable comes complete and in order beside it.
//!
//! `cargo test -p throng-gateway --test contracts over_bad_networks -- --nocapture` prints the ages. They are not compared:
//! a busy machine slows one connection down and not the other. `serve/link/fresher.rs` compares them in virtual time.

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

    /// Writes the states of all entities. Their stamp.
    fn write(&mut self) -> u32 {
        let now_ms = self.began.elapsed().as_millis() as u32;
        let update = ChannelDataUpdateMessage { data: Some(stamp(now_ms)), context_conn_id: 0 };
        for entity in ENTITY..ENTITY + ENTITIES {
            self.server.send(Header::new(entity, message_type::CHANNEL_DATA_UPDATE), &update).expect("connected");
        }
        now_ms
    }

    fn tick(&mut self) {
        self.ticks += 1;
        self.write();
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

/// A client, and what it has seen.
struct Player {
    client: LinkClient,
    /// By entity: the newest stamp.
    stamps: [u32; ENTITIES as usize],
    numbers: Vec<u32>,
    ages_ms: Vec<u32>,
    updates: u32,
    /// Messages of its own.
    said: u32,
}

impl Player {
    fn join(relay: &Relay, takes_movement: bool) -> Player {
        let token = token(relay.address, u64::from(takes_movement));
        let mut client = LinkClient::connect_with(token, takes_movement, soon()).expect("the door is open");
        client.authenticate("lin", "", soon()).expect("everybody is let in");
        Player { client, stamps: [0; ENTITIES as usize], numbers: Vec::new(), ages_ms: Vec::new(), updates: 0, said: 0 }
    }

    /// Takes all that has come.
    fn listen(&mut self) {
        while let Some(message) = self.client.poll(Instant::now()).expect("connected") {
            self.take(&message);
        }
    }

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

    fn speak(&mut self) {
        self.said += 1;
        self.client.send_movement(Header::new(0, NUMBERED), &self.said.to_le_bytes()).expect("it is short");
    }

    fn look(&mut self, now_ms: u32) {
        self.ages_ms.extend(self.stamps.map(|stamp| now_ms.saturating_sub(stamp)));
    }

    fn percentile(&self, percent: usize) -> u32 {
        let mut ages = self.ages_ms.clone();
        ages.sort_unstable();
        ages[ages.len() * percent / 100]
    }
}

/// Both play until there is a last stamp, and until that has come.
fn play(mut players: [Player; 2], began: Instant, last: &AtomicU64) -> [Player; 2] {
    let mut next = Instant::now();
    // The first second is for the states at the beginning.
    let first_look = next + Duration::from_secs(1);
    let mut deadline = None;
    loop {
        next += Duration::from_millis(10);
        thread::sleep(next.saturating_duration_since(Instant::now()));
        players.iter_mut().for_each(Player::listen);
        let last = last.load(Ordering::Relaxed) as u32;
        if last == 0 {
            if next > first_look {
                let now_ms = began.elapsed().as_millis() as u32;
                players.iter_mut().for_each(|player| player.look(now_ms));
            }
            players.iter_mut().for_each(Player::speak);
            continue;
        }
        let stamps = || players.iter().flat_map(|player| player.stamps);
        if stamps().all(|stamp| stamp == last) {
            return players;
        }
        let ended = format!("it ends with {:?} instead of {last}", stamps().collect::<Vec<_>>());
        assert!(Instant::now() < *deadline.get_or_insert_with(soon), "{ended}");
    }
}

/// A part of a test of `beside`.
pub(crate) fn movement_comes_in_order_where_some_is_lost_and_the_rest_is_complete() {
    let (near, addresses): (Vec<_>, Vec<_>) = (0..2).map(|_| Relay::bind()).unzip();
    let link = LinkOptions { public_addresses: addresses.clone(), ..LinkOptions::new(LINK_KEY) };
    let gateway = bare(Transport::Link(link), &[], Arc::new(AcceptAll), |_| {});
    let (doors, began) = (gateway.addresses(), Instant::now());
    let relays: Vec<Relay> = near.into_iter().zip(1..).map(|(near, seed)| Relay::run(near, doors[1], seed)).collect();
    let mut world = World::new(doors[0], began);
    let players = [(&relays[0], true), (&relays[1], false)].map(|(relay, takes)| Player::join(relay, takes));
    let ids = [0, 1].map(|index: usize| players[index].client.connection_id());
    ids.iter().for_each(|&id| world.subscribe(id));
    let last = Arc::new(AtomicU64::new(0));
    let playing = thread::spawn({
        let last = Arc::clone(&last);
        move || play(players, began, &last)
    });
    let end = Instant::now() + RUN;
    while Instant::now() < end {
        world.tick();
    }
    last.store(world.write().into(), Ordering::Relaxed);
    let players = playing.join().expect("they have seen nothing strange");

    for (id, player) in ids.into_iter().zip(&players) {
        let of_client: Vec<u32> = world.heard.iter().filter(|heard| heard.0 == id).map(|heard| heard.1).collect();
        assert!(of_client.is_sorted_by(|a, b| a < b), "late or doubled: {of_client:?}");
        assert!(of_client.len() as u32 > player.said * 3 / 4, "{} of {} came", of_client.len(), player.said);
        let first = player.numbers[0];
        let expected: Vec<u32> = (first..first + player.numbers.len() as u32).collect();
        assert_eq!(player.numbers, expected, "reliable messages");
        let counters = player.client.end().counters();
        println!(
            "{}: age of what is seen p50 {} ms, p99 {} ms, worst {} ms; {} updates, {counters:?}",
            if counters.taken > 0 { "movement" } else { "reliable" },
            player.percentile(50),
            player.percentile(99),
            player.ages_ms.iter().max().expect("it has looked"),
            player.updates,
        );
    }
    let [movement, reliable] = players.map(|player| player.client.end().counters().taken);
    // Of about 1,400. A gateway that comes late to its work sends the newest state of those that wait.
    assert!(movement > 100, "{movement} movement messages");
    assert_eq!(reliable, 0, "it has not asked for movement");
    let report = gateway.report().expect("it runs");
    assert!(report.counters.datagrams_lost > 0 && report.counters.datagrams_delivered > 0);
    gateway.shut_down();
}
