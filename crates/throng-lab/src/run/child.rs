//! The second process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use throng::Key;
use throng_crowd::scenario::Scenario;
use throng_machine::piped::{self, Gone, Piped};

use super::RunOptions;
use crate::bots::{BotsOptions, Brains, EdgePoint, Gathered, Progress, Share};
use crate::control::{BotsLine, Command};

/// The bots' process.
pub(super) struct Child {
    process: Piped,
    progress: Progress,
    report: Option<Gathered>,
    fault: Option<String>,
}

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
pub(super) fn start(options: &RunOptions, target: Target, key: &Key, cores: Option<Vec<usize>>) -> Result<Child> {
    let Target { server, edges, truths } = target;
    let scenario = options.scenario.clone();
    let (share, key) = (Share::default(), *key.as_bytes());
    let order = Order { server, edges, key, scenario, truths, cores, share, begin_us: None };
    let process = Piped::start(&options.bots_command, &order).context("cannot start the bots")?;
    Ok(Child { process, progress: Progress::default(), report: None, fault: None })
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

impl Child {
    pub(super) fn tell(&mut self, command: Command) {
        self.process.tell(&command.line());
    }

    /// Reads what the bots have said.
    pub(super) fn listen(&mut self) {
        while self.fault.is_none() {
            let taken = match self.process.next_line(Duration::ZERO) {
                Ok(Some(line)) => self.take_line(&line),
                Ok(None) => return,
                Err(Gone) if self.report.is_some() => return,
                Err(Gone) => Err("the bots ended without a report".to_owned()),
            };
            self.fault = taken.err();
        }
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    pub(super) fn report(&self) -> Option<&Gathered> {
        self.report.as_ref()
    }

    /// Why the bots are gone, if they are.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Nothing is expected of them any more.
    pub(super) fn fail(&mut self, why: String) {
        self.fault.get_or_insert(why);
    }

    fn take_line(&mut self, line: &str) -> Result<(), String> {
        let known = serde_json::from_str(line);
        match known.map_err(|error| format!("the bots' process wrote an unknown line: {error}: {line:.200}"))? {
            BotsLine::Second(second) => self.progress = second.progress,
            BotsLine::Done(report) => self.report = Some(*report),
            BotsLine::Failed(error) => return Err(format!("the bots failed: {error}")),
        }
        Ok(())
    }
}
