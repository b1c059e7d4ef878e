//! A player comes back: after a crash, from a second machine, from another address in the middle of play. And a refused
//! client gets the reason.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throng::net::{Condition, Driver, DriverCounters, MemoryDriver, MemoryNetwork, ReceiveError, SendError, Transmit};
use throng::{
    Client, ClientEvent, ClientOptions, CloseCause, CloseCode, ConnectError, ConnectToken, Denial, EndReason, Key,
    LaneKind, LaneOptions, Schema, SecondConnection, Server, ServerEvent, ServerOptions, Time, TokenIssuer,
};
use throng_testkit::Chat;

const STEP: Duration = Duration::from_millis(33);

fn home() -> SocketAddr {
    "10.0.0.1:40000".parse().expect("an address")
}

fn away(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, number], 50_000))
}

struct Rig {
    network: MemoryNetwork,
    server: Server,
    issuer: TokenIssuer,
    schema: Arc<Schema>,
    clients: Vec<(Client, Vec<ClientEvent>)>,
    events: Vec<ServerEvent>,
    now: Time,
}

impl Rig {
    fn new(change: impl FnOnce(&mut ServerOptions)) -> Rig {
        Rig::on(Condition { delay_us: 20_000, ..Condition::NONE }, change)
    }

    fn on(condition: Condition, change: impl FnOnce(&mut ServerOptions)) -> Rig {
        let network = MemoryNetwork::new(condition, 3).expect("a good condition");
        let schema = throng_testkit::schema();
        let mut options = ServerOptions { max_clients: 4, ..ServerOptions::new(3, Key::new([5; 32])) };
        change(&mut options);
        let issuer = options.token_issuer();
        let driver = Box::new(network.endpoint(home()).expect("free"));
        let server = Server::new(driver, Arc::clone(&schema), options).expect("good options");
        Rig { network, server, issuer, schema, clients: Vec::new(), events: Vec::new(), now: Time(0) }
    }

    fn token(&self, client_id: u64) -> ConnectToken {
        self.issuer.issue(client_id, &[home()]).expect("a token")
    }

    fn come(&mut self, client_id: u64, address: SocketAddr) -> usize {
        let driver = self.network.endpoint(address).expect("free");
        self.come_with(self.token(client_id), Box::new(driver), ClientOptions::default())
    }

    fn come_with(&mut self, token: ConnectToken, driver: Box<dyn Driver>, options: ClientOptions) -> usize {
        let client = Client::new(driver, token, Arc::clone(&self.schema), options, self.now).expect("good options");
        self.clients.push((client, Vec::new()));
        self.clients.len() - 1
    }

    fn step(&mut self) {
        self.now = self.now.after(STEP);
        self.server.receive(self.now).expect("in memory");
        while let Some(event) = self.server.poll_event() {
            self.events.push(event);
        }
        self.server.tick(self.now);
        for (client, events) in &mut self.clients {
            client.update(self.now).expect("in memory");
            while let Some(event) = client.poll_event() {
                events.push(event);
            }
        }
    }

    fn steps(&mut self, count: usize) {
        (0..count).for_each(|_| self.step());
    }

    fn is_in(&self, client: usize) -> bool {
        self.clients[client].0.is_connected()
    }

    /// How long it takes until a client is in.
    fn time_until_in(&mut self, client: usize) -> Duration {
        let began = self.now;
        while !self.is_in(client) {
            self.step();
            assert!(self.now.since(began) < Duration::from_secs(20), "{:?}", self.clients[client].0.end_reason());
        }
        self.now.since(began)
    }

    fn end_of(&self, client: usize) -> &EndReason {
        self.clients[client].0.end_reason().expect("it has ended")
    }

    /// The server's events, in one word each.
    fn story(&mut self) -> Vec<&'static str> {
        let story = self.events.iter().map(|event| match event {
            ServerEvent::Connected { .. } => "connected",
            ServerEvent::Disconnected { cause: CloseCause::Local(reason), .. }
                if reason.code == CloseCode::REPLACED =>
            {
                "replaced"
            }
            ServerEvent::Disconnected { .. } => "disconnected",
            ServerEvent::Denied { .. } => "denied",
            ServerEvent::Refused { .. } => "refused",
            ServerEvent::Message { .. } => "message",
            _ => "something",
        });
        let story = story.collect();
        self.events.clear();
        story
    }
}

