//! A process that is told in lines and answers in lines, one JSON value each.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

/// Lines that wait to be read.
const LINES: usize = 256;

/// The process. It is asked to end when this is dropped, and killed if it does not.
pub(super) struct Piped {
    process: std::process::Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

/// The signals that a run sends to its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Kill,
    Stop,
    Continue,
}

/// The process has closed its output.
pub(super) struct Gone;

impl Piped {
    /// Starts it, and tells it its order. `who` names it in errors.
    pub(super) fn start(command: &[OsString], who: &str, order: &impl Serialize) -> Result<Piped> {
        let (program, arguments) =
            command.split_first().with_context(|| format!("the command for {who} is missing"))?;
        let mut process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Only the run handles Ctrl-C of a terminal: it stops the others, which then report.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {who} with {}", program.display()))?;
        let mut input = process.stdin.take().with_context(|| format!("the process of {who} has no standard input"))?;
        let output = process.stdout.take().with_context(|| format!("the process of {who} has no standard output"))?;
        writeln!(input, "{}", serde_json::to_string(order)?)
            .with_context(|| format!("the process of {who} did not read its order"))?;
        let (sender, lines) = sync_channel(LINES);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Piped { process, input: Some(input), lines })
    }

    /// A write error means that the process has ended; [`next_line`](Piped::next_line) tells that.
    pub(super) fn say(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = input.write_all(line.as_bytes());
            let _ = input.flush();
        }
    }

    /// Sends it a signal. One that has ended gets none.
    pub(super) fn signal(&mut self, signal: Signal) {
        use rustix::process::{Pid, Signal as Number, kill_process};
        let number = match signal {
            Signal::Kill => Number::KILL,
            Signal::Stop => Number::STOP,
            Signal::Continue => Number::CONT,
        };
        // Its number belongs to it until it was waited for.
        if let (Ok(None), Some(pid)) = (self.process.try_wait(), Pid::from_raw(self.process.id() as i32)) {
            let _ = kill_process(pid, number);
        }
    }

    /// The next line that has come, if there is one.
    pub(super) fn next_line(&self) -> Result<Option<String>, Gone> {
        match self.lines.try_recv() {
            Ok(line) => Ok(Some(line)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Gone),
        }
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        // The end of its input tells the process to end; otherwise it is killed.
        self.input = None;
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
