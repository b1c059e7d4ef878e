//! How many matches at once keep the goal of a frame: the capacity search of throng-judge, with whole runs as its trials.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use throng_judge::{Block, CapacitySearch, Criterion, Order, Outcome, Samples, SearchOptions, Trial, Verdict};

use crate::growth;
use crate::summary::{Answer, FRAME_GOAL_MS, MISSED_SHARE_MAX, Step, Summary};
use crate::{Finished, Note, RangeError, RunOptions, play, report};

/// So many of all frames may take longer than the goal: then the 99th percentile keeps it.
const OVER_SHARE_MAX: f64 = 0.01;

/// Settings of a search.
#[derive(Clone, Debug)]
pub struct DensityOptions {
    /// Each step; its number of matches is set by the search. Its folder takes the figures and the page of the search, and no
    /// files of the steps.
    pub run: RunOptions,
    /// The first number of matches.
    pub first: u32,
    /// The largest number of matches.
    pub most: u32,
}

/// Plays 1, 2, 4, ... times the first number of matches until a step misses the goal, then halves the interval, and plays
/// the answer and the next number once more. The summary is that of the answer; or of the first step, if there is none.
///
/// # Errors
/// As [`play`].
pub fn density(options: &DensityOptions, stop: &AtomicBool) -> Result<Finished, RangeError> {
    let trial = Duration::from_secs(options.run.seconds.unwrap_or(1).into());
    // The next number is another match, however many there are.
    let most = options.most.max(1);
    let search = SearchOptions { start: options.first, most, resolution: 0.0, trial, confirm: trial };
    let mut is_first = true;
    let play = |order: Order| {
        let amount = throng_report::counted(order.amount, "match");
        (options.run.note)(Note::Line(&format!("{amount}: {}", order.purpose.name())));
        // The replay of the first step shows that the matches are sound; it tells nothing new in the others.
        let is_checked = options.run.is_checked && std::mem::take(&mut is_first);
        let run = RunOptions { matches: order.amount, is_checked, folder: None, ..options.run.clone() };
        let summary = play(&run, stop)?.summary;
        Ok(if run.processes.is_none() { without_growth(summary) } else { summary })
    };
    let note = |step: &Step| (options.run.note)(Note::Line(&step.words()));
    let mut summary = find(CapacitySearch::new(search), play, note, stop)?;
    // The answer is measured, and no part of the question.
    summary.head.workload = options.run.workload("density");
    summary.head.partial |= stop.load(Ordering::Relaxed);
    let page = options.run.folder.as_deref().map(|folder| report::write_figures(folder, &summary));
    Ok(Finished { summary, page })
}

/// Searches with runs that `play` makes.
fn find(
    mut search: CapacitySearch,
    mut play: impl FnMut(Order) -> Result<Summary, RangeError>,
    note: impl Fn(&Step),
    stop: &AtomicBool,
) -> Result<Summary, RangeError> {
    let mut steps: Vec<Step> = Vec::new();
    let mut summaries: Vec<Summary> = Vec::new();
    while let Some(order) = search.poll_trial().filter(|_| !stop.load(Ordering::Relaxed)) {
        let summary = play(order)?;
        let trial = search.handle_trial(trial(&summary, order));
        steps.push(step(&summary, order, trial.verdict()));
        note(&steps[steps.len() - 1]);
        summaries.push(summary);
    }
    let outcome = search.outcome();
    let first = summaries.first().cloned();
    let is_answer = |summary: &Summary| summary.head.valid && Some(summary.matches) == outcome.kept;
    let answer = summaries.into_iter().rfind(is_answer).or_else(|| first.clone());
    let mut summary = answer.ok_or_else(|| RangeError::Options("no step was played".to_owned()))?;
    summary = keep_checks(summary, first);
    let workers = summary.workers.max(1) as f64;
    summary.matches_per_core = outcome.kept.map(|kept| f64::from(kept) / workers);
    steps.sort_by_key(|step| step.matches);
    summary.density_growth = growth::of(&steps, Path::new("/"));
    summary.density = steps;
    let undecided = outcome.verdict == Verdict::Undecided;
    summary.head.conclude(undecided.then(|| format!("the search is undecided: {}", outcome.why)));
    summary.density_answer = Some(answer_of(&outcome));
    Ok(summary)
}

/// The heap of this process keeps memory of steps before, so its growth tells nothing about the matches of one step.
fn without_growth(summary: Summary) -> Summary {
    Summary { memory_bytes_per_match: None, memory_bytes_per_player: None, ..summary }
}

fn answer_of(outcome: &Outcome) -> Answer {
    let Outcome { verdict, why, kept, beyond, limit, .. } = outcome.clone();
    Answer { verdict: verdict.name().to_owned(), why, kept, beyond, limited_by: limit }
}

/// A run as the search judges it. Without the goal of its frames by second, all of it is one stretch of time.
fn trial(summary: &Summary, order: Order) -> Trial {
    if !summary.head.valid {
        let why = summary.head.invalid_reasons.first().map_or("not said why", String::as_str);
        return Trial::invalid(order.amount, order.hold, why);
    }
    let frames = summary.goal.iter().map(|block| block.of).sum::<u64>();
    let missed = Block { over: summary.missed_ticks, of: frames + summary.missed_ticks };
    let judged = vec![
        Criterion::new("frames", OVER_SHARE_MAX).judge(Samples::Share(summary.goal.clone())),
        Criterion::new("missed ticks", MISSED_SHARE_MAX).judge(Samples::Share(vec![missed])),
    ];
    Trial::new(order.amount, order.hold, judged)
}

