//! All bodies and moving parts of a match, and the judging of shots at them.

use crate::case::{Candidate, Case, JudgeRules, NearPart, Search, Shot, ShotError, Surroundings};
use crate::geometry::{Ray, Transform};
use crate::models::{Models, ShapeId, Skeleton, SkeletonId};
use crate::moment::Moment;
use crate::part::PartHistory;
use crate::pose::{BonePose, Break, HistoryOptions, PoseHistory, RecordError, Recorded};
use crate::track::Found;
use crate::verdict::{BodyId, Flags, Outcome, PartId, Verdict};
use crate::view::View;
use thiserror::Error;
use throng_wire::Tick;

/// Most bodies of a match.
pub const MAX_BODIES: usize = 256;

/// Most moving parts of a match.
pub const MAX_PARTS: usize = 1_024;

/// Added to a distance that was computed with a few roundings, in metres.
const SLACK_M: f64 = 1e-6;

/// How a match is rewound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RewindOptions {
    /// How poses are kept.
    pub history: HistoryOptions,
    /// How shots are judged.
    pub judge: JudgeRules,
}

/// Why a rewind is not made, or a body or part is not added. The caller is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RewindError {
    /// A number of the options is out of range.
    #[error("a number of the options of the rewind is out of the range that its documentation names")]
    Options,
    /// There are [`MAX_BODIES`] bodies or [`MAX_PARTS`] parts.
    #[error("there are {MAX_BODIES} bodies or {MAX_PARTS} moving parts already: remove some first")]
    Full,
}

impl RewindError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            RewindError::Options => "rewind_options",
            RewindError::Full => "rewind_full",
        }
    }
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RewindCounters {
    /// Shots that were judged.
    pub shots: u64,
    /// Of these: hits.
    pub hits: u64,
    /// Of these: blocked by the world.
    pub blocked: u64,
    /// Of these: escaped by an ability.
    pub escaped: u64,
    /// Judged shots with the flag [`Flags::CLAMPED`].
    pub clamped: u64,
    /// Judged shots with the flag [`Flags::REPLACED`].
    pub replaced: u64,
    /// Judged shots with the flag [`Flags::FUTURE`].
    pub future: u64,
    /// Judged shots with the flag [`Flags::DISCONTINUITY`].
    pub discontinuity: u64,
    /// Targets whose capsules were tested.
    pub candidates: u64,
    /// Shots refused for their claimed view time.
    pub refused_claim: u64,
    /// Shots refused for their origin.
    pub refused_origin: u64,
    /// Shots refused for their direction.
    pub refused_direction: u64,
    /// Shots refused for their range or targets: misuse by the game.
    pub refused_misuse: u64,
    /// Poses and transforms refused: misuse by the game.
    pub refused_records: u64,
}

#[derive(Clone, Debug)]
struct Body {
    skeleton: SkeletonId,
    history: PoseHistory,
}

/// All bodies and moving parts of a match.
///
/// Allocates when bodies and parts are added. Recording and judging allocate nothing, apart from the buffers of a
/// [`Case`] during its first shots.
#[derive(Clone, Debug)]
pub struct Rewind {
    options: RewindOptions,
    models: Models,
    bodies: Vec<Option<Body>>,
    parts: Vec<Option<PartHistory>>,
    counters: RewindCounters,
    /// Memory for the work on one shot.
    approaches: Vec<Approach>,
}

/// How a ray comes near a body.
#[derive(Clone, Copy, Debug)]
struct Approach {
    body: BodyId,
    found: Found,
    /// No part of the body is entered before this distance along the ray.
    enter_m: f64,
    /// No part of the body is nearer to the ray.
    least_m: f64,
}

/// A body was not there at the moment of the view.
struct Absent;

impl Rewind {
    /// Without bodies and parts.
    ///
    /// # Errors
    /// Options out of range.
    pub fn new(options: RewindOptions, models: Models) -> Result<Rewind, RewindError> {
        if !options.history.is_valid() || !options.judge.is_valid() {
            return Err(RewindError::Options);
        }
        let approaches = Vec::with_capacity(16);
        let counters = RewindCounters::default();
        Ok(Rewind { options, models, bodies: Vec::new(), parts: Vec::new(), counters, approaches })
    }

