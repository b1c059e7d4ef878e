//! How large a load keeps its limits, in a few trials.
//!
//! ```text
//!   raise            start, then as far as the levels let expect, at most 8 times: until a load is rejected
//!   narrow           between the largest accepted and the smallest rejected load: where the line between their levels
//!                    meets the limit; the middle, where that did not halve the gap
//!   confirm          a long hold of the largest accepted load, and one of the next load, which must not be accepted
//! ```
//!
//! A trial that is undecided is held once more; if it is then still undecided, it counts as rejected. A trial that tells
//! nothing is made again. A load that is accepted above a rejected one is noise: the search goes on from there, and the outcome
//! says so.
//!
//! If trials of a load tell nothing again and again, although smaller loads are kept, the load generator is what cannot do
//! more. The search then goes on below that load; if it is the answer that cannot be held for long, with the next smaller load that
//! was accepted. Its answer is a load that is kept, and undecided: the server may keep more. If that smaller load cannot be held for
//! long either, the search gives up: further ones would take up to three long holds each.

use std::time::Duration;

use crate::trial::{Trial, Verdict};

/// A trial is at most so many times as large as the largest that was accepted.
const RAISE_MAX: f64 = 8.0;
/// The first trials stay so far below the load at which the levels would reach their limits.
const RAISE_CAUTION: f64 = 0.95;
/// From this share of a limit on, the next load is one that exceeds it.
const NEAR: f64 = 0.9;
/// Trials that tell nothing are made again, so often in a row.
const REPEATS_MAX: u32 = 2;
/// So often may a confirming hold contradict the trials before it.
const CONTRADICTIONS_MAX: u32 = 3;
/// A search has at most so many trials.
const TRIALS_MAX: usize = 100;
/// Before the first trial, nothing tells how far it is to the limit: so many trials are expected until one is beyond it.
const RAISES_EXPECTED: u32 = 3;
/// The line between two levels mostly leads to the answer in so many trials.
const NARROWS_EXPECTED: u32 = 3;

/// Settings of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchOptions {
    /// The first load, at least 1.
    pub start: u32,
    /// No larger load than this.
    pub most: u32,
    /// The answer and the next load that was tried are so far apart at most, as a share of the answer; at least one load.
    pub resolution: f64,
    /// The time of a trial.
    pub trial: Duration,
    /// The time of a confirming hold.
    pub confirm: Duration,
}

impl Default for SearchOptions {
    /// From 1 to 1,000,000, to 1 %; trials of 1 minute, and confirming holds of 10.
    fn default() -> SearchOptions {
        let (trial, confirm) = (Duration::from_secs(60), Duration::from_secs(600));
        SearchOptions { start: 1, most: 1_000_000, resolution: 0.01, trial, confirm }
    }
}

/// Why a load is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// No load was rejected yet.
    Raise,
    /// It lies between an accepted load and a rejected one.
    Narrow,
    /// It was undecided, and is held on.
    HoldOn,
    /// It is the answer, held for longer.
    Confirm,
    /// It was asked for.
    Hold,
    /// It is the load after the answer, which must not be accepted.
    ConfirmBeyond,
}

impl Purpose {
    /// Its words for progress and tables.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Raise => "raise",
            Purpose::Narrow => "narrow",
            Purpose::HoldOn => "hold on",
            Purpose::Confirm => "confirm",
            Purpose::Hold => "hold",
            Purpose::ConfirmBeyond => "confirm beyond",
        }
    }
}

/// A load to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The load.
    pub amount: u32,
    /// How long, without the warm-up.
    pub hold: Duration,
    /// Why.
    pub purpose: Purpose,
}

/// The holds that are left, as far as the trials so far tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Trials, with the next one.
    pub trials: u32,
    /// The time of their holds.
    pub holds: Duration,
}

/// The answer of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Accepted: the kept load is the answer. Rejected: no load keeps the limits. Undecided: too little is known.
    pub verdict: Verdict,
    /// The reason in words.
    pub why: String,
    /// The largest load that keeps all limits.
    pub kept: Option<u32>,
    /// The smallest load above it that was not accepted.
    pub beyond: Option<u32>,
    /// The criterion that binds there.
    pub limit: Option<String>,
    /// The time of all holds.
    pub spent: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Find,
    Confirm,
    ConfirmBeyond,
    Over,
}