/// The figures of the replay, the rays and the fog are those of the step that measured them, the first one.
fn keep_checks(summary: Summary, first: Option<Summary>) -> Summary {
    let Some(first) = first else { return summary };
    let rewind = crate::summary::Rewind {
        us_per_shot: first.rewind.us_per_shot,
        verdicts_equal_share: first.rewind.verdicts_equal_share,
        compared_shots: first.rewind.compared_shots,
        largest_bone_error_m: first.rewind.largest_bone_error_m,
        ..summary.rewind
    };
    let fog = crate::summary::Fog {
        cpu_share: summary.fog.cpu_share,
        cpu_share_live: summary.fog.cpu_share_live,
        rays: summary.fog.rays,
        ..first.fog
    };
    Summary { rewind, fog, sight: first.sight, replay: first.replay, ..summary }
}

fn step(summary: &Summary, order: Order, verdict: Verdict) -> Step {
    let frames = summary.goal.iter().map(|block| block.of).sum::<u64>();
    let missed = summary.missed_ticks as f64 / ((frames + summary.missed_ticks) as f64).max(1.0);
    Step {
        matches: summary.matches,
        purpose: order.purpose.name().to_owned(),
        frame_ms: summary.frame_ms,
        not_running_ms: summary.not_running_ms,
        lateness_p99_us: summary.lateness_us.p99,
        missed_ticks: summary.missed_ticks,
        cpu_cores: summary.cpu_cores,
        bots_skipped: summary.bots.skipped,
        is_within: summary.frame_ms.p99 <= FRAME_GOAL_MS && missed <= MISSED_SHARE_MAX,
        is_valid: summary.head.valid,
        verdict: if summary.head.valid { verdict.name() } else { "invalid" }.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Percentiles;
    use throng_report::RunHead;

    /// A host with room for `knee` matches: with one more, 3 % of its frames take too long.
    fn run(order: Order, knee: u32) -> Summary {
        let of = u64::from(order.amount) * 128;
        let over = if order.amount > knee { of * 3 / 100 } else { 0 };
        let p99 = if order.amount > knee { 3.0 } else { 1.0 };
        Summary {
            head: RunHead { valid: true, ..RunHead::default() },
            matches: order.amount,
            workers: 2,
            goal: vec![Block { over, of }; 25],
            frame_ms: Percentiles { mean: 0.1 + 0.01 * f64::from(order.amount), p99, ..Percentiles::default() },
            ..Summary::default()
        }
    }

    fn search(first: u32, most: u32) -> CapacitySearch {
        let trial = Duration::from_secs(25);
        CapacitySearch::new(SearchOptions { start: first, most, resolution: 0.0, trial, confirm: trial })
    }

    fn of(first: u32, most: u32, play: impl FnMut(Order) -> Result<Summary, RangeError>) -> Summary {
        find(search(first, most), play, |_| {}, &AtomicBool::new(false)).expect("a step was played")
    }

    #[test]
    fn the_answer_is_the_knee_and_was_played_twice_like_the_number_beyond() {
        // One match has too few ticks in 25 s, twice, to be sure that fewer than one in a thousand is missed.
        let one = of(16, 96, |order| Ok(run(order, 1))).density_answer.expect("there is an answer");
        assert_eq!((one.verdict.as_str(), one.limited_by.as_deref()), ("undecided", Some("missed ticks")), "{one:?}");
        assert!(one.why.contains("longer holds"), "{}", one.why);
        for knee in 2..100 {
            let summary = of(16, 96, |order| Ok(run(order, knee)));
            let kept = knee.min(96);
            let played = |matches: u32| summary.density.iter().filter(|step| step.matches == matches).count();
            assert_eq!((summary.matches, summary.matches_per_core), (kept, Some(f64::from(kept) / 2.0)));
            assert!(played(kept) >= 2 && (knee >= 96 || played(kept + 1) >= 1), "{knee}: {:?}", summary.density);
            let answer = summary.density_answer.expect("there is an answer");
            assert_eq!((answer.verdict.as_str(), answer.kept), ("accepted", Some(kept)));
            assert_eq!(answer.limited_by.as_deref(), (knee < 96).then_some("frames"));
        }
    }

    #[test]
    fn one_run_that_was_lucky_is_found_out_by_the_second_one() {
        let mut lucky = 0;
        let summary = of(1, 64, |order| {
            lucky += u32::from(order.amount == 8);
            Ok(run(order, if lucky == 1 { 8 } else { 6 }))
        });
        let answer = summary.density_answer.expect("there is an answer");
        assert_eq!((answer.kept, summary.matches), (Some(6), 6), "{}", answer.why);
        assert!(answer.why.contains("noisy"), "{}", answer.why);
    }

    #[test]
    fn invalid_runs_are_played_again_and_never_called_beyond_the_goal() {
        let mut played = 0;
        let summary = of(4, 64, |order| {
            played += 1;
            let mut summary = run(order, 20);
            let late = (played % 3 == 0).then(|| "bots were late".to_owned());
            summary.head.conclude(late);
            Ok(summary)
        });
        assert_eq!(summary.density_answer.and_then(|answer| answer.kept), Some(20));
        assert!(summary.density.iter().any(|step| step.verdict == "invalid" && step.matches <= 20));
    }

    #[test]
    fn a_search_that_is_stopped_is_undecided_and_has_the_steps_so_far() {
        let stop = AtomicBool::new(false);
        let play = |order: Order| {
            stop.store(order.amount >= 8, Ordering::Relaxed);
            Ok(run(order, 20))
        };
        let summary = find(search(2, 64), play, |_| {}, &stop).expect("steps were played");
        assert_eq!((summary.density.len(), summary.head.valid), (3, false));
        assert!(summary.head.invalid_reasons[0].contains("not over"), "{:?}", summary.head.invalid_reasons);
    }
}
