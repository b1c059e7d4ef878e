//! Each way in, from the first byte to the last.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use throng_channeld::client::{Client, ClientError, ClientOptions};
use throng_channeld::proto::{ChannelType, CreateChannelMessage};
use throng_channeld::{Broadcast, Dialect, FrameReader, Header, Message, Messages, message_type};
use throng_gateway::auth::AcceptAll;
use throng_gateway::serve::{Gateway, LinkOptions, Part, Reason, ServeError, TlsFiles, Transport, WebSocketOptions};
use throng_gateway_engine::port::Side;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::serving::kcp::KcpClient;
use crate::serving::{
    ECHO, FLOOD, FLOOD_BYTES, LINK_KEY, Serving, auth_frame, bare, echo, eventually, payload_of, serve, soon, try_bare,
    wait_for_end,
};

fn websocket(path: &str, origin: &str) -> ClientOptions {
    ClientOptions { websocket_path: Some(path.into()), origin: origin.into(), ..ClientOptions::default() }
}

/// Sends 2 MB to the client and counts what arrives.
fn flood(client: &mut Client) {
    client.send_bytes(Header::new(0, FLOOD), &40u16.to_le_bytes()).expect("connected");
    for _ in 0..40 {
        let message = client.wait_for(FLOOD, soon()).expect("all of it comes");
        assert_eq!(payload_of(&message.body).len(), FLOOD_BYTES);
    }
}

#[test]
fn tcp_carries_messages_both_ways() {
    let serving = serve(Transport::Tcp, |_| {});
    let mut client = serving.join(ClientOptions::default());
    (0..50).for_each(|length| echo(&mut client, &vec![3; length * 1_000]));
    flood(&mut client);
    serving.end();
}

#[test]
fn websocket_carries_messages_both_ways() {
    let serving = serve(Transport::WebSocket(WebSocketOptions::default()), |_| {});
    for dialect in [Dialect::Fixed, Dialect::Legacy] {
        let mut client = serving.join(ClientOptions { dialect, ..websocket("/", "") });
        (0..50).for_each(|length| echo(&mut client, &vec![3; length * 1_000]));
        flood(&mut client);
    }
    serving.end();
}

#[test]
fn websocket_asks_for_its_path_and_checks_where_a_page_came_from() {
    let options = WebSocketOptions { path: "/play".into(), origins: vec!["https://game.example".into()] };
    let serving = serve(Transport::WebSocket(options), |_| {});
    let connect = |options| Client::connect(serving.address(), options).map(|_| ());
    assert!(connect(websocket("/play", "https://game.example")).is_ok());
    assert!(connect(websocket("/play", "")).is_ok());
    for (options, status) in [(websocket("/", ""), "404"), (websocket("/play", "https://evil.example"), "403")] {
        let Err(ClientError::Io(error)) = connect(options) else { panic!("let in") };
        assert!(error.to_string().contains(status), "{error}");
    }
    eventually("both are counted", || (serving.refused(Reason::Origin), serving.refused(Reason::Handshake)) == (1, 1));
    serving.end();
}

#[test]
fn websocket_frames_that_are_too_long_end_the_connection() {
    let serving = serve(Transport::WebSocket(WebSocketOptions::default()), |_| {});
    let mut client = serving.join(websocket("/", ""));
    client.send_raw(&[7; 70_000]).expect("connected");
    wait_for_end(&mut client);
    serving.counts(Reason::FrameTooLong, 1);
    serving.end();
}

