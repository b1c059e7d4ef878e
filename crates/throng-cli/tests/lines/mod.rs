//! Processes as tests see them: their output, line by line with deadlines, their signals, and where they listen.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A test waits so long for an answer, also on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the program to its end.
pub(crate) fn throng(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_throng")).args(arguments).output().expect("the program starts")
}

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

/// `throng gateway` at free ports, and the lines of its log.
pub(crate) struct Gateway {
    pub(crate) process: Child,
    lines: Receiver<String>,
    pub(crate) said: String,
}

impl Gateway {
    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn start(more: &[&str]) -> Gateway {
        Gateway::start_beside(&std::env::temp_dir(), more)
    }

    /// One whose temporary files are in this folder.
    pub(crate) fn start_beside(temporary: &Path, more: &[&str]) -> Gateway {
        let arguments = ["gateway", "-sa=127.0.0.1:0", "-ca=127.0.0.1:0", "-http=127.0.0.1:0"];
        let mut process = Command::new(env!("CARGO_BIN_EXE_throng"))
            .args(arguments.iter().chain(more))
            .env("TMPDIR", temporary)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the gateway starts");
        let lines = lines_of(process.stderr.take().expect("it has a standard error"));
        Gateway { process, lines, said: String::new() }
    }

    /// Reads on until a line says `wanted`; what follows it.
    pub(crate) fn wait_for(&mut self, wanted: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) else {
                panic!("it does not say {wanted:?}, but:\n{}", self.said);
            };
            self.said.push_str(&line);
            if let Some((_, after)) = line.trim_end().split_once(wanted) {
                return after.to_owned();
            }
        }
    }

    pub(crate) fn address(&mut self, before: &str) -> SocketAddr {
        self.wait_for(before).parse().expect("an address follows")
    }

    pub(crate) fn tell(&self, signal: &str) {
        let told = Command::new("kill").args([signal, &self.process.id().to_string()]).status().expect("kill is there");
        assert!(told.success());
    }

    /// Its exit code, and the rest of what it says.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        self.tell("-TERM");
        let status = self.process.wait().expect("it ends");
        self.said.extend(self.lines.iter());
        (status.code(), std::mem::take(&mut self.said))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A page of a server at this address, with its head.
pub(crate) fn page(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it answers");
    stream.set_read_timeout(Some(PATIENCE)).expect("it can be set");
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("connected");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the page is text");
    answer
}

/// With more parts of a test at a time, the machine is too busy for runs that compare states while everything moves.
const AT_A_TIME: usize = 6;

/// Runs parts of a test beside each other, because they wait more than they compute. Begins them in this order.
pub(crate) fn beside_each_other(parts: &[&(dyn Fn() + Sync)]) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    part();
                }
            });
        }
    });
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
    let deadline = Instant::now() + PATIENCE;
    while listening() < addresses {
        assert!(Instant::now() < deadline, "it listens at {} of {addresses} addresses", listening());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Where nobody listens: no program chooses an address of this machine's own network but 127.0.0.1, or that port.
pub(crate) const NOBODY: &str = "127.255.12.7:1";
