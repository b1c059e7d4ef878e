//! The text of Prometheus parses, and says what was recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use throng_telemetry::{Clock, FrameBudgets, Phase, Subsystem, Subsystems, Telemetry, TelemetryOptions};

/// The samples of a text, by name and labels as they stand there. Panics at a line that is none of the format.
fn parse(text: &str) -> (BTreeMap<String, String>, BTreeMap<String, f64>) {
    let (mut kinds, mut samples) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} comes twice");
        } else if !line.starts_with("# HELP ") {
            let (sample, value) = line.rsplit_once(' ').expect("a sample and a value");
            let family = sample.split('{').next().expect("a name");
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| family.strip_suffix(end)).unwrap_or(family);
            assert!(kinds.contains_key(family) || kinds.get(base).is_some_and(|kind| kind == "histogram"), "{line}");
            let labels = sample.strip_prefix(family).expect("labels");
            assert!(labels.is_empty() || (labels.starts_with("{") && labels.ends_with("\"}")), "{line}");
            assert!(samples.insert(sample.to_owned(), value.parse().expect("a number")).is_none(), "{line}");
        }
    }
    (kinds, samples)
}

#[test]
fn the_text_parses_and_says_what_was_recorded() {
    let (clock, hand) = Clock::manual();
    let budgets = "frame_ms = 0.02\n[subsystem_ms]\nphysics = 0.01\nai = 1\n";
    let budgets = FrameBudgets::parse(budgets, Path::new("b"), &Subsystems::new()).expect("budgets");
    let options = TelemetryOptions { budgets, ..TelemetryOptions::default() };
    let telemetry = Telemetry::start_with_clock(options, clock).expect("no files");
    let mut recorder = telemetry.recorder("m");
    for tick in 0..1_000 {
        let mut frame = recorder.begin(tick, Phase::new("live"));
        frame.time(Subsystem::PHYSICS, |_| hand.work(tick * 50));
        frame.note_lateness_ns(1_000);
        drop(frame);
        hand.wait(50_000);
        if tick % 100 == 0 {
            telemetry.collect();
        }
    }
    let (kinds, samples) = parse(&telemetry.prometheus());
    let sample = |name: &str| *samples.get(name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(sample("throng_frame_seconds_count"), 1_000.0);
    assert!((sample("throng_frame_seconds_sum") - 999.0 * 500.0 * 50e-9).abs() < 1e-9);
    // Ticks up to 200 take at most 10 µs.
    assert_eq!(sample("throng_frame_seconds_bucket{le=\"0.00001\"}"), 201.0);
    assert_eq!(sample("throng_subsystem_seconds_bucket{subsystem=\"physics\",le=\"0.00001\"}"), 200.0, "it took time");
    assert_eq!(sample("throng_subsystem_breaches_total{phase=\"live\",subsystem=\"physics\"}"), 799.0);
    assert_eq!(sample("throng_subsystem_budget_seconds{subsystem=\"ai\"}"), 0.001);
    assert_eq!(sample("throng_frame_breaches_total"), 599.0);
    assert_eq!(sample("throng_slow_frames_total{cause=\"slow\"}"), 599.0);
    assert_eq!(sample("throng_frame_late_seconds_bucket{le=\"0.000001\"}"), 1_000.0);
    assert_eq!(sample("throng_frame_cpu_seconds_total"), sample("throng_frame_seconds_sum"));
    assert_eq!((sample("throng_recorders"), sample("throng_frames_lost_total")), (1.0, 0.0));

    let mut cumulative: BTreeMap<&str, f64> = BTreeMap::new();
    let bounds: BTreeSet<&str> = samples.keys().filter_map(|name| name.split("le=\"").nth(1)).collect();
    assert_eq!(bounds.len(), 16);
    let buckets = telemetry.prometheus();
    for line in buckets.lines().filter(|line| line.contains("_bucket{")) {
        let (name, value) = (line.split("le=").next().expect("a name"), line.rsplit_once(' ').expect("a value").1);
        let value: f64 = value.parse().expect("a number");
        let before = cumulative.insert(name, value).unwrap_or(0.0);
        assert!(value >= before, "{line} after {before}");
    }

    let page = include_str!("../../../docs/telemetry.md");
    for name in kinds.keys() {
        assert!(page.contains(&format!("| `{name}` |")), "docs/telemetry.md does not explain {name}");
    }
}

#[test]
fn nothing_recorded_is_a_text_too() {
    let telemetry = Telemetry::start_with_clock(TelemetryOptions::default(), Clock::system()).expect("no files");
    let (_, samples) = parse(&telemetry.prometheus());
    assert_eq!(samples.get("throng_frame_seconds_count"), Some(&0.0));
}
