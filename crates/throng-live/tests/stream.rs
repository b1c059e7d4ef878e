//! Loads, the hub and viewers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use throng_live::{Event, Feed, Hello, Hub, HubOptions, Load, Map, Mark, Message, Point, Sample, Subsystem, View};

const SOON: Duration = Duration::from_secs(10);

fn hub() -> Hub {
    Hub::start(&HubOptions::default()).unwrap()
}

fn hello() -> Hello {
    Hello {
        workload: "crowd".to_owned(),
        unit: "players".to_owned(),
        tick_hz: 30,
        budget_ms: Some(33.3),
        subsystems: vec![Subsystem { name: "write".to_owned(), budget_ms: Some(2.0) }],
        map: Some(Map { left_m: -50.0, bottom_m: -50.0, width_m: 100.0, height_m: 100.0 }),
        load: Some(Load { least: 1, most: 1_000 }),
        ..Hello::default()
    }
}

fn sample(time_s: f64) -> Sample {
    Sample { time_s, connected: 7, frame_p50_ms: 1.5, ..Sample::default() }
}

/// The next message that `is_wanted`.
#[track_caller]
fn wait_for(view: &mut View, is_wanted: impl Fn(&Message) -> bool) -> Event {
    let until = Instant::now() + SOON;
    loop {
        assert!(Instant::now() < until, "it does not come");
        if let Some(event) = view.next(Duration::from_millis(100)).unwrap().filter(|event| is_wanted(&event.message)) {
            return event;
        }
    }
}

#[track_caller]
fn until(mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < until, "it does not come true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The answer to a request as it is written here.
fn answer(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    // A server that refuses early may close before everything is written.
    let _ = stream.write_all(request.replace("HOST", &address.to_string()).as_bytes());
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn get(address: SocketAddr, path: &str) -> String {
    answer(address, &format!("GET {path} HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n"))
}

fn post(address: SocketAddr, path: &str, body: &str) -> String {
    let length = body.len();
    let head = format!("Host: HOST\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}");
    answer(address, &format!("POST {path} HTTP/1.1\r\n{head}\r\n\r\n{body}"))
}

#[test]
fn two_viewers_see_what_a_load_shows_and_the_later_one_sees_the_past() {
    let hub = hub();
    let mut early = View::open(hub.address()).unwrap();
    let mut feed = Feed::connect(hub.address(), hello()).unwrap();
    until(|| feed.is_watched());
    feed.sample(sample(1.0));
    assert_eq!(wait_for(&mut early, |m| matches!(m, Message::Sample(_))).message, Message::Sample(sample(1.0)));
    feed.mark("a step");
    wait_for(&mut early, |m| matches!(m, Message::Mark(_)));

    let mut late = View::open(hub.address()).unwrap();
    let begins = wait_for(&mut late, |_| true);
    assert!(matches!(&begins.message, Message::Hello(of) if of.map == hello().map && of.format == 1));
    assert_eq!(wait_for(&mut late, |_| true).message, Message::Sample(sample(1.0)));
    let mark = wait_for(&mut late, |_| true);
    assert_eq!(mark.message, Message::Mark(Mark { text: "a step".to_owned() }));
    assert!(mark.at_s >= begins.at_s && mark.feed == begins.feed);

    let points = vec![Point { x: 1, y: 65_535, kind: 1 }];
    feed.points(2.0, points.clone());
    for view in [&mut early, &mut late] {
        let event = wait_for(view, |m| matches!(m, Message::Points(_)));
        let Message::Points(packed) = event.message else { unreachable!() };
        assert_eq!((packed.time_s, packed.unpacked()), (2.0, Some(points.clone())));
    }
    assert_eq!((hub.counters().feeds, hub.counters().viewers), (1, 2));
    drop(feed);
    wait_for(&mut late, |m| *m == Message::End);
    drop((early, late));
    until(|| hub.counters().feeds == 0);
}

#[test]
fn somebody_sets_the_load_and_only_what_is_possible_is_taken() {
    let hub = hub();
    let mut feed = Feed::connect(hub.address(), hello()).unwrap();
    let wanted = feed.take_wanted().unwrap();
    let mut view = View::open(hub.address()).unwrap();
    let number = wait_for(&mut view, |_| true).feed;
    let set = |feed: u64, amount: u32| {
        let answer = post(hub.address(), "/set", &format!("{{\"feed\":{feed},\"amount\":{amount}}}"));
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(set(number, 500), "202");
    assert_eq!(wanted.recv_timeout(SOON), Ok(500));
    wait_for(&mut view, |m| matches!(m, Message::Mark(mark) if mark.text.ends_with("500")));
    assert_eq!(set(number, 0), "400");
    assert_eq!(set(number, 1_001), "400");
    assert_eq!(set(number + 1, 500), "404");
    assert_eq!(set(number, 1_000), "202");
    assert_eq!(wanted.recv_timeout(SOON), Ok(1_000));
    let fixed = Feed::connect(hub.address(), Hello { load: None, ..hello() }).unwrap();
    let other = wait_for(&mut view, |m| matches!(m, Message::Hello(of) if of.load.is_none())).feed;
    assert_eq!(set(other, 500), "409");
    drop((fixed, feed));
    until(|| set(number, 500) == "404");
    assert!(hub.counters().refused >= 5);
}

#[test]
fn a_load_never_waits_for_a_hub_that_does_not_read() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // It takes connections, answers the request for commands, and reads nothing of the feed.
    let silent = std::thread::spawn(move || {
        let mut kept = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 512];
            let count = stream.read(&mut head).unwrap();
            if head[..count].starts_with(b"GET") {
                stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"watched\":true}\n").unwrap();
            }
            kept.push(stream);
        }
        kept
    });
    let mut feed = Feed::connect(address, hello()).unwrap();
    until(|| feed.is_watched());
    let began = Instant::now();
    let points = vec![Point { x: 0, y: 0, kind: 0 }; 60_000];
    for number in 0..200 {
        feed.points(f64::from(number), points.clone());
        feed.sample(sample(f64::from(number)));
        feed.mark("m");
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(feed.replaced() > 300, "newer ones took the place of {} messages", feed.replaced());
    let began = Instant::now();
    drop(feed);
    assert!(began.elapsed() < Duration::from_secs(2), "the end of a load does not wait for long either");
    drop(silent.join());
}

