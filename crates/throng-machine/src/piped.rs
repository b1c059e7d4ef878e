//! Another process, which reads lines and writes lines; and this program as such a process.
//!
//! ```text
//!  this program                                        the other process
//!   Piped::start ----- its order: a line of JSON --->   read_order
//!   tell ------------- a line ---------------------->   hear
//!   next_line <------- a line of JSON ---------------   answer
//!   finish, drop ----- the input ends -------------->   it ends; it is killed when its time is over
//! ```

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::subprocess;

/// Lines that wait to be read.
const LINES: usize = 256;
/// Lines that wait to be written. A process that stands still takes none.
const LINES_OUT: usize = 16_384;
/// A process whose input has ended has so long when this is dropped.
const END_PATIENCE: Duration = Duration::from_secs(3);
/// It is looked at so often meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// The process, in a group of its own: a Ctrl-C of a terminal reaches this program alone, which then ends the others. When this
/// is dropped, it is asked to end by the end of its input, and killed if it does not.
#[derive(Debug)]
pub struct Piped {
    child: Child,
    /// `None` closes the other process's input.
    input: SyncSender<Option<String>>,
    /// No more lines are taken. The writer writes the lines that wait, and then closes the input of the process. It looks here too, because
    /// a full queue has no room for `None`.
    is_closed: Arc<AtomicBool>,
    lines: Receiver<String>,
    /// It was killed, or had ended before it was to be, and was waited for.
    is_killed: bool,
}

/// Gets the lines of a process first. It returns true for those that it takes.
pub type Ear = Box<dyn FnMut(&str) -> bool + Send>;

/// The signals that a run sends to its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// It ends at once, and has no time for anything.
    Kill,
    /// It stands still.
    Stop,
    /// It goes on.
    Continue,
}

/// Why a line was not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsaid {
    /// The process has read nothing for long: no more lines wait for it.
    Full,
    /// The process reads nothing any more.
    Gone,
}

/// The process has closed its output: there will be no more lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// The last words of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The last line that it wrote and that was not read.
    pub line: Option<String>,
    /// How it ended, in words: `exit status: 0`, `signal: 9 (SIGKILL)`, or that it had to be killed.
    pub status: String,
}

impl Piped {
    /// Starts it, and tells it its order. One that has died before it has read it is found by its missing answer.
    ///
    /// # Errors
    /// The command is empty, or cannot be started; the order cannot be written as JSON.
    pub fn start(command: &[OsString], order: &impl Serialize) -> io::Result<Piped> {
        Piped::start_heard(command, order, Box::new(|_| false))
    }

    /// The same with somebody who gets its lines first.
    ///
    /// # Errors
    /// As [`start`](Piped::start).
    pub fn start_heard(command: &[OsString], order: &impl Serialize, mut ear: Ear) -> io::Result<Piped> {
        let order = serde_json::to_string(order)?;
        let missing = || io::Error::new(io::ErrorKind::InvalidInput, "its command is empty");
        let (program, arguments) = command.split_first().ok_or_else(missing)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", program.display()));
        let mut child = subprocess::own_group(&mut command).spawn().map_err(named)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let ((sender, lines), (input, to_write)) = (sync_channel(LINES), sync_channel::<Option<String>>(LINES_OUT));
        let is_closed = Arc::new(AtomicBool::new(false));
        let piped = Piped { child, input, is_closed: is_closed.clone(), lines, is_killed: false };
        let output = stdout.ok_or_else(|| io::Error::other("it has no standard output"))?;
        let to_process = stdin.ok_or_else(|| io::Error::other("it has no standard input"))?;
        // A thread of its own reads it: a process whose pipe is full would stand still.
        let work = move || send_lines(BufReader::new(output), |line| (!ear(&line)).then_some(line), &sender);
        std::thread::Builder::new().name("pipe".to_owned()).spawn(work)?;
        // Another one writes: a process that stands still reads nothing, and holds nobody up.
        let work = move || write_lines(&to_write, &is_closed, to_process);
        std::thread::Builder::new().name("pipe".to_owned()).spawn(work)?;
        let _ = tell(&piped.input, &piped.is_closed, &order);
        Ok(piped)
    }

