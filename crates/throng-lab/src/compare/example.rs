use throng::meter::Subsystem;

use super::{Comparison, Figures, Run};
use throng_report::{Kind, RunHead, to_json};
use throng_summary::{RunSummary, Split};

/// Two contestants, `dense` at three sizes, two rounds: `legacy` 50 times as dear as `throng` outside the kernel.
pub fn example() -> Comparison {
    let mut runs = Vec::new();
    for (players, growth) in [(100, 1.0), (25, 0.25), (400, 4.0)] {
        for (round, phase) in [(0, 1.0), (1, 1.04)] {
            for (contestant, own_us) in [("legacy", 50.0), ("throng", 1.0)] {
                let mut summary = RunSummary::example();
                summary.server.connections = f64::from(players);
                let own_us = own_us * growth * phase;
                summary.server.us_per_connection = Split::new(
                    [
                        (Subsystem::SIMULATE, 0.2),
                        (Subsystem::WRITE, own_us - 0.25),
                        (Subsystem::SEAL, 0.25),
                        (Subsystem::SEND, 4.0),
                        (Subsystem::RECEIVE, 3.0),
                    ],
                    own_us + 8.0,
                );
                summary.server.frame_ms.mean = (own_us + 8.0) * f64::from(players) / 1e3;
                summary.floor.ratio = Some((own_us + 4.0) / 4.25);
                runs.push(Run {
                    workload: "dense".to_owned(),
                    contestant: contestant.to_owned(),
                    players,
                    round,
                    tick_hz: 30,
                    seconds: 4.0,
                    started_at: "2026-01-31T12:00:00Z".to_owned(),
                    command_line: ["crowd", "--scenario", "dense", "--model", contestant].map(str::to_owned).to_vec(),
                    valid: true,
                    invalid_reasons: Vec::new(),
                    figures: Some(Figures::of(&as_read(&summary))),
                });
            }
        }
    }
    let mut dense = RunSummary { scenario: "dense".to_owned(), ..RunSummary::example() };
    dense.conclude();
    let mut head = RunHead::example(Kind::Models);
    head.environment.version = "1.0.0".to_owned();
    head.environment.command_line =
        ["compare", "--workload", "dense", "--growth", "25,100,400"].map(str::to_owned).to_vec();
    let mut comparison = Comparison {
        head,
        contestants: ["legacy", "throng"].map(str::to_owned).to_vec(),
        workloads: vec!["dense".to_owned()],
        planned: Vec::new(),
        runs,
        published: Vec::new(),
        advantages: Default::default(),
    };
    comparison.note_published("dense", &dense);
    comparison
}

/// The summary as a comparison gets it: through JSON, with its six digits.
pub(crate) fn as_read(summary: &RunSummary) -> RunSummary {
    RunSummary::from_json(&to_json(summary)).expect("a summary can be read again")
}
