//! A whole run: starts gateway, world servers and clients, samples them, and collects their reports.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use throng_machine::Moment;
use throng_machine::clock::{self, MachineUse, UsedCores};
use throng_report::{
    Kind, LineFile, Phases, Profile, ProgressLine, RunFile, RunFileError, RunHead, SECONDS_FILE, with_room,
};

use crate::clients::{ClientsProgress, ClientsReport};
use crate::control::Command;
use crate::ledger::Arrived;
use crate::load::{FRAME_HZ, Load, SINGLE_CLIENTS_MAX, Scene, Transport, Victim};
use crate::outage::{self, Kill};
use crate::partial::Partial;
use crate::process::{Gateway, LOOK_INTERVAL, Player, Usage, Usages, free_addresses, usage};
use crate::progress;
use crate::published::references;
use crate::scrape::{Scraped, scrape};
use crate::settings;
use crate::summary::{
    CallFigures, ClientFigures, DriverFigures, GatewayFigures, GatewaySummary, IdleFigures, Second, TrafficFigures,
    WorldFigures,
};
use crate::world::{WorldProgress, WorldReport};

/// Options of a run.
pub struct BenchOptions {
    /// The scene.
    pub scene: Scene,
    /// How many clients.
    pub clients: u32,
    /// How many of them play at each moment of the measured part.
    pub profile: Profile,
    /// Length of the part before the measurement, in seconds.
    pub warmup_s: u32,
    /// Length of the measured part, in seconds.
    pub seconds: u32,
    /// Whether the clients stay silent, to measure the cost of idle connections.
    pub connect_only: bool,
    /// Number of edges; 0: clients connect to the gateway itself.
    pub edges: u32,
    /// How clients connect. Only TCP with a gateway that runs already, and with a kill.
    pub transport: Transport,
    /// The process that is killed in mid-run, and started again. For the scenes `single-unreal` and `spatial`, and a gateway
    /// that is started for the run.
    pub kill: Option<Victim>,
    /// The gateway.
    pub target: Target,
    /// The commands that play the world servers and the clients.
    pub parts: [Vec<OsString>; 2],
    /// Where the folder of the run is made.
    pub runs: PathBuf,
    /// Whether a progress bar is shown.
    pub show_progress: bool,
    /// Gets a line before anything else happens: what is played, and how long it takes.
    pub note: fn(&str),
}

/// The gateway that is put under load.
pub enum Target {
    /// Ours, which is started for the run: its program and first arguments, and the last.
    Start {
        /// The arguments before the common ones.
        command: Vec<OsString>,
        /// The arguments behind them.
        extra: Vec<OsString>,
    },
    /// One that runs already, with settings that fit the scene.
    Running {
        /// Where it takes world servers.
        servers: SocketAddr,
        /// Where it takes clients.
        players: SocketAddr,
        /// Its process, if that is on this machine.
        pid: Option<u32>,
        /// The address of its metrics page.
        metrics: Option<SocketAddr>,
    },
}

/// The result of a run.
pub struct BenchResult {
    /// The figures.
    pub summary: GatewaySummary,
    /// The folder with `summary.json`, `seconds.jsonl`, the gateway's settings and its output.
    pub folder: PathBuf,
    /// Why `summary.json` could not be written, if it could not.
    pub written: Result<(), RunFileError>,
}

/// The parts of the load, as messages and `missing` of a summary name them.
const CLIENTS: &str = "clients";
pub(super) const WORLD: &str = "world servers";
/// World servers are set up within this.
const WORLD_PATIENCE: Duration = Duration::from_secs(30);
/// Clients come and are subscribed within this and, for each pair of them, a little more.
const JOIN_PATIENCE: Duration = Duration::from_secs(60);
const JOIN_PAIRS_PER_S: u64 = 10_000;
/// After the last call it may take this long until nothing more arrives.
const SETTLE_PATIENCE: Duration = Duration::from_secs(20);
pub(super) const SETTLE_MIN: Duration = Duration::from_secs(2);
const REPORT_PATIENCE: Duration = Duration::from_secs(15);
pub(super) const SECOND: Duration = Duration::from_secs(1);

