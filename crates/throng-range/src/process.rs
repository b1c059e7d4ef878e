//! Other processes of a run: the bots, and matches that have a process each.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde::Serialize;

use crate::RangeError;

/// A process that reads orders as lines and answers in lines. It ends when its input does, so it never outlives this one.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    /// Read on a thread of its own: a process whose pipe is full would not end.
    lines: Receiver<String>,
}

/// The last words of a process.
pub(crate) struct Left {
    /// The last line that it wrote.
    pub(crate) line: Option<String>,
    /// How it ended, in words: `exit status: 0`, `signal: 9 (SIGKILL)`.
    pub(crate) status: String,
}

impl Process {
    pub(crate) fn start(command: &[OsString], order: &impl Serialize) -> Result<Process, RangeError> {
        let failed = |error: String| RangeError::Process(error);
        let (program, arguments) = command.split_first().ok_or_else(|| failed("no program is named".to_owned()))?;
        let order = serde_json::to_string(order).map_err(|error| failed(error.to_string()))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A Ctrl-C in a terminal reaches this process alone, which then ends the others in order.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("it has no pipes".to_owned()));
        };
        let (sender, lines) = channel();
        let work = move || BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line));
        let thread = std::thread::Builder::new().name("pipe".to_owned()).spawn(work);
        thread.map_err(|error| failed(error.to_string()))?;
        // One that has died meanwhile is found by its missing answer, with its status.
        let _ = writeln!(input, "{order}").and_then(|()| input.flush());
        Ok(Process { child, input: Some(input), lines })
    }

    /// A process that is gone hears nothing; its end is reported.
    pub(crate) fn tell(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        }
    }

    /// The next line; `Err` if there will be none.
    pub(crate) fn next_line(&mut self, within: Duration) -> Result<Option<String>, ()> {
        match self.lines.recv_timeout(within) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(()),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks for the end, and does not wait.
    pub(crate) fn close(&mut self) {
        drop(self.input.take());
    }

    /// Waits for the end.
    pub(crate) fn finish(mut self) -> Left {
        self.close();
        let line = self.lines.iter().last();
        Left { line, status: words(self.child.wait()) }
    }
}

fn words(status: io::Result<ExitStatus>) -> String {
    status.map_or_else(|error| error.to_string(), |status| status.to_string())
}
