//! `throng ai-server` as a user meets it: figures with the keys that docs/match-summary.md names, or one line of reason.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;
use throng_report::{Kind, RunFile};

use crate::lab::has_samples_of;
use crate::summary_keys::{COMMON, PAGE, documented, keys};

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throng"));
    command.arg("ai-server").args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    program(arguments).output().expect("the program starts")
}

/// Holds so short that figures mean nothing.
const SHORT: [&str; 8] = ["--triangles", "5000", "--hold", "0.6", "--sample", "0.02", "--warm-up", "0.1"];

fn short(arguments: &[&str]) -> Output {
    run(&[&SHORT, arguments, &["--no-report"]].concat())
}

#[test]
fn a_load_below_the_bounds_is_measured_and_called_invalid() {
    let folder = tempfile::tempdir().expect("a folder");
    let runs = ["--runs", folder.path().to_str().expect("a path")];
    let loads = ["--start", "1", "--step", "1", "--most", "2", "--deadline-ms", "1000", "--json"];
    let output = run(&[&SHORT[..], &loads, &runs].concat());
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let steps = String::from_utf8_lossy(&output.stderr).lines().filter(|line| line.contains(" matches: ")).count();
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&figures["valid"], &figures["partial"]), (&false.into(), &false.into()));
    assert!(!figures["invalid_reasons"].as_array().expect("a list").is_empty());
    let held = figures["steps"].as_array().expect("a list");
    assert_eq!(held.len(), steps, "a line for each step");
    for (index, step) in held.iter().enumerate() {
        let matches = step["matches"].as_u64().expect("a number");
        assert_eq!(step["decisions"].as_u64(), Some(60 * matches), "step {index}: 0.6 s of 20 ticks with 5 decisions");
    }
    assert_eq!((&figures["agents_per_match"], &figures["tick_hz"]), (&5.into(), &20.into()));
    assert!(figures["triangles"].as_u64() >= Some(3_000));
    assert!(figures["embree"].is_null());

    // A load of two matches keeps the bounds with a deadline of 1 s, so its figures are there.
    let decided = figures["ai"]["decided"].as_u64().expect("a number");
    assert!((1..=figures["ai"]["decisions"].as_u64().expect("a number")).contains(&decided), "{figures:#}");
    assert!(figures["ai"]["rays_per_decision"].as_f64() > Some(32.0), "a fan and some looks: {figures:#}");
    assert!(figures["fog"]["cpu_share"].as_f64() > Some(0.0), "{figures:#}");
    assert!(figures["frame_ms"]["p99"].as_f64() >= figures["frame_ms"]["p50"].as_f64());
    let parts = figures["subsystems"].as_object().expect("an object").values();
    let sum_ms: f64 = parts.map(|part| part["mean_ms"].as_f64().expect("a number")).sum();
    let mean_ms = figures["frame_ms"]["mean"].as_f64().expect("a number");
    assert!((sum_ms / mean_ms - 1.0).abs() < 0.01, "subsystems add up to the frame: {sum_ms} of {mean_ms}");

    let kept = crate::lab::folders(folder.path()).pop().expect("a folder of the run");
    assert!(kept.join("report.html").is_file() && folder.path().join("index.html").is_file());
    let RunFile { head, json, .. } = RunFile::open(&kept).expect("its figures");
    assert_eq!((head.kind, &json), (Kind::Ai, &figures));
    assert!(head.workload.starts_with("ai-server by steps, 5 agents each at 20 Hz"), "{}", head.workload);

    has_samples_of("ai", &figures);
    let mut written = BTreeSet::new();
    keys(&figures, "", &mut written);
    for key in COMMON {
        assert!(written.contains(key), "{key}: {written:?}");
    }
    let mut documented = documented(PAGE.split("## AI server").nth(1).expect("the section of the page"));
    documented.retain(|key| !key.starts_with("embree."));
    assert_eq!(written, documented);
}

#[test]
fn decisions_without_time_are_late_and_no_load_counts() {
    let output = short(&["--start", "4", "--deadline-ms", "0.1", "--rays", "1024", "--json", "--quiet"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&figures["limited_by"], &figures["matches_per_core"]), (&"late".into(), &Value::Null), "{figures:#}");
}

#[test]
fn the_load_file_holds_one_load_also_if_it_is_too_much() {
    let load = throng_capacity::Load::resolve("ai").expect("it is built in");
    assert!(load.command.contains(&"--once".to_owned()), "{:?}", load.command);
    let output = short(&["--once", "--start", "4", "--most", "4", "--deadline-ms", "0.1", "--rays", "1024", "--json"]);
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let held = figures["steps"].as_array().expect("a list");
    assert_eq!((held.len(), &figures["partial"]), (1, &false.into()), "{figures:#}");
    assert_eq!(figures["invalid_reasons"][0], "own rays: no number of matches kept both bounds");
    has_samples_of("ai", &figures);
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_prints_what_it_has_and_calls_it_partial() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::Stdio;

    let arguments = [&SHORT[..], &["--start", "1", "--step", "1", "--json", "--no-report"]].concat();
    let mut child =
        program(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains(" matches: "))), "a step");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success());
    let rest = std::thread::spawn(move || lines.count());
    let mut text = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(3));
    rest.join().expect("lines");
    let figures: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&figures["valid"], &figures["partial"]), (&false.into(), &true.into()));
    assert!(!figures["steps"].as_array().expect("a list").is_empty());
}

#[test]
fn wrong_arguments_are_refused_and_named() {
    let wrong = ["--hold=1", "--start=6000", "--hold=660", "--cores=1000", "--map=no-such-file.map"];
    for argument in wrong {
        let output = run(&[argument]);
        assert_eq!(output.status.code(), Some(2), "{argument}: {output:?}");
        assert!(output.stdout.is_empty());
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{argument}: {output:?}");
    }
    let of_a_range = ["--hold=0", "--hold=NaN", "--hold=661", "--sample=-1", "--deadline-ms=-1"];
    for argument in of_a_range.into_iter().chain(["--triangles=x", "--step=0", "--cores=3-1"]) {
        let output = run(&[argument]);
        assert_eq!(output.status.code(), Some(2), "{argument}: {output:?}");
        let option = argument.split('=').next().expect("it is not empty");
        assert!(String::from_utf8_lossy(&output.stderr).contains(option), "{argument}: {output:?}");
    }
}
