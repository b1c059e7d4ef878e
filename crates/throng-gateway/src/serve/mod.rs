//! The shell: sockets, threads and clocks around the engine.
//!
//! ```text
//!   doors: TCP, WebSocket, TLS, KCP, Throng's link                     HTTP: health, readiness, metrics
//!     |  one task for each connection: reads, frames, unpacks, limits        |
//!     v                                                                      v
//!   events, bounded by bytes  ---->  engine's thread  ---->  queues of what is to be written, bounded by bytes
//!     ^                                |        ^                            |
//!     |                                v        |                            v
//!     |                          authentication desk         cut, pack, frame, write: plain TCP by the engine's threads as
//!     |                                                      long as the kernel takes all, everything else by the same tasks
//!     +--- a full queue is waited for, so a peer is read as fast as the engine takes
//! ```
//! Nothing here polls: tasks wait for sockets and queues, the engine's thread for events and its next deadline. A
//! connection that is silent costs memory and nothing else.

mod configure;
mod counters;
mod direct;
mod door;
mod event;
mod gate;
mod http;
mod intake;
mod kcp;
mod link;
mod options;
mod outbox;
mod rate;
mod ration;
mod record;
mod signals;
mod stream;
mod tcp;
mod tls;
mod turn;
mod wake;
mod websocket;

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustc_hash::FxHashMap;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tracing::error;

use crate::auth::{Desk, DeskLimits, Provider, Staff};
use crate::engine::Engine;
use crate::settings::Settings;

pub use counters::{Reason, ShellCounters, SideCounters};
pub use event::Report;
pub use http::RenderMetrics;
pub use options::{DoorLimits, DoorOptions, LinkOptions, ServeOptions, TlsFiles, Transport, WebSocketOptions};
pub use record::RecordingOptions;
pub use throng_channeld::link::session_options as link_session_options;
pub use tls::TlsError;

use door::{Clock, Door, Shared};
use event::{Event, Events, Reload, events};
use ration::Ration;
use record::Recorder;
use tcp::Above;
use tls::Tls;
use turn::Turn;

/// A gateway that cannot be started. The operator is at fault, or the machine.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An address cannot be listened at.
    #[error("cannot listen at {address}: {cause}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        cause: io::Error,
    },
    /// An address is none, or its host is not known.
    #[error("{0:?} is no address to listen at")]
    Address(String),
    /// The key of a link's door cannot be read, or is none.
    #[error("{0}: a file with a key of 32 bytes, as 64 hexadecimal digits, is expected")]
    Key(String),
    /// The certificates of a door cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A door is described in a way that makes no sense.
    #[error("the {transport} door at {address} {what}")]
    Door {
        /// Its transport.
        transport: &'static str,
        /// Its address.
        address: SocketAddr,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The folder for recordings cannot be made.
    #[error("the folder for recordings cannot be made: {0}")]
    Recordings(io::Error),
    /// The engine's thread has panicked. Ours, always: nothing that a peer does may bring that about.
    #[error("the engine has failed: {0}")]
    Engine(String),
    /// The system's signals cannot be listened to.
    #[error("signals cannot be listened to: {0}")]
    Signals(io::Error),
    /// Threads cannot be started.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
    /// The gateway was shut down already. Our misuse.
    #[error("the gateway has ended")]
    Ended,
}

impl ServeError {
    /// A stable name for logs.
    pub fn tag(&self) -> &'static str {
        match self {
            ServeError::Listen { .. } => "listen",
            ServeError::Tls(error) => error.tag(),
            ServeError::Door { .. } => "door",
            ServeError::Address(_) => "address",
            ServeError::Key(_) => "key",
            ServeError::Recordings(_) => "recordings",
            ServeError::Engine(_) => "engine",
            ServeError::Signals(_) => "signals",
            ServeError::Threads(_) => "threads",
            ServeError::Ended => "ended",
        }
    }
}

