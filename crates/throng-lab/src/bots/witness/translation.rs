//! How the objects and ticks of a client stand to those of the truth.
//!
//! A client of the server has the truth's own. A client of an edge has the edge's: a file of the edge tells both apart, and from
//! which of several servers an object comes. And what an edge passes on may be off twice, between server and edge and between
//! edge and client, each time by what its kind allows; a position by one step more.

use throng::{ObjectId, Tick};
use throng_crowd::copies::{CopiesReader, Original};

use crate::bots::{BotsError, EdgePoint};

/// The files of all edges.
pub(super) struct Translation {
    edges: Vec<CopiesReader>,
}

/// The number of an edge; `None`: the client is connected to the server.
pub(super) type Through = Option<usize>;

impl Translation {
    pub(super) fn new(edges: &[EdgePoint]) -> Result<Translation, BotsError> {
        let open = |edge: &EdgePoint| {
            let failed = |source| BotsError::Truth { path: edge.copies.clone(), source };
            CopiesReader::open(&edge.copies).map_err(failed)
        };
        Ok(Translation { edges: edges.iter().map(open).collect::<Result<_, _>>()? })
    }

    /// Reads all that is new. A file that cannot be read tells nothing: its objects are then missing in the truth.
    pub(super) fn refresh(&mut self) {
        self.edges.iter_mut().for_each(|edge| drop(edge.poll()));
    }

    /// Which of the truth's objects a client has now, and which one its state is of if that was sent in the tick; `None` of an object
    /// that its edge has told nobody of, and of a state that was sent too many origins ago.
    pub(super) fn source(&self, through: Through, id: ObjectId, sent: Tick) -> Option<(Original, Option<Original>)> {
        let Some(number) = through else {
            let own = Original { origin: 0, id, since: Tick(0), there: Tick(0) };
            return Some((own, Some(own)));
        };
        let source = self.edges.get(number)?.there(id)?;
        Some((source.now, source.at(sent)))
    }

    /// A client's tick for one of a server.
    pub(super) fn client_tick(&self, through: Through, origin: usize, tick: Tick) -> Option<Tick> {
        through.map_or(Some(tick), |number| self.edges.get(number)?.tick_here(origin, tick))
    }

    /// The tick of a server since which the ticks of an edge have stood for the same ones.
    pub(super) fn steady_from(&self, through: Through, origin: usize) -> Tick {
        through.and_then(|number| self.edges.get(number)).map_or(Tick(0), |edge| edge.steady_from(origin))
    }

    /// How many ticks beyond what it had been told by a server an edge was in one of its ticks.
    pub(super) fn beyond(&self, through: Through, origin: usize, here: Tick) -> u64 {
        through.and_then(|number| self.edges.get(number)).map_or(0, |edge| edge.beyond(origin, here))
    }

    /// A server's tick for one of a client.
    pub(super) fn true_tick(&self, through: Through, origin: usize, tick: Tick) -> Option<Tick> {
        through.map_or(Some(tick), |number| self.edges.get(number)?.tick_there(origin, tick))
    }
}

/// How often what a client has may be off.
pub(super) fn hops(through: Through) -> u32 {
    1 + u32::from(through.is_some())
}
