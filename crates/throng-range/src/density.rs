//! How many matches at once keep the goal of a frame: more and more of them, until they do not.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::growth;
use crate::summary::{FRAME_GOAL_MS, Step, Summary, digits};
use crate::{Note, RangeError, RunOptions, play};

/// Settings of a search.
#[derive(Clone, Debug)]
pub struct DensityOptions {
    /// Each step; its number of matches is set by the search.
    pub run: RunOptions,
    /// The first number of matches.
    pub first: u32,
    /// The largest number of matches.
    pub most: u32,
}

/// Plays 1, 2, 4, ... times the first number of matches until a step misses the goal, then halves the interval. The
/// summary is that of the largest number that kept it; or of the first step, if none did.
///
/// # Errors
/// As [`play`].
pub fn density(options: &DensityOptions, stop: &AtomicBool) -> Result<Summary, RangeError> {
    let mut steps: Vec<Step> = Vec::new();
    let mut best: Option<Summary> = None;
    let (mut within, mut beyond) = (0, options.most.saturating_add(1));
    let mut next = options.first.clamp(1, options.most.max(1));
    while !stop.load(Ordering::Relaxed) && next < beyond && next > within {
        (options.run.note)(Note::Line(&format!("{next} matches")));
        // The replay of the first step shows that the matches are sound; it tells nothing new in the others.
        let run =
            RunOptions { matches: next, is_checked: options.run.is_checked && steps.is_empty(), ..options.run.clone() };
        let summary = play(&run, stop)?.summary;
        let step = step(&summary);
        steps.push(step);
        (options.run.note)(Note::Line(&line(&step)));
        if step.is_within && step.is_valid {
            within = next;
        } else {
            beyond = next;
        }
        if step.is_within && step.is_valid || best.is_none() {
            best = Some(keep_checks(summary, best.take()));
        }
        next = if beyond > options.most { (within * 2).clamp(1, options.most) } else { (within + beyond) / 2 };
    }
    let mut summary = best.ok_or_else(|| RangeError::Options("no step was played".to_owned()))?;
    steps.sort_by_key(|step| step.matches);
    let is_any = steps.iter().any(|step| step.is_within && step.is_valid);
    let workers = summary.workers.max(1) as f64;
    summary.matches_per_core = is_any.then(|| digits(f64::from(within) / workers));
    summary.density_growth = growth::of(&steps, Path::new("/"));
    summary.density = steps;
    Ok(summary)
}

/// The figures of the replay, the rays and the fog are those of the step that measured them.
fn keep_checks(summary: Summary, former: Option<Summary>) -> Summary {
    let Some(former) = former else { return summary };
    let rewind = crate::summary::Rewind {
        us_per_shot: former.rewind.us_per_shot,
        verdicts_equal_share: former.rewind.verdicts_equal_share,
        compared_shots: former.rewind.compared_shots,
        largest_bone_error_m: former.rewind.largest_bone_error_m,
        ..summary.rewind
    };
    let fog = crate::summary::Fog {
        cpu_share: summary.fog.cpu_share,
        cpu_share_live: summary.fog.cpu_share_live,
        rays: summary.fog.rays,
        ..former.fog
    };
    Summary { rewind, fog, sight: former.sight, replay: former.replay, ..summary }
}

fn step(summary: &Summary) -> Step {
    let due = summary.missed_ticks as f64 / (f64::from(summary.tick_hz) * summary.seconds).max(1.0);
    Step {
        matches: summary.matches,
        frame_ms: summary.frame_ms,
        not_running_ms: summary.not_running_ms,
        lateness_p99_us: summary.lateness_us.p99,
        missed_ticks: summary.missed_ticks,
        cpu_cores: summary.cpu_cores,
        bots_skipped: summary.bots.skipped,
        is_within: summary.frame_ms.p99 <= FRAME_GOAL_MS && due / f64::from(summary.matches.max(1)) <= 0.001,
        is_valid: summary.valid,
    }
}

fn line(step: &Step) -> String {
    format!(
        "{} matches: frames p50 {:.3} ms, p99 {:.3} ms; late p99 {:.0} µs; {} ticks missed; {}{}",
        step.matches,
        step.frame_ms.p50,
        step.frame_ms.p99,
        step.lateness_p99_us,
        step.missed_ticks,
        if step.is_within { "within the goal" } else { "beyond the goal" },
        if step.is_valid { "" } else { ", not valid" }
    )
}
