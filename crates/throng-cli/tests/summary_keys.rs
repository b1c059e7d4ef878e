//! The keys of the summaries of `throng match`, `throng density` and `throng ai-server`.

use std::collections::BTreeSet;

use serde_json::Value;

/// Has the keys of matches, and those of agents.
pub(crate) const PAGE: &str = include_str!("../../../docs/match-summary.md");
/// Has the keys of the head, which every kind of run has.
const HEAD: &str = include_str!("../../../docs/run-summary.md");

/// Every key that the three commands about matches have in common.
pub(crate) const COMMON: [&str; 29] = [
    "valid",
    "invalid_reasons",
    "matches",
    "players",
    "tick_hz",
    "seconds",
    "result",
    "frame_ms.mean",
    "frame_ms.p50",
    "frame_ms.p99",
    "frame_ms.max",
    "missed_ticks",
    "lateness_us.p99",
    "subsystems.NAME.mean_ms",
    "subsystems.NAME.p99_ms",
    "subsystems.NAME.budget_ms",
    "subsystems.NAME.breaches",
    "rewind.us_per_shot",
    "rewind.history_bytes_per_player",
    "rewind.verdicts_equal_share",
    "fog.hidden_but_visible",
    "fog.sent_needlessly_share",
    "fog.cpu_share",
    "sight.rays_per_s",
    "sight.ratio_to_embree",
    "matches_per_core",
    "ai.decisions",
    "ai.late_share",
    "replay.identical",
];

/// The names of all values in a summary, with a dot for each level.
pub(crate) fn keys(value: &Value, name: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = if matches!(name, "subsystems" | "phases") { "NAME" } else { key };
                keys(value, if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") }.as_str(), found);
            }
        }
        Value::Array(values) if values.first().is_some_and(Value::is_object) => {
            keys(&values[0], &format!("{name}[]"), found);
        }
        _ => {
            found.insert(name.to_owned());
        }
    }
}

/// The keys in the tables of a page, which are the first cells, and those of the head.
pub(crate) fn documented(page: &str) -> BTreeSet<String> {
    let cell = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    page.lines().chain(HEAD.lines().take_while(|line| *line != "## Run")).filter_map(cell).collect()
}

#[test]
fn the_page_has_the_keys_of_the_summary_of_a_match() {
    let mut summary = throng_range::Summary::default();
    summary.subsystems.insert("physics".to_owned(), Default::default());
    summary.phases.insert("live".to_owned(), Default::default());
    summary.density.push(Default::default());
    summary.steps.push(Default::default());
    summary.density_growth = Some(Default::default());
    summary.density_answer = Some(Default::default());
    let mut written = BTreeSet::new();
    keys(&serde_json::to_value(&summary).expect("it is JSON"), "", &mut written);
    // The keys of agents are those of another object.
    let documented = documented(PAGE.split("## AI server").next().expect("there is a first part"));
    assert_eq!(written.difference(&documented).collect::<Vec<_>>(), Vec::<&String>::new(), "not on the page");
    assert_eq!(documented.difference(&written).collect::<Vec<_>>(), Vec::<&String>::new(), "on the page alone");
    assert!(written.len() > 60);
}
