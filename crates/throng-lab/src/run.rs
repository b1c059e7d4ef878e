//! A whole run: the server in this process, the bots in a second process, and the results.

mod crew;
mod disk;
mod evenness;
mod faults;
mod ledger;
mod live;
mod parts;
mod progress;
mod remote;
mod samples;
mod serve;
mod show;
mod stages;
mod tally;
mod word;
mod worker;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use core_affinity::CoreId;
use throng::{Channels, Key, Replication, Schema, ServerOptions, StartError, Tick, Time};
use throng_crowd::scenario::{FaultKind, Model, Profile, Scenario};
use throng_crowd::truth::{self, TruthKeeper, TruthWriter};
use throng_machine::piped::{self, Piped, Unsaid};
use throng_machine::{Moment, clock};
use throng_models::{Detection, Graph, Legacy, SharedState, SharedStateOptions};
use throng_report::{Phases, ProgressLine};

use crate::bots::{BotsOptions, BotsReport, EdgePoint};
use crate::bus::{self, Access, BusOrder, Middle};
use crate::control::{Command, PlayerCount};
use crate::cut::Cut;
use crate::edge::{EdgeOrder, EdgeReport};
use crate::floor::FloorTime;
use crate::host::{Door, Host, Socket};
use crate::losses::Losses;
use crate::report::{self, ReportError};
use crate::server::{ServerOrder, ServerPoint, ServerReport, ServerWatch};
use crate::slow_reader::Read;
use crew::Crew;
pub use crew::{WorkerName, WorkerPlace, WorkersOptions};
use disk::Disk;
use evenness::Evenness;
use faults::Faults;
use ledger::Ledger;
pub use live::LiveMetrics;
use parts::{Again, Parts};
use samples::{Kept, Samples, Written};
pub use serve::{ServeOptions, serve};
use show::Show;
use throng_summary::{RunSummary, ServerFigures, WorkerFigures};
pub use worker::{Listen, WorkerOptions, work};

/// Options of a run.
pub struct RunOptions {
    /// The scenario.
    pub scenario: Scenario,
    /// Parent folder of the run's folder.
    pub runs: PathBuf,
    /// The command of the bots' process; it reads [`BotsOptions`] from its standard input.
    pub bots_command: Vec<OsString>,
    /// The command of an edge's process: it calls [`play_edge`](crate::play_edge). Only needed for scenarios with edges.
    pub edge_command: Vec<OsString>,
    /// The command of a further server's process: it calls [`play_server`](crate::play_server). Only needed for scenarios with
    /// several servers.
    pub server_command: Vec<OsString>,
    /// Whether a progress bar is shown.
    pub show_progress: bool,
    /// Gets a line before anything else happens: what is played, and how long it takes.
    pub note: fn(&str),
    /// Heap allocations of the calling thread so far, if the program counts them.
    pub allocations: Option<fn() -> u64>,
    /// The load workers that play the bots; `None`: a process on this machine does.
    pub workers: Option<WorkersOptions>,
    /// Gets how many players are wanted from now on, while the run plays: at most as many as the scenario has.
    pub wanted: Option<Receiver<u32>>,
    /// Whether the last frames are written as a trace too.
    pub trace: bool,
    /// Gets the run's metrics while it plays.
    pub metrics: Option<LiveMetrics>,
    /// Where servers and edges meet, if that is NATS (feature `nats`). Otherwise they need nothing: the run carries what they say.
    pub bus: Option<BusOptions>,
    /// Where a live page takes figures while the run plays. Without one there, the run plays all the same, and a note says so.
    pub live: Option<SocketAddr>,
}

impl RunOptions {
    /// With bots in one process that this command starts, without edges and further servers, and without a word while it plays.
    pub fn new(scenario: Scenario, runs: PathBuf, bots_command: Vec<OsString>) -> RunOptions {
        RunOptions {
            scenario,
            runs,
            bots_command,
            edge_command: Vec::new(),
            server_command: Vec::new(),
            show_progress: false,
            note: |_| (),
            allocations: None,
            workers: None,
            wanted: None,
            trace: false,
            metrics: None,
            bus: None,
            live: None,
        }
    }
}

/// A nats-server for the servers and edges of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusOptions {
    /// Its addresses, with commas between them, as `nats://127.0.0.1:4222`.
    pub nats: String,
    /// Whether servers and edges send each other state, inputs and messages over it too, and have no UDP between them. Each server has
    /// one thread then.
    pub carries_links: bool,
}

/// The result of a run.
pub struct RunResult {
    /// The figures.
    pub summary: RunSummary,
    /// The folder with `summary.json`, `report.html`, `frames.parquet`, `seconds.jsonl`, and `trace.json` if it was asked for.
    pub folder: PathBuf,
    /// The path of `report.html`, beside `summary.json`; or why it could not be written.
    pub report: Result<PathBuf, ReportError>,
}

