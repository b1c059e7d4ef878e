//! Rays, and what they hit.

use std::ops::BitOr;

use glam::{DVec3, Vec3};

/// The largest absolute value of a coordinate, in metres, of maps and of rays: 2^20. It keeps all arithmetic finite.
pub const COORDINATE_MAX_M: f32 = 1_048_576.0;

/// A straight way of finite length: an origin, a direction of unit length, and the part of the way that counts.
///
/// A ray is valid once it exists, so queries cannot fail. 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ray {
    origin: Vec3,
    start_m: f32,
    direction: Vec3,
    end_m: f32,
}

/// Why there is no such ray. The caller misuses the function, or passes on numbers that it did not check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RayError {
    /// A coordinate is not a number, or its absolute value is above [`COORDINATE_MAX_M`].
    #[error("a ray begins or ends more than 1,048,576 m from zero, or at no number: check the position before")]
    OutOfRange,
    /// The direction is zero, infinite or not a number.
    #[error("a ray needs a direction of finite length above zero")]
    NoDirection,
    /// A distance is negative or not a number, or the end comes before the start.
    #[error("a ray needs a length of at least zero")]
    NoLength,
}

impl RayError {
    /// A stable name for metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            RayError::OutOfRange => "ray_out_of_range",
            RayError::NoDirection => "ray_no_direction",
            RayError::NoLength => "ray_no_length",
        }
    }
}

impl Ray {
    /// The ray from `origin` towards `direction`, which may have any length, `length_m` long. An infinite length is cut to
    /// four times [`COORDINATE_MAX_M`], which leaves every map.
    pub fn new(origin: Vec3, direction: Vec3, length_m: f32) -> Result<Ray, RayError> {
        if !is_in_range(origin) {
            return Err(RayError::OutOfRange);
        }
        if length_m.is_nan() || length_m < 0.0 {
            return Err(RayError::NoLength);
        }
        let direction = unit(direction.as_dvec3()).ok_or(RayError::NoDirection)?;
        Ok(Ray { origin, start_m: 0.0, direction, end_m: length_m.min(4.0 * COORDINATE_MAX_M) })
    }

    /// The ray from one point to another: a line of sight. Between equal points it has no length and hits nothing but
    /// triangles through that point.
    pub fn between(from: Vec3, to: Vec3) -> Result<Ray, RayError> {
        if !is_in_range(from) || !is_in_range(to) {
            return Err(RayError::OutOfRange);
        }
        let way = to.as_dvec3() - from.as_dvec3();
        let direction = unit(way).unwrap_or(Vec3::X);
        Ok(Ray { origin: from, start_m: 0.0, direction, end_m: length(way) as f32 })
    }

    /// The same ray without what lies nearer than `start_m` and farther than `end_m`.
    pub fn between_distances(self, start_m: f32, end_m: f32) -> Result<Ray, RayError> {
        if !(0.0 <= start_m && start_m <= end_m) {
            return Err(RayError::NoLength);
        }
        Ok(Ray { start_m, end_m: end_m.min(4.0 * COORDINATE_MAX_M), ..self })
    }

    /// Where distances count from.
    pub fn origin(&self) -> Vec3 {
        self.origin
    }

    /// Where it leads; of unit length.
    pub fn direction(&self) -> Vec3 {
        self.direction
    }

    /// The nearest distance that counts.
    pub fn start_m(&self) -> f32 {
        self.start_m
    }

    /// The farthest distance that counts.
    pub fn end_m(&self) -> f32 {
        self.end_m
    }

    /// The point at a distance from the origin.
    pub fn at(&self, distance_m: f32) -> Vec3 {
        self.origin + self.direction * distance_m
    }
}

fn is_in_range(point: Vec3) -> bool {
    point.to_array().iter().all(|coordinate| coordinate.abs() <= COORDINATE_MAX_M)
}

/// Spelled out, so that it is rounded in the same way everywhere.
fn length(way: DVec3) -> f64 {
    (way.x * way.x + way.y * way.y + way.z * way.z).sqrt()
}

fn unit(direction: DVec3) -> Option<Vec3> {
    let length = length(direction);
    (length > 0.0 && length.is_finite()).then(|| (direction / length).as_vec3())
}

/// Sixteen kinds of surface, one bit each: what a triangle is, or what a ray looks for. A ray meets a
/// triangle if they share a bit. The bits' meaning belongs to the game, for example: blocks bodies, blocks sight, blocks
/// bullets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layers(pub u16);

impl Layers {
    /// Every layer: a query for all triangles, which is also the fastest.
    pub const ALL: Layers = Layers(u16::MAX);
    /// No layer: such a triangle is never hit.
    pub const NONE: Layers = Layers(0);

    /// Whether the two have a layer in common.
    pub fn meets(self, other: Layers) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Layers {
    type Output = Layers;

    fn bitor(self, other: Layers) -> Layers {
        Layers(self.0 | other.0)
    }
}

/// The number of a triangle within one map. Numbers have gaps, and mean nothing in a map that was baked anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TriangleId(pub u32);

/// The nearest triangle on a ray.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// How far it is from the ray's origin.
    pub distance_m: f32,
    /// Which triangle it is. Of several at exactly the same distance, the one with the lowest number.
    pub triangle: TriangleId,
}
