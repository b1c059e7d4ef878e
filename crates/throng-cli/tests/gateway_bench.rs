//! `throng gateway-bench` against a gateway that is known to be right, and against one that is known to be wrong.

use std::ffi::OsString;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::thread;

use crate::stand_in::{Mistake, StandIn};
use serde_json::Value;
use throng_gateway_lab::{BenchOptions, GatewaySummary, Scene, Target, Transport};
use throng_report::Profile;

fn throng(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_throng")).args(arguments).output().expect("the program starts")
}

/// The length of a run of which only counts are of interest, in seconds, and of one whose rates are.
const SHORT_S: u32 = 1;
const LONG_S: u32 = 2;

/// The summary of a run. Runs wait for seconds to pass, and compute little: several at once do not disturb each other.
fn bench(scene: &str, clients: u32, seconds: u32, mistake: Mistake) -> Value {
    let gateway = StandIn::start(mistake);
    let [runs, store] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let arguments = [
        "gateway-bench",
        scene,
        "--clients",
        &clients.to_string(),
        "--seconds",
        &seconds.to_string(),
        "--warmup",
        "1",
        "--gateway-servers",
        &gateway.servers.to_string(),
        "--gateway-clients",
        &gateway.clients.to_string(),
        "--gateway-pid",
        &std::process::id().to_string(),
        "--runs",
        runs.path().to_str().unwrap(),
        "--store",
        store.path().to_str().unwrap(),
        "--json",
    ];
    let output = throng(&arguments);
    let complaints = String::from_utf8_lossy(&output.stderr);
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {complaints}"));
    crate::schema::check("gateway", &summary);
    let first = format!(": {clients} clients; 1 s of warm-up, {seconds} s measured, about {} s in all\n", seconds + 6);
    assert!(complaints.contains(&first), "{complaints}");
    let index = std::fs::read_to_string(store.path().join("index.jsonl")).unwrap_or_default();
    let stored: Value = serde_json::from_str(&index).unwrap_or_else(|error| panic!("{error}: {index} {complaints}"));
    assert!(store.path().join(stored["name"].as_str().unwrap()).join("summary.json").is_file());
    assert_eq!(summary["client"]["joined"], clients, "{complaints}");
    assert_eq!(summary["client"]["lost"], 0, "{complaints}");
    summary
}

/// Attempts to get a run in which the load was as planned. On a busy machine there may be none.
const ATTEMPTS: usize = 3;

/// A run whose counts hold in any case, and whether its rates may be judged: only if the machine had time for the load.
fn bench_of_rates(scene: &str, clients: u32, check_counts: impl Fn(&Value)) -> Option<Value> {
    for _ in 0..ATTEMPTS {
        let summary = bench(scene, clients, LONG_S, Mistake::None);
        check_counts(&summary);
        if is_on_time(&summary) {
            return Some(summary);
        }
    }
    None
}

/// Whether the machine had time for the load of a run, so that times and rates may be judged.
fn is_on_time(summary: &Value) -> bool {
    let is_on_time = number(summary, "driver", "late_p99_ms") < 5.0 && number(summary, "driver", "sent_ratio") > 0.98;
    if !is_on_time {
        println!("the rates of this run are not judged: {}", summary["driver"]);
    }
    is_on_time
}

fn number(summary: &Value, group: &str, name: &str) -> f64 {
    summary[group][name].as_f64().unwrap_or_else(|| panic!("no {group}.{name} in {summary}"))
}

#[test]
fn a_single_channel_delivers_every_frame_to_every_client() {
    let judged = bench_of_rates("single", 12, |summary| {
        assert!(number(summary, "gateway", "cpu_cores") > 0.0);
        assert!(number(summary, "calls", "made") > 0.0);
        for name in ["lost", "doubled", "out_of_order"] {
            assert_eq!(summary["calls"][name], 0, "{name}");
        }
    });
    let Some(summary) = judged else { return };
    let delivered = number(&summary, "client", "delivered_ratio");
    assert!((0.85..1.1).contains(&delivered), "{delivered}");
    assert!(number(&summary, "client", "latency_p50_ms") < 60.0);
    assert!(number(&summary, "calls", "made") > 500.0);
}

