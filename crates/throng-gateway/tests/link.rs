//! Throng's own link as a way in.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use throng_channeld::proto::AuthMessage;
use throng_channeld::{Header, Message, Messages, message_type, put_body, put_message};
use throng_gateway::engine::port::Side;
use throng_gateway::serve::{LinkOptions, Transport, link_session_options};
use throng_link::netcode::{ClientHandshake, ClientOutcome, Opener, PacketKind, Sealer};
use throng_link::session::{CloseCode, CloseReason, LaneId, Rest, Session};
use throng_wire::{Tick, Time};

use crate::serving::{ECHO, FLOOD, FLOOD_BYTES, LINK_KEY, eventually, payload_of, serve, soon, token};

/// A client of the link, with a network that may lose every so manieth datagram.
struct LinkClient {
    socket: UdpSocket,
    began: Instant,
    session: Session,
    sealer: Sealer,
    opener: Opener,
    received: Vec<Message>,
    loses_every: usize,
    datagrams: usize,
    has_ended: bool,
}

impl LinkClient {
    fn connect(address: SocketAddr, client_id: u64, loses_every: usize) -> LinkClient {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_read_timeout(Some(Duration::from_millis(1))).expect("it can be set");
        let began = Instant::now();
        let now = || Time(began.elapsed().as_micros() as u64);
        let mut handshake = ClientHandshake::new(token(address, client_id), now());
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
            received: Vec::new(),
            loses_every,
            datagrams: 0,
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
                    self.session.handle_packet(now, opened.sequence, opened.body).expect("sound");
                }
                PacketKind::Disconnect => self.has_ended = true,
                _ => {}
            }
        }
        self.session.handle_timeout(now);
        while self.session.poll_delivery().is_some() {}
        while let Some((_, packet)) = self.session.poll_message() {
            self.received.extend(Messages::new(Bytes::from(packet)).map(|message| message.expect("sound")));
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

    fn join(&mut self) {
        let auth =
            AuthMessage { player_identifier_token: "lin".into(), login_token: String::new(), ..Default::default() };
        let mut entries = Vec::new();
        put_body(&mut entries, Header::new(0, message_type::AUTH), &auth);
        self.session.send(LaneId(0), &entries).expect("there is room");
        self.wait_for(message_type::AUTH);
    }
}

fn link() -> Transport {
    Transport::Link(LinkOptions::new(LINK_KEY))
}

#[test]
fn the_link_carries_messages_both_ways_over_a_network_that_loses_some() {
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
