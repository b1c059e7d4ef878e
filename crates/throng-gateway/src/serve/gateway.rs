//! A gateway from its start to its end.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustc_hash::FxHashMap;
use socket2::SockRef;
use throng_file::WholeFile;
use throng_http::{BoundedListener, ListenerCounters, ListenerLimits};
use throng_wire::Time;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tracing::{error, warn};

use crate::auth::{Desk, DeskLimits, Provider};
use crate::settings::Settings;
use throng_gateway_engine::Engine;
use throng_gateway_engine::port::Side;

use super::admin::{self, Admin, ReloadRequest};
use super::budget::Pace;
use super::clock::Clock;
use super::counters::ShellCounters;
use super::door::{Door, Shared};
use super::edge_door::{self, EdgeDoor};
use super::error::ServeError;
use super::event::{Event, Events, Reload, Report, events};
use super::health::Heart;
use super::home_path::{self, HomePath};
use super::http::{self, Health, RenderMetrics};
use super::memory::{self, Holding, Memory, Part};
use super::options::{DoorLimits, DoorOptions, ServeOptions, Transport};
use super::others::Other;
use super::part::LastParts;
use super::rate::Throttle;
use super::ration::Ration;
use super::record::Recorder;
use super::snapshots::Snapshots;
use super::tcp::{self, Above};
use super::tls::Tls;
use super::turn::Turn;
use super::{kcp, link};

/// A gateway that runs. Dropping it ends it without a farewell; [`shut_down`](Gateway::shut_down) is the polite way.
pub struct Gateway {
    runtime: Option<Runtime>,
    /// The first engine's thread, then the others'.
    engines: Vec<thread::JoinHandle<()>>,
    /// Ends when the first engine's thread does, in whatever way. It ends when another one does.
    pub(super) engine_end: watch::Receiver<()>,
    addresses: Vec<SocketAddr>,
    edges_address: Option<SocketAddr>,
    http_address: Option<SocketAddr>,
    admin_address: Option<SocketAddr>,
    /// Operators' requests for a reload, until [`run`](Gateway::run) handles them.
    pub(super) reloads: mpsc::Receiver<ReloadRequest>,
    reload_sender: mpsc::Sender<ReloadRequest>,
    counters: Arc<ShellCounters>,
    events: Events,
    closing: watch::Sender<bool>,
    recorder: Option<Arc<Recorder>>,
    snapshots: Option<Snapshots>,
    /// Becomes true a while before: no client should be sent here any more.
    pub(super) leaving: watch::Sender<bool>,
    pub(super) lame_duck_ms: AtomicU64,
    /// As long as it is held, connections are accepted.
    is_open: Option<mpsc::Sender<()>>,
    alive: mpsc::Receiver<()>,
    tls: Vec<Arc<Tls>>,
    doors: Vec<Arc<Door>>,
    /// It is an edge.
    has_home: bool,
    drain: Duration,
    /// Somebody did not take the last bytes in time since the doors were closed.
    has_cut_off: Arc<AtomicBool>,
}

/// The parts of a gateway.
pub struct Parts {
    /// The engines, one or more: each knows its [share](Engine::set_share). Their clocks begin at zero when the gateway
    /// starts.
    pub engines: Vec<Engine>,
    /// Decides about logins.
    pub provider: Arc<dyn Provider>,
    /// The limits of the desk in front of the provider.
    pub desk: DeskLimits,
    /// Makes the text of `/metrics`.
    pub render: RenderMetrics,
    /// The file of [`ServeOptions::snapshots`], if it was claimed before the engines were read from it. Without it, the file is claimed
    /// at the start.
    pub snapshot_file: Option<WholeFile>,
}

