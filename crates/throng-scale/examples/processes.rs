//! Measures what the bus over NATS costs each process, with real processes on this machine, and compares forecasts with it.
//!
//! ```text
//! cargo run --release -p throng-scale --example processes
//! ```
//!
//! One nats-server, homes that publish the state of their zones 30 times per second, and edges that read all zones and send
//! inputs back. The costs of one message come from the first four runs, which have one home and two edges. The forecast of
//! every later run is made from them, and from nothing else. Needs Linux, and nats-server in the path or in `THRONG_NATS_SERVER`.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use throng_bus::{Bus, Cluster, Event, MemberId, Pattern, Subject, SubscriptionId};
use throng_bus_nats::{NatsBus, NatsOptions};
use throng_scale::{Layout, MessageCost, Placement, Scenario, simulate};
use throng_wire::Time;

type Failure = Box<dyn Error>;

const ZONES_PER_HOME: u32 = 200;
const UPDATES_PER_S: u32 = 30;
const INPUTS_PER_S: u32 = 5;
const INPUT_BYTES: usize = 200;
const SETTLE: Duration = Duration::from_millis(1_500);
const WINDOW: Duration = Duration::from_secs(6);

/// The processes of one run.
#[derive(Clone, Copy)]
struct Setup {
    homes: u32,
    edges: u32,
    update_bytes: usize,
    /// Whether edges read zones and send inputs, or are members only.
    reads: bool,
}

/// Cores of each kind of process.
#[derive(Clone, Copy, Debug, Default)]
struct Cores {
    homes: f64,
    bus: f64,
    edges: f64,
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("home") => member(&arguments[1..], true),
        Some("edge") => member(&arguments[1..], false),
        _ => compare(),
    }
}

fn compare() -> Result<(), Failure> {
    let run = |homes, edges, update_bytes, reads| measure(Setup { homes, edges, update_bytes, reads });
    // Edges that read nothing: what is left is publishing, and being a member.
    let (small_alone, large_alone) = (run(1, 2, 512, false)?, run(1, 2, 2_048, false)?);
    let (small, large) = (run(1, 2, 512, true)?, run(1, 2, 2_048, true)?);
    let per_s = f64::from(ZONES_PER_HOME * UPDATES_PER_S);
    let inputs_per_s = f64::from(ZONES_PER_HOME * INPUTS_PER_S);
    let idle_cores = small_alone.edges / 2.0;
    let line = |small: f64, large: f64, per_s: f64| {
        let kib_ns = ((large - small) / per_s * 1e9 / 1.5).max(0.0);
        MessageCost { ns: (small / per_s * 1e9 - kib_ns / 2.0).max(0.0), kib_ns }
    };
    let publish = line(small_alone.homes - idle_cores, large_alone.homes - idle_cores, per_s);
    let bus_in = line(small_alone.bus, large_alone.bus, per_s);
    // An edge also publishes its inputs, and the bus carries them: in, and out to the home.
    let input = inputs_per_s / 1e9;
    let inputs = publish.of(INPUT_BYTES as f64) * input;
    let receive = line(small.edges / 2.0 - idle_cores - inputs, large.edges / 2.0 - idle_cores - inputs, per_s);
    let input_in = bus_in.of(INPUT_BYTES as f64) * input;
    let out_share = per_s / (per_s + inputs_per_s);
    let bus_out = line(
        ((small.bus - small_alone.bus) / 2.0 - input_in) * out_share,
        ((large.bus - large_alone.bus) / 2.0 - input_in) * out_share,
        per_s,
    );
    println!("idle_cores = {idle_cores:.4}");
    for (name, cost) in [("publish", publish), ("receive", receive), ("bus_in", bus_in), ("bus_out", bus_out)] {
        println!("{name} = {{ ns = {:.0}, kib_ns = {:.0} }}", cost.ns, cost.kib_ns);
    }
    let mut scenario = Scenario::parse(include_str!("../../../docs/benchmarks/unit-costs.toml"))?;
    let costs = &mut scenario.costs;
    (costs.publish, costs.receive, costs.bus_in, costs.bus_out) = (publish, receive, bus_in, bus_out);
    (costs.idle_cores, costs.delivery_ns, costs.player_ns_per_s) = (idle_cores, 0.0, 0.0);
    println!(
        "| homes, bus, edges | processes | bytes | cores measured: homes, bus, edges | forecast | all, measured / forecast |"
    );
    println!("|---|---:|---:|---|---|---|");
    for (homes, edges, update_bytes) in [
        (1, 0, 1_024),
        (1, 1, 1_024),
        (1, 2, 1_024),
        (2, 2, 1_024),
        (1, 4, 1_024),
        (2, 4, 2_048),
        (3, 4, 512),
        (1, 6, 1_024),
    ] {
        let measured = run(homes, edges, update_bytes, true)?;
        let forecast = forecast(&scenario, homes, edges, update_bytes);
        let sum = |cores: Cores| cores.homes + cores.bus + cores.edges;
        println!(
            "| {homes}, 1, {edges} | {} | {update_bytes} | {:.3}, {:.3}, {:.3} | {:.3}, {:.3}, {:.3} | {:.3} / {:.3} = {:.2} |",
            homes + edges + 1,
            measured.homes,
            measured.bus,
            measured.edges,
            forecast.homes,
            forecast.bus,
            forecast.edges,
            sum(measured),
            sum(forecast),
            sum(measured) / sum(forecast),
        );
    }
    Ok(())
}