    /// The options.
    pub fn options(&self) -> &RewindOptions {
        &self.options
    }

    /// Skeletons and shapes.
    pub fn models(&self) -> &Models {
        &self.models
    }

    /// To add skeletons and shapes.
    pub fn models_mut(&mut self) -> &mut Models {
        &mut self.models
    }

    /// Counters since the start.
    pub fn counters(&self) -> &RewindCounters {
        &self.counters
    }

    /// Adds a body without poses. It gets the lowest free number.
    ///
    /// # Errors
    /// [`RewindError::Full`].
    ///
    /// # Panics
    /// If the skeleton is not one of [`Rewind::models`].
    pub fn add_body(&mut self, skeleton: SkeletonId) -> Result<BodyId, RewindError> {
        let history = PoseHistory::new(self.models.skeleton(skeleton), self.options.history);
        Ok(BodyId(put(&mut self.bodies, Body { skeleton, history }, MAX_BODIES)?))
    }

    /// Removes a body; its number may be used again.
    pub fn remove_body(&mut self, body: BodyId) {
        if let Some(place) = self.bodies.get_mut(usize::from(body.0)) {
            *place = None;
        }
    }

    /// Adds a part that is nowhere yet. It stops shots whose mask has a bit in common with `mask`.
    ///
    /// # Errors
    /// [`RewindError::Full`].
    ///
    /// # Panics
    /// If the shape is not one of [`Rewind::models`].
    pub fn add_part(&mut self, shape: ShapeId, mask: u32) -> Result<PartId, RewindError> {
        let reach_m = self.models.shape(shape).reach_m();
        let part = PartHistory::new(shape, mask, reach_m, self.options.history);
        Ok(PartId(put(&mut self.parts, part, MAX_PARTS)?))
    }

    /// Removes a part with its history: it stops no shot any more, at no moment. A wall that falls is not removed, but
    /// broken with [`Break::Death`].
    pub fn remove_part(&mut self, part: PartId) {
        if let Some(place) = self.parts.get_mut(usize::from(part.0)) {
            *place = None;
        }
    }

    /// The poses of a body.
    pub fn body(&self, body: BodyId) -> Option<&PoseHistory> {
        Some(&self.bodies.get(usize::from(body.0))?.as_ref()?.history)
    }

    /// The stored transforms of a part.
    pub fn part(&self, part: PartId) -> Option<&PartHistory> {
        self.parts.get(usize::from(part.0))?.as_ref()
    }

    /// Records a pose: see [`PoseHistory::record`].
    ///
    /// # Errors
    /// See [`RecordError`]; counted.
    pub fn record(
        &mut self,
        body: BodyId,
        tick: Tick,
        root: &Transform,
        bones: &[BonePose],
    ) -> Result<Recorded, RecordError> {
        let result = match self.bodies.get_mut(usize::from(body.0)) {
            Some(Some(found)) => found.history.record(self.models.skeleton(found.skeleton), tick, root, bones),
            _ => Err(RecordError::Unknown),
        };
        self.counters.refused_records += u64::from(result.is_err());
        result
    }

    /// Records where a body is in a tick without an evaluated pose: see [`PoseHistory::record_root`].
    ///
    /// # Errors
    /// See [`RecordError`]; counted.
    pub fn record_root(&mut self, body: BodyId, tick: Tick, root: &Transform) -> Result<(), RecordError> {
        let result = match self.bodies.get_mut(usize::from(body.0)) {
            Some(Some(found)) => found.history.record_root(tick, root),
            _ => Err(RecordError::Unknown),
        };
        self.counters.refused_records += u64::from(result.is_err());
        result
    }

    /// Breaks the way of a body: see [`Break`]. Nothing happens without such a body.
    pub fn break_body(&mut self, body: BodyId, tick: Tick, cause: Break) {
        if let Some(Some(found)) = self.bodies.get_mut(usize::from(body.0)) {
            found.history.break_at(tick, cause);
        }
    }