impl Gateway {
    /// Opens the doors.
    ///
    /// # Errors
    /// A door cannot be opened. None is open then.
    pub fn start(options: &ServeOptions, parts: Parts) -> Result<Gateway, ServeError> {
        if let Some(address) = options.admin.filter(|address| !address.ip().is_loopback()) {
            return Err(ServeError::AdminAddress(address));
        }
        let engine_count = parts.engines.len();
        let runtime = runtime(options.io_threads)?;
        let counters = Arc::new(ShellCounters::new(Memory::new(budget_bytes(options.memory_bytes))));
        let (events, inlets) = events(options.inbound_bytes, Arc::clone(&counters.memory), engine_count);
        let (closing, is_closing) = watch::channel(false);
        let (alive_sender, alive) = mpsc::channel(1);
        let (reload_sender, reloads) = mpsc::channel(1);
        let clock = Clock::start();
        let ration = Arc::new(Ration::default());
        let recorder = recorder(options, &counters)?;
        let (engine_lives, engine_end) = watch::channel(());
        let hearts: Arc<[Arc<Heart>]> = (0..engine_count).map(|_| Arc::new(Heart::new())).collect();
        let leaving = watch::Sender::new(false);
        let waits_for_master = Arc::new(AtomicBool::new(options.waits_for_master));
        let has_cut_off = Arc::new(AtomicBool::new(false));
        let lacks_place = Arc::new(AtomicBool::new(false));
        let lacks_home = Arc::new(AtomicBool::new(options.home.is_some()));
        let shared = Shared {
            clock,
            events: events.clone(),
            counters: Arc::clone(&counters),
            ration: Arc::clone(&ration),
            waits_for_master: Arc::clone(&waits_for_master),
            lacks_place: Arc::clone(&lacks_place),
            lacks_home: Arc::clone(&lacks_home),
            recorder: recorder.clone(),
            arrivals: Arc::new(Throttle::new()),
            handshakes: Arc::new(Throttle::new()),
            closing: is_closing.clone(),
            drain: options.drain,
            has_cut_off: Arc::clone(&has_cut_off),
            engine_end: engine_end.clone(),
            alive: alive_sender.downgrade(),
        };
        let mut gateway = Gateway {
            runtime: None,
            engines: Vec::new(),
            engine_end,
            addresses: Vec::new(),
            edges_address: None,
            http_address: None,
            admin_address: None,
            reloads,
            reload_sender,
            counters: Arc::clone(&counters),
            events: events.clone(),
            closing,
            recorder,
            snapshots: None,
            leaving: leaving.clone(),
            lame_duck_ms: AtomicU64::new(options.lame_duck.as_millis() as u64),
            is_open: Some(alive_sender),
            alive,
            tls: Vec::new(),
            doors: Vec::new(),
            has_home: options.home.is_some(),
            drain: options.drain,
            has_cut_off,
        };
        for door in &options.doors {
            let _inside = runtime.enter();
            let address = gateway.open(door, shared.clone())?;
            gateway.addresses.push(address);
        }
        let edge_settings = Arc::new(AtomicU64::new(parts.engines.first().map_or(0, Engine::edge_settings)));
        gateway.open_paths(options, &runtime, &edge_settings, (clock, &ration))?;
        let pages = http::Pages {
            events: events.clone(),
            counters: Arc::clone(&counters),
            render: parts.render,
            last: Arc::default(),
            health: Health {
                clock,
                hearts: Arc::clone(&hearts),
                stuck_after: options.stuck_after,
                engine_end: gateway.engine_end.clone(),
                leaving: leaving.subscribe(),
                doors: gateway.doors.clone().into(),
            },
        };
        if let Some(address) = options.http {
            let _inside = runtime.enter();
            let (listener, bound) = listen_for_pages(address, options.pages, &counters.pages)?;
            gateway.http_address = Some(bound);
            runtime.spawn(http::serve(listener, pages.clone()));
        }
        if let Some(address) = options.admin {
            let _inside = runtime.enter();
            let (listener, bound) = listen_for_pages(address, options.pages, &counters.pages)?;
            gateway.admin_address = Some(bound);
            let token = admin::new_token().map_err(ServeError::Chance)?;
            let reload = gateway.reload_sender.clone();
            runtime.spawn(admin::serve(listener, Admin { pages, reload, token }));
        }
        let replies = events.clone();
        let reply = move |answer| {
            let _ = replies.send(Event::Answer(answer));
        };
        let desk = Desk::new(parts.provider, &parts.desk, runtime.handle().clone(), reply);
        let mut rows = parts.engines.into_iter().zip(inlets).zip(hearts.iter().map(Arc::clone));
        let holding = || Holding::new(&counters.memory, Part::Engine, 0);
        let Some(((engine, inlet), heart)) = rows.next() else { return Err(ServeError::Ended) };
        let turn = Turn {
            engine,
            inlet,
            desk,
            clock,
            counters: Arc::clone(&counters),
            ration: Arc::clone(&ration),
            members: FxHashMap::default(),
            is_closing: false,
            waits_for_master,
            lacks_place,
            pace: Pace::new(clock.now()),
            heart,
            next_shed: Time(0),
            events: events.clone(),
            master: None,
            holding: holding(),
            lacks_home,
            home: None,
            leaver: None,
            edge_settings,
        };
        gateway.run_engine("engine".into(), move || {
            // Dropped at the end, a panic's too.
            let _lives = engine_lives;
            turn.run();
        })?;
        for (number, ((engine, inlet), heart)) in (1..).zip(rows) {
            let other = Other {
                engine,
                inlet,
                events: events.clone(),
                clock,
                counters: Arc::clone(&counters),
                ration: Arc::clone(&ration),
                heart,
                holding: holding(),
                keys: FxHashMap::default(),
                pace: Pace::new(clock.now()),
            };
            gateway.run_engine(format!("engine-{number}"), move || other.run())?;
        }
        gateway.runtime = Some(runtime);
        if let Some(options) = options.snapshots.clone() {
            let (events, counters) = (gateway.events.clone(), Arc::clone(&gateway.counters));
            let started = Snapshots::start(options, parts.snapshot_file, events, counters);
            gateway.snapshots = Some(started.map_err(ServeError::Snapshots)?);
        }
        Ok(gateway)
    }

