//! A brain with eyes and feet of its own: for clients that play over the network.

use glam::Vec3;
use throng_agent::{Navigation, Pair, Perception, PerceptionError};
use throng_sight::Map;

use super::search::{Search, Walker};
use super::watch::{self, Scenery};
use super::{Brain, DECISIONS_PER_S, Skill, World};
use crate::Seat;
use crate::arena::Arena;
use crate::command::Command;
use crate::rules::SEATS_MAX;
use crate::senses::{Senses, Team};

/// Rays per tick of a player.
const RAYS_PER_TICK: u32 = 8;
/// Cells per tick that a search may expand.
const NODES_PER_TICK: u32 = 400;

/// Why there is no player. The caller is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlayerError {
    /// No such seat.
    #[error("seat {} is none of {seats}, or a match has at most {SEATS_MAX} seats", seat.0)]
    Seat {
        /// The seat.
        seat: Seat,
        /// The seats of the match.
        seats: usize,
    },
    /// The ticks are too rare to look at all enemies in time.
    #[error(transparent)]
    Perception(#[from] PerceptionError),
}

/// Plays one seat: senses in, commands out. Does not allocate once its buffers have grown.
#[derive(Clone)]
pub struct Player {
    map: Map,
    navigation: Navigation,
    threat: Vec3,
    brain: Brain,
    search: Search,
    perception: Perception,
    scenery: Scenery,
    decided_at: u64,
    looked_at: u64,
}

/// A match as its players need to know it.
#[derive(Clone, Copy)]
pub struct Stage<'a> {
    /// The map with its places.
    pub arena: &'a Arena,
    /// [`navigation`](super::navigation) of that map.
    pub navigation: &'a Navigation,
    /// All seats of the match.
    pub seats: usize,
    /// Ticks per second.
    pub tick_hz: u32,
    /// The same for all players of a match.
    pub seed: u64,
}

impl Player {
    /// A player for a seat.
    ///
    /// # Errors
    /// If the match has no such seat, or if its ticks are too rare.
    pub fn new(stage: &Stage<'_>, seat: Seat, skill: Skill) -> Result<Player, PlayerError> {
        let Stage { arena, navigation, seats, tick_hz, seed } = *stage;
        if seats > SEATS_MAX || seat.index() >= seats {
            return Err(PlayerError::Seat { seat, seats });
        }
        let pairs: Vec<Pair> = watch::pairs(std::iter::once(seat), seats).collect();
        let team = if seat.index() < seats / 2 { Team::Attackers } else { Team::Defenders };
        Ok(Player {
            map: arena.map().clone(),
            navigation: navigation.clone(),
            threat: threat(arena, team),
            brain: Brain::new(own_seed(seed, seat), team_seed(seed, team), skill),
            search: Search::new(navigation),
            perception: Perception::new(watch::options(RAYS_PER_TICK, tick_hz), &pairs)?,
            scenery: Scenery::new(),
            decided_at: 0,
            looked_at: 0,
        })
    }

    /// The command for these senses: call it once for each tick of the client.
    pub fn tick(&mut self, senses: &Senses<'_>) -> Command {
        let world = World { rays: &self.map, navigation: &self.navigation, threat: self.threat };
        if senses.tick.0 > self.looked_at {
            self.looked_at = senses.tick.0;
            self.scenery.clear();
            self.scenery.add(senses);
            self.perception.update(senses.tick.0, &self.map, &self.scenery);
            for (pair, sighting) in self.perception.sightings() {
                self.brain.see(Seat(pair.target as u16), sighting);
            }
        }
        if senses.tick.0 >= self.decided_at + u64::from(senses.tick_hz / DECISIONS_PER_S) {
            self.decided_at = senses.tick.0;
            self.brain.decide(senses, &world);
        }
        let walker = Feet { brain: &mut self.brain, feet: senses.me.position };
        self.search.tick(&mut [walker], NODES_PER_TICK);
        self.brain.act(senses)
    }

    /// The brain.
    pub fn brain(&self) -> &Brain {
        &self.brain
    }
}

/// The only walker of a player.
struct Feet<'a> {
    brain: &'a mut Brain,
    feet: Vec3,
}

impl Walker for Feet<'_> {
    fn brain(&mut self) -> &mut Brain {
        self.brain
    }

    fn feet(&self) -> Vec3 {
        self.feet
    }
}

/// Where the enemies of a team begin.
pub(crate) fn threat(arena: &Arena, team: Team) -> Vec3 {
    arena.spawns(team.other()).first().copied().unwrap_or_default()
}

/// The seed of a brain.
pub(crate) fn own_seed(seed: u64, seat: Seat) -> u64 {
    (seed ^ (u64::from(seat.0) + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The seed that the brains of a team share.
pub(crate) fn team_seed(seed: u64, team: Team) -> u64 {
    (seed ^ (team as u64 + 77)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}
