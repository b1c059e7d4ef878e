//! Throng's own link as a way in.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use throng_channeld::client::{Client, ClientOptions};
use throng_channeld::proto::{AuthMessage, AuthResultMessage, DisconnectMessage};
use throng_channeld::{Header, Message, Messages, message_type, put_body, put_message};
use throng_gateway::serve::{LinkOptions, Reason, Transport, link_session_options};
use throng_gateway_engine::port::Side;
use throng_link::netcode::{ClientHandshake, ClientOutcome, ConnectToken, Opener, PacketKind, PathProbe, Sealer};
use throng_link::session::{CloseCause, CloseCode, CloseReason, LaneId, Rest, Session, SessionOptions};
use throng_net::{LightUdpSocket, Transmit, UdpOptions};
use throng_wire::{Tick, Time};

use crate::serving::{
    ECHO, FLOOD, FLOOD_BYTES, LINK_KEY, Serving, eventually, payload_of, serve, soon, token, token_with,
};

/// A client of the link, with a network that may lose every so manieth datagram.
struct LinkClient {
    socket: UdpSocket,
    began: Instant,
    session: Session,
    sealer: Sealer,
    opener: Opener,
    probe: PathProbe,
    received: Vec<Message>,
    loses_every: usize,
    datagrams: usize,
    /// It acknowledges datagrams, and takes no messages out of its session.
    is_deaf: bool,
    has_ended: bool,
}

impl LinkClient {
    fn connect(address: SocketAddr, client_id: u64, loses_every: usize) -> LinkClient {
        LinkClient::connect_with(token(address, client_id), address, loses_every)
    }

    fn connect_with(token: ConnectToken, address: SocketAddr, loses_every: usize) -> LinkClient {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_read_timeout(Some(Duration::from_millis(1))).expect("it can be set");
        let began = Instant::now();
        let now = || Time(began.elapsed().as_micros() as u64);
        let mut handshake = ClientHandshake::new(token, now());
        let mut datagram = Vec::new();
        let connected = loop {
            assert!(began.elapsed() < Duration::from_secs(20), "nobody lets it in");
            if let Some(server) = handshake.poll_transmit(now(), &mut datagram) {
                socket.send_to(&datagram, server).expect("loopback takes it");
            }
            let mut bytes = [0; 2_000];
            if let Ok((count, from)) = socket.recv_from(&mut bytes)
                && let ClientOutcome::Connected(connected) = handshake.handle(now(), from, &mut bytes[..count])
            {
                break connected;
            }
        };
        socket.connect(address).expect("an address");
        LinkClient {
            socket,
            began,
            session: Session::new(Arc::new(link_session_options()), now()).expect("good options"),
            sealer: connected.sealer,
            opener: connected.opener,
            probe: connected.probe,
            received: Vec::new(),
            loses_every,
            datagrams: 0,
            is_deaf: false,
            has_ended: false,
        }
    }

    fn is_lost(&mut self) -> bool {
        self.datagrams += 1;
        self.datagrams.is_multiple_of(self.loses_every)
    }

    fn turn(&mut self) {
        let now = Time(self.began.elapsed().as_micros() as u64);
        let mut bytes = [0; 2_000];
        while let Ok(count) = self.socket.recv(&mut bytes) {
            if self.is_lost() {
                continue;
            }
            let Ok(opened) = self.opener.open(&mut bytes[..count]) else { continue };
            match opened.kind {
                PacketKind::Payload => {
                    self.probe.on_heard(now);
                    self.session.handle_packet(now, opened.sequence, opened.body).expect("sound");
                }
                PacketKind::KeepAlive => self.probe.on_heard(now),
                PacketKind::Challenge => self.probe.on_challenge(now, opened.body),
                PacketKind::Disconnect => self.has_ended = true,
                _ => {}
            }
        }
        self.session.handle_timeout(now);
        while self.session.poll_delivery().is_some() {}
        while !self.is_deaf
            && let Some((_, packet)) = self.session.poll_message()
        {
            self.received.extend(Messages::new(Bytes::from(packet)).map(|message| message.expect("sound")));
        }
        let mut datagram = Vec::new();
        if self.probe.poll_transmit(now, &mut self.sealer, &mut datagram) {
            let _ = self.socket.send(&datagram);
        }
        while let Some(plan) = self.session.poll_packet(now, self.sealer.envelope(0), Rest::Empty) {
            let mut datagram = Vec::new();
            plan.begin(Tick(0), &mut datagram).finish();
            self.sealer.seal_payload(&mut datagram).expect("it fits");
            if !self.is_lost() {
                let _ = self.socket.send(&datagram);
            }
        }
    }

