//! One held load, and whether it kept its limits.

use std::time::Duration;

use crate::stats::{Block, Estimate, level_estimate, share_estimate};
use crate::steady::Steadiness;

/// A level that never changes is believed from so many readings on.
const FLAT_SAMPLES_MIN: usize = 8;

/// An answer that measurements give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The limits hold, with a probability of 95 % each.
    Accepted,
    /// A limit does not hold, with a probability of 95 %.
    Rejected,
    /// Too little was measured for either.
    Undecided,
}

impl Verdict {
    /// Its word in figures and tables.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Accepted => "accepted",
            Verdict::Rejected => "rejected",
            Verdict::Undecided => "undecided",
        }
    }
}

/// A limit that a load must keep.
#[derive(Clone, Debug, PartialEq)]
pub struct Criterion {
    /// Its name, as "processor".
    pub name: String,
    /// The largest value that is allowed, in the unit of the samples. Of a percentile it is the share of events that may be
    /// over the limit: "p99 at most 2.34 ms" is a share of 0.01 of frames that take longer.
    pub limit: f64,
}

/// The measurements of a criterion during a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum Samples {
    /// Events over a limit, by stretches of time.
    Share(Vec<Block>),
    /// A level, read at equal intervals, as the share of the processor that was busy.
    Level(Vec<f64>),
}

impl Samples {
    /// The value with its bounds. Fewer than eight readings of a level that are all the same tell nothing about the bounds: a
    /// load may simply print one number.
    pub fn estimate(&self) -> Estimate {
        match self {
            Samples::Share(blocks) => share_estimate(blocks),
            Samples::Level(samples) => {
                let estimate = level_estimate(samples);
                match samples.len() < FLAT_SAMPLES_MIN && estimate.low == estimate.high {
                    true => Estimate { value: estimate.value, ..Estimate::UNKNOWN },
                    false => estimate,
                }
            }
        }
    }

    /// The newest samples: at most so many, of all that there are.
    fn newest(&self, count: usize) -> Samples {
        match self {
            Samples::Share(blocks) => Samples::Share(blocks[blocks.len().saturating_sub(count)..].to_vec()),
            Samples::Level(samples) => Samples::Level(samples[samples.len().saturating_sub(count)..].to_vec()),
        }
    }

    /// From when on they are steady, if they are in the order of their time.
    fn steadiness(&self) -> Steadiness {
        match self {
            Samples::Level(samples) => Steadiness::of(samples),
            Samples::Share(blocks) => {
                let shares = blocks.iter().map(|block| block.over as f64 / (block.of as f64).max(1.0));
                Steadiness::of(&shares.collect::<Vec<f64>>())
            }
        }
    }

    /// Without this share of them at the beginning.
    fn without_first(self, share: f64) -> Samples {
        let from = |count: usize| (share * count as f64).round() as usize;
        match self {
            Samples::Share(mut blocks) => Samples::Share(blocks.split_off(from(blocks.len()).min(blocks.len()))),
            Samples::Level(mut samples) => Samples::Level(samples.split_off(from(samples.len()).min(samples.len()))),
        }
    }

    /// The same kind without any.
    fn emptied(&self) -> Samples {
        match self {
            Samples::Share(_) => Samples::Share(Vec::new()),
            Samples::Level(_) => Samples::Level(Vec::new()),
        }
    }

    fn append(&mut self, other: Samples) {
        match (self, other) {
            (Samples::Share(blocks), Samples::Share(more)) => blocks.extend(more),
            (Samples::Level(samples), Samples::Level(more)) => samples.extend(more),
            // A criterion whose kind changes is another one; the newest counts.
            (this, other) => *this = other,
        }
    }
}

/// A criterion with its samples and its verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The limit.
    pub criterion: Criterion,
    /// The measurements; none of a trial that a search has settled.
    pub samples: Samples,
    /// The value with its bounds.
    pub estimate: Estimate,
    /// Whether the limit holds.
    pub verdict: Verdict,
}

impl Criterion {
    /// A limit by name.
    pub fn new(name: &str, limit: f64) -> Criterion {
        Criterion { name: name.to_owned(), limit }
    }

    /// Judges samples.
    pub fn judge(self, samples: Samples) -> Judged {
        let estimate = samples.estimate();
        let verdict = match () {
            () if estimate.high <= self.limit => Verdict::Accepted,
            () if estimate.low > self.limit => Verdict::Rejected,
            () => Verdict::Undecided,
        };
        Judged { criterion: self, samples, estimate, verdict }
    }
}

impl Judged {
    /// The measured value as a share of the limit; `None` without a value or a positive limit.
    pub fn used(&self) -> Option<f64> {
        (self.criterion.limit > 0.0 && self.estimate.value.is_finite())
            .then(|| self.estimate.value / self.criterion.limit)
    }

    /// Whether the measured value keeps the limit, without regard to its bounds.
    pub(crate) fn keeps_by_value(&self) -> bool {
        self.estimate.value <= self.criterion.limit
    }

    /// Whether the measured value exceeds the limit, without regard to its bounds. Without a value it does neither.
    pub(crate) fn exceeds_by_value(&self) -> bool {
        self.estimate.value > self.criterion.limit
    }
}

/// One held load.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The load, as a number of matches or players.
    pub amount: u32,
    /// The time that was measured, without the warm-up.
    pub held: Duration,
    /// The criteria.
    pub judged: Vec<Judged>,
    /// Why the trial tells nothing about the server, as a load generator that was too slow. Then it is invalid, not failed.
    pub fault: Option<String>,
    /// From when on it was steady. Unknown until [`Trial::steady`] has looked.
    pub steadiness: Steadiness,
}

