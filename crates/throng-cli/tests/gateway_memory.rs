//! Compares the memory that the gateway reports for its peers with the memory that the process really uses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::lines::{self, beside_each_other};
use throng_channeld::client::{Client, ClientOptions};
use throng_channeld::proto::{Any, ChannelType, CreateChannelMessage, ServerForwardMessage};
use throng_channeld::{Broadcast, Header, message_type};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

pub(crate) struct Gateway {
    _process: lines::Gateway,
    servers: SocketAddr,
    pub(crate) clients: SocketAddr,
    http: SocketAddr,
}

/// The values of a page of metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// The memory that peers make the gateway use, without the kernel's part.
    counted_bytes: u64,
    resident_bytes: u64,
}

impl Gateway {
    pub(crate) fn start(network: &str, more: &[&str]) -> Gateway {
        let network_of = format!("-cn={network}");
        let mut process = lines::Gateway::start(&[&["-dev", &network_of], more].concat());
        let servers = process.address("listening for servers (tcp) at ");
        let clients = process.address(&format!("listening for clients ({network}) at "));
        let http = process.address("health and metrics at http://");
        Gateway { _process: process, servers, clients, http }
    }

    /// The sum of the samples of a name, by a part of their labels.
    fn sum(&self, name: &str, is_wanted: impl Fn(&str) -> bool) -> u64 {
        let page = lines::page(self.http, "/metrics");
        let samples = page.lines().filter(|line| line.starts_with(name) && is_wanted(line));
        let values = samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        values.sum::<f64>() as u64
    }

    fn figures(&self) -> Figures {
        Figures {
            counted_bytes: self.sum("gateway_memory_bytes{", |line| !line.contains("\"sockets\"")),
            resident_bytes: self.sum("process_resident_memory_bytes ", |_| true),
        }
    }

    /// The figures once they have stopped growing, and what was freed has been given back.
    pub(crate) fn figures_at_rest(&self) -> Figures {
        self.figures_at_rest_while(|| {})
    }

    /// The same for clients that something has to be done for meanwhile.
    pub(crate) fn figures_at_rest_while(&self, mut keep_up: impl FnMut()) -> Figures {
        let deadline = Instant::now() + PATIENCE;
        let (mut last, mut quiet) = (self.figures(), 0);
        // Twice a second the gateway looks whether there is something to give back, and after a look in vain leaves some
        // out.
        while quiet < 6 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(400));
            keep_up();
            let now = self.figures();
            let has_moved = now.counted_bytes.abs_diff(last.counted_bytes) > now.counted_bytes / 200
                || now.resident_bytes.abs_diff(last.resident_bytes) > now.resident_bytes / 200;
            quiet = if has_moved { 0 } else { quiet + 1 };
            last = now;
        }
        last
    }

    fn client(&self, options: ClientOptions) -> Client {
        let mut client = Client::connect(self.clients, options).expect("the door is open");
        client.authenticate("player", "", Instant::now() + PATIENCE).expect("it is let in");
        client
    }

    pub(crate) fn world(&self) -> Client {
        let mut world = Client::connect(self.servers, ClientOptions::default()).expect("the door is open");
        world.authenticate("world", "", Instant::now() + PATIENCE).expect("it is let in");
        let create = CreateChannelMessage { channel_type: ChannelType::Global.into(), ..Default::default() };
        world.send(Header::new(0, message_type::CREATE_CHANNEL), &create).expect("connected");
        world.wait_for(message_type::CREATE_CHANNEL, Instant::now() + PATIENCE).expect("it owns the world");
        world
    }
}

/// Sends a client messages that it does not read.
pub(crate) fn flood(world: &mut Client, client: u32, bytes: usize) {
    const PAYLOAD_BYTES: usize = 50_000;
    let header = Header { broadcast: Broadcast::SINGLE_CONNECTION.0, ..Header::new(0, message_type::UNREAL_RPC) };
    let message = ServerForwardMessage { client_conn_id: client, payload: vec![7; PAYLOAD_BYTES].into() };
    for _ in 0..bytes / PAYLOAD_BYTES {
        world.send(header, &message).expect("connected");
    }
}

