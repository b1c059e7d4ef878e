//! Readings that several checks need: the topology, the control group, the programs, and counters before and after a pause.

use std::collections::BTreeSet;

use crate::host::{Host, ReadError};
use crate::probes::Probes;
use crate::programs::{self, Program};
use crate::subject::{self, Socket, Subject, Thread};

pub(crate) const CPU: &str = "/sys/devices/system/cpu";
pub(crate) const NODE: &str = "/sys/devices/system/node";

/// A machine while it is examined.
pub(crate) struct Machine<'a> {
    pub(crate) host: &'a Host,
    pub(crate) probes: &'a dyn Probes,
    /// The process whose settings are read.
    pub(crate) subject: Subject,
    pub(crate) topology: Result<Topology, ReadError>,
    pub(crate) programs: Result<Vec<Program>, ReadError>,
    /// Counters at the beginning, then after a pause.
    pub(crate) counters: [Counters; 2],
}

impl<'a> Machine<'a> {
    pub(crate) fn look(host: &'a Host, probes: &'a dyn Probes, subject: Subject) -> Machine<'a> {
        let earlier = Counters::read(host, &subject);
        let topology = Topology::read(host);
        let cpus = topology.as_ref().map_or(0, |topology| topology.cpus.len());
        let programs = programs::programs(host, cpus);
        probes.pause();
        let counters = [earlier, Counters::read(host, &subject)];
        Machine { host, probes, subject, topology, programs, counters }
    }

    pub(crate) fn topology(&self) -> Result<&Topology, ReadError> {
        self.topology.as_ref().map_err(Clone::clone)
    }

    /// The processors that the examined process may use.
    pub(crate) fn allowed(&self) -> Result<Vec<u32>, ReadError> {
        allowed(self.host, &self.subject)
    }
}

/// The processors that are online: at least one.
pub(crate) fn online(host: &Host) -> Result<Vec<u32>, ReadError> {
    let path = format!("{CPU}/online");
    let cpus = host.cpus(&path)?;
    if cpus.is_empty() { Err(ReadError::not_understood(&path, "")) } else { Ok(cpus) }
}

fn allowed(host: &Host, subject: &Subject) -> Result<Vec<u32>, ReadError> {
    let path = &subject.file("status");
    let text = host.text(path)?;
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.and_then(crate::host::parse_cpus).ok_or_else(|| ReadError::not_understood(path, &text))
}

/// Processors that share something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The processors that are online.
    pub cpus: Vec<u32>,
    /// Processors by memory node.
    pub nodes: Vec<Vec<u32>>,
    /// Processors by third-level cache; empty where the machine does not tell.
    pub l3: Vec<Vec<u32>>,
    /// Processors by physical core; empty where the machine does not tell.
    pub cores: Vec<Vec<u32>>,
}

impl Topology {
    /// Reads the topology of a machine. Parts that the machine does not tell are empty.
    ///
    /// # Errors
    ///
    /// Not even the list of processors can be read.
    pub fn read(host: &Host) -> Result<Topology, ReadError> {
        let cpus = online(host)?;
        let mut nodes = BTreeSet::new();
        for node in host.numbered(NODE, "node").unwrap_or_default() {
            nodes.extend(host.cpus(&format!("{NODE}/node{node}/cpulist")).into_iter().filter(|cpus| !cpus.is_empty()));
        }
        let (mut l3, mut cores) = (BTreeSet::new(), BTreeSet::new());
        for cpu in &cpus {
            cores.extend(host.cpus(&format!("{CPU}/cpu{cpu}/topology/thread_siblings_list")));
            let caches = format!("{CPU}/cpu{cpu}/cache");
            // Some machines have an index for each kind of cache, others for each level only.
            let third = (0..8).rev().map(|index| format!("{caches}/index{index}"));
            let third = third.into_iter().find(|cache| host.value(&format!("{cache}/level")) == Ok(3));
            l3.extend(third.and_then(|cache| host.cpus(&format!("{cache}/shared_cpu_list")).ok()));
        }
        let list = |set: BTreeSet<Vec<u32>>| set.into_iter().collect::<Vec<_>>();
        Ok(Topology { cpus, nodes: list(nodes), l3: list(l3), cores: list(cores) })
    }

