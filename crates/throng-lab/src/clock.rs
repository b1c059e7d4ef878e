//! Time that two processes of one machine agree on, and processor time.

use rustix::time::{ClockId, clock_gettime};
use throng::Time;

/// Microseconds of the machine's monotonic clock: the same in every process.
pub fn now() -> Time {
    Time(micros(ClockId::Monotonic))
}

/// Processor time of this process so far, in seconds, all threads.
pub fn process_cpu_s() -> f64 {
    micros(ClockId::ProcessCPUTime) as f64 / 1e6
}

fn micros(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}
