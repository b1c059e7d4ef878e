//! What a server is told at its start.

use std::net::SocketAddr;
use std::time::Duration;

use throng_interest::Ring;
use throng_link::netcode::Key;
use throng_link::session::{LaneKind, LaneOptions, SessionOptions};
use throng_replica::{GridShape, Layers, ReplicatorOptions};

/// Bytes that a datagram costs beyond its payload: IPv4 and UDP headers (28), netcode prefix and sequence (4, up to the
/// 16-millionth packet), seal (16).
pub(crate) const DATAGRAM_OVERHEAD_BYTES: u16 = 48;

/// All datagrams of a connection and tick but the last have this length, so that they travel in one system call. Small
/// enough for the paths of the internet.
pub(crate) const DATAGRAM_BYTES: usize = 1_200;

/// A grid of cells, and how far and how often a viewer sees in it.
#[derive(Clone, Debug, PartialEq)]
pub struct GridOptions {
    /// Size and layers of the cells; sizes are a whole number of the steps of the kinds' positions.
    pub shape: GridShape,
    /// Where the world ends, in metres: lowest and highest position. What lies beyond is shown at the border. Without
    /// bounds, clients subscribe to cells in which nothing can ever be.
    pub bounds_m: Option<[[f64; 3]; 2]>,
    /// Distance rings, nearest first: everything within `radius_m` is sent every `interval_ticks` ticks.
    pub rings: Vec<Ring>,
}

impl GridOptions {
    /// The first and the last cell, if the world ends.
    pub(crate) fn bounds(&self) -> Option<[[i32; 3]; 2]> {
        let axes = if self.shape.layers == Layers::Single { 2 } else { 3 };
        let cells = |at_m: f64, axis: usize| at_m / self.shape.cell_m[axis];
        self.bounds_m.map(|[low, high]| {
            let first = std::array::from_fn(|axis| if axis < axes { cells(low[axis], axis).floor() as i32 } else { 0 });
            let last = |axis| if axis < axes { cells(high[axis], axis).ceil() as i32 - 1 } else { 0 };
            [first, std::array::from_fn(|axis| last(axis).max(first[axis]))]
        })
    }
}

impl Default for GridOptions {
    /// Cells of 10 m, 20 m high and in one layer: every tick within 10 m, every third within 50 m.
    fn default() -> GridOptions {
        GridOptions {
            shape: GridShape::flat([10.0, 10.0, 20.0]),
            bounds_m: None,
            rings: vec![Ring { radius_m: 10.0, interval_ticks: 1 }, Ring { radius_m: 50.0, interval_ticks: 3 }],
        }
    }
}

/// Settings of a [`Server`](crate::Server).
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Names the game and its version: only clients with tokens for the same number get in.
    pub protocol_id: u64,
    /// The key that connect tokens are sealed with. Shared with whoever issues them, and with nobody else.
    pub private_key: Key,
    /// The addresses under which clients know the server. Empty: the address that it is bound to.
    pub public_addresses: Vec<SocketAddr>,
    /// Time between ticks.
    pub tick_interval: Duration,
    /// Clients at once.
    pub max_clients: u32,
    /// What one client may be sent, in bytes per second with all headers down to IP.
    pub client_bytes_per_s: u32,
    /// Grids for [`Placement::Cell`](crate::Placement::Cell), by number.
    pub grids: Vec<GridOptions>,
    /// Message lanes. Both ends must have the same.
    pub lanes: Vec<LaneOptions>,
    /// A client that is silent for this long is given up.
    pub idle_timeout: Duration,
    /// Inputs that are carried by each packet of a client: the newest and those before it. Both ends should agree.
    pub input_redundancy: usize,
    /// Threads that encode, write, seal and send. 1 does everything in the thread that calls.
    pub threads: usize,
    /// Events that wait to be polled; beyond, inputs and messages are dropped and counted.
    pub event_limit: usize,
    /// Sizes of the replication core.
    pub replicator: ReplicatorOptions,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            protocol_id: 0x7468_726F_6E67,
            private_key: Key::new([0; 32]),
            public_addresses: Vec::new(),
            tick_interval: Duration::from_micros(33_333),
            max_clients: 1_024,
            client_bytes_per_s: 64_000,
            grids: vec![GridOptions::default()],
            lanes: default_lanes(),
            idle_timeout: Duration::from_secs(10),
            input_redundancy: 4,
            threads: 1,
            event_limit: 1 << 20,
            replicator: ReplicatorOptions::default(),
        }
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
        initial_rate_bytes_per_s: bytes_per_s.max(1),
        packet_overhead_bytes: DATAGRAM_OVERHEAD_BYTES,
        idle_timeout,
        input_redundancy,
        queue_delay_tolerance: QUEUE_DELAY_TOLERANCE,
        ..SessionOptions::default()
    }
}

/// Packets wait for the tick of either end, which looks like a queue in the network; ticks of 100 ms must be possible.
const QUEUE_DELAY_TOLERANCE: Duration = Duration::from_millis(500);
