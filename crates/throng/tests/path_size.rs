//! Paths that carry only short datagrams, and paths that change: every path that carries the handshake carries a world.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throng::net::{Condition, Driver, MemoryDriver, MemoryNetwork, RateLimit, SendError, Transmit};
use throng::{
    ChannelKey, Client, ClientEvent, ConnectToken, ObjectId, Placement, Replicate, Schema, Server, ServerEvent,
    Statistics, Time,
};
use throng_link::netcode::{ConnectTokenOptions, Suite, USER_DATA_LEN};
use throng_link::session::{MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES};
use throng_testkit::{Beacon, Chat, Intercepted, Steering};

use crate::harness::{PROTOCOL_ID, WorldOptions};

const SECOND: Duration = Duration::from_secs(1);
/// IPv4 and UDP.
const HEADER_BYTES: usize = 28;
/// The gap that a search leaves.
const NARROW_BYTES: usize = 16;
const CHANNEL: ChannelKey = ChannelKey::Custom(1);
const LANE: u8 = 0;

/// As long as an object may be.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Poster {
    #[replicate(text(max_bytes = 938))]
    text: String,
}

/// A driver whose interface refuses what is longer than a limit, and whose socket is full now and then.
fn narrow(driver: MemoryDriver, interface: Interface) -> Box<dyn Driver> {
    let mut sends = 0;
    Box::new(Intercepted::new(driver, move |driver: &mut MemoryDriver, now, transmit: &Transmit<'_>| {
        sends += 1;
        let full_every = interface.full_every.load(Ordering::Relaxed);
        if full_every > 0 && sends % full_every == 0 {
            return Ok(0);
        }
        let bytes = transmit.segment_bytes.min(transmit.bytes.len());
        if bytes > interface.limit.load(Ordering::Relaxed) {
            interface.refused_at.lock().expect("nobody panics").push(now);
            return Err(SendError::TooLarge { bytes });
        }
        driver.send(now, transmit)
    }))
}

/// The properties of an interface, which tests change.
#[derive(Clone)]
struct Interface {
    /// Longest datagram.
    limit: Arc<AtomicUsize>,
    /// When it refused something.
    refused_at: Arc<Mutex<Vec<Time>>>,
    /// Every so many sends find the socket full; 0 for none.
    full_every: Arc<AtomicUsize>,
}

impl Interface {
    fn new() -> Interface {
        Interface {
            limit: Arc::new(AtomicUsize::new(usize::MAX)),
            refused_at: Arc::default(),
            full_every: Arc::default(),
        }
    }
}

/// A server with one client, which have much to say to each other.
struct Talk {
    network: MemoryNetwork,
    server: Server,
    client: Client,
    connection: Option<throng::ConnectionId>,
    now: Time,
    tick: Duration,
    beacons: Vec<ObjectId>,
    /// Of the server and of the client.
    interfaces: [Interface; 2],
    /// Whether the server's socket is drained between ticks.
    drains: bool,
    /// Messages for the client that wait, about.
    backlog_bytes: usize,
    /// Chats that were sent, and those that came: to the client, to the server.
    sent: [u32; 2],
    received: [Vec<u32>; 2],
    /// When something came last, and the longest pause before something came.
    came_at: [Time; 2],
    longest_pause: [Duration; 2],
    /// Whether both say as much as they may.
    is_loud: bool,
}

fn condition(mtu: Option<u16>) -> Condition {
    Condition { delay_us: 25_000, mtu, ..Condition::NONE }
}

impl Talk {
    fn new(mtu: Option<u16>, hz: u32) -> Talk {
        Talk::with_threads(mtu, hz, 1)
    }

