//! The poses of one body.

use crate::capsule::MAX_CAPSULE_M;
use crate::geometry::{Bounds, Transform, add, mixed, rotate, sub, turned};
use crate::models::Skeleton;
use crate::moment::Moment;
use crate::track::{Cadence, Found, Gaps, Track, between};
use thiserror::Error;
use throng_wire::Tick;

/// Largest coordinate of a bone in its body, in metres.
pub const MAX_BODY_M: f32 = 64.0;

/// Largest coordinate of the middle of a capsule in its body, in metres.
pub(crate) const MAX_MIDDLE_M: f32 = MAX_BODY_M + 2.0 * MAX_CAPSULE_M;

/// The value of 1 in a stored rotation.
const ROTATION_STEPS: f32 = 32_767.0;

/// How far the length of a bone's rotation may be from 1.
const ROTATION_TOLERANCE: f32 = 0.01;

/// The position and rotation of a bone in the coordinates of its body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BonePose {
    /// Metres, each coordinate within [`MAX_BODY_M`].
    pub position_m: [f32; 3],
    /// A quaternion x, y, z, w of length 1.
    pub rotation: [f32; 4],
}

impl BonePose {
    /// A position and a rotation. Vectors of mathematics libraries convert: `glam::Vec3`, `glam::Quat`.
    pub fn new(position_m: impl Into<[f32; 3]>, rotation: impl Into<[f32; 4]>) -> BonePose {
        BonePose { position_m: position_m.into(), rotation: rotation.into() }
    }

    /// A position, not rotated.
    pub fn at(position_m: impl Into<[f32; 3]>) -> BonePose {
        BonePose::new(position_m, Transform::UNTURNED)
    }

    fn is_valid(&self) -> bool {
        self.position_m.iter().all(|value| value.abs() <= MAX_BODY_M)
            && (length_of(self.rotation) - 1.0).abs() <= ROTATION_TOLERANCE
    }
}

/// Why the way of a body is not continuous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// The body is somewhere else from this tick on. Earlier moments still show it where it was.
    Teleport,
    /// The body is gone from this tick on. Earlier moments still show it; whether a dead player can be hit is decided by
    /// the targets that the game names.
    Death,
    /// A new life begins: earlier moments do not show the body at all.
    Spawn,
}

/// How a pose between two stored poses is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpolation {
    /// Positions are mixed, rotations are mixed and normalised.
    #[default]
    Linear,
    /// The nearer one of the two poses is taken. For comparison.
    Nearest,
}

/// How the poses of a body are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistoryOptions {
    /// A pose is stored every so many ticks, 1 to 64.
    pub every_ticks: u32,
    /// Stored poses: a power of two, 2 to 1,024. The history reaches `(poses - 1) * every_ticks` ticks back.
    pub poses: usize,
    /// A longer step between two records is a break. Metres, above 0.
    pub break_distance_m: f64,
    /// More ticks between two records are a break.
    pub break_ticks: u32,
}

impl Default for HistoryOptions {
    /// Every 4th tick, 32 poses (1 s at 128 Hz), 2 m, 16 ticks.
    fn default() -> HistoryOptions {
        HistoryOptions { every_ticks: 4, poses: 32, break_distance_m: 2.0, break_ticks: 16 }
    }
}

impl HistoryOptions {
    /// The same time with a pose for every tick, to compare verdicts.
    pub fn full_rate(self) -> HistoryOptions {
        let poses = (self.poses * self.every_ticks as usize).next_power_of_two().min(1_024);
        HistoryOptions { every_ticks: 1, poses, ..self }
    }

    /// Whether every number is in its range.
    pub fn is_valid(&self) -> bool {
        (1..=64).contains(&self.every_ticks)
            && (2..=1_024).contains(&self.poses)
            && self.poses.is_power_of_two()
            && self.break_distance_m > 0.0
            && self.break_ticks >= self.every_ticks
    }

    fn cadence(&self) -> Cadence {
        let gaps = Gaps::Break { max_ticks: self.break_ticks, max_step_m: self.break_distance_m };
        Cadence { every_ticks: self.every_ticks, places: self.poses, gaps }
    }
}

/// The result of recording a pose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is stored.
    Stored,
    /// It is the newest pose until the next one comes: less than [`HistoryOptions::every_ticks`] have passed.
    Head,
    /// It is stored, and too far from the last one in space or time: the way between them is broken.
    StoredAfterBreak,
}

