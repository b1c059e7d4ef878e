//! The page in a real browser: headless Chromium draws it, and its document says what it has drawn.

use std::fs::File;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;
use throng_live::{Feed, Hello, Hub, HubOptions, Load, Map, Point, Sample, Subsystem};
use throng_report::{Cell, Chart, Curve, Frames, Histogram, Kind, Page, Section, Table, Term};
use tokio_tungstenite::tungstenite::{self, WebSocket};

/// Names of the program. Another one is in the variable.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
const VARIABLE: &str = "THRONG_CHROMIUM";
const SOON: Duration = Duration::from_secs(60);
const OFTEN: Duration = Duration::from_millis(100);

fn chromium() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    let places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    NAMES.iter().find_map(|name| places.iter().map(|place| place.join(name)).find(|program| program.is_file()))
}

/// A browser with one page. It is asked over the DevTools protocol.
struct Browser {
    _process: Ended,
    /// Holds the user's data and what the browser writes to its standard error.
    profile: TempDir,
    socket: WebSocket<TcpStream>,
    requests: u32,
}

impl Browser {
    fn open(program: &Path, url: &str) -> Browser {
        let profile = tempfile::tempdir().expect("a folder");
        let errors = File::create(profile.path().join("stderr")).expect("a file");
        let mut command = Command::new(program);
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        command.args(["--disable-extensions", "--window-size=1200,1600", "--enable-logging=stderr", "--v=0"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.args(["--remote-debugging-port=0", url]);
        let process = Ended(command.stdout(Stdio::null()).stderr(errors).spawn().expect("the browser starts"));
        let port = soon(|| {
            let written = std::fs::read_to_string(profile.path().join("DevToolsActivePort")).ok()?;
            written.lines().next()?.parse::<u16>().ok()
        });
        let socket = soon(|| {
            let list = format!("http://127.0.0.1:{port}/json/list");
            let pages = ureq::get(&list).call().ok()?.body_mut().read_to_string().ok()?;
            let pages: Value = serde_json::from_str(&pages).ok()?;
            let page = pages.as_array()?.iter().find(|page| page["type"] == "page" && page["url"] == url)?;
            let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
            stream.set_read_timeout(Some(SOON)).ok()?;
            Some(tungstenite::client(page["webSocketDebuggerUrl"].as_str()?, stream).ok()?.0)
        });
        Browser { _process: process, profile, socket, requests: 0 }
    }

    /// The document as the scripts of the page have made it. Before the page has come, it is empty.
    fn document(&mut self) -> String {
        self.evaluate("document.documentElement?.outerHTML ?? ''").as_str().expect("a text").to_owned()
    }

    /// The value of an expression in the page.
    fn evaluate(&mut self, expression: &str) -> Value {
        let result = self.ask("Runtime.evaluate", &json!({"expression": expression, "returnByValue": true}));
        result["result"]["value"].clone()
    }

    /// The result of a method of the DevTools protocol.
    fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        self.requests += 1;
        let request = json!({"id": self.requests, "method": method, "params": parameters});
        self.socket.send(request.to_string().into()).expect("the browser is there");
        loop {
            let message = self.socket.read().expect("an answer").into_text().expect("a text");
            let mut message: Value = serde_json::from_str(&message).expect("JSON");
            if message["id"] == self.requests {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
        }
    }

    /// Draws the page in a window of this width, and keeps the picture in the folder of this build's tests.
    fn draw(&mut self, name: &str, width: u32, scheme: &str) {
        let metrics = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", &metrics);
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.ask("Emulation.setEmulatedMedia", &features);
        let picture = self.ask("Page.captureScreenshot", &json!({"captureBeyondViewport": true}));
        let picture = BASE64.decode(picture["data"].as_str().expect("a picture")).expect("base64");
        assert!(picture.starts_with(b"\x89PNG"), "{} bytes", picture.len());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{width}-{scheme}.png"));
        std::fs::write(path, picture).expect("the picture can be kept");
    }

    /// Complaints of the scripts.
    fn complaints(&self) -> String {
        let errors = std::fs::read(self.profile.path().join("stderr")).expect("the file is there");
        let errors = String::from_utf8_lossy(&errors);
        errors.lines().filter(|line| line.contains("CONSOLE")).collect::<Vec<_>>().join("\n")
    }
}

/// A process that ends with its owner.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first thing that `ask` gives. It is asked often, for a limited time.
fn soon<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + SOON;
    loop {
        if let Some(given) = ask() {
            return given;
        }
        assert!(Instant::now() < until, "nothing after {SOON:?}");
        std::thread::sleep(OFTEN);
    }
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
    let mut browser = Browser::open(&program, &url);
    let parts = ["planted &lt;b&gt;load&lt;/b&gt;", "a planted step", "1.25", "uplot", "connected"];
    let mut time_s = 0.0;
    soon(|| {
        time_s += OFTEN.as_secs_f64();
        let corners = [(0, 0), (65_535, 0), (0, 65_535), (65_535, 65_535)];
        feed.points(time_s, corners.map(|(x, y)| Point { x, y, kind: 0 }).to_vec());
        let mut sample = Sample { time_s, connected: 7, wanted: 9, frame_p50_ms: 1.25, ..Sample::default() };
        sample.subsystems_ms.insert("write".to_owned(), 0.75);
        feed.sample(sample);
        let document = browser.document();
        let missing: Vec<&str> = parts.into_iter().filter(|part| !document.contains(part)).collect();
        assert!(time_s < 20.0 || missing.is_empty(), "no {missing:?} in {document}\n{}", browser.complaints());
        missing.is_empty().then_some(())
    });
    assert!(browser.complaints().is_empty(), "{}", browser.complaints());
    check_many_points(&mut feed, &mut browser, time_s);
    check_widths_and_colours(&mut browser, "live");
}

/// The map draws ten thousand points ten times in a second. Here it has to go on drawing: other tests run beside it, and a
/// slow machine draws fewer pictures.
fn check_many_points(feed: &mut Feed, browser: &mut Browser, mut time_s: f64) {
    const PICTURES: u64 = 20;
    let drawn = |browser: &mut Browser| browser.evaluate("drawn.maps").as_u64().expect("a number");
    let before = drawn(browser);
    let began = Instant::now();
    for picture in 1..=PICTURES {
        time_s += OFTEN.as_secs_f64();
        // Across the map, with steps that are even on both axes.
        let at = |number: u64| Point { x: (number * 40_503) as u16, y: (number * 6 + picture * 99) as u16, kind: 0 };
        feed.points(time_s, (0..10_000).map(at).collect());
        std::thread::sleep((began + OFTEN * picture as u32).saturating_duration_since(Instant::now()));
    }
    let pictures = drawn(browser) - before;
    println!("{pictures} of {PICTURES} pictures of ten thousand points in {:?}", began.elapsed());
    assert!(pictures >= 2, "{pictures} of {PICTURES} pictures in {:?}", began.elapsed());
    soon(|| browser.document().contains("10,000 points").then_some(()));
}

/// A run of three frames.
fn page() -> Page {
    let curve = Curve { name: "p99".to_owned(), ink: "send".to_owned(), values: vec![Some(1.0), Some(3.0), Some(2.0)] };
    let chart = Chart {
        terms: vec![Term::new("age within 10 m", "how old the newest state is")],
        unit: "ms".to_owned(),
        x: vec![0.0, 1.0, 2.0],
        curves: vec![curve],
        ..Chart::default()
    };
    let frames = Frames {
        x: vec![0.0, 0.1, 0.2],
        parts: vec![("encode".to_owned(), vec![1.0, 2.0, 1.0]), ("send".to_owned(), vec![3.0, 7.0, 3.0])],
        total: vec![4.0, 9.0, 4.0],
        missed: vec![0, 2, 0],
        budget: None,
        point: "tick".to_owned(),
    };
    let mut table = Table::new("bytes by kind and field", "kind | field | #bytes per second | #share");
    table.push([Cell::from("character"), Cell::from("position"), Cell::number("1,234"), Cell::number("12 %")]);
    let mut page = Page::new(Kind::Crowd, "a planted run");
    let histogram = Histogram { from: vec![0.0, 1.0], counts: vec![3, 1], budget: None };
    page.sections.push(Section::new("frames").with(frames).with(histogram).with(chart).with(table));
    page
}

#[test]
fn a_browser_draws_the_page_of_a_run_in_wide_and_narrow_windows_light_and_dark() {
    let Some(program) = chromium() else {
        println!("!!! there is no Chromium, so the page of a run is NOT tested in a browser: name one in {VARIABLE}");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.html");
    std::fs::write(&path, page().render().expect("a page")).expect("a file");
    let mut browser = Browser::open(&program, &format!("file://{}", path.display()));
    let drawn =
        soon(|| browser.evaluate("document.querySelectorAll('.uplot canvas').length").as_u64().filter(|&n| n > 1));
    assert!(drawn >= 2, "{drawn} charts");
    check_widths_and_colours(&mut browser, "report");
    assert!(browser.complaints().is_empty(), "{}", browser.complaints());
}

/// Nobody has to scroll sideways, and the dark page is dark.
fn check_widths_and_colours(browser: &mut Browser, name: &str) {
    let mut grounds = Vec::new();
    for (width, scheme) in [(1_200, "light"), (400, "light"), (400, "dark")] {
        browser.draw(name, width, scheme);
        // The charts follow the window a moment later.
        soon(|| {
            let widest =
                "Math.max(...Array.from(document.querySelectorAll('canvas'), c => c.getBoundingClientRect().right))";
            browser.evaluate(widest).as_f64().filter(|&right| right <= f64::from(width))
        });
        browser.draw(name, width, scheme);
        let wide = browser.evaluate("document.documentElement.scrollWidth").as_u64().expect("a number");
        assert!(wide <= u64::from(width), "{name} is {wide} pixels wide in a window of {width}");
        let ground = browser.evaluate("getComputedStyle(document.body).backgroundColor");
        let numbers = ground.as_str().expect("a colour").split(|c: char| !c.is_ascii_digit());
        grounds.push(numbers.filter_map(|number| number.parse::<u32>().ok()).take(3).sum::<u32>());
    }
    assert!(grounds[0] == grounds[1] && grounds[0] > 3 * 200 && grounds[2] < 3 * 60, "{name}: {grounds:?}");
}
