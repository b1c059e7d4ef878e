//! Hostile packets are counted by reason, answered with less than they cost, and harm no other client.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::harness::{World, WorldOptions, copy_of, server_address, stranger};
use fastrand::Rng;
use throng::net::{Condition, Driver, Transmit};
use throng::{ChannelKey, ConnectToken, Key, LaneKind, LaneOptions, ObjectId, Placement, ServerEvent, Tick, Time};
use throng_link::netcode::{ClientHandshake, ClientOutcome, Connected, DropReason, PacketKind, TAG_LEN, move_seat};
use throng_link::session::{Envelope, LaneId, Rest, Session, SessionOptions};
use throng_seeds::for_seeds;
use throng_testkit::Score;

/// A world with one honest client that watches a score change in every tick.
struct Town {
    world: World,
    score: ObjectId,
}

impl Town {
    fn new(seed: u64) -> Town {
        Town::with_threads(seed, 1)
    }

    fn with_threads(seed: u64, threads: usize) -> Town {
        let mut options = WorldOptions::new(seed);
        (options.server.max_clients, options.server.threads) = (8, threads);
        let mut world = World::with_guests(options, 1);
        let connection = world.connection(0);
        let score = world.server.spawn(Score::default(), Placement::Channel(ChannelKey::Global(0))).expect("room");
        world.server.subscribe(connection, ChannelKey::Global(0), 1).expect("room");
        Town { world, score }
    }

    fn step(&mut self) {
        self.world.begin_step();
        self.world.server.get_mut::<Score>(self.score).expect("it is there").points += 1;
        self.world.end_step();
    }

    fn drops(&self) -> u64 {
        self.world.server.door_counters().dropped_total()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.world.server.door_counters().dropped(reason)
    }

    /// The honest client is as well off as ever.
    fn assert_peace(&mut self) {
        self.step();
        let points = self.world.server.get::<Score>(self.score).expect("it is there").points;
        let seen = self.world.guests[0].client.get::<Score>(self.score).expect("it is seen");
        assert_eq!(seen.points, points);
    }

    fn inject(&self, from: SocketAddr, bytes: &[u8]) {
        assert!(self.world.network.inject(self.world.now, from, server_address(), bytes), "the inbox has room");
    }
}

/// The received datagrams of a driver: number, bytes, and the longest.
fn heard(world: &World, driver: &mut impl Driver) -> (usize, usize, usize) {
    let (mut count, mut bytes, mut longest) = (0, 0, 0);
    let sink = &mut |_: Time, _: SocketAddr, datagram: &mut [u8]| {
        count += 1;
        bytes += datagram.len();
        longest = longest.max(datagram.len());
    };
    driver.receive(world.now, sink).expect("in memory");
    (count, bytes, longest)
}

fn request(token: &ConnectToken, world: &World) -> Vec<u8> {
    let mut request = Vec::new();
    ClientHandshake::new(copy_of(token), world.now).poll_transmit(world.now, &mut request).expect("a request");
    request
}

#[test]
fn noise_from_nowhere_is_counted_and_not_answered() {
    for_seeds(200, |seed| {
        let mut town = Town::new(seed);
        let mut rng = Rng::with_seed(seed);
        let mut driver = stranger(&town.world, 1);
        let before = town.drops();
        for length in (0..1_300).chain([1_078, 1_200, 9_000, 65_507]) {
            let mut noise: Vec<u8> = (0..length).map(|_| rng.u8(..)).collect();
            if length > 13 && rng.bool() {
                // As far as the eye can see, a request or a sealed packet.
                noise[0] = rng.u8(0..0x70);
                noise[1..14].copy_from_slice(b"NETCODE 1.02\0");
            }
            town.inject(driver.local_address(), &noise);
        }
        town.step();
        let (count, ..) = heard(&town.world, &mut driver);
        if count != 0 || town.drops() != before + 1_304 {
            return Err(format!("{count} answers, {} dropped", town.drops() - before));
        }
        assert_eq!(town.world.server.connection_count(), 1);
        town.assert_peace();
        Ok(())
    });
}

