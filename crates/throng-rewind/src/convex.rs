//! Convex bodies: what world parts such as doors and lifts are made of.

use crate::geometry::{Vector, cross, direction, dot, length, scaled, sub};
use thiserror::Error;

/// Most planes of a convex body.
pub const MAX_PLANES: usize = 32;

/// Farthest corner of a convex body from its own origin, in metres.
pub const MAX_CONVEX_M: f64 = 256.0;

/// A plane: everything with `normal · point <= offset_m` is inside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plane {
    /// Outwards, of length 1.
    pub normal: [f64; 3],
    /// Distance of the plane from the origin, along the normal, in metres.
    pub offset_m: f64,
}

/// A bounded convex body, in its own coordinates: the points that are inside of all its planes.
#[derive(Clone, Debug, PartialEq)]
pub struct Convex {
    planes: Vec<Plane>,
    reach_m: f64,
}

/// Why a convex body is refused. The caller, or the file, is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConvexError {
    /// A number is NaN or infinite, or a normal has no direction.
    #[error("a plane of a convex body has a number that is not finite, or a normal without direction")]
    Plane,
    /// More than [`MAX_PLANES`].
    #[error("a convex body has more than {MAX_PLANES} planes")]
    TooManyPlanes,
    /// The planes leave nothing, or do not close, or a corner is farther than [`MAX_CONVEX_M`] from the origin.
    #[error("the planes of a convex body enclose nothing, or something without end or larger than {MAX_CONVEX_M} m")]
    Size,
}

impl ConvexError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            ConvexError::Plane => "convex_plane",
            ConvexError::TooManyPlanes => "convex_too_many_planes",
            ConvexError::Size => "convex_size",
        }
    }
}

impl Convex {
    /// A box around the origin; `half_m` is half of its size along each axis, each above 0.
    ///
    /// # Errors
    /// A size that is not finite, not above 0, or too large.
    pub fn cuboid(half_m: impl Into<[f64; 3]>) -> Result<Convex, ConvexError> {
        let half_m = half_m.into();
        if !half_m.iter().all(|half| *half > 0.0) {
            return Err(ConvexError::Size);
        }
        let side = |axis: usize, sign: f64| {
            let mut normal = [0.0; 3];
            normal[axis] = sign;
            Plane { normal, offset_m: half_m[axis] }
        };
        Convex::new(&[side(0, 1.0), side(0, -1.0), side(1, 1.0), side(1, -1.0), side(2, 1.0), side(2, -1.0)])
    }

    /// The body that some planes enclose. Normals may have any length above 0; offsets count in that length.
    ///
    /// # Errors
    /// Planes that are not valid, too many, or that do not enclose a body of a limited size.
    pub fn new(planes: &[Plane]) -> Result<Convex, ConvexError> {
        if planes.len() > MAX_PLANES {
            return Err(ConvexError::TooManyPlanes);
        }
        let mut checked = Vec::with_capacity(planes.len());
        for plane in planes {
            let normal = direction(plane.normal).ok_or(ConvexError::Plane)?;
            let offset_m = plane.offset_m / length(plane.normal);
            if !offset_m.is_finite() {
                return Err(ConvexError::Plane);
            }
            // A normal of length 1 stays what it is, bit for bit, so that a body can be written and read again.
            let is_unit = (length(plane.normal) - 1.0).abs() < 1e-12;
            checked.push(if is_unit { *plane } else { Plane { normal, offset_m } });
        }
        let reach_m = reach_m(&checked).ok_or(ConvexError::Size)?;
        Ok(Convex { planes: checked, reach_m })
    }

    /// The planes, with normals of length 1.
    pub fn planes(&self) -> &[Plane] {
        &self.planes
    }

    /// Distance from the origin to the farthest corner, in metres.
    pub fn reach_m(&self) -> f64 {
        self.reach_m
    }

    /// Where a ray of length `range_m` enters; 0 if it begins inside. `direction` has length 1.
    pub(crate) fn enters(&self, origin: Vector, direction: Vector, range_m: f64) -> Option<f64> {
        let (mut enter, mut leave) = (0.0f64, range_m);
        for plane in &self.planes {
            let towards = dot(plane.normal, direction);
            let inside_m = plane.offset_m - dot(plane.normal, origin);
            if towards == 0.0 {
                if inside_m < 0.0 {
                    return None;
                }
            } else if towards < 0.0 {
                enter = enter.max(inside_m / towards);
            } else {
                leave = leave.min(inside_m / towards);
            }
        }
        (enter <= leave).then_some(enter)
    }
}

