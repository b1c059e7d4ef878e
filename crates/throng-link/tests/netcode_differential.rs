//! The same datagrams, genuine, bent, replayed and random, to our door and to netcode-official's server: both decide the
//! same, but for the differences that the front page of `netcode` names.

use crate::netcode_stage::{copy_of, random, seal};
use fastrand::Rng;
use netcode as official;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use throng_link::netcode::*;
use throng_wire::Time;

const PROTOCOL_ID: u64 = 0x1122_3344_5566_7788;
const PRIVATE_KEY: [u8; KEY_LEN] = [0x42; KEY_LEN];
const TIMEOUT_S: i32 = 2;
const SEATS: usize = 2;
const CASES: u64 = 150;
const STEPS: usize = 60;

/// A server's outcome of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Nothing,
    Challenged,
    Denied,
    Accepted { seat: usize, client_id: u64 },
    Payload(Vec<u8>),
    Left,
}

/// One client, twice: in front of either server. Both have the same token and do the same.
struct Twins {
    socket: UdpSocket,
    theirs: End,
    ours: End,
}

enum End {
    Joining(Box<ClientHandshake>),
    In(Box<Connected>),
}

impl End {
    fn new(token: &ConnectToken, now: Time) -> End {
        End::Joining(Box::new(ClientHandshake::new(copy_of(token), now)))
    }

    /// The next packet, whenever it is due.
    fn packet(&mut self, now: Time, what: u8) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match self {
            End::Joining(handshake) => handshake.poll_transmit(now, &mut out).map(|_| out),
            End::In(connected) => match what % 8 {
                0 => connected.sealer.seal_disconnect(&mut out).ok().map(|_| out),
                1 => connected.sealer.seal_keep_alive(0, 0, &mut out).ok().map(|_| out),
                _ => Some(seal(&mut connected.sealer, &vec![what; 1 + usize::from(what) * 4])),
            },
        }
    }

    fn take(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) {
        if let End::Joining(handshake) = self
            && let ClientOutcome::Connected(connected) = handshake.handle(now, from, &mut datagram.to_vec())
        {
            *self = End::In(connected);
        }
    }
}

/// Our server: door, openers, and what their owner has to do.
struct Ours {
    door: ServerHandshake,
    connected: Vec<(SocketAddr, Accepted, Time)>,
    unix_s: u64,
}

impl Ours {
    fn handle(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &[u8],
        reply: &mut Vec<u8>,
    ) -> (Verdict, Option<DropReason>) {
        reply.clear();
        let mut bytes = datagram.to_vec();
        let connected = self.connected.iter().position(|(address, ..)| *address == from);
        let is_request = datagram.first() == Some(&0);
        if let Some(index) = connected.filter(|_| !is_request) {
            let (_, accepted, heard_at) = &mut self.connected[index];
            let opened = match accepted.opener.open(&mut bytes) {
                Ok(opened) => opened,
                Err(error) => return (Verdict::Nothing, Some(error.into())),
            };
            let verdict = match opened.kind {
                PacketKind::Payload => Verdict::Payload(opened.body.to_vec()),
                PacketKind::Disconnect => Verdict::Left,
                _ => Verdict::Nothing,
            };
            if matches!(opened.kind, PacketKind::Payload | PacketKind::KeepAlive) {
                *heard_at = now;
            }
            if verdict == Verdict::Left {
                self.connected.remove(index);
            }
            return (verdict, None);
        }
        let taken: Vec<(u64, Held)> = self
            .connected
            .iter()
            .map(|(_, accepted, _)| {
                (accepted.client_id, Held { seat: accepted.client_index, expire_unix_s: accepted.expire_unix_s })
            })
            .collect();
        let seats = Seats {
            free: (0..SEATS as u32).find(|seat| taken.iter().all(|(_, held)| held.seat != *seat)),
            max_clients: SEATS as u32,
            held: &|id| taken.iter().find(|(client_id, _)| *client_id == id).map(|(_, held)| *held),
            admission: &|| Admission::Granted,
        };
        match self.door.handle(Now { unix_s: self.unix_s, time: now }, from, &mut bytes, &seats, reply) {
            Outcome::Ignored(reason) => (Verdict::Nothing, Some(reason)),
            Outcome::Reply => (Verdict::Challenged, None),
            Outcome::Denied { .. } => (Verdict::Denied, None),
            Outcome::Accept(accepted) => {
                let verdict = Verdict::Accepted { seat: accepted.client_index as usize, client_id: accepted.client_id };
                self.connected.push((from, *accepted, now));
                (verdict, None)
            }
        }
    }

    fn forget_silent(&mut self, now: Time) {
        let timeout = Duration::from_secs(TIMEOUT_S as u64);
        self.connected.retain(|(.., heard_at)| now.since(*heard_at) < timeout);
    }
}

