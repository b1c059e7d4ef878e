//! The options of a server.

use std::cmp::Ordering;
use std::net::SocketAddr;
use std::num::NonZeroU16;
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
/// # use throng::{GridOptions, GridShape, LooksFrom, Ring, Up};
/// let defaults = GridOptions::new(Up::Y);
/// assert_eq!(defaults.shape, GridShape::flat(Up::Y, [10.0, 20.0, 10.0])); // one layer
/// assert_eq!(defaults.bounds_m, None);
/// let near = Ring { radius_m: 10.0, interval_ticks: 1 };
/// let far = Ring { radius_m: 50.0, interval_ticks: 3 };
/// assert_eq!(defaults.rings, [near, far]);
/// assert_eq!(defaults.looks_from, LooksFrom::Position);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct GridOptions {
    /// Size and layers of the cells; sizes are a whole number of the steps of the kinds' positions.
    pub shape: GridShape,
    /// The bounds of the world, in metres: lowest and highest position. Objects beyond the bounds live in the cell at
    /// the border. Without bounds, clients also subscribe to cells that are always empty.
    pub bounds_m: Option<[[f64; 3]; 2]>,
    /// Distance rings, nearest first: everything within `radius_m` is sent every `interval_ticks` ticks.
    pub rings: Vec<Ring>,
    /// Whether clients in one cell see the same.
    pub looks_from: LooksFrom,
}

/// The view from afar: by the fields with `far` of [`Replicate`](derive@crate::Replicate) alone.
///
/// Objects with such fields and [`Placement::Cell`](crate::Placement::Cell) are in the cells of this grid too. Its cells are larger
/// and its rings reach farther than those of the other grids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarOptions {
    /// The number of the grid. It has one layer if there are several parts.
    pub grid: u8,
    /// Channels of each cell, at least 1: an object lives in one of them by its number, and each has its turn in another tick.
    /// Choose cells so large that objects seldom leave them, and so many parts that a part fits into a packet: 300 objects.
    pub parts: u16,
}

/// The place from which the distance to a cell counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LooksFrom {
    /// The client's own position, to a quarter of a cell: fewer bytes.
    #[default]
    Position,
    /// The cell in which the client stands: everybody in it sees the same cells at the same rates, and the server plans
    /// and writes that once for all of them. A ring reaches up to a cell and a sixteenth farther than its radius: choose
    /// cells a little larger than the radius of the nearest ring, and that ring is the cell with its eight neighbours.
    Cell,
}

impl GridOptions {
    /// Whether a bound is below the one opposite, or no number.
    pub(crate) fn ends_before_it_begins(&self) -> bool {
        let is_wrong = |low: f64, high: f64| low.partial_cmp(&high).is_none_or(Ordering::is_gt);
        self.bounds_m.is_some_and(|[low, high]| low.into_iter().zip(high).any(|(low, high)| is_wrong(low, high)))
    }

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
    /// Cells of 10 m in one layer, where heights from 0 to 20 m take the fewest bits: every tick within 10 m, every
    /// third within 50 m. The world has no bounds.
    pub fn new(up: Up) -> GridOptions {
        let mut cell_m = [10.0; 3];
        cell_m[up.axis()] = 20.0;
        GridOptions {
            shape: GridShape::flat(up, cell_m),
            bounds_m: None,
            rings: vec![Ring { radius_m: 10.0, interval_ticks: 1 }, Ring { radius_m: 50.0, interval_ticks: 3 }],
            looks_from: LooksFrom::Position,
        }
    }
}

