//! The second process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use throng::Key;
use throng_crowd::scenario::Scenario;
use throng_machine::piped::{self, Gone, Piped};

use super::RunOptions;
use crate::bots::{BotsOptions, BotsReport, Brains, EdgePoint, Progress};
use crate::control::{BotsLine, Command};

/// The bots' process.
pub(super) struct Child {
    process: Piped,
    progress: Progress,
    report: Option<BotsReport>,
}

/// [`BotsOptions`] as they pass through the pipe.
#[derive(Serialize, Deserialize)]
struct Order {
    server: SocketAddr,
    edges: Vec<EdgePoint>,
    key: [u8; 32],
    scenario: Scenario,
    truths: Vec<PathBuf>,
    cores: Option<Vec<usize>>,
}

/// The first server, the edges before all servers, and the files with the state of each.
pub(super) struct Target {
    pub(super) server: SocketAddr,
    pub(super) edges: Vec<EdgePoint>,
    pub(super) truths: Vec<PathBuf>,
}

/// Starts the bots.
pub(super) fn start(options: &RunOptions, target: Target, key: &Key, cores: Option<Vec<usize>>) -> Result<Child> {
    let Target { server, edges, truths } = target;
    let scenario = options.scenario.clone();
    let order = Order { server, edges, key: *key.as_bytes(), scenario, truths, cores };
    let process = Piped::start(&options.bots_command, &order).context("cannot start the bots")?;
    Ok(Child { process, progress: Progress::default(), report: None })
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
    })
}

impl Child {
    pub(super) fn tell(&mut self, command: Command) {
        self.process.tell(&command.line());
    }

    /// Reads what the bots have said.
    pub(super) fn listen(&mut self) -> Result<()> {
        loop {
            match self.process.next_line(Duration::ZERO) {
                Ok(Some(line)) => self.take_line(&line)?,
                Ok(None) => return Ok(()),
                Err(Gone) if self.report.is_some() => return Ok(()),
                Err(Gone) => bail!("the bots ended without a report"),
            }
        }
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    pub(super) fn take_report(&mut self) -> Option<BotsReport> {
        self.report.take()
    }

    fn take_line(&mut self, line: &str) -> Result<()> {
        match serde_json::from_str(line).with_context(|| format!("the bots' process wrote an unknown line: {line}"))? {
            BotsLine::Progress(progress) => self.progress = progress,
            BotsLine::Done(report) => self.report = Some(*report),
            BotsLine::Failed(error) => bail!("the bots failed: {error}"),
        }
        Ok(())
    }
}
