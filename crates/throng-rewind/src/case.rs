//! Everything that the verdict on one shot depends on, and the verdict.

use crate::capsule::{Line, Round};
use crate::geometry::{Ray, Rotation, Transform, Vector, add, direction, sub, turned};
use crate::models::{MAX_BONES, Models, ShapeId, Skeleton, SkeletonId};
use crate::moment::Moment;
use crate::part::local;
use crate::pose::{Bones, Interpolation, mixed_bone};
use crate::track::between;
use crate::verdict::{Block, Blocker, BodyId, Flags, NearMiss, Outcome, PartId, Struck, Verdict};
use crate::view::{Latency, View, ViewRules};
use thiserror::Error;
use throng_wire::Tick;

/// The longest shot, and the largest coordinate of its origin, in metres.
pub const MAX_RANGE_M: f64 = 1e6;

/// More than the largest error of `f32` arithmetic on coordinates of a body, in metres.
const SLACK_M: f32 = 1e-3;

/// More than the largest error of a distance along a ray, in metres.
const ROUNDING_M: f64 = 1e-6;

/// Bones that are bounded at a time. [`MAX_BONES`] is a multiple of it.
const LANES: usize = 4;

/// A shot as a client reports it, and what the server knows of the client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shot {
    /// Never its own target.
    pub shooter: BodyId,
    /// The tick in which the server handles the shot.
    pub now: Tick,
    /// The moment that the client says it was looking at. From the client.
    pub claim: Moment,
    /// Measured by the server.
    pub latency: Latency,
    /// Where the shot begins, in metres. The game checks that the shooter can be there.
    pub origin_m: [f64; 3],
    /// Of any length above 0. From the client.
    pub direction: [f64; 3],
    /// Above 0, at most [`MAX_RANGE_M`].
    pub range_m: f64,
    /// Moving parts stop the shot if their mask and this one have a bit in common.
    pub mask: u32,
}

/// Why a shot is not judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ShotError {
    /// The fraction of the claimed moment is not from 0 to below 1. The client is at fault.
    #[error("the claimed view time has a fraction that is not from 0 to below 1")]
    Claim,
    /// The origin is not finite, or absurdly far. The client, or the game, is at fault.
    #[error("the origin of a shot is not finite or farther than {MAX_RANGE_M} m")]
    Origin,
    /// The direction is not finite or has no length. The client is at fault.
    #[error("the direction of a shot is not finite or has no length")]
    Direction,
    /// The range is not above 0 and at most [`MAX_RANGE_M`]. The game is at fault.
    #[error("the range of a shot is not above 0 and at most {MAX_RANGE_M} m")]
    Range,
    /// A target does not exist. The game is at fault.
    #[error("there is no body {} among the targets' bodies: name the bodies that were added and not removed", .0.0)]
    UnknownTarget(BodyId),
    /// More than [`crate::MAX_BODIES`] targets. The game is at fault.
    #[error("a shot names more targets than there can be bodies: name each once")]
    TooManyTargets,
}

impl ShotError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            ShotError::Claim => "shot_claim",
            ShotError::Origin => "shot_origin",
            ShotError::Direction => "shot_direction",
            ShotError::Range => "shot_range",
            ShotError::UnknownTarget(_) => "shot_unknown_target",
            ShotError::TooManyTargets => "shot_too_many_targets",
        }
    }
}

impl Shot {
    /// The ray of a valid shot.
    pub(crate) fn ray(&self) -> Result<Ray, ShotError> {
        if !self.claim.is_valid() {
            return Err(ShotError::Claim);
        }
        if !self.origin_m.iter().all(|value| value.abs() <= MAX_RANGE_M) {
            return Err(ShotError::Origin);
        }
        if !(self.range_m > 0.0 && self.range_m <= MAX_RANGE_M) {
            return Err(ShotError::Range);
        }
        let direction = direction(self.direction).ok_or(ShotError::Direction)?;
        Ok(Ray::new(self.origin_m, direction, self.range_m))
    }
}