    /// Goes on from another port.
    fn change_port(&mut self) -> SocketAddr {
        let gateway = self.socket.peer_addr().expect("connected");
        self.socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        self.socket.set_read_timeout(Some(Duration::from_millis(1))).expect("it can be set");
        self.socket.connect(gateway).expect("an address");
        self.socket.local_addr().expect("bound")
    }

    fn echo(&mut self, body: &[u8]) {
        self.send(Header::new(0, ECHO), body);
        assert_eq!(payload_of(&self.wait_for(ECHO).body), body);
    }

    fn send(&mut self, header: Header, body: &[u8]) {
        let mut entries = Vec::new();
        put_message(&mut entries, header, body);
        self.session.send(LaneId(0), &entries).expect("there is room");
    }

    fn wait_for(&mut self, msg_type: u32) -> Message {
        let deadline = soon();
        loop {
            if let Some(index) = self.received.iter().position(|message| message.msg_type == msg_type) {
                return self.received.remove(index);
            }
            assert!(Instant::now() < deadline, "no message of type {msg_type} within 20 s");
            self.turn();
        }
    }

    /// Logs in; the connection's id.
    fn join(&mut self) -> u32 {
        let auth =
            AuthMessage { player_identifier_token: "lin".into(), login_token: String::new(), ..Default::default() };
        let mut entries = Vec::new();
        put_body(&mut entries, Header::new(0, message_type::AUTH), &auth);
        self.session.send(LaneId(0), &entries).expect("there is room");
        self.wait_for(message_type::AUTH).decode::<AuthResultMessage>().expect("an answer").conn_id
    }
}

fn link() -> Transport {
    Transport::Link(LinkOptions::new(LINK_KEY))
}

/// A part of a test of `beside`.
pub(crate) fn the_link_carries_messages_both_ways_over_a_network_that_loses_some() {
    let serving = serve(link(), |_| {});
    for (client_id, loses_every) in [(1, usize::MAX), (2, 10)] {
        let mut client = LinkClient::connect(serving.address(), client_id, loses_every);
        client.join();
        for length in [1, 1_000, 5_000, 40_000] {
            client.send(Header::new(0, ECHO), &vec![9; length]);
            assert_eq!(payload_of(&client.wait_for(ECHO).body), vec![9; length]);
        }
        client.send(Header::new(0, FLOOD), &10u16.to_le_bytes());
        for _ in 0..10 {
            assert_eq!(payload_of(&client.wait_for(FLOOD).body).len(), FLOOD_BYTES);
        }
    }
    serving.end();
}

#[test]
fn many_clients_who_speak_at_once_are_each_answered_in_order() {
    // So many that several threads may serve them, if they are due at once.
    const CLIENTS: u64 = 200;
    const SAID: u8 = 5;
    let serving = serve(Transport::Link(LinkOptions { threads: 3, ..LinkOptions::new(LINK_KEY) }), |_| {});
    let joined = |client_id| {
        let mut client = LinkClient::connect(serving.address(), client_id, usize::MAX);
        client.join();
        client.socket.set_nonblocking(true).expect("it can be set");
        client
    };
    let mut clients: Vec<LinkClient> = (0..CLIENTS).map(joined).collect();
    for said in 0..SAID {
        for (number, client) in (0u8..).zip(&mut clients) {
            client.send(Header::new(0, ECHO), &[number, said]);
            client.turn();
        }
    }
    for (number, client) in (0u8..).zip(&mut clients) {
        let answers = [(); SAID as usize].map(|()| payload_of(&client.wait_for(ECHO).body));
        let expected: Vec<Vec<u8>> = (0..SAID).map(|said| vec![number, said]).collect();
        assert_eq!(answers.to_vec(), expected);
    }
    serving.end();
}