impl BenchOptions {
    /// Whether a run with these options is possible.
    ///
    /// # Errors
    /// If not: why.
    pub fn check(&self) -> Result<()> {
        if self.scene == Scene::SingleUnreal && self.clients > SINGLE_CLIENTS_MAX {
            bail!(
                "an update of {} actors does not fit into a packet: use at most {SINGLE_CLIENTS_MAX} clients",
                self.clients
            );
        }
        let is_constant = self.profile.is_constant();
        if !is_constant && (self.scene.has_entities() || self.connect_only) {
            bail!("--profile: clients come and go only with the scene single, and not with --connect-only");
        }
        if !is_constant && (self.kill.is_some() || self.edges > 0) {
            bail!(
                "--profile works neither with --kill nor with --edges, which keep the places of clients that are gone"
            );
        }
        if self.transport != Transport::Tcp {
            if matches!(self.target, Target::Running { .. }) {
                bail!(
                    "--transport {} needs a gateway that this program starts: the key of its tokens has to be known",
                    self.transport.name()
                );
            }
            if self.kill.is_some() {
                bail!("--kill works only with --transport tcp: datagrams do not tell at once that a process is gone");
            }
        }
        if let Some(fault) = self.profile.fault((self.clients, "clients (--clients)"), self.seconds) {
            bail!("profile: {fault}");
        }
        outage::check(self)
    }

    /// The scene, its size, and the settings that change what is measured.
    fn workload(&self) -> String {
        let edges = if self.edges > 0 { format!(", {} edges", self.edges) } else { String::new() };
        let transport = self.transport.said();
        let idle = if self.connect_only { ", idle" } else { "" };
        let kill = self.kill.map(|victim| format!(", {} killed", victim.said())).unwrap_or_default();
        let profile = match self.profile {
            Profile::Constant => String::new(),
            profile => format!(", profile {profile}"),
        };
        format!("{}, {} clients{transport}{edges}{idle}{kill}{profile}", self.scene.name(), self.clients)
    }
}

/// Executes the run, and writes its folder. Ends early, but in order, when `stop` is set.
///
/// # Errors
/// If the options are not possible, the folder cannot be made (a [`FolderError`](throng_report::FolderError)), a process
/// cannot be started, ends before the measured part begins, or the clients do not get in. A process that ends later is no
/// error: the summary has the figures until then, is not valid and says why.
pub fn run(options: &BenchOptions, stop: &AtomicBool) -> Result<BenchResult> {
    options.check()?;
    let started_at = SystemTime::now();
    let folder = throng_report::new_folder(&options.runs, started_at, &format!("gateway-{}", options.scene.name()))?;
    (options.note)(&progress::announcement(options));
    let mut play = Play::begin(options, stop, &folder)?;
    play.gather()?;
    if !options.connect_only {
        play.bots.tell(Command::Go);
        play.world.tell(Command::Go);
    }
    play.warm_up()?;
    play.measure();
    play.settle();
    let mut summary = play.finish();
    summary.head.started_at = Moment::of(started_at).long();
    summary.conclude();
    let written = RunFile::write(&folder, &summary).map(drop);
    Ok(BenchResult { summary, folder, written })
}

/// An edge that was started for the run.
pub(super) struct Edge {
    pub(super) gateway: Gateway,
    line: Vec<OsString>,
    players: SocketAddr,
    page: SocketAddr,
    log: PathBuf,
}

impl Edge {
    fn start(
        (number, folder): (u32, &Path),
        command: &[OsString],
        arguments: &[OsString],
        home: SocketAddr,
        transport: Transport,
    ) -> Result<Edge> {
        let [players, page] = free_addresses()?;
        let mut line = command.to_vec();
        line.extend(settings::edge(folder, home, (players, transport)).context("cannot write the key of tokens")?);
        line.extend(settings::of_edges(arguments));
        line.extend(settings::ours(folder, page).context("cannot write the gateway's types")?);
        let log = folder.join(format!("edge-{number}.log"));
        // Its page says when it is ready.
        let gateway = Gateway::start(&line, &log, &[page])?;
        Ok(Edge { gateway, line, players, page, log })
    }