/// How shots are judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JudgeRules {
    /// Which moment counts.
    pub view: ViewRules,
    /// A miss is reported with its distance if it is within this. Metres, 0 to 10.
    pub near_miss_m: f64,
    /// How poses are mixed.
    pub interpolation: Interpolation,
}

impl Default for JudgeRules {
    /// The default view rules, 0.5 m, linear.
    fn default() -> JudgeRules {
        JudgeRules { view: ViewRules::default(), near_miss_m: 0.5, interpolation: Interpolation::Linear }
    }
}

impl JudgeRules {
    /// Whether every number is in its range.
    pub fn is_valid(&self) -> bool {
        self.view.is_valid() && (0.0..=10.0).contains(&self.near_miss_m)
    }
}

/// A hit of the static world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorldHit {
    /// From the origin of the ray, in metres.
    pub distance_m: f64,
    /// The game's number for what was hit, for example a triangle or a material.
    pub surface: u32,
}

/// An ability that takes its owner out of the way of shots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Escape {
    /// When it began in its owner's own time: the tick in which the server heard of it, less half of its owner's round
    /// trip. [`ViewRules::fired`] computes it.
    pub began: Moment,
    /// The game's number of the ability.
    pub ability: u32,
}

/// Facts of the game that a rewind does not know: the static world, and escapes.
///
/// A closure `|origin_m, direction, range_m| -> Option<WorldHit>` is a world in which nobody escapes.
pub trait Surroundings {
    /// The first point of the static world along a ray, at most `range_m` away. `direction` has length 1.
    ///
    /// The answer must depend on the arguments alone. One that is NaN, negative or beyond the range counts as none.
    fn closest_hit(&self, origin_m: [f64; 3], direction: [f64; 3], range_m: f64) -> Option<WorldHit>;

    /// The newest ability by which `target` escapes shots, if there is one.
    ///
    /// The rule *escape first*: it beats each shot that was fired after it began, each of the two in the time of the
    /// player who did it. Asked once for each target that a shot comes near.
    fn escape(&self, target: BodyId) -> Option<Escape> {
        let _ = target;
        None
    }
}

impl<F: Fn([f64; 3], [f64; 3], f64) -> Option<WorldHit>> Surroundings for F {
    fn closest_hit(&self, origin_m: [f64; 3], direction: [f64; 3], range_m: f64) -> Option<WorldHit> {
        self(origin_m, direction, range_m)
    }
}

/// A world without anything in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenSpace;

impl Surroundings for OpenSpace {
    fn closest_hit(&self, _: [f64; 3], _: [f64; 3], _: f64) -> Option<WorldHit> {
        None
    }
}

/// A target that a shot comes near, with the poses on both sides of the moment of the view.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) body: BodyId,
    pub(crate) skeleton: SkeletonId,
    pub(crate) flags: Flags,
    pub(crate) escape: Option<Escape>,
    pub(crate) before: (Tick, Transform),
    /// None if the target is held at the first pose.
    pub(crate) after: Option<(Tick, Transform)>,
}

/// A moving part that a shot comes near.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NearPart {
    pub(crate) part: PartId,
    pub(crate) shape: ShapeId,
    pub(crate) before: (Tick, Transform),
    pub(crate) after: Option<(Tick, Transform)>,
}

/// Everything that a verdict depends on. Made by [`crate::Rewind::judge`], kept by a [`crate::LogWriter`].
///
/// Reuse one: its buffers keep their size, so judging allocates nothing after the first shots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Case {
    pub(crate) shot: Shot,
    pub(crate) rules: JudgeRules,
    /// A named target was not there.
    pub(crate) is_absent: bool,
    pub(crate) candidates: Vec<Candidate>,
    /// Bones of all candidates, one after the other; first those of the earlier pose, then those of the later one.
    pub(crate) positions: Vec<f32>,
    pub(crate) rotations: Vec<[i16; 4]>,
    pub(crate) parts: Vec<NearPart>,
    /// The answer of the static world.
    pub(crate) world: Option<WorldHit>,
}