    /// Records where a part is: see [`PartHistory::record`].
    ///
    /// # Errors
    /// See [`RecordError`]; counted.
    pub fn record_part(&mut self, part: PartId, tick: Tick, transform: &Transform) -> Result<(), RecordError> {
        let result = match self.parts.get_mut(usize::from(part.0)) {
            Some(Some(found)) => found.record(tick, transform),
            _ => Err(RecordError::Unknown),
        };
        self.counters.refused_records += u64::from(result.is_err());
        result
    }

    /// Breaks the way of a part: see [`PartHistory::break_at`]. Nothing happens without such a part.
    pub fn break_part(&mut self, part: PartId, tick: Tick, cause: Break) {
        if let Some(Some(found)) = self.parts.get_mut(usize::from(part.0)) {
            found.break_at(tick, cause);
        }
    }

    /// Judges a shot at some targets. `case` holds afterwards everything on which the verdict depends.
    ///
    /// # Errors
    /// A shot that is not valid; counted by reason. There is no verdict then, and the case is empty.
    pub fn judge(
        &mut self,
        shot: &Shot,
        targets: &[BodyId],
        surroundings: &impl Surroundings,
        case: &mut Case,
    ) -> Result<Verdict, ShotError> {
        match self.gather(shot, targets, case) {
            Ok((ray, view)) => {
                let search = self.search(&ray, &view, surroundings, case);
                let (verdict, world) = case.verdict(&self.models, search, view, |origin, direction, range_m| {
                    surroundings.closest_hit(origin, direction, range_m)
                });
                case.world = world;
                self.count(&verdict, case);
                Ok(verdict)
            }
            Err(error) => {
                case.clear();
                self.refuse(&error);
                Err(error)
            }
        }
    }

    /// Collects the parts that the shot comes near, and the targets in the order in which it comes near them; gives the
    /// shot's ray and view.
    fn gather(&mut self, shot: &Shot, targets: &[BodyId], case: &mut Case) -> Result<(Ray, View), ShotError> {
        case.clear();
        self.approaches.clear();
        let ray = shot.ray()?;
        if targets.len() > MAX_BODIES {
            return Err(ShotError::TooManyTargets);
        }
        (case.shot, case.rules) = (*shot, self.options.judge);
        let view = case.rules.view.decide(shot.claim, shot.now, shot.latency);
        for &target in targets {
            let Some(Some(body)) = self.bodies.get(usize::from(target.0)) else {
                return Err(ShotError::UnknownTarget(target));
            };
            if target != shot.shooter {
                match body.approach(target, &ray, view.moment, &case.rules) {
                    Ok(approach) => self.approaches.extend(approach),
                    Err(Absent) => case.is_absent = true,
                }
            }
        }
        self.approaches.sort_unstable_by(|a, b| a.enter_m.total_cmp(&b.enter_m));
        for (number, part) in self.parts.iter().enumerate() {
            let Some(part) = part.as_ref().filter(|part| part.mask() & shot.mask != 0) else { continue };
            let Some((found, before, after)) = part.near(&ray, view.moment) else { continue };
            case.parts.push(NearPart {
                part: PartId(number as u16),
                shape: part.shape(),
                before: (Tick(before.tick), before.transform),
                after: (found.before != found.after).then_some((Tick(after.tick), after.transform)),
            });
        }
        Ok((ray, view))
    }

