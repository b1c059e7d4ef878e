//! The tactical reference game: 5 against 5, rounds, weapons, abilities, an objective.
//!
//! A player sends one [`Command`](command::Command) for each tick, and knows what its [`Senses`](senses::Senses) say. A
//! brain, or a person with a screen, turns the one into the other. [`Tactical`] is the match: a
//! [`Game`](throng_match::Game) for the runtime of `throng-match`.
//!
//! ```text
//!  commands of clients --> inbox: decoded, checked, one for each tick        refused and counted: Refusals
//!  agents in the server ->   |
//!                            v
//!  buy, draw, abilities --> walk --> walls --> poses (every 4th tick) --> shots: rewind, verdicts --> wounds
//!                                                                                                        |
//!  publish: characters by fog, teams, owners <-- fog <-- round: plant, defuse, time, score <-------------+
//! ```
//!
//! ```
//! use throng_match::{Game, Scopes, TickInput};
//! use throng::Tick;
//! use throng_sight::{bake, town};
//! use throng_tactical::{Arena, Rules, Tactical};
//!
//! let arena = Arena::new(bake(&town::town(7, 5_000))?)?;
//! let mut game = Tactical::new(arena, Rules::default(), 42)?;
//! for tick in 1..=3 {
//!     game.step(&TickInput { tick: Tick(tick), ..TickInput::default() }, &mut Scopes::off());
//! }
//! assert_eq!((game.phase().name(), game.outcome()), ("buy", None));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod ability;
mod agents;
pub mod angle;
mod arena;
mod bomb;
pub mod brain;
mod character;
pub mod client;
mod clip;
pub mod command;
mod compare;
mod event;
mod fight;
mod game;
mod geometry;
mod inbox;
pub mod kinds;
mod orders;
mod parts;
mod pose;
mod publish;
mod rotation;
mod round;
mod rules;
mod sense;
pub mod senses;
mod shot;
mod skeleton;
mod solid;
mod tactical;
mod vision;
mod walk;
pub mod weapon;

pub use ability::{SMOKE_RADIUS_M, WALL_SIZE_M};
pub use agents::{AgentCounters, Agents};
pub use arena::{Arena, ArenaError};
pub use event::{EVENTS_MAX, Ending, Event};
pub use inbox::Refusals;
pub use pose::{Motion, pose};
pub use publish::PublishCounters;
pub use round::{BUY, END, LIVE, OVER};
pub use rules::{MONEY_MAX, PHASE_S, ROUNDS_TO_WIN_MAX, Rules, RulesError, SEATS_MAX, TEAM_SIZE_MAX, TICK_HZ};
pub use sense::SenseRoom;
pub use skeleton::{BONES, Zone};
pub use solid::{CROUCHED_M, RADIUS_M, STANDING_M, STEP_M};
pub use tactical::{Counters, Tactical, TacticalError};
pub use throng_match::Seat;
