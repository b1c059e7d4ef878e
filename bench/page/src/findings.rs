//! Published figures of these models, as ratios, and whether they are reproduced here.
//!
//! Each is compared with the same measure of ours: a tick's outgoing work with a tick's, the work for a connection with
//! the work for a connection. In the second is everything that a model does for each connection, at whatever stage;
//! what is quantised and compared for all connections is in the first only.

use super::evidence::{Evidence, between};
use throng_lab::compare::{
    Comparison, Figures, Measure, OUTGOING, OUTSIDE_KERNEL, PER_CONNECTION, PER_CONNECTION_OUTSIDE_KERNEL, Sample,
    by_round,
};
use throng_report::figure;

/// A published finding beside ours.
pub(super) struct Finding {
    pub(super) what: String,
    /// As a ratio, with how it follows from the published table.
    pub(super) there: &'static str,
    /// The same of ours, the kernel's part included.
    pub(super) here: String,
    /// The same without the kernel's part.
    pub(super) outside_kernel: String,
    /// Where the figures outside the kernel are from.
    pub(super) from: String,
    pub(super) verdict: &'static str,
}

const PLAYERS: u32 = 100;

/// The rule for "reproduced"; the page prints it.
pub(super) const RULE: &str = "\
*Reproduced* means: in the same direction, by at least half the published factor, and by at least its square root (9 times: \
4.5; 1.45 times: 1.2). Less than that in the same direction is *weaker*. *About even* there means a ratio between 0.8 and 1.25 \
here; *no help* there means at most 1.1 here. The finding about chests compares growth: how many times more the Replication \
Graph grows than Iris, round by round. It must lie on the same side, and be at least the square root of the published one. \
Only valid runs of servers that were not overloaded are judged.
";

/// The measure of a published figure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// A tick's outgoing work ("net flush", "outgoing"): here interest to send.
    Tick,
    /// The work for a connection ("per connection"): here all work except quantising and comparing, which is shared.
    Connection,
}

impl Unit {
    /// With and without the kernel's part.
    fn measures(self) -> [Measure; 2] {
        match self {
            // By connection, which is the same ratio.
            Unit::Tick => [OUTGOING, OUTSIDE_KERNEL],
            Unit::Connection => [PER_CONNECTION, PER_CONNECTION_OUTSIDE_KERNEL],
        }
    }
}

/// The result of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// This many times cheaper.
    Cheaper,
    /// About as dear.
    Even,
    /// Not cheaper, or hardly.
    NoHelp,
    /// One grows more than the other.
    Contrast,
}