#[test]
fn a_load_without_a_hub_is_told_what_to_do_and_one_whose_hub_ends_goes_on() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = Feed::connect(free, hello()).unwrap_err();
    assert!(error.to_string().contains("throng lab serve") && error.tag() == "no-hub", "{error}");
    assert_eq!(View::open(free).unwrap_err().tag(), "no-hub");

    let hub = hub();
    let mut view = View::open(hub.address()).unwrap();
    let mut feed = Feed::connect(hub.address(), hello()).unwrap();
    wait_for(&mut view, |m| matches!(m, Message::Hello(_)));
    drop(hub);
    until(|| view.next(Duration::from_millis(10)).is_err());
    until(|| !feed.is_watched());
    feed.sample(sample(1.0));
    feed.mark("nobody hears it");
}

/// It may hang, or be a server of something else.
#[test]
fn a_hub_that_takes_a_connection_and_says_nothing_is_none() {
    let hub = hub();
    let mut view = View::open(hub.address()).unwrap();
    let mut feed = Feed::connect(hub.address(), hello()).unwrap();
    until(|| feed.is_watched());
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let viewing = tell.clone();
    std::thread::spawn(move || tell.send(Feed::connect(address, hello()).unwrap_err().tag()));
    std::thread::spawn(move || viewing.send(View::open(address).unwrap_err().tag()));
    assert_eq!([(); 2].map(|()| told.recv_timeout(SOON)), [Ok("no-hub"); 2]);
    // One that has answered may be silent for as long.
    assert!(feed.is_watched());
    feed.sample(sample(1.0));
    wait_for(&mut view, |m| matches!(m, Message::Sample(_)));
}

#[test]
fn a_long_mark_is_shown_shortened() {
    let hub = hub();
    let mut view = View::open(hub.address()).unwrap();
    let mut feed = Feed::connect(hub.address(), hello()).unwrap();
    // The 200th byte is in the middle of a character.
    feed.mark(format!("x{}", "ä".repeat(150)));
    feed.mark("a".repeat(200));
    let shown = [(); 2].map(|()| wait_for(&mut view, |m| matches!(m, Message::Mark(_))).message);
    let texts = [format!("x{}", "ä".repeat(99)), "a".repeat(200)];
    assert_eq!(shown, texts.map(|text| Message::Mark(Mark { text })));
    assert_eq!(hub.counters().bad_lines, 0);
}

#[test]
fn pages_of_other_sites_neither_look_nor_steer() {
    let hub = hub();
    let port = hub.address().port();
    for head in [
        format!("Host: evil.example:{port}"),
        format!("Host: 127.0.0.1:{port}\r\nOrigin: http://evil.example"),
        "Host: 127.0.0.1".to_owned(),
        // A frame or a picture of another site, which has no origin.
        format!("Host: 127.0.0.1:{port}\r\nSec-Fetch-Site: cross-site"),
    ] {
        for path in ["/live", "/", "/runs", "/commands?id=abcdefghij"] {
            let answer = answer(hub.address(), &format!("GET {path} HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 403"), "{head}: {answer}");
            assert!(answer.contains("content-security-policy: frame-ancestors 'none'\r\n"), "{answer}");
        }
    }
    assert_eq!(hub.counters().refused, 16);
    let page = get(hub.address(), "/");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    for header in ["content-security-policy: frame-ancestors 'none'", "x-content-type-options: nosniff"] {
        assert!(page.contains(&format!("{header}\r\n")), "{page}");
    }
}

