//! The bytes of models, cases and verdicts. All numbers are little-endian; floats are their IEEE 754 bits.
//!
//! ```text
//! skeleton   bones u8, then for each: zone u8, name length u8, name, from 3 x f32, to 3 x f32, radius f32
//! shape      planes u8, then for each: normal 3 x f64, offset f64
//! shot       verdict, case
//!
//! verdict    outcome u8: 0 hit, 1 blocked, 2 escaped, 3 missed, 4 missed by little
//!              0, 1, 2: body u16, skeleton u16, bone u8, zone u8, distance f64; 2: ability u32
//!              4: body u16, skeleton u16, bone u8, distance f64
//!            view: tick u64, fraction f32, rewound f64, flags u16
//!            flags u16
//!            blocked u8: 0 no, 1 world, 2 part; then number u32, distance f64
//! case       shot: shooter u16, now u64, claim (tick u64, fraction f32), rtt u32, interpolation u32,
//!                  origin 3 x f64, direction 3 x f64, range f64, mask u32
//!            rules: ticks per second u32, tolerance f64, limit f64, near miss f64, interpolation u8 (0 linear, 1 nearest)
//!            absent u8
//!            world u8: 0 none, 1: distance f64, surface u32
//!            parts u16, then for each: part u16, shape u16, place, 0 or 1 and a later place
//!            targets u16, then for each: body u16, skeleton u16, flags u16,
//!                  0 or 1 and an escape (tick u64, fraction f32, ability u32),
//!                  place, bones, 0 or 1 and a later place, bones
//! place      tick u64, position 3 x f64, rotation 4 x f32
//! bones      middles of the capsules, all x, all y, all z as f32; then for each bone its rotation, 4 x i16
//! ```

use crate::capsule::Capsule;
use crate::case::{Candidate, Case, Escape, JudgeRules, NearPart, Shot, WorldHit};
use crate::convex::{Convex, Plane};
use crate::geometry::Transform;
use crate::log::LogError;
use crate::models::{Bone, Models, ShapeId, Skeleton, SkeletonId};
use crate::moment::Moment;
use crate::pose::{Bones, Interpolation, MAX_MIDDLE_M};
use crate::rewind::{MAX_BODIES, MAX_PARTS};
use crate::verdict::{Block, Blocker, BodyId, Flags, NearMiss, Outcome, PartId, Struck, Verdict};
use crate::view::{Latency, View, ViewRules};
use throng_wire::{BitReader, Tick};

/// Where bytes go: into a buffer, or into a checksum.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);

    fn u8(&mut self, value: u8) {
        self.put(&[value]);
    }
    fn u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }
    fn u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }
    fn f32(&mut self, value: f32) {
        self.u32(value.to_bits());
    }
    fn f64(&mut self, value: f64) {
        self.u64(value.to_bits());
    }
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// FNV-1a with 64 bits. Any single changed byte changes the sum: each step is a bijection of the sum before it.
pub(crate) struct Checksum(pub(crate) u64);

impl Checksum {
    pub(crate) fn new() -> Checksum {
        Checksum(0xCBF2_9CE4_8422_2325)
    }
}

impl Sink for Checksum {
    fn put(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
}

/// Reads what a [`Sink`] took.
pub(crate) struct Input<'a>(BitReader<'a>);

type Read<T> = Result<T, LogError>;

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(BitReader::new(bytes))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.remaining_bits() == 0
    }

    fn bits(&mut self, bits: u32) -> Read<u64> {
        self.0.read(bits).map_err(|_| LogError::Content)
    }
    fn u8(&mut self) -> Read<u8> {
        Ok(self.bits(8)? as u8)
    }
    fn u16(&mut self) -> Read<u16> {
        Ok(self.bits(16)? as u16)
    }
    fn u32(&mut self) -> Read<u32> {
        Ok(self.bits(32)? as u32)
    }
    fn u64(&mut self) -> Read<u64> {
        self.bits(64)
    }
    fn f32(&mut self) -> Read<f32> {
        let value = f32::from_bits(self.u32()?);
        if value.is_finite() { Ok(value) } else { Err(LogError::Content) }
    }
    fn f64(&mut self) -> Read<f64> {
        let value = f64::from_bits(self.u64()?);
        if value.is_finite() { Ok(value) } else { Err(LogError::Content) }
    }
    /// One of two values.
    fn choice(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(LogError::Content),
        }
    }
    fn floats<const N: usize>(&mut self) -> Read<[f32; N]> {
        let mut values = [0.0; N];
        for value in &mut values {
            *value = self.f32()?;
        }
        Ok(values)
    }
    fn doubles<const N: usize>(&mut self) -> Read<[f64; N]> {
        let mut values = [0.0; N];
        for value in &mut values {
            *value = self.f64()?;
        }
        Ok(values)
    }
}

