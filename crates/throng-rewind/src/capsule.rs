//! Ray against capsule.

use crate::geometry::{Vector, add, dot, larger, scaled, smaller, sub};
use thiserror::Error;

/// Longest distance of a capsule's ends from its bone, and its largest radius.
pub const MAX_CAPSULE_M: f32 = 16.0;

/// Everything within `radius_m` of the straight line from `from_m` to `to_m`. In the coordinates of its bone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capsule {
    /// One end of the line, in metres.
    pub from_m: [f32; 3],
    /// The other end; equal to the first one for a ball.
    pub to_m: [f32; 3],
    /// Above 0.
    pub radius_m: f32,
}

/// Why a capsule is refused. The caller is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CapsuleError {
    /// An end is not finite or farther than [`MAX_CAPSULE_M`] from the bone.
    #[error("an end of a capsule is not finite, or farther than {MAX_CAPSULE_M} m from its bone")]
    End,
    /// The radius is not above 0 or not within [`MAX_CAPSULE_M`].
    #[error("the radius of a capsule is not above 0 and at most {MAX_CAPSULE_M} m")]
    Radius,
}

impl CapsuleError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            CapsuleError::End => "capsule_end",
            CapsuleError::Radius => "capsule_radius",
        }
    }
}

impl Capsule {
    /// A capsule between two points.
    pub fn new(from_m: impl Into<[f32; 3]>, to_m: impl Into<[f32; 3]>, radius_m: f32) -> Capsule {
        Capsule { from_m: from_m.into(), to_m: to_m.into(), radius_m }
    }

    /// A ball.
    pub fn ball(centre_m: impl Into<[f32; 3]>, radius_m: f32) -> Capsule {
        let centre_m = centre_m.into();
        Capsule { from_m: centre_m, to_m: centre_m, radius_m }
    }

    pub(crate) fn check(&self) -> Result<(), CapsuleError> {
        let is_near = |value: &f32| value.abs() <= MAX_CAPSULE_M;
        if !self.from_m.iter().chain(&self.to_m).all(is_near) {
            return Err(CapsuleError::End);
        }
        if self.radius_m > 0.0 && self.radius_m <= MAX_CAPSULE_M { Ok(()) } else { Err(CapsuleError::Radius) }
    }
}

/// A straight piece of a line: points `origin + s * direction` for s in `from_m..=to_m`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) origin: Vector,
    /// Length 1.
    pub(crate) direction: Vector,
    pub(crate) from_m: f64,
    pub(crate) to_m: f64,
}

/// A capsule in the same coordinates as the line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) from: Vector,
    pub(crate) to: Vector,
    pub(crate) radius_m: f64,
}

impl Line {
    /// The first point of the line that is in the capsule, or none.
    ///
    /// The endless line enters either through the side of the cylinder, between the ends, or else through the ball of the
    /// end that it passes. If that is before the beginning of the line, the beginning is inside, or all is behind it,
    /// because a capsule is convex. After "capsule intersection" in I. Quilez, Intersectors (2016).
    #[inline]
    pub(crate) fn enters(&self, capsule: &Round) -> Option<f64> {
        let enter = self.endless_enters(capsule)?;
        if enter >= self.from_m {
            return (enter <= self.to_m).then_some(enter);
        }
        let start = Line { to_m: self.from_m, ..*self };
        (start.distance_m(capsule) == 0.0).then_some(self.from_m)
    }

    #[inline]
    fn endless_enters(&self, capsule: &Round) -> Option<f64> {
        let radius_squared = capsule.radius_m * capsule.radius_m;
        let axis = sub(capsule.to, capsule.from);
        let away = sub(self.origin, capsule.from);
        let (axis_squared, axis_along, axis_away) = (dot(axis, axis), dot(axis, self.direction), dot(axis, away));
        let a = axis_squared - axis_along * axis_along;
        // Along the axis, and for a ball, there is no side to enter through.
        let is_from = if a > axis_squared * 1e-12 {
            let b = axis_squared * dot(self.direction, away) - axis_away * axis_along;
            let c = axis_squared * (dot(away, away) - radius_squared) - axis_away * axis_away;
            let under = b * b - a * c;
            if under < 0.0 {
                return None;
            }
            let at = (-b - under.sqrt()) / a;
            let height = axis_away + at * axis_along;
            if (0.0..=axis_squared).contains(&height) {
                return Some(at);
            }
            height < 0.0
        } else {
            axis_along >= 0.0
        };
        let away = if is_from { away } else { sub(self.origin, capsule.to) };
        let half = dot(self.direction, away);
        // The square of the distance from the line to the centre, without the cancellation of half² - away².
        let across = sub(away, scaled(self.direction, half));
        let under = radius_squared - dot(across, across);
        (under >= 0.0).then(|| -half - under.sqrt())
    }

    /// The distance from the line to the capsule's surface; 0 inside.
    ///
    /// After "closest points of two segments" in C. Ericson, Real-Time Collision Detection, 5.1.9.
    #[inline]
    pub(crate) fn distance_m(&self, capsule: &Round) -> f64 {
        let start = add(self.origin, scaled(self.direction, self.from_m));
        let long_m = self.to_m - self.from_m;
        let axis = sub(capsule.to, capsule.from);
        let between = sub(start, capsule.from);
        let axis_squared = dot(axis, axis);
        let on_axis = dot(axis, between);
        let on_line = dot(self.direction, between);
        let both = dot(self.direction, axis);
        let apart = axis_squared - both * both;
        let along = if axis_squared > 0.0 && apart > axis_squared * 1e-12 {
            smaller(larger((both * on_axis - on_line * axis_squared) / apart, 0.0), long_m)
        } else {
            smaller(larger(-on_line, 0.0), long_m)
        };
        let share = if axis_squared > 0.0 { ((both * along + on_axis) / axis_squared).clamp(0.0, 1.0) } else { 0.0 };
        // The point of the axis was cut to the ends of it: the nearest point of the line to what remains.
        let along = smaller(larger(both * share - on_line, 0.0), long_m);
        let apart = sub(add(between, scaled(self.direction, along)), scaled(axis, share));
        (dot(apart, apart).sqrt() - capsule.radius_m).max(0.0)
    }
}
