//! All lines from one box to another, and what crosses all of them.

use glam::{DVec3, Vec2, Vec3, vec2};

/// An axis-aligned box by its lowest and highest corner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Space {
    pub(super) lowest: Vec3,
    pub(super) highest: Vec3,
}

impl Space {
    pub(super) fn around(point: Vec3, reach: Vec3) -> Space {
        Space { lowest: point - reach, highest: point + reach }
    }

    pub(super) fn grown(self, reach: Vec3) -> Space {
        Space { lowest: self.lowest - reach, highest: self.highest + reach }
    }

    pub(super) fn middle(self) -> Vec3 {
        0.5 * (self.lowest + self.highest)
    }

    pub(super) fn overlaps(self, other: Space) -> bool {
        self.lowest.cmple(other.highest).all() && other.lowest.cmple(self.highest).all()
    }

    pub(super) fn corners(self) -> [Vec3; 8] {
        std::array::from_fn(|corner| {
            let pick = |axis: usize| if corner >> axis & 1 == 0 { self.lowest[axis] } else { self.highest[axis] };
            Vec3::new(pick(0), pick(1), pick(2))
        })
    }

    /// Where the line through two points is in this box: shares of the way from the first to the second.
    pub(super) fn meets_line(self, from: Vec3, to: Vec3) -> Option<[f32; 2]> {
        let way = to - from;
        let (mut enter, mut leave) = (f32::NEG_INFINITY, f32::INFINITY);
        for axis in 0..3 {
            if way[axis].abs() < 1e-9 {
                if from[axis] < self.lowest[axis] || from[axis] > self.highest[axis] {
                    return None;
                }
                continue;
            }
            let (a, b) = ((self.lowest[axis] - from[axis]) / way[axis], (self.highest[axis] - from[axis]) / way[axis]);
            (enter, leave) = (enter.max(a.min(b)), leave.min(a.max(b)));
        }
        (enter <= leave).then_some([enter, leave])
    }

    /// The parts below and above `place` on an axis.
    fn split(self, axis: usize, place: f32) -> [Space; 2] {
        let (mut below, mut above) = (self, self);
        below.highest[axis] = place;
        above.lowest[axis] = place;
        [below, above]
    }
}

/// All lines that begin in one box and end in the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shaft {
    pub(super) from: Space,
    pub(super) to: Space,
}

/// A box has to be so far from a plane that the plane counts as between the boxes, in metres.
const APART_M: f32 = 1e-4;
/// Triangles at most so far from a plane count as lying in it, in metres; and gaps of twice this between them as closed.
pub(super) const FLAT_M: f32 = 5e-4;
/// A gap of at most twice this beside a wall counts as closed, in metres.
pub(super) const EDGE_M: f32 = 2e-3;
/// More than rounding moves the place in which a line crosses a plane, in metres.
const ROUNDING_M: f32 = 1e-3;

impl Shaft {
    /// Two shafts that together hold the same lines. The box and axis with the widest sides across the lines is cut; or,
    /// if a plane that stands on an axis cuts a box, that box there.
    pub(super) fn split(self, plane: Option<&Plane>) -> [Shaft; 2] {
        if let Some(Plane { axis, is_upright: true, distance, .. }) = plane {
            let place = *distance as f32;
            for is_from in [true, false] {
                let space = if is_from { self.from } else { self.to };
                let (low, high) = (space.lowest[*axis], space.highest[*axis]);
                let edge = 0.02 * (high - low) + APART_M;
                if low + edge < place && place < high - edge {
                    return self.parts(is_from, space.split(*axis, place));
                }
            }
        }
        let way = self.to.middle() - self.from.middle();
        let across = (Vec3::ONE - way * way / way.length_squared().max(1e-6)).max(Vec3::splat(0.04));
        let (from, to) = (self.from.highest - self.from.lowest, self.to.highest - self.to.lowest);
        let (mut widest, mut is_from, mut axis) = (-1.0, true, 0);
        for (side, sizes) in [(true, from * from * across), (false, to * to * across)] {
            for (place, size) in sizes.to_array().into_iter().enumerate() {
                if size > widest {
                    (widest, is_from, axis) = (size, side, place);
                }
            }
        }
        let space = if is_from { self.from } else { self.to };
        self.parts(is_from, space.split(axis, space.middle()[axis]))
    }

