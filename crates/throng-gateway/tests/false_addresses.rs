//! Anybody can send a datagram with a forged address. Over KCP that must cost neither the owner of the address nor the
//! gateway anything.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::Duration;

use throng_channeld::Header;
use throng_gateway::serve::{DoorLimits, Reason, Transport};
use throng_gateway_engine::port::Side;

use crate::serving::kcp::KcpClient;
use crate::serving::{ECHO, FLOOD, FLOOD_BYTES, Serving, eventually, payload_of, serve};

const PUSH: u8 = 81;
const ACK: u8 = 82;
const WINDOW_TELL: u8 = 84;

/// One segment of KCP, with a number, and what it acknowledges.
fn segment(conversation: u32, command: u8, (number, unacknowledged): (u32, u32), data: &[u8]) -> Vec<u8> {
    let mut datagram = conversation.to_le_bytes().to_vec();
    datagram.extend_from_slice(&[command, 0, 0, 0]);
    for word in [0, number, unacknowledged, data.len() as u32] {
        datagram.extend_from_slice(&word.to_le_bytes());
    }
    datagram.extend_from_slice(data);
    datagram
}

fn beginning(conversation: u32) -> Vec<u8> {
    segment(conversation, PUSH, (0, 0), b"C")
}

/// Begins a conversation from a port that does not answer.
fn begin(address: SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.send_to(&beginning(7), address).expect("loopback takes it");
}

/// This machine's address counts like any other, and is banned after few strikes.
fn strict(limits: &mut DoorLimits, strikes: u32) {
    (limits.counts_loopback, limits.strikes) = (true, strikes);
}

fn entered(serving: &Serving) -> u64 {
    serving.gateway.counters().of(Side::Client).accepted.load(Ordering::Relaxed)
}

#[test]
fn an_address_that_others_use_keeps_all_its_places_and_may_come_as_often_as_before() {
    let serving = serve(Transport::Kcp, |options| {
        let limits = &mut options.doors[1].limits;
        strict(limits, 1);
        (limits.connections_per_address, limits.arrivals_per_s) = (2, 2);
    });
    let mut member = KcpClient::connect(serving.address(), 9, usize::MAX);
    member.join();
    for _ in 0..40 {
        (0..50).for_each(|_| begin(serving.address()));
        // An honest datagram now and then: the door has taken what came before.
        member.echo(b"here");
    }
    KcpClient::connect(serving.address(), 9, usize::MAX).join();
    assert_eq!(entered(&serving), 2, "who has not shown its address has no place");
    for reason in [Reason::TooManyFromAddress, Reason::ArrivesTooFast, Reason::Banned] {
        assert_eq!(serving.refused(reason), 0, "{reason:?}");
    }
    serving.end();
}

#[test]
fn datagrams_that_are_no_segments_are_counted() {
    let serving = serve(Transport::Kcp, |_| {});
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    for datagram in [&b"short"[..], &segment(7, PUSH, (0, 0), &[0; 1_600])] {
        socket.send_to(datagram, serving.address()).expect("loopback takes it");
    }
    serving.counts(Reason::BadDatagram, 2);
    serving.end();
}

#[test]
fn a_peer_that_proved_its_address_can_be_banned() {
    let serving = serve(Transport::Kcp, |options| strict(&mut options.doors[1].limits, 1));
    let mut client = KcpClient::connect(serving.address(), 9, usize::MAX);
    client.join();
    client.send_raw(b"these bytes are no frame");
    eventually("it is sent away", || {
        client.turn();
        serving.refused(Reason::BadFrame) == 1
    });
    let mut again = client.begin_again(10);
    again.send(Header::new(0, ECHO), b"hello");
    eventually("it is shut out", || {
        again.turn();
        serving.refused(Reason::Banned) > 0
    });
    serving.end();
}

/// A part of a test of `beside`.
pub(crate) fn what_comes_under_the_address_of_a_conversation_does_not_end_it() {
    let serving = serve(Transport::Kcp, |_| {});
    let mut member = KcpClient::connect(serving.address(), 9, usize::MAX);
    member.join();
    member.echo(b"here");
    // Long enough for a peer that could be thought to have gone.
    std::thread::sleep(Duration::from_millis(3_100));
    for conversation in 100..200 {
        member.forge(&beginning(conversation));
        member.forge(&segment(conversation, ACK, (u32::MAX, 0), b""));
        member.forge(&segment(conversation, WINDOW_TELL, (0, 0), b""));
        member.forge(&segment(9, ACK, (conversation, 1 << 29), b""));
        member.forge(&segment(9, PUSH, (1 << 31, 0), b"far away"));
        member.forge(&[conversation as u8; 60]);
    }
    member.echo(b"still here");
    assert_eq!(entered(&serving), 1);
    serving.end();
}

#[test]
fn a_new_conversation_from_the_same_port_replaces_the_former_one() {
    let serving = serve(Transport::Kcp, |_| {});
    let mut former = KcpClient::connect(serving.address(), 9, usize::MAX);
    former.join();
    let mut again = former.begin_again(10);
    again.join();
    again.echo(b"here");
    let members = || serving.gateway.report().map(|report| report.occupancy.clients);
    eventually("the former one has ended", || members() == Some(1));
    serving.end();
}

#[test]
fn forged_acknowledgements_and_closed_windows_take_nothing_from_a_conversation() {
    const FLOODS: u16 = 6;
    let serving = serve(Transport::Kcp, |_| {});
    let mut member = KcpClient::connect(serving.address(), 9, 7);
    member.join();
    member.send(Header::new(0, FLOOD), &FLOODS.to_le_bytes());
    let is_flood = |message: &throng_channeld::Message| message.msg_type == FLOOD;
    eventually("all of it comes, though every seventh datagram is lost", || {
        // "I have everything up to here, and room for nothing."
        member.forge(&segment(9, WINDOW_TELL, (0, 1_000_000), b""));
        member.turn();
        member.received.iter().filter(|message| is_flood(message)).count() == usize::from(FLOODS)
    });
    assert!(member.received.iter().all(|message| payload_of(&message.body).len() == FLOOD_BYTES));
    serving.end();
}
