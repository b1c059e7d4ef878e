//! A figure of a run: where it stands, its unit, and whether more of it is better.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metrics::{self, ANY_NAME};
use crate::page::Term;
use crate::words::{bytes, figure, optional};

/// Kinds of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `throng crowd`: a server and bots.
    Crowd,
    /// `throng match`, `throng density`: matches of the tactical game.
    Match,
    /// `throng ai-server`: matches of agents without players.
    Ai,
    /// `throng lab search`, `step` and `run`: how many fit.
    Capacity,
    /// `throng gateway-bench`.
    Gateway,
    /// `throng compare`: several models on the same workloads.
    Models,
    /// `throng lab compare`: two sides of runs.
    Comparison,
    /// All runs of a folder.
    Index,
}

impl Kind {
    /// The name in words.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Crowd => "crowd",
            Kind::Match => "match",
            Kind::Ai => "ai",
            Kind::Capacity => "capacity",
            Kind::Gateway => "gateway",
            Kind::Models => "models",
            Kind::Comparison => "comparison",
            Kind::Index => "index",
        }
    }

    /// Number of the layout of its figures. Rises when a key changes its meaning or goes away, not when one is added.
    pub fn format(self) -> u32 {
        match self {
            Kind::Crowd => 4,
            Kind::Models => 3,
            Kind::Match | Kind::Capacity | Kind::Gateway => 2,
            Kind::Ai | Kind::Comparison | Kind::Index => 1,
        }
    }
}

/// Which direction is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Smaller values.
    Less,
    /// Larger values.
    More,
    /// Neither: the value describes the run.
    Neither,
}

/// A figure that runs have. The table of all of them is what terminals, pages, comparisons and documents show.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Where it stands in the JSON of a run: names with points between them.
    pub path: &'static str,
    /// Its name in words, without its unit.
    pub name: &'static str,
    /// Unit; `share`: 0 to 1, shown in per cent; empty for counts and ratios.
    pub unit: &'static str,
    /// Which direction is better.
    pub better: Better,
    /// Its meaning in one sentence, without a point at its end.
    pub explanation: &'static str,
    /// The kind of runs that have it.
    pub kind: Kind,
    /// Whether it is one of the few figures that comparisons and the index of runs look at.
    pub is_key: bool,
}

/// The unit of one, if it is a word.
fn singular(unit: &'static str) -> &'static str {
    match unit {
        "matches" => "match",
        "cores" | "ticks" | "bots" | "triangles" | "cells" | "players" | "frames" | "workers" => {
            &unit[..unit.len() - 1]
        }
        unit => unit,
    }
}

impl Metric {
    /// The name with its explanation.
    pub fn term(&self) -> Term {
        // Documents are about the JSON, and pages about what it means.
        let explanation = self.explanation.replace("`null`", "unknown").replace('`', "");
        Term { text: self.name.to_owned(), explanation }
    }

    /// The name with its explanation, of the figure at a path of this row.
    pub fn term_at(&self, path: &str) -> Term {
        let mut parts = self.path.split('.').zip(path.split('.'));
        let name = parts.find(|(part, _)| *part == ANY_NAME);
        let text = name.map_or_else(|| self.name.to_owned(), |(_, name)| format!("{name}: {}", self.name));
        Term { text, ..self.term() }
    }

    /// A value with its unit.
    pub fn show(&self, value: Option<f64>) -> String {
        let Some(value) = value else { return "–".to_owned() };
        format!("{} {}", self.number(Some(value)), self.unit_shown(value)).trim_end().to_owned()
    }

    /// A value without its unit.
    pub fn number(&self, value: Option<f64>) -> String {
        match (self.unit, value) {
            ("share", Some(value)) => figure(value * 100.0),
            ("B", Some(value)) => bytes(value).split(' ').next().unwrap_or_default().to_owned(),
            _ => optional(value),
        }
    }

    /// The unit that belongs to [`Metric::number`].
    pub fn unit_shown(&self, value: f64) -> String {
        match self.unit {
            "share" => "%".to_owned(),
            "B" => bytes(value).split(' ').nth(1).unwrap_or_default().to_owned(),
            "1/s" => "/s".to_owned(),
            "1/tick" => "per tick".to_owned(),
            unit if self.number(Some(value)) == "1" => singular(unit).to_owned(),
            unit => unit.to_owned(),
        }
    }
}

/// The metric at a path of a kind of runs. `NAME` in a row's path stands for any name: `subsystems.physics.p99_ms` is in the row
/// `subsystems.NAME.p99_ms`.
pub fn find(kind: Kind, path: &str) -> Option<Metric> {
    let is_at = |row: &str| {
        let mut parts = path.split('.');
        row.split('.').all(|part| parts.next().is_some_and(|asked| part == ANY_NAME || part == asked))
            && parts.next().is_none()
    };
    metrics::all().find(|metric| metric.kind == kind && is_at(metric.path))
}

/// The metric at a path that the program names.
///
/// # Panics
/// The table has none: a defect of the caller.
pub fn metric(kind: Kind, path: &str) -> Metric {
    find(kind, path).unwrap_or_else(|| panic!("no metric {path} of a {} run", kind.name()))
}

/// The few metrics of all kinds that comparisons and the index of runs look at.
pub fn keys() -> impl Iterator<Item = Metric> {
    metrics::all().filter(|metric| metric.is_key)
}

/// All metrics of a kind.
pub fn of_kind(kind: Kind) -> impl Iterator<Item = Metric> {
    metrics::all().filter(move |metric| metric.kind == kind)
}
