//! The answer, for people and for machines. docs/capacity.md describes the JSON.

use std::time::{Instant, SystemTime};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_judge::{Growth, Judged, Order, Outcome, Samples, Steadiness, Trial, Verdict};
use throng_report::{Case, Kind, RunHead, figure};

use super::hold::Figures;
use super::memory::MemoryFigures;
use super::{CapacityOptions, Load};

/// The file with a line for each trial, written as they come.
pub const TRIALS_FILE: &str = "trials.jsonl";

/// The file with all samples of each trial, a line for each, written as they come.
pub const SAMPLES_FILE: &str = "samples.jsonl";

/// The answer to "how many fit?".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Capacity {
    /// The head that every kind of run has. Its measured part are all holds.
    #[serde(flatten)]
    pub head: RunHead,
    /// The load.
    pub load: String,
    /// The unit of the load, in the plural.
    pub unit: String,
    /// `search`, `steps`, `holds` or `soak`.
    pub method: String,
    /// Arguments that were added to the load's command.
    pub arguments: Vec<String>,
    /// `accepted`, `rejected` or `undecided`.
    pub verdict: String,
    /// Why, in words.
    pub why: String,
    /// The largest load that keeps all limits.
    pub kept: Option<u32>,
    /// The smallest load above it that was not accepted.
    pub beyond: Option<u32>,
    /// The load at which the measured means meet the first limit, of `search` and `steps`: a best estimate without bounds. `null`
    /// where the trials do not tell it.
    pub estimate: Option<f64>,
    /// The limit that binds.
    pub limited_by: Option<String>,
    /// By core that was under load.
    pub per_core: Option<f64>,
    /// By physical core that was under load; `null` where the machine does not tell how many these cores are.
    pub per_physical_core: Option<f64>,
    /// Cores that were under load.
    pub cores: Option<f64>,
    /// Physical cores that these are threads of; `null` where the machine does not tell.
    pub physical_cores: Option<f64>,
    /// Threads of the processor for each of its cores; `null` where the system does not tell.
    pub threads_per_core: Option<f64>,
    /// Of all cores of this machine, as if they did not disturb each other. Not measured.
    pub extrapolated_to_machine: Option<Extrapolation>,
    /// Memory of one unit.
    pub memory_bytes_per_unit: Option<f64>,
    /// Time of everything.
    pub wall_s: f64,
    /// How the levels grow with the load, of `holds` with three loads or more.
    pub growth: Vec<GrowthFigures>,
    /// The memory of this program and all that it started, of `soak`.
    pub memory: Vec<MemoryFigures>,
    /// All trials, in their order.
    pub trials: Vec<TrialFigures>,
    /// The load with everything that the command line changed in it: keys of a load file.
    pub settings: Load,
}

/// A figure that nobody has measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Extrapolation {
    /// Cores of the machine that this process may use.
    pub cores: u32,
    /// The amount.
    pub amount: f64,
}

/// How a level grows with the load: `base + slope × load + bend × load²`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GrowthFigures {
    /// The limit whose level it is.
    pub name: String,
    /// Unit of the level; `null`: a share, 0 to 1.
    pub unit: Option<String>,
    /// The level without load, by the curve.
    pub base: f64,
    /// Its growth for each unit of load.
    pub slope: f64,
    /// The growth of the growth; 0 of fewer than four loads.
    pub bend: f64,
    /// The largest distance of a measured level from the curve, as a share of the level.
    pub largest_error: f64,
    /// The largest load.
    pub largest: u32,
    /// Its level as the smaller loads forecast it.
    pub forecast: f64,
    /// Its level as it was measured.
    pub measured: f64,
}

impl GrowthFigures {
    fn of(load: &Load, growth: &Growth) -> GrowthFigures {
        let Growth { name, curve, largest, forecast, measured } = growth.clone();
        let unit = load.limits.iter().find(|limit| limit.name == name).and_then(|limit| limit.unit.clone());
        let (base, slope, bend, largest_error) = (curve.base, curve.slope, curve.bend, curve.largest_error);
        GrowthFigures { name, unit, base, slope, bend, largest_error, largest, forecast, measured }
    }
}