/// A raw connection that has shaken hands.
fn raw_websocket(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("open");
    let request = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("it can be set");
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("an answer");
        answer.push(byte[0]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"));
    stream
}

/// A control frame of a client, with a mask of zeros.
fn control(opcode: u8, payload: &[u8]) -> Vec<u8> {
    [&[0x80 | opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat()
}

/// Each has to be answered, and the answers wait for a peer that does not read.
#[test]
fn a_stranger_sends_no_more_pings_than_it_may_say() {
    let serving = serve(Transport::WebSocket(WebSocketOptions::default()), |_| {});
    let mut stream = raw_websocket(serving.address());
    let ping = control(9, &[7; 125]);
    // 16 KiB are allowed: an error is the end of the connection.
    let sent = (0..10_000).take_while(|_| stream.write_all(&ping).is_ok()).count();
    serving.counts(Reason::Stranger, 1);
    assert!(sent * ping.len() > 16 << 10, "{sent}");
    serving.end();
}

#[test]
fn a_websocket_that_says_that_it_leaves_is_answered() {
    let serving = serve(Transport::WebSocket(WebSocketOptions::default()), |_| {});
    let mut stream = raw_websocket(serving.address());
    stream.write_all(&control(9, b"there?")).expect("connected");
    let mut pong = [0; 8];
    stream.read_exact(&mut pong).expect("an answer");
    assert_eq!(&pong, b"\x8a\x06there?");
    stream.write_all(&control(8, &1_000u16.to_be_bytes())).expect("connected");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("it ends");
    assert_eq!(rest, [0x88, 2, 0x03, 0xE8], "a close with the same code");
    serving.end();
}

#[test]
fn a_websocket_handshake_that_does_not_end_is_given_up() {
    let serving = serve(Transport::WebSocket(WebSocketOptions::default()), |options| {
        options.doors[1].limits.handshake = Duration::from_millis(200);
    });
    let mut stream = TcpStream::connect(serving.address()).expect("open");
    stream.write_all(b"GET / HTTP/1.1\r\n").expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("it can be set");
    assert_eq!(stream.read(&mut [0; 10]).expect("it is closed"), 0);
    serving.counts(Reason::HandshakeLate, 1);
    serving.end();
}

pub(crate) struct Certificate {
    folder: tempfile::TempDir,
    der: CertificateDer<'static>,
}

impl Certificate {
    pub(crate) fn new() -> Certificate {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).expect("written");
        std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).expect("written");
        Certificate { folder, der: made.cert.der().clone() }
    }

    pub(crate) fn files(&self) -> TlsFiles {
        TlsFiles { certificates: self.folder.path().join("cert.pem"), key: self.folder.path().join("key.pem") }
    }

    pub(crate) fn connect(&self, address: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).expect("it is one");
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
        StreamOwned::new(connection, TcpStream::connect(address).expect("open"))
    }

    /// Whether a login over an encrypted connection is answered.
    fn is_let_in(&self, address: SocketAddr) -> bool {
        let mut stream = self.connect(address);
        stream.sock.set_read_timeout(Some(Duration::from_secs(20))).expect("it can be set");
        if stream.write_all(&auth_frame()).is_err() {
            return false;
        }
        let mut reader = FrameReader::with_dialect(Dialect::Fixed);
        let mut bytes = [0; 1_000];
        loop {
            let Ok(count @ 1..) = stream.read(&mut bytes) else { return false };
            reader.push(&bytes[..count]).expect("it is short");
            if let Some(frame) = reader.next_frame().expect("sound") {
                let message = Messages::new(frame.payload).next().expect("one").expect("sound");
                return message.msg_type == message_type::AUTH;
            }
        }
    }
}

#[test]
fn tls_encrypts_tcp() {
    let certificate = Certificate::new();
    let serving = serve(Transport::Tcp, |options| options.doors[1].tls = Some(certificate.files()));
    assert!(certificate.is_let_in(serving.address()));
    serving.end();
}

/// A part of a test of `beside`.
pub(crate) fn encrypted_connections_begin_at_a_limited_rate_and_those_that_would_wait_too_long_are_refused() {
    const CROWD: u64 = 40;
    let certificate = Certificate::new();
    let serving = serve(Transport::Tcp, |options| {
        let door = &mut options.doors[1];
        door.tls = Some(certificate.files());
        (door.limits.handshakes_per_s, door.limits.handshake) = (10, Duration::from_secs(1));
    });
    let crowd: Vec<TcpStream> = (0..CROWD)
        .map(|_| {
            let mut stream = TcpStream::connect(serving.address()).expect("the door is open");
            // The first byte of a handshake.
            stream.write_all(&[0x16]).expect("connected");
            stream
        })
        .collect();
    eventually("all have begun or were refused", || {
        serving.refused(Reason::Busy) + serving.refused(Reason::HandshakeLate) >= CROWD
    });
    let refused = serving.refused(Reason::Busy);
    assert!((CROWD / 2..CROWD).contains(&refused), "{refused} of {CROWD} were refused");
    drop(crowd);
    eventually("others get in afterwards", || certificate.is_let_in(serving.address()));
    serving.end();
}

#[test]
fn tls_does_not_speak_with_those_who_do_not() {
    let certificate = Certificate::new();
    let serving = serve(Transport::Tcp, |options| options.doors[1].tls = Some(certificate.files()));
    let mut client = serving.connect(ClientOptions::default());
    client.send_raw(&auth_frame()).expect("connected");
    wait_for_end(&mut client);
    serving.counts(Reason::Handshake, 1);
    serving.end();
}