#[test]
fn a_client_that_crashed_is_back_within_two_round_trips_from_wherever() {
    for same_address in [false, true] {
        let mut rig = Rig::new(|_| {});
        let first = rig.come(1, away(1));
        rig.time_until_in(first);
        rig.steps(30);
        assert_eq!(rig.story(), ["connected"]);
        rig.clients.clear(); // without a word
        let address = if same_address { away(1) } else { away(2) };
        let again = rig.come(1, address);
        // Three round trips of 40 ms, and the ticks at either end.
        let took = rig.time_until_in(again);
        assert!(took <= Duration::from_millis(3 * (40 + 66)), "{took:?}");
        rig.steps(30);
        assert_eq!(rig.story(), ["replaced", "connected"]);
        assert_eq!((rig.server.connection_count(), rig.server.connections().count()), (1, 1));
        rig.steps(600);
        assert!(rig.is_in(again) && rig.story().is_empty(), "and it stays");
    }
}

#[test]
fn a_replaced_client_gets_the_reason() {
    let mut rig = Rig::new(|options| options.max_clients = 1);
    let old = rig.come(1, away(1));
    rig.time_until_in(old);
    let new = rig.come(1, away(2));
    rig.time_until_in(new);
    rig.steps(30);
    let EndReason::Closed(CloseCause::Peer(reason)) = rig.end_of(old) else { panic!("{:?}", rig.end_of(old)) };
    assert_eq!(reason.code, CloseCode::REPLACED);
    assert!(reason.text().contains("newer connection"), "{reason}");
    assert!(!rig.is_in(old) && rig.is_in(new));
}

#[test]
fn the_last_words_of_a_replaced_client_are_heard_before_its_end() {
    let mut rig = Rig::new(|_| {});
    let old = rig.come(1, away(1));
    rig.time_until_in(old);
    rig.steps(10);
    rig.story();
    let new = rig.come(1, away(2));
    while rig.server.door_counters().replaced == 0 {
        // Something is always on its way.
        let _ = rig.clients[old].0.send(0, &Chat::default());
        rig.step();
    }
    rig.time_until_in(new);
    rig.steps(30);
    let story = rig.story();
    let end = story.iter().position(|word| *word == "replaced").expect("it was replaced");
    assert!(end > 0 && story[..end].iter().all(|word| *word == "message"), "{story:?}");
    assert_eq!(story[end + 1..], ["connected"]);
}

#[test]
fn a_server_that_refuses_second_connections_says_so_at_once_and_tells_its_game() {
    let mut rig = Rig::new(|options| options.second_connection = SecondConnection::Refuse);
    let first = rig.come(1, away(1));
    rig.time_until_in(first);
    rig.steps(10);
    rig.story();
    let second = rig.come(1, away(2));
    rig.steps(5);
    assert_eq!(*rig.end_of(second), EndReason::Connect(ConnectError::Denied(Denial::AlreadyConnected)));
    assert!(rig.end_of(second).to_string().contains("connected already"), "{}", rig.end_of(second));
    assert_eq!(rig.story(), ["denied"]);
    rig.steps(100);
    assert!(rig.is_in(first));
}

