//! The three control messages that open a connection, on lane 0. Numbers are little endian.
//!
//! ```text
//! client -> server  hello    [1][protocol: u16][lanes: u8] then for each lane of the game
//!                            [kind: u8, 0 ordered, 1 unordered, 2 unreliable][message bytes: u32][queue bytes: u32]
//!                            [schema hash: u64][schema summary]
//! server -> client  welcome  [2][connection index: u32][generation: u32][tick interval in µs: u32]
//!                            [ticks between two turns of the slowest ring: u32][tick: u64]
//!                            [grids: u8] then for each [cell size in m: 3 x f64]
//!                            [layers: u8, 0 stacked, 1 single and z is up, 2 single and y is up]
//! client -> server  ready    [3]
//! ```
//!
//! The server replicates nothing before *ready*: from then on the client can read everything. A client sends nothing
//! else before it has read the welcome; any later message means *ready* too (see [`greeting`](crate::greeting)).

use std::fmt;
use std::time::Duration;

use thiserror::Error;
use throng_link::session::{LaneKind, LaneOptions};
use throng_replica::{GridShape, Layers, Up};
use throng_schema::{Schema, Summary};
use throng_wire::{ConnectionId, Tick};

use crate::options::whole_us;

/// Version of everything above the link: control messages, inputs, messages and segments.
pub(crate) const PROTOCOL_VERSION: u16 = 3;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const READY: u8 = 3;
const GRID_BYTES: usize = 25;
const LANE_BYTES: usize = 9;

/// The server's answer to a client that fits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Welcome {
    pub(crate) connection: ConnectionId,
    pub(crate) tick_interval: Duration,
    pub(crate) tick: Tick,
    /// Between two turns of a cell in the slowest ring of any grid.
    pub(crate) slowest_ticks: u32,
    pub(crate) grids: Vec<GridShape>,
}

/// Why a connection could not be opened after the handshake of the link.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The bytes are no control message. The peer's fault.
    #[error("a control message is malformed")]
    Malformed,
    /// The peer speaks another version of this library's protocol.
    #[error("the client speaks protocol {client}, the server {server}: update the older one")]
    Protocol {
        /// The client's version.
        client: u16,
        /// The server's version.
        server: u16,
    },
    /// The two ends have different message lanes.
    #[error("the message lanes differ: {0}; give server and client the same list")]
    Lanes(LaneDifference),
    /// The two ends replicate different kinds.
    #[error("the schemas differ: {0}")]
    Schema(String),
}

impl OpenError {
    /// A stable short name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            OpenError::Malformed => "malformed",
            OpenError::Protocol { .. } => "protocol",
            OpenError::Lanes(_) => "lanes",
            OpenError::Schema(_) => "schema",
        }
    }
}

/// The first difference between the message lanes of client and server. Lanes are counted as the game counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaneDifference {
    /// One end has more.
    Count {
        /// Lanes of the client.
        client: usize,
        /// Lanes of the server.
        server: usize,
    },
    /// A lane promises different things.
    Kind {
        /// Which lane.
        lane: usize,
        /// Its kind at the client; `None` if we do not know such a kind.
        client: Option<LaneKind>,
        /// Its kind at the server.
        server: LaneKind,
    },
    /// The longest message differs, in bytes.
    MessageBytes {
        /// Which lane.
        lane: usize,
        /// At the client.
        client: usize,
        /// At the server.
        server: usize,
    },
    /// The bytes that may be unfinished differ.
    QueueBytes {
        /// Which lane.
        lane: usize,
        /// At the client.
        client: usize,
        /// At the server.
        server: usize,
    },
}

impl fmt::Display for LaneDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            LaneDifference::Count { client, server } => write!(f, "the client has {client}, the server {server}"),
            LaneDifference::Kind { lane, client, server } => {
                let client = client.map_or("of an unknown kind", name_of);
                write!(f, "lane {lane} is {client} at the client and {} at the server", name_of(server))
            }
            LaneDifference::MessageBytes { lane, client, server } => {
                write!(f, "lane {lane} takes messages of {client} bytes at the client and {server} at the server")
            }
            LaneDifference::QueueBytes { lane, client, server } => {
                write!(f, "lane {lane} queues {client} bytes at the client and {server} at the server")
            }
        }
    }
}

fn name_of(kind: LaneKind) -> &'static str {
    match kind {
        LaneKind::ReliableOrdered => "reliable ordered",
        LaneKind::ReliableUnordered => "reliable unordered",
        LaneKind::Unreliable => "unreliable",
    }
}

const KINDS: [LaneKind; 3] = [LaneKind::ReliableOrdered, LaneKind::ReliableUnordered, LaneKind::Unreliable];