/// A trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialFigures {
    /// The load.
    pub amount: u32,
    /// Why it was held.
    pub purpose: String,
    /// Time of the hold.
    pub held_s: f64,
    /// Time of the command.
    pub wall_s: f64,
    /// `accepted`, `rejected` or `undecided`.
    pub verdict: String,
    /// Why the trial says nothing about the server.
    pub fault: Option<String>,
    /// `steady`; `unsteady`: not even its second half is; or `unknown`: there are too few samples.
    pub steadiness: String,
    /// From then on it was steady, as time since the hold began. The time before is not judged.
    pub steady_from_s: Option<f64>,
    /// The limits.
    pub limits: Vec<LimitFigures>,
    /// Cores that were under load.
    pub cores: Option<f64>,
    /// Physical cores that these are threads of; `null` where the machine does not tell.
    pub physical_cores: Option<f64>,
    /// Memory of one unit.
    pub memory_bytes_per_unit: Option<f64>,
}

/// A limit in a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitFigures {
    /// Its name.
    pub name: String,
    /// The largest value that is allowed.
    pub at_most: f64,
    /// Unit of the values; `null`: they are shares, 0 to 1.
    pub unit: Option<String>,
    /// The measured value.
    pub value: Option<f64>,
    /// The true value is not below this, with 95 % probability; `null` if nothing is known.
    pub low: Option<f64>,
    /// The true value is not above this, with 95 % probability; `null` if nothing is known.
    pub high: Option<f64>,
    /// `accepted`, `rejected` or `undecided`.
    pub verdict: String,
}

/// A line of [`SAMPLES_FILE`].
#[derive(Serialize)]
pub(super) struct TrialSamples<'a> {
    /// The number of the trial, from 1.
    pub(super) trial: usize,
    pub(super) amount: u32,
    pub(super) limits: &'a [LimitSamples],
}

/// All samples of a limit in a trial, in their order.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum LimitSamples {
    Level { name: String, level: Vec<f64> },
    Share { name: String, over: Vec<u64>, of: Vec<u64> },
}

impl LimitSamples {
    pub(super) fn of(judged: &Judged) -> LimitSamples {
        let name = judged.criterion.name.clone();
        match &judged.samples {
            Samples::Level(level) => LimitSamples::Level { name, level: level.clone() },
            Samples::Share(blocks) => {
                let (over, of) = blocks.iter().map(|block| (block.over, block.of)).unzip();
                LimitSamples::Share { name, over, of }
            }
        }
    }
}

impl TrialFigures {
    pub(super) fn new(load: &Load, order: Order, trial: &Trial, of: &Figures) -> TrialFigures {
        TrialFigures {
            amount: order.amount,
            purpose: order.purpose.name().to_owned(),
            held_s: trial.held.as_secs_f64(),
            wall_s: of.wall.as_secs_f64(),
            verdict: verdict(trial).to_owned(),
            fault: trial.fault.clone(),
            steadiness: match trial.steadiness {
                Steadiness::From(_) => "steady",
                Steadiness::Never => "unsteady",
                Steadiness::Unknown => "unknown",
            }
            .to_owned(),
            steady_from_s: match trial.steadiness {
                Steadiness::From(share) => Some(share * order.hold.as_secs_f64()),
                Steadiness::Never | Steadiness::Unknown => None,
            },
            limits: trial.judged.iter().map(|judged| LimitFigures::of(load, judged)).collect(),
            cores: of.cores,
            physical_cores: of.physical_cores,
            memory_bytes_per_unit: of.memory_bytes,
        }
    }
}

impl TrialFigures {
    /// From when on it was steady, in words.
    pub(super) fn steady_words(&self) -> String {
        match (self.steadiness.as_str(), self.steady_from_s) {
            (_, Some(from_s)) => format!("from {from_s:.0} s"),
            ("unsteady", None) => "no".to_owned(),
            _ => "-".to_owned(),
        }
    }
}

