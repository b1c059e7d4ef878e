//! A process with many matches in a fleet of Agones.
//!
//! ```text
//!  your program                Sidecar (a thread)        the SDK sidecar in the same pod       Kubernetes
//!  set_ready()
//!  set_matches(["a", "b"]) --> Fleet: what to say next --> POST /ready, /health, /allocate --> GameServer
//!  drain()                                                 PATCH /v1beta1/counters/matches     Fleet, allocator
//!                                                          POST /v1beta1/lists/matches:addValue
//! ```
//!
//! The process is *Ready* when it has said that it can play, *Allocated* while it plays at least one match, so that no fleet that shrinks ends it,
//! and asks for *Shutdown* when it was drained and its last match is over. A counter has the number of matches and a list their
//! names: an allocator finds a process with room by them.
//!
//! [`Fleet`] decides what to say, without sockets or clocks; [`Sidecar`] says it. If the sidecar does not answer, matches go on.
//!
//! ```
//! use throng_fleet::{Fleet, FleetOptions, Reply};
//! use throng_wire::Time;
//!
//! let mut fleet = Fleet::new(FleetOptions::default());
//! let now = Time(0);
//! let mut said = Vec::new();
//! fleet.set_matches(["match-1".to_owned()]);
//! while let Some(request) = fleet.poll_request(now) {
//!     said.push(request.path.clone());
//!     fleet.handle_reply(now, Reply::Done); // as the sidecar would
//! }
//! assert_eq!(said[..3], ["/health", "/ready", "/allocate"]);
//! ```
#![forbid(unsafe_code)]

mod fleet;
mod sidecar;

pub use fleet::{
    Fleet, FleetCounters, FleetOptions, FleetState, MATCH_NAME_BYTES_MAX, MATCHES_MAX, Method, Reply, Request,
};
pub use sidecar::{PORT_DEFAULT, PORT_VARIABLE, Sidecar, SidecarError};
