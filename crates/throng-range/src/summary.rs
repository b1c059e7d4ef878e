//! The figures of a run as JSON: docs/match-summary.md names every key.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_judge::Block;
use throng_match::{ReplayError, Replayed};
use throng_report::{FrameHistogram, Frames, Profile, RunHead};

use crate::bots::BotsReport;
use crate::check::Checks;
use crate::growth::Growth;
use crate::run::RunOptions;
use crate::site::{LIVE, SiteReport, Times};

/// The goal of a frame at 128 Hz with three matches per core, a tenth held back: 2.34 ms.
pub(crate) const FRAME_GOAL_MS: f64 = 2.34;
/// More missed ticks than this share are too many for a density.
pub(crate) const MISSED_SHARE_MAX: f64 = 0.001;
/// Later commands of bots than this share make a run invalid.
const BOTS_LATE_SHARE_MAX: f64 = 0.05;

/// Everything that a run found. Figures that it could not measure are `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// The head that every kind of run has.
    #[serde(flatten)]
    pub head: RunHead,
    /// Matches; with a load profile, the most that are possible.
    pub matches: u32,
    /// How many of them play at each moment, as on the command line.
    #[serde(default)]
    pub profile: String,
    /// Players of all matches.
    pub players: u32,
    /// Ticks per second.
    pub tick_hz: u32,
    /// The result of the first match.
    pub result: Option<String>,
    /// `threads`, or `processes`.
    pub mode: String,
    /// Threads that play matches, in all processes.
    pub workers: usize,
    /// Wall time of frames.
    pub frame_ms: Percentiles,
    /// Time per frame in which its thread did not run, mean.
    pub not_running_ms: f64,
    /// Deadlines that were skipped.
    pub missed_ticks: u64,
    /// How many frames took how long.
    #[serde(default)]
    pub histogram: FrameHistogram,
    /// Time per frame that measuring itself took, mean.
    #[serde(default)]
    pub measuring_us_per_frame: Option<f64>,
    /// The same as a share of the mean frame.
    #[serde(default)]
    pub measuring_share: Option<f64>,
    /// How late frames began.
    pub lateness_us: Percentiles,
    /// How late the system woke workers up.
    pub wake_lateness_us: Percentiles,
    /// Processor use of the processes with matches.
    pub cpu_cores: Option<f64>,
    /// Resident memory of these processes at the end.
    #[serde(default)]
    pub rss_bytes: Option<u64>,
    /// Its growth since before the matches were made, for each of them; `None` of steps of a search that share a process.
    #[serde(default)]
    pub memory_bytes_per_match: Option<f64>,
    /// The same for each player.
    #[serde(default)]
    pub memory_bytes_per_player: Option<f64>,
    /// Exclusive time of each subsystem.
    pub subsystems: BTreeMap<String, Subsystem>,
    /// Frames of each phase.
    pub phases: BTreeMap<String, Phase>,
    /// Shots and their verdicts.
    pub rewind: Rewind,
    /// Fog of war.
    pub fog: Fog,
    /// Rays.
    pub sight: Sight,
    /// Matches per worker of this run, if all kept the goal.
    pub matches_per_core: Option<f64>,
    /// Brains.
    pub ai: Ai,
    /// Commands.
    pub commands: Commands,
    /// Bots.
    pub bots: Bots,
    /// Poses.
    pub animation: Animation,
    /// The replay of the first match.
    pub replay: Replay,
    /// Each match in one line.
    pub ends: Vec<String>,
    /// The newest breaches of budgets.
    pub breaches: Vec<String>,
    /// Files of slow frames.
    pub slow_files: usize,
    /// A value for about each second of the measured part; empty for matches in processes of their own.
    pub samples: Samples,
    /// The levels of a load profile; absent of a constant load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<MatchLevel>,
    /// Triangles of the map.
    pub triangles: u32,
    /// The steps of `throng density`; else absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub density: Vec<Step>,
    /// How the mean frame grows over these steps; absent of fewer than two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub density_growth: Option<Growth>,
    /// The answer of `throng density`; else absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub density_answer: Option<Answer>,
    /// Frames beyond the goal, by second or by process: what a search judges.
    #[serde(skip)]
    pub(crate) goal: Vec<Block>,
}

