//! The real program, as a user meets it: one clear line for each mistake, and a whole run.

use std::collections::BTreeMap;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::lab::has_samples_of;
use crate::lines::{SIGINT, beside_each_other, children, handles, throng};
use serde_json::Value;

/// The single line that the program printed about a mistake, after checking its exit code.
fn complaint(arguments: &[&str], code: i32) -> String {
    let output = throng(arguments);
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert!(!text.contains("panicked") && !text.contains("backtrace"), "{text}");
    text
}

#[test]
fn a_mistake_in_the_arguments_is_one_line_that_says_what_to_do() {
    let unknown = complaint(&["crowd", "--scenario", "crowdd"], 2);
    assert!(unknown.contains("did you mean `crowd`") && !unknown.contains('\n'), "{unknown}");
    let absent = complaint(&["crowd", "--scenario", "nowhere/mine.toml"], 2);
    assert!(absent.contains("nowhere/mine.toml") && !absent.contains('\n'), "{absent}");
    let none = complaint(&["crowd", "--players", "0"], 2);
    assert!(none.contains("players") && !none.contains('\n'), "{none}");
    let profile = complaint(&["crowd", "--profile", "ramp:100..2000:60s"], 2);
    assert!(profile.contains("more than the 1000 players") && !profile.contains('\n'), "{profile}");
    let profile = complaint(&["crowd", "--profile", "ramp:NaN..100:60s"], 2);
    assert!(profile.contains("two numbers from 1"), "{profile}");
    let runs = complaint(&["crowd", "--players", "5", "--quiet", "--runs", "Cargo.toml/runs"], 2);
    assert!(runs.contains("Cargo.toml/runs") && runs.contains("choose another") && !runs.contains('\n'), "{runs}");
    let preset = complaint(&["crowd", "--net", "moon"], 2);
    assert!(preset.contains("none, lan, wifi, 4g or bad"), "{preset}");
    let limit = complaint(&["crowd", "--players", "5", "--limit", "frame_ms.p99<=12"], 2);
    assert!(limit.contains("is it server.frame_ms.p99?") && !limit.contains('\n'), "{limit}");
    let limit = complaint(&["match", "--limit", "frame_ms.p99"], 2);
    assert!(limit.contains("use METRIC<=VALUE or METRIC>=VALUE"), "{limit}");
    let limits = complaint(&["gateway-bench", "single", "--limits", "Cargo.toml"], 2);
    assert!(limits.contains("Cargo.toml, line ") && !limits.contains('\n'), "{limits}");
    let everywhere = complaint(&["serve", "--listen", "0.0.0.0:7777"], 2);
    assert!(everywhere.contains("--public") && !everywhere.contains('\n'), "{everywhere}");
    let folder = complaint(&["report", "no-such-run"], 2);
    assert!(folder.contains("no-such-run") && !folder.contains('\n'), "{folder}");
}

#[test]
fn options_that_a_replay_or_a_written_setting_would_ignore_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file").display().to_string();
    for option in ["--limit=frame_ms.p99<=1", "--limits=x", "--junit=FILE", "--markdown=FILE", "--store=FILE"] {
        let option = option.replace("FILE", &file);
        let text = complaint(&["match", "--replay", "a.log", &option], 2);
        assert!(text.contains("cannot be used with"), "{option}: {text}");
    }
    let short =
        ["--json", "--budgets=x", "--metrics=127.0.0.1:0", "--live=127.0.0.1:1", "--seconds=1", "--matches=2", "-q"];
    let played = ["--agents=1", "--threads=2", "--processes", "--hz=64", "--no-pin", "--no-check", "--no-report"];
    for option in short.into_iter().chain(played) {
        let text = complaint(&["match", "--replay", "a.log", option], 2);
        assert!(text.contains("cannot be used with"), "{option}: {text}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    for task in ["--apply=clock", "--undo=clock", "--measure=clock", "--neighbours"] {
        let text = complaint(&["doctor", "thp", task], 2);
        assert!(text.contains("cannot be used with"), "{task}: {text}");
    }
}