    fn parts(self, is_from: bool, parts: [Space; 2]) -> [Shaft; 2] {
        parts.map(|part| if is_from { Shaft { from: part, ..self } } else { Shaft { to: part, ..self } })
    }
}

/// A plane, and the two axes that name places on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plane {
    pub(super) normal: DVec3,
    pub(super) distance: f64,
    /// The axis to which the normal is nearest; places on the plane are named by the other two.
    pub(super) axis: usize,
    /// Whether the plane stands exactly across that axis: its normal is then 1 there and 0 elsewhere.
    pub(super) is_upright: bool,
}

/// A rectangle of places on a plane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rect {
    pub(super) low: Vec2,
    pub(super) high: Vec2,
}

impl Rect {
    pub(super) fn grown(self, by: f32) -> Rect {
        Rect { low: self.low - by, high: self.high + by }
    }

    pub(super) fn holds(self, other: Rect) -> bool {
        self.low.cmple(other.low).all() && other.high.cmple(self.high).all()
    }

    /// The part of this rectangle outside of another one: at most four rectangles.
    pub(super) fn without(self, other: Rect) -> impl Iterator<Item = Rect> {
        let Rect { low, high } = self;
        let (inner_low, inner_high) = (low.max(other.low), high.min(other.high));
        let is_apart = inner_low.cmpge(inner_high).any();
        let parts = [
            Rect { low, high: vec2(inner_low.x, high.y) },
            Rect { low: vec2(inner_high.x, low.y), high },
            Rect { low: vec2(inner_low.x, low.y), high: vec2(inner_high.x, inner_low.y) },
            Rect { low: vec2(inner_low.x, inner_high.y), high: vec2(inner_high.x, high.y) },
        ];
        let whole = std::iter::once(self).filter(move |_| is_apart);
        whole.chain(parts.into_iter().filter(move |part| !is_apart && part.low.cmplt(part.high).all()))
    }

    pub(super) fn corners(self) -> [Vec2; 4] {
        [self.low, vec2(self.high.x, self.low.y), self.high, vec2(self.low.x, self.high.y)]
    }
}

impl Plane {
    /// The plane of a triangle; none if it is too thin to have one.
    pub(super) fn of([a, b, c]: [Vec3; 3]) -> Option<Plane> {
        for axis in 0..3 {
            if a[axis] == b[axis] && b[axis] == c[axis] {
                return Some(Plane::across(axis, a[axis]));
            }
        }
        let [a, b, c] = [a, b, c].map(|corner| corner.as_dvec3());
        let normal = (b - a).cross(c - a).try_normalize()?;
        Some(Plane::leaning(normal, normal.dot(a)))
    }

    /// The plane across an axis at a place.
    pub(super) fn across(axis: usize, place: f32) -> Plane {
        Plane { normal: DVec3::AXES[axis], distance: f64::from(place), axis, is_upright: true }
    }

    pub(super) fn leaning(normal: DVec3, distance: f64) -> Plane {
        let size = normal.abs();
        let axis = if size.x >= size.y && size.x >= size.z { 0 } else { 1 + usize::from(size.z > size.y) };
        Plane { normal, distance, axis, is_upright: false }
    }

    /// The name of a place on the plane.
    pub(super) fn place(&self, point: Vec3) -> Vec2 {
        match self.axis {
            0 => vec2(point.y, point.z),
            1 => vec2(point.x, point.z),
            _ => vec2(point.x, point.y),
        }
    }

    /// The point of the plane with this name.
    pub(super) fn point(&self, place: Vec2) -> Vec3 {
        let mut point = match self.axis {
            0 => Vec3::new(0.0, place.x, place.y),
            1 => Vec3::new(place.x, 0.0, place.y),
            _ => Vec3::new(place.x, place.y, 0.0),
        };
        point[self.axis] = ((self.distance - self.normal.dot(point.as_dvec3())) / self.normal[self.axis]) as f32;
        point
    }

