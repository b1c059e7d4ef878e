//! Readings that no file holds.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{socket_recv_buffer_size, socket_send_buffer_size};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

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

    /// The sizes of the buffers of another process's socket, to receive and to send, in bytes.
    ///
    /// # Errors
    ///
    /// There is no such socket, or this program may not ask.
    fn socket_buffers(&self, pid: u32, file: u32) -> Result<[u64; 2], ReadError>;

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

    fn socket_buffers(&self, pid: u32, file: u32) -> Result<[u64; 2], ReadError> {
        let ask = || {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
            let process = pidfd_open(pid, PidfdFlags::empty())?;
            // A second name of the socket, which is closed at once.
            let socket = pidfd_getfd(process, file.cast_signed(), PidfdGetfdFlags::empty())?;
            Ok([socket_recv_buffer_size(&socket)? as u64, socket_send_buffer_size(&socket)? as u64])
        };
        ask().map_err(|error: Errno| match error {
            Errno::PERM | Errno::ACCESS => ReadError::NoRight { path: format!("/proc/{pid}/fd/{file}") },
            Errno::SRCH | Errno::BADF => ReadError::Absent { path: format!("/proc/{pid}/fd/{file}") },
            _ => ReadError::NoCall { reason: "pidfd_getfd is refused" },
        })
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

    fn socket_buffers(&self, _pid: u32, _file: u32) -> Result<[u64; 2], ReadError> {
        Err(NOT_RUNNING)
    }

    fn pause(&self) {}
}
