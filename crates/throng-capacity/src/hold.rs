//! One trial: the command of a load runs once, and its JSON is judged.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use throng_judge::{Order, Trial};
use throng_machine::subprocess;

use super::{CapacityOptions, pick};

/// A command's JSON is at most so long.
const OUTPUT_MAX: u64 = 64 << 20;
/// So much is kept of what it says on the side.
const WORDS_MAX: u64 = 64 << 10;
/// A pipe whose processes were ended is read to its end in this time. A process with a session of its own may hold it for ever.
const PIPE_PATIENCE: Duration = Duration::from_secs(2);
/// So many characters of a foreign text are shown.
const SHOWN_MAX: usize = 300;
/// A command that runs is looked at so often.
const LOOK: Duration = Duration::from_millis(50);
/// A command that was asked to end has so long.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// The exit code of a run whose figures are invalid: its JSON says why.
const INVALID_RUN: i32 = 3;
/// The exit code of a command that refuses its arguments. It would refuse them again.
const USAGE: i32 = 2;

/// How a trial ended.
pub(super) enum Held {
    /// The load was held, or could not be.
    Tried(Trial, Figures),
    /// The command refuses its arguments, with these words.
    Refused(String),
    /// The measurement was stopped, and the load has been held until then.
    Stopped(Trial, Figures),
}

/// Why a command printed no figures.
enum Failure {
    Refused(String),
    Fault(String),
}

/// Figures of a trial beside its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) cores: Option<f64>,
    pub(super) memory_bytes: Option<f64>,
    /// Of the command as a whole.
    pub(super) wall: Duration,
}

/// Holds a load.
pub(super) fn hold(options: &CapacityOptions, order: Order, stop: &AtomicBool) -> Held {
    let began = Instant::now();
    let printed = run(options, order, stop);
    let wall = began.elapsed();
    if stop.load(Ordering::Relaxed) {
        return stopped(options, order, printed, wall);
    }
    let invalid = |why: &str| Trial::invalid(order.amount, order.hold, why);
    let value = match printed {
        Ok(value) => value,
        Err(Failure::Refused(words)) => return Held::Refused(words),
        Err(Failure::Fault(why)) => return Held::Tried(invalid(&why), Figures { wall, ..Figures::default() }),
    };
    let at = |path: &Option<String>| path.as_deref().and_then(|path| pick::number(&value, path));
    let figures = Figures { cores: at(&options.load.cores), memory_bytes: at(&options.load.memory_bytes), wall };
    if let Some(fault) = fault(options, &value) {
        return Held::Tried(invalid(&fault), figures);
    }
    let judged = options.load.judge(&value);
    let trial = judged.map_or_else(|why| invalid(&why), |judged| Trial::new(order.amount, order.hold, judged));
    Held::Tried(trial, figures)
}

/// A trial that was cut off. A command that prints its figures when it is interrupted has its limits in it.
fn stopped(options: &CapacityOptions, order: Order, printed: Result<Value, Failure>, wall: Duration) -> Held {
    let value = printed.unwrap_or(Value::Null);
    let at = |path: &Option<String>| path.as_deref().and_then(|path| pick::number(&value, path));
    let figures = Figures { cores: at(&options.load.cores), memory_bytes: at(&options.load.memory_bytes), wall };
    let held = wall.min(order.hold);
    let judged = options.load.judge(&value).unwrap_or_default();
    let fault = format!("interrupted after {:.0} s", wall.as_secs_f64());
    Held::Stopped(Trial { fault: Some(fault), ..Trial::new(order.amount, held, judged) }, figures)
}

/// The first reason for which the command itself calls its figures invalid.
fn fault(options: &CapacityOptions, value: &Value) -> Option<String> {
    let reasons = reasons(value);
    let is_fault = |reason: &&str| !options.load.no_faults.iter().any(|part| reason.contains(part));
    reasons.filter(is_fault).map(shown).next()
}

fn reasons(value: &Value) -> impl Iterator<Item = &str> {
    let reasons = value.get("invalid_reasons").and_then(Value::as_array);
    reasons.into_iter().flatten().filter_map(Value::as_str)
}

/// A text of a foreign command, fit for a terminal: in one line, without its control characters.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN_MAX).collect()
}

