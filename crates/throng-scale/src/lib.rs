//! How many processes and machines a world of many players needs, and what breaks first: from unit costs that were measured
//! with a few processes.
//!
//! ```text
//!  homes                    bus servers                      edges                  players
//!  a zone's owner publishes each other server with readers   subscribe once to each read the zone's state
//!  its state once     --->  gets it once; each edge with --> zone that one of their --> at the edge's cost
//!                           readers gets it once             players is in
//!        <----------------------------------------------------  inputs, bundled per edge and zone
//! ```
//!
//! [`simulate`] places each player in a zone and on an edge, counts who has to send what to whom, and multiplies by the unit
//! costs. So the load of each single process comes out, and not only a mean: the hottest one decides. [`plan`] adds processes until
//! all are within their limits, or until adding does not help: then it names the limit.
//!
//! The results are forecasts. `docs/scale.md` compares them with measurements of up to 8 processes.
//!
//! ```
//! use throng_scale::{Layout, Scenario, simulate};
//!
//! let scenario = Scenario::parse(include_str!("../../../docs/benchmarks/unit-costs.toml"))?;
//! let small = scenario.with_players(1_000)?;
//! let load = simulate(&small, &Layout { homes: 1, bus_servers: 1, edges: 2 });
//! assert_eq!(load.edges.len(), 2);
//! assert_eq!(load.players, 1_000);
//! # Ok::<(), throng_scale::ScenarioError>(())
//! ```
//!
//! Nothing here reads a clock or a file. Equal scenarios have equal results: placement is drawn from the scenario's seed.
#![forbid(unsafe_code)]

mod load;
mod place;
mod planning;
mod scenario;

pub use load::{Load, ProcessLoad, SubjectLoad, simulate};
pub use planning::{Bound, Part, Plan, plan};
pub use scenario::{Costs, Layout, Limits, Machine, MessageCost, Placement, Scenario, ScenarioError, World};
