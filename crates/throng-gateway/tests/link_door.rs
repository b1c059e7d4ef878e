//! The door of Throng's own link: who is let in, who has to wait, and what becomes of the token.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use throng_channeld::client::{Client, ClientOptions};
use throng_channeld::link::{LinkClient, LinkClientError};
use throng_channeld::proto::{ChannelType, CreateChannelMessage};
use throng_channeld::{Header, message_type};
use throng_gateway::auth::AcceptAll;
use throng_gateway::serve::{DoorLimits, LinkOptions, Reason, Transport};
use throng_gateway_engine::port::Side;
use throng_link::netcode::{
    ClientHandshake, ClientState, ConnectError, ConnectToken, ConnectTokenOptions, Denial, DropReason, Key,
};
use throng_wire::Time;

use crate::serving::{LINK_KEY, Serving, bare, eventually, serve, soon, token, token_options};

fn link() -> Transport {
    Transport::Link(LinkOptions::new(LINK_KEY))
}

/// A gateway with other limits at its door of the link. This machine's own addresses count.
fn limited(change: impl FnOnce(&mut DoorLimits)) -> Serving {
    serve(link(), |options| {
        let limits = &mut options.doors[1].limits;
        limits.counts_loopback = true;
        change(limits);
    })
}

fn copy(token: &ConnectToken) -> ConnectToken {
    ConnectToken::from_bytes(&token.to_bytes()).expect("it is sound")
}

fn connect(token: ConnectToken) -> Result<LinkClient, LinkClientError> {
    LinkClient::connect(token, soon())
}

#[test]
fn players_behind_one_address_who_come_back_at_once_all_get_in_with_their_tokens() {
    let serving = limited(|limits| limits.arrivals_per_s = 1);
    let address = serving.address();
    // One comes twice, because its program was started again.
    let players: Vec<_> = [1, 1, 2].map(|id| thread::spawn(move || connect(token(address, id)).map(drop))).into();
    for player in players {
        player.join().expect("no panic").expect("it has to wait a little, and is let in");
    }
    assert!(serving.refused(Reason::ArrivesTooFast) > 0, "somebody had to wait");
    serving.end();
}

/// A socket that talks to this door only.
fn socket(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("it can be set");
    socket.connect(address).expect("an address");
    socket
}

/// Shows a token through this socket. How that ends.
fn show(token: ConnectToken, socket: &UdpSocket) -> ClientState {
    let began = Instant::now();
    let now = || Time(began.elapsed().as_micros() as u64);
    let address = socket.peer_addr().expect("connected");
    let mut handshake = ClientHandshake::new(token, now());
    let (mut datagram, mut bytes) = (Vec::new(), [0; 2_000]);
    while !matches!(handshake.state(), ClientState::Connected | ClientState::Failed(_)) {
        if handshake.poll_transmit(now(), &mut datagram).is_some() {
            socket.send(&datagram).expect("loopback takes it");
        }
        if let Ok(count) = socket.recv(&mut bytes) {
            handshake.handle(now(), address, &mut bytes[..count]);
        }
    }
    handshake.state()
}

#[test]
fn a_full_door_says_so_and_does_not_use_the_token_up() {
    let serving = limited(|limits| limits.connections_per_address = 1);
    let first = connect(token(serving.address(), 1)).expect("there is room");
    // A token is bound to the address that has shown it.
    let (late, socket) = (token(serving.address(), 2), socket(serving.address()));
    for _ in 0..2 {
        assert_eq!(show(copy(&late), &socket), ClientState::Failed(ConnectError::Denied(Denial::Full)));
    }
    assert!(serving.refused(Reason::TooManyFromAddress) >= 2);
    first.close();
    eventually("there is room again", || show(copy(&late), &socket) == ClientState::Connected);
    serving.end();
}

#[test]
fn a_silent_client_is_given_up_when_its_token_says_so() {
    let serving = limited(|_| {});
    let options = ConnectTokenOptions { timeout_s: 1, ..token_options(serving.address(), 1) };
    let random = &mut |bytes: &mut [u8]| bytes.fill(3);
    let token = ConnectToken::generate(&options, &Key::new(LINK_KEY), random).expect("good options");
    let _silent = connect(token).expect("it is let in");
    let began = Instant::now();
    let closed = &serving.gateway.counters().of(Side::Client).closed;
    eventually("it is given up", || closed.load(Ordering::Relaxed) == 1);
    assert!(began.elapsed() < Duration::from_secs(5), "the link's own timeout is 10 s");
    serving.end();
}

#[test]
fn forged_packets_from_a_clients_address_are_counted_and_change_nothing() {
    let serving = limited(|_| {});
    let outcomes = || serving.gateway.counters().of(Side::Client).link();
    let socket = socket(serving.address());
    assert_eq!(show(token(serving.address(), 1), &socket), ClientState::Connected);
    // The gateway counts after it has answered, and the client may have asked more than once.
    eventually("it is counted", || outcomes().accepted == 1 && outcomes().challenged >= 1);
    let before = (outcomes().accepted, outcomes().challenged);
    // Payloads by their prefix, with sequence numbers of one byte.
    for sequence in 0..10 {
        socket.send(&[&[0x15, sequence][..], &[9; 60]].concat()).expect("loopback takes it");
    }
    eventually("all are counted", || outcomes().dropped(DropReason::NotAuthentic) == 10);
    assert_eq!((outcomes().accepted, outcomes().challenged), before);
    serving.end();
}

#[test]
fn players_who_come_before_the_world_server_are_let_in_when_it_is_there() {
    let gateway = bare(link(), &[], Arc::new(AcceptAll), |options| options.waits_for_master = true);
    let [server_door, client_door]: [SocketAddr; 2] = gateway.addresses().try_into().expect("two doors");
    let player = thread::spawn(move || connect(token(client_door, 1)).map(drop));
    let refused = || gateway.counters().of(Side::Client).refused(Reason::NoMaster);
    eventually("it has asked to come in", || refused() > 0);
    let mut world = Client::connect(server_door, ClientOptions::default()).expect("the server door is open");
    world.authenticate("world", "", soon()).expect("servers are let in");
    let create = CreateChannelMessage { channel_type: ChannelType::Global.into(), ..Default::default() };
    world.send(Header::new(0, message_type::CREATE_CHANNEL), &create).expect("connected");
    player.join().expect("no panic").expect("it is let in");
    gateway.shut_down();
}
