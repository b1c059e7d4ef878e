//! The scheduler: who runs when, and who waits.

use super::{all, count, percent};
use crate::apply::Change;
use crate::check::{Finding, Verdict};
use crate::host::{Host, ReadError, printable};
use crate::machine::{Counters, Machine, control_groups, quotas};
use crate::subject::Subject;

pub(crate) const MIGRATION_COST: [&str; 2] =
    ["/proc/sys/kernel/sched_migration_cost_ns", "/sys/kernel/debug/sched/migration_cost_ns"];
/// Since kernel 6.6.
const BASE_SLICE: &str = "/sys/kernel/debug/sched/base_slice_ns";
pub(crate) const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";
pub(crate) const QUOTAS: [&str; 2] = ["/sys/fs/cgroup/**/cpu.max", "/sys/fs/cgroup/**/cpu.cfs_quota_us"];

/// Kernels before 5.13 have the first file, later ones the second.
fn migration_file(host: &Host) -> &'static str {
    let [old, new] = MIGRATION_COST;
    if host.exists(old) { old } else { new }
}

pub(crate) fn migration_cost(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let ns: u64 = machine.host.value(migration_file(machine.host))?;
    Ok(Finding::new(format!("{} us", ns / 1000), ns == 0, Verdict::Advice))
}

pub(crate) fn no_migration_cost(host: &Host) -> Result<Vec<Change>, ReadError> {
    all(host, [migration_file(host).to_owned()], "0")
}

pub(crate) fn slice(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let path = &machine.subject.file("sched");
    let text = machine.host.text(path)?;
    let ns = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "se.slice").then(|| value.trim().parse::<u64>().ok())?
    });
    let ns = ns.ok_or_else(|| ReadError::not_understood(path, "no number se.slice"))?;
    let ms = |ns: u64| format!("{:.1} ms", ns as f64 / 1e6);
    let base = machine
        .host
        .value(BASE_SLICE)
        .map_or(String::new(), |base| format!("; {} for threads that ask for none", ms(base)));
    Ok(Finding::new(format!("{}{base}", ms(ns)), ns <= 1_000_000, Verdict::Advice))
}

pub(crate) fn timer_slack(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let ns = match machine.subject.pid {
        Some(_) => machine.host.value(&machine.subject.file("timerslack_ns"))?,
        None => machine.probes.timer_slack_ns()?,
    };
    Ok(Finding::new(format!("{:.1} us", ns as f64 / 1e3), ns <= 1_000, Verdict::Advice))
}

pub(crate) fn quota(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let levels = |counters: &Counters| counters.quota.clone();
    let (earlier, now) = (levels(&machine.counters[0]).unwrap_or_default(), levels(&machine.counters[1])?);
    let limited: Vec<_> = now.iter().filter_map(|level| level.cpus).collect();
    // The outer level throttles the inner ones; each counts its own.
    let worst = now.iter().max_by_key(|level| level.throttled);
    let Some(worst) = worst.filter(|level| level.throttled > 0) else {
        let tightest = limited.iter().copied().fold(f64::INFINITY, f64::min);
        let read = match limited.is_empty() {
            true => "no limit".to_owned(),
            false => format!("limit of {tightest:.2} CPUs, never throttled"),
        };
        return Ok(Finding::new(read, limited.is_empty(), Verdict::Advice));
    };
    let before = earlier.iter().find(|level| level.file == worst.file).map_or(worst.throttled, |level| level.throttled);
    let recently = match worst.throttled.saturating_sub(before) {
        0 => "not during this check".to_owned(),
        times => format!("{times} times during this check"),
    };
    let limit = worst.cpus.map_or("no limit now".to_owned(), |cpus| format!("limit of {cpus:.2} CPUs"));
    let (times, seconds) = (worst.throttled, worst.throttled_s);
    let read = format!("{limit}; throttled {times} times for {seconds:.1} s in total, {recently}");
    Ok(Finding { read, verdict: Verdict::Warning })
}

pub(crate) fn no_quota(host: &Host) -> Result<Vec<Change>, ReadError> {
    let levels = quotas(host, &Subject::this())?;
    if levels.is_empty() {
        return Err(ReadError::NoCall { reason: "no level of the control groups has a quota" });
    }
    Ok(levels.into_iter().map(|level| Change { path: level.file, value: level.free }).collect())
}

/// The share of the last 10 s in which some thread waited, in per cent.
fn some_avg10(host: &Host, path: &str) -> Result<f64, ReadError> {
    let text = host.text(path)?;
    // Interrupts have no line `some`.
    let line = text.lines().next().unwrap_or_default();
    let word = line.split_whitespace().find_map(|word| word.strip_prefix("avg10="));
    let share: Option<f64> = word.and_then(|word| word.parse().ok());
    share.filter(|share| (0.0..=100.0).contains(share)).ok_or_else(|| ReadError::not_understood(path, &text))
}