impl Default for Shot {
    /// From the origin along x, at tick 0.
    fn default() -> Shot {
        Shot {
            shooter: BodyId(0),
            now: Tick(0),
            claim: Moment::at(Tick(0)),
            latency: Latency::default(),
            origin_m: [0.0; 3],
            direction: [1.0, 0.0, 0.0],
            range_m: 1.0,
            mask: u32::MAX,
        }
    }
}

/// The best that was found so far along a ray.
#[derive(Clone, Copy)]
struct Best {
    struck: Struck,
    flags: Flags,
}

impl Case {
    /// An empty case, to be filled by [`crate::Rewind::judge`], with room for a shot that comes near many.
    pub fn new() -> Case {
        const NEAR: usize = 16;
        const BONES: usize = 20;
        Case {
            candidates: Vec::with_capacity(NEAR),
            // Two poses of each, three numbers for a position.
            positions: Vec::with_capacity(NEAR * BONES * 2 * 3),
            rotations: Vec::with_capacity(NEAR * BONES * 2),
            parts: Vec::with_capacity(NEAR),
            ..Case::default()
        }
    }

    /// The shot.
    pub fn shot(&self) -> &Shot {
        &self.shot
    }

    /// The rules by which it is judged.
    pub fn rules(&self) -> &JudgeRules {
        &self.rules
    }

    /// Targets that the shot came near: those whose capsules were tested.
    pub fn candidates(&self) -> usize {
        self.candidates.len()
    }

    /// Judges again from the recorded inputs alone. Equal to the first verdict in every bit.
    ///
    /// # Errors
    /// A shot that is not valid, which only a case that was never filled can hold.
    ///
    /// # Panics
    /// If `models` are not those of the case.
    pub fn judge_again(&self, models: &Models) -> Result<Verdict, ShotError> {
        let view = self.rules.view.decide(self.shot.claim, self.shot.now, self.shot.latency);
        let (verdict, _) = self.judge(models, &self.shot.ray()?, view, |_, _, range_m| {
            // A recorded answer was within the range that was asked for.
            self.world.filter(|hit| hit.distance_m <= range_m)
        });
        Ok(verdict)
    }

    /// The verdict, and what the world answered. `ray` and `view` are those of the shot.
    pub(crate) fn judge(
        &self,
        models: &Models,
        ray: &Ray,
        view: View,
        world: impl FnOnce([f64; 3], [f64; 3], f64) -> Option<WorldHit>,
    ) -> (Verdict, Option<WorldHit>) {
        let mut search = Search::new(self, ray, &view);
        let mut bones = Split { positions: &self.positions, rotations: &self.rotations };
        for candidate in &self.candidates {
            let skeleton = models.skeleton(candidate.skeleton);
            let n = skeleton.bones().len();
            let before = bones.take(n);
            let after = if candidate.after.is_some() { bones.take(n) } else { before };
            search.test(candidate, skeleton, [before, after]);
        }
        self.verdict(models, search, view, world)
    }

    /// The verdict on candidates that were tested.
    pub(crate) fn verdict(
        &self,
        models: &Models,
        search: Search<'_>,
        view: View,
        world: impl FnOnce([f64; 3], [f64; 3], f64) -> Option<WorldHit>,
    ) -> (Verdict, Option<WorldHit>) {
        let ray = search.ray;
        let mut blocked = self.nearest_part(models, ray, view.moment);

        let part_m = blocked.map_or(ray.range_m, |block| block.distance_m);
        let ask_m = search.hit.map_or(part_m, |best| best.struck.distance_m.min(part_m));
        let answer = world(ray.origin, ray.direction, ask_m).filter(|hit| (0.0..=ask_m).contains(&hit.distance_m));
        if let Some(hit) = answer {
            blocked = Some(Block { by: Blocker::World(hit.surface), distance_m: hit.distance_m });
        }
        (self.conclude(view, search, blocked), answer)
    }