impl LimitFigures {
    fn of(load: &Load, judged: &Judged) -> LimitFigures {
        let limit = load.limits.iter().find(|limit| limit.name == judged.criterion.name);
        let finite = |value: f64| value.is_finite().then_some(value);
        LimitFigures {
            name: judged.criterion.name.clone(),
            at_most: judged.criterion.limit,
            unit: limit.and_then(|limit| limit.unit.clone()),
            value: finite(judged.estimate.value),
            low: finite(judged.estimate.low),
            high: finite(judged.estimate.high),
            verdict: judged.verdict.name().to_owned(),
        }
    }
}

impl Capacity {
    pub(super) fn new(
        options: &CapacityOptions,
        (outcome, estimate, growth): (&Outcome, Option<f64>, &[Growth]),
        trials: Vec<TrialFigures>,
        (began, started_at): (Instant, SystemTime),
        cut_off: Option<&str>,
    ) -> Capacity {
        let is_kept = |trial: &&TrialFigures| Some(trial.amount) == outcome.kept && trial.fault.is_none();
        let last = trials.iter().rfind(is_kept);
        let cores = last.and_then(|trial| trial.cores).filter(|cores| *cores > 0.0);
        let physical_cores = last.and_then(|trial| trial.physical_cores).filter(|cores| *cores > 0.0);
        let by = |cores: Option<f64>| outcome.kept.zip(cores).map(|(kept, cores)| f64::from(kept) / cores);
        let per_core = by(cores);
        let machine = throng_machine::cores();
        let extrapolated = |per_core: f64| Extrapolation { cores: machine, amount: per_core * f64::from(machine) };
        Capacity {
            head: RunHead {
                seconds: outcome.spent.as_secs_f64(),
                partial: cut_off.is_some(),
                ..RunHead::new(Kind::Capacity, &options.question(), started_at)
            },
            load: options.load.name.clone(),
            unit: options.load.unit.clone(),
            method: options.method.name().to_owned(),
            arguments: options.load.added.clone(),
            // Those that were held stay rejected or accepted: whether the others keep their limits is not known.
            verdict: if cut_off.is_some() { Verdict::Undecided } else { outcome.verdict }.name().to_owned(),
            why: cut_off.unwrap_or(&outcome.why).to_owned(),
            kept: outcome.kept,
            beyond: outcome.beyond,
            estimate,
            limited_by: outcome.limit.clone(),
            per_core,
            per_physical_core: by(physical_cores),
            cores,
            physical_cores,
            threads_per_core: throng_machine::threads_per_core(),
            extrapolated_to_machine: per_core.filter(|_| machine > 0).map(extrapolated),
            memory_bytes_per_unit: last.and_then(|trial| trial.memory_bytes_per_unit),
            wall_s: began.elapsed().as_secs_f64(),
            growth: growth.iter().map(|growth| GrowthFigures::of(&options.load, growth)).collect(),
            memory: Vec::new(),
            trials,
            settings: options.load.clone(),
        }
    }

