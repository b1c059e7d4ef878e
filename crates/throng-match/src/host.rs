//! Many matches in one process, on a fixed set of threads.
//!
//! ```text
//!  Host -- add --> the worker with the fewest matches
//!  worker 0, on core 0:   match 3 | match 0 | ... by deadline     sleeps until the next deadline, plays a frame
//!  worker 1, on core 1:   match 1 | match 2 | ...
//!                            a whole match moves between two of its ticks when loads differ
//!  Host <-- ends -- workers
//!  Host -- end --> the next frame of a match, whichever worker has it then
//! ```

use std::io;
use std::num::NonZeroU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use throng_telemetry::{Clock, Percentiles};

use crate::balance::Balance;
use crate::deadline::{first_deadline_ns, phase_of};
use crate::worker::{Control, Slot, Worker, WorkerState};
use crate::{Deadlines, Match, MatchEnd, Overrun};

/// Most workers of a host.
pub const WORKERS_MAX: usize = 256;

/// Time that a dropped host gives its workers.
const DROP_PATIENCE: Duration = Duration::from_secs(2);

/// Which cores the workers of a host run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// The system moves them as it likes.
    None,
    /// Each worker has a core of its own, as far as there are cores.
    EachOnItsCore,
    /// These cores, one after the other, from the start again if there are more workers.
    Cores(Vec<usize>),
}

/// Settings of a [`Host`].
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Number of workers: 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// Their cores.
    pub pinning: Pinning,
    /// Late ticks.
    pub overrun: Overrun,
    /// Whether matches move from busy workers to idle ones.
    pub migrates: bool,
    /// How long before a deadline a worker stops sleeping, and looks at the clock all the time. It hides the lateness of
    /// the system's timers, and costs that much of a core per frame.
    pub spin: Duration,
    /// How the system treats the threads of the workers.
    pub scheduling: Scheduling,
}

impl Default for HostOptions {
    /// A worker for each core, pinned; late ticks are skipped; matches move; no spinning.
    fn default() -> HostOptions {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        HostOptions {
            workers: workers.min(WORKERS_MAX),
            pinning: Pinning::EachOnItsCore,
            overrun: Overrun::SkipLate,
            migrates: true,
            spin: Duration::ZERO,
            scheduling: Scheduling::default(),
        }
    }
}

/// The requests of a thread to the system's scheduler. Nothing here needs privileges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// By how many nanoseconds the system may delay a timer to wake several threads at once. Linux has 50,000 by default,
    /// and 1 is the least. `None` leaves it. Other systems ignore it.
    pub timer_slack_ns: Option<NonZeroU64>,
}

/// Why a host did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// A number of workers that is not possible.
    #[error("a host has 1 to {WORKERS_MAX} workers, and not {0}")]
    Workers(usize),
    /// A core that does not exist.
    #[error("there is no core {core} for a worker: this process may use {available:?}")]
    Core {
        /// The core.
        core: usize,
        /// The cores that exist.
        available: Vec<usize>,
    },
    /// The system has no room for a thread.
    #[error("a worker could not be started: {0}")]
    Thread(#[from] io::Error),
}

/// The number of a match in its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MatchId(pub u64);

/// The work of one worker since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerFigures {
    /// Matches that it plays now.
    pub matches: usize,
    /// Frames that it played.
    pub frames: u64,
    /// Time in frames, in nanoseconds.
    pub busy_ns: u64,
    /// Share of the last second that it spent in frames: 0 to 1.
    pub load: f64,
    /// How late frames began, in nanoseconds. A frame that waited for another match's frame counts too.
    pub late_ns: Percentiles,
    /// How late the worker woke up for a deadline for which it had slept, in nanoseconds: the system's share of lateness.
    pub wake_late_ns: Percentiles,
    /// The values behind `wake_late_ns`: nanoseconds in rising order, each with how often.
    pub wake_late_values: Vec<(u64, u64)>,
    /// Deadlines that were skipped.
    pub missed_ticks: u64,
    /// Matches that went to other workers.
    pub migrated: u64,
    /// Panics outside of games: faults of the runtime, after which the worker went on.
    pub deaths: u64,
    /// The parts of [`Scheduling`] that the system refused, in one line.
    pub refused: Option<String>,
}

