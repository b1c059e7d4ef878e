//! The page in a real browser: headless Chromium draws it, and its document says what it has drawn.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use throng_live::{Feed, Hello, Hub, HubOptions, Load, Map, Point, Sample, Subsystem};

/// Names of the program. Another one is in the variable.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
const VARIABLE: &str = "THRONG_CHROMIUM";
/// The page has so long, in its own time, until its document is printed.
const PAGE_MS: u32 = 3_000;
const SOON: Duration = Duration::from_secs(60);

fn chromium() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    let places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    NAMES.iter().find_map(|name| places.iter().map(|place| place.join(name)).find(|program| program.is_file()))
}

/// The document of a page after a while, and what its scripts complained about.
fn document(program: &PathBuf, url: &str) -> (String, String) {
    let profile = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(program);
    command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
    command.args(["--disable-extensions", "--window-size=1200,1600", "--enable-logging=stderr", "--v=0"]);
    command.arg(format!("--user-data-dir={}", profile.path().display()));
    command.arg(format!("--timeout={PAGE_MS}")).args(["--dump-dom", url]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the browser starts");
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let complaints =
        text(&output.stderr).lines().filter(|line| line.contains("CONSOLE")).collect::<Vec<_>>().join("\n");
    (text(&output.stdout), complaints)
}

#[test]
fn a_browser_draws_the_load_that_a_program_shows() {
    let Some(program) = chromium() else {
        println!("!!! there is no Chromium, so the live page is NOT tested in a browser: name one in {VARIABLE}");
        return;
    };
    let hub = Hub::start(&HubOptions::default()).expect("a hub");
    let hello = Hello {
        workload: "planted <b>load</b>".to_owned(),
        unit: "players".to_owned(),
        tick_hz: 30,
        budget_ms: Some(33.3),
        subsystems: vec![Subsystem { name: "write".to_owned(), budget_ms: Some(2.0) }],
        map: Some(Map { left_m: -50.0, bottom_m: -50.0, width_m: 100.0, height_m: 100.0 }),
        load: Some(Load { least: 1, most: 1_000 }),
        ..Hello::default()
    };
    let mut feed = Feed::connect(hub.address(), hello).expect("the hub takes it");
    feed.mark("a planted step");
    let url = format!("http://{}/", hub.address());
    let browser = std::thread::spawn(move || document(&program, &url));
    let until = Instant::now() + SOON;
    for number in 0_u32.. {
        assert!(Instant::now() < until, "the browser does not end");
        if browser.is_finished() {
            break;
        }
        let time_s = f64::from(number) * 0.1;
        let corners = [(0, 0), (65_535, 0), (0, 65_535), (65_535, 65_535)];
        feed.points(time_s, corners.map(|(x, y)| Point { x, y, kind: 0 }).to_vec());
        let mut sample = Sample { time_s, connected: 7, wanted: 9, frame_p50_ms: 1.25, ..Sample::default() };
        sample.subsystems_ms.insert("write".to_owned(), 0.75);
        feed.sample(sample);
        std::thread::sleep(Duration::from_millis(100));
    }
    let (document, complaints) = browser.join().expect("it has a document");
    for part in ["planted &lt;b&gt;load&lt;/b&gt;", "a planted step", "1.25", "uplot", "connected"] {
        assert!(document.contains(part), "no {part} in {document}\n{complaints}");
    }
    assert!(complaints.is_empty(), "{complaints}");
}
