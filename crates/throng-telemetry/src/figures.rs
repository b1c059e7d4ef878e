//! Sums and distributions over frames, and what a reader gets of them.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;

use throng_meter::{Histogram, Percentiles, Subsystem, Subsystems};

use crate::recorder::{FrameTimes, Phase};
use crate::{FrameBudgets, Measuring};

/// Most phases that have figures of their own; frames of later ones count in all other figures.
pub const PHASES_MAX: usize = 16;

/// The newest breaches that a snapshot holds.
pub const BREACHES_KEPT: usize = 64;

/// Upper bounds of the buckets of Prometheus histograms, in nanoseconds: 1 µs to a frame of 64 Hz and two that are late.
pub(crate) const BOUNDS_NS: [u64; 15] = [
    1_000,
    3_000,
    10_000,
    30_000,
    100_000,
    200_000,
    400_000,
    800_000,
    1_600_000,
    2_340_000,
    4_000_000,
    7_812_500,
    15_625_000,
    31_250_000,
    125_000_000,
];

/// Why a frame or a subsystem took longer than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// We were slow: it is over its limit without the time in which the thread did not run.
    Slow,
    /// We were not running: without the time in which the thread did not run, it could be within its limit.
    NotRunning,
}

impl Cause {
    pub(crate) const ALL: [Cause; 2] = [Cause::Slow, Cause::NotRunning];

    pub(crate) fn of(spent_ns: u64, limit_ns: u64, not_running_ns: Option<u64>) -> Cause {
        let ran_ns = spent_ns.saturating_sub(not_running_ns.unwrap_or(0));
        if ran_ns > limit_ns { Cause::Slow } else { Cause::NotRunning }
    }

    /// A stable name: `slow` or `not_running`.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Slow => "slow",
            Cause::NotRunning => "not_running",
        }
    }
}

/// A frame in which a budget was exceeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The recorder, usually a match.
    pub recorder: String,
    /// The subsystem; `frame` for the whole frame.
    pub subsystem: String,
    /// The phase of the match.
    pub phase: Phase,
    /// The tick.
    pub tick: u64,
    /// Time taken, in nanoseconds.
    pub spent_ns: u64,
    /// The budget, in nanoseconds.
    pub budget_ns: u64,
    /// Whether the time was work.
    pub cause: Cause,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| ns as f64 / 1e6;
        write!(
            f,
            "{}, phase {}, tick {}: {} took {:.3} ms of {:.3} ms",
            self.recorder,
            self.phase.name(),
            self.tick,
            self.subsystem,
            ms(self.spent_ns),
            ms(self.budget_ns)
        )?;
        match self.cause {
            Cause::Slow => Ok(()),
            Cause::NotRunning => write!(f, " (the thread did not run for a part of it)"),
        }
    }
}

/// All figures at one moment, over all recorders, since the start or the last
/// [`reset_figures`](crate::Telemetry::reset_figures).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Frames recorded.
    pub frames: u64,
    /// Frames that are in no figure and no file, because the collector did not come for them in time.
    pub lost_frames: u64,
    /// Wall time of frames, in nanoseconds.
    pub frame_ns: Percentiles,
    /// Processor time of frames, in nanoseconds; no values where the system does not tell it.
    pub cpu_ns: Percentiles,
    /// How late frames began, in nanoseconds.
    pub late_ns: Percentiles,
    /// Time in which threads did not run during frames, in nanoseconds.
    pub not_running_ns: u64,
    /// Slow frames by work.
    pub slow_frames: u64,
    /// Slow frames that would not be slow if the thread had run all the time.
    pub not_running_frames: u64,
    /// The budget of a whole frame, in nanoseconds.
    pub frame_budget_ns: Option<u64>,
    /// Frames over that budget.
    pub frame_breaches: u64,
    /// Every subsystem that ran or has a budget, in the order of the table.
    pub subsystems: Vec<SubsystemFigures>,
    /// Every phase, in the order in which they came.
    pub phases: Vec<PhaseFigures>,
    /// The recorders that have not ended, by the time they were made.
    pub recorders: Vec<RecorderFigures>,
    /// The newest breaches, oldest first.
    pub breaches: Vec<Breach>,
    /// Files that the flight recorder has written and kept, oldest first.
    pub dumps: Vec<PathBuf>,
    /// Slow frames for which the flight recorder wrote no file, because it had tried to write one shortly before.
    pub dumps_suppressed: u64,
    /// Writing failed so often.
    pub write_errors: u64,
    /// Why writing failed last.
    pub last_write_error: Option<String>,
    /// The time of measuring itself.
    pub measuring: Measuring,
}

