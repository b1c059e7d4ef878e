//! Processes as tests see them: their output, line by line with deadlines, their signals, and where they listen.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// Lines with their ends, as they come. Reads on to the end, so that a process can always say something, whether or not
/// anybody listens.
pub(crate) fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            let _ = sender.send(std::mem::take(&mut line));
        }
    });
    lines
}

/// Runs parts of a test beside each other, because they wait more than they compute.
pub(crate) fn beside_each_other(parts: &[&(dyn Fn() + Sync)]) {
    thread::scope(|scope| parts.iter().for_each(|part| drop(scope.spawn(part))));
}

pub(crate) const SIGINT: u32 = 2;
pub(crate) const SIGTERM: u32 = 15;

/// Whether a process handles a signal itself.
#[cfg(target_os = "linux")]
pub(crate) fn handles(process: u32, signal: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & 1 << (signal - 1) != 0
}

/// The processes that a process has started.
#[cfg(target_os = "linux")]
pub(crate) fn children(process: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let of_task = tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
    of_task.flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Waits until a process listens at so many addresses, as the system says. A process that says nothing has begun then.
#[cfg(target_os = "linux")]
pub(crate) fn wait_until_it_listens(process: u32, addresses: usize) {
    use std::collections::HashSet;
    use std::fs;
    use std::time::{Duration, Instant};
    /// State of a socket that listens, in the tables of /proc/net.
    const LISTENS: &str = "0A";

    let listening = || {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
        let sockets = tables.iter().flat_map(|table| table.lines()).filter_map(|line| {
            let mut words = line.split_whitespace();
            (words.nth(3)? == LISTENS).then(|| words.nth(5).map(|inode| format!("socket:[{inode}]"))).flatten()
        });
        let sockets: HashSet<String> = sockets.collect();
        let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        files.filter(|file| fs::read_link(file.path()).is_ok_and(|it| sockets.contains(&*it.to_string_lossy()))).count()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while listening() < addresses {
        assert!(Instant::now() < deadline, "it listens at {} of {addresses} addresses", listening());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Where nobody listens: no program chooses an address of this machine's own network but 127.0.0.1, or that port.
pub(crate) const NOBODY: &str = "127.255.12.7:1";