    /// Tests the targets, and keeps those in the case that had to be tested. Those behind the nearest hit, and those that
    /// are farther from the ray than another one, change no verdict.
    fn search<'a>(&self, ray: &'a Ray, view: &View, surroundings: &impl Surroundings, case: &mut Case) -> Search<'a> {
        let mut search = Search::new(case, ray, view);
        for approach in &self.approaches {
            if approach.enter_m > search.last_m() {
                break;
            }
            let Some(Some(body)) = self.bodies.get(usize::from(approach.body.0)) else { continue };
            if approach.least_m <= search.near_m() {
                body.test(approach, self.models.skeleton(body.skeleton), surroundings, &mut search, case);
            }
        }
        search
    }

    fn count(&mut self, verdict: &Verdict, case: &Case) {
        let counters = &mut self.counters;
        counters.shots += 1;
        counters.candidates += case.candidates.len() as u64;
        match verdict.outcome {
            Outcome::Hit(_) => counters.hits += 1,
            Outcome::Blocked(_) => counters.blocked += 1,
            Outcome::Escaped { .. } => counters.escaped += 1,
            Outcome::Missed(_) => {}
        }
        let has = |flag: Flags| u64::from(verdict.flags.contains(flag));
        counters.clamped += has(Flags::CLAMPED);
        counters.replaced += has(Flags::REPLACED);
        counters.future += has(Flags::FUTURE);
        counters.discontinuity += has(Flags::DISCONTINUITY);
    }

    fn refuse(&mut self, error: &ShotError) {
        match error {
            ShotError::Claim => self.counters.refused_claim += 1,
            ShotError::Origin => self.counters.refused_origin += 1,
            ShotError::Direction => self.counters.refused_direction += 1,
            _ => self.counters.refused_misuse += 1,
        }
    }
}

impl Body {
    /// How the ray comes near the body, if it does: first near the box that contains all its stored poses, then near the
    /// ball that holds it at the moment of the view.
    #[inline]
    fn approach(
        &self,
        body: BodyId,
        ray: &Ray,
        moment: Moment,
        rules: &JudgeRules,
    ) -> Result<Option<Approach>, Absent> {
        let near_m = rules.near_miss_m + SLACK_M;
        if !ray.meets(self.history.bounds(), near_m) {
            return Ok(None);
        }
        let found = self.history.find(moment, rules.interpolation).ok_or(Absent)?;
        let (position, reach_m) = self.history.ball(&found);
        let reach_m = f64::from(reach_m) + SLACK_M;
        let (along_m, apart_squared) = ray.nearest(position);
        if apart_squared > (reach_m + near_m) * (reach_m + near_m) {
            return Ok(None);
        }
        let least_m = apart_squared.sqrt() - reach_m;
        Ok(Some(Approach { body, found, enter_m: along_m - reach_m, least_m }))
    }

    /// Tests the body and adds it to the case.
    #[inline]
    fn test(
        &self,
        approach: &Approach,
        skeleton: &Skeleton,
        surroundings: &impl Surroundings,
        search: &mut Search<'_>,
        case: &mut Case,
    ) {
        let found = &approach.found;
        let is_mixed = found.before != found.after;
        let before = self.history.stored(found.before);
        let after = if is_mixed { self.history.stored(found.after) } else { before };
        let candidate = Candidate {
            body: approach.body,
            skeleton: self.skeleton,
            flags: found.flags,
            escape: surroundings.escape(approach.body).filter(|escape| escape.began.is_valid()),
            before: (before.tick, before.root),
            after: is_mixed.then_some((after.tick, after.root)),
        };
        search.test(&candidate, skeleton, [before.bones, after.bones]);
        case.candidates.push(candidate);
        for pose in [Some(before), is_mixed.then_some(after)].into_iter().flatten() {
            case.positions.extend_from_slice(pose.bones.positions);
            case.rotations.extend_from_slice(pose.bones.rotations);
        }
    }
}

impl Case {
    pub(crate) fn clear(&mut self) {
        self.shot = Shot::default();
        self.is_absent = false;
        self.candidates.clear();
        self.positions.clear();
        self.rotations.clear();
        self.parts.clear();
        self.world = None;
    }
}

/// Puts something into the lowest free slot.
fn put<T>(list: &mut Vec<Option<T>>, new: T, most: usize) -> Result<u16, RewindError> {
    let place = list.iter().position(Option::is_none).unwrap_or(list.len());
    if place == most {
        return Err(RewindError::Full);
    }
    if place == list.len() {
        list.push(Some(new));
    } else {
        list[place] = Some(new);
    }
    Ok(place as u16)
}