/// A part of a test of `beside`.
pub(crate) fn kcp_carries_messages_both_ways_over_a_network_that_loses_some() {
    let serving = serve(Transport::Kcp, |_| {});
    let mut clients = [(7, 1_000_000), (8, 10), (u32::MAX, 5)]
        .map(|(conversation, loses_every)| KcpClient::connect(serving.address(), conversation, loses_every));
    clients.iter_mut().for_each(|client| _ = client.join());
    for length in [1, 100, 1_376, 5_000, 40_000] {
        clients.iter_mut().for_each(|client| client.echo(&vec![9; length]));
    }
    serving.end();
}

#[test]
fn world_servers_come_over_websocket_and_kcp_too() {
    let create = CreateChannelMessage { channel_type: ChannelType::Global.into(), ..Default::default() };
    let says_hello = |gateway: &Gateway| {
        let mut client = Client::connect(gateway.addresses()[1], ClientOptions::default()).expect("the door is open");
        client.authenticate("player", "", soon()).expect("it is let in");
        client.send_bytes(Header::new(0, ECHO), b"hello").expect("connected");
        client
    };
    let hears_it = |mut client: Client| {
        let answer = client.wait_for(ECHO, soon()).expect("it comes back");
        assert_eq!(payload_of(&answer.body), b"hello");
    };
    let back = Header { broadcast: Broadcast::SINGLE_CONNECTION.0, ..Header::new(0, ECHO) };

    let over = |transport: Transport| {
        bare(Transport::Tcp, &[], Arc::new(AcceptAll), |options| options.doors[0].transport = transport)
    };
    let gateway = over(Transport::WebSocket(WebSocketOptions::default()));
    let mut world = Client::connect(gateway.addresses()[0], websocket("/", "")).expect("the door is open");
    world.authenticate("world", "", soon()).expect("servers are let in");
    world.send(Header::new(0, message_type::CREATE_CHANNEL), &create).expect("connected");
    world.wait_for(message_type::CREATE_CHANNEL, soon()).expect("it owns the world");
    let client = says_hello(&gateway);
    let heard = world.wait_for(ECHO, soon()).expect("the owner hears it");
    world.send_bytes(back, &heard.body).expect("connected");
    hears_it(client);
    gateway.shut_down();

    let gateway = over(Transport::Kcp);
    let mut world = KcpClient::connect(gateway.addresses()[0], 7, usize::MAX);
    world.join();
    world.send(Header::new(0, message_type::CREATE_CHANNEL), &prost::Message::encode_to_vec(&create));
    world.wait_for(message_type::CREATE_CHANNEL);
    let client = says_hello(&gateway);
    let heard = world.wait_for(ECHO);
    world.send(back, &heard.body);
    // The machine sends when its time comes, while it is driven.
    let listener = thread::spawn(move || hears_it(client));
    while !listener.is_finished() {
        world.turn();
        thread::sleep(Duration::from_millis(2));
    }
    listener.join().expect("the client hears it");
    gateway.shut_down();
}

#[test]
fn kcp_forgets_who_is_silent() {
    let serving = serve(Transport::Kcp, |options| options.doors[1].limits.silence = Duration::from_secs(2));
    let mut client = KcpClient::connect(serving.address(), 7, usize::MAX);
    client.join();
    serving.counts(Reason::Silent, 1);
    eventually("the engine knows", || serving.gateway.report().is_some_and(|report| report.occupancy.clients == 0));
    serving.end();
}

#[test]
fn kcp_starts_no_conversation_in_the_middle_and_stands_any_datagram() {
    let serving = serve(Transport::Kcp, |_| {});
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..2_000 {
        let mut datagram: Vec<u8> = (0..random.usize(0..200)).map(|_| random.u8(..)).collect();
        if round % 2 == 0 && datagram.len() > 24 {
            // A good head with a number that is not the first.
            datagram[4] = 81;
            datagram[12] |= 1;
        }
        stranger.send_to(&datagram, serving.address()).expect("loopback takes it");
    }
    let mut client = KcpClient::connect(serving.address(), 7, usize::MAX);
    client.join();
    let accepted = &serving.gateway.counters().of(Side::Client).accepted;
    assert_eq!(accepted.load(std::sync::atomic::Ordering::Relaxed), 1);
    serving.end();
}