#[test]
fn feeds_that_make_no_sense_are_refused_and_counted() {
    let hub = hub();
    let address = hub.address();
    // Each begins as it should: it asks for its commands.
    let begin = |id: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET /commands?id={id} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        stream
    };
    let good = format!("{}\n", serde_json::to_string(&Message::Hello(Hello { format: 1, ..hello() })).unwrap());
    for (number, (body, status)) in [
        ("{}\n".to_owned(), "400"),
        (good.replace("\"format\":1", "\"format\":9"), "400"),
        (format!("{good}{}", "x".repeat((1 << 20) + 1)), "400"),
        (format!("{good}not json\n\n[1]\n{{\"type\":\"end\"}}\nnever read"), "200"),
        (good.clone(), "200"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("abcdefgh{number}");
        let _commands = begin(&id);
        let answer = post(address, &format!("/feed?id={id}"), &body);
        assert_eq!(answer.split(' ').nth(1), Some(status), "{number}: {answer}");
    }
    assert_eq!(hub.counters().bad_lines, 2, "empty lines are no messages, and no fault");
    for id in ["nobodyasked", "short", "with%20space", "..%2F..%2Fetc"] {
        assert!(post(address, &format!("/feed?id={id}"), &good).starts_with("HTTP/1.1 404"), "{id}");
    }
    let refused = hub.counters().refused;
    let wrong = [post(address, "/set", "{}"), post(address, "/set", "nothing"), post(address, "/feed", &good)];
    let wrong = wrong.into_iter().chain([get(address, "/commands?name=abcdefgh")]);
    assert!(wrong.into_iter().all(|answer| answer.starts_with("HTTP/1.1 4")));
    assert_eq!(hub.counters().refused, refused + 4, "wrong contents are counted");
    // So many at once, and no more; those that never feed are forgotten when they go.
    let many: Vec<TcpStream> = (0..16).map(|number| begin(&format!("waiting{number:02}"))).collect();
    assert!(get(address, "/commands?id=onetoomany").starts_with("HTTP/1.1 503"));
    drop(many);
    until(|| Feed::connect(address, hello()).is_ok());
}

#[test]
fn a_viewer_that_does_not_read_loses_the_oldest_and_harms_nobody() {
    let hub = hub();
    let mut stuck = TcpStream::connect(hub.address()).unwrap();
    write!(stuck, "GET /live HTTP/1.1\r\nHost: {}\r\n\r\n", hub.address()).unwrap();
    let mut feed = Feed::connect(hub.address(), hello()).unwrap();
    until(|| feed.is_watched());
    let mut view = View::open(hub.address()).unwrap();
    let points = vec![Point { x: 9, y: 9, kind: 0 }; 60_000];
    // Each has its own deadline: a busy machine packs and unpacks them slowly.
    for number in 1..=100 {
        let time_s = f64::from(number);
        feed.points(time_s, points.clone());
        wait_for(&mut view, |m| matches!(m, Message::Points(of) if of.time_s >= time_s));
    }
    // The sockets between have room for some 10 MB, the hub keeps 64 events: the others are gone when it reads at last.
    stuck.set_read_timeout(Some(SOON)).unwrap();
    let mut read = [0; 1 << 16];
    let until = Instant::now() + 6 * SOON;
    while hub.counters().lost_events == 0 {
        assert!(Instant::now() < until, "no loss is counted");
        assert!(stuck.read(&mut read).unwrap() > 0, "the hub ended the stream, and has counted no loss");
    }
}

