//! Published measurements of comparable systems in the same workloads. They come from other machines, so they are for
//! orientation: a comparison needs both sides in one run on one machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RunSummary;

/// A published figure beside the run's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Published {
    /// The system that was measured.
    pub system: String,
    /// The name of the measure.
    pub measure: String,
    /// The published value.
    pub value: f64,
    /// Unit of both values.
    pub unit: String,
    /// The value of this run; `null` if it has none.
    pub ours: Option<f64>,
    /// Where the figure comes from: versions, machine, how many clients.
    pub origin: String,
}

const ONE_MACHINE: &str =
    "Unreal 5.3.2, Threadripper PRO 5975WX (32 cores), Windows, 100 clients on the same machine, means";
const TWO_CPUS: &str = "Unreal 5.7 Preview 1, 2 vCPU of a Xeon 6354, 2 GB, 100 clients on other machines, means";

/// A column of figures of one system, in the order of the workload's measures; `None` where none was published.
type Column = (&'static str, &'static [Option<f64>]);

struct Workload {
    scenario: &'static str,
    origin: &'static str,
    measures: &'static [(&'static str, &'static str)],
    columns: [Column; 3],
}

const NET_MEASURES: &[(&str, &str)] =
    &[("frame", "ms"), ("net flush (outgoing work)", "ms"), ("net flush per connection", "µs")];

const WORKLOADS: [Workload; 5] = [
    Workload {
        scenario: "dense",
        origin: ONE_MACHINE,
        measures: NET_MEASURES,
        columns: [
            ("Legacy", &[Some(64.79), Some(58.05), Some(450.0)]),
            ("Legacy + Replication Graph", &[Some(68.65), Some(62.70), Some(602.0)]),
            ("Iris", &[Some(14.07), Some(8.68), Some(50.0)]),
        ],
    },
    Workload {
        scenario: "sparse",
        origin: ONE_MACHINE,
        measures: NET_MEASURES,
        columns: [
            ("Legacy", &[Some(11.79), Some(7.16), Some(48.3)]),
            ("Legacy + Replication Graph", &[Some(13.66), Some(8.81), Some(64.0)]),
            ("Iris", &[Some(11.91), Some(6.70), Some(24.4)]),
        ],
    },
    Workload {
        scenario: "sparse-10",
        origin: ONE_MACHINE,
        measures: NET_MEASURES,
        columns: [
            ("Legacy", &[None, None, None]),
            ("Legacy + Replication Graph", &[Some(26.26), Some(20.63), Some(179.0)]),
            ("Iris", &[Some(21.97), Some(12.84), Some(85.9)]),
        ],
    },
    Workload {
        scenario: "sparse-20",
        origin: ONE_MACHINE,
        measures: NET_MEASURES,
        columns: [
            ("Legacy", &[None, None, None]),
            ("Legacy + Replication Graph", &[Some(38.13), Some(32.12), Some(288.0)]),
            ("Iris", &[Some(32.01), Some(24.28), Some(95.1)]),
        ],
    },
    Workload {
        scenario: "converge",
        origin: TWO_CPUS,
        measures: &[("frame", "ms"), ("incoming", "ms"), ("world", "ms"), ("outgoing", "ms")],
        columns: [
            ("Legacy", &[Some(83.9), Some(13.3), Some(3.5), Some(66.2)]),
            ("Iris", &[Some(60.1), Some(10.2), Some(3.0), Some(45.8)]),
            ("Iris, one scratch buffer", &[Some(45.5), None, None, Some(29.5)]),
        ],
    },
];

