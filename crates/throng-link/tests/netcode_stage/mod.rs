//! Shared parts of the netcode tests: a backend, one server with its seats, clients, and no network between them.
#![allow(dead_code, unreachable_pub)] // each test file uses a part of it

use std::net::SocketAddr;
use throng_link::netcode::*;
use throng_wire::Time;

pub const PROTOCOL_ID: u64 = 0x1122_3344_5566_7788;
pub const UNIX_S: u64 = 1_800_000_000;
pub const TIMEOUT_S: i32 = 5;

pub fn random(seed: u64) -> impl FnMut(&mut [u8]) {
    let mut rng = fastrand::Rng::with_seed(seed);
    move |bytes| rng.fill(bytes)
}

pub fn private_key() -> Key {
    Key::new([0x42; 32])
}

pub fn server_address() -> SocketAddr {
    "10.0.0.1:40000".parse().unwrap()
}

pub fn client_address(number: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, 1], 1000 + number))
}

/// A token for client `client_id`; each id has keys of its own, and the ciphers take turns.
pub fn token_options(client_id: u64) -> ConnectTokenOptions {
    ConnectTokenOptions {
        protocol_id: PROTOCOL_ID,
        client_id,
        create_unix_s: UNIX_S,
        expire_unix_s: UNIX_S + 30,
        suite: Suite::ALL[client_id as usize % Suite::ALL.len()],
        timeout_s: TIMEOUT_S,
        servers: vec![server_address()],
        user_data: [client_id as u8; USER_DATA_LEN],
    }
}

pub fn token(client_id: u64) -> ConnectToken {
    token_with(token_options(client_id))
}

pub fn token_with(options: ConnectTokenOptions) -> ConnectToken {
    ConnectToken::generate(&options, &private_key(), &mut random(options.client_id)).unwrap()
}

/// A server: its door, and the connections that came in through it.
pub struct Server {
    pub door: ServerHandshake,
    pub seats: u32,
    pub connected: Vec<(SocketAddr, Accepted)>,
    pub unix_s: u64,
    pub admission: Admission,
}

impl Server {
    pub fn new(seats: u32) -> Server {
        Server::with(seats, ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]))
    }

    pub fn with(seats: u32, options: ServerOptions) -> Server {
        let door = ServerHandshake::new(options, &mut random(77));
        Server { door, seats, connected: Vec::new(), unix_s: UNIX_S, admission: Admission::Granted }
    }

    /// Lets the door handle a datagram. The answer, if any, and whether a client was accepted.
    ///
    /// Checks what holds for every datagram: one outcome is counted, ignored ones are not answered, and no answer is
    /// longer than the question.
    pub fn handle(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) -> Result<Vec<u8>, DropReason> {
        let before = outcomes(&self.door);
        let taken: Vec<(u64, Held)> = self.connected.iter().map(|(_, accepted)| held(accepted)).collect();
        let seats = Seats {
            free: (0..self.seats).find(|seat| taken.iter().all(|(_, held)| held.seat != *seat)),
            max_clients: self.seats,
            held: &|id| taken.iter().find(|(client_id, _)| *client_id == id).map(|(_, held)| *held),
            admission: &|| self.admission,
        };
        let mut reply = vec![0xee; 3];
        let now = Now { unix_s: self.unix_s, time: now };
        let outcome = self.door.handle(now, from, &mut datagram.to_vec(), &seats, &mut reply);
        assert_eq!(outcomes(&self.door), before + 1);
        assert!(reply.len() <= datagram.len(), "{} bytes answered with {}", datagram.len(), reply.len());
        match outcome {
            Outcome::Ignored(reason) => {
                assert!(reply.is_empty());
                Err(reason)
            }
            Outcome::Reply => Ok(reply),
            Outcome::Denied { .. } => {
                assert_eq!(reply.len(), 25);
                Ok(reply)
            }
            Outcome::Accept(accepted) => {
                let before = self.connected.len();
                self.connected.retain(|(_, old)| old.client_index != accepted.client_index);
                assert_eq!(before - self.connected.len(), usize::from(accepted.is_replacement));
                self.connected.push((from, *accepted));
                Ok(reply)
            }
        }
    }
}

fn outcomes(door: &ServerHandshake) -> u64 {
    let counters = door.counters();
    counters.challenged + counters.denied_total() + counters.accepted + counters.dropped_total()
}

fn held(accepted: &Accepted) -> (u64, Held) {
    (accepted.client_id, Held { seat: accepted.client_index, expire_unix_s: accepted.expire_unix_s })
}

/// The same token again, which only tests and thieves should want.
pub fn copy_of(token: &ConnectToken) -> ConnectToken {
    ConnectToken::from_bytes(&token.to_bytes()).unwrap()
}

/// The request with which a token is shown.
pub fn request(token: &ConnectToken) -> Vec<u8> {
    let mut request = Vec::new();
    ClientHandshake::new(copy_of(token), Time(0)).poll_transmit(Time(0), &mut request).unwrap();
    request
}

/// Takes a client's next packet, which must be due.
pub fn poll(client: &mut ClientHandshake, now: Time) -> Vec<u8> {
    let mut packet = Vec::new();
    let to = client.poll_transmit(now, &mut packet).expect("a packet is due");
    assert_eq!(to, client.server());
    packet
}

/// Delivers the server's answer to a client.
pub fn deliver(client: &mut ClientHandshake, now: Time, mut packet: Vec<u8>) -> ClientOutcome {
    let from = client.server();
    client.handle(now, from, &mut packet)
}

/// Connects a client without loss. Its end; the server's end is the last of `connected`.
pub fn connect(server: &mut Server, now: Time, from: SocketAddr, token: ConnectToken) -> Connected {
    let mut client = ClientHandshake::new(token, now);
    let challenge = server.handle(now, from, &poll(&mut client, now)).unwrap();
    assert!(matches!(deliver(&mut client, now, challenge), ClientOutcome::Progress));
    let keep_alive = server.handle(now, from, &poll(&mut client, now)).unwrap();
    match deliver(&mut client, now, keep_alive) {
        ClientOutcome::Connected(connected) => *connected,
        other => panic!("{other:?}"),
    }
}

/// Seals a payload into a packet of its own.
pub fn seal(sealer: &mut Sealer, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; sealer.header_len()];
    packet.extend_from_slice(payload);
    packet.resize(packet.len() + TAG_LEN, 0);
    sealer.seal_payload(&mut packet).unwrap();
    packet
}