    /// The growth of memory counts like a limit. That of invalid trials stays undecided.
    pub(super) fn take_memory(&mut self, memory: Vec<MemoryFigures>) {
        let is_valid = self.trials.iter().any(|trial| trial.fault.is_none());
        self.memory = memory;
        for figures in self.memory.iter_mut().filter(|_| !is_valid) {
            figures.verdict = Verdict::Undecided.name().to_owned();
        }
        let with = |verdict: &str| {
            let names = self.memory.iter().filter(|figures| figures.verdict == verdict);
            names.map(|figures| figures.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let (growing, open) = (with("rejected"), with("undecided"));
        if !growing.is_empty() && !self.head.partial {
            (self.verdict, self.why) = ("rejected".to_owned(), format!("the memory of {growing} grows"));
        } else if !open.is_empty() && self.verdict == "accepted" {
            let why = format!("it was held too short to be sure of the memory of {open}");
            (self.verdict, self.why) = ("undecided".to_owned(), why);
        }
    }

    /// Whether there is an answer. To be called last.
    pub(super) fn conclude(&mut self) {
        let (is_cut, is_open) = (self.head.partial, self.verdict == "undecided");
        let open = (is_cut || is_open).then(|| format!("there is no answer: {}", self.why));
        self.head.conclude(open.into_iter().chain(self.head.missing.clone()));
    }

    /// The trials for a build server, a case for each limit: a rejected limit is a failure, an invalid trial an error, and an
    /// undecided limit is skipped. So are the rejected ones of a search that found its answer: it ends only with loads above it, and a
    /// longer hold may have accepted a load that a short one rejected.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        let is_search = ["search", "steps"].contains(&self.method.as_str());
        let is_found = is_search && self.verdict == Verdict::Accepted.name();
        let is_beyond = |trial: &TrialFigures| is_search && self.kept.is_some_and(|kept| trial.amount > kept);
        for (number, trial) in (1..).zip(&self.trials) {
            let class = format!("{}.{} {}", self.load, trial.amount, self.unit);
            let mut push = |name: &str, outcome| {
                let name = format!("trial {number}: {name}");
                cases.push(Case { class: class.clone(), name, seconds: trial.wall_s, outcome });
            };
            if let Some(fault) = &trial.fault {
                push("valid", throng_report::Outcome::Error(fault.clone()));
            }
            for limit in &trial.limits {
                let words = format!("{}, at most {}", limit.words(), limit.show(limit.at_most));
                push(
                    &limit.name,
                    match limit.verdict.as_str() {
                        "rejected" if is_beyond(trial) => {
                            throng_report::Outcome::Skipped(format!("beyond the answer: {words}"))
                        }
                        "rejected" if is_found => {
                            throng_report::Outcome::Skipped(format!("a longer hold says otherwise: {words}"))
                        }
                        "rejected" => throng_report::Outcome::Failed(words),
                        "undecided" => throng_report::Outcome::Skipped(words),
                        _ => throng_report::Outcome::Passed,
                    },
                );
            }
        }
        cases
    }

    /// The limits, as the first trial that has each judged it.
    pub fn limits(&self) -> Vec<&LimitFigures> {
        let mut limits: Vec<&LimitFigures> = Vec::new();
        for limit in self.trials.iter().flat_map(|trial| &trial.limits) {
            if !limits.iter().any(|known| known.name == limit.name) {
                limits.push(limit);
            }
        }
        limits
    }
}

impl LimitFigures {
    /// `84.1 % (83.9 to 84.3)`: value and bounds.
    pub(super) fn words(&self) -> String {
        let Some(value) = self.value else { return "–".to_owned() };
        let bounds = self.low.zip(self.high);
        let bounds = bounds.map(|(low, high)| format!(" ({} to {})", self.number(low), self.number(high)));
        self.show(value) + &bounds.unwrap_or_default()
    }

    /// A value with its unit; shares are shown in per cent.
    pub(super) fn show(&self, value: f64) -> String {
        format!("{} {}", self.number(value), self.unit.as_deref().unwrap_or("%"))
    }

    fn number(&self, value: f64) -> String {
        let factor = if self.unit.is_some() { 1.0 } else { 100.0 };
        figure(value * factor)
    }
}

fn verdict(trial: &Trial) -> &'static str {
    trial.verdict().name()
}

/// A trial in a line.
pub(super) fn line(load: &Load, trial: &Trial) -> String {
    if let Some(fault) = &trial.fault {
        return format!("  invalid, and says nothing about the server: {fault}");
    }
    let limits = trial.judged.iter().map(|judged| {
        let of = LimitFigures::of(load, judged);
        format!("{} {}, at most {}", of.name, of.words(), of.show(of.at_most))
    });
    let steady = match trial.steadiness {
        Steadiness::From(share) if share > 0.0 => format!("; steady from {:.0} % of the hold on", share * 100.0),
        Steadiness::Never => "; it was never steady".to_owned(),
        Steadiness::From(_) | Steadiness::Unknown => String::new(),
    };
    let limits = limits.collect::<Vec<String>>().join("; ");
    format!("  {} {}: {limits}; {}{steady}", trial.amount, load.unit, verdict(trial))
}