    fn with_threads(mtu: Option<u16>, hz: u32, threads: usize) -> Talk {
        let network = MemoryNetwork::new(condition(mtu), 5).expect("a good condition");
        let mut options = WorldOptions::new(1);
        let tick = SECOND / hz;
        options.server.tick_interval = tick;
        options.server.threads = threads;
        let schema = Schema::builder().kind::<Beacon>().kind::<Chat>().kind::<Steering>().kind::<Poster>().build();
        let schema = Arc::new(schema.expect("good kinds"));
        let addresses: [SocketAddr; 2] = [([10, 0, 0, 1], 40_000).into(), ([10, 1, 0, 1], 50_000).into()];
        let token = ConnectTokenOptions {
            protocol_id: PROTOCOL_ID,
            client_id: 1,
            create_unix_s: 4_000_000_000,
            expire_unix_s: 4_000_000_600,
            suite: Suite::default(),
            timeout_s: 10,
            servers: vec![addresses[0]],
            user_data: [0; USER_DATA_LEN],
        };
        let mut rng = fastrand::Rng::with_seed(3);
        let token = ConnectToken::generate(&token, &options.server.private_key, &mut |bytes| rng.fill(bytes));
        let limit = Interface::new();
        let interfaces = [Interface { full_every: Arc::default(), ..limit.clone() }, limit];
        let driver =
            |end: usize| narrow(network.endpoint(addresses[end]).expect("a free address"), interfaces[end].clone());
        let now = Time::from_secs(1);
        let mut server = Server::new(driver(0), Arc::clone(&schema), options.server).expect("good options");
        let client = Client::new(driver(1), token.expect("good token options"), schema, options.client, now)
            .expect("good options");
        let at = |number| Beacon { position: [0.0; 3], number };
        let beacons = (0..400).map(|number| server.spawn(at(number), Placement::Channel(CHANNEL)).expect("room"));
        let beacons = beacons.collect();
        Talk {
            network,
            server,
            client,
            connection: None,
            now,
            tick,
            beacons,
            interfaces,
            drains: false,
            backlog_bytes: 1_000,
            sent: [0; 2],
            received: [Vec::new(), Vec::new()],
            came_at: [now; 2],
            longest_pause: [Duration::ZERO; 2],
            is_loud: true,
        }
    }

    fn step(&mut self) {
        let next = self.now.after(self.tick);
        while self.drains && self.now.after(SECOND / 500) < next {
            self.now = self.now.after(SECOND / 500);
            self.server.drain_socket(self.now).expect("in memory");
        }
        self.now = next;
        self.server.receive(self.now).expect("in memory");
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Connected { connection, .. } => {
                    self.connection = Some(connection);
                    self.server.subscribe(connection, CHANNEL, 1).expect("room");
                }
                ServerEvent::Message { message, .. } => self.note(1, message.get::<Chat>()),
                ServerEvent::Disconnected { cause, .. } => panic!("the connection ended: {cause}"),
                _ => {}
            }
        }
        self.speak();
        self.server.tick(self.now);
        self.client.update(self.now).expect("in memory");
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Message { message, .. } => self.note(0, message.get::<Chat>()),
                ClientEvent::Ended(reason) => panic!("the client ended: {reason}"),
                _ => {}
            }
        }
    }

    /// The world changes, and there is always a message that waits.
    fn speak(&mut self) {
        let Some(connection) = self.connection.filter(|_| self.is_loud) else { return };
        for (index, beacon) in self.beacons.iter().enumerate() {
            let turn = (self.now.0 / self.tick.as_micros() as u64) as u32;
            self.server.get_mut::<Beacon>(*beacon).expect("it is there").number = (turn + index as u32) % 65_536;
        }
        let chat = |number: &mut u32| {
            *number += 1;
            // Lengths of all kinds, so that packets are filled.
            Chat { number: *number - 1, text: "x".repeat(chat_bytes(*number - 1)) }
        };
        while self.server.link_statistics(connection).expect("connected").pending_message_bytes < self.backlog_bytes {
            self.server.send(connection, LANE, &chat(&mut self.sent[0])).expect("room");
        }
        if self.client.link_statistics().expect("connected").pending_message_bytes < 4_000 {
            for _ in 0..4 {
                self.client.send(LANE, &chat(&mut self.sent[1])).expect("room");
            }
        }
    }

    fn note(&mut self, to: usize, chat: Option<Chat>) {
        let chat = chat.expect("only chats are sent");
        assert_eq!(chat.text.len(), chat_bytes(chat.number));
        self.received[to].push(chat.number);
        self.longest_pause[to] = self.longest_pause[to].max(self.now.since(self.came_at[to]));
        self.came_at[to] = self.now;
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now.after(duration);
        while self.now < end {
            self.step();
        }
    }

    fn forget_pauses(&mut self) {
        self.came_at = [self.now; 2];
        self.longest_pause = [Duration::ZERO; 2];
    }

    fn set_mtu(&self, mtu: Option<u16>) {
        self.network.set_condition(condition(mtu)).expect("a good condition");
    }

    /// Of the server's end, and of the client's.
    fn statistics(&self) -> [Statistics; 2] {
        let connection = self.connection.expect("connected");
        [self.server.link_statistics(connection).expect("connected"), self.client.link_statistics().expect("connected")]
    }

    fn datagram_bytes(&self) -> [usize; 2] {
        self.statistics().map(|statistics| statistics.datagram_bytes)
    }

    /// Everything that was said arrives, once and in order, and the client has the world as it is.
    fn come_to_rest(&mut self) {
        self.is_loud = false;
        self.run(5 * SECOND);
        for to in 0..2 {
            assert_eq!(self.received[to], (0..self.sent[to]).collect::<Vec<_>>(), "messages to end {to}");
        }
        for beacon in &self.beacons {
            assert_eq!(self.client.get::<Beacon>(*beacon).as_ref(), self.server.get::<Beacon>(*beacon));
        }
    }
}