/// The same by the library: so many players that each edge has some of each zone.
fn forecast(scenario: &Scenario, homes: u32, edges: u32, update_bytes: usize) -> Cores {
    const PLAYERS_PER_ZONE: u32 = 200;
    let mut scenario = scenario.clone();
    let world = &mut scenario.world;
    world.zones = homes * ZONES_PER_HOME;
    world.players = world.zones * PLAYERS_PER_ZONE;
    world.zone_players_max = PLAYERS_PER_ZONE;
    world.popularity = 0.0;
    world.placement = Placement::Random;
    world.zone_updates_per_s = f64::from(UPDATES_PER_S);
    world.update_bytes_per_player = update_bytes as f64 / f64::from(PLAYERS_PER_ZONE);
    world.input_messages_per_s = if edges == 0 { 0.0 } else { f64::from(INPUTS_PER_S) };
    let in_edge = f64::from(PLAYERS_PER_ZONE) / f64::from(edges.max(1));
    world.input_bytes_per_player_per_s = (INPUT_BYTES as u32 * INPUTS_PER_S) as f64 / in_edge;
    let load = simulate(&scenario, &Layout { homes, bus_servers: 1, edges: edges.max(1) });
    let sum = |loads: &[throng_scale::ProcessLoad]| loads.iter().map(|load| load.cores).sum::<f64>();
    if edges > 0 {
        return Cores { homes: sum(&load.homes), bus: sum(&load.bus_servers), edges: sum(&load.edges) };
    }
    // The library has no world without edges: the bus then passes nothing on.
    let per_s = f64::from(homes * ZONES_PER_HOME * UPDATES_PER_S) / 1e9;
    Cores { homes: sum(&load.homes), bus: scenario.costs.bus_in.of(update_bytes as f64) * per_s, edges: 0.0 }
}

/// Processes of a run; all of them end with it.
struct Started(Vec<Child>);

