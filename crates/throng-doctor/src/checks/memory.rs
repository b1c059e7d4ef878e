//! Memory: nodes and caches, large pages, swap.

use super::{all, count, lacking, percent};
use crate::apply::Change;
use crate::check::{Finding, Verdict};
use crate::host::{Host, ReadError, cpu_list};
use crate::machine::{Machine, NODE};

const THP: &str = "/sys/kernel/mm/transparent_hugepage";
pub(crate) const LARGE_PAGES: [&str; 2] =
    ["/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/mm/transparent_hugepage/defrag"];
pub(crate) const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
pub(crate) const SWAPPINESS: &str = "/proc/sys/vm/swappiness";

pub(crate) fn numa(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let topology = machine.topology()?;
    let allowed = machine.allowed().unwrap_or_else(|_| topology.cpus.clone());
    let nodes = count(topology.nodes.len().max(1), "node");
    let caches = match &topology.l3[..] {
        [] => "third-level caches not told".to_owned(),
        [first, ..] => {
            format!("{} of {}", count(topology.l3.len(), "third-level cache"), count(first.len(), "CPU"))
        }
    };
    let read = format!("{nodes}, {caches}; {} may use CPUs {}", machine.subject.words, cpu_list(&allowed));
    Ok(Finding::new(read, topology.near(&allowed).is_none(), Verdict::Advice))
}

pub(crate) fn numa_local(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let nodes = machine.host.numbered(NODE, "node")?;
    let (mut local, mut other) = (0u64, 0u64);
    for node in &nodes {
        let path = format!("{NODE}/node{node}/numastat");
        local = local.saturating_add(machine.host.row(&path, "local_node")?[0]);
        other = other.saturating_add(machine.host.row(&path, "other_node")?[0]);
    }
    let all = local.saturating_add(other);
    let share = if all == 0 { 100.0 } else { percent(local, all) };
    let read = format!("{share:.1} % of pages local since the start, {}", count(nodes.len(), "node"));
    Ok(Finding::new(read, share >= 97.0 || nodes.len() < 2, Verdict::Advice))
}

pub(crate) fn thp(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let enabled = machine.host.chosen(LARGE_PAGES[0])?;
    let defrag = machine.host.chosen(LARGE_PAGES[1])?;
    let shmem = machine.host.chosen(&format!("{THP}/shmem_enabled")).unwrap_or_else(|_| "unknown".to_owned());
    let used = machine.host.row("/proc/meminfo", "AnonHugePages").map_or(0, |row| row[0]) / 1024;
    let read = format!("enabled {enabled}, defrag {defrag}, shmem {shmem}; {used} MB in use");
    Ok(Finding::new(read, enabled == "madvise" && is_deferred(&defrag), Verdict::Advice))
}

fn is_deferred(defrag: &str) -> bool {
    defrag != "always"
}

pub(crate) fn madvise(host: &Host) -> Result<Vec<Change>, ReadError> {
    let [enabled, defrag] = LARGE_PAGES.map(str::to_owned);
    let mut changes = all(host, [enabled], "madvise")?;
    let mut deferred = all(host, [defrag], "defer")?;
    deferred.retain(|change| !host.chosen(&change.path).is_ok_and(|chosen| is_deferred(&chosen)));
    changes.extend(deferred);
    Ok(changes)
}

pub(crate) fn balancing(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let mode: u32 = machine.host.value(BALANCING)?;
    let nodes = machine.topology().map_or(1, |topology| topology.nodes.len().max(1));
    let state = if mode == 0 { "off" } else { "on" };
    let read = format!("{state}, {}", count(nodes, "node"));
    Ok(Finding::new(read, mode == 0 || nodes < 2, Verdict::Advice))
}

pub(crate) fn no_balancing(host: &Host) -> Result<Vec<Change>, ReadError> {
    all(host, [BALANCING.to_owned()], "0")
}

pub(crate) fn swap(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let total = machine.host.row("/proc/meminfo", "SwapTotal")?[0];
    let used = total.saturating_sub(machine.host.row("/proc/meminfo", "SwapFree")?[0]);
    let read = if total == 0 {
        "none".to_owned()
    } else {
        let swappiness = machine.host.word(SWAPPINESS).unwrap_or_else(|_| "unknown".to_owned());
        format!("{} of {} MB used, swappiness {swappiness}", used / 1024, total / 1024)
    };
    Ok(Finding::new(read, used == 0, Verdict::Advice))
}

pub(crate) fn hardly_swap(host: &Host) -> Result<Vec<Change>, ReadError> {
    Ok(lacking(host, all(host, [SWAPPINESS.to_owned()], "1")?, |swappiness: u32| swappiness <= 1))
}
