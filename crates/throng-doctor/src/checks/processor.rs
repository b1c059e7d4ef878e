//! The processors: threads of a core, sleep, frequency, clock.

use std::collections::BTreeMap;

use super::{all, count};
use crate::apply::Change;
use crate::check::{Finding, Verdict};
use crate::host::{Host, ReadError};
use crate::machine::{CPU, Machine, online};

const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0";
pub(crate) const CURRENT_CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
pub(crate) const DEEP_STATES: &str = "/sys/devices/system/cpu/cpu#/cpuidle/state#/disable";
pub(crate) const GOVERNORS: &str = "/sys/devices/system/cpu/cpu#/cpufreq/scaling_governor";
/// States that need longer to wake up than this are deep. C1E needs about 10 µs.
const SHALLOW_US: u64 = 20;
/// The number of microseconds by which the kernel says that nobody bounds the time to wake up.
const NO_BOUND_US: u64 = 2_000_000_000;
/// Clock sources that are read without a call of the kernel.
const FAST_CLOCKS: [&str; 6] =
    ["tsc", "arch_sys_counter", "riscv_clocksource", "kvm-clock", "hyperv_clocksource_tsc_page", "timebase"];
/// A reading of the clock that costs more is a call of the kernel.
const CLOCK_NS_MAX: f64 = 150.0;

pub(crate) fn smt(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let topology = machine.topology()?;
    if topology.cores.is_empty() {
        return Err(ReadError::Absent { path: format!("{CPU}/cpu0/topology/thread_siblings_list") });
    }
    let (cpus, cores) = (topology.cpus.len(), topology.cores.len());
    let control = machine.host.word(&format!("{CPU}/smt/control"));
    let control = control.map_or(String::new(), |word| format!(", control {word}"));
    let read = format!("{} on {}{control}", count(cpus, "CPU"), count(cores, "core"));
    Ok(Finding::new(read, cpus <= cores, Verdict::Advice))
}

fn files(host: &Host, name: &str) -> Result<Vec<String>, ReadError> {
    Ok(online(host)?.iter().map(|cpu| format!("{CPU}/cpu{cpu}/{name}")).collect())
}

/// The folders of all sleep states that are deep, of all processors.
fn deep_states(host: &Host) -> Result<Vec<(String, String, u64)>, ReadError> {
    let mut deep = Vec::new();
    for (index, folder) in files(host, "cpuidle")?.into_iter().enumerate() {
        let states = match host.numbered(&folder, "state") {
            Err(error) if index == 0 => return Err(error),
            states => states.unwrap_or_default(),
        };
        for state in states {
            let state = format!("{folder}/state{state}");
            let latency_us = host.value(&format!("{state}/latency"))?;
            if latency_us > SHALLOW_US {
                let name = host.word(&format!("{state}/name"))?;
                deep.push((state, name, latency_us));
            }
        }
    }
    Ok(deep)
}

pub(crate) fn c_states(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let deep = deep_states(machine.host)?;
    let mut enabled = BTreeMap::new();
    for (state, name, latency_us) in &deep {
        if machine.host.value::<u32>(&format!("{state}/disable"))? == 0 {
            enabled.insert(*latency_us, name.clone());
        }
    }
    let names: Vec<String> = enabled.iter().map(|(latency_us, name)| format!("{name} ({latency_us} us)")).collect();
    let read = match (deep.is_empty(), names.is_empty()) {
        (true, _) => "no deep sleep state".to_owned(),
        (_, true) => "deep sleep states are disabled".to_owned(),
        _ => format!("deep sleep enabled: {}", names.join(", ")),
    };
    Ok(Finding::new(read, names.is_empty(), Verdict::Advice))
}

pub(crate) fn no_deep_states(host: &Host) -> Result<Vec<Change>, ReadError> {
    let deep = deep_states(host)?;
    Ok(deep.into_iter().map(|(state, ..)| Change { path: format!("{state}/disable"), value: "1".to_owned() }).collect())
}

/// How long a processor may take to wake up, as a program that keeps this device open demands it.
pub(crate) fn wake_bound(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    const DEVICE: &str = "/dev/cpu_dma_latency";
    let number = machine.host.device_number(DEVICE)?;
    let bound_us = u64::try_from(number).map_err(|_| ReadError::not_understood(DEVICE, &number.to_string()))?;
    let mut states = Vec::new();
    for (state, _, latency_us) in if bound_us <= SHALLOW_US { Vec::new() } else { deep_states(machine.host)? } {
        if latency_us <= bound_us && machine.host.value::<u32>(&format!("{state}/disable"))? == 0 {
            states.push(latency_us);
        }
    }
    let bound = if bound_us >= NO_BOUND_US { "no bound".to_owned() } else { format!("at most {bound_us} us") };
    let read = match states.iter().max() {
        Some(latency_us) => format!("{bound}: sleep of {latency_us} us is allowed"),
        None => format!("{bound}; no deep sleep state is in use"),
    };
    Ok(Finding::new(read, states.is_empty(), Verdict::Advice))
}

pub(crate) fn governor(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let mut governors: BTreeMap<String, usize> = BTreeMap::new();
    for path in files(machine.host, "cpufreq/scaling_governor")? {
        *governors.entry(machine.host.word(&path)?).or_default() += 1;
    }
    let names: Vec<String> =
        governors.iter().map(|(name, cpus)| format!("{name} on {}", count(*cpus, "CPU"))).collect();
    let preference = machine.host.word(&format!("{CPU}/cpu0/cpufreq/energy_performance_preference"));
    let preference = preference.map_or(String::new(), |word| format!(", energy preference {word}"));
    let is_fine = governors.keys().all(|name| name == "performance");
    Ok(Finding::new(format!("{}{preference}", names.join(", ")), is_fine, Verdict::Advice))
}

pub(crate) fn performance(host: &Host) -> Result<Vec<Change>, ReadError> {
    all(host, files(host, "cpufreq/scaling_governor")?, "performance")
}

pub(crate) fn clock(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let current = machine.host.word(CURRENT_CLOCK)?;
    let offered = machine.host.word(&format!("{CLOCK}/available_clocksource")).unwrap_or_default();
    let cost_ns = machine.probes.clock_cost_ns().ok();
    let cost = cost_ns.map_or(String::new(), |ns| format!(", {ns:.0} ns a reading"));
    let info = machine.host.text("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let flags: Vec<&str> =
        flags.split_whitespace().filter(|flag| ["constant_tsc", "nonstop_tsc"].contains(flag)).collect();
    let flags = if flags.is_empty() { String::new() } else { format!("; {}", flags.join(" ")) };
    let is_fine = FAST_CLOCKS.contains(&&*current) && cost_ns.is_none_or(|ns| ns <= CLOCK_NS_MAX);
    let has_tsc = offered.split_whitespace().any(|name| name == "tsc");
    let otherwise = if has_tsc { Verdict::Warning } else { Verdict::Advice };
    Ok(Finding::new(format!("{current}{cost}; offered: {offered}{flags}"), is_fine, otherwise))
}

pub(crate) fn tsc(host: &Host) -> Result<Vec<Change>, ReadError> {
    let path = format!("{CLOCK}/available_clocksource");
    let offered = host.text(&path)?;
    if !offered.split_whitespace().any(|name| name == "tsc") {
        return Err(ReadError::NoCall { reason: "the kernel does not offer tsc" });
    }
    all(host, [CURRENT_CLOCK.to_owned()], "tsc")
}
