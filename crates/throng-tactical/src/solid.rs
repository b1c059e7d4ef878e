//! The solid parts of the world: triangles of the map near a body, and walls made by abilities.
//!
//! A body is an upright capsule that floats [`STEP_M`] above the feet, so that it goes over stairs and kerbs. Five
//! upright lines under the feet find lower ground.
//!
//! ```text
//!      ( )   height          Each step ends with a capsule that touches nothing, or is undone. Parts of a step
//!      | |                   are shorter than the radius. So no triangle is ever crossed, however thin it is.
//!      ( )   0.75 m
//!            0.4 m
//!      |||   ground
//! ```

use glam::Vec3;
use throng_sight::{Map, town};

use crate::ability::Barrier;
use crate::geometry::{Axis, height_at};

/// Radius of a body.
pub const RADIUS_M: f32 = 0.35;
/// Height of a body that stands.
pub const STANDING_M: f32 = 1.8;
/// Height of a body that crouches.
pub const CROUCHED_M: f32 = 1.25;
/// Edges up to this height are walked over.
pub const STEP_M: f32 = 0.4;

/// A body may reach so far into something, because of rounding.
pub(crate) const SKIN_M: f32 = 0.005;
/// Triangles are kept within this distance of a body, so that they serve for several steps.
const MARGIN_M: f32 = 0.6;
/// Around a part of a step, triangles are looked at within this distance.
const NEAR_M: f32 = 0.12;
/// Ground is steeper than this nowhere: the upward part of its normal.
const WALKABLE: f32 = 0.64;
/// How far from the middle the four outer lines stand.
const FOOT_M: f32 = 0.2;
const PASSES: usize = 5;
const KEPT: usize = 512;

/// The size of an upright body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Body {
    pub(crate) height_m: f32,
}

impl Body {
    pub(crate) fn standing() -> Body {
        Body { height_m: STANDING_M }
    }

    fn axis(self, feet: Vec3) -> Axis {
        let low = STEP_M + RADIUS_M;
        Axis { low: feet + Vec3::new(0.0, low, 0.0), length: (self.height_m - RADIUS_M - low).max(0.0) }
    }
}

/// A triangle near a body.
#[derive(Clone, Copy, Debug)]
struct Solid {
    corners: [Vec3; 3],
    lowest: Vec3,
    highest: Vec3,
    is_ground: bool,
}

/// How a body came out of what it reached into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Push {
    /// It touches nothing deeper than the skin.
    Free {
        /// Something held it up.
        is_held: bool,
    },
    /// No place was found.
    Stuck,
}

/// The triangles near one body. Its answers do not depend on the entries that it keeps.
#[derive(Debug)]
pub(crate) struct Solids {
    kept: Vec<Solid>,
    /// Numbers of those near the present part of a step.
    near: Vec<u32>,
    lowest: Vec3,
    highest: Vec3,
}

impl Solids {
    pub(crate) fn new() -> Solids {
        Solids {
            kept: Vec::with_capacity(KEPT),
            near: Vec::with_capacity(KEPT),
            lowest: Vec3::INFINITY,
            highest: Vec3::NEG_INFINITY,
        }
    }

    /// Makes sure that all triangles around a way of the feet are here. True if the map had to be asked.
    pub(crate) fn gather(&mut self, map: &Map, from: Vec3, to: Vec3) -> bool {
        let (low, high) = (from.min(to), from.max(to));
        let lowest = low - Vec3::new(RADIUS_M + NEAR_M, STEP_M + NEAR_M, RADIUS_M + NEAR_M);
        let highest = high + Vec3::new(RADIUS_M + NEAR_M, STANDING_M + STEP_M + NEAR_M, RADIUS_M + NEAR_M);
        if self.lowest.cmple(lowest).all() && highest.cmple(self.highest).all() {
            return false;
        }
        (self.lowest, self.highest) = (lowest - MARGIN_M, highest + MARGIN_M);
        self.kept.clear();
        let kept = &mut self.kept;
        map.for_each_triangle_in(self.lowest, self.highest, town::BODIES, |_, corners| {
            let [a, b, c] = corners;
            let normal = (b - a).cross(c - a);
            // Both sides of a triangle count.
            let is_ground = normal.y * normal.y > WALKABLE * WALKABLE * normal.length_squared();
            kept.push(Solid { corners, lowest: a.min(b).min(c), highest: a.max(b).max(c), is_ground });
        });
        true
    }