    /// The processors below the third-level cache with the most of `allowed`, if there are several such caches.
    pub fn near(&self, allowed: &[u32]) -> Option<Vec<u32>> {
        let of = |group: &Vec<u32>| group.iter().copied().filter(|cpu| allowed.contains(cpu)).collect::<Vec<_>>();
        let groups = if self.l3.len() > 1 { &self.l3 } else { &self.nodes };
        let best = groups.iter().map(of).rev().max_by_key(Vec::len)?;
        (!best.is_empty() && best.len() < allowed.len()).then_some(best)
    }

    /// The first processor of each physical core, if some core has several.
    pub fn one_per_core(&self, allowed: &[u32]) -> Option<Vec<u32>> {
        let first = |core: &Vec<u32>| core.iter().copied().find(|cpu| allowed.contains(cpu));
        let mut firsts: Vec<u32> = self.cores.iter().filter_map(first).collect();
        firsts.sort_unstable();
        (!firsts.is_empty() && firsts.len() < allowed.len()).then_some(firsts)
    }
}

/// The processors that the calling process may use, of the machine's files.
///
/// # Errors
///
/// `/proc/self/status` does not tell them.
pub fn allowed_cpus(host: &Host) -> Result<Vec<u32>, ReadError> {
    allowed(host, &Subject::this())
}

/// Counters that only grow.
pub(crate) struct Counters {
    /// Ticks of all processors: all, and stolen ones.
    pub(crate) ticks: Result<(u64, u64), ReadError>,
    /// Nanoseconds for which the threads of the process ran and waited, and how often they began to run.
    pub(crate) own: Result<[u64; 3], ReadError>,
    /// The levels of its control group.
    pub(crate) quota: Result<Vec<Quota>, ReadError>,
    /// Its threads, of another process than this program.
    pub(crate) threads: Result<Vec<Thread>, ReadError>,
    /// Its UDP sockets, likewise.
    pub(crate) sockets: Result<Vec<Socket>, ReadError>,
}

impl Counters {
    pub(crate) fn read(host: &Host, subject: &Subject) -> Counters {
        let ticks = host.row("/proc/stat", "cpu").map(|row| {
            // The last two are guests, which are part of the first two.
            let all = row.iter().take(8).fold(0u64, |sum, ticks| sum.saturating_add(*ticks));
            (all, row.get(7).copied().unwrap_or(0))
        });
        let (own, quota) = (turns(host, subject), quotas(host, subject));
        if subject.pid.is_none() {
            return Counters { ticks, own, quota, threads: Err(NO_PROCESS), sockets: Err(NO_PROCESS) };
        }
        let (threads, sockets) = (subject::threads(host, subject), subject::sockets(host, subject));
        Counters { ticks, own, quota, threads, sockets }
    }
}

const NO_PROCESS: ReadError = ReadError::NoCall { reason: "no process was named" };

/// How long the threads of a process ran and waited, and how often they began to run. This program has one that counts.
fn turns(host: &Host, subject: &Subject) -> Result<[u64; 3], ReadError> {
    let of = |path: &str| {
        let text = host.text(path)?;
        let numbers: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
        numbers.try_into().map_err(|_| ReadError::not_understood(path, &text))
    };
    let main: [u64; 3] = of(&subject.file("schedstat"))?;
    let Some(pid) = subject.pid else { return Ok(main) };
    let others = host.numbered(&subject.file("task"), "")?.into_iter().filter(|id| *id != pid);
    let others =
        others.take(subject::THREADS_MAX).filter_map(|id| of(&subject.file(&format!("task/{id}/schedstat"))).ok());
    Ok(others.fold(main, |sum, other| [0, 1, 2].map(|index| sum[index].saturating_add(other[index]))))
}

