//! `throng match` as its users run it: real processes, and one that is killed.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const THRONG: &str = env!("CARGO_BIN_EXE_throng");
const PATIENCE: Duration = Duration::from_secs(120);

fn throng(arguments: &[&str]) -> Command {
    let mut command = Command::new(THRONG);
    command.arg("match").args(arguments).args(["--triangles", "5000", "--hz", "32", "--no-pin", "--quiet"]);
    command
}

fn line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn summary(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", line(output)))
}

/// The processes that `parent` has started for single matches.
fn sites(parent: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    let is_site = |id: &u32| {
        let command = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        command.contains("site-for-match")
    };
    children.split_whitespace().filter_map(|id| id.parse().ok()).filter(is_site).collect()
}

fn wait_for_sites(run: &Child, count: usize) -> Vec<u32> {
    let began = Instant::now();
    loop {
        let found = sites(run.id());
        if found.len() == count {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "the matches did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_match_whose_process_is_killed_is_named_and_the_others_are_unharmed() {
    let arguments = ["--matches", "3", "--processes", "--seconds", "6", "--json", "--no-report", "--no-check"];
    let run = throng(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let victim = wait_for_sites(&run, 3)[1];
    std::thread::sleep(Duration::from_secs(3));
    let killed = Command::new("kill").args(["-9", &victim.to_string()]).status().expect("there is a kill");
    assert!(killed.success());
    let output = run.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(3), "the figures are not valid: {}", line(&output));
    let summary = summary(&output);
    let ends: Vec<&str> = summary["ends"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(ends.len(), 3, "{ends:?}");
    let died: Vec<&&str> = ends.iter().filter(|end| end.contains("its process died")).collect();
    assert_eq!(died.len(), 1, "{ends:?}");
    assert!(died[0].starts_with("match 2: ") && died[0].contains("signal: 9"), "{ends:?}");
    assert_eq!(ends.iter().filter(|end| end.contains("stopped: the time is over")).count(), 2, "{ends:?}");
}

#[test]
fn a_recorded_match_is_replayed_by_the_same_build_and_refused_where_it_is_damaged() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("match.log");
    let path = log.to_str().expect("a path of letters");
    let output = throng(&["--seconds", "3", "--no-report", "--json", "--record", path]).output().expect("it runs");
    let summary = summary(&output);
    assert_eq!(summary["replay"]["identical"], true, "{}", line(&output));
    assert_eq!(summary["format"], 1);
    let replay = |path: &Path| {
        let path = path.to_str().expect("a path of letters");
        throng(&["--replay", path]).output().expect("it runs")
    };
    let again = replay(&log);
    assert!(again.status.success(), "{}", line(&again));
    assert!(String::from_utf8_lossy(&again.stdout).contains("identical, "));
    let bytes = fs::read(&log).expect("it is there");
    for (name, bytes, words) in [
        ("cut", bytes[..bytes.len() - 9].to_vec(), "was cut short after"),
        ("bent", bytes.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == 600)).collect(), "is damaged after"),
        ("none", b"something else".to_vec(), "this is not an input log"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("a file");
        let output = replay(&path);
        assert!(!output.status.success());
        let line = line(&output);
        assert!(line.contains(words) && line.lines().count() == 1, "{name}: {line}");
    }
}