/// A ratio that was published, and between which models of ours it is looked for.
struct Expected {
    what: &'static str,
    there: &'static str,
    claim: Claim,
    ratio: f64,
    workload: &'static str,
    unit: Unit,
    /// Base, and the system that was found this many times cheaper.
    pair: [&'static str; 2],
}

/// The first test (Unreal 5.3.2) had push marks on every side, so its base is `legacy-push`. The second (Unreal 5.7)
/// does not say whether it had: its base is `legacy`.
const EXPECTED: [Expected; 7] = [
    Expected {
        what: "`dense`: Iris is cheaper than legacy, a connection",
        there: "9 times (450 / 50 µs)",
        claim: Claim::Cheaper,
        ratio: 9.0,
        workload: "dense",
        unit: Unit::Connection,
        pair: ["legacy-push", "shared-state"],
    },
    Expected {
        what: "`dense`: Iris is cheaper than legacy, a tick",
        there: "6.7 times (58.05 / 8.68 ms)",
        claim: Claim::Cheaper,
        ratio: 6.69,
        workload: "dense",
        unit: Unit::Tick,
        pair: ["legacy-push", "shared-state"],
    },
    Expected {
        what: "`dense`: the Replication Graph is no help when everybody sees everybody, a connection",
        there: "0.75 times (450 / 602 µs)",
        claim: Claim::NoHelp,
        ratio: 0.75,
        workload: "dense",
        unit: Unit::Connection,
        pair: ["legacy-push", "graph"],
    },
    Expected {
        what: "`sparse`: Iris and legacy are about even, a tick",
        there: "1.07 times (7.16 / 6.70 ms)",
        claim: Claim::Even,
        ratio: 1.07,
        workload: "sparse",
        unit: Unit::Tick,
        pair: ["legacy-push", "shared-state"],
    },
    Expected {
        what: "`sparse`: Iris is cheaper than legacy, a connection",
        there: "2 times (48.3 / 24.4 µs)",
        claim: Claim::Cheaper,
        ratio: 1.98,
        workload: "sparse",
        unit: Unit::Connection,
        pair: ["legacy-push", "shared-state"],
    },
    Expected {
        what: "`converge`: Iris is cheaper than legacy, a tick",
        there: "1.45 times (66.2 / 45.8 ms)",
        claim: Claim::Cheaper,
        ratio: 1.45,
        workload: "converge",
        unit: Unit::Tick,
        pair: ["legacy", "shared-state:per-connection"],
    },
    Expected {
        what: "`converge`: one scratch buffer instead of one for each connection, a tick",
        there: "1.55 times (45.8 / 29.5 ms)",
        claim: Claim::Cheaper,
        ratio: 1.55,
        workload: "converge",
        unit: Unit::Tick,
        pair: ["shared-state:per-connection", "shared-state"],
    },
];

/// How cost was found to grow from 10 to 20 chests around each character, with the Replication Graph and with Iris.
struct Chests {
    what: &'static str,
    there: &'static str,
    /// Growth of the one by growth of the other.
    contrast: f64,
    unit: Unit,
}

/// The two systems whose growth is compared.
const GROWERS: [&str; 2] = ["graph", "shared-state"];

const CHESTS: [Chests; 2] = [
    Chests {
        what: "20 chests instead of 10: the Replication Graph grows more than Iris, a connection",
        there: "+61 % against +11 % (179 to 288, 85.9 to 95.1 µs)",
        contrast: 1.61 / 1.11,
        unit: Unit::Connection,
    },
    Chests {
        what: "20 chests instead of 10: Iris grows more than the Replication Graph, a tick",
        there: "+56 % against +89 % (20.63 to 32.12, 12.84 to 24.28 ms)",
        contrast: 1.557 / 1.891,
        unit: Unit::Tick,
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
    let [here, outside] =
        expected.unit.measures().map(|measure| between(comparisons, place, expected.pair, measure.of));
    let [base, ours] = expected.pair;
    Finding {
        what: format!("{} (`{base}` / `{ours}`)", expected.what),
        there: expected.there,
        here: times(here),
        outside_kernel: times(outside),
        from: origin(outside),
        verdict: verdict(expected.claim, expected.ratio, outside.map(|evidence| evidence.sample.median)),
    }
}

fn chests(comparisons: &[Comparison], expected: &Chests) -> Finding {
    let [here, outside] = expected.unit.measures().map(|measure| contrast(comparisons, measure.of));
    let contrast = outside.map(|contrast| contrast.of);
    Finding {
        what: format!("{} (`{}`, `{}`)", expected.what, GROWERS[0], GROWERS[1]),
        there: expected.there,
        here: growths(here),
        outside_kernel: growths(outside),
        from: origin(contrast),
        verdict: verdict(Claim::Contrast, expected.contrast, contrast.map(|evidence| evidence.sample.median)),
    }
}

/// How two models grow.
#[derive(Clone, Copy)]
struct Contrast {
    /// Growth of each, median of the rounds.
    growths: [f64; 2],
    /// Growth of the one by growth of the other, round by round.
    of: Evidence,
}

/// In the first comparison in which both have sound runs with 10 and with 20 chests in one round.
fn contrast(comparisons: &[Comparison], of: fn(&Figures) -> Option<f64>) -> Option<Contrast> {
    comparisons.iter().enumerate().find_map(|(number, comparison)| {
        let growth = |who| {
            let runs = |workload| comparison.sound((workload, PLAYERS), who);
            by_round(&runs("sparse-20"), &runs("sparse-10"), of)
        };
        let [one, other] = GROWERS.map(growth);
        let in_round = |round: u32| other.iter().find(|(theirs, _)| *theirs == round).map(|(_, growth)| *growth);
        let pairs: Vec<[f64; 2]> = one.iter().filter_map(|&(round, growth)| Some([growth, in_round(round)?])).collect();
        let median = |side: usize| Some(Sample::of(pairs.iter().map(|pair| pair[side]))?.median);
        let sample = Sample::of(pairs.iter().map(|[one, other]| one / other))?;
        Some(Contrast { growths: [median(0)?, median(1)?], of: Evidence { sample, run: number + 1 } })
    })
}

fn growths(contrast: Option<Contrast>) -> String {
    let percent = |growth: f64| format!("{:+.0} %", (growth - 1.0) * 100.0);
    contrast.map_or("–".to_owned(), |contrast| contrast.growths.map(percent).join(" against "))
}

fn times(evidence: Option<Evidence>) -> String {
    evidence.map_or("–".to_owned(), |evidence| format!("{} times", figure(evidence.sample.median)))
}

fn origin(evidence: Option<Evidence>) -> String {
    evidence.as_ref().map_or("–".to_owned(), Evidence::origin)
}

/// "Even" means within this factor.
const EVEN: f64 = 1.25;
/// "No help" means at most this factor cheaper.
const HELP: f64 = 1.1;

/// Judged by the figures outside the kernel, as [`RULE`] says.
fn verdict(claim: Claim, there: f64, here: Option<f64>) -> &'static str {
    let Some(here) = here else { return "not measured" };
    match claim {
        Claim::NoHelp if here <= HELP => "reproduced",
        Claim::NoHelp => "**it helps here**",
        Claim::Even if (1.0 / EVEN..=EVEN).contains(&here) => "reproduced",
        Claim::Even => "**not even here**",
        Claim::Cheaper if here >= (there / 2.0).max(there.sqrt()) => "reproduced",
        Claim::Contrast if here.ln() * there.ln().signum() >= there.ln().abs() / 2.0 => "reproduced",
        Claim::Cheaper | Claim::Contrast if here.ln() * there.ln() > 0.0 => "same direction, weaker",
        Claim::Cheaper | Claim::Contrast => "**the other way round here**",
    }
}

#[cfg(test)]
mod tests {
    use throng::meter::Subsystem;