/// The farthest corner from the origin. `None` without corners, or if one is farther than [`MAX_CONVEX_M`].
///
/// Planes of a very large box are added. If the body has no end, corners lie on them.
fn reach_m(planes: &[Plane]) -> Option<f64> {
    const FAR_M: f64 = 4.0 * MAX_CONVEX_M;
    let mut all = planes.to_vec();
    for axis in 0..3 {
        for sign in [1.0, -1.0] {
            let mut normal = [0.0; 3];
            normal[axis] = sign;
            all.push(Plane { normal, offset_m: FAR_M });
        }
    }
    let mut reach_m: Option<f64> = None;
    for (i, a) in all.iter().enumerate() {
        for (j, b) in all.iter().enumerate().skip(i + 1) {
            for c in &all[j + 1..] {
                let Some(corner) = common_point(a, b, c) else { continue };
                let is_inside = |plane: &Plane| dot(plane.normal, corner) <= plane.offset_m + 1e-9 * FAR_M;
                if all.iter().all(is_inside) {
                    reach_m = Some(reach_m.unwrap_or(0.0).max(length(corner)));
                }
            }
        }
    }
    reach_m.filter(|reach_m| *reach_m <= MAX_CONVEX_M)
}

fn common_point(a: &Plane, b: &Plane, c: &Plane) -> Option<Vector> {
    let across = cross(b.normal, c.normal);
    let volume = dot(a.normal, across);
    if volume.abs() < 1e-9 {
        return None;
    }
    let sum = [
        scaled(across, a.offset_m),
        scaled(cross(c.normal, a.normal), b.offset_m),
        scaled(cross(a.normal, b.normal), c.offset_m),
    ];
    let sum = [0, 1, 2].map(|axis| sum[0][axis] + sum[1][axis] + sum[2][axis]);
    let corner = scaled(sum, 1.0 / volume);
    sub(corner, corner).iter().all(|zero| *zero == 0.0).then_some(corner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_entered_at_its_near_side() {
        let door = Convex::cuboid([1.0, 0.1, 2.0]).unwrap();
        assert!((door.reach_m() - (1.0f64 + 0.01 + 4.0).sqrt()).abs() < 1e-12);
        let along_y = [0.0, 1.0, 0.0];
        assert_eq!(door.enters([0.5, -5.0, 0.0], along_y, 10.0), Some(4.9));
        assert_eq!(door.enters([0.5, -5.0, 0.0], along_y, 4.0), None, "too short");
        assert_eq!(door.enters([1.5, -5.0, 0.0], along_y, 10.0), None, "beside it");
        assert_eq!(door.enters([0.5, 5.0, 0.0], along_y, 10.0), None, "away from it");
        assert_eq!(door.enters([0.5, 0.0, 0.0], along_y, 10.0), Some(0.0), "inside");
    }

    #[test]
    fn a_wedge_of_planes_has_its_corners() {
        let plane = |normal: [f64; 3], offset_m| Plane { normal, offset_m };
        let wedge = [
            plane([0.0, 0.0, -2.0], 0.0),
            plane([1.0, 0.0, 1.0], 1.0),
            plane([-1.0, 0.0, 1.0], 1.0),
            plane([0.0, 1.0, 0.0], 3.0),
            plane([0.0, -1.0, 0.0], 3.0),
        ];
        let wedge = Convex::new(&wedge).unwrap();
        assert!((wedge.reach_m() - 10f64.sqrt()).abs() < 1e-9, "{}", wedge.reach_m());
        let down = wedge.enters([0.5, 0.0, 9.0], [0.0, 0.0, -1.0], 20.0).unwrap();
        assert!((down - 8.5).abs() < 1e-12, "{down}");
        assert_eq!(Convex::new(wedge.planes()).unwrap(), wedge, "checked again, it is the same");
    }

    #[test]
    fn bodies_without_end_or_content_are_refused() {
        let up = Plane { normal: [0.0, 0.0, 1.0], offset_m: 1.0 };
        let nothing = [up, Plane { normal: [0.0, 0.0, -1.0], offset_m: -2.0 }];
        let refused = |planes: &[Plane]| Convex::new(planes).unwrap_err().tag();
        assert_eq!(refused(&[up]), "convex_size");
        assert_eq!(refused(&nothing), "convex_size");
        assert_eq!(refused(&[up; 33]), "convex_too_many_planes");
        assert_eq!(refused(&[Plane { normal: [0.0; 3], ..up }]), "convex_plane");
        assert_eq!(refused(&[Plane { offset_m: f64::NAN, ..up }]), "convex_plane");
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(Convex::cuboid([1.0, wrong, 1.0]).is_err(), "{wrong}");
        }
    }
}