#[test]
fn a_client_that_leaves_is_forgotten_and_may_come_again() {
    let serving = serve(link(), |_| {});
    for _ in 0..2 {
        let mut client = LinkClient::connect(serving.address(), 5, usize::MAX);
        client.join();
        let now = Time(client.began.elapsed().as_micros() as u64);
        client.session.close(now, CloseReason::new(CloseCode::DONE, "enough"));
        eventually("the engine knows", || {
            client.turn();
            serving.gateway.report().is_some_and(|report| report.occupancy.clients == 0)
        });
    }
    serving.end();
}

/// Joins, is sent this many floods, and takes none of them. The connection's id.
fn be_flooded(client: &mut LinkClient, floods: u16) -> u32 {
    let id = client.join();
    client.send(Header::new(0, FLOOD), &floods.to_le_bytes());
    client.is_deaf = true;
    id
}

/// How the connection of a client that takes nothing ends for the client, after the gateway has ended it for this reason.
fn end_of(serving: &Serving, client: &mut LinkClient, reason: Reason) -> CloseCode {
    for (what, is_for_client) in [("the gateway has ended it", false), ("so has the session", true)] {
        eventually(what, || {
            client.turn();
            if is_for_client { client.session.is_closed() } else { serving.refused(reason) == 1 }
        });
    }
    match client.session.poll_close() {
        Some(CloseCause::Peer(reason)) => reason.code,
        other => panic!("the gateway has ended it: {other:?}"),
    }
}

#[test]
fn a_client_that_takes_nothing_and_has_too_much_waiting_loses_its_session_at_once() {
    let serving = serve(link(), |options| options.doors[1].limits.queued_bytes = 1 << 20);
    let mut client = LinkClient::connect(serving.address(), 5, usize::MAX);
    be_flooded(&mut client, 60);
    assert_eq!(end_of(&serving, &mut client, Reason::TooSlow), CloseCode::OVERLOADED);
    serving.end();
}

/// A part of a test of `beside`.
pub(crate) fn a_client_that_takes_nothing_keeps_its_session_no_longer_than_its_last_bytes_may_take() {
    // More than the client's session ever takes in.
    const FLOODS: u16 = 23;
    let serving = serve(link(), |_| {});
    let mut client = LinkClient::connect(serving.address(), 5, usize::MAX);
    let id = be_flooded(&mut client, FLOODS);
    let messages_out = || serving.gateway.report().expect("it runs").counters.of(Side::Client).messages_out;
    eventually("everything is sent, and the client takes no more", || {
        client.turn();
        messages_out() >= u64::from(FLOODS) && client.session.received_message_bytes() > 1 << 19
    });
    let mut server = Client::connect(serving.gateway.addresses()[0], ClientOptions::default()).expect("open");
    server.authenticate("another", "", soon()).expect("servers are let in");
    let disconnect = DisconnectMessage { conn_id: id };
    server.send(Header::new(0, message_type::DISCONNECT), &disconnect).expect("connected");
    assert_eq!(end_of(&serving, &mut client, Reason::FlushLate), CloseCode::OVERLOADED);
    serving.end();
}

