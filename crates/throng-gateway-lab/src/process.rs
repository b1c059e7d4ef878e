//! The processes of a run: how they are started, listened to, watched and ended.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command as Process, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use throng_machine::clock;

use crate::control::{Command, Line};
use crate::load::Load;
use crate::scrape::is_ready;

/// Lines that wait to be read.
const LINES: usize = 256;
/// Processes end within this, or are ended.
const END_PATIENCE: Duration = Duration::from_secs(3);
/// How often a process is looked at.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// A gateway answers within this after its start.
const START_PATIENCE: Duration = Duration::from_secs(15);

/// A process that plays a part, with its latest progress.
pub(super) struct Player<P, R> {
    name: &'static str,
    process: Child,
    commands: Option<ChildStdin>,
    lines: Receiver<String>,
    pub(super) progress: P,
    report: Option<R>,
}

impl<P: DeserializeOwned + Default, R: DeserializeOwned> Player<P, R> {
    pub(super) fn start(name: &'static str, command: &[OsString], load: &Load) -> Result<Player<P, R>> {
        let (program, arguments) =
            command.split_first().with_context(|| format!("the command for the {name} is missing"))?;
        let mut process = Process::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Only the run handles Ctrl-C of a terminal: it stops its processes, which then report.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start the {name} with {}", program.display()))?;
        let mut commands = process.stdin.take().with_context(|| format!("the {name} have no standard input"))?;
        let out = process.stdout.take().with_context(|| format!("the {name} have no standard output"))?;
        writeln!(commands, "{}", serde_json::to_string(load)?)
            .with_context(|| format!("the {name} did not read their command"))?;
        let (sender, lines) = sync_channel(LINES);
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(std::io::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Player { name, process, commands: Some(commands), lines, progress: P::default(), report: None })
    }

    pub(super) fn tell(&mut self, command: Command) {
        if let Some(commands) = &mut self.commands {
            // A write error means that the process has ended; `listen` reports that.
            let _ = writeln!(commands, "{}", command.word());
            let _ = commands.flush();
        }
    }

    /// SIGKILL: it has no time for anything.
    pub(super) fn kill(&mut self) {
        kill(&mut self.process);
    }

    /// Its report, once it was told to stop.
    pub(super) fn finish(&mut self, until: Instant) -> Result<R> {
        loop {
            self.listen()?;
            if let Some(report) = self.report.take() {
                return Ok(report);
            }
            if Instant::now() > until {
                bail!("the {} did not report in time", self.name);
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Reads the output of the process so far. Returns whether there was new progress.
    pub(super) fn listen(&mut self) -> Result<bool> {
        let mut is_new = false;
        loop {
            let line = match self.lines.try_recv() {
                Ok(line) => line,
                Err(TryRecvError::Empty) => return Ok(is_new),
                Err(TryRecvError::Disconnected) if self.report.is_some() => return Ok(is_new),
                Err(TryRecvError::Disconnected) => bail!("the {} ended without a report", self.name),
            };
            match serde_json::from_str(&line)
                .with_context(|| format!("the {} wrote an unknown line: {line}", self.name))?
            {
                Line::Progress(progress) => (self.progress, is_new) = (progress, true),
                Line::Done(report) => self.report = Some(*report),
                Line::<P, R>::Failed(error) => bail!("the {} failed: {error}", self.name),
            }
        }
    }
}

impl<P, R> Drop for Player<P, R> {
    fn drop(&mut self) {
        // The end of its input tells the process to end.
        self.commands = None;
        end(&mut self.process);
    }
}

fn kill(process: &mut Child) {
    // An error here means that the process has already ended.
    let _ = process.kill();
    let _ = process.wait();
}

fn end(process: &mut Child) {
    let until = Instant::now() + END_PATIENCE;
    while Instant::now() < until {
        if !matches!(process.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    kill(process);
}

/// A gateway that was started for the run.
pub(super) struct Gateway {
    process: Child,
}

impl Gateway {
    /// Starts it, and waits until it answers at these addresses. Its output goes to a file.
    pub(super) fn start(command: &[OsString], log: &Path, addresses: &[SocketAddr]) -> Result<Gateway> {
        let (program, arguments) = command.split_first().context("the command for the gateway is missing")?;
        let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let process = Process::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start the gateway with {}", program.display()))?;
        let mut gateway = Gateway { process };
        addresses.iter().try_for_each(|&address| gateway.wait_for(address, log))?;
        Ok(gateway)
    }

    /// Waits until its page says that clients are welcome.
    pub(super) fn wait_until_ready(&mut self, page: SocketAddr, log: &Path) -> Result<()> {
        let until = Instant::now() + START_PATIENCE;
        while !is_ready(page) {
            if self.has_ended() || Instant::now() > until {
                let said = fs::read_to_string(log).unwrap_or_default();
                bail!("an edge is not ready: {}", said.lines().last().unwrap_or("it printed nothing"));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// SIGKILL: it has no time for anything.
    pub(super) fn kill(&mut self) {
        kill(&mut self.process);
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    fn wait_for(&mut self, address: SocketAddr, log: &Path) -> Result<()> {
        let until = Instant::now() + START_PATIENCE;
        while TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_err() {
            if self.has_ended() {
                let said = fs::read_to_string(log).unwrap_or_default();
                bail!("the gateway ended at once: {}", said.lines().last().unwrap_or("it printed nothing"));
            }
            if Instant::now() > until {
                bail!("the gateway does not answer at {address}: see {}", log.display());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw)
            && !self.has_ended()
        {
            // If it ends between these two lines, it has ended without the kill.
            let _ = kill_process(pid, Signal::TERM);
        }
        end(&mut self.process);
    }
}

/// Unused addresses of this machine.
pub(super) fn free_addresses<const N: usize>() -> Result<[SocketAddr; N]> {
    let bind = || TcpListener::bind(("127.0.0.1", 0)).context("no free port");
    let listeners: Vec<TcpListener> = (0..N).map(|_| bind()).collect::<Result<_>>()?;
    let addresses: Vec<SocketAddr> = listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
    addresses.try_into().ok().context("a port is missing")
}

/// The system's figures of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// Processor time of all its threads so far.
    pub(super) cpu_s: f64,
    pub(super) rss_bytes: u64,
}

/// The system's figures of a process; `None` if there is no such process, or no `/proc`.
pub(super) fn usage(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(Usage { cpu_s: cpu_s(&stat)?, rss_bytes: rss_bytes(&status)? })
}

/// The command's name is in brackets and may hold anything, brackets too; user and system time are the 12th and 13th
/// field behind it.
fn cpu_s(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) as f64 / clock::KERNEL_TICKS_PER_S)
}

fn rss_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_the_strangest_name() {
        let stat = "42 (a) b ((c)) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 5 0 100 0 0";
        assert_eq!(cpu_s(stat), Some(3.0));
        assert_eq!(cpu_s("nonsense"), None);
        assert_eq!(rss_bytes("Name:\tx\nVmRSS:\t    2048 kB\n"), Some(2 << 20));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_watched() {
        let usage = usage(std::process::id()).unwrap();
        assert!(usage.rss_bytes > 100_000);
    }

    #[test]
    fn free_addresses_differ() {
        let [first, second] = free_addresses::<2>().unwrap();
        assert!(first != second && first.ip().is_loopback());
    }
}