/// Time for the connections, and one more second for each this many bots.
const CONNECT_PATIENCE_S: u64 = 20;
const CONNECTS_PER_S: u64 = 400;
/// The pause between the last movement and the comparison, beside two turns of the slowest ring: everything must have
/// been sent, lost and sent again.
const SETTLE: Duration = Duration::from_millis(3_000);
/// The players of a server that a fault kills are there again by then: after its lease, and what follows that.
const COME_BACK: Duration = Duration::from_secs(6);
/// Length of what is recorded for the floor, and of one replay of it.
const FLOOR: Duration = Duration::from_millis(1_500);
/// The bots have this long to report.
const REPORT_PATIENCE: Duration = Duration::from_secs(15);
const SECOND: Duration = Duration::from_secs(1);
/// Members of the bus are numbered in such a distance from those of processes that had their places before. A run has 80 processes and
/// 32 faults at most, so all numbers are below that of the links' bit.
const MEMBERS_OF_LIFE: u64 = 1 << 8;
/// Why bots left, as far as it is reported.
const REASONS: usize = 3;

/// The host's command on standard input, for the built-in bots.
pub fn read_order() -> Result<BotsOptions> {
    piped::read_order().context("there is no order on the standard input")
}

/// Runs the scenario and writes the report. Ends early, but in order, when `stop` is set.
pub fn run(options: &RunOptions, stop: &AtomicBool) -> Result<RunResult> {
    match options.scenario.model {
        Model::Throng => run_with(options, stop, Channels::new),
        Model::Legacy => run_with(options, stop, |schema, options| Legacy::new(schema, options, Detection::Poll)),
        Model::LegacyPush => run_with(options, stop, |schema, options| Legacy::new(schema, options, Detection::Push)),
        Model::Graph => run_with(options, stop, Graph::new),
        Model::SharedState => {
            let Scenario { scratch, baselines, .. } = options.scenario;
            let shared = SharedStateOptions { scratch: scratch.for_model(), has_baselines: baselines };
            run_with(options, stop, |schema, options| SharedState::new(schema, options, shared))
        }
    }
}

fn run_with<R: Replication>(
    options: &RunOptions,
    stop: &AtomicBool,
    model: impl FnOnce(&Arc<Schema>, &ServerOptions) -> Result<R, StartError>,
) -> Result<RunResult> {
    let started_at = SystemTime::now();
    let folder = throng_report::new_folder(&options.runs, started_at, &options.scenario.name)?;
    let (disk, files) = (Disk::default(), Kept { trace: options.trace, distributions: options.metrics.is_some() });
    let played = Samples::create(&folder, files, &disk).and_then(|samples| {
        (options.note)(&announcement(&options.scenario));
        play(Play::begin(options, stop, (samples, disk), model)?, started_at)
    });
    if played.is_err() {
        samples::remove_empty(&folder);
    }
    let summary = played?;
    let report = report::write(&folder, &summary);
    Ok(RunResult { summary, folder, report })
}

fn play<R: Replication>(mut play: Play<'_, R>, started_at: SystemTime) -> Result<RunSummary> {
    let display = ProgressLine::new(play.options.show_progress, progress::phases(&play.options.scenario));
    play.connect(&display)?;
    play.warm_up(&display)?;
    play.measure(&display)?;
    play.floor();
    let bots = play.settle(&display)?;
    Ok(play.summary(&bots, started_at))
}

/// The first line of a run.
fn announcement(scenario: &Scenario) -> String {
    let Scenario { name, players, tick_hz, .. } = scenario;
    let course = match scenario.profile {
        Profile::Constant => String::new(),
        profile => format!(" ({profile})"),
    };
    progress::phases(scenario).announcement(&format!("{name}: {players} players{course} at {tick_hz} Hz"))
}

/// The time in which everything arrives after the last movement.
pub(crate) fn settling(scenario: &Scenario) -> Duration {
    let kills = scenario.faults.iter().filter(|fault| fault.ends_a_server());
    let back = kills.map(|fault| fault.ends() + COME_BACK).max().unwrap_or_default();
    let missing = back.saturating_sub(SECOND * scenario.seconds);
    SETTLE + missing + SECOND * 2 * scenario.slowest_interval_ticks() / scenario.tick_hz
}