#[test]
fn a_client_that_is_turned_away_reads_what_to_do() {
    let mut rig = Rig::new(|options| options.max_clients = 1);
    let read = |rig: &mut Rig, token: ConnectToken, number: u8| {
        let driver = Box::new(rig.network.endpoint(away(number)).expect("free"));
        let client = rig.come_with(token, driver, ClientOptions::default());
        let began = rig.now;
        while rig.clients[client].0.end_reason().is_none() {
            rig.step();
        }
        (rig.now.since(began), rig.end_of(client).to_string())
    };
    let soon = Duration::from_millis(200);
    let other_protocol = TokenIssuer::new(4, Key::new([5; 32])).issue(7, &[home()]).expect("a token");
    let (took, text) = read(&mut rig, other_protocol, 1);
    assert!(took < soon && text.contains("protocol id"), "{took:?}: {text}");

    let token = rig.token(1);
    let copy = ConnectToken::from_bytes(&token.to_bytes()).expect("its own bytes");
    let driver = Box::new(rig.network.endpoint(away(2)).expect("free"));
    let first = rig.come_with(token, driver, ClientOptions::default());
    rig.time_until_in(first);
    let (took, text) = read(&mut rig, copy, 3);
    assert!(took < soon && text.contains("used before"), "{took:?}: {text}");
    let token = rig.token(2);
    let (took, text) = read(&mut rig, token, 4);
    assert!(took < soon && text.contains("no free seat"), "{took:?}: {text}");

    // A stranger gets no answer. The text names what it may be.
    let wrong_key = TokenIssuer::new(3, Key::new([6; 32])).issue(9, &[home()]).expect("a token");
    let (took, text) = read(&mut rig, wrong_key, 5);
    assert!(took >= Duration::from_secs(10) && text.contains("another private key"), "{took:?}: {text}");
    let counters = format!("{:?}", rig.server.door_counters());
    for name in ["denied_other_protocol", "denied_token_spent", "denied_full", "token_not_authentic"] {
        assert!(counters.contains(name), "{counters}");
    }
}

#[test]
fn lanes_that_differ_are_named_before_the_first_message() {
    let mut rig = Rig::new(|_| {});
    let lanes = vec![LaneOptions::new(LaneKind::ReliableOrdered), LaneOptions::new(LaneKind::Unreliable)];
    let driver = Box::new(rig.network.endpoint(away(1)).expect("free"));
    let options = ClientOptions { lanes, ..ClientOptions::default() };
    let client = rig.come_with(rig.token(1), driver, options);
    rig.steps(60);
    let text = rig.end_of(client).to_string();
    assert!(text.contains("lanes differ: the client has 2, the server 3"), "{text}");
    assert_eq!(rig.story(), ["refused"]);
}

/// A client that connects and then sends nothing.
#[test]
fn a_client_that_never_greets_loses_its_seat_after_five_seconds() {
    let mut rig = Rig::new(|options| options.max_clients = 1);
    let mut driver = rig.network.endpoint(away(1)).expect("free");
    let mut handshake = throng::link::netcode::ClientHandshake::new(rig.token(1), rig.now);
    let (mut out, mut connected) = (Vec::new(), None);
    for _ in 0..20 {
        if let Some(to) = handshake.poll_transmit(rig.now, &mut out) {
            driver.send(rig.now, &Transmit::single(to, &out)).expect("in memory");
        }
        rig.step();
        let sink = &mut |_: Time, from, bytes: &mut [u8]| {
            if let throng::link::netcode::ClientOutcome::Connected(end) = handshake.handle(rig.now, from, bytes) {
                connected = Some(end);
            }
        };
        driver.receive(rig.now, sink).expect("in memory");
    }
    // It lives: keep-alives prove that. But it has nothing to say.
    let mut end = connected.expect("it is let in");
    let began = rig.now;
    while rig.server.connection_count() > 0 {
        end.sealer.seal_keep_alive(0, 0, &mut out).expect("a number is left");
        driver.send(rig.now, &Transmit::single(home(), &out)).expect("in memory");
        rig.step();
        assert!(rig.now.since(began) < Duration::from_secs(8));
    }
    assert!(rig.now.since(began) > Duration::from_secs(4), "{:?}", rig.now.since(began));
    assert!(rig.server.limits_reached().any(|limit| limit == ("greetings_timed_out", 1)));
    assert!(rig.story().is_empty());
}

#[test]
fn the_timeout_of_the_token_counts_if_it_is_shorter() {
    let mut rig = Rig::new(|_| {});
    rig.issuer.timeout_s = 3;
    let client = rig.come(1, away(1));
    rig.time_until_in(client);
    rig.steps(10);
    rig.story();
    let (dead, began) = (Condition::BLACKOUT, rig.now);
    rig.network.set_condition(dead).expect("a good condition");
    while rig.server.connection_count() > 0 {
        rig.step();
    }
    assert!(rig.now.since(began) < Duration::from_millis(3_300), "{:?}", rig.now.since(began));
    rig.steps(10);
    assert_eq!(*rig.end_of(client), EndReason::Closed(CloseCause::IdleTimeout));
}

