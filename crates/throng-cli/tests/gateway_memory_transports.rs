//! The same comparison for clients over TLS, KCP and Throng's own link, whose libraries keep memory of their own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use throng_channeld::link::LinkClient;
use throng_channeld::proto::{AuthMessage, AuthResultMessage};
use throng_channeld::{Dialect, FrameReader, Header, Messages, PacketWriter, message_type, put_body};
use throng_gateway::serve::LinkOptions;
use throng_testkit::token_now;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::gateway_memory::{Gateway, PATIENCE, beginning_of_a_frame, expect_true, flood};
use crate::lines::beside_each_other;

/// A login, as it is sent on a stream.
fn login() -> Vec<u8> {
    let auth = AuthMessage { player_identifier_token: "player".into(), ..Default::default() };
    let (mut entries, mut bytes) = (Vec::new(), Vec::new());
    put_body(&mut entries, Header::new(0, message_type::AUTH), &auth);
    PacketWriter::new().write(Dialect::Fixed, &entries, &mut bytes);
    bytes
}

/// The connection id in the answer to a login, once it has come.
fn connection_id(reader: &mut FrameReader, bytes: &[u8]) -> Option<u32> {
    reader.push(bytes).expect("it is short");
    let frame = reader.next_frame().expect("a frame")?;
    let answer = Messages::new(frame.payload).next().expect("a message").expect("a sound one");
    Some(answer.decode::<AuthResultMessage>().expect("an answer").conn_id)
}

/// A client over TLS.
struct TlsClient {
    stream: StreamOwned<ClientConnection, TcpStream>,
    connection: u32,
}

/// A certificate in files, and what clients need to trust it.
struct Certificate {
    folder: tempfile::TempDir,
    config: Arc<ClientConfig>,
}

impl Certificate {
    fn new() -> Certificate {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).expect("written");
        std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).expect("written");
        let der: CertificateDer<'static> = made.cert.der().clone();
        let mut roots = RootCertStore::empty();
        roots.add(der).expect("it is one");
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Certificate { folder, config: Arc::new(config) }
    }

    fn gateway(&self, more: &[&str]) -> Gateway {
        let file = |name: &str| self.folder.path().join(name).to_str().expect("text").to_owned();
        let (cert, key) = (format!("-cert={}", file("cert.pem")), format!("-key={}", file("key.pem")));
        Gateway::start("tls", &[&[cert.as_str(), key.as_str()], more].concat())
    }

    fn client(&self, gateway: SocketAddr) -> TlsClient {
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(Arc::clone(&self.config), name).expect("a connection");
        let mut stream = StreamOwned::new(connection, TcpStream::connect(gateway).expect("the door is open"));
        stream.sock.set_read_timeout(Some(PATIENCE)).expect("it can be set");
        stream.write_all(&login()).expect("connected");
        let (mut reader, mut bytes) = (FrameReader::with_dialect(Dialect::Fixed), [0; 1_000]);
        loop {
            let count = stream.read(&mut bytes).expect("it answers");
            if let Some(connection) = connection_id(&mut reader, &bytes[..count]) {
                return TlsClient { stream, connection };
            }
        }
    }
}

/// A client of KCP without a library: the test decides which segments it sends.
struct KcpClient {
    socket: UdpSocket,
    connection: u32,
}

const KCP_PUSH: u8 = 81;
const KCP_ACK: u8 = 82;
const KCP_DATA_BYTES: usize = 1_376;

/// A segment: conversation 1, no fragments, room for 128 segments.
fn kcp_segment(command: u8, (time_ms, number): (u32, u32), unacknowledged: u32, data: &[u8]) -> Vec<u8> {
    let mut segment = vec![1, 0, 0, 0, command, 0, 128, 0];
    for value in [time_ms, number, unacknowledged, data.len() as u32] {
        segment.extend_from_slice(&value.to_le_bytes());
    }
    segment.extend_from_slice(data);
    segment
}