    /// Where edges come, and the way to the home.
    fn open_paths(
        &mut self,
        options: &ServeOptions,
        runtime: &Runtime,
        settings: &Arc<AtomicU64>,
        (clock, ration): (Clock, &Arc<Ration>),
    ) -> Result<(), ServeError> {
        let _inside = runtime.enter();
        let closing = self.closing.subscribe();
        if let Some(edges) = &options.edges {
            let listen_error = |cause| ServeError::Listen { address: edges.address, cause };
            let listener = tcp::listen(edges.address, Side::Server).map_err(listen_error)?;
            self.edges_address = Some(listener.local_addr().map_err(listen_error)?);
            let door = EdgeDoor {
                secret: edges.secret.clone(),
                settings: Arc::clone(settings),
                events: self.events.clone(),
                counters: Arc::clone(&self.counters),
                ration: Arc::clone(ration),
                clock,
                closing: closing.clone(),
            };
            runtime.spawn(edge_door::accept(Arc::new(door), listener));
        }
        if let Some(home) = &options.home {
            runtime.spawn(home_path::keep(HomePath {
                options: home.clone(),
                settings: Arc::clone(settings),
                events: self.events.clone(),
                counters: Arc::clone(&self.counters),
                closing,
            }));
        }
        Ok(())
    }

    fn run_engine(&mut self, name: String, run: impl FnOnce() + Send + 'static) -> Result<(), ServeError> {
        let thread = thread::Builder::new().name(name).spawn(run).map_err(ServeError::Threads)?;
        self.engines.push(thread);
        Ok(())
    }

    /// Where the doors are, in the order of the options.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where edges come.
    pub fn edges_address(&self) -> Option<SocketAddr> {
        self.edges_address
    }

    /// Where the pages for operators are.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Where the page for operators of this machine is.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// The counters of the shell so far.
    pub fn counters(&self) -> &ShellCounters {
        &self.counters
    }

    /// How things are in the engine. `None` if it does not answer within a bound.
    pub fn report(&self) -> Option<Report> {
        self.runtime.as_ref()?.block_on(async { timeout(REPORT, http::of_all_engines(&self.events)).await.ok()? })
    }

    /// Whether all engines still run. If not, no peer is served any more: [`shut_down`](Self::shut_down) is all there
    /// is.
    pub fn is_alive(&self) -> bool {
        !self.engines.is_empty() && self.engines.iter().all(|engine| !engine.is_finished())
    }

    /// Other settings, another provider, and the certificates as they are in their files now: all of it, or nothing.
    ///
    /// # Errors
    /// Something of it cannot be used. Everything stays as it was.
    pub fn take_over(&self, settings: Arc<Settings>, provider: Arc<dyn Provider>) -> Result<(), ServeError> {
        let certificates = self.tls.iter().map(|tls| tls.read_again()).collect::<Result<Vec<_>, _>>()?;
        let desk = DeskLimits::from_settings(&settings);
        let limits = settings.engine.limits;
        self.counters.memory.set_limit(budget_bytes(limits.max_memory_bytes));
        self.lame_duck_ms.store(limits.lame_duck_ms.into(), Ordering::Relaxed);
        if let Some(snapshots) = &self.snapshots {
            snapshots.set_max_bytes(limits.max_snapshot_bytes);
        }
        // Nothing fails from here on, unless the engine is gone.
        let reload = Box::new(Reload { settings, provider, desk });
        self.events.send(Event::Reload(reload)).map_err(|_| ServeError::Ended)?;
        for (tls, certificate) in self.tls.iter().zip(certificates) {
            tls.exchange(certificate);
        }
        for door in &self.doors {
            let changed = DoorLimits::clone(&door.limits()).with_limits(&limits, door.side);
            door.set_limits(changed);
        }
        Ok(())
    }