#[test]
fn lost_and_doubled_calls_are_counted_one_by_one() {
    let [lossy, doubling] = thread::scope(|scope| {
        [Mistake::LosesCall(50), Mistake::DoublesCall(40)]
            .map(|mistake| scope.spawn(move || bench("single", 10, SHORT_S, mistake)))
            .map(|run| run.join().expect("it ends"))
    });
    let (made, lost) = (number(&lossy, "calls", "made"), number(&lossy, "calls", "lost"));
    assert_eq!(lost, (made / 50.0).floor());
    let (made, doubled) = (number(&doubling, "calls", "made"), number(&doubling, "calls", "doubled"));
    assert_eq!((doubled, number(&doubling, "calls", "lost")), ((made / 40.0).floor(), 0.0));
}

#[test]
fn updates_that_are_not_sent_are_missed() {
    let [right, wrong] = thread::scope(|scope| {
        [Mistake::None, Mistake::DropsUpdate(2)]
            .map(|mistake| scope.spawn(move || bench("single", 8, SHORT_S, mistake)))
            .map(|run| number(&run.join().expect("it ends"), "client", "delivered_ratio"))
    });
    assert!(wrong < right * 0.6, "{wrong} instead of {right}");
}

#[test]
fn players_walk_from_server_to_server_and_keep_calling() {
    let judged = bench_of_rates("spatial", 40, |summary| {
        assert_eq!(summary["world"]["servers"], 10);
        assert!(number(summary, "calls", "handovers") > 0.0);
        assert_eq!(summary["calls"]["lost"], 0);
    });
    let Some(summary) = judged else { return };
    assert!(number(&summary, "calls", "handovers") > 20.0);
    let delivered = number(&summary, "client", "delivered_ratio");
    assert!((0.8..1.3).contains(&delivered), "{delivered}");
}

#[test]
fn what_is_far_comes_less_often() {
    let judged = bench_of_rates("entity-lod", 30, |summary| {
        // All at full rate would be 900 a second for each. A slow machine only lowers the figure.
        assert!(number(summary, "client", "update_hz_median") < 300.0);
    });
    let Some(summary) = judged else { return };
    let delivered = number(&summary, "client", "delivered_ratio");
    assert!((0.75..1.2).contains(&delivered), "{delivered}");
    assert!(number(&summary, "client", "update_hz_median") > 30.0);
}

/// Something is killed in the middle of a run of this length, in seconds.
const KILL_RUN_S: u32 = 12;

/// Clients of such a run: of nine servers, that in the middle has some too.
fn clients_of(scene: &str) -> u32 {
    if scene == "spatial" { 80 } else { 20 }
}

/// The summary of a run against our gateway in which something is killed.
fn bench_with_kill(scene: &str, victim: &str, edges: u32) -> Value {
    let runs = tempfile::tempdir().unwrap();
    let folder = runs.path().to_str().unwrap();
    let [seconds, clients] = [KILL_RUN_S, clients_of(scene)].map(|number| number.to_string());
    let arguments =
        ["gateway-bench", scene, "--clients", &clients, "--seconds", &seconds, "--warmup", "1", "--kill", victim];
    let edges = edges.to_string();
    let output = throng(&[&arguments[..], &["--edges", &edges, "--runs", folder, "--json"]].concat());
    let complaints = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {complaints}"))
}

fn all_come_back_after_the_loss_of(victim: &str, edges: u32) {
    all_come_back("single", victim, edges);
}

fn all_come_back(scene: &str, victim: &str, edges: u32) -> Value {
    let summary = bench_with_kill(scene, victim, edges);
    let load = throng_capacity::Load::resolve("gateway").expect("it is built in");
    load.judge(&summary).expect("all samples that scenarios/loads/gateway.toml names");
    assert!(load.memory_bytes(&summary).is_some(), "the memory that it names: {summary}");
    let all = clients_of(scene);
    for (name, expected) in [("players_before", all), ("players_after", all), ("joined", all), ("connections_lost", 0)]
    {
        assert_eq!(summary["outage"][name], expected, "{name}: {summary}");
    }
    // No client gets updates more often than every 20 ms. A client that does not play on is silent until the end.
    for name in ["silence_ms_max", "unanswered_ms_max"] {
        let silence_ms = number(&summary, "outage", name);
        assert!((20.0..f64::from(KILL_RUN_S) / 2.0 * 0.9e3).contains(&silence_ms), "{name}: {silence_ms}");
    }
    if scene == "spatial" {
        assert_eq!((&summary["outage"]["owned_twice"], &summary["outage"]["owned_by_none"]), (&0.into(), &0.into()));
    }
    assert!(number(&summary, "outage", "restart_ms") < f64::from(KILL_RUN_S) / 2.0 * 1e3, "{summary}");
    summary
}

