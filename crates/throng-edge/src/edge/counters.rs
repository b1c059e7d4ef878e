//! The counters of an edge.

/// Counters of an edge, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeCounters {
    /// Objects that are held now.
    pub objects: u64,
    /// Cells that origins send now.
    pub looks: u64,
    /// Clients that an origin knows now.
    pub players: u64,
    /// Messages of origins that make no sense.
    pub refused: u64,
    /// Objects that found no room in the edge's server.
    pub objects_refused: u64,
    /// Inputs that were dropped, because their origin is not there or does not keep up.
    pub inputs_dropped: u64,
    /// Messages of clients that were too long, or came while their origin was not there or did not keep up.
    pub messages_dropped: u64,
    /// How often the ticks of an origin were counted anew.
    pub recounts: u64,
    /// Connections to origins that the edge has ended because their tick interval, grids or lane do not
    /// fit. [`Edge::origin_end`](super::Edge::origin_end) says which.
    pub origins_unfit: u64,
    /// Connections to origins that have ended.
    pub origins_lost: u64,
    /// Clients that were handed over from one origin to another.
    pub moved: u64,
    /// Clients that were given back to their origin, because the other one was gone.
    pub returned: u64,
    /// Clients that have joined another origin, because theirs was gone.
    pub taken_over: u64,
    /// Clients that were sent away, because a reliable lane had no room for a message of their origin.
    pub clients_too_slow: u64,
}

impl EdgeCounters {
    /// All of them with stable names, for metrics.
    pub fn named(&self) -> [(&'static str, u64); 14] {
        let EdgeCounters {
            objects,
            looks,
            players,
            refused,
            objects_refused,
            inputs_dropped,
            messages_dropped,
            recounts,
            origins_unfit,
            origins_lost,
            moved,
            returned,
            taken_over,
            clients_too_slow,
        } = *self;
        [
            ("objects", objects),
            ("looks", looks),
            ("players", players),
            ("refused", refused),
            ("objects_refused", objects_refused),
            ("inputs_dropped", inputs_dropped),
            ("messages_dropped", messages_dropped),
            ("recounts", recounts),
            ("origins_unfit", origins_unfit),
            ("origins_lost", origins_lost),
            ("moved", moved),
            ("returned", returned),
            ("taken_over", taken_over),
            ("clients_too_slow", clients_too_slow),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_its_own_name() {
        let counters = EdgeCounters { objects: 1, players: 2, clients_too_slow: 3, ..EdgeCounters::default() };
        let named: Vec<_> = counters.named().into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(named, [("objects", 1), ("players", 2), ("clients_too_slow", 3)]);
    }
}
