//! Readings that no file holds.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::host::ReadError;

/// Readings of the running machine. A recorded machine has none: [`NoProbes`].
pub trait Probes {
    /// The timer slack of the calling thread, in nanoseconds.
    ///
    /// # Errors
    ///
    /// The system does not tell it.
    fn timer_slack_ns(&self) -> Result<u64, ReadError>;

    /// The cost of one reading of the monotonic clock, in nanoseconds.
    ///
    /// # Errors
    ///
    /// There is no clock to read.
    fn clock_cost_ns(&self) -> Result<f64, ReadError>;

    /// Lets about half a second pass between two readings of the same counters, and wakes up often meanwhile, so that
    /// waits for a processor show.
    fn pause(&self);
}

/// The machine on which this program runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveProbes;

impl Probes for LiveProbes {
    fn timer_slack_ns(&self) -> Result<u64, ReadError> {
        let reason = "prctl(PR_GET_TIMERSLACK) is refused";
        rustix::thread::current_timer_slack().map_err(|_| ReadError::NoCall { reason })
    }

    fn clock_cost_ns(&self) -> Result<f64, ReadError> {
        const CALLS: u32 = 2_000;
        // The best of several: others may run in between.
        let round = |_| {
            let begin = Instant::now();
            (0..CALLS).for_each(|_| _ = black_box(Instant::now()));
            begin.elapsed().as_nanos() as f64 / f64::from(CALLS)
        };
        Ok((0..5).map(round).fold(f64::INFINITY, f64::min))
    }

    fn pause(&self) {
        let begin = Instant::now();
        for tick in 1..=64 {
            let deadline = Duration::from_micros(7_812) * tick;
            std::thread::sleep(deadline.saturating_sub(begin.elapsed()));
        }
    }
}

/// A machine of which only files are known.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProbes;

const NOT_RUNNING: ReadError =
    ReadError::NoCall { reason: "only the running machine tells it, and --root names a folder" };

impl Probes for NoProbes {
    fn timer_slack_ns(&self) -> Result<u64, ReadError> {
        Err(NOT_RUNNING)
    }

    fn clock_cost_ns(&self) -> Result<f64, ReadError> {
        Err(NOT_RUNNING)
    }

    fn pause(&self) {}
}