fn chat_bytes(number: u32) -> usize {
    20 + (number as usize * 37) % 880
}

/// The least and the greatest length that full datagrams should have on a path.
fn best(mtu: u16) -> std::ops::RangeInclusive<usize> {
    let carried = (usize::from(mtu) - HEADER_BYTES).min(MAX_DATAGRAM_BYTES);
    match carried {
        MAX_DATAGRAM_BYTES => carried..=carried,
        _ => MIN_DATAGRAM_BYTES.max((carried + 1).saturating_sub(NARROW_BYTES))..=carried,
    }
}

/// The server's datagrams are as long as they should be, and the client's too, unless it says too little at once to have
/// noticed: in short ticks it has no full packets.
fn is_best([server, client]: [usize; 2], mtu: u16) -> bool {
    best(mtu).contains(&server) && (best(mtu).contains(&client) || client == MAX_DATAGRAM_BYTES)
}

#[test]
fn a_world_arrives_on_every_path_that_carries_the_handshake() {
    for mtu in (1_106..=1_240).step_by(6) {
        let mut talk = Talk::new(Some(mtu), 30);
        let poster = Poster { text: "p".repeat(938) };
        let poster_id = talk.server.spawn(poster.clone(), Placement::Channel(CHANNEL)).expect("room");
        talk.run(2 * SECOND);
        assert_eq!(talk.client.objects::<Beacon>().count(), 400, "mtu {mtu}");
        assert_eq!(talk.client.get::<Poster>(poster_id), Some(poster), "mtu {mtu}");
        talk.run(4 * SECOND);
        let bytes = talk.datagram_bytes();
        assert!(is_best(bytes, mtu), "mtu {mtu}: {bytes:?}, not {:?}", best(mtu));
        assert!(talk.longest_pause.iter().all(|pause| *pause < SECOND), "mtu {mtu}: {:?}", talk.longest_pause);
        talk.come_to_rest();
    }
}

#[test]
fn a_path_that_becomes_shorter_stops_the_data_for_less_than_three_seconds() {
    for hz in [10, 30, 60] {
        for mtu in [1_106, 1_150, 1_200] {
            let mut talk = Talk::new(None, hz);
            talk.run(5 * SECOND);
            assert_eq!(talk.datagram_bytes(), [MAX_DATAGRAM_BYTES; 2]);
            talk.forget_pauses();
            talk.set_mtu(Some(mtu));
            talk.run(10 * SECOND);
            let (bytes, statistics) = (talk.datagram_bytes(), talk.statistics());
            let rates = statistics.map(|statistics| statistics.sending_rate_bytes_per_s);
            println!("{hz} Hz, mtu {mtu}: {bytes:?} bytes, {rates:?} B/s, paused for {:?}", talk.longest_pause);
            assert!(is_best(bytes, mtu), "{bytes:?}, not {:?}", best(mtu));
            assert!(statistics.iter().all(|statistics| statistics.counters.path_shrinks <= 1));
            assert!(talk.longest_pause.iter().all(|pause| *pause < 3 * SECOND), "{:?}", talk.longest_pause);
            // Datagrams that were lost because they were too long do not lower the rate.
            assert!(rates[0] > 48_000 && rates[1] > 24_000, "{rates:?}");
            talk.come_to_rest();
        }
    }
}

