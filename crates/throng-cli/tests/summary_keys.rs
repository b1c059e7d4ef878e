//! The keys of the summaries of `throng match`, `throng density` and `throng ai-server`.

use std::collections::BTreeSet;

use serde_json::Value;

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
