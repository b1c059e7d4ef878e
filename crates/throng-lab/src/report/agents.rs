//! The page of matches of agents.

use serde_json::Value;
use throng_report::{Cell, Figures, Kind, Page, RunFile, Section, Table};

/// The page of a run.
pub(super) fn page(file: &RunFile) -> Page {
    let RunFile { head, json, .. } = file;
    let figures = &Figures::new(Kind::Ai, json);
    let number = |path: &str| figures.number(path).map_or("–".to_owned(), |value| value.to_string());
    let mut page = head.page("Matches of agents", "A number of matches kept both bounds on a quiet machine.");
    page.subtitle = head.workload.clone();
    page.lead = format!("Limited by: {}.", figures.text("limited_by"));
    let paths = ["matches_per_core", "cpu_share", "ai.late_share", "frame_ms.p99", "memory_bytes_per_match"];
    page.tiles = paths.map(|path| figures.tile(path, String::new())).into();
    let mut parts = Table::new("By subsystem", "subsystem | #mean ms | #p99 ms");
    for name in figures.at("subsystems").and_then(Value::as_object).into_iter().flat_map(|parts| parts.keys()) {
        let of = |key: &str| Cell::number(number(&format!("subsystems.{name}.{key}")));
        parts.push([Cell::part(name), of("mean_ms"), of("p99_ms")]);
    }
    let mut steps = Table::new("Loads that were held", "#matches | #processor | #late decisions | #tick p99 ms");
    for step in 0..figures.at("steps").and_then(Value::as_array).map_or(0, Vec::len) {
        let keys = ["matches", "cpu_share", "late_share", "frame_ms.p99"];
        steps.push(keys.map(|key| Cell::number(number(&format!("steps.{step}.{key}")))));
    }
    let more = ["frame_ms.p50", "lateness_us.p99", "sight.rays_per_s", "others_cpu_cores"];
    page.sections = vec![
        Section::new("Frame").with(parts).with(figures.facts("", &more)),
        Section::new("Steps").with(steps),
        Section::new("Environment").with(head.machine()),
    ];
    page
}