impl Trial {
    /// A trial without fault.
    pub fn new(amount: u32, held: Duration, judged: Vec<Judged>) -> Trial {
        Trial { amount, held, judged, fault: None, steadiness: Steadiness::Unknown }
    }

    /// A trial that tells nothing about the server.
    pub fn invalid(amount: u32, held: Duration, why: &str) -> Trial {
        Trial { fault: Some(why.to_owned()), ..Trial::new(amount, held, Vec::new()) }
    }

    /// This trial, with the steadiness of its samples. They have to be in the order of their time.
    pub fn with_steadiness(mut self) -> Trial {
        let all = self.judged.iter().map(|judged| judged.samples.steadiness());
        self.steadiness = all.fold(Steadiness::Unknown, Steadiness::and);
        self
    }

    /// This trial, judged by the steady part of its samples alone: all limits from the same moment on. Without a steady part,
    /// the second half counts.
    pub fn steady(self) -> Trial {
        let mut trial = self.with_steadiness();
        let left_out = trial.steadiness.left_out();
        if left_out > 0.0 {
            for judged in &mut trial.judged {
                let samples = std::mem::replace(&mut judged.samples, Samples::Level(Vec::new()));
                *judged = judged.criterion.clone().judge(samples.without_first(left_out));
            }
        }
        trial
    }

    /// This trial, judged by the newest samples alone: so many of each limit.
    pub fn newest(mut self, count: usize) -> Trial {
        for judged in &mut self.judged {
            *judged = judged.criterion.clone().judge(judged.samples.newest(count));
        }
        self
    }

    /// Forgets the samples, and keeps what they said: a search that goes on for days holds no more than that of its trials.
    pub(crate) fn without_samples(mut self) -> Trial {
        for judged in &mut self.judged {
            judged.samples = judged.samples.emptied();
        }
        self
    }

    /// Accepted if all criteria are, rejected if one is. A trial without criteria is undecided.
    pub fn verdict(&self) -> Verdict {
        let has = |verdict: Verdict| self.judged.iter().any(|judged| judged.verdict == verdict);
        match () {
            () if self.fault.is_some() || self.judged.is_empty() => Verdict::Undecided,
            () if has(Verdict::Rejected) => Verdict::Rejected,
            () if has(Verdict::Undecided) => Verdict::Undecided,
            () => Verdict::Accepted,
        }
    }

    /// Whether it is open only because nothing exceeded a limit that is rarely exceeded: a larger load has more events in the same
    /// time, and may be sure.
    pub(crate) fn saw_too_little(&self) -> bool {
        let is_none = |judged: &&Judged| matches!(judged.samples, Samples::Share(_)) && judged.estimate.value == 0.0;
        let mut open = self.judged.iter().filter(|judged| judged.verdict == Verdict::Undecided).peekable();
        self.verdict() == Verdict::Undecided && open.peek().is_some() && open.all(|judged| is_none(&judged))
    }

    /// Whether the measured values keep all limits, without regard to their bounds.
    pub fn keeps_by_value(&self) -> bool {
        self.fault.is_none() && !self.judged.is_empty() && self.judged.iter().all(Judged::keeps_by_value)
    }

    /// The name of a criterion whose samples give no value, as a share of no events, if that leaves it open whether all limits
    /// are kept: no other one is exceeded.
    pub(crate) fn without_value(&self) -> Option<&str> {
        if self.judged.iter().any(Judged::exceeds_by_value) {
            return None;
        }
        let judged = self.judged.iter().find(|judged| judged.estimate.value.is_nan())?;
        Some(&judged.criterion.name)
    }

    /// The name of the criterion that is beyond its limit, and the farthest: a level before a share, because shares of events
    /// follow from levels.
    pub(crate) fn limit(&self, is_beyond: impl Fn(&Judged) -> bool) -> Option<String> {
        let farthest = |is_level: bool| {
            let all = self.judged.iter().filter(|judged| is_beyond(judged));
            let all = all.filter(|judged| matches!(judged.samples, Samples::Level(_)) == is_level);
            all.max_by(|a, b| a.used().unwrap_or(f64::MAX).total_cmp(&b.used().unwrap_or(f64::MAX)))
        };
        farthest(true).or_else(|| farthest(false)).map(|judged| judged.criterion.name.clone())
    }

    /// The largest share of a limit that a level uses. Levels grow about evenly with the load, other than shares of events,
    /// which are 0 until they leap.
    pub(crate) fn level_used(&self) -> Option<f64> {
        let levels = self.judged.iter().filter(|judged| matches!(judged.samples, Samples::Level(_)));
        levels.filter_map(Judged::used).max_by(f64::total_cmp)
    }

    /// This trial, held on: the samples of both together, judged again. Each has left out its own beginning.
    pub(crate) fn and_then(mut self, more: Trial) -> Trial {
        if self.fault.is_some() || more.fault.is_some() {
            return more;
        }
        for judged in more.judged {
            match self.judged.iter_mut().find(|one| one.criterion == judged.criterion) {
                Some(one) => {
                    let mut samples = one.samples.clone();
                    samples.append(judged.samples);
                    *one = one.criterion.clone().judge(samples);
                }
                None => self.judged.push(judged),
            }
        }
        self.held += more.held;
        self.steadiness = self.steadiness.and(more.steadiness);
        self
    }
}