pub(crate) fn write_skeleton(skeleton: &Skeleton, out: &mut impl Sink) {
    out.u8(skeleton.bones().len() as u8);
    for bone in skeleton.bones() {
        out.u8(bone.zone);
        out.u8(bone.name.len() as u8);
        out.put(bone.name.as_bytes());
        let Capsule { from_m, to_m, radius_m } = bone.capsule;
        from_m.iter().chain(&to_m).for_each(|value| out.f32(*value));
        out.f32(radius_m);
    }
}

pub(crate) fn read_skeleton(input: &mut Input<'_>) -> Read<Skeleton> {
    let count = input.u8()?;
    let mut bones = Vec::new();
    for _ in 0..count {
        let zone = input.u8()?;
        let length = input.u8()?;
        let mut name = Vec::new();
        input.0.read_bytes(length.into(), &mut name).map_err(|_| LogError::Content)?;
        let name = String::from_utf8(name).map_err(|_| LogError::Content)?;
        let capsule = Capsule { from_m: input.floats()?, to_m: input.floats()?, radius_m: input.f32()? };
        bones.push(Bone { name, zone, capsule });
    }
    Skeleton::new(bones).map_err(|_| LogError::Content)
}

pub(crate) fn write_shape(shape: &Convex, out: &mut impl Sink) {
    out.u8(shape.planes().len() as u8);
    for plane in shape.planes() {
        plane.normal.iter().for_each(|value| out.f64(*value));
        out.f64(plane.offset_m);
    }
}

pub(crate) fn read_shape(input: &mut Input<'_>) -> Read<Convex> {
    let count = input.u8()?;
    let mut planes = Vec::new();
    for _ in 0..count {
        planes.push(Plane { normal: input.doubles()?, offset_m: input.f64()? });
    }
    Convex::new(&planes).map_err(|_| LogError::Content)
}

pub(crate) fn write_verdict(verdict: &Verdict, out: &mut impl Sink) {
    match &verdict.outcome {
        Outcome::Hit(struck) => write_struck(0, struck, out),
        Outcome::Blocked(struck) => write_struck(1, struck, out),
        Outcome::Escaped { struck, ability } => {
            write_struck(2, struck, out);
            out.u32(*ability);
        }
        Outcome::Missed(None) => out.u8(3),
        Outcome::Missed(Some(near)) => {
            out.u8(4);
            out.u16(near.body.0);
            out.u16(near.skeleton.0);
            out.u8(near.bone);
            out.f64(near.missed_by_m);
        }
    }
    write_moment(verdict.view.moment, out);
    out.f64(verdict.view.rewound_ms);
    out.u16(verdict.view.flags.bits());
    out.u16(verdict.flags.bits());
    match verdict.blocked {
        None => out.u8(0),
        Some(Block { by, distance_m }) => {
            let (kind, number) = match by {
                Blocker::World(surface) => (1, surface),
                Blocker::Part(part) => (2, part.0.into()),
            };
            out.u8(kind);
            out.u32(number);
            out.f64(distance_m);
        }
    }
}

fn write_struck(outcome: u8, struck: &Struck, out: &mut impl Sink) {
    out.u8(outcome);
    out.u16(struck.body.0);
    out.u16(struck.skeleton.0);
    out.u8(struck.bone);
    out.u8(struck.zone);
    out.f64(struck.distance_m);
}