struct Play<'a, R> {
    options: &'a RunOptions,
    stop: &'a AtomicBool,
    host: Host<R>,
    meeting: Meeting,
    bots: Crew,
    edges: Parts<EdgePoint, EdgeReport>,
    /// The servers after the first.
    servers: Parts<ServerPoint, ServerReport>,
    /// The work of the first of several servers.
    watch: Option<ServerWatch>,
    first_server: Option<ServerFigures>,
    /// Losses and refusals of the first server until the end of the measured part.
    own_losses: Option<Losses>,
    evenness: Evenness,
    /// Processor time of edges and further servers in the measured part, in seconds.
    parts_cpu_s: f64,
    faults: Faults,
    has_begun: bool,
    show: Option<Show>,
    /// The numbers of players that viewers of the live page want.
    wanted_by_viewers: Option<Receiver<u32>>,
    truth: TruthWriter,
    truth_interval_ticks: u32,
    ledger: Ledger,
    /// `None` once they are written.
    samples: Option<Samples>,
    disk: Disk,
    /// So many players are to play.
    wanted: u32,
    /// The newest number that was told from outside.
    told: Option<u32>,
    /// Why the bots' process has ended before the run did.
    bots_fault: Option<String>,
    workers: Vec<WorkerFigures>,
    floor: Option<FloorTime>,
}

