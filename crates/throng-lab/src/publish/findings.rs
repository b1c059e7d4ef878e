//! What others published of these models, as ratios, and whether it shows here too.

use super::demands::ratio;
use crate::compare::{Comparison, Figures, OUTGOING, OUTSIDE_KERNEL, Sample};
use crate::terminal::figure;

/// A published finding beside ours.
pub(super) struct Finding {
    pub(super) what: &'static str,
    /// As a ratio, with how it follows from the published table.
    pub(super) there: &'static str,
    /// The same of outgoing work, the kernel's part included.
    pub(super) here: String,
    /// The same without the kernel's part.
    pub(super) outside_kernel: String,
    pub(super) verdict: &'static str,
}

const PLAYERS: u32 = 100;
/// Half of the published change, as a power: what is nearer to no change than that does not show it.
const SHOWS: f64 = 0.5;

/// A ratio that was published, and between which models of ours it is looked for.
struct Expected {
    what: &'static str,
    there: &'static str,
    ratio: f64,
    workload: &'static str,
    /// Base, and the one that was found so many times cheaper. The published test ran with push marks on every side.
    pair: [&'static str; 2],
}

const EXPECTED: [Expected; 5] = [
    Expected {
        what: "`dense`: Iris is cheaper than legacy",
        there: "9 times (450 / 50 µs)",
        ratio: 9.0,
        workload: "dense",
        pair: ["legacy-push", "shared-state"],
    },
    Expected {
        what: "`dense`: the Replication Graph is no help when everybody sees everybody",
        there: "0.75 times (450 / 602 µs)",
        ratio: 0.75,
        workload: "dense",
        pair: ["legacy-push", "graph"],
    },
    Expected {
        what: "`sparse`: Iris and legacy are about even",
        there: "1.07 times (7.16 / 6.70 ms a tick)",
        ratio: 1.07,
        workload: "sparse",
        pair: ["legacy-push", "shared-state"],
    },
    Expected {
        what: "`converge`: Iris is cheaper than legacy",
        there: "1.45 times (66.2 / 45.8 ms a tick)",
        ratio: 1.45,
        workload: "converge",
        pair: ["legacy-push", "shared-state:per-connection"],
    },
    Expected {
        what: "`converge`: one scratch buffer instead of one for each connection",
        there: "1.55 times (45.8 / 29.5 ms a tick)",
        ratio: 1.55,
        workload: "converge",
        pair: ["shared-state:per-connection", "shared-state"],
    },
];

/// Every finding that could be looked for.
pub(super) fn all(comparisons: &[Comparison]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = EXPECTED.iter().map(|expected| look_for(comparisons, expected)).collect();
    findings.push(chests(comparisons, "graph", "+61 % (179 to 288 µs)", 1.61));
    findings.push(chests(comparisons, "shared-state", "+11 % (85.9 to 95.1 µs)", 1.11));
    findings
}

fn look_for(comparisons: &[Comparison], expected: &Expected) -> Finding {
    let found = |of| ratio(comparisons, (expected.workload, PLAYERS), expected.pair, of);
    let outside = found(OUTSIDE_KERNEL.of);
    Finding {
        what: expected.what,
        there: expected.there,
        here: times(found(OUTGOING.of)),
        outside_kernel: times(outside),
        verdict: verdict(expected.ratio, outside.map(|sample| sample.median)),
    }
}

/// From 10 to 20 chests around each character.
fn chests(comparisons: &[Comparison], who: &str, there: &'static str, published: f64) -> Finding {
    let growth = |of: fn(&Figures) -> Option<f64>| {
        comparisons.iter().find_map(|comparison| {
            let median = |workload| {
                let runs = comparison.counted(workload, PLAYERS, who);
                Sample::of(runs.iter().filter_map(|run| run.figures.as_ref().and_then(of)))
            };
            Some(median("sparse-20")?.median / median("sparse-10")?.median)
        })
    };
    let percent =
        |ratio: Option<f64>| ratio.map_or("–".to_owned(), |ratio| format!("{:+.0} %", (ratio - 1.0) * 100.0));
    let outside = growth(OUTSIDE_KERNEL.of);
    Finding {
        what: match who {
            "graph" => "20 chests instead of 10: the Replication Graph's cost per connection grows",
            _ => "20 chests instead of 10: Iris's cost per connection grows",
        },
        there,
        here: percent(growth(OUTGOING.of)),
        outside_kernel: percent(outside),
        verdict: verdict(published, outside),
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
}
