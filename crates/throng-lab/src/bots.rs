//! Bots: honest clients, as light as they can be.
//!
//! Each has its own address, token, keys and session: it does the whole handshake, opens every packet, acknowledges it and
//! sends its inputs. A sample of them decodes everything, and compares it with the server's truth.

mod bot;
mod brain;
mod fleet;
mod gathered;
mod members;
mod outage;
mod pipe;
mod port;
mod share;
mod talk;
mod witness;
mod worst;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use throng::net::BindError;
use throng::replica::ReplicaClient;
use throng::{Decoder, Key};
use throng_crowd::scenario::{Model, Scenario};
use throng_models::RecordDecoder;

pub use crate::control::{BotsReport, Progress};
pub use brain::{Brain, Brains, View};
pub(crate) use fleet::Fleet;
pub(crate) use gathered::{Gathered, SecondCounts};
pub(crate) use members::is_witness;
pub use share::Share;
use talk::Talking;

/// Options of a group of bots. As JSON, it is the order for their process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BotsOptions {
    /// The server.
    pub server: SocketAddr,
    /// The edges to which the bots connect in turn; none: they connect to the server.
    pub edges: Vec<EdgePoint>,
    /// The key that encrypts its tokens.
    #[serde(with = "key_bytes")]
    pub key: Key,
    /// The scenario.
    pub scenario: Scenario,
    /// The files in which the servers write their state, by number; none if the server is on another machine.
    pub truths: Vec<PathBuf>,
    /// The cores that they may use; `None`: all.
    pub cores: Option<Vec<usize>>,
    /// How they decide; the built-in bots in another process.
    #[serde(skip)]
    pub brains: Brains,
    /// Which of the scenario's bots they are.
    pub share: Share,
    /// When the first of them connects, in microseconds of the machine's clock; `None`: at once.
    pub begin_us: Option<u64>,
}

impl BotsOptions {
    /// All built-in bots of a scenario, at once, against a server on another machine.
    pub fn new(server: SocketAddr, key: Key, scenario: Scenario) -> BotsOptions {
        BotsOptions {
            server,
            edges: Vec::new(),
            key,
            scenario,
            truths: Vec::new(),
            cores: None,
            brains: Brains::default(),
            share: Share::default(),
            begin_us: None,
        }
    }
}

/// A key on its way to another process.
mod key_bytes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use throng::Key;

    pub(super) fn serialize<S: Serializer>(key: &Key, serializer: S) -> Result<S::Ok, S::Error> {
        key.as_bytes().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        <[u8; 32]>::deserialize(deserializer).map(Key::new)
    }
}

/// An edge, as bots need to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgePoint {
    /// Its address.
    pub address: SocketAddr,
    /// The file that tells its objects from those of the servers.
    pub copies: PathBuf,
}

/// Why the bots could not play.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BotsError {
    /// A socket could not be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The target is not on this machine.
    #[error("{0} is not a loopback address: add --i-own-this-target if you own the server")]
    NotLoopback(SocketAddr),
    /// The server did not answer.
    #[error("{server} does not answer (waited {waited_s} s): check that a server runs there with the same key")]
    NoAnswer {
        /// The address.
        server: SocketAddr,
        /// How long.
        waited_s: u64,
    },
    /// The process may not open enough sockets.
    #[error(
        "the bots need {needed} sockets but the process may open {allowed}: raise the limit with `ulimit -n {needed}`"
    )]
    TooFewSockets {
        /// How many.
        needed: u64,
        /// How many at most.
        allowed: u64,
    },
    /// The truth, or the copies of an edge, cannot be read.
    #[error("cannot read {path}: {source}")]
    Truth {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl BotsError {
    /// A stable short name.
    pub fn tag(&self) -> &'static str {
        match self {
            BotsError::Bind(error) => error.tag(),
            BotsError::NotLoopback(_) => "not_loopback",
            BotsError::NoAnswer { .. } => "no_answer",
            BotsError::TooFewSockets { .. } => "too_few_sockets",
            BotsError::Truth { .. } => "truth",
        }
    }
}

/// Refuses servers that are not on this machine, unless the user has confirmed that he owns them.
pub fn check_target(server: SocketAddr, is_own: bool) -> Result<(), BotsError> {
    match server.ip().is_loopback() || is_own {
        true => Ok(()),
        false => Err(BotsError::NotLoopback(server)),
    }
}

/// Plays for the scenario's time, or until `stop` is set, and calls `progress` every second.
pub fn play(
    options: &BotsOptions,
    stop: &AtomicBool,
    progress: impl FnMut(&Progress),
) -> Result<BotsReport, BotsError> {
    match options.scenario.model {
        Model::Throng => play_with::<ReplicaClient>(options, stop, progress),
        _ => play_with::<RecordDecoder>(options, stop, progress),
    }
}

fn play_with<D: Decoder>(
    options: &BotsOptions,
    stop: &AtomicBool,
    mut progress: impl FnMut(&Progress),
) -> Result<BotsReport, BotsError> {
    let mut fleet = Fleet::<D>::new(options)?;
    let mut server = Talking::default();
    let scenario = &options.scenario;
    let warm = Duration::from_secs(u64::from(scenario.warmup_seconds));
    let length = Duration::from_secs(u64::from(scenario.seconds));
    let mut measured_since = None;
    let mut full_since = None;
    while !stop.load(Ordering::Relaxed) {
        fleet.turn()?;
        if let Some(latest) = fleet.take_progress() {
            progress(&latest.progress);
            server.tell_second(&mut fleet, &latest.progress);
        }
        let now = throng_machine::clock::now();
        let elapsed = measured_since.map_or(Duration::ZERO, |since| now.since(since));
        fleet.want(scenario.profile.players_at(scenario.players, elapsed));
        if full_since.is_none() && fleet.all_have_tried() {
            full_since = Some(now);
        }
        match (measured_since, full_since) {
            (None, Some(full)) if now.since(full) >= warm => {
                fleet.begin_measurement();
                server.begin(&mut fleet, scenario);
                measured_since = Some(now);
            }
            (Some(since), _) if now.since(since) >= length => break,
            _ => {}
        }
    }
    fleet.end_measurement();
    server.finish(&mut fleet, scenario, stop)
}

/// Runs as the second process of a run: it reads commands from standard input and writes reports to standard output.
pub fn play_for_host(options: &BotsOptions) -> Result<(), BotsError> {
    match options.scenario.model {
        Model::Throng => pipe::play::<ReplicaClient>(options),
        _ => pipe::play::<RecordDecoder>(options),
    }
}

/// Raises the limit of open files as far as the system allows, which has to be so many at least.
fn allow_sockets(needed: u64) -> Result<(), BotsError> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current else { return Ok(()) };
    let wanted = limit.maximum.unwrap_or(needed.max(current));
    let is_raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).is_ok();
    let allowed = if is_raised { wanted } else { current };
    if allowed < needed { Err(BotsError::TooFewSockets { needed, allowed }) } else { Ok(()) }
}

/// Pins this thread, and the threads that it starts, to these cores; the library allows only the first of them.
pub(crate) fn pin(cores: &[usize]) {
    if let Some(&first) = cores.first() {
        core_affinity::set_for_current(core_affinity::CoreId { id: first });
    }
}