/// A search that goes on. Hold the load of [`CapacitySearch::poll_trial`], then hand its trial to
/// [`CapacitySearch::handle_trial`], until there is none.
#[derive(Clone, Debug)]
pub struct CapacitySearch {
    options: SearchOptions,
    phase: Phase,
    /// Accepted loads, growing.
    accepted: Vec<Trial>,
    /// The largest load below all accepted ones that was too small to say anything: it has too few events.
    unsure: u32,
    /// The smallest load that was not accepted.
    beyond: Option<Trial>,
    /// A trial that was undecided.
    open: Option<Trial>,
    repeats: u32,
    contradictions: u32,
    /// The first accepted load whose long holds told nothing. After the second one the search gives up. Whether the reasons are the
    /// same is not asked: they have numbers in them.
    unconfirmed: Option<u32>,
    /// The gap before the newest narrowing.
    former_gap: Option<u32>,
    fault: Option<String>,
    trials: Vec<Trial>,
    spent: Duration,
}

impl CapacitySearch {
    /// A search that has tried nothing yet. Impossible options count as the nearest possible ones.
    pub fn new(options: SearchOptions) -> CapacitySearch {
        let most = options.most.max(1);
        let resolution = if options.resolution.is_finite() { options.resolution.clamp(0.0, 1.0) } else { 0.01 };
        CapacitySearch {
            options: SearchOptions { start: options.start.clamp(1, most), most, resolution, ..options },
            phase: Phase::Find,
            accepted: Vec::new(),
            unsure: 0,
            beyond: None,
            open: None,
            repeats: 0,
            contradictions: 0,
            unconfirmed: None,
            former_gap: None,
            fault: None,
            trials: Vec::new(),
            spent: Duration::ZERO,
        }
    }

    /// The load to hold next; `None` when the search is over.
    pub fn poll_trial(&self) -> Option<Order> {
        if self.has_given_up() {
            return None;
        }
        let SearchOptions { trial, confirm, .. } = self.options;
        let kept = self.kept();
        let (amount, hold, purpose) = match self.phase {
            Phase::Over => return None,
            Phase::Find if self.beyond.is_none() => (self.raised(), trial, Purpose::Raise),
            Phase::Find => (self.narrowed(), trial, Purpose::Narrow),
            Phase::Confirm => (kept, confirm, Purpose::Confirm),
            Phase::ConfirmBeyond => (self.after(kept), confirm, Purpose::ConfirmBeyond),
        };
        let purpose = if self.open.is_some() { Purpose::HoldOn } else { purpose };
        Some(Order { amount, hold, purpose })
    }

    /// The load of [`CapacitySearch::poll_trial`] was held. A trial of another load is ignored. Returns the trial as it counts: where
    /// a load was held on, its limits are judged by the samples of both holds.
    pub fn handle_trial(&mut self, trial: Trial) -> Trial {
        let Some(order) = self.poll_trial() else { return trial };
        if trial.amount != order.amount {
            return trial;
        }
        self.spent += trial.held;
        let mut counted = trial.clone().without_samples();
        self.trials.push(counted.clone());
        if trial.fault.is_some() {
            self.repeats += 1;
            self.fault.clone_from(&trial.fault);
            if self.repeats > REPEATS_MAX {
                self.take_for_too_large(trial);
            }
            return counted;
        }
        self.repeats = 0;
        let was_open = self.open.is_some();
        let trial = match self.open.take() {
            Some(former) => former.and_then(trial),
            None => trial,
        };
        counted.judged = trial.clone().without_samples().judged;
        let is_first = self.phase == Phase::Find && self.accepted.is_empty() && self.beyond.is_none();
        if is_first && trial.amount < self.options.most && trial.saw_too_little() {
            self.unsure = trial.amount;
        } else if trial.verdict() == Verdict::Undecided && !was_open {
            self.open = Some(trial);
        } else {
            self.settle(trial.without_samples());
        }
        counted
    }

    /// The holds that are expected yet. An answer that is confirmed at once is the rule; noise makes it more.
    pub fn left(&self) -> Left {
        let SearchOptions { trial, confirm, .. } = self.options;
        let (finds, confirms) = match self.phase {
            _ if self.poll_trial().is_none() => return Left::default(),
            Phase::Find => (self.finds_left(), 2),
            Phase::Confirm => (0, 2),
            Phase::ConfirmBeyond | Phase::Over => (0, 1),
        };
        Left { trials: finds + confirms, holds: trial * finds + confirm * confirms }
    }

