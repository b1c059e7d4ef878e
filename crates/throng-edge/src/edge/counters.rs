//! The counters of an edge.

use crate::talk::{ToOrigin, Up, read_inputs};

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
    /// Inputs that were dropped, because their origin is not there or does not keep up, or that waited for an origin when it was lost.
    pub inputs_dropped: u64,
    /// Messages of clients that were too long, came while their origin was not there or did not keep up, or waited for an origin when
    /// it was lost.
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

/// The names of counters that stand for nothing lost or refused.
const NO_LOSSES: [&str; 7] = ["objects", "looks", "players", "recounts", "moved", "returned", "taken_over"];

impl EdgeCounters {
    /// Those that stand for something lost or refused, with the same names.
    pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        self.named().into_iter().filter(|(name, _)| !NO_LOSSES.contains(name))
    }

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

    /// Counts what waited for an origin that is lost: messages to it, and the inputs of a batch that had not ended.
    pub(super) fn count_lost<'a>(&mut self, waiting: impl IntoIterator<Item = &'a ToOrigin>, batch: &[u8]) {
        let inputs = |body| read_inputs(body).map_or(0, |inputs| inputs.len() as u64);
        self.inputs_dropped += inputs(batch);
        for talk in waiting {
            match Up::of(talk.step) {
                Some(Up::Inputs) => self.inputs_dropped += inputs(&talk.body),
                Some(Up::Say) => self.messages_dropped += 1,
                // The edge says everything else anew.
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::talk::{InputOf, push_input};

    #[test]
    fn inputs_and_messages_that_waited_for_a_lost_origin_are_counted() {
        let (mut counters, mut batch) = (EdgeCounters::default(), Vec::new());
        (0..3).for_each(|number| push_input(&mut batch, InputOf { session: 1, number, bytes: b"up" }));
        let say = |step: Up, body: &[u8]| ToOrigin { step: step as u8, body: body.to_vec(), ..ToOrigin::default() };
        let waiting = [say(Up::Say, b"hello"), say(Up::Inputs, &batch), say(Up::Join, b""), say(Up::Inputs, b"")];
        counters.count_lost(&waiting, &batch[..batch.len() / 3]);
        assert_eq!((counters.inputs_dropped, counters.messages_dropped), (3 + 1, 1));
    }

    #[test]
    fn each_counter_has_its_own_name() {
        let counters = EdgeCounters {
            objects: 1,
            looks: 2,
            players: 3,
            refused: 4,
            objects_refused: 5,
            inputs_dropped: 6,
            messages_dropped: 7,
            recounts: 8,
            origins_unfit: 9,
            origins_lost: 10,
            moved: 11,
            returned: 12,
            taken_over: 13,
            clients_too_slow: 14,
        };
        let names = [
            "objects",
            "looks",
            "players",
            "refused",
            "objects_refused",
            "inputs_dropped",
            "messages_dropped",
            "recounts",
            "origins_unfit",
            "origins_lost",
            "moved",
            "returned",
            "taken_over",
            "clients_too_slow",
        ];
        assert!(counters.named().into_iter().eq(names.into_iter().zip(1..)));
        let losses: Vec<_> = counters.losses().collect();
        assert!(losses.len() + NO_LOSSES.len() == names.len() && losses.contains(&("inputs_dropped", 6)), "{losses:?}");
    }
}