#[test]
fn what_the_backend_says_of_a_player_reaches_the_game() {
    let mut rig = Rig::new(|_| {});
    let token = rig.issuer.issue_with(1, &[home()], &[7; 256]).expect("a token");
    let driver = Box::new(rig.network.endpoint(away(1)).expect("free"));
    let client = rig.come_with(token, driver, ClientOptions::default());
    rig.time_until_in(client);
    rig.steps(5);
    assert!(matches!(&rig.events[..], [ServerEvent::Connected { user_data, .. }] if **user_data == [7; 256]));
}

#[test]
fn a_server_that_restarts_with_a_new_key_takes_the_tokens_of_the_old_one() {
    let mut rig = Rig::new(|options| {
        options.private_key = Key::new([6; 32]);
        options.previous_private_key = Some(Key::new([5; 32]));
    });
    for key in [5, 6] {
        let token = TokenIssuer::new(3, Key::new([key; 32])).issue(u64::from(key), &[home()]).expect("a token");
        let driver = Box::new(rig.network.endpoint(away(key)).expect("free"));
        let client = rig.come_with(token, driver, ClientOptions::default());
        rig.time_until_in(client);
    }
}

#[test]
fn a_server_that_has_restarted_is_noticed_by_silence_and_takes_nobody_for_an_old_friend() {
    let mut rig = Rig::new(|_| {});
    let client = rig.come(1, away(1));
    rig.time_until_in(client);
    rig.steps(30);
    let options = ServerOptions { max_clients: 4, ..ServerOptions::new(3, Key::new([5; 32])) };
    // The old server's socket is gone before the new one is opened.
    let elsewhere = rig.network.endpoint("10.0.0.9:9".parse().expect("an address")).expect("free");
    let idle = Server::new(Box::new(elsewhere), Arc::clone(&rig.schema), options.clone()).expect("good options");
    drop(std::mem::replace(&mut rig.server, idle));
    let driver = Box::new(rig.network.endpoint(home()).expect("free again"));
    rig.server = Server::new(driver, Arc::clone(&rig.schema), options).expect("good options");
    rig.story();
    let began = rig.now;
    while rig.clients[client].0.end_reason().is_none() {
        rig.step();
    }
    assert_eq!(*rig.end_of(client), EndReason::Closed(CloseCause::IdleTimeout));
    assert!(rig.now.since(began) < Duration::from_millis(10_500));
    let counters = rig.server.door_counters();
    assert_eq!((counters.accepted, counters.moved, counters.move_challenged), (0, 0, 0), "{counters:?}");
    let again = rig.come(1, away(2));
    rig.time_until_in(again);
}

/// A router that gives the client's datagrams another address, when it likes, without telling anybody.
struct Router {
    inside: Arc<Mutex<MemoryDriver>>,
    /// Stay empty: nobody asks this driver.
    counters: DriverCounters,
}

impl Driver for Router {
    fn send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        self.inside.lock().expect("no panic").send(now, transmit)
    }

    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8])) -> Result<usize, ReceiveError> {
        self.inside.lock().expect("no panic").receive(now, sink)
    }

    fn local_address(&self) -> SocketAddr {
        self.inside.lock().expect("no panic").local_address()
    }

    fn max_segments(&self) -> usize {
        1
    }

    fn counters(&self) -> &DriverCounters {
        &self.counters
    }
}

/// Messages both ways while the address changes; each must arrive once, and neither end may report the end of the
/// connection.
fn talk_while_moving(rig: &mut Rig, client: usize, mut change: impl FnMut(&mut Rig, u32)) -> usize {
    rig.time_until_in(client);
    rig.steps(10);
    rig.story();
    rig.clients[client].1.clear();
    let connection = rig.server.connections().next().expect("it is in");
    for number in 0..400 {
        change(rig, number);
        let chat = Chat { number, text: "on the way".into() };
        rig.clients[client].0.send(0, &chat).expect("room");
        rig.server.send(connection, 0, &chat).expect("room");
        rig.step();
    }
    rig.steps(150);
    let number = |message: &throng::Received| message.get::<Chat>().expect("a chat").number;
    let up = rig.events.iter().map(|event| match event {
        ServerEvent::Message { message, .. } => number(message),
        other => panic!("the server was told of {other:?}"),
    });
    let down = rig.clients[client].1.iter().map(|event| match event {
        ClientEvent::Message { message, .. } => number(message),
        other => panic!("the client was told of {other:?}"),
    });
    let (up, down): (Vec<u32>, Vec<u32>) = (up.collect(), down.collect());
    assert!(up.iter().copied().eq(0..400), "up: {up:?}");
    assert!(down.iter().copied().eq(0..400), "down: {down:?}");
    rig.server.door_counters().moved as usize
}

