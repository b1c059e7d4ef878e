//! Plays whole matches of the tactical game on this machine, and measures them.
//!
//! ```text
//!  this process                                            bots, a second process or a thread
//!  ------------                                            -----------------------------------
//!  Host: workers on their cores                            one socket, client and brain for each player
//!    Match: game, server on UDP loopback  <~~~~~~~~~~~~~>  Eyes: Senses of what the client was sent
//!    input log, telemetry                                  Player: Senses --> Command, each tick
//!      |
//!      v when it is over
//!  replay: the same digests?  verdicts with all poses?  hidden, and visible by 360 lines?
//!      |
//!      v
//!  Summary (docs/match-summary.md), report with plots
//! ```
//!
//! The command `throng match` is this crate with arguments.
#![forbid(unsafe_code)]

pub mod bots;
mod check;
mod density;
mod error;
mod growth;
mod levels;
mod observe;
mod rays;
mod report;
mod run;
mod show;
pub mod site;
mod sites;
mod stage;
mod summary;
mod watch;

pub use density::{DensityOptions, density};
pub use error::RangeError;
pub use growth::Growth;
pub use report::rebuild;
pub use run::{Finished, LiveMetrics, Note, Players, Playing, RunOptions, TellPlaying, play, replay_file};
pub use stage::{MapSource, Stage};
pub use summary::Summary;
pub use throng_tactical::Rules;