pub(crate) fn pressure(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    const CPU_PERCENT_MAX: f64 = 5.0;
    let cpu = some_avg10(machine.host, "/proc/pressure/cpu")?;
    let mut read = format!("last 10 s: cpu {cpu:.1} %");
    for kind in ["memory", "io", "irq"] {
        if let Ok(share) = some_avg10(machine.host, &format!("/proc/pressure/{kind}")) {
            read.push_str(&format!(", {kind} {share:.1} %"));
        }
    }
    let own = control_groups(machine.host, &machine.subject)
        .ok()
        .and_then(|(folders, _)| some_avg10(machine.host, &format!("{}/cpu.pressure", folders.first()?)).ok());
    if let Some(share) = own {
        read.push_str(&format!("; cpu in our control group {share:.1} %"));
    }
    Ok(Finding::new(read, cpu.max(own.unwrap_or_default()) <= CPU_PERCENT_MAX, Verdict::Warning))
}

pub(crate) fn run_queue(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    const WAIT_US_MAX: f64 = 100.0;
    let now = machine.counters[1].own.clone()?;
    // On a recorded machine, both readings are the same: then all turns count.
    let earlier = machine.counters[0].own.clone().ok().filter(|earlier| *earlier != now).unwrap_or_default();
    let [_, wait_ns, turns] = [0, 1, 2].map(|index| now[index].saturating_sub(earlier[index]));
    let wait_us = wait_ns as f64 / 1e3 / turns.max(1) as f64;
    let of = &machine.subject.words;
    let mut read = format!("{of} waited {wait_us:.0} us before each of {}", count(turns as usize, "turn"));
    if let Ok(row) = machine.host.row(&machine.subject.file("status"), "nonvoluntary_ctxt_switches") {
        read.push_str(&format!("; others took its place {} since its start", count(row[0] as usize, "time")));
    }
    Ok(Finding::new(read, wait_us <= WAIT_US_MAX, Verdict::Warning))
}

pub(crate) fn steal(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    const PERCENT_MAX: f64 = 0.5;
    /// Of fewer ticks, the share of a short time says nothing.
    const TICKS_MIN: u64 = 2;
    let (all, stolen) = machine.counters[1].ticks.clone()?;
    let (all_before, stolen_before) = machine.counters[0].ticks.clone().unwrap_or((all, stolen));
    let always = percent(stolen, all);
    let recent = stolen.saturating_sub(stolen_before);
    let recently = percent(recent, all.saturating_sub(all_before));
    let is_fine = always <= PERCENT_MAX && (recently <= PERCENT_MAX || recent < TICKS_MIN);
    let read = format!("{always:.2} % since the start, {recently:.2} % during this check");
    Ok(Finding::new(read, is_fine, Verdict::Warning))
}

pub(crate) fn irq(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let path = "/proc/interrupts";
    let text = machine.host.text(path)?;
    let columns = text.lines().next().unwrap_or_default().split_whitespace().count();
    let allowed = machine.allowed()?;
    let (mut active, mut on_ours, mut busiest, mut unread) = (0, 0, (0u64, String::new()), None);
    for line in text.lines().skip(1) {
        let Some((irq, rest)) = line.split_once(':') else { continue };
        // Device interrupts have numbers; those of the processors have names.
        let Ok(irq) = irq.trim().parse::<u32>() else { continue };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let counts = words.iter().take(columns).filter_map(|word| word.parse::<u64>().ok());
        let total = counts.fold(0u64, u64::saturating_add);
        if total > 0 {
            active += 1;
            match machine.host.cpus(&format!("/proc/irq/{irq}/smp_affinity_list")) {
                Ok(cpus) => on_ours += usize::from(cpus.iter().any(|cpu| allowed.contains(cpu))),
                Err(error) => unread = Some(error),
            }
        }
        if total > busiest.0 {
            busiest = (total, format!("{irq} {}", words.last().copied().unwrap_or_default()));
        }
    }
    if active == 0 {
        return Err(ReadError::not_understood(path, &text));
    }
    // One that is not known may be on ours.
    if let Some(error) = unread.filter(|_| on_ours == 0) {
        return Err(error);
    }
    let rps = rps_queues(machine.host);
    let rps = if rps == 0 { String::new() } else { format!("; {} with rps_cpus", count(rps, "queue")) };
    let busiest = printable(&busiest.1, 24);
    let read = format!("{on_ours} of {active} active device interrupts may stop our CPUs, most often {busiest}{rps}");
    Ok(Finding::new(read, on_ours == 0 || allowed.len() < 2, Verdict::Advice))
}

/// Receive queues of network devices whose packets are handed to chosen processors.
fn rps_queues(host: &Host) -> usize {
    const DEVICES_MAX: usize = 64;
    let devices = host.names("/sys/class/net").unwrap_or_default();
    let is_on = |path: &String| {
        let mask = host.text(path).unwrap_or_default();
        mask.chars().any(|c| c.is_ascii_hexdigit() && c != '0')
    };
    let queues = devices.iter().take(DEVICES_MAX).flat_map(|device| {
        let folder = format!("/sys/class/net/{device}/queues");
        let numbers = host.numbered(&folder, "rx-").unwrap_or_default();
        numbers.into_iter().map(move |queue| format!("{folder}/rx-{queue}/rps_cpus"))
    });
    queues.filter(is_on).count()
}

pub(crate) fn autogroup(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let mode: u32 = machine.host.value(AUTOGROUP)?;
    Ok(Finding::new(if mode == 0 { "off" } else { "on" }.to_owned(), mode == 0, Verdict::Advice))
}

pub(crate) fn no_autogroup(host: &Host) -> Result<Vec<Change>, ReadError> {
    all(host, [AUTOGROUP.to_owned()], "0")
}
