//! The processes of a run: how they are started, listened to, watched and ended.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command as Process};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use throng_machine::piped::{Gone, Piped, Signal};
use throng_machine::{clock, subprocess};

use crate::control::{Command, Line};
use crate::load::Load;
use crate::scrape::is_ready;

/// A gateway that is asked to end does so within this, or is ended.
const END_PATIENCE: Duration = Duration::from_secs(3);
/// How often a process is looked at.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// A gateway answers within this after its start.
const START_PATIENCE: Duration = Duration::from_secs(15);

/// A process that plays a part, with its latest progress.
pub(super) struct Player<P, R> {
    name: &'static str,
    process: Piped,
    pub(super) progress: P,
    report: Option<R>,
}

impl<P: DeserializeOwned + Default, R: DeserializeOwned> Player<P, R> {
    pub(super) fn start(name: &'static str, command: &[OsString], load: &Load) -> Result<Player<P, R>> {
        let process = Piped::start(command, load).with_context(|| format!("cannot start the {name}"))?;
        Ok(Player { name, process, progress: P::default(), report: None })
    }

    pub(super) fn tell(&mut self, command: Command) {
        self.process.tell(&command);
    }

    /// SIGKILL: it has no time for anything.
    pub(super) fn kill(&mut self) {
        self.process.signal(Signal::Kill);
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
            let line = match self.process.next_line(Duration::ZERO) {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(is_new),
                Err(Gone) if self.report.is_some() => return Ok(is_new),
                Err(Gone) => bail!("the {} ended without a report", self.name),
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

/// A gateway that was started for the run.
pub(super) struct Gateway {
    process: Child,
}

impl Gateway {
    /// Starts it, and waits until it answers at these addresses. Its output goes to a file.
    pub(super) fn start(command: &[OsString], log: &Path, addresses: &[SocketAddr]) -> Result<Gateway> {
        let (program, arguments) = command.split_first().context("the command for the gateway is missing")?;
        let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut process = Process::new(program);
        process.args(arguments).stdout(out.try_clone()?).stderr(out);
        let process = subprocess::own_group(subprocess::tied(&mut process))
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
        subprocess::kill(&mut self.process);
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
        // The number of one that was waited for may be another's.
        if !self.has_ended() {
            subprocess::terminate(&self.process);
        }
        subprocess::wait(&mut self.process, END_PATIENCE);
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
    let process = pid.to_string();
    Some(Usage { cpu_s: clock::cpu_s_of(&process)?, rss_bytes: throng_machine::rss_bytes_of(&process)? })
}

/// The last figures of each process.
#[derive(Debug, Default)]
pub(super) struct Usages(HashMap<u32, Usage>);

impl Usages {
    /// The system's figures of a process. Of one that has ended, the last that were asked for: a run may ask once more before it notices the
    /// end.
    pub(super) fn of(&mut self, pid: u32) -> Usage {
        let known = self.0.entry(pid).or_default();
        if let Some(usage) = usage(pid) {
            *known = usage;
        }
        *known
    }

    /// The sum of several processes.
    pub(super) fn of_all(&mut self, pids: impl IntoIterator<Item = u32>) -> Usage {
        pids.into_iter().map(|pid| self.of(pid)).fold(Usage::default(), |sum, usage| Usage {
            cpu_s: sum.cpu_s + usage.cpu_s,
            rss_bytes: sum.rss_bytes + usage.rss_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_that_has_ended_keeps_its_last_figures() {
        let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut usages = Usages::default();
        let until = Instant::now() + Duration::from_secs(10);
        while usages.of(process.id()).rss_bytes == 0 {
            assert!(Instant::now() < until, "it has no memory");
        }
        let alive = usages.of(process.id());
        process.kill().unwrap();
        // Nobody has waited for it yet: the system knows it, but not its memory.
        while usage(process.id()).is_some() {
            assert!(Instant::now() < until, "it does not end");
        }
        let ended = usages.of(process.id());
        process.wait().unwrap();
        assert_eq!([ended, usages.of(process.id())].map(|usage| usage.rss_bytes), [alive.rss_bytes; 2]);
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