#[test]
fn forged_tokens_are_told_from_genuine_ones() {
    let mut town = Town::new(1);
    let mut driver = stranger(&town.world, 1);
    let from = driver.local_address();
    let forged = town.world.token_with(50, Key::new([9; 32]));
    town.inject(from, &request(&forged, &town.world));
    let genuine = town.world.token(51);
    let good = request(&genuine, &town.world);
    let mut tampered = good.clone();
    tampered[200] ^= 1;
    town.inject(from, &tampered);
    let mut other_protocol = good.clone();
    other_protocol[14] ^= 1;
    town.inject(from, &other_protocol);
    let mut other_version = good.clone();
    other_version[5] ^= 1;
    town.inject(from, &other_version);
    town.inject(from, &good[..good.len() - 1]);
    town.inject(from, &[&good[..], &[0]].concat());
    town.step();
    assert_eq!(heard(&town.world, &mut driver).0, 0);
    assert_eq!(town.dropped(DropReason::TokenNotAuthentic), 2);
    assert_eq!(town.dropped(DropReason::RequestProtocol), 1);
    assert_eq!(town.dropped(DropReason::RequestVersion), 1);
    assert_eq!(town.dropped(DropReason::RequestLength), 2);

    // The genuine one is challenged with less than it sent; from elsewhere it is a theft.
    town.inject(from, &good);
    town.inject("10.9.9.99:666".parse().expect("an address"), &good);
    town.step();
    let (count, bytes, _) = heard(&town.world, &mut driver);
    assert_eq!(count, 1);
    assert!(bytes < good.len());
    assert_eq!(town.dropped(DropReason::TokenUsedElsewhere), 1);
    town.assert_peace();
}

#[test]
fn long_datagrams_that_name_a_clients_address_are_opened_before_they_fill_the_memory() {
    // Together they are five times longer than what is kept.
    const LONG: usize = 350;
    for threads in [1, 2] {
        let mut town = Town::with_threads(5, threads);
        let (healthy, before) = (town.world.guests[0].address, town.drops());
        for _ in 0..LONG {
            town.inject(healthy, &[0x55; 60_000]);
        }
        town.assert_peace();
        assert_eq!(town.drops() - before, LONG as u64, "each is counted");
        town.assert_peace();
    }
}

#[test]
fn a_flood_of_genuine_requests_that_are_never_followed_up_shuts_nobody_out() {
    let mut town = Town::new(2);
    town.world.tap.open();
    town.world.tap.take();
    let mut asked = 0;
    const FLOOD: u64 = 3_000;
    for number in 0..FLOOD {
        let token = town.world.token(1_000 + number);
        let bytes = request(&token, &town.world);
        let from = SocketAddr::from(([172, 16, (number >> 8) as u8, number as u8], 7_000));
        town.inject(from, &bytes);
        asked += bytes.len();
        if number % 500 == 499 {
            town.step();
        }
    }
    let counters = town.world.server.door_counters().clone();
    assert_eq!(counters.challenged, FLOOD + 1);
    assert!(counters.pending_evicted >= FLOOD - 1_024, "the pending are bounded: {}", counters.pending_evicted);
    let healthy = town.world.guests[0].address;
    let answers: Vec<usize> =
        town.world.tap.take().iter().filter(|wire| wire.to != healthy).map(|wire| wire.bytes.len()).collect();
    assert_eq!(answers.len() as u64, FLOOD);
    assert!(answers.iter().sum::<usize>() * 3 < asked, "answers are shorter than questions");
    assert_eq!(town.world.server.connection_count(), 1);
    let late = town.world.join();
    town.world.steps(10);
    assert!(town.world.guests[late].client.is_connected(), "an honest client gets in after the flood");
    town.assert_peace();
}