impl<'a, R: Replication> Play<'a, R> {
    fn begin(
        options: &'a RunOptions,
        stop: &'a AtomicBool,
        (samples, disk): (Samples, Disk),
        model: impl FnOnce(&Arc<Schema>, &ServerOptions) -> Result<R, StartError>,
    ) -> Result<Play<'a, R>> {
        let scenario = &options.scenario;
        let key = throng::random_key();
        let reached = options.workers.as_ref().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |workers| workers.server);
        let order = bus_order(options)?;
        // No fault cuts the first server, which is in the process of the run.
        let own = order.as_ref().map(|order| BusOrder { is_cut: false, ..order.clone() });
        let access = own.map(|own| Access::new(&own, &Cut::default())).transpose()?;
        let socket = Socket::open(access.as_ref(), SocketAddr::new(reached, 0))?;
        let mut host = Host::with_model(scenario, (0, Tick(0)), Door { socket, public: None, key: key.clone() }, model)
            .context("cannot start the server")?;
        let meeting = Meeting::begin(order.zip(access), &mut host)?;
        let truth =
            TruthWriter::create(truth::room(scenario)).context("cannot create the file with the server's state")?;
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        let is_pinned = scenario.pin && cores.len() > 1;
        let cores_of = if is_pinned { CoresOf::of(&cores, scenario.edges > 0) } else { CoresOf::default() };
        let shown = options.live.map(|address| Show::begin(address, scenario)).transpose();
        let (show, wanted_by_viewers) = match shown {
            Ok(shown) => shown.unzip(),
            Err(error) => {
                (options.note)(&error.to_string());
                (None, None)
            }
        };
        let server = host.server().local_address();
        let servers = start_servers(options, &meeting, &key, &cores_of)?;
        let points = servers.points();
        let addresses = std::iter::once(server).chain(points.iter().map(|point| point.address)).collect();
        let edges = start_edges(options, &meeting, addresses, (&key, &cores_of))?;
        let truths = std::iter::once(truth.path().to_owned()).chain(points.into_iter().map(|point| point.truth));
        let bots = match &options.workers {
            None => {
                let bots = BotsOptions::new(server, key.clone(), scenario.clone());
                let (edges, truths, cores) = (edges.points(), truths.collect(), cores_of.bots);
                let bots = BotsOptions { edges, truths, cores, ..bots };
                Crew::here(Piped::start(&options.bots_command, &bots).context("cannot start the bots")?)
            }
            Some(workers) => Crew::of_workers(workers, scenario, (server, &key))?,
        };
        // Before this thread is pinned to one core, so that the whole machine is described.
        let ledger = Ledger::new(scenario, options.allocations.is_some(), is_pinned.then(|| cores[0].id));
        if is_pinned {
            core_affinity::set_for_current(cores[0]);
        }
        if let Some(metrics) = &options.metrics {
            metrics.begin(samples.telemetry());
        }
        Ok(Play {
            ledger,
            samples: Some(samples),
            disk,
            show,
            wanted_by_viewers: wanted_by_viewers.flatten(),
            options,
            stop,
            host,
            meeting,
            bots,
            edges,
            servers,
            watch: None,
            first_server: None,
            own_losses: None,
            evenness: Evenness::default(),
            parts_cpu_s: 0.0,
            faults: Faults::new(&scenario.faults),
            has_begun: false,
            wanted: scenario.profile.first(scenario.players),
            told: None,
            bots_fault: None,
            workers: Vec::new(),
            truth,
            truth_interval_ticks: match scenario.edges {
                0 => (scenario.tick_hz / scenario.truth_hz).max(1),
                // A client of an edge is told no tick of the server: its state is looked for among those of all ticks.
                _ => 1,
            },
            floor: None,
        })
    }

    fn connect(&mut self, display: &ProgressLine) -> Result<()> {
        let scenario = &self.options.scenario;
        let patience_s = CONNECT_PATIENCE_S + u64::from(scenario.players) / CONNECTS_PER_S;
        let until = clock::now().after(Duration::from_secs(patience_s));
        while self.players().connected + self.players().ended < self.wanted && clock::now() < until {
            self.follow();
            self.tick()?;
            progress::connecting(display, self.players().connected, scenario.players);
            if self.stops() {
                break;
            }
        }
        if self.players().connected == 0 && !self.stops() {
            bail!("no bot has connected within {patience_s} s");
        }
        Ok(())
    }

    /// The players of all servers.
    fn players(&self) -> PlayerCount {
        let others = self.servers.players();
        PlayerCount { connected: self.host.connected() + others.connected, ended: self.host.ended() + others.ended }
    }

    fn warm_up(&mut self, display: &ProgressLine) -> Result<()> {
        let length = Duration::from_secs(u64::from(self.options.scenario.warmup_seconds));
        self.for_a_while(length, |_, elapsed| display.warm_up(elapsed))
    }

    fn measure(&mut self, display: &ProgressLine) -> Result<()> {
        let length = Duration::from_secs(u64::from(self.options.scenario.seconds));
        self.mark("the measured part begins");
        let begin = self.bots.measure();
        while clock::now() < begin && !self.stops() {
            self.tick()?;
        }
        self.edges.measure();
        self.servers.measure();
        self.watch = (!self.servers.is_empty()).then(|| ServerWatch::begin(&self.host));
        self.ledger.begin(&self.host);
        let mut is_recorded = false;
        self.for_a_while(length, |play, elapsed| {
            if elapsed >= length / 2 && !std::mem::replace(&mut is_recorded, true) {
                let interval = SECOND / play.options.scenario.tick_hz;
                play.host.record((FLOOR.as_micros() / interval.as_micros().max(1)).max(1) as usize);
            }
            let turned = clock::now();
            let processes = (&mut play.edges, &mut play.servers, &play.disk);
            let all_happened = play.faults.turn((elapsed, play.has_begun), processes);
            play.ledger.note_measuring(clock::now().since(turned));
            all_happened.iter().for_each(|happened| play.mark(happened));
            let others = play.servers.players_of_each();
            play.evenness.take(elapsed, std::iter::once(Some(play.host.connected())).chain(others));
            let (host, bots) = (&play.host, play.bots.progress());
            if play.ledger.second_is_over() {
                let began = clock::now();
                let second = play.ledger.take_second(host, bots);
                play.samples.iter_mut().for_each(|samples| samples.take_second(&second));
                play.ledger.note_measuring(clock::now().since(began));
            }
            progress::measuring(display, elapsed, &play.ledger, bots);
        })?;
        self.faults.end((&mut self.edges, &mut self.servers, &self.disk));
        self.ledger.end(&self.host);
        self.mark("the measured part has ended");
        self.bots.tell(Command::Settle);
        self.parts_cpu_s = self.edges.settle() + self.servers.settle();
        self.first_server = self.watch.take().map(|watch| watch.figures(&self.host));
        self.own_losses = Some(self.host.losses());
        Ok(())
    }

    /// Ticks for so long, or until the run is stopped, and calls `each` after each tick.
    fn for_a_while(&mut self, length: Duration, mut each: impl FnMut(&mut Self, Duration)) -> Result<()> {
        let began = clock::now();
        while clock::now().since(began) < length && !self.stops() {
            self.follow();
            self.tick()?;
            each(self, clock::now().since(began));
        }
        Ok(())
    }

    fn mark(&mut self, text: &str) {
        if let Some(show) = &mut self.show {
            show.mark(text);
        }
    }

    /// Has as many bots play as are wanted now: by the profile, or once somebody has told a number, by that.
    fn follow(&mut self) {
        let told = self.options.wanted.iter().chain(&self.wanted_by_viewers);
        let newest = told.flat_map(|wanted| wanted.try_iter()).last();
        self.told = newest.or(self.told);
        let Scenario { profile, players, .. } = &self.options.scenario;
        let planned = || profile.players_at(*players, self.ledger.measured_for());
        let wanted = self.told.map_or_else(planned, |told| told.min(*players));
        self.ledger.note_wanted(wanted);
        if std::mem::replace(&mut self.wanted, wanted) != wanted {
            self.bots.tell(Command::Players(wanted));
        }
    }

    fn floor(&mut self) {
        if self.stops() {
            return;
        }
        self.floor = self.host.measure_floor();
    }

    /// Waits until everything has arrived, lets the bots compare it with the server's state, and reads their report.
    fn settle(&mut self, display: &ProgressLine) -> Result<BotsReport> {
        if self.bots.is_gone() {
            return Ok(self.take_report());
        }
        self.host.freeze();
        self.servers.tell(Command::Freeze);
        let (began, length) = (clock::now(), settling(&self.options.scenario));
        while clock::now().since(began) < length && !self.bots.is_gone() {
            self.tick()?;
            let elapsed = clock::now().since(began);
            display.show(Phases::SETTLING, elapsed, || "comparing the bots' state with the server's".to_owned());
        }
        let (tick, began) = timed(clock::now, || self.host.tick());
        let last = self.truth.write((tick, began), None, true, self.host.true_objects());
        last.context("cannot write the server's state")?;
        self.bots.note_snapshot(self.truth.written());
        self.servers.tell(Command::Last);
        self.bots.tell(Command::Stop);
        let until = clock::now().after(REPORT_PATIENCE);
        loop {
            self.host.wait();
            self.host.tick();
            self.bots.listen();
            if clock::now() > until {
                self.bots.give_up(REPORT_PATIENCE);
            }
            if self.bots.is_gone() || self.bots.has_reported() {
                return Ok(self.take_report());
            }
        }
    }

    /// The report of the bots that are left.
    fn take_report(&mut self) -> BotsReport {
        self.bots_fault = self.bots.fault();
        let (report, workers) = self.bots.report();
        self.workers = workers;
        report
    }

    fn tick(&mut self) -> Result<()> {
        let count = self.options.allocations;
        let before = count.map(|count| count());
        self.host.wait();
        let tick = self.host.server().current_tick();
        let noted = clock::now();
        self.truth.note_tick(tick, noted).context("cannot write the time of a tick")?;
        self.bots.note_tick(tick, noted);
        let is_written = tick.0.is_multiple_of(self.truth_interval_ticks.into());
        // A client of an edge may be sent any tick at any moment, so the state is written first. Without edges, clients wait meanwhile.
        let is_first = is_written && self.options.scenario.edges > 0;
        let began = clock::now();
        let (truth, moment) = (&mut self.truth, (tick, began));
        let played = self.host.tick_written(|host, _, plan| match is_first {
            true => truth.write(moment, plan, false, host.true_changing()),
            false => Ok(()),
        });
        let (_, writing) = played.context("cannot write the server's state")?;
        let ended = clock::now();
        if let Some(watch) = &mut self.watch {
            watch.take(&self.host, ended.since(began).saturating_sub(writing));
        }
        let allocations = count.zip(before).map(|(count, before)| count() - before);
        self.ledger.take_tick(&self.host, began, allocations);
        if let (Some(samples), Some(measured_for)) = (&mut self.samples, self.ledger.place_of(began)) {
            samples.take(self.host.server().last_tick(), measured_for, self.host.last_finish());
        }
        if let Some(metrics) = &self.options.metrics {
            metrics.take(&self.host, self.bots.progress());
        }
        if let Some(show) = &mut self.show {
            show.take(&self.host, self.bots.progress(), self.wanted);
        }
        if is_written {
            if !is_first {
                let written = self.truth.write(moment, self.host.plan(), false, self.host.true_changing());
                written.context("cannot write the server's state")?;
            }
            self.bots.note_snapshot(self.truth.written());
        }
        self.bots.listen();
        self.edges.listen();
        self.servers.listen();
        if !self.has_begun && self.players().connected >= self.options.scenario.start_at_connected() {
            self.has_begun = true;
            self.host.begin();
            self.servers.tell(Command::Begin);
        }
        self.ledger.note_measuring(began.since(noted) + clock::now().since(ended));
        if let Some(fault) = self.bots.fault() {
            // The figures until then are worth a report.
            if !self.ledger.has_begun() {
                bail!(fault);
            }
            self.bots_fault = Some(fault);
        }
        Ok(())
    }

    /// Whether the run ends here.
    fn stops(&self) -> bool {
        self.is_interrupted() || self.bots_fault.is_some()
    }

    fn is_interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Adds the figures of edges and further servers. One that is gone makes the run not valid. Returns what became of datagrams at
    /// each edge that was a slow reader.
    fn end_parts(&mut self, summary: &mut RunSummary) -> Vec<Option<Read>> {
        let (edges, edge_faults) = std::mem::take(&mut self.edges).finish();
        let (servers, server_faults) = std::mem::take(&mut self.servers).finish();
        let read = edges.iter().map(|edge| edge.as_ref().map(|edge| edge.read)).collect();
        let (edges, of_edges): (Vec<_>, Vec<_>) =
            edges.into_iter().map(Option::unwrap_or_default).map(|edge| (edge.figures, edge.losses)).unzip();
        let (servers, of_servers): (Vec<_>, Vec<_>) =
            servers.into_iter().map(Option::unwrap_or_default).map(|server| (server.figures, server.losses)).unzip();
        let own_losses = self.own_losses.take().unwrap_or_else(|| self.host.losses());
        let of_servers = std::iter::once(own_losses).chain(of_servers);
        summary.losses =
            of_edges.into_iter().enumerate().flat_map(|(edge, losses)| losses.named("edge", edge)).collect();
        let named = of_servers.enumerate().flat_map(|(server, losses)| losses.named("server", server));
        summary.losses.extend(named);
        // A process that was killed has no figures, and one that came late has those of a shorter time.
        let own_cpu_cores = self.parts_cpu_s / self.ledger.seconds_measured().max(1e-9);
        summary.head.others_cpu_cores = summary.head.others_cpu_cores.map(|cores| (cores - own_cpu_cores).max(0.0));
        summary.edges = edges;
        summary.servers = self.first_server.take().into_iter().chain(servers).collect();
        for (number, server) in summary.servers.iter_mut().enumerate() {
            server.players_by_second = self.evenness.of(number);
        }
        summary.servers_even_after_s = self.evenness.even_after_s().filter(|_| summary.servers.len() > 1);
        summary.head.invalid_reasons.extend(edge_faults);
        summary.head.invalid_reasons.extend(server_faults);
        read
    }

    /// The rest of the files is written. Says what is missing in them.
    fn end_files(&mut self, summary: &mut RunSummary) -> Read {
        let Written { lost, missing } = self.samples.take().map(Samples::finish).unwrap_or_default();
        missing.iter().for_each(|missing| (self.options.note)(missing));
        let of_bus = self.meeting.middle.as_ref().and_then(|middle| middle.counters().line());
        let of_links = self.meeting.access.as_ref().and_then(Access::line).map(|line| format!("server 1: {line}"));
        of_bus.iter().chain(&of_links).for_each(|line| (self.options.note)(line));
        summary.head.missing.extend(missing);
        Read { delayed: self.disk.delayed(), lost }
    }

    fn summary(&mut self, bots: &BotsReport, started_at: SystemTime) -> RunSummary {
        let mut summary = self.ledger.summary(bots, self.floor);
        crew::note_workers(&mut summary, std::mem::take(&mut self.workers));
        let read = self.end_parts(&mut summary);
        let written = self.end_files(&mut summary);
        summary.faults.clone_from(&bots.faults);
        faults::note_slow(&mut summary.faults, &read, written);
        let fault = self.bots_fault.clone().map(|fault| match summary.workers.iter().any(|worker| !worker.missing) {
            true => End::Workers(fault),
            false => End::Bots(fault),
        });
        let end = self.is_interrupted().then_some(End::Interrupted).or(fault);
        conclude(&mut summary, bots, (started_at, end.as_ref()));
        summary
    }
}

