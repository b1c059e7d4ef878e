//! Code that all peers share: the world whose state is replicated, the lockstep in which a server and its clients run,
//! the stopwatch, and the check that every client ends with the right state.
//!
//! ```text
//!   thread 1, processor 0: the server                   thread 2, processor 1: all clients
//!
//!   receive    take in what the clients sent
//!   assign     write this tick's values into the library
//!   replicate  until the packets lie in `Packets`       ------->  apply, answer, now and then look at the values
//!                                                       <-------
//! ```
//!
//! Each side works while the other waits, so there is exactly one tick of round trip, the same for all peers.

mod allocation;
mod arguments;
mod check;
mod lockstep;
mod losses;
mod packets;
mod report;
mod spread;
mod stopwatch;
mod version;
mod world;

pub use arguments::{Arguments, Workload};
pub use lockstep::{Clients, Server, Terms, run};
pub use packets::{Packet, Packets};
pub use report::Row;
pub use stopwatch::{Part, Stopwatch};
pub use version::locked_version;
pub use world::{
    CELL_M, Character, DENSE_BYTES, HEIGHT_M, PITCH_LIMIT, SIGHT_M, SPARSE_BYTES, SPARSE_PLAYERS_MAX, STEP_M, Units,
    Value, World, YAW_STEPS,
};

/// The time between ticks, in microseconds: 30 Hz.
pub const TICK_US: u64 = 33_333;

/// The largest packet that a peer may hand over, where it lets us choose.
pub const PACKET_BYTES: usize = 1_200;
