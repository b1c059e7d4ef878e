//! Clients behind proxies: which address is counted, which is banned, and which is not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use throng_channeld::client::{Client, ClientOptions};
use throng_gateway::serve::{DoorLimits, Reason, ServeOptions, Transport, WebSocketOptions};
use throng_gateway_engine::port::Side;

use crate::serving::{ECHO, Serving, auth_frame, echo, eventually, payload_of, serve, soon, wait_for_end};
use crate::transports::Certificate;

/// Counts this machine's addresses too: proxies and clients of these tests are here.
fn strict(limits: &mut DoorLimits) {
    (limits.strikes, limits.counts_loopback, limits.arrivals_per_s) = (5, true, 0);
    limits.ban = Duration::from_secs(300);
}

fn behind(networks: &'static [&'static str]) -> impl FnOnce(&mut ServeOptions) {
    move |options| {
        strict(&mut options.doors[1].limits);
        options.doors[1].proxies = networks.iter().map(|network| network.parse().expect("a network")).collect();
    }
}

/// A proxy's header of version 1, for a client at 203.0.113.`last`.
fn line(last: u8) -> Vec<u8> {
    format!("PROXY TCP4 203.0.113.{last} 192.0.2.1 50000 12108\r\n").into_bytes()
}

/// The same in version 2, with an additional field.
fn binary(last: u8) -> Vec<u8> {
    let address = [203, 0, 113, last, 192, 0, 2, 1, 0xC3, 0x50, 0x2F, 0x4C];
    [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x13"[..], &address, &[4, 0, 4, 1, 2, 3, 4]].concat()
}

/// A connection through a proxy that has said this.
fn through(serving: &Serving, header: &[u8]) -> Client {
    let mut client = serving.connect(ClientOptions::default());
    client.send_raw(header).expect("connected");
    client
}

fn comes_in(serving: &Serving, header: &[u8]) -> bool {
    through(serving, header).authenticate("ada", "", soon()).is_ok()
}

/// Says something that is no protocol of ours, through a proxy, and waits for the end.
fn misbehave(serving: &Serving, header: &[u8]) {
    let before = serving.refused(Reason::BadFrame);
    let mut client = through(serving, header);
    client.send_raw(b"nonsense").expect("connected");
    wait_for_end(&mut client);
    eventually("it is counted", || serving.refused(Reason::BadFrame) > before);
}

#[test]
fn junk_behind_a_proxy_shuts_out_the_one_address_that_sent_it_and_not_the_proxy() {
    let serving = serve(Transport::Tcp, behind(&["127.0.0.0/8"]));
    (0..5).for_each(|_| misbehave(&serving, &line(7)));
    assert!(!comes_in(&serving, &line(7)));
    serving.counts(Reason::Banned, 1);
    for header in [line(8), binary(9), b"PROXY UNKNOWN\r\n".to_vec()] {
        assert!(comes_in(&serving, &header), "{header:?}");
    }
    assert!(!comes_in(&serving, &binary(7)), "the same address, said in another way");
    serving.end();
}

#[test]
fn each_client_behind_a_proxy_has_its_own_share_of_connections() {
    let serving = serve(Transport::Tcp, |options| {
        behind(&["127.0.0.1/32"])(options);
        options.doors[1].limits.connections_per_address = 1;
    });
    let mut inside: Vec<Client> = (1..=20).map(|last| through(&serving, &line(last))).collect();
    for client in &mut inside {
        client.authenticate("ada", "", soon()).expect("it is let in");
    }
    assert!(!comes_in(&serving, &line(20)));
    serving.counts(Reason::TooManyFromAddress, 1);
    inside.iter_mut().for_each(|client| echo(client, b"stays"));
    serving.end();
}

#[test]
fn a_peer_that_is_not_a_trusted_proxy_is_refused_and_counted() {
    let serving = serve(Transport::Tcp, behind(&["192.0.2.0/24", "::1/128"]));
    assert!(!comes_in(&serving, &line(7)));
    assert!(!comes_in(&serving, b""));
    serving.counts(Reason::UntrustedProxy, 2);
    serving.end();
}

#[test]
fn a_proxy_that_says_nothing_readable_is_refused_however_often_and_never_shut_out() {
    let serving = serve(Transport::Tcp, |options| {
        behind(&["127.0.0.1/32"])(options);
        options.doors[1].limits.handshake = Duration::from_millis(300);
    });
    let wrong = [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"PROXY TCP4 here there 1 2\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\0",
        b"PROX",
    ];
    for (index, header) in wrong.into_iter().cycle().take(12).enumerate() {
        wait_for_end(&mut through(&serving, header));
        serving.counts(Reason::BadProxyHeader, index as u64 + 1);
    }
    assert!(comes_in(&serving, &line(7)));
    serving.end();
}

#[test]
fn a_proxy_may_look_whether_the_gateway_is_there_as_often_as_it_likes() {
    let serving = serve(Transport::Tcp, behind(&["127.0.0.1/32"]));
    for _ in 0..60 {
        drop(TcpStream::connect(serving.address()).expect("open"));
        // LOCAL: the proxy speaks for itself.
        let mut local = TcpStream::connect(serving.address()).expect("open");
        local.write_all(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0").expect("connected");
    }
    serving.counts(Reason::Probe, 60);
    assert!(comes_in(&serving, &line(7)));
    let clients = serving.gateway.counters().of(Side::Client);
    assert_eq!(Reason::ALL.iter().map(|&reason| clients.refused(reason)).sum::<u64>(), 60);
    serving.end();
}

#[test]
fn websocket_and_tls_stand_behind_proxies_too() {
    let serving = serve(Transport::WebSocket(WebSocketOptions::default()), behind(&["127.0.0.1/32"]));
    let mut stream = TcpStream::connect(serving.address()).expect("open");
    stream.write_all(&binary(7)).expect("connected");
    let request = "GET / HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("connected");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 101");
    serving.end();

    let certificate = Certificate::new();
    let serving = serve(Transport::Tcp, |options| {
        behind(&["127.0.0.1/32"])(options);
        options.doors[1].tls = Some(certificate.files());
    });
    let mut stream = certificate.connect(serving.address());
    stream.sock.write_all(&line(7)).expect("connected");
    stream.write_all(&auth_frame()).expect("it speaks TLS behind the header");
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).expect("it is answered");
    assert_eq!(&answer[..2], b"CH");
    serving.end();
}

