//! The three control messages that open a connection, on lane 0. Numbers are little endian.
//!
//! ```text
//! client -> server  hello    [1][protocol: u16][schema hash: u64][schema summary]
//! server -> client  welcome  [2][connection index: u32][generation: u32][tick interval in µs: u32][tick: u32]
//!                            [grids: u8] then for each [cell size in m: 3 x f64][layers: u8, 0 stacked, 1 single]
//! client -> server  ready    [3]
//! ```
//!
//! The server replicates nothing before *ready*: from then on the client can read everything.

use std::time::Duration;

use thiserror::Error;
use throng_replica::{GridShape, Layers};
use throng_schema::{Schema, Summary};
use throng_wire::{ConnectionId, Tick};

/// Version of everything above the link: control messages, inputs, messages and segments.
pub(crate) const PROTOCOL_VERSION: u16 = 1;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const READY: u8 = 3;
const GRID_BYTES: usize = 25;

/// What the server tells a client that fits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Welcome {
    pub(crate) connection: ConnectionId,
    pub(crate) tick_interval: Duration,
    pub(crate) tick: Tick,
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
            OpenError::Schema(_) => "schema",
        }
    }
}

pub(crate) fn hello(schema: &Schema) -> Vec<u8> {
    let mut bytes = vec![HELLO];
    bytes.extend_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    bytes.extend_from_slice(&schema.hash().to_le_bytes());
    schema.summary().encode(&mut bytes);
    bytes
}

/// Whether the client that sent this hello fits to us.
pub(crate) fn check_hello(bytes: &[u8], schema: &Schema) -> Result<(), OpenError> {
    let rest = bytes.strip_prefix(&[HELLO]).ok_or(OpenError::Malformed)?;
    let (version, rest) = rest.split_first_chunk().ok_or(OpenError::Malformed)?;
    let client = u16::from_le_bytes(*version);
    if client != PROTOCOL_VERSION {
        return Err(OpenError::Protocol { client, server: PROTOCOL_VERSION });
    }
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
        let interval_us = self.tick_interval.as_micros().min(u128::from(u32::MAX)) as u32;
        for number in [self.connection.index, self.connection.generation, interval_us, self.tick.0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.push(self.grids.len() as u8);
        for grid in &self.grids {
            grid.cell_m.iter().for_each(|size| bytes.extend_from_slice(&size.to_le_bytes()));
            bytes.push(u8::from(grid.layers == Layers::Single));
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Welcome, OpenError> {
        let rest = bytes.strip_prefix(&[WELCOME]).ok_or(OpenError::Malformed)?;
        let (numbers, rest) = rest.split_first_chunk::<16>().ok_or(OpenError::Malformed)?;
        let number = |at: usize| u32::from_le_bytes(numbers[at * 4..][..4].try_into().expect("four bytes"));
        let (&count, grids) = rest.split_first().ok_or(OpenError::Malformed)?;
        if grids.len() != usize::from(count) * GRID_BYTES {
            return Err(OpenError::Malformed);
        }
        let size = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let grid = |bytes: &[u8]| GridShape {
            cell_m: std::array::from_fn(|axis| size(&bytes[axis * 8..][..8])),
            layers: if bytes[24] == 0 { Layers::Stacked } else { Layers::Single },
        };
        Ok(Welcome {
            connection: ConnectionId { index: number(0), generation: number(1) },
            tick_interval: Duration::from_micros(u64::from(number(2))),
            tick: Tick(number(3)),
            grids: grids.chunks_exact(GRID_BYTES).map(grid).collect(),
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
            tick: Tick(99),
            grids: vec![GridShape::flat([10.0, 10.0, 20.0]), GridShape::stacked([64.0; 3])],
        };
        assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_control_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let schema = Schema::builder().build().expect("no kinds");
            let _ = Welcome::decode(&bytes);
            let _ = check_hello(&bytes, &schema);
        }
    }
}
