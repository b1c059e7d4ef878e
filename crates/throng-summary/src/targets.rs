use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_crowd::scenario::{Overrides, Scenario};

use throng_report::Kind;

use super::RunSummary;

/// A stated target and what the run measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// The name of the measure.
    pub name: String,
    /// Its path in the summary; `null` if it is made of several figures.
    #[serde(default)]
    pub path: Option<String>,
    /// `at most` or `at least`.
    pub bound: Bound,
    /// The stated limit.
    pub limit: f64,
    /// Unit of limit and measurement; empty for counts and ratios.
    pub unit: String,
    /// The measurement; `null` if there is none.
    pub measured: Option<f64>,
    /// Whether it keeps the limit; `null` if nothing was measured.
    pub met: Option<bool>,
}

/// On which side of the limit a measurement should lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Bound {
    /// The limit or less.
    #[serde(rename = "at most")]
    AtMost,
    /// The limit or more.
    #[serde(rename = "at least")]
    AtLeast,
}

impl Bound {
    /// The sign of the comparison.
    pub fn sign(self) -> &'static str {
        match self {
            Bound::AtMost => "≤",
            Bound::AtLeast => "≥",
        }
    }
}

/// The targets of the run's scenario; none if it was played with other settings than its own.
pub(crate) fn for_run(run: &RunSummary) -> Vec<Target> {
    if !has_own_settings(&run.settings) {
        return Vec::new();
    }
    match run.scenario.as_str() {
        "dense" => dense(run),
        "crowd" => crowd(run),
        "crowd-10k" => crowd_10k(run),
        "sparse" => sparse(run),
        "sparse-10" | "sparse-20" | "converge" => vec![missed(run), allocations(run)],
        _ => Vec::new(),
    }
}

/// Whether the scenario of that name is played, with as many players, the same world and the same network. The length of
/// the run, its cores and its model do not matter.
fn has_own_settings(settings: &Scenario) -> bool {
    let Ok(named) = Scenario::resolve(&settings.name, &Overrides::default()) else { return false };
    let Scenario { seconds, warmup_seconds, seed, pin, server_threads, model, scratch, baselines, .. } = *settings;
    let Scenario { decoded_fraction, decoded_min, .. } = *settings;
    let played = Scenario {
        seconds,
        warmup_seconds,
        seed,
        pin,
        server_threads,
        model,
        scratch,
        baselines,
        decoded_fraction,
        decoded_min,
        ..named
    };
    played == *settings
}

fn dense(run: &RunSummary) -> Vec<Target> {
    let us = &run.server.us_per_connection;
    vec![
        of_several("quantise + plan + encode + write per connection and tick", 1.0, "µs", Some(us.replicating())),
        at_most("floor.ratio", 1.5, run.floor.ratio),
        at_most("client.object_update_bytes.mean", 11.0, run.client.object_update_bytes.mean),
        missed(run),
        allocations(run),
    ]
}

fn crowd(run: &RunSummary) -> Vec<Target> {
    vec![
        missed(run),
        at_most("server.frame_ms.p99", 20.0, Some(run.server.frame_ms.p99)),
        at_most("neighbours.near.age_ms.p99", 100.0, run.neighbours.near.age_ms.p99),
        at_least("client.known_within_40_m", 1.0, run.client.known_within_40_m),
        budget(run),
        allocations(run),
    ]
}

fn crowd_10k(run: &RunSummary) -> Vec<Target> {
    vec![
        missed(run),
        at_most("server.frame_ms.p99", run.server.tick_ms, Some(run.server.frame_ms.p99)),
        budget(run),
        at_most("server.rss_bytes_per_connection", 65_536.0, Some(run.server.rss_bytes_per_connection)),
        allocations(run),
    ]
}

fn sparse(run: &RunSummary) -> Vec<Target> {
    let us = &run.server.us_per_connection;
    let beyond_kernel = us.outgoing() - us.send;
    vec![
        of_several("interest to encryption per connection and tick", 3.0, "µs", Some(beyond_kernel)),
        missed(run),
        allocations(run),
    ]
}

fn missed(run: &RunSummary) -> Target {
    at_most("server.missed_ticks", 0.0, Some(run.server.missed_ticks as f64))
}

fn budget(run: &RunSummary) -> Target {
    at_most(
        "client.kbit_per_s_with_headers_p99",
        run.client.budget_kbit_per_s,
        Some(run.client.kbit_per_s_with_headers_p99),
    )
}

fn allocations(run: &RunSummary) -> Target {
    at_most("server.steady_state_allocations_per_tick", 0.0, run.server.steady_state_allocations_per_tick)
}

fn at_most(path: &str, limit: f64, measured: Option<f64>) -> Target {
    of_metric(path, limit, measured, Bound::AtMost)
}

fn at_least(path: &str, limit: f64, measured: Option<f64>) -> Target {
    of_metric(path, limit, measured, Bound::AtLeast)
}

fn of_metric(path: &str, limit: f64, measured: Option<f64>, bound: Bound) -> Target {
    let metric = throng_report::metric(Kind::Crowd, path);
    let target = Target { bound, path: Some(path.to_owned()), ..of_several(metric.name, limit, metric.unit, measured) };
    let met = measured.map(|measured| if bound == Bound::AtMost { measured <= limit } else { measured >= limit });
    Target { met, ..target }
}

/// A target of a sum of figures, at most `limit`.
fn of_several(name: &str, limit: f64, unit: &str, measured: Option<f64>) -> Target {
    let met = measured.map(|measured| measured <= limit);
    Target { name: name.to_owned(), path: None, bound: Bound::AtMost, limit, unit: unit.to_owned(), measured, met }
}

impl Target {
    /// A value of it with its unit, as its metric shows it.
    pub fn show(&self, value: Option<f64>) -> String {
        match self.path.as_deref().and_then(|path| throng_report::find(Kind::Crowd, path)) {
            Some(metric) => metric.show(value),
            None => format!("{} {}", throng_report::optional(value), self.unit).trim_end().to_owned(),
        }
    }
}