/// A level of a load profile, or a tenth of a ramp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MatchLevel {
    /// The judged time begins here, in seconds of the measured part.
    pub from_s: f64,
    /// It ends here.
    pub to_s: f64,
    /// Matches that are wanted; in a tenth of a ramp, those in its middle.
    pub matches: u32,
    /// Wall time of frames.
    pub frame_ms: Percentiles,
    /// How late frames began.
    pub lateness_us: Percentiles,
    /// Deadlines that were skipped.
    pub missed_ticks: u64,
    /// Processor use of the process; bots in a thread of it count too.
    pub cpu_cores: f64,
}

/// Lists of the same length: a value for about each second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Samples {
    /// Processor time of this process by wall time and worker: 1 is all the time of all workers. The threads beside the
    /// workers are in it, and bots in a thread of this process.
    pub cpu_share: Vec<f64>,
    /// Frames of all matches.
    pub frames: Vec<u64>,
    /// Of these, frames over the budget of a whole frame.
    pub frames_over: Vec<u64>,
    /// Matches that play.
    #[serde(default)]
    pub matches: Vec<u32>,
    /// Matches that are to play.
    #[serde(default)]
    pub matches_wanted: Vec<u32>,
}

/// Percentiles in the unit of their key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Percentiles {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

impl Percentiles {
    /// From nanoseconds, divided by `unit_ns`.
    pub(crate) fn of(times: &Times, unit_ns: f64) -> Percentiles {
        let of = |ns: f64| ns / unit_ns;
        Percentiles { mean: of(times.mean), p50: of(times.p50), p99: of(times.p99), max: of(times.max) }
    }
}

/// One subsystem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Subsystem {
    /// Mean per frame.
    pub mean_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Its budget.
    pub budget_ms: Option<f64>,
    /// Frames over it.
    pub breaches: u64,
}

/// One phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Phase {
    /// Frames.
    pub frames: u64,
    /// Mean wall time of a frame.
    pub mean_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
}

/// Shots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rewind {
    /// Time that a shot adds to a step.
    pub us_per_shot: Option<f64>,
    /// Memory of the pose history of a player.
    pub history_bytes_per_player: usize,
    /// Share of verdicts that are the same with a pose for each tick.
    pub verdicts_equal_share: Option<f64>,
    /// Shots that were compared for it.
    pub compared_shots: u64,
    /// Largest distance of a bone between the two.
    pub largest_bone_error_m: Option<f64>,
    /// Shots judged in all matches.
    pub shots: u64,
    /// Hits.
    pub hits: u64,
    /// Clamped claims.
    pub clamped: u64,
}

/// Fog of war.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fog {
    /// Pairs hidden, though a line reached the enemy.
    pub hidden_but_visible: Option<u64>,
    /// Share of the shown pairs that no line reached.
    pub sent_needlessly_share: Option<f64>,
    /// Pairs that were checked.
    pub pairs_checked: u64,
    /// Share of a core that the fog of a match takes.
    pub cpu_share: f64,
    /// The same in the live phase alone.
    pub cpu_share_live: Option<f64>,
    /// Rays of the fog in all matches.
    pub rays: u64,
}

/// Rays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sight {
    /// Closest hits per second, one core, single rays.
    pub rays_per_s: Option<f64>,
    /// The same in the unit of Embree's.
    pub ratio_to_embree: Option<f64>,
}

/// Brains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ai {
    /// Decisions.
    pub decisions: u64,
    /// Share of them that were late.
    pub late_share: Option<f64>,
}

/// Commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Commands {
    /// Commands that reached games.
    pub taken: u64,
    /// Commands that the runtime refused.
    pub refused: u64,
    /// Commands and shots that the games refused.
    pub refused_by_game: u64,
}