fn write_lanes(lanes: &[LaneOptions], out: &mut Vec<u8>) {
    out.push(lanes.len() as u8);
    for lane in lanes {
        out.push(KINDS.iter().position(|kind| *kind == lane.kind).unwrap_or_default() as u8);
        for bytes in [lane.message_bytes, lane.queue_bytes] {
            out.extend_from_slice(&u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes());
        }
    }
}

/// Compares the lanes at the head of `bytes` with ours, and returns what stands behind them.
fn check_lanes<'a>(bytes: &'a [u8], ours: &[LaneOptions]) -> Result<&'a [u8], OpenError> {
    let (&count, rest) = bytes.split_first().ok_or(OpenError::Malformed)?;
    let (theirs, rest) = rest.split_at_checked(usize::from(count) * LANE_BYTES).ok_or(OpenError::Malformed)?;
    let differ = |difference| Err(OpenError::Lanes(difference));
    if usize::from(count) != ours.len() {
        return differ(LaneDifference::Count { client: usize::from(count), server: ours.len() });
    }
    for (lane, (theirs, ours)) in theirs.chunks_exact(LANE_BYTES).zip(ours).enumerate() {
        let kind = KINDS.get(usize::from(theirs[0])).copied();
        let number = |at: usize| u32::from_le_bytes(theirs[at..][..4].try_into().expect("four bytes")) as usize;
        let (message_bytes, queue_bytes) = (number(1), number(5));
        if kind != Some(ours.kind) {
            return differ(LaneDifference::Kind { lane, client: kind, server: ours.kind });
        }
        if message_bytes != ours.message_bytes {
            return differ(LaneDifference::MessageBytes { lane, client: message_bytes, server: ours.message_bytes });
        }
        if queue_bytes != ours.queue_bytes {
            return differ(LaneDifference::QueueBytes { lane, client: queue_bytes, server: ours.queue_bytes });
        }
    }
    Ok(rest)
}

pub(crate) fn hello(schema: &Schema, lanes: &[LaneOptions]) -> Vec<u8> {
    let mut bytes = vec![HELLO];
    bytes.extend_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    write_lanes(lanes, &mut bytes);
    bytes.extend_from_slice(&schema.hash().to_le_bytes());
    schema.summary().encode(&mut bytes);
    bytes
}

/// Whether the client that sent this hello fits to us.
pub(crate) fn check_hello(bytes: &[u8], schema: &Schema, lanes: &[LaneOptions]) -> Result<(), OpenError> {
    let rest = bytes.strip_prefix(&[HELLO]).ok_or(OpenError::Malformed)?;
    let (version, rest) = rest.split_first_chunk().ok_or(OpenError::Malformed)?;
    let client = u16::from_le_bytes(*version);
    if client != PROTOCOL_VERSION {
        return Err(OpenError::Protocol { client, server: PROTOCOL_VERSION });
    }
    let rest = check_lanes(rest, lanes)?;
    let (hash, summary) = rest.split_first_chunk().ok_or(OpenError::Malformed)?;
    if u64::from_le_bytes(*hash) == schema.hash() {
        return Ok(());
    }
    let summary = Summary::decode(summary).map_err(|_| OpenError::Malformed)?;
    let differences: Vec<String> = schema.differences(&summary).iter().map(ToString::to_string).collect();
    Err(OpenError::Schema(differences.join("; ")))
}

impl Welcome {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![WELCOME];
        let interval_us = whole_us(self.tick_interval);
        for number in [self.connection.index, self.connection.generation, interval_us, self.slowest_ticks] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.tick.0.to_le_bytes());
        bytes.push(self.grids.len() as u8);
        for grid in &self.grids {
            grid.cell_m.iter().for_each(|size| bytes.extend_from_slice(&size.to_le_bytes()));
            bytes.push(match (grid.layers, grid.up) {
                (Layers::Stacked, _) => 0,
                (Layers::Single, Up::Z) => 1,
                (Layers::Single, Up::Y) => 2,
            });
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Welcome, OpenError> {
        let rest = bytes.strip_prefix(&[WELCOME]).ok_or(OpenError::Malformed)?;
        let (numbers, rest) = rest.split_first_chunk::<16>().ok_or(OpenError::Malformed)?;
        let (tick, rest) = rest.split_first_chunk::<8>().ok_or(OpenError::Malformed)?;
        let number = |at: usize| u32::from_le_bytes(numbers[at * 4..][..4].try_into().expect("four bytes"));
        let (&count, grids) = rest.split_first().ok_or(OpenError::Malformed)?;
        if grids.len() != usize::from(count) * GRID_BYTES {
            return Err(OpenError::Malformed);
        }
        let size = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let grid = |bytes: &[u8]| {
            let (layers, up) = match bytes[24] {
                0 => (Layers::Stacked, Up::Z),
                1 => (Layers::Single, Up::Z),
                2 => (Layers::Single, Up::Y),
                _ => return Err(OpenError::Malformed),
            };
            Ok(GridShape { cell_m: std::array::from_fn(|axis| size(&bytes[axis * 8..][..8])), layers, up })
        };
        Ok(Welcome {
            connection: ConnectionId { index: number(0), generation: number(1) },
            tick_interval: Duration::from_micros(u64::from(number(2))),
            slowest_ticks: number(3),
            tick: Tick(u64::from_le_bytes(*tick)),
            grids: grids.chunks_exact(GRID_BYTES).map(grid).collect::<Result<_, _>>()?,
        })
    }
}

