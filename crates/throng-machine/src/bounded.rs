//! A command with limits: of its time, and of what it prints.
//!
//! ```text
//!  start ----> command with all that it starts ----> its own end
//!                |  standard output: the beginning is kept, up to the limit
//!                |  standard error: the end is kept, for its last words
//!                '--- patience over, or a stop ----> asked to end, and killed after the grace
//!                '--- printed too much ------------> killed
//! ```
//!
//! Its output goes through pipes, because a file needs room on a disk. In every case nothing of it is left running.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{LastAct, last_act, subprocess};

/// So many bytes of the end of the standard error are kept.
const WORDS_MAX: usize = 64 << 10;
/// Programs whose arguments are wrong often end with this advice, and it says nothing of the mistake.
const HELP: &str = "For more information, try";
/// So many characters of a foreign text are shown.
const SHOWN_MAX: usize = 300;
/// A command that runs is looked at so often.
const LOOK: Duration = Duration::from_millis(20);
/// A pipe whose processes were ended is read to its end in this time. A process with a session of its own may hold it for ever.
const PIPE_PATIENCE: Duration = Duration::from_secs(2);

/// The limits of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// It may run so long.
    pub patience: Duration,
    /// When it is asked to end, it has so long before it is killed.
    pub grace: Duration,
    /// It may print so many bytes to its standard output. So many are kept in memory at most.
    pub output_max: u64,
    /// It may print so many bytes to its standard error; [`u64::MAX`]: as many as it likes. A fixed number of them is kept.
    pub errors_max: u64,
}

/// Why a command did not end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It took longer than its patience.
    Late,
    /// The caller has set `stop`.
    Stopped,
    /// It printed more than a limit.
    TooMuch,
}

/// A command that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Why it did not end by itself, if it did not.
    pub cut: Option<Cut>,
    /// How it ended; `None` if it had to be killed.
    pub status: Option<ExitStatus>,
    /// The beginning of its standard output.
    pub output: String,
    /// The last line of its standard error that is not empty, fit for a terminal; or its error, if that line tells where help is.
    pub last_words: String,
}

/// A command that runs, with its own group of processes.
#[derive(Debug)]
#[must_use = "it runs until it is waited for"]
pub struct Running {
    child: Child,
    _act: LastAct,
}

impl Running {
    /// Starts a command. Its standard streams are set here. It inherits what this thread has, as the processors it may use.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(command: &mut Command) -> std::io::Result<Running> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = subprocess::own_group(command).spawn()?;
        let group = child.id();
        Ok(Running { child, _act: last_act(move || subprocess::kill_group(group)) })
    }

    /// Waits for the end. Until the command ends or is asked to, calls `each_look` with the time so far, some 50 times in a second.
    pub fn wait(mut self, limits: &Limits, stop: &AtomicBool, mut each_look: impl FnMut(Duration)) -> Finished {
        let began = Instant::now();
        let output_max = limits.output_max as usize;
        let output = Reading::of(self.child.stdout.take(), move |kept, part| {
            let room = output_max.saturating_sub(kept.len());
            kept.extend_from_slice(&part[..part.len().min(room)]);
        });
        let errors = Reading::of(self.child.stderr.take(), |kept, part| {
            kept.extend_from_slice(part);
            if kept.len() > 2 * WORDS_MAX {
                kept.drain(..kept.len() - WORDS_MAX);
            }
        });
        let is_too_much = || output.count() > limits.output_max || errors.count() > limits.errors_max;
        let mut cut: Option<(Cut, Instant)> = None;
        let status = loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                break Some(status);
            }
            if is_too_much() {
                cut = Some((Cut::TooMuch, Instant::now()));
                break None;
            }
            let reason = match () {
                () if stop.load(Ordering::Relaxed) => Some(Cut::Stopped),
                () if began.elapsed() > limits.patience => Some(Cut::Late),
                () => None,
            };
            match (cut, reason) {
                (Some((_, asked)), _) if asked.elapsed() > limits.grace => break None,
                (Some(_), _) => {}
                (None, Some(reason)) => {
                    // It ends its own processes when it is asked to.
                    subprocess::interrupt(&self.child);
                    cut = Some((reason, Instant::now()));
                }
                (None, None) => each_look(began.elapsed()),
            }
            std::thread::sleep(LOOK);
        };
        // Processes that it has started and not ended itself end here.
        subprocess::kill(&mut self.child);
        let (text, words) = (output.end(), errors.end());
        let cut = if is_too_much() { Some(Cut::TooMuch) } else { cut.map(|(cut, _)| cut) };
        let mut last = words.lines().rev().filter(|line| !line.trim().is_empty());
        let said = last.next().unwrap_or("it said nothing");
        let error = || last.find_map(|line| line.strip_prefix("error: "));
        let last = said.starts_with(HELP).then(error).flatten().unwrap_or(said);
        Finished { cut, status, output: text, last_words: printable(last).trim().to_owned() }
    }
}

/// A text of a foreign command, fit for a terminal: in one line, without its control characters, and not too long.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN_MAX).collect()
}

/// A pipe that a thread reads to its end, so that the command is never held up by a full one.
struct Reading {
    kept: Arc<Mutex<Vec<u8>>>,
    count: Arc<AtomicU64>,
    ended: Receiver<()>,
}