/// The bus of the first server; `None` if there is no other one.
fn bus_order(options: &RunOptions) -> Result<Option<BusOrder>> {
    if options.scenario.servers < 2 {
        if options.bus.is_some() {
            bail!("one server has nobody to meet at --bus: add --servers 2 --edges 2, or leave it out");
        }
        return Ok(None);
    }
    let carries_links = options.bus.as_ref().is_some_and(|bus| bus.carries_links);
    if carries_links && options.scenario.server_threads > 1 {
        bail!("a server with several threads is reached by UDP only: leave out --bus-links or --server-threads");
    }
    // Members of different runs at one nats-server are different, too.
    let member = fastrand::u64(..) & !0xFFFF;
    let nats = options.bus.as_ref().map(|bus| bus.nats.clone());
    let is_cut = options.scenario.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Cut(_)));
    Ok(Some(BusOrder { member, world: format!("run-{member:016x}"), nats, carries_links, is_cut }))
}

/// Where servers and edges of a run meet, if it has several servers.
#[derive(Default)]
struct Meeting {
    order: Option<BusOrder>,
    /// `None` if they meet at a nats-server.
    middle: Option<Middle>,
    /// Of the first server.
    access: Option<Access>,
}

impl Meeting {
    /// The first server joins.
    fn begin<R: Replication>(way: Option<(BusOrder, Access)>, host: &mut Host<R>) -> Result<Meeting> {
        let Some((order, access)) = way else { return Ok(Meeting::default()) };
        let member = order.member;
        let middle = if order.nats.is_none() { Some(Middle::start()?) } else { None };
        let (to_first, lines) = std::sync::mpsc::channel();
        let say: Box<dyn FnMut(bus::Up) + Send> = match middle.clone() {
            Some(middle) => {
                // The first server is in this process, and ends with it.
                middle.join(member, Box::new(move |down| to_first.send(down).map_err(|_| Unsaid::Gone)));
                Box::new(move |up| middle.hear(member, up))
            }
            None => Box::new(|_| ()),
        };
        host.join_world(&order.world, access.open(say, lines)?)?;
        Ok(Meeting { order: Some(order), middle, access: Some(access) })
    }

