//! The nearest points of triangles and upright lines.

use glam::Vec3;

/// An upright piece of a line: the axis of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    /// Its lower end.
    pub(crate) low: Vec3,
    /// Metres from there to the upper end, at least 0.
    pub(crate) length: f32,
}

/// Two points that are nearest to each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nearest {
    pub(crate) on_axis: Vec3,
    pub(crate) on_triangle: Vec3,
    pub(crate) square: f32,
}

impl Axis {
    pub(crate) fn high(&self) -> Vec3 {
        self.low + Vec3::new(0.0, self.length, 0.0)
    }

    /// The nearest points of the axis and a triangle. If the axis goes through the triangle, the distance is 0.
    pub(crate) fn nearest(&self, corners: &[Vec3; 3]) -> Nearest {
        let high = self.high();
        if let Some(height) = height_at(corners, self.low.x, self.low.z)
            && (self.low.y..=high.y).contains(&height)
        {
            let on_axis = Vec3::new(self.low.x, height, self.low.z);
            return Nearest { on_axis, on_triangle: on_axis, square: 0.0 };
        }
        let end = |on_axis: Vec3| {
            let on_triangle = nearest_on_triangle(on_axis, corners);
            Nearest { on_axis, on_triangle, square: on_axis.distance_squared(on_triangle) }
        };
        let mut best = end(self.low);
        let mut take = |other: Nearest| {
            if other.square < best.square {
                best = other;
            }
        };
        take(end(high));
        for side in 0..3 {
            take(self.nearest_to_edge(corners[side], corners[(side + 1) % 3]));
        }
        best
    }

    /// After "closest points of two segments" in C. Ericson, Real-Time Collision Detection, 5.1.9, for an upright first
    /// segment.
    fn nearest_to_edge(&self, from: Vec3, to: Vec3) -> Nearest {
        let edge = to - from;
        let away = self.low - from;
        let (edge_square, up) = (edge.length_squared(), edge.y);
        let apart = self.length * self.length * (edge_square - up * up);
        let along_edge = edge.dot(away);
        let mut along = if apart > 1e-9 {
            let rise = self.length * away.y;
            ((self.length * up * along_edge - rise * edge_square) / apart).clamp(0.0, 1.0)
        } else {
            0.0
        };
        let mut part = (self.length * up * along + along_edge) / edge_square;
        if !(0.0..=1.0).contains(&part) {
            part = part.clamp(0.0, 1.0);
            along = if self.length > 0.0 { ((part * up - away.y) / self.length).clamp(0.0, 1.0) } else { 0.0 };
        }
        let on_axis = self.low + Vec3::new(0.0, along * self.length, 0.0);
        let on_triangle = from + edge * part;
        Nearest { on_axis, on_triangle, square: on_axis.distance_squared(on_triangle) }
    }
}

/// The height at which an upright line meets a triangle. A triangle that stands upright is not met.
pub(crate) fn height_at(corners: &[Vec3; 3], x: f32, z: f32) -> Option<f32> {
    let [a, b, c] = *corners;
    // Edges count as part of the triangle, with a little to spare: neighbours leave no gap.
    const SLACK: f32 = 1e-5;
    let area = (b.x - a.x) * (c.z - a.z) - (c.x - a.x) * (b.z - a.z);
    if area.abs() < 1e-9 {
        return None;
    }
    let for_b = ((x - a.x) * (c.z - a.z) - (c.x - a.x) * (z - a.z)) / area;
    let for_c = ((b.x - a.x) * (z - a.z) - (x - a.x) * (b.z - a.z)) / area;
    let is_inside = for_b >= -SLACK && for_c >= -SLACK && for_b + for_c <= 1.0 + SLACK;
    is_inside.then_some(a.y + for_b * (b.y - a.y) + for_c * (c.y - a.y))
}