    /// Waits until clients are welcome: until there is a path to a home that lets them in.
    fn wait(&mut self) -> Result<()> {
        self.gateway.wait_until_ready(self.page, &self.log)
    }

    /// Kills it, and starts it at the same address.
    pub(super) fn start_again(&mut self, log: PathBuf) -> Result<()> {
        self.gateway.kill();
        self.gateway = Gateway::start(&self.line, &log, &[self.page])?;
        self.log = log;
        self.wait()
    }
}

pub(super) struct Play<'a> {
    pub(super) options: &'a BenchOptions,
    stop: &'a AtomicBool,
    display: ProgressLine,
    // The order in which they end: users of the gateway before the gateway.
    bots: Player<ClientsProgress, ClientsReport>,
    pub(super) world: Player<WorldProgress, WorldReport>,
    pub(super) gateway: Option<Gateway>,
    pub(super) edges: Vec<Edge>,
    /// How the gateway was started, if it was.
    pub(super) gateway_line: Vec<OsString>,
    pub(super) folder: PathBuf,
    pub(super) load: Load,
    pub(super) kill: Option<Kill>,
    /// Why a process has ended before the run did.
    fault: Option<String>,
    /// Processor time of a gateway that was killed.
    pub(super) former_cpu_s: f64,
    pub(super) usages: Usages,
    name: String,
    pub(super) pid: Option<u32>,
    metrics: Option<SocketAddr>,
    before_clients: Usage,
    idle_before: Option<f64>,
    /// So many clients are to play.
    pub(super) wanted: u32,
    began: (Instant, Usage),
    ended: (Instant, Usage),
    /// The use of the machine since the measured part began, and until it ended, with that of this process.
    machine: MachineUse,
    used: (UsedCores, f64),
    own_cpu_s: f64,
    scraped: Scraped,
    /// The time until its own figures had come, of all questions.
    answered: Duration,
    tick_max_ms: Option<f64>,
    pub(super) series: Vec<Second>,
    /// The same, as they come.
    seconds: LineFile,
}

