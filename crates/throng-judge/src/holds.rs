//! Given loads, each held a number of times: for thresholds, and for the growth of a level with the load.

use std::time::Duration;

use crate::curve::{Curve, Point};
use crate::search::{Left, Order, Outcome, Purpose};
use crate::stats::median;
use crate::trial::{Samples, Trial, Verdict};

/// Trials that tell nothing are made again, so often for each load.
const REPEATS_MAX: u32 = 2;
/// A line needs two loads, and one more to be compared with its forecast.
const LOADS_MIN: usize = 3;

/// Loads to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldOptions {
    /// The loads, in their order.
    pub amounts: Vec<u32>,
    /// Each is held so often, at least once. All loads are held once before the second round begins.
    pub repeats: u32,
    /// Each is held so long.
    pub hold: Duration,
}

/// Holds that go on.
#[derive(Clone, Debug)]
pub struct Holds {
    options: HoldOptions,
    /// Holds that have ended, or were given up.
    done: usize,
    repeats: u32,
    repeats_max: u32,
    given_up: u32,
    fault: Option<String>,
    trials: Vec<Trial>,
    spent: Duration,
}

/// How a level grows with the load.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// The criterion.
    pub name: String,
    /// The curve through the medians of all loads.
    pub curve: Curve,
    /// The largest load.
    pub largest: u32,
    /// Its level as the smaller loads forecast it.
    pub forecast: f64,
    /// Its level as it was measured.
    pub measured: f64,
}

impl Holds {
    /// Holds of which none was made yet.
    pub fn new(options: HoldOptions) -> Holds {
        let options = HoldOptions { repeats: options.repeats.max(1), ..options };
        Holds {
            options,
            done: 0,
            repeats: 0,
            repeats_max: REPEATS_MAX,
            given_up: 0,
            fault: None,
            trials: Vec::new(),
            spent: Duration::ZERO,
        }
    }

    /// A hold that tells nothing is not made again: it took hours.
    pub fn without_repeats(self) -> Holds {
        Holds { repeats_max: 0, ..self }
    }

    /// The load to hold next; `None` when all are over.
    pub fn poll_trial(&self) -> Option<Order> {
        let HoldOptions { amounts, repeats, hold } = &self.options;
        let all = amounts.len() * *repeats as usize;
        let amount = *amounts.get(self.done % amounts.len().max(1)).filter(|_| self.done < all)?;
        Some(Order { amount, hold: *hold, purpose: Purpose::Hold })
    }

    /// The load of [`Holds::poll_trial`] was held. Returns the trial as it counts, without its samples.
    pub fn handle_trial(&mut self, trial: Trial) -> Trial {
        self.spent += trial.held;
        let trial = trial.without_samples();
        let is_invalid = trial.fault.is_some();
        if is_invalid {
            self.fault.clone_from(&trial.fault);
        }
        self.trials.push(trial.clone());
        if is_invalid && self.repeats < self.repeats_max {
            self.repeats += 1;
        } else {
            self.given_up += u32::from(is_invalid);
            (self.done, self.repeats) = (self.done + 1, 0);
        }
        trial
    }

    /// The holds that are left, if each hold tells something.
    pub fn left(&self) -> Left {
        let HoldOptions { amounts, repeats, hold } = &self.options;
        let all = amounts.len().saturating_mul(*repeats as usize);
        let trials = u32::try_from(all.saturating_sub(self.done)).unwrap_or(u32::MAX);
        Left { trials, holds: hold.saturating_mul(trials) }
    }

    /// Accepted if every hold was, rejected if one was.
    pub fn outcome(&self) -> Outcome {
        let valid = || self.trials.iter().filter(|trial| trial.fault.is_none());
        // Of the rejected loads the smallest, whenever it was held.
        let rejected = valid().filter(|trial| trial.verdict() == Verdict::Rejected).min_by_key(|trial| trial.amount);
        let open = valid().find(|trial| trial.verdict() == Verdict::Undecided);
        let limit = rejected.and_then(|trial| trial.limit(|judged| judged.verdict == Verdict::Rejected));
        let (verdict, why) = match (rejected, open) {
            (Some(trial), _) => {
                (Verdict::Rejected, format!("{} exceeds {}", trial.amount, limit.as_deref().unwrap_or("a limit")))
            }
            _ if self.poll_trial().is_some() => (Verdict::Undecided, "not all loads were held".to_owned()),
            _ if self.given_up > 0 => {
                let fault = self.fault.as_deref().unwrap_or("not said why");
                (Verdict::Undecided, format!("{} holds tell nothing: {fault}", self.given_up))
            }
            (_, Some(trial)) => (Verdict::Undecided, format!("{} was held too short to be sure", trial.amount)),
            _ => (Verdict::Accepted, "all holds keep all limits".to_owned()),
        };
        let of = |amount: u32| valid().filter(move |trial| trial.amount == amount);
        let keeps = |amount: &u32| of(*amount).all(|trial| trial.verdict() == Verdict::Accepted);
        let below = valid().map(|trial| trial.amount);
        let below = below.filter(|amount| rejected.is_none_or(|rejected| *amount < rejected.amount));
        let kept = below.filter(keeps).max();
        Outcome { verdict, why, kept, beyond: rejected.map(|trial| trial.amount), limit, spent: self.spent }
    }

    /// How each level grows with the load, if at least three loads were held.
    pub fn growth(&self) -> Vec<Growth> {
        let mut amounts: Vec<u32> = self.options.amounts.clone();
        amounts.sort_unstable();
        amounts.dedup();
        let mut names: Vec<&str> = Vec::new();
        for judged in self.trials.iter().flat_map(|trial| &trial.judged) {
            if matches!(judged.samples, Samples::Level(_)) && !names.contains(&judged.criterion.name.as_str()) {
                names.push(&judged.criterion.name);
            }
        }
        names.into_iter().filter_map(|name| self.growth_of(name, &amounts)).collect()
    }

    fn growth_of(&self, name: &str, amounts: &[u32]) -> Option<Growth> {
        let level = |amount: u32| {
            let trials = self.trials.iter().filter(|trial| trial.amount == amount);
            let judged = trials.flat_map(|trial| &trial.judged).filter(|judged| judged.criterion.name == name);
            median(&judged.map(|judged| judged.estimate.value).collect::<Vec<f64>>())
        };
        let point = |amount: &u32| Some(Point { load: f64::from(*amount), value: level(*amount)? });
        let points: Vec<Point> = amounts.iter().filter_map(point).collect();
        let (last, before) = points.split_last().filter(|(_, before)| before.len() + 1 >= LOADS_MIN)?;
        let forecast = Curve::fit(before)?.forecast(last.load);
        let curve = Curve::fit(&points)?;
        Some(Growth { name: name.to_owned(), curve, largest: last.load as u32, forecast, measured: last.value })
    }
}
