//! An operator can end a gateway, also while it starts, and can make it read its files again.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::lines::{SIGTERM, handles};

const PATIENCE: Duration = Duration::from_secs(30);

/// As Linux has it on most machines (open(2)).
const O_NONBLOCK: i32 = 0o4000;

/// Runs the command, which says what it does on its standard error.
fn start(more: &[String]) -> (Child, std::io::Lines<BufReader<ChildStderr>>) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_throng"))
        .args(["gateway", "-dev", "-sa=127.0.0.1:0", "-ca=127.0.0.1:0", "-http="])
        .args(more)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the gateway starts");
    let lines = BufReader::new(process.stderr.take().expect("it has a standard error")).lines();
    (process, lines)
}

fn tell(process: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &process.id().to_string()]).status().expect("there is kill");
    assert!(sent.success());
}

/// Waits for its end, and kills it if it does not come.
fn end_of(process: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = process.try_wait().expect("it is ours") {
            return status;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let _ = process.kill();
    panic!("it does not end");
}

#[cfg(target_os = "linux")]
#[test]
fn a_gateway_that_is_told_to_end_while_it_starts_ends_in_an_orderly_way() {
    for signal in ["-TERM", "-INT"] {
        let folder = tempfile::tempdir().expect("a folder");
        // The gateway waits for the descriptors until somebody writes to the pipe.
        let pipe = folder.path().join("descriptors");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("there is mkfifo").success());
        let (mut process, lines) = start(&[format!("-descriptors={}", pipe.display())]);
        let deadline = Instant::now() + PATIENCE;
        while !handles(process.id(), SIGTERM) {
            assert!(Instant::now() < deadline, "it does not handle SIGTERM");
            thread::sleep(Duration::from_millis(5));
        }
        tell(&process, signal);
        // An empty set, once somebody reads. Without a reader it cannot be opened.
        let deadline = Instant::now() + PATIENCE;
        while process.try_wait().expect("it is ours").is_none() && Instant::now() < deadline {
            if fs::OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(&pipe).is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let status = end_of(&mut process);
        assert!(status.success(), "{signal}: {status}");
        let said: Vec<String> = lines.map_while(Result::ok).collect();
        assert!(said.iter().any(|line| line.contains("shutting down")), "{said:#?}");
    }
}

fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the page is there");
    stream.set_read_timeout(Some(PATIENCE)).expect("it can be set");
    stream.write_all(request.as_bytes()).expect("connected");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn the_page_for_operators_makes_the_gateway_read_its_files_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = folder.path().join("limits.json");
    fs::write(&limits, r#"{"max_connections": 100}"#).expect("written");
    let (mut process, mut lines) = start(&["-admin=127.0.0.1:0".into(), format!("-limits={}", limits.display())]);
    let page = lines
        .by_ref()
        .map_while(Result::ok)
        .find_map(|line| Some(line.split_once("operators at http://")?.1.to_owned()));
    let address = page.expect("it says where the page is");
    let address = address.trim();
    let drain = thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<String>>());
    let get =
        |path: &str| ask(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"));
    let overview = get("/api/overview");
    let token = overview.split("\"token\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a token");
    let reload = |token: &str| {
        let body = format!("token={token}");
        ask(
            address,
            &format!(
                "POST /reload HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            ),
        )
    };
    assert!(reload("0").starts_with("HTTP/1.1 403"), "not without the token");
    let said = reload(token);
    assert!(said.starts_with("HTTP/1.1 200") && said.contains("were read again"), "{said}");
    fs::write(&limits, "nonsense").expect("written");
    let said = reload(token);
    assert!(said.contains("Everything stays as it is"), "{said}");
    tell(&process, "-TERM");
    assert!(end_of(&mut process).success());
    let said = drain.join().expect("it reads");
    assert_eq!(said.iter().filter(|line| line.contains("the settings were read again")).count(), 1, "{said:#?}");
}
