//! Clients reach the server whose token they carry, through a proxy that does what `deploy/quilkin/quilkin.yaml` says.
//!
//! With the path of a `quilkin` in `THRONG_QUILKIN` that is the proxy. Without one, it is a small proxy of this file that reads the
//! same settings: bytes are captured and taken off as Quilkin's documents say, but Quilkin itself is not tested.

use std::collections::HashMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use throng::{ChannelKey, Client, ClientEvent, ClientOptions, Key, Server, ServerEvent, ServerOptions, Time};
use throng_net::{Routed, RoutingToken, UdpDriver, UdpOptions};
use throng_testkit::Chat;

const PATIENCE: Duration = Duration::from_secs(30);

/// The part of Quilkin's settings that this test understands.
struct Settings {
    text: String,
    suffix_bytes: usize,
    /// Address and token of each server.
    servers: Vec<(SocketAddr, Vec<u8>)>,
}

impl Settings {
    fn read() -> Settings {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/quilkin/quilkin.yaml");
        let text = fs::read_to_string(path).expect("the settings are there");
        Settings::parse(text)
    }

    fn parse(text: String) -> Settings {
        let values = |key: &'static str| {
            let lines = text.lines().map(|line| line.trim().trim_start_matches("- "));
            lines.filter_map(move |line| line.strip_prefix(key)).map(str::trim).collect::<Vec<_>>()
        };
        assert_eq!(values("remove:"), ["true"], "the server must see what it would see without a proxy");
        assert_eq!(values("suffix:").len(), 1, "the token stands behind the datagram");
        assert!(values("metadataKey:").windows(2).all(|keys| keys[0] == keys[1]), "captured for the router");
        let suffix_bytes = values("size:")[0].parse().expect("a number of bytes");
        let addresses = values("address:").into_iter().map(|address| address.parse().expect("an address"));
        let tokens = text.lines().skip_while(|line| line.trim() != "tokens:").filter_map(|line| {
            let token = line.trim().strip_prefix("- ")?;
            STANDARD.decode(token).ok()
        });
        let servers: Vec<_> = addresses.zip(tokens).collect();
        Settings { suffix_bytes, servers, text }
    }

    /// The same for servers elsewhere.
    fn at(&self, servers: &[SocketAddr]) -> Settings {
        let mut text = self.text.clone();
        for ((old, _), new) in self.servers.iter().zip(servers) {
            text = text.replace(&format!("address: {old}"), &format!("address: {new}"));
        }
        Settings::parse(text)
    }
}

/// Takes the token off, and forwards by it; each client has a socket of its own towards the servers.
fn forward(door: &UdpSocket, settings: &Settings, stop: &AtomicBool) -> u64 {
    const MAX_PATHS: usize = 64;
    let mut paths: HashMap<(SocketAddr, SocketAddr), UdpSocket> = HashMap::new();
    let (mut buffer, mut astray) = ([0; 2_048], 0);
    while !stop.load(Ordering::Relaxed) {
        while let Ok((length, client)) = door.recv_from(&mut buffer) {
            let (datagram, token) = buffer[..length].split_at(length.saturating_sub(settings.suffix_bytes));
            let Some((server, _)) = settings.servers.iter().find(|(_, known)| known == token) else {
                astray += 1;
                continue;
            };
            assert!(paths.len() < MAX_PATHS);
            let path = paths.entry((client, *server)).or_insert_with(|| {
                let path = UdpSocket::bind("127.0.0.1:0").expect("a free port");
                path.set_nonblocking(true).unwrap();
                path
            });
            path.send_to(datagram, server).expect("loopback");
        }
        for ((client, _), path) in &paths {
            while let Ok((length, _)) = path.recv_from(&mut buffer) {
                door.send_to(&buffer[..length], client).expect("loopback");
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    astray
}

enum Proxy {
    Quilkin(Child, tempfile::TempDir),
    Ours(Arc<AtomicBool>, JoinHandle<u64>),
}

impl Proxy {
    fn start(door: UdpSocket, settings: Settings) -> Proxy {
        let Some(quilkin) = std::env::var_os("THRONG_QUILKIN").map(PathBuf::from) else {
            eprintln!(
                "\n!!! THRONG_QUILKIN is not set: a proxy of the test's own forwards, and Quilkin is NOT tested\n"
            );
            door.set_nonblocking(true).unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let stopped = stop.clone();
            return Proxy::Ours(stop, thread::spawn(move || forward(&door, &settings, &stopped)));
        };
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("quilkin.yaml");
        fs::write(&file, &settings.text).unwrap();
        let port = door.local_addr().unwrap().port();
        drop(door);
        let child = Command::new(quilkin)
            .arg("--config")
            .arg(file)
            .args(["--admin.enabled=false", "--service.udp", "--service.udp.port", &port.to_string()])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("quilkin starts");
        Proxy::Quilkin(child, folder)
    }

    /// Datagrams whose ending is no token; `None` where that is not known.
    fn stop(self) -> Option<u64> {
        match self {
            Proxy::Quilkin(mut child, _folder) => {
                let _ = child.kill();
                let _ = child.wait();
                None
            }
            Proxy::Ours(stop, thread) => {
                stop.store(true, Ordering::Relaxed);
                Some(thread.join().expect("it has not panicked"))
            }
        }
    }
}

struct World {
    began: Instant,
    servers: Vec<Server>,
    clients: Vec<Client>,
    /// (server, client id) of all that came.
    came: Vec<(usize, u64)>,
    heard: usize,
}

impl World {
    fn now(&self) -> Time {
        Time::from(self.began.elapsed())
    }

    fn step(&mut self) {
        let now = self.now();
        for (number, server) in self.servers.iter_mut().enumerate() {
            server.receive(now).expect("the socket lives");
            while let Some(event) = server.poll_event() {
                if let ServerEvent::Connected { connection, client_id, .. } = event {
                    self.came.push((number, client_id));
                    server.subscribe(connection, ChannelKey::Global(0), 1).expect("room");
                    server
                        .send(connection, 0, &Chat { number: number as u32, text: "welcome".repeat(40) })
                        .expect("room");
                }
            }
            server.tick(now);
        }
        for client in &mut self.clients {
            client.update(now).expect("the socket lives");
            while let Some(event) = client.poll_event() {
                self.heard += usize::from(matches!(event, ClientEvent::Message { .. }));
            }
        }
        thread::sleep(Duration::from_millis(5));
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&World) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < deadline, "not in time: {what}");
            self.step();
        }
    }
}