impl<'a> Play<'a> {
    fn begin(options: &'a BenchOptions, stop: &'a AtomicBool, folder: &Path) -> Result<Play<'a>> {
        let display = ProgressLine::new(options.show_progress, progress::phases(options));
        let arguments = settings::write(folder, options.scene).context("cannot write the gateway's settings")?;
        let (mut gateway_line, mut edges) = (Vec::new(), Vec::new());
        let (gateway, addresses, metrics) = match &options.target {
            Target::Running { servers, players, metrics, .. } => (None, [*servers, *players], *metrics),
            Target::Start { command, extra } => {
                let [servers, players, metrics, for_edges] = free_addresses()?;
                let mut line = command.clone();
                let door = (players, options.transport);
                line.extend(settings::listen(folder, servers, door).context("cannot write the key of tokens")?);
                line.extend(arguments.iter().cloned());
                line.extend(settings::ours(folder, metrics).context("cannot write the gateway's types")?);
                if options.edges > 0 {
                    line.extend(settings::home(folder, for_edges).context("cannot write the edges' key")?);
                }
                line.extend(outage::arguments(options.kill));
                line.extend(extra.iter().cloned());
                let log = folder.join("gateway.log");
                // A door for datagrams does not answer: clients show their tokens until it does.
                let answering = match options.transport {
                    Transport::Tcp => &[servers, players][..],
                    Transport::Throng => &[servers],
                };
                let gateway = Gateway::start(&line, &log, answering)?;
                gateway_line = line;
                for number in 0..options.edges {
                    edges.push(Edge::start((number, folder), command, &arguments, for_edges, options.transport)?);
                }
                (Some(gateway), [servers, players], Some(metrics))
            }
        };
        let (pid, name) = match &options.target {
            Target::Running { servers, pid, .. } => (*pid, format!("the one at {servers}")),
            Target::Start { command, .. } => {
                let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
                (gateway.as_ref().map(Gateway::pid), words.join(" "))
            }
        };
        let [servers, players] = addresses;
        let players = match edges.is_empty() {
            true => vec![players],
            false => edges.iter().map(|edge| edge.players).collect(),
        };
        let first = options.profile.first(options.clients);
        let (scene, clients, victim) = (options.scene, options.clients, options.kill);
        let load = Load { scene, clients, first, servers, players, transport: options.transport, victim };
        let mut world = Player::start(WORLD, &options.parts[0], &load)?;
        wait_for_world(&mut world, stop)?;
        edges.iter_mut().try_for_each(Edge::wait)?;
        let (mut usages, pids) = (Usages::default(), pids(pid, &edges));
        let is_watched = options.connect_only && pid.and_then(usage).is_some();
        let idle_before = is_watched.then(|| cpu_of_two_seconds(&mut usages, &pids));
        let before_clients = usages.of_all(pids);
        let bots = Player::start(CLIENTS, &options.parts[1], &load)?;
        let now = (Instant::now(), Usage::default());
        Ok(Play {
            options,
            stop,
            display,
            bots,
            world,
            gateway,
            edges,
            gateway_line,
            folder: folder.to_owned(),
            load,
            kill: None,
            fault: None,
            former_cpu_s: 0.0,
            usages,
            name,
            pid,
            metrics,
            before_clients,
            idle_before,
            wanted: options.profile.first(options.clients),
            began: now,
            ended: now,
            machine: MachineUse::begin(),
            used: Default::default(),
            own_cpu_s: 0.0,
            scraped: Scraped::default(),
            answered: Duration::ZERO,
            tick_max_ms: None,
            series: with_room(options.seconds as usize + 1, Second { time_s: 1.0, ..Second::default() }),
            seconds: LineFile::create(folder, SECONDS_FILE)?,
        })
    }

    pub(super) fn wait_for_world(&mut self) -> Result<()> {
        wait_for_world(&mut self.world, self.stop)
    }

    fn is_interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether the run ends here.
    fn stops(&self) -> bool {
        self.is_interrupted() || self.fault.is_some()
    }

    /// Reads the reports of both parts. Returns whether the clients had a new report.
    fn listen(&mut self) -> Result<bool> {
        self.look_at_gateways()?;
        let mut heard = || {
            self.world.listen()?;
            self.bots.listen()
        };
        heard().or_else(|error| {
            // A gateway that dies takes the world servers with it: then it is the cause.
            std::thread::sleep(LOOK_INTERVAL);
            self.look_at_gateways().and(Err(error))
        })
    }

    fn look_at_gateways(&mut self) -> Result<()> {
        if self.gateway.as_mut().is_some_and(Gateway::has_ended) {
            bail!("the gateway has ended: see gateway.log in the run's folder");
        }
        if self.edges.iter_mut().any(|edge| edge.gateway.has_ended()) {
            bail!("an edge has ended: see its log in the run's folder");
        }
        Ok(())
    }

    /// Waits until all clients are in.
    fn gather(&mut self) -> Result<()> {
        let clients = self.wanted;
        let pairs = u64::from(clients).pow(2) / JOIN_PAIRS_PER_S;
        let until = Instant::now() + JOIN_PATIENCE + Duration::from_secs(pairs);
        loop {
            std::thread::sleep(LOOK_INTERVAL);
            self.listen()?;
            let (bots, world) = (&self.bots.progress, &self.world.progress);
            let (joined, pending) = (bots.joined, world.pending);
            progress::joining(&self.display, joined, clients, pending);
            if let Some(end) = &bots.end {
                bail!("the clients cannot log in: {end}");
            }
            if bots.joined >= clients && world.live_players >= clients && world.pending == 0 || self.stops() {
                return Ok(());
            }
            if Instant::now() > until {
                bail!(
                    "only {joined} of {clients} clients have joined in time, with {pending} subscriptions unanswered"
                );
            }
        }
    }

    fn warm_up(&mut self) -> Result<()> {
        let (began, length) = (Instant::now(), SECOND * self.options.warmup_s);
        while began.elapsed() < length && !self.stops() {
            std::thread::sleep(LOOK_INTERVAL);
            self.listen()?;
            self.display.warm_up(began.elapsed());
        }
        Ok(())
    }

    /// As [`Play::listen`]. The figures until a fault are worth a report, so it ends the run, and is no error.
    fn hear(&mut self) -> bool {
        self.listen().unwrap_or_else(|error| {
            self.fault.get_or_insert(error.to_string());
            false
        })
    }

    fn measure(&mut self) {
        self.bots.tell(Command::Measure);
        self.world.tell(Command::Measure);
        self.began = (Instant::now(), self.usage());
        self.ended = self.began;
        (self.machine, self.own_cpu_s) = (MachineUse::begin(), clock::process_cpu_s());
        let length = Duration::from_secs(u64::from(self.options.seconds));
        if let Some(victim) = self.options.kill {
            self.measure_until(self.began.0 + length / 2);
            if !self.stops()
                && let Err(error) = self.kill(victim)
            {
                self.fault = Some(error.to_string());
            }
        }
        self.measure_until(self.began.0 + length);
        // Of a process that has died, the last second is the last that is known.
        if self.fault.is_none() {
            self.note_end();
        }
        self.bots.tell(Command::Settle);
        self.world.tell(Command::Settle);
    }

    fn measure_until(&mut self, until: Instant) {
        while Instant::now() < until && !self.stops() {
            std::thread::sleep(LOOK_INTERVAL.min(until.saturating_duration_since(Instant::now())));
            self.want(self.options.profile.players_at(self.options.clients, self.began.0.elapsed()));
            if self.hear() {
                let before = self.ended;
                self.note_end();
                self.sample(before, self.ended);
            }
            progress::measuring(&self.display, self.began.0.elapsed(), self.series.last());
        }
    }

    /// So many clients are to play from now on.
    fn want(&mut self, number: u32) {
        if std::mem::replace(&mut self.wanted, number) != number {
            self.world.tell(Command::Players(number));
            self.bots.tell(Command::Players(number));
        }
    }

    /// Takes what is known at this moment, in case that a process dies before the next one.
    fn note_end(&mut self) {
        self.ended = (Instant::now(), self.usage());
        self.used = (self.machine.so_far(), (clock::process_cpu_s() - self.own_cpu_s) / self.measured_s());
    }

    /// Of the gateway and its edges together.
    fn usage(&mut self) -> Usage {
        let now = self.usages.of_all(pids(self.pid, &self.edges));
        Usage { cpu_s: now.cpu_s + self.former_cpu_s, ..now }
    }

    fn sample(&mut self, before: (Instant, Usage), now: (Instant, Usage)) {
        let asked = Instant::now();
        let scraped = self.metrics.and_then(scrape);
        if scraped.is_some() {
            self.answered += asked.elapsed();
        }
        self.scraped = scraped.unwrap_or_default();
        self.tick_max_ms = [self.tick_max_ms, self.scraped.channel_tick_ms].into_iter().flatten().reduce(f64::max);
        let (bots, world) = (&self.bots.progress, &self.world.progress);
        let second = Second {
            time_s: now.0.duration_since(self.began.0).as_secs_f64(),
            connections: bots.connected,
            channels: self.scraped.channels,
            gateway_cpu_cores: self.pid.map(|_| cores(before, now)),
            gateway_rss_bytes: self.pid.map(|_| now.1.rss_bytes),
            channel_tick_ms: self.scraped.channel_tick_ms,
            world_frame_hz: world.frame_hz,
            messages_in_per_s: bots.messages_out_per_s + world.messages_out_per_s,
            messages_out_per_s: bots.messages_in_per_s + world.messages_in_per_s,
            bytes_in_per_s: bots.bytes_out_per_s + world.bytes_out_per_s,
            bytes_out_per_s: bots.bytes_in_per_s + world.bytes_in_per_s,
            handovers_per_s: world.handovers_per_s,
            updates_per_s: bots.updates_per_s,
            ideal_updates_per_s: world.ideal_per_s,
            latency_p50_ms: bots.latency_p50_ms,
            latency_p99_ms: bots.latency_p99_ms,
            clients_cpu_cores: bots.cpu_cores,
            world_cpu_cores: world.cpu_cores,
        };
        self.seconds.push(&second);
        self.series.push(second);
    }

    /// Waits until nothing more arrives.
    fn settle(&mut self) {
        let began = Instant::now();
        let mut last = (self.world.progress.calls, Instant::now());
        while began.elapsed() < SETTLE_PATIENCE && self.fault.is_none() {
            std::thread::sleep(LOOK_INTERVAL);
            self.hear();
            let words = || "waiting until nothing more arrives".to_owned();
            self.display.show(Phases::SETTLING, began.elapsed(), words);
            let calls = self.world.progress.calls;
            if calls != last.0 {
                last = (calls, Instant::now());
            }
            // The world reports once a second: two successive reports have to be equal.
            if began.elapsed() > SETTLE_MIN && last.1.elapsed() > SETTLE_MIN {
                break;
            }
        }
    }

    fn finish(&mut self) -> GatewaySummary {
        self.bots.tell(Command::Stop);
        self.world.tell(Command::Stop);
        let until = Instant::now() + REPORT_PATIENCE;
        let (bots, world) = (self.bots.finish(until), self.world.finish(until));
        let mut missing = Vec::new();
        for (name, error) in [(CLIENTS, bots.as_ref().err()), (WORLD, world.as_ref().err())] {
            if let Some(error) = error {
                self.fault.get_or_insert(error.to_string());
                missing.push(name.to_owned());
            }
        }
        let partial = self.partial(bots.as_ref().map_or(self.measured_s(), |bots| bots.seconds));
        let bots = bots.unwrap_or_else(|_| partial.clients());
        let world = world.unwrap_or_else(|_| partial.world(self.options.scene.servers()));
        let mut summary = self.summary(&bots, &world, missing);
        summary.head.missing.extend(self.seconds.missing());
        summary
    }

    fn partial(&self, seconds: f64) -> Partial<'_> {
        Partial { series: &self.series, seconds }
    }

    fn measured_s(&self) -> f64 {
        self.ended.0.duration_since(self.began.0).as_secs_f64().max(1e-9)
    }

    fn summary(&self, bots: &ClientsReport, world: &WorldReport, missing: Vec<String>) -> GatewaySummary {
        let options = self.options;
        let mut invalid_reasons = Vec::new();
        if self.is_interrupted() {
            invalid_reasons.push("the run was stopped before its end".to_owned());
        }
        invalid_reasons.extend(self.fault.clone());
        invalid_reasons.extend(missing.iter().map(|name| format!("the report of the {name} is missing")));
        let traffic = if missing.is_empty() { traffic(bots, world) } else { self.partial(bots.seconds).traffic() };
        let has = |part: &str| !missing.iter().any(|name| name == part);
        let (has_clients, has_world) = (has(CLIENTS), has(WORLD));
        // A killed process cannot report which calls it had received. One server of several has a process that lives on.
        let hears_on = |victim: Victim| victim == Victim::Edge || victim.is_one_of_several(options.scene);
        let is_heard = options.kill.is_none_or(hears_on) && missing.is_empty();
        let has_calls = options.scene.has_calls() && !options.connect_only && is_heard;
        GatewaySummary {
            head: RunHead {
                invalid_reasons,
                missing,
                partial: self.is_interrupted() || self.fault.is_some(),
                seconds: bots.seconds,
                others_cpu_cores: self.others_cpu_cores(bots, world),
                ..RunHead::new(Kind::Gateway, &options.workload(), SystemTime::now())
            },
            scene: options.scene,
            clients: options.clients,
            profile: options.profile.to_string(),
            edges: options.edges,
            transport: options.transport,
            gateway: self.gateway_figures(bots),
            world: WorldFigures {
                servers: world.servers,
                frame_hz: world.frame_hz,
                stalled_frames: has_world.then_some(world.stalled_frames),
                handovers_per_s: world.handovers as f64 / world.seconds,
                resubscriptions_per_s: has_world.then(|| world.resubscriptions as f64 / world.seconds),
            },
            client: (has_clients && !options.connect_only).then(|| self.client_figures(bots, world)),
            traffic,
            calls: has_calls.then(|| calls(bots, world)),
            outage: self
                .kill
                .as_ref()
                .filter(|_| has_clients)
                .map(|kill| kill.figures(bots, &self.world.progress, has_world.then_some(world))),
            idle: options.connect_only.then(|| IdleFigures {
                cpu_cores_before: self.idle_before,
                cpu_cores: self.pid.map(|_| cores(self.began, self.ended)),
                rss_bytes_per_connection: self.rss_bytes_per_connection(),
            }),
            driver: DriverFigures {
                clients_cpu_cores: bots.cpu_cores,
                world_cpu_cores: world.cpu_cores,
                late_p99_ms: bots.late_p99_ms,
                sent_ratio: has_clients.then(|| if bots.due > 0 { bots.sent as f64 / bots.due as f64 } else { 1.0 }),
                garbled: has_clients.then_some(bots.garbled),
                world_in_time_ratio: world.in_time_ratio,
            },
            references: references(options.scene),
            series: self.series.clone(),
        }
    }

    /// The rest of the machine's processor time, without the gateway, the clients, the world and the run itself.
    fn others_cpu_cores(&self, bots: &ClientsReport, world: &WorldReport) -> Option<f64> {
        let gateway = self.pid.map(|_| cores(self.began, self.ended))?;
        let (used, own) = self.used;
        used.of_others([own, gateway, bots.cpu_cores, world.cpu_cores])
    }

    fn rss_bytes_per_connection(&self) -> Option<f64> {
        let growth = self.ended.1.rss_bytes as f64 - self.before_clients.rss_bytes as f64;
        self.pid.map(|_| growth / f64::from(self.wanted.max(1)))
    }

    fn gateway_figures(&self, bots: &ClientsReport) -> GatewayFigures {
        let cpu_s = cores(self.began, self.ended) * bots.seconds;
        let pid = self.pid;
        let measuring_share = (!self.answered.is_zero()).then(|| self.answered.as_secs_f64() / self.measured_s());
        GatewayFigures {
            name: self.name.clone(),
            cpu_cores: pid.map(|_| cores(self.began, self.ended)),
            rss_bytes: pid.map(|_| self.ended.1.rss_bytes),
            rss_bytes_per_connection: self.rss_bytes_per_connection(),
            cpu_s_per_million_updates: pid.filter(|_| bots.updates > 0).map(|_| cpu_s * 1e6 / bots.updates as f64),
            channel_tick_max_ms: self.tick_max_ms,
            connections: self.scraped.connections,
            channels: self.scraped.channels,
            measuring_ms_per_s: measuring_share.map(|share| share * 1e3),
            measuring_share,
        }
    }

    fn client_figures(&self, bots: &ClientsReport, world: &WorldReport) -> ClientFigures {
        let clients = f64::from(self.options.clients);
        let before_kill = &self.series[..self.kill.as_ref().map_or(0, |kill| kill.seconds_before)];
        // A world server that was killed has not said what it wrote.
        let ideal_updates = match (self.options.kill, self.options.scene.single_hz()) {
            (Some(Victim::Server | Victim::Gateway), Some(hz)) => hz * clients * bots.seconds,
            // While somebody is dead, nobody knows who is near whom: as much as before is due.
            (Some(Victim::Server | Victim::Servers | Victim::Gateway), None) if !before_kill.is_empty() => {
                Partial { series: before_kill, seconds: bots.seconds }.world(world.servers).ideal_updates
            }
            _ => world.ideal_updates,
        };
        // A client does not get back what it has written itself.
        let actors = match self.options.scene {
            _ if !self.options.profile.is_constant() => None,
            Scene::SingleRelay => Some(clients - 1.0),
            Scene::SingleUnreal => Some(clients),
            Scene::Spatial | Scene::EntityLod => None,
        };
        let states_due = |actors: f64| actors * f64::from(FRAME_HZ) * bots.seconds * f64::from(bots.samples);
        ClientFigures {
            joined: bots.joined,
            lost: bots.ends.values().sum(),
            update_hz_median: bots.update_hz.get(bots.update_hz.len() / 2).copied().unwrap_or(0.0),
            update_hz_min: bots.update_hz.first().copied().unwrap_or(0.0),
            updates: bots.updates,
            ideal_updates,
            delivered_ratio: bots.updates as f64 / ideal_updates.max(1.0),
            actor_states_ratio: actors.map(|actors| bots.actor_states as f64 / states_due(actors).max(1.0)),
            latency_p50_ms: bots.latency_ms.map(|[p50, _, _]| p50),
            latency_p99_ms: bots.latency_ms.map(|[_, p99, _]| p99),
            latency_max_ms: bots.latency_ms.map(|[_, _, max]| max),
        }
    }
}

