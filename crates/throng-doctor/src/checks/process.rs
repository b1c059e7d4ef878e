//! Another process while it runs: its threads, its memory, its sockets.

use std::collections::BTreeMap;

use super::{count, percent};
use crate::check::{Finding, Verdict};
use crate::host::{ReadError, cpu_list};
use crate::machine::{Machine, NODE};
use crate::subject::{Class, Thread};

/// Of less memory, large pages spare nothing that could be measured.
const LARGE_MB_MIN: u64 = 64;
/// With a smaller share of large pages, a program has none that matter.
const LARGE_PERCENT_MIN: f64 = 10.0;
/// A socket's buffer holds the input of some frames if it is as large as this.
const BUFFER_BYTES_MIN: u64 = 1 << 20;
/// The most sockets that are asked for their buffers.
const ASKED_MAX: usize = 8_192;

/// The thread that ran most during the check, or ever on a recorded machine, and all of them.
fn busiest<'a>(machine: &'a Machine<'_>) -> Result<(&'a Thread, &'a [Thread]), ReadError> {
    let threads = |index: usize| machine.counters[index].threads.as_ref().map_err(Clone::clone);
    let (earlier, now) = (threads(0)?, threads(1)?);
    let before = |thread: &Thread| earlier.iter().find(|other| other.id == thread.id).map_or(0, |other| other.ran_ns);
    let is_recorded = now == earlier;
    let ran_ns = |thread: &&Thread| {
        let before = if is_recorded { 0 } else { before(thread) };
        thread.ran_ns.saturating_sub(before)
    };
    // The first of equals: the main thread.
    let busiest = now.iter().rev().max_by_key(ran_ns).ok_or(ReadError::NoCall { reason: "it has no thread" })?;
    Ok((busiest, now))
}

pub(crate) fn affinity(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let online = &machine.topology()?.cpus;
    let (busiest, threads) = busiest(machine)?;
    let is_free = |thread: &&Thread| online.iter().all(|cpu| thread.allowed.contains(cpu));
    let free = threads.iter().filter(is_free).count();
    let read = format!(
        "{}, of which {free} may use all {}; the busiest, {}, may use {}",
        count(threads.len(), "thread"),
        count(online.len(), "CPU"),
        busiest.name,
        cpu_list(&busiest.allowed)
    );
    Ok(Finding::new(read, !is_free(&busiest) || online.len() < 2, Verdict::Advice))
}

pub(crate) fn class(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let (busiest, threads) = busiest(machine)?;
    let mut classes: BTreeMap<Class, usize> = BTreeMap::new();
    threads.iter().for_each(|thread| *classes.entry(thread.class).or_default() += 1);
    let of = |(class, number): (&Class, &usize)| format!("{number} {}", class.name());
    let all = classes.iter().map(of).collect::<Vec<_>>().join(", ");
    let (name, class) = (&busiest.name, busiest.class.name());
    let read = format!("threads by class: {all}; the busiest, {name}, is {class} with nice {}", busiest.nice);
    let waits_for_others = matches!(busiest.class, Class::Batch | Class::Idle) || busiest.nice > 0;
    Ok(Finding::new(read, !waits_for_others, Verdict::Warning))
}

pub(crate) fn huge_pages(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let path = machine.subject.file("smaps_rollup");
    let mb = |name: &str| machine.host.row(&path, name).map(|row| row[0] / 1024);
    let (anonymous, large) = (mb("Anonymous")?, mb("AnonHugePages")?);
    let may = machine.host.row(&machine.subject.file("status"), "THP_enabled").map_or(1, |row| row[0]);
    let forbidden = if may == 0 { "; the process has forbidden them" } else { "" };
    let read = format!("{large} of {anonymous} MB of its own memory in large pages{forbidden}");
    let is_fine = anonymous < LARGE_MB_MIN || percent(large, anonymous) >= LARGE_PERCENT_MIN;
    Ok(Finding::new(read, is_fine, Verdict::Advice))
}

/// Where the pages of a process lie, beside where its threads may run.
pub(crate) fn pages(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    const LOCAL_PERCENT_MIN: f64 = 97.0;
    let nodes = machine.host.numbered(NODE, "node")?;
    let allowed = machine.allowed()?;
    let is_near = |node: &u32| {
        let cpus = machine.host.cpus(&format!("{NODE}/node{node}/cpulist")).unwrap_or_default();
        cpus.iter().any(|cpu| allowed.contains(cpu))
    };
    let near: Vec<u32> = nodes.iter().copied().filter(is_near).collect();
    let path = machine.subject.file("numa_maps");
    let text = machine.host.text(&path)?;
    let (mut local, mut all) = (0u64, 0u64);
    // N0=512 is so many pages on node 0.
    let of_node = |word: &str| {
        let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
        Some((node.parse::<u32>().ok()?, pages.parse::<u64>().ok()?))
    };
    for line in text.lines() {
        let kb = line.split_whitespace().find_map(|word| word.strip_prefix("kernelpagesize_kB=")?.parse::<u64>().ok());
        for (node, pages) in line.split_whitespace().filter_map(of_node) {
            let kb = pages.saturating_mul(kb.unwrap_or(4));
            all = all.saturating_add(kb);
            local = local.saturating_add(if near.contains(&node) { kb } else { 0 });
        }
    }
    if all == 0 {
        return Err(ReadError::not_understood(&path, &text));
    }
    let share = percent(local, all);
    let read = format!("{share:.1} % of its memory on the nodes of its CPUs, {}", count(nodes.len(), "node"));
    Ok(Finding::new(read, share >= LOCAL_PERCENT_MIN || nodes.len() < 2, Verdict::Advice))
}

pub(crate) fn sockets(machine: &Machine<'_>) -> Result<Finding, ReadError> {
    let now = machine.counters[1].sockets.as_ref().map_err(Clone::clone)?;
    if now.is_empty() {
        return Ok(Finding::new("no UDP socket".to_owned(), true, Verdict::Advice));
    }
    let drops = |index: usize| {
        let sockets = machine.counters[index].sockets.as_deref().unwrap_or_default();
        sockets.iter().fold(0u64, |sum, socket| sum.saturating_add(socket.drops))
    };
    let (before, all) = (drops(0), drops(1));
    let recent = all.saturating_sub(before);
    let pid = machine.subject.pid.unwrap_or_default();
    let asked = now.iter().take(ASKED_MAX).map(|socket| machine.probes.socket_buffers(pid, socket.file));
    let buffers: Result<Vec<[u64; 2]>, ReadError> = asked.collect();
    let least = |at: usize| buffers.as_ref().ok()?.iter().map(|buffer| buffer[at]).min();
    let sizes = match (least(0).zip(least(1)), &buffers) {
        (Some((receive, send)), _) => {
            let of = if now.len() > ASKED_MAX { format!(" (of {ASKED_MAX} of them)") } else { String::new() };
            format!("at least {} kB to receive and {} kB to send{of}", receive / 1024, send / 1024)
        }
        (None, Err(error)) => format!("buffers cannot be read: {error}"),
        (None, Ok(_)) => "buffers unknown".to_owned(),
    };
    let number = count(now.len(), "UDP socket");
    let read =
        format!("{number}, {sizes}; {all} datagrams found no room since their start, {recent} during this check");
    let is_large = now.len() <= ASKED_MAX && least(0).is_some_and(|receive| receive >= BUFFER_BYTES_MIN);
    let otherwise = if recent > 0 { Verdict::Warning } else { Verdict::Advice };
    Ok(Finding::new(read, recent == 0 && all == 0 && is_large, otherwise))
}
