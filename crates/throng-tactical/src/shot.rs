//! Shots: where they go, what they hit, and the record of each verdict.

use glam::Vec3;
use throng::Tick;
use throng_match::Seat;
use throng_rewind::{
    BodyId, Case, Escape, Latency, LogWriter, Moment, Outcome, Rewind, Shot, Surroundings, Verdict, WorldHit,
};
use throng_sight::{Map, Ray, town};

use crate::ability::Dash;
use crate::angle::sine_cosine_of;
use crate::command::Command;
use crate::skeleton::Zone;
use crate::weapon::Weapon;

/// Verdicts that wait to be taken, in bytes. With less room left than [`ROOM_BYTES`], further ones are counted and
/// dropped.
const LOG_BYTES: usize = 512 * 1_024;
/// More than the record of one shot needs, with the skeleton before the first one.
const ROOM_BYTES: usize = 32 * 1_024;

/// A hit whose damage has not been taken yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wound {
    pub(crate) by: Seat,
    pub(crate) target: BodyId,
    pub(crate) zone: Zone,
    pub(crate) damage: f32,
    pub(crate) weapon: Weapon,
}

/// The world of a shot that is judged.
pub(crate) struct Range<'a> {
    pub(crate) map: &'a Map,
    /// Dashes that take their owners out of the way of this shot, by body.
    pub(crate) escapes: &'a [(BodyId, Escape)],
}

impl Surroundings for Range<'_> {
    fn closest_hit(&self, origin_m: [f64; 3], direction: [f64; 3], range_m: f64) -> Option<WorldHit> {
        let vector = |from: [f64; 3]| Vec3::from_array(from.map(|part| part as f32));
        let ray = Ray::new(vector(origin_m), vector(direction), range_m as f32).ok()?;
        let hit = self.map.closest(&ray, town::BULLETS)?;
        Some(WorldHit { distance_m: f64::from(hit.distance_m), surface: hit.triangle.0 })
    }

    fn escape(&self, target: BodyId) -> Option<Escape> {
        self.escapes.iter().find(|(body, _)| *body == target).map(|(_, escape)| *escape)
    }
}

/// The record of verdicts, until it is taken.
#[derive(Clone, Debug)]
pub(crate) struct ShotLog {
    writer: LogWriter,
    bytes: Vec<u8>,
    pub(crate) dropped: u64,
}

impl ShotLog {
    pub(crate) fn new() -> ShotLog {
        ShotLog { writer: LogWriter::with_capacity(ROOM_BYTES), bytes: Vec::with_capacity(LOG_BYTES), dropped: 0 }
    }

    pub(crate) fn append(&mut self, rewind: &Rewind, case: &Case, verdict: &Verdict) {
        if self.bytes.len() + ROOM_BYTES > LOG_BYTES {
            self.dropped += 1;
        } else {
            self.writer.append(rewind.models(), case, verdict, &mut self.bytes);
        }
    }

    pub(crate) fn take(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes);
        self.bytes.clear();
    }
}

/// The direction of a shot: where the player looks, turned up and to the right by the recoil, and somewhere within the
/// spread. `chance` is two numbers from 0 to 1.
pub(crate) fn direction(command: &Command, [up, right]: [f32; 2], spread: f32, chance: [f32; 2]) -> Vec3 {
    // Evenly over the disc.
    let away = spread * chance[0].sqrt();
    let (sine, cosine) = sine_cosine_of(chance[1] * std::f32::consts::TAU);
    let (yaw_sine, yaw_cosine) = sine_cosine_of(command.yaw_rad());
    let (rise, level) = sine_cosine_of(command.pitch_rad());
    let ahead = Vec3::new(yaw_sine * level, rise, yaw_cosine * level);
    let upwards = Vec3::new(-yaw_sine * rise, level, -yaw_cosine * rise);
    let rightwards = crate::angle::right_of(yaw_sine, yaw_cosine);
    // Small angles: a part of the length is the angle.
    ahead + upwards * (up + away * sine) + rightwards * (right + away * cosine)
}

/// The moment that the screen showed, by the client's claim.
pub(crate) fn claim(command: &Command, now: Tick) -> Moment {
    let tick = throng_wire::ShortTick(command.view_tick).near(now);
    Moment::new(tick, f32::from(command.view_fraction) / 256.0)
}

/// A shot from an eye, for the judge.
pub(crate) fn shot(
    (shooter, eye): (BodyId, Vec3),
    (now, claim, latency): (Tick, Moment, Latency),
    direction: Vec3,
    weapon: Weapon,
) -> Shot {
    Shot {
        shooter,
        now,
        claim,
        latency,
        origin_m: eye.as_dvec3().to_array(),
        direction: direction.as_dvec3().to_array(),
        range_m: f64::from(weapon.facts().range_m),
        mask: u32::MAX,
    }
}

/// Where a shot ended, in metres from its origin.
pub(crate) fn length_m(verdict: &Verdict, range_m: f32) -> f32 {
    let world = verdict.blocked.map(|block| block.distance_m as f32);
    match verdict.outcome {
        Outcome::Hit(struck) => struck.distance_m as f32,
        _ => world.unwrap_or(range_m),
    }
}

/// The dash by which a body escapes, if a shot with this view still shows the body where it was before the dash ended.
pub(crate) fn escape(dash: Option<&Dash>, view: Moment) -> Option<Escape> {
    dash.filter(|dash| view < Moment::at(dash.until)).map(|dash| dash.escape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shots_lie_within_their_spread_around_the_recoil() {
        let mut random = fastrand::Rng::with_seed(9);
        let mut command = Command::default();
        let aim = Vec3::new(1.0, 0.5, -2.0).normalize();
        command.look_along(aim);
        let mut farthest = 0.0f32;
        let mut sum = Vec3::ZERO;
        for _ in 0..4_000 {
            let way = direction(&command, [0.0, 0.0], 0.05, [random.f32(), random.f32()]).normalize();
            farthest = farthest.max(way.angle_between(aim));
            sum += way;
        }
        assert!(farthest < 0.0502 && farthest > 0.048, "{farthest}");
        assert!((sum / 4_000.0).angle_between(aim) < 0.002, "evenly around the aim");
        let kicked = direction(&command, [0.1, 0.0], 0.0, [0.0, 0.0]).normalize();
        assert!(kicked.y > aim.y + 0.05, "recoil goes up");
        let aside = direction(&Command::default(), [0.0, 0.1], 0.0, [0.0, 0.0]);
        assert!(aside.x < -0.09, "to the right of somebody who looks along z");
    }

    #[test]
    fn a_dash_is_no_protection_for_ever() {
        let escape_of = Escape { began: Moment::at(Tick(100)), ability: 1 };
        let dash = Dash { velocity: Vec3::ZERO, until: Tick(130), escape: escape_of };
        assert_eq!(escape(Some(&dash), Moment::new(Tick(129), 0.9)), Some(escape_of));
        assert_eq!(escape(Some(&dash), Moment::at(Tick(130))), None);
        assert_eq!(escape(None, Moment::at(Tick(0))), None);
    }
}