#[test]
fn more_clients_than_allowed_are_turned_away_and_cost_nothing() {
    let mut town = Town::new(3);
    for _ in 0..40 {
        town.world.join();
    }
    town.world.steps(60);
    let connected = town.world.guests.iter().filter(|guest| guest.client.is_connected()).count();
    assert_eq!((connected, town.world.server.connection_count()), (8, 8));
    let turned_away = town.world.guests.iter().filter(|guest| guest.end().is_some()).count();
    assert_eq!(turned_away, 33);
    assert!(town.world.server.door_counters().denied_total() >= 33);
    town.assert_peace();
}

#[test]
fn replayed_and_altered_packets_of_a_connection_change_nothing() {
    for_seeds(100, |seed| {
        let mut town = Town::new(seed);
        let mut rng = Rng::with_seed(seed);
        town.world.client_tap.open();
        for _ in 0..30 {
            town.world.guests[0].client.send_input(&[7; 40]).expect("connected");
            town.step();
        }
        let packets = town.world.client_tap.take();
        assert!(packets.len() >= 30);
        let (honest, thief) = (town.world.guests[0].address, "10.9.9.98:666".parse().expect("an address"));
        town.world.inputs.clear();
        let count = packets.len() as u64;
        // The last is still under way: it is new until its original comes.
        let old = &packets[..packets.len() - 1];
        for wire in old {
            town.inject(honest, &wire.bytes);
        }
        town.step();
        assert_eq!(town.dropped(DropReason::Replayed), count - 1, "replays");
        for wire in old {
            let mut altered = wire.bytes.clone();
            // A number that is yet to come, so that it is not dropped as a replay before its seal is looked at.
            altered[1] = altered[1].wrapping_add(100);
            let at = rng.usize(2..altered.len());
            altered[at] ^= 1 << rng.u8(..8);
            town.inject(honest, &altered);
            town.inject(honest, &wire.bytes[..rng.usize(..wire.bytes.len())]);
            town.inject(honest, &[&wire.bytes[..], &vec![0; 60_000]].concat());
            town.inject(thief, &wire.bytes);
        }
        let before = town.drops();
        let inputs = town.world.inputs.len();
        town.step();
        if town.drops() != before + 4 * (count - 1) {
            return Err(format!("{} of {} are dropped", town.drops() - before, 4 * (count - 1)));
        }
        assert!(town.dropped(DropReason::NotAuthentic) > 0 && town.dropped(DropReason::TooShort) > 0);
        assert_eq!(town.dropped(DropReason::UnknownAddress), count - 1);
        assert_eq!(town.world.inputs.len(), inputs, "no input came of it");
        assert_eq!(town.world.server.connection_count(), 1);
        town.assert_peace();
        Ok(())
    });
}

/// Somebody with a genuine token who does not play by the rules.
struct Crook<D> {
    driver: D,
    link: Connected,
}

impl<D: Driver> Crook<D> {
    fn new(town: &mut Town, mut driver: D, client_id: u64) -> Crook<D> {
        let token = town.world.token(client_id);
        let mut handshake = ClientHandshake::new(token, town.world.now);
        let mut out = Vec::new();
        for _ in 0..20 {
            if let Some(to) = handshake.poll_transmit(town.world.now, &mut out) {
                driver.send(town.world.now, &Transmit::single(to, &out)).expect("in memory");
            }
            town.step();
            let (now, mut link) = (town.world.now, None);
            let sink = &mut |_: Time, from: SocketAddr, datagram: &mut [u8]| {
                if let ClientOutcome::Connected(connected) = handshake.handle(now, from, datagram) {
                    link = Some(*connected);
                }
            };
            driver.receive(now, sink).expect("in memory");
            if let Some(link) = link {
                return Crook { driver, link };
            }
        }
        panic!("the crook gets in");
    }

    fn send(&mut self, town: &Town, payload: &[u8]) {
        let start = self.link.sealer.header_len();
        let mut packet = [&vec![0; start][..], payload, &[0; TAG_LEN]].concat();
        self.link.sealer.seal_payload(&mut packet).expect("a good length");
        self.driver.send(town.world.now, &Transmit::single(server_address(), &packet)).expect("in memory");
    }
}

