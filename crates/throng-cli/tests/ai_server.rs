//! `throng ai-server` as a user meets it: figures with the keys that docs/agents.md names, or one line of reason.

use std::process::{Command, Output};

use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throng"));
    command.arg("ai-server").args(arguments).output().expect("the program starts")
}

#[test]
fn a_load_below_the_bounds_is_measured_and_called_invalid() {
    let output =
        run(&["--triangles", "5000", "--step", "1", "--most", "2", "--hold", "0.5", "--threads", "1", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(figures["valid"], false);
    let reasons = figures["invalid_reasons"].as_array().expect("a list");
    assert!(!reasons.is_empty());
    let steps = figures["steps"].as_array().expect("a list");
    assert!(steps.iter().all(|step| step["decisions"].as_u64() >= Some(40)), "{steps:?}");
    assert_eq!(
        (&figures["agents_per_match"], &figures["tick_hz"], &figures["threads"]),
        (&5.into(), &20.into(), &1.into())
    );
    assert!(figures["triangles"].as_u64() >= Some(3_000));
    let numbers = [
        &figures["matches"],
        &figures["cpu_share"],
        &figures["seconds"],
        &figures["ai"]["decisions"],
        &figures["ai"]["late_share"],
        &figures["ai"]["deadline_ms"],
        &figures["ai"]["allocations"],
        &figures["ai"]["tick_us"]["p50"],
        &figures["ai"]["tick_us"]["p99"],
        &figures["sight"]["rays_per_s"],
    ];
    assert!(numbers.iter().all(|number| number.is_number()), "{figures:#}");
    assert!(figures["ai"]["rays_per_decision"].as_f64() >= Some(32.0), "{figures:#}");
    assert!(figures["embree"].is_null());
}

#[test]
fn wrong_arguments_are_refused_in_one_line() {
    for arguments in [["--hold", "0"], ["--deadline-ms", "-1"], ["--map", "no-such-file.map"], ["--triangles", "x"]] {
        let argument = format!("{}={}", arguments[0], arguments[1]);
        let output = run(&[&argument]);
        assert_eq!(output.status.code(), Some(2), "{argument}: {output:?}");
        assert!(output.stdout.is_empty());
    }
}