    fn conclude(&self, view: View, search: Search<'_>, blocked: Option<Block>) -> Verdict {
        let reaches = |best: &Best| blocked.is_none_or(|block| best.struck.distance_m < block.distance_m);
        let mut flags = view.flags;
        let escaped = search.escaped.filter(|(best, _)| reaches(best));
        let (outcome, blocked) = match (search.hit, escaped) {
            (Some(best), escaped) if reaches(&best) => {
                flags |= best.flags;
                if escaped.is_some_and(|(nearer, _)| nearer.struck.distance_m < best.struck.distance_m) {
                    flags |= Flags::ESCAPED;
                }
                (Outcome::Hit(best.struck), None)
            }
            (_, Some((best, ability))) => {
                flags |= best.flags | Flags::ESCAPED;
                (Outcome::Escaped { struck: best.struck, ability }, blocked)
            }
            (Some(best), None) => {
                flags |= best.flags;
                (Outcome::Blocked(best.struck), blocked)
            }
            (None, None) => {
                flags |= search.near_flags;
                if self.is_absent {
                    flags |= Flags::ABSENT;
                }
                (Outcome::Missed(search.near), blocked)
            }
        };
        Verdict { outcome, view, flags, blocked }
    }

    fn nearest_part(&self, models: &Models, ray: &Ray, moment: Moment) -> Option<Block> {
        let mut nearest: Option<Block> = None;
        for near in &self.parts {
            let (position, rotation) = at_moment(&near.before, &near.after, moment);
            let (origin, direction) = local(ray, 0.0, position, rotation);
            let range_m = nearest.map_or(ray.range_m, |block| block.distance_m);
            if let Some(distance_m) = models.shape(near.shape).enters(origin, direction, range_m)
                && nearest.is_none_or(|block| distance_m < block.distance_m)
            {
                nearest = Some(Block { by: Blocker::Part(near.part), distance_m });
            }
        }
        nearest
    }
}

/// The nearest target along a ray, and how near the ray comes to one if it meets none.
///
/// The order in which candidates are tested does not matter: of two at the same distance, the body with the lower number
/// counts. So a candidate that is certainly behind the nearest hit need not be tested.
pub(crate) struct Search<'a> {
    ray: &'a Ray,
    moment: Moment,
    fired: Moment,
    hit: Option<Best>,
    escaped: Option<(Best, u32)>,
    near: Option<NearMiss>,
    near_flags: Flags,
    near_miss_m: f64,
}

