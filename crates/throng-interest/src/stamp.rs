//! Which cells a viewer wants, worked out once for every part of a cell it can stand in.
//!
//! A stamp belongs to one sub-cell. It lists the cells, relative to the viewer's own, whose distance to the *nearest*
//! point of the sub-cell is within a ring. Two rings are kept per cell, so that one list serves both sides of the
//! hysteresis:
//!
//! ```text
//!   enter   the nearest ring with distance < radius                always  hold <= enter
//!   hold    the nearest ring with distance < radius + margin
//!
//!   ring held before:   0 .. hold-1  |  hold .. enter  |  enter+1 .. none
//!   ring held now:          hold     |     the same    |      enter
//! ```
//!
//! The comparison is strict because cells and sub-cells do not contain their upper borders: of two boxes with a gap
//! between them no two points are exactly as close as the gap.

use crate::grid::{CellId, Grid};
use crate::rings::Rings;

/// Most cells of the box that encloses one stamp: what a viewpoint can want at most.
pub const MAX_STAMP_CELLS: usize = 65_536;
/// Most sub-cells of a cell, all axes together.
pub const MAX_SUBCELLS: usize = 64;
/// The ring number of a cell that is not wanted.
pub(crate) const NO_RING: u8 = u8::MAX;

/// A cell relative to the viewer's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StampCell {
    pub(crate) offset: [i16; 3],
    pub(crate) enter: u8,
    pub(crate) hold: u8,
}

/// Where a viewer stands, as exactly as interest cares: its cell, and which sub-cell of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Viewpoint {
    pub(crate) cell: CellId,
    pub(crate) subcell: u8,
}

/// A box of positions that are known to have the same viewpoint. Asking it is several times faster than working the
/// viewpoint out, and most updates end there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Lowest position on each axis.
    low: [f64; 3],
    /// First position beyond on each axis.
    high: [f64; 3],
}

impl Extent {
    /// Contains nothing.
    pub(crate) const EMPTY: Extent = Extent { low: [0.0; 3], high: [0.0; 3] };

    /// The lowest position in it, and the first beyond it.
    pub(crate) fn corners(&self) -> [[f64; 3]; 2] {
        [self.low, self.high]
    }

    /// Whether a position is in the box. NaN never is.
    #[inline]
    pub(crate) fn contains(&self, position: [f64; 3]) -> bool {
        let along = |axis: usize| (self.low[axis] <= position[axis]) & (position[axis] < self.high[axis]);
        along(0) & along(1) & along(2)
    }
}

/// The stamps of all sub-cells.
#[derive(Clone, Debug)]
pub(crate) struct Stamps {
    grid: Grid,
    /// Sub-cells per axis; 1 on an axis with a single layer.
    subcells: [u8; 3],
    /// How far outside of its sub-cell a viewer may be, in metres.
    stay_m: f64,
    /// Indexed by sub-cell: x fastest, then y, then z.
    stamps: Vec<Box<[StampCell]>>,
}

impl Stamps {
    /// Works out all stamps, or returns the number of cells to look at when that is above [`MAX_STAMP_CELLS`].
    pub(crate) fn new(
        grid: Grid,
        rings: &Rings,
        subcells: [u8; 3],
        (margin_m, stay_m): (f64, f64),
    ) -> Result<Stamps, u64> {
        let reach = reach_cells(&grid, rings.reach_m() + margin_m + stay_m)?;
        let mut stamps = Vec::new();
        for z in 0..subcells[2] {
            for y in 0..subcells[1] {
                for x in 0..subcells[0] {
                    stamps.push(stamp(&grid, rings, (subcells, [x, y, z]), reach, (margin_m, stay_m)));
                }
            }
        }
        Ok(Stamps { grid, subcells, stay_m, stamps })
    }

    /// The sub-cell in which a position lies.
    #[inline]
    pub(crate) fn viewpoint(&self, position: [f64; 3]) -> Viewpoint {
        let [(x, sub_x), (y, sub_y), (z, sub_z)] = [0, 1, 2].map(|axis| self.place(axis, position[axis]));
        let [nx, ny, _] = self.subcells;
        Viewpoint { cell: CellId { x, y, z }, subcell: (sub_z * ny + sub_y) * nx + sub_x }
    }