fn run(options: &CapacityOptions, order: Order, stop: &AtomicBool) -> Result<Value, Failure> {
    let fault = |words: String| Failure::Fault(words);
    let folder = tempfile::tempdir().map_err(|error| fault(format!("cannot make a temporary folder: {error}")))?;
    let seconds = order.hold.as_secs_f64();
    // Down to whole milliseconds: thirty of them must fit into the hold.
    let thirtieth = (seconds * 1_000.0 / 30.0).floor() / 1_000.0;
    let arguments: Vec<String> = options
        .load
        .command
        .iter()
        .map(|part| {
            part.replace("{amount}", &order.amount.to_string())
                .replace("{seconds}", &seconds.to_string())
                .replace("{thirtieth}", &thirtieth.to_string())
                .replace("{folder}", &folder.path().to_string_lossy())
                .replace("{throng}", &options.program.to_string_lossy())
        })
        .collect();
    let Some((program, arguments)) = arguments.split_first() else {
        return Err(fault("there is no command".to_owned()));
    };
    let mut command = Command::new(program);
    // Pipes, because a file needs room on a disk.
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(live) = options.live {
        command.env(throng_live::VARIABLE, live.to_string());
    }
    let child = subprocess::own_group(&mut command).spawn();
    let mut child = child.map_err(|error| fault(format!("cannot start {program}: {error}")))?;
    let patience = order.hold + Duration::from_secs(options.load.around_seconds.into());
    let (output, words) =
        (Reading::of(child.stdout.take(), OUTPUT_MAX + 1), Reading::of(child.stderr.take(), WORDS_MAX));
    let ended = wait(&mut child, patience, stop);
    // Processes that it has started and not ended itself end here.
    subprocess::kill(&mut child);
    let (output, words) = (output.end(), words.end());
    let last = shown(words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing"));
    if output.len() as u64 > OUTPUT_MAX {
        return Err(fault(format!("{program} printed more than {} MB", OUTPUT_MAX >> 20)));
    }
    let object = || -> Result<Value, Failure> {
        let object = serde_json::from_str(&output);
        object.map_err(|error| fault(format!("{program} printed no JSON object ({error}); its last words: {last}")))
    };
    match ended {
        None => Err(fault(format!("{program} was killed after {} s: it did not end in time", patience.as_secs()))),
        Some(Some(0)) => object(),
        Some(Some(INVALID_RUN)) => {
            let object = object()?;
            let has_reason = reasons(&object).next().is_some();
            let silent = format!("{program} calls its figures invalid (exit code 3), and does not say why: {last}");
            has_reason.then_some(object).ok_or_else(|| fault(silent))
        }
        Some(Some(USAGE)) => Err(Failure::Refused(format!("{program} refuses its arguments (exit code 2): {last}"))),
        Some(Some(code)) => Err(fault(format!("{program} ended with exit code {code}: {last}"))),
        Some(None) => Err(fault(format!("{program} was killed by a signal: {last}"))),
    }
}

/// Waits for the end. Its exit code; the outer `None` if it did not end in time and was killed.
fn wait(child: &mut Child, patience: Duration, stop: &AtomicBool) -> Option<Option<i32>> {
    let began = Instant::now();
    let mut asked: Option<Instant> = None;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status.code());
        }
        let is_stopped = stop.load(Ordering::Relaxed);
        if asked.is_none() && (is_stopped || began.elapsed() > patience) {
            // It ends its own processes when it is asked to.
            subprocess::interrupt(child);
            asked = Some(Instant::now());
        }
        if asked.is_some_and(|asked| asked.elapsed() > END_PATIENCE) {
            subprocess::kill(child);
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

/// A pipe that a thread reads.
struct Reading {
    bytes: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

impl Reading {
    /// Keeps so many bytes of the beginning. The rest is read too, so that the command is never held up by a full pipe.
    fn of(mut source: Option<impl Read + Send + 'static>, most: u64) -> Reading {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (end, ended) = channel();
        let kept = Arc::clone(&bytes);
        std::thread::spawn(move || {
            let mut part = [0; 1 << 16];
            let mut read = |part: &mut [u8]| source.as_mut().map_or(0, |source| source.read(part).unwrap_or(0));
            loop {
                let count = read(&mut part);
                if count == 0 {
                    break;
                }
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let room = (most as usize).saturating_sub(kept.len());
                kept.extend_from_slice(&part[..count.min(room)]);
            }
            let _ = end.send(());
        });
        Reading { bytes, ended }
    }

    /// All that came until the end of the pipe, or until now if somebody holds it open.
    fn end(self) -> String {
        let _ = self.ended.recv_timeout(PIPE_PATIENCE);
        String::from_utf8_lossy(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}