impl<'a> Search<'a> {
    /// For the shot and the rules of a case.
    pub(crate) fn new(case: &Case, ray: &'a Ray, view: &View) -> Search<'a> {
        Search {
            ray,
            moment: view.moment,
            fired: case.rules.view.fired(case.shot.now, case.shot.latency),
            hit: None,
            escaped: None,
            near: None,
            near_flags: Flags::NONE,
            near_miss_m: case.rules.near_miss_m,
        }
    }

    /// The distance along the ray behind which nothing counts any more.
    pub(crate) fn last_m(&self) -> f64 {
        self.hit.map_or(f64::INFINITY, |best| best.struck.distance_m)
    }

    /// The distance from the ray beyond which nothing counts any more.
    pub(crate) fn near_m(&self) -> f64 {
        if self.hit.is_some() { 0.0 } else { self.near.map_or(self.near_miss_m, |near| near.missed_by_m) }
    }

    /// Tests the capsules of a candidate, whose bones are those of the poses before and after the moment.
    pub(crate) fn test(&mut self, candidate: &Candidate, skeleton: &Skeleton, bones: [Bones<'_>; 2]) {
        let tested = Body::new(candidate, skeleton, bones, self.ray, self.moment);
        let Some((bone, meeting)) = tested.meet(self.near_m(), self.last_m()) else { return };
        let body = candidate.body;
        match meeting {
            Meeting::At(distance_m) => {
                let zone = skeleton.bones()[bone].zone;
                let struck = Struck { body, skeleton: candidate.skeleton, bone: bone as u8, zone, distance_m };
                self.take(Best { struck, flags: candidate.flags }, candidate.escape);
            }
            Meeting::By(missed_by_m) => {
                let key = |near: &NearMiss| (near.missed_by_m, near.body);
                let near = NearMiss { body, skeleton: candidate.skeleton, bone: bone as u8, missed_by_m };
                if self.near.as_ref().is_none_or(|old| key(&near) < key(old)) {
                    (self.near, self.near_flags) = (Some(near), candidate.flags);
                }
            }
        }
    }

    fn take(&mut self, best: Best, escape: Option<Escape>) {
        let key = |best: &Best| (best.struck.distance_m, best.struck.body);
        let is_nearer = |old: &Best| key(&best) < key(old);
        match escape.filter(|escape| escape.began < self.fired) {
            Some(escape) if self.escaped.as_ref().is_none_or(|(old, _)| is_nearer(old)) => {
                self.escaped = Some((best, escape.ability));
            }
            None if self.hit.as_ref().is_none_or(is_nearer) => self.hit = Some(best),
            _ => {}
        }
    }
}

/// Hands out the bones of one pose after the other.
struct Split<'a> {
    positions: &'a [f32],
    rotations: &'a [[i16; 4]],
}

impl<'a> Split<'a> {
    fn take(&mut self, bones: usize) -> Bones<'a> {
        let (positions, other_positions) = self.positions.split_at(bones * 3);
        let (rotations, other_rotations) = self.rotations.split_at(bones);
        (self.positions, self.rotations) = (other_positions, other_rotations);
        Bones { positions, rotations }
    }
}

/// Of the way from the one to the other, at a moment.
fn part_of(before: Tick, after: Tick, moment: Moment) -> f64 {
    let span = after.0.saturating_sub(before.0).max(1) as f64;
    (moment.ticks_since(Moment::at(before)) / span).clamp(0.0, 1.0)
}

fn at_moment(before: &(Tick, Transform), after: &Option<(Tick, Transform)>, moment: Moment) -> (Vector, Rotation) {
    match after {
        Some(after) => between(&before.1, &after.1, part_of(before.0, after.0, moment)),
        None => between(&before.1, &before.1, 0.0),
    }
}

/// As many floats from `first` on; zeros behind the end.
#[inline]
fn lanes(floats: &[f32], first: usize) -> [f32; LANES] {
    match floats.get(first..first + LANES) {
        Some(whole) => whole.try_into().expect("as many as lanes"),
        None => {
            let mut padded = [0.0; LANES];
            let rest = &floats[first..];
            padded[..rest.len()].copy_from_slice(rest);
            padded
        }
    }
}

enum Meeting {
    /// The ray enters, at this distance from its origin.
    At(f64),
    /// The ray passes, at this distance from the capsule.
    By(f64),
}

/// A body at the moment of the view, and the ray in its coordinates.
struct Body<'a> {
    skeleton: &'a Skeleton,
    bones: [Bones<'a>; 2],
    part: f64,
    /// Distance along the ray of the point from which the line counts: the one nearest to the root. So all numbers near
    /// the body are small.
    along_m: f64,
    line: Line,
}

impl<'a> Body<'a> {
    fn new(
        candidate: &Candidate,
        skeleton: &'a Skeleton,
        bones: [Bones<'a>; 2],
        ray: &Ray,
        moment: Moment,
    ) -> Body<'a> {
        let part = candidate.after.map_or(0.0, |after| part_of(candidate.before.0, after.0, moment));
        let (position, rotation) = at_moment(&candidate.before, &candidate.after, moment);
        let (along_m, _) = ray.nearest(position);
        let (origin, direction) = local(ray, along_m, position, rotation);
        let line = Line { origin, direction, from_m: -along_m, to_m: ray.range_m - along_m };
        Body { skeleton, bones, part, along_m, line }
    }

