//! A world server that says good-bye is not waited for; one that is just gone is.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use throng_gateway::auth::AcceptAll;
use throng_gateway::serve::{Transport, WebSocketOptions};
use throng_gateway_engine::port::Side;

use crate::serving::{auth_frame, bare, eventually};

/// A final frame of WebSocket from a client, masked with zeros.
fn websocket_frame(operation: u8, payload: &[u8]) -> Vec<u8> {
    [&[0x80 | operation, 0x80 | payload.len() as u8, 0, 0, 0, 0][..], payload].concat()
}

#[test]
fn a_server_that_closes_its_websocket_in_an_orderly_way_leaves_nothing_awaited() {
    for says_good_bye in [true, false] {
        let websocket = Transport::WebSocket(WebSocketOptions::default());
        let gateway =
            bare(Transport::Tcp, &["-scr"], Arc::new(AcceptAll), |options| options.doors[0].transport = websocket);
        let occupancy = || gateway.report().expect("it runs").occupancy;
        let mut server = TcpStream::connect(gateway.addresses()[0]).expect("the door is open");
        let request = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhyb25nIHRocm9uZyB0aA==\r\nSec-WebSocket-Version: 13\r\n\r\n";
        server.write_all(request.as_bytes()).expect("connected");
        let mut answer = [0; 12];
        server.read_exact(&mut answer).expect("it answers");
        assert_eq!(&answer, b"HTTP/1.1 101");
        server.write_all(&websocket_frame(2, &auth_frame())).expect("connected");
        let admitted = || gateway.report().expect("it runs").counters.of(Side::Server).admitted;
        eventually("it is inside", || admitted() == 1);
        if says_good_bye {
            server.write_all(&websocket_frame(8, &[])).expect("connected");
        }
        drop(server);
        eventually("it is gone", || occupancy().servers == 0);
        assert_eq!(occupancy().awaited, usize::from(!says_good_bye));
        gateway.shut_down();
    }
}

#[test]
fn a_peer_in_the_middle_of_its_handshake_does_not_hold_up_the_end() {
    let websocket = Transport::WebSocket(WebSocketOptions::default());
    let gateway = bare(websocket, &[], Arc::new(AcceptAll), |options| {
        options.drain = Duration::from_secs(20);
        options.doors[1].limits.handshake = Duration::from_secs(60);
    });
    let _silent = TcpStream::connect(gateway.addresses()[1]).expect("the door is open");
    eventually("it is let in", || gateway.counters().of(Side::Client).accepted.load(Ordering::Relaxed) == 1);
    let began = Instant::now();
    assert!(gateway.shut_down(), "it is cut off");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
