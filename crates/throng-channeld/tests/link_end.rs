//! The client's end of the link beside a gateway's, joined by hand in virtual time: what it acknowledges, it gives out.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use throng_channeld::link::{LANE, LinkEnd, section, session_options};
use throng_channeld::message_type::{CHANNEL_DATA_UPDATE, USER_SPACE_START};
use throng_channeld::{Header, put_message};
use throng_link::netcode::{
    Admission, ClientHandshake, ClientOutcome, ConnectToken, ConnectTokenOptions, Key, Now, Opener, Outcome,
    PacketKind, Sealer, Seats, ServerHandshake, ServerOptions, Suite, USER_DATA_LEN,
};
use throng_link::session::{Delivery, Rest, Session};
use throng_wire::{Tick, Time};

const PROTOCOL_ID: u64 = 7;
const CREATED_UNIX_S: u64 = 1_800_000_000;
/// The channel that moves.
const MOVING: u32 = 7;

/// The gateway's end, without a gateway.
struct Gateway {
    session: Session,
    sealer: Sealer,
    opener: Opener,
    /// Messages that it has sent on the lane.
    sent: u32,
    /// The sequence of each packet with movement: the movement's number is its place.
    movement: Vec<u64>,
    delivered: BTreeSet<u64>,
    /// Messages that came from the client.
    heard: usize,
    /// The client has said that it takes movement.
    is_wanted: bool,
}

impl Gateway {
    fn send_message(&mut self) -> bool {
        let mut entries = Vec::new();
        put_message(&mut entries, Header::new(0, USER_SPACE_START), &[self.sent.to_le_bytes(); 260].concat());
        let is_sent = self.session.send(LANE, &entries).is_ok();
        self.sent += u32::from(is_sent);
        is_sent
    }

    /// All datagrams that it may send now, the first of which carries movement if `moves`.
    fn transmit(&mut self, now: Time, mut moves: bool) -> Vec<Vec<u8>> {
        let mut datagrams = Vec::new();
        self.session.handle_timeout(now);
        loop {
            let rest = if moves { Rest::Large } else { Rest::Empty };
            let mut datagram = Vec::new();
            let Some(plan) = self.session.poll_packet(now, self.sealer.envelope(0), rest) else { return datagrams };
            let takes_rest = plan.takes_rest();
            let mut packet = plan.begin(Tick(0), &mut datagram);
            if takes_rest && std::mem::take(&mut moves) {
                let (number, sequence) = (self.movement.len() as u32, packet.sequence());
                let out = packet.rest().0;
                section::begin_movement(out, 1, false);
                put_message(out, Header::new(MOVING, CHANNEL_DATA_UPDATE), &[number.to_le_bytes(); 60].concat());
                self.movement.push(sequence);
            }
            packet.finish();
            self.sealer.seal_payload(&mut datagram).expect("a connection is young");
            datagrams.push(datagram);
        }
    }

    fn handle(&mut self, now: Time, datagram: &mut [u8]) {
        // Questions about a new address are not for this opener.
        let Ok(opened) = self.opener.open(datagram) else { return };
        if opened.kind == PacketKind::Payload {
            let packet = self.session.handle_packet(now, opened.sequence, opened.body).expect("it is honest");
            self.is_wanted |= packet.is_some_and(|packet| section::Section::read(packet.rest).is_wanted);
        }
        while let Some((sequence, delivery)) = self.session.poll_delivery() {
            if delivery == Delivery::Delivered {
                self.delivered.insert(sequence);
            }
        }
        while self.session.poll_message().is_some() {
            self.heard += 1;
        }
    }
}

fn connected(now: Time) -> (LinkEnd, Gateway) {
    let address: SocketAddr = "10.0.0.1:40000".parse().expect("an address");
    let from: SocketAddr = "10.0.1.1:50000".parse().expect("an address");
    let key = Key::new([3; 32]);
    let options = ConnectTokenOptions {
        protocol_id: PROTOCOL_ID,
        client_id: 1,
        create_unix_s: CREATED_UNIX_S,
        expire_unix_s: CREATED_UNIX_S + 30,
        suite: Suite::default(),
        timeout_s: 10,
        servers: vec![address],
        user_data: [0; USER_DATA_LEN],
    };
    let mut count = 0u8;
    let mut random =
        |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| (count, *byte) = (count.wrapping_add(1), count));
    let token = ConnectToken::generate(&options, &key, &mut random).expect("good options");
    let mut door = ServerHandshake::new(ServerOptions::new(PROTOCOL_ID, key, vec![address]), &mut random);
    let mut client = ClientHandshake::new(token, now);
    let seats = Seats { free: Some(0), max_clients: 1, held: &|_| None, admission: &|| Admission::Granted };
    let (mut datagram, mut reply) = (Vec::new(), Vec::new());
    loop {
        client.poll_transmit(now, &mut datagram).expect("a step of the handshake");
        let clocks = Now { unix_s: CREATED_UNIX_S, time: now };
        let outcome = door.handle(clocks, from, &mut datagram, &seats, &mut reply);
        let outcome_at_client = client.handle(now, address, &mut reply);
        if let (Outcome::Accept(accepted), ClientOutcome::Connected(connected)) = (outcome, outcome_at_client) {
            let session = Session::new(Arc::new(session_options()), now).expect("good options");
            let mut gateway = Gateway {
                session,
                sealer: accepted.sealer,
                opener: accepted.opener,
                sent: 0,
                movement: Vec::new(),
                delivered: BTreeSet::new(),
                heard: 0,
                is_wanted: false,
            };
            let mut first = Vec::new();
            put_message(&mut first, Header::new(MOVING, CHANNEL_DATA_UPDATE), b"first state");
            gateway.session.send(LANE, &first).expect("room");
            return (LinkEnd::new(*connected, true, now).expect("good options"), gateway);
        }
    }
}