#[test]
fn a_client_whose_datagrams_come_all_at_once_is_told_of_no_lost_one() {
    let serving = serve(link(), |_| {});
    let mut client = LinkClient::connect(serving.address(), 5, usize::MAX);
    // The network holds them back, and hands them over together.
    let now = || Time(client.began.elapsed().as_micros() as u64);
    let rate_bytes_per_s = 100_000_000;
    let options = SessionOptions {
        rate_bytes_per_s,
        initial_rate_bytes_per_s: rate_bytes_per_s,
        max_in_flight: 1_024,
        ..link_session_options()
    };
    client.session = Session::new(Arc::new(options), now()).expect("good options");
    let mut trains: Vec<(usize, Vec<u8>)> = Vec::new();
    let (began, mut packets) = (now(), 0);
    for step in 0..4 {
        let now = Time(began.0 + step);
        while packets < 150 * (step + 1)
            && let Some(plan) = client.session.poll_packet(now, client.sealer.envelope(0), Rest::Waiting)
        {
            let mut datagram = Vec::new();
            let mut packet = plan.begin(Tick(0), &mut datagram);
            // Zeros say nothing.
            packet.rest().0.push(0);
            packet.finish();
            client.sealer.seal_payload(&mut datagram).expect("it fits");
            packets += 1;
            match trains.last_mut().filter(|(length, train)| *length == datagram.len() && train.len() < 50 * length) {
                Some((_, train)) => train.extend(datagram),
                None => trains.push((datagram.len(), datagram)),
            }
        }
    }
    assert_eq!(packets, 600);
    let socket = client.socket.try_clone().expect("a handle");
    let mut socket = LightUdpSocket::of(socket, &UdpOptions::client()).expect("a socket");
    for (segment_bytes, bytes) in trains {
        let transmit = Transmit { to: serving.address(), bytes: &bytes, segment_bytes };
        socket.send(began, &transmit).expect("loopback takes it");
    }
    // Its clock stands still: packets count as lost for the order in which they came alone, not for a slow machine.
    eventually("all have a verdict", || {
        client.began = Instant::now() - Duration::from_micros(began.0 + 10_000);
        client.turn();
        client.session.statistics().packets_in_flight == 0
    });
    assert_eq!(client.session.statistics().counters.packets_lost, 0);
    serving.end();
}

#[test]
fn what_a_client_says_before_it_leaves_is_heard_however_slowly_it_is_taken_in() {
    const SAID: u64 = 100;
    let serving = serve(link(), |options| {
        let limits = &mut options.doors[1].limits;
        (limits.messages_per_s, limits.burst_messages) = (100, 20);
    });
    let mut client = LinkClient::connect(serving.address(), 5, usize::MAX);
    client.join();
    (0..SAID).for_each(|_| client.send(Header::new(0, ECHO), b"wait"));
    eventually("all of it has arrived", || {
        client.turn();
        client.session.pending_message_bytes() == 0
    });
    let now = Time(client.began.elapsed().as_micros() as u64);
    client.session.close(now, CloseReason::new(CloseCode::DONE, "enough"));
    client.turn();
    eventually("the engine knows", || serving.gateway.report().is_some_and(|report| report.occupancy.clients == 0));
    let report = serving.gateway.report().expect("it runs");
    assert_eq!(report.counters.of(Side::Client).messages_in, SAID + 1);
    serving.end();
}

#[test]
fn a_shut_down_ends_the_session_after_what_is_queued() {
    let serving = serve(link(), |options| options.doors[1].limits.flush = Duration::from_secs(30));
    let mut client = LinkClient::connect(serving.address(), 5, usize::MAX);
    client.join();
    let ended = std::thread::spawn(move || {
        eventually("it is told", || {
            client.turn();
            client.has_ended || client.session.is_closed()
        });
    });
    assert!(serving.gateway.shut_down(), "somebody was cut off");
    ended.join().expect("it ends");
}

#[test]
fn strangers_get_nowhere() {
    let serving = serve(link(), |_| {});
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..1_000 {
        let datagram: Vec<u8> = (0..random.usize(0..1_300)).map(|_| random.u8(..)).collect();
        stranger.send_to(&datagram, serving.address()).expect("loopback takes it");
    }
    let mut client = LinkClient::connect(serving.address(), 1, usize::MAX);
    client.join();
    let accepted = &serving.gateway.counters().of(Side::Client).accepted;
    assert_eq!(accepted.load(Ordering::Relaxed), 1);
    serving.end();
}

