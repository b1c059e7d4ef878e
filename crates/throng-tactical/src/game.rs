//! The match as the runtime sees it.

use throng::Server;
use throng_match::{Flow, Game, GameError, Phase, Scopes, Seats, Subsystem, TickInput};

use crate::tactical::Tactical;

impl Game for Tactical {
    fn step(&mut self, input: &TickInput<'_>, scopes: &mut Scopes) -> Flow {
        self.step_once(input, scopes)
    }

    fn publish(&mut self, server: &mut Server, seats: &Seats, scopes: &mut Scopes) -> Result<(), GameError> {
        scopes.time(Subsystem::REPLICATION, |_| self.publish_once(server, seats))
    }

    fn phase(&self) -> Phase {
        self.phase_label()
    }

    fn digest(&self) -> u64 {
        self.state_digest()
    }

    fn outcome(&self) -> Option<String> {
        self.round.outcome(&self.rules)
    }
}
