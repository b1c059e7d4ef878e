//! The process that is examined: this program, or another one by its id.

use std::collections::BTreeMap;

use crate::host::{Host, ReadError, parse_cpus, printable};

/// The most threads of a process that are looked at.
pub(crate) const THREADS_MAX: usize = 4_096;
/// The most open files of a process that are looked at.
const FILES_MAX: usize = 16_384;
/// A table of sockets has them in lines of these columns.
const INODE: usize = 9;
const DROPS: usize = 12;

/// A process: where its files are, and what sentences call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    /// `/proc/self`, or `/proc/123`.
    pub(crate) folder: String,
    /// `this process`, or `throng 123`.
    pub(crate) words: String,
    /// The id of another process than this program.
    pub(crate) pid: Option<u32>,
}

impl Subject {
    pub(crate) fn this() -> Subject {
        Subject { folder: "/proc/self".to_owned(), words: "this process".to_owned(), pid: None }
    }

    /// Another process. The error says that there is none of this id.
    pub(crate) fn other(host: &Host, pid: u32) -> Result<Subject, ReadError> {
        let folder = format!("/proc/{pid}");
        let name = host.text(&format!("{folder}/comm"))?;
        Ok(Subject { words: format!("{} {pid}", printable(&name, 15)), folder, pid: Some(pid) })
    }

    /// Its file of this name.
    pub(crate) fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }
}

/// A thread and how the scheduler treats it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// The processors that it may use.
    pub(crate) allowed: Vec<u32>,
    pub(crate) class: Class,
    pub(crate) nice: i32,
    /// Nanoseconds for which it has run.
    pub(crate) ran_ns: u64,
}

/// A class of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Other,
    RealTime(u32),
    Batch,
    Idle,
    Deadline,
    Unknown(u32),
}

impl Class {
    fn of(policy: u32, priority: u32) -> Class {
        match policy {
            0 => Class::Other,
            1 | 2 => Class::RealTime(priority),
            3 => Class::Batch,
            5 => Class::Idle,
            6 => Class::Deadline,
            other => Class::Unknown(other),
        }
    }

    pub(crate) fn name(self) -> String {
        match self {
            Class::Other => "other".to_owned(),
            Class::RealTime(priority) => format!("real time {priority}"),
            Class::Batch => "batch".to_owned(),
            Class::Idle => "idle".to_owned(),
            Class::Deadline => "deadline".to_owned(),
            Class::Unknown(policy) => format!("policy {policy}"),
        }
    }
}

/// The threads of a process: at least one. Those that end meanwhile are left out.
pub(crate) fn threads(host: &Host, subject: &Subject) -> Result<Vec<Thread>, ReadError> {
    let folder = subject.file("task");
    let ids = host.numbered(&folder, "")?;
    let threads: Vec<Thread> =
        ids.into_iter().take(THREADS_MAX).filter_map(|id| thread(host, &format!("{folder}/{id}"), id)).collect();
    if threads.is_empty() { Err(ReadError::not_understood(&folder, "no thread can be read")) } else { Ok(threads) }
}

fn thread(host: &Host, folder: &str, id: u32) -> Option<Thread> {
    let stat = host.text(&format!("{folder}/stat")).ok()?;
    // The name is in parentheses and may hold some itself.
    let (head, tail) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u32>().ok();
    let status = host.text(&format!("{folder}/status")).ok()?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).and_then(parse_cpus)?;
    let ran = host.text(&format!("{folder}/schedstat")).unwrap_or_default();
    Some(Thread {
        id,
        name: printable(head.split_once('(')?.1, 15),
        allowed,
        class: Class::of(number(38)?, number(37)?),
        nice: fields.get(16)?.parse().ok()?,
        ran_ns: ran.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0),
    })
}

/// A UDP socket of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    /// The number of its file.
    pub(crate) file: u32,
    /// Datagrams that found no room.
    pub(crate) drops: u64,
}

/// The UDP sockets of a process, by their files.
pub(crate) fn sockets(host: &Host, subject: &Subject) -> Result<Vec<Socket>, ReadError> {
    let folder = subject.file("fd");
    let mut by_inode = BTreeMap::new();
    for file in host.numbered(&folder, "")?.into_iter().take(FILES_MAX) {
        let link = host.link(&format!("{folder}/{file}")).unwrap_or_default();
        let inode = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')?.parse::<u64>().ok());
        by_inode.extend(inode.map(|inode| (inode, file)));
    }
    let mut sockets = Vec::new();
    let tables = ["net/udp", "net/udp6"].map(|name| host.text(&subject.file(name)));
    if let [Err(error), Err(_)] = &tables {
        return Err(error.clone());
    }
    for line in tables.iter().flatten().flat_map(|text| text.lines()).skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| words.get(index)?.parse::<u64>().ok();
        let Some((inode, drops)) = number(INODE).zip(number(DROPS)) else { continue };
        sockets.extend(by_inode.remove(&inode).map(|file| Socket { file, drops }));
    }
    Ok(sockets)
}
