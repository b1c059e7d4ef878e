//! Machines as folders, from a compact description.
//!
//! Each line is `path = text`. `{0-7}` in a path repeats the line for these numbers, and `{}` behind it is the number.
//! `|` in a text is a new line, and `path -` takes a file or a folder away. `path -> text` is a link, and `path = number N` has N
//! as a device of the kernel gives it: four bytes.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use throng_doctor::{Host, Probes, ReadError, Report, examine};

/// One socket of eight cores, well set.
pub(crate) const BASE: &str = "
sys/devices/system/cpu/online = 0-7
sys/devices/system/cpu/smt/control = notsupported
sys/devices/system/cpu/cpu{0-7}/topology/thread_siblings_list = {}
sys/devices/system/cpu/cpu{0-7}/cache/index3/level = 3
sys/devices/system/cpu/cpu{0-7}/cache/index3/shared_cpu_list = 0-7
sys/devices/system/cpu/cpu{0-7}/cpuidle/state0/name = POLL
sys/devices/system/cpu/cpu{0-7}/cpuidle/state0/latency = 0
sys/devices/system/cpu/cpu{0-7}/cpuidle/state0/disable = 0
sys/devices/system/cpu/cpu{0-7}/cpuidle/state1/name = C1E
sys/devices/system/cpu/cpu{0-7}/cpuidle/state1/latency = 10
sys/devices/system/cpu/cpu{0-7}/cpuidle/state1/disable = 0
sys/devices/system/cpu/cpu{0-7}/cpuidle/state2/name = C6
sys/devices/system/cpu/cpu{0-7}/cpuidle/state2/latency = 133
sys/devices/system/cpu/cpu{0-7}/cpuidle/state2/disable = 1
sys/devices/system/cpu/cpu{0-7}/cpufreq/scaling_governor = performance
sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference = performance
sys/devices/system/cpu/vulnerabilities/meltdown = Not affected
sys/devices/system/cpu/vulnerabilities/spectre_v2 = Mitigation: Enhanced / Automatic IBRS
sys/devices/system/node/node0/cpulist = 0-7
sys/devices/system/node/node0/numastat = numa_hit 900|numa_miss 0|local_node 900|other_node 0
dev/cpu_dma_latency = number 2000000000
sys/devices/system/clocksource/clocksource0/current_clocksource = tsc
sys/devices/system/clocksource/clocksource0/available_clocksource = tsc hpet acpi_pm
sys/kernel/mm/transparent_hugepage/enabled = always [madvise] never
sys/kernel/mm/transparent_hugepage/defrag = always [defer] defer+madvise madvise never
sys/kernel/mm/transparent_hugepage/shmem_enabled = always within_size advise [never] deny force
sys/kernel/debug/sched/migration_cost_ns = 0
sys/bus/event_source/devices/cpu/type = 4
sys/fs/cgroup/cgroup.procs = 1
sys/fs/cgroup/game/cpu.max = max 100000
sys/fs/cgroup/game/cpu.stat = usage_usec 1|nr_periods 0|nr_throttled 0|throttled_usec 0
sys/class/net/eth0/queues/rx-0/rps_cpus = 00
proc/self/cgroup = 0::/game
proc/self/status = Name: throng|Cpus_allowed:	ff|Cpus_allowed_list:	0-7
proc/self/sched = throng (1, #threads: 1)|se.slice                   :              700000
proc/self/schedstat = 1000000 20000 10
proc/self/limits = Max open files            65536                1048576              files|Max locked memory         unlimited            unlimited            bytes
proc/stat = cpu  1000 0 1000 8000 0 0 0 0 0 0|cpu0 1 0 1 8 0 0 0 0 0 0
proc/cpuinfo = processor : 0|flags		: fpu tsc constant_tsc nonstop_tsc
proc/meminfo = MemTotal: 64000000 kB|AnonHugePages:    204800 kB|SwapTotal: 0 kB|SwapFree: 0 kB
proc/pressure/cpu = some avg10=0.50 avg60=0.40 avg300=0.30 total=1|full avg10=0.00 avg60=0.00 avg300=0.00 total=0
proc/pressure/memory = some avg10=0.00 avg60=0.00 avg300=0.00 total=0
proc/interrupts =            CPU0       CPU1|  1:          9          0  IO-APIC   1-edge      i8042|  8:          0          0  IO-APIC   8-edge      rtc0
proc/irq/{1-8}/smp_affinity_list = 8
proc/sys/kernel/sched_autogroup_enabled = 0
proc/sys/kernel/numa_balancing = 0
proc/sys/kernel/perf_event_paranoid = 2
proc/sys/vm/swappiness = 60
proc/sys/net/core/rmem_max = 4194304
proc/sys/net/core/wmem_max = 4194304
proc/7/cmdline = sshd
proc/7/stat = 7 (sshd) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0
";

pub(crate) struct Machine {
    pub(crate) folder: TempDir,
}

impl Machine {
    pub(crate) fn empty() -> Machine {
        Machine { folder: tempfile::tempdir().unwrap() }
    }

    /// The base machine with some changes.
    pub(crate) fn base_with(changes: &str) -> Machine {
        let machine = Machine::empty();
        machine.describe(BASE);
        machine.describe(changes);
        machine
    }

    pub(crate) fn describe(&self, lines: &str) {
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            if let Some(path) = line.strip_suffix(" -") {
                let path = self.folder.path().join(path);
                if path.is_dir() {
                    fs::remove_dir_all(path).unwrap()
                } else {
                    fs::remove_file(path).unwrap()
                }
                continue;
            }
            if let Some((path, target)) = line.split_once(" -> ") {
                let path = self.folder.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::os::unix::fs::symlink(target, path).unwrap();
                continue;
            }
            let (path, text) = line.split_once(" = ").unwrap_or_else(|| panic!("a line without ` = `: {line}"));
            for (path, text) in repeated(path, text) {
                let path = self.folder.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                match text.strip_prefix("number ") {
                    Some(number) => fs::write(path, number.parse::<i32>().unwrap().to_ne_bytes()).unwrap(),
                    None => fs::write(path, text.replace('|', "\n") + "\n").unwrap(),
                }
            }
        }
    }

    pub(crate) fn host(&self) -> Host {
        Host::at(self.folder.path())
    }

    pub(crate) fn report(&self) -> Report {
        examine(&self.host(), &Known)
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.folder.path().join(path)).unwrap().trim_end().to_owned()
    }
}

