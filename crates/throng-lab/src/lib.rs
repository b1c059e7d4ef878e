//! Workloads, bots, measurements and reports.
//!
//! A run has four stations. The world is in `throng_crowd`, the summary in `throng_summary`:
//!
//! ```text
//! scenarios/*.toml --> Scenario --> World (server) <-- BotInput -- Brain (bots)
//!                                     |                             |
//!                                  FrameLog                   NeighbourLog
//!                                     └────────> RunSummary <───────┘
//!                                                    |
//!                             summary.json, report.html, the terminal
//! ```
//!
//! ```
//! use throng_lab::scenario::{Overrides, Scenario};
//! use throng_lab::world::World;
//!
//! let overrides = Overrides { players: Some(50), ..Overrides::default() };
//! let scenario = Scenario::resolve("crowd", &overrides)?;
//! let mut world = World::new(&scenario);
//! let character = world.spawn();
//! world.step(|_, _| {});
//! assert!(world.state(character).is_some());
//! # Ok::<(), throng_lab::scenario::ScenarioError>(())
//! ```
#![forbid(unsafe_code)]

pub mod bots;
mod bus;
pub mod compare;
mod control;
mod cut;
mod edge;
mod floor;
pub mod host;
mod loopback;
mod losses;
mod pace;
pub mod report;
pub mod run;
mod server;
mod slow_reader;

pub use edge::play_edge;
pub use server::play_server;
pub use throng::Key;
pub use throng_crowd::{kinds, scenario, world};