#[test]
fn what_was_planned_for_longer_packets_is_sent_on_a_shorter_path() {
    let mut talk = Talk::new(None, 30);
    talk.run(5 * SECOND);
    let poster = |letter: &str| Poster { text: letter.repeat(938) };
    let channel = Placement::Channel(CHANNEL);
    let posters: Vec<ObjectId> = (0..20).map(|_| talk.server.spawn(poster("a"), channel).expect("room")).collect();
    talk.step();
    talk.set_mtu(Some(1_106));
    talk.run(3 * SECOND);
    for id in &posters {
        assert_eq!(talk.client.get::<Poster>(*id), Some(poster("a")));
        *talk.server.get_mut::<Poster>(*id).expect("it is there") = poster("b");
    }
    talk.run(3 * SECOND);
    assert!(posters.iter().all(|id| talk.client.get::<Poster>(*id) == Some(poster("b"))));
    talk.come_to_rest();
}

#[test]
fn a_path_that_becomes_longer_is_found() {
    let mut talk = Talk::new(Some(1_150), 10);
    talk.run(10 * SECOND);
    assert!(talk.datagram_bytes().iter().all(|bytes| best(1_150).contains(bytes)));
    let before = talk.statistics().map(|statistics| statistics.counters.size_probes_sent);
    talk.set_mtu(None);
    talk.run(500 * SECOND);
    assert_eq!(
        talk.statistics().map(|statistics| statistics.counters.size_probes_sent),
        before,
        "it is not asked often"
    );
    talk.run(120 * SECOND);
    assert_eq!(talk.datagram_bytes(), [MAX_DATAGRAM_BYTES; 2]);
}

#[test]
fn a_path_of_full_size_costs_no_probe() {
    let mut talk = Talk::new(None, 30);
    talk.run(60 * SECOND);
    for statistics in talk.statistics() {
        assert_eq!(statistics.datagram_bytes, MAX_DATAGRAM_BYTES);
        let counters = statistics.counters;
        assert_eq!((counters.size_probes_sent, counters.size_probes_lost, counters.path_shrinks), (0, 0, 0));
    }
}

#[test]
fn who_says_little_probes_nothing() {
    let mut talk = Talk::new(None, 30);
    talk.is_loud = false;
    talk.beacons.drain(5..).for_each(|beacon| talk.server.despawn(beacon));
    for number in 0..1_800 {
        // Before the client is connected there is nobody to tell.
        let _ = talk.client.send_typed_input(&Steering { number, direction: 0.0 });
        talk.step();
    }
    assert_eq!(talk.statistics().map(|statistics| statistics.counters.size_probes_sent), [0; 2]);
}

#[test]
fn an_outage_is_not_taken_for_a_shorter_path() {
    for seconds in [1, 2, 3] {
        let mut talk = Talk::new(None, 30);
        talk.run(5 * SECOND);
        talk.network.set_condition(Condition::BLACKOUT).expect("a good condition");
        talk.run(seconds * SECOND);
        talk.set_mtu(None);
        talk.run(5 * SECOND);
        let statistics = talk.statistics();
        assert_eq!(talk.datagram_bytes(), [MAX_DATAGRAM_BYTES; 2], "{seconds} s");
        assert!(statistics.iter().all(|statistics| statistics.counters.path_shrinks == 0), "{seconds} s");
        let probes = statistics.map(|statistics| statistics.counters.size_probes_sent);
        println!("an outage of {seconds} s: {probes:?} probes");
        assert!(probes.iter().all(|probes| *probes <= 4), "{probes:?} probes, {seconds} s");
        talk.come_to_rest();
    }
}