/// The values behind some figures of a [`Snapshot`]: nanoseconds in rising order, each with how often. Those of several
/// processes, recorded into one [`Histogram`], give the percentiles of all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distributions {
    /// Of [`Snapshot::frame_ns`].
    pub frame_ns: Vec<(u64, u64)>,
    /// Of [`Snapshot::late_ns`].
    pub late_ns: Vec<(u64, u64)>,
    /// Of [`Snapshot::subsystems`], by name.
    pub subsystems: Vec<(String, Vec<(u64, u64)>)>,
    /// Of [`Snapshot::phases`].
    pub phases: Vec<(Phase, Vec<(u64, u64)>)>,
}

/// One subsystem, over all frames. A frame in which it did not run counts as 0.
#[derive(Clone, Debug, PartialEq)]
pub struct SubsystemFigures {
    /// The subsystem.
    pub subsystem: Subsystem,
    /// Its name.
    pub name: String,
    /// Exclusive wall time in a frame, in nanoseconds.
    pub frame_ns: Percentiles,
    /// Its budget, in nanoseconds.
    pub budget_ns: Option<u64>,
    /// Frames over that budget.
    pub breaches: u64,
}

/// The frames of one phase.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseFigures {
    /// The phase.
    pub phase: Phase,
    /// Frames.
    pub frames: u64,
    /// Mean wall time of a frame, in nanoseconds.
    pub mean_frame_ns: f64,
    /// Wall time of frames, in nanoseconds.
    pub frame_ns: Percentiles,
    /// Mean time in a frame of each of [`Snapshot::subsystems`], in nanoseconds.
    pub mean_ns: Vec<f64>,
}

/// One recorder.
#[derive(Clone, Debug, PartialEq)]
pub struct RecorderFigures {
    /// Its name.
    pub name: String,
    /// Frames recorded.
    pub frames: u64,
    /// Its newest frame.
    pub last: Option<FrameTimes>,
    /// The mean wall time of its frames, in nanoseconds.
    pub mean_frame_ns: f64,
    /// Its longest frame, in nanoseconds.
    pub max_frame_ns: u64,
}

/// The sums of one recorder.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecorderSums {
    pub(crate) frames: u64,
    pub(crate) last: Option<FrameTimes>,
    pub(crate) sum_ns: u64,
    pub(crate) max_ns: u64,
}

/// Values in the buckets of Prometheus, besides their percentiles.
#[derive(Debug, Default)]
pub(crate) struct Distribution {
    pub(crate) histogram: Histogram,
    /// Values up to each of [`BOUNDS_NS`] and above the bound before.
    pub(crate) buckets: [u64; BOUNDS_NS.len()],
}

