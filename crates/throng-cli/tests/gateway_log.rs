//! The log of `throng gateway`, and its end.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::lines::{Gateway, page, wait_until_it_listens};
use throng_channeld::client::{Client, ClientOptions};

const PATIENCE: Duration = Duration::from_secs(20);

/// Each of the two that write a line asks the clock.
fn without_time(line: &str) -> &str {
    line.split_once(' ').map_or(line, |(_, rest)| rest)
}

#[test]
fn refusals_are_in_the_log_in_the_file_and_in_the_metrics_and_a_flood_of_them_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let (tokens, file) = (folder.path().join("tokens.json"), folder.path().join("gateway-{time}.log"));
    fs::write(&tokens, r#"{"tokens": {"ada": "secret"}}"#).expect("written");
    let mut gateway = Gateway::start(&[
        &format!("-auth=tokens:{}", tokens.display()),
        &format!("-logfile={}", file.display()),
        "-limit=max_failed_auth=0",
    ]);
    let clients = gateway.address("listening for clients (tcp) at ");
    let http = gateway.address("health and metrics at http://");
    let begin = Instant::now();
    let mut client = Client::connect(clients, ClientOptions::default()).expect("open");
    for _ in 0..200 {
        client.authenticate("ada\nWARN forged", "guess", Instant::now() + PATIENCE).expect_err("it is wrong");
    }
    let rest = gateway.wait_for("security: refused");
    assert!(rest.contains("side=\"CLIENT\"") && rest.contains("reason=\"login\""), "{rest}");
    assert!(rest.contains(r#"player="ada\nWARN forged""#), "{rest}");
    let page = page(http, "/metrics");
    let warned = page.lines().find_map(|line| line.strip_prefix("logs{level=\"warn\"} ")).expect("it is counted");
    let warned: u64 = warned.parse().expect("a number");
    // Ten in ten seconds, and a few that have other reasons.
    let windows = begin.elapsed().as_secs() / 10 + 1;
    assert!((10..=10 * windows + 10).contains(&warned), "{warned} lines for 200 refusals in {windows} windows");
    let (code, said) = gateway.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.lines().all(|line| !line.starts_with("WARN forged")), "{said}");
    let mut files = fs::read_dir(folder.path()).expect("there").flatten().map(|entry| entry.path());
    let log = files.find(|path| path.extension().is_some_and(|ending| ending == "log")).expect("a log");
    assert!(!log.display().to_string().contains("{time}"));
    let log = fs::read_to_string(log).expect("text");
    // Two threads that say something at the same time may come to the one before the other, and to the other after it.
    let [mut log, mut said] = [&log, &said].map(|text| text.lines().map(without_time).collect::<Vec<_>>());
    log.sort_unstable();
    said.sort_unstable();
    assert_eq!(log, said);
}

#[test]
fn the_level_decides_what_is_said() {
    let mut loud = Gateway::start(&["-dev", "-loglevel=-1"]);
    let clients = loud.address("listening for clients (tcp) at ");
    drop(Client::connect(clients, ClientOptions::default()).expect("open"));
    loud.wait_for("a connection has come");
    loud.wait_for("a connection has ended");
    let (_, said) = loud.end();
    assert!(said.contains("shutting down"), "{said}");
    let quiet = Gateway::start(&["-dev", "-loglevel", "2"]);
    // Servers, clients, and the metrics.
    wait_until_it_listens(quiet.process.id(), 3);
    let (code, said) = quiet.end();
    assert_eq!((code, said.as_str()), (Some(0), ""));
}

#[test]
fn lines_of_json_name_the_connection_the_player_and_how_it_ended() {
    let mut gateway = Gateway::start(&["-dev", "-logformat=json"]);
    let mut address = |before: &str| {
        let rest = gateway.wait_for(before);
        let rest: String = rest.chars().take_while(|letter| !"\"\\,".contains(*letter)).collect();
        rest.parse::<SocketAddr>().expect("an address follows")
    };
    let clients = address("listening for clients (tcp) at ");
    let mut client = Client::connect(clients, ClientOptions::default()).expect("open");
    client.authenticate("ada \"the first\"\n", "", Instant::now() + PATIENCE).expect("let in");
    let connection = client.connection_id();
    client.send_raw(b"nonsense").expect("connected");
    gateway.wait_for("\"a connection has ended\"");
    let (code, said) = gateway.end();
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect();
    let line = |message: &str| {
        lines.iter().find(|line| line["message"] == message).unwrap_or_else(|| panic!("no {message:?} in {said}"))
    };
    let refused = line("refused");
    assert_eq!((&refused["level"], &refused["target"]), (&"WARN".into(), &"security".into()));
    assert_eq!((&refused["reason"], &refused["connection"]), (&"bad_frame".into(), &connection.into()));
    let ended = line("a connection has ended");
    assert_eq!((&ended["level"], &ended["reason"]), (&"INFO".into(), &"bad_frame".into()));
    assert_eq!((&ended["connection"], &ended["side"]), (&connection.into(), &"CLIENT".into()));
    assert!(ended["player"].as_str().is_some_and(|player| player.contains("ada")), "{ended}");
    assert!(ended["address"].as_str().is_some_and(|address| address.starts_with("127.0.0.1:")), "{ended}");
}

/// The status of a page.
fn status(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the gateway answers");
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("connected");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("text");
    page.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn a_gateway_that_is_told_to_end_is_not_ready_first_and_lets_people_in_until_its_doors_close() {
    let mut gateway = Gateway::start(&["-dev", "-limit=lame_duck_ms=6000"]);
    let clients = gateway.address("listening for clients (tcp) at ");
    let http = gateway.address("health and metrics at http://");
    assert_eq!(status(http, "/readyz"), "200");
    gateway.tell("-TERM");
    gateway.wait_for("not ready any more");
    assert_eq!((status(http, "/readyz"), status(http, "/healthz")), ("503".into(), "200".into()));
    let mut late = Client::connect(clients, ClientOptions::default()).expect("the door is open");
    late.authenticate("late", "", Instant::now() + PATIENCE).expect("it is let in");
    drop(late);
    // A second signal is meant.
    let begin = Instant::now();
    let (code, said) = gateway.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("shutting down") && begin.elapsed() < PATIENCE, "{said}");
}

#[test]
fn a_port_that_is_taken_and_a_door_that_is_open_to_all_are_said_in_a_sentence() {
    let mut first = Gateway::start(&["-dev"]);
    let clients = first.address("listening for clients (tcp) at ");
    let mut second = Gateway::start(&["-dev", &format!("-ca={clients}")]);
    let complaint = second.wait_for("throng: ");
    assert!(complaint.contains(&clients.to_string()) && complaint.contains("choose another port"), "{complaint}");
    let mut open = Gateway::start(&["-dev", "-ca=:0"]);
    open.wait_for("accepts every login");
    let mut clear = Gateway::start(&["-auth=http://accounts.example/check"]);
    clear.wait_for("use https://");
    for gateway in [first, open, clear] {
        assert_eq!(gateway.end().0, Some(0));
    }
}

#[test]
fn a_log_that_cannot_be_written_is_said_before_anything_starts() {
    let mut gateway = Gateway::start(&["-dev", "-logfile=/nowhere/gateway.log"]);
    let complaint = gateway.wait_for("throng: ");
    assert!(complaint.contains("-logfile") && complaint.contains("/nowhere/gateway.log"), "{complaint}");
    assert_eq!(gateway.process.wait().expect("it ends").code(), Some(2));
}

#[test]
fn a_hang_up_with_a_broken_file_leaves_everything_as_it_was_and_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = folder.path().join("limits.json");
    fs::write(&limits, "{}").expect("written");
    let mut gateway = Gateway::start(&["-dev", &format!("-limits={}", limits.display())]);
    gateway.wait_for("health and metrics at");
    fs::write(&limits, "no limits").expect("written");
    gateway.tell("-HUP");
    gateway.wait_for("everything stays as it is");
    assert!(gateway.said.contains("limits.json"), "{}", gateway.said);
    fs::write(&limits, "{}").expect("written");
    gateway.tell("-HUP");
    gateway.wait_for("the settings were read again");
    assert_eq!(gateway.end().0, Some(0));
}

