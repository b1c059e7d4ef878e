//! Space cut into boxes of one size, named by three integers.

use std::cmp::Ordering;
use std::fmt;
use thiserror::Error;

/// Smallest cell size on an axis, in metres.
const MIN_CELL_M: f64 = 1e-3;
/// Largest finite cell size on an axis, in metres.
const MAX_CELL_M: f64 = 1e6;

/// A cell of a [`Grid`].
///
/// Cells are ordered by `z`, then `y`, then `x`: the order in which a viewer's set is kept and a sink is called.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct CellId {
    /// Column, counted from the cell that starts at 0 m.
    pub x: i32,
    /// Row.
    pub y: i32,
    /// Layer.
    pub z: i32,
}

impl CellId {
    /// The cell `offset` cells away on each axis, or `None` when there is no such cell.
    #[inline]
    pub(crate) fn checked_offset(self, offset: [i16; 3]) -> Option<CellId> {
        Some(CellId {
            x: self.x.checked_add(offset[0].into())?,
            y: self.y.checked_add(offset[1].into())?,
            z: self.z.checked_add(offset[2].into())?,
        })
    }
}

/// A box of cells, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellBounds {
    /// The cell with the lowest numbers.
    pub min: CellId,
    /// The cell with the highest numbers.
    pub max: CellId,
}

impl CellBounds {
    /// Whether the cell is one of the box.
    #[inline]
    pub fn contains(&self, cell: CellId) -> bool {
        (self.min.x..=self.max.x).contains(&cell.x)
            && (self.min.y..=self.max.y).contains(&cell.y)
            && (self.min.z..=self.max.z).contains(&cell.z)
    }

    /// The cell of the box that is nearest to this one. A box without cells has its highest one.
    #[inline]
    pub(crate) fn nearest(&self, cell: CellId) -> CellId {
        CellId {
            x: cell.x.max(self.min.x).min(self.max.x),
            y: cell.y.max(self.min.y).min(self.max.y),
            z: cell.z.max(self.min.z).min(self.max.z),
        }
    }

    /// How many cells the box has, as far as that can be counted.
    pub(crate) fn count(&self) -> usize {
        let side = |min: i32, max: i32| usize::try_from(i64::from(max) - i64::from(min) + 1).unwrap_or(0);
        side(self.min.x, self.max.x)
            .saturating_mul(side(self.min.y, self.max.y))
            .saturating_mul(side(self.min.z, self.max.z))
    }
}

impl Ord for CellId {
    #[inline]
    fn cmp(&self, other: &CellId) -> Ordering {
        (self.z, self.y, self.x).cmp(&(other.z, other.y, other.x))
    }
}

impl PartialOrd for CellId {
    #[inline]
    fn partial_cmp(&self, other: &CellId) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{},{})", self.x, self.y, self.z)
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Why a grid cannot be made. The caller's configuration is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum GridError {
    /// A cell size is neither infinite nor between 1 mm and 1,000 km.
    #[error("cell size {size_m} m on axis {axis} is not in 0.001..=1000000 (or infinite, for a single layer)")]
    CellSize {
        /// 0, 1, 2 for x, y, z.
        axis: usize,
        /// The size asked for, in metres.
        size_m: f64,
    },
}

impl GridError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            GridError::CellSize { .. } => "grid_cell_size",
        }
    }
}

/// A regular grid over all of space.
///
/// There is no world size: cells are numbered by `i32`, which at 10 m reaches 21 million kilometres each way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    cell_m: [f64; 3],
}

impl Grid {
    /// A grid of cells of `cell_m` metres along x, y and z.
    ///
    /// A size may be [`f64::INFINITY`]: the axis then has a single layer, which is the cheapest choice for the height
    /// of a world whose floors need not be separated. (With a finite height a viewer close to the border of two layers
    /// is interested in both, even if one of them is empty for ever.)
    ///
    /// # Errors
    /// [`GridError::CellSize`] when a finite size is not within 0.001 m and 1,000,000 m.
    pub fn new(cell_m: [f64; 3]) -> Result<Grid, GridError> {
        for (axis, &size_m) in cell_m.iter().enumerate() {
            if !(MIN_CELL_M..=MAX_CELL_M).contains(&size_m) && size_m != f64::INFINITY {
                return Err(GridError::CellSize { axis, size_m });
            }
        }
        Ok(Grid { cell_m })
    }

    /// The cell size along x, y and z, in metres; infinite for an axis with a single layer.
    pub fn cell_m(&self) -> [f64; 3] {
        self.cell_m
    }

    /// Whether the axis (0, 1, 2 for x, y, z) is a single layer.
    pub fn is_single_layer(&self, axis: usize) -> bool {
        self.cell_m[axis] == f64::INFINITY
    }