/// The numbers of messages and of movement that the program has polled.
#[derive(Default)]
struct Polled {
    messages: Vec<u32>,
    movement: Vec<u32>,
}

impl Polled {
    fn poll(&mut self, end: &mut LinkEnd) {
        while let Some(message) = end.poll_message().expect("the gateway is honest") {
            let number = message.body.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).expect("4 bytes at least");
            match message.msg_type {
                USER_SPACE_START => self.messages.push(number),
                _ if message.body.as_ref() != b"first state" => self.movement.push(number),
                _ => {}
            }
        }
    }
}

/// Both ends for a while, on a path of 20 ms each way that loses nothing, with as many messages as the gateway can queue and
/// movement in every step. Returns when it ended, with nothing under way.
fn play(
    end: &mut LinkEnd,
    gateway: &mut Gateway,
    from: Time,
    steps: u64,
    mut each: impl FnMut(&mut LinkEnd, u64),
) -> Time {
    const STEP: Duration = Duration::from_millis(20);
    let mut now = from;
    let (mut down, mut up): (Vec<Vec<u8>>, Vec<Vec<u8>>) = Default::default();
    let mut datagram = Vec::new();
    for step in 0..steps {
        now = now.after(STEP);
        for mut datagram in std::mem::take(&mut down) {
            end.handle(now, &mut datagram).expect("the gateway is honest");
        }
        each(end, step);
        while end.poll_transmit(now, &mut datagram) {
            up.push(datagram.clone());
        }
        for mut datagram in up.drain(..) {
            gateway.handle(now, &mut datagram);
        }
        while gateway.session.pending_message_bytes() < 200_000 && gateway.send_message() {}
        // The client has the channel's first state.
        let moves = !gateway.delivered.is_empty();
        if step + 1 < steps {
            down = gateway.transmit(now, moves);
        }
    }
    now
}

#[test]
fn a_program_that_does_not_read_for_a_minute_stays_connected_and_misses_no_message() {
    let (mut end, mut gateway) = connected(Time(0));
    let mut entries = Vec::new();
    put_message(&mut entries, Header::new(0, USER_SPACE_START), b"still here");
    let now = play(&mut end, &mut gateway, Time(0), 3_000, |end, step| {
        if step % 50 == 0 {
            end.send_entries(&entries).expect("it is still connected");
        }
    });
    assert!(!end.has_ended() && !gateway.session.is_closed());
    assert!(gateway.heard >= 58, "of what the client says in the meantime, {} messages of 60 arrive", gateway.heard);
    assert!(end.counters().refused > 0, "nothing had to wait");
    // Some seconds without news, so that the gateway finds out what the path carries.
    let mut polled = Polled::default();
    let before = gateway.sent;
    play(&mut end, &mut gateway, now, 500, |end, _| polled.poll(end));
    let read = polled.messages.len() as u32;
    assert_eq!(polled.messages, (0..read).collect::<Vec<_>>(), "each once, in order");
    assert!(read > before, "{read} were read, {before} were sent when the program began to read");
}

#[test]
fn movement_that_was_acknowledged_is_given_out() {
    let (mut end, mut gateway) = connected(Time(0));
    let mut polled = Polled::default();
    // It reads now and then, after more has come than may wait.
    play(&mut end, &mut gateway, Time(0), 4_000, |end, step| {
        if step % 1_500 == 1_499 {
            polled.poll(end);
        }
    });
    polled.poll(&mut end);
    assert!(end.counters().refused > 0, "nothing had to wait");
    let polled: BTreeSet<u32> = polled.movement.into_iter().collect();
    let (mut given_out, mut lost) = (0, Vec::new());
    for (number, sequence) in (0..).zip(&gateway.movement) {
        match (gateway.delivered.contains(sequence), polled.contains(&number)) {
            (true, true) => given_out += 1,
            (true, false) => lost.push(number),
            _ => {}
        }
    }
    assert!(lost.is_empty(), "{} were acknowledged and not given out: {lost:?}", lost.len());
    assert!(given_out > 100, "{given_out}");
}

