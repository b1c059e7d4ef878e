//! The thread that talks to the sidecar.

use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thiserror::Error;
use throng_wire::Time;
use ureq::Agent;

use crate::{Fleet, FleetCounters, FleetOptions, FleetState, Method, Reply, Request};

/// The variable in which Agones names the port of the sidecar's REST interface.
pub const PORT_VARIABLE: &str = "AGONES_SDK_HTTP_PORT";
/// The port if the variable is not set.
pub const PORT_DEFAULT: u16 = 9_358;

/// The time of a request. It is shorter than the time between two signs of life.
const PATIENCE: Duration = Duration::from_secs(1);
/// The part of an error's body that is read, in bytes.
const BODY_BYTES_MAX: u64 = 1_024;
/// The time between two looks at what changed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The time that [`Sidecar::end`] gives to the last requests.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Why there is no connection to a sidecar.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SidecarError {
    /// The variable has no port.
    #[error("{PORT_VARIABLE} is `{text}`, and has to be a port: Agones sets it, so remove your own setting")]
    Port {
        /// The variable's text, cut to 32 characters.
        text: String,
    },
    /// The system has no room for a thread.
    #[error("the thread that talks to the Agones sidecar could not be started: {0}")]
    Thread(#[from] io::Error),
}

impl SidecarError {
    /// A stable word for each kind of error.
    pub fn tag(&self) -> &'static str {
        match self {
            SidecarError::Port { .. } => "port",
            SidecarError::Thread(_) => "thread",
        }
    }
}

/// A connection to the sidecar, on a thread of its own. No call waits for the sidecar, apart from [`Sidecar::end`].
#[derive(Debug)]
pub struct Sidecar {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    fleet: Fleet,
    is_over: bool,
}

impl Sidecar {
    /// Reads the port from the text of [`PORT_VARIABLE`], or takes [`PORT_DEFAULT`].
    ///
    /// # Errors
    /// If the text is no port.
    pub fn port(variable: Option<&str>) -> Result<u16, SidecarError> {
        let Some(text) = variable else { return Ok(PORT_DEFAULT) };
        let port = text.parse().ok().filter(|port| *port != 0);
        port.ok_or_else(|| SidecarError::Port { text: text.escape_debug().take(32).collect() })
    }

    /// Starts to talk to the sidecar at this port of this machine. It need not answer yet.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn start(port: u16, options: FleetOptions) -> Result<Sidecar, SidecarError> {
        let state = State { fleet: Fleet::new(options), is_over: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let theirs = shared.clone();
        let run = move || talk(&theirs, port);
        let thread = std::thread::Builder::new().name("agones".to_owned()).spawn(run)?;
        Ok(Sidecar { shared, thread: Some(thread) })
    }

    /// The process can play from now on: everything that it needs is there. Until then, Agones gets signs of life alone.
    pub fn set_ready(&self) {
        self.shared.lock().fleet.set_ready();
        self.shared.changed.notify_all();
    }

    /// The matches that are played now; a process that plays is ready.
    pub fn set_matches(&self, names: impl IntoIterator<Item = String>) {
        self.shared.lock().fleet.set_matches(names);
        self.shared.changed.notify_all();
    }

    /// No further match begins here.
    pub fn drain(&self) {
        self.shared.lock().fleet.drain();
        self.shared.changed.notify_all();
    }

    /// The state that Agones was told.
    pub fn state(&self) -> FleetState {
        self.shared.lock().fleet.state()
    }

    /// The counters.
    pub fn counters(&self) -> FleetCounters {
        self.shared.lock().fleet.counters()
    }

    /// All matches are over, and the process ends: asks for the shutdown, and waits for a few seconds until that is said.
    /// Returns what was counted, and whether the sidecar took it.
    pub fn end(&self) -> (FleetCounters, FleetState) {
        // In this order: a process without matches that does not drain yet counts as ready for others.
        self.drain();
        self.set_matches([]);
        let end = Instant::now() + END_PATIENCE;
        while self.state() != FleetState::Ended && Instant::now() < end {
            std::thread::sleep(LOOK_EVERY / 10);
        }
        (self.counters(), self.state())
    }
}

impl Drop for Sidecar {
    /// Says nothing more.
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn talk(shared: &Shared, port: u16) {
    let agent: Agent = Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        .max_redirects(0)
        .proxy(None)
        .http_status_as_error(false)
        .build()
        .into();
    let begun = Instant::now();
    let mut state = shared.lock();
    while !state.is_over {
        let Some(request) = state.fleet.poll_request(Time::from(begun.elapsed())) else {
            let waited = shared.changed.wait_timeout(state, LOOK_EVERY);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            continue;
        };
        drop(state);
        let reply = send(&agent, port, &request);
        state = shared.lock();
        state.fleet.handle_reply(Time::from(begun.elapsed()), reply);
    }
}

/// Of an answer only the status is read, and of an error the beginning of its body.
fn send(agent: &Agent, port: u16, request: &Request) -> Reply {
    let address = format!("http://127.0.0.1:{port}{}", request.path);
    let builder = match request.method {
        Method::Post => agent.post(address),
        Method::Patch => agent.patch(address),
    };
    let Ok(mut response) = builder.content_type("application/json").send(request.body.as_str()) else {
        return Reply::Nothing;
    };
    let mut body = Vec::new();
    if !response.status().is_success() {
        // A body that breaks off counts as far as it came.
        let _ = response.body_mut().as_reader().take(BODY_BYTES_MAX).read_to_end(&mut body);
    }
    Reply::read(response.status().as_u16(), &String::from_utf8_lossy(&body))
}
