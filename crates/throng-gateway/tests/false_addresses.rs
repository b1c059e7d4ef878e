//! Anybody can send a datagram under somebody else's address. Over KCP that begins a conversation: it must cost neither the
//! owner of the address nor the gateway much.

mod serving;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use throng_gateway::auth::AcceptAll;
use throng_gateway::engine::port::Side;
use throng_gateway::serve::{DoorLimits, Reason, Transport};

use serving::kcp::KcpClient;
use serving::{Serving, eventually, serve, serve_with};

/// Begins a conversation that says nothing.
fn begin(address: SocketAddr) {
    let mut datagram = vec![7, 0, 0, 0, 81, 0, 128, 0];
    for word in [0, 0, 0, 1u32] {
        datagram.extend_from_slice(&word.to_le_bytes());
    }
    datagram.push(0x43);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.send_to(&datagram, address).expect("loopback takes it");
}

/// This machine's address counts like any other, and is shut out after few strikes.
fn strict(limits: &mut DoorLimits, strikes: u32) {
    (limits.counts_loopback, limits.strikes) = (true, strikes);
}

fn banned(serving: &Serving) -> u64 {
    serving.refused(Reason::Banned)
}

#[test]
fn nobody_is_shut_out_for_what_came_under_its_address() {
    let arguments = ["-limit", "max_unauthenticated_ms=200"];
    let serving = serve_with(Transport::Kcp, &arguments, Arc::new(AcceptAll), |options| {
        strict(&mut options.doors[1].limits, 3);
    });
    (0..6).for_each(|_| begin(serving.address()));
    eventually("they are sent away", || serving.refused(Reason::Stranger) == 6);
    KcpClient::connect(serving.address(), 9, usize::MAX).join();
    assert_eq!(banned(&serving), 0);
    serving.end();
}

#[test]
fn whoever_has_proved_its_address_is_shut_out_for_what_it_does() {
    let serving = serve(Transport::Kcp, |options| strict(&mut options.doors[1].limits, 1));
    let mut client = KcpClient::connect(serving.address(), 9, usize::MAX);
    client.join();
    client.send_raw(b"these bytes are no frame");
    eventually("it is sent away", || {
        client.turn();
        serving.refused(Reason::BadFrame) == 1
    });
    eventually("it is shut out", || {
        begin(serving.address());
        banned(&serving) > 0
    });
    serving.end();
}

#[test]
fn conversations_under_false_addresses_are_bounded_and_make_place_for_others() {
    let serving = serve(Transport::Kcp, |_| {});
    let mut member = KcpClient::connect(serving.address(), 9, usize::MAX);
    member.join();
    // It acknowledges its welcome with the next thing that it says.
    member.echo(b"here");
    for _ in 0..44 {
        (0..50).for_each(|_| begin(serving.address()));
        std::thread::sleep(Duration::from_millis(5));
    }
    eventually("the oldest are lost", || serving.refused(Reason::Unproved) > 50);
    eventually("no more than 2,048 are left", || {
        serving.gateway.report().is_some_and(|report| report.occupancy.clients <= 2_049)
    });
    let open = serving.gateway.counters().of(Side::Client).accepted.load(std::sync::atomic::Ordering::Relaxed);
    assert!(open > 2_100, "{open} have begun");
    member.echo(b"still here");
    KcpClient::connect(serving.address(), 9, usize::MAX).join();
    serving.end();
}
