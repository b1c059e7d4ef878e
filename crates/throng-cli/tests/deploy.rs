//! The files of `deploy/` use only flags and metrics that the gateway has, and `throng top` shows them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::lines::{Gateway, NOBODY, page};
use serde_json::Value;
use throng_channeld::client::{Client, ClientOptions};
use throng_channeld::{Header, message_type};
use throng_gateway::settings;

const PATIENCE: Duration = Duration::from_secs(20);

/// Metrics of others: Prometheus' own, and those that Unreal servers have beside the gateway's.
const OTHERS: [&str; 4] = ["up", "ALERTS", "ue_server_fps", "ue_handovers"];

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(deploy(path)).unwrap_or_else(|error| panic!("deploy/{path}: {error}"))
}

fn dashboard() -> Value {
    serde_json::from_str(&read("helm/files/grafana/dashboards/gateway.json")).expect("the dashboard is JSON")
}

/// The paths of the repository that the image is built from, from the folder with them.
fn sent_to_the_builder() -> Vec<PathBuf> {
    let ignored = read("Dockerfile.dockerignore");
    let sent: Vec<PathBuf> = ignored.lines().filter_map(|line| line.strip_prefix('!')).map(PathBuf::from).collect();
    assert!(ignored.lines().any(|line| line == "*") && !sent.is_empty(), "it names what is sent");
    sent
}

#[test]
fn the_image_is_built_from_all_members_and_all_files_that_are_in_the_program() {
    let repository = deploy("..").canonicalize().expect("it is here");
    let context = tempfile::tempdir().expect("a folder");
    let sent = sent_to_the_builder();
    for path in &sent {
        let place = context.path().join(path);
        fs::create_dir_all(place.parent().expect("it is in the context")).expect("the folder is ours");
        std::os::unix::fs::symlink(repository.join(path), place).expect("the folder is ours");
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"]).current_dir(context.path());
    let answer = cargo.output().expect("cargo runs the tests");
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));

    let mut included = 0;
    let mut folders = vec![repository.join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            let is_source = entry.components().any(|part| part.as_os_str() == "src");
            if entry.is_dir() && !entry.ends_with("target") {
                folders.push(entry);
            } else if is_source && entry.extension().is_some_and(|end| end == "rs") && !entry.ends_with("tests.rs") {
                for file in files_in_the_program(&fs::read_to_string(&entry).expect("it is text")) {
                    let file = folder.join(file).canonicalize().expect("it is there");
                    let file = file.strip_prefix(&repository).expect("it is ours");
                    assert!(
                        sent.iter().any(|path| file.starts_with(path)),
                        "{} needs {}",
                        entry.display(),
                        file.display()
                    );
                    included += 1;
                }
            }
        }
    }
    assert!(included > 20, "the search finds them: {included}");
}

/// The paths that a source file includes, without those of its documents and of tests, which stand last.
fn files_in_the_program(text: &str) -> Vec<&str> {
    let program = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = program.lines().filter(|line| !line.trim_start().starts_with("//"));
    let paths =
        lines.flat_map(|line| line.split("include_str!(\"").skip(1).chain(line.split("include_bytes!(\"").skip(1)));
    paths.filter_map(|rest| rest.split('"').next()).collect()
}

/// A gateway, where its clients and its pages are.
struct Deployed {
    _process: Gateway,
    clients: SocketAddr,
    http: SocketAddr,
}

impl Deployed {
    fn start() -> Deployed {
        let mut process = Gateway::start(&["-dev", "-cwm=false"]);
        let clients = process.address("listening for clients (tcp) at ");
        let http = process.address("health and metrics at http://");
        Deployed { _process: process, clients, http }
    }

    fn metrics(&self) -> String {
        let answer = page(self.http, "/metrics");
        let (_, page) = answer.split_once("\r\n\r\n").expect("a page follows the header");
        page.to_owned()
    }

    /// Sends what the gateway drops, so that the page has a reason to name.
    fn be_refused(&self) {
        let deadline = Instant::now() + PATIENCE;
        let mut client = Client::connect(self.clients, ClientOptions::default()).expect("the door is open");
        client.authenticate("ada", "", deadline).expect("everybody may come in");
        client.send_bytes(Header::new(4_711, message_type::UNREAL_RPC), b"to a channel that is not there").unwrap();
        while !self.metrics().contains("gateway_drops_total{") {
            assert!(Instant::now() < deadline, "nothing was dropped:\n{}", self.metrics());
        }
    }
}