#[test]
fn options_of_a_crowd_that_would_change_nothing_are_refused() {
    let refused = |arguments: &[&str], words: &str| {
        let text = complaint(&[&["crowd", "--quiet"], arguments].concat(), 2);
        assert!(text.contains(words), "{arguments:?}: {text}");
    };
    let bus = "nats://127.0.0.1:1";
    refused(&["--workers", "a", "--bus", bus, "--bus-links"], "cannot be used with");
    refused(&["--key", &"0f".repeat(32)], "add --workers");
    refused(&["--baselines"], "baselines (--baselines): the model throng has no such setting");
    refused(&["--scratch", "shared"], "add --model shared-state");
    refused(&["--scratch", "per-connection", "--model", "graph"], "the model graph has no such setting");
}

#[test]
fn figures_are_listed_by_kind() {
    let listed = |kind: &str| String::from_utf8(throng(&["lab", "metrics", kind]).stdout).unwrap();
    let (crowd, gateway) = (listed("crowd"), listed("gateway"));
    let line = crowd.lines().find(|line| line.starts_with("server.held_hz ")).unwrap();
    assert!(
        line.contains(" Hz ") && line.contains("more is better") && line.ends_with("ticks played per second"),
        "{line}"
    );
    assert!(gateway.contains("client.latency_p99_ms") && !gateway.contains("server.held_hz"), "{gateway}");
}

#[test]
fn shells_get_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let output = throng(&["completions", shell]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && ["gateway-bench", "bisect", "version"].iter().all(|word| text.contains(word)),
            "{shell}: {text}"
        );
        let internal = ["for-run", "for-bench", "for-match"].into_iter().find(|name| text.contains(name));
        assert_eq!(internal, None, "{shell}");
    }
    complaint(&["completions", "cmd"], 2);
}

#[test]
fn a_reader_that_has_gone_is_fine_and_a_full_disk_is_an_error() {
    let run = |output: Stdio, errors: Stdio| {
        let child = Command::new(env!("CARGO_BIN_EXE_throng")).args(["doctor"]).stdout(output).stderr(errors).spawn();
        child.expect("the program starts").wait_with_output().expect("it ends")
    };
    let nobody = || Stdio::from(std::io::pipe().expect("a pipe").1);
    let gone = run(nobody(), Stdio::piped());
    assert_eq!((gone.status.code(), &*String::from_utf8_lossy(&gone.stderr)), (Some(0), ""));
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").expect("Linux has it"));
    let lost = run(full(), Stdio::piped());
    let words = String::from_utf8_lossy(&lost.stderr);
    assert_eq!(lost.status.code(), Some(1), "{words}");
    assert!(words.contains("standard output: No space left") && words.lines().count() == 1, "{words}");
    // An error that cannot be said either.
    assert_eq!(run(full(), nobody()).status.code(), Some(1));
}

