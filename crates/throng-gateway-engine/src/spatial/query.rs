//! Areas of interest: their cells, with their distances.
//!
//! channeld samples an area at points of a lattice and takes the cells that the points are in. The lattice starts at
//! `centre - extent` and goes in steps of `min(extent, cell) / 2` along each axis; of a sphere, the points beyond the
//! radius do not count, of a cone also those whose direction is off by more than the angle. A cell's *distance* is
//! that of its nearest point from the centre, in diagonals of a cell, rounded up; the centre's own cell has 0. So it
//! is here, with three differences:
//!
//! - The lattice is only looked at where the world is. A radius of 1e18 costs as much as one across the world.
//! - The nearest point of a cell counts, not the last one that a loop comes to. Areas that are united do not overwrite
//!   each other's distances either: the least one holds.
//! - A query is refused if it is not a number, has no centre, or would take more than [`InterestLimits::samples`].
//!
//! Boxes and spheres need no loop over points: the nearest point of a cell is the nearest along each axis on its own.

use thiserror::Error;
use throng_channeld::proto::spatial_interest_query::{BoxAoi, ConeAoi, SphereAoi, SpotsAoi};
use throng_channeld::proto::{SpatialInfo, SpatialInterestQuery};

use super::grid::{Grid, Position};

/// The limits of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterestLimits {
    /// Most cells and points of all areas of a query that are looked at.
    pub samples: u32,
    /// Largest radius or half size, in the units of the grid. Larger ones are cut down to it.
    pub radius_m: u32,
}

impl Default for InterestLimits {
    /// 65,536 samples; any radius.
    fn default() -> InterestLimits {
        InterestLimits { samples: 65_536, radius_m: u32::MAX }
    }
}

/// One cell that is of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interest {
    /// The cell's channel.
    pub channel: u32,
    /// 0 in the centre's cell, otherwise in diagonals of a cell, rounded up.
    pub distance: u32,
}

/// Why a query has no answer. The sender is at fault; existing subscriptions stay.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum InterestError {
    /// There is no query in the message.
    #[error("there is no query")]
    NoQuery,
    /// An area without a centre, a size or a direction.
    #[error("the {area} has no {part}")]
    Missing {
        /// Which area.
        area: &'static str,
        /// The missing part.
        part: &'static str,
    },
    /// A coordinate, a size or an angle is NaN or infinite.
    #[error("the {area} has a number that is not finite")]
    NotFinite {
        /// Which area.
        area: &'static str,
    },
    /// A size that is not above 0, or an angle below 0.
    #[error("the {area} has no size")]
    Size {
        /// Which area.
        area: &'static str,
    },
    /// The centre lies outside of the world.
    #[error("the centre of the {area} lies outside of the world")]
    Outside {
        /// Which area.
        area: &'static str,
    },
    /// It would take more than [`InterestLimits::samples`].
    #[error("the query takes more than {limit} samples")]
    TooLarge {
        /// The limit.
        limit: u32,
    },
}

impl InterestError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            InterestError::NoQuery => "interest_no_query",
            InterestError::Missing { .. } => "interest_missing",
            InterestError::NotFinite { .. } => "interest_not_finite",
            InterestError::Size { .. } => "interest_size",
            InterestError::Outside { .. } => "interest_outside",
            InterestError::TooLarge { .. } => "interest_too_large",
        }
    }
}

/// Memory that queries use again and again.
#[derive(Clone, Debug, Default)]
pub struct InterestScratch {
    /// Along each axis, in ascending order.
    lattice: [Vec<Sample>; 3],
    /// Cells and points that the last query looked at.
    samples: u32,
}

impl InterestScratch {
    /// Cells and points that the last query looked at, for metrics.
    pub fn samples(&self) -> u32 {
        self.samples
    }
}

/// A coordinate of the lattice that lies in the world.
#[derive(Clone, Copy, Debug)]
struct Sample {
    cell: u32,
    /// From the centre.
    offset_m: f64,
}

impl Grid {
    /// The cells that a query asks for, in the order of channels and each once. `found` is emptied first, also if
    /// there is an error. Allocates only while `scratch` and `found` grow.
    ///
    /// # Errors
    /// See [`InterestError`]. A spot outside of the world is passed over, as is a query for nothing.
    pub fn interest(
        &self,
        query: &SpatialInterestQuery,
        limits: &InterestLimits,
        scratch: &mut InterestScratch,
        found: &mut Vec<Interest>,
    ) -> Result<(), InterestError> {
        found.clear();
        scratch.samples = 0;
        let mut areas = Areas { grid: self, limits, scratch, found };
        let answer = areas.visit(query);
        match answer {
            Ok(()) => {
                found.sort_unstable();
                found.dedup_by_key(|interest| interest.channel);
            }
            Err(_) => found.clear(),
        }
        answer
    }
}