/// Settings of a [`Server`](crate::Server). Made with [`ServerOptions::new`]; everything but its two arguments has a default.
///
/// ```
/// # use std::time::Duration;
/// # use throng::{LaneKind, LaneOptions, ReplicatorOptions, SecondConnection, ServerOptions, random_key};
/// let defaults = ServerOptions::new(1, random_key());
/// assert!(defaults.previous_private_key.is_none());
/// assert_eq!(defaults.second_connection, SecondConnection::Replace);
/// assert!(defaults.public_addresses.is_empty()); // the address that it is bound to
/// assert_eq!(defaults.tick_interval, Duration::from_micros(33_333)); // 30 ticks per second
/// assert_eq!(defaults.send_interval_ticks, None); // as often as the nearest ring
/// assert_eq!(defaults.max_clients, 1_024);
/// assert_eq!(defaults.client_bytes_per_s, 64_000);
/// assert_eq!(defaults.client_packets_per_s, 2_000);
/// assert!(defaults.grids.is_empty()); // Placement::Cell needs one
/// assert_eq!(defaults.far, None);
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
    /// A number for the game and its version: only clients with tokens for the same number can join.
    pub protocol_id: u64,
    /// The key that encrypts connect tokens. Share it only with the program that issues them.
    pub private_key: Key,
    /// The former key. While it is set, tokens of both keys are accepted: give the servers the new key first, then the
    /// backends, and remove the old key when its last tokens have expired.
    pub previous_private_key: Option<Key>,
    /// The handling of a connected client that comes with another token, after a crash for example.
    pub second_connection: SecondConnection,
    /// The addresses that clients use for the server: a token must name one of them. Empty: the address to which it is
    /// bound, which must then be a single address and not all addresses of the machine.
    ///
    /// Several addresses are for several ways to one socket, such as two routers that forward to this machine. If the
    /// machine itself has several addresses, bind a server to one of them: a socket that is bound to all of them answers
    /// from the address that the route to the client chooses, and a client takes answers from the address of its token only.
    pub public_addresses: Vec<SocketAddr>,
    /// Time between ticks: 1 µs to 71 minutes.
    pub tick_interval: Duration,
    /// Ticks between two sends of state to one client, its own objects and the acknowledgement of its inputs included;
    /// the clients are spread over these ticks. At most 200 ms. `None`: the interval of the nearest ring, but at most
    /// 200 ms; every tick without a grid. A client that the game subscribes to something more frequent is sent to as often
    /// as that. Messages leave in every tick.
    pub send_interval_ticks: Option<NonZeroU16>,
    /// Number of clients at one time.
    pub max_clients: u32,
    /// The send budget for one client, in bytes per second with all headers down to IP.
    pub client_bytes_per_s: u32,
    /// Datagrams of one client that are handled, per second and in a burst. Further ones are dropped before decryption,
    /// and counted.
    pub client_packets_per_s: u32,
    /// Grids for [`Placement::Cell`](crate::Placement::Cell), by number. The default is no grid, because a grid has to
    /// know which axis points up, for example `vec![GridOptions::new(Up::Y)]`.
    pub grids: Vec<GridOptions>,
    /// How clients see objects that are far away. `None`: not at all.
    pub far: Option<FarOptions>,
    /// Message lanes. Both ends must have the same.
    pub lanes: Vec<LaneOptions>,
    /// A connection ends if its client is silent for this long.
    pub idle_timeout: Duration,
    /// Inputs that are carried by each packet of a client: the newest and those before it. Both ends should agree.
    pub input_redundancy: usize,
    /// Threads for all work of each connection: receiving, interest, planning, encoding, writing, encrypting and sending. The
    /// calling one is among them.
    pub threads: usize,
    /// Events that wait to be polled: at this number no client can join, and refusals are not reported.
    pub event_limit: usize,
    /// Most inputs of one client that a tick returns; the others wait for the next ticks, the newest 64 of them. A
    /// client gains nothing by sending faster than this. Choose slightly more than an honest client needs, because a
    /// late tick brings several inputs at once. With fewer, its inputs are 64 behind all the time, and `inputs_overflowed`
    /// of [`limits_reached`](crate::Server::limits_reached) counts those that found no room.
    pub inputs_per_tick: usize,
    /// Messages of one client that wait to be polled. Further ones wait in its session until the game has polled, and
    /// then at the client: they never displace other clients' messages.
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
    /// [`random_key`](crate::random_key) or your secret store, shared with the program that issues tokens. Neither has
    /// a default: anybody who knows both can join under any client id.
    pub fn new(protocol_id: u64, private_key: Key) -> ServerOptions {
        ServerOptions {
            protocol_id,
            private_key,
            previous_private_key: None,
            second_connection: SecondConnection::Replace,
            public_addresses: Vec::new(),
            tick_interval: Duration::from_micros(33_333),
            send_interval_ticks: None,
            max_clients: 1_024,
            client_bytes_per_s: 64_000,
            client_packets_per_s: 2_000,
            grids: Vec::new(),
            far: None,
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

    /// The time between ticks as clients are told it.
    pub(crate) fn tick_interval_us(&self) -> u32 {
        whole_us(self.tick_interval)
    }

    /// The longest time between two sends of state to a client. The allowance of a connection is kept for 250 ms
    /// ([`SessionOptions::burst`]), so a longer time would waste some of it.
    pub(crate) fn send_interval_most_ticks(&self) -> u16 {
        let ticks = SEND_INTERVAL_MOST.as_nanos() / self.tick_interval.as_nanos().max(1);
        ticks.clamp(1, u16::MAX.into()) as u16
    }

    /// Ticks between two sends of state to a client, unless the game subscribes it to something more frequent.
    pub(crate) fn usual_send_interval_ticks(&self) -> u16 {
        let nearest = self.grids.iter().filter_map(|grid| grid.rings.first()).map(|ring| ring.interval_ticks).min();
        let nearest = nearest.unwrap_or(1).min(u16::MAX.into()) as u16;
        self.send_interval_ticks.map_or(nearest, NonZeroU16::get).clamp(1, self.send_interval_most_ticks())
    }

    /// The most ticks between two sends of a cell.
    pub(crate) fn slowest_interval_ticks(&self) -> u32 {
        let rings = self.grids.iter().flat_map(|grid| &grid.rings);
        let slowest = rings.map(|ring| ring.interval_ticks).max().unwrap_or(1);
        // A turn of the cell waits for the next tick in which the client is sent anything.
        slowest.saturating_add(u32::from(self.usual_send_interval_ticks()) - 1)
    }

    /// Issues tokens for servers with these options, in place of a backend: for tests and for games without one.
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

/// The longest [`ServerOptions::tick_interval`]: the most that the welcome can say.
pub(crate) const TICK_INTERVAL_MOST: Duration = Duration::from_micros(u32::MAX as u64);

/// See [`ServerOptions::send_interval_ticks`].
const SEND_INTERVAL_MOST: Duration = Duration::from_millis(200);

/// The initial rate, before the path's capacity is known: about ten packets in a round trip to another continent (RFC
/// 6928), doubled from there.
const INITIAL_BYTES_PER_S: u32 = 64_000;

/// Drivers say when packets came, so that waiting for the tick of either end does not look like a queue.
const QUEUE_DELAY_TOLERANCE: Duration = Duration::from_millis(40);
/// The microseconds of a time between ticks: what the welcome says, and what both ends reckon with.
pub(crate) fn whole_us(interval: Duration) -> u32 {
    u32::try_from(interval.as_micros()).unwrap_or(u32::MAX)
}