    fn member(&self, number: u32) -> u64 {
        self.order.as_ref().map_or(0, |order| order.of(number.into()).member)
    }
}

/// The servers after the first.
fn start_servers(
    options: &RunOptions,
    meeting: &Meeting,
    key: &Key,
    cores: &CoresOf,
) -> Result<Parts<ServerPoint, ServerReport>> {
    let Some(bus) = &meeting.order else { return Ok(Parts::default()) };
    let scenario = &options.scenario;
    let order = |number: u32| ServerOrder {
        bus: bus.of(number.into()),
        number: number as u16,
        key: *key.as_bytes(),
        scenario: scenario.clone(),
        core: cores.of_part(number - 1),
        life: 0,
        truth: None,
    };
    let orders =
        (1..scenario.servers).map(|number| (format!("server {}", number + 1), meeting.member(number), order(number)));
    let mut servers = Parts::start(&options.server_command, meeting.middle.as_ref(), orders)?;
    if scenario.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Restart(_))) {
        let orders: Vec<ServerOrder> = (1..scenario.servers).map(order).collect();
        servers.set_again(again(options.server_command.clone(), meeting.middle.clone(), orders, &servers.points())?);
    }
    Ok(servers)
}

/// Starts servers in the places of those that were killed. The files of their states are kept open here: bots read on in them.
fn again(
    command: Vec<OsString>,
    middle: Option<Middle>,
    orders: Vec<ServerOrder>,
    points: &[ServerPoint],
) -> Result<Again> {
    let keep = |point: &ServerPoint| TruthKeeper::open(&point.truth).with_context(|| point.truth.display().to_string());
    let files = points.iter().map(keep).collect::<Result<Vec<TruthKeeper>>>()?;
    Ok(Box::new(move |index, life| {
        let (Some(order), Some(file)) = (orders.get(index), files.get(index)) else { bail!("there is no such server") };
        let truth = file.path().to_owned();
        // Every process is a member of its own: the bus knows the former one as somebody else.
        let bus = order.bus.of(MEMBERS_OF_LIFE * u64::from(life));
        let order = ServerOrder { life, truth: Some(truth), bus, ..order.clone() };
        parts::spawn(&command, middle.as_ref(), order.bus.member, &order)
    }))
}

