//! The crowd: what a run of many players plays, without a measurement in it.
//!
//! ```text
//! scenarios/*.toml --> Scenario --> World --> kinds --> replication --> a bot's view
//!                                     ^         |                            |
//!                                  BotInput     +--> truth: a file ----------+--> a bot compares both
//!                                               +--> pulse: the server's clock
//! ```
//!
//! ```
//! use throng_crowd::scenario::{Overrides, Scenario};
//! use throng_crowd::world::World;
//!
//! let overrides = Overrides { players: Some(50), ..Overrides::default() };
//! let scenario = Scenario::resolve("crowd", &overrides)?;
//! let mut world = World::new(&scenario);
//! let character = world.spawn();
//! world.step(|_, _| {});
//! assert!(world.state(character).is_some());
//! # Ok::<(), throng_crowd::scenario::ScenarioError>(())
//! ```

#![forbid(unsafe_code)]

pub mod copies;
pub mod kinds;
pub mod pulse;
pub mod regions;
pub mod scenario;
pub mod talk;
pub mod truth;
mod unnamed;
pub mod world;
