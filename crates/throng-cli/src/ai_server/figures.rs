//! The results, for people and for machines.

use std::fmt;
use std::fmt::Write;
use std::time::SystemTime;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use throng_judge::{Block, Criterion, Order, Samples, StepPressure, Trial};
use throng_report::{Kind, RunHead};
use throng_telemetry::{Percentiles, Snapshot, Subsystem};

use super::AGENTS;
use super::pace::SAMPLES;

/// The bounds of the published test.
const CPU_SHARE_MAX: f64 = 0.85;
const LATE_SHARE_MAX: f64 = 0.02;
/// The name of the end of the search that no bound made: `--most` was reached.
const MOST: &str = "matches";
/// Beyond this share a core has no time left, and its processor time says nothing about the work.
const SATURATED: f64 = 0.95;

/// A counted sample of a hold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CountedSample {
    pub(super) cpu_share: f64,
    pub(super) decisions: u64,
    pub(super) late: u64,
}

/// One load that was held: the mean of its last samples.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    pub(super) matches: usize,
    /// Length of all counted samples.
    pub(super) seconds: f64,
    /// Of all threads: 1 is all of their time.
    pub(super) cpu_share: f64,
    /// The same in the busiest sample.
    pub(super) cpu_share_most: f64,
    /// Cores that other programs used meanwhile, if that is known.
    pub(super) others_cores: Option<f64>,
    pub(super) decisions: u64,
    /// Of these, decisions that came after their deadline.
    pub(super) late: u64,
    /// Of these, decisions that had not been made by the end of the hold.
    pub(super) missed: u64,
    /// The counted samples, in their order.
    pub(super) samples: Vec<CountedSample>,
    /// Decisions that agents made meanwhile; the dead, and those who wait for a round, make none.
    pub(super) decided: u64,
    /// Telemetry of the counted ticks: a frame is one tick of one match.
    pub(super) frames: Snapshot,
    pub(super) allocations: u64,
    pub(super) rays: u64,
    /// Memory of one agent's pose history.
    pub(super) history_bytes: usize,
}

impl Step {
    fn late_share(&self) -> f64 {
        if self.decisions == 0 { 0.0 } else { self.late as f64 / self.decisions as f64 }
    }

    fn rays_per_s(&self) -> f64 {
        self.rays as f64 / self.seconds
    }

    /// Time of the fog in a tick of a match.
    fn fog_s(&self) -> f64 {
        let name = Subsystem::FOG_OF_WAR.built_in_name();
        self.frames.subsystems.iter().find(|of| of.name == name).map_or(0.0, |of| of.frame_ns.mean / 1e9)
    }

    fn frame_ms(&self) -> Value {
        let Percentiles { mean, p50, p99, max, .. } = self.frames.frame_ns;
        json!({ "mean": ms(mean), "p50": ms(p50 as f64), "p99": ms(p99 as f64), "max": ms(max as f64) })
    }

    fn subsystems(&self) -> Value {
        let figures = self.frames.subsystems.iter().map(|of| {
            let (mean_ms, p99_ms) = (ms(of.frame_ns.mean), ms(of.frame_ns.p99 as f64));
            let budget_ms = of.budget_ns.map(|ns| ms(ns as f64));
            let value =
                json!({ "mean_ms": mean_ms, "p99_ms": p99_ms, "budget_ms": budget_ms, "breaches": of.breaches });
            (of.name.clone(), value)
        });
        Value::Object(figures.collect::<Map<String, Value>>())
    }

    /// This step as the search judges it.
    pub(super) fn trial(&self, order: Order) -> Trial {
        let levels = self.samples.iter().map(|of| of.cpu_share).collect();
        let late = self.samples.iter().map(|of| Block { over: of.late, of: of.decisions }).collect();
        let judged = vec![
            Criterion::new("processor", CPU_SHARE_MAX).judge(Samples::Level(levels)),
            Criterion::new("late", LATE_SHARE_MAX).judge(Samples::Share(late)),
        ];
        Trial::new(order.amount, order.hold, judged)
    }

    fn to_json(&self) -> Value {
        json!({
            "matches": self.matches,
            "cpu_share": self.cpu_share,
            "cpu_share_most": self.cpu_share_most,
            "others_cores": self.others_cores,
            "decisions": self.decisions,
            "late_share": self.late_share(),
            "missed": self.missed,
            "frame_ms": self.frame_ms(),
            "lateness_us": { "p99": self.frames.late_ns.p99 as f64 / 1e3 },
            "allocations": self.allocations,
            "rays_per_s": self.rays_per_s(),
            "samples": {
                "cpu_share": self.samples.iter().map(|of| of.cpu_share).collect::<Vec<f64>>(),
                "decisions": self.samples.iter().map(|of| of.decisions).collect::<Vec<u64>>(),
                "late": self.samples.iter().map(|of| of.late).collect::<Vec<u64>>(),
            },
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, most] = [self.frames.frame_ns.p50, self.frames.frame_ns.p99].map(|ns| ns as f64 / 1e3);
        let (matches, decisions) = (self.matches, self.decisions);
        let (processor, late) = (100.0 * self.cpu_share, 100.0 * self.late_share());
        write!(
            f,
            "{matches} matches: {processor:.1} % processor, {late:.2} % of {decisions} decisions late, \
             a tick {median:.0} µs (p99 {most:.0} µs)"
        )
    }
}

/// The search with one engine for rays, and what it held.
#[derive(Clone, Debug)]
pub(super) struct Course {
    pub(super) search: StepPressure,
    pub(super) steps: Vec<Step>,
    /// Resident memory that each match added.
    pub(super) bytes_per_match: Option<u64>,
}

impl Course {
    /// The step that counts.
    fn kept(&self) -> Option<&Step> {
        let kept = self.search.outcome().kept? as usize;
        self.steps.iter().rfind(|step| step.matches == kept)
    }

