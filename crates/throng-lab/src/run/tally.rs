//! Sums of what connections have counted since a moment, which never fall: not even when a connection ends, and its
//! counters with it.

use throng::replica::ConnectionCounters;
use throng::{ConnectionId, Replication, Server};

/// The counters of one connection since its start, or since a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) replicated: ConnectionCounters,
    pub(super) packets_sent: u64,
    pub(super) packets_lost: u64,
    pub(super) bytes_sent: u64,
}

/// See the module's page. Work of a connection between the last [`take`](Tally::take) and its end is not counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    sum: Counts,
    /// By the index of a connection, as many as the server has had at once.
    seen: Vec<Option<(ConnectionId, Counts)>>,
}

impl Tally {
    /// Counts from here on.
    pub(super) fn begin(&mut self, server: &Server<impl Replication>) {
        self.seen.clear();
        self.take(server, |_| ());
        self.sum = Counts::default();
    }

    /// The sums so far.
    pub(super) fn sum(&self) -> &Counts {
        &self.sum
    }

    /// Looks at all connections. `each` gets what a connection has counted since the look before.
    pub(super) fn take(&mut self, server: &Server<impl Replication>, each: impl FnMut(&Counts)) {
        self.take_all(server.connections().map(|id| (id, counts_of(server, id))), each);
    }

    fn take_all(&mut self, connections: impl Iterator<Item = (ConnectionId, Counts)>, mut each: impl FnMut(&Counts)) {
        for (id, counts) in connections {
            let index = id.index as usize;
            if self.seen.len() <= index {
                self.seen.resize(index + 1, None);
            }
            let before = self.seen[index].replace((id, counts)).filter(|(known, _)| *known == id);
            let difference = counts.since(&before.map_or_else(Counts::default, |(_, counts)| counts));
            self.sum.add(&difference);
            if before.is_some() {
                each(&difference);
            }
        }
    }
}

impl Counts {
    fn since(&self, before: &Counts) -> Counts {
        let longest_wait_ticks = self.replicated.longest_wait_ticks;
        let difference = self.with(before, u64::saturating_sub);
        Counts { replicated: ConnectionCounters { longest_wait_ticks, ..difference.replicated }, ..difference }
    }

    fn add(&mut self, more: &Counts) {
        let longest_wait_ticks = self.replicated.longest_wait_ticks.max(more.replicated.longest_wait_ticks);
        let sum = self.with(more, |sum, more| sum + more);
        *self = Counts { replicated: ConnectionCounters { longest_wait_ticks, ..sum.replicated }, ..sum };
    }

    /// Of each count and that of the other; without the longest wait, which is no sum.
    fn with(&self, other: &Counts, of: fn(u64, u64) -> u64) -> Counts {
        let (own, others) = (&self.replicated, &other.replicated);
        Counts {
            replicated: ConnectionCounters {
                segments: of(own.segments, others.segments),
                object_bytes: of(own.object_bytes, others.object_bytes),
                object_updates: of(own.object_updates, others.object_updates),
                resent_segments: of(own.resent_segments, others.resent_segments),
                resent_bytes: of(own.resent_bytes, others.resent_bytes),
                superseded_segments: of(own.superseded_segments, others.superseded_segments),
                control_bytes: of(own.control_bytes, others.control_bytes),
                held_back: of(own.held_back, others.held_back),
                ..ConnectionCounters::default()
            },
            packets_sent: of(self.packets_sent, other.packets_sent),
            packets_lost: of(self.packets_lost, other.packets_lost),
            bytes_sent: of(self.bytes_sent, other.bytes_sent),
        }
    }
}

fn counts_of(server: &Server<impl Replication>, id: ConnectionId) -> Counts {
    let link = server.link_counters(id).copied().unwrap_or_default();
    Counts {
        replicated: server.replication_counters(id).unwrap_or_default(),
        packets_sent: link.packets_sent,
        packets_lost: link.packets_lost,
        bytes_sent: link.bytes_sent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(index: u32, generation: u32, segments: u64) -> (ConnectionId, Counts) {
        let replicated = ConnectionCounters { segments, object_bytes: 10 * segments, ..ConnectionCounters::default() };
        let bytes_sent = 100 * segments;
        let counts = Counts { replicated, packets_sent: segments, packets_lost: segments / 10, bytes_sent };
        (ConnectionId { index, generation }, counts)
    }

    #[test]
    fn a_connection_that_ends_takes_nothing_away() {
        let mut tally = Tally::default();
        let take = |tally: &mut Tally, connections: &[(ConnectionId, Counts)]| {
            let mut sent = Vec::new();
            tally.take_all(connections.iter().copied(), |difference| sent.push(difference.packets_sent));
            sent
        };
        assert!(take(&mut tally, &[connection(0, 1, 1_000), connection(1, 1, 2_000)]).is_empty(), "both are new");
        tally.sum = Counts::default();
        assert_eq!(take(&mut tally, &[connection(0, 1, 1_100), connection(1, 1, 2_050)]), [100, 50]);
        assert_eq!(tally.sum().replicated.segments, 150);
        take(&mut tally, &[connection(1, 1, 2_060)]);
        assert_eq!((tally.sum().replicated.segments, tally.sum().packets_sent), (160, 160));
        // Another client in the same seat counts from its own beginning.
        assert_eq!(take(&mut tally, &[connection(0, 2, 7), connection(1, 1, 2_060)]), [0]);
        assert_eq!((tally.sum().replicated.segments, tally.sum().replicated.object_bytes), (167, 1_670));
        take(&mut tally, &[]);
        assert_eq!((tally.sum().replicated.segments, tally.sum().bytes_sent), (167, 16_700));
    }
}
