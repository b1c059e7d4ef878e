//! Floors below a place, and whether an upright cylinder is free of triangles.

use glam::{Vec2, Vec3, vec2};

/// The cosine of the steepest slope that carries a body: 45 degrees.
const SLOPE_MIN: f32 = 0.7;
/// How far outside of a triangle a place may be to stand on it, as a share of the triangle: cracks do not swallow bodies.
const SLACK: f32 = 1.0e-4;

/// A triangle near a column.
#[derive(Clone, Copy)]
pub(super) struct Face {
    corners: [Vec3; 3],
    lowest: Vec3,
    highest: Vec3,
    pub(super) is_floor: bool,
}

impl Face {
    pub(super) fn new(corners: [Vec3; 3]) -> Face {
        let [a, b, c] = corners;
        let normal = (b - a).cross(c - a).normalize_or_zero();
        let (lowest, highest) = (a.min(b).min(c), a.max(b).max(c));
        Face { corners, lowest, highest, is_floor: normal.y.abs() >= SLOPE_MIN }
    }

    /// The height of the triangle's plane at a place inside the triangle.
    fn height_at(&self, place: Vec2) -> Option<f32> {
        let [a, b, c] = self.corners;
        let [ab, ac] = [b - a, c - a].map(|side| vec2(side.x, side.z));
        let area = ab.perp_dot(ac);
        let from_a = place - vec2(a.x, a.z);
        let (v, w) = (from_a.perp_dot(ac) / area, ab.perp_dot(from_a) / area);
        let is_inside = v >= -SLACK && w >= -SLACK && v + w <= 1.0 + SLACK;
        is_inside.then_some(a.y + v * (b.y - a.y) + w * (c.y - a.y))
    }

    /// The part of the triangle between two heights, seen from above: a convex polygon with at most five corners.
    fn slice(&self, low: f32, high: f32) -> Polygon {
        let mut polygon = Polygon::default();
        for corner in self.corners {
            polygon.push(corner);
        }
        polygon.cut(|corner| corner.y - low).cut(|corner| high - corner.y)
    }
}

/// A convex polygon; few corners are enough for a triangle that is cut by six planes.
#[derive(Clone, Copy, Default)]
struct Polygon {
    corners: [Vec3; 9],
    count: usize,
}

impl Polygon {
    fn push(&mut self, corner: Vec3) {
        if let Some(free) = self.corners.get_mut(self.count) {
            *free = corner;
            self.count += 1;
        }
    }

    /// The part where `side` is at least zero. Sutherland and Hodgman 1974.
    fn cut(&self, side: impl Fn(Vec3) -> f32) -> Polygon {
        let mut cut = Polygon::default();
        for index in 0..self.count {
            let (from, to) = (self.corners[index], self.corners[(index + 1) % self.count]);
            let (a, b) = (side(from), side(to));
            if a >= 0.0 {
                cut.push(from);
            }
            if (a >= 0.0) != (b >= 0.0) {
                cut.push(from + (to - from) * (a / (a - b)));
            }
        }
        cut
    }

    /// The square of the distance of a point, seen from above; 0 inside.
    fn distance_squared(&self, point: Vec2) -> f32 {
        let (mut left, mut right, mut least) = (0, 0, f32::INFINITY);
        for index in 0..self.count {
            let [a, b] = [index, (index + 1) % self.count].map(|place| {
                let corner = self.corners[place];
                vec2(corner.x, corner.z) - point
            });
            let side = b - a;
            let length = side.length_squared();
            let share = if length > 0.0 { (-a.dot(side) / length).clamp(0.0, 1.0) } else { 0.0 };
            least = least.min((a + side * share).length_squared());
            let turn = a.perp_dot(b);
            left += usize::from(turn > 0.0);
            right += usize::from(turn < 0.0);
        }
        if self.count > 2 && (left == self.count || right == self.count) { 0.0 } else { least }
    }
}

/// The triangles near a place, floors first.
#[derive(Clone, Copy)]
pub(super) struct Faces<'a> {
    pub(super) all: &'a [Face],
    pub(super) floors: usize,
}

impl Faces<'_> {
    /// The highest floor at a place that is not above `top`.
    pub(super) fn floor_below(&self, place: Vec2, top: f32) -> Option<f32> {
        let mut best = None;
        for face in &self.all[..self.floors] {
            if face.lowest.y <= top
                && let Some(height) = face.height_at(place)
                && height <= top
                && best.is_none_or(|best| height > best)
            {
                best = Some(height);
            }
        }
        best
    }

    /// Whether an upright cylinder around `place` between two heights touches nothing.
    pub(super) fn is_free(&self, place: Vec2, heights: [f32; 2], radius: f32) -> bool {
        self.free_radius(place, heights, [radius; 2]).is_some()
    }

    /// The radius up to which upright cylinders around `place` between two heights touch nothing, at most the second of
    /// `radii`. None if it is less than the first.
    pub(super) fn free_radius(&self, place: Vec2, [low, high]: [f32; 2], [least, most]: [f32; 2]) -> Option<f32> {
        let mut free = most;
        for face in self.all {
            let is_far = face.highest.y < low
                || face.lowest.y > high
                || face.highest.x < place.x - free
                || face.lowest.x > place.x + free
                || face.highest.z < place.y - free
                || face.lowest.z > place.y + free;
            if !is_far {
                let square = face.slice(low, high).distance_squared(place);
                if square < least * least {
                    return None;
                }
                free = free.min(square.sqrt());
            }
        }
        Some(free)
    }

    /// Whether the same holds for all cylinders around places in a rectangle. Sometimes says no where it does.
    pub(super) fn is_free_around(&self, corner: Vec2, far: Vec2, [low, high]: [f32; 2], radius: f32) -> bool {
        let (corner, far) = (corner - radius, far + radius);
        self.all.iter().all(|face| {
            let is_away = face.highest.y < low
                || face.lowest.y > high
                || face.highest.x < corner.x
                || face.lowest.x > far.x
                || face.highest.z < corner.y
                || face.lowest.z > far.y;
            is_away || {
                let slice = face.slice(low, high).cut(|c| c.x - corner.x).cut(|c| far.x - c.x);
                slice.cut(|c| c.z - corner.y).cut(|c| far.y - c.z).count == 0
            }
        })
    }
}