    /// The cell that contains `position` (metres).
    ///
    /// A cell contains its lower border and not its upper one, on the negative side too: -0.1 m lies in cell -1. Beyond
    /// the outermost cells the outermost cell is returned. NaN is taken as 0 m, so that a broken position has one known
    /// place instead of none.
    #[inline]
    pub fn cell_of(&self, position: [f64; 3]) -> CellId {
        CellId { x: self.place(0, position[0]).0, y: self.place(1, position[1]).0, z: self.place(2, position[2]).0 }
    }

    /// The lower corner of `cell`, in metres: what positions relative to the cell are relative to.
    ///
    /// 0 on an axis with a single layer.
    #[inline]
    pub fn origin(&self, cell: CellId) -> [f64; 3] {
        let along = |axis: usize, index: i32| match self.is_single_layer(axis) {
            true => 0.0,
            false => f64::from(index) * self.cell_m[axis],
        };
        [along(0, cell.x), along(1, cell.y), along(2, cell.z)]
    }

    /// The cell index along an axis, and how far into that cell the coordinate lies: 0 to below 1, or outside of that
    /// beyond the outermost cells.
    #[inline]
    pub(crate) fn place(&self, axis: usize, coordinate_m: f64) -> (i32, f64) {
        let cells = coordinate_m / self.cell_m[axis];
        // Casting saturates, makes NaN 0 and rounds towards zero. `f64::floor` would be a library call on plain x86-64.
        let towards_zero = cells as i32;
        let index = towards_zero.saturating_sub(i32::from(f64::from(towards_zero) > cells));
        (index, cells - f64::from(index))
    }

    /// Lower and upper border of the cells with this index along an axis, in metres. Outermost cells and single layers
    /// have no end.
    pub(crate) fn borders_m(&self, axis: usize, index: i32) -> (f64, f64) {
        if self.is_single_layer(axis) {
            return (f64::NEG_INFINITY, f64::INFINITY);
        }
        let border_m = |i: f64| i * self.cell_m[axis];
        let low = if index == i32::MIN { f64::NEG_INFINITY } else { border_m(index.into()) };
        let high = if index == i32::MAX { f64::INFINITY } else { border_m(f64::from(index) + 1.0) };
        (low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        Grid::new([10.0, 5.0, f64::INFINITY]).unwrap()
    }

    #[test]
    fn a_cell_has_its_lower_border_and_not_its_upper_one() {
        let g = grid();
        assert_eq!(g.cell_of([0.0, 0.0, 0.0]), CellId { x: 0, y: 0, z: 0 });
        assert_eq!(g.cell_of([9.999, 4.999, 1e9]), CellId { x: 0, y: 0, z: 0 });
        assert_eq!(g.cell_of([10.0, 5.0, -1e9]), CellId { x: 1, y: 1, z: 0 });
        assert_eq!(g.cell_of([-0.001, -5.0, 0.0]), CellId { x: -1, y: -1, z: 0 });
        assert_eq!(g.cell_of([-10.0, -5.001, 0.0]), CellId { x: -1, y: -2, z: 0 });
        assert_eq!(g.origin(CellId { x: -1, y: -2, z: 7 }), [-10.0, -10.0, 0.0]);
    }

    #[test]
    fn places_beyond_the_last_cell_saturate_and_nan_is_zero() {
        let g = grid();
        let far = g.cell_of([f64::INFINITY, f64::NEG_INFINITY, f64::NAN]);
        assert_eq!(far, CellId { x: i32::MAX, y: i32::MIN, z: 0 });
        assert_eq!(g.cell_of([1e300, -1e300, f64::INFINITY]), CellId { x: i32::MAX, y: i32::MIN, z: 0 });
        assert_eq!(g.cell_of([f64::NAN; 3]), CellId::default());
    }

    #[test]
    fn sizes_that_make_no_grid_are_refused() {
        for (axis, size_m) in [(0, 0.0), (1, -1.0), (2, f64::NAN), (0, 1e7), (1, f64::NEG_INFINITY)] {
            let mut cell_m = [10.0; 3];
            cell_m[axis] = size_m;
            let error = Grid::new(cell_m).unwrap_err();
            assert_eq!(error.tag(), "grid_cell_size");
            let GridError::CellSize { axis: reported, .. } = error;
            assert_eq!(reported, axis);
        }
    }

    #[test]
    fn cells_sort_by_layer_row_column() {
        let mut cells = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [-1, 0, 0]].map(|[x, y, z]| CellId { x, y, z });
        cells.sort();
        assert_eq!(format!("{cells:?}"), "[(-1,0,0), (0,0,0), (1,0,0), (0,1,0), (0,0,1)]");
    }

    #[test]
    fn there_is_no_cell_beyond_the_last_one() {
        let last = CellId { x: i32::MAX, y: 0, z: i32::MIN };
        assert_eq!(last.checked_offset([1, 0, 0]), None);
        assert_eq!(last.checked_offset([0, 0, -1]), None);
        assert_eq!(last.checked_offset([-1, -1, 1]), Some(CellId { x: i32::MAX - 1, y: -1, z: i32::MIN + 1 }));
    }
}
