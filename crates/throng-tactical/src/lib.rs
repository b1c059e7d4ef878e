//! The tactical reference game: 5 against 5, rounds, weapons, abilities, an objective.
//!
//! A player sends one [`Command`](command::Command) for each tick, and knows what its [`Senses`](senses::Senses) say. A brain, or a person with a
//! screen, turns the one into the other.
#![forbid(unsafe_code)]

pub mod angle;
pub mod command;
pub mod senses;
pub mod weapon;

pub use throng_match::Seat;