/// The areas of one query, being turned into cells.
struct Areas<'a> {
    grid: &'a Grid,
    limits: &'a InterestLimits,
    scratch: &'a mut InterestScratch,
    found: &'a mut Vec<Interest>,
}

impl Areas<'_> {
    fn visit(&mut self, query: &SpatialInterestQuery) -> Result<(), InterestError> {
        if let Some(spots) = &query.spots_aoi {
            self.visit_spots(spots)?;
        }
        if let Some(area) = &query.box_aoi {
            self.visit_box(area)?;
        }
        if let Some(area) = &query.sphere_aoi {
            self.visit_sphere(area)?;
        }
        if let Some(area) = &query.cone_aoi {
            self.visit_cone(area)?;
        }
        Ok(())
    }

    fn visit_spots(&mut self, area: &SpotsAoi) -> Result<(), InterestError> {
        self.spend(area.spots.len())?;
        let distances = area.dists.iter().copied().chain(std::iter::repeat(0));
        for (spot, distance) in area.spots.iter().zip(distances) {
            if let Some(channel) = self.grid.channel_at((*spot).into()) {
                self.found.push(Interest { channel, distance });
            }
        }
        Ok(())
    }

    fn visit_box(&mut self, area: &BoxAoi) -> Result<(), InterestError> {
        let centre = self.centre("box", area.center)?;
        let extent = area.extent.ok_or(InterestError::Missing { area: "box", part: "extent" })?;
        let extent = Position::from(extent).along();
        self.lay_lattice("box", centre, extent)?;
        self.visit_cells(f64::INFINITY)
    }

    fn visit_sphere(&mut self, area: &SphereAoi) -> Result<(), InterestError> {
        let centre = self.centre("sphere", area.center)?;
        self.lay_lattice("sphere", centre, [area.radius; 3])?;
        self.visit_cells(self.bounded(area.radius))
    }

    fn visit_cone(&mut self, area: &ConeAoi) -> Result<(), InterestError> {
        let centre = self.centre("cone", area.center)?;
        let direction = area.direction.ok_or(InterestError::Missing { area: "cone", part: "direction" })?;
        let direction = self.unit(Position::from(direction).along())?;
        if !area.angle.is_finite() {
            return Err(InterestError::NotFinite { area: "cone" });
        }
        if area.angle < 0.0 {
            return Err(InterestError::Size { area: "cone" });
        }
        self.lay_lattice("cone", centre, [area.radius; 3])?;
        let cosine = area.angle.min(std::f64::consts::PI).cos();
        self.visit_points(self.bounded(area.radius), direction, cosine)
    }

    /// The centre, in the order of axes, its cell being found at distance 0.
    fn centre(&mut self, area: &'static str, centre: Option<SpatialInfo>) -> Result<[f64; 3], InterestError> {
        let centre: Position = centre.ok_or(InterestError::Missing { area, part: "centre" })?.into();
        let along = centre.along();
        if along[..self.grid.axes().len()].iter().any(|coordinate| !coordinate.is_finite()) {
            return Err(InterestError::NotFinite { area });
        }
        let channel = self.grid.channel_at(centre).ok_or(InterestError::Outside { area })?;
        self.found.push(Interest { channel, distance: 0 });
        Ok(along)
    }

    /// Length 1 along the axes of the grid.
    fn unit(&self, mut direction: [f64; 3]) -> Result<[f64; 3], InterestError> {
        direction[self.grid.axes().len()..].fill(0.0);
        if direction.iter().any(|part| !part.is_finite()) {
            return Err(InterestError::NotFinite { area: "cone" });
        }
        // Scaled by the largest part first, so that neither huge nor tiny directions leave the range of an f64.
        let largest = direction.iter().fold(0.0f64, |largest, part| largest.max(part.abs()));
        if largest == 0.0 {
            return Err(InterestError::Missing { area: "cone", part: "direction" });
        }
        let direction = direction.map(|part| part / largest);
        let length = square(direction).sqrt();
        Ok(direction.map(|part| part / length))
    }

    /// No farther than the limit.
    fn bounded(&self, extent_m: f64) -> f64 {
        extent_m.min(self.limits.radius_m.into())
    }

    /// Fills the lattice with the coordinates `centre - extent + step * i` that are in the world.
    fn lay_lattice(&mut self, area: &'static str, centre: [f64; 3], extent: [f64; 3]) -> Result<(), InterestError> {
        for list in &mut self.scratch.lattice {
            list.clear();
        }
        for (index, axis) in self.grid.axes().iter().enumerate() {
            if !extent[index].is_finite() {
                return Err(InterestError::NotFinite { area });
            }
            let extent_m = self.bounded(extent[index]);
            let step_m = extent_m.min(axis.cell_m) / 2.0;
            // Also catches the smallest of all numbers, half of which is 0.
            if step_m.is_nan() || step_m <= 0.0 {
                return Err(InterestError::Size { area });
            }
            // Counted from the centre: far away, where a huge extent begins, numbers are too coarse to count from.
            let shift_m = extent_m % step_m;
            let first_m = (axis.offset_m - centre[index]).max(-extent_m);
            let last_m = (axis.end_m() - centre[index]).min(extent_m);
            let first = ((first_m + shift_m) / step_m).ceil();
            let last = ((last_m + shift_m) / step_m).floor();
            let steps = (last - first + 1.0).max(0.0) as usize;
            self.spend(steps)?;
            let list = &mut self.scratch.lattice[index];
            for step in 0..steps {
                let offset_m = (first + step as f64) * step_m - shift_m;
                if let Some(cell) = self.grid.cell_along(index, centre[index] + offset_m) {
                    list.push(Sample { cell, offset_m });
                }
            }
        }
        if !self.grid.has_layers() {
            self.scratch.lattice[2].push(Sample { cell: 0, offset_m: 0.0 });
        }
        Ok(())
    }

    /// Finds the cells whose nearest point is within a radius.
    fn visit_cells(&mut self, radius_m: f64) -> Result<(), InterestError> {
        self.scratch.lattice.iter_mut().for_each(keep_nearest);
        self.spend_lattice()?;
        let [columns, rows, layers] = &self.scratch.lattice;
        for layer in layers {
            for row in rows {
                for column in columns {
                    let square = square([column.offset_m, row.offset_m, layer.offset_m]);
                    if square <= radius_m * radius_m {
                        let channel = self.grid.channel_of([column.cell, row.cell, layer.cell]);
                        self.found.push(Interest { channel, distance: in_diagonals(self.grid, square.sqrt()) });
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds the cells of all points within a radius and an angle around a direction of length 1.
    fn visit_points(&mut self, radius_m: f64, direction: [f64; 3], cosine: f64) -> Result<(), InterestError> {
        self.spend_lattice()?;
        let [columns, rows, layers] = &self.scratch.lattice;
        for layer in layers {
            for row in rows {
                let mut last: Option<Interest> = None;
                for column in columns {
                    let offset = [column.offset_m, row.offset_m, layer.offset_m];
                    let square = square(offset);
                    let distance_m = square.sqrt();
                    let along_m: f64 = (0..3).map(|axis| offset[axis] * direction[axis]).sum();
                    if square > radius_m * radius_m || square == 0.0 || along_m / distance_m < cosine {
                        continue;
                    }
                    let channel = self.grid.channel_of([column.cell, row.cell, layer.cell]);
                    let distance = in_diagonals(self.grid, distance_m);
                    // Neighbouring points are mostly in one cell: joined here, there is less to sort.
                    match &mut last {
                        Some(same) if same.channel == channel => same.distance = same.distance.min(distance),
                        _ => self.found.extend(last.replace(Interest { channel, distance })),
                    }
                }
                self.found.extend(last);
            }
        }
        Ok(())
    }

    fn spend_lattice(&mut self) -> Result<(), InterestError> {
        let points = self.scratch.lattice.iter().fold(1usize, |points, list| points.saturating_mul(list.len()));
        self.spend(points)
    }

    fn spend(&mut self, samples: usize) -> Result<(), InterestError> {
        let limit = self.limits.samples;
        let spent = (self.scratch.samples as usize).saturating_add(samples);
        if spent > limit as usize {
            return Err(InterestError::TooLarge { limit });
        }
        self.scratch.samples = spent as u32;
        Ok(())
    }
}

/// Leaves of each cell the point that is nearest to the centre.
fn keep_nearest(list: &mut Vec<Sample>) {
    list.dedup_by(|next, kept| {
        let is_same = next.cell == kept.cell;
        if is_same && next.offset_m.abs() < kept.offset_m.abs() {
            kept.offset_m = next.offset_m;
        }
        is_same
    });
}

fn in_diagonals(grid: &Grid, distance_m: f64) -> u32 {
    (distance_m / grid.diagonal_m()).ceil() as u32
}

fn square([a, b, c]: [f64; 3]) -> f64 {
    a * a + b * b + c * c
}
