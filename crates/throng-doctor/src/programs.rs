//! The processes of a machine: how many threads they have, and with which names.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::host::{Host, ReadError, printable};

/// The most processes that are looked at.
pub(crate) const PROCESSES_MAX: usize = 8_192;
/// The most threads whose names are read, of all processes together.
const NAMED_THREADS_MAX: usize = 65_536;
/// The most bytes of a command line that are looked at.
const COMMAND_MAX: usize = 16_384;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Its id.
    pub pid: u32,
    /// Its name, printable, at most 15 characters.
    pub name: String,
    /// Its number of threads.
    pub threads: u32,
    /// The threads of which there is one for each processor: their common name, or that of the process.
    pub per_cpu: Option<String>,
    /// Whether the names of its threads were not read, because other programs have too many.
    #[serde(skip)]
    pub is_unread: bool,
    /// Its arguments, separated by spaces.
    #[serde(skip)]
    pub command: String,
}

/// All processes but the kernel's own threads, on a machine with `cpus` processors. Those that end meanwhile are left out.
///
/// # Errors
///
/// `/proc` has no processes, or cannot be read.
pub fn programs(host: &Host, cpus: usize) -> Result<Vec<Program>, ReadError> {
    let mut left = NAMED_THREADS_MAX;
    let ids = host.numbered("/proc", "")?;
    if ids.is_empty() {
        return Err(ReadError::Absent { path: "/proc/1".to_owned() });
    }
    Ok(ids.into_iter().take(PROCESSES_MAX).filter_map(|pid| program(host, pid, cpus, &mut left)).collect())
}

fn program(host: &Host, pid: u32, cpus: usize, left: &mut usize) -> Option<Program> {
    let command = host.text(&format!("/proc/{pid}/cmdline")).ok().filter(|command| !command.is_empty())?;
    let command: String = command.chars().take(COMMAND_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let (name, threads) = stat(&host.text(&format!("/proc/{pid}/stat")).ok()?)?;
    let is_unread = cpus >= 2 && threads as usize > cpus.max(*left);
    let per_cpu = if cpus < 2 || is_unread {
        None
    } else if threads as usize == cpus {
        Some(name.clone())
    } else if threads as usize > cpus {
        *left -= threads as usize;
        like_named(host, pid, cpus)
    } else {
        None
    };
    Some(Program { pid, name, threads, per_cpu, is_unread, command: command.trim().to_owned() })
}

/// The name and the number of threads. The name is in parentheses and may hold some itself.
fn stat(text: &str) -> Option<(String, u32)> {
    let (head, tail) = text.rsplit_once(')')?;
    let name = printable(head.split_once('(')?.1, 15);
    Some((name, tail.split_whitespace().nth(17)?.parse().ok()?))
}

/// The name of threads, without their numbers, of which a process has exactly as many as there are processors.
fn like_named(host: &Host, pid: u32, cpus: usize) -> Option<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for thread in host.numbered(&format!("/proc/{pid}/task"), "").ok()? {
        let name = host.text(&format!("/proc/{pid}/task/{thread}/comm")).ok()?;
        // A number of any length is one star.
        let mut name: Vec<char> = name.chars().map(|c| if c.is_ascii_digit() { '*' } else { c }).collect();
        name.dedup_by(|a, b| *a == '*' && *b == '*');
        *counts.entry(printable(&name.into_iter().collect::<String>(), 15)).or_default() += 1;
    }
    counts.into_iter().find(|(_, count)| *count == cpus).map(|(name, _)| name)
}