#[test]
fn any_payload_of_an_admitted_client_is_survived() {
    for_seeds(600, |seed| {
        let mut town = Town::new(seed);
        let mut rng = Rng::with_seed(seed);
        for number in 0..5u8 {
            let driver = stranger(&town.world, number + 1);
            let mut crook = Crook::new(&mut town, driver, 100 + u64::from(number));
            for _ in 0..rng.usize(1..12) {
                let mut payload: Vec<u8> = (0..rng.usize(1..1_180)).map(|_| rng.u8(..)).collect();
                if rng.bool() {
                    payload[0] = rng.u8(..16);
                }
                crook.send(&town, &payload);
            }
            town.step();
        }
        // Clients that broke the protocol are disconnected; the others are silent, and leave as well.
        town.world.events.clear();
        (0..240).for_each(|_| town.step());
        if town.world.server.connection_count() != 1 || !town.world.events.is_empty() {
            return Err(format!("{} connections left", town.world.server.connection_count()));
        }
        town.assert_peace();
        Ok(())
    });
}

#[test]
fn any_control_message_is_survived() {
    let lanes = |kind| LaneOptions { queue_messages: 2_000, ..LaneOptions::new(kind) };
    let kinds =
        [LaneKind::ReliableOrdered, LaneKind::ReliableOrdered, LaneKind::ReliableUnordered, LaneKind::Unreliable];
    let session_options = Arc::new(SessionOptions {
        lanes: kinds.map(lanes).to_vec(),
        rate_bytes_per_s: 1_000_000,
        ..SessionOptions::default()
    });
    for_seeds(400, |seed| {
        let mut town = Town::new(seed);
        let mut rng = Rng::with_seed(seed);
        let driver = stranger(&town.world, 1);
        let mut crook = Crook::new(&mut town, driver, 100);
        let mut session = Session::new(Arc::clone(&session_options), town.world.now).expect("good options");
        for _ in 0..200 {
            let lane = if rng.f64() < 0.7 { 0 } else { rng.u8(..4) };
            let mut message: Vec<u8> = (0..rng.usize(..60)).map(|_| rng.u8(..)).collect();
            if let Some(tag) = message.first_mut() {
                *tag = rng.u8(..5);
            }
            if rng.f64() < 0.2 {
                // "Ready" before there was a welcome.
                message = vec![3];
            }
            session.send(LaneId(lane), &message).expect("a place in the queue");
        }
        for _ in 0..40 {
            let mut payload = Vec::new();
            let envelope = Envelope::bare(crook.link.sealer.next_sequence());
            if let Some(plan) = session.poll_packet(town.world.now, envelope, Rest::Empty) {
                plan.begin(Tick(0), &mut payload).finish();
                crook.send(&town, &payload);
            }
            while session.poll_delivery().is_some() {}
            town.step();
        }
        let told = |event: &ServerEvent| match event {
            ServerEvent::Connected { client_id, .. } => *client_id == 100,
            ServerEvent::Message { .. } => true,
            _ => false,
        };
        if town.world.events.iter().any(told) {
            return Err("the crook was taken for a player".to_owned());
        }
        town.assert_peace();
        Ok(())
    });
}