/// How many players other systems had in one place, and their bytes: to compare with the crowd scenarios.
const CROWDS: [(&str, &str, f64, &str, &str); 8] = [
    (PLAYERS, "Unity Netcode for Entities", 700.0, "", "700 and more at 30 Hz, then bound by bandwidth"),
    (PLAYERS, "channeld, entity channels", 800.0, "", "1,000 clients on one gateway of 8 vCPU, jitter from about 800"),
    (PLAYERS, "PlanetSide 2", 1_283.0, "", "one battle of a first-person shooter"),
    (PLAYERS, "ScavLab", 4_144.0, "", "live players"),
    (PLAYERS, "Morpheus (MSquared)", 5_000.0, "", "guaranteed by the vendor, who claims 10,000"),
    (PLAYERS, "EVE Online", 6_557.0, "", "one battle at a tenth of normal speed"),
    (UPDATE, "KinematicSoup Reactor", 1.3, "B", "a transform, vendor's benchmark"),
    (UPDATE, "common libraries", 13.0, "B", "a transform, 13 to 25 B"),
];
const PLAYERS: &str = "players in one place";
const UPDATE: &str = "object update";

/// The figures published for the run's scenario, if it is like a published workload.
pub(crate) fn for_run(run: &RunSummary) -> Vec<Published> {
    if matches!(run.scenario.as_str(), "crowd" | "crowd-10k") { crowds(run) } else { workload(run) }
}

fn crowds(run: &RunSummary) -> Vec<Published> {
    let ours = ours(run);
    let rows = CROWDS.iter().map(|&(measure, system, value, unit, origin)| Published {
        system: system.to_owned(),
        measure: measure.to_owned(),
        value,
        unit: unit.to_owned(),
        ours: ours(measure),
        origin: origin.to_owned(),
    });
    rows.collect()
}

fn workload(run: &RunSummary) -> Vec<Published> {
    let Some(workload) = WORKLOADS.iter().find(|workload| workload.scenario == run.scenario) else { return Vec::new() };
    let ours = ours(run);
    let mut rows = Vec::new();
    for (row, &(measure, unit)) in workload.measures.iter().enumerate() {
        for (system, figures) in &workload.columns {
            let Some(value) = figures[row] else { continue };
            rows.push(Published {
                system: (*system).to_owned(),
                measure: measure.to_owned(),
                value,
                unit: unit.to_owned(),
                ours: ours(measure),
                origin: workload.origin.to_owned(),
            });
        }
    }
    rows
}

/// This run's value of a published measure, in that measure's unit.
fn ours(run: &RunSummary) -> impl Fn(&str) -> Option<f64> {
    let us = run.server.us_per_connection;
    let frame_ms = run.server.frame_ms.mean;
    let update_bytes = run.client.object_update_bytes.mean;
    // A server that misses ticks does not manage so many players.
    let managed = (run.server.missed_ticks == 0).then_some(run.server.connections);
    let ms_per_connection_us = run.server.connections / 1000.0;
    move |measure| match measure {
        "frame" => Some(frame_ms),
        "incoming" => Some(us.incoming() * ms_per_connection_us),
        "world" => Some(us.simulate * ms_per_connection_us),
        "outgoing" | "net flush (outgoing work)" => Some(us.outgoing() * ms_per_connection_us),
        "net flush per connection" => Some(us.outgoing()),
        PLAYERS => managed,
        UPDATE => update_bytes,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_measure_has_a_figure_of_ours_beside_it() {
        for scenario in WORKLOADS.iter().map(|workload| workload.scenario).chain(["crowd", "crowd-10k"]) {
            let run = RunSummary { scenario: scenario.to_owned(), ..RunSummary::example() };
            let rows = for_run(&run);
            assert!(rows.len() >= 6);
            assert!(rows.iter().all(|row| row.ours.is_some_and(|ours| ours > 0.0) && row.value > 0.0));
        }
    }

    #[test]
    fn a_server_that_misses_ticks_does_not_count_as_one_for_so_many_players() {
        let mut run = RunSummary { scenario: "crowd".to_owned(), ..RunSummary::example() };
        run.server.missed_ticks = 1;
        assert!(for_run(&run).iter().all(|row| row.ours.is_none() == (row.measure == PLAYERS)));
    }
}
