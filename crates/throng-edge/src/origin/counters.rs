//! The counters of an origin.

/// Counters of refused messages, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginCounters {
    /// Messages that are malformed, of a step or a player that is not known, or of a connection that is no edge.
    pub refused: u64,
    /// Players beyond [`OriginOptions::players_max`](super::OriginOptions::players_max).
    pub players_refused: u64,
    /// Players from other origins whose states found no room while this one was closed.
    pub arrivals_refused: u64,
    /// Cells to which an edge could not be subscribed.
    pub looks_refused: u64,
    /// Inputs and messages that found no room among the events, and inputs for an origin that was closed.
    pub dropped: u64,
    /// States of players on their way to other origins that found no room here: such a player is lost with its edge.
    pub let_go_refused: u64,
    /// Players that have lost their edge and were not kept, because the origin knows 131,072 clients already.
    pub kept_refused: u64,
}

impl OriginCounters {
    /// All of them with stable names, for metrics.
    pub fn named(&self) -> [(&'static str, u64); 7] {
        let OriginCounters {
            refused,
            players_refused,
            arrivals_refused,
            looks_refused,
            dropped,
            let_go_refused,
            kept_refused,
        } = *self;
        [
            ("refused", refused),
            ("players_refused", players_refused),
            ("arrivals_refused", arrivals_refused),
            ("looks_refused", looks_refused),
            ("dropped", dropped),
            ("let_go_refused", let_go_refused),
            ("kept_refused", kept_refused),
        ]
    }
}