#[test]
fn a_router_that_changes_the_port_costs_no_message_and_no_connection() {
    for weather in ["none", "4g"] {
        let mut rig = Rig::on(weather.parse().expect("a preset"), |_| {});
        let driver = rig.network.endpoint(away(1)).expect("free");
        let inside = Arc::new(Mutex::new(driver));
        let router = Box::new(Router { inside: Arc::clone(&inside), counters: DriverCounters::default() });
        let client = rig.come_with(rig.token(1), router, ClientOptions::default());
        let moves = talk_while_moving(&mut rig, client, |rig, number| {
            if number % 150 == 100 {
                let address = away(100 + (number / 150) as u8);
                *inside.lock().expect("no panic") = rig.network.endpoint(address).expect("free");
            }
        });
        assert_eq!(moves, 2, "on {weather}");
    }
}

#[test]
fn a_client_that_changes_its_socket_is_there_again_after_a_round_trip() {
    let mut rig = Rig::new(|_| {});
    let client = rig.come(1, away(1));
    let mut changed_at = Time(0);
    let mut took = Duration::ZERO;
    let moves = talk_while_moving(&mut rig, client, |rig, number| {
        let connection = rig.server.connections().next().expect("it is in");
        if number == 100 {
            let driver = rig.network.endpoint(away(2)).expect("free");
            let now = rig.now;
            rig.clients[client].0.replace_driver(now, Box::new(driver));
            changed_at = now;
        } else if took.is_zero() && rig.server.address(connection) == Some(away(2)) {
            took = rig.now.since(changed_at);
        }
    });
    // Two round trips of 40 ms, and the ticks.
    assert!(moves == 1 && took <= Duration::from_millis(2 * (40 + 66)), "{moves} moves, {took:?}");
}

#[test]
fn somebody_who_records_and_replays_everything_from_elsewhere_changes_nothing() {
    let mut rig = Rig::new(|_| {});
    let tap = throng_testkit::Tap::new();
    tap.open();
    let driver = rig.network.endpoint(away(1)).expect("free");
    let driver = Box::new(tap.on(driver));
    let client = rig.come_with(rig.token(1), driver, ClientOptions::default());
    let mut thief = rig.network.endpoint(away(66)).expect("free");
    let mut recorded: Vec<Vec<u8>> = Vec::new();
    let mut rng = fastrand::Rng::with_seed(4);
    let moves = talk_while_moving(&mut rig, client, |rig, number| {
        recorded.extend(tap.take().into_iter().map(|wire| wire.bytes));
        if number == 120 {
            let driver = rig.network.endpoint(away(2)).expect("free");
            let driver = tap.on(driver);
            let now = rig.now;
            rig.clients[client].0.replace_driver(now, Box::new(driver));
        }
        // From the thief's own address, from the client's former and from its present one; whole, and as another kind.
        for _ in 0..20 {
            let mut bytes = recorded[rng.usize(..recorded.len())].clone();
            if rng.u8(..4) == 0 {
                bytes[0] = rng.u8(..);
            }
            let from = [away(66), away(1), away(2)][rng.usize(..3)];
            rig.network.inject(rig.now, from, home(), &bytes);
        }
    });
    assert_eq!(moves, 1, "the client's own");
    let mut heard = 0;
    thief.receive(rig.now, &mut |_, _, bytes| heard = heard.max(bytes.len())).expect("in memory");
    assert!(heard <= 333, "the thief was sent {heard} bytes");
}