/// Shuts down while 2 MB wait for a client that reads on after `pause` and talks all the time, as games do.
fn shut_down_during_a_flood(serving: Serving, options: ClientOptions, pause: Duration) -> (bool, usize) {
    const MESSAGES: u16 = 40;
    let mut client = serving.join(options);
    let messages_out = |gateway: &Gateway| gateway.report().expect("it runs").counters.of(Side::Client).messages_out;
    let before = messages_out(&serving.gateway);
    client.send_bytes(Header::new(0, FLOOD), &MESSAGES.to_le_bytes()).expect("connected");
    let mut bytes = payload_of(&client.wait_for(FLOOD, soon()).expect("the flood has begun").body).len();
    eventually("all of it is queued", || messages_out(&serving.gateway) >= before + u64::from(MESSAGES));
    let reader = std::thread::spawn(move || {
        std::thread::sleep(pause);
        let mut take = |message: Message| {
            if message.msg_type == FLOOD {
                bytes += payload_of(&message.body).len();
            }
        };
        loop {
            std::thread::sleep(Duration::from_millis(2));
            let _ = client.send_bytes(Header::new(0, ECHO), &[7; 100]);
            match client.poll(soon()) {
                Ok(message) => take(message.expect("still open")),
                Err(_) => break,
            }
        }
        // With the end may have come what was before it.
        while let Ok(Some(message)) = client.poll(Instant::now()) {
            take(message);
        }
        bytes
    });
    let Serving { gateway, .. } = serving;
    let all_went_out = gateway.shut_down();
    let bytes = reader.join().expect("whole frames to the end");
    (all_went_out, usize::from(MESSAGES) * FLOOD_BYTES - bytes)
}

#[test]
fn a_shut_down_delivers_what_is_queued_and_lets_nobody_in() {
    let ways = [
        (Transport::Tcp, ClientOptions::default()),
        (Transport::WebSocket(WebSocketOptions::default()), websocket("/", "")),
    ];
    for (transport, options) in ways {
        let serving = serve(transport, |options| {
            options.drain = Duration::from_secs(10);
            options.doors[1].limits.flush = Duration::from_secs(30);
        });
        let address = serving.address();
        let begin = Instant::now();
        assert_eq!(shut_down_during_a_flood(serving, options, Duration::ZERO), (true, 0), "cut off, bytes lost");
        assert!(begin.elapsed() < Duration::from_secs(9), "took {:?}", begin.elapsed());
        assert!(Client::connect(address, ClientOptions::default()).is_err());
    }
}

/// A part of a test of `beside`.
pub(crate) fn a_shut_down_gives_a_slow_client_the_time_that_it_may_take_in_all() {
    let serving = serve(Transport::Tcp, |options| {
        options.drain = Duration::from_secs(10);
        options.doors[1].limits.flush = Duration::from_millis(100);
    });
    let outcome = shut_down_during_a_flood(serving, ClientOptions::default(), Duration::from_secs(1));
    assert_eq!(outcome, (true, 0), "cut off, bytes lost");
}

#[test]
fn a_shut_down_does_not_wait_for_ever_for_who_does_not_read() {
    let serving = serve(Transport::Tcp, |options| {
        options.drain = Duration::from_millis(500);
        options.doors[1].limits.flush = Duration::from_secs(30);
        options.doors[1].limits.queued_bytes = 100 << 20;
    });
    let mut client = serving.join(ClientOptions::default());
    client.send_bytes(Header::new(0, FLOOD), &400u16.to_le_bytes()).expect("connected");
    client.wait_for(FLOOD, soon()).expect("the flood has begun");
    eventually("it piles up", || serving.gateway.counters().memory.part_bytes(Part::Queues) > 1 << 20);
    let Serving { gateway, .. } = serving;
    let begin = Instant::now();
    assert!(!gateway.shut_down(), "nobody could take all of it");
    assert!(begin.elapsed() < Duration::from_secs(5), "took {:?}", begin.elapsed());
}

#[test]
fn a_door_that_is_taken_is_an_error_that_names_it() {
    let transports: [fn() -> Transport; 4] = [
        || Transport::Tcp,
        || Transport::WebSocket(WebSocketOptions::default()),
        || Transport::Kcp,
        || Transport::Link(LinkOptions::new(LINK_KEY)),
    ];
    for transport in transports {
        let first = bare(transport(), &[], Arc::new(AcceptAll), |_| {});
        let address = first.addresses()[1];
        let second = try_bare(transport(), &[], Arc::new(AcceptAll), |options| options.doors[1].address = address);
        let error = second.err().expect("the door is taken");
        assert_eq!(error.tag(), "listen", "{error}");
        assert!(matches!(&error, ServeError::Listen { address: named, .. } if *named == address), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(&address.to_string()) && text.contains("choose another port"), "{text}");
        first.shut_down();
    }
}