struct Stage {
    theirs: official::Server,
    ours: Ours,
    twins: Vec<Twins>,
    /// Earlier datagrams to either server.
    recorded: Vec<(Vec<u8>, Vec<u8>)>,
    now: Time,
    rng: Rng,
}

fn token(client_id: u64, seed: u64, servers: Vec<SocketAddr>, unix_s: u64, protocol_id: u64) -> ConnectToken {
    let options = ConnectTokenOptions {
        protocol_id,
        client_id,
        create_unix_s: unix_s - 1_000,
        expire_unix_s: unix_s + 60,
        suite: Suite::default(),
        timeout_s: TIMEOUT_S,
        servers,
        user_data: [client_id as u8; USER_DATA_LEN],
    };
    ConnectToken::generate(&options, &Key::new(PRIVATE_KEY), &mut random(seed)).unwrap()
}

impl Stage {
    fn new(seed: u64) -> Stage {
        let now = Time::from_secs(1);
        let mut theirs = official::Server::new("127.0.0.1:0".parse().unwrap(), PROTOCOL_ID, &PRIVATE_KEY, 1.0).unwrap();
        theirs.start(SEATS).unwrap();
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let address = theirs.address();
        let mut options = ServerOptions::new(PROTOCOL_ID, Key::new(PRIVATE_KEY), vec![address]);
        // The reference ignores the second connection of a client.
        options.second_connection = SecondConnection::Refuse;
        let door = ServerHandshake::new(options, &mut random(seed ^ 77));
        // Three players, a second token of the first, one for another server, one for another game.
        let elsewhere = "127.0.0.1:9".parse().unwrap();
        let tokens = [
            token(1, 1, vec![address], unix_s, PROTOCOL_ID),
            token(2, 2, vec![elsewhere, address], unix_s, PROTOCOL_ID),
            token(3, 3, vec![address], unix_s, PROTOCOL_ID),
            token(1, 4, vec![address], unix_s, PROTOCOL_ID),
            token(5, 5, vec![elsewhere], unix_s, PROTOCOL_ID),
            token(6, 6, vec![address], unix_s, PROTOCOL_ID + 1),
        ];
        let twins = tokens.into_iter().map(|token| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            Twins { socket, theirs: End::new(&token, now), ours: End::new(&token, now) }
        });
        let twins = twins.collect();
        let ours = Ours { door, connected: Vec::new(), unix_s };
        Stage { theirs, ours, twins, recorded: Vec::new(), now, rng: Rng::with_seed(seed) }
    }

    /// Their verdict on a datagram from the socket of `from`, and what they answered.
    fn ask_them(&mut self, from: usize, datagram: &[u8]) -> (Verdict, Vec<Vec<u8>>) {
        self.twins[from].socket.send_to(datagram, self.theirs.address()).unwrap();
        self.theirs.update(self.now.0 as f64 / 1e6);
        let mut verdict = Verdict::Nothing;
        while let Some(event) = self.theirs.next_event() {
            verdict = match event {
                official::ServerEvent::ClientConnected { client_index } => {
                    let client_id = self.theirs.client_id(client_index);
                    Verdict::Accepted { seat: client_index, client_id }
                }
                official::ServerEvent::ClientDisconnected {
                    reason: official::DisconnectReason::ClientDisconnect,
                    ..
                } => Verdict::Left,
                _ => verdict,
            };
        }
        for seat in 0..SEATS {
            while let Some((payload, _)) = self.theirs.receive_packet(seat) {
                verdict = Verdict::Payload(payload);
            }
        }
        let (mut replies, mut bytes) = (Vec::new(), [0; 2_000]);
        while let Ok((count, _)) = self.twins[from].socket.recv_from(&mut bytes) {
            // Kinds stand in the clear: 1 denied, 2 challenge.
            match bytes[0] & 0x0f {
                1 => verdict = Verdict::Denied,
                2 => verdict = Verdict::Challenged,
                _ => {}
            }
            replies.push(bytes[..count].to_vec());
        }
        (verdict, replies)
    }

    /// The datagrams of one step: for them and for us. Equal, but for what either server has made itself.
    fn datagrams(&mut self, who: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        let what = self.rng.u8(..);
        Some(match self.rng.u8(..10) {
            0..=5 => {
                let (now, twins) = (self.now, &mut self.twins[who]);
                let theirs = twins.theirs.packet(now, what);
                let ours = twins.ours.packet(now, what);
                (theirs?, ours?)
            }
            6 | 7 if !self.recorded.is_empty() => self.recorded[self.rng.usize(..self.recorded.len())].clone(),
            8 => {
                let bytes: Vec<u8> = (0..self.rng.usize(..1_200)).map(|_| self.rng.u8(..)).collect();
                (bytes.clone(), bytes)
            }
            _ => {
                // Time advances in steps that meet no deadline.
                self.now = self.now.after(Duration::from_millis(self.rng.u64(1..700)));
                self.theirs.update(self.now.0 as f64 / 1e6);
                while self.theirs.next_event().is_some() {}
                self.ours.forget_silent(self.now);
                return None;
            }
        })
    }

    fn bend(&mut self, (theirs, ours): &mut (Vec<u8>, Vec<u8>)) {
        if self.rng.u8(..4) != 0 || theirs.len() != ours.len() || theirs.is_empty() {
            return;
        }
        let (at, bits) = (self.rng.usize(..theirs.len()), self.rng.u8(1..));
        for bytes in [theirs, ours] {
            match bits % 4 {
                0 => bytes.truncate(at),
                1 => bytes.push(bits),
                _ => bytes[at] ^= bits,
            }
        }
    }

    /// One datagram for both. `Err` if they differ in a way that is not documented; `Ok(false)` if they differ in one that
    /// is, so that from now on they stand differently.
    fn step(&mut self) -> Result<bool, String> {
        let who = self.rng.usize(..self.twins.len());
        let Some(mut datagrams) = self.datagrams(who) else { return Ok(true) };
        // Most packets come from where they belong.
        let from = if self.rng.u8(..5) == 0 { self.rng.usize(..self.twins.len()) } else { who };
        self.bend(&mut datagrams);
        let address = self.twins[from].socket.local_addr().unwrap();
        let was_pending = self.ours.door.is_pending(address);
        let was_connected = self.ours.connected.iter().any(|(connected, ..)| *connected == address);
        let (theirs, replies) = self.ask_them(from, &datagrams.0);
        let mut reply = Vec::new();
        let (ours, reason) = self.ours.handle(self.now, address, &datagrams.1, &mut reply);
        let (now, server) = (self.now, self.theirs.address());
        replies.iter().for_each(|reply| self.twins[from].theirs.take(now, server, reply));
        if !reply.is_empty() {
            self.twins[from].ours.take(now, server, &reply);
        }
        self.recorded.push(datagrams);
        if theirs == ours {
            return Ok(true);
        }
        let stays_the_same = match (&ours, &theirs, reason) {
            // We say why where they are silent. Neither lets anybody in. (From a connected address, our door has noted by now
            // that the token belongs there.)
            (Verdict::Denied, Verdict::Nothing, _) => !was_connected,
            // A token that was used is spent for us, and we deny it; they take it again from the same address.
            (Verdict::Denied, Verdict::Challenged, _) => false,
            // A client that is challenged already and shows the same tag again is challenged again, unread.
            (Verdict::Challenged, Verdict::Nothing, _) if was_pending => false,
            // A request from a connected address may be that of a program that crashed.
            (Verdict::Challenged, Verdict::Nothing, _) if was_connected => false,
            // A request that comes again at once is not answered again.
            (Verdict::Nothing, Verdict::Challenged, Some(DropReason::RepeatedTooSoon)) => was_pending,
            // They answer as full before they look at anything else of a response.
            (
                Verdict::Nothing,
                Verdict::Denied,
                Some(
                    DropReason::ChallengeNotAuthentic
                    | DropReason::ChallengeOutdated
                    | DropReason::ChallengeForOtherToken,
                ),
            ) => true,
            // A recorded response does not open a connection here.
            (
                Verdict::Nothing,
                Verdict::Accepted { .. },
                Some(
                    DropReason::ChallengeNotAuthentic
                    | DropReason::ChallengeOutdated
                    | DropReason::ChallengeForOtherToken,
                ),
            ) => false,
            // Their address keeps its keys until they time out; ours loses them when the response is taken.
            (Verdict::Nothing, Verdict::Accepted { .. }, Some(DropReason::UnknownAddress)) => false,
            _ => return Err(format!("ours {ours:?} ({reason:?}), theirs {theirs:?}, {:?}", self.ours.door)),
        };
        Ok(stays_the_same)
    }
}

#[test]
fn our_door_and_the_reference_server_decide_the_same_but_for_the_named_differences() {
    let (mut compared, mut accepted, mut payloads) = (0, 0, 0);
    throng_seeds::for_seeds(CASES, |seed| {
        let mut stage = Stage::new(seed);
        for step in 0..STEPS {
            match stage.step() {
                Ok(true) => compared += 1,
                Ok(false) => break,
                Err(difference) => return Err(format!("step {step}: {difference}")),
            }
        }
        accepted += stage.ours.door.counters().accepted;
        payloads += stage.ours.connected.len();
        Ok(())
    });
    // The comparison is only useful if many datagrams are accepted.
    let is_useful = compared > 4_000 && accepted > 150 && payloads > 20;
    assert!(is_useful || throng_seeds::is_partial(), "{compared} steps, {accepted} let in, {payloads}");
}

#[test]
fn copies_of_a_token_are_the_same_token() {
    let token = token(1, 1, vec!["127.0.0.1:1".parse().unwrap()], 2_000, PROTOCOL_ID);
    assert_eq!(copy_of(&token).to_bytes(), token.to_bytes());
}