/// Bots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bots {
    /// Bots that played.
    pub joined: u64,
    /// Bots that could not connect.
    pub lost: u64,
    /// Commands that were due and that they did not send, because they were too late.
    pub skipped: u64,
    /// Commands that they made more than a tick after their planned instants, and those that they did not send.
    #[serde(default)]
    pub late: u64,
    /// How late their commands were, 99th percentile.
    pub late_p99_us: u64,
    /// Their processor use.
    pub cpu_cores: Option<f64>,
}

/// Poses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Animation {
    /// Poses evaluated.
    pub poses: u64,
    /// Poses spared, because they are evaluated every fourth tick.
    pub saved_by_cadence: u64,
    /// Poses spared in phases that need none.
    pub saved_by_phase: u64,
}

/// The replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Replay {
    /// Whether the first match was played again bit for bit.
    pub identical: Option<bool>,
    /// Ticks played again.
    pub ticks: u64,
    /// Digests compared.
    pub digests: u64,
    /// The difference, if there is one.
    pub difference: Option<String>,
}

/// The answer of a density search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// `accepted`, `rejected` or `undecided`.
    pub verdict: String,
    /// The reason in words.
    pub why: String,
    /// The largest number of matches that keeps the goal.
    pub kept: Option<u32>,
    /// The smallest number above it that does not, or is not sure to.
    pub beyond: Option<u32>,
    /// The figure that exceeds its limit there: `frames` or `missed ticks`.
    pub limited_by: Option<String>,
}

/// A step of a density search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Matches at once.
    pub matches: u32,
    /// Why it was played: `raise`, `narrow`, `hold on`, `confirm` or `confirm beyond`.
    #[serde(default)]
    pub purpose: String,
    /// Wall time of frames.
    pub frame_ms: Percentiles,
    /// Part of a frame in which its thread did not run, mean.
    #[serde(default)]
    pub not_running_ms: f64,
    /// How late frames began, 99th percentile.
    pub lateness_p99_us: f64,
    /// Deadlines that were skipped.
    pub missed_ticks: u64,
    /// Processor use of the matches.
    pub cpu_cores: Option<f64>,
    /// Commands that bots skipped.
    pub bots_skipped: u64,
    /// Whether the step kept the goal.
    pub is_within: bool,
    /// Whether its figures are valid.
    pub is_valid: bool,
    /// `accepted`, `rejected`, `undecided` or `invalid`.
    #[serde(default)]
    pub verdict: String,
}

/// The findings of a run, before they are a summary.
pub(crate) struct Found<'a> {
    pub(crate) options: &'a RunOptions,
    /// Matches that were played.
    pub(crate) begun: u32,
    pub(crate) workers: usize,
    pub(crate) sites: &'a [SiteReport],
    pub(crate) bots: BotsReport,
    /// The faults, in plain words.
    pub(crate) faults: Vec<String>,
    /// The samples of each second.
    pub(crate) samples: Samples,
    /// The figures of each level of the profile.
    pub(crate) steps: Vec<MatchLevel>,
    pub(crate) checks: &'a Checks,
    pub(crate) rays: Sight,
    pub(crate) triangles: u32,
    pub(crate) head: RunHead,
}

