//! A whole client and a whole server, each against a peer that shakes hands and then says anything: control messages,
//! messages, inputs, replication, late, twice or bent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use throng::net::{Condition, Driver, MemoryDriver, MemoryNetwork, Transmit};
use throng::{ClientCore, ClientEvent, ClientOptions, Key, Server, ServerEvent, ServerOptions};
use throng_link::netcode::{
    Accepted, Admission, ClientHandshake, ClientOutcome, ConnectToken, ConnectTokenOptions, Now, Opener, Outcome,
    Sealer, Seats, ServerHandshake, Suite, TAG_LEN, USER_DATA_LEN,
};
use throng_link::session::{Envelope, LaneId, LaneKind, LaneOptions, Rest, Session, SessionOptions};
use throng_schema::Schema;
use throng_wire::{Tick, Time};

use super::choices::Choices;
use super::kinds::{Everything, Label, Score};

const PROTOCOL_ID: u64 = 7;
const KEY: [u8; 32] = [0x42; 32];
/// Far in the future, for servers that look at the clock.
const EXPIRE_UNIX_S: u64 = 1 << 40;
const WAITING_MAX: usize = 64;
const TICK: Duration = Duration::from_millis(33);

fn server_address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 40_000))
}

fn client_address() -> SocketAddr {
    SocketAddr::from(([10, 0, 1, 1], 1_000))
}

/// The first byte says who is under test.
pub(crate) fn run(schema: &Arc<Schema>, input: &[u8]) {
    let mut choices = Choices::new(input);
    match choices.byte() & 1 {
        0 => run_client(schema, &mut choices),
        _ => run_server(schema, &mut choices),
    }
}

fn token() -> ConnectToken {
    let options = ConnectTokenOptions {
        protocol_id: PROTOCOL_ID,
        client_id: 1,
        create_unix_s: 1,
        expire_unix_s: EXPIRE_UNIX_S,
        suite: Suite::default(),
        timeout_s: 5,
        servers: vec![server_address()],
        user_data: [0; USER_DATA_LEN],
    };
    let mut rng = fastrand::Rng::with_seed(1);
    ConnectToken::generate(&options, &Key::new(KEY), &mut |bytes| rng.fill(bytes)).expect("good options")
}

/// The peer's end: a session of its own, and freedom to say what it likes.
struct Peer {
    session: Session,
    sealer: Sealer,
    opener: Opener,
}

impl Peer {
    fn new(sealer: Sealer, opener: Opener, now: Time) -> Peer {
        let lanes =
            [LaneKind::ReliableOrdered; 2].into_iter().chain([LaneKind::ReliableUnordered, LaneKind::Unreliable]);
        let options = SessionOptions { lanes: lanes.map(LaneOptions::new).collect(), ..SessionOptions::default() };
        let session = Session::new(Arc::new(options), now).expect("good options");
        Peer { session, sealer, opener }
    }

    fn take(&mut self, now: Time, datagram: &mut [u8]) {
        if let Ok(opened) = self.opener.open(datagram) {
            let _ = self.session.handle_packet(now, opened.sequence, opened.body);
        }
    }

    /// A sealed packet with what is queued, and then `rest`; perhaps bent before it is sealed.
    fn write(&mut self, now: Time, tick: Tick, rest: &[u8], choices: &mut Choices<'_>) -> Vec<u8> {
        let envelope = Envelope { tail_bytes: 0, ..self.sealer.envelope(0) };
        let header = envelope.head_bytes;
        let mut packet = vec![0; header];
        if let Some(plan) = self.session.poll_packet(now, envelope, Rest::Waiting) {
            packet.clear();
            let mut open = plan.begin(tick, &mut packet);
            let (buffer, end) = open.rest();
            let room_bytes = end - buffer.len();
            buffer.extend_from_slice(&rest[..rest.len().min(room_bytes)]);
            open.finish();
        }
        let mut payload = packet.split_off(header);
        choices.bend(&mut payload);
        if payload.is_empty() {
            payload.push(0);
        }
        packet.extend_from_slice(&payload);
        packet.resize(packet.len() + TAG_LEN, 0);
        self.sealer.seal_payload(&mut packet).expect("it fits");
        packet
    }