/// The names of a page's samples.
fn names_of_page(page: &str) -> BTreeSet<String> {
    let samples = page.lines().filter(|line| line.starts_with(|letter: char| letter.is_ascii_lowercase()));
    samples.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect()
}

/// The metrics that a query asks for: words that are no functions, labels, strings, durations or operators.
fn names_of_query(query: &str) -> BTreeSet<String> {
    const OPERATORS: [&str; 9] = ["and", "or", "unless", "by", "without", "on", "ignoring", "offset", "bool"];
    let mut names = BTreeSet::new();
    let mut rest = query;
    while let Some(at) = rest.find(|letter: char| !letter.is_ascii_whitespace()) {
        rest = &rest[at..];
        let end = rest.find(|letter: char| !(letter.is_ascii_alphanumeric() || "_:.$".contains(letter)));
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        let skipped = match word {
            "" if rest.starts_with('{') => rest.find('}').expect("braces are closed") + 1,
            "" if rest.starts_with('[') => rest.find(']').expect("brackets are closed") + 1,
            "" => 1,
            "by" | "without" | "on" | "ignoring" => rest.find(')').expect("lists of labels are closed") + 1,
            _ => word.len(),
        };
        let is_word = word.starts_with(|letter: char| letter.is_ascii_alphabetic());
        let is_function = ["(", "by "].iter().any(|next| after.trim_start().starts_with(next));
        if is_word && !is_function && !OPERATORS.contains(&word) {
            names.insert(word.to_owned());
        }
        rest = &rest[skipped..];
    }
    names
}

/// The texts of all `expr` keys, with where they are.
fn queries_of_json(value: &Value, place: &str, queries: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            let place = members.get("title").and_then(Value::as_str).unwrap_or(place);
            for (key, member) in members {
                match member.as_str().filter(|_| key == "expr") {
                    Some(query) => queries.push((place.to_owned(), query.to_owned())),
                    None => queries_of_json(member, place, queries),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| queries_of_json(item, place, queries)),
        _ => {}
    }
}

/// The texts of all `expr` keys of the rules: on one line, or below a `|`, deeper than the key.
fn queries_of_rules(text: &str) -> Vec<(String, String)> {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let mut queries = Vec::new();
    let mut lines = text.lines().peekable();
    let mut alert = String::new();
    while let Some(line) = lines.next() {
        if let Some(name) = line.trim().strip_prefix("- alert: ") {
            alert = name.to_owned();
        }
        let Some(query) = line.trim().strip_prefix("expr: ") else { continue };
        let mut query = query.trim_start_matches('|').to_owned();
        while let Some(more) = lines.next_if(|next| query.is_empty() || depth(next) > depth(line)) {
            query = format!("{query} {}", more.trim());
        }
        queries.push((alert.clone(), query));
    }
    queries
}

#[test]
fn dashboards_and_alerts_ask_for_metrics_that_the_gateway_has() {
    let gateway = Deployed::start();
    gateway.be_refused();
    let known = names_of_page(&gateway.metrics());
    let mut queries = queries_of_rules(&read("helm/files/prometheus/rules.yaml"));
    assert_eq!(queries.len(), 18);
    queries_of_json(&dashboard(), "", &mut queries);
    assert!(queries.len() > 40, "{}", queries.len());
    let mut asked = BTreeSet::new();
    for (place, query) in &queries {
        let names = names_of_query(query);
        assert!(!names.is_empty(), "{place} asks for nothing: {query}");
        for name in names {
            assert!(known.contains(&name) || OTHERS.contains(&name.as_str()), "{place}: there is no {name}");
            asked.insert(name);
        }
    }
    let of_histograms = |name: &str| name.ends_with("_sum") || name.ends_with("_count");
    let unseen: Vec<&String> = known.difference(&asked).filter(|name| !of_histograms(name)).collect();
    assert!(unseen.is_empty(), "nobody looks at {unseen:?}");
}

#[test]
fn the_dashboard_has_the_panels_that_users_of_channeld_know_and_more() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("there are panels");
    let titles: Vec<&str> = panels.iter().filter_map(|panel| panel["title"].as_str()).collect();
    let known = ["Connections", "Channels", "CPU", "Channel tick (ms)", "Server FPS", "Handovers", "Messages", "Bytes"];
    let more = ["Packets", "Fragmented packets", "Combined packets", "Memory"];
    let ours = ["Fan-out lag histogram", "Drops by reason", "Queue depth", "Turns of channels (p99)"];
    for title in known.iter().chain(&more).chain(&ours) {
        assert!(titles.contains(title), "no panel {title:?} among {titles:?}");
    }
    let lag = panels.iter().find(|panel| panel["title"] == "Fan-out lag histogram").unwrap();
    assert_eq!((&lag["type"], &lag["targets"][0]["format"]), (&"heatmap".into(), &"heatmap".into()));
    let ids: BTreeSet<u64> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
}