    /// The bound that the next larger load exceeded, or `matches` if there was none to try.
    fn limited_by(&self) -> Option<String> {
        self.search.outcome().limit.or_else(|| self.has_reached_most().then(|| MOST.to_owned()))
    }

    fn has_reached_most(&self) -> bool {
        self.search.outcome().beyond.is_none() && self.search.poll_trial().is_none()
    }

    fn steps_json(&self) -> Vec<Value> {
        self.steps.iter().map(Step::to_json).collect()
    }
}

fn ms(ns: f64) -> f64 {
    ns / 1e6
}

/// The workload of a run.
pub(super) struct Workload {
    /// When it began.
    pub(super) began: SystemTime,
    /// The load in words: one number of matches, or steps.
    pub(super) load: String,
    pub(super) fan_rays: u32,
    pub(super) triangles: u32,
    pub(super) tick_hz: u32,
    pub(super) deadline_ms: f64,
    pub(super) cores: Vec<usize>,
}

impl Workload {
    /// The load, and the settings that change what is measured.
    fn words(&self) -> String {
        let Workload { load, fan_rays, triangles, tick_hz, deadline_ms, cores, .. } = self;
        format!(
            "ai-server {load}, {AGENTS} agents each at {tick_hz} Hz with {fan_rays} rays and {deadline_ms} ms, {} cores, \
             {triangles} triangles",
            cores.len()
        )
    }
}

/// All figures of a run.
pub(super) struct Figures {
    pub(super) head: RunHead,
    workload: Workload,
    own: Course,
    embree: Option<Course>,
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

impl Figures {
    pub(super) fn new(workload: Workload, own: Course, embree: Option<Course>, is_partial: bool) -> Figures {
        let head = RunHead { partial: is_partial, ..RunHead::new(Kind::Ai, &workload.words(), workload.began) };
        let mut figures = Figures { head, workload, own, embree };
        let counted = |(_, course): (_, &Course)| course.kept().or(course.steps.last()).cloned();
        let counted: Vec<Step> = figures.courses().filter_map(counted).collect();
        figures.head.seconds = figures.own.kept().map_or(0.0, |step| step.seconds);
        figures.head.others_cpu_cores = counted.iter().filter_map(|step| step.others_cores).reduce(f64::max);
        let reasons = figures.reasons();
        figures.head.conclude(reasons);
        figures
    }

    fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.head.partial {
            reasons.push("interrupted: these are the figures so far".to_owned());
        }
        for (name, course) in self.courses() {
            match course.kept() {
                None if self.head.partial => {}
                None => reasons.push(format!("{name}: no number of matches kept both bounds")),
                Some(step) if step.allocations > 0 => {
                    reasons.push(format!("{name}: {} allocations while the load was held", step.allocations));
                }
                Some(_) => {}
            }
            if course.has_reached_most() {
                reasons.push(format!("{name}: the bounds were not reached: raise --most"));
            }
        }
        reasons
    }

    fn courses(&self) -> impl Iterator<Item = (&'static str, &Course)> {
        let embree = self.embree.as_ref().map(|course| ("Embree's rays", course));
        [("own rays", &self.own)].into_iter().chain(embree)
    }

    fn per_core(&self, course: &Course) -> Option<f64> {
        Some(f64::from(course.search.outcome().kept?) / self.workload.cores.len() as f64)
    }

    /// Our matches per core to Embree's.
    fn ratio(&self) -> Option<f64> {
        Some(self.per_core(&self.own)? / self.per_core(self.embree.as_ref()?)?)
    }

