//! Vectors, rotations and transforms, with a fixed order of operations.
//!
//! Only addition, multiplication, division and square roots are used, each rounded as IEEE 754 says, and nothing is
//! fused. So the same inputs give the same bits on every processor, which a library with a path for each instruction
//! set does not promise.

/// A vector, in metres unless its name says otherwise.
pub(crate) type Vector = [f64; 3];

/// A rotation as a quaternion, in the order x, y, z, w.
pub(crate) type Rotation = [f64; 4];

/// How far the length of a given rotation may be from 1.
const ROTATION_TOLERANCE: f64 = 0.01;

/// A position and a rotation in the world: of a body's root, or of a part of the world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transform {
    /// Metres.
    pub position_m: [f64; 3],
    /// A quaternion x, y, z, w of length 1.
    pub rotation: [f32; 4],
}

impl Transform {
    /// No rotation.
    pub const UNTURNED: [f32; 4] = [0.0, 0.0, 0.0, 1.0];

    /// A position and a rotation. Vectors of mathematics libraries convert: `glam::DVec3`, `glam::Quat`.
    pub fn new(position_m: impl Into<[f64; 3]>, rotation: impl Into<[f32; 4]>) -> Transform {
        Transform { position_m: position_m.into(), rotation: rotation.into() }
    }

    /// A position, not rotated.
    pub fn at(position_m: impl Into<[f64; 3]>) -> Transform {
        Transform::new(position_m, Transform::UNTURNED)
    }

    /// Converts a point from the coordinates of this transform to those of the world.
    pub fn point(&self, local_m: [f64; 3]) -> [f64; 3] {
        add(self.position_m, rotate(self.rotation.map(f64::from), local_m))
    }

    /// Whether every number is finite and the rotation has a length of 1.
    pub(crate) fn is_valid(&self) -> bool {
        self.position_m.iter().all(|value| value.is_finite()) && is_rotation(self.rotation)
    }
}

/// Whether the length is 1 within [`ROTATION_TOLERANCE`]. False for NaN.
fn is_rotation(rotation: [f32; 4]) -> bool {
    let rotation = rotation.map(f64::from);
    (length_of_rotation(rotation) - 1.0).abs() <= ROTATION_TOLERANCE
}