impl Drop for Started {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn measure(setup: Setup) -> Result<Cores, Failure> {
    let folder = std::env::temp_dir().join(format!("throng-scale-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut all = Started(vec![
        Command::new(nats_server()?)
            .args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"])
            .arg(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?,
    ]);
    let deadline = Instant::now() + Duration::from_secs(10);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if Instant::now() > deadline {
            return Err("nats-server does not listen".into());
        }
        sleep(Duration::from_millis(20));
    }
    let mut said = Vec::new();
    for (role, count) in [("home", setup.homes), ("edge", setup.edges)] {
        for number in 0..count {
            let mut child = Command::new(std::env::current_exe()?)
                .args([role, &port.to_string(), &number.to_string(), &setup.update_bytes.to_string()])
                .args([setup.homes.to_string(), setup.reads.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
            lines.next().ok_or("a member does not start")??;
            said.push(lines);
            all.0.push(child);
        }
    }
    sleep(SETTLE);
    let begun = Instant::now();
    let before: Vec<f64> = all.0.iter().map(|child| seconds(child.id())).collect();
    sleep(WINDOW);
    let seconds: Vec<f64> = all.0.iter().zip(before).map(|(child, before)| seconds(child.id()) - before).collect();
    let window_s = begun.elapsed().as_secs_f64();
    check_rates(setup, &mut all, said)?;
    drop(all);
    fs::remove_dir_all(&folder)?;
    let homes = setup.homes as usize;
    let sum = |range: std::ops::Range<usize>| seconds[range].iter().sum::<f64>() / window_s;
    Ok(Cores { homes: sum(1..1 + homes), bus: seconds[0] / window_s, edges: sum(1 + homes..seconds.len()) })
}

/// Members end when their input does, and say how many messages per second they sent and received. A run whose messages were not
/// all there says nothing about costs.
fn check_rates<R: BufRead>(setup: Setup, all: &mut Started, said: Vec<std::io::Lines<R>>) -> Result<(), Failure> {
    for child in &mut all.0[1..] {
        drop(child.stdin.take());
    }
    for (number, mut lines) in said.into_iter().enumerate() {
        let line = lines.next().ok_or("a member has died")??;
        let figures: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let (sent, received) = (figures[0], figures[1]);
        let is_home = number < setup.homes as usize;
        let zones = f64::from(ZONES_PER_HOME) * if is_home { 1.0 } else { f64::from(setup.homes) };
        let (updates, inputs) = (zones * f64::from(UPDATES_PER_S), zones * f64::from(INPUTS_PER_S));
        let expected = match (is_home, setup.reads) {
            (true, true) => (updates, inputs * f64::from(setup.edges)),
            (true, false) => (updates, 0.0),
            (false, true) => (inputs, updates),
            (false, false) => (0.0, 0.0),
        };
        let is_near = |figure: f64, expected: f64| (figure - expected).abs() <= 0.03 * expected + 1.0;
        if !is_near(sent, expected.0) || !is_near(received, expected.1) {
            return Err(format!("member {number} sent {sent} and received {received}, not {expected:?}").into());
        }
    }
    Ok(())
}

/// Processor time of all threads of a process.
fn seconds(process: u32) -> f64 {
    let folder = Path::new("/proc").join(process.to_string()).join("task");
    let threads = fs::read_dir(folder).into_iter().flatten().flatten();
    let of_thread = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    };
    threads.filter_map(of_thread).sum::<f64>() / 1e9
}

fn nats_server() -> Result<PathBuf, Failure> {
    if let Some(named) = std::env::var_os("THRONG_NATS_SERVER") {
        return Ok(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go/bin"));
    let found =
        std::env::split_paths(&path).chain(home).map(|folder| folder.join("nats-server")).find(|file| file.is_file());
    found.ok_or_else(|| "there is no nats-server: name it in THRONG_NATS_SERVER".into())
}

/// A home or an edge, until standard input ends.
fn member(arguments: &[String], is_home: bool) -> Result<(), Failure> {
    let [port, number, update_bytes, homes, reads] = arguments else { return Err("five arguments".into()) };
    let (number, homes): (u32, u32) = (number.parse()?, homes.parse()?);
    let (bytes, reads): (usize, bool) = (update_bytes.parse()?, reads.parse()?);
    let id = MemberId(u64::from(number) * 2 + u64::from(is_home) + 1);
    let address = format!("nats://127.0.0.1:{port}");
    let mut bus =
        NatsBus::start(NatsOptions { creates: true, ..NatsOptions::new(&address, Cluster::new("scale", 1)?, id) })?;
    let began = Instant::now();
    let now = || Time::from(began.elapsed());
    let listens_to = if is_home { format!("in.{number}.*") } else { "state.>".to_owned() };
    if is_home || reads {
        bus.subscribe(now(), SubscriptionId(1), &Pattern::new(&listens_to)?)?;
    }
    let zones = |home: u32| (0..ZONES_PER_HOME).map(move |zone| (home, zone));
    let subjects = match (is_home, reads) {
        (true, _) => zones(number).map(|(home, zone)| Subject::new(&format!("state.{home}.{zone}"))).collect(),
        (false, true) => {
            (0..homes).flat_map(zones).map(|(home, zone)| Subject::new(&format!("in.{home}.{zone}"))).collect()
        }
        (false, false) => Ok(Vec::new()),
    };
    let subjects: Vec<Subject> = subjects?;
    let payload = vec![7u8; if is_home { bytes } else { INPUT_BYTES }];
    let interval = Duration::from_secs(1) / if is_home { UPDATES_PER_S } else { INPUTS_PER_S };
    println!("ready");
    std::io::stdout().flush()?;
    let (ended, mut next) = (watch_input(), began + interval);
    let (mut sent, mut received, mut marked) = (0u64, 0u64, None);
    while !ended.load(std::sync::atomic::Ordering::Relaxed) {
        bus.wait(next.saturating_duration_since(Instant::now()));
        bus.handle_timeout(now());
        while let Some(event) = bus.poll_event(now()) {
            received += u64::from(matches!(event, Event::Message(_)));
        }
        if Instant::now() >= next {
            for subject in &subjects {
                bus.publish(now(), subject, payload.clone().into())?;
                sent += 1;
            }
            next += interval;
        }
        // All members are there by then.
        if marked.is_none() && began.elapsed() > SETTLE {
            marked = Some((Instant::now(), sent, received));
        }
    }
    let (since, sent_before, received_before) = marked.ok_or("ended too early")?;
    let per_s = |count: u64, before: u64| (count - before) as f64 / since.elapsed().as_secs_f64();
    println!("{} {}", per_s(sent, sent_before), per_s(received, received_before));
    Ok(())
}

/// True when standard input has ended.
fn watch_input() -> std::sync::Arc<std::sync::atomic::AtomicBool> {
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = ended.clone();
    std::thread::spawn(move || {
        for _ in std::io::stdin().lines() {}
        told.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    ended
}