    /// Tells it a line of JSON. A process that is gone hears nothing, and one that has read nothing for long misses it;
    /// [`next_line`](Piped::next_line) tells the one from the other.
    pub fn tell(&mut self, line: &impl Serialize) {
        let _ = serde_json::to_string(line).map(|line| tell(&self.input, &self.is_closed, &line));
    }

    /// Tells it lines as [`tell`](Piped::tell) does, from any thread, and says which ones are lost.
    pub fn mouth(&self) -> impl Fn(String) -> Result<(), Unsaid> + Send + 'static {
        let (input, is_closed) = (self.input.clone(), self.is_closed.clone());
        move |line| tell(&input, &is_closed, &line)
    }

    /// The next line, waited for at most so long.
    ///
    /// # Errors
    /// There will be none.
    pub fn next_line(&self, within: Duration) -> Result<Option<String>, Gone> {
        match self.lines.recv_timeout(within) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Gone),
        }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends it a signal, and waits for the end of one that is killed. One that has ended gets none.
    pub fn signal(&mut self, signal: Signal) {
        self.is_killed |= signal == Signal::Kill;
        // Its number belongs to it until it was waited for.
        if self.has_ended() {
            return;
        }
        match signal {
            Signal::Kill => subprocess::kill(&mut self.child),
            Signal::Stop => subprocess::pause(&self.child),
            Signal::Continue => subprocess::go_on(&self.child),
        }
    }

    /// Asks for the end, and does not wait. The process hears of it after all that it was told before.
    pub fn close(&mut self) {
        self.is_closed.store(true, Ordering::SeqCst);
        // If there is no room, the lines that wait are followed by the end.
        let _ = self.input.try_send(None);
    }

    /// Asks for the end, and waits for it at most so long.
    pub fn finish(mut self, patience: Duration) -> Left {
        self.close();
        let until = Instant::now() + patience;
        let mut line = None;
        while let Ok(Some(next)) = self.next_line(until.saturating_duration_since(Instant::now())) {
            line = Some(next);
        }
        let status = subprocess::wait(&mut self.child, until.saturating_duration_since(Instant::now()));
        let status = status.map_or_else(
            || format!("it did not end within {} s, and was killed", patience.as_secs()),
            |status| status.to_string(),
        );
        Left { line, status }
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        self.close();
        // Its number may be that of another process by now.
        if self.is_killed {
            return;
        }
        let until = Instant::now() + END_PATIENCE;
        // A process whose output nobody takes stands still, and does not come to its end.
        while !self.has_ended() && Instant::now() < until && self.next_line(LOOK) != Err(Gone) {}
        subprocess::wait(&mut self.child, until.saturating_duration_since(Instant::now()));
    }
}

fn tell(input: &SyncSender<Option<String>>, is_closed: &AtomicBool, line: &str) -> Result<(), Unsaid> {
    if is_closed.load(Ordering::SeqCst) {
        return Err(Unsaid::Gone);
    }
    input.try_send(Some(format!("{}\n", line.trim_end()))).map_err(|error| match error {
        TrySendError::Full(_) => Unsaid::Full,
        TrySendError::Disconnected(_) => Unsaid::Gone,
    })
}