#[inline]
pub(crate) fn add(a: Vector, b: Vector) -> Vector {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

#[inline]
pub(crate) fn sub(a: Vector, b: Vector) -> Vector {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

#[inline]
pub(crate) fn scaled(a: Vector, by: f64) -> Vector {
    [a[0] * by, a[1] * by, a[2] * by]
}

#[inline]
pub(crate) fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

#[inline]
pub(crate) fn cross(a: Vector, b: Vector) -> Vector {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

#[inline]
pub(crate) fn length(a: Vector) -> f64 {
    dot(a, a).sqrt()
}

/// The smaller one, as one instruction. If one is NaN, the second.
#[inline]
pub(crate) fn smaller(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// The larger one, as one instruction. If one is NaN, the second.
#[inline]
pub(crate) fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// `a` at 0, `b` at 1, exactly.
#[inline]
pub(crate) fn mixed(a: Vector, b: Vector, part: f64) -> Vector {
    [0, 1, 2].map(|axis| mixed_value(a[axis], b[axis], part))
}

/// `a` at 0, `b` at 1, exactly.
#[inline]
fn mixed_value(a: f64, b: f64, part: f64) -> f64 {
    if part == 1.0 { b } else { a + (b - a) * part }
}

/// The direction of a vector of any length above 0. `None` without direction, or if a part is not finite.
pub(crate) fn direction(a: Vector) -> Option<Vector> {
    // Scaled by the largest part first, so that neither huge nor tiny vectors leave the range of an f64.
    let largest = a.iter().fold(0.0f64, |largest, part| largest.max(part.abs()));
    if largest == 0.0 || !a.iter().all(|part| part.is_finite()) {
        return None;
    }
    let a = a.map(|part| part / largest);
    let norm = length(a);
    Some(a.map(|part| part / norm))
}

#[inline]
fn length_of_rotation(q: Rotation) -> f64 {
    (q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]).sqrt()
}

/// The normalised mix of two rotations of any length, on the shorter way.
#[inline]
pub(crate) fn mixed_rotation(a: Rotation, b: Rotation, part: f64) -> Rotation {
    let along = a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
    let sign = if along < 0.0 { -1.0 } else { 1.0 };
    let mix = [0, 1, 2, 3].map(|i| mixed_value(a[i], b[i] * sign, part));
    let inverse = 1.0 / length_of_rotation(mix);
    // Two opposite rotations have a mix of length 0 in the middle: any rotation is right then.
    if inverse.is_finite() { mix.map(|value| value * inverse) } else { [0.0, 0.0, 0.0, 1.0] }
}

/// A vector after a rotation of length 1.
#[inline]
pub(crate) fn rotate(q: Rotation, v: Vector) -> Vector {
    let axis = [q[0], q[1], q[2]];
    let twice = scaled(cross(axis, v), 2.0);
    add(add(v, scaled(twice, q[3])), cross(axis, twice))
}

/// [`rotate`] for vectors within a body, where 32 bits are enough.
#[inline]
pub(crate) fn turned(q: [f32; 4], v: [f32; 3]) -> [f32; 3] {
    let [x, y, z, w] = q;
    let twice = [2.0 * (y * v[2] - z * v[1]), 2.0 * (z * v[0] - x * v[2]), 2.0 * (x * v[1] - y * v[0])];
    [
        v[0] + twice[0] * w + (y * twice[2] - z * twice[1]),
        v[1] + twice[1] * w + (z * twice[0] - x * twice[2]),
        v[2] + twice[2] * w + (x * twice[1] - y * twice[0]),
    ]
}

/// A vector before a rotation of length 1.
#[inline]
pub(crate) fn rotate_back(q: Rotation, v: Vector) -> Vector {
    rotate([-q[0], -q[1], -q[2], q[3]], v)
}

/// An axis-aligned box.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) low: Vector,
    pub(crate) high: Vector,
}

impl Bounds {
    pub(crate) const NOTHING: Bounds = Bounds { low: [f64::INFINITY; 3], high: [f64::NEG_INFINITY; 3] };

    /// Grows until it holds a ball.
    pub(crate) fn include(&mut self, centre: Vector, radius_m: f64) {
        for (axis, &middle) in centre.iter().enumerate() {
            self.low[axis] = self.low[axis].min(middle - radius_m);
            self.high[axis] = self.high[axis].max(middle + radius_m);
        }
    }
}

/// A part of a line: a start, a direction of length 1, and the length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ray {
    pub(crate) origin: Vector,
    pub(crate) direction: Vector,
    /// One over each part of the direction; 0 where that would not be finite.
    inverse: Vector,
    pub(crate) range_m: f64,
}

impl Ray {
    pub(crate) fn new(origin: Vector, direction: Vector, range_m: f64) -> Ray {
        let inverse = direction.map(|part| if (1.0 / part).is_finite() { 1.0 / part } else { 0.0 });
        Ray { origin, direction, inverse, range_m }
    }

    #[inline]
    pub(crate) fn at(&self, distance_m: f64) -> Vector {
        add(self.origin, scaled(self.direction, distance_m))
    }

    /// Whether the ray comes within `margin_m` of a box, along each axis. Never wrongly false.
    #[inline]
    pub(crate) fn meets(&self, bounds: &Bounds, margin_m: f64) -> bool {
        let (mut enter, mut leave) = (0.0, self.range_m);
        for axis in 0..3 {
            let inverse = self.inverse[axis];
            let low = bounds.low[axis] - margin_m - self.origin[axis];
            let high = bounds.high[axis] + margin_m - self.origin[axis];
            if inverse == 0.0 {
                if low > 0.0 || high < 0.0 {
                    return false;
                }
                continue;
            }
            let (first, last) = if inverse > 0.0 { (low, high) } else { (high, low) };
            enter = larger(enter, first * inverse);
            leave = smaller(leave, last * inverse);
        }
        enter <= leave
    }

    /// Distance along the ray of the point that is nearest to `point`, and the square of the distance between the two.
    #[inline]
    pub(crate) fn nearest(&self, point: Vector) -> (f64, f64) {
        let away = sub(point, self.origin);
        let along_m = smaller(larger(dot(away, self.direction), 0.0), self.range_m);
        let across = sub(away, scaled(self.direction, along_m));
        (along_m, dot(across, across))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotations_turn_and_turn_back() {
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let quarter = [0.0, 0.0, half, half];
        let turned = rotate(quarter, [1.0, 0.0, 0.0]);
        assert!(length(sub(turned, [0.0, 1.0, 0.0])) < 1e-12, "{turned:?}");
        assert!(length(sub(rotate_back(quarter, turned), [1.0, 0.0, 0.0])) < 1e-12);
        let place = Transform::new([1.0, 2.0, 3.0], quarter.map(|part| part as f32));
        assert!(length(sub(place.point([2.0, 0.0, 0.0]), [1.0, 4.0, 3.0])) < 1e-6);
    }

    #[test]
    fn a_mix_takes_the_shorter_way_and_ends_at_its_ends() {
        let (a, b) = ([0.0, 0.0, 0.6, 0.8], [0.0, 0.0, 0.8, 0.6]);
        let minus_b = b.map(|part| -part);
        assert_eq!(mixed_rotation(a, b, 0.3), mixed_rotation(a, minus_b, 0.3));
        let end = mixed_rotation(a, minus_b, 1.0);
        assert!((0..4).all(|i| (end[i] - b[i]).abs() < 1e-15), "{end:?}");
        assert_eq!(mixed_rotation([0.0; 4], [0.0; 4], 0.5), [0.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn a_direction_has_length_one_at_any_scale() {
        for scale in [1e-310, 1e-30, 1.0, 1e30, 1e307] {
            let direction = direction([3.0 * scale, 0.0, 4.0 * scale]).unwrap();
            assert!((length(direction) - 1.0).abs() < 1e-9, "{scale}");
        }
        for wrong in [[0.0; 3], [f64::NAN, 1.0, 0.0], [f64::INFINITY, 0.0, 0.0]] {
            assert_eq!(direction(wrong), None);
        }
    }

    #[test]
    fn a_ray_along_the_side_of_a_box_meets_it() {
        let bounds = Bounds { low: [0.0; 3], high: [1.0; 3] };
        assert!(Ray::new([-1.0, 0.0, 0.0], [1.0, 0.0, 0.0], 5.0).meets(&bounds, 0.0));
        assert!(Ray::new([-1.0, 1.0, 1.0], [1.0, 0.0, 0.0], 5.0).meets(&bounds, 0.0));
        assert!(!Ray::new([-1.0, 1.1, 0.0], [1.0, 0.0, 0.0], 5.0).meets(&bounds, 0.0));
        assert!(Ray::new([-1.0, 1.1, 0.0], [1.0, 0.0, 0.0], 5.0).meets(&bounds, 0.2));
        assert!(!Ray::new([-1.0, 0.5, 0.5], [1.0, 0.0, 0.0], 0.9).meets(&bounds, 0.0), "too short");
        assert!(!Ray::new([-1.0, 0.5, 0.5], [-1.0, 0.0, 0.0], 5.0).meets(&bounds, 0.0), "away from it");
        assert!(!Ray::new([0.5; 3], [1.0, 0.0, 0.0], 5.0).meets(&Bounds::NOTHING, 1.0));
    }
}
