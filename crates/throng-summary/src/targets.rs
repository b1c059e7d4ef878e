use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_crowd::scenario::{Overrides, Scenario};

use throng_report::{Figures, Kind};

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
    let json = serde_json::to_value(run).unwrap_or_default();
    let figures = Figures::new(Kind::Crowd, &json);
    let at_most = |path: &str, limit| of_metric(path, limit, figures.number(path), Bound::AtMost);
    let at_least = |path: &str, limit| of_metric(path, limit, figures.number(path), Bound::AtLeast);
    let us = &run.server.us_per_connection;
    let missed = at_most("server.missed_ticks", 0.0);
    let budget = at_most("client.kbit_per_s_with_headers_p99", run.client.budget_kbit_per_s);
    let allocations = at_most("server.steady_state_allocations_per_tick", 0.0);
    match run.scenario.as_str() {
        "dense" => vec![
            of_several("quantise + plan + encode + write per connection and tick", 1.0, us.replicating()),
            at_most("floor.ratio", 1.5),
            at_most("client.object_update_bytes.mean", 11.0),
            missed,
            allocations,
        ],
        "crowd" => vec![
            missed,
            at_most("server.frame_ms.p99", 20.0),
            at_most("neighbours.near.age_ms.p99", 100.0),
            at_least("client.known_within_40_m", 1.0),
            budget,
            allocations,
        ],
        "crowd-10k" => vec![
            missed,
            at_most("server.frame_ms.p99", run.server.tick_ms),
            budget,
            at_most("server.rss_bytes_per_connection", 65_536.0),
            allocations,
        ],
        "sparse" => vec![
            of_several("interest to encryption per connection and tick", 3.0, us.outgoing() - us.send),
            missed,
            allocations,
        ],
        "sparse-10" | "sparse-20" | "converge" => vec![missed, allocations],
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

fn of_metric(path: &str, limit: f64, measured: Option<f64>, bound: Bound) -> Target {
    let metric = throng_report::metric(Kind::Crowd, path);
    let met = measured.map(|measured| if bound == Bound::AtMost { measured <= limit } else { measured >= limit });
    let (name, unit) = (metric.name.to_owned(), metric.unit.to_owned());
    Target { name, path: Some(path.to_owned()), bound, limit, unit, measured, met }
}

/// A target of a sum of times, at most `limit` microseconds.
fn of_several(name: &str, limit: f64, us: f64) -> Target {
    let (name, unit, met) = (name.to_owned(), "µs".to_owned(), Some(us <= limit));
    Target { name, path: None, bound: Bound::AtMost, limit, unit, measured: Some(us), met }
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
