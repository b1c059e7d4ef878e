//! Sums of what connections have counted since a moment, which never fall: not even when a connection ends, and its
//! counters with it.

use std::collections::HashMap;

use throng::replica::ConnectionCounters;
use throng::{ConnectionId, Replication, Server};

/// The counters of one connection since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) replicated: ConnectionCounters,
    pub(super) packets_sent: u64,
    pub(super) packets_lost: u64,
}

/// See the module's page. Work of a connection between the last [`take`](Tally::take) and its end is not counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    sum: Counts,
    seen: HashMap<ConnectionId, Counts>,
}

impl Tally {
    /// Counts from here on.
    pub(super) fn begin(&mut self, server: &Server<impl Replication>) {
        self.seen.clear();
        self.take(server);
        self.sum = Counts::default();
    }

    /// The sums so far.
    pub(super) fn sum(&self) -> &Counts {
        &self.sum
    }

    /// Looks at all connections.
    pub(super) fn take(&mut self, server: &Server<impl Replication>) {
        self.take_all(server.connections().map(|id| (id, counts_of(server, id))));
    }

    fn take_all(&mut self, connections: impl Iterator<Item = (ConnectionId, Counts)>) {
        let mut present = HashMap::with_capacity(self.seen.len());
        for (id, counts) in connections {
            let before = self.seen.get(&id).copied().unwrap_or_default();
            self.sum.add_difference(&before, &counts);
            present.insert(id, counts);
        }
        self.seen = present;
    }
}

impl Counts {
    fn add_difference(&mut self, before: &Counts, after: &Counts) {
        let (sum, from, to) = (&mut self.replicated, &before.replicated, &after.replicated);
        sum.segments += to.segments.saturating_sub(from.segments);
        sum.object_bytes += to.object_bytes.saturating_sub(from.object_bytes);
        sum.object_updates += to.object_updates.saturating_sub(from.object_updates);
        sum.resent_segments += to.resent_segments.saturating_sub(from.resent_segments);
        sum.resent_bytes += to.resent_bytes.saturating_sub(from.resent_bytes);
        sum.superseded_segments += to.superseded_segments.saturating_sub(from.superseded_segments);
        sum.control_bytes += to.control_bytes.saturating_sub(from.control_bytes);
        sum.held_back += to.held_back.saturating_sub(from.held_back);
        sum.longest_wait_ticks = sum.longest_wait_ticks.max(to.longest_wait_ticks);
        self.packets_sent += after.packets_sent.saturating_sub(before.packets_sent);
        self.packets_lost += after.packets_lost.saturating_sub(before.packets_lost);
    }
}

fn counts_of(server: &Server<impl Replication>, id: ConnectionId) -> Counts {
    let link = server.link_statistics(id).map(|statistics| statistics.counters).unwrap_or_default();
    Counts {
        replicated: server.replication_counters(id).unwrap_or_default(),
        packets_sent: link.packets_sent,
        packets_lost: link.packets_lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(index: u32, generation: u32, segments: u64) -> (ConnectionId, Counts) {
        let replicated = ConnectionCounters { segments, object_bytes: 10 * segments, ..ConnectionCounters::default() };
        let counts = Counts { replicated, packets_sent: segments, packets_lost: segments / 10 };
        (ConnectionId { index, generation }, counts)
    }

    #[test]
    fn a_connection_that_ends_takes_nothing_away() {
        let mut tally = Tally::default();
        tally.take_all([connection(0, 1, 1_000), connection(1, 1, 2_000)].into_iter());
        tally.sum = Counts::default();
        tally.take_all([connection(0, 1, 1_100), connection(1, 1, 2_050)].into_iter());
        assert_eq!(tally.sum().replicated.segments, 150);
        tally.take_all([connection(1, 1, 2_060)].into_iter());
        assert_eq!((tally.sum().replicated.segments, tally.sum().packets_sent), (160, 160));
        // Another client in the same seat counts from its own beginning.
        tally.take_all([connection(0, 2, 7), connection(1, 1, 2_060)].into_iter());
        assert_eq!((tally.sum().replicated.segments, tally.sum().replicated.object_bytes), (167, 1_670));
        tally.take_all(std::iter::empty());
        assert_eq!(tally.sum().replicated.segments, 167);
    }
}