/// The rest of the first line that begins with a key.
fn value(text: &str, key: &str) -> String {
    let value = text.lines().find_map(|line| line.trim().strip_prefix(key));
    value.unwrap_or_else(|| panic!("there is no {key:?}")).to_owned()
}

/// The file of the chart that a pod has at `path`.
fn settings_file(path: &str) -> PathBuf {
    deploy("helm/files/settings").join(path.rsplit('/').next().unwrap_or_default())
}

/// The flags in a YAML list: `- "-dev"`.
fn flags(text: &str) -> Vec<String> {
    let flag = |line: &str| Some(line.trim().strip_prefix("- \"-")?.strip_suffix('"')?.to_owned());
    let flags = text.lines().filter_map(flag).filter(|flag| !flag.starts_with('-'));
    flags.map(|flag| format!("-{flag}")).collect()
}

#[test]
fn the_gateway_takes_the_flags_and_files_that_it_is_deployed_with() {
    let values = read("helm/values.yaml");
    let login = format!("-auth={}", value(&values, "provider: ").trim_matches('"'));
    let counts = [("compose.yaml", 12), ("helm/templates/gateway.yaml", 14), ("helm/templates/edges.yaml", 8)];
    for (file, count) in counts {
        let mut flags = flags(&read(file));
        assert_eq!(flags.len(), count, "{file}: {flags:?}");
        match file {
            "helm/templates/gateway.yaml" => flags.push(login.clone()),
            "helm/templates/edges.yaml" => flags.push("-home=throng-main-edges:11290".to_owned()),
            _ => {}
        }
        let open = |path: &str| fs::read(settings_file(path));
        let settings = settings::load_with(&flags, &open).unwrap_or_else(|error| panic!("{file}: {error}"));
        // Ports that listen on all interfaces of a container are published on loopback only.
        let notes = settings.notes.iter().map(ToString::to_string).filter(|note| !note.contains("accepts every login"));
        assert_eq!(notes.collect::<Vec<_>>(), [""; 0], "{file}");
        assert_eq!(settings.engine.limits.max_connections, 4_000, "{file} does not name the file of limits");
        let grace_s: u32 = match file {
            "compose.yaml" => value(&read(file), "stop_grace_period: ").trim_end_matches('s').parse(),
            _ => value(&values, "graceSeconds: ").parse(),
        }
        .expect("a number of seconds");
        let wait_s: u32 = if file == "compose.yaml" { 0 } else { value(&values, "preStopSeconds: ").parse().unwrap() };
        let end_ms = wait_s * 1_000 + settings.engine.limits.lame_duck_ms + settings.engine.limits.drain_ms;
        assert!(end_ms < grace_s * 1_000, "{file} does not leave the time to drain");
    }
}

/// Peers may use three quarters of what the pod has (`max_memory_bytes` is 0), and clients seven eighths of that. That this is
/// what the process then uses, a test of the gateway's memory shows; here the settings have to fit into it.
#[test]
fn what_the_pods_settings_promise_fits_into_its_memory() {
    /// Bytes that the gateway counts for a silent connection of its most expensive transport.
    const CONNECTION_BYTES: u64 = 32 << 10;
    /// Bytes that an event that waits for the engine may hold.
    const EVENT_BYTES: u64 = 2 << 10;
    let values = read("helm/values.yaml");
    let gibibytes = values.lines().find_map(|line| line.trim().strip_prefix("memory: ")?.strip_suffix("Gi"));
    let memory_bytes = gibibytes.expect("a limit").parse::<u64>().expect("a number") << 30;
    let mut flags = flags(&read("helm/templates/gateway.yaml"));
    flags.push("-auth=all".to_owned());
    let limits = settings::load_with(&flags, &|path: &str| fs::read(settings_file(path))).expect("sound").engine.limits;
    assert_eq!(limits.max_memory_bytes, 0, "it follows the pod's limit");
    let connections = u64::from(limits.max_connections) * (CONNECTION_BYTES + u64::from(limits.queue_soft_bytes));
    let inbound = u64::from(limits.max_inbound_events) * EVENT_BYTES;
    let promised_bytes = limits.max_total_state_bytes + connections + inbound;
    let for_clients_bytes = memory_bytes / 4 * 3 / 8 * 7;
    assert!(promised_bytes <= for_clients_bytes, "{} of {} MiB", promised_bytes >> 20, for_clients_bytes >> 20);
}