#[test]
fn a_message_comes_before_the_movement_of_its_packet() {
    let (mut end, mut gateway) = connected(Time(0));
    let now = Time::from_millis(100);
    for datagram in &mut gateway.transmit(now, false) {
        end.handle(now, datagram).expect("it is honest");
    }
    assert!(end.poll_message().expect("it is honest").is_some(), "the first state");
    let now = Time::from_millis(200);
    let mut message = Vec::new();
    put_message(&mut message, Header::new(MOVING, USER_SPACE_START), b"before it moved");
    gateway.session.send(LANE, &message).expect("room");
    let mut datagram = Vec::new();
    let plan = gateway.session.poll_packet(now, gateway.sealer.envelope(0), Rest::Waiting).expect("a message waits");
    let mut packet = plan.begin(Tick(0), &mut datagram);
    let out = packet.rest().0;
    section::begin_movement(out, 2, false);
    put_message(out, Header::new(MOVING, CHANNEL_DATA_UPDATE), b"it moves");
    packet.finish();
    gateway.sealer.seal_payload(&mut datagram).expect("a connection is young");
    end.handle(now, &mut datagram).expect("it is honest");
    let bodies = std::iter::from_fn(|| end.poll_message().expect("it is honest")).map(|message| message.body);
    assert_eq!(bodies.collect::<Vec<_>>(), ["before it moved", "it moves"]);
}

#[test]
fn an_end_that_takes_in_many_datagrams_at_once_answers_before_the_gateway_takes_them_for_lost() {
    let (mut end, mut gateway) = connected(Time(0));
    let mut polled = Polled::default();
    let mut now = play(&mut end, &mut gateway, Time(0), 1_000, |end, _| polled.poll(end));
    // The program stands still for a sixth of a second. Its socket keeps what comes.
    let mut waiting = Vec::new();
    for _ in 0..20 {
        now = now.after(Duration::from_millis(8));
        while gateway.send_message() {}
        waiting.extend(gateway.transmit(now, true));
    }
    assert!(waiting.len() > 256, "only {} datagrams waited: one acknowledgement names them all", waiting.len());
    let lost = gateway.session.statistics().counters.packets_lost;
    let mut answers = Vec::new();
    let mut datagram = Vec::new();
    for mut waited in waiting {
        end.handle(now, &mut waited).expect("the gateway is honest");
        polled.poll(&mut end);
        while end.is_answer_due() && end.poll_transmit(now, &mut datagram) {
            answers.push(datagram.clone());
        }
    }
    while end.poll_transmit(now, &mut datagram) {
        answers.push(datagram.clone());
    }
    for mut answer in answers {
        gateway.handle(now, &mut answer);
    }
    println!("{} datagrams, {lost} given up before", gateway.session.statistics().counters.packets_sent);
    assert_eq!(gateway.session.statistics().counters.packets_lost, lost, "on a path that loses nothing");
}

#[test]
fn the_wish_for_movement_comes_through_whatever_is_lost_and_however_full_packets_are() {
    let cases = [None, Some(10), Some(900), Some(20_000)].map(|bytes| [(bytes, false), (bytes, true)]);
    for lost in 0..6 {
        for (message_bytes, moves) in cases.into_iter().flatten() {
            let (mut end, mut gateway) = connected(Time(0));
            if let Some(bytes) = message_bytes {
                let mut entries = Vec::new();
                put_message(&mut entries, Header::new(0, USER_SPACE_START), &vec![7; bytes]);
                end.send_entries(&entries).expect("there is room");
            }
            let (mut sent, mut datagram, mut packets) = (0, Vec::new(), 0);
            // Until nothing has happened for so long that keep-alives have been acknowledged.
            for step in 1..1_000 {
                let now = Time::from_millis(step * 20);
                if moves && step < 10 {
                    end.send_movement(Header::new(0, USER_SPACE_START), b"here").expect("it is short");
                }
                while end.poll_transmit(now, &mut datagram) {
                    sent += 1;
                    if sent > lost {
                        gateway.handle(now, &mut datagram);
                    }
                }
                packets = gateway.transmit(now, false).into_iter().fold(packets, |packets, mut datagram| {
                    end.handle(now, &mut datagram).expect("it is honest");
                    packets + 1
                });
            }
            let told =
                format!("{lost} lost, message of {message_bytes:?} bytes, moves {moves}: {sent} and {packets} packets");
            assert!(gateway.is_wanted, "{told}");
            assert_eq!(gateway.heard, usize::from(message_bytes.is_some()), "{told}");
            assert!(sent < 150, "the wish alone is no reason to send so much: {told}");
        }
    }
}
