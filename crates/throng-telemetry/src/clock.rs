//! The clock of scopes and frames, and the processor time of threads.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Counts nanoseconds since it was made.
///
/// It reads the processor's time stamp counter, through the crate `quanta`, if that is invariant: if it has one rate and
/// never stops. Without such a counter it reads the system's monotonic clock, which costs twice as much. Clones show the
/// same time.
#[derive(Clone)]
pub struct Clock {
    source: Source,
    /// Readings of one clock mean nothing to another.
    id: u64,
}

#[derive(Clone)]
enum Source {
    Counter { clock: quanta::Clock, origin: u64 },
    System { origin: Instant },
    Manual(Arc<Hands>),
}

#[derive(Debug, Default)]
struct Hands {
    wall_ns: AtomicU64,
    cpu_ns: AtomicU64,
}

impl Clock {
    /// The best clock of this machine. The first one of a process takes up to 0.2 s to measure the counter's rate.
    pub fn new() -> Clock {
        let clock = quanta::Clock::new();
        // Without an invariant counter its readings are the system's nanoseconds already.
        let is_counter = clock.delta_as_nanos(0, 1 << 40) != 1 << 40;
        if !is_counter {
            return Clock::system();
        }
        let origin = clock.raw();
        Clock::of(Source::Counter { clock, origin })
    }

    /// The system's monotonic clock, for machines whose counter is not to be trusted.
    pub fn system() -> Clock {
        Clock::of(Source::System { origin: Instant::now() })
    }

    /// A clock that a test moves.
    pub fn manual() -> (Clock, ManualClock) {
        let hands = Arc::new(Hands::default());
        (Clock::of(Source::Manual(hands.clone())), ManualClock { hands })
    }

    fn of(source: Source) -> Clock {
        static MADE: AtomicU64 = AtomicU64::new(1);
        Clock { source, id: MADE.fetch_add(1, Ordering::Relaxed) }
    }

    /// Where the time comes from: `counter`, `system` or `manual`.
    pub fn source(&self) -> &'static str {
        match self.source {
            Source::Counter { .. } => "counter",
            Source::System { .. } => "system",
            Source::Manual(_) => "manual",
        }
    }

    /// Nanoseconds since the clock was made.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        if let Source::Counter { clock, origin } = &self.source {
            return clock.delta_as_nanos(*origin, clock.raw());
        }
        self.slow_now_ns()
    }

    #[inline(never)]
    fn slow_now_ns(&self) -> u64 {
        match &self.source {
            Source::Counter { clock, origin } => clock.delta_as_nanos(*origin, clock.raw()),
            Source::System { origin } => origin.elapsed().as_nanos() as u64,
            Source::Manual(hands) => hands.wall_ns.load(Ordering::Relaxed),
        }
    }

    /// Processor time of the calling thread, in nanoseconds; `None` where the system does not tell it. A system call of
    /// about 0.4 µs.
    pub(crate) fn thread_cpu_ns(&self) -> Option<u64> {
        match &self.source {
            Source::Manual(hands) => Some(hands.cpu_ns.load(Ordering::Relaxed)),
            _ => system_thread_cpu_ns(),
        }
    }
}

#[cfg(unix)]
fn system_thread_cpu_ns() -> Option<u64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(not(unix))]
fn system_thread_cpu_ns() -> Option<u64> {
    None
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.source()).finish()
    }
}

/// Moves a [manual](Clock::manual) clock.
#[derive(Clone, Debug)]
pub struct ManualClock {
    hands: Arc<Hands>,
}

impl ManualClock {
    /// The thread works for `ns` nanoseconds.
    pub fn work(&self, ns: u64) {
        self.hands.cpu_ns.fetch_add(ns, Ordering::Relaxed);
        self.wait(ns);
    }

    /// Time passes while the thread does not run.
    pub fn wait(&self, ns: u64) {
        self.hands.wall_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

/// A frame that begins so soon after the last reading of this thread's processor time counts from that reading.
pub(crate) const CHAINED_NS: u64 = 20_000;

#[derive(Clone, Copy)]
struct Reading {
    clock_id: u64,
    cpu_ns: u64,
    at_ns: u64,
}

thread_local! {
    static LAST: Cell<Reading> = const { Cell::new(Reading { clock_id: 0, cpu_ns: 0, at_ns: 0 }) };
}

/// The processor time from which a frame counts that begins now on this thread. Reads it only after a pause: a busy thread
/// reads once per frame, at its end.
pub(crate) fn cpu_before_frame(clock: &Clock) -> Option<u64> {
    let last = LAST.get();
    if last.clock_id == clock.id && clock.now_ns().saturating_sub(last.at_ns) <= CHAINED_NS {
        return Some(last.cpu_ns);
    }
    clock.thread_cpu_ns()
}

/// The processor time at the end of a frame, which was at `end_ns`.
pub(crate) fn cpu_after_frame(clock: &Clock, end_ns: u64) -> Option<u64> {
    let cpu_ns = clock.thread_cpu_ns()?;
    LAST.set(Reading { clock_id: clock.id, cpu_ns, at_ns: end_ns });
    Some(cpu_ns)
}