impl KcpClient {
    fn connect(gateway: SocketAddr) -> KcpClient {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.connect(gateway).expect("an address");
        socket.set_read_timeout(Some(Duration::from_millis(500))).expect("it can be set");
        let (mut datagram, mut reader) = ([0; 2_000], FrameReader::with_dialect(Dialect::Fixed));
        let number = |bytes: &[u8], at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        let first = kcp_segment(KCP_PUSH, (0, 0), 0, &login());
        socket.send(&first).expect("loopback takes it");
        for _ in 0..100 {
            let Ok(count) = socket.recv(&mut datagram) else {
                socket.send(&first).expect("loopback takes it");
                continue;
            };
            let mut rest = &datagram[..count];
            while rest.len() >= 24 {
                let (time_ms, sequence, bytes) = (number(rest, 8), number(rest, 12), number(rest, 20) as usize);
                if rest[4] == KCP_PUSH && sequence == u32::MAX {
                    // It asks whether this address is ours.
                    let answer = kcp_segment(KCP_ACK, (time_ms, sequence), 0, &[]);
                    socket.send(&[answer, first.clone()].concat()).expect("loopback takes it");
                } else if rest[4] == KCP_PUSH {
                    let answer = kcp_segment(KCP_ACK, (time_ms, sequence), sequence + 1, &[]);
                    socket.send(&answer).expect("loopback takes it");
                    if let Some(connection) = connection_id(&mut reader, &rest[24..24 + bytes]) {
                        return KcpClient { socket, connection };
                    }
                }
                rest = &rest[24 + bytes..];
            }
        }
        panic!("no answer over KCP");
    }