/// How a host ended.
#[derive(Debug, Default)]
pub struct Shutdown {
    /// All matches that ended since the last [`Host::poll_end`].
    pub ends: Vec<(MatchId, MatchEnd)>,
    /// Matches that did not end in time: those whose frames did not, and then those that wait behind them. Their threads go on until
    /// the process ends.
    pub stuck: Vec<String>,
}

/// Plays matches on its workers until they end.
#[derive(Debug)]
pub struct Host {
    clock: Clock,
    overrun: Overrun,
    controls: Vec<Sender<Control>>,
    threads: Vec<JoinHandle<()>>,
    states: Vec<Arc<Mutex<WorkerState>>>,
    balance: Arc<Balance>,
    ends: Receiver<(MatchId, MatchEnd)>,
    added: u64,
    /// Of each match that is played.
    asked: Vec<Asked>,
}

/// A match that some worker has.
#[derive(Debug)]
struct Asked {
    id: MatchId,
    name: String,
    /// Where it finds the reason for which it is to end.
    reason: Weak<OnceLock<String>>,
}

impl Asked {
    /// Whether a worker has it still.
    fn is_held(&self) -> bool {
        self.reason.strong_count() > 0
    }
}

impl Host {
    /// Starts the workers. `clock` is the time of all matches: that of their
    /// [`Telemetry`](throng_telemetry::Telemetry::clock).
    ///
    /// # Errors
    /// A number is out of range, a core does not exist, or the system has no room for a thread.
    pub fn start(options: HostOptions, clock: Clock) -> Result<Host, HostError> {
        if !(1..=WORKERS_MAX).contains(&options.workers) {
            return Err(HostError::Workers(options.workers));
        }
        let cores = cores_of(&options.pinning)?;
        let (end_sender, ends) = channel();
        let (controls, receivers): (Vec<_>, Vec<_>) = (0..options.workers).map(|_| channel()).unzip();
        let states: Vec<_> = controls.iter().map(|_| Arc::<Mutex<WorkerState>>::default()).collect();
        let balance = Arc::new(Balance::new(options.workers, options.migrates));
        let (overrun, threads, asked) = (options.overrun, Vec::new(), Vec::new());
        let mut host = Host { clock, overrun, controls, threads, states, balance, ends, added: 0, asked };
        for (number, receiver) in receivers.into_iter().enumerate() {
            let worker = Worker {
                number,
                clock: host.clock.clone(),
                controls: receiver,
                others: host.controls.clone(),
                ends: end_sender.clone(),
                state: host.states[number].clone(),
                balance: host.balance.clone(),
                core: (!cores.is_empty()).then(|| cores[number % cores.len()]),
                scheduling: options.scheduling,
                spin_ns: options.spin.as_nanos() as u64,
            };
            let thread = std::thread::Builder::new().name(format!("match-{number}"));
            host.threads.push(thread.spawn(move || worker.run())?);
        }
        Ok(host)
    }

    /// Plays a match from now on. Its deadlines are shifted by a part of a tick, so that the frames of all matches are
    /// spread over it.
    pub fn add(&mut self, game: Match) -> MatchId {
        let id = MatchId(self.added);
        let interval_ns = 1e9 / f64::from(game.rate_hz());
        let now_ns = self.clock.now_ns();
        let start_ns = first_deadline_ns(now_ns, interval_ns, phase_of(self.added));
        self.added += 1;
        let deadlines = Deadlines::new(start_ns, game.rate_hz(), self.overrun);
        let worker = self.balance.place(now_ns);
        let name = game.name().to_owned();
        let slot = Slot::new(id, game, deadlines);
        self.asked.retain(|asked| asked.is_held());
        self.asked.push(Asked { id, name, reason: Arc::downgrade(&slot.asked) });
        let sent = self.controls[worker].send(Control::Take(Box::new(slot)));
        debug_assert!(sent.is_ok(), "a worker runs as long as its host");
        id
    }

