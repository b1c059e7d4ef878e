//! The table of protections tells the truth: about limits, files, metrics, tests, `-help` and the documentation.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use throng_gateway::protections::{Counted, PROTECTIONS, help, table};
use throng_gateway::settings::usage;
use throng_gateway_engine::limits::Limits;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All source text of these crates.
fn sources(names: &[&str]) -> String {
    let mut text = String::new();
    let mut folders: Vec<PathBuf> = names.iter().map(|name| crates().join(name)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("it is a folder") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("protections.rs") {
                text += &fs::read_to_string(&path).expect("text");
            }
        }
    }
    text
}

const GATEWAY: &[&str] = &[
    "throng-gateway/src",
    "throng-gateway/tests",
    "throng-gateway-engine/src",
    "throng-gateway-engine/tests",
    "throng-protostate/src",
    "throng-cli/tests",
];

#[test]
fn each_limit_has_one_row_and_each_row_a_limit() {
    let limits: Vec<&str> = Limits::ALL.iter().map(|limit| limit.name).collect();
    let rows: Vec<&str> = PROTECTIONS.iter().map(|row| row.limit).collect();
    assert_eq!(rows, limits);
}

#[test]
fn files_metrics_and_tests_that_rows_name_exist() {
    let text = sources(GATEWAY);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let functions: BTreeSet<&str> =
        lines.iter().filter_map(|line| line.split_once("fn ")?.1.split('(').next()).collect();
    for row in PROTECTIONS {
        let file = crates().join(row.enforced_in);
        assert!(file.is_file(), "{}: there is no {}", row.limit, row.enforced_in);
        assert!(functions.contains(row.test), "{}: there is no test {}", row.limit, row.test);
        let name = match row.counted {
            Counted::Drops(name) | Counted::Refusals(name) | Counted::Metric(name) => name,
            Counted::Nothing => continue,
        };
        assert!(text.contains(&format!("\"{name}\"")), "{}: nothing is counted as {name}", row.limit);
    }
}

#[test]
fn help_and_documentation_are_made_from_the_table() {
    assert!(usage().contains(&help()), "-help has what the table says");
    let page = fs::read_to_string(crates().join("../docs/gateway.md")).expect("the page is there");
    let table = table();
    assert!(page.contains(&table), "docs/gateway.md, \"All limits\", has to be:\n{table}");
}