#[test]
fn what_an_argument_names_and_cannot_be_used_is_a_wrong_argument_of_every_command() {
    let taken = (UdpSocket::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let (udp, tcp) = (taken.0.local_addr().unwrap().to_string(), taken.1.local_addr().unwrap().to_string());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file").display().to_string();
    std::fs::write(&file, "no snapshot").unwrap();
    let runs = folder.path().join("runs");
    let own_runs = format!("--runs={}", runs.display());
    let below = format!("{file}/x");
    for (arguments, words) in [
        (&["serve", "--listen", &udp, &own_runs][..], &*udp),
        (&["serve", "--listen", "203.0.113.9:7777", &own_runs], "not an address of this machine"),
        (&["lab", "worker", "--listen", &udp], &udp),
        (&["lab", "serve", "--address", &tcp, &own_runs], &tcp),
        (&["crowd", "--players=9", "--metrics", &tcp, &own_runs], &tcp),
        (&["match", "--metrics", &tcp, &own_runs], &tcp),
        (&["bots", "--players=9", "--connect", "127.0.0.1:0"], "127.0.0.1:0 is not an address"),
        (&["crowd", "--players=9", "--store", &file, &own_runs], "not a directory"),
        (&["serve", "--listen=127.0.0.1:0", "--snapshot", &file, &own_runs], "no snapshot"),
        (&["serve", "--listen=127.0.0.1:0", "--snapshot", &below, &own_runs], "cannot read the snapshot"),
        (&["serve", "--listen=127.0.0.1:0", "--snapshot=/nowhere/x", &own_runs], "cannot write snapshots"),
    ] {
        let text = complaint(arguments, 2);
        assert!(text.contains(words) && text.lines().count() == 1, "{arguments:?}: {text}");
    }
    drop(taken);
    let left: Vec<_> = std::fs::read_dir(&runs).map(|runs| runs.flatten().collect()).unwrap_or_default();
    assert!(left.is_empty(), "a command that did not begin leaves no run: {left:?}");
}

#[test]
fn a_number_beyond_its_range_is_refused_with_the_option_and_the_range() {
    for (arguments, words) in [
        (&["crowd", "--players", "1e9"][..], "'--players <N>': a whole number is expected"),
        (&["match", "--hz", "0"], "'--hz <HZ>': a whole number from 10 to 1000 is expected"),
        (&["match", "--rounds", "101"], "'--rounds <N>': a whole number from 1 to 100 is expected"),
        (&["match", "--buy-seconds", "nan"], "'--buy-seconds <S>': a number from 0.1 to 3600 is expected"),
        (&["match", "--threads", "257"], "'--threads <T>': a whole number from 1 to 256 is expected"),
        (&["match", "--timer-slack", "1000000001"], "a whole number from 0 to 1000000000 is expected"),
        (&["lab", "search", "ai", "--most", "0"], "'--most <N>': a whole number of at least 1 is expected"),
        (&["lab", "soak", "ai", "--hours", "25"], "'--hours <H>': a number from 0.001 to 24 is expected"),
        (&["lab", "trend", "--least", "-1"], "unexpected argument"),
        (&["lab", "trend", "--least=101"], "a number from 0 to 100 is expected"),
        (&["ai-server", "--hold", "inf"], "a number from 0.3 to "),
    ] {
        let text = complaint(arguments, 2);
        assert!(text.contains(words), "{arguments:?}: {text}");
    }
}

#[test]
fn a_folder_without_figures_is_told_of_and_is_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().display().to_string();
    let unfinished = folder.path().join("20260131-120000-crowd");
    std::fs::create_dir(&unfinished).unwrap();
    std::fs::create_dir(folder.path().join("something")).unwrap();
    let refused = complaint(&["report", &unfinished.display().to_string()], 2);
    assert!(refused.contains("has no summary.json") && refused.contains("or was killed"), "{refused}");
    for command in [["lab", "runs", &runs], ["lab", "report", &runs]] {
        let output = throng(&command);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(text.contains("note: 1 folder without figures"), "{command:?}: {text}");
    }
}

#[test]
fn bots_refuse_a_target_that_is_not_on_this_machine() {
    let refusal = complaint(&["bots", "--connect", "192.0.2.1:7777"], 2);
    assert!(refusal.contains("--i-own-this-target") && !refusal.contains('\n'), "{refusal}");
}

