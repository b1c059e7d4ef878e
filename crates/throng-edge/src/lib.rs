//! Edges: a server's clients connect to processes beside it, and the server sends each change to these processes only.
//!
//! ```text
//!                 cells that the edge's clients look at, each once
//!                 own objects of the edge's clients                   .--> client
//!   origin  ------------------------------------------------>  edge  -+--> client     encoded once by the edge
//!   (game)  <------------------------------------------------         '--> client
//!                 players who join and leave, inputs, messages
//! ```
//!
//! The *origin* is a [`throng::Server`] with the game, as always. An *edge* is a client of it, and a server for its own
//! clients. It keeps a copy of the objects in the cells that its clients look at, with exactly the quantised values that came,
//! and fans them out with the same hub. So what the origin sends depends on what is looked at, and not on how many look:
//! readers scale by adding edges.
//!
//! - A game uses an [`Origin`] beside its server: players of edges come as [`OriginEvent`]s, with a [`PlayerId`] in the place of
//!   a connection.
//! - An edge is an [`Edge`]: call [`Edge::step`] once per tick. It has no game in it.
//!
//! `examples/one_edge.rs` is all of it in one process: a server, an edge and eight clients.
//!
//! Promises, with tests in `tests/contracts`:
//!
//! - A client at an edge ends with the origin's state of all that it looks at, whatever is lost on either way.
//! - Fields for the owner reach the edge of the owner, and of its clients the owner alone.
//! - The state of a client's own objects and the number of its newest input in it change together, as without an edge.
//! - A position with `predict` is told to within its error plus one step of its quantiser.
//! - A player who is handed over from origin to origin has one home at every moment, goes on as the same object for all clients,
//!   and loses no input and no message ([`Origin::hand_over`]).
//! - Borders between servers can follow the load without a stop: each place has one server, and nobody is invisible ([`Balance`]). Servers
//!   and edges of one world agree on them over a [bus](throng_bus): an edge is not trusted with anybody's load or borders.
//! - Servers and edges that have no UDP between them meet on the bus ([`BusNetwork`]).
//! - An edge that dies is the end of its players, told one by one, or they are kept until they come back through another edge
//!   ([`OriginOptions::keep_ticks`]). An origin that dies leaves an edge that can go on with
//!   another one ([`Edge::replace_origin`]): its clients stay connected.
//!
//! Limits: objects live in cells (`Placement::Cell`). Kinds with `skip_owner` or `hide_from_owner` fields are refused, because the
//! edge is their owner to the origin. Far facets ([`ServerOptions::far`](throng::ServerOptions::far)) show what the edge holds, so
//! they are of no use there.
#![forbid(unsafe_code)]

mod balance;
mod borders;
mod edge;
mod mirror;
mod network;
mod origin;
mod recall;
mod room;
mod roster;
mod saved;
mod talk;
mod watch;

pub use balance::{Balance, BalanceCounters, BalanceOptions};
pub use borders::{BORDER_SERVERS_MAX, BORDER_STEPS_MAX, Borders, BordersVersion, Division, Planner, PlannerOptions};
pub use edge::{Copied, Edge, EdgeCounters, EdgeError, EdgeOptions, Entry, Homes, IsGone};
pub use mirror::{COAST_TICKS, DRIFT_TICKS};
pub use network::{BusDriver, BusNetwork, BusNetworkCounters, TooManyEndpoints, address_on_bus};
pub use origin::{Origin, OriginCounters, OriginError, OriginEvent, OriginOptions, PlayerId};
pub use roster::{WorldCounters, WorldName, WorldProblem};
pub use talk::{BODY_MAX, EDGE_MARK, Former, LANE_BYTES_MIN, STATE_MAX, ToEdge, ToOrigin, edge_user_data, is_edge};
pub use watch::BorderWatch;