/// A part of a test of `beside`.
pub(crate) fn a_player_whose_address_changes_keeps_the_connection() {
    let serving = serve(link(), |_| {});
    let mut client = LinkClient::connect(serving.address(), 5, usize::MAX);
    client.join();
    // Told by the system, and found out by the silence.
    for is_told in [true, false] {
        client.echo(b"before");
        client.change_port();
        if is_told {
            client.probe.on_address_changed(Time(client.began.elapsed().as_micros() as u64));
        }
        client.echo(&[8; 20_000]);
    }
    let report = serving.gateway.report().expect("it runs");
    assert_eq!((report.occupancy.clients, report.counters.of(Side::Client).opened), (1, 1));
    serving.end();
}

#[test]
fn nothing_is_sent_to_an_address_that_was_not_proved() {
    let serving = serve(link(), |_| {});
    let mut client = LinkClient::connect(serving.address(), 5, usize::MAX);
    client.join();
    // Somebody on the way sends the client's next packet from elsewhere, and it has the client's wish to move in it.
    client.probe.on_address_changed(Time(client.began.elapsed().as_micros() as u64));
    let mut wish = Vec::new();
    let now = Time(client.began.elapsed().as_micros() as u64);
    assert!(client.probe.poll_transmit(now, &mut client.sealer, &mut wish));
    let thief = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    thief.set_read_timeout(Some(Duration::from_secs(5))).expect("it can be set");
    thief.send_to(&wish, serving.address()).expect("loopback takes it");
    let mut bytes = [0; 2_000];
    let challenge = thief.recv(&mut bytes).expect("the challenge");
    assert!(challenge < wish.len(), "it is no amplifier");
    thief.set_read_timeout(Some(Duration::from_millis(100))).expect("it can be set");
    client.echo(&[8; 20_000]);
    assert!(thief.recv(&mut bytes).is_err(), "the client's state goes to the client");
    serving.end();
}

#[test]
fn the_newest_token_of_a_player_has_the_place_of_the_old_connection_which_is_told_why() {
    let serving = serve(link(), |_| {});
    let mut old = LinkClient::connect(serving.address(), 5, usize::MAX);
    old.join();
    let mut new = LinkClient::connect(serving.address(), 5, usize::MAX);
    eventually("the old one is told", || {
        old.turn();
        old.session.is_closed()
    });
    let Some(CloseCause::Peer(reason)) = old.session.poll_close() else { panic!("the gateway has ended it") };
    assert_eq!(reason.code, CloseCode::REPLACED);
    new.join();
    new.echo(b"here");
    eventually("one is left", || serving.gateway.report().is_some_and(|report| report.occupancy.clients == 1));
    // Its address may change as any other's: the seat is its own now.
    new.change_port();
    new.probe.on_address_changed(Time(new.began.elapsed().as_micros() as u64));
    new.echo(b"elsewhere");
    serving.end();
}

#[test]
fn while_keys_are_changed_tokens_of_both_are_taken() {
    let (new, old, strange) = ([9; 32], LINK_KEY, [3; 32]);
    let options = LinkOptions { previous_private_key: Some(old), ..LinkOptions::new(new) };
    let serving = serve(Transport::Link(options), |_| {});
    for (client_id, key) in [(1, new), (2, old)] {
        let token = token_with(key, serving.address(), client_id);
        LinkClient::connect_with(token, serving.address(), usize::MAX).join();
    }
    let mut handshake = ClientHandshake::new(token_with(strange, serving.address(), 3), Time(0));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("it can be set");
    let mut datagram = Vec::new();
    assert!(handshake.poll_transmit(Time(0), &mut datagram).is_some());
    socket.send_to(&datagram, serving.address()).expect("loopback takes it");
    assert!(socket.recv(&mut [0; 2_000]).is_err(), "a stranger's key opens nothing");
    let accepted = &serving.gateway.counters().of(Side::Client).accepted;
    assert_eq!(accepted.load(Ordering::Relaxed), 2);
    serving.end();
}
