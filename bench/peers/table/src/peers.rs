//! The list of runs: peers, workloads and lengths.

use std::path::{Path, PathBuf};

/// One program, or one way of running it.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// A second name that `--only` accepts.
    pub(crate) group: &'static str,
    /// Colyseus' ways.
    views: Option<&'static str>,
    /// Whether it recovers from packet loss without another program below it.
    pub(crate) recovers: bool,
    /// How much slower it is than the others, about: it gets as many fewer ticks.
    slowness: u32,
}

const fn peer(name: &'static str) -> Peer {
    Peer { name, group: name, views: None, recovers: true, slowness: 1 }
}

/// In the order of the table.
pub(crate) const PEERS: [Peer; 8] = [
    peer("naive"),
    peer("throng"),
    Peer { recovers: false, ..peer("replicon") },
    Peer { recovers: false, ..peer("replicon-next") },
    Peer { name: "colyseus-shared", group: "colyseus", views: Some("shared"), recovers: false, slowness: 1 },
    Peer { name: "colyseus-each", group: "colyseus", views: Some("each"), recovers: false, slowness: 1 },
    Peer { slowness: 6, ..peer("naia") },
    Peer { slowness: 2, ..peer("lightyear") },
];

/// A workload at a size.
pub(crate) struct Case {
    pub(crate) workload: &'static str,
    pub(crate) players: u32,
}

pub(crate) fn cases(is_quick: bool) -> Vec<Case> {
    let sizes: &[u32] = if is_quick { &[25, 100] } else { &[25, 50, 100, 200, 400] };
    let dense = sizes.iter().map(|&players| Case { workload: "dense", players });
    dense.chain(["sparse", "sparse-10", "sparse-20"].map(|workload| Case { workload, players: 100 })).collect()
}

impl Peer {
    pub(crate) fn is_node(&self) -> bool {
        self.views.is_some()
    }

    pub(crate) fn program(&self, programs: &Path) -> PathBuf {
        match self.views {
            Some(_) => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../colyseus/bench.js"),
            None => programs.join(format!("peer-{}", self.name)),
        }
    }

    /// Whether its program is there; `run` removes what could not be built.
    pub(crate) fn is_built(&self, programs: &Path) -> bool {
        let program = self.program(programs);
        program.exists() && (!self.is_node() || program.with_file_name("node_modules").exists())
    }

    pub(crate) fn arguments(&self, case: &Case, is_quick: bool) -> Vec<String> {
        let [warmup, ticks, settle] = self.ticks(case, is_quick);
        let mut words = vec![("--workload", case.workload.to_owned()), ("--players", case.players.to_string())];
        words.extend([
            ("--warmup", warmup.to_string()),
            ("--ticks", ticks.to_string()),
            ("--settle", settle.to_string()),
        ]);
        words.extend(self.views.map(|views| ("--views", views.to_owned())));
        words.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect()
    }

    /// Fewer where a tick is long: what the clients do is not timed but has to be waited for.
    fn ticks(&self, case: &Case, is_quick: bool) -> [u32; 3] {
        let [warmup, ticks, settle] = match case.players {
            ..=100 => [60, 300, 30],
            101..=200 => [40, 150, 20],
            _ => [30, 90, 15],
        };
        // Sparse is quick for everybody.
        let slowness = if case.workload == "dense" { self.slowness } else { self.slowness.min(2) };
        let slowness = if is_quick { slowness * 3 } else { slowness };
        // The warm-up is not shortened: naia takes a dozen ticks to bring everything to everyone.
        let warmup = if is_quick { warmup.min(30) } else { warmup };
        [warmup, (ticks / slowness).max(12), (settle / slowness).max(10)]
    }
}
