//! Live over loopback UDP against netcode-official, the reference author's Rust implementation: its client at our
//! door, our client at its server, tokens of both.

use netcode as official;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use throng_link::netcode::*;
use throng_wire::Time;

const PROTOCOL_ID: u64 = 0x1122_3344_5566_7788;
const PRIVATE_KEY: [u8; KEY_LEN] = [0x42; KEY_LEN];
const USER_DATA: [u8; USER_DATA_LEN] = [0x5a; USER_DATA_LEN];
/// Both sides run on a clock of their own that makes such steps; only sockets are real.
const STEP: Duration = Duration::from_millis(10);
const STEPS_MAX: u32 = 2_000;

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A socket whose reads wait a moment, so that a loop around it does not spin.
fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(loopback()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> Option<(Vec<u8>, SocketAddr)> {
    let mut buffer = [0; PACKET_MAX];
    socket.recv_from(&mut buffer).ok().map(|(len, from)| (buffer[..len].to_vec(), from))
}

fn our_token(client_id: u64, server: SocketAddr) -> ConnectToken {
    let options = ConnectTokenOptions {
        protocol_id: PROTOCOL_ID,
        client_id,
        create_unix_s: unix_s(),
        expire_unix_s: unix_s() + 60,
        suite: Suite::default(),
        timeout_s: 5,
        servers: vec![server],
        user_data: USER_DATA,
    };
    let mut rng = fastrand::Rng::with_seed(client_id);
    ConnectToken::generate(&options, &Key::new(PRIVATE_KEY), &mut |bytes| rng.fill(bytes)).unwrap()
}

fn official_token(client_id: u64, server: SocketAddr) -> [u8; CONNECT_TOKEN_LEN] {
    official::generate_connect_token(&[server], &[server], 60, 5, client_id, PROTOCOL_ID, &PRIVATE_KEY, &USER_DATA)
        .unwrap()
}

fn seal(sealer: &mut Sealer, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; sealer.header_len() + payload.len() + TAG_LEN];
    let start = sealer.header_len();
    packet[start..start + payload.len()].copy_from_slice(payload);
    sealer.seal_payload(&mut packet).unwrap();
    packet
}

/// The payload with which each side is tried: the largest, and different in every round.
fn payload(round: u64) -> Vec<u8> {
    (0..PAYLOAD_MAX as u64).map(|i| (i * 7 + round) as u8).collect()
}

/// Our door on a real socket, echoing every payload.
struct EchoServer {
    socket: UdpSocket,
    door: ServerHandshake,
    max_clients: u32,
    connected: Vec<(SocketAddr, Accepted)>,
    now: Time,
}

