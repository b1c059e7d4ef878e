//! `throng lab serve` and `throng top --live` as their users run them.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use throng_live::{Event, Hello, Hub, HubOptions, Load, Map, Mark, Message, Points, Sample, Subsystem, View};

use crate::lab::folders;
use crate::lines::{children, lines_of};
use crate::summary_keys::keys;

const SOON: Duration = Duration::from_secs(60);

fn throng() -> Command {
    Command::new(env!("CARGO_BIN_EXE_throng"))
}

fn wait_for(view: &mut View, is_wanted: impl Fn(&Message) -> bool) -> Event {
    let until = Instant::now() + SOON;
    loop {
        assert!(Instant::now() < until, "it does not come");
        if let Some(event) = view.next(Duration::from_millis(100)).unwrap().filter(|event| is_wanted(&event.message)) {
            return event;
        }
    }
}

#[test]
fn a_crowd_is_shown_while_it_plays_and_its_load_can_be_set() {
    let runs = tempfile::tempdir().unwrap();
    let folder = runs.path().to_str().unwrap();
    let load = ["crowd", "--players", "30", "--seconds", "600", "--warmup", "1", "--quiet", "--runs", folder];
    let serve = ["lab", "serve", "--address", "127.0.0.1:0", "--runs", folder];
    let mut page = throng()
        .args([&serve[..], &load[..]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let words = lines_of(page.stderr.take().unwrap());
    let first = words.recv_timeout(SOON).unwrap();
    let address = first.split("http://").nth(1).and_then(|text| text.split('/').next()).unwrap_or_default();
    let address: SocketAddr = address.parse().unwrap_or_else(|_| panic!("{first}"));

    let mut view = View::open(address).unwrap();
    let hello = wait_for(&mut view, |message| matches!(message, Message::Hello(_)));
    let Message::Hello(of) = &hello.message else { unreachable!() };
    assert_eq!((&*of.workload, of.load), ("crowd", Some(Load { least: 1, most: 30 })));
    let points = wait_for(&mut view, |message| matches!(message, Message::Points(_)));
    let Message::Points(packed) = points.message else { unreachable!() };
    assert!(packed.unpacked().unwrap().len() <= 30);
    wait_for(&mut view, |message| matches!(message, Message::Sample(sample) if sample.connected == 30));

    let once = throng().args(["top", "--live", &address.to_string(), "--once"]).output().unwrap();
    let text = String::from_utf8_lossy(&once.stdout).into_owned();
    assert!(once.status.success() && text.contains("crowd   30 players   30 Hz"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("write ")), "{text}");

    let body = format!("{{\"feed\":{},\"amount\":12}}", hello.feed);
    let mut request = TcpStream::connect(address).unwrap();
    let head = format!("Host: {address}\r\nContent-Type: application/json\r\nContent-Length: {}", body.len());
    write!(request, "POST /set HTTP/1.1\r\nConnection: close\r\n{head}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    request.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    let is_set = |message: &Message| matches!(message, Message::Sample(of) if (of.wanted, of.connected) == (12, 12));
    wait_for(&mut view, is_set);

    let started = children(page.id());
    assert_eq!(started.len(), 1, "the crowd");
    let pid = Pid::from_raw(i32::try_from(page.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let until = Instant::now() + SOON;
    let status = loop {
        if let Some(status) = page.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < until, "the page goes on after Ctrl-C");
        std::thread::sleep(Duration::from_millis(20));
    };
    let rest: String = words.iter().collect();
    assert!(status.success(), "{rest}");
    assert!(!std::path::Path::new(&format!("/proc/{}", started[0])).exists(), "the crowd is left behind");
    let run = folders(runs.path()).remove(0);
    assert!(run.join("summary.json").is_file() && run.join("report.html").is_file(), "{rest}");
}

#[test]
fn a_page_that_is_interrupted_twice_leaves_neither_its_load_nor_the_command_of_that() {
    // The second Ctrl-C comes late, and as soon as it counts: the load itself has been asked less than 0.1 s before.
    for pause in [Duration::from_secs(1), Duration::from_millis(110)] {
        interrupt_page_twice(pause);
    }
}

fn interrupt_page_twice(pause: Duration) {
    let folder = tempfile::tempdir().unwrap();
    let load = "about = \"a shell\"\nunit = \"clients\"\nstart = 1\nmost = 1\n\
        command = [\"sh\", \"-c\", \"trap '' INT; echo $$ >begun; while :; do sleep 0.05; done # {amount}\"]\n\
        [[limits]]\nname = \"cpu\"\nabout = \"share\"\nat_most = 0.85\nlevel = \"cpu\"\n";
    std::fs::write(folder.path().join("endless.toml"), load).unwrap();
    let mut page = throng()
        .args(["lab", "serve", "--address", "127.0.0.1:0", "lab", "run", "endless.toml", "--hold", "50s", "-q"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + SOON;
    let begun = || std::fs::read_to_string(folder.path().join("begun")).ok()?.trim().parse::<u32>().ok();
    let command = loop {
        if let Some(id) = begun() {
            break id;
        }
        assert!(Instant::now() < until, "the load does not begin");
        std::thread::sleep(Duration::from_millis(10));
    };
    let started = children(page.id());
    kill_process(Pid::from_child(&page), Signal::INT).unwrap();
    std::thread::sleep(pause);
    kill_process(Pid::from_child(&page), Signal::INT).unwrap();
    assert_eq!(page.wait().unwrap().code(), Some(130));
    // Left alone, the load would give its command 10 s.
    let until = Instant::now() + Duration::from_secs(5);
    for id in started.into_iter().chain([command]) {
        // Nobody may have waited for it yet.
        let is_there = || std::fs::read_to_string(format!("/proc/{id}/cmdline")).is_ok_and(|line| !line.is_empty());
        while is_there() {
            assert!(Instant::now() < until, "process {id} goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn the_trials_of_a_measurement_are_marks_and_their_commands_find_the_page() {
    let hub = Hub::start(&HubOptions::default()).unwrap();
    let mut view = View::open(hub.address()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shell.toml");
    let text = r#"
about = "a shell that says where the page is"
unit = "clients"
command = ["sh", "-c", "true {amount}; echo \"{\\\"cpu\\\": [0.1, 0.1, 0.1], \\\"page\\\": \\\"$THRONG_LIVE\\\", \\\"invalid_reasons\\\": [\\\"$THRONG_LIVE\\\"]}\""]
start = 5
most = 5
around_seconds = 20
[[limits]]
name = "cpu"
about = "share"
at_most = 0.85
level = "cpu"
"#;
    std::fs::write(&file, text).unwrap();
    let address = hub.address().to_string();
    let runs = folder.path().join("runs");
    let arguments = ["--amounts", "5", "--hold", "1s", "--live", &address, "--quiet", "--runs", runs.to_str().unwrap()];
    let output = throng().args(["lab", "run", file.to_str().unwrap()]).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    wait_for(&mut view, |message| matches!(message, Message::Hello(of) if of.workload == "capacity of shell"));
    wait_for(&mut view, |message| matches!(message, Message::Mark(of) if of.text.starts_with("trial 1: 5 clients")));
    wait_for(&mut view, |message| matches!(message, Message::Mark(of) if of.text.contains(&address)));
    wait_for(&mut view, |message| *message == Message::End);
}

#[test]
fn a_page_that_is_not_there_is_one_line_and_a_load_that_inherits_one_goes_on() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for arguments in [
        &["crowd", "--live", &nobody][..],
        &["match", "--live", &nobody],
        &["lab", "search", "crowd", "--live", &nobody],
        &["lab", "serve", "--address", "0.0.0.0:0"],
    ] {
        let output = throng().args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        let last = text.lines().last().unwrap_or_default();
        assert!(last.contains("throng lab serve") || last.contains("--allow-others"), "{arguments:?}: {text}");
    }
    let output = throng().args(["top", "--live", &nobody, "--once"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let runs = tempfile::tempdir().unwrap();
    let short =
        ["--players", "2", "--seconds", "1", "--warmup", "0", "--json", "--runs", runs.path().to_str().unwrap()];
    let output = throng().arg("crowd").args(short).env("THRONG_LIVE", &nobody).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("no live page takes figures") && !output.stdout.is_empty(), "{words}");
}

#[test]
fn every_key_of_the_stream_is_on_its_page() {
    let page = include_str!("../../../docs/live.md");
    let messages = [
        Message::Hello(Hello {
            budget_ms: Some(1.0),
            subsystems: vec![Subsystem { budget_ms: Some(1.0), ..Subsystem::default() }],
            map: Some(Map::default()),
            load: Some(Load::default()),
            ..Hello::default()
        }),
        Message::Sample(Sample {
            subsystems_ms: [("NAME".to_owned(), 1.0)].into(),
            missed_ticks: Some(1),
            kbit_per_s: Some(1.0),
            near_age_p99_ms: Some(1.0),
            generator_cores: Some(1.0),
            ..Sample::default()
        }),
        Message::Points(Points::default()),
        Message::Mark(Mark::default()),
        Message::End,
    ];
    let mut written = BTreeSet::new();
    for message in messages {
        let event = serde_json::to_value(Event { feed: 0, at_s: 0.0, message }).unwrap();
        keys(&event, "", &mut written);
    }
    let table = page.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split('|').nth(1));
    let documented: BTreeSet<String> = table
        .flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .filter(|name| name.starts_with("message") || ["feed", "at_s"].contains(&&**name))
        .filter(|name| name != "message")
        .collect();
    assert_eq!(written.difference(&documented).collect::<Vec<_>>(), Vec::<&String>::new(), "not on the page");
    assert_eq!(documented.difference(&written).collect::<Vec<_>>(), Vec::<&String>::new(), "on the page alone");
}