/// A gateway that runs. Dropping it ends it without a farewell; [`shut_down`](Gateway::shut_down) is the polite way.
pub struct Gateway {
    runtime: Option<Runtime>,
    engine: Option<thread::JoinHandle<()>>,
    /// Ends when the engine's thread does, in whatever way.
    engine_end: watch::Receiver<()>,
    addresses: Vec<SocketAddr>,
    http_address: Option<SocketAddr>,
    counters: Arc<ShellCounters>,
    events: Events,
    closing: watch::Sender<bool>,
    /// As long as it is held, connections are let in.
    is_open: Option<mpsc::Sender<()>>,
    alive: mpsc::Receiver<()>,
    tls: Vec<Arc<Tls>>,
    doors: Vec<Arc<Door>>,
    drain: Duration,
    /// Somebody did not take the last bytes in time since the doors were closed.
    has_cut_off: Arc<AtomicBool>,
}

/// What a gateway is made of.
pub struct Parts {
    /// The engine. Its clock begins at zero when the gateway starts.
    pub engine: Engine,
    /// Who decides about those who come.
    pub provider: Arc<dyn Provider>,
    /// What the desk in front of the provider may take on.
    pub desk: DeskLimits,
    /// Makes the text of `/metrics`.
    pub render: RenderMetrics,
}

impl Gateway {
    /// Opens the doors.
    ///
    /// # Errors
    /// A door cannot be opened. None is open then.
    pub fn start(options: &ServeOptions, parts: Parts) -> Result<Gateway, ServeError> {
        let runtime = runtime(options.io_threads)?;
        let (events, inlet) = events(options.inbound_bytes);
        let (closing, is_closing) = watch::channel(false);
        let (alive_sender, alive) = mpsc::channel(1);
        let clock = Clock::start();
        let counters = Arc::new(ShellCounters::default());
        let ration = Arc::new(Ration::default());
        let (engine_lives, engine_end) = watch::channel(());
        let waits_for_master = Arc::new(AtomicBool::new(options.waits_for_master));
        let has_cut_off = Arc::new(AtomicBool::new(false));
        let shared = Shared {
            clock,
            events: events.clone(),
            counters: Arc::clone(&counters),
            ration: Arc::clone(&ration),
            waits_for_master: Arc::clone(&waits_for_master),
            recorder: recorder(options, &counters)?,
            closing: is_closing.clone(),
            drain: options.drain,
            has_cut_off: Arc::clone(&has_cut_off),
            engine_end: engine_end.clone(),
            alive: alive_sender.downgrade(),
        };
        let mut gateway = Gateway {
            runtime: None,
            engine: None,
            engine_end,
            addresses: Vec::new(),
            http_address: None,
            counters: Arc::clone(&counters),
            events: events.clone(),
            closing,
            is_open: Some(alive_sender),
            alive,
            tls: Vec::new(),
            doors: Vec::new(),
            drain: options.drain,
            has_cut_off,
        };
        for door in &options.doors {
            let _inside = runtime.enter();
            let address = gateway.open(door, shared.clone())?;
            gateway.addresses.push(address);
        }
        if let Some(address) = options.http {
            let pages = http::Pages {
                events: events.clone(),
                counters: Arc::clone(&counters),
                render: parts.render,
                closing: is_closing,
            };
            gateway.http_address = Some(open_http(&runtime, address, pages)?);
        }
        let staff = hire(parts.provider, &parts.desk, &events)?;
        let desk = Desk::new(staff, &parts.desk);
        let turn = Turn {
            engine: parts.engine,
            inlet,
            desk,
            clock,
            counters,
            ration,
            members: FxHashMap::default(),
            is_closing: false,
            waits_for_master,
            last_turn: clock.now(),
        };
        let engine = thread::Builder::new().name("engine".into()).spawn(move || {
            // Dropped at the end, a panic's too.
            let _lives = engine_lives;
            turn.run();
        });
        gateway.engine = Some(engine.map_err(ServeError::Threads)?);
        gateway.runtime = Some(runtime);
        Ok(gateway)
    }

    /// Where the doors are, in the order of the options.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where the pages for operators are.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// What the shell has done and refused so far.
    pub fn counters(&self) -> &ShellCounters {
        &self.counters
    }

    /// How things are in the engine. `None` if it does not answer within a bound.
    pub fn report(&self) -> Option<Report> {
        let (reply, answer) = oneshot::channel();
        self.events.send(Event::Report(reply)).ok()?;
        self.runtime.as_ref()?.block_on(async { timeout(REPORT, answer).await.ok()?.ok() })
    }

