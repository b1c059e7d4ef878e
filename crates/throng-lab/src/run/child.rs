//! The second process.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use throng::Key;
use throng_crowd::scenario::Scenario;
use throng_machine::piped::{self, Piped};

use super::RunOptions;
use crate::bots::{BotsOptions, Brains, EdgePoint, Share};

/// [`BotsOptions`] as they pass through the pipe.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) server: SocketAddr,
    pub(super) edges: Vec<EdgePoint>,
    pub(super) key: [u8; 32],
    pub(super) scenario: Scenario,
    pub(super) truths: Vec<PathBuf>,
    pub(super) cores: Option<Vec<usize>>,
    pub(super) share: Share,
    pub(super) begin_us: Option<u64>,
}

/// The first server, the edges before all servers, and the files with the state of each.
pub(super) struct Target {
    pub(super) server: SocketAddr,
    pub(super) edges: Vec<EdgePoint>,
    pub(super) truths: Vec<PathBuf>,
}

/// Starts the bots.
pub(super) fn start(options: &RunOptions, target: Target, key: &Key, cores: Option<Vec<usize>>) -> Result<Piped> {
    let Target { server, edges, truths } = target;
    let scenario = options.scenario.clone();
    let (share, key) = (Share::default(), *key.as_bytes());
    let order = Order { server, edges, key, scenario, truths, cores, share, begin_us: None };
    Piped::start(&options.bots_command, &order).context("cannot start the bots")
}

/// The host's command on standard input, for the built-in bots.
pub fn read_order() -> Result<BotsOptions> {
    let order: Order = piped::read_order().context("there is no order on the standard input")?;
    Ok(BotsOptions {
        server: order.server,
        edges: order.edges,
        key: Key::new(order.key),
        scenario: order.scenario,
        truths: order.truths,
        cores: order.cores,
        brains: Brains::default(),
        share: order.share,
        begin_us: order.begin_us,
    })
}
