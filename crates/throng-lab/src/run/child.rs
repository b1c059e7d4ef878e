//! The second process.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command as Process, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use throng::Key;
use throng_crowd::scenario::Scenario;

use super::RunOptions;
use crate::bots::{BotsOptions, BotsReport, Brains, Progress};
use crate::control::{BotsLine, Command};

/// Lines of the bots that wait to be read.
const LINES: usize = 256;

/// The bots' process.
pub(super) struct Child {
    process: std::process::Child,
    commands: Option<ChildStdin>,
    lines: Receiver<String>,
    progress: Progress,
    report: Option<BotsReport>,
}

/// [`BotsOptions`] as they pass through the pipe.
#[derive(Serialize, Deserialize)]
struct Order {
    server: SocketAddr,
    key: [u8; 32],
    scenario: Scenario,
    truth: Option<PathBuf>,
    cores: Option<Vec<usize>>,
}

/// Starts the bots.
pub(super) fn start(
    options: &RunOptions,
    server: SocketAddr,
    key: Key,
    truth: &Path,
    cores: Option<Vec<usize>>,
) -> Result<Child> {
    let (program, arguments) = options.bots_command.split_first().context("the command for the bots is missing")?;
    let mut process = Process::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Only the run handles Ctrl-C of a terminal: it stops the bots, which then report.
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start the bots with {}", program.display()))?;
    let mut commands = process.stdin.take().context("the bots' process has no standard input")?;
    let out = process.stdout.take().context("the bots' process has no standard output")?;
    let order = Order {
        server,
        key: *key.as_bytes(),
        scenario: options.scenario.clone(),
        truth: Some(truth.to_owned()),
        cores,
    };
    writeln!(commands, "{}", serde_json::to_string(&order)?).context("the bots' process did not read its command")?;
    let (sender, lines) = sync_channel(LINES);
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(std::io::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok(Child { process, commands: Some(commands), lines, progress: Progress::default(), report: None })
}

/// The host's command on standard input, for the built-in bots.
pub fn read_order() -> Result<BotsOptions> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("no command on the standard input")?;
    let order: Order = serde_json::from_str(&line).context("cannot read the command on the standard input")?;
    Ok(BotsOptions {
        server: order.server,
        key: Key::new(order.key),
        scenario: order.scenario,
        truth: order.truth,
        cores: order.cores,
        brains: Brains::default(),
    })
}

impl Child {
    pub(super) fn tell(&mut self, command: Command) {
        if let Some(commands) = &mut self.commands {
            // A write error means that the bots' process has ended; `listen` reports that.
            let _ = commands.write_all(command.line().as_bytes());
            let _ = commands.flush();
        }
    }

    /// Reads what the bots have said.
    pub(super) fn listen(&mut self) -> Result<()> {
        loop {
            match self.lines.try_recv() {
                Ok(line) => self.take_line(&line)?,
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) if self.report.is_some() => return Ok(()),
                Err(TryRecvError::Disconnected) => bail!("the bots ended without a report"),
            }
        }
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    pub(super) fn take_report(&mut self) -> Option<BotsReport> {
        self.report.take()
    }

    fn take_line(&mut self, line: &str) -> Result<()> {
        match serde_json::from_str(line).with_context(|| format!("the bots' process wrote an unknown line: {line}"))? {
            BotsLine::Progress(progress) => self.progress = progress,
            BotsLine::Done(report) => self.report = Some(*report),
            BotsLine::Failed(error) => bail!("the bots failed: {error}"),
        }
        Ok(())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The end of its input tells the process to end; otherwise it is killed.
        self.commands = None;
        for _ in 0..200 {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