/// After "closest point on triangle to point" in C. Ericson, Real-Time Collision Detection, 5.1.5.
fn nearest_on_triangle(point: Vec3, corners: &[Vec3; 3]) -> Vec3 {
    let [a, b, c] = *corners;
    let (ab, ac, ap) = (b - a, c - a, point - a);
    let (d1, d2) = (ab.dot(ap), ac.dot(ap));
    if d1 <= 0.0 && d2 <= 0.0 {
        return a;
    }
    let bp = point - b;
    let (d3, d4) = (ab.dot(bp), ac.dot(bp));
    if d3 >= 0.0 && d4 <= d3 {
        return b;
    }
    let vc = d1 * d4 - d3 * d2;
    if vc <= 0.0 && d1 >= 0.0 && d3 <= 0.0 {
        return a + ab * (d1 / (d1 - d3));
    }
    let cp = point - c;
    let (d5, d6) = (ab.dot(cp), ac.dot(cp));
    if d6 >= 0.0 && d5 <= d6 {
        return c;
    }
    let vb = d5 * d2 - d1 * d6;
    if vb <= 0.0 && d2 >= 0.0 && d6 <= 0.0 {
        return a + ac * (d2 / (d2 - d6));
    }
    let va = d3 * d6 - d5 * d4;
    if va <= 0.0 && d4 - d3 >= 0.0 && d5 - d6 >= 0.0 {
        return b + (c - b) * ((d4 - d3) / ((d4 - d3) + (d5 - d6)));
    }
    let scale = 1.0 / (va + vb + vc);
    a + ab * (vb * scale) + ac * (vc * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_points_are_those_of_a_dense_search() {
        let mut random = fastrand::Rng::with_seed(5);
        for round in 0..3_000 {
            let mut point = || Vec3::new(random.f32(), random.f32(), random.f32()) * 4.0 - 2.0;
            let corners = [point(), point(), point()];
            let axis = Axis { low: point(), length: 1.0 };
            let found = axis.nearest(&corners);
            let steps = 24;
            let mut best = f32::INFINITY;
            for up in 0..=steps {
                let on_axis = axis.low + Vec3::new(0.0, up as f32 / steps as f32, 0.0);
                best = best.min(on_axis.distance(nearest_on_triangle(on_axis, &corners)));
            }
            let distance = found.square.sqrt();
            assert!(distance <= best + 1e-3, "round {round}: {distance} above {best}");
            assert!(distance >= best - 1.0 / steps as f32, "round {round}: {distance} below {best}");
            assert!((found.on_axis.distance(found.on_triangle) - distance).abs() < 1e-4, "round {round}");
        }
    }

    #[test]
    fn the_nearest_point_of_a_triangle_is_that_of_a_dense_search() {
        let mut random = fastrand::Rng::with_seed(6);
        for round in 0..500 {
            let mut point = || Vec3::new(random.f32(), random.f32(), random.f32()) * 4.0 - 2.0;
            let [a, b, c] = [point(), point(), point()];
            let from = point();
            let found = from.distance(nearest_on_triangle(from, &[a, b, c]));
            let mut best = f32::INFINITY;
            for i in 0..=40 {
                for j in 0..=40 - i {
                    let (u, v) = (i as f32 / 40.0, j as f32 / 40.0);
                    best = best.min(from.distance(a + (b - a) * u + (c - a) * v));
                }
            }
            assert!(found <= best + 1e-4 && found >= best - 0.2, "round {round}: {found} and {best}");
        }
    }

    #[test]
    fn an_upright_line_meets_a_floor_and_no_wall() {
        let floor = [Vec3::ZERO, Vec3::new(0.0, 1.0, 4.0), Vec3::new(4.0, 0.0, 0.0)];
        assert_eq!(height_at(&floor, 0.0, 2.0), Some(0.5));
        assert_eq!(height_at(&floor, 3.0, 3.0), None);
        assert_eq!(height_at(&[Vec3::ZERO, Vec3::X, Vec3::Y], 0.5, 0.0), None);
    }
}