/// Why a pose or transform is not recorded. The caller is at fault; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The tick is not after the newest one.
    #[error("a pose of tick {} comes after one of tick {}: record each tick once, in order", tick.0, newest.0)]
    Order {
        /// The tick given.
        tick: Tick,
        /// The newest tick recorded, or the tick of the break after it.
        newest: Tick,
    },
    /// Not as many bones as the skeleton has.
    #[error("a pose has {given} bones, and the skeleton {expected}")]
    BoneCount {
        /// Bones given.
        given: usize,
        /// Bones of the skeleton.
        expected: usize,
    },
    /// A number is not finite, a rotation does not have length 1, or a bone is farther than [`MAX_BODY_M`] away.
    #[error(
        "a pose has a number that is not finite, a rotation whose length is not 1, or a bone more than {MAX_BODY_M} m \
         from its body"
    )]
    Value,
    /// There is no pose whose bones could be kept.
    #[error("a root alone was recorded before any pose: record a whole pose first")]
    NoPose,
    /// There is no such body or part.
    #[error("there is no such body or part: it was removed, or belongs to another rewind")]
    Unknown,
}

impl RecordError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            RecordError::Order { .. } => "record_order",
            RecordError::BoneCount { .. } => "record_bone_count",
            RecordError::Value => "record_value",
            RecordError::NoPose => "record_no_pose",
            RecordError::Unknown => "record_unknown",
        }
    }
}

/// A ring of poses of one body.
///
/// ```text
/// per bone  20 bytes: middle of its capsule 3 x f32, rotation 4 x i16
/// per pose  20 bones x 20 + 64 of the place (tick, break, root, reach) = 464
/// per body  (32 poses + 1 head) x 464 = 15,312 bytes, and 12 per bone and about 200 of the struct: below 18 KiB
/// ```
///
/// A pose stores and mixes the middle of each capsule, not the joint at its end: the middle says
/// most about what can be hit.
///
/// Rotations have steps of 1/32,767, which is at most 0.004 degrees, or 0.03 mm at the end of a bone of 50 cm.
///
/// Allocates when it is made, and never again.
#[derive(Clone, Debug)]
pub struct PoseHistory {
    track: Track,
    bones: usize,
    /// For each bone the middle of its capsule, in its own coordinates.
    middles: Box<[[f32; 3]]>,
    /// For each slot the x of the middles of all bones, then the y, then the z: the order in which several bones at a time are read.
    positions: Box<[f32]>,
    rotations: Box<[[i16; 4]]>,
    /// Contains the body in all its poses.
    bounds: Bounds,
    breaks: u64,
}

impl PoseHistory {
    /// No poses yet.
    ///
    /// # Panics
    /// If the options are not valid.
    pub fn new(skeleton: &Skeleton, options: HistoryOptions) -> PoseHistory {
        assert!(options.is_valid(), "{options:?} is out of range");
        let bones = skeleton.bones().len();
        let slots = Track::slots(options.cadence());
        PoseHistory {
            track: Track::new(options.cadence()),
            bones,
            middles: skeleton.cores().iter().map(|core| core.middle_m).collect(),
            positions: vec![0.0; slots * bones * 3].into_boxed_slice(),
            rotations: vec![[0; 4]; slots * bones].into_boxed_slice(),
            bounds: Bounds::NOTHING,
            breaks: 0,
        }
    }

    /// Whether a pose of `tick` would be stored. In other ticks a game need not evaluate poses.
    pub fn is_due(&self, tick: Tick) -> bool {
        self.track.is_due(tick)
    }

    /// The tick of the newest pose. A shot at a later moment is judged by this pose; a game that has a newer one records
    /// it first.
    pub fn newest(&self) -> Option<Tick> {
        self.track.newest().map(|slot| Tick(self.track.place(slot).tick))
    }

    /// Breaks of the way so far.
    pub fn breaks(&self) -> u64 {
        self.breaks
    }

    /// Bytes of this history, allocated memory included.
    pub fn memory_bytes(&self) -> usize {
        size_of::<PoseHistory>()
            + self.track.memory_bytes()
            + size_of_val(&*self.middles)
            + size_of_val(&*self.positions)
            + size_of_val(&*self.rotations)
    }