    /// Embree's processor time to ours, at loads that both held: the median, and how many loads.
    fn cpu_ratio(&self) -> Option<(f64, usize)> {
        let is_free = |step: &&Step| step.cpu_share < SATURATED;
        let embree = self.embree.as_ref()?.steps.iter().filter(is_free);
        let mut ratios: Vec<f64> = embree
            .filter_map(|theirs| {
                let ours = self.own.steps.iter().filter(is_free).find(|ours| ours.matches == theirs.matches)?;
                Some(theirs.cpu_share / ours.cpu_share)
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        let (low, high) = (ratios.get(ratios.len().checked_sub(1)? / 2)?, ratios.get(ratios.len() / 2)?);
        Some((low.midpoint(*high), ratios.len()))
    }

    pub(super) fn to_json(&self) -> Value {
        let Workload { triangles, tick_hz, deadline_ms, cores, .. } = &self.workload;
        let kept = self.own.kept();
        let of = |part: fn(&Step) -> f64| kept.map(part);
        self.head.with(json!({
            "matches": kept.map(|step| step.matches),
            "players": kept.map(|step| step.matches * AGENTS),
            "result": null,
            "frame_ms": kept.map_or(json!({ "mean": null, "p50": null, "p99": null, "max": null }), Step::frame_ms),
            "missed_ticks": kept.map(|step| step.missed / AGENTS as u64),
            "lateness_us": { "p99": of(|step| step.frames.late_ns.p99 as f64 / 1e3) },
            "subsystems": kept.map_or(json!({}), Step::subsystems),
            "rewind": {
                "us_per_shot": null,
                "history_bytes_per_player": kept.map(|step| step.history_bytes),
                "verdicts_equal_share": null,
            },
            "fog": { "hidden_but_visible": null, "sent_needlessly_share": null, "cpu_share": of(|step| step.fog_s()).map(|fog_s| fog_s * f64::from(*tick_hz)) },
            "replay": { "identical": null },
            "matches_per_core": self.per_core(&self.own),
            "limited_by": self.own.limited_by(),
            "memory_bytes_per_match": self.own.bytes_per_match,
            "agents_per_match": AGENTS,
            "triangles": triangles,
            "tick_hz": tick_hz,
            "cores": cores,
            "samples": SAMPLES,
            "cpu_share": of(|step| step.cpu_share),
            "ai": {
                "decisions": kept.map(|step| step.decisions),
                "decided": kept.map(|step| step.decided),
                "late_share": of(Step::late_share),
                "missed": kept.map(|step| step.missed),
                "deadline_ms": deadline_ms,
                "rays_per_decision": of(|step| step.rays as f64 / step.decided.max(1) as f64),
                "allocations": kept.map(|step| step.allocations),
            },
            "sight": { "rays_per_s": of(Step::rays_per_s), "ratio_to_embree": self.ratio() },
            "steps": self.own.steps_json(),
            "embree": self.embree.as_ref().map(|course| json!({
                "matches_per_core": self.per_core(course),
                "cpu_ratio": self.cpu_ratio().map(|(ratio, _)| ratio),
                "limited_by": course.limited_by(),
                "memory_bytes_per_match": course.bytes_per_match,
                "steps": course.steps_json(),
            })),
        }))
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        let mut line = |words: String| {
            let _ = writeln!(text, "{words}");
        };
        for (name, course) in self.courses() {
            let Some((step, per_core)) = course.kept().zip(self.per_core(course)) else { continue };
            line(format!(
                "{name}: {per_core:.1} matches per core, limited by: {}",
                course.limited_by().as_deref().unwrap_or("-")
            ));
            line(format!("  {step}"));
            if let Some(bytes) = course.bytes_per_match {
                line(format!("  {} KiB of memory for each match", bytes / 1_024));
            }
        }
        if let Some(ratio) = self.ratio() {
            line(format!("matches per core to Embree's: {ratio:.3}"));
        }
        if let Some((ratio, loads)) = self.cpu_ratio() {
            line(format!(
                "processor time with Embree to that with own rays: {ratio:.3}, median of {loads} equal loads"
            ));
        }
        for reason in &self.head.invalid_reasons {
            line(format!("not valid: {reason}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use throng_judge::StepOptions;

    use super::*;

    #[test]
    fn a_load_that_failed_beside_a_busy_program_says_so() {
        let reasons = |others_cores: f64| {
            let hold = Duration::from_secs(3);
            let mut search = StepPressure::new(StepOptions { start: 1, step: 1, most: 1, hold });
            let samples = vec![CountedSample { cpu_share: 0.99, decisions: 100, late: 50 }; 30];
            let step = Step { matches: 1, others_cores: Some(others_cores), samples, ..Step::default() };
            search.handle_trial(step.trial(search.poll_trial().expect("the first load")));
            let own = Course { search, steps: vec![step], bytes_per_match: None };
            let (began, load) = (SystemTime::now(), "1".to_owned());
            let workload =
                Workload { began, load, fan_rays: 32, triangles: 1, tick_hz: 20, deadline_ms: 25.0, cores: vec![0] };
            let mut reasons = Figures::new(workload, own, None, false).head.invalid_reasons;
            reasons.retain(|reason| !reason.contains("debug build"));
            reasons
        };
        let failed = "own rays: no number of matches kept both bounds";
        assert_eq!(reasons(0.05), [failed]);
        assert_eq!(reasons(0.5), [failed, "other programs used 0.50 cores of this machine: stop them and run again"]);
    }
}
