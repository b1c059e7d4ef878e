//! Brains inside a match: they play the seats that no player has.

use std::sync::{Arc, Mutex};

use glam::Vec3;
use throng_agent::{Navigation, Pair, PathFinder, Perception, PerceptionCounters, PerceptionError, Rays};
use throng_match::{Digest, Scopes, Seat};

use super::player::{Stage, own_seed, team_seed, threat};
use super::search::{Search, Walker};
use super::watch::{self, Scenery};
use super::{Brain, DECISIONS_PER_S, Skill, World};
use crate::agents::{AgentCounters, Agents};
use crate::command::Command;
use crate::sense::SenseRoom;
use crate::senses::Team;
use crate::tactical::Tactical;

/// How much the agents of a match may do in a tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SquadOptions {
    /// Rays of all agents together for perception.
    pub rays_per_tick: u32,
    /// Cells that the search for paths may expand.
    pub nodes_per_tick: u32,
    /// So many seats have agents, the lowest ones.
    pub agents_max: usize,
    /// How good they are.
    pub skill: Skill,
}

impl Default for SquadOptions {
    /// 24 rays and 600 cells, for all seats.
    fn default() -> SquadOptions {
        SquadOptions { rays_per_tick: 24, nodes_per_tick: 600, agents_max: usize::MAX, skill: Skill::default() }
    }
}

struct Agent {
    seat: Seat,
    brain: Brain,
    feet: Vec3,
    command: Option<Command>,
}

impl Walker for Agent {
    fn brain(&mut self) -> &mut Brain {
        &mut self.brain
    }

    fn feet(&self) -> Vec3 {
        self.feet
    }
}

/// Agents for all seats of a match: give it to [`Tactical::with_agents`]. A seat that a player takes is the player's for as
/// long as it stays.
///
/// Equal matches with equal seeds play equally, bit for bit. It does not allocate once its buffers have grown.
pub struct Squad {
    rays: Arc<dyn Rays + Send + Sync>,
    navigation: Navigation,
    threats: [Vec3; 2],
    options: SquadOptions,
    agents: Vec<Agent>,
    perception: Perception,
    search: Search,
    scenery: Scenery,
    room: SenseRoom,
    digest: u64,
}

impl Squad {
    /// Agents for a match.
    ///
    /// # Errors
    /// If the rays do not suffice to look at each enemy within 500 ms.
    pub fn new(stage: &Stage<'_>, options: SquadOptions) -> Result<Squad, PerceptionError> {
        let Stage { arena, navigation, seats, tick_hz, seed } = *stage;
        let all = || (0..seats.min(options.agents_max)).map(|seat| Seat(seat as u16));
        let pairs: Vec<Pair> = watch::pairs(all(), seats).collect();
        let agent = |seat: Seat| {
            let team = if seat.index() < seats / 2 { Team::Attackers } else { Team::Defenders };
            let brain = Brain::new(own_seed(seed, seat), team_seed(seed, team), options.skill);
            Agent { seat, brain, feet: Vec3::ZERO, command: None }
        };
        Ok(Squad {
            rays: Arc::new(arena.map().clone()),
            navigation: navigation.clone(),
            threats: Team::BOTH.map(|team| threat(arena, team)),
            options,
            agents: all().map(agent).collect(),
            perception: Perception::new(watch::options(options.rays_per_tick, tick_hz), &pairs)?,
            search: Search::new(navigation),
            scenery: Scenery::new(),
            room: SenseRoom::default(),
            digest: 0,
        })
    }

    /// The same agents with a finder that several matches of one thread share, because each has 12 bytes for each cell of
    /// the grid. A search then goes on to its end at once.
    pub fn with_finder(mut self, finder: Arc<Mutex<PathFinder>>) -> Squad {
        self.search = Search::shared(&self.navigation, finder);
        self
    }

    /// The same agents with another engine for their rays, for comparison. Its triangles are those of the map.
    pub fn with_rays(self, rays: Arc<dyn Rays + Send + Sync>) -> Squad {
        Squad { rays, ..self }
    }

    /// Rays and looks so far.
    pub fn perception(&self) -> PerceptionCounters {
        self.perception.counters()
    }

    /// Decisions of all agents so far.
    pub fn decisions(&self) -> u64 {
        self.agents.iter().map(|agent| agent.brain.decisions()).sum()
    }

    fn perceive(&mut self, game: &Tactical) {
        self.scenery.clear();
        for agent in self.agents.iter().filter(|agent| game.is_agent(agent.seat)) {
            if let Some(senses) = game.senses(agent.seat, &mut self.room) {
                self.scenery.add(&senses);
            }
        }
        self.perception.update(game.now().0, &*self.rays, &self.scenery);
        // Pairs are sorted by viewers.
        for (pair, sighting) in self.perception.sightings() {
            if let Some(agent) = self.agents.get_mut(pair.viewer as usize) {
                agent.brain.see(Seat(pair.target as u16), sighting);
            }
        }
    }
}

impl Agents for Squad {
    fn think(&mut self, game: &Tactical, _: &mut Scopes) {
        self.perceive(game);
        let mut hash = Digest::new();
        hash.add(self.digest);
        for agent in &mut self.agents {
            agent.command = None;
            if !game.is_agent(agent.seat) {
                continue;
            }
            let Some(senses) = game.senses(agent.seat, &mut self.room) else { continue };
            let threat = self.threats[senses.me.team as usize];
            let world = World { rays: &*self.rays, navigation: &self.navigation, threat };
            // Brains take turns: in each tick about the same number decides.
            let interval = u64::from((senses.tick_hz / DECISIONS_PER_S).max(1));
            if (senses.tick.0 + 3 * u64::from(agent.seat.0)).is_multiple_of(interval) {
                agent.brain.decide(&senses, &world);
            }
            let command = agent.brain.act(&senses);
            let bytes = command.encode();
            hash.add(u64::from_le_bytes([
                bytes[0], bytes[5], bytes[6], bytes[7], bytes[8], bytes[10], bytes[11], bytes[12],
            ]));
            (agent.feet, agent.command) = (senses.me.position, Some(command));
        }
        self.digest = hash.finish();
        self.search.tick(&mut self.agents, self.options.nodes_per_tick);
    }

    fn command(&self, seat: Seat) -> Option<Command> {
        self.agents.get(seat.index())?.command
    }

    fn digest(&self) -> u64 {
        self.digest
    }

    fn counters(&self) -> AgentCounters {
        let brains = || self.agents.iter().map(|agent| &agent.brain);
        let fans: u64 = brains().map(Brain::fan_rays).sum();
        AgentCounters { decisions: brains().map(Brain::looks).sum(), rays: self.perception.counters().rays + fans }
    }
}
