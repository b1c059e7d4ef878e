//! How much load can a gateway take?
//!
//! A gateway that speaks channeld's protocol stands between world servers and clients. A run puts a gateway under load,
//! Throng's or another one, and reports the results:
//!
//! ```text
//! world servers (one process) --TCP--> gateway (another) --TCP--> clients (a third)
//!       30 frames/s                     sampled from /proc          30 calls/s each, four decode
//!            └──────── one line a second ────> run <──── one line a second ────┘
//! ```
//!
//! The load knows nothing of the gateway's inside, so it is the same for either. Every call of a client has a number, and
//! has to arrive at exactly one world server; every state has a time stamp of the machine's clock, and the clients take
//! its age.
//!
//! ```
//! use throng_gateway_lab::{Scene, Victim};
//!
//! assert_eq!(Scene::EntityLod.name(), "entity-lod");
//! assert_eq!(Victim::Server.name(), "server");
//! ```

#![forbid(unsafe_code)]

mod clients;
mod control;
mod datagrams;
mod ledger;
mod light;
mod link;
mod load;
mod motion;
mod outage;
mod page;
mod partial;
mod process;
mod progress;
mod published;
mod run;
mod scrape;
mod settings;
mod summary;
mod times;
mod traffic;
mod world;

use anyhow::{Context, Result};
use throng_machine::piped;

use control::Line;
pub use load::{Scene, Transport, Victim};
pub use page::page;
pub use run::{BenchOptions, BenchResult, Target, run};
pub use summary::{
    CallFigures, ClientFigures, DriverFigures, GatewayFigures, GatewaySummary, IdleFigures, OutageFigures, Reference,
    Second, TrafficFigures, WorldFigures,
};

/// The part of a run that a process plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The world servers.
    World,
    /// The clients.
    Clients,
}

/// Executes a part of a run, as its second or third process: reads commands from standard input and writes reports to
/// standard output.
///
/// # Errors
/// If there is no command, or the part fails; the parent process has the error by then.
pub fn play(part: Part) -> Result<()> {
    let load: load::Load = piped::read_order().context("there is no order on the standard input")?;
    let result = match part {
        Part::World => world::serve(load),
        Part::Clients => clients::play(load),
    };
    if let Err(error) = &result {
        piped::answer(&Line::<(), ()>::Failed(error.to_string()));
    }
    Ok(result?)
}