/// The counted memory is the real memory, to a fifth.
pub(crate) fn expect_true(what: &str, before: Figures, after: Figures) {
    let counted = after.counted_bytes.saturating_sub(before.counted_bytes);
    let resident = after.resident_bytes.saturating_sub(before.resident_bytes);
    println!("{what}: {} KiB counted, {} KiB resident", counted >> 10, resident >> 10);
    assert!(resident >= 4 * MIB, "{what}: {resident} bytes are too few to say anything");
    let difference = counted.abs_diff(resident);
    assert!(difference <= resident / 5, "{what}: {counted} counted, {resident} resident");
}

fn websocket() -> ClientOptions {
    ClientOptions { websocket_path: Some("/".into()), ..ClientOptions::default() }
}

/// Clients of two networks, each beside the other: most of the time is waited for memory to be given back.
fn over_tcp_and_websocket(play: impl Fn(&str, fn() -> ClientOptions) + Sync) {
    thread::scope(|scope| {
        scope.spawn(|| play("tcp", ClientOptions::default));
        scope.spawn(|| play("ws", websocket));
    });
}

fn connections_that_say_nothing_cost_what_is_counted_for_them() {
    over_tcp_and_websocket(|network, options| {
        let gateway = Gateway::start(network, &[]);
        let _first: Vec<Client> = (0..20).map(|_| gateway.client(options())).collect();
        let before = gateway.figures_at_rest();
        let _clients: Vec<Client> = (0..700).map(|_| gateway.client(options())).collect();
        expect_true(network, before, gateway.figures_at_rest());
    });
}

fn what_waits_for_clients_that_do_not_read_costs_what_is_counted_for_it() {
    over_tcp_and_websocket(|network, options| {
        let gateway = Gateway::start(network, &["-limit", "queue_hard_bytes=16777216"]);
        let mut world = gateway.world();
        let clients: Vec<Client> = (0..12).map(|_| gateway.client(options())).collect();
        let before = gateway.figures_at_rest();
        clients.iter().for_each(|client| flood(&mut world, client.connection_id(), 8 << 20));
        expect_true(network, before, gateway.figures_at_rest());
    });
}

/// A frame of 65,000 bytes, but for the last.
pub(crate) fn beginning_of_a_frame() -> Vec<u8> {
    [&[0x43, 0x48, 0xFD, 0xE8, 0][..], &[0; 64_999]].concat()
}

fn beginnings_of_frames_cost_what_is_counted_for_them() {
    // Over WebSocket the messages around them come whole: what takes them keeps its size.
    over_tcp_and_websocket(|network, options| {
        let gateway = Gateway::start(network, &[]);
        let mut clients: Vec<Client> = (0..400).map(|_| gateway.client(options())).collect();
        let before = gateway.figures_at_rest();
        for client in &mut clients {
            client.send_raw(&beginning_of_a_frame()).expect("connected");
        }
        expect_true(&format!("{network}: beginnings of frames"), before, gateway.figures_at_rest());
    });
}

fn beginnings_of_messages_of_websocket_cost_what_is_counted_for_them() {
    let gateway = Gateway::start("ws", &["-limit", "max_unauthenticated_ms=60000"]);
    let mut strangers: Vec<TcpStream> = (0..400)
        .map(|_| {
            let mut stream = TcpStream::connect(gateway.clients).expect("the door is open");
            stream.set_read_timeout(Some(PATIENCE)).expect("it can be set");
            let request = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Key: dGhyb25nIHRocm9uZyB0aA==\r\nSec-WebSocket-Version: 13\r\n\r\n";
            stream.write_all(request.as_bytes()).expect("connected");
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).expect("it answers");
            assert_eq!(&answer, b"HTTP/1.1 101");
            stream
        })
        .collect();
    let before = gateway.figures_at_rest();
    // Final, binary, masked with zeros, 65,004 bytes long; but for the last.
    let begun = [&[0x82, 0xFE, 0xFD, 0xED, 0, 0, 0, 0][..], &beginning_of_a_frame()].concat();
    for stranger in &mut strangers {
        stranger.write_all(&begun).expect("connected");
    }
    expect_true("beginnings of messages", before, gateway.figures_at_rest());
}