/// Adds up.
pub(crate) fn summarise(found: &Found<'_>) -> Summary {
    let Found { options, sites, begun, checks, .. } = *found;
    let RunOptions { matches, profile, rules, .. } = *options;
    let (players, is_by_processes) = (matches * rules.seats() as u32, options.processes.is_some());
    let seconds = sites.iter().map(|site| site.seconds).fold(0.0, f64::max);
    let frame = Times::joined(sites.iter().map(|site| &site.frame));
    let in_ms: Vec<(f64, u64)> = frame.values.iter().map(|&(ns, count)| (ns as f64 / 1e6, count)).collect();
    let total = |of: fn(&SiteReport) -> u64| sites.iter().map(of).sum::<u64>();
    let ends = || sites.iter().flat_map(|site| &site.ends);
    let cpu_s: Option<f64> = sites.iter().map(|site| site.cpu_s).sum();
    let rss_bytes: Option<[u64; 2]> =
        sites.iter().try_fold([0, 0], |sum, site| site.rss_bytes.map(|of| [sum[0] + of[0], sum[1] + of[1]]));
    let grown_by =
        |parts: u32| rss_bytes.map(|[before, after]| after.saturating_sub(before) as f64 / f64::from(parts.max(1)));
    let missed_ticks = total(|site| site.missed_ticks);
    let measuring_ns: Option<u64> = sites.iter().map(|site| site.measuring_ns).sum();
    let measuring_ns = measuring_ns.filter(|_| frame.count > 0).map(|ns| ns as f64 / frame.count as f64);
    let share = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
    let pairs_checked = checks.fog.sent + checks.fog.hidden;
    let mut summary = Summary {
        head: RunHead { seconds, ..found.head.clone() },
        matches,
        profile: profile.to_string(),
        players,
        tick_hz: rules.tick_hz,
        result: ends().find(|end| end.is_first).and_then(|end| end.outcome.clone()),
        mode: if is_by_processes { "processes" } else { "threads" }.to_owned(),
        workers: found.workers,
        frame_ms: Percentiles::of(&frame, 1e6),
        not_running_ms: total(|site| site.not_running_ns) as f64 / 1e6 / frame.count.max(1) as f64,
        missed_ticks,
        histogram: FrameHistogram::of(&in_ms),
        measuring_us_per_frame: measuring_ns.map(|ns| ns / 1e3),
        measuring_share: measuring_ns.filter(|_| frame.mean > 0.0).map(|ns| ns / frame.mean),
        lateness_us: Percentiles::of(&Times::joined(sites.iter().map(|site| &site.late)), 1e3),
        wake_lateness_us: Percentiles::of(&Times::joined(sites.iter().map(|site| &site.wake_late)), 1e3),
        cpu_cores: cpu_s.map(|cpu_s| cpu_s / seconds.max(1e-9)),
        rss_bytes: rss_bytes.map(|[_, after]| after),
        memory_bytes_per_match: grown_by(if is_by_processes { begun } else { matches }),
        memory_bytes_per_player: grown_by(if is_by_processes { begun * rules.seats() as u32 } else { players }),
        subsystems: subsystems(sites),
        phases: phases(sites),
        rewind: Rewind {
            us_per_shot: checks.us_per_shot,
            history_bytes_per_player: sites.iter().map(|site| site.history_bytes).max().unwrap_or(0),
            verdicts_equal_share: share(checks.comparison.equal, checks.comparison.shots),
            compared_shots: checks.comparison.shots,
            largest_bone_error_m: (checks.comparison.shots > 0).then_some(checks.comparison.largest_bone_error_m),
            shots: total(|site| site.shots),
            hits: total(|site| site.hits),
            clamped: total(|site| site.clamped),
        },
        fog: Fog {
            hidden_but_visible: (pairs_checked > 0).then_some(checks.fog.hidden_but_visible),
            sent_needlessly_share: share(checks.fog.sent_needlessly, checks.fog.sent),
            pairs_checked,
            cpu_share: 0.0,
            cpu_share_live: fog_share_live(sites, rules.tick_hz),
            rays: total(|site| site.fog_rays),
        },
        sight: found.rays,
        ai: Ai { decisions: found.bots.decisions, late_share: share(found.bots.late_decisions, found.bots.decisions) },
        commands: Commands {
            taken: ends().map(|end| end.taken).sum(),
            refused: ends().map(|end| end.refused).sum(),
            refused_by_game: total(|site| site.refused_by_game),
        },
        bots: Bots { cpu_cores: found.bots.cpu_s.map(|cpu_s| cpu_s / seconds.max(1e-9)), ..found.bots.bots },
        animation: animation(sites),
        replay: replay(checks.replay.as_ref()),
        ends: ends().map(|end| end.line.clone()).collect(),
        breaches: sites.iter().flat_map(|site| site.breaches.iter().cloned()).collect(),
        slow_files: sites.iter().map(|site| site.slow_files).sum(),
        goal: goal(found),
        samples: found.samples.clone(),
        steps: found.steps.clone(),
        triangles: found.triangles,
        ..Summary::default()
    };
    let fog_ms = summary.subsystems.get("fog_of_war").map_or(0.0, |fog| fog.mean_ms);
    summary.fog.cpu_share = fog_ms / 1e3 * f64::from(rules.tick_hz);
    let reasons = reasons(found, &summary, frame.count);
    summary.head.conclude(reasons);
    let is_within = summary.frame_ms.p99 <= FRAME_GOAL_MS
        && missed_ticks as f64 <= MISSED_SHARE_MAX * (frame.count + missed_ticks) as f64;
    let matches_per_core = f64::from(matches) / found.workers.max(1) as f64;
    let is_shown = summary.head.valid && is_within && all_played(options, sites);
    summary.matches_per_core = is_shown.then_some(matches_per_core);
    summary
}