#[cfg(unix)]
#[test]
fn a_profile_of_the_processor_is_written_at_the_end() {
    use pprof::protos::Message as _;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("profiles");
    let temporary = folder.path().join("temporary");
    fs::create_dir(&temporary).expect("there is room");
    let arguments = ["-dev", "-profile=cpu", &format!("-profilepath={}", path.display())];
    let mut gateway = Gateway::start_beside(&temporary, &arguments);
    let health = gateway.address("health and metrics at http://");
    // Until it has used the processor for two seconds: samples come with that time, but not of code of the system.
    let used_s = || throng_machine::clock::cpu_s_of(&gateway.id().to_string()).expect("it runs");
    let begin = Instant::now();
    while used_s() < 2.0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "it uses no processor time");
        assert!(page(health, "/metrics").contains("messages_in"));
    }
    let (code, said) = gateway.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("cpu.pprof"), "{said}");
    let bytes = fs::read(path.join("cpu.pprof")).expect("it is written");
    let profile = pprof::protos::Profile::decode(&bytes[..]).expect("it is what pprof reads");
    assert_eq!(fs::read_dir(&temporary).expect("a folder").count(), 0, "no file of the profiler stays");
    assert!(!profile.sample.is_empty());
    assert!(profile.string_table.iter().any(|name| name.contains("throng_gateway")), "{:?}", profile.string_table);
}