#[test]
fn a_client_that_was_turned_away_does_not_come_in_by_what_it_says_next() {
    let lanes = [LaneKind::ReliableOrdered].into_iter().map(LaneOptions::new).chain(throng::default_lanes()).collect();
    let session_options = Arc::new(SessionOptions { lanes, ..SessionOptions::default() });
    let mut town = Town::new(5);
    let hello = [&[1, 3, 0][..], &lanes_of(&throng::default_lanes()), &town.world.schema.hash().to_le_bytes()].concat();
    let old_hello = [1, 2, 0];
    // The first client speaks an old protocol. The second one sends no hello. The last one fits.
    let firsts: [Option<(u8, &[u8])>; 3] = [Some((0, &old_hello)), Some((1, b"a message")), None];
    for (number, first) in (1u8..).zip(firsts) {
        let client_id = 100 + u64::from(number);
        let driver = stranger(&town.world, number);
        let mut crook = Crook::new(&mut town, driver, client_id);
        let mut session = Session::new(Arc::clone(&session_options), town.world.now).expect("good options");
        town.world.events.clear();
        for messages in [first.as_slice(), &[(0, &hello), (0, &[3]), (1, b"a message")]] {
            for (lane, message) in messages {
                session.send(LaneId(*lane), message).expect("a place in the queue");
            }
            let mut payload = Vec::new();
            let envelope = Envelope::bare(crook.link.sealer.next_sequence());
            if let Some(plan) = session.poll_packet(town.world.now, envelope, Rest::Empty) {
                plan.begin(Tick(0), &mut payload).finish();
                crook.send(&town, &payload);
            }
            town.step();
            session.push_input(b"an input").expect("it is short");
        }
        (0..30).for_each(|_| town.step());
        let is_player =
            |event: &ServerEvent| matches!(event, ServerEvent::Connected { client_id: id, .. } if *id == client_id);
        assert_eq!(town.world.events.iter().any(is_player), first.is_none(), "{first:?}: {:?}", town.world.events);
        assert_eq!(town.world.server.connection_count(), if first.is_none() { 2 } else { 1 });
    }
    town.assert_peace();
}

/// The lanes of a hello, as the page about the wire format draws them.
fn lanes_of(lanes: &[LaneOptions]) -> Vec<u8> {
    let mut bytes = vec![lanes.len() as u8];
    for lane in lanes {
        bytes.push(lane.kind as u8);
        bytes.extend((lane.message_bytes as u32).to_le_bytes());
        bytes.extend((lane.queue_bytes as u32).to_le_bytes());
    }
    bytes
}

#[test]
fn an_endless_stream_of_inputs_is_bounded() {
    let mut town = Town::new(4);
    let connection = town.world.connection(0);
    for _ in 0..20 {
        for micros in 0..2_000 {
            town.world.guests[0].client.send_input(&[1; 8]).expect("connected");
            let now = throng::Time(town.world.now.0 + micros);
            town.world.guests[0].client.flush(now);
        }
        town.world.inputs.clear();
        town.step();
        // Unpolled data of a session is bounded; the newest is kept.
        assert!(town.world.inputs.len() <= 64, "{} inputs at once", town.world.inputs.len());
    }
    let counters = town.world.server.link_statistics(connection).expect("connected").counters;
    assert!(counters.inputs_overflowed > 0);
    town.assert_peace();
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_move_between_link_local_addresses_leaves_nothing_behind() {
    let mut town = Town::new(1);
    let second = town.world.join();
    town.world.connect_all();
    let (connection, address) = (town.world.connection(second), town.world.guests[second].address);
    // Its datagrams come from a link-local address from now on, so the server's answers go to that address.
    let link_local: SocketAddr = "[fe80::1%7]:50000".parse().expect("an address");
    town.world.network.set_way(address, server_address(), Condition::BLACKOUT).expect("a good condition");
    town.world.client_tap.open();
    let now = town.world.now;
    town.world.guests[second].client.on_address_changed(now);
    town.step();
    let heard = town.world.client_tap.take();
    let asked = heard.iter().find(|wire| move_seat(&wire.bytes).is_some()).expect("it asks for its new address");
    town.inject(link_local, &asked.bytes);
    town.step();
    assert_eq!(town.world.server.door_counters().move_challenged, 1);
    town.world.server.disconnect(connection, now, "enough");
    let is_gone = |world: &World| world.server.connection_count() == 1;
    town.world.steps_until(300, is_gone).expect("the connection ends");
    // A late response from there belongs to nobody.
    let before = town.drops();
    town.inject(link_local, &[0x10 | PacketKind::Response as u8; 330]);
    town.step();
    assert_eq!(town.drops(), before + 1);
    town.assert_peace();
}