pub(crate) fn read_verdict(input: &mut Input<'_>) -> Read<Verdict> {
    let outcome = match input.u8()? {
        0 => Outcome::Hit(read_struck(input)?),
        1 => Outcome::Blocked(read_struck(input)?),
        2 => Outcome::Escaped { struck: read_struck(input)?, ability: input.u32()? },
        3 => Outcome::Missed(None),
        4 => Outcome::Missed(Some(NearMiss {
            body: BodyId(input.u16()?),
            skeleton: SkeletonId(input.u16()?),
            bone: input.u8()?,
            missed_by_m: input.f64()?,
        })),
        _ => return Err(LogError::Content),
    };
    let view = View { moment: read_moment(input)?, rewound_ms: input.f64()?, flags: read_flags(input)? };
    let flags = read_flags(input)?;
    let blocked = match input.u8()? {
        0 => None,
        kind => {
            let number = input.u32()?;
            let by = match (kind, u16::try_from(number)) {
                (1, _) => Blocker::World(number),
                (2, Ok(part)) => Blocker::Part(PartId(part)),
                _ => return Err(LogError::Content),
            };
            Some(Block { by, distance_m: input.f64()? })
        }
    };
    Ok(Verdict { outcome, view, flags, blocked })
}

fn read_struck(input: &mut Input<'_>) -> Read<Struck> {
    Ok(Struck {
        body: BodyId(input.u16()?),
        skeleton: SkeletonId(input.u16()?),
        bone: input.u8()?,
        zone: input.u8()?,
        distance_m: input.f64()?,
    })
}

fn read_flags(input: &mut Input<'_>) -> Read<Flags> {
    Flags::from_bits(input.u16()?).ok_or(LogError::Content)
}

fn write_moment(moment: Moment, out: &mut impl Sink) {
    out.u64(moment.tick.0);
    out.f32(moment.fraction);
}

fn read_moment(input: &mut Input<'_>) -> Read<Moment> {
    let moment = Moment { tick: Tick(input.u64()?), fraction: input.f32()? };
    if moment.is_valid() { Ok(moment) } else { Err(LogError::Content) }
}

fn write_place(place: &(Tick, Transform), out: &mut impl Sink) {
    out.u64(place.0.0);
    place.1.position_m.iter().for_each(|value| out.f64(*value));
    place.1.rotation.iter().for_each(|value| out.f32(*value));
}

fn read_place(input: &mut Input<'_>) -> Read<(Tick, Transform)> {
    let tick = Tick(input.u64()?);
    let transform = Transform { position_m: input.doubles()?, rotation: input.floats()? };
    if transform.is_valid() { Ok((tick, transform)) } else { Err(LogError::Content) }
}

pub(crate) fn write_case(case: &Case, models: &Models, out: &mut impl Sink) {
    write_shot(&case.shot, out);
    write_rules(&case.rules, out);
    out.u8(case.is_absent.into());
    out.u8(case.world.is_some().into());
    if let Some(hit) = case.world {
        out.f64(hit.distance_m);
        out.u32(hit.surface);
    }
    out.u16(case.parts.len() as u16);
    for near in &case.parts {
        out.u16(near.part.0);
        out.u16(near.shape.0);
        write_place(&near.before, out);
        out.u8(near.after.is_some().into());
        near.after.iter().for_each(|place| write_place(place, out));
    }
    write_candidates(case, models, out);
}

fn write_shot(shot: &Shot, out: &mut impl Sink) {
    out.u16(shot.shooter.0);
    out.u64(shot.now.0);
    write_moment(shot.claim, out);
    out.u32(shot.latency.rtt_us);
    out.u32(shot.latency.interpolation_us);
    shot.origin_m.iter().chain(&shot.direction).for_each(|value| out.f64(*value));
    out.f64(shot.range_m);
    out.u32(shot.mask);
}

fn write_rules(rules: &JudgeRules, out: &mut impl Sink) {
    out.u32(rules.view.ticks_per_s);
    out.f64(rules.view.tolerance_ms);
    out.f64(rules.view.max_ms);
    out.f64(rules.near_miss_m);
    out.u8(match rules.interpolation {
        Interpolation::Linear => 0,
        Interpolation::Nearest => 1,
    });
}

fn write_candidates(case: &Case, models: &Models, out: &mut impl Sink) {
    out.u16(case.candidates.len() as u16);
    let (mut positions, mut rotations) = (&case.positions[..], &case.rotations[..]);
    for candidate in &case.candidates {
        let n = models.skeleton(candidate.skeleton).bones().len();
        out.u16(candidate.body.0);
        out.u16(candidate.skeleton.0);
        out.u16(candidate.flags.bits());
        out.u8(candidate.escape.is_some().into());
        if let Some(escape) = candidate.escape {
            write_moment(escape.began, out);
            out.u32(escape.ability);
        }
        let mut write_pose = |place: &(Tick, Transform), out: &mut _| {
            let (x, y) = positions.split_at(n * 3);
            let (q, r) = rotations.split_at(n);
            (positions, rotations) = (y, r);
            write_place(place, out);
            write_bones(Bones { positions: x, rotations: q }, out);
        };
        write_pose(&candidate.before, out);
        out.u8(candidate.after.is_some().into());
        if let Some(after) = &candidate.after {
            write_pose(after, out);
        }
    }
}

