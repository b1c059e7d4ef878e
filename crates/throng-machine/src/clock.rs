//! A clock that two processes of one machine share, and processor time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use throng_wire::Time;

/// By how much this process's clock is ahead of the machine's, in microseconds.
static AHEAD_US: AtomicU64 = AtomicU64::new(0);

/// Microseconds of the machine's monotonic clock: the same in every process, unless one [is ahead](set_ahead).
pub fn now() -> Time {
    Time(micros(ClockId::Monotonic) + AHEAD_US.load(Ordering::Relaxed))
}

/// For tests of the lab: from now on this process has the clock of another machine, which is ahead by so much.
pub fn set_ahead(ahead: Duration) {
    AHEAD_US.store(ahead.as_micros() as u64, Ordering::Relaxed);
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

/// The use of the whole machine since a moment.
#[derive(Clone, Copy, Debug)]
pub struct MachineUse {
    since: Instant,
    from_s: Option<f64>,
}

/// Cores of a machine that all of its programs used together; unknown without `/proc`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsedCores(Option<f64>);

impl MachineUse {
    /// From now on.
    pub fn begin() -> MachineUse {
        MachineUse { since: Instant::now(), from_s: machine_cpu_s() }
    }

    /// Until now.
    pub fn so_far(&self) -> UsedCores {
        let seconds = self.since.elapsed().as_secs_f64().max(1e-9);
        UsedCores(machine_cpu_s().zip(self.from_s).map(|(now_s, from_s)| (now_s - from_s) / seconds))
    }
}

impl UsedCores {
    /// Those that were left to other programs than one's own, which used so many in the same time. At least 0: the system counts in
    /// steps.
    pub fn of_others(self, own: impl IntoIterator<Item = f64>) -> Option<f64> {
        Some((self.0? - own.into_iter().sum::<f64>()).max(0.0))
    }
}

/// User, nice, system and stolen time: fields 1, 2, 3 and 8 of the first line.
fn busy_s(stat: &str) -> Option<f64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let ticks: Vec<u64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let programs: u64 = ticks.get(..3)?.iter().sum();
    Some((programs + ticks.get(7).unwrap_or(&0)) as f64 / KERNEL_TICKS_PER_S)
}

/// Processor time so far of this process, of all children that it has waited for, and of these that it has not, in seconds;
/// `None` without `/proc`. A child that is gone is among those that were waited for.
pub fn family_cpu_s(children: &[u32]) -> Option<f64> {
    Some(cpu_s_of("self")? + children.iter().filter_map(|child| cpu_s_of(&child.to_string())).sum::<f64>())
}

/// Processor time so far of a process, `self` or its number, and of all children that it has waited for, in seconds; `None` if there
/// is no such process, or no `/proc`.
pub fn cpu_s_of(process: &str) -> Option<f64> {
    stat_cpu_s(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// User and system time of a process and of its children: fields 14 to 17. The name in brackets may have spaces and brackets of its
/// own.
fn stat_cpu_s(stat: &str) -> Option<f64> {
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
    let ticks: Vec<u64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
    (ticks.len() == 4).then(|| ticks.iter().sum::<u64>() as f64 / KERNEL_TICKS_PER_S)
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
    fn others_have_what_is_left_of_the_machine_and_nobody_has_less_than_nothing() {
        let used = UsedCores(Some(2.5));
        assert_eq!((used.of_others([1.0, 0.25]), used.of_others([3.0])), (Some(1.25), Some(0.0)));
        assert_eq!(UsedCores::default().of_others([1.0]), None);
        let machine = MachineUse::begin();
        assert!(machine.so_far().of_others([]).is_none_or(|cores| cores >= 0.0));
    }

    /// A program that keeps a core busy, until this is dropped.
    struct Busy(std::process::Child);

    impl Drop for Busy {
        fn drop(&mut self) {
            // An error here means that it has already ended.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_family_has_the_time_of_its_children_while_they_run_and_afterwards() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 92 0 0 0 100 50 30 20 20 0 1 0 9 9 9";
        assert_eq!((stat_cpu_s(stat), stat_cpu_s("7 (a) S 1"), stat_cpu_s("none")), (Some(2.0), None, None));
        if machine_cpu_s().is_none() {
            return;
        }
        let busy = Busy(std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
        let id = busy.0.id();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let before_s = family_cpu_s(&[]).unwrap();
        while family_cpu_s(&[id]).unwrap() < before_s + 0.5 {
            assert!(std::time::Instant::now() < until, "it does not run");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        drop(busy);
        assert!(family_cpu_s(&[id]).unwrap() >= before_s + 0.5, "it was waited for");
    }

    #[test]
    fn soft_interrupts_are_those_of_one_core() {
        let stat = "cpu  1 2 3 4 5 6 700 0\ncpu1 1 2 3 4 5 6 400 0\ncpu10 1 2 3 4 5 6 300 0\ncpu2 1 2 3\n";
        assert_eq!([1, 10, 2, 3].map(|core| soft_s(stat, core)), [Some(4.0), Some(3.0), None, None]);
    }
}
