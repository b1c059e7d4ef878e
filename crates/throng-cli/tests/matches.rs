//! `throng match` as its users run it: real processes, and one that is killed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

#[path = "../../throng-fleet/tests/contracts/fake.rs"]
mod fake;

use crate::lab::has_samples_of;
use crate::serving::free_address;
use crate::summary_keys::{COMMON, keys};

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

/// The processes that `parent` has started with this command.
fn started(parent: u32, name: &str) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    let is_site = |id: &u32| {
        let command = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        command.contains(name)
    };
    children.split_whitespace().filter_map(|id| id.parse().ok()).filter(is_site).collect()
}

fn wait_for(run: &Child, name: &str, count: usize) -> Vec<u32> {
    let began = Instant::now();
    loop {
        let found = started(run.id(), name);
        if found.len() == count {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "the processes did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_match_whose_process_is_killed_is_named_and_the_others_are_unharmed() {
    let arguments = ["--matches", "3", "--processes", "--seconds", "6", "--json", "--no-report", "--no-check"];
    let run = throng(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let victim = wait_for(&run, "site-for-match", 3)[1];
    std::thread::sleep(Duration::from_secs(3));
    kill("-9", victim);
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

/// The answer of `http://ADDRESS/metrics` as soon as there are frames.
fn scraped(address: &str) -> String {
    let began = Instant::now();
    loop {
        let page =
            ureq::get(format!("http://{address}/metrics")).call().and_then(|mut page| page.body_mut().read_to_string());
        if let Ok(text) = page
            && text.contains("subsystem=\"network\"")
        {
            return text;
        }
        assert!(began.elapsed() < PATIENCE, "there are no metrics");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn frames(metrics: &str) -> f64 {
    let value = metrics.lines().find_map(|line| line.strip_prefix("throng_frame_seconds_count "));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{metrics}"))
}

fn wait_for_frames(address: &str, count: f64) {
    let began = Instant::now();
    while frames(&scraped(address)) < count {
        assert!(began.elapsed() < PATIENCE, "there are no {count} frames");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn metrics_are_shown_while_a_match_is_played() {
    let address = free_address();
    let arguments = ["--live-seconds", "100", "--json", "--no-report", "--no-check", "--metrics", &address];
    let run = throng(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    wait_for_frames(&address, frames(&scraped(&address)) + 1.0);
    kill("-INT", run.id());
    let output = run.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(3), "{}", line(&output));

    let refused = throng(&["--metrics", &address, "--processes"]).output().expect("it runs");
    assert_eq!(refused.status.code(), Some(2), "{}", line(&refused));
}

#[test]
fn a_match_in_a_process_ends_for_the_reason_that_the_load_falls() {
    let arguments =
        ["--matches", "2", "--processes", "--profile", "step:2..1:3s", "--json", "--no-report", "--no-check"];
    let output = throng(&arguments).output().expect("it runs");
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", line(&output));
    let summary = summary(&output);
    let ends: Vec<&str> = summary["ends"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let reasons: Vec<&str> = ends.iter().filter_map(|end| end.rsplit(": ").next()).collect();
    assert_eq!(reasons, ["the time is over", "the load falls"], "{ends:?}");
    let levels: Vec<u64> =
        summary["steps"].as_array().expect("a list").iter().filter_map(|of| of["matches"].as_u64()).collect();
    assert_eq!(levels, [2, 1], "each level has its figures");
    for level in 0..2 {
        let of = |path: &str| summary["steps"][level].pointer(path).and_then(Value::as_f64);
        assert!(of("/frame_ms/p50").is_some_and(|ms| ms > 0.0), "{summary}");
        assert!(of("/cpu_cores").is_some_and(|cores| cores > 0.0), "{summary}");
    }
    // No match is so long, and that is said before a map is made.
    let refused = throng(&["--profile", "soak:10h"]).output().expect("it runs");
    assert_eq!(refused.status.code(), Some(2));
    let words = "36000 s are longer than a match to 100 won rounds can last: at most 19104 s";
    assert!(line(&refused).contains(words), "{}", line(&refused));
}

#[test]
fn a_fleet_is_told_what_is_played_and_that_it_is_over() {
    let fake = fake::FakeSidecar::start(10);
    let folder = tempfile::tempdir().expect("a folder");
    let [runs, store] = ["runs", "store"].map(|name| folder.path().join(name).to_str().expect("letters").to_owned());
    fake.server.lock().expect("no request").file = Some((folder.path().join("store/index.jsonl"), false));
    let profile = ["--matches", "2", "--profile", "step:1..2:1s", "--runs", &runs, "--store", &store];
    let arguments = [&profile[..], &["--json", "--no-check", "--agones"]].concat();
    let port = "AGONES_SDK_HTTP_PORT";
    let output = throng(&arguments).env(port, fake.port.to_string()).output().expect("it runs");
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", line(&output));
    let server = fake.server.lock().expect("no request fails");
    assert_eq!(server.history, ["Ready", "Allocated", "Shutdown"]);
    assert_eq!((server.most_values, server.counters["matches"].0, server.lists["matches"].0.len()), (2, 0, 0));
    assert_eq!(server.state, "Shutdown");
    assert!(server.file.as_ref().is_some_and(|(_, is_there)| *is_there), "it is asked for before the run is stored");
    assert!(server.health >= 1);
    // The length of the measured part is that of the profile, and so many rounds are played that none is over before.
    let summary = summary(&output);
    assert!(summary["seconds"].as_f64().is_some_and(|seconds| (2.0..3.0).contains(&seconds)), "{summary}");
    assert_eq!((&summary["profile"], &summary["steps"][1]["matches"]), (&"step:1..2:1s".into(), &2.into()));

    let refused = throng(&arguments).env(port, "many").output().expect("it runs");
    assert_eq!(refused.status.code(), Some(2));
    assert!(line(&refused).contains("AGONES_SDK_HTTP_PORT is `many`"), "{}", line(&refused));
}

#[test]
fn a_fleet_is_not_told_that_a_process_is_ready_whose_map_cannot_be_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let map = folder.path().join("damaged.map");
    fs::write(&map, [7; 4_000]).expect("a file");
    let fake = fake::FakeSidecar::start(10);
    // The options of a town do not go with a map.
    let mut command = Command::new(THRONG);
    command.args(["match", "--agones", "--no-report", "--quiet", "--map"]).arg(&map);
    let output = command.env("AGONES_SDK_HTTP_PORT", fake.port.to_string()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{}", line(&output));
    assert_eq!(fake.server.lock().expect("no request fails").history, ["Shutdown"]);
}

fn kill(signal: &str, id: u32) {
    assert!(Command::new("kill").args([signal, &id.to_string()]).status().expect("there is a kill").success());
}

/// The first reason why a run is not valid.
fn reason(summary: &Value) -> &str {
    assert_eq!(summary["valid"], false);
    summary["invalid_reasons"][0].as_str().expect("a text")
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_whose_bots_are_killed_ends_with_the_figures_until_then_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let runs = folder.path().to_str().expect("a path of letters");
    let address = free_address();
    let arguments = ["--live-seconds", "100", "--json", "--runs", runs, "--metrics", &address];
    let run = throng(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let bots = wait_for(&run, "bots-for-match", 1)[0];
    wait_for_frames(&address, 200.0);
    kill("-9", bots);
    let output = run.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(3), "{}", line(&output));
    let summary = summary(&output);
    assert_eq!(reason(&summary), "the bots' process died (signal: 9 (SIGKILL))");
    let second = "the bots ended before the matches did, so the matches were stopped";
    assert_eq!(summary["invalid_reasons"][1], second);
    assert!(summary["seconds"].as_f64().is_some_and(|seconds| seconds > 1.0), "there are figures");
    let mut runs = fs::read_dir(folder.path()).expect("it is there").flatten().map(|entry| entry.path());
    let page = runs.find(|path| path.is_dir()).expect("a run");
    let page = fs::read_to_string(page.join("report.html")).expect("a report");
    assert!(page.contains("Not a valid run") && page.contains("SIGKILL"), "{page}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_run_ends_with_the_figures_until_then_and_leaves_no_process() {
    for (signal, mode) in [("-INT", "--processes"), ("-TERM", "--no-check")] {
        let arguments = [mode, "--live-seconds", "100", "--json", "--no-report"];
        let run = throng(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let id = run.id();
        let mut processes = wait_for(&run, "bots-for-match", 1);
        processes.extend(started(id, "site-for-match"));
        std::thread::sleep(Duration::from_secs(4));
        kill(signal, id);
        let output = run.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(3), "{signal}: {}", line(&output));
        let summary = summary(&output);
        assert!(reason(&summary).starts_with("the run was interrupted after "), "{summary}");
        let mut written = BTreeSet::new();
        keys(&summary, "", &mut written);
        for key in COMMON {
            assert!(written.contains(key), "{key}: {written:?}");
        }
        // Matches in processes of their own are not sampled.
        if mode != "--processes" {
            has_samples_of("match", &summary);
        }
        for process in processes {
            assert!(!Path::new(&format!("/proc/{process}")).exists(), "{signal}: {process} is still there");
        }
    }
}

#[test]
fn a_search_for_the_density_leaves_its_figures_and_its_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let runs = folder.path().to_str().expect("a path of letters");
    let arguments = ["--most", "1", "--seconds", "1", "--no-check", "--triangles", "5000", "--hz", "32", "--no-pin"];
    let mut command = Command::new(THRONG);
    let command = command.arg("density").args(arguments).args(["--json", "--quiet", "--runs", runs]);
    let output = command.output().expect("it runs");
    let printed = summary(&output);
    let run = crate::lab::folders(folder.path()).pop().unwrap_or_else(|| panic!("no folder: {}", line(&output)));
    let written: Value =
        serde_json::from_str(&fs::read_to_string(run.join("summary.json")).expect("a summary")).expect("JSON");
    assert!(written == printed && printed["density"].as_array().is_some_and(|steps| steps.len() >= 2), "{written}");
    let page = fs::read_to_string(run.join("report.html")).expect("a page");
    assert!(
        page.contains("Steps of the search")
            && page.contains("<title>Density: ")
            && folder.path().join("index.html").is_file(),
        "{page}"
    );
    assert!(!run.join("frames.parquet").exists(), "a step has written its files");
}

#[test]
fn a_wrong_option_is_one_line_that_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a path of letters").to_owned();
    fs::write(path("town.map"), [7; 4_000]).expect("a file");
    fs::write(path("file"), "no folder").expect("a file");
    let (map, runs, budgets) = (path("town.map"), path("file"), path("none.toml"));
    let recorded = path("town.map");
    let cases: [(&[&str], &str); 4] = [
        (&["--record", &recorded], "it is there already, and is not written over"),
        (&["--budgets", &budgets], "none.toml"),
        (&["--map", &map], "town.map"),
        (&["--runs", &runs], "name another folder with --runs, or use --no-report"),
    ];
    for arguments in [["--threads", "0"], ["--triangles", "99999999999"], ["--matches", "0"], ["--live-seconds", "0"]] {
        let output = Command::new(THRONG).arg("match").args(arguments).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(line(&output).contains("1"), "{arguments:?}: the range is named: {}", line(&output));
    }
    for (arguments, words) in cases {
        // A map of one's own has no number of triangles.
        let output =
            Command::new(THRONG).arg("match").args(arguments).current_dir(folder.path()).output().expect("it runs");
        let line = line(&output);
        let line: Vec<&str> = line.lines().filter(|line| line.starts_with("throng: ")).collect();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {line:?}");
        assert!(line.len() == 1 && line[0].contains(words), "{arguments:?}: {line:?}");
    }
    let left = fs::read_dir(folder.path().join("runs")).into_iter().flatten().count();
    assert_eq!(left, 0, "a mistake leaves a folder of a run");
}

#[test]
fn a_recorded_match_is_replayed_by_the_same_build_and_refused_where_it_is_damaged() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("match.log");
    let path = log.to_str().expect("a path of letters");
    let phases = ["--buy-seconds", "0.5", "--live-seconds", "0.5", "--fuse-seconds", "0.5"];
    let others = ["--seconds", "6", "--no-report", "--json", "--record", path];
    let output = throng(&[&phases[..], &others].concat()).output().expect("it runs");
    let summary = summary(&output);
    assert_eq!(summary["result"], Value::Null, "a match for a time is over before: {}", line(&output));
    assert_eq!(summary["replay"]["identical"], true, "{}", line(&output));
    assert_eq!(summary["format"], 2);
    crate::schema::check("match", &summary);
    let replay = |path: &Path| {
        let path = path.to_str().expect("a path of letters");
        Command::new(THRONG).args(["match", "--replay", path, "--triangles", "5000"]).output().expect("it runs")
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
