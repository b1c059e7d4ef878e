//! The knowledge of an origin about one edge.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::FxHashMap;
use throng::{ChannelKey, ConnectionId, Replication, Server};

use super::Seat;
use crate::talk::{Down, ToEdge, UNSEEN_MAX, push_look, refusals_bytes};

/// Messages that wait for one edge.
pub(super) const WAITING_MAX: usize = 65_536;

/// Refused cells that wait for room in a message. An edge with more is sent away.
pub(super) const UNSEEN_WAITING_MAX: usize = 65_536;

/// Ends of clients that wait for room among the messages. An edge with more is sent away.
pub(super) const ENDS_WAITING_MAX: usize = 65_536;

/// Sessions of one edge that have no seat and are remembered; the oldest beyond are forgotten.
pub(super) const GONE_MAX: usize = 16_384;

/// An edge, as its origin knows it.
pub(super) struct EdgeSeat {
    pub(super) connection: ConnectionId,
    /// By session.
    pub(super) players: FxHashMap<u32, Seat>,
    /// The newest batch of inputs that was taken.
    pub(super) batch: Option<u32>,
    /// Sessions without a seat of which the edge may still speak: they were turned away, or have come through another edge.
    pub(super) gone: BTreeSet<u32>,
    /// Messages with refused cells, of which the edge says how many it has heard when it says by which borders it looks.
    pub(super) refusals: u32,
    /// Refused cells that no message has named yet, with their intervals.
    pub(super) unseen: BTreeMap<ChannelKey, u16>,
    /// It has said by which borders it looks while there were such cells, and that did not count. After the next message it says that
    /// again. So the message goes out also if no cell is left to be named.
    pub(super) owes_unseen: bool,
    /// Messages that its lane had no room for.
    pub(super) waiting: VecDeque<ToEdge>,
    /// Ends of clients for which there was no room among them: sessions and reasons. A client that is not told would wait for ever.
    pub(super) ends: BTreeMap<u32, &'static str>,
}

impl EdgeSeat {
    pub(super) fn new(connection: ConnectionId) -> EdgeSeat {
        EdgeSeat {
            connection,
            players: FxHashMap::default(),
            batch: None,
            gone: BTreeSet::new(),
            refusals: 0,
            unseen: BTreeMap::new(),
            owes_unseen: false,
            waiting: VecDeque::new(),
            ends: BTreeMap::new(),
        }
    }

    /// A session has no seat, and its edge does not know that yet. Newer ones have higher numbers.
    pub(super) fn note_gone(&mut self, session: u32) {
        self.gone.insert(session);
        if self.gone.len() > GONE_MAX {
            self.gone.pop_first();
        }
    }

    /// Ends the client of a session that has no seat, as soon as there is room to say it. False if too many ends wait.
    #[must_use]
    pub(super) fn end_session(&mut self, session: u32, reason: &'static str) -> bool {
        self.note_gone(session);
        self.ends.insert(session, reason);
        self.tell_ends();
        self.ends.len() <= ENDS_WAITING_MAX
    }

    /// Queues ends, as far as there is room.
    pub(super) fn tell_ends(&mut self) {
        while self.waiting.len() < WAITING_MAX
            && let Some((session, reason)) = self.ends.pop_first()
        {
            let (step, body) = (Down::End as u8, reason.as_bytes().to_vec());
            self.waiting.push_back(ToEdge { step, session, body, ..ToEdge::default() });
        }
    }

    /// The edge says by which borders it looks. It has heard of `refusals` messages with refused cells. True if the version counts: it
    /// knows of all cells that it cannot see. If not, a newer message with refused cells will follow.
    pub(super) fn accept_looks(&mut self, refusals: u32) -> bool {
        self.owes_unseen |= !self.unseen.is_empty();
        self.unseen.is_empty() && self.refusals == refusals
    }

    /// Queues refused cells, as far as there is room.
    pub(super) fn tell_unseen(&mut self) {
        while (!self.unseen.is_empty() || self.owes_unseen) && self.waiting.len() < WAITING_MAX {
            self.owes_unseen = false;
            self.refusals = self.refusals.wrapping_add(1);
            let mut body = refusals_bytes(self.refusals).to_vec();
            for (channel, interval_ticks) in (0..UNSEEN_MAX).map_while(|_| self.unseen.pop_first()) {
                push_look(&mut body, channel, interval_ticks);
            }
            self.waiting.push_back(ToEdge { step: Down::Unseen as u8, body, ..ToEdge::default() });
        }
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn flush<R: Replication>(&mut self, server: &mut Server<R>, lane: u8) {
        self.tell_ends();
        self.tell_unseen();
        while let Some(talk) = self.waiting.front()
            && server.send(self.connection, lane, talk).is_ok()
        {
            self.waiting.pop_front();
        }
    }
}
