//! The match runtime: plays games at a fixed rate, many on one machine.
//!
//! A game implements [`Game`]. A [`Match`] gives it a server of its own, collects the inputs of its players, and calls it
//! once per tick. A [`Host`] plays many matches on a fixed set of threads.
//!
//! ```text
//!  clients ~~ UDP ~~> server of the match --> inbox: bounded, in order --> TickInput --> Game::step
//!                                                                             |             |
//!                                                                        input log       Game::publish
//!                                                                             |             |
//!                                     replay: the same steps, compared <------+     server --> clients
//! ```
//!
//! - **Time.** Ticks have absolute [`Deadlines`]: `start + n / rate`. Lateness, work and time in which the thread did not
//!   run are recorded for each frame. [`Overrun`] says what happens to ticks whose time has passed.
//! - **Repeatable.** A step depends on [`TickInput`] alone, so an [`InputLog`] plays a match again, bit for bit.
//! - **Isolated.** A game that panics or fails ends its own match with one line, a [`MatchEnd`]. Others are not harmed.
//! - **Bounded.** A client can send what it likes: the [`Inbox`] takes what it may, in order, and counts the rest.
//!
//! [docs/match.md](https://github.com/throng/throng/blob/main/docs/match.md) shows in steps how to put a game into the
//! runtime.
#![forbid(unsafe_code)]

mod balance;
mod deadline;
mod digest;
mod game;
mod host;
mod inbox;
mod log;
mod panics;
mod play;
mod replay;
mod seats;
mod worker;

pub use deadline::{Deadlines, Due, Overrun, RATE_MAX_HZ};
pub use digest::Digest;
pub use game::{Flow, Game, GameError, Seat, SeatCommand, SeatLatency, TickInput};
pub use host::{Host, HostError, HostOptions, MatchId, Pinning, Scheduling, Shutdown, WORKERS_MAX, WorkerFigures};
pub use inbox::{COMMANDS_PER_TICK_MAX, CommandCounters, CommandLimits, Inbox, Refusal};
pub use log::{LOG_VERSION, LogError, LogHead, LogWriter, SETTINGS_MAX};
pub use play::{Match, MatchCounters, MatchEnd, MatchError, MatchOptions, Recording, Stage};
pub use replay::{InputLog, ReplayError, Replayed, build_id};
pub use seats::{SEATS_MAX, Seats};
pub use throng_telemetry::{Clock, Phase, Recorder, Scopes, Subsystem};