pub(crate) fn ready() -> [u8; 1] {
    [READY]
}

pub(crate) fn is_ready(bytes: &[u8]) -> bool {
    bytes == [READY]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_welcome_survives() {
        let welcome = Welcome {
            connection: ConnectionId { index: 7, generation: 2 },
            tick_interval: Duration::from_micros(33_333),
            tick: Tick((1 << 40) + 99),
            slowest_ticks: 30,
            grids: vec![
                GridShape::flat(Up::Z, [10.0, 10.0, 20.0]),
                GridShape::flat(Up::Y, [10.0, 20.0, 10.0]),
                GridShape::stacked([64.0; 3]),
            ],
        };
        assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
    }

    #[test]
    fn a_welcome_with_layers_of_an_unknown_kind_is_refused() {
        let welcome = Welcome {
            connection: ConnectionId { index: 7, generation: 2 },
            tick_interval: Duration::from_micros(33_333),
            tick: Tick(1),
            slowest_ticks: 30,
            grids: vec![GridShape::flat(Up::Z, [10.0, 10.0, 20.0])],
        };
        let mut bytes = welcome.encode();
        for layers in 0..=u8::MAX {
            *bytes.last_mut().expect("it ends with the layers") = layers;
            assert_eq!(Welcome::decode(&bytes).is_ok(), layers <= 2, "{layers}");
        }
    }

    #[test]
    fn the_first_lane_that_differs_is_named() {
        use crate::options::default_lanes;
        let schema = Schema::builder().build().expect("no kinds");
        let refused = |change: &dyn Fn(&mut Vec<LaneOptions>)| {
            let mut lanes = default_lanes();
            change(&mut lanes);
            check_hello(&hello(&schema, &lanes), &schema, &default_lanes()).map_err(|error| error.to_string())
        };
        assert_eq!(refused(&|_| {}), Ok(()));
        let text = refused(&|lanes| lanes.truncate(1)).expect_err("fewer lanes");
        assert!(text.contains("the client has 1, the server 3"), "{text}");
        let text = refused(&|lanes| lanes[1] = LaneOptions::new(LaneKind::Unreliable)).expect_err("another kind");
        assert!(text.contains("lane 1 is unreliable at the client and reliable unordered at the server"), "{text}");
        let text = refused(&|lanes| lanes[0].message_bytes = 99).expect_err("another limit");
        assert!(text.contains("lane 0 takes messages of 99 bytes at the client and 262144 at the server"), "{text}");
        let text = refused(&|lanes| lanes[2].queue_bytes = 9_999).expect_err("another limit");
        assert!(text.contains("lane 2 queues 9999 bytes at the client"), "{text}");
        // Settings that only the sender needs may differ.
        assert_eq!(refused(&|lanes| (lanes[0].weight, lanes[1].queue_messages) = (9, 7)), Ok(()));
    }

    #[test]
    fn the_lanes_stand_where_the_drawing_says() {
        let schema = Schema::builder().build().expect("no kinds");
        let lanes = [LaneOptions::new(LaneKind::ReliableUnordered)];
        let bytes = hello(&schema, &lanes);
        assert_eq!(bytes[..13], [1, 3, 0, 1, 1, 0, 0, 4, 0, 0, 0, 16, 0]);
        assert_eq!(bytes[13..21], schema.hash().to_le_bytes());
    }

    proptest! {
        #![proptest_config(throng_seeds::cases(256))]

        #[test]
        fn any_bytes_are_a_control_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let schema = Schema::builder().build().expect("no kinds");
            let _ = Welcome::decode(&bytes);
            let _ = check_hello(&bytes, &schema, &crate::options::default_lanes());
        }
    }
}
