//! Kills a process of a run and starts it again, to measure the outage (time without updates) and the recovered
//! clients.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::clients::ClientsReport;
use crate::control::Command;
use crate::load::{Scene, Victim};
use crate::process::{Gateway, Player};
use crate::run::{BenchOptions, Play, Target, WORLD, calls_lost};
use crate::summary::OutageFigures;
use crate::world::{WorldProgress, WorldReport};

/// Facts that are known when the new process is ready.
pub(super) struct Kill {
    victim: Victim,
    /// Until the new process was there, once it is.
    restart: Option<Duration>,
    /// Seconds that were measured before.
    pub(super) seconds_before: usize,
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
    /// `world` is what the world servers have reported, if they have.
    pub(super) fn figures(
        &self,
        bots: &ClientsReport,
        progress: &WorldProgress,
        world: Option<&WorldReport>,
    ) -> OutageFigures {
        let one_of_several = world.filter(|_| self.is_one_of_several);
        let [owned_twice, owned_by_none] = [0, 1].map(|kind| world.and_then(|world| Some(world.owners?[kind])));
        let median = |sorted: &[f64]| sorted.get(sorted.len() / 2).copied();
        let max = |sorted: &[f64]| sorted.last().copied();
        OutageFigures {
            killed: self.victim,
            // A server of several reports itself when it is back, if it ever is.
            restart_ms: match self.is_one_of_several {
                true => world.and_then(|world| world.restart_ms),
                false => self.restart.map(|restart| restart.as_secs_f64() * 1e3),
            },
            silence_ms_median: median(&bots.silence_ms).unwrap_or(f64::MAX),
            silence_ms_max: max(&bots.silence_ms).unwrap_or(f64::MAX),
            unanswered_ms_median: median(&bots.unanswered_ms),
            unanswered_ms_max: max(&bots.unanswered_ms),
            state_off_m_max: world.and_then(|world| world.off_m_max),
            owned_twice,
            owned_by_none,
            unexcused_calls_lost: one_of_several.map(|world| calls_lost(bots, world, &world.orphans)),
            players_before: self.players_before,
            players_after: progress.live_players,
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
        let is_one_of_several = victim.is_one_of_several(self.load.scene);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::ledger::Arrived;

    fn kill(is_one_of_several: bool) -> Kill {
        let (victim, restart) = (Victim::Server, Some(Duration::from_millis(70)));
        Kill { victim, restart, seconds_before: 0, is_one_of_several, players_before: 3 }
    }

    /// Each client has made ten calls. Of the first one, one call is lost. Of the others, four are lost, and three of these are successive.
    fn reports() -> (ClientsReport, WorldReport) {
        let arrived = |numbers, longest_gap| Arrived { numbers, longest_gap, ..Arrived::default() };
        let calls = BTreeMap::from([(1, arrived(9, 1)), (2, arrived(6, 3)), (3, arrived(6, 3))]);
        let bots = ClientsReport {
            ends: BTreeMap::from([("reset".to_owned(), 1)]),
            returning: 2,
            calls: [1, 2, 3].map(|connection| (connection, 10)).into(),
            ..ClientsReport::default()
        };
        (bots, WorldReport { calls, orphans: [2, 3].into(), owners: Some([4, 5]), ..WorldReport::default() })
    }

    #[test]
    fn one_row_of_lost_calls_is_excused_of_those_whose_server_has_died() {
        let (bots, world) = reports();
        assert_eq!(calls_lost(&bots, &world, &Default::default()), 1 + 4 + 4);
        let figures = kill(true).figures(&bots, &WorldProgress::default(), Some(&world));
        assert_eq!(figures.unexcused_calls_lost, Some(1 + 1 + 1));
        assert_eq!((figures.owned_twice, figures.owned_by_none, figures.connections_lost), (Some(4), Some(5), 3));
    }

    #[test]
    fn a_server_of_several_is_back_when_it_says_so() {
        let (bots, world) = reports();
        let restart_ms =
            |kill: Kill, world: &WorldReport| kill.figures(&bots, &WorldProgress::default(), Some(world)).restart_ms;
        assert_eq!((restart_ms(kill(false), &world), restart_ms(kill(true), &world)), (Some(70.0), None));
        let back = WorldReport { restart_ms: Some(1_004.0), ..world };
        assert_eq!(restart_ms(kill(true), &back), Some(1_004.0));
        let silent = kill(true).figures(&bots, &WorldProgress::default(), None);
        assert_eq!((silent.restart_ms, silent.owned_twice, silent.unexcused_calls_lost), (None, None, None));
    }
}