fn wait_for_world(world: &mut Player<WorldProgress, WorldReport>, stop: &AtomicBool) -> Result<()> {
    let until = Instant::now() + WORLD_PATIENCE;
    while !world.progress.is_ready && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_INTERVAL);
        world.listen()?;
        if Instant::now() > until {
            bail!("the world servers' channels did not exist after {} s", WORLD_PATIENCE.as_secs());
        }
    }
    Ok(())
}

/// The processes that are put under load: the gateway and its edges.
fn pids(gateway: Option<u32>, edges: &[Edge]) -> Vec<u32> {
    gateway.into_iter().chain(edges.iter().map(|edge| edge.gateway.pid())).collect()
}

fn cpu_of_two_seconds(usages: &mut Usages, pids: &[u32]) -> f64 {
    let before = (Instant::now(), usages.of_all(pids.iter().copied()));
    std::thread::sleep(2 * SECOND);
    cores(before, (Instant::now(), usages.of_all(pids.iter().copied())))
}

fn cores(before: (Instant, Usage), after: (Instant, Usage)) -> f64 {
    (after.1.cpu_s - before.1.cpu_s) / after.0.duration_since(before.0).as_secs_f64().max(1e-9)
}

fn traffic(bots: &ClientsReport, world: &WorldReport) -> TrafficFigures {
    let per_s = |clients: u64, servers: u64| clients as f64 / bots.seconds + servers as f64 / world.seconds;
    TrafficFigures {
        messages_in_per_s: per_s(bots.messages_out, world.messages_out),
        messages_out_per_s: per_s(bots.messages_in, world.messages_in),
        bytes_in_per_s: per_s(bots.bytes_out, world.bytes_out),
        bytes_out_per_s: per_s(bots.bytes_in, world.bytes_in),
    }
}

