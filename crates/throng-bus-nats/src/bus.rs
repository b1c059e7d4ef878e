//! The caller's end of a bus over NATS.

use std::fmt;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_nats::{ReconnectToServer, Server};
use throng_bus::endpoint::Endpoint;
use throng_bus::{Bus, Cluster, Command, CommandError, Counters, Event, Limits, MemberId};
use throng_wire::Time;
use tokio::sync::Notify;

use crate::driver;
use crate::error::StartError;

/// The oldest server on which entries end by themselves.
pub const SERVER_VERSION_MIN: (u32, u32) = (2, 11);

/// How a member proves that it may use the server.
#[derive(Clone)]
pub enum Secret {
    /// The server asks for none.
    None,
    /// A token.
    Token(String),
    /// A user and a password.
    User(String, String),
}

impl fmt::Debug for Secret {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Secret::None => "None",
            Secret::Token(_) => "Token(..)",
            Secret::User(..) => "User(..)",
        })
    }
}

/// Settings of a bus over NATS.
#[derive(Clone, Debug)]
pub struct NatsOptions {
    /// Addresses, with commas between them: `nats://HOST:PORT`, or `tls://HOST:PORT`.
    pub servers: String,
    /// The name of the cluster, which all subjects and the bucket begin with, and its id.
    pub cluster: Cluster,
    /// Whether the cluster is made if it does not exist.
    pub creates: bool,
    /// This member. Random, another one for each start of a process.
    pub member: MemberId,
    /// Limits.
    pub limits: Limits,
    /// How we prove that we may use the server.
    pub secret: Secret,
    /// Copies of the store in a NATS cluster: 1, 3 or 5. Used when the store is made.
    pub replicas: usize,
    /// The time that the start may take.
    pub patience: Duration,
    /// The time between two questions whether the server is there. A silent connection is given up after three of them.
    pub ping_every: Duration,
    /// Gets each line about servers that do not fit, in the thread of the bus.
    pub note: fn(&str),
}

impl NatsOptions {
    /// No secret, one copy, and the cluster has to exist.
    pub fn new(servers: &str, cluster: Cluster, member: MemberId) -> NatsOptions {
        NatsOptions {
            servers: servers.to_owned(),
            cluster,
            creates: false,
            member,
            limits: Limits::default(),
            secret: Secret::None,
            replicas: 1,
            patience: Duration::from_secs(5),
            ping_every: Duration::from_secs(1),
            note: |_| (),
        }
    }
}

/// A member of a bus over NATS.
#[derive(Debug)]
pub struct NatsBus {
    shared: Arc<Shared>,
    member: MemberId,
    thread: Option<JoinHandle<()>>,
}

/// The state that the caller's thread and the runtime share. Nobody waits while holding the lock.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    news: Condvar,
    pub(crate) work: Notify,
    /// The caller's end is dropped.
    pub(crate) stop: Notify,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) endpoint: Endpoint,
    /// The caller's newest time.
    pub(crate) now: Time,
    pub(crate) is_ready: bool,
    pub(crate) is_stopping: bool,
    /// Rises with each connection.
    pub(crate) connections: u64,
    /// The newest connection holds.
    pub(crate) is_linked: bool,
    /// Why the newest server that has answered does not fit.
    pub(crate) problem: Option<String>,
    /// Servers that were tried since one did not fit.
    turn: usize,
    /// The server refuses what this member says about how far it has read the store. It stops sending changes after some MiB.
    pub(crate) is_reading_refused: bool,
    has_news: bool,
}

