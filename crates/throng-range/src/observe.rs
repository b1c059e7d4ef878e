//! The tactical game with somebody who looks at each step. Everything else is the game's own.

use throng::Server;
use throng_match::{Flow, Game, GameError, Phase, Scopes, Seats, TickInput};
use throng_tactical::Tactical;

/// Looks at the steps of a game, and changes nothing in it.
pub(crate) trait Observer: Send {
    /// Plays the step, and notes what it has to.
    fn step(&mut self, game: &mut Tactical, input: &TickInput<'_>, scopes: &mut Scopes) -> Flow;
}

/// A game and its observer.
pub(crate) struct Observed<O> {
    pub(crate) game: Tactical,
    pub(crate) observer: O,
}

impl<O: Observer> Game for Observed<O> {
    fn step(&mut self, input: &TickInput<'_>, scopes: &mut Scopes) -> Flow {
        self.observer.step(&mut self.game, input, scopes)
    }

    fn publish(&mut self, server: &mut Server, seats: &Seats, scopes: &mut Scopes) -> Result<(), GameError> {
        self.game.publish(server, seats, scopes)
    }

    fn phase(&self) -> Phase {
        self.game.phase()
    }

    fn digest(&self) -> u64 {
        self.game.digest()
    }

    fn outcome(&self) -> Option<String> {
        self.game.outcome()
    }
}