    /// Accepts no more connections, sends everybody the newest state and queued data, and ends. Takes no longer than
    /// [`ServeOptions::drain`] and a moment. An edge takes up to so long once more, until its home knows that its clients
    /// go on elsewhere. False if connections had to be cut off.
    pub fn shut_down(self) -> bool {
        self.end().unwrap_or(false)
    }

    /// The same.
    ///
    /// # Errors
    /// An engine has failed meanwhile.
    pub(super) fn end(mut self) -> Result<bool, ServeError> {
        self.leaving.send_replace(true);
        let runtime = self.runtime.take();
        if let Some(runtime) = runtime.as_ref().filter(|_| self.has_home) {
            self.leave_home(runtime);
        }
        let _ = self.closing.send(true);
        self.is_open = None;
        let Some(runtime) = runtime else { return Ok(true) };
        let (last_parts, last_snapshot) = self.begin_last_snapshot();
        self.fan_out_for_the_last_time(&runtime, last_parts.as_ref());
        let is_alive = self.events.send(Event::ShutDown(last_parts)).is_ok();
        // Connections hold the other end until they are written out. Without the engine, no task is left that could send anything.
        let is_drained = is_alive && runtime.block_on(async { timeout(self.drain, self.alive.recv()).await.is_ok() });
        runtime.shutdown_timeout(RUNTIME_END);
        let _ = self.events.send(Event::End);
        let failure = self.end_engines();
        end_snapshot(last_snapshot);
        self.end_recordings();
        match failure {
            Some(text) => {
                error!(%text, "the engine has failed");
                Err(ServeError::Engine(text))
            }
            None => Ok(is_drained && !self.has_cut_off.load(Ordering::Relaxed)),
        }
    }

    /// Has the home let the clients go before their connections end: then it knows those who come back through another edge.
    fn leave_home(&self, runtime: &Runtime) {
        let (reply, has_left) = oneshot::channel();
        let is_told = self.events.send(Event::Leave(reply)).is_ok();
        if is_told && runtime.block_on(async { timeout(self.drain, has_left).await.is_err() }) {
            warn!("the home has not let the clients of this edge go: they may come back as others");
        }
    }

    /// Where engines send what they are at the end, and the thread that writes it, if somebody wants it.
    fn begin_last_snapshot(&mut self) -> (Option<LastParts>, Option<thread::JoinHandle<()>>) {
        match self.snapshots.take().map(Snapshots::begin_last) {
            Some(Ok((parts, thread))) => (Some(parts), Some(thread)),
            Some(Err(cause)) => {
                error!("the last snapshot was not written: {cause}");
                (None, None)
            }
            None => (None, None),
        }
    }

    /// Lets all engines but the first send the newest state. Then the first one ends the connections.
    fn fan_out_for_the_last_time(&self, runtime: &Runtime, last_parts: Option<&LastParts>) {
        let answers = (1..self.events.engine_count()).filter_map(|engine| {
            let (reply, answer) = oneshot::channel();
            self.events.send_to(engine, Event::LastFanOut(reply, last_parts.cloned())).ok().map(|()| answer)
        });
        let answers: Vec<_> = answers.collect();
        let all = async {
            for answer in answers {
                let _ = answer.await;
            }
        };
        let _ = runtime.block_on(async { timeout(REPORT.min(self.drain), all).await });
    }

    /// Ends a gateway one of whose engines has ended unexpectedly, and returns the cause.
    pub(super) fn fail(mut self) -> ServeError {
        let text = self.end_engines().unwrap_or_else(|| "it has ended without a cause".to_owned());
        error!(%text, "the engine has failed");
        self.shut_down();
        ServeError::Engine(text)
    }

    /// Data that waits for the disk is written.
    fn end_recordings(&mut self) {
        if let Some(recorder) = self.recorder.take() {
            recorder.finish();
        }
    }

