//! docs/match-summary.md names every key of the summary, and no other.

use std::collections::BTreeSet;

use serde_json::Value;
use throng_range::Summary;

const PAGE: &str = include_str!("../../../docs/match-summary.md");
/// Has the keys of the head, which every kind of run has.
const HEAD: &str = include_str!("../../../docs/run-summary.md");

/// The keys in tables: the first cell, as `` `frame_ms.p99` ``.
fn documented() -> BTreeSet<String> {
    let cell = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    // The AI server's keys are another object's.
    let head = HEAD.lines().take_while(|line| *line != "## Run");
    PAGE.lines().take_while(|line| *line != "## AI server").chain(head).filter_map(cell).collect()
}

fn keys(value: &Value, name: &str, found: &mut BTreeSet<String>) {
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

#[test]
fn the_page_has_the_keys_of_the_summary() {
    let mut summary = Summary::default();
    summary.subsystems.insert("physics".to_owned(), Default::default());
    summary.phases.insert("live".to_owned(), Default::default());
    summary.density.push(Default::default());
    summary.steps.push(Default::default());
    summary.density_growth = Some(Default::default());
    summary.density_answer = Some(Default::default());
    let mut written = BTreeSet::new();
    keys(&serde_json::to_value(&summary).expect("it is JSON"), "", &mut written);
    let documented = documented();
    assert_eq!(written.difference(&documented).collect::<Vec<_>>(), Vec::<&String>::new(), "not on the page");
    assert_eq!(documented.difference(&written).collect::<Vec<_>>(), Vec::<&String>::new(), "on the page alone");
    assert!(written.len() > 60);
}
