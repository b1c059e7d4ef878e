//! The number of players changes while a run plays, and runs that lose their bots or their disk.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lines::children;
use throng_lab::run::{self, RunOptions};
use throng_lab::scenario::{Overrides, Scenario};
use throng_testkit::NatsServer;

/// The name of the bots' process of a run.
const BOTS: &str = "bots-for-run";

pub(crate) fn players_come_and_go_while_a_run_plays() {
    let runs = tempfile::tempdir().unwrap();
    let overrides = Overrides { players: Some(30), seconds: Some(30), warmup_seconds: Some(1), ..Overrides::default() };
    let (changes, wanted) = mpsc::channel();
    let bots = vec![env!("CARGO_BIN_EXE_throng").into(), BOTS.into()];
    let scenario = Scenario::resolve("crowd", &overrides).unwrap();
    let options = RunOptions { wanted: Some(wanted), ..RunOptions::new(scenario, runs.path().to_owned(), bots) };
    // The first changes come while bots still connect. Each of the others comes when a second has shown the one before.
    let folder = runs.path();
    let has_been = |players: u32| {
        let lines = seconds_of(folder).unwrap_or_default();
        let mut seconds = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        seconds.any(|second| {
            [&second["players_wanted"], &second["connections"]].iter().all(|it| it.as_f64() == Some(players.into()))
        })
    };
    let summary = std::thread::scope(|scope| {
        scope.spawn(|| {
            for players in [30, 10, 25, 4, 1_000_000] {
                let _ = changes.send(players);
                let until = Instant::now() + Duration::from_secs(60);
                while matches!(players, 25 | 4) && !has_been(players) && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        });
        run::run(&options, &AtomicBool::new(false)).unwrap().summary
    });
    assert_eq!((summary.bots.connected, summary.bots.disconnects), (30, 0), "{:?}", summary.head.invalid_reasons);
    assert_eq!((summary.bots.state_mismatches, summary.bots.mismatches_in_play), (0, 0));
    assert!(summary.bots.objects_compared > 0);
    let seconds = &summary.series.seconds;
    for players in [25.0, 4.0] {
        let mut points = seconds.players_wanted.iter().zip(&seconds.connections);
        assert!(points.any(|point| point == (&players, &players)), "{players}: {seconds:?}");
    }
    assert!(seconds.players_wanted.iter().all(|&wanted| wanted <= 30.0), "{seconds:?}");
}

pub(crate) fn a_run_without_its_bots_leaves_what_was_measured() {
    let runs = tempfile::tempdir().unwrap();
    let overrides = Overrides { players: Some(5), seconds: Some(600), warmup_seconds: Some(0), ..Overrides::default() };
    // After 10 s nobody is asked whether it wants to end.
    let killed = ["timeout", "-s", "KILL", "10", env!("CARGO_BIN_EXE_throng"), BOTS].map(Into::into);
    let scenario = Scenario::resolve("crowd", &overrides).unwrap();
    let options = RunOptions::new(scenario, runs.path().to_owned(), killed.to_vec());
    let result = run::run(&options, &AtomicBool::new(false)).unwrap();
    let summary = &result.summary;
    assert!(
        summary.bots.missing && summary.server.ticks > 0 && !summary.head.valid,
        "{:?}",
        summary.head.invalid_reasons
    );
    let reasons = summary.head.invalid_reasons.join("\n");
    assert!(reasons.contains("all that bots measure is missing") && !reasons.contains("bots sent only"), "{reasons}");
    assert!(result.report.unwrap().is_file());
}

fn crowd_at_edges(runs: &std::path::Path, seconds: &str, edges: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throng"));
    command.args("crowd --players 60 --servers 2 --warmup 1 --json --quiet".split(' '));
    command
        .args(["--edges", edges, "--seconds", seconds, "--runs"])
        .arg(runs)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The lines of the seconds of the only run in a folder; `None` if there are none yet.
fn seconds_of(runs: &std::path::Path) -> Option<String> {
    let folder = std::fs::read_dir(runs).ok()?.flatten().map(|entry| entry.path()).find(|path| path.is_dir())?;
    std::fs::read_to_string(folder.join("seconds.jsonl")).ok()
}

/// Waits until a run has measured for so many seconds.
fn wait_for_seconds(runs: &std::path::Path, seconds: usize) {
    let until = Instant::now() + Duration::from_secs(60);
    while seconds_of(runs).is_none_or(|lines| lines.lines().count() < seconds) {
        assert!(Instant::now() < until, "the run does not measure");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The summary of a run whose nats-server, if it has one, is killed when it has measured for two seconds, and comes back a second later.
fn summary_of(command: &mut Command, nats: Option<&mut NatsServer>, runs: &std::path::Path) -> Value {
    let run = command.spawn().unwrap();
    if let Some(nats) = nats {
        wait_for_seconds(runs, 2);
        nats.kill();
        std::thread::sleep(Duration::from_secs(1));
        nats.run();
    }
    serde_json::from_slice(&run.wait_with_output().unwrap().stdout).unwrap()
}

/// The summary of a run. If the machine was too busy for it, it is played again, at most twice.
fn played(is_too_busy: impl Fn(&Value) -> bool, mut play: impl FnMut() -> Value) -> Value {
    let mut summary = play();
    for _ in 0..2 {
        if is_too_busy(&summary) {
            summary = play();
        }
    }
    summary
}

/// Whether a run has compared at most so many states while everything moved.
fn compares_at_most(states: u64) -> impl Fn(&Value) -> bool {
    move |summary| summary["bots"]["compared_in_play"].as_u64() <= Some(states)
}

/// Over NATS, where there is a nats-server and the program can use it: it is killed while the run is measured, and comes back.
pub(crate) fn clients_of_edges_have_the_state_of_all_servers() {
    let summary = played(compares_at_most(500), || {
        let runs = tempfile::tempdir().unwrap();
        let mut command = crowd_at_edges(runs.path(), "6", "2");
        let mut nats = NatsServer::start(&[]);
        if let Some(nats) = &nats {
            command.args(["--bus", &nats.address()]);
        }
        summary_of(&mut command, nats.as_mut(), runs.path())
    });
    let bots = &summary["bots"];
    assert_eq!((&bots["connected"], &bots["disconnects"]), (&60.into(), &0.into()), "{summary}");
    assert_eq!((&bots["state_mismatches"], &bots["mismatches_in_play"]), (&0.into(), &0.into()), "{bots}");
    assert!(bots["objects_compared"].as_u64() > Some(500) && bots["compared_in_play"].as_u64() > Some(500), "{bots}");
    let edges = summary["edges"].as_array().unwrap();
    assert_eq!(edges.len(), 2);
    for edge in edges {
        assert_eq!((edge["connections"].as_f64(), edge["dropped"].as_u64()), (Some(30.0), Some(0)), "{edge}");
        // All, but for those that are on the way from server to server at that moment.
        assert!(edge["objects"].as_u64() >= Some(56) && edge["kbit_per_s_from_server"].as_f64() > Some(1.0), "{edge}");
    }
    let servers = summary["servers"].as_array().unwrap();
    let sum = |key: &str| servers.iter().map(|server| server[key].as_f64().unwrap()).sum::<f64>();
    let on_the_way = (sum("arrived") - sum("released")).abs();
    assert!(servers.len() == 2 && on_the_way <= 4.0, "{servers:?}");
    // 60 of 60 players, but for those that are on the way, and of them a few cross the border in each second.
    assert!((59.0..=60.0).contains(&sum("players")) && sum("released") >= 3.0, "{servers:?}");
    let reasons = summary["invalid_reasons"].to_string();
    assert!(!reasons.contains("edge ") && !reasons.contains("server "), "{reasons}");
}

/// Servers and edges have no UDP between them. All links wait while the nats-server is away: clients get nothing new for about as long, as nothing
/// passes by another way. No state differs, but for what the edges say of it: they go on as predicted for half a second.
pub(crate) fn servers_and_edges_that_meet_at_nats_alone_outlive_its_absence() {
    if NatsServer::start(&[]).is_none() {
        return;
    }
    let summary = played(compares_at_most(100), || {
        let mut nats = NatsServer::start(&[]).unwrap();
        let runs = tempfile::tempdir().unwrap();
        let mut command = crowd_at_edges(runs.path(), "8", "2");
        command.args(["--bus", &nats.address(), "--bus-links"]);
        summary_of(&mut command, Some(&mut nats), runs.path())
    });
    let bots = &summary["bots"];
    assert_eq!((&bots["connected"], &bots["disconnects"]), (&60.into(), &0.into()), "{summary}");
    assert_eq!((&bots["state_mismatches"], &bots["mismatches_in_play"]), (&0.into(), &0.into()), "{bots}");
    assert!(bots["objects_compared"].as_u64() > Some(500) && bots["compared_in_play"].as_u64() > Some(100), "{bots}");
    let age_ms = &summary["neighbours"]["near"]["age_ms"]["p99"];
    assert!(age_ms.as_f64() > Some(700.0), "{age_ms}");
    for edge in summary["edges"].as_array().unwrap() {
        assert!(edge["connections"].as_f64() > Some(25.0) && edge["objects"].as_u64() >= Some(56), "{edge}");
        assert!(edge["ticks_without_news"].as_u64() > Some(15), "{edge}");
    }
}

/// A partition of one server, whose borders and links pass NATS alone: its connection there is silent, and ends for nobody.
pub(crate) fn a_server_that_is_cut_off_from_nats_serves_its_players_afterwards() {
    let Some(nats) = NatsServer::start(&[]) else { return };
    let runs = tempfile::tempdir().unwrap();
    let mut command = crowd_at_edges(runs.path(), "5", "1");
    command.args(["--bus", &nats.address(), "--bus-links", "--fault", "cut:server-2:1s:1.5s"]);
    let summary = summary_of(&mut command, None, runs.path());
    let (bots, fault) = (&summary["bots"], &summary["faults"][0]);
    assert_eq!((&bots["disconnects"], &fault["unserved"]), (&0.into(), &0.into()), "{summary}");
    assert_eq!((&bots["state_mismatches"], &bots["mismatches_in_play"]), (&0.into(), &0.into()), "{bots}");
    assert!(bots["objects_compared"].as_u64() > Some(500), "{bots}");
    assert!(fault["bots"].as_u64() >= Some(1) && fault["longest_gap_ms"].as_f64() > Some(900.0), "{fault}");
    assert!(summary["edges"][0]["ticks_without_news"].as_u64() > Some(15), "{summary}");
}

/// Where the machine is too busy for some seconds, connections end that nobody has cut, and all take longer.
fn is_served_late(summary: &Value) -> bool {
    let late = |fault: &Value| fault["served_again_ms"].as_f64().unwrap_or(0.0) > 2_500.0;
    summary["bots"]["disconnects"] != 0 || summary["faults"].as_array().unwrap()[1..].iter().any(late)
}

pub(crate) fn everybody_is_served_again_after_the_faults_of_a_run() {
    let faults = ["kill:edge-1:1s", "pause:edge-2:7s:1.5s", "drain:edge-2:9.3s", "cut:server-2:4.5s:1s"];
    let faults = faults.map(|fault| ["--fault", fault]);
    let summary = played(is_served_late, || {
        let runs = tempfile::tempdir().unwrap();
        let output = crowd_at_edges(runs.path(), "11", "3").args(faults.as_flattened()).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    });
    let bots = &summary["bots"];
    assert_eq!(bots["disconnects"], 0, "{summary}");
    assert!(bots["reconnected"].as_u64() >= Some(60), "{summary}");
    // The server has sent to an edge that was killed, and nothing has said that it came.
    assert!(summary["network"]["loss_ratio"].as_f64() > Some(0.0), "{}", summary["network"]);
    assert_eq!((&bots["state_mismatches"], &bots["mismatches_in_play"]), (&0.into(), &0.into()), "{bots}");
    let met = |index: usize| {
        let fault = &summary["faults"][index];
        assert_eq!(fault["unserved"], 0, "{fault}");
        let ms = |key: &str| fault[key].as_f64().unwrap_or(0.0);
        (fault["bots"].as_u64().unwrap(), ms("longest_gap_ms"), ms("served_again_ms"))
    };
    // Its clients notice that it is silent after 3 s.
    let (bots, longest_gap_ms, served_again_ms) = met(0);
    assert!(bots >= 20 && longest_gap_ms > 2_900.0 && served_again_ms < 8_000.0, "{summary}");
    // By then the second one has the clients of the first, too. They do not have to connect again.
    let (bots, longest_gap_ms, served_again_ms) = met(1);
    assert!(bots >= 35 && longest_gap_ms > 1_400.0 && served_again_ms < 2_500.0, "{summary}");
    // Then it is drained: nobody waits for the silence.
    let (_, longest_gap_ms, _) = met(2);
    assert!(longest_gap_ms < 2_500.0, "{summary}");
    // The players of the server that is cut off are there again as soon as it is.
    let (bots, longest_gap_ms, served_again_ms) = met(3);
    assert!(bots >= 1 && longest_gap_ms > 900.0 && served_again_ms < 2_500.0, "{summary}");
    assert_eq!(summary["edges"][0]["connections"], 0.0, "{summary}");
    assert!(summary["edges"][1]["connections"].as_f64() > Some(20.0), "{summary}");
    let reasons = summary["invalid_reasons"].to_string();
    assert!(!reasons.contains("edge ") && !reasons.contains("packets were lost"), "{reasons}");
}

/// Its players are there again with the states of a second before, at the new process or at the other server.
pub(crate) fn a_server_that_is_killed_and_starts_again_has_players_again() {
    // The lease of the former process ends after 3 s.
    let is_late = |summary: &Value| {
        compares_at_most(500)(summary)
            || summary["bots"]["disconnects"] != 0
            || summary["faults"][0]["served_again_ms"].as_f64() > Some(5_000.0)
    };
    let summary = played(is_late, || {
        let runs = tempfile::tempdir().unwrap();
        let mut command = crowd_at_edges(runs.path(), "9", "2");
        summary_of(command.args(["--fault", "restart:server-2:1s:1s"]), None, runs.path())
    });
    let (bots, fault) = (&summary["bots"], &summary["faults"][0]);
    let has_lost =
        |loss: &Value| loss["process"] == "edge 2" && loss["counter"] == "origins_lost" && loss["count"] != 0;
    assert!(summary["losses"].as_array().unwrap().iter().any(has_lost), "{}", summary["losses"]);
    assert_eq!((&bots["disconnects"], &fault["unserved"]), (&0.into(), &0.into()), "{summary}");
    assert_eq!((&bots["state_mismatches"], &bots["mismatches_in_play"]), (&0.into(), &0.into()), "{bots}");
    assert!(bots["objects_compared"].as_u64() > Some(500) && bots["compared_in_play"].as_u64() > Some(500), "{bots}");
    let ms = |key: &str| fault[key].as_f64().unwrap_or(0.0);
    assert!(fault["bots"].as_u64() >= Some(1) && ms("longest_gap_ms") > 1_900.0, "{fault}");
    assert!(ms("served_again_ms") <= 5_000.0, "{fault}");
    let servers = summary["servers"].as_array().unwrap();
    assert!(servers[1]["players"].as_f64() > Some(1.0), "the new process has players: {summary}");
    let resumed: u64 = servers.iter().filter_map(|server| server["resumed"].as_u64()).sum();
    assert!(resumed >= 10, "they go on, and do not begin anew: {summary}");
    let reasons = summary["invalid_reasons"].to_string();
    assert!(!reasons.contains("server 2"), "{reasons}");
}

pub(crate) fn a_slow_disk_holds_nobody_up_and_clients_of_a_slow_consumer_are_served_again() {
    let mut runs = tempfile::tempdir().unwrap();
    let faults = ["slow-disk:server:0.5s:6s", "slow-consumer:edge-1:1s:3s"].map(|fault| ["--fault", fault]);
    let missed = |summary: &Value| summary["server"]["missed_ticks"].as_u64();
    let summary = played(
        |summary| missed(summary) >= Some(10),
        || {
            runs = tempfile::tempdir().unwrap();
            let output = crowd_at_edges(runs.path(), "8", "2").args(faults.as_flattened()).output().unwrap();
            serde_json::from_slice(&output.stdout).unwrap()
        },
    );
    let bots = &summary["bots"];
    assert_eq!(
        (&bots["disconnects"], &bots["state_mismatches"], &bots["mismatches_in_play"]),
        (&0.into(), &0.into(), &0.into()),
        "{bots}"
    );
    let [disk, consumer] = [0, 1].map(|index| &summary["faults"][index]);
    // A line for each second, and once the frames: all of them wait for a second, and the ticks for none of them.
    assert!(
        disk["delayed"].as_u64() >= Some(5) && disk["lost"] == 0 && summary["missing"] == Value::from(Vec::<u8>::new()),
        "{disk}"
    );
    assert!(missed(&summary) < Some(10), "{}", summary["server"]);
    let folder = std::fs::read_dir(runs.path()).unwrap().flatten().find(|entry| entry.path().is_dir()).unwrap().path();
    let seconds = std::fs::read_to_string(folder.join("seconds.jsonl")).unwrap();
    assert!(seconds.lines().count() >= 7, "{seconds}");
    // It reads 4 datagrams of each server in a second. Those of its clients that decode hear late of what they do.
    let number = |key: &str| consumer[key].as_f64().unwrap_or(-1.0);
    assert!(number("delayed") > 50.0 && number("bots") >= 1.0 && number("unserved") == 0.0, "{consumer}");
    assert!(number("longest_gap_ms") > 1_000.0 && number("served_again_ms") < 2_500.0, "{consumer}");
}

pub(crate) fn an_edge_and_a_server_that_are_killed_are_named() {
    let runs = tempfile::tempdir().unwrap();
    let run = crowd_at_edges(runs.path(), "9", "2").spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    let of = |kind: &str| {
        let is_kind = |process: &u32| {
            std::fs::read_to_string(format!("/proc/{process}/cmdline")).is_ok_and(|line| line.contains(kind))
        };
        children(run.id()).into_iter().filter(is_kind).collect::<Vec<u32>>()
    };
    let (edges, servers) = loop {
        let (edges, servers) = (of("edge-for-run"), of("server-for-run"));
        if edges.len() == 2 && servers.len() == 1 {
            break (edges, servers);
        }
        assert!(Instant::now() < until, "there are no edges");
        std::thread::sleep(Duration::from_millis(50));
    };
    wait_for_seconds(runs.path(), 2);
    for process in [edges[0], servers[0]] {
        assert!(Command::new("kill").args(["-KILL", &process.to_string()]).status().unwrap().success());
    }
    let output = run.wait_with_output().unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let reasons = summary["invalid_reasons"].to_string();
    let has_killed = ["edge 1", "edge 2"].into_iter().filter(|edge| reasons.contains(edge)).count();
    assert_eq!((has_killed, reasons.contains("server 2")), (1, true), "{reasons}");
    assert!(reasons.contains("its clients were cut off") && summary["valid"] == false, "{reasons}");
    let connections: Vec<f64> =
        summary["edges"].as_array().unwrap().iter().map(|edge| edge["connections"].as_f64().unwrap()).collect();
    assert!(connections.contains(&30.0) && connections.contains(&0.0), "{connections:?}");
}

pub(crate) fn a_full_disk_takes_no_figures_away() {
    let runs = tempfile::tempdir().unwrap();
    let (junit, store) = (runs.path().join("limits.xml"), runs.path().join("store"));
    // No file can be longer than 50 kB or 100 kB: shells count in different units. The page is longer.
    let limited = "trap '' XFSZ; ulimit -f 100; exec \"$@\"";
    let arguments = ["crowd", "--players", "5", "--seconds", "1", "--warmup", "0", "--json", "--quiet", "--runs"];
    let output = Command::new("sh")
        .args(["-c", limited, "sh", env!("CARGO_BIN_EXE_throng")])
        .args(arguments)
        .arg(runs.path().join("runs"))
        .args([OsStr::new("--limit=server.held_hz>=1"), OsStr::new("--junit"), junit.as_os_str()])
        .args([OsStr::new("--store"), store.as_os_str()])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("the page is not written") && words.contains("report.html"), "{words}");
    let summary: Value = serde_json::from_slice(&output.stdout).expect("the figures are printed all the same");
    assert_eq!(summary["bots"]["connected"], 5);
    // The limits are judged all the same, for a build server and beside the figures; the store has the run.
    let xml = std::fs::read_to_string(junit).unwrap();
    assert!(xml.contains("server.held_hz"), "{xml}");
    let stored = std::fs::read_dir(&store).unwrap().flatten().find(|entry| entry.path().is_dir()).expect("a run");
    let folder = runs.path().join("runs").join(stored.file_name());
    assert!(folder.join("limits.json").is_file() && !folder.join("report.html").exists());
    assert!(
        !std::fs::read_dir(&folder)
            .unwrap()
            .flatten()
            .any(|entry| entry.path().extension().is_some_and(|end| end == "part"))
    );
}

pub(crate) fn a_staircase_has_the_figures_of_each_level() {
    let of = |summary: &Value, key: &str| {
        let steps = summary["steps"].as_array().expect("a list");
        steps.iter().map(|step| step[key].as_f64().unwrap_or(-1.0)).collect::<Vec<_>>()
    };
    let connections = vec![5.0, 15.0, 25.0];
    // On a busy machine, bots may take longer than a fifth of a level to connect.
    let is_too_busy = |summary: &Value| of(summary, "connections") != connections;
    let summary = played(is_too_busy, || {
        let runs = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_throng"));
        let words = "crowd --players 25 --warmup 0 --profile staircase:5+10:4s --seconds 12 --json --quiet --runs";
        let output = command.args(words.split(' ')).arg(runs.path()).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {words}"))
    });
    let of = |key: &str| of(&summary, key);
    let steps = summary["steps"].as_array().expect("a list");
    assert_eq!((of("players"), of("connections")), (connections.clone(), connections), "{summary:#}");
    assert_eq!((of("from_s"), of("to_s")[..2].to_vec()), (vec![0.0, 4.8, 8.8], vec![4.0, 8.0]));
    assert!(steps.iter().all(|step| step["frame_ms"]["p99"].as_f64() > Some(0.0)), "{steps:?}");
    assert_eq!((&summary["players"], &summary["bots"]["disconnects"]), (&25.into(), &0.into()));
}
