//! The match runtime: plays games at a fixed rate, many on one machine.
//!
//! A game implements [`Game`]. The runtime gives each match its own server, collects the inputs of its players, and calls
//! the game once per tick.
#![forbid(unsafe_code)]

mod game;
mod seats;

pub use game::{Flow, Game, GameError, Seat, SeatCommand, SeatLatency, TickInput};
pub use seats::{SEATS_MAX, Seats};
pub use throng_telemetry::{Phase, Scopes, Subsystem};
