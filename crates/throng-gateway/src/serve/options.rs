//! The shell's options: doors, limits, addresses.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::draft::SnapshotOptions;
use super::health::STUCK_AFTER;
use super::record::RecordingOptions;
use throng_gateway_engine::port::Side;
use throng_http::ListenerLimits;

/// How bytes travel through a door.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// TCP, without Nagle's delay.
    Tcp,
    /// WebSocket: binary messages, one packet each.
    WebSocket(WebSocketOptions),
    /// KCP over UDP, as kcp-go speaks it without encryption and error correction.
    Kcp,
    /// Throng's own link over UDP: encrypted, with connect tokens.
    Link(LinkOptions),
}

impl Transport {
    /// A stable name, for logs and metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::WebSocket(_) => "ws",
            Transport::Kcp => "kcp",
            Transport::Link(_) => "throng",
        }
    }
}

/// Which pages may use WebSocket here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebSocketOptions {
    /// The path that has to be asked for. Empty: any.
    pub path: String,
    /// The pages whose scripts may connect, as a browser's `Origin` header names them. Empty: all. Clients that are no
    /// browsers send no such header, and are accepted.
    pub origins: Vec<String>,
}

/// The options of the link. Clients have a connect token, made with the same key by the backend.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkOptions {
    /// The number that tokens are made for; the default is [`LinkOptions::PROTOCOL_ID`].
    pub protocol_id: u64,
    /// The key that tokens are made with.
    pub private_key: [u8; 32],
    /// The key before that one: tokens that were made with it are taken too, while those who make tokens change over.
    pub previous_private_key: Option<[u8; 32]>,
    /// The addresses under which clients know this door. Empty: the one that it listens at.
    pub public_addresses: Vec<SocketAddr>,
    /// Threads that serve the clients when many have something to do at once; 0: one for each core. The default.
    pub threads: u32,
}

impl LinkOptions {
    /// "channeld" in ASCII.
    pub const PROTOCOL_ID: u64 = throng_channeld::link::PROTOCOL_ID;

    /// A door for tokens that are made with a key.
    pub fn new(private_key: [u8; 32]) -> LinkOptions {
        LinkOptions {
            protocol_id: LinkOptions::PROTOCOL_ID,
            private_key,
            previous_private_key: None,
            public_addresses: Vec::new(),
            threads: 0,
        }
    }
}

/// Does not print the keys.
impl std::fmt::Debug for LinkOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkOptions").field("protocol_id", &self.protocol_id).finish_non_exhaustive()
    }
}

/// The certificate chain and its key, as PEM files. They are read again on a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain, the door's own certificate first.
    pub certificates: PathBuf,
    /// The private key: PKCS #8, PKCS #1 or SEC1.
    pub key: PathBuf,
}

/// One door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorOptions {
    /// The kind of peers at this door.
    pub side: Side,
    /// How.
    pub transport: Transport,
    /// Where. Port 0 takes any free port.
    pub address: SocketAddr,
    /// Encrypts TCP and WebSocket. The other transports do not take it.
    pub tls: Option<TlsFiles>,
    /// Where proxies stand that say for whom they speak (PROXY protocol, version 1 or 2). Empty: peers come themselves.
    /// Then other peers are refused here, and each connection has to begin with a header. Not for UDP.
    pub proxies: Vec<IpNet>,
    /// The limits of a peer.
    pub limits: DoorLimits,
}

impl DoorOptions {
    /// A door with the limits for its side.
    pub fn new(side: Side, transport: Transport, address: SocketAddr) -> DoorOptions {
        DoorOptions { side, transport, address, tls: None, proxies: Vec::new(), limits: DoorLimits::new(side) }
    }
}

/// The limits of a door's peers. Going beyond is counted under a reason each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorLimits {
    /// Open connections of this door and those beside it, of the same side, together. So are the limits by address.
    pub connections: usize,
    /// Open connections from one address, 0: any number; IPv6 addresses count by their first 64 bits.
    pub connections_per_address: usize,
    /// Whether the limits by address hold for this machine's own addresses too.
    pub counts_loopback: bool,
    /// How often an address may misbehave within [`ban`](Self::ban) before it is banned. 0: never banned.
    pub strikes: u32,
    /// The length of a ban, and the time in which that many strikes are forgotten, one by one.
    pub ban: Duration,
    /// Addresses that are remembered for their strikes, and for how fast they come.
    pub remembered: usize,
    /// New connections per second from one address. 0: any number.
    pub arrivals_per_s: u32,
    /// New connections per second from all addresses, over all doors for clients together. The others are accepted
    /// later. 0: any number.
    pub all_arrivals_per_s: u32,
    /// TLS handshakes begun per second, over all doors for clients together. 0: any number.
    pub handshakes_per_s: u32,
    /// Messages per second of one connection; more are read later. 0: any number.
    pub messages_per_s: u32,
    /// Messages that may come at once before the rate counts.
    pub burst_messages: u32,
    /// Bytes per second of one connection, as sent; more are read later. 0: any number.
    pub bytes_per_s: u32,
    /// Bytes that may come at once before the rate counts.
    pub burst_bytes: u32,
    /// The longest payload of a frame, as sent. At most 65,535.
    pub payload_bytes: usize,
    /// The longest packet after unpacking.
    pub unpacked_bytes: usize,
    /// Uncompressed bytes that a peer may send before login. More of it is not read until then.
    pub stranger_bytes: usize,
    /// Bytes that wait for a peer who does not take them. Beyond, it is disconnected.
    pub queued_bytes: usize,
    /// How long the handshakes of TLS and WebSocket may take together.
    pub handshake: Duration,
    /// How long the last bytes may take once a connection is to end, and over TCP, how long the peer may take to close
    /// its own end after that. After a write has failed, the gateway reads for at most as long what the peer had sent.
    /// [`ServeOptions::drain`] counts instead while the gateway ends.
    pub flush: Duration,
    /// How long a TCP peer may be out of reach, or take nothing. Zero: as the system has it.
    pub unreachable: Duration,
    /// After how long a silent KCP peer, who cannot say that it leaves, is taken for gone.
    pub silence: Duration,
}