/// The edges before the servers at these addresses.
fn start_edges(
    options: &RunOptions,
    meeting: &Meeting,
    servers: Vec<SocketAddr>,
    (key, cores): (&Key, &CoresOf),
) -> Result<Parts<EdgePoint, EdgeReport>> {
    let first = options.scenario.servers;
    let order = |number: u32| EdgeOrder {
        bus: meeting.order.as_ref().map(|bus| bus.of(u64::from(first + number))),
        number,
        servers: servers.clone(),
        key: *key.as_bytes(),
        scenario: options.scenario.clone(),
        core: cores.of_part(options.scenario.servers - 1 + number),
    };
    let orders = (0..options.scenario.edges)
        .map(|number| (format!("edge {}", number + 1), meeting.member(first + number), order(number)));
    Parts::start(&options.edge_command, meeting.middle.as_ref(), orders)
}

/// The cores of a pinned run. The first server has the first one.
#[derive(Debug, Default, PartialEq)]
struct CoresOf {
    bots: Option<Vec<usize>>,
    /// Of edges and further servers, in turn.
    parts: Vec<usize>,
}

impl CoresOf {
    /// Bots have one thread: with edges, they have the last core, and the others are for edges and servers.
    fn of(cores: &[CoreId], has_edges: bool) -> CoresOf {
        let ids: Vec<usize> = cores.iter().map(|core| core.id).collect();
        match (has_edges, &ids[..]) {
            (true, [parts @ .., bots]) => {
                let spare = if parts.len() > 1 { &parts[1..] } else { parts };
                CoresOf { bots: Some(vec![*bots]), parts: spare.to_vec() }
            }
            _ => CoresOf { bots: Some(ids.into_iter().skip(1).collect()), parts: Vec::new() },
        }
    }

    fn of_part(&self, number: u32) -> Option<usize> {
        let place = (number as usize).checked_rem(self.parts.len())?;
        Some(self.parts[place])
    }
}

/// Why a run ended before its end.
#[derive(Clone, Debug)]
enum End {
    /// Its user has stopped it.
    Interrupted,
    /// The bots are gone, or say nothing.
    Bots(String),
    /// Some load workers are, and the others have reported.
    Workers(String),
}

