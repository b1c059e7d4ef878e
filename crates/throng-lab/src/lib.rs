//! Workloads, bots, measurements and reports.
//!
//! A run has four stations, and this crate has a module for each thing that passes between them:
//!
//! ```text
//! scenarios/*.toml --> Scenario --> World (server) <-- BotInput -- Brain (bots)
//!                                     |                             |
//!                                  FrameLog                   NeighbourLog
//!                                     └────────> RunSummary <───────┘
//!                                                    |
//!                             terminal::table, summary.json, report.html
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
pub mod compare;
mod control;
pub mod environment;
mod floor;
pub mod frames;
pub mod history;
pub mod host;
mod loopback;
pub mod neighbours;
mod newest;
mod pace;
pub mod report;
pub mod run;
pub mod summary;
pub mod terminal;

pub use throng::Key;
pub use throng_crowd::{kinds, scenario, world};