/// `--help` after the flags: the command looks at them first, and says which one it does not know.
#[test]
fn the_fleet_starts_matches_with_flags_that_the_command_has() {
    let line = value(&read("helm/values.yaml"), "args: ");
    let arguments: Vec<String> = serde_json::from_str(&line).expect("a list on one line");
    assert!(arguments.contains(&"--agones".to_owned()), "{arguments:?}");
    let said = |arguments: &[String]| {
        let output = Command::new(env!("CARGO_BIN_EXE_throng")).args(arguments).arg("--help").output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(said(&arguments), (Some(0), String::new()));
    let wrong = [&arguments[..], &["--no-such-flag".to_owned()]].concat();
    assert_eq!(said(&wrong).0, Some(2), "this test would see a wrong flag");
    let matches = arguments.iter().position(|argument| argument == "--matches").expect("it says how many");
    assert_eq!(arguments[matches + 1], value(&read("helm/values.yaml"), "matchesPerProcess: "), "counter and list");
    let metrics = arguments.iter().position(|argument| argument == "--metrics").expect("it has metrics");
    let port = value(&read("helm/values.yaml"), "metricsPort: ");
    assert!(arguments[metrics + 1].ends_with(&format!(":{port}")), "{arguments:?}");
}

/// As Kubernetes changes mounted files: new ones in a folder of their own, and then `..data` leads there.
#[cfg(unix)]
#[test]
fn a_gateway_reads_files_that_the_cluster_has_changed() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let turn_to = |version: &str, most: u32| {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("limits.json"), format!("{{\"max_connections\": {most}}}")).unwrap();
        symlink(version, at("..next")).unwrap();
        fs::rename(at("..next"), at("..data")).unwrap();
    };
    turn_to("first", 300);
    symlink("..data/limits.json", at("limits.json")).unwrap();
    let mut process = Command::new(env!("CARGO_BIN_EXE_throng"))
        .args(["gateway", "-dev", "-cwm=false", "-sa=127.0.0.1:0", "-ca=127.0.0.1:0", "-http=127.0.0.1:0"])
        .arg(format!("-limits={}", at("limits.json").display()))
        .stderr(Stdio::piped())
        .spawn()
        .expect("the gateway starts");
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("health and metrics at")), "the gateway starts");
    // Other tests have gateways too: this pidof, before the machine's, names ours alone.
    fs::write(at("pidof"), format!("#!/bin/sh\necho {}\n", process.id())).unwrap();
    fs::set_permissions(at("pidof"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap_or_default());
    let mut reload = Command::new("sh")
        .arg(deploy("helm/files/reload.sh"))
        .arg("0.1")
        .arg(folder.path())
        .env("PATH", path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let told = crate::lines::lines_of(reload.stdout.take().unwrap());
    // A change before its first look is none for it: then there is another one.
    let said = (0..20).find_map(|round| {
        turn_to(&format!("version-{round}"), 200 + round);
        told.recv_timeout(Duration::from_secs(2)).ok()
    });
    let said = said.map(|line| line.trim_end().to_owned());
    let _ = reload.kill();
    let _ = reload.wait();
    let is_read = lines.any(|line| line.contains("the settings were read again"));
    let _ = process.kill();
    let _ = process.wait();
    assert_eq!(said, Some(format!("the settings have changed: SIGHUP to {}", process.id())));
    assert!(is_read, "the gateway does not say that it has read its files again");
}

#[test]
fn top_prints_what_a_gateway_does() {
    let gateway = Deployed::start();
    gateway.be_refused();
    let url = format!("http://{}/metrics", gateway.http);
    let output = top(&["--metrics", &url, "--interval", "0.2", "--once"]);
    let text = String::from_utf8(output.stdout).expect("the output is text");
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for part in ["Gateway\n", "  GLOBAL         1\n", "  servers ", "  delivered/s    0\n", "unknown_channel"] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    let memory = text.lines().find(|line| line.trim().starts_with("memory")).expect("memory is a line");
    assert!(memory.ends_with("MiB"), "{memory}");
}

#[test]
fn top_says_that_there_is_no_gateway() {
    let output = top(&["--metrics", &format!("http://{NOBODY}/metrics"), "--once"]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains(&format!("no metrics of a gateway at http://{NOBODY}/metrics")), "{complaint}");
    let output = top(&[]);
    assert_eq!(output.status.code(), Some(2), "without a terminal and without --once");
}

fn top(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_throng")).arg("top").args(arguments).output().expect("the program starts")
}