#[test]
fn one_of_nine_world_servers_dies_and_gets_its_players_back() {
    let summary = all_come_back("spatial", "server", 0);
    let [lost, doubled] = ["lost", "doubled"].map(|name| number(&summary, "calls", name));
    assert!(lost > 0.0 && doubled == 0.0, "{}", summary["calls"]);
    // Its own players have walked on for a second, but not where the gateway knows of it. A gateway that lacks time is farther behind.
    let off_m = number(&summary, "outage", "state_off_m_max");
    // As many updates are due as before the death, which takes one of nine servers for a second of twelve.
    let delivered = number(&summary, "client", "delivered_ratio");
    let is_as_expected = off_m < 1.0 && (0.8..1.2).contains(&delivered);
    assert!(is_as_expected || !is_on_time(&summary), "{off_m} m, {delivered}");
    assert_eq!(summary["outage"]["unexcused_calls_lost"], 0, "{}", summary["calls"]);
}

#[test]
fn all_world_servers_of_a_spatial_world_are_killed_and_get_their_players_back() {
    all_come_back("spatial", "servers", 2);
}

#[test]
fn after_the_loss_of_the_gateway_a_spatial_world_is_made_again() {
    all_come_back("spatial", "gateway", 0);
}

#[test]
fn a_killed_world_server_gets_its_players_back_and_no_client_is_lost() {
    all_come_back_after_the_loss_of("server", 0);
}

#[test]
fn after_the_loss_of_the_gateway_all_come_again_and_play_on() {
    all_come_back_after_the_loss_of("gateway", 0);
}

#[test]
fn after_the_loss_of_an_edge_its_clients_go_on_at_the_other_one() {
    all_come_back_after_the_loss_of("edge", 2);
}

#[test]
fn after_the_loss_of_a_gateway_with_edges_all_come_again_through_them() {
    all_come_back_after_the_loss_of("gateway", 2);
}