impl EchoServer {
    fn new(max_clients: u32) -> EchoServer {
        let socket = socket();
        let addresses = vec![socket.local_addr().unwrap()];
        let options = ServerOptions::new(PROTOCOL_ID, Key::new(PRIVATE_KEY), addresses);
        let mut rng = fastrand::Rng::with_seed(5);
        let door = ServerHandshake::new(options, &mut |bytes| rng.fill(bytes));
        EchoServer { socket, door, max_clients, connected: Vec::new(), now: Time(0) }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    fn step(&mut self) {
        self.now = self.now.after(STEP);
        while let Some((datagram, from)) = receive(&self.socket) {
            match self.connected.iter().position(|(address, _)| *address == from) {
                Some(index) => self.handle_connected(index, datagram),
                None => self.handle_stranger(from, datagram),
            }
        }
    }

    fn handle_stranger(&mut self, from: SocketAddr, mut datagram: Vec<u8>) {
        let count = self.connected.len() as u32;
        let seats = Seats {
            free: (count < self.max_clients).then_some(count),
            max_clients: self.max_clients,
            held: &|_| None,
            admission: &|| Admission::Granted,
        };
        let mut reply = Vec::new();
        let now = Now { unix_s: unix_s(), time: self.now };
        let outcome = self.door.handle(now, from, &mut datagram, &seats, &mut reply);
        if !matches!(outcome, Outcome::Ignored(_)) {
            self.socket.send_to(&reply, from).unwrap();
        }
        if let Outcome::Accept(accepted) = outcome {
            self.connected.push((from, *accepted));
        }
    }

    fn handle_connected(&mut self, index: usize, mut datagram: Vec<u8>) {
        let (address, accepted) = &mut self.connected[index];
        let Ok(opened) = accepted.opener.open(&mut datagram) else { return };
        match opened.kind {
            PacketKind::Payload => {
                let packet = seal(&mut accepted.sealer, opened.body);
                self.socket.send_to(&packet, *address).unwrap();
            }
            PacketKind::Response => {
                let mut packet = Vec::new();
                accepted.sealer.seal_keep_alive(accepted.client_index, self.max_clients, &mut packet).unwrap();
                self.socket.send_to(&packet, *address).unwrap();
            }
            PacketKind::Disconnect => drop(self.connected.remove(index)),
            _ => {}
        }
    }
}

/// Runs an official client against our server until `done`.
fn run(
    server: &mut EchoServer,
    client: &mut official::Client,
    mut done: impl FnMut(&mut EchoServer, &mut official::Client) -> bool,
) {
    for _ in 0..STEPS_MAX {
        if done(server, client) {
            return;
        }
        client.update(server.now.0 as f64 / 1e6);
        server.step();
    }
    panic!("not reached: client {}, server {:?}", client.state(), server.door);
}

fn play_at_our_server(token: impl FnOnce(SocketAddr) -> [u8; CONNECT_TOKEN_LEN]) {
    let mut server = EchoServer::new(4);
    let mut client = official::Client::new(loopback(), 0.0).unwrap();
    client.connect(&token(server.address())).unwrap();
    run(&mut server, &mut client, |_, client| client.state() == official::ClientState::Connected);
    assert_eq!((client.client_index(), client.max_clients()), (0, 4));
    let (_, accepted) = &server.connected[0];
    assert_eq!((accepted.client_id, accepted.user_data), (7, USER_DATA));

    let (mut sent, mut received) = (0, 0);
    run(&mut server, &mut client, |_, client| {
        while let Some((echo, _)) = client.receive_packet() {
            assert_eq!(echo, payload(received));
            received += 1;
        }
        if sent <= 300 {
            client.send_packet(&payload(sent)).unwrap();
            sent += 1;
        }
        received > 300
    });

    client.disconnect();
    run(&mut server, &mut client, |server, _| server.connected.is_empty());
}

#[test]
fn their_client_plays_at_our_server_with_our_token() {
    play_at_our_server(|server| our_token(7, server).to_bytes());
}

#[test]
fn their_client_plays_at_our_server_with_their_token() {
    play_at_our_server(|server| official_token(7, server));
}

#[test]
fn our_disconnect_reaches_their_client() {
    let mut server = EchoServer::new(1);
    let mut client = official::Client::new(loopback(), 0.0).unwrap();
    client.connect(&our_token(7, server.address()).to_bytes()).unwrap();
    run(&mut server, &mut client, |_, client| client.state() == official::ClientState::Connected);
    let (address, accepted) = &mut server.connected[0];
    let mut packet = Vec::new();
    for _ in 0..DISCONNECT_REPEATS {
        accepted.sealer.seal_disconnect(&mut packet).unwrap();
        server.socket.send_to(&packet, *address).unwrap();
    }
    run(&mut server, &mut client, |_, client| client.state() == official::ClientState::Disconnected);
}

#[test]
fn our_full_server_denies_their_client() {
    let mut server = EchoServer::new(0);
    let mut client = official::Client::new(loopback(), 0.0).unwrap();
    client.connect(&our_token(7, server.address()).to_bytes()).unwrap();
    run(&mut server, &mut client, |_, client| client.state() == official::ClientState::ConnectionDenied);
}

/// Our client on a real socket beside their server.
struct Pair {
    server: official::Server,
    socket: UdpSocket,
    now: Time,
}

impl Pair {
    fn new(max_clients: usize) -> Pair {
        let mut server = official::Server::new(loopback(), PROTOCOL_ID, &PRIVATE_KEY, 0.0).unwrap();
        server.start(max_clients).unwrap();
        Pair { server, socket: socket(), now: Time(0) }
    }

