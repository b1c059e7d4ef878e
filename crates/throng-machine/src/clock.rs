//! A clock that two processes of one machine share, and processor time.

use rustix::time::{ClockId, clock_gettime};
use throng_wire::Time;

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

/// Clock ticks per second in which Linux counts processor time for user programs, on all its platforms.
pub const KERNEL_TICKS_PER_S: f64 = 100.0;

/// Processor time that all programs of the machine have taken so far, with what other virtual machines took from this one
/// and without interrupts, in seconds; `None` without `/proc`.
pub fn machine_cpu_s() -> Option<f64> {
    busy_s(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// User, nice, system and stolen time: fields 1, 2, 3 and 8 of the first line.
fn busy_s(stat: &str) -> Option<f64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let ticks: Vec<u64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let programs: u64 = ticks.get(..3)?.iter().sum();
    Some((programs + ticks.get(7).unwrap_or(&0)) as f64 / KERNEL_TICKS_PER_S)
}

/// Time that a core has spent in soft interrupts so far, in seconds; `None` without `/proc`.
pub fn soft_interrupts_s(core: usize) -> Option<f64> {
    soft_s(&std::fs::read_to_string("/proc/stat").ok()?, core)
}

/// Field 7 of the core's line.
fn soft_s(stat: &str, core: usize) -> Option<f64> {
    let name = format!("cpu{core} ");
    let fields = stat.lines().find_map(|line| line.strip_prefix(&name))?;
    Some(fields.split_whitespace().nth(6)?.parse::<u64>().ok()? as f64 / KERNEL_TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_busy_for_what_its_programs_took() {
        assert_eq!(busy_s("cpu  100 50 150 9000 10 0 5 0 0 0\ncpu0 1 2 3 4\n"), Some(3.0));
        assert_eq!(busy_s("cpu  100 50 150 9000 10 0 5 200 0 0\n"), Some(5.0));
        assert_eq!(busy_s("nonsense"), None);
    }

    #[test]
    fn soft_interrupts_are_those_of_one_core() {
        let stat = "cpu  1 2 3 4 5 6 700 0\ncpu1 1 2 3 4 5 6 400 0\ncpu10 1 2 3 4 5 6 300 0\ncpu2 1 2 3\n";
        assert_eq!([1, 10, 2, 3].map(|core| soft_s(stat, core)), [Some(4.0), Some(3.0), None, None]);
    }
}