    /// Trials until the answer is narrowed down.
    fn finds_left(&self) -> u32 {
        if let Some(gap) = self.gap() {
            let halvings = (f64::from(gap) / f64::from(self.step(self.kept()))).log2().ceil();
            return (halvings.max(1.0) as u32).min(NARROWS_EXPECTED);
        }
        let used = self.accepted.last().and_then(Trial::level_used).filter(|used| *used > 0.0);
        let raises =
            used.map_or(RAISES_EXPECTED, |used| ((1.0 / used).ln() / RAISE_MAX.ln()).ceil().max(0.0) as u32 + 1);
        raises + NARROWS_EXPECTED
    }

    /// The answer so far.
    pub fn outcome(&self) -> Outcome {
        let kept = self.accepted.last().map(|trial| trial.amount);
        let beyond = self.beyond.as_ref().map(|trial| trial.amount);
        let limit = self.beyond.as_ref().and_then(|trial| trial.limit(|judged| judged.verdict != Verdict::Accepted));
        let is_over = self.phase == Phase::Over;
        let generators = self.beyond.as_ref().and_then(|trial| trial.fault.as_deref());
        let verdict = match kept {
            _ if !is_over || generators.is_some() => Verdict::Undecided,
            _ if self.contradictions > CONTRADICTIONS_MAX => Verdict::Undecided,
            None => Verdict::Rejected,
            Some(_) => Verdict::Accepted,
        };
        let is_open = self.beyond.as_ref().is_some_and(|trial| trial.verdict() == Verdict::Undecided);
        let verdict = if kept.is_none() && is_open { Verdict::Undecided } else { verdict };
        let noise = match self.contradictions {
            0 => "",
            _ => "; the machine is noisy: a long hold contradicted a shorter one, and the search went on from there",
        };
        let why = match (kept, beyond) {
            (Some(kept), _) if self.repeats > REPEATS_MAX && self.phase == Phase::Confirm => {
                let fault = self.fault.as_deref().unwrap_or("not said why");
                match self.unconfirmed {
                    Some(larger) if larger > kept => format!(
                        "{larger} and {kept} keep all limits in short trials, and the holds that confirm them tell \
                         nothing: {fault}"
                    ),
                    _ => format!(
                        "{kept} keeps all limits in a short trial, and the hold that confirms it tells nothing: {fault}"
                    ),
                }
            }
            _ if self.repeats > REPEATS_MAX => {
                format!("the trials tell nothing about the server: {}", self.fault.as_deref().unwrap_or("not said why"))
            }
            _ if !is_over => "the search is not over".to_owned(),
            (Some(kept), Some(beyond)) if let Some(fault) = generators => format!(
                "{kept} keeps all limits with 95 % probability each, and the server may keep more: {beyond} could not be loaded, \
                 because {fault}{noise}"
            ),
            (Some(kept), Some(beyond)) if verdict == Verdict::Undecided => {
                format!("the answer lies between {kept} and {beyond}, but long holds contradict each other")
            }
            (Some(kept), Some(beyond)) => format!(
                "{kept} keeps all limits with 95 % probability each, {beyond} {}: {}{noise}",
                if is_open { "is not sure to" } else { "does not" },
                limit.as_deref().unwrap_or("no limit")
            ),
            (None, Some(beyond)) if is_open && self.contradictions == 0 => {
                format!(
                    "{beyond} is not sure to keep the limits: {}; longer holds, or a larger first load, tell more",
                    limit.as_deref().unwrap_or("too little was measured")
                )
            }
            (_, None) | (None, _) if verdict == Verdict::Undecided => "long holds contradict each other".to_owned(),
            (Some(kept), None) => format!("{kept}, the most that was to be tried, keeps all limits"),
            (None, _) => "no load keeps the limits".to_owned(),
        };
        Outcome { verdict, why, kept, beyond, limit, spent: self.spent }
    }