#[test]
fn an_admitted_client_that_floods_is_not_listened_to_beyond_its_share() {
    let mut rig = Rig::new(|options| options.client_packets_per_s = 100);
    let flooder = rig.come(1, away(1));
    let honest = rig.come(2, away(2));
    rig.time_until_in(flooder);
    rig.time_until_in(honest);
    rig.steps(30);
    let noise = [0x25; 100];
    for _ in 0..30 {
        for _ in 0..2_000 {
            rig.network.inject(rig.now, away(1), home(), &noise);
        }
        rig.step();
    }
    let counters = rig.server.door_counters();
    let looked_at = counters.dropped(throng::link::netcode::DropReason::NotAuthentic);
    let dropped = counters.dropped(throng::link::netcode::DropReason::TooManyPackets);
    assert!(looked_at <= 1_700 && dropped >= 58_000, "{counters:?}");
    assert!(rig.is_in(honest) && rig.is_in(flooder));
}

#[test]
fn a_client_that_speaks_for_many_is_listened_to_more_than_the_others() {
    for (packets_per_s, most) in [(1_000, 17_000), (1, 1_700)] {
        let mut rig = Rig::new(|options| options.client_packets_per_s = 100);
        let speaker = rig.come(1, away(1));
        rig.time_until_in(speaker);
        rig.steps(30);
        let connection = rig.server.connections().next().expect("it is there");
        let now = rig.now;
        rig.server.set_packets_per_s(connection, packets_per_s, now);
        for _ in 0..30 {
            for _ in 0..2_000 {
                rig.network.inject(rig.now, away(1), home(), &[0x25; 100]);
            }
            rig.step();
        }
        let looked_at = rig.server.door_counters().dropped(throng::link::netcode::DropReason::NotAuthentic);
        assert!((most - most / 5..=most).contains(&looked_at), "{looked_at} of {packets_per_s} in a second");
        assert!(rig.is_in(speaker));
    }
}

/// A game that does not poll its events: waiting events are bounded, and no client can join without room for its event.
#[test]
fn a_game_that_does_not_poll_is_not_buried_in_comings_and_goings() {
    const LIMIT: usize = 3;
    let mut rig = Rig::new(|options| options.event_limit = LIMIT);
    let turn = |rig: &mut Rig| {
        rig.now = rig.now.after(STEP);
        rig.server.receive(rig.now).expect("in memory");
        rig.server.tick(rig.now);
        for (client, _) in &mut rig.clients {
            client.update(rig.now).expect("in memory");
        }
    };
    for round in 0..20 {
        let client = rig.come(round, away(round as u8));
        (0..20).for_each(|_| turn(&mut rig));
        let now = rig.now;
        rig.clients[client].0.close(now, "enough");
        (0..20).for_each(|_| turn(&mut rig));
        rig.clients.clear();
    }
    let mut told = 0;
    while let Some(event) = rig.server.poll_event() {
        assert!(matches!(event, ServerEvent::Connected { .. } | ServerEvent::Disconnected { .. }), "{event:?}");
        told += 1;
    }
    assert!((LIMIT..=LIMIT + 4).contains(&told), "{told} events wait");
    let client = rig.come(99, away(99));
    rig.time_until_in(client);
    rig.steps(5);
    assert_eq!(rig.story(), ["connected"], "once it polls, all is well again");
}

#[test]
fn what_cannot_be_sent_says_why() {
    use throng::{InputError, MessageError, Replicate};
    #[derive(Default, Replicate)]
    struct Unheard {
        #[replicate(bool)]
        of: bool,
    }
    let mut rig = Rig::new(|_| {});
    let client = rig.come(1, away(1));
    let chat = Chat::default();
    assert_eq!(rig.clients[client].0.send(0, &chat), Err(MessageError::NotConnected));
    assert_eq!(rig.clients[client].0.send_input(&[1]), Err(InputError::NotConnected));
    rig.time_until_in(client);
    assert_eq!(rig.clients[client].0.send_typed_input(&Unheard::default()), Err(InputError::UnknownKind));
    assert!(InputError::UnknownKind.to_string().contains("Schema::builder()"));
    assert_eq!(rig.clients[client].0.send(0, &Unheard::default()), Err(MessageError::UnknownKind));
    let now = rig.now;
    rig.clients[client].0.close(now, "enough");
    rig.steps(20);
    assert!(!rig.is_in(client));
    assert_eq!(rig.clients[client].0.send(0, &chat), Err(MessageError::NotConnected));
}