/// Calls that arrived nowhere. Of those whose server has died, the longest row of lost calls is excused.
pub(super) fn calls_lost(bots: &ClientsReport, world: &WorldReport, orphans: &BTreeSet<u32>) -> u64 {
    let lost = |(connection, &made): (&u32, &u32)| {
        let arrived = world.calls.get(connection).copied().unwrap_or_default();
        let excused = if orphans.contains(connection) { arrived.longest_gap } else { 0 };
        u64::from(made).saturating_sub(arrived.numbers + excused)
    };
    bots.calls.iter().map(lost).sum()
}

fn calls(bots: &ClientsReport, world: &WorldReport) -> CallFigures {
    let made: u64 = bots.calls.values().map(|&calls| u64::from(calls)).sum();
    let sum = |count: fn(&Arrived) -> u64, calls: &BTreeMap<u32, Arrived>| calls.values().map(count).sum();
    CallFigures {
        made,
        lost: calls_lost(bots, world, &BTreeSet::new()),
        doubled: sum(|arrived| arrived.doubled, &world.calls),
        out_of_order: sum(|arrived| arrived.out_of_order, &world.calls),
        handovers: world.handovers_of_run,
        latency_p50_ms: world.call_p50_ms,
        latency_p99_ms: world.call_p99_ms,
        answers_per_s: bots.acknowledgements as f64 / bots.seconds,
    }
}
