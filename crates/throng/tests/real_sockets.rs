//! Real sockets on loopback, with a server that has several threads. Time is real here, so the tests wait for what must
//! happen and never for how long it takes.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use throng::{
    ChannelKey, Client, ClientEvent, ClientOptions, CloseCause, EndReason, Key, ObjectId, Placement, Schema, Server,
    ServerEvent, ServerOptions, Time,
};
use throng_testkit::{Chat, Score};

const PATIENCE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(10);

struct Play {
    began: Instant,
    schema: Arc<Schema>,
    server: Server,
    clients: Vec<Client>,
    scores: Vec<ObjectId>,
    events: Vec<ServerEvent>,
}

impl Play {
    fn new(threads: usize) -> Play {
        let schema = throng_testkit::schema();
        let options =
            ServerOptions { threads, tick_interval: TICK, max_clients: 64, ..ServerOptions::new(7, Key::new([7; 32])) };
        let server = Server::bind("127.0.0.1:0".parse().expect("an address"), Arc::clone(&schema), options);
        let server = server.expect("loopback has a free port");
        let began = Instant::now();
        Play { began, schema, server, clients: Vec::new(), scores: Vec::new(), events: Vec::new() }
    }

    fn now(&self) -> Time {
        Time::from(self.began.elapsed())
    }

    fn come(&mut self, client_id: u64, servers: &[SocketAddr]) {
        let issuer = ServerOptions::new(7, Key::new([7; 32])).token_issuer();
        let token = issuer.issue(client_id, servers).expect("a token");
        let client = Client::connect(token, Arc::clone(&self.schema), ClientOptions::default(), self.now());
        self.clients.push(client.expect("a socket"));
    }

    /// One tick of everybody.
    fn step(&mut self) {
        let now = self.now();
        self.server.receive(now).expect("the socket lives");
        while let Some(event) = self.server.poll_event() {
            if let ServerEvent::Connected { connection, .. } = event {
                let channel = ChannelKey::Global(0);
                self.server.subscribe(connection, channel, 1).expect("room");
                let score = self.server.spawn(Score::default(), Placement::Channel(channel)).expect("room");
                self.scores.push(score);
            }
            self.events.push(event);
        }
        for score in &self.scores {
            let score = self.server.get_mut::<Score>(*score).expect("it is there");
            score.points = (score.points + 1) % 1_000;
        }
        self.server.tick(now);
        for client in &mut self.clients {
            client.update(now).expect("the socket lives");
        }
        std::thread::sleep(TICK);
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Play) -> bool) {
        while !done(self) {
            assert!(self.began.elapsed() < PATIENCE, "not within a minute: {what}");
            self.step();
        }
    }

    fn all_are_in(&self) -> bool {
        self.clients.iter().all(|client| client.is_connected())
    }
}

#[test]
fn a_server_with_two_threads_is_joined_played_and_left() {
    const CLIENTS: usize = 20;
    let mut play = Play::new(2);
    let home = play.server.local_address();
    (1..=CLIENTS as u64).for_each(|id| play.come(id, &[home]));
    play.until("all are in", |play| play.all_are_in() && play.scores.len() == CLIENTS);
    // Everybody sees everything, and messages pass both ways.
    play.until("all see all", |play| play.clients.iter().all(|client| client.objects::<Score>().count() == CLIENTS));
    let connections: Vec<_> = play.server.connections().collect();
    for (number, client) in play.clients.iter_mut().enumerate() {
        client.send(0, &Chat { number: number as u32, text: "here".into() }).expect("room");
    }
    for connection in &connections {
        play.server.send(*connection, 0, &Chat { number: 99, text: "welcome".into() }).expect("room");
    }
    let mut greeted = vec![false; CLIENTS];
    play.until("everybody has heard everybody", |play| {
        for (client, greeted) in play.clients.iter_mut().zip(&mut greeted) {
            while let Some(event) = client.poll_event() {
                *greeted |= matches!(event, ClientEvent::Message { lane: 0, .. });
            }
        }
        let heard = play.events.iter().filter(|event| matches!(event, ServerEvent::Message { .. })).count();
        heard == CLIENTS && greeted.iter().all(|greeted| *greeted)
    });
    // Half of them leave, the server closes the others.
    let now = play.now();
    play.clients[..CLIENTS / 2].iter_mut().for_each(|client| client.close(now, "enough"));
    play.until("they have left", |play| play.server.connection_count() == CLIENTS / 2);
    let now = play.now();
    play.server.shut_down(now, "closing time");
    play.until("nobody is there", |play| play.server.connection_count() == 0);
    play.until("all have been told", |play| play.clients.iter().all(|client| client.end_reason().is_some()));
    for client in &play.clients[CLIENTS / 2..] {
        let Some(EndReason::Closed(CloseCause::Peer(reason))) = client.end_reason() else {
            panic!("{:?}", client.end_reason());
        };
        assert_eq!(reason.text(), "closing time");
    }
    let ends = play.events.iter().filter(|event| matches!(event, ServerEvent::Disconnected { .. })).count();
    assert_eq!(ends, CLIENTS);
}

#[test]
fn the_second_server_of_a_token_is_tried_when_the_first_is_dead() {
    let mut play = Play::new(1);
    let home = play.server.local_address();
    let dead = {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.local_addr().expect("it is bound")
    };
    play.come(1, &[dead, home]);
    // Of another address family, if the machine has it: then it needs another socket.
    play.come(2, &["[::1]:9".parse().expect("an address"), home]);
    play.until("both are in", |play| play.all_are_in());
    assert!(play.clients.iter().all(|client| client.server() == Some(home)));
}

#[test]
fn a_client_that_opens_a_new_socket_in_the_middle_of_play_stays() {
    let mut play = Play::new(2);
    let home = play.server.local_address();
    play.come(1, &[home]);
    play.until("it is in", |play| play.all_are_in() && !play.scores.is_empty());
    let connection = play.server.connections().next().expect("it is in");
    let before = play.server.address(connection);
    let (mut sent, mut down) = (0, Vec::new());
    play.events.clear();
    play.until("200 messages each way, with three new sockets", |play| {
        if sent < 200 {
            let now = play.now();
            if sent % 60 == 30 {
                play.clients[0].rebind(now).expect("a socket");
            }
            let chat = Chat { number: sent, text: "on the way".into() };
            play.clients[0].send(0, &chat).expect("room");
            play.server.send(connection, 0, &chat).expect("room");
            sent += 1;
        }
        while let Some(event) = play.clients[0].poll_event() {
            if let ClientEvent::Message { message, .. } = event {
                down.push(message.get::<Chat>().expect("a chat").number);
            }
        }
        down.len() >= 200 && play.events.len() >= 200
    });
    assert!(down.iter().copied().eq(0..200), "{down:?}");
    let up = play.events.iter().map(|event| match event {
        ServerEvent::Message { message, .. } => message.get::<Chat>().expect("a chat").number,
        other => panic!("the server was told of {other:?}"),
    });
    assert!(up.eq(0..200));
    assert_ne!(play.server.address(connection), before);
    assert!(play.server.door_counters().moved >= 1, "{:?}", play.server.door_counters());
}