    /// Queues a message: `genuine`, perhaps bent, or any bytes, on any lane.
    fn say(&mut self, genuine: &[u8], choices: &mut Choices<'_>) {
        let how = choices.byte();
        let mut message = genuine.to_vec();
        if how & 1 != 0 {
            choices.bend(&mut message);
        }
        if how & 2 != 0 {
            let count = choices.below(80);
            message = choices.bytes(count).to_vec();
        }
        let lane = if how & 4 == 0 { 0 } else { how >> 3 & 3 };
        let _ = self.session.send(LaneId(lane), &message);
    }
}

/// A client stands whatever its server says, and ends at most once.
fn run_client(schema: &Arc<Schema>, choices: &mut Choices<'_>) {
    let mut now = Time::from_secs(1);
    let options = ClientOptions {
        replica: throng::replica::ClientOptions { objects: 24, slots: 64, limbo_ticks: Some(5), ..Default::default() },
        ..ClientOptions::default()
    };
    let mut client = ClientCore::new(token(), Arc::clone(schema), Arc::new(options), now).expect("good options");
    let Some(accepted) = let_in(&mut client, now) else { return };
    let mut peer = Peer::new(accepted.sealer, accepted.opener, now);
    let mut ends = 0;
    let (mut tick, mut datagram) = (Tick(u64::from(u32::MAX) - 20), Vec::new());
    while !choices.is_empty() {
        match choices.below(8) {
            0 | 1 => peer.say(&welcome(), choices),
            2 => now = now.after(Duration::from_millis(u64::from(choices.byte()) * 4)),
            3 => drop(client.send_typed_input(&Score::default())),
            4 => drop(client.send(choices.byte(), &Label::default())),
            5 if choices.byte() == 9 => client.close(now, "enough"),
            _ => {
                tick = tick.after(choices.byte().into());
                let count = choices.below(100);
                let rest = choices.bytes(count);
                let mut packet = peer.write(now, tick, rest, choices);
                client.handle(now, server_address(), &mut packet);
            }
        }
        while let Some(event) = client.poll_event() {
            match event {
                ClientEvent::Message { message, .. } => drop(message.get::<Everything>()),
                ClientEvent::Ended(reason) => {
                    ends += 1;
                    assert!(!reason.tag().is_empty());
                }
                _ => {}
            }
        }
        while client.poll_transmit(now, &mut datagram) {
            peer.take(now, &mut datagram);
        }
        assert!(ends <= 1);
        assert!(client.replica().is_none_or(|replica| replica.object_count() <= 24));
        assert_eq!(client.objects::<Everything>().filter(|(id, _)| client.get::<Everything>(*id).is_none()).count(), 0);
    }
}

/// The server's end of a handshake with `client`.
fn let_in(client: &mut ClientCore, now: Time) -> Option<Accepted> {
    let options = throng_link::netcode::ServerOptions::new(PROTOCOL_ID, Key::new(KEY), vec![server_address()]);
    let mut rng = fastrand::Rng::with_seed(77);
    let mut door = ServerHandshake::new(options, &mut |bytes| rng.fill(bytes));
    let seats = Seats { free: Some(0), max_clients: 1, held: &|_| None, admission: &|| Admission::Granted };
    let mut end = None;
    let (mut datagram, mut reply) = (Vec::new(), Vec::new());
    while end.is_none() && client.poll_transmit(now, &mut datagram) {
        let clocks = Now { unix_s: 2, time: now };
        if let Outcome::Accept(accepted) = door.handle(clocks, client_address(), &mut datagram, &seats, &mut reply) {
            end = Some(*accepted);
        }
        client.handle(now, server_address(), &mut reply);
    }
    end
}

fn welcome() -> Vec<u8> {
    let mut bytes = vec![2];
    for number in [0u32, 1, 33_333, 3] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&(u64::from(u32::MAX) - 20).to_le_bytes());
    bytes.push(1);
    [8.0f64; 3].iter().for_each(|size| bytes.extend_from_slice(&size.to_le_bytes()));
    bytes.push(0);
    bytes
}