    /// Waits for the threads of the engines. Why one has failed, if one has.
    fn end_engines(&mut self) -> Option<String> {
        self.end_others();
        let engines = std::mem::take(&mut self.engines);
        let causes: Vec<_> = engines.into_iter().filter_map(|engine| engine.join().err()).collect();
        causes.first().map(|cause| panic_text(&**cause))
    }

    fn end_others(&self) {
        self.events.send_to_others(|| Event::End);
    }

    fn open(&mut self, options: &DoorOptions, shared: Shared) -> Result<SocketAddr, ServeError> {
        let beside = self.doors.iter().find(|door| door.side == options.side);
        let door = Door::new(options, shared, beside.map(|door| &**door));
        self.doors.push(Arc::clone(&door));
        let listen_error = |cause| ServeError::Listen { address: options.address, cause };
        let is_udp = matches!(options.transport, Transport::Kcp | Transport::Link(_));
        if is_udp && !options.proxies.is_empty() {
            let (transport, address) = (options.transport.tag(), options.address);
            return Err(ServeError::Door { transport, address, what: "cannot be reached through proxies" });
        }
        let websocket = match &options.transport {
            Transport::Tcp => None,
            Transport::WebSocket(websocket) => Some(Arc::new(websocket.clone())),
            transport if options.tls.is_some() => {
                let what = "cannot use certificates";
                return Err(ServeError::Door { transport: transport.tag(), address: options.address, what });
            }
            Transport::Kcp => return kcp::open(door, options.address).map_err(listen_error),
            Transport::Link(link) => return link::open(door, options.address, link).map_err(listen_error),
        };
        let tls = options.tls.as_ref().map(Tls::load).transpose()?.map(Arc::new);
        self.tls.extend(tls.clone());
        let listener = tcp::listen(options.address, options.side).map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        // Sockets that are accepted have the listener's buffers; what the system says is what it counts.
        door.set_kernel_bytes(SockRef::from(&listener).send_buffer_size().unwrap_or(0));
        tokio::spawn(tcp::accept(door, listener, Above { tls, websocket, proxies: options.proxies.clone() }));
        Ok(address)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(RUNTIME_END);
        }
        if let Some(snapshots) = self.snapshots.take() {
            snapshots.end();
        }
        let _ = self.events.send(Event::End);
        self.end_engines();
        self.end_recordings();
    }
}

/// How long the engine may take to say how it is.
const REPORT: Duration = Duration::from_secs(2);
/// How long tasks may take to notice that they are to end. They never block.
const RUNTIME_END: Duration = Duration::from_millis(500);

/// After it, all parts that the engines sent are on the disk.
fn end_snapshot(writer: Option<thread::JoinHandle<()>>) {
    if let Some(writer) = writer {
        let _ = writer.join();
    }
}

/// 0 is what is usual.
fn budget_bytes(memory_bytes: u64) -> u64 {
    match memory_bytes {
        0 => memory::usual_limit_bytes(),
        bytes => bytes,
    }
}

/// The message of a panic, as far as it is text.
fn panic_text(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().copied();
    text.or_else(|| cause.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without text").to_owned()
}

/// Records clients, if the settings ask for it.
fn recorder(options: &ServeOptions, counters: &Arc<ShellCounters>) -> Result<Option<Arc<Recorder>>, ServeError> {
    let recorder = options.recordings.clone().map(|options| Recorder::new(options, Arc::clone(counters))).transpose();
    recorder.map_err(ServeError::Recordings)
}

fn runtime(io_threads: usize) -> Result<Runtime, ServeError> {
    let threads = match io_threads {
        // The engine's threads write; what is left is to read, and one thread that finds more to read each time it wakes
        // takes less than two that wake each other.
        0 => thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)),
        threads => threads,
    };
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).thread_name("io").enable_all().build().map_err(ServeError::Threads)
}

fn listen_for_pages(
    address: SocketAddr,
    limits: ListenerLimits,
    counters: &Arc<ListenerCounters>,
) -> Result<(BoundedListener, SocketAddr), ServeError> {
    let listener = std::net::TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .and_then(TcpListener::from_std);
    let bound = listener.and_then(|listener| listener.local_addr().map(|bound| (listener, bound)));
    let (listener, bound) = bound.map_err(|cause| ServeError::Listen { address, cause })?;
    Ok((BoundedListener::new(listener, limits, Arc::clone(counters)), bound))
}