/// Whether all matches played all the time. With a load profile, fewer do, or for a part of it. So it is if one of several was over
/// before the others.
fn all_played(options: &RunOptions, sites: &[SiteReport]) -> bool {
    options.profile == Profile::Constant && (options.matches == 1 || were_over(sites) == 0)
}

/// Matches that had a result before they were stopped.
fn were_over(sites: &[SiteReport]) -> usize {
    sites.iter().flat_map(|site| &site.ends).filter(|end| end.outcome.is_some()).count()
}

/// Frames beyond the goal: by second where the budget of a frame is the goal, else by process.
fn goal(found: &Found<'_>) -> Vec<Block> {
    // The budget of a frame, by which samples are counted, is the goal if no other one is given.
    if found.options.budgets.is_none() && !found.samples.frames.is_empty() {
        let seconds = found.samples.frames.iter().zip(&found.samples.frames_over);
        return seconds.map(|(of, over)| Block { over: *over, of: *of }).collect();
    }
    let is_over = |value: &&(u64, u64)| value.0 as f64 > FRAME_GOAL_MS * 1e6;
    let of_site = |site: &SiteReport| Block {
        over: site.frame.values.iter().filter(is_over).map(|value| value.1).sum(),
        of: site.frame.count,
    };
    found.sites.iter().map(of_site).collect()
}

impl Summary {
    /// The most important figures, for a terminal.
    pub fn table(&self) -> String {
        crate::report::page(self, Vec::new(), Frames::default()).text()
    }
}

impl Step {
    /// The step in a line.
    pub(crate) fn words(&self) -> String {
        format!(
            "{} matches: p50 {:.3} ms, p99 {:.3} ms, late p99 {:.0} µs, {} ticks missed; {}: {}",
            self.matches,
            self.frame_ms.p50,
            self.frame_ms.p99,
            self.lateness_p99_us,
            self.missed_ticks,
            self.purpose,
            self.verdict
        )
    }
}

/// Why the figures are not valid.
fn reasons(found: &Found<'_>, summary: &Summary, frames: u64) -> Vec<String> {
    let mut reasons = found.faults.clone();
    if frames == 0 {
        reasons.push("no frame was measured".to_owned());
    }
    for site in found.sites {
        let faults = site.ends.iter().filter(|end| !end.is_sound || !end.is_logged);
        reasons.extend(faults.map(|end| end.line.clone()));
        reasons
            .extend(site.file_error.iter().map(|error| format!("a file of telemetry could not be written: {error}")));
        reasons.extend(site.stuck.iter().map(|name| format!("{name} did not end in time")));
        if site.lost_frames > 0 {
            reasons.push(format!("telemetry lost {} frames", site.lost_frames));
        }
    }
    let ended: usize = found.sites.iter().map(|site| site.ends.len() + site.stuck.len()).sum();
    if ended < found.begun as usize {
        reasons.push(format!("{} matches have no end", found.begun as usize - ended));
    }
    // Bots that left no report are a fault of its own.
    let RunOptions { rules, agents, matches, .. } = found.options;
    // One match alone ends the run. Several were asked for as the load of the whole time.
    let over = if found.options.seconds.is_some() && *matches > 1 { were_over(found.sites) } else { 0 };
    if over > 0 {
        let words = "were over before the time was, so fewer played";
        reasons.push(format!("{over} of {matches} matches {words}: give them more --rounds, or less time"));
    }
    let bot_players = found.begun * (rules.seats() as u32 - u32::from(*agents));
    let Bots { joined, late, skipped, .. } = summary.bots;
    if joined < bot_players.into() && (found.bots.commands > 0 || found.faults.is_empty()) {
        reasons.push(format!("only {joined} of {bot_players} bots joined"));
    }
    let due = found.bots.commands + skipped;
    if late as f64 > BOTS_LATE_SHARE_MAX * due as f64 {
        reasons
            .push(format!("{late} of {due} commands of bots were more than a tick late, {skipped} of them not sent"));
    }
    if let Some(difference) = &summary.replay.difference {
        reasons.push(difference.clone());
    }
    if summary.fog.hidden_but_visible.is_some_and(|pairs| pairs > 0) {
        reasons.push("the fog hid enemies who could be seen".to_owned());
    }
    reasons
}