impl Reading {
    fn of(source: Option<impl Read + Send + 'static>, keep: impl Fn(&mut Vec<u8>, &[u8]) + Send + 'static) -> Reading {
        let (kept, count) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
        let (end, ended) = channel();
        let (into, counted) = (Arc::clone(&kept), Arc::clone(&count));
        std::thread::spawn(move || {
            let mut part = [0; 1 << 16];
            let Some(mut source) = source else { return };
            while let Some(read) = source.read(&mut part).ok().filter(|read| *read > 0) {
                counted.fetch_add(read as u64, Ordering::Relaxed);
                keep(&mut into.lock().unwrap_or_else(PoisonError::into_inner), &part[..read]);
            }
            // Nobody waits any more if the patience is over.
            let _ = end.send(());
        });
        Reading { kept, count, ended }
    }

    /// Bytes that came so far.
    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The output kept until the end of the pipe, or until now if somebody holds it open.
    fn end(&self) -> String {
        let _ = self.ended.recv_timeout(PIPE_PATIENCE);
        String::from_utf8_lossy(&self.kept.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        patience: Duration::from_secs(20),
        grace: Duration::from_millis(300),
        output_max: 1 << 20,
        errors_max: u64::MAX,
    };

    /// Whether a shell can be asked to end here.
    fn can_be_asked() -> bool {
        let is_ignored = crate::subprocess::ignores_interrupts();
        if is_ignored {
            println!("!!! SIGINT is ignored here, as in the background of a script: NOT tested");
        }
        !is_ignored
    }

    fn run(script: &str, limits: &Limits) -> Finished {
        let mut command = Command::new("sh");
        let running = Running::start(command.args(["-c", script])).expect("there is a shell");
        running.wait(limits, &AtomicBool::new(false), |_| ())
    }

    #[test]
    fn a_command_that_ends_by_itself_leaves_its_output_its_last_words_and_its_code() {
        let script = r"printf 'a\nb'; printf 'first\n\033[2Jsecond\n\n' >&2; exit 7";
        let finished = run(script, &LIMITS);
        assert_eq!((finished.cut, finished.status.and_then(|status| status.code())), (None, Some(7)));
        assert_eq!((finished.output.as_str(), finished.last_words.as_str()), ("a\nb", "[2Jsecond"));
        assert_eq!(run("true", &LIMITS).last_words, "it said nothing");
        let advice = "For more information, try '--help'.";
        let refused =
            |before: &str| run(&format!(r#"printf "{before}\n\n{advice}\n" >&2; exit 2"#), &LIMITS).last_words;
        assert_eq!(refused("error: no option --x\\n\\nUsage: y"), "no option --x");
        assert_eq!(refused("nothing"), advice, "without an error, the last line is all that there is");
        assert_eq!(run("kill -9 $$", &LIMITS).status.and_then(|status| status.code()), None);
    }

    #[test]
    fn a_command_that_takes_too_long_is_asked_to_end_and_then_killed() {
        let short = Limits { patience: Duration::from_millis(200), ..LIMITS };
        if can_be_asked() {
            // It forks once, at its start: a shell that is asked while it forks answers twice.
            let polite = run("trap 'echo last; exit 3' INT; sleep 60 & wait", &short);
            assert_eq!((polite.cut, polite.output.as_str()), (Some(Cut::Late), "last\n"));
            assert_eq!(polite.status.and_then(|status| status.code()), Some(3));
        }
        let began = Instant::now();
        let stubborn = run("trap '' INT; while :; do sleep 0.02; done", &short);
        assert_eq!((stubborn.cut, stubborn.status), (Some(Cut::Late), None));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }

    #[test]
    fn a_stop_ends_it_and_keeps_what_it_then_prints() {
        if !can_be_asked() {
            return;
        }
        let script = "trap 'echo part; exit 0' INT; while :; do sleep 0.02; done";
        let (stop, patient) = (AtomicBool::new(false), Limits { grace: Duration::from_secs(10), ..LIMITS });
        let mut command = Command::new("sh");
        let running = Running::start(command.args(["-c", script])).expect("there is a shell");
        // The shell has set its trap by then.
        let finished = running.wait(&patient, &stop, |time| stop.store(time > LOOK * 20, Ordering::Relaxed));
        assert_eq!((finished.cut, finished.output.as_str()), (Some(Cut::Stopped), "part\n"));
    }

    #[test]
    fn a_command_that_prints_too_much_is_killed_and_only_the_limit_is_kept() {
        let small = Limits { output_max: 1_000, ..LIMITS };
        let endless = run("trap '' INT; yes", &small);
        assert_eq!((endless.cut, endless.output.len()), (Some(Cut::TooMuch), 1_000));
        // Also if it has ended before anybody looked.
        assert_eq!(run("yes | head -c 1001", &small).cut, Some(Cut::TooMuch));
        assert_eq!(run("yes | head -c 1000", &small).cut, None);
        let errors = Limits { errors_max: 1_000, ..LIMITS };
        assert_eq!(run("yes >&2", &errors).cut, Some(Cut::TooMuch));
        let long = run("yes | head -c 3000000 >&2; echo the end >&2", &LIMITS);
        assert_eq!((long.cut, long.last_words.as_str()), (None, "the end"));
    }

    #[test]
    fn what_it_leaves_behind_is_ended_and_holds_up_nothing() {
        let began = Instant::now();
        let finished = run("sleep 1000 & echo $!", &LIMITS);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        let until = Instant::now() + Duration::from_secs(10);
        let process = format!("/proc/{}/cmdline", finished.output.trim());
        while std::fs::read_to_string(&process).is_ok_and(|line| !line.is_empty()) {
            assert!(Instant::now() < until, "{process} is still there");
            std::thread::sleep(LOOK);
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_and_a_text_is_shown_in_one_line() {
        assert!(Running::start(&mut Command::new("no-such-program-anywhere")).is_err());
        assert_eq!(printable("a\u{7}b\nc"), "a b c");
        assert_eq!(printable(&"x".repeat(10_000)).len(), SHOWN_MAX);
    }
}