fn repeated(path: &str, text: &str) -> Vec<(String, String)> {
    let Some((head, (range, tail))) = path.split_once('{').map(|(head, rest)| (head, rest.split_once('}').unwrap()))
    else {
        return vec![(path.to_owned(), text.to_owned())];
    };
    let (first, last) = range.split_once('-').unwrap();
    let numbers = first.parse::<u32>().unwrap()..=last.parse().unwrap();
    let number = |text: &str, number: u32| text.replace("{}", &number.to_string());
    numbers.map(|n| (number(&format!("{head}{n}{tail}"), n), number(text, n))).collect()
}

/// Readings of a well-set machine.
pub(crate) struct Known;

impl Probes for Known {
    fn timer_slack_ns(&self) -> Result<u64, ReadError> {
        Ok(1)
    }

    fn clock_cost_ns(&self) -> Result<f64, ReadError> {
        Ok(25.0)
    }

    fn socket_buffers(&self, _: u32, file: u32) -> Result<[u64; 2], ReadError> {
        Ok([4_194_304, 212_992 * u64::from(file)])
    }

    fn pause(&self) {}
}

/// A row as one line.
pub(crate) fn lines(report: &Report) -> Vec<String> {
    let mut rows: Vec<_> = report.rows.iter().collect();
    let all = throng_doctor::CHECKS.iter().chain(throng_doctor::PROCESS_CHECKS);
    rows.sort_by_key(|row| all.clone().position(|check| check.name == row.check));
    rows.into_iter().map(|row| format!("{} {}: {}", row.verdict.word(), row.check, row.read)).collect()
}

/// Everything below a folder, to see that nothing was changed.
pub(crate) fn contents(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.push((path.display().to_string(), fs::read_to_string(&path).unwrap_or_default()));
        }
    }
    found.sort();
    found
}