fn write_bones(bones: Bones<'_>, out: &mut impl Sink) {
    bones.positions.iter().for_each(|value| out.f32(*value));
    bones.rotations.iter().flatten().for_each(|value| out.u16(*value as u16));
}

/// Reads a case. It refers only to `models`, and its lists fit together.
pub(crate) fn read_case(input: &mut Input<'_>, models: &Models, case: &mut Case) -> Read<()> {
    case.clear();
    case.shot = read_shot(input)?;
    case.rules = read_rules(input)?;
    case.is_absent = input.choice()?;
    if input.choice()? {
        case.world = Some(WorldHit { distance_m: input.f64()?, surface: input.u32()? });
    }
    let parts = input.u16()?;
    if usize::from(parts) > MAX_PARTS {
        return Err(LogError::Content);
    }
    for _ in 0..parts {
        let part = PartId(input.u16()?);
        let shape = ShapeId(input.u16()?);
        if usize::from(shape.0) >= models.shapes().len() {
            return Err(LogError::Content);
        }
        let before = read_place(input)?;
        let after = if input.choice()? { Some(read_place(input)?) } else { None };
        case.parts.push(NearPart { part, shape, before, after });
    }
    let candidates = input.u16()?;
    if usize::from(candidates) > MAX_BODIES {
        return Err(LogError::Content);
    }
    for _ in 0..candidates {
        read_candidate(input, models, case)?;
    }
    Ok(())
}

fn read_shot(input: &mut Input<'_>) -> Read<Shot> {
    let shot = Shot {
        shooter: BodyId(input.u16()?),
        now: Tick(input.u64()?),
        claim: read_moment(input)?,
        latency: Latency { rtt_us: input.u32()?, interpolation_us: input.u32()? },
        origin_m: input.doubles()?,
        direction: input.doubles()?,
        range_m: input.f64()?,
        mask: input.u32()?,
    };
    if shot.ray().is_ok() { Ok(shot) } else { Err(LogError::Content) }
}

fn read_rules(input: &mut Input<'_>) -> Read<JudgeRules> {
    let view = ViewRules { ticks_per_s: input.u32()?, tolerance_ms: input.f64()?, max_ms: input.f64()? };
    let near_miss_m = input.f64()?;
    let interpolation = if input.choice()? { Interpolation::Nearest } else { Interpolation::Linear };
    let rules = JudgeRules { view, near_miss_m, interpolation };
    if rules.is_valid() { Ok(rules) } else { Err(LogError::Content) }
}

fn read_candidate(input: &mut Input<'_>, models: &Models, case: &mut Case) -> Read<()> {
    let body = BodyId(input.u16()?);
    let skeleton = SkeletonId(input.u16()?);
    let bones = models.skeletons().get(usize::from(skeleton.0)).ok_or(LogError::Content)?.bones().len();
    let flags = read_flags(input)?;
    let escape = match input.choice()? {
        true => Some(Escape { began: read_moment(input)?, ability: input.u32()? }),
        false => None,
    };
    let before = read_place(input)?;
    read_bones(input, bones, case)?;
    let after = if input.choice()? { Some(read_place(input)?) } else { None };
    if after.is_some() {
        read_bones(input, bones, case)?;
    }
    case.candidates.push(Candidate { body, skeleton, flags, escape, before, after });
    Ok(())
}

fn read_bones(input: &mut Input<'_>, bones: usize, case: &mut Case) -> Read<()> {
    for _ in 0..bones * 3 {
        let value = input.f32()?;
        if value.abs() > MAX_MIDDLE_M {
            return Err(LogError::Content);
        }
        case.positions.push(value);
    }
    for _ in 0..bones {
        let mut rotation = [0; 4];
        for value in &mut rotation {
            *value = input.u16()? as i16;
        }
        case.rotations.push(rotation);
    }
    Ok(())
}