#[test]
fn an_edge_can_be_killed_only_beside_another_one() {
    let output = throng(&["gateway-bench", "single", "--edges", "1", "--kill", "edge"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("--edges 2"), "{text}");
}

/// Passes the run's words on to the clients, and makes a file when the measured part begins. A shell's jobs have no input of their own.
const TELLS: &str = r#"
mkfifo "$0.words"
exec 3<&0
while read -r word; do echo "$word"; [ "$word" != '"measure"' ] || : >"$0"; done <&3 >"$0.words" 2>/dev/null &
exec 3<&- <"$0.words"
"#;

/// Kills the process that this shell becomes, some seconds after the file is there.
const DIES: &str = r#"
{
    while kill -0 $$ && [ ! -e "$0" ]; do sleep 0.1; done
    [ -e "$0" ] && sleep 4 && kill -9 $$
} </dev/null >/dev/null 2>&1 &
"#;

/// A run that loses a part in the middle of what it measures: nobody is asked whether it wants to end.
fn bench_that_loses(part: &str) -> GatewaySummary {
    let runs = tempfile::tempdir().unwrap();
    let is_measured = runs.path().join("is-measured");
    let command = |name: &str| {
        let tells = if name == "clients-for-bench" { TELLS } else { "" };
        let dies = if name == part { DIES } else { "" };
        let mut command = ["sh", "-c", &format!("{tells}{dies}exec \"$@\"")].map(OsString::from).to_vec();
        command.extend([is_measured.clone().into(), env!("CARGO_BIN_EXE_throng").into(), name.into()]);
        command
    };
    let options = BenchOptions {
        scene: Scene::SingleUnreal,
        clients: 5,
        profile: Profile::Constant,
        warmup_s: 0,
        seconds: 600,
        connect_only: false,
        edges: 0,
        transport: Transport::Tcp,
        kill: None,
        target: Target::Start { command: command("gateway"), extra: Vec::new() },
        parts: ["world-for-bench", "clients-for-bench"].map(command),
        runs: runs.path().to_owned(),
        show_progress: false,
        note: |_| (),
    };
    let result = throng_gateway_lab::run(&options, &AtomicBool::new(false)).expect("a run with a summary");
    assert!(result.folder.join("summary.json").is_file() && !result.summary.head.valid);
    crate::schema::check("gateway", &serde_json::to_value(&result.summary).unwrap());
    result.summary
}

#[test]
fn clients_over_the_link_get_their_updates_and_their_calls_arrive() {
    let runs = tempfile::tempdir().unwrap();
    let folder = runs.path().to_str().unwrap();
    let arguments = ["gateway-bench", "single", "--clients", "12", "--seconds", "2", "--warmup", "1", "--runs", folder];
    let link = ["--transport", "throng", "--json"];
    for more in [&link[..], &[&link[..], &["--edges", "2"]].concat()] {
        let output = throng(&[&arguments[..], more].concat());
        let complaints = String::from_utf8_lossy(&output.stderr);
        let summary: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {complaints}"));
        crate::schema::check("gateway", &summary);
        assert!(complaints.contains("12 clients over throng"), "{complaints}");
        assert_eq!(summary["transport"], "throng");
        assert_eq!((&summary["client"]["joined"], &summary["client"]["lost"]), (&12.into(), &0.into()), "{complaints}");
        assert!(number(&summary, "client", "delivered_ratio") > 0.5, "{summary}");
        assert!(number(&summary, "calls", "made") > 12.0 * 20.0, "{summary}");
        // The memory of a process before its clients is no growth, also not that of an edge.
        let [growth, all] = ["rss_bytes_per_connection", "rss_bytes"].map(|name| number(&summary, "gateway", name));
        assert!(growth * 12.0 < all / 2.0, "{growth} by client, {all} in all");
        for name in ["lost", "doubled", "out_of_order"] {
            assert_eq!(summary["calls"][name], 0, "{name}");
        }
    }
}

#[test]
fn the_link_needs_a_gateway_whose_key_is_known_and_that_is_not_killed() {
    let refused = |more: &[&str]| {
        let output = throng(&[&["gateway-bench", "single", "--transport", "throng"], more].concat());
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let running = refused(&["--gateway-servers", "127.0.0.1:9", "--gateway-clients", "127.0.0.1:9"]);
    assert!(running.contains("--transport throng needs a gateway that this program starts"), "{running}");
    let killed = refused(&["--kill", "gateway"]);
    assert!(killed.contains("--kill works only with --transport tcp"), "{killed}");
}

#[test]
fn a_run_that_loses_a_process_leaves_what_was_measured_and_names_it() {
    let parts = ["world-for-bench", "clients-for-bench", "gateway"];
    let [world, clients, gateway] = thread::scope(|scope| {
        parts.map(|part| scope.spawn(move || bench_that_loses(part))).map(|run| run.join().expect("it ends"))
    });
    let of = |run: &GatewaySummary| (run.head.invalid_reasons[0].clone(), run.head.missing.join(", "));
    assert_eq!(of(&world), ("the world servers ended without a report".into(), "world servers".into()));
    assert_eq!(of(&clients), ("the clients ended without a report".into(), "clients".into()));
    let cause = of(&gateway).0;
    assert!(cause.contains("the gateway has ended: see gateway.log"), "{:?}", gateway.head.invalid_reasons);
    assert!(clients.client.is_none() && clients.world.frame_hz > 0.0, "{clients:?}");
    let of_clients = |run: &GatewaySummary| {
        let driver = &run.driver;
        [driver.late_p99_ms.is_some(), driver.sent_ratio.is_some(), driver.garbled.is_some()]
    };
    let of_world =
        |run: &GatewaySummary| [run.world.stalled_frames.is_some(), run.world.resubscriptions_per_s.is_some()];
    assert_eq!((of_clients(&clients), of_world(&clients)), ([false; 3], [true; 2]));
    assert_eq!((of_clients(&world), of_world(&world)), ([true; 3], [false; 2]));
    assert!(clients.head.invalid_reasons.iter().any(|reason| reason.starts_with("not measured: ")), "{clients:?}");
    for run in [&world, &gateway] {
        let delivered = run.client.as_ref().map_or(0.0, |client| client.delivered_ratio);
        assert!((0.2..1.2).contains(&delivered), "{run:?}");
    }
    for run in [&world, &clients, &gateway] {
        assert!(run.series.len() > 1 && run.gateway.cpu_cores >= Some(0.0), "{run:?}");
        assert!(run.traffic.messages_out_per_s > 0.0 && run.gateway.rss_bytes > Some(0), "{run:?}");
    }
}

#[test]
fn a_full_disk_takes_no_figures_away() {
    let gateway = StandIn::start(Mistake::None);
    let runs = tempfile::tempdir().unwrap();
    // No file can be longer than 2 kB or 4 kB: shells count in different units. The summary is longer.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 4; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_throng")])
        .args(["gateway-bench", "single", "--clients", "5", "--seconds", "1", "--warmup", "0", "--json", "--runs"])
        .arg(runs.path())
        .args(["--gateway-servers", &gateway.servers.to_string(), "--gateway-clients", &gateway.clients.to_string()])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("on no disk") && words.contains("summary.json"), "{words}");
    let summary: Value = serde_json::from_slice(&output.stdout).expect("the figures are printed all the same");
    assert_eq!(summary["client"]["joined"], 5);
}

#[test]
fn clients_come_and_go_as_the_profile_of_a_scenario_file_says() {
    let runs = tempfile::tempdir().unwrap();
    let file = runs.path().join("spike.toml");
    std::fs::write(
        &file,
        "scene = \"single\"\nclients = 12\nprofile = \"spike:4..12:1s:2s\"\nseconds = 5\nwarmup = 0\n",
    )
    .unwrap();
    let [folder, file] = [runs.path(), &file].map(|path| path.to_str().unwrap());
    let output = throng(&["gateway-bench", "--scenario", file, "--runs", folder, "--json"]);
    let complaints = String::from_utf8_lossy(&output.stderr);
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {complaints}"));
    crate::schema::check("gateway", &summary);
    assert_eq!(
        (&summary["profile"], &summary["client"]["lost"]),
        (&"spike:4..12:1s:2s".into(), &0.into()),
        "{summary:#}"
    );
    let connections: Vec<u64> =
        summary["series"].as_array().unwrap().iter().map(|second| second["connections"].as_u64().unwrap()).collect();
    assert!(connections.contains(&12) && connections.last() == Some(&4), "{connections:?}");
    assert_eq!(summary["client"]["joined"], 4, "{summary:#}");
    // Those who are gone are due nothing: the server does not wait for them.
    assert!(number(&summary, "client", "delivered_ratio") > 0.8, "{summary:#}");
    assert_eq!((&summary["calls"]["doubled"], &summary["calls"]["lost"]), (&0.into(), &0.into()), "{summary:#}");
    // The seconds were written as they came, with the same figures.
    let run: Vec<_> = std::fs::read_dir(runs.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    let lines = std::fs::read_to_string(run[0].join("seconds.jsonl")).unwrap();
    let seconds: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(seconds.len(), connections.len());
    assert!(
        seconds.iter().zip(&connections).all(|(second, connections)| second["connections"] == *connections),
        "{lines}"
    );
    assert!(std::fs::read_to_string(run[0].join("report.html")).unwrap().contains("spike:4..12:1s:2s"));
}

#[test]
fn a_wrong_argument_is_said_in_one_line_before_anything_is_started() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let come_and_go = |with: [&'static str; 2]| [&["single", "--profile", "step:10..20:5s"][..], &with].concat();
    for (arguments, words) in [
        (vec!["single", "--runs", path], path),
        (vec!["single", "--clients", "1201"], "at most 1200 clients"),
        (come_and_go(["--clients", "19"]), "to 20 is more than the 19 clients (--clients)"),
        (come_and_go(["--seconds", "9"]), "it takes 10 s, but only 9 s are measured"),
        (come_and_go(["--edges", "2"]), "--edges, which keep the places"),
        (come_and_go(["--kill", "server"]), "neither with --kill"),
        (vec!["spatial", "--profile", "step:10..20:5s"], "only with the scene single"),
    ] {
        let output = throng(&[&["gateway-bench"][..], &arguments].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(words) && text.lines().count() == 1, "{text}");
    }
}

#[test]
fn a_gateway_elsewhere_is_refused() {
    let output = throng(&[
        "gateway-bench",
        "single",
        "--gateway-servers",
        "192.0.2.1:11288",
        "--gateway-clients",
        "127.0.0.1:12108",
    ]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("--i-own-this-target"), "{text}");
}