fn an_address_that_does_not_answer_is_said_so() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let output = throng(&["bots", "--connect", &address, "--players", "3"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let last = text.lines().last().unwrap_or_default();
    assert!(last.contains(&address) && last.contains("does not answer"), "{text}");
}

/// The state by field is a part of the bytes by purpose, and the clients that fare worst are some of the bots.
fn check_bytes_and_clients(summary: &Value) {
    let fields = summary["fields"].as_array().unwrap();
    let by_field: f64 = fields.iter().map(|field| field["bytes_per_s"].as_f64().unwrap()).sum();
    let sent = &summary["client"]["bytes_per_s"];
    let state = sent["object"].as_f64().unwrap() + sent["resend"].as_f64().unwrap();
    // The decoding bots are not all bots, and their second is not exactly the server's. The rest, half of it where a segment
    // has few entries, are the heads of pieces and segments, and departures.
    assert!((0.35 * state..1.2 * state).contains(&by_field), "{by_field} of {state}: {fields:#?}");
    assert!(fields.iter().any(|field| field["kind"] == "Character" && field["field"] == "position"), "{fields:#?}");
    let worst = summary["worst_clients"].as_array().unwrap();
    assert!(worst.iter().filter(|of| of["because"] == "most data").count() == 5, "{worst:#?}");
    assert!(worst.iter().all(|of| of["client"].as_u64().is_some_and(|client| client < 30)), "{worst:#?}");
    assert!(summary["server"]["measuring_us_per_tick"].as_f64().is_some_and(|us| us > 0.0));
}

fn a_run_leaves_a_summary_and_a_report() {
    let runs = tempfile::tempdir().unwrap();
    let folder = runs.path().to_str().unwrap();
    let store = tempfile::tempdir().unwrap();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let files = tempfile::tempdir().unwrap();
    let [junit, markdown] = ["limits.xml", "limits.md"].map(|name| files.path().join(name));
    // Those of an earlier run are overwritten.
    for path in [&junit, &markdown] {
        std::fs::write(path, "errors=\"1\"\n".repeat(1_000)).unwrap();
    }
    let further = [
        &["--trace", "--store", store.path().to_str().unwrap(), "--metrics", &address][..],
        &["--limit", "server.frame_ms.p99<=0.0001", "--limit", "bots.connected>=30"],
        &["--junit", junit.to_str().unwrap(), "--markdown", markdown.to_str().unwrap()],
    ]
    .concat();
    let times = ["--seconds", "2", "--warmup", "1", "--runs", folder, "--json", "--quiet"];
    let (output, scraped) = std::thread::scope(|scope| {
        let scraped = scope.spawn(|| scraped(&address));
        (throng(&[&["crowd", "--players", "30"], &times[..], &further].concat()), scraped.join().unwrap())
    });
    check_metrics(&scraped);
    let complaints = String::from_utf8_lossy(&output.stderr);
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {complaints}"));
    assert_eq!(summary["scenario"], "crowd");
    assert_eq!(summary["players"], 30);
    assert_eq!(summary["bots"]["connected"], 30, "{complaints}");
    assert_eq!(summary["bots"]["state_mismatches"], 0);
    check_bytes_and_clients(&summary);
    assert_eq!(summary["client"]["known_objects"]["p50"], 30.0);
    // The figures of a debug build are never valid, and the run says that.
    assert_eq!(output.status.code(), Some(if cfg!(debug_assertions) { 3 } else { 0 }), "{summary}");
    has_samples_of("crowd", &summary);
    let sum = |name: &str| -> u64 {
        summary["samples"][name].as_array().expect("a list").iter().filter_map(serde_json::Value::as_u64).sum()
    };
    let due = summary["server"]["ticks"].as_u64().zip(summary["server"]["missed_ticks"].as_u64());
    let due = due.map(|(ticks, missed)| ticks + missed).expect("numbers");
    // All ticks of whole seconds: the last second may be cut off.
    assert!((due.saturating_sub(45)..=due).contains(&sum("frames")) && sum("late") <= sum("frames"), "{summary}");
    let run =
        std::fs::read_dir(runs.path()).unwrap().flatten().map(|entry| entry.path()).find(|path| path.is_dir()).unwrap();
    crate::schema::check("crowd", &summary);
    check_samples(&run, &summary);
    let stored = store.path().join(run.file_name().unwrap());
    check_limits(&run, [&junit, &markdown].map(|path| std::fs::read_to_string(path).unwrap()));
    for file in ["summary.json", "frames.parquet", "trace.json", "report.html", "limits.json"] {
        assert!(std::fs::read(stored.join(file)).unwrap() == std::fs::read(run.join(file)).unwrap(), "{file}");
    }
    let index = std::fs::read_to_string(store.path().join("index.jsonl")).unwrap();
    let line: Value = serde_json::from_str(&index).unwrap();
    assert_eq!(line["workload"], "crowd 30 at 30 Hz, rings 9/2 49/8 150/40");
    let compared = throng(&["lab", "compare", folder, store.path().to_str().unwrap(), "--json"]);
    let words = String::from_utf8_lossy(&compared.stderr);
    // A run of a debug build is never compared.
    assert!(compared.status.success() || words.contains("no valid run"), "{words}");
    check_folder(&run);
}

/// The verdicts are in the run's folder, on its page, and in the files for build servers. The figures of a debug build are not valid.
fn check_limits(run: &Path, [junit, markdown]: [String; 2]) {
    let verdicts: Value = serde_json::from_str(&std::fs::read_to_string(run.join("limits.json")).unwrap()).unwrap();
    let of =
        |number: usize| (verdicts["limits"][number]["metric"].as_str(), verdicts["limits"][number]["verdict"].as_str());
    assert_eq!(of(0), (Some("server.frame_ms.p99"), Some("missed")));
    assert_eq!(of(1), (Some("bots.connected"), Some("kept")));
    let page = std::fs::read_to_string(run.join("report.html")).unwrap();
    assert!(page.contains("The first 2 limits are those that were set for this run."), "they are on the page");
    assert!(junit.contains("failures=\"1\"") && junit.contains("name=\"bots.connected\""), "{junit}");
    assert_eq!(junit.contains("errors=\"1\""), cfg!(debug_assertions), "{junit}");
    assert!([&junit, &markdown].into_iter().all(|text| text.lines().count() < 1_000), "{junit}{markdown}");
    assert!(markdown.contains("| bots.connected | ≥ 30 bots | 30 bots | kept |"), "{markdown}");
}

/// The metrics of the crowd as soon as there are frames of its measured part.
fn scraped(address: &str) -> String {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = ureq::get(format!("http://{address}/metrics")).call();
        let text = answer.and_then(|mut page| page.body_mut().read_to_string()).unwrap_or_default();
        if text.contains("throng_subsystem_seconds_count{subsystem=\"send\"}") {
            return text;
        }
        assert!(Instant::now() < until, "there are no metrics of frames: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn check_metrics(text: &str) {
    let value = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
    };
    assert_eq!(value("throng_crowd_connections"), 30.0);
    assert!(value("throng_crowd_sent_bytes_total") > value("throng_crowd_sent_packets_total"), "{text}");
    assert!(value("throng_frame_seconds_count") > 0.0);
    let page = include_str!("../../../docs/telemetry.md");
    for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(page.contains(&format!("| `{name}` |")), "docs/telemetry.md does not explain {name}");
    }
}

