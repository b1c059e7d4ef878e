//! Abilities: the smoke that blocks sight, the wall that blocks everything, the dash that beats shots.

use glam::Vec3;
use throng::Tick;
use throng_rewind::{Convex, ConvexError, Escape, PartId, Transform};

use crate::Seat;
use crate::angle::{right_of, sine_cosine, sine_cosine_of, yaw_rad};
use crate::senses::{SmokeSeen, WallSeen};
use crate::solid::{RADIUS_M, STEP_M};

/// Radius of a smoke.
pub const SMOKE_RADIUS_M: f32 = 2.8;
/// How long a smoke hangs, in seconds.
pub(crate) const SMOKE_S: f32 = 12.0;
/// Time from the throw to the smoke, in seconds.
pub(crate) const SMOKE_DELAY_S: f32 = 0.5;
/// How far a smoke is thrown.
pub(crate) const SMOKE_RANGE_M: f32 = 22.0;
/// Smokes at a time.
pub(crate) const SMOKES_MAX: usize = 32;

/// Half of a wall's width, its height, and half of its thickness.
pub const WALL_SIZE_M: Vec3 = Vec3::new(1.6, 2.4, 0.15);
/// How long a wall stands, in seconds.
pub(crate) const WALL_S: f32 = 14.0;
/// Time in which a wall rises, in seconds.
pub(crate) const WALL_RISE_S: f32 = 0.25;
/// How far before its maker a wall stands.
pub(crate) const WALL_DISTANCE_M: f32 = 2.2;
/// A fallen wall is kept so long for those who still see it, in seconds.
pub(crate) const WALL_KEPT_S: f32 = 1.0;
/// Walls at a time, with those that have just fallen.
pub(crate) const WALLS_MAX: usize = 16;

/// Speed of a dash in m/s.
pub(crate) const DASH_SPEED: f32 = 13.0;
/// Time of a dash, in seconds.
pub(crate) const DASH_S: f32 = 0.22;
/// The number of the dash in verdicts.
pub(crate) const DASH_ABILITY: u32 = 1;

/// A smoke that was thrown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Smoke {
    /// Tells smokes of a match apart.
    pub(crate) number: u32,
    pub(crate) maker: Seat,
    pub(crate) middle: Vec3,
    pub(crate) from: Tick,
    pub(crate) until: Tick,
}

impl Smoke {
    pub(crate) fn is_thick(&self, now: Tick) -> bool {
        self.from <= now && now < self.until
    }

    pub(crate) fn seen(&self, now: Tick) -> SmokeSeen {
        SmokeSeen { middle: self.middle, radius_m: SMOKE_RADIUS_M, ticks_left: self.until.since(now) }
    }
}

impl SmokeSeen {
    /// Whether the smoke is in the way between two points.
    pub fn blocks(&self, from: Vec3, to: Vec3) -> bool {
        let (way, away) = (to - from, self.middle - from);
        let square = way.length_squared();
        let part = if square > 0.0 { (away.dot(way) / square).clamp(0.0, 1.0) } else { 0.0 };
        (from + way * part).distance_squared(self.middle) < self.radius_m * self.radius_m
    }
}

/// A wall that was raised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Barrier {
    /// Tells walls of a match apart.
    pub(crate) number: u32,
    pub(crate) maker: Seat,
    pub(crate) part: PartId,
    pub(crate) foot: Vec3,
    pub(crate) yaw: u16,
    pub(crate) from: Tick,
    pub(crate) until: Tick,
}

impl Barrier {
    pub(crate) fn shape() -> Result<Convex, ConvexError> {
        let half = Vec3::new(WALL_SIZE_M.x, WALL_SIZE_M.y / 2.0, WALL_SIZE_M.z);
        Convex::cuboid(half.to_array().map(f64::from))
    }

    /// Where its middle is when `risen` of it, 0 to 1, is above the ground.
    pub(crate) fn transform(&self, risen: f32) -> Transform {
        let middle = self.foot + Vec3::new(0.0, WALL_SIZE_M.y * (risen - 0.5), 0.0);
        let (sine, cosine) = sine_cosine_of(yaw_rad(self.yaw) / 2.0);
        Transform::new(middle.as_dvec3(), [0.0, sine, 0.0, cosine])
    }

    pub(crate) fn seen(&self, now: Tick) -> WallSeen {
        WallSeen { foot: self.foot, yaw: self.yaw, size_m: WALL_SIZE_M, ticks_left: self.until.since(now) }
    }

    pub(crate) fn top_m(&self) -> f32 {
        self.foot.y + WALL_SIZE_M.y
    }

    /// Along the width, and through the thickness.
    fn local(&self, place: Vec3) -> [f32; 2] {
        let (sine, cosine) = sine_cosine(self.yaw);
        let away = place - self.foot;
        [away.dot(right_of(sine, cosine)), away.x * sine + away.z * cosine]
    }

    pub(crate) fn is_above(&self, feet: Vec3) -> bool {
        let [along, through] = self.local(feet);
        along.abs() <= WALL_SIZE_M.x && through.abs() <= WALL_SIZE_M.z
    }

