//! Losses and refusals of a server or an edge, by the names of its counters.

use serde::{Deserialize, Serialize};
use throng_summary::Loss;

/// The counters above 0 of one process, since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Losses(Vec<(String, u64)>);

impl Losses {
    pub(crate) fn of(counters: impl IntoIterator<Item = (&'static str, u64)>) -> Losses {
        let above = counters.into_iter().filter(|&(_, count)| count > 0);
        Losses(above.map(|(counter, count)| (counter.to_owned(), count)).collect())
    }

    /// The same for the summary. `kind` and `index` name the process: `edge 1` is the first of its kind.
    pub(crate) fn named(self, kind: &str, index: usize) -> impl Iterator<Item = Loss> {
        let process = format!("{kind} {}", index + 1);
        self.0.into_iter().map(move |(counter, count)| Loss { process: process.clone(), counter, count })
    }
}

#[cfg(test)]
mod tests {
    use throng_edge::{EdgeCounters, OriginCounters};

    use super::*;

    #[test]
    fn each_counter_of_something_lost_is_named_with_its_process() {
        let edge = EdgeCounters { objects: 9, inputs_dropped: 3, clients_too_slow: 1, ..EdgeCounters::default() };
        let origin = OriginCounters { kept_refused: 2, ..OriginCounters::default() };
        let losses = Losses::of(edge.losses()).named("edge", 1).chain(Losses::of(origin.named()).named("server", 0));
        let lines: Vec<_> = losses.map(|loss| format!("{}: {} {}", loss.process, loss.count, loss.counter)).collect();
        assert_eq!(lines, ["edge 2: 3 inputs_dropped", "edge 2: 1 clients_too_slow", "server 1: 2 kept_refused"]);
    }
}
