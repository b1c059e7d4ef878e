//! What others published of these models, as ratios, and whether it shows here too.
//!
//! Each is held against the same of ours: a tick's outgoing work against a tick's, a connection's turn against a
//! connection's turn. The two are not alike: what is filtered, quantised and marked for all connections is in the first and
//! not in the second.

use super::demands::ratio;
use crate::compare::{Comparison, Figures, Measure, OUTGOING, OUTSIDE_KERNEL, Sample, TURN, TURN_OUTSIDE_KERNEL};
use crate::terminal::figure;

/// A published finding beside ours.
pub(super) struct Finding {
    pub(super) what: String,
    /// As a ratio, with how it follows from the published table.
    pub(super) there: &'static str,
    /// The same of ours, the kernel's part included.
    pub(super) here: String,
    /// The same without the kernel's part.
    pub(super) outside_kernel: String,
    pub(super) verdict: &'static str,
}

const PLAYERS: u32 = 100;
/// Half of the published change, as a power: what is nearer to no change than that does not show it.
const SHOWS: f64 = 0.5;

/// What a published figure is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// A tick's outgoing work ("net flush", "outgoing"): here interest to send.
    Tick,
    /// One connection's part of it ("per connection"): here write, seal and send.
    Turn,
}

impl Unit {
    /// With and without the kernel's part.
    fn measures(self) -> [Measure; 2] {
        match self {
            // By connection, which is the same ratio.
            Unit::Tick => [OUTGOING, OUTSIDE_KERNEL],
            Unit::Turn => [TURN, TURN_OUTSIDE_KERNEL],
        }
    }
}

/// A ratio that was published, and between which models of ours it is looked for.
struct Expected {
    what: &'static str,
    there: &'static str,
    ratio: f64,
    workload: &'static str,
    unit: Unit,
    /// Base, and the one that was found so many times cheaper.
    pair: [&'static str; 2],
}

/// The first test (Unreal 5.3.2) had push marks on every side, so its base is `legacy-push`. The second (Unreal 5.7)
/// does not say whether it had: its base is `legacy`.
const EXPECTED: [Expected; 7] = [
    Expected {
        what: "`dense`: Iris is cheaper than legacy, a connection",
        there: "9 times (450 / 50 µs)",
        ratio: 9.0,
        workload: "dense",
        unit: Unit::Turn,
        pair: ["legacy-push", "shared-state"],
    },
    Expected {
        what: "`dense`: Iris is cheaper than legacy, a tick",
        there: "6.7 times (58.05 / 8.68 ms)",
        ratio: 6.69,
        workload: "dense",
        unit: Unit::Tick,
        pair: ["legacy-push", "shared-state"],
    },
    Expected {
        what: "`dense`: the Replication Graph is no help when everybody sees everybody, a connection",
        there: "0.75 times (450 / 602 µs)",
        ratio: 0.75,
        workload: "dense",
        unit: Unit::Turn,
        pair: ["legacy-push", "graph"],
    },
    Expected {
        what: "`sparse`: Iris and legacy are about even, a tick",
        there: "1.07 times (7.16 / 6.70 ms)",
        ratio: 1.07,
        workload: "sparse",
        unit: Unit::Tick,
        pair: ["legacy-push", "shared-state"],
    },
    Expected {
        what: "`sparse`: Iris is cheaper than legacy, a connection",
        there: "2 times (48.3 / 24.4 µs)",
        ratio: 1.98,
        workload: "sparse",
        unit: Unit::Turn,
        pair: ["legacy-push", "shared-state"],
    },
    Expected {
        what: "`converge`: Iris is cheaper than legacy, a tick",
        there: "1.45 times (66.2 / 45.8 ms)",
        ratio: 1.45,
        workload: "converge",
        unit: Unit::Tick,
        pair: ["legacy", "shared-state:per-connection"],
    },
    Expected {
        what: "`converge`: one scratch buffer instead of one for each connection, a tick",
        there: "1.55 times (45.8 / 29.5 ms)",
        ratio: 1.55,
        workload: "converge",
        unit: Unit::Tick,
        pair: ["shared-state:per-connection", "shared-state"],
    },
];

/// How cost was found to grow from 10 to 20 chests around each character.
struct Chests {
    what: &'static str,
    there: &'static str,
    growth: f64,
    unit: Unit,
    who: &'static str,
}

const CHESTS: [Chests; 4] = [
    Chests {
        what: "20 chests instead of 10, the Replication Graph, a connection",
        there: "+61 % (179 to 288 µs)",
        growth: 1.61,
        unit: Unit::Turn,
        who: "graph",
    },
    Chests {
        what: "20 chests instead of 10, Iris, a connection",
        there: "+11 % (85.9 to 95.1 µs)",
        growth: 1.11,
        unit: Unit::Turn,
        who: "shared-state",
    },
    Chests {
        what: "20 chests instead of 10, the Replication Graph, a tick",
        there: "+56 % (20.63 to 32.12 ms)",
        growth: 1.557,
        unit: Unit::Tick,
        who: "graph",
    },
    Chests {
        what: "20 chests instead of 10, Iris, a tick",
        there: "+89 % (12.84 to 24.28 ms)",
        growth: 1.891,
        unit: Unit::Tick,
        who: "shared-state",
    },
];

/// Every finding that could be looked for.
pub(super) fn all(comparisons: &[Comparison]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = EXPECTED.iter().map(|expected| look_for(comparisons, expected)).collect();
    findings.extend(CHESTS.iter().map(|expected| chests(comparisons, expected)));
    findings
}

fn look_for(comparisons: &[Comparison], expected: &Expected) -> Finding {
    let place = (expected.workload, PLAYERS);
    let [here, outside] = expected.unit.measures().map(|measure| ratio(comparisons, place, expected.pair, measure.of));
    let [base, ours] = expected.pair;
    Finding {
        what: format!("{} (`{base}` / `{ours}`)", expected.what),
        there: expected.there,
        here: times(here),
        outside_kernel: times(outside),
        verdict: verdict(expected.ratio, outside.map(|sample| sample.median)),
    }
}

fn chests(comparisons: &[Comparison], expected: &Chests) -> Finding {
    let growth = |of: fn(&Figures) -> Option<f64>| {
        comparisons.iter().find_map(|comparison| {
            let median = |workload| {
                let runs = comparison.counted(workload, PLAYERS, expected.who);
                Sample::of(runs.iter().filter_map(|run| run.figures.as_ref().and_then(of)))
            };
            Some(median("sparse-20")?.median / median("sparse-10")?.median)
        })
    };
    let percent =
        |ratio: Option<f64>| ratio.map_or("–".to_owned(), |ratio| format!("{:+.0} %", (ratio - 1.0) * 100.0));
    let [here, outside] = expected.unit.measures().map(|measure| growth(measure.of));
    Finding {
        what: format!("{} (`{}`)", expected.what, expected.who),
        there: expected.there,
        here: percent(here),
        outside_kernel: percent(outside),
        verdict: verdict(expected.growth, outside),
    }
}

fn times(sample: Option<Sample>) -> String {
    sample.map_or("–".to_owned(), |sample| format!("{} times", figure(sample.median)))
}

/// Judged by the figures outside the kernel. What was about even must be even within a quarter; what was not must differ
/// in the same direction, and by at least half as much, as powers.
fn verdict(there: f64, here: Option<f64>) -> &'static str {
    const EVEN: f64 = 1.25;
    let Some(here) = here else { return "not measured" };
    let (there, here) = (there.ln(), here.ln());
    let is_even = there.abs() < EVEN.ln();
    match is_even {
        true if here.abs() < EVEN.ln() => "reproduced",
        true => "**not even here**",
        false if there * here <= 0.0 => "**the other way round here**",
        false if here.abs() >= there.abs() * SHOWS => "reproduced",
        false => "same direction, weaker",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Run, example};
    use crate::summary::Split;