fn fog_share_live(sites: &[SiteReport], tick_hz: u32) -> Option<f64> {
    let phases = || sites.iter().flat_map(|site| &site.phases);
    let frames: u64 = phases().filter(|(name, _)| name == LIVE).map(|(_, times)| times.count).sum();
    let ns: f64 = sites.iter().map(|site| site.fog_live_ns).sum();
    (frames > 0).then(|| ns / frames as f64 / 1e9 * f64::from(tick_hz))
}

fn subsystems(sites: &[SiteReport]) -> BTreeMap<String, Subsystem> {
    let mut joined: BTreeMap<String, (Vec<&Times>, Subsystem)> = BTreeMap::new();
    for subsystem in sites.iter().flat_map(|site| &site.subsystems) {
        let (times, sums) = joined.entry(subsystem.name.clone()).or_default();
        times.push(&subsystem.times);
        sums.breaches += subsystem.breaches;
        sums.budget_ms = subsystem.budget_ns.map(|ns| ns as f64 / 1e6);
    }
    let figures = |(name, (times, sums)): (String, (Vec<&Times>, Subsystem))| {
        let times = Percentiles::of(&Times::joined(times.into_iter()), 1e6);
        (name, Subsystem { mean_ms: times.mean, p99_ms: times.p99, ..sums })
    };
    joined.into_iter().map(figures).collect()
}

fn phases(sites: &[SiteReport]) -> BTreeMap<String, Phase> {
    let mut joined: BTreeMap<String, Vec<&Times>> = BTreeMap::new();
    for (name, times) in sites.iter().flat_map(|site| &site.phases) {
        joined.entry(name.clone()).or_default().push(times);
    }
    let figures = |(name, times): (String, Vec<&Times>)| {
        let times = Times::joined(times.into_iter());
        let in_ms = Percentiles::of(&times, 1e6);
        (name, Phase { frames: times.count, mean_ms: in_ms.mean, p99_ms: in_ms.p99 })
    };
    joined.into_iter().map(figures).collect()
}

fn animation(sites: &[SiteReport]) -> Animation {
    let sum = |place: usize| sites.iter().map(|site| site.poses[place]).sum();
    Animation { poses: sum(0), saved_by_cadence: sum(1), saved_by_phase: sum(2) }
}

fn replay(result: Option<&Result<Replayed, ReplayError>>) -> Replay {
    match result {
        None => Replay::default(),
        Some(Ok(replayed)) => {
            Replay { identical: Some(true), ticks: replayed.ticks, digests: replayed.digests, difference: None }
        }
        Some(Err(error)) => Replay { identical: Some(false), difference: Some(error.to_string()), ..Replay::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::EndLine;

    #[test]
    fn several_matches_have_played_all_the_time_only_if_none_was_over_before_the_end() {
        let of = |matches: u32, profile: &str, outcome: Option<&str>| {
            let options = RunOptions { matches, profile: profile.parse().unwrap(), ..RunOptions::default() };
            let end = EndLine { outcome: outcome.map(str::to_owned), ..EndLine::default() };
            all_played(&options, &[SiteReport { ends: vec![EndLine::default(), end], ..SiteReport::default() }])
        };
        assert!(of(2, "constant", None) && !of(2, "constant", Some("attackers win")));
        assert!(of(1, "constant", Some("attackers win")), "it is the end of the run");
        assert!(!of(2, "step:1..2:1s", None));
    }
}