#[test]
fn runs_are_listed_and_nothing_outside_of_their_folder_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    for (run, file) in [("20260101-000000-crowd", "report.html"), ("20260102-000000-capacity", "summary.json")] {
        std::fs::create_dir_all(runs.join(run)).unwrap();
        std::fs::write(runs.join(run).join(file), format!("of {run}")).unwrap();
    }
    std::fs::write(folder.path().join("secret.html"), "secret").unwrap();
    std::fs::write(runs.join("report.html"), "secret").unwrap();
    std::os::unix::fs::symlink(folder.path().join("secret.html"), runs.join("20260101-000000-crowd/index.html"))
        .unwrap();
    let outside = folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("report.html"), "secret").unwrap();
    std::os::unix::fs::symlink(&outside, runs.join("20260103-000000-crowd")).unwrap();
    let hub = Hub::start(&HubOptions { runs: Some(runs), ..HubOptions::default() }).unwrap();
    let list = get(hub.address(), "/runs");
    let newest = list.find("20260102-000000-capacity").unwrap();
    assert!(newest < list.find("20260101-000000-crowd").unwrap() && !list.contains("secret"), "{list}");
    let page = get(hub.address(), "/runs/20260101-000000-crowd/report.html");
    assert!(page.contains("text/html") && page.ends_with("of 20260101-000000-crowd"), "{page}");
    // Its scripts have no origin: they can neither look nor steer.
    assert!(page.contains("content-security-policy: sandbox allow-scripts\r\n"), "{page}");
    assert!(page.contains("content-security-policy: frame-ancestors 'none'\r\n"), "{page}");
    for path in [
        "/runs/20260103-000000-crowd/report.html",
        "/runs/../secret.html",
        "/runs/..%2fsecret.html/report.html",
        "/runs/../report.html",
        "/runs/%2e%2e/secret.html",
        "/runs/./report.html",
        "/runs/20260101-000000-crowd/..%2f..%2fsecret.html",
        "/runs/20260101-000000-crowd/index.html",
        "/runs/20260101-000000-crowd/frames.parquet",
        "/runs/nowhere/report.html",
        "/runs//etc/report.html",
    ] {
        let answer = get(hub.address(), path);
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
        assert!(!answer.contains("secret\n"), "{path}: {answer}");
    }
}

#[test]
fn so_many_runs_are_read_at_once_and_no_more() {
    let runs = tempfile::tempdir().unwrap();
    std::fs::create_dir(runs.path().join("long")).unwrap();
    // Longer than the room of the sockets between.
    std::fs::File::create(runs.path().join("long/report.html")).unwrap().set_len(24 << 20).unwrap();
    let hub = Hub::start(&HubOptions { runs: Some(runs.path().to_owned()), ..HubOptions::default() }).unwrap();
    let stuck = [(); 8].map(|()| {
        let mut stream = TcpStream::connect(hub.address()).unwrap();
        write!(stream, "GET /runs/long/report.html HTTP/1.1\r\nHost: {}\r\n\r\n", hub.address()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream
    });
    for path in ["/runs", "/runs/long/report.html"] {
        assert!(get(hub.address(), path).starts_with("HTTP/1.1 503"), "{path}");
    }
    assert_eq!(hub.counters().refused, 2);
    assert!(get(hub.address(), "/").starts_with("HTTP/1.1 200"));
    drop(stuck);
    until(|| get(hub.address(), "/runs").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_hub_is_for_this_machine_alone_unless_it_is_told_otherwise() {
    let everywhere = HubOptions { address: SocketAddr::from(([0, 0, 0, 0], 0)), ..HubOptions::default() };
    let error = Hub::start(&everywhere).unwrap_err();
    assert!(error.to_string().contains("--allow-others") && error.tag() == "others", "{error}");
    let hub = hub();
    let taken = HubOptions { address: hub.address(), ..HubOptions::default() };
    assert_eq!(Hub::start(&taken).unwrap_err().tag(), "bind");
}

#[test]
fn prometheus_reads_the_newest_figures_of_the_loads_that_are_there() {
    let hub = hub();
    let read = || answer(hub.address(), "GET /metrics HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n");
    assert!(!read().contains("throng_load_connected{"), "{}", read());
    let mut feed = Feed::connect(hub.address(), hello()).unwrap();
    let subsystems_ms = [("write".to_owned(), 2.0)].into_iter().collect();
    feed.sample(Sample { kbit_per_s: Some(120.0), subsystems_ms, ..sample(1.0) });
    until(|| read().contains("throng_load_connected{load=\"0\",workload=\"crowd\"} 7"));
    let text = read();
    for line in [
        "throng_load_frame_p50_seconds{load=\"0\",workload=\"crowd\"} 0.0015",
        "throng_load_client_bits_per_second{load=\"0\",workload=\"crowd\"} 120000",
        "throng_load_subsystem_seconds{load=\"0\",subsystem=\"write\",workload=\"crowd\"} 0.002",
        "# TYPE throng_load_breaches gauge",
    ] {
        assert!(text.contains(line), "no {line} in {text}");
    }
    // A figure that the load does not have is no zero.
    assert!(!text.contains("throng_load_near_age_p99_seconds{") && !text.contains("missed_ticks{"), "{text}");
    drop(feed);
    until(|| !read().contains("throng_load_connected{"));
}