/// Adds moment and verdict to a summary.
fn conclude(summary: &mut RunSummary, bots: &BotsReport, (started_at, end): (SystemTime, Option<&End>)) {
    summary.head.started_at = Moment::of(started_at).long();
    summary.head.partial = end.is_some();
    match end {
        Some(End::Interrupted) => summary.head.invalid_reasons.push("the run was stopped before its end".to_owned()),
        Some(End::Bots(fault)) => {
            summary.bots.missing = true;
            summary.head.missing.push("bots".to_owned());
            summary.head.invalid_reasons.push(format!("{fault}: all that bots measure is missing"));
        }
        Some(End::Workers(fault)) => {
            summary
                .head
                .invalid_reasons
                .push(format!("{fault}: the figures of bots are those of the other load workers"));
        }
        None => {}
    }
    let without =
        bots.without_last.iter().map(|server| format!("server {server} has left no last state to compare with"));
    summary.head.invalid_reasons.extend(without);
    for (reason, count) in bots.ends.iter().take(REASONS) {
        summary.head.invalid_reasons.push(format!("{count} bots: {reason}"));
    }
    summary.conclude();
}

/// The result of `tick`, and the time at which it began. State is as old as the beginning of its tick: counted from the
/// end, a server that takes long for a tick would seem to send what is fresh.
fn timed<T>(now: impl Fn() -> Time, tick: impl FnOnce() -> T) -> (T, Time) {
    let began = now();
    (tick(), began)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Mutex;

    use super::*;
    use throng_crowd::scenario::Overrides;

    static FIRST_LINE: Mutex<String> = Mutex::new(String::new());

    #[test]
    fn the_bots_of_a_pinned_run_share_their_core_with_no_edge() {
        let cores = |count: usize| (0..count).map(|id| CoreId { id }).collect::<Vec<_>>();
        let of = |count, has_edges| CoresOf::of(&cores(count), has_edges);
        assert_eq!(of(2, false), CoresOf { bots: Some(vec![1]), parts: vec![] });
        assert_eq!(of(4, false), CoresOf { bots: Some(vec![1, 2, 3]), parts: vec![] });
        assert_eq!(of(2, true), CoresOf { bots: Some(vec![1]), parts: vec![0] });
        let four = of(4, true);
        assert_eq!(four, CoresOf { bots: Some(vec![3]), parts: vec![1, 2] });
        assert_eq!([0, 1, 2].map(|part| four.of_part(part)), [Some(1), Some(2), Some(1)]);
        assert_eq!(CoresOf::default().of_part(7), None);
    }

    #[test]
    fn the_first_line_comes_before_the_server_has_its_bots_and_says_how_long_it_takes() {
        let runs = tempfile::tempdir().unwrap();
        let overrides =
            Overrides { players: Some(30), seconds: Some(5), warmup_seconds: Some(2), ..Overrides::default() };
        let scenario = Scenario::resolve("crowd", &overrides).unwrap();
        let options = RunOptions {
            note: |line| line.clone_into(&mut FIRST_LINE.lock().unwrap()),
            // No bot ever connects.
            ..RunOptions::new(scenario, runs.path().to_owned(), vec!["false".into()])
        };
        assert!(run(&options, &AtomicBool::new(false)).is_err());
        // 3 s around, 1 s to connect, 7 s of play, 4 s for the floor, 5 s until all is at rest.
        let line = FIRST_LINE.lock().unwrap().clone();
        assert_eq!(line, "crowd: 30 players at 30 Hz; 2 s of warm-up, 5 s measured, about 20 s in all");
    }

    #[test]
    fn the_players_of_a_server_that_is_killed_late_come_back_before_the_last_comparison() {
        let of = |faults: &[&str]| {
            let faults = faults.iter().map(|fault| fault.parse().unwrap()).collect();
            let (edges, servers, seconds) = (Some(2), Some(3), Some(20));
            let overrides = Overrides { edges, servers, seconds, faults, ..Overrides::default() };
            settling(&Scenario::resolve("crowd", &overrides).unwrap())
        };
        let usual = of(&[]);
        assert_eq!(
            of(&["kill:server-2:14s", "restart:server-3:12s:2s", "kill:edge-1:19s", "pause:server-3:18s:1s"]),
            usual
        );
        assert_eq!(of(&["kill:server-2:14.5s"]), usual + SECOND / 2);
        assert_eq!(of(&["kill:server-2:15s", "restart:server-3:18s:1.5s"]), usual + SECOND * 11 / 2);
    }

    #[test]
    fn state_is_as_old_as_the_beginning_of_the_tick_that_took_long() {
        let time = Cell::new(Time(1_000));
        let tick = || {
            time.set(time.get().after(Duration::from_millis(25)));
            7
        };
        assert_eq!(timed(|| time.get(), tick), (7, Time(1_000)));
        assert_eq!(time.get(), Time(26_000));
    }
}
