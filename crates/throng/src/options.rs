//! What a server is told at its start.

use std::net::SocketAddr;
use std::time::Duration;

use throng_interest::Ring;
use throng_link::netcode::{Key, SecondConnection};
use throng_link::session::{LaneKind, LaneOptions, SessionOptions};
use throng_replica::{GridShape, ReplicatorOptions, Up};

use crate::token::TokenIssuer;

/// Bytes that a datagram costs beyond its payload: IPv4 and UDP headers (28), netcode prefix and sequence (4, up to the
/// 16-millionth packet), seal (16).
pub(crate) const DATAGRAM_OVERHEAD_BYTES: u16 = 48;

/// A grid of cells, and how far and how often a viewer sees in it.
///
/// ```
/// # use throng::{GridOptions, GridShape, Ring, Up};
/// let defaults = GridOptions::new(Up::Y);
/// assert_eq!(defaults.shape, GridShape::flat(Up::Y, [10.0, 20.0, 10.0])); // one layer
/// assert_eq!(defaults.bounds_m, None);
/// let near = Ring { radius_m: 10.0, interval_ticks: 1 };
/// let far = Ring { radius_m: 50.0, interval_ticks: 3 };
/// assert_eq!(defaults.rings, [near, far]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct GridOptions {
    /// Size and layers of the cells; sizes are a whole number of the steps of the kinds' positions.
    pub shape: GridShape,
    /// Where the world ends, in metres: lowest and highest position. What lies beyond lives in the cell at the border.
    /// Without bounds, clients subscribe to cells in which nothing can ever be.
    pub bounds_m: Option<[[f64; 3]; 2]>,
    /// Distance rings, nearest first: everything within `radius_m` is sent every `interval_ticks` ticks.
    pub rings: Vec<Ring>,
}

impl GridOptions {
    /// The first and the last cell, if the world ends.
    pub(crate) fn bounds(&self) -> Option<[[i32; 3]; 2]> {
        let is_cut = |axis: usize| self.shape.is_cut(axis);
        let cells = |at_m: f64, axis: usize| at_m / self.shape.cell_m[axis];
        self.bounds_m.map(|[low, high]| {
            let first =
                std::array::from_fn(|axis| if is_cut(axis) { cells(low[axis], axis).floor() as i32 } else { 0 });
            let last = |axis| if is_cut(axis) { cells(high[axis], axis).ceil() as i32 - 1 } else { 0 };
            [first, std::array::from_fn(|axis| last(axis).max(first[axis]))]
        })
    }
}

impl GridOptions {
    /// Cells of 10 m in one layer, where heights from 0 to 20 m take the fewest bits: every tick within 10 m, every third
    /// within 50 m. A world has no end.
    pub fn new(up: Up) -> GridOptions {
        let mut cell_m = [10.0; 3];
        cell_m[up.axis()] = 20.0;
        GridOptions {
            shape: GridShape::flat(up, cell_m),
            bounds_m: None,
            rings: vec![Ring { radius_m: 10.0, interval_ticks: 1 }, Ring { radius_m: 50.0, interval_ticks: 3 }],
        }
    }
}

/// Settings of a [`Server`](crate::Server). Made with [`ServerOptions::new`]; all but its arguments has a default.
///
/// ```
/// # use std::time::Duration;
/// # use throng::{LaneKind, LaneOptions, ReplicatorOptions, SecondConnection, ServerOptions, random_key};
/// let defaults = ServerOptions::new(1, random_key());
/// assert!(defaults.previous_private_key.is_none());
/// assert_eq!(defaults.second_connection, SecondConnection::Replace);
/// assert!(defaults.public_addresses.is_empty()); // the address that it is bound to
/// assert_eq!(defaults.tick_interval, Duration::from_micros(33_333)); // 30 ticks per second
/// assert_eq!(defaults.max_clients, 1_024);
/// assert_eq!(defaults.client_bytes_per_s, 64_000);
/// assert_eq!(defaults.client_packets_per_s, 2_000);
/// assert!(defaults.grids.is_empty()); // Placement::Cell needs one
/// assert_eq!(defaults.lanes.len(), 3); // one of each kind, in this order:
/// assert_eq!(defaults.lanes[0], LaneOptions::new(LaneKind::ReliableOrdered));
/// assert_eq!(defaults.lanes[1], LaneOptions::new(LaneKind::ReliableUnordered));
/// assert_eq!(defaults.lanes[2], LaneOptions::new(LaneKind::Unreliable));
/// assert_eq!(defaults.idle_timeout, Duration::from_secs(10));
/// assert_eq!(defaults.input_redundancy, 4);
/// assert_eq!(defaults.threads, 1);
/// assert_eq!(defaults.event_limit, 1 << 20);
/// assert_eq!(defaults.inputs_per_tick, 4);
/// assert_eq!(defaults.waiting_messages, 1_024);
/// assert_eq!(defaults.waiting_message_bytes, 1 << 20);
/// assert_eq!(defaults.replicator, ReplicatorOptions::default());
/// ```
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Names the game and its version: only clients with tokens for the same number get in.
    pub protocol_id: u64,
    /// The key that connect tokens are sealed with. Shared with whoever issues them, and with nobody else.
    pub private_key: Key,
    /// The key before that one. While it is set, tokens of both are taken: give the servers the new key first, then the
    /// backends, and forget the old one when its last tokens have expired.
    pub previous_private_key: Option<Key>,
    /// What happens when a client that is connected comes with another token, after a crash for example.
    pub second_connection: SecondConnection,
    /// The addresses under which clients know the server: a token must name one of them. Empty: the address that it is
    /// bound to, which must then be one address and not all of the machine's.
    pub public_addresses: Vec<SocketAddr>,
    /// Time between ticks.
    pub tick_interval: Duration,
    /// Clients at once.
    pub max_clients: u32,
    /// What one client may be sent, in bytes per second with all headers down to IP.
    pub client_bytes_per_s: u32,
    /// Datagrams of one client that are looked at, in a second and at once. More are dropped before they are decrypted, and
    /// counted.
    pub client_packets_per_s: u32,
    /// Grids for [`Placement::Cell`](crate::Placement::Cell), by number. None unless set: a grid has to know which axis
    /// points up, as in `vec![GridOptions::new(Up::Y)]`.
    pub grids: Vec<GridOptions>,
    /// Message lanes. Both ends must have the same.
    pub lanes: Vec<LaneOptions>,
    /// A client that is silent for this long is given up.
    pub idle_timeout: Duration,
    /// Inputs that are carried by each packet of a client: the newest and those before it. Both ends should agree.
    pub input_redundancy: usize,
    /// Threads that encode, write, seal and send. 1 does everything in the thread that calls.
    pub threads: usize,
    /// Events that wait to be polled: with so many nobody is let in, and refused clients are not told of.
    pub event_limit: usize,
    /// Inputs of one client that a tick hands out at most; the others wait for the next ticks, the newest 64 of them. A
    /// client that sends faster than this gains nothing by it, so choose little more than an honest client needs: ticks
    /// that come late bring several at once.
    pub inputs_per_tick: usize,
    /// Messages of one client that wait to be polled. The others wait in its session until the game has polled, and then
    /// at the client: nobody else's messages are dropped for them.
    pub waiting_messages: usize,
    /// Bytes of one client's messages that wait to be polled; one message may exceed it.
    pub waiting_message_bytes: usize,
    /// Sizes of the replication core.
    pub replicator: ReplicatorOptions,
}