    /// Records the pose at the end of `tick`. `bones` are in the coordinates of `root`, in the order of the skeleton.
    ///
    /// May be called in any tick: poses between two stored ones are kept only until the next.
    ///
    /// # Errors
    /// See [`RecordError`]. Nothing has changed then.
    pub fn record(
        &mut self,
        skeleton: &Skeleton,
        tick: Tick,
        root: &Transform,
        bones: &[BonePose],
    ) -> Result<Recorded, RecordError> {
        if bones.len() != self.bones || skeleton.bones().len() != self.bones {
            return Err(RecordError::BoneCount { given: bones.len(), expected: self.bones });
        }
        if !root.is_valid() || !bones.iter().all(BonePose::is_valid) {
            return Err(RecordError::Value);
        }
        self.check_order(tick)?;
        let mut reach_squared = 0.0f32;
        let mut most_m = 0.0f32;
        let (slot, recorded) = self.place(tick, root);
        let n = self.bones;
        let positions = &mut self.positions[slot * n * 3..][..n * 3];
        let rotations = &mut self.rotations[slot * n..][..n];
        for (i, bone) in bones.iter().enumerate() {
            let inverse = 1.0 / length_of(bone.rotation);
            let rotation = bone.rotation.map(|value| value * inverse);
            let middle = turned(rotation, self.middles[i]);
            let [x, y, z] = [0, 1, 2].map(|axis| bone.position_m[axis] + middle[axis]);
            (positions[i], positions[n + i], positions[2 * n + i]) = (x, y, z);
            rotations[i] = rotation.map(to_steps);
            reach_squared = reach_squared.max(x * x + y * y + z * z);
            most_m = most_m.max(skeleton.reach_m()[i]);
        }
        // The sum was rounded: a little more is certainly enough.
        self.bound(slot, (reach_squared.sqrt() + most_m) * 1.000_01);
        Ok(recorded)
    }

    /// Records where the body is at the end of `tick`, with the bones of its newest pose: enough for ticks without an
    /// evaluated pose.
    ///
    /// Does nothing in a tick in which a pose is due.
    ///
    /// # Errors
    /// See [`RecordError`]. Nothing has changed then.
    pub fn record_root(&mut self, tick: Tick, root: &Transform) -> Result<(), RecordError> {
        if !root.is_valid() {
            return Err(RecordError::Value);
        }
        self.check_order(tick)?;
        let from = self.track.newest().ok_or(RecordError::NoPose)?;
        if self.is_due(tick) {
            return Ok(());
        }
        let reach_m = self.track.place(from).reach_m;
        let (slot, _) = self.place(tick, root);
        self.copy_bones(from, slot);
        self.bound(slot, reach_m);
        Ok(())
    }

    /// Breaks the way at `tick`: nothing is mixed across it.
    pub fn break_at(&mut self, tick: Tick, cause: Break) {
        self.breaks += 1;
        if cause == Break::Spawn {
            self.track.clear();
            self.bounds = Bounds::NOTHING;
        } else if let Some(slot) = self.track.break_at(tick) {
            self.copy_bones(self.track_head(), slot);
        }
    }

    /// The root and all bones at a moment, in world coordinates; false if the body was not there.
    ///
    /// Allocates only when `bones` grows.
    pub fn sample(&self, moment: Moment, mode: Interpolation, bones: &mut Vec<Transform>) -> bool {
        bones.clear();
        let Some(found) = self.find(moment, mode) else { return false };
        let (position, rotation) = self.root(&found);
        let before = self.pose(found.before);
        let after = self.pose(found.after);
        for bone in 0..self.bones {
            let (middle, own) = mixed_bone(before, after, bone, found.part);
            let joint = sub(middle, turned(own, self.middles[bone]).map(f64::from));
            let whole = product(rotation, own.map(f64::from));
            bones.push(Transform {
                position_m: add(position, rotate(rotation, joint)),
                rotation: whole.map(|value| value as f32),
            });
        }
        true
    }

    fn check_order(&self, tick: Tick) -> Result<(), RecordError> {
        if self.track.accepts(tick) {
            return Ok(());
        }
        let newest = self.track.newest().map_or(0, |slot| self.track.place(slot).tick);
        Err(RecordError::Order { tick, newest: Tick(newest) })
    }

    /// The slot for the bones of a new pose.
    fn place(&mut self, tick: Tick, root: &Transform) -> (usize, Recorded) {
        let written = self.track.record(tick, *root, 0.0);
        if let Some(slot) = written.promoted {
            self.copy_bones(self.track_head(), slot);
        }
        self.breaks += u64::from(written.is_break);
        let is_head = written.slot == self.track_head();
        let recorded = match (written.is_break, is_head) {
            (true, _) => Recorded::StoredAfterBreak,
            (false, true) => Recorded::Head,
            (false, false) => Recorded::Stored,
        };
        (written.slot, recorded)
    }

    /// Notes that no part of the body is farther than `reach_m` from its root in the newest pose.
    fn bound(&mut self, slot: usize, reach_m: f32) {
        self.track.set_reach(slot, reach_m);
        if slot == self.track_head() {
            self.bounds.include(self.track.place(slot).transform.position_m, reach_m.into());
            return;
        }
        self.bounds = Bounds::NOTHING;
        for slot in self.track.all() {
            let place = self.track.place(slot);
            self.bounds.include(place.transform.position_m, place.reach_m.into());
        }
    }

