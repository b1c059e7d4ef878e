//! The resources of this process, under the names of Prometheus' client libraries.
//!
//! | name | type | meaning |
//! |---|---|---|
//! | `process_cpu_seconds_total` | counter | processor time of all threads, user and system |
//! | `process_resident_memory_bytes` | gauge | memory that is in RAM |
//! | `process_start_time_seconds` | gauge | when the process began, since 1970 |
//! | `process_open_fds`, `process_max_fds` | gauge | file descriptors, and how many there may be |
//!
//! Read from Linux' `/proc/self` (proc(5)). Unreadable values are left out; on other systems that is all of them.

use std::fmt::Write as _;
use std::fs;

/// Clock ticks per second in `/proc`: `USER_HZ`, which is 100 on every architecture that this runs on.
const TICKS_PER_S: f64 = 100.0;

/// Fields of `/proc/self/stat`, counted from the one after the name of the program, the third.
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const START_TICKS: usize = 19;

/// Appends the metrics in Prometheus' text format.
pub(crate) fn write(text: &mut String) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let metrics = [
        ("process_cpu_seconds_total", "counter", "Processor time of all threads, user and system.", cpu_s(&stat)),
        ("process_resident_memory_bytes", "gauge", "Memory that is in RAM.", resident_of(&status)),
        ("process_start_time_seconds", "gauge", "When the process began, since 1970.", start_s(&stat)),
        ("process_open_fds", "gauge", "Open file descriptors.", open_files()),
        ("process_max_fds", "gauge", "How many there may be.", most_files().map(|most| most as f64)),
    ];
    for (name, kind, help, value) in metrics {
        if let Some(value) = value {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        }
    }
}

/// The name of the program may hold spaces and brackets; what follows its last bracket does not.
fn cpu_s(stat: &str) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let ticks = |field: usize| fields.get(field)?.parse::<u64>().ok();
    Some((ticks(USER_TICKS)? + ticks(SYSTEM_TICKS)?) as f64 / TICKS_PER_S)
}

/// The system says when it began itself, and how much later the process did.
fn start_s(stat: &str) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let ticks: u64 = after_name.split_ascii_whitespace().nth(START_TICKS)?.parse().ok()?;
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot_s: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot_s + ticks as f64 / TICKS_PER_S)
}

fn open_files() -> Option<f64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64)
}

/// How many file descriptors the process may have.
pub(crate) fn most_files() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Memory of this process that is in RAM. `None` where the system does not say.
pub fn resident_bytes() -> Option<u64> {
    resident_of(&fs::read_to_string("/proc/self/status").ok()?).map(|bytes| bytes as u64)
}

/// `statm` has it in pages of a size that it does not say; `status` in KiB.
fn resident_of(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib as f64 * 1_024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_user_and_system_time_whatever_the_program_is_called() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 9 9 20 0 4 0 100 1000 200";
        assert_eq!(cpu_s(stat), Some(3.0));
        assert_eq!(cpu_s("7 (cut off) S 1 7"), None);
        assert_eq!(cpu_s(""), None);
    }

    #[test]
    fn memory_is_in_bytes() {
        assert_eq!(resident_of("Name:\tthrong\nVmRSS:\t    2048 kB\nThreads:\t4\n"), Some(2_097_152.0));
        assert_eq!(resident_of("Name:\tthrong\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_page_has_all_of_it() {
        let mut text = String::new();
        write(&mut text);
        let names = [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_start_time_seconds",
            "process_open_fds",
            "process_max_fds",
        ];
        for name in names {
            assert!(text.lines().any(|line| line.starts_with(&format!("{name} "))), "no {name} in {text}");
        }
    }
}
