//! Shapes as sources of interest: the cells that a sphere, a box or a cone touches.

use crate::grid::{CellId, Grid};
use crate::rings::Rings;
use std::f64::consts::FRAC_PI_2;
use thiserror::Error;

/// Most cells of the box that encloses a shape.
pub const MAX_SHAPE_CELLS: u64 = 65_536;

/// Rounds in which a cell that a cone neither touches nor misses clearly is examined. A cell still undecided then is
/// taken as touched.
const MAX_CONE_ROUNDS: u32 = 64;

/// A region of space. All lengths in metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Everything within a distance of a point.
    Sphere {
        /// The centre; distances count from here.
        centre: [f64; 3],
        /// At least 0.
        radius_m: f64,
    },
    /// An axis-aligned box. Distances count from its middle.
    Box {
        /// Lower corner.
        min: [f64; 3],
        /// Upper corner, at least `min` on each axis.
        max: [f64; 3],
    },
    /// Everything within `range_m` of `apex` and within `half_angle_rad` of the direction `axis`: a field of view.
    Cone {
        /// The tip; distances count from here.
        apex: [f64; 3],
        /// The direction, of any length above 0.
        axis: [f64; 3],
        /// Above 0, at most a quarter turn (pi / 2).
        half_angle_rad: f64,
        /// At least 0.
        range_m: f64,
    },
}

/// Why a shape has no cells to offer. The caller is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// A coordinate or length is NaN or infinite.
    #[error("a shape has a coordinate or length that is not finite: check the game's numbers for NaN")]
    NotFinite,
    /// A negative length, a box turned inside out, or a cone without direction or with an angle out of range.
    #[error("a shape has a negative size, no direction, or an angle outside of 0 to a quarter turn")]
    Size,
    /// The enclosing box has more than [`MAX_SHAPE_CELLS`] cells. No cell has been visited.
    #[error("a shape spans {cells} cells, more than {MAX_SHAPE_CELLS}: make it smaller or the cells larger")]
    TooManyCells {
        /// Cells of the enclosing box.
        cells: u64,
    },
}

impl ShapeError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            ShapeError::NotFinite => "shape_not_finite",
            ShapeError::Size => "shape_size",
            ShapeError::TooManyCells { .. } => "shape_too_many_cells",
        }
    }
}

impl Grid {
    /// Visits every cell that `shape` touches, in the order of cells, with the nearest ring that reaches the cell from
    /// the point from which the shape's distances count. Cells beyond all rings are visited with the last ring. Returns
    /// the number of cells visited.
    ///
    /// No cell that the shape touches is left out. A cell that it misses by a hair may be visited.
    ///
    /// # Errors
    /// A shape that is not valid or too large; nothing has been visited then.
    pub fn cells_in(
        &self,
        shape: &Shape,
        rings: &Rings,
        mut visit: impl FnMut(CellId, u8),
    ) -> Result<usize, ShapeError> {
        let region = Region::new(shape)?;
        let (first, last) = (self.cell_of(region.min), self.cell_of(region.max));
        let cells = cells_between(first, last);
        if cells > MAX_SHAPE_CELLS {
            return Err(ShapeError::TooManyCells { cells });
        }
        let farthest = (rings.len() - 1) as u8;
        let mut visited = 0;
        for z in first.z..=last.z {
            for y in first.y..=last.y {
                for x in first.x..=last.x {
                    let cell = CellId { x, y, z };
                    let bounds = Bounds::of(self, cell);
                    if region.touches(&bounds) {
                        let distance_m = bounds.distance_m(region.viewpoint);
                        visit(cell, rings.ring_at(distance_m, 0.0).unwrap_or(farthest));
                        visited += 1;
                    }
                }
            }
        }
        Ok(visited)
    }
}

fn cells_between(first: CellId, last: CellId) -> u64 {
    let along = |first: i32, last: i32| u64::from(last.abs_diff(first)) + 1;
    along(first.x, last.x).saturating_mul(along(first.y, last.y)).saturating_mul(along(first.z, last.z))
}

/// A checked shape with what follows from it.
struct Region {
    min: [f64; 3],
    max: [f64; 3],
    /// Where distances count from.
    viewpoint: [f64; 3],
    form: Form,
}

enum Form {
    Box,
    Sphere { radius_m: f64 },
    Cone(Cone),
}

impl Region {
    fn new(shape: &Shape) -> Result<Region, ShapeError> {
        match *shape {
            Shape::Sphere { centre, radius_m } => {
                check_lengths(&[centre], radius_m)?;
                Ok(Region::round(centre, radius_m, Form::Sphere { radius_m }))
            }
            Shape::Box { min, max } => {
                check_lengths(&[min, max], 0.0)?;
                if (0..3).any(|axis| min[axis] > max[axis]) {
                    return Err(ShapeError::Size);
                }
                let viewpoint = [0, 1, 2].map(|axis| min[axis] / 2.0 + max[axis] / 2.0);
                Ok(Region { min, max, viewpoint, form: Form::Box })
            }
            Shape::Cone { apex, axis, half_angle_rad, range_m } => {
                check_lengths(&[apex, axis], range_m)?;
                let cone = Cone::new(axis, half_angle_rad, range_m)?;
                Ok(Region::round(apex, range_m, Form::Cone(cone)))
            }
        }
    }

    fn round(centre: [f64; 3], radius_m: f64, form: Form) -> Region {
        Region { min: centre.map(|c| c - radius_m), max: centre.map(|c| c + radius_m), viewpoint: centre, form }
    }