/// The trace has the frames of the summary by subsystem, and the table has those of the trace.
fn check_samples(run: &Path, summary: &Value) {
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(run.join("trace.json")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let frames: Vec<&Value> = events.iter().filter(|event| event["name"] == "frame").collect();
    assert_eq!(frames.len() as u64, summary["server"]["ticks"].as_u64().unwrap());
    let seconds = throng_telemetry::read_seconds(&run.join("frames.parquet")).unwrap();
    let per_connection = summary["server"]["us_per_connection"].as_object().unwrap();
    let connections = summary["server"]["connections"].as_f64().unwrap();
    for (name, mean_us) in per_connection.iter().filter(|(name, _)| *name != "total") {
        let mut by_second = BTreeMap::<u64, Vec<f64>>::new();
        for frame in &frames {
            let second = frame["ts"].as_f64().unwrap() as u64 / 1_000_000;
            let us = frame["args"]["self_us"][name.as_str()].as_f64().unwrap_or(0.0);
            by_second.entry(second).or_default().push(us);
        }
        let sum_us = by_second.values().flatten().sum::<f64>();
        let (mean_us, of_trace_us) = (mean_us.as_f64().unwrap(), sum_us / frames.len() as f64 / connections);
        assert!((of_trace_us - mean_us).abs() <= 0.01 * mean_us + 0.001, "{name}: {of_trace_us} and {mean_us}");
        let means_ns = by_second.values().map(|us| us.iter().sum::<f64>() * 1e3 / us.len() as f64);
        let mut pairs = means_ns.zip(seconds[name].iter().copied());
        assert!(pairs.all(|(trace, table)| (trace - table).abs() <= 1.0 + 1e-6 * trace), "{name}: {seconds:?}");
        assert_eq!(by_second.len(), seconds[name].len());
        if ["simulate", "encode", "send"].contains(&name.as_str()) {
            let spans = events.iter().filter(|event| event["name"] == **name).count();
            assert!(spans > frames.len() / 2, "{name}: {spans} spans");
        }
    }
}

fn chests_are_compared_while_they_change() {
    let runs = tempfile::tempdir().unwrap();
    let folder = runs.path().to_str().unwrap();
    let scenario = ["crowd", "--scenario", "sparse-10", "--players", "5", "--idle-objects", "20"];
    let times = ["--seconds", "2", "--warmup", "1", "--runs", folder, "--json", "--quiet"];
    let output = throng(&[&scenario[..], &times].concat());
    let complaints = String::from_utf8_lossy(&output.stderr);
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {complaints}"));
    assert_eq!(summary["bots"]["mismatches_in_play"], 0, "{complaints}");
    let compared = summary["bots"]["compared_in_play"].as_u64().expect("a number");
    assert!(compared > 55, "more than each character and chest once: {compared}");
}

fn check_folder(run: &Path) {
    let page = std::fs::read_to_string(run.join("report.html")).unwrap();
    assert!(page.contains("<html") && !page.contains("http-equiv=\"refresh\""));
    assert!(!page.contains("src=\"http"), "the report must open without a network");
    std::fs::remove_file(run.join("report.html")).unwrap();
    let rebuilt = throng(&["report", run.to_str().unwrap(), "--table"]);
    assert!(rebuilt.status.success());
    assert!(run.join("report.html").is_file());
    assert!(String::from_utf8_lossy(&rebuilt.stdout).contains("30 players"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_bench_that_is_killed_leaves_no_gateway() {
    let runs = tempfile::tempdir().unwrap();
    let mut bench = Command::new(env!("CARGO_BIN_EXE_throng"))
        .args("gateway-bench single --clients 2 --seconds 600 --quiet --runs".split(' '))
        .arg(runs.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let is_gateway = |id: &u32| {
        let words = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1) == Some(b"gateway")
    };
    let gateway = loop {
        // All three are there.
        let started = children(bench.id());
        if let Some(gateway) = started.iter().find(|id| is_gateway(id)).filter(|_| started.len() >= 3) {
            break *gateway;
        }
        if Instant::now() > until || bench.try_wait().unwrap().is_some() {
            let _ = bench.kill();
            panic!("the bench does not begin");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    bench.kill().unwrap();
    bench.wait().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while is_gateway(&gateway) {
        assert!(Instant::now() < until, "the gateway is left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_bisection_that_is_interrupted_twice_leaves_neither_its_command_nor_its_work_tree() {
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let repository = folder.path().join("repository");
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.arg("-C").arg(&repository).args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments);
        let output = git.output().expect("git starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    std::fs::create_dir(&repository).unwrap();
    git(&["init", "--quiet"]);
    (0..3).for_each(|number| drop(git(&["commit", "--quiet", "--allow-empty", "-m", &number.to_string()])));
    let told = folder.path().join("told");
    // It does not end when it is asked to.
    let run = format!("trap '' INT; echo $$ > {}; while :; do sleep 0.05; done", told.display());
    let mut bisect = Command::new(env!("CARGO_BIN_EXE_throng"))
        .args(["lab", "bisect", "--good", "HEAD~2", "--bad", "HEAD", "--run", &run, "--repository"])
        .arg(&repository)
        .env("TMPDIR", &temporary)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let command = loop {
        let id = std::fs::read_to_string(&told).ok().and_then(|text| text.trim().parse::<u32>().ok());
        if let Some(id) = id {
            break id;
        }
        if Instant::now() > until || bisect.try_wait().unwrap().is_some() {
            let _ = bisect.kill();
            panic!("the bisection does not begin");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(git(&["worktree", "list"]).lines().count() == 2);
    for _ in 0..2 {
        let _ = Command::new("kill").args(["-INT", &bisect.id().to_string()]).status();
        // Sooner, the second one would belong to the first.
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(bisect.wait().unwrap().code(), Some(130));
    assert_eq!(git(&["worktree", "list"]).lines().count(), 1, "a work tree is left");
    let left: Vec<_> = std::fs::read_dir(&temporary).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{left:?} is left");
    while Path::new(&format!("/proc/{command}")).exists() {
        assert!(Instant::now() < until, "the command goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn an_interrupted_run_still_writes_its_report() {
    let runs = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_throng"))
        .args(["crowd", "--players", "10", "--seconds", "600", "--quiet", "--runs", runs.path().to_str().unwrap()])
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while !handles(child.id(), SIGINT) || children(child.id()).is_empty() {
        assert!(Instant::now() < until, "the run does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    // The bots are there. The run is interrupted a second later, at any point of its work.
    std::thread::sleep(Duration::from_secs(1));
    // As a terminal does: to the whole group, the bots' process included if it is one of it.
    let group = format!("-{}", child.id());
    let interrupted = Command::new("kill").args(["-INT", "--", &group]).status().unwrap();
    assert!(interrupted.success());
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < until, "the run goes on after an interrupt");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(status.code(), Some(3), "an interrupted run is not valid");
    let run = std::fs::read_dir(runs.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.is_dir())
        .expect("a folder");
    assert!(run.join("summary.json").is_file() && run.join("report.html").is_file());
    throng_telemetry::read_seconds(&run.join("frames.parquet")).expect("it has an end");
}

fn a_run_that_is_killed_leaves_its_samples() {
    let runs = tempfile::tempdir().unwrap();
    let folder = runs.path().to_str().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_throng"))
        .args(["crowd", "--players", "10", "--seconds", "600", "--warmup", "0", "--quiet", "--runs", folder])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let seconds = || {
        let run = std::fs::read_dir(runs.path()).ok()?.next()?.ok()?.path();
        throng_telemetry::read_seconds(&run.join("frames.parquet")).ok()?.remove("send")
    };
    let until = Instant::now() + Duration::from_secs(60);
    while seconds().is_none_or(|seconds| seconds.len() < 5) {
        assert!(Instant::now() < until, "there are no samples");
        std::thread::sleep(Duration::from_millis(100));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(seconds().is_some_and(|seconds| seconds.len() >= 5), "the file can be read");
    let run = std::fs::read_dir(runs.path()).unwrap().next().unwrap().unwrap().path();
    let lines = std::fs::read_to_string(run.join("seconds.jsonl")).unwrap();
    // The last one may be half written.
    let written = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let connections: Vec<f64> = written.filter_map(|second| second["connections"].as_f64()).collect();
    assert!(connections.len() >= 4 && connections.last() == Some(&10.0), "{lines}");
}

#[test]
fn programs_that_take_their_time_end_as_they_should() {
    beside_each_other(&[
        // The longest ones first.
        &crate::players::players_come_and_go_while_a_run_plays,
        &crate::serving::a_server_keeps_the_report_of_bots_that_have_left_and_of_those_that_died,
        &crate::serving::load_workers_with_other_clocks_tell_the_ages_that_bots_beside_the_server_have,
        &crate::players::everybody_is_served_again_after_the_faults_of_a_run,
        &an_address_that_does_not_answer_is_said_so,
        // One after the other: with more at a time, the machine is too busy for states to be compared in play.
        &|| {
            a_run_leaves_a_summary_and_a_report();
            crate::players::a_server_that_is_cut_off_from_nats_serves_its_players_afterwards();
        },
        &|| {
            chests_are_compared_while_they_change();
            crate::serving::a_server_that_is_killed_goes_on_with_the_characters_of_its_snapshot();
        },
        &an_interrupted_run_still_writes_its_report,
        &a_run_that_is_killed_leaves_its_samples,
        &crate::players::a_run_without_its_bots_leaves_what_was_measured,
        &crate::players::a_full_disk_takes_no_figures_away,
        &crate::players::clients_of_edges_have_the_state_of_all_servers,
        &crate::players::servers_and_edges_that_meet_at_nats_alone_outlive_its_absence,
        &crate::players::an_edge_and_a_server_that_are_killed_are_named,
        &crate::players::a_server_that_is_killed_and_starts_again_has_players_again,
        &crate::players::a_slow_disk_holds_nobody_up_and_clients_of_a_slow_consumer_are_served_again,
        &crate::players::a_staircase_has_the_figures_of_each_level,
        &crate::serving::a_load_worker_that_dies_is_named_and_the_others_have_their_figures,
        &crate::serving::load_workers_play_for_those_who_know_the_key_and_against_ones_own_addresses_alone,
        &crate::serving::load_workers_are_found_by_name_at_a_nats_server,
        &crate::lab::a_soak_tells_growing_memory_from_steady_memory,
        &crate::lab::a_measurement_goes_on_when_its_files_cannot_be_written,
        &crate::compare::a_comparison_leaves_a_table_a_file_and_a_page,
    ]);
}
