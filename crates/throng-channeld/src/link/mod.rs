//! The protocol over Throng's own link: what both ends have to agree on, and the client's end.
//!
//! ```text
//! netcode payload   session header | lane 0: packets, one per message | movement section
//! ```
//! Lane 0 is reliable and ordered. It carries everything, except what is called *movement*: state that is of no use
//! late, because a newer one is on its way. That travels once, in sections of the [session](throng_link::session)'s
//! packets, and may be lost: see [`section`] for its layout, [`Freshness`] for what a client must not show.
//!
//! [`LinkEnd`] is the client's end without a socket; [`LinkClient`] has one and blocks.

mod client;
mod end;
mod fresh;
pub mod section;

use std::time::Duration;

use throng_link::session::{LaneId, LaneKind, LaneOptions, SessionOptions};

pub use client::{LinkClient, LinkClientError};
pub use end::{LinkEnd, LinkError, MovementCounters};
pub use fresh::Freshness;

use crate::frame;

/// The protocol id of connect tokens for gateways, unless they are told otherwise: "channeld" in ASCII.
pub const PROTOCOL_ID: u64 = u64::from_be_bytes(*b"channeld");
/// The lane of everything but movement.
pub const LANE: LaneId = LaneId(0);
/// The overhead of a datagram beyond its payload: IPv4 and UDP headers (28), netcode prefix and sequence (4), seal
/// (16).
pub const DATAGRAM_OVERHEAD_BYTES: u16 = 48;
/// The most that one end sends per second. Congestion lowers it.
const RATE_BYTES_PER_S: u32 = 2_000_000;
/// The initial rate of both ends, in bytes per second, before the path's capacity is known.
const INITIAL_BYTES_PER_S: u32 = 128_000;
/// Clients look at their sockets once in a frame, and do not know when packets came: a frame at 30 Hz is no queue in the
/// network. More than this is. The gateway knows when packets came.
const QUEUE_DELAY_TOLERANCE: Duration = Duration::from_millis(40);

/// The settings of both ends of the link's sessions: one lane, reliable and ordered.
pub fn session_options() -> SessionOptions {
    let lane = LaneOptions {
        message_bytes: frame::MAX_PAYLOAD_BYTES,
        queue_messages: 8_192,
        queue_bytes: 2 << 20,
        ..LaneOptions::new(LaneKind::ReliableOrdered)
    };
    SessionOptions {
        lanes: vec![lane],
        rate_bytes_per_s: RATE_BYTES_PER_S,
        initial_rate_bytes_per_s: INITIAL_BYTES_PER_S,
        packet_overhead_bytes: DATAGRAM_OVERHEAD_BYTES,
        queue_delay_tolerance: QUEUE_DELAY_TOLERANCE,
        ..SessionOptions::default()
    }
}