/// A server stands whatever a client says: it holds at most its limit of events and one connection, and forgets the
/// client when it falls silent.
fn run_server(schema: &Arc<Schema>, choices: &mut Choices<'_>) {
    let mut now = Time::from_secs(1);
    let network = MemoryNetwork::new(Condition::NONE, 1).expect("good weather");
    let driver = network.endpoint(server_address()).expect("a free address");
    let mut outside = network.endpoint(client_address()).expect("a free address");
    let options = ServerOptions {
        max_clients: 2,
        waiting_messages: WAITING_MAX,
        ..ServerOptions::new(PROTOCOL_ID, Key::new(KEY))
    };
    let mut server = Server::new(Box::new(driver), Arc::clone(schema), options).expect("good options");
    let Some(mut peer) = enter(&mut server, &mut outside, now) else { return };
    let _ = server.spawn(Label { text: "a thing".into() }, throng::Placement::Channel(throng::ChannelKey::Global(0)));
    let (mut tick, mut events, mut inputs) = (Tick(0), 0, 0);
    while !choices.is_empty() {
        match choices.below(8) {
            0 => peer.say(&hello(schema), choices),
            1 => peer.say(&[3], choices),
            2 => peer.say(&[0, 1, 2, 3], choices),
            3 => drop(peer.session.push_input(&[choices.byte(); 5])),
            4 => now = now.after(Duration::from_millis(u64::from(choices.byte()) * 4)),
            5 if choices.byte() > 200 => {
                while server.poll_event().is_some() {}
                while server.poll_input().is_some() {}
                (events, inputs) = (0, 0);
            }
            _ => {
                tick = tick.after(1);
                let packet = peer.write(now, tick, &[], choices);
                outside.send(now, &Transmit::single(server_address(), &packet)).expect("it fits");
            }
        }
        turn(&mut server, now);
        let _ = outside.receive(now, &mut |_, _, datagram| peer.take(now, datagram));
        while peer.session.poll_message().is_some() {}
        assert!(server.connection_count() <= 1);
    }
    while let Some(event) = server.poll_event() {
        events += 1;
        look_at(&mut server, event, now);
    }
    while let Some((_, input)) = server.poll_input() {
        inputs += 1;
        server.read_input::<Score>(&input);
    }
    assert!(events <= WAITING_MAX + 2 && inputs <= WAITING_MAX, "{events} events, {inputs} inputs");
    for _ in 0..4 {
        now = now.after(Duration::from_secs(20));
        turn(&mut server, now);
    }
    assert_eq!(server.connection_count(), 0);
}

fn look_at(server: &mut Server, event: ServerEvent, now: Time) {
    match event {
        ServerEvent::Connected { connection, .. } => {
            let _ = server.send(connection, 0, &Label::default());
            let _ = server.subscribe(connection, throng::ChannelKey::Global(0), 1);
            server.set_viewpoint(connection, [0.0; 3]);
            server.tick(now);
        }
        ServerEvent::Message { message, .. } => {
            message.get::<Everything>();
        }
        ServerEvent::Refused { error, .. } => assert!(!error.tag().is_empty() && !error.to_string().contains('\n')),
        _ => {}
    }
}

fn turn(server: &mut Server, now: Time) {
    server.receive(now).expect("memory does not fail");
    server.tick(now);
}

/// The client's end of a handshake with `server`.
fn enter(server: &mut Server, outside: &mut MemoryDriver, mut now: Time) -> Option<Peer> {
    let mut handshake = ClientHandshake::new(token(), now);
    let (mut datagram, mut peer) = (Vec::new(), None);
    for _ in 0..8 {
        datagram.clear();
        if handshake.poll_transmit(now, &mut datagram).is_some() {
            outside.send(now, &Transmit::single(server_address(), &datagram)).expect("it fits");
        }
        turn(server, now);
        let _ = outside.receive(now, &mut |_, from, datagram| {
            if let ClientOutcome::Connected(connected) = handshake.handle(now, from, datagram) {
                peer = Some(Peer::new(connected.sealer, connected.opener, now));
            }
        });
        if peer.is_some() {
            return peer;
        }
        now = now.after(TICK);
    }
    None
}

fn hello(schema: &Schema) -> Vec<u8> {
    let mut bytes = vec![1, 2, 0];
    let lanes = throng::default_lanes();
    bytes.push(lanes.len() as u8);
    for (kind, lane) in lanes.iter().enumerate() {
        bytes.push(kind as u8);
        for limit in [lane.message_bytes, lane.queue_bytes] {
            bytes.extend_from_slice(&(limit as u32).to_le_bytes());
        }
    }
    bytes.extend_from_slice(&schema.hash().to_le_bytes());
    schema.summary().encode(&mut bytes);
    bytes
}
