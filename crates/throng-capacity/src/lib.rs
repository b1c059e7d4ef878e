//! How large a load does this machine hold? Loads of growing size are held until one exceeds a limit.
//!
//! ```text
//!  load file ------> Load: a command, and where its JSON has the samples of each limit
//!                      |
//!  Method::Search      v            one trial = one run of the command
//!  Method::Steps --> order ------> hold ------> Trial ------> throng_judge
//!     ^                                           |              |
//!     '-------------------------------------------'--------------'
//!                                                 v
//!             trials.jsonl and samples.jsonl, line by line; summary.json at the end
//! ```
//!
//! A load is any command that prints one JSON object, so one's own server is measured like those of this program: see
//! docs/capacity.md.
//!
//! ```
//! use throng_capacity::{Load, names};
//!
//! assert!(names().contains(&"ai"));
//! let load = Load::resolve("ai")?;
//! assert!(load.command.iter().any(|part| part.contains("{amount}")));
//! # Ok::<(), throng_capacity::LoadError>(())
//! ```

#![forbid(unsafe_code)]

mod figures;
mod hold;
mod load;
mod memory;
mod page;
mod pick;
mod progress;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use throng_judge::{
    CapacitySearch, Growth, HoldOptions, Holds, Left, Order, Outcome, SearchOptions, StepOptions, StepPressure, Trial,
    load_at_limits,
};
use throng_live::{Feed, Hello};
use throng_report::{LineFile, RunFile, duration};

pub use figures::{Capacity, LimitFigures, SAMPLES_FILE, TRIALS_FILE, TrialFigures};
pub use load::{Load, LoadError, names};
pub use memory::{MEMORY_FILE, MemoryFigures};
pub use page::page;

use figures::TrialSamples;
use hold::{Figures, Held};
use memory::Watched;
use progress::{Around, HoldProgress};

/// How loads are chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Method {
    /// Raising, narrowing and confirming, with bounds.
    Search(SearchOptions),
    /// The published steps.
    Steps(StepOptions),
    /// Given loads, for thresholds and for growth.
    Holds(HoldOptions),
    /// One load for long, while the memory of all processes is sampled.
    Soak(SoakOptions),
}

impl Method {
    fn name(&self) -> &'static str {
        match self {
            Method::Search(_) => "search",
            Method::Steps(_) => "steps",
            Method::Holds(_) => "holds",
            Method::Soak(_) => "soak",
        }
    }

    /// The loads that are given; the other methods choose theirs by themselves.
    fn given(&self) -> &[u32] {
        match self {
            Method::Holds(holds) => &holds.amounts,
            Method::Soak(soak) => std::slice::from_ref(&soak.amount),
            Method::Search(_) | Method::Steps(_) => &[],
        }
    }
}

/// A soak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SoakOptions {
    /// The load.
    pub amount: u32,
    /// It is held so long.
    pub hold: Duration,
    /// The memory of each process may grow in 24 hours by this share of it.
    pub growth_max: f64,
}

/// Settings of a measurement.
#[derive(Clone, Debug)]
pub struct CapacityOptions {
    /// The load.
    pub load: Load,
    /// How loads are chosen.
    pub method: Method,
    /// Parent folder of the run's folder.
    pub runs: PathBuf,
    /// The program of `{throng}`.
    pub program: PathBuf,
    /// Gets a line before and after each trial, and now and then in a long one if no bar is shown.
    pub note: fn(&str),
    /// Whether a bar is shown while a load is held, if there is a terminal.
    pub shows_progress: bool,
    /// Where a live page takes the trials as marks. The commands of the trials find it in [`throng_live::VARIABLE`].
    pub live: Option<SocketAddr>,
}

impl CapacityOptions {
    /// The question: answers to different ones are no series.
    fn question(&self) -> String {
        let Load { name, limits, added, .. } = &self.load;
        let mut given = self.method.given().to_vec();
        given.sort_unstable();
        given.dedup();
        let given: Vec<String> = given.iter().map(u32::to_string).collect();
        let of = if given.is_empty() { String::new() } else { format!(" of {}", given.join(" ")) };
        let limits: Vec<String> = limits.iter().map(|limit| format!("{} {}", limit.name, limit.at_most)).collect();
        let with = if added.is_empty() { String::new() } else { format!(", with {}", added.join(" ")) };
        format!("{name} by {}{of}, {}{with}", self.method.name(), limits.join(", "))
    }
}

/// Measures. Ends early, with what was measured until then, when `stop` is set.
///
/// # Errors
/// The folder cannot be written at the beginning, or the command refuses its arguments, which it would do again. Later, files
/// that cannot be written are named in the answer. Any other command that fails is no error: its trials are invalid, and the
/// answer says so.
pub fn measure(options: &CapacityOptions, stop: &AtomicBool) -> Result<(Capacity, PathBuf)> {
    let began = (Instant::now(), SystemTime::now());
    let folder = throng_report::new_folder(&options.runs, began.1, "capacity")?;
    let mut trials = TrialLog::create(&folder)?;
    let mut search = Course::new(&options.method);
    let mut hold_all = || hold_all(options, stop, &mut search, &mut trials);
    let (refused, watched) = match options.method {
        Method::Soak(SoakOptions { hold, growth_max, .. }) => memory::watch(&folder, hold, growth_max, hold_all)?,
        _ => (hold_all(), Watched::default()),
    };
    let outcome = search.outcome();
    let is_stopped = stop.load(Ordering::Relaxed);
    let cut_off = refused.as_deref().or(is_stopped.then_some("interrupted: these are the trials so far"));
    let mut capacity =
        Capacity::new(options, (&outcome, search.estimate(), &search.growth()), trials.figures, began, cut_off);
    capacity.take_memory(watched.memory);
    let missing = [trials.lines.missing(), trials.samples.missing(), watched.missing];
    capacity.head.missing.extend(missing.into_iter().flatten());
    capacity.conclude();
    if let Err(error) = RunFile::write(&folder, &capacity) {
        capacity.head.missing.push(error.to_string());
    }
    match refused {
        Some(words) => bail!("{words}; the trials before it are in {}", folder.display()),
        None => Ok((capacity, folder)),
    }
}