    /// All trials, in their order, without their samples.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    fn has_given_up(&self) -> bool {
        self.repeats > REPEATS_MAX || self.trials.len() >= TRIALS_MAX
    }

    fn kept(&self) -> u32 {
        self.accepted.last().map_or(0, |trial| trial.amount)
    }

    /// The smallest gap between two loads that are tried.
    fn step(&self, amount: u32) -> u32 {
        ((f64::from(amount) * self.options.resolution) as u32).max(1)
    }

    /// The next load after the answer.
    fn after(&self, kept: u32) -> u32 {
        let next = kept.saturating_add(self.step(kept));
        self.beyond.as_ref().map_or(next, |beyond| beyond.amount.min(next)).min(self.options.most)
    }

    fn raised(&self) -> u32 {
        let SearchOptions { start, most, .. } = self.options;
        let Some(trial) = self.accepted.last() else { return self.unsure.saturating_mul(2).clamp(start, most) };
        let kept = f64::from(trial.amount);
        let factor = match trial.level_used() {
            // So near, a load just beyond the limit is soon narrowed down to; small steps up to it would take longer.
            Some(used) if used > NEAR => 1.0 / used + self.options.resolution,
            Some(used) if used > 0.0 => (RAISE_CAUTION / used).min(RAISE_MAX),
            _ => 2.0,
        };
        let least = trial.amount.saturating_add(self.step(trial.amount));
        ((kept * factor) as u32).clamp(least.min(most), most)
    }

    fn narrowed(&self) -> u32 {
        let Some(beyond) = &self.beyond else { return self.raised() };
        let (kept, gap) = (self.kept(), beyond.amount - self.kept());
        let middle = kept + gap / 2;
        // A line that does not halve the gap is a bad guide.
        if self.former_gap.is_some_and(|former| gap > former / 2) {
            return middle;
        }
        let below = self.accepted.last().and_then(Trial::level_used).unwrap_or(0.0);
        let Some(above) = beyond.level_used().filter(|above| *above > 1.0 && below < 1.0) else { return middle };
        let place = f64::from(kept) + f64::from(gap) * (1.0 - below) / (above - below);
        // A step below the expected answer: one trial less if it is accepted there.
        let step = self.step(beyond.amount);
        let (least, most) = (kept + step.min(gap / 2), beyond.amount - step.min(gap / 2));
        (place as u32).saturating_sub(step / 2).clamp(least.min(most), most.max(least))
    }

    fn settle(&mut self, trial: Trial) {
        let is_accepted = trial.verdict() == Verdict::Accepted;
        match (self.phase, is_accepted) {
            (Phase::Find, true) => self.accept(trial),
            (Phase::Find, false) => self.reject(trial),
            (Phase::Confirm, true) => {
                self.accepted.pop();
                self.accept(trial);
                let is_most = self.kept() >= self.options.most;
                let is_generators = self.beyond.as_ref().is_some_and(|beyond| beyond.fault.is_some());
                self.phase = if is_most || is_generators { Phase::Over } else { Phase::ConfirmBeyond };
                return;
            }
            (Phase::ConfirmBeyond, false) => {
                self.beyond = Some(trial);
                self.phase = Phase::Over;
                return;
            }
            (Phase::Confirm, false) => {
                self.contradictions += 1;
                self.reject(trial);
            }
            (Phase::ConfirmBeyond, true) => {
                self.contradictions += 1;
                self.accept(trial);
                // A load that was rejected and is not above this one was noise.
                self.beyond = self.beyond.take().filter(|beyond| beyond.amount > self.kept());
            }
            (Phase::Over, _) => return,
        }
        self.phase = self.next_phase();
    }

    /// The trials of a load tell nothing, again and again. If smaller loads are kept, it counts as an upper end.
    fn take_for_too_large(&mut self, trial: Trial) {
        match self.phase {
            Phase::Find if self.kept() > 0 => {
                self.reject(trial);
                self.phase = self.next_phase();
            }
            Phase::ConfirmBeyond => {
                self.beyond = Some(trial);
                self.phase = Phase::Over;
            }
            // The next smaller load is held for long instead, but only once.
            Phase::Confirm if self.accepted.len() > 1 && self.unconfirmed.is_none() => {
                self.unconfirmed = Some(trial.amount);
                self.reject(trial);
            }
            Phase::Find | Phase::Confirm | Phase::Over => return,
        }
        (self.repeats, self.open) = (0, None);
    }

    fn accept(&mut self, trial: Trial) {
        self.former_gap = self.gap();
        self.accepted.retain(|other| other.amount < trial.amount);
        self.accepted.push(trial);
    }

    fn reject(&mut self, trial: Trial) {
        self.former_gap = self.gap();
        self.accepted.retain(|other| other.amount < trial.amount);
        self.beyond = Some(trial);
    }

    fn gap(&self) -> Option<u32> {
        self.beyond.as_ref().map(|beyond| beyond.amount.saturating_sub(self.kept()))
    }

    fn next_phase(&self) -> Phase {
        let kept = self.kept();
        match self.gap() {
            _ if self.contradictions > CONTRADICTIONS_MAX => Phase::Over,
            None if kept >= self.options.most => Phase::Confirm,
            None => Phase::Find,
            Some(gap) if gap > self.step(kept) => Phase::Find,
            Some(_) if kept == 0 => Phase::Over,
            Some(_) => Phase::Confirm,
        }
    }
}