    /// Whether a body at `feet` touches nothing of the map.
    pub(crate) fn is_free(&mut self, map: &Map, body: Body, feet: Vec3) -> bool {
        self.gather(map, feet, feet);
        self.touches(body, feet) == Some(false)
    }

    /// Whether a body that stands at `feet` reaches into something that is kept; `None` if a triangle goes through its
    /// axis.
    fn touches(&self, body: Body, feet: Vec3) -> Option<bool> {
        let axis = body.axis(feet);
        let reach = Vec3::splat(RADIUS_M);
        let (lowest, highest) = (axis.low - reach, axis.high() + reach);
        let mut is_touched = false;
        for solid in &self.kept {
            if solid.lowest.cmple(highest).all() && lowest.cmple(solid.highest).all() {
                let square = axis.nearest(&solid.corners).square;
                if square == 0.0 {
                    return None;
                }
                is_touched |= square < (RADIUS_M - SKIN_M) * (RADIUS_M - SKIN_M);
            }
        }
        Some(is_touched)
    }

    /// Moves the feet until the body touches nothing, and takes from the velocity what leads into something. The way up
    /// to here was shorter than the radius.
    pub(crate) fn push_out(&mut self, barriers: &[Barrier], body: Body, feet: &mut Vec3, velocity: &mut Vec3) -> Push {
        let mut is_held = false;
        self.near.clear();
        let axis = body.axis(*feet);
        let reach = Vec3::splat(RADIUS_M + NEAR_M);
        let (lowest, highest) = (axis.low - reach, axis.high() + reach);
        for (number, solid) in self.kept.iter().enumerate() {
            if solid.lowest.cmple(highest).all() && lowest.cmple(solid.highest).all() {
                self.near.push(number as u32);
            }
        }
        if self.near.is_empty() && barriers.is_empty() {
            return Push::Free { is_held };
        }
        let begin = *feet;
        for _ in 0..PASSES {
            let mut deepest = 0.0f32;
            for &number in &self.near {
                let axis = body.axis(*feet);
                let nearest = axis.nearest(&self.kept[number as usize].corners);
                if nearest.square >= RADIUS_M * RADIUS_M {
                    continue;
                }
                let distance = nearest.square.sqrt();
                if distance < 1e-4 {
                    return Push::Stuck;
                }
                let normal = (nearest.on_axis - nearest.on_triangle) / distance;
                let depth = RADIUS_M - distance;
                deepest = deepest.max(depth);
                *feet += normal * depth;
                is_held |= normal.y > WALKABLE;
                *velocity -= normal * velocity.dot(normal).min(0.0);
            }
            for barrier in barriers {
                match barrier.push(feet, body.height_m) {
                    Ok(None) => {}
                    Ok(Some((normal, depth))) => {
                        deepest = deepest.max(depth);
                        *velocity -= normal * velocity.dot(normal).min(0.0);
                    }
                    Err(()) => return Push::Stuck,
                }
            }
            // Farther away there may be triangles that were not looked at.
            if begin.distance_squared(*feet) > NEAR_M * NEAR_M {
                return Push::Stuck;
            }
            if deepest <= SKIN_M {
                return Push::Free { is_held };
            }
        }
        Push::Stuck
    }

    /// The highest ground from `low_m` to `high_m` under the feet.
    pub(crate) fn ground(&self, barriers: &[Barrier], feet: Vec3, low_m: f32, high_m: f32) -> Option<f32> {
        let mut best: Option<f32> = None;
        let mut take = |height: f32| {
            if (low_m..=high_m).contains(&height) && best.is_none_or(|best| height > best) {
                best = Some(height);
            }
        };
        let lowest = Vec3::new(feet.x - FOOT_M, low_m, feet.z - FOOT_M);
        let highest = Vec3::new(feet.x + FOOT_M, high_m, feet.z + FOOT_M);
        for solid in self.kept.iter().filter(|solid| solid.is_ground) {
            if solid.lowest.cmple(highest).all() && lowest.cmple(solid.highest).all() {
                for [x, z] in [[0.0, 0.0], [FOOT_M, 0.0], [-FOOT_M, 0.0], [0.0, FOOT_M], [0.0, -FOOT_M]] {
                    if let Some(height) = height_at(&solid.corners, feet.x + x, feet.z + z) {
                        take(height);
                    }
                }
            }
        }
        for barrier in barriers {
            if barrier.is_above(feet) {
                take(barrier.top_m());
            }
        }
        best
    }
}