    fn touches(&self, bounds: &Bounds) -> bool {
        match &self.form {
            Form::Box => true,
            Form::Sphere { radius_m } => bounds.distance_m(self.viewpoint) <= *radius_m,
            Form::Cone(cone) => cone.touches(&bounds.within(self.min, self.max).relative_to(self.viewpoint)),
        }
    }
}

fn check_lengths(points: &[[f64; 3]], length_m: f64) -> Result<(), ShapeError> {
    if !length_m.is_finite() || points.iter().flatten().any(|value| !value.is_finite()) {
        return Err(ShapeError::NotFinite);
    }
    if length_m < 0.0 { Err(ShapeError::Size) } else { Ok(()) }
}

/// The space of a cell, in metres; infinite where the cell has no end.
struct Bounds {
    min: [f64; 3],
    max: [f64; 3],
}

impl Bounds {
    fn of(grid: &Grid, cell: CellId) -> Bounds {
        let [x, y, z] = [cell.x, cell.y, cell.z];
        let sides = [grid.borders_m(0, x), grid.borders_m(1, y), grid.borders_m(2, z)];
        Bounds { min: sides.map(|side| side.0), max: sides.map(|side| side.1) }
    }

    /// The part of it that lies in another box, which it overlaps.
    fn within(&self, min: [f64; 3], max: [f64; 3]) -> Bounds {
        Bounds {
            min: [0, 1, 2].map(|axis| self.min[axis].max(min[axis])),
            max: [0, 1, 2].map(|axis| self.max[axis].min(max[axis])),
        }
    }

    /// The same box, seen from another origin.
    fn relative_to(&self, origin: [f64; 3]) -> Bounds {
        Bounds { min: minus(self.min, origin), max: minus(self.max, origin) }
    }

    /// The point of the box that is nearest to `point`.
    fn nearest(&self, point: [f64; 3]) -> [f64; 3] {
        [0, 1, 2].map(|axis| point[axis].max(self.min[axis]).min(self.max[axis]))
    }

    fn distance_m(&self, point: [f64; 3]) -> f64 {
        length(minus(self.nearest(point), point))
    }

    /// The least of `normal · point` over the box.
    fn least_along(&self, normal: [f64; 3]) -> f64 {
        (0..3).map(|axis| normal[axis] * if normal[axis] > 0.0 { self.min[axis] } else { self.max[axis] }).sum()
    }
}

/// A convex cone with its tip at the origin, cut off by a ball around it.
struct Cone {
    /// Length 1.
    axis: [f64; 3],
    sine: f64,
    cosine: f64,
    range_m: f64,
}

impl Cone {
    fn new(axis: [f64; 3], half_angle_rad: f64, range_m: f64) -> Result<Cone, ShapeError> {
        if half_angle_rad.is_nan() || half_angle_rad <= 0.0 || half_angle_rad > FRAC_PI_2 {
            return Err(ShapeError::Size);
        }
        // Scaled by the largest part first, so that neither huge nor tiny directions leave the range of an f64.
        let largest = axis.iter().fold(0.0f64, |largest, part| largest.max(part.abs()));
        if largest == 0.0 {
            return Err(ShapeError::Size);
        }
        let axis = axis.map(|part| part / largest);
        let norm = length(axis);
        let (sine, cosine) = half_angle_rad.sin_cos();
        Ok(Cone { axis: axis.map(|part| part / norm), sine, cosine, range_m })
    }

    /// Whether the cone and a box have a point in common: the search for the point of the box that is nearest to the
    /// cone, by projecting onto the one and the other in turn, with momentum (the FISTA of Beck and Teboulle, 2009).
    /// It ends when the cone's point lies in the box, or when the plane through that point has the whole box on its far
    /// side: the cone, being convex, is on the near side.
    fn touches(&self, bounds: &Bounds) -> bool {
        let near_m = 1e-9 * (1.0 + self.range_m);
        let mut before = bounds.nearest([0.0; 3]);
        let mut from = before;
        for round in 0..MAX_CONE_ROUNDS {
            let in_cone = self.nearest(from);
            let in_box = bounds.nearest(in_cone);
            if length(minus(in_box, in_cone)) <= near_m {
                return true;
            }
            let outwards = minus(from, in_cone);
            if bounds.least_along(outwards) > dot(outwards, in_cone) {
                return false;
            }
            let round = f64::from(round);
            let momentum = round / (round + 3.0);
            from = plus(in_box, scaled(minus(in_box, before), momentum));
            before = in_box;
        }
        true
    }

    /// The point of the cone that is nearest to `point`: first onto the endless cone, then into the ball.
    fn nearest(&self, point: [f64; 3]) -> [f64; 3] {
        let along = dot(point, self.axis);
        let across = minus(point, scaled(self.axis, along));
        let across_m = length(across);
        let on_cone = if across_m * self.cosine <= along * self.sine {
            point
        } else if across_m == 0.0 {
            [0.0; 3]
        } else {
            // Onto the generating line that lies in the plane of the axis and the point; behind its start is the tip.
            let along_line = (along * self.cosine + across_m * self.sine).max(0.0);
            let across_part = scaled(across, self.sine / across_m);
            scaled(plus(scaled(self.axis, self.cosine), across_part), along_line)
        };
        let distance_m = length(on_cone);
        if distance_m > self.range_m { scaled(on_cone, self.range_m / distance_m) } else { on_cone }
    }
}

fn plus(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

fn minus(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

fn scaled(a: [f64; 3], by: f64) -> [f64; 3] {
    a.map(|part| part * by)
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn length(a: [f64; 3]) -> f64 {
    dot(a, a).sqrt()
}