impl DoorLimits {
    /// Servers are trusted not to flood; clients are not.
    pub fn new(side: Side) -> DoorLimits {
        let clients = DoorLimits {
            connections: 20_000,
            connections_per_address: 64,
            counts_loopback: false,
            strikes: 5,
            ban: Duration::from_secs(300),
            remembered: 1 << 16,
            arrivals_per_s: 20,
            all_arrivals_per_s: 2_000,
            handshakes_per_s: 500,
            messages_per_s: 500,
            burst_messages: 2_000,
            bytes_per_s: 256 << 10,
            burst_bytes: 1 << 20,
            payload_bytes: 0xFFFF,
            unpacked_bytes: 1 << 20,
            stranger_bytes: 16 << 10,
            queued_bytes: 4 << 20,
            handshake: Duration::from_secs(5),
            flush: Duration::from_secs(3),
            unreachable: Duration::from_secs(30),
            silence: Duration::from_secs(120),
        };
        match side {
            Side::Client => clients,
            Side::Server => DoorLimits {
                connections_per_address: 0,
                strikes: 0,
                arrivals_per_s: 0,
                all_arrivals_per_s: 0,
                handshakes_per_s: 0,
                messages_per_s: 0,
                bytes_per_s: 0,
                queued_bytes: 64 << 20,
                ..clients
            },
        }
    }
}

/// A key that a gateway and its edges know. It is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct EdgeSecret(pub [u8; 32]);

impl std::fmt::Debug for EdgeSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EdgeSecret")
    }
}

/// Where edges of this gateway come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgesOptions {
    /// The address. Port 0 takes any free port.
    pub address: SocketAddr,
    /// The key that they have to know.
    pub secret: EdgeSecret,
}

/// The gateway that this one is an edge of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeOptions {
    /// Its address for edges, `host:port`: looked up at each try.
    pub address: String,
    /// The key that both know.
    pub secret: EdgeSecret,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// The doors, at least one.
    pub doors: Vec<DoorOptions>,
    /// Where edges come. `None`: nowhere. With one engine only.
    pub edges: Option<EdgesOptions>,
    /// The home, if this gateway is an edge. Its doors are for clients then, and it has one engine.
    pub home: Option<HomeOptions>,
    /// Where `/healthz`, `/readyz` and `/metrics` are. `None`: nowhere.
    pub http: Option<SocketAddr>,
    /// Where the page for operators is: an address of this machine that no other reaches. `None`: nowhere.
    pub admin: Option<SocketAddr>,
    /// The bounds of connections to each of these two.
    pub pages: ListenerLimits,
    /// Bytes that peers can make the gateway hold, all in all. 0: three quarters of what the machine has, or the control
    /// group that the process is in.
    pub memory_bytes: u64,
    /// Bytes of messages that may wait for the engine. Beyond, peers are read later.
    pub inbound_bytes: usize,
    /// How long a stopping gateway continues as before, except that it reports "not ready": load balancers have to
    /// notice first.
    pub lame_duck: Duration,
    /// How long a shut-down may take after that.
    pub drain: Duration,
    /// After how long with one and the same thing the engine counts as stuck, and the gateway as dead.
    pub stuck_after: Duration,
    /// Threads that read, and write what the engine leaves over. 0: one for each two cores.
    pub io_threads: usize,
    /// Whether clients are refused until a server owns the GLOBAL channel.
    pub waits_for_master: bool,
    /// Records what clients say. `None`: nothing.
    pub recordings: Option<RecordingOptions>,
    /// Snapshots of the engines. `None`: none.
    pub snapshots: Option<SnapshotOptions>,
}

impl ServeOptions {
    /// channeld's two doors, on all interfaces, and HTTP on loopback.
    pub fn new() -> ServeOptions {
        let any = |port| SocketAddr::from(([0, 0, 0, 0], port));
        ServeOptions {
            doors: vec![
                DoorOptions::new(Side::Server, Transport::Tcp, any(11_288)),
                DoorOptions::new(Side::Client, Transport::Tcp, any(12_108)),
            ],
            edges: None,
            home: None,
            http: Some(SocketAddr::from(([127, 0, 0, 1], 8_080))),
            admin: None,
            pages: ListenerLimits::default(),
            memory_bytes: 0,
            inbound_bytes: 32 << 20,
            lame_duck: Duration::ZERO,
            drain: Duration::from_secs(10),
            stuck_after: STUCK_AFTER,
            io_threads: 0,
            waits_for_master: false,
            recordings: None,
            snapshots: None,
        }
    }
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions::new()
    }
}
