//! Kills a process of a run and starts it again, to measure the outage (time without updates) and the recovered
//! clients.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::clients::ClientsReport;
use crate::control::Command;
use crate::load::{Scene, Victim};
use crate::process::{Gateway, Player};
use crate::run::{BenchOptions, Play, Target, WORLD};
use crate::summary::OutageFigures;
use crate::world::WorldProgress;

/// Facts that are known when the new process is ready.
pub(super) struct Kill {
    victim: Victim,
    /// Until the new process was there, once it is.
    restart: Option<Duration>,
    /// Seconds that were measured before.
    pub(super) seconds_before: usize,
    /// Whether it is a world server that shares its process with others.
    is_one_of_several: bool,
    players_before: u32,
}

/// Checks that a run with a kill is possible.
///
/// # Errors
/// If not: why.
pub(super) fn check(options: &BenchOptions) -> Result<()> {
    if options.kill.is_none() {
        return Ok(());
    }
    if options.kill == Some(Victim::Edge) {
        match options.edges {
            0 | 1 => bail!("--kill edge needs another edge for its clients: add --edges 2"),
            _ => return Ok(()),
        }
    }
    if !matches!(options.scene, Scene::SingleUnreal | Scene::Spatial) || options.connect_only {
        bail!("--kill works only with the scenes single, with --traffic unreal, and spatial");
    }
    if options.kill == Some(Victim::Servers) && options.scene != Scene::Spatial {
        bail!("--kill servers works only with the scene spatial: the scene single has one world server, --kill server");
    }
    match options.target {
        Target::Start { .. } => Ok(()),
        Target::Running { .. } => bail!(
            "--kill gateway works only with a gateway that this program starts, not with one that is already running"
        ),
    }
}

/// Further arguments of the gateway: wait for a lost server, or accept no clients while GLOBAL has no owner.
pub(super) fn arguments(victim: Option<Victim>) -> Vec<OsString> {
    match victim {
        None | Some(Victim::Edge) => Vec::new(),
        Some(Victim::Server | Victim::Servers) => vec!["-scr".into()],
        Some(Victim::Gateway) => vec!["-cwm".into()],
    }
}

impl Kill {
    pub(super) fn figures(&self, bots: &ClientsReport, world: &WorldProgress) -> OutageFigures {
        let median = |sorted: &[f64]| sorted.get(sorted.len() / 2).copied();
        let max = |sorted: &[f64]| sorted.last().copied();
        OutageFigures {
            killed: self.victim,
            // A server of several reports itself when it is back, if it ever is.
            restart_ms: match self.is_one_of_several {
                true => world.restart_ms,
                false => self.restart.map(|restart| restart.as_secs_f64() * 1e3),
            },
            silence_ms_median: median(&bots.silence_ms).unwrap_or(f64::MAX),
            silence_ms_max: max(&bots.silence_ms).unwrap_or(f64::MAX),
            unanswered_ms_median: median(&bots.unanswered_ms),
            unanswered_ms_max: max(&bots.unanswered_ms),
            state_off_m_max: world.off_m_max,
            owned_twice: None,
            owned_by_none: None,
            unexcused_calls_lost: None,
            players_before: self.players_before,
            players_after: world.live_players,
            joined: bots.joined,
            connections_lost: bots.ends.values().sum::<u32>() + bots.returning,
        }
    }
}

impl Play<'_> {
    /// Kills a process, and starts another one in its place.
    pub(super) fn kill(&mut self, victim: Victim) -> Result<()> {
        let players_before = self.world.progress.live_players;
        let killed_at = Instant::now();
        let is_one_of_several = victim == Victim::Server && self.load.scene == Scene::Spatial;
        let seconds_before = self.series.len();
        self.kill = Some(Kill { victim, restart: None, seconds_before, is_one_of_several, players_before });
        match victim {
            Victim::Server if is_one_of_several => self.world.tell(Command::Kill),
            Victim::Server | Victim::Servers => self.replace_world()?,
            Victim::Gateway => self.replace_gateway()?,
            Victim::Edge => self.replace_edge()?,
        }
        if let Some(kill) = &mut self.kill {
            kill.restart = Some(killed_at.elapsed());
        }
        Ok(())
    }

    fn replace_world(&mut self) -> Result<()> {
        self.world.kill();
        self.world = Player::start(WORLD, &self.options.parts[0], &self.load)?;
        self.wait_for_world()?;
        self.world.tell(Command::Players(self.wanted));
        self.world.tell(Command::Go);
        self.world.tell(Command::Measure);
        Ok(())
    }

    fn replace_gateway(&mut self) -> Result<()> {
        let Some(mut gateway) = self.gateway.take() else { return Ok(()) };
        self.former_cpu_s += self.pid.map_or(0.0, |pid| self.usages.of(pid).cpu_s);
        gateway.kill();
        let log = self.folder.join("gateway-again.log");
        let addresses = [self.load.servers, self.load.door_of(0, 0)];
        let gateway = Gateway::start(&self.gateway_line, &log, &addresses)?;
        self.pid = Some(gateway.pid());
        self.gateway = Some(gateway);
        Ok(())
    }

    /// The first edge.
    fn replace_edge(&mut self) -> Result<()> {
        self.former_cpu_s += self.edges.first().map_or(0.0, |edge| self.usages.of(edge.gateway.pid()).cpu_s);
        let log = self.folder.join("edge-0-again.log");
        match self.edges.first_mut() {
            Some(edge) => edge.start_again(log),
            None => Ok(()),
        }
    }
}
