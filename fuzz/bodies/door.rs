//! Strangers at a server's door: handshakes of three clients, in any order, with bent datagrams between.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use throng_link::netcode::*;
use throng_wire::Time;

use super::choices::Choices;

const UNIX_S: u64 = 1_800_000_000;
const PROTOCOL_ID: u64 = 7;
const CLIENTS: usize = 3;
const SEATS: usize = 2;
const PENDING_MAX: usize = 2;
const USED_TOKENS_MAX: usize = 4;

static TOKENS: LazyLock<Vec<ConnectToken>> = LazyLock::new(|| (1..=CLIENTS as u64).map(token).collect());

fn server_address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 40_000))
}

fn token(client_id: u64) -> ConnectToken {
    let options = ConnectTokenOptions {
        protocol_id: PROTOCOL_ID,
        client_id,
        create_unix_s: UNIX_S,
        expire_unix_s: UNIX_S + 30,
        suite: Suite::ALL[client_id as usize % Suite::ALL.len()],
        timeout_s: 5,
        servers: vec![server_address()],
        user_data: [client_id as u8; USER_DATA_LEN],
    };
    let mut rng = fastrand::Rng::with_seed(client_id);
    ConnectToken::generate(&options, &Key::new([0x42; 32]), &mut |bytes| rng.fill(bytes)).expect("good options")
}

fn copy_of(token: &ConnectToken) -> ConnectToken {
    ConnectToken::from_bytes(&token.to_bytes()).expect("a token reads its own bytes")
}

struct Stage {
    door: ServerHandshake,
    seated: Vec<(u64, Held)>,
    now: Time,
}

impl Stage {
    fn new() -> Stage {
        let options = ServerOptions {
            pending_max: PENDING_MAX,
            used_tokens_max: USED_TOKENS_MAX,
            ..ServerOptions::new(PROTOCOL_ID, Key::new([0x42; 32]), vec![server_address()])
        };
        let mut rng = fastrand::Rng::with_seed(77);
        let door = ServerHandshake::new(options, &mut |bytes| rng.fill(bytes));
        Stage { door, seated: Vec::new(), now: Time::from_secs(9) }
    }

    /// One outcome is counted for each datagram, no answer is longer than the question, and memory is bounded.
    fn handle(&mut self, from: SocketAddr, datagram: &[u8]) -> Vec<u8> {
        let outcomes = |door: &ServerHandshake| {
            let counters = door.counters();
            counters.challenged + counters.denied_total() + counters.accepted + counters.dropped_total()
        };
        let before = outcomes(&self.door);
        let seated = self.seated.clone();
        let seats = Seats {
            free: (0..SEATS as u32).find(|seat| seated.iter().all(|(_, held)| held.seat != *seat)),
            max_clients: SEATS as u32,
            held: &|id| seated.iter().find(|(client_id, _)| *client_id == id).map(|(_, held)| *held),
            admission: &|| Admission::Granted,
        };
        let now = Now { unix_s: UNIX_S + self.now.0 / 1_000_000 - 9, time: self.now };
        let mut reply = Vec::new();
        match self.door.handle(now, from, &mut datagram.to_vec(), &seats, &mut reply) {
            Outcome::Ignored(reason) => assert!(reply.is_empty() && !reason.tag().is_empty()),
            Outcome::Reply => {}
            Outcome::Denied { client_id, denial } => {
                assert!((1..=CLIENTS as u64).contains(&client_id) && !denial.tag().is_empty());
            }
            Outcome::Accept(accepted) => {
                // Each client has one token, so nobody sits down twice.
                assert!((1..=CLIENTS as u64).contains(&accepted.client_id) && !accepted.is_replacement);
                assert!(seated.iter().all(|(client_id, _)| *client_id != accepted.client_id));
                let held = Held { seat: accepted.client_index, expire_unix_s: accepted.expire_unix_s };
                self.seated.push((accepted.client_id, held));
            }
        }
        assert_eq!(outcomes(&self.door), before + 1);
        assert!(reply.len() <= datagram.len(), "{} bytes answered with {}", datagram.len(), reply.len());
        assert!(self.door.pending_len() <= PENDING_MAX && self.door.used_tokens_len() <= USED_TOKENS_MAX);
        assert!(self.seated.len() <= SEATS);
        reply
    }
}

/// Nobody sits down twice, and nobody without a token.
pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut stage = Stage::new();
    let mut clients: Vec<_> = TOKENS.iter().map(|token| ClientHandshake::new(copy_of(token), stage.now)).collect();
    let mut kept: Vec<Vec<u8>> = vec![Vec::new(); 4];
    while !choices.is_empty() {
        let what = choices.byte();
        let from = SocketAddr::from(([10, 0, 1, 1], 1_000 + u16::from(what >> 6)));
        let (client, place) = (&mut clients[usize::from(what & 3) % CLIENTS], choices.below(4));
        let mut datagram = Vec::new();
        match what >> 2 & 7 {
            0..=2 => drop(client.poll_transmit(stage.now, &mut datagram)),
            3 => datagram.clone_from(&kept[place]),
            4 => {
                let count = choices.below(200);
                datagram.extend_from_slice(choices.bytes(count));
            }
            5 => {
                stage.now = stage.now.after(Duration::from_millis(u64::from(choices.byte()) * 20));
                continue;
            }
            _ => {
                let mut answer = kept[place].clone();
                choices.bend(&mut answer);
                client.handle(stage.now, server_address(), &mut answer);
                continue;
            }
        }
        if what & 0x20 != 0 {
            choices.bend(&mut datagram);
        }
        let reply = stage.handle(from, &datagram);
        client.handle(stage.now, server_address(), &mut reply.clone());
        kept[place] = if reply.is_empty() { datagram } else { reply };
    }
}
