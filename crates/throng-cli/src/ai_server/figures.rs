//! What came out, for people and for machines.

use std::fmt;
use std::fmt::Write;

use serde_json::{Value, json};
use throng_sight::Map;

use super::AGENTS;

/// The processor's share may be so large.
const CPU_SHARE_MAX: f64 = 0.85;
/// The share of late decisions may be so large.
const LATE_SHARE_MAX: f64 = 0.02;

/// Other programs may use so many cores.
const OTHERS_CORES_MAX: f64 = 0.1;

/// Why the load was not raised any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Processor,
    Late,
    Matches,
}

impl Limit {
    fn name(self) -> &'static str {
        match self {
            Limit::Processor => "processor",
            Limit::Late => "late",
            Limit::Matches => "matches",
        }
    }
}

/// One step that was held.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) matches: usize,
    pub(super) seconds: f64,
    /// Of all threads: 1 is all of their time.
    pub(super) cpu_share: f64,
    /// Cores that other programs used meanwhile, if that is known.
    pub(super) others_cores: Option<f64>,
    pub(super) decisions: u64,
    pub(super) late: u64,
    /// Median and 99th percentile of a match's tick.
    pub(super) tick_us: [u32; 2],
    pub(super) allocations: u64,
    pub(super) rays: u64,
}

impl Step {
    fn late_share(&self) -> f64 {
        if self.decisions == 0 { 0.0 } else { self.late as f64 / self.decisions as f64 }
    }

    /// Which bound it exceeds.
    pub(super) fn limit(&self) -> Option<Limit> {
        match () {
            () if self.cpu_share > CPU_SHARE_MAX => Some(Limit::Processor),
            () if self.late_share() > LATE_SHARE_MAX => Some(Limit::Late),
            () => None,
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "matches": self.matches,
            "cpu_share": self.cpu_share,
            "others_cores": self.others_cores,
            "decisions": self.decisions,
            "late_share": self.late_share(),
            "tick_us": { "p50": self.tick_us[0], "p99": self.tick_us[1] },
            "allocations": self.allocations,
            "rays_per_s": self.rays as f64 / self.seconds,
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, most] = self.tick_us;
        write!(
            f,
            "{} matches: {:.0} % processor, {:.2} % of {} decisions late, a tick {median} µs (p99 {most} µs)",
            self.matches,
            100.0 * self.cpu_share,
            100.0 * self.late_share(),
            self.decisions,
        )
    }
}

/// A search for the most matches.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    pub(super) steps: Vec<Step>,
    pub(super) limit: Option<Limit>,
    /// The step that counts.
    pub(super) held: Option<Step>,
}

/// All figures of a run.
pub(super) struct Figures {
    triangles: u32,
    decisions_per_s: u32,
    deadline_ms: f64,
    threads: usize,
    own: Search,
    pub(super) embree: Option<Search>,
    pub(super) notes: Vec<String>,
    pub(super) invalid_reasons: Vec<String>,
}

impl Figures {
    pub(super) fn new(map: &Map, rate: u32, deadline_ms: f64, threads: usize, own: Search) -> Figures {
        let mut figures = Figures {
            triangles: map.triangle_count(),
            decisions_per_s: rate,
            deadline_ms,
            threads,
            own,
            embree: None,
            notes: Vec::new(),
            invalid_reasons: Vec::new(),
        };
        figures.judge();
        figures
    }

    fn judge(&mut self) {
        match &self.own.held {
            None => self.invalid_reasons.push("no number of matches kept both bounds".to_owned()),
            Some(step) => {
                if step.allocations > 0 {
                    self.invalid_reasons.push(format!("{} allocations while the load was held", step.allocations));
                }
                if let Some(cores) = step.others_cores.filter(|cores| *cores > OTHERS_CORES_MAX) {
                    self.invalid_reasons
                        .push(format!("other programs used {cores:.2} cores: measure on a quiet machine"));
                }
            }
        }
        if self.own.limit == Some(Limit::Matches) {
            self.invalid_reasons.push("the bounds were not reached: raise --most".to_owned());
        }
    }

    pub(super) fn is_valid(&self) -> bool {
        self.invalid_reasons.is_empty()
    }

    fn per_core(&self, search: &Search) -> Option<f64> {
        search.held.as_ref().map(|step| step.matches as f64 / self.threads as f64)
    }

    pub(super) fn to_json(&self) -> Value {
        let held = self.own.held.as_ref().or(self.own.steps.last());
        let of = |part: fn(&Step) -> f64| held.map(part);
        let own_per_core = self.per_core(&self.own);
        let embree_per_core = self.embree.as_ref().and_then(|search| self.per_core(search));
        let ratio = own_per_core.zip(embree_per_core).map(|(own, embree)| own / embree);
        let steps = |search: &Search| search.steps.iter().map(Step::to_json).collect::<Vec<Value>>();
        json!({
            "valid": self.is_valid(),
            "invalid_reasons": self.invalid_reasons,
            "notes": self.notes,
            "command": "ai-server",
            "matches": held.map(|step| step.matches),
            "agents_per_match": AGENTS,
            "triangles": self.triangles,
            "tick_hz": self.decisions_per_s,
            "threads": self.threads,
            "seconds": of(|step| step.seconds),
            "matches_per_core": own_per_core,
            "limited_by": self.own.limit.map(Limit::name),
            "cpu_share": of(|step| step.cpu_share),
            "others_cores": held.and_then(|step| step.others_cores),
            "ai": {
                "decisions": held.map(|step| step.decisions),
                "late_share": of(Step::late_share),
                "deadline_ms": self.deadline_ms,
                "tick_us": held.map(|step| json!({ "p50": step.tick_us[0], "p99": step.tick_us[1] })),
                "rays_per_decision": of(|step| step.rays as f64 / step.decisions.max(1) as f64),
                "allocations": held.map(|step| step.allocations),
            },
            "sight": { "rays_per_s": of(|step| step.rays as f64 / step.seconds) },
            "steps": steps(&self.own),
            "embree": self.embree.as_ref().map(|search| json!({
                "matches_per_core": embree_per_core,
                "ratio": ratio,
                "limited_by": search.limit.map(Limit::name),
                "steps": steps(search),
            })),
        })
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        let mut line = |words: String| {
            let _ = writeln!(text, "{words}");
        };
        let whose = [("", Some(&self.own)), ("with Embree 3: ", self.embree.as_ref())];
        for (name, search) in whose.into_iter().filter_map(|(name, search)| Some((name, search?))) {
            match (&search.held, self.per_core(search)) {
                (Some(step), Some(per_core)) => line(format!("{name}{per_core:.1} matches per core; {step}")),
                _ => line(format!("{name}no number of matches kept both bounds")),
            }
        }
        for note in self.notes.iter().chain(&self.invalid_reasons) {
            line(format!("note: {note}"));
        }
        text
    }
}