    /// Sends so many segments of a stream, without the one before them.
    fn send_ahead(&self, segments: u32) {
        for number in 2..2 + segments {
            let segment = kcp_segment(KCP_PUSH, (0, number), 0, &[7; KCP_DATA_BYTES]);
            self.socket.send(&segment).expect("loopback takes it");
            if number % 16 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

const LINK_KEY: [u8; 32] = [15; 32];

fn link_gateway(more: &[&str]) -> Gateway {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("link.key");
    std::fs::write(&key, LINK_KEY.map(|byte| format!("{byte:02x}")).concat()).expect("written");
    let key = format!("-throngkey={}", key.to_str().expect("text"));
    Gateway::start("throng", &[&[key.as_str()], more].concat())
}

fn link_client(gateway: SocketAddr, client_id: u64) -> LinkClient {
    let token = token_now(LinkOptions::PROTOCOL_ID, LINK_KEY, gateway, client_id);
    let deadline = Instant::now() + PATIENCE;
    let mut client = LinkClient::connect(token, deadline).expect("the door is open");
    client.authenticate("player", "", deadline).expect("it is let in");
    client
}

/// Clients with these numbers. Those that wait for the others stay connected, however long that takes.
fn link_clients(gateway: SocketAddr, ids: std::ops::Range<u64>) -> Vec<LinkClient> {
    let mut clients = Vec::new();
    for id in ids {
        clients.push(link_client(gateway, id));
        if clients.len() % 50 == 0 {
            keep_up(&mut clients);
        }
    }
    clients
}

/// All clients stay connected, and take no messages.
fn keep_up(clients: &mut [LinkClient]) {
    clients.iter_mut().for_each(|client| client.keep_up().expect("connected"));
}

/// Polls all clients for a while.
fn poll_all(clients: &mut [LinkClient], time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        for client in clients.iter_mut() {
            while matches!(client.poll(Instant::now()), Ok(Some(_))) {}
        }
    }
}

fn silent_connections_over_tls_kcp_and_the_link_cost_what_is_counted_for_them() {
    const FEW: usize = 20;
    const MANY: usize = 400;
    thread::scope(|scope| {
        scope.spawn(|| {
            let certificate = Certificate::new();
            let gateway = certificate.gateway(&[]);
            let clients =
                |count| -> Vec<TlsClient> { (0..count).map(|_| certificate.client(gateway.clients)).collect() };
            let _first = clients(FEW);
            let before = gateway.figures_at_rest();
            let _clients = clients(MANY);
            expect_true("tls", before, gateway.figures_at_rest());
        });
        scope.spawn(|| {
            let gateway = Gateway::start("kcp", &[]);
            let clients =
                |count| -> Vec<KcpClient> { (0..count).map(|_| KcpClient::connect(gateway.clients)).collect() };
            let _first = clients(FEW);
            let before = gateway.figures_at_rest();
            let _clients = clients(MANY);
            expect_true("kcp", before, gateway.figures_at_rest());
        });
        scope.spawn(|| {
            let gateway = link_gateway(&[]);
            let mut clients = link_clients(gateway.clients, 0..FEW as u64);
            poll_all(&mut clients, Duration::from_millis(200));
            let before = gateway.figures_at_rest_while(|| keep_up(&mut clients));
            for ids in (1_000..1_500).step_by(50) {
                clients.extend(link_clients(gateway.clients, ids..ids + 50));
                keep_up(&mut clients);
            }
            poll_all(&mut clients, Duration::from_millis(200));
            expect_true("link", before, gateway.figures_at_rest_while(|| keep_up(&mut clients)));
        });
    });
}

fn what_waits_for_clients_over_tls_kcp_and_the_link_costs_what_is_counted_for_it() {
    const QUEUE: [&str; 2] = ["-limit", "queue_hard_bytes=16777216"];
    const WAITING_BYTES: usize = 4 << 20;
    thread::scope(|scope| {
        scope.spawn(|| {
            let certificate = Certificate::new();
            let gateway = certificate.gateway(&QUEUE);
            let mut world = gateway.world();
            let clients: Vec<TlsClient> = (0..12).map(|_| certificate.client(gateway.clients)).collect();
            let before = gateway.figures_at_rest();
            clients.iter().for_each(|client| flood(&mut world, client.connection, WAITING_BYTES));
            expect_true("tls: not read", before, gateway.figures_at_rest());
            clients.iter().for_each(|client| assert!(!client.stream.conn.is_handshaking()));
        });
        scope.spawn(|| {
            let gateway = Gateway::start("kcp", &QUEUE);
            let mut world = gateway.world();
            let clients: Vec<KcpClient> = (0..12).map(|_| KcpClient::connect(gateway.clients)).collect();
            let before = gateway.figures_at_rest();
            clients.iter().for_each(|client| flood(&mut world, client.connection, WAITING_BYTES));
            expect_true("kcp: not read", before, gateway.figures_at_rest());
        });
        scope.spawn(|| {
            let gateway = link_gateway(&QUEUE);
            let mut world = gateway.world();
            let mut clients = link_clients(gateway.clients, 0..12);
            poll_all(&mut clients, Duration::from_millis(100));
            let before = gateway.figures_at_rest_while(|| keep_up(&mut clients));
            clients.iter().for_each(|client| flood(&mut world, client.connection_id(), WAITING_BYTES));
            expect_true("link: not read", before, gateway.figures_at_rest_while(|| keep_up(&mut clients)));
        });
    });
}

fn what_clients_over_tls_kcp_and_the_link_begin_and_do_not_end_costs_what_is_counted_for_it() {
    thread::scope(|scope| {
        scope.spawn(|| {
            let certificate = Certificate::new();
            let gateway = certificate.gateway(&[]);
            let mut clients: Vec<TlsClient> = (0..200).map(|_| certificate.client(gateway.clients)).collect();
            let before = gateway.figures_at_rest();
            for client in &mut clients {
                client.stream.write_all(&beginning_of_a_frame()).expect("connected");
            }
            expect_true("tls: beginnings of frames", before, gateway.figures_at_rest());
        });
        scope.spawn(|| {
            // A client that has said little since its login has no more room ahead of a gap than a stranger.
            let gateway = Gateway::start("kcp", &["-limit", "max_unauthenticated_bytes=1048576"]);
            let clients: Vec<KcpClient> = (0..60).map(|_| KcpClient::connect(gateway.clients)).collect();
            let before = gateway.figures_at_rest();
            clients.iter().for_each(|client| client.send_ahead(200));
            expect_true("kcp: segments ahead of a lost one", before, gateway.figures_at_rest());
        });
        scope.spawn(|| {
            let gateway = link_gateway(&["-limit", "client_burst_bytes=16777216"]);
            let mut clients = link_clients(gateway.clients, 0..200);
            poll_all(&mut clients, Duration::from_millis(100));
            let before = gateway.figures_at_rest();
            for client in &mut clients {
                client.send_bytes(Header::new(0, message_type::UNREAL_RPC), &[7; 60_000]).expect("connected");
                // Some of it goes out, and then nothing more.
                while matches!(client.poll(Instant::now()), Ok(Some(_))) {}
            }
            expect_true("link: beginnings of messages", before, gateway.figures_at_rest());
        });
    });
}

/// Each part has gateways of its own.
#[test]
fn what_clients_over_tls_kcp_and_the_link_make_the_gateway_keep_is_counted_as_it_is() {
    beside_each_other(&[
        &silent_connections_over_tls_kcp_and_the_link_cost_what_is_counted_for_them,
        &what_waits_for_clients_over_tls_kcp_and_the_link_costs_what_is_counted_for_it,
        &what_clients_over_tls_kcp_and_the_link_begin_and_do_not_end_costs_what_is_counted_for_it,
    ]);
}