impl Distribution {
    fn record(&mut self, ns: u64) {
        self.histogram.record(ns);
        if let Some(count) = self.buckets.get_mut(BOUNDS_NS.partition_point(|&bound| bound < ns)) {
            *count += 1;
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct SubsystemSums {
    /// Frames in which it ran. Made when it first does: it is large.
    pub(crate) time: Option<Box<Distribution>>,
    /// Breaches in each of the phases, frames of other phases last.
    pub(crate) breaches: [u64; PHASES_MAX + 1],
}

#[derive(Debug)]
struct PhaseSums {
    phase: Phase,
    frames: u64,
    frame_ns: u64,
    frame: Histogram,
    parts_ns: Vec<u64>,
}

/// The sums of all recorders.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) frames: u64,
    pub(crate) lost_frames: u64,
    /// Spans of all frames.
    pub(crate) spans: u64,
    /// Processor time of the collector; `None` where the system does not tell it.
    pub(crate) collector_ns: Option<u64>,
    pub(crate) frame: Distribution,
    pub(crate) cpu: Histogram,
    pub(crate) late: Distribution,
    pub(crate) not_running_ns: u64,
    /// Slow frames, by [`Cause`].
    pub(crate) slow_frames: [u64; Cause::ALL.len()],
    pub(crate) frame_breaches: u64,
    pub(crate) subsystems: Vec<SubsystemSums>,
    phases: Vec<PhaseSums>,
    breaches: VecDeque<Breach>,
}

impl Figures {
    pub(crate) fn new(subsystems: &Subsystems) -> Figures {
        Figures {
            frames: 0,
            lost_frames: 0,
            spans: 0,
            collector_ns: None,
            frame: Distribution::default(),
            cpu: Histogram::new(),
            late: Distribution::default(),
            not_running_ns: 0,
            slow_frames: [0; Cause::ALL.len()],
            frame_breaches: 0,
            subsystems: (0..subsystems.count()).map(|_| SubsystemSums::default()).collect(),
            phases: Vec::with_capacity(PHASES_MAX),
            breaches: VecDeque::with_capacity(BREACHES_KEPT),
        }
    }

    /// Adds a frame. Returns why it is slow, if it is.
    pub(crate) fn add(
        &mut self,
        (recorder, frame): (&str, &FrameTimes),
        parts_ns: &[u64],
        (subsystems, budgets): (&Subsystems, &FrameBudgets),
    ) -> Option<Cause> {
        self.frames += 1;
        self.frame.record(frame.wall_ns);
        self.late.record(frame.late_ns);
        if let Some(cpu_ns) = frame.cpu_ns {
            self.cpu.record(cpu_ns);
        }
        let not_running_ns = frame.not_running_ns();
        self.not_running_ns += not_running_ns.unwrap_or(0);
        let phase = self.add_to_phase(frame, parts_ns);
        for subsystem in subsystems.iter() {
            let spent_ns = parts_ns[subsystem.index()];
            let sums = &mut self.subsystems[subsystem.index()];
            if spent_ns > 0 {
                sums.time.get_or_insert_default().record(spent_ns);
            }
            if let Some(budget_ns) = budgets.subsystems.exceeded_by(subsystem, spent_ns) {
                sums.breaches[phase] += 1;
                self.note_breach((recorder, subsystems.name(subsystem)), frame, (spent_ns, budget_ns));
            }
        }
        if let Some(budget_ns) = budgets.frame_ns.filter(|&budget_ns| frame.wall_ns > budget_ns) {
            self.frame_breaches += 1;
            self.note_breach((recorder, "frame"), frame, (frame.wall_ns, budget_ns));
        }
        let slow_ns = budgets.slow_ns().filter(|&slow_ns| frame.wall_ns > slow_ns)?;
        let cause = Cause::of(frame.wall_ns, slow_ns, not_running_ns);
        self.slow_frames[cause as usize] += 1;
        Some(cause)
    }

    fn note_breach(&mut self, (recorder, subsystem): (&str, &str), frame: &FrameTimes, (spent, budget): (u64, u64)) {
        if self.breaches.len() == BREACHES_KEPT {
            self.breaches.pop_front();
        }
        self.breaches.push_back(Breach {
            recorder: recorder.to_owned(),
            subsystem: subsystem.to_owned(),
            phase: frame.phase,
            tick: frame.tick,
            spent_ns: spent,
            budget_ns: budget,
            cause: Cause::of(spent, budget, frame.not_running_ns()),
        });
    }

    /// Returns the phase's place; [`PHASES_MAX`] for a phase that has none.
    fn add_to_phase(&mut self, frame: &FrameTimes, parts_ns: &[u64]) -> usize {
        let known = self.phases.iter().position(|sums| sums.phase == frame.phase);
        let place = known.unwrap_or(self.phases.len());
        if place == PHASES_MAX {
            return place;
        }
        if known.is_none() {
            let parts_ns = vec![0; parts_ns.len()];
            let (phase, histogram) = (frame.phase, Histogram::new());
            self.phases.push(PhaseSums { phase, frames: 0, frame_ns: 0, frame: histogram, parts_ns });
        }
        let sums = &mut self.phases[place];
        sums.frames += 1;
        sums.frame_ns += frame.wall_ns;
        sums.frame.record(frame.wall_ns);
        sums.parts_ns.iter_mut().zip(parts_ns).for_each(|(sum_ns, ns)| *sum_ns += ns);
        place
    }

    /// The name of a phase's place.
    pub(crate) fn phase_name(&self, place: usize) -> &'static str {
        self.phases.get(place).map_or("others", |sums| sums.phase.name())
    }

    /// The distributions behind the figures.
    pub(crate) fn distributions(&self, subsystems: &Subsystems, budgets: &FrameBudgets) -> Distributions {
        let values = |of: &Histogram| of.values().collect::<Vec<_>>();
        let of = |subsystem: Subsystem| {
            let time = self.subsystems[subsystem.index()].time.as_ref();
            let ran = time.map_or(0, |time| time.histogram.len());
            let mut all = vec![(0, self.frames - ran)];
            all.extend(time.iter().flat_map(|time| time.histogram.values()));
            (subsystems.name(subsystem).to_owned(), all)
        };
        let is_shown = |subsystem: &Subsystem| {
            self.subsystems[subsystem.index()].time.is_some() || budgets.subsystems.limit_ns(*subsystem).is_some()
        };
        Distributions {
            frame_ns: values(&self.frame.histogram),
            late_ns: values(&self.late.histogram),
            subsystems: subsystems.iter().filter(is_shown).map(of).collect(),
            phases: self.phases.iter().map(|sums| (sums.phase, values(&sums.frame))).collect(),
        }
    }

    /// The figures of frames and subsystems; recorders and files are the caller's.
    pub(crate) fn snapshot(&self, subsystems: &Subsystems, budgets: &FrameBudgets) -> Snapshot {
        let ran = |subsystem: Subsystem| self.subsystems[subsystem.index()].time.is_some();
        let shown: Vec<Subsystem> = subsystems
            .iter()
            .filter(|&subsystem| ran(subsystem) || budgets.subsystems.limit_ns(subsystem).is_some())
            .collect();
        let of = |&subsystem: &Subsystem| self.subsystem(subsystem, (subsystems, budgets));
        let phase = |sums: &PhaseSums| PhaseFigures {
            phase: sums.phase,
            frames: sums.frames,
            mean_frame_ns: sums.frame_ns as f64 / sums.frames as f64,
            frame_ns: sums.frame.percentiles(),
            mean_ns: shown.iter().map(|part| sums.parts_ns[part.index()] as f64 / sums.frames as f64).collect(),
        };
        let [slow_frames, not_running_frames] = self.slow_frames;
        Snapshot {
            frames: self.frames,
            lost_frames: self.lost_frames,
            frame_ns: self.frame.histogram.percentiles(),
            cpu_ns: self.cpu.percentiles(),
            late_ns: self.late.histogram.percentiles(),
            not_running_ns: self.not_running_ns,
            slow_frames,
            not_running_frames,
            frame_budget_ns: budgets.frame_ns,
            frame_breaches: self.frame_breaches,
            subsystems: shown.iter().map(of).collect(),
            phases: self.phases.iter().map(phase).collect(),
            breaches: self.breaches.iter().cloned().collect(),
            ..Snapshot::default()
        }
    }

    fn subsystem(&self, subsystem: Subsystem, (names, budgets): (&Subsystems, &FrameBudgets)) -> SubsystemFigures {
        let sums = &self.subsystems[subsystem.index()];
        let mut all = sums.time.as_ref().map(|time| time.histogram.clone()).unwrap_or_default();
        all.record_many(0, self.frames - all.len());
        SubsystemFigures {
            subsystem,
            name: names.name(subsystem).to_owned(),
            frame_ns: all.percentiles(),
            budget_ns: budgets.subsystems.limit_ns(subsystem),
            breaches: sums.breaches.iter().sum(),
        }
    }
}