    /// Moves feet of a body out of the wall. The normal and the depth, if it touched; an error if the body's axis is
    /// inside.
    pub(crate) fn push(&self, feet: &mut Vec3, height_m: f32) -> Result<Option<(Vec3, f32)>, ()> {
        let (low, high) = (feet.y + STEP_M, feet.y + height_m);
        if high <= self.foot.y || low >= self.top_m() {
            return Ok(None);
        }
        let [along, through] = self.local(*feet);
        let nearest = [along.clamp(-WALL_SIZE_M.x, WALL_SIZE_M.x), through.clamp(-WALL_SIZE_M.z, WALL_SIZE_M.z)];
        let away = [along - nearest[0], through - nearest[1]];
        let square = away[0] * away[0] + away[1] * away[1];
        if square >= RADIUS_M * RADIUS_M {
            return Ok(None);
        }
        let distance = square.sqrt();
        if distance < 1e-4 {
            return Err(());
        }
        let (sine, cosine) = sine_cosine(self.yaw);
        let normal = (right_of(sine, cosine) * away[0] + Vec3::new(sine, 0.0, cosine) * away[1]) / distance;
        let depth = RADIUS_M - distance;
        *feet += normal * depth;
        Ok(Some((normal, depth)))
    }
}

impl WallSeen {
    /// Whether the wall is in the way between two points.
    pub fn blocks(&self, from: Vec3, to: Vec3) -> bool {
        let (sine, cosine) = sine_cosine(self.yaw);
        let middle = self.foot + Vec3::new(0.0, self.size_m.y / 2.0, 0.0);
        let half = Vec3::new(self.size_m.x, self.size_m.y / 2.0, self.size_m.z);
        let local = |place: Vec3| {
            let away = place - middle;
            Vec3::new(away.dot(right_of(sine, cosine)), away.y, away.x * sine + away.z * cosine)
        };
        let (from, way) = (local(from), local(to) - local(from));
        let (mut enter, mut leave) = (0.0f32, 1.0f32);
        for axis in 0..3 {
            if way[axis].abs() < 1e-9 {
                if from[axis].abs() > half[axis] {
                    return false;
                }
                continue;
            }
            let (a, b) = ((-half[axis] - from[axis]) / way[axis], (half[axis] - from[axis]) / way[axis]);
            (enter, leave) = (enter.max(a.min(b)), leave.min(a.max(b)));
        }
        enter <= leave
    }
}

/// A dash that runs, or has just ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dash {
    /// The character moves so, until then.
    pub(crate) velocity: Vec3,
    pub(crate) until: Tick,
    /// When it began in the time of its owner.
    pub(crate) escape: Escape,
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_rewind::Models;

    fn wall(yaw: u16) -> Barrier {
        let mut rewind = throng_rewind::Rewind::new(throng_rewind::RewindOptions::default(), Models::new()).unwrap();
        let shape = rewind.models_mut().add_shape(Barrier::shape().unwrap()).unwrap();
        let part = rewind.add_part(shape, 1).unwrap();
        let foot = Vec3::new(5.0, 1.0, -3.0);
        Barrier { number: 0, maker: Seat(0), part, foot, yaw, from: Tick(0), until: Tick(100) }
    }

    #[test]
    fn a_smoke_blocks_lines_through_it() {
        let smoke = Smoke { number: 0, maker: Seat(0), middle: Vec3::ZERO, from: Tick(10), until: Tick(20) };
        assert!(!smoke.is_thick(Tick(9)) && smoke.is_thick(Tick(10)) && !smoke.is_thick(Tick(20)));
        let seen = smoke.seen(Tick(12));
        assert_eq!(seen.ticks_left, 8);
        assert!(seen.blocks(Vec3::new(-9.0, 0.0, 0.0), Vec3::new(9.0, 1.0, 0.0)));
        assert!(!seen.blocks(Vec3::new(-9.0, 0.0, 0.0), Vec3::new(-3.0, 0.0, 0.0)), "it ends before");
        assert!(!seen.blocks(Vec3::new(-9.0, 0.0, 3.0), Vec3::new(9.0, 0.0, 3.0)), "it passes by");
        assert!(seen.blocks(Vec3::X, Vec3::X), "inside");
    }

    #[test]
    fn a_wall_blocks_lines_through_it() {
        // Yaw 16,384 looks along +x, so the wall is thin along x and wide along z.
        let seen = wall(16_384).seen(Tick(0));
        let line = |from: [f32; 3], to: [f32; 3]| seen.blocks(Vec3::from_array(from), Vec3::from_array(to));
        assert!(line([0.0, 2.0, -3.0], [9.0, 2.0, -3.0]));
        assert!(line([0.0, 2.0, -4.5], [9.0, 2.0, -4.5]));
        assert!(!line([0.0, 2.0, -4.7], [9.0, 2.0, -4.7]), "beside it");
        assert!(!line([0.0, 3.5, -3.0], [9.0, 3.5, -3.0]), "above it");
        assert!(!line([0.0, 2.0, -3.0], [4.8, 2.0, -3.0]), "before it");
    }

    #[test]
    fn a_wall_pushes_bodies_out_on_their_side() {
        for yaw in [0, 5_000, 16_384, 40_000] {
            let wall = wall(yaw);
            let ahead = crate::angle::direction(yaw, 0);
            for side in [-1.0, 1.0] {
                let mut feet = wall.foot + ahead * side * 0.3;
                let (normal, depth) = wall.push(&mut feet, 1.8).unwrap().unwrap();
                assert!((normal - ahead * side).length() < 1e-3 && (depth - 0.2).abs() < 1e-3, "{normal} {depth}");
                assert!((feet - (wall.foot + ahead * side * 0.5)).length() < 1e-3);
                assert_eq!(wall.push(&mut (feet + ahead * side * 0.01), 1.8), Ok(None));
            }
            let mut above = wall.foot + Vec3::new(0.0, 2.01, 0.0);
            assert_eq!(wall.push(&mut above, 1.8), Ok(None), "feet on top of it");
            assert!(wall.is_above(above));
        }
    }
}
