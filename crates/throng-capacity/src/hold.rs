//! One trial: the command of a load runs once, and its JSON is judged.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use throng_judge::{Order, STEP_SAMPLES, Trial};
use throng_machine::bounded::{Cut, Finished, Limits, Running, printable};
use throng_machine::{TemporaryFolder, Throttled};

use super::figures::LimitSamples;
use super::{CapacityOptions, Load, Method};

/// A command's JSON is at most so long.
const OUTPUT_MAX: u64 = 64 << 20;
/// A command that was asked to end has so long. A test waits for its end.
const END_PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });
/// The exit code of a run whose figures are invalid: its JSON says why.
const INVALID_RUN: i32 = 3;
/// The exit code of a command that refuses its arguments. It would refuse them again.
const USAGE: i32 = 2;

/// A command may end so much before its hold is over: clocks and rounded seconds.
const EARLY: Duration = Duration::from_secs(1);

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
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) cores: Option<f64>,
    /// Physical cores that these are threads of, where the machine tells.
    pub(super) physical_cores: Option<f64>,
    pub(super) memory_bytes: Option<f64>,
    /// Of the command as a whole.
    pub(super) wall: Duration,
    /// All samples of each limit that the command printed, also of a trial that says nothing and of the time before it was steady.
    pub(super) samples: Vec<LimitSamples>,
}

impl Figures {
    fn of(load: &Load, printed: &Value, wall: Duration) -> Figures {
        Figures {
            cores: load.cores(printed),
            physical_cores: load.physical_cores(printed),
            memory_bytes: load.memory_bytes(printed),
            wall,
            samples: load.judge_those_there(printed).iter().map(LimitSamples::of).collect(),
        }
    }
}

/// Holds a load. `each_look` gets the time so far.
pub(super) fn hold(
    options: &CapacityOptions,
    order: Order,
    stop: &AtomicBool,
    each_look: impl FnMut(Duration),
) -> Held {
    let (began, before) = (Instant::now(), throng_machine::throttled());
    let printed = run(options, order, stop, each_look);
    let throttled = before.zip(throng_machine::throttled()).map(|(before, now)| now.since(before));
    let wall = began.elapsed();
    if stop.load(Ordering::Relaxed) {
        return stopped(options, order, printed, wall);
    }
    let invalid = |why: &str| Trial::invalid(order.amount, wall.min(order.hold), why);
    let value = match printed {
        Ok(value) => value,
        Err(Failure::Refused(words)) => return Held::Refused(words),
        Err(Failure::Fault(why)) => return Held::Tried(invalid(&why), Figures { wall, ..Figures::default() }),
    };
    let figures = Figures::of(&options.load, &value, wall);
    // The command's own reason first: it may be why the command ended early.
    if let Some(fault) = fault(&options.load, &value, throttled.unwrap_or_default(), order.hold) {
        return Held::Tried(invalid(&fault), figures);
    }
    if !options.load.simulated && wall + EARLY < order.hold {
        let (seconds, hold) = (wall.as_secs_f64(), order.hold.as_secs_f64());
        return Held::Tried(invalid(&format!("the command ended after {seconds:.1} s of {hold:.0} s")), figures);
    }
    let judged = options.load.judge(&value);
    let trial = judged.map_or_else(|why| invalid(&why), |judged| Trial::new(order.amount, order.hold, judged));
    // The published method counts its newest samples, whatever was before.
    let is_published = matches!(options.method, Method::Steps(_));
    let counted = |trial: Trial| trial.with_steadiness().newest(STEP_SAMPLES);
    Held::Tried(if is_published { counted(trial) } else { trial.steady() }, figures)
}

/// A trial that was cut off. A command that prints its figures when it is interrupted has in it the limits whose
/// samples it printed.
fn stopped(options: &CapacityOptions, order: Order, printed: Result<Value, Failure>, wall: Duration) -> Held {
    let value = printed.unwrap_or(Value::Null);
    let figures = Figures::of(&options.load, &value, wall);
    let held = wall.min(order.hold);
    let judged = options.load.judge_those_there(&value);
    let fault = format!("interrupted after {:.0} s", wall.as_secs_f64());
    Held::Stopped(Trial { fault: Some(fault), ..Trial::new(order.amount, held, judged) }, figures)
}

/// The first reason for which the command itself calls its figures invalid, or that the system has stopped it for a share of the hold
/// that tells in the figures.
pub(super) fn fault(load: &Load, value: &Value, throttled: Throttled, hold: Duration) -> Option<String> {
    let throttled = throng_report::throttled(throttled, hold);
    let is_fault = |reason: &&str| !load.no_faults.iter().any(|part| reason.contains(part));
    reasons(value).chain(throttled.as_deref()).filter(is_fault).map(printable).next()
}

fn reasons(value: &Value) -> impl Iterator<Item = &str> {
    let reasons = value.get("invalid_reasons").and_then(Value::as_array);
    reasons.into_iter().flatten().filter_map(Value::as_str)
}

fn run(
    options: &CapacityOptions,
    order: Order,
    stop: &AtomicBool,
    each_look: impl FnMut(Duration),
) -> Result<Value, Failure> {
    let fault = |words: String| Failure::Fault(words);
    let folder = TemporaryFolder::new().map_err(|error| fault(format!("cannot make a temporary folder: {error}")))?;
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
    command.args(arguments);
    if let Some(live) = options.live {
        command.env(throng_live::VARIABLE, live.to_string());
    }
    let running = Running::start(&mut command).map_err(|error| fault(format!("cannot start {program}: {error}")))?;
    let patience = order.hold + Duration::from_secs(options.load.around_seconds.into());
    // A server may write its log there for a day.
    let limits = Limits { patience, grace: END_PATIENCE, output_max: OUTPUT_MAX, errors_max: u64::MAX };
    let Finished { cut, status, output, last_words: last } = running.wait(&limits, stop, each_look);
    match cut {
        Some(Cut::TooMuch) => return Err(fault(format!("{program} printed more than {} MB", OUTPUT_MAX >> 20))),
        Some(Cut::Late) => {
            let late = format!("{program} was ended after {} s: it did not end in time", patience.as_secs());
            return Err(fault(late));
        }
        // Its output up to then is the part that was measured.
        Some(Cut::Stopped) | None => {}
    }
    let object = || -> Result<Value, Failure> {
        let object = serde_json::from_str(&output);
        object.map_err(|error| fault(format!("{program} printed no JSON object ({error}); its last words: {last}")))
    };
    match status.map(|status| status.code()) {
        None => Err(fault(format!("{program} was killed: it did not end when it was asked to"))),
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