    /// A part of the plane as a box without thickness. Only for a plane across an axis.
    pub(super) fn flat(&self, rect: Rect) -> Space {
        Space { lowest: self.point(rect.low), highest: self.point(rect.high) }
    }

    /// How far a point is from the plane, on the side of the normal.
    pub(super) fn height(&self, point: Vec3) -> f64 {
        self.normal.dot(point.as_dvec3()) - self.distance
    }

    /// A rectangle that holds all places in which lines of a shaft cross the plane, or a surface that is as flat as
    /// [`FLAT_M`] says; none if the plane is not between the boxes.
    ///
    /// The two boxes are convex and on different sides, so the crossings of the lines between their corners have all
    /// others between them.
    pub(super) fn crossing(&self, shaft: &Shaft) -> Option<Rect> {
        let (rect, apart_m) = if self.is_upright { self.upright(shaft)? } else { self.slanted(shaft)? };
        let half = |space: &Space| 0.5 * (space.highest - space.lowest);
        let length_m = (shaft.to.middle() - shaft.from.middle()).abs().element_sum()
            + (half(&shaft.from) + half(&shaft.to)).element_sum();
        Some(rect.grown(ROUNDING_M + FLAT_M * length_m / apart_m))
    }

    /// The crossings of a slanted plane, and how far the boxes are apart along its normal.
    fn slanted(&self, shaft: &Shaft) -> Option<(Rect, f32)> {
        let reach = |space: &Space| {
            let half = 0.5 * (space.highest - space.lowest).as_dvec3();
            (self.height(space.middle()), half.dot(self.normal.abs()) + f64::from(APART_M))
        };
        let ((height, half), (other, other_half)) = (reach(&shaft.from), reach(&shaft.to));
        let is_between = (height > half && other < -other_half) || (height < -half && other > other_half);
        if !is_between {
            return None;
        }
        let (from, to) = (shaft.from.corners(), shaft.to.corners());
        let (heights, others) = (from.map(|corner| self.height(corner)), to.map(|corner| self.height(corner)));
        let mut rect = Rect { low: Vec2::INFINITY, high: Vec2::NEG_INFINITY };
        for (corner, height) in from.iter().zip(heights) {
            for (other, other_height) in to.iter().zip(others) {
                let share = (height / (height - other_height)) as f32;
                let place = self.place(*corner + share * (*other - *corner));
                rect = Rect { low: rect.low.min(place), high: rect.high.max(place) };
            }
        }
        Some((rect, ((height - other).abs() - half - other_half) as f32 + 2.0 * APART_M))
    }

    fn upright(&self, shaft: &Shaft) -> Option<(Rect, f32)> {
        let (axis, place) = (self.axis, self.distance as f32);
        let (from, to) = (&shaft.from, &shaft.to);
        // The shares of the way at which the plane is crossed reach from `first` to `last`.
        let share = |a: f32, b: f32| (place - a) / (b - a);
        let (first, last, apart_m) = if from.highest[axis] + APART_M < place && place < to.lowest[axis] - APART_M {
            let first = share(from.highest[axis], to.highest[axis]);
            (first, share(from.lowest[axis], to.lowest[axis]), to.lowest[axis] - from.highest[axis])
        } else if to.highest[axis] + APART_M < place && place < from.lowest[axis] - APART_M {
            let first = share(from.lowest[axis], to.lowest[axis]);
            (first, share(from.highest[axis], to.highest[axis]), from.lowest[axis] - to.highest[axis])
        } else {
            return None;
        };
        let at = |a: Vec3, b: Vec3, share: f32| self.place(a + share * (b - a));
        let low = at(from.lowest, to.lowest, first).min(at(from.lowest, to.lowest, last));
        let high = at(from.highest, to.highest, first).max(at(from.highest, to.highest, last));
        Some((Rect { low, high }, apart_m))
    }
}