/// A level of the control groups with its limit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quota {
    /// The file that sets the limit.
    pub(crate) file: String,
    /// The value of that file that means no limit.
    pub(crate) free: String,
    /// Processors that it may use at once.
    pub(crate) cpus: Option<f64>,
    pub(crate) throttled: u64,
    pub(crate) throttled_s: f64,
}

/// The quotas of the control groups in which a process is, the innermost first.
pub(crate) fn quotas(host: &Host, subject: &Subject) -> Result<Vec<Quota>, ReadError> {
    let (folders, is_old) = control_groups(host, subject)?;
    folders.iter().filter_map(|folder| quota(host, folder, is_old).transpose()).collect()
}

/// The folders of the control groups in which a process is, the innermost first, and whether they are of version 1.
pub(crate) fn control_groups(host: &Host, subject: &Subject) -> Result<(Vec<String>, bool), ReadError> {
    const LEVELS_MAX: usize = 64;
    let path = &subject.file("cgroup");
    let text = host.text(path)?;
    let field = |line: &'_ str| line.splitn(3, ':').map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> = text.lines().map(field).filter(|fields| fields.len() == 3).collect();
    let of_cpu = |fields: &&Vec<String>| fields[1].split(',').any(|name| name == "cpu");
    let (group, mounts, is_old) = match (lines.iter().find(of_cpu), lines.iter().find(|fields| fields[0] == "0")) {
        (Some(fields), _) => (&fields[2], ["cpu,cpuacct", "cpu"].map(|name| format!("/sys/fs/cgroup/{name}")), true),
        (None, Some(fields)) => (&fields[2], ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(str::to_owned), false),
        (None, None) => return Err(ReadError::not_understood(path, &text)),
    };
    let Some(mount) = mounts.iter().find(|mount| host.exists(&format!("{mount}/cgroup.procs"))) else {
        return Err(ReadError::Absent { path: format!("{}/cgroup.procs", mounts[0]) });
    };
    // In a container, the path may be that of the host, which is not there, and may lead out of the mount.
    let is_inside = !group.split('/').any(|part| part == "..") && host.exists(&format!("{mount}{group}"));
    let mut group = if is_inside { group.trim_end_matches('/') } else { "" };
    let mut levels = Vec::new();
    for _ in 0..LEVELS_MAX {
        levels.push(format!("{mount}{group}"));
        match group.rsplit_once('/') {
            Some((above, _)) => group = above,
            None => break,
        }
    }
    Ok((levels, is_old))
}

/// The quota of a group; `None` of one without: the outermost, and those that the controller of processors is not switched on for.
fn quota(host: &Host, folder: &str, is_old: bool) -> Result<Option<Quota>, ReadError> {
    let file = format!("{folder}/{}", if is_old { "cpu.cfs_quota_us" } else { "cpu.max" });
    let text = match host.text(&file) {
        Err(ReadError::Absent { .. }) => return Ok(None),
        text => text?,
    };
    let odd = || ReadError::not_understood(&file, &text);
    let mut words = text.split_whitespace();
    let limit = match words.next() {
        Some("max") if !is_old => None,
        word => Some(word.and_then(|word| word.parse::<f64>().ok()).ok_or_else(odd)?).filter(|limit| *limit > 0.0),
    };
    let period_us = match words.next() {
        _ if is_old => limit.map(|_| host.value(&format!("{folder}/cpu.cfs_period_us"))).transpose()?,
        period => period.map(|period| period.parse::<f64>().map_err(|_| odd())).transpose()?,
    };
    let count = |name| host.row(&format!("{folder}/cpu.stat"), name).map_or(0, |row| row[0]);
    let throttled_s = if is_old { count("throttled_time") as f64 / 1e9 } else { count("throttled_usec") as f64 / 1e6 };
    // The second word is the period, which stays.
    let free = text.trim().split_once(' ').map_or("-1".to_owned(), |(_, period)| format!("max {period}"));
    let cpus = limit.map(|limit| limit / period_us.filter(|period| *period > 0.0).unwrap_or(100_000.0));
    Ok(Some(Quota { file, free, cpus, throttled: count("nr_throttled"), throttled_s }))
}