    use super::*;
    use throng_lab::compare::{Run, example};
    use throng_summary::Split;

    #[test]
    fn a_finding_is_reproduced_only_in_direction_and_size() {
        let cheaper = |there, here| verdict(Claim::Cheaper, there, Some(here));
        assert_eq!(cheaper(9.0, 4.5), "reproduced");
        assert_eq!(cheaper(9.0, 4.4), "same direction, weaker");
        assert_eq!(cheaper(9.0, 0.8), "**the other way round here**");
        assert_eq!(cheaper(1.45, 1.21), "reproduced");
        assert_eq!(cheaper(1.45, 1.19), "same direction, weaker");
        assert_eq!(cheaper(1.45, 0.9), "**the other way round here**", "though it is more than half");
        assert_eq!(verdict(Claim::Even, 1.07, Some(0.9)), "reproduced");
        assert_eq!(verdict(Claim::Even, 1.07, Some(3.0)), "**not even here**");
        assert_eq!(verdict(Claim::Even, 1.07, None), "not measured");
    }

    #[test]
    fn no_help_is_at_most_a_tenth_cheaper_however_much_dearer() {
        for (here, expected) in [(0.3, "reproduced"), (1.1, "reproduced"), (1.11, "**it helps here**")] {
            assert_eq!(verdict(Claim::NoHelp, 0.75, Some(here)), expected);
        }
    }

    #[test]
    fn a_contrast_must_lie_on_the_same_side() {
        let of = |there, here| verdict(Claim::Contrast, there, Some(here));
        assert_eq!([of(1.45, 1.3), of(1.45, 1.1)], ["reproduced", "same direction, weaker"]);
        assert_eq!([of(1.45, 1.0), of(1.45, 0.7)], ["**the other way round here**"; 2]);
        assert_eq!([of(0.8, 0.85), of(0.8, 0.97)], ["reproduced", "same direction, weaker"]);
        assert_eq!(of(0.8, 1.2), "**the other way round here**");
    }

    /// A run whose quantising and whose other work, in microseconds by connection, are these.
    fn run(workload: &str, contestant: &str, [shared, own]: [f64; 2]) -> Run {
        let mut run = example().runs.swap_remove(0);
        (run.workload, run.contestant) = (workload.to_owned(), contestant.to_owned());
        run.figures.as_mut().unwrap().us_per_connection =
            Split::new([(Subsystem::QUANTISE, shared), (Subsystem::WRITE, own), (Subsystem::SEND, 4.0)], 0.0);
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
        let connection = finding(runs(), "`sparse`: Iris is cheaper");
        assert_eq!((connection.outside_kernel.as_str(), connection.verdict), ("2.5 times", "reproduced"));
        assert_eq!(connection.here, "1.75 times", "with the 4 µs of the kernel on both sides");
        assert_eq!(connection.from, "run 1, 1 round");
    }

    #[test]
    fn a_run_that_does_not_count_reproduces_nothing() {
        let mut runs = vec![run("sparse", "legacy-push", [0.0, 10.0]), run("sparse", "shared-state", [6.0, 4.0])];
        runs[1].valid = false;
        let found = finding(runs, "`sparse`: Iris is cheaper");
        assert_eq!((found.verdict, found.from.as_str()), ("not measured", "–"));
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
    fn growth_with_chests_is_a_contrast_by_tick_and_by_connection() {
        let runs = |shared_20: [f64; 2]| {
            vec![
                run("sparse-10", "graph", [2.0, 10.0]),
                run("sparse-20", "graph", [2.0, 16.0]),
                run("sparse-10", "shared-state", [4.0, 10.0]),
                run("sparse-20", "shared-state", shared_20),
            ]
        };
        let [by_connection, by_tick] = ["the Replication Graph grows", "Iris grows"]
            .map(|who| finding(runs([20.0, 11.0]), &format!("20 chests instead of 10: {who}")));
        assert_eq!(
            (by_connection.outside_kernel.as_str(), by_connection.verdict),
            ("+60 % against +10 %", "reproduced")
        );
        assert_eq!((by_tick.outside_kernel.as_str(), by_tick.verdict), ("+50 % against +121 %", "reproduced"));
        let alike = finding(runs([4.0, 16.0]), "20 chests instead of 10: the Replication Graph grows");
        assert_eq!(alike.verdict, "**the other way round here**", "both grow alike: {}", alike.outside_kernel);
    }
}
