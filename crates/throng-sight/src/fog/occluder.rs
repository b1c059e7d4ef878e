//! Things of a match that block sight: smokes and walls.

use glam::{Quat, Vec2, Vec3};

use super::shaft::{Plane, Shaft};

/// A thing that blocks sight, beside the map. It counts only for what it hides completely.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Occluder {
    /// A smoke: nothing is seen through it.
    Ball {
        /// Its middle.
        middle: Vec3,
        /// The radius in which nothing is seen through it, in metres.
        radius_m: f32,
    },
    /// A wall.
    Cuboid {
        /// Its middle.
        middle: Vec3,
        /// Half of its sides, in metres.
        half: Vec3,
        /// How it is turned around its middle; of unit length.
        rotation: Quat,
    },
}

impl Occluder {
    /// Whether it is on the line from one point to the other.
    pub fn blocks(&self, from: Vec3, to: Vec3) -> bool {
        match *self {
            Occluder::Ball { middle, radius_m } => {
                let way = to - from;
                let share = (way.dot(middle - from) / way.length_squared().max(1e-12)).clamp(0.0, 1.0);
                (from + share * way).distance_squared(middle) < radius_m * radius_m
            }
            Occluder::Cuboid { middle, half, rotation } => {
                let turn = rotation.conjugate();
                let (from, way) = (turn * (from - middle), turn * (to - from));
                let (mut enter, mut leave) = (0.0_f32, 1.0_f32);
                for axis in 0..3 {
                    if way[axis].abs() < 1e-9 {
                        if from[axis].abs() >= half[axis] {
                            return false;
                        }
                        continue;
                    }
                    let (a, b) = ((-half[axis] - from[axis]) / way[axis], (half[axis] - from[axis]) / way[axis]);
                    (enter, leave) = (enter.max(a.min(b)), leave.min(a.max(b)));
                }
                enter < leave
            }
        }
    }

    /// Whether it is on all lines of a shaft: a flat part of it is.
    pub(super) fn hides(&self, shaft: &Shaft) -> bool {
        match *self {
            Occluder::Ball { middle, radius_m } => {
                let way = (shaft.to.middle() - shaft.from.middle()).as_dvec3().normalize_or_zero();
                crosses(middle, way.as_vec3(), shaft, |point| point.distance_squared(middle) < radius_m * radius_m)
            }
            Occluder::Cuboid { middle, half, rotation } => (0..3).any(|axis| {
                let normal = rotation * Vec3::AXES[axis];
                crosses(middle, normal, shaft, |point| {
                    let place = (rotation.conjugate() * (point - middle)).abs();
                    (0..3).all(|other| other == axis || place[other] < half[other])
                })
            }),
        }
    }
}

/// Whether all lines cross the plane within a convex part of it.
fn crosses(middle: Vec3, normal: Vec3, shaft: &Shaft, is_inside: impl Fn(Vec3) -> bool) -> bool {
    let normal = normal.as_dvec3();
    if !normal.is_normalized() {
        return false;
    }
    let plane = Plane::leaning(normal, normal.dot(middle.as_dvec3()));
    let rect = plane.crossing(shaft);
    rect.is_some_and(|rect| rect.corners().iter().all(|place: &Vec2| is_inside(plane.point(*place))))
}