    /// Ends one match at its next frame; its clients get the reason. A match that has ended stays as it is.
    pub fn end(&self, id: MatchId, reason: &str) {
        let asked = self.asked.iter().find(|asked| asked.id == id);
        if let Some(asked) = asked.and_then(|asked| asked.reason.upgrade()) {
            // The first reason counts.
            let _ = asked.set(reason.to_owned());
        }
    }

    /// A match that has ended.
    pub fn poll_end(&self) -> Option<(MatchId, MatchEnd)> {
        self.ends.try_recv().ok()
    }

    /// Waits until a match has ended, at most `within`.
    pub fn wait_end(&self, within: Duration) -> Option<(MatchId, MatchEnd)> {
        self.ends.recv_timeout(within).ok()
    }

    /// The figures of all workers.
    pub fn figures(&self) -> Vec<WorkerFigures> {
        self.states.iter().map(|state| lock(state).figures()).collect()
    }

    /// Forgets the figures, as after a warm-up.
    pub fn reset_figures(&self) {
        self.states.iter().for_each(|state| lock(state).reset());
    }

    /// Ends all matches; clients get the reason, or that of [`end`](Host::end) if their match was asked before. Waits until they have left, at most `within`.
    pub fn shut_down(mut self, reason: &str, within: Duration) -> Shutdown {
        self.end_all(reason, within)
    }

    fn end_all(&mut self, reason: &str, within: Duration) -> Shutdown {
        let until = Instant::now() + within;
        self.balance.end();
        for control in self.controls.drain(..) {
            // A worker whose thread has ended has nothing to end.
            let _ = control.send(Control::Stop(reason.to_owned()));
        }
        let mut shutdown = Shutdown::default();
        while self.threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < until {
            shutdown.ends.extend(self.wait_end(Duration::from_millis(1)));
        }
        for (thread, state) in self.threads.drain(..).zip(&self.states) {
            match thread.is_finished() {
                // Its panics were caught inside.
                true => drop(thread.join()),
                false => shutdown.stuck.extend(lock(state).playing()),
            }
        }
        shutdown.ends.extend(self.ends.try_iter());
        // Others wait behind them.
        let held = self.asked.iter().filter(|asked| asked.is_held()).map(|asked| &asked.name);
        let waiting: Vec<String> = held.filter(|name| !shutdown.stuck.contains(name)).cloned().collect();
        shutdown.stuck.extend(waiting);
        shutdown
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.end_all("the host ends", DROP_PATIENCE);
        }
    }
}

fn cores_of(pinning: &Pinning) -> Result<Vec<usize>, HostError> {
    let available = || core_affinity::get_core_ids().unwrap_or_default().iter().map(|core| core.id).collect::<Vec<_>>();
    match pinning {
        Pinning::None => Ok(Vec::new()),
        Pinning::EachOnItsCore => Ok(available()),
        Pinning::Cores(cores) => {
            let available = available();
            match cores.iter().find(|core| !available.contains(core)) {
                Some(&core) => Err(HostError::Core { core, available }),
                None => Ok(cores.clone()),
            }
        }
    }
}

pub(crate) fn lock(state: &Mutex<WorkerState>) -> MutexGuard<'_, WorkerState> {
    // Figures alone are inside: they are worth reading after a panic too.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a control message until a deadline; `None` when the time has come.
pub(crate) fn wait_for(controls: &Receiver<Control>, wait_ns: u64) -> Result<Option<Control>, ()> {
    match controls.recv_timeout(Duration::from_nanos(wait_ns)) {
        Ok(control) => Ok(Some(control)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(()),
    }
}