fn socket(token: &[u8]) -> Box<Routed<UdpDriver>> {
    let socket = UdpDriver::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::client()).expect("a free port");
    Box::new(Routed::new(socket, RoutingToken::new(token).expect("the length fits")))
}

#[test]
fn clients_reach_the_server_whose_token_they_carry() {
    let settings = Settings::read();
    assert_eq!(settings.servers.len(), 2);
    assert!(settings.servers.iter().all(|(_, token)| token.len() == settings.suffix_bytes));
    let door = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let public = door.local_addr().unwrap();
    let options = || ServerOptions {
        public_addresses: vec![public],
        tick_interval: Duration::from_millis(20),
        ..ServerOptions::new(7, Key::new([7; 32]))
    };
    let schema = throng_testkit::schema();
    let server = || Server::bind("127.0.0.1:0".parse().unwrap(), schema.clone(), options()).expect("a free port");
    let mut world =
        World { began: Instant::now(), servers: vec![server(), server()], clients: vec![], came: vec![], heard: 0 };
    let homes: Vec<SocketAddr> = world.servers.iter().map(Server::local_address).collect();
    let tokens: Vec<Vec<u8>> = settings.servers.iter().map(|(_, token)| token.clone()).collect();
    let proxy = Proxy::start(door, settings.at(&homes));
    let issuer = options().token_issuer();
    let unknown = vec![b'?'; settings.suffix_bytes];
    for (id, token) in [(0, &tokens[0]), (1, &tokens[1]), (2, &unknown)] {
        let ticket = issuer.issue(id, &[public]).expect("a token");
        let client = Client::new(socket(token), ticket, schema.clone(), ClientOptions::default(), world.now());
        world.clients.push(client.expect("sound options"));
    }
    world.until("both are where they belong, and have heard", |world| world.heard >= 2);
    world.came.sort_unstable();
    assert_eq!(world.came, [(0, 0), (1, 1)], "client n belongs to server n; the third one nowhere");

    // A client whose address changes keeps its token, and so its server.
    let now = world.now();
    world.clients[0].replace_driver(now, socket(&tokens[0]));
    let connection = world.servers[0].connections().next().expect("it is there");
    for _ in 0..20 {
        world.step();
    }
    world.servers[0].send(connection, 0, &Chat { number: 9, text: "still here".into() }).expect("room");
    world.until("it has heard at its new address", |world| world.heard >= 3);
    assert!(!world.clients[2].is_connected());
    let astray = proxy.stop();
    assert!(astray.is_none_or(|astray| astray > 0), "the datagrams with the unknown token went nowhere");
}