impl NatsBus {
    /// Connects, compares the cluster's settings with the store, and starts the thread of the bus.
    ///
    /// # Errors
    /// If there is no server or store that fits, within [`NatsOptions::patience`].
    pub fn start(options: NatsOptions) -> Result<NatsBus, StartError> {
        let state = State {
            endpoint: Endpoint::new(options.member, options.limits.clone()),
            now: Time(0),
            is_ready: false,
            is_stopping: false,
            is_reading_refused: false,
            connections: 0,
            is_linked: false,
            problem: None,
            turn: 0,
            has_news: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            news: Condvar::new(),
            work: Notify::new(),
            stop: Notify::new(),
        });
        let (started, result) = channel();
        let (member, theirs) = (options.member, shared.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let run = move || {
            runtime.block_on(driver::run(&theirs, &options, &started));
            // A name of a host that is being looked up would hold up the end.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("throng-bus".to_owned()).spawn(run)?;
        match result.recv() {
            Ok(Ok(())) => Ok(NatsBus { shared, member, thread: Some(thread) }),
            Ok(Err(error)) => {
                drop(thread.join());
                Err(error)
            }
            Err(_) => Err(StartError::Thread(std::io::Error::other("it ended before it was ready"))),
        }
    }

    /// Why the bus cannot be used although there is a server: it belongs to another cluster, or takes only shorter messages. The bus tries
    /// again, also with the other servers.
    pub fn problem(&self) -> Option<String> {
        self.shared.lock().problem.clone()
    }

    /// Waits until there may be an event, for a time at most. False if the time is over.
    pub fn wait(&self, patience: Duration) -> bool {
        let state = self.shared.lock();
        let (mut state, _) = self
            .shared
            .news
            .wait_timeout_while(state, patience, |state| !state.has_news)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.has_news)
    }
}

impl Bus for NatsBus {
    fn handle_command(&mut self, now: Time, command: Command) -> Result<(), CommandError> {
        let mut state = self.shared.lock();
        state.now = state.now.max(now);
        let result = state.endpoint.handle_command(now, command);
        drop(state);
        self.shared.work.notify_one();
        result
    }

    fn handle_timeout(&mut self, now: Time) {
        let mut state = self.shared.lock();
        state.now = state.now.max(now);
        state.endpoint.handle_timeout(now);
        drop(state);
        self.shared.work.notify_one();
    }

    fn poll_event(&mut self, _: Time) -> Option<Event> {
        self.shared.lock().endpoint.poll_event()
    }

    fn member(&self) -> MemberId {
        self.member
    }

    fn counters(&self) -> Counters {
        self.shared.lock().endpoint.counters()
    }
}

impl Drop for NatsBus {
    /// Sends what waits, for a second at most.
    fn drop(&mut self) {
        self.shared.lock().is_stopping = true;
        self.shared.work.notify_one();
        self.shared.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl State {
    /// After a server that does not fit, all take turns: the client itself would connect to the same one again, as long as another one
    /// has failed more often. `None` is its own choice.
    pub(crate) fn next_server(&mut self, servers: Vec<Server>) -> Option<ReconnectToServer> {
        self.problem.as_ref()?;
        self.turn = self.turn.wrapping_add(1);
        let chosen = self.turn.checked_rem(servers.len())?;
        let addr = servers.into_iter().nth(chosen)?.addr;
        Some(ReconnectToServer { addr, delay: None })
    }

    /// The caller may use the bus.
    pub(crate) fn connect(&mut self) {
        if !self.endpoint.is_connected() {
            self.endpoint.handle_connected(self.now);
        }
    }
}

impl Shared {
    /// A lock of a thread that panicked is taken over: each change of what it protects is whole.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the endpoint, and wakes up the caller.
    pub(crate) fn tell<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let told = change(&mut state);
        state.has_news = true;
        drop(state);
        self.news.notify_all();
        told
    }

    /// The same for what has come from the server. Nothing is taken from one that does not fit, or is not known yet: the caller is told of
    /// a gap, and lists are made anew, when it is connected again.
    pub(crate) fn take(&self, change: impl FnOnce(&mut State)) {
        self.tell(|state| {
            if state.endpoint.is_connected() {
                change(state);
            }
        });
    }
}