    /// The positions around `position` for which its viewpoint does: nearly all of its sub-cell, and what is near enough
    /// to that.
    pub(crate) fn extent(&self, position: [f64; 3]) -> Extent {
        let mut extent = Extent::EMPTY;
        for (axis, &coordinate_m) in position.iter().enumerate() {
            let place = self.place(axis, coordinate_m);
            let (low, high) = self.borders_m(axis, place);
            // Places never decrease along an axis: what lies between two positions of the same place has it too. Asking
            // the borders again settles what rounding may have done to them.
            if self.place(axis, low) == place && self.place(axis, high) == place {
                (extent.low[axis], extent.high[axis]) = (low - self.stay_m, high + self.stay_m);
            }
        }
        extent
    }

    /// The cell index along an axis and the sub-cell within it. Never decreases with the coordinate.
    #[inline]
    fn place(&self, axis: usize, coordinate_m: f64) -> (i32, u8) {
        let (index, part) = self.grid.place(axis, coordinate_m);
        let n = self.subcells[axis];
        // Casting saturates at 0; the upper bound matters beyond the outermost cell.
        (index, ((part * f64::from(n)) as u8).min(n - 1))
    }

    /// Where a sub-cell begins and ends along an axis, a hair inside of it, in metres.
    fn borders_m(&self, axis: usize, (index, sub): (i32, u8)) -> (f64, f64) {
        if self.grid.is_single_layer(axis) {
            return (f64::NEG_INFINITY, f64::INFINITY);
        }
        let (size_m, n) = (self.grid.cell_m()[axis], f64::from(self.subcells[axis]));
        let hair = 1e-6;
        let border_m = |sub: f64| (f64::from(index) + sub / n) * size_m;
        (border_m(f64::from(sub) + hair), border_m(f64::from(sub) + 1.0 - hair))
    }

    /// The cells around a viewpoint, in the order of cells.
    #[inline]
    pub(crate) fn around(&self, viewpoint: Viewpoint) -> &[StampCell] {
        &self.stamps[usize::from(viewpoint.subcell)]
    }

    /// The length of the longest stamp.
    pub(crate) fn longest(&self) -> usize {
        self.stamps.iter().map(|stamp| stamp.len()).max().unwrap_or(0)
    }
}

/// How many cells away from the viewer's own the distance `reach_m` can end, per axis.
fn reach_cells(grid: &Grid, reach_m: f64) -> Result<[i16; 3], u64> {
    let mut cells = 1u64;
    let mut reach = [0i16; 3];
    for (axis, reach) in reach.iter_mut().enumerate() {
        if grid.is_single_layer(axis) {
            continue;
        }
        let along = (reach_m / grid.cell_m()[axis]).ceil() as u64;
        cells = cells.saturating_mul(along.saturating_mul(2).saturating_add(1));
        *reach = i16::try_from(along).map_err(|_| cells)?;
    }
    if cells > MAX_STAMP_CELLS as u64 { Err(cells) } else { Ok(reach) }
}

fn stamp(
    grid: &Grid,
    rings: &Rings,
    (subcells, subcell): ([u8; 3], [u8; 3]),
    reach: [i16; 3],
    (margin_m, stay_m): (f64, f64),
) -> Box<[StampCell]> {
    let gap_m = |axis: usize, offset: i16| (gap_m(grid, axis, subcells[axis], subcell[axis], offset) - stay_m).max(0.0);
    let mut cells = Vec::new();
    for z in -reach[2]..=reach[2] {
        for y in -reach[1]..=reach[1] {
            for x in -reach[0]..=reach[0] {
                let distance_m = (gap_m(0, x).powi(2) + gap_m(1, y).powi(2) + gap_m(2, z).powi(2)).sqrt();
                if let Some(hold) = rings.ring_at(distance_m, margin_m) {
                    let enter = rings.ring_at(distance_m, 0.0).unwrap_or(NO_RING);
                    cells.push(StampCell { offset: [x, y, z], enter, hold });
                }
            }
        }
    }
    cells.into_boxed_slice()
}