    /// The first capsule along the ray, or the one that it passes by at most `near_m`; if several are as near, the first
    /// of them. Of what lies behind `last_m` along the ray nothing may come.
    fn meet(&self, near_m: f64, last_m: f64) -> Option<(usize, Meeting)> {
        let mut room = [[0.0; MAX_BONES]; 2];
        let [least_m, entry_m] = self.bounds(&mut room);
        let nearest = (0..least_m.len()).fold(0, |best, bone| if least_m[bone] < least_m[best] { bone } else { best });
        // The nearest one first: after it, most others need not be tested.
        let bones = || std::iter::once(nearest).chain((0..least_m.len()).filter(|bone| *bone != nearest));
        let mut first = (last_m - self.along_m + ROUNDING_M, usize::MAX);
        for bone in bones().filter(|bone| least_m[*bone] <= 0.0) {
            if f64::from(entry_m[bone]) <= first.0
                && let Some(at) = self.line.enters(&self.capsule(bone))
                && (at, bone) < first
            {
                first = (at, bone);
            }
        }
        if first.1 != usize::MAX {
            return Some((first.1, Meeting::At((self.along_m + first.0).max(0.0))));
        }
        let mut near = (near_m, usize::MAX);
        for bone in bones().filter(|_| last_m == f64::INFINITY) {
            if f64::from(least_m[bone]) <= near.0 {
                let by_m = self.line.distance_m(&self.capsule(bone));
                if (by_m, bone) < near {
                    near = (by_m, bone);
                }
            }
        }
        (near.1 != usize::MAX).then_some((near.1, Meeting::By(near.0)))
    }

    /// For each bone a distance that its capsule certainly has from the line, and a place on the line before which it is
    /// certainly not entered: those of the ball around its middle.
    fn bounds<'b>(&self, room: &'b mut [[f32; MAX_BONES]; 2]) -> [&'b [f32]; 2] {
        let n = self.skeleton.reach_m().len();
        let [before, after] = self.bones.map(|bones| {
            let (x, rest) = bones.positions.split_at(n);
            let (y, z) = rest.split_at(n);
            [x, y, z]
        });
        let part = self.part as f32;
        let origin = self.line.origin.map(|value| value as f32);
        let direction = self.line.direction.map(|value| value as f32);
        let (from_m, to_m) = (self.line.from_m as f32, self.line.to_m as f32);
        let [least_m, entry_m] = room;
        // Several bones at a time: the lanes become vector instructions.
        for first in (0..n).step_by(LANES) {
            let reach_m = lanes(self.skeleton.reach_m(), first);
            let mut away = [[0.0; LANES]; 3];
            let mut along = [0.0; LANES];
            for axis in 0..3 {
                let (before, after) = (lanes(before[axis], first), lanes(after[axis], first));
                for lane in 0..LANES {
                    away[axis][lane] = before[lane] + (after[lane] - before[lane]) * part - origin[axis];
                    along[lane] += away[axis][lane] * direction[axis];
                }
            }
            let mut apart = [0.0; LANES];
            for along in &mut along {
                *along = if *along > from_m { *along } else { from_m };
                *along = if *along < to_m { *along } else { to_m };
            }
            for axis in 0..3 {
                for lane in 0..LANES {
                    let across = away[axis][lane] - direction[axis] * along[lane];
                    apart[lane] += across * across;
                }
            }
            for lane in 0..LANES {
                least_m[first + lane] = apart[lane].sqrt() - (reach_m[lane] + SLACK_M);
                entry_m[first + lane] = along[lane] - (reach_m[lane] + SLACK_M);
            }
        }
        let (least_m, entry_m) = (&least_m[..n], &entry_m[..n]);
        [least_m, entry_m]
    }

    fn capsule(&self, bone: usize) -> Round {
        let (middle, rotation) = mixed_bone(self.bones[0], self.bones[1], bone, self.part);
        let core = &self.skeleton.cores()[bone];
        let half = turned(rotation, core.half_m).map(f64::from);
        Round { from: sub(middle, half), to: add(middle, half), radius_m: core.radius_m.into() }
    }
}
