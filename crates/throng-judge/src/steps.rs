//! Step pressure, the published method: add a step, hold, go on while the limits hold; else step back until they do.
//!
//! ```text
//!   raise       start, start + step, start + 2 steps ...    until a load exceeds a limit, or the most is reached
//!   step back   the middle between the largest load that     until they are 1 % apart, or one load
//!               kept all limits and the smallest that did not
//! ```
//!
//! A load is judged as the method does it: by the mean of the newest 30 samples, without bounds.

use std::time::Duration;

use crate::search::{Left, Order, Outcome, Purpose};
use crate::trial::{Judged, Trial, Verdict};

/// So many of the newest samples count.
pub const STEP_SAMPLES: usize = 30;
/// Trials that tell nothing are made again, so often for each load.
const REPEATS_MAX: u32 = 2;

/// Loads to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepOptions {
    /// The first load, at least 1.
    pub start: u32,
    /// A step adds so much, at least 1.
    pub step: u32,
    /// No larger load than this.
    pub most: u32,
    /// Each load is held so long.
    pub hold: Duration,
}

/// A search by steps.
#[derive(Clone, Debug)]
pub struct StepPressure {
    options: StepOptions,
    kept: Option<Trial>,
    /// The smallest load that exceeded a limit.
    beyond: Option<Trial>,
    fault: Option<String>,
    repeats: u32,
    spent: Duration,
    trials: Vec<Trial>,
}

impl StepPressure {
    /// A search that has tried nothing yet. Zeros of the options count as 1.
    pub fn new(options: StepOptions) -> StepPressure {
        let StepOptions { start, step, most, hold } = options;
        let options = StepOptions { start: start.max(1), step: step.max(1), most: most.max(1), hold };
        let (spent, trials) = (Duration::ZERO, Vec::new());
        StepPressure { options, kept: None, beyond: None, fault: None, repeats: 0, spent, trials }
    }

    /// The load to hold next; `None` when the search is over.
    pub fn poll_trial(&self) -> Option<Order> {
        let StepOptions { start, step, most, hold } = self.options;
        if self.repeats > REPEATS_MAX {
            return None;
        }
        let kept = self.kept.as_ref().map_or(0, |trial| trial.amount);
        let raise = |amount: u32| Order { amount, hold, purpose: Purpose::Raise };
        match &self.beyond {
            None if kept == 0 => Some(raise(start.min(most))),
            None => (kept < most).then(|| raise(kept.saturating_add(step).min(most))),
            Some(beyond) => {
                let gap = beyond.amount - kept;
                let is_apart = gap > (beyond.amount / 100).max(1);
                is_apart.then(|| Order { amount: kept + gap / 2, hold, purpose: Purpose::Narrow })
            }
        }
    }

    /// The load of [`StepPressure::poll_trial`] was held. Returns the trial as it counts: by its newest samples.
    pub fn handle_trial(&mut self, trial: Trial) -> Trial {
        self.spent += trial.held;
        let mut trial = trial.newest(STEP_SAMPLES).without_samples();
        if trial.fault.is_none() {
            trial.fault = trial.without_value().map(|name| format!("the newest samples of {name} have no value"));
        }
        self.trials.push(trial.clone());
        if trial.fault.is_some() {
            self.repeats += 1;
            self.fault.clone_from(&trial.fault);
            return trial;
        }
        self.repeats = 0;
        let end = if trial.keeps_by_value() { &mut self.kept } else { &mut self.beyond };
        *end = Some(trial.clone());
        trial
    }

    /// The holds that are expected yet: steps up to where the level meets its limit, and the halvings of one step. Without a level
    /// or before the first trial, up to the largest load.
    pub fn left(&self) -> Left {
        let StepOptions { start, step, most, hold } = self.options;
        let kept = self.kept.as_ref().map_or(0, |trial| trial.amount);
        let halvings = |gap: u32| u32::BITS - gap.leading_zeros();
        let apart = |beyond: u32| halvings(((beyond - kept) / (beyond / 100).max(1)).saturating_sub(1));
        let trials = match &self.beyond {
            _ if self.poll_trial().is_none() => 0,
            Some(beyond) => apart(beyond.amount).max(1),
            None => {
                let used = self.kept.as_ref().and_then(Trial::level_used).filter(|used| *used > 0.0);
                let end = used.map_or(most, |used| (f64::from(kept) / used).min(f64::from(most)) as u32);
                let first = if kept == 0 { start.min(most) } else { kept };
                end.saturating_sub(first) / step + 1 + halvings(step / (end / 100).max(1))
            }
        };
        Left { trials, holds: hold.saturating_mul(trials) }
    }

    /// The answer so far. It is accepted by the measured values alone, as in the published method.
    pub fn outcome(&self) -> Outcome {
        let kept = self.kept.as_ref().map(|trial| trial.amount);
        let is_over = self.poll_trial().is_none() && self.repeats <= REPEATS_MAX;
        let verdict = match kept {
            _ if !is_over => Verdict::Undecided,
            Some(_) => Verdict::Accepted,
            None => Verdict::Rejected,
        };
        let limit = self.beyond.as_ref().and_then(|trial| trial.limit(Judged::exceeds_by_value));
        let why = match (verdict, kept, &limit) {
            (Verdict::Undecided, _, _) if self.repeats > 0 => {
                format!("the trials tell nothing: {}", self.fault.as_deref().unwrap_or("not said why"))
            }
            (Verdict::Undecided, _, _) => "the search is not over".to_owned(),
            (_, Some(kept), Some(limit)) => {
                format!("the means of {kept} keep all limits; the next load exceeds {limit}")
            }
            (_, Some(kept), None) => format!("the means of {kept}, the most that was to be tried, keep all limits"),
            (_, None, _) => "no load keeps the limits".to_owned(),
        };
        let beyond = self.beyond.as_ref().map(|trial| trial.amount);
        Outcome { verdict, why, kept, beyond, limit, spent: self.spent }
    }

    /// All trials, in their order, without their samples.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }
}
