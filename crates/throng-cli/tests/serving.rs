//! A server and its bots as several commands, as on several machines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use throng_testkit::NatsServer;

use crate::lines::{SIGINT, lines_of};
use crate::schema;

const PATIENCE: Duration = Duration::from_secs(60);

fn throng(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throng"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// An address that nobody else takes: on a host of the machine's own network that no other process has, because it is made
/// of this one's number.
pub(crate) fn free_address() -> String {
    static PORTS: AtomicU16 = AtomicU16::new(30_000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    format!("127.{}.{middle}.{low}:{}", 128 | high, PORTS.fetch_add(1, Ordering::Relaxed))
}

/// A process that does not outlive the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal(process: &Child, signal: u32) {
    let sent = Command::new("kill").args([format!("-{signal}"), process.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn folders(runs: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(runs).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn summary(folder: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join("summary.json")).unwrap()).unwrap()
}

/// The server has the figures of both sides, also of bots that died in mid-run.
pub(crate) fn a_server_keeps_the_report_of_bots_that_have_left_and_of_those_that_died() {
    let runs = tempfile::tempdir().unwrap();
    let address = free_address();
    let serve = ["serve", "--listen", &address, "--players", "20", "--runs", runs.path().to_str().unwrap()];
    let mut server = Running(throng(&serve).spawn().unwrap());
    let said = lines_of(server.0.stderr.take().unwrap());
    let hear = |word: &str| {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = said.recv_timeout(left).unwrap_or_else(|error| panic!("{error}: nothing about {word}"));
            if line.contains(word) {
                return line;
            }
        }
    };
    hear("serving");
    let bots = ["bots", "--connect", &address, "--players", "20", "--warmup", "0", "--seconds"];
    let played = throng(&[&bots[..], &["2", "--json"]].concat()).output().unwrap();
    let report: Value = serde_json::from_slice(&played.stdout).unwrap();
    let page = hear("report: ");
    let folder = folders(runs.path()).pop().unwrap();
    assert!(page.contains(folder.to_str().unwrap()), "{page}");
    assert_eq!(report["kept_in"].as_str(), folder.file_name().unwrap().to_str());
    let whole = summary(&folder);
    // The server has kept the bots' figures, and the bots have compared their state with the server's.
    assert_eq!((&whole["bots"]["connected"], &whole["bots"]["state_mismatches"]), (&20.into(), &0.into()), "{whole:#}");
    assert!(report["bots"]["objects_compared"].as_u64().is_some_and(|objects| objects >= 200), "{report:#}");
    for figure in ["objects_compared", "cpu_cores", "inputs_sent_ratio", "input_delay_p99_ms"] {
        let [kept, told] = [&whole, &report].map(|of| of["bots"][figure].as_f64().unwrap());
        // The summary has six digits.
        assert!((kept - told).abs() <= told.abs() * 1e-5, "{figure}: {kept} of {told}");
    }
    assert_eq!(whole["neighbours"]["near"]["samples"], report["neighbours"]["near"]["samples"]);
    // They learn the truth at the end alone, and nobody holds that against the run.
    assert_eq!(whole["bots"]["without_truth_in_play"], true);
    assert!(!whole["invalid_reasons"].to_string().contains("while everything moved"), "{whole:#}");
    // 60 ticks in 2 s. On a machine that does other things too, fewer; more would be those of another time.
    assert!(whole["server"]["ticks"].as_u64().is_some_and(|ticks| (20..=75).contains(&ticks)), "{whole:#}");
    assert!(whole["server"]["frame_ms"]["p99"].as_f64() > Some(0.0) && folder.join("report.html").is_file());
    assert!(folder.join("frames.parquet").is_file());

    let mut dying = Running(throng(&[&bots[..], &["60"]].concat()).stderr(Stdio::null()).spawn().unwrap());
    hear("bots measure for 60 s");
    std::thread::sleep(Duration::from_millis(1_200));
    dying.0.kill().unwrap();
    dying.0.wait().unwrap();
    hear("report: ");
    let partial = summary(&folders(runs.path())[1]);
    assert_eq!(partial["bots"]["missing"], true);
    let reasons = partial["invalid_reasons"].to_string();
    assert!(reasons.contains("the bots left without a report"), "{reasons}");
    assert!(partial["server"]["ticks"].as_u64() > Some(20), "{partial:#}");

    // Two more than there are places.
    let many = ["bots", "--connect", &address, "--players", "22", "--warmup", "0", "--seconds", "1"];
    let refused = throng(&many).output().unwrap();
    let words = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{words}");
    assert!(words.contains("may not be quoted: 20 of 22 bots connected"), "{words}");

    signal(&server.0, SIGINT);
    assert!(server.0.wait().unwrap().success());
}

/// It is killed while its players play, and its next process has their characters as they were.
pub(crate) fn a_server_that_is_killed_goes_on_with_the_characters_of_its_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let (address, file) = (free_address(), folder.path().join("world.snapshot"));
    let [runs, file_name] = [folder.path(), &file].map(|path| path.to_str().unwrap().to_owned());
    let saved = ["--runs", &runs, "--snapshot", &file_name, "--snapshot-every", "1"];
    let serve = [&["serve", "--listen", &address, "--players", "10"][..], &saved].concat();
    let start = || {
        let mut server = Running(throng(&serve).spawn().unwrap());
        let said = lines_of(server.0.stderr.take().unwrap());
        (server, said)
    };
    let hear = |said: &Receiver<String>, words: &str| {
        let until = Instant::now() + PATIENCE;
        while !said.recv_timeout(until.saturating_duration_since(Instant::now())).unwrap().contains(words) {}
    };
    let bots = |seconds: &str| {
        let play = ["bots", "--connect", &address, "--players", "10", "--warmup", "0", "--seconds", seconds];
        Running(throng(&play).stderr(Stdio::null()).spawn().unwrap())
    };
    let (mut server, said) = start();
    hear(&said, "serving");
    let playing = bots("60");
    hear(&said, "10 connected");
    // The second one from now on was begun after all had come.
    let (mut since, until) = (SystemTime::now(), Instant::now() + PATIENCE);
    for _ in 0..2 {
        let newer = || fs::metadata(&file).and_then(|file| file.modified()).ok().filter(|at| *at > since);
        since = loop {
            if let Some(at) = newer() {
                break at;
            }
            assert!(Instant::now() < until, "there is no snapshot");
            std::thread::sleep(Duration::from_millis(20));
        };
    }
    server.0.kill().unwrap();
    server.0.wait().unwrap();
    drop(playing);
    let (mut server, said) = start();
    hear(&said, "10 characters wait for their players");
    assert!(bots("1").0.wait().unwrap().success());
    signal(&server.0, SIGINT);
    hear(&said, "10 players went on with their characters");
    assert!(server.0.wait().unwrap().success());
    // It is not written over a file that is something else.
    fs::write(&file, b"my diary").unwrap();
    let (mut server, said) = start();
    hear(&said, "cannot go on from");
    assert_eq!((server.0.wait().unwrap().code(), fs::read(&file).unwrap()), (Some(2), b"my diary".to_vec()));
}

/// A load worker, with its address.
struct Worker {
    process: Child,
    address: String,
}

impl Worker {
    fn start(arguments: &[&str]) -> Worker {
        let (process, line) = Worker::spawn(&[&["--listen", "127.0.0.1:0"], arguments].concat());
        let address = line.split_whitespace().nth(3).unwrap().trim_end_matches(';').to_owned();
        Worker { process, address }
    }

    /// One that is found by its name at a nats-server.
    fn on_bus(name: &str, arguments: &[&str]) -> Worker {
        let (process, line) = Worker::spawn(&[&["--name", name], arguments].concat());
        assert!(line.starts_with(&format!("load worker {name} at nats://")), "{line}");
        Worker { process, address: name.to_owned() }
    }

    /// Its process, and the first line that it says.
    fn spawn(arguments: &[&str]) -> (Child, String) {
        let mut process = throng(&[&["lab", "worker"], arguments].concat()).spawn().unwrap();
        let said = lines_of(process.stderr.take().unwrap());
        (process, said.recv_timeout(PATIENCE).unwrap())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn crowd_with_workers(runs: &Path, workers: &[&Worker], seconds: &str) -> Command {
    let addresses: Vec<&str> = workers.iter().map(|worker| worker.address.as_str()).collect();
    let mut command = throng(&["crowd", "--players", "40", "--warmup", "1", "--json", "--quiet", "--seconds", seconds]);
    command.args(["--workers", &addresses.join(","), "--runs"]).arg(runs);
    command
}

pub(crate) fn load_workers_with_other_clocks_tell_the_ages_that_bots_beside_the_server_have() {
    let runs = tempfile::tempdir().unwrap();
    let here = throng(&["crowd", "--players", "40", "--warmup", "1", "--seconds", "4", "--json", "--quiet", "--runs"])
        .arg(runs.path())
        .output()
        .unwrap();
    let here: Value = serde_json::from_slice(&here.stdout).unwrap();
    let workers = [Worker::start(&["--clock-ahead", "7000"]), Worker::start(&[])];
    let output = crowd_with_workers(runs.path(), &workers.each_ref(), "4").output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    let run: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {words}"));
    let bots = &run["bots"];
    assert_eq!(
        (&bots["connected"], &bots["disconnects"], &bots["decoded"]),
        (&40.into(), &0.into(), &10.into()),
        "{run:#}"
    );
    assert_eq!((&bots["state_mismatches"], &bots["mismatches_in_play"]), (&0.into(), &0.into()), "{bots}");
    assert!(bots["objects_compared"].as_u64() >= Some(400) && bots["compared_in_play"].as_u64() > Some(200), "{bots}");
    let of = |run: &Value, band: &str, what: &str| run["neighbours"][band]["age_ms"][what].as_f64().unwrap();
    for band in ["near", "middle"] {
        let [here, there] = [&here, &run].map(|run| of(run, band, "p50"));
        assert!((here - there).abs() < 25.0, "{band}: {here} ms here, {there} ms at load workers");
        assert!(of(&run, band, "p99") < 1_000.0, "{run:#}");
    }
    let told = run["workers"].as_array().unwrap();
    for (worker, ahead_ms) in told.iter().zip([7_000.0, 0.0]) {
        let number = |key: &str| worker[key].as_f64().unwrap();
        assert!((number("clock_offset_ms") - ahead_ms).abs() <= number("clock_error_ms"), "{worker}");
        assert!(number("clock_error_ms") < 30.0 && number("snapshots") > 10.0, "{worker}");
        assert_eq!(
            (number("connected"), &worker["missing"], &worker["ages_usable"]),
            (20.0, &false.into(), &true.into())
        );
    }
    assert!(run["series"]["seconds"]["near_age_p99_ms"].as_array().unwrap().iter().any(|age| age.as_f64() > Some(1.0)));
    schema::check("crowd", &run);
}

/// Where there is a nats-server: the words of run and load workers go over it, and the bots play over UDP.
pub(crate) fn load_workers_are_found_by_name_at_a_nats_server() {
    let Some(nats) = NatsServer::start(&[]) else { return };
    let (runs, key, nats) = (tempfile::tempdir().unwrap(), "0f".repeat(32), nats.address());
    let with_bus = ["--bus", &nats, "--key", &key];
    let workers = [
        Worker::on_bus("east", &[&with_bus[..], &["--clock-ahead", "7000"]].concat()),
        Worker::on_bus("west", &with_bus),
    ];
    // A second one of the same name gives up while the run plays.
    let second = throng(&[&["lab", "worker", "--name", "west"], &with_bus[..]].concat()).spawn().unwrap();
    let output = crowd_with_workers(runs.path(), &workers.each_ref(), "4").args(with_bus).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    let run: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {words}"));
    let bots = &run["bots"];
    assert_eq!((&bots["connected"], &bots["disconnects"]), (&40.into(), &0.into()), "{run:#}");
    assert_eq!((&bots["state_mismatches"], &bots["mismatches_in_play"]), (&0.into(), &0.into()), "{bots}");
    assert!(bots["objects_compared"].as_u64() >= Some(400) && bots["compared_in_play"].as_u64() > Some(200), "{bots}");
    for (index, name) in ["east", "west"].into_iter().enumerate() {
        let worker = &run["workers"][index];
        assert_eq!(
            (&worker["address"], &worker["missing"], &worker["connected"]),
            (&name.into(), &false.into(), &20.into())
        );
        assert!(worker["snapshots"].as_u64() > Some(10), "{worker}");
    }
    let ahead_ms = run["workers"][0]["clock_offset_ms"].as_f64().unwrap();
    assert!((6_900.0..7_100.0).contains(&ahead_ms), "{ahead_ms}");
    // Others may read the figures and the page, and may not know the key.
    for file in ["summary.json", "report.html"] {
        let kept = fs::read_to_string(folders(runs.path())[0].join(file)).unwrap();
        assert!(kept.contains("--key") && !kept.contains(&key), "{file}");
    }
    let refused = second.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("has the name west"), "{refused:?}");
    assert_eq!(refused.status.code(), Some(1));
    let said = |arguments: &[&str]| {
        let output = throng(&[&["crowd", "--players", "40", "--quiet"], arguments].concat()).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(said(&[&["--workers", "north"], &with_bus[..]].concat()).contains("no load worker north at nats://"));
    assert!(said(&["--workers", "east", "--key", &key]).contains("add --bus"));
    assert!(said(&["--workers", "east", "--bus", &nats]).contains("a --key of your own"));
    assert!(said(&[&["--workers", "127.0.0.1:9"], &with_bus[..]].concat()).contains("leave out --bus"));
    assert!(said(&["--workers", "n,o.rth"]).contains("--workers"));
}

pub(crate) fn a_load_worker_that_dies_is_named_and_the_others_have_their_figures() {
    let runs = tempfile::tempdir().unwrap();
    let mut workers = [Worker::start(&[]), Worker::start(&[])];
    let run = crowd_with_workers(runs.path(), &workers.each_ref(), "60").spawn().unwrap();
    let began =
        |folder: &PathBuf| fs::read_to_string(folder.join("seconds.jsonl")).is_ok_and(|text| text.lines().count() >= 2);
    let until = Instant::now() + PATIENCE;
    while !folders(runs.path()).first().is_some_and(began) {
        assert!(Instant::now() < until, "the run does not begin");
        std::thread::sleep(Duration::from_millis(100));
    }
    workers[1].process.kill().unwrap();
    let output = run.wait_with_output().unwrap();
    let run: Value = serde_json::from_slice(&output.stdout).unwrap();
    let reasons = run["invalid_reasons"].to_string();
    assert!(reasons.contains(&workers[1].address) && !reasons.contains(&workers[0].address), "{reasons}");
    assert_eq!(run["missing"], serde_json::json!([format!("load worker {}", workers[1].address)]));
    assert_eq!((&run["partial"], &run["bots"]["missing"]), (&true.into(), &false.into()), "{run:#}");
    assert_eq!((&run["workers"][0]["connected"], &run["workers"][1]["missing"]), (&20.into(), &true.into()));
    assert!(run["neighbours"]["middle"]["samples"].as_u64() > Some(10), "{}", run["neighbours"]);
}

pub(crate) fn load_workers_play_for_those_who_know_the_key_and_against_ones_own_addresses_alone() {
    let runs = tempfile::tempdir().unwrap();
    let key = "0f".repeat(32);
    let worker = Worker::start(&["--key", &key]);
    let refused = |arguments: &[&str], words: &str| {
        let output = crowd_with_workers(runs.path(), &[&worker], "1").args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{arguments:?}: {said}");
    };
    refused(&[], "with the same --key");
    // Another address of this machine is loopback, but an address of no machine is nobody's own.
    refused(&["--key", &key, "--address", "127.0.0.1", "--edges", "1"], "leave out --edges");
    refused(&["--key", &key, "--players", "0"], "--players");
    let listen = ["lab", "worker", "--listen", "192.0.2.1:7790"];
    let output = throng(&listen).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("a --key of your own"), "{output:?}");
    assert_eq!(output.status.code(), Some(2));
}
