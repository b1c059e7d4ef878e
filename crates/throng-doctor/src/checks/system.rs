//! The rest: other programs, counters, limits.

use super::{all, count, lacking};
use crate::apply::Change;
use crate::check::{Finding, Verdict};
use crate::host::{Host, ReadError};
use crate::machine::{CPU, Machine};
use crate::programs::Program;

pub(crate) const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
const PMUS: &str = "/sys/bus/event_source/devices";
pub(crate) const BUFFERS: [&str; 2] = ["/proc/sys/net/core/rmem_max", "/proc/sys/net/core/wmem_max"];
const BUFFER_BYTES: u64 = 4_194_304;
/// Programs that are named in one line.
const NAMED_MAX: usize = 4;
/// Runtimes by the beginning of their process's name, and the options that bound their threads or their spinning: in the command, or
/// in variables as `DOTNET_PROCESSOR_COUNT` and `JAVA_TOOL_OPTIONS`.
const RUNTIMES: [(&str, &[&str]); 3] = [
    ("beam.smp", &["+sbwt none", "-sbwt none"]),
    ("java", &["ActiveProcessorCount", "ParallelGCThreads"]),
    ("dotnet", &["PROCESSOR_COUNT"]),
];

fn named<'a>(programs: impl Iterator<Item = &'a Program>, show: impl Fn(&Program) -> String) -> String {
    let all: Vec<String> = programs.map(show).collect();
    let more = all.len().saturating_sub(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", all[..all.len().min(NAMED_MAX)].join(", "))
}

pub(crate) fn per_cpu_threads(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let cpus = machine.topology()?.cpus.len();
    let programs = machine.programs.as_ref().map_err(Clone::clone)?;
    let show = |program: &Program| {
        let threads = program.per_cpu.as_ref().filter(|threads| **threads != program.name);
        let threads = threads.map_or(String::new(), |threads| format!(" ({cpus} x {threads})"));
        format!("{} {}{threads}", program.name, program.pid)
    };
    let found = named(programs.iter().filter(|program| program.per_cpu.is_some()), show);
    let is_fine = found.is_empty();
    if let Some(program) = programs.iter().find(|program| is_fine && program.is_unread) {
        return Err(ReadError::TooLarge { path: format!("/proc/{}/task", program.pid) });
    }
    let read = match is_fine {
        true => format!("none of {} has a thread for each of {}", count(programs.len(), "program"), count(cpus, "CPU")),
        false => format!("a thread for each of {}: {found}", count(cpus, "CPU")),
    };
    Ok(Finding::new(read, is_fine, Verdict::Advice))
}

pub(crate) fn busy_wait(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let programs = machine.programs.as_ref().map_err(Clone::clone)?;
    let variables = |program: &Program| machine.host.text(&format!("/proc/{}/environ", program.pid));
    let is_free = |program: &&Program| {
        let Some((_, options)) = RUNTIMES.iter().find(|(name, _)| program.name.starts_with(name)) else { return false };
        let is_bound = |text: &str| options.iter().any(|option| text.contains(option));
        !is_bound(&program.command) && !variables(program).is_ok_and(|variables| is_bound(&variables))
    };
    let show = |program: &Program| {
        let unread = if variables(program).is_err() { ", environment not readable" } else { "" };
        format!("{} {} ({} threads{unread})", program.name, program.pid, program.threads)
    };
    let found = named(programs.iter().filter(is_free), show);
    let is_fine = found.is_empty();
    let read = match is_fine {
        true => "no unbounded BEAM, Java or .NET runtime (Go does not show)".to_owned(),
        false => format!("runtimes without a bound: {found}"),
    };
    Ok(Finding::new(read, is_fine, Verdict::Advice))
}

pub(crate) fn pmu(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let names = machine.host.names(PMUS)?;
    let is_cpu = |name: &&String| ["cpu", "cpu_core"].contains(&&***name) || name.starts_with("armv8");
    let Some(name) = names.iter().find(is_cpu) else {
        return Err(ReadError::Absent { path: format!("{PMUS}/cpu") });
    };
    let paranoid: i32 = machine.host.value(PARANOID)?;
    Ok(Finding::new(format!("{name}, perf_event_paranoid {paranoid}"), allows_counters(paranoid), Verdict::Advice))
}

fn allows_counters(paranoid: i32) -> bool {
    paranoid <= 2
}

pub(crate) fn counters_allowed(host: &Host) -> Result<Vec<Change>, ReadError> {
    Ok(lacking(host, all(host, [PARANOID.to_owned()], "1")?, allows_counters))
}

pub(crate) fn mitigations(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let folder = format!("{CPU}/vulnerabilities");
    let (mut guarded, mut open, mut spared) = (0, 0, 0);
    for name in machine.host.names(&folder)? {
        let path = format!("{folder}/{name}");
        let text = machine.host.text(&path)?;
        match text.split([' ', ':', '\n']).next() {
            Some("Mitigation") => guarded += 1,
            Some("Vulnerable") => open += 1,
            Some("Not" | "Unknown" | "Processor") => spared += 1,
            _ => return Err(ReadError::not_understood(&path, &text)),
        }
    }
    Ok(Finding::new(format!("{guarded} mitigated, {open} open, {spared} not affected"), true, Verdict::Advice))
}

pub(crate) fn limits(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    const FILES_MIN: u64 = 4_096;
    let path = &machine.subject.file("limits");
    let text = machine.host.text(path)?;
    let limit = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let word = line.and_then(|line| line.split_whitespace().next())?;
        if word == "unlimited" { Some(u64::MAX) } else { word.parse().ok() }
    };
    let not_understood = || ReadError::not_understood(path, &text);
    let files = limit("Max open files").ok_or_else(not_understood)?;
    let locked = limit("Max locked memory").ok_or_else(not_understood)?;
    let show = |limit: u64| if limit == u64::MAX { "unlimited".to_owned() } else { limit.to_string() };
    let locked = if locked == u64::MAX { show(locked) } else { format!("{} kB", locked / 1024) };
    let read = format!("open files {}, locked memory {locked}", show(files));
    Ok(Finding::new(read, files >= FILES_MIN, Verdict::Advice))
}

pub(crate) fn udp_buffers(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let [receive, send] = BUFFERS.map(|path| machine.host.value::<u64>(path));
    let (receive, send) = (receive?, send?);
    let read = format!("at most {} kB to receive, {} kB to send", receive / 1024, send / 1024);
    Ok(Finding::new(read, is_large(receive.min(send)), Verdict::Advice))
}

fn is_large(buffer_bytes: u64) -> bool {
    buffer_bytes >= BUFFER_BYTES
}

pub(crate) fn large_buffers(host: &Host) -> Result<Vec<Change>, ReadError> {
    Ok(lacking(host, all(host, BUFFERS.map(str::to_owned), &BUFFER_BYTES.to_string())?, is_large))
}