    fn track_head(&self) -> usize {
        self.rotations.len() / self.bones - 1
    }

    fn copy_bones(&mut self, from: usize, to: usize) {
        let n = self.bones;
        self.positions.copy_within(from * n * 3..(from + 1) * n * 3, to * n * 3);
        self.rotations.copy_within(from * n..(from + 1) * n, to * n);
    }

    /// A box that contains the body in all its stored poses and between them.
    pub(crate) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    pub(crate) fn find(&self, moment: Moment, mode: Interpolation) -> Option<Found> {
        let found = self.track.find(moment)?;
        Some(match mode {
            Interpolation::Linear => found,
            Interpolation::Nearest => {
                let slot = if found.part < 0.5 { found.before } else { found.after };
                Found { before: slot, after: slot, part: 0.0, ..found }
            }
        })
    }

    pub(crate) fn root(&self, found: &Found) -> (crate::geometry::Vector, crate::geometry::Rotation) {
        between(&self.track.place(found.before).transform, &self.track.place(found.after).transform, found.part)
    }

    /// The middle and radius of a ball that holds the body, in any rotation.
    #[inline]
    pub(crate) fn ball(&self, found: &Found) -> (crate::geometry::Vector, f32) {
        let (before, after) = (self.track.place(found.before), self.track.place(found.after));
        let middle = mixed(before.transform.position_m, after.transform.position_m, found.part);
        (middle, before.reach_m.max(after.reach_m))
    }

    #[inline]
    pub(crate) fn stored(&self, slot: usize) -> StoredPose<'_> {
        let place = self.track.place(slot);
        StoredPose { tick: Tick(place.tick), root: place.transform, bones: self.pose(slot) }
    }

    fn pose(&self, slot: usize) -> Bones<'_> {
        let n = self.bones;
        Bones { positions: &self.positions[slot * n * 3..][..n * 3], rotations: &self.rotations[slot * n..][..n] }
    }
}

/// A pose as it is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredPose<'a> {
    pub(crate) tick: Tick,
    pub(crate) root: Transform,
    pub(crate) bones: Bones<'a>,
}

/// The bones of a stored pose: all x, all y, all z; and the rotations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bones<'a> {
    pub(crate) positions: &'a [f32],
    pub(crate) rotations: &'a [[i16; 4]],
}

impl Bones<'_> {
    fn position(&self, bone: usize) -> [f64; 3] {
        let n = self.rotations.len();
        [self.positions[bone], self.positions[n + bone], self.positions[2 * n + bone]].map(f64::from)
    }
}

/// The middle of a bone's capsule and the bone's rotation between two poses, in the coordinates of the body.
#[inline]
pub(crate) fn mixed_bone(before: Bones<'_>, after: Bones<'_>, bone: usize, part: f64) -> ([f64; 3], [f32; 4]) {
    let middle = mixed(before.position(bone), after.position(bone), part);
    // Stored rotations need no scale, because the mix is normalised.
    let (a, b) = (before.rotations[bone].map(f32::from), after.rotations[bone].map(f32::from));
    let along = a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
    let (part, sign) = (part as f32, if along < 0.0 { -1.0 } else { 1.0 });
    let mix = [0, 1, 2, 3].map(|i| a[i] + (b[i] * sign - a[i]) * part);
    let inverse = 1.0 / length_of(mix);
    // Opposite rotations have a mix of length 0 in the middle, and a log can hold a rotation of length 0.
    if inverse.is_finite() { (middle, mix.map(|value| value * inverse)) } else { (middle, Transform::UNTURNED) }
}

fn length_of(q: [f32; 4]) -> f32 {
    (q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]).sqrt()
}

/// The nearest step, halves away from 0.
fn to_steps(value: f32) -> i16 {
    let scaled = value * ROTATION_STEPS;
    (scaled + if scaled < 0.0 { -0.5 } else { 0.5 }) as i16
}

/// First `b`, then `a`.
fn product(a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
    [
        a[3] * b[0] + a[0] * b[3] + a[1] * b[2] - a[2] * b[1],
        a[3] * b[1] - a[0] * b[2] + a[1] * b[3] + a[2] * b[0],
        a[3] * b[2] + a[0] * b[1] - a[1] * b[0] + a[2] * b[3],
        a[3] * b[3] - a[0] * b[0] - a[1] * b[1] - a[2] * b[2],
    ]
}