/// Connects and leaves without sending anything, sixty times: a minute of a load balancer's checks.
fn look_sixty_times(address: SocketAddr) {
    for _ in 0..60 {
        drop(TcpStream::connect(address).expect("open"));
    }
}

#[test]
fn a_load_balancer_that_looks_every_second_is_not_shut_out_of_any_door() {
    let certificate = Certificate::new();
    let websocket = || Transport::WebSocket(WebSocketOptions::default());
    for (transport, is_encrypted) in
        [(Transport::Tcp, false), (Transport::Tcp, true), (websocket(), false), (websocket(), true)]
    {
        let serving = serve(transport, |options| {
            strict(&mut options.doors[1].limits);
            options.doors[1].tls = is_encrypted.then(|| certificate.files());
        });
        look_sixty_times(serving.address());
        if is_encrypted {
            // Looks at the certificate and does not like it, or leaves after the first message.
            for _ in 0..10 {
                let mut stream = Certificate::new().connect(serving.address());
                assert!(stream.write_all(b"x").is_err(), "another certificate");
            }
        } else if serving.address().port() > 0 {
            let accepted =
                || serving.gateway.counters().of(Side::Client).closed.load(std::sync::atomic::Ordering::Relaxed);
            eventually("all have left", || accepted() >= 60);
        }
        let clients = serving.gateway.counters().of(Side::Client);
        eventually("all have left", || {
            clients.closed.load(std::sync::atomic::Ordering::Relaxed) >= 60 + 10 * u64::from(is_encrypted)
        });
        let strikes = [Reason::Handshake, Reason::HandshakeLate, Reason::BadFrame, Reason::Stranger, Reason::Banned];
        assert!(strikes.into_iter().all(|reason| clients.refused(reason) == 0), "{is_encrypted}");
        serving.end();
    }
}

#[test]
fn a_health_check_of_a_websocket_door_that_asks_for_a_page_is_not_shut_out() {
    let serving =
        serve(Transport::WebSocket(WebSocketOptions::default()), |options| strict(&mut options.doors[1].limits));
    for _ in 0..20 {
        let mut stream = TcpStream::connect(serving.address()).expect("open");
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n").expect("connected");
        let _ = stream.read_to_end(&mut Vec::new());
    }
    serving.counts(Reason::Probe, 20);
    let options = ClientOptions { websocket_path: Some("/".into()), ..ClientOptions::default() };
    echo(&mut serving.join(options), b"it is still open");
    serving.end();
}

#[test]
fn five_junk_connections_do_not_shut_out_a_school_with_a_player_inside() {
    let serving = serve(Transport::Tcp, |options| strict(&mut options.doors[1].limits));
    let mut player = serving.join(ClientOptions::default());
    (0..20).for_each(|_| misbehave(&serving, b""));
    let mut friend = serving.join(ClientOptions::default());
    echo(&mut friend, b"let in");
    echo(&mut player, b"and still inside");
    player.send_bytes(throng_channeld::Header::new(0, ECHO), b"both").expect("connected");
    assert_eq!(payload_of(&player.wait_for(ECHO, soon()).expect("it comes back").body), b"both");
    serving.end();
}

/// A part of a test of `beside`.
pub(crate) fn newcomers_of_all_addresses_together_are_let_in_at_a_rate() {
    let serving = serve(Transport::Tcp, |options| options.doors[1].limits.all_arrivals_per_s = 20);
    let begin = std::time::Instant::now();
    let mut inside: Vec<Client> = (0..22).map(|_| serving.join(ClientOptions::default())).collect();
    assert!(begin.elapsed() >= Duration::from_millis(900), "two at once, then 20 in a second: {:?}", begin.elapsed());
    inside.iter_mut().for_each(|client| echo(client, b"nobody was refused"));
    serving.end();
}