    fn step(&mut self) -> Option<(Vec<u8>, SocketAddr)> {
        self.now = self.now.after(STEP);
        self.server.update(self.now.0 as f64 / 1e6);
        receive(&self.socket)
    }

    fn connect(&mut self, token: ConnectToken) -> Result<Connected, ConnectError> {
        let mut client = ClientHandshake::new(token, self.now);
        let mut packet = Vec::new();
        for _ in 0..STEPS_MAX {
            if let Some(to) = client.poll_transmit(self.now, &mut packet) {
                self.socket.send_to(&packet, to).unwrap();
            }
            if let ClientState::Failed(error) = client.state() {
                return Err(error);
            }
            if let Some((mut datagram, from)) = self.step()
                && let ClientOutcome::Connected(connected) = client.handle(self.now, from, &mut datagram)
            {
                return Ok(*connected);
            }
        }
        panic!("not reached: {client:?}");
    }
}

fn play_at_their_server(token: impl FnOnce(SocketAddr) -> ConnectToken) {
    let mut pair = Pair::new(4);
    let token = token(pair.server.address());
    let mut client = pair.connect(token).unwrap();
    assert_eq!((client.client_index, client.max_clients, client.server), (0, 4, pair.server.address()));
    assert_eq!(pair.server.client_id(0), 7);
    assert_eq!(pair.server.client_user_data(0), Some(&USER_DATA));

    let (mut sent, mut up, mut down) = (0, 0, 0);
    for _ in 0..STEPS_MAX {
        if sent <= 300 {
            pair.socket.send_to(&seal(&mut client.sealer, &payload(sent)), client.server).unwrap();
            sent += 1;
        }
        if let Some((mut datagram, _)) = pair.step() {
            let opened = client.opener.open(&mut datagram).unwrap();
            if opened.kind == PacketKind::Payload {
                assert_eq!(*opened.body, payload(down));
                down += 1;
            }
        }
        while let Some((received, _)) = pair.server.receive_packet(0) {
            assert_eq!(received, payload(up));
            pair.server.send_packet(0, &received).unwrap();
            up += 1;
        }
        if down > 300 {
            break;
        }
    }
    assert_eq!((up, down), (301, 301));

    let mut packet = Vec::new();
    for _ in 0..DISCONNECT_REPEATS {
        client.sealer.seal_disconnect(&mut packet).unwrap();
        pair.socket.send_to(&packet, client.server).unwrap();
    }
    let left = (0..STEPS_MAX).any(|_| {
        pair.step();
        !pair.server.client_connected(0)
    });
    assert!(left);
}

#[test]
fn our_client_plays_at_their_server_with_our_token() {
    play_at_their_server(|server| our_token(7, server));
}

#[test]
fn our_client_plays_at_their_server_with_their_token() {
    play_at_their_server(|server| ConnectToken::from_bytes(&official_token(7, server)).unwrap());
}

#[test]
fn their_disconnect_reaches_our_client() {
    let mut pair = Pair::new(1);
    let token = our_token(7, pair.server.address());
    let mut client = pair.connect(token).unwrap();
    pair.server.disconnect_client(0);
    let heard = (0..STEPS_MAX).any(|_| {
        let datagram = pair.step();
        datagram.is_some_and(|(mut d, _)| client.opener.open(&mut d).unwrap().kind == PacketKind::Disconnect)
    });
    assert!(heard);
}

#[test]
fn their_full_server_denies_our_client() {
    let mut pair = Pair::new(1);
    let address = pair.server.address();
    pair.connect(our_token(7, address)).unwrap();
    let first = std::mem::replace(&mut pair.socket, socket());
    assert_eq!(pair.connect(our_token(8, address)).unwrap_err(), ConnectError::Denied(Denial::Full));
    drop(first);
}