impl ServerOptions {
    /// Options for a game: 30 ticks per second, 1,024 clients, 64 kB/s for each of them,
    /// no grid, one lane of each kind, 10 s of silence, one thread.
    ///
    /// `protocol_id` is any number that names your game and its version. `private_key` is 32 bytes from
    /// [`random_key`](crate::random_key) or your secret store, shared with whoever issues tokens. Neither has a default:
    /// whoever knows both can let anybody in under any name.
    pub fn new(protocol_id: u64, private_key: Key) -> ServerOptions {
        ServerOptions {
            protocol_id,
            private_key,
            previous_private_key: None,
            second_connection: SecondConnection::Replace,
            public_addresses: Vec::new(),
            tick_interval: Duration::from_micros(33_333),
            max_clients: 1_024,
            client_bytes_per_s: 64_000,
            client_packets_per_s: 2_000,
            grids: Vec::new(),
            lanes: default_lanes(),
            idle_timeout: Duration::from_secs(10),
            input_redundancy: 4,
            threads: 1,
            event_limit: 1 << 20,
            inputs_per_tick: 4,
            waiting_messages: 1_024,
            waiting_message_bytes: 1 << 20,
            replicator: ReplicatorOptions::default(),
        }
    }

    /// Issues tokens for servers with these options: what a backend does, for tests and for games without a backend.
    pub fn token_issuer(&self) -> TokenIssuer {
        TokenIssuer::new(self.protocol_id, self.private_key.clone())
    }
}

/// One lane of each kind: 0 reliable ordered, 1 reliable unordered, 2 unreliable.
pub fn default_lanes() -> Vec<LaneOptions> {
    [LaneKind::ReliableOrdered, LaneKind::ReliableUnordered, LaneKind::Unreliable].map(LaneOptions::new).to_vec()
}

/// The settings of the sessions at either end: lane 0 is ours, the game's lanes come after it.
pub(crate) fn session_options(
    lanes: &[LaneOptions],
    bytes_per_s: u32,
    idle_timeout: Duration,
    input_redundancy: usize,
) -> SessionOptions {
    let control = LaneOptions { queue_messages: 16, ..LaneOptions::new(LaneKind::ReliableOrdered) };
    SessionOptions {
        lanes: std::iter::once(control).chain(lanes.iter().copied()).collect(),
        rate_bytes_per_s: bytes_per_s.max(1),
        initial_rate_bytes_per_s: bytes_per_s.clamp(1, INITIAL_BYTES_PER_S),
        packet_overhead_bytes: DATAGRAM_OVERHEAD_BYTES,
        keep_alive_interval: Duration::from_secs(1).min(idle_timeout / 4),
        idle_timeout,
        input_redundancy,
        queue_delay_tolerance: QUEUE_DELAY_TOLERANCE,
        ..SessionOptions::default()
    }
}

/// Nobody knows yet what the path carries: about ten packets in a round trip to another continent (RFC 6928), doubled from
/// there.
const INITIAL_BYTES_PER_S: u32 = 64_000;

/// Drivers say when packets came, so that waiting for the tick of either end does not look like a queue.
const QUEUE_DELAY_TOLERANCE: Duration = Duration::from_millis(40);