#[test]
fn what_the_interface_refuses_is_sent_shorter_at_once() {
    let mut talk = Talk::new(None, 30);
    talk.interfaces[0].limit.store(1_150, Ordering::Relaxed);
    talk.run(5 * SECOND);
    assert!(talk.datagram_bytes().iter().all(|bytes| best(1_178).contains(bytes)), "{:?}", talk.datagram_bytes());
    talk.forget_pauses();
    talk.interfaces[0].limit.store(1_090, Ordering::Relaxed);
    talk.run(5 * SECOND);
    assert!(talk.datagram_bytes().iter().all(|bytes| best(1_118).contains(bytes)), "{:?}", talk.datagram_bytes());
    assert!(talk.longest_pause.iter().all(|pause| *pause < SECOND), "{:?}", talk.longest_pause);
    let errors = talk.server.limits_reached().find(|(name, _)| *name == "send_errors");
    assert_eq!(errors, Some(("send_errors", 0)), "a refused length is no error");
    talk.come_to_rest();
}

#[test]
fn what_the_interface_refuses_of_packets_that_waited_is_sent_shorter_too() {
    for threads in [1, 3] {
        let mut talk = Talk::with_threads(None, 10, threads);
        (talk.drains, talk.backlog_bytes) = (true, 20_000);
        let rate = Some(RateLimit { bytes_per_s: 40_000, queue_bytes: 8_000 });
        talk.network.set_condition(Condition { rate, ..condition(None) }).expect("a good condition");
        talk.run(10 * SECOND);
        // The packets of the last tick wait. Those of the next are shorter already.
        talk.interfaces[0].limit.store(1_090, Ordering::Relaxed);
        let ticks: Vec<Time> = (0..2)
            .map(|_| {
                talk.step();
                talk.now
            })
            .collect();
        let refused_at = std::mem::take(&mut *talk.interfaces[0].refused_at.lock().expect("nobody panics"));
        assert!(refused_at.iter().any(|at| !ticks.contains(at)), "{threads} threads: nothing waited: {refused_at:?}");
        talk.run(5 * SECOND);
        assert!(best(1_118).contains(&talk.datagram_bytes()[0]), "{threads} threads: {:?}", talk.datagram_bytes());
        let errors = talk.server.limits_reached().find(|(name, _)| *name == "send_errors");
        assert_eq!(errors, Some(("send_errors", 0)), "{threads} threads: a refused length is no error");
        talk.come_to_rest();
    }
}

#[test]
fn a_probe_that_the_interface_refuses_takes_no_packet_with_it() {
    // With a socket that is full now and then, some of them wait in between.
    for (threads, full_every) in [(1, 0), (3, 0), (1, 2), (3, 2)] {
        let mut talk = Talk::with_threads(None, 30, threads);
        talk.interfaces[0].limit.store(1_150, Ordering::Relaxed);
        talk.interfaces[0].full_every.store(full_every, Ordering::Relaxed);
        talk.run(10 * SECOND);
        let refused = talk.interfaces[0].refused_at.lock().expect("nobody panics").len() as u64;
        let dropped = talk.server.limits_reached().find(|(name, _)| *name == "send_dropped").expect("counted").1;
        let lost = talk.statistics()[0].counters.packets_lost;
        println!("{threads} threads, full every {full_every}: {lost} were lost, {refused} refused, {dropped} dropped");
        assert!(refused > 0 && lost <= refused + dropped, "{lost} were lost, {refused} refused, {dropped} dropped");
        talk.come_to_rest();
    }
}

#[test]
fn a_full_socket_is_no_loss_of_the_path() {
    let mut talk = Talk::new(None, 30);
    talk.run(2 * SECOND);
    let lost = |talk: &Talk| talk.statistics()[0].counters.packets_lost;
    let before = lost(&talk);
    talk.interfaces[0].full_every.store(5, Ordering::Relaxed);
    talk.run(10 * SECOND);
    talk.interfaces[0].full_every.store(0, Ordering::Relaxed);
    let rate = talk.statistics()[0].sending_rate_bytes_per_s;
    println!("{} lost, {rate} B/s", lost(&talk) - before);
    assert_eq!(lost(&talk), before);
    let dropped = talk.server.limits_reached().find(|(name, _)| *name == "send_dropped");
    assert_eq!(dropped, Some(("send_dropped", 0)));
    talk.come_to_rest();
}
