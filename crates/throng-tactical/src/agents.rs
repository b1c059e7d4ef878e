//! Players that the match plays itself.

use throng_match::{Scopes, Seat};

use crate::command::Command;
use crate::tactical::Tactical;

/// Players for the seats without a connected player.
///
/// They are part of a step: equal states must give equal commands, bit for bit. So they know no clock and no randomness
/// but their own.
pub trait Agents: Send {
    /// Called once in each tick, before the step moves anything: perceive, decide, and prepare a command for each seat
    /// for which [`Tactical::is_agent`] says so. [`Tactical::senses`] tells what a seat may know.
    fn think(&mut self, game: &Tactical, scopes: &mut Scopes);

    /// The command of a seat for this tick; `None`: it does nothing.
    fn command(&self, seat: Seat) -> Option<Command>;

    /// A hash of everything that later commands depend on.
    fn digest(&self) -> u64;

    /// Their work so far.
    fn counters(&self) -> AgentCounters {
        AgentCounters::default()
    }
}

/// The work of all agents of a match, since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentCounters {
    /// Decisions of agents that had something to do: the dead, and those who wait for a round, decide nothing.
    pub decisions: u64,
    /// Rays of those decisions, and rays that look for enemies.
    pub rays: u64,
}