/// Says what happens: to the person who measures, and to a live page.
struct Told {
    note: fn(&str),
    feed: Option<Feed>,
}

impl Told {
    fn begin(options: &CapacityOptions) -> Told {
        let workload = format!("capacity of {}", options.load.name);
        let hello = Hello { workload, unit: options.load.unit.clone(), ..Hello::default() };
        let feed = options.live.map(|address| Feed::connect(address, hello)).transpose();
        Told { note: options.note, feed: feed.inspect_err(|error| (options.note)(&error.to_string())).ok().flatten() }
    }

    fn say(&mut self, line: &str) {
        (self.note)(line);
        if let Some(feed) = &mut self.feed {
            feed.mark(line.trim());
        }
    }
}

/// Holds all loads that the course orders. Ends early with the words of a command that refuses its arguments.
fn hold_all(
    options: &CapacityOptions,
    stop: &AtomicBool,
    search: &mut Course,
    trials: &mut TrialLog,
) -> Option<String> {
    let (mut told, mut around) = (Told::begin(options), Around::default());
    while let Some(order) = search.poll_trial().filter(|_| !stop.load(Ordering::Relaxed)) {
        let number = trials.figures.len() + 1;
        let (unit, seconds) = (&options.load.unit, order.hold.as_secs_f64());
        let purpose = order.purpose.name();
        let (left, amount) = (search.left(), order.amount);
        let time = duration(around.left(left));
        told.say(&format!("trial {number}: {amount} {unit} for {seconds} s ({purpose}); about {time} left"));
        let progress = HoldProgress::new(options, order, around, left);
        let held = hold::hold(options, order, stop, |time| progress.show(time));
        drop(progress);
        let (trial, figures) = match held {
            Held::Tried(trial, figures) => (trial, figures),
            Held::Refused(words) => return Some(words),
            Held::Stopped(trial, figures) => {
                // The answer does not count it, but what was measured is not thrown away.
                trials.push(&options.load, order, &trial, &figures);
                return None;
            }
        };
        around.take(figures.wall, order.hold);
        let trial = search.handle_trial(trial);
        told.say(&figures::line(&options.load, &trial));
        trials.push(&options.load, order, &trial, &figures);
    }
    None
}

/// A search by one of the methods.
enum Course {
    Search(CapacitySearch),
    Steps(StepPressure),
    Holds(Holds),
}

impl Course {
    fn new(method: &Method) -> Course {
        match method.clone() {
            Method::Search(options) => Course::Search(CapacitySearch::new(options)),
            Method::Steps(options) => Course::Steps(StepPressure::new(options)),
            Method::Holds(options) => Course::Holds(Holds::new(options)),
            Method::Soak(SoakOptions { amount, hold, .. }) => {
                Course::Holds(Holds::new(HoldOptions { amounts: vec![amount], repeats: 1, hold }).without_repeats())
            }
        }
    }

    fn poll_trial(&self) -> Option<Order> {
        match self {
            Course::Search(search) => search.poll_trial(),
            Course::Steps(steps) => steps.poll_trial(),
            Course::Holds(holds) => holds.poll_trial(),
        }
    }

    fn handle_trial(&mut self, trial: Trial) -> Trial {
        match self {
            Course::Search(search) => search.handle_trial(trial),
            Course::Steps(steps) => steps.handle_trial(trial),
            Course::Holds(holds) => holds.handle_trial(trial),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Course::Search(search) => search.outcome(),
            Course::Steps(steps) => steps.outcome(),
            Course::Holds(holds) => holds.outcome(),
        }
    }

    fn left(&self) -> Left {
        match self {
            Course::Search(search) => search.left(),
            Course::Steps(steps) => steps.left(),
            Course::Holds(holds) => holds.left(),
        }
    }

    fn estimate(&self) -> Option<f64> {
        match self {
            Course::Search(search) => load_at_limits(search.trials()),
            Course::Steps(steps) => load_at_limits(steps.trials()),
            Course::Holds(_) => None,
        }
    }

    fn growth(&self) -> Vec<Growth> {
        match self {
            Course::Holds(holds) => holds.growth(),
            Course::Search(_) | Course::Steps(_) => Vec::new(),
        }
    }
}

/// The trials so far and their samples, in files that grow by a line for each: a measurement that is cut off leaves them.
struct TrialLog {
    lines: LineFile,
    samples: LineFile,
    figures: Vec<TrialFigures>,
}

impl TrialLog {
    fn create(folder: &Path) -> Result<TrialLog> {
        let (lines, samples) = (LineFile::create(folder, TRIALS_FILE)?, LineFile::create(folder, SAMPLES_FILE)?);
        Ok(TrialLog { lines, samples, figures: Vec::new() })
    }

    fn push(&mut self, load: &Load, order: Order, trial: &Trial, of: &Figures) {
        let figures = TrialFigures::new(load, order, trial, of);
        self.lines.push(&figures);
        self.figures.push(figures);
        self.samples.push(&TrialSamples { trial: self.figures.len(), amount: order.amount, limits: &of.samples });
    }
}

#[cfg(test)]
mod tests;