/// The distance along one axis between sub-cell `subcell` of `subcells` and the cell `offset` cells away, in metres.
fn gap_m(grid: &Grid, axis: usize, subcells: u8, subcell: u8, offset: i16) -> f64 {
    let (n, s, d) = (f64::from(subcells), f64::from(subcell), f64::from(offset));
    let gap_cells = match offset {
        0 => return 0.0,
        1.. => d - (s + 1.0) / n,
        _ => -d - 1.0 + s / n,
    };
    gap_cells * grid.cell_m()[axis]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rings::Ring;

    fn stamps(cell_m: [f64; 3], radius_m: f64, subcells: [u8; 3], margin_m: f64) -> Stamps {
        let rings = Rings::new(&[Ring { radius_m, interval_ticks: 1 }]).unwrap();
        Stamps::new(Grid::new(cell_m).unwrap(), &rings, subcells, (margin_m, 0.0)).unwrap()
    }

    #[test]
    fn gaps_count_from_the_near_edge_of_the_subcell() {
        let grid = Grid::new([8.0; 3]).unwrap();
        let gap = |subcell, offset| gap_m(&grid, 0, 4, subcell, offset);
        // Sub-cell 1 of 4 spans 2 m to 4 m of a cell of 8 m.
        assert_eq!([gap(1, -2), gap(1, -1), gap(1, 0), gap(1, 1), gap(1, 2)], [10.0, 2.0, 0.0, 4.0, 12.0]);
        assert_eq!([gap(0, -1), gap(3, 1)], [0.0, 0.0]);
    }

    #[test]
    fn a_single_layer_has_no_neighbours_above_or_below() {
        let flat = stamps([10.0, 10.0, f64::INFINITY], 10.0, [4, 4, 1], 0.0);
        for stamp in &flat.stamps {
            assert!(stamp.iter().all(|cell| cell.offset[2] == 0));
        }
        let viewpoint = flat.viewpoint([5.0, 5.0, 1e30]);
        assert_eq!(viewpoint.cell, CellId::default());
    }

    #[test]
    fn a_stamp_is_sorted_and_holds_no_cell_worse_than_it_enters_it() {
        let stamps = stamps([10.0, 10.0, 10.0], 25.0, [2, 3, 2], 4.0);
        assert_eq!(stamps.stamps.len(), 12);
        for stamp in &stamps.stamps {
            let keys: Vec<_> = stamp.iter().map(|c| CellId::default().checked_offset(c.offset).unwrap()).collect();
            assert!(keys.is_sorted());
            assert!(stamp.iter().all(|cell| cell.hold <= cell.enter));
            assert!(stamp.iter().any(|cell| cell.hold < cell.enter), "a margin of 4 m holds more than it enters");
        }
        assert_eq!(stamps.longest(), stamps.stamps.iter().map(|stamp| stamp.len()).max().unwrap());
    }

    #[test]
    fn subcells_are_numbered_within_bounds_everywhere() {
        let stamps = stamps([10.0, 10.0, 10.0], 5.0, [4, 4, 2], 0.0);
        assert_eq!(stamps.viewpoint([2.6, 0.0, 5.0]).subcell, 17);
        for position in [[f64::INFINITY; 3], [f64::NEG_INFINITY; 3], [f64::NAN; 3], [1e18; 3], [-1e18; 3]] {
            let viewpoint = stamps.viewpoint(position);
            assert!(usize::from(viewpoint.subcell) < stamps.stamps.len(), "{position:?} is in {viewpoint:?}");
        }
    }

    #[test]
    fn an_extent_has_one_viewpoint_and_is_rarely_empty() {
        let stamps = stamps([10.0, 0.3, f64::INFINITY], 0.1, [3, 7, 1], 0.0);
        let mut known = 0;
        for step in -1_000..1_000 {
            let position = [f64::from(step) * 0.77, f64::from(step) * 0.013, f64::from(step)];
            let extent = stamps.extent(position);
            if extent.contains(position) {
                known += 1;
                for axis in 0..2 {
                    for border_m in [extent.low[axis], extent.high[axis]] {
                        let mut moved = position;
                        moved[axis] = border_m;
                        assert_eq!(stamps.viewpoint(moved), stamps.viewpoint(position), "{position:?}");
                    }
                }
            }
        }
        assert!(known > 1_900, "{known} of 2000 positions are in their own extent");
        assert!(!stamps.extent([f64::NAN; 3]).contains([f64::NAN; 3]));
        assert!(!Extent::EMPTY.contains([0.0; 3]));
    }

    #[test]
    fn too_many_cells_are_refused_before_they_are_listed() {
        let rings = Rings::new(&[Ring { radius_m: 1e9, interval_ticks: 1 }]).unwrap();
        for cell_m in [[1.0; 3], [1.0, f64::INFINITY, f64::INFINITY], [0.001; 3]] {
            let cells = Stamps::new(Grid::new(cell_m).unwrap(), &rings, [4, 4, 1], (0.0, 0.0)).unwrap_err();
            assert!(cells > MAX_STAMP_CELLS as u64, "{cells}");
        }
    }
}