/// Writes lines until the end, or until they were closed and all that waited are written.
fn write_lines(lines: &Receiver<Option<String>>, is_closed: &AtomicBool, mut to: impl Write) {
    loop {
        let line = match lines.try_recv() {
            // `close` sets the flag before it puts the end into the queue, so that one of both is seen.
            Err(TryRecvError::Empty) if !is_closed.load(Ordering::SeqCst) => lines.recv().ok().flatten(),
            line => line.ok().flatten(),
        };
        let Some(line) = line else { return };
        // A write error means that the process has ended; the end of its output tells that.
        if to.write_all(line.as_bytes()).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

/// Sends what `read` makes of each line, until the lines end or nobody listens. Lines without a meaning are left out.
fn send_lines<T>(lines: impl BufRead, mut read: impl FnMut(String) -> Option<T>, to: &SyncSender<T>) {
    for line in lines.lines().map_while(Result::ok) {
        if read(line).is_some_and(|value| to.send(value).is_err()) {
            return;
        }
    }
}

/// The order on the standard input: its first line.
///
/// # Errors
/// There is none, or it is another one.
pub fn read_order<T: DeserializeOwned>() -> io::Result<T> {
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// The lines of the standard input after the order, read by a thread of its own. The channel closes with the input: then this
/// process is to end.
pub fn hear<T: Send + 'static>(read: impl Fn(&str) -> Option<T> + Send + 'static) -> Receiver<T> {
    let (sender, receiver) = sync_channel(LINES);
    std::thread::spawn(move || send_lines(io::stdin().lock(), |line| read(&line), &sender));
    receiver
}

/// Writes a line to the standard output. If the other process has ended, nobody reads it; the end of the input will show that.
pub fn answer(line: &impl Serialize) {
    let _ = last_answer(line);
}

/// Writes the last line, after which nothing is read any more.
///
/// # Errors
/// The line cannot be written.
pub fn last_answer(line: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_string(line)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{json}")?;
    out.flush()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Piped {
        let command = ["sh", "-c", script].map(OsString::from);
        Piped::start(&command, &"the order").expect("there is a shell")
    }

    #[test]
    fn a_process_is_told_and_answers_in_lines_and_its_last_one_is_left() {
        let mut piped =
            shell("read order; echo \"$order\"; while read line; do echo \"<$line>\"; done; echo bye; exit 3");
        assert_eq!(piped.next_line(LONG), Ok(Some("\"the order\"".to_owned())));
        piped.tell(&1);
        piped.tell(&"two");
        assert_eq!(piped.next_line(LONG), Ok(Some("<1>".to_owned())));
        assert_eq!(piped.next_line(LONG), Ok(Some("<\"two\">".to_owned())));
        assert_eq!((piped.next_line(Duration::ZERO), piped.has_ended()), (Ok(None), false));
        let left = piped.finish(LONG);
        assert_eq!((left.line.as_deref(), &left.status[..]), (Some("bye"), "exit status: 3"));
    }

    #[test]
    fn one_that_has_read_nothing_for_long_hears_of_the_end_after_all_that_found_room() {
        let mut piped = shell("sleep 0.3; wc -l");
        let line = "x".repeat(100);
        // More than the queue and the pipe take.
        (0..LINES_OUT + 4_096).for_each(|_| piped.tell(&line));
        let left = piped.finish(LONG);
        assert_eq!(left.status, "exit status: 0");
        let lines: usize = left.line.and_then(|line| line.trim().parse().ok()).expect("a number");
        assert!((LINES_OUT..LINES_OUT + 4_096).contains(&lines), "{lines}");
    }

    #[test]
    fn one_that_still_talks_comes_to_its_end_when_it_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let end = folder.path().join("end");
        let piped = shell(&format!("cat > /dev/null; seq 50000; touch {}", end.display()));
        let began = Instant::now();
        drop(piped);
        assert!(end.exists() && began.elapsed() < END_PATIENCE, "{:?}", began.elapsed());
    }

    #[test]
    fn one_that_does_not_end_with_its_input_is_killed_and_one_that_is_gone_says_so() {
        let began = Instant::now();
        let left = shell("trap '' INT; while :; do sleep 0.02; done").finish(Duration::from_millis(200));
        assert!(left.status.contains("was killed") && began.elapsed() < LONG, "{left:?}");
        let piped = shell("exit 0");
        assert_eq!(piped.next_line(LONG), Err(Gone));
        let mut killed = shell("while :; do sleep 0.02; done");
        killed.signal(Signal::Stop);
        killed.signal(Signal::Continue);
        killed.signal(Signal::Kill);
        assert!(killed.has_ended());
        assert_eq!(Piped::start(&[], &0).unwrap_err().to_string(), "its command is empty");
        let nowhere = Piped::start(&["no-such-program-anywhere".into()], &0).unwrap_err().to_string();
        assert!(nowhere.starts_with("no-such-program-anywhere: "), "{nowhere}");
    }
}