/// Bytes of a message with this many entities in it, each of some numbers, as any game might have.
fn state(entities: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entity in 0..entities {
        let mut inner = Vec::new();
        for (field, value) in (1u8..).zip([entity, entity * 7, 100 + entity % 50, 3]) {
            inner.push(field << 3 | 5);
            inner.extend_from_slice(&value.to_le_bytes());
        }
        let key = [0x08, (entity & 0x7F) as u8 | 0x80, (entity >> 7) as u8 & 0x7F | 0x80, (entity >> 14) as u8];
        let entry = [&key[..], &[0x12, inner.len() as u8], &inner].concat();
        bytes.extend_from_slice(&[0x0A, entry.len() as u8]);
        bytes.extend_from_slice(&entry);
    }
    bytes
}

fn states_cost_what_is_counted_for_them() {
    let gateway = Gateway::start("tcp", &[]);
    let mut world = gateway.world();
    let before = gateway.figures_at_rest();
    for _ in 0..60 {
        let data = Any { type_url: "type.googleapis.com/game.World".into(), value: state(2_000).into() };
        let create =
            CreateChannelMessage { channel_type: ChannelType::Subworld.into(), data: Some(data), ..Default::default() };
        world.send(Header::new(0, message_type::CREATE_CHANNEL), &create).expect("connected");
        world.wait_for(message_type::CREATE_CHANNEL, Instant::now() + PATIENCE).expect("it is there");
    }
    expect_true("states", before, gateway.figures_at_rest());
}

/// Each part has a gateway of its own.
#[test]
fn what_peers_make_the_gateway_keep_is_counted_as_it_is() {
    beside_each_other(&[
        &connections_that_say_nothing_cost_what_is_counted_for_them,
        &what_waits_for_clients_that_do_not_read_costs_what_is_counted_for_it,
        &beginnings_of_frames_cost_what_is_counted_for_them,
        &beginnings_of_messages_of_websocket_cost_what_is_counted_for_them,
        &states_cost_what_is_counted_for_them,
        &beyond_the_budget_the_longest_queues_end_and_the_world_goes_on,
    ]);
}

fn beyond_the_budget_the_longest_queues_end_and_the_world_goes_on() {
    let gateway =
        Gateway::start("tcp", &["-limit", "max_memory_bytes=67108864", "-limit", "queue_hard_bytes=33554432"]);
    let mut world = gateway.world();
    let before = gateway.figures_at_rest();
    let mut quick = gateway.client(ClientOptions::default());
    let slow: Vec<Client> = (0..12).map(|_| gateway.client(ClientOptions::default())).collect();
    let used = || gateway.sum("gateway_memory_bytes{", |_| true);
    for client in &slow {
        flood(&mut world, client.connection_id(), 10 << 20);
        let deadline = Instant::now() + PATIENCE;
        while used() > 70 * MIB {
            assert!(Instant::now() < deadline, "{} MiB are used", used() >> 20);
            thread::sleep(Duration::from_millis(20));
        }
    }
    let ended = gateway.sum("gateway_refused_total{", |line| line.contains("\"no_memory\""));
    assert!((1..12).contains(&ended), "{ended} were ended");
    let after = gateway.figures_at_rest();
    let grown = after.resident_bytes.saturating_sub(before.resident_bytes);
    assert!(grown <= 67_108_864 * 5 / 4, "{} MiB for a budget of 64", grown >> 20);
    // A client that reads is still served, and so is the world server.
    let header = Header { broadcast: Broadcast::SINGLE_CONNECTION.0, ..Header::new(0, message_type::UNREAL_RPC) };
    let message = ServerForwardMessage { client_conn_id: quick.connection_id(), payload: vec![1].into() };
    world.send(header, &message).expect("it is still connected");
    quick.wait_for(message_type::UNREAL_RPC, Instant::now() + PATIENCE).expect("it is still served");
}