    #[test]
    fn a_finding_is_reproduced_only_in_direction_and_size() {
        assert_eq!(verdict(9.0, Some(7.0)), "reproduced");
        assert_eq!(verdict(9.0, Some(1.4)), "same direction, weaker");
        assert_eq!(verdict(9.0, Some(0.8)), "**the other way round here**");
        assert_eq!(verdict(0.75, Some(0.7)), "reproduced");
        assert_eq!(verdict(1.07, Some(0.9)), "reproduced");
        assert_eq!(verdict(1.07, Some(3.0)), "**not even here**");
        assert_eq!(verdict(1.07, None), "not measured");
    }

    /// A run whose shared and own work, in microseconds by connection, are these.
    fn run(workload: &str, contestant: &str, [shared, own]: [f64; 2]) -> Run {
        let mut run = example().runs.swap_remove(0);
        (run.workload, run.contestant) = (workload.to_owned(), contestant.to_owned());
        run.figures.as_mut().unwrap().us_per_connection = Split::new([0.0, 0.0, 0.0, shared, own, 0.0, 4.0, 0.0], 0.0);
        run
    }

    fn finding(runs: Vec<Run>, what: &str) -> Finding {
        let comparison = Comparison { runs, ..example() };
        all(&[comparison]).into_iter().find(|finding| finding.what.starts_with(what)).expect("it is looked for")
    }

    #[test]
    fn a_tick_is_held_against_a_tick_and_a_connection_against_a_connection() {
        let runs = || vec![run("sparse", "legacy-push", [0.0, 10.0]), run("sparse", "shared-state", [6.0, 4.0])];
        let tick = finding(runs(), "`sparse`: Iris and legacy are about even");
        assert_eq!((tick.outside_kernel.as_str(), tick.verdict), ("1 times", "reproduced"));
        let turn = finding(runs(), "`sparse`: Iris is cheaper");
        assert_eq!((turn.outside_kernel.as_str(), turn.verdict), ("2.5 times", "reproduced"));
        assert_eq!(turn.here, "1.75 times", "with the 4 µs of the kernel on both sides");
    }

    #[test]
    fn converge_is_held_against_polling_because_its_source_names_no_push_marks() {
        let runs = vec![
            run("converge", "legacy", [0.0, 30.0]),
            run("converge", "legacy-push", [0.0, 10.0]),
            run("converge", "shared-state:per-connection", [5.0, 15.0]),
        ];
        let found = finding(runs, "`converge`: Iris is cheaper");
        assert_eq!((found.outside_kernel.as_str(), found.verdict), ("1.5 times", "reproduced"));
    }

    #[test]
    fn growth_with_chests_is_told_by_tick_and_by_connection() {
        let runs =
            || vec![run("sparse-10", "shared-state", [4.0, 10.0]), run("sparse-20", "shared-state", [10.0, 11.0])];
        assert_eq!(finding(runs(), "20 chests instead of 10, Iris, a connection").outside_kernel, "+10 %");
        assert_eq!(finding(runs(), "20 chests instead of 10, Iris, a tick").outside_kernel, "+50 %");
    }
}