    /// Whether the engine still runs. If not, nobody is served any more: [`shut_down`](Self::shut_down) is all there is.
    pub fn is_alive(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| !engine.is_finished())
    }

    /// Other settings, another provider, and the certificates as they are in their files now: all of it, or nothing.
    ///
    /// # Errors
    /// Something of it cannot be used. Everything stays as it was.
    pub fn take_over(&self, settings: Arc<Settings>, provider: Arc<dyn Provider>) -> Result<(), ServeError> {
        let certificates = self.tls.iter().map(|tls| tls.read_again()).collect::<Result<Vec<_>, _>>()?;
        let desk = DeskLimits::from_settings(&settings);
        let staff = hire(provider, &desk, &self.events)?;
        let limits = settings.limits;
        // Nothing fails from here on, unless the engine is gone.
        let reload = Box::new(Reload { settings, staff, desk });
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

    /// Lets nobody in any more, gives everybody the newest state and what is queued for them, and ends. Takes no longer
    /// than [`ServeOptions::drain`] and a moment. False if somebody had to be cut off.
    pub fn shut_down(mut self) -> bool {
        let _ = self.closing.send(true);
        self.is_open = None;
        let is_alive = self.events.send(Event::ShutDown).is_ok();
        let Some(runtime) = self.runtime.take() else { return true };
        if !is_alive {
            // Nobody is left who could give anybody anything.
            runtime.shutdown_timeout(RUNTIME_END);
            return false;
        }
        // Connections hold the other end until they are written out.
        let is_drained = runtime.block_on(async { timeout(self.drain, self.alive.recv()).await.is_ok() });
        runtime.shutdown_timeout(RUNTIME_END);
        self.end_engine();
        is_drained && !self.has_cut_off.load(Ordering::Relaxed)
    }

    /// Ends a gateway whose engine has ended before it was told to, and says why it has.
    fn fail(mut self) -> ServeError {
        let cause = self.engine.take().and_then(|engine| engine.join().err());
        let text = cause.map_or_else(|| "it has ended without a cause".to_owned(), |cause| panic_text(&*cause));
        error!(%text, "the engine has failed");
        self.shut_down();
        ServeError::Engine(text)
    }

    fn end_engine(&mut self) {
        let _ = self.events.send(Event::End);
        if let Some(engine) = self.engine.take() {
            let _ = engine.join();
        }
    }

    fn open(&mut self, options: &DoorOptions, shared: Shared) -> Result<SocketAddr, ServeError> {
        let door = Door::new(options, shared);
        self.doors.push(Arc::clone(&door));
        let listen_error = |cause| ServeError::Listen { address: options.address, cause };
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
        tokio::spawn(tcp::accept(door, listener, Above { tls, websocket }));
        Ok(address)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(RUNTIME_END);
        }
        self.end_engine();
    }
}

/// How long the engine may take to say how it is.
const REPORT: Duration = Duration::from_secs(2);
/// How long tasks may take to notice that they are to end. They never block.
const RUNTIME_END: Duration = Duration::from_millis(500);

/// What a panic says, as far as it is text.
fn panic_text(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().copied();
    text.or_else(|| cause.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without text").to_owned()
}

/// Who asks `provider`, with answers that come as events.
fn hire(provider: Arc<dyn Provider>, limits: &DeskLimits, events: &Events) -> Result<Staff, ServeError> {
    let replies = events.clone();
    let reply = move |answer| {
        let _ = replies.send(Event::Answer(answer));
    };
    Staff::hire(provider, limits, reply).map_err(ServeError::Threads)
}

/// What records clients, if they are to be recorded.
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

fn open_http(runtime: &Runtime, address: SocketAddr, pages: http::Pages) -> Result<SocketAddr, ServeError> {
    let _inside = runtime.enter();
    let listener = std::net::TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .and_then(TcpListener::from_std)
        .map_err(|cause| ServeError::Listen { address, cause })?;
    let bound = listener.local_addr().map_err(|cause| ServeError::Listen { address, cause })?;
    runtime.spawn(http::serve(listener, pages));
    Ok(bound)
}
