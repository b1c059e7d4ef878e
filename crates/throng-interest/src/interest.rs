//! From positions to enter, change and leave.

use crate::grid::{CellBounds, CellId, Grid};
use crate::rings::Rings;
use crate::shape::{Shape, ShapeError};
use crate::stamp::{Extent, MAX_STAMP_CELLS, MAX_SUBCELLS, Stamps, Viewpoint};
use crate::viewer::{Scratch, Sink, Viewer, Wanted};
use smallvec::SmallVec;
use thiserror::Error;

/// Most positions of one viewer.
pub const MAX_VIEWPOINTS: usize = 8;
/// Most shapes of one viewer.
pub const MAX_SHAPES: usize = 8;
/// Most cells that one viewer can name one by one.
pub const MAX_EXPLICIT_CELLS: usize = 4_096;

/// How [`RingInterest`] trades exactness for calm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RingOptions {
    /// Sub-cells of a cell along x, y and z: at least 1 each, at most [`MAX_SUBCELLS`] together.
    ///
    /// More of them follow a ring's radius more closely, and are crossed more often. Ignored (1) on an axis with a
    /// single layer.
    pub subcells: [u8; 3],
    /// How far beyond a ring's radius a cell that is already held stays in that ring, in metres. 0 for no hysteresis.
    ///
    /// `None` stands for the diagonal of a sub-cell in the x-y plane: the least with which a viewer that jitters
    /// anywhere within a layer settles. The height of a sub-cell is left out, because layers are usually tall.
    pub margin_m: Option<f64>,
    /// How far outside of its sub-cell a viewer may be before its cells are worked out for another one, in metres. The
    /// rings reach farther by as much.
    ///
    /// With this, no margin and one sub-cell, a viewer's cells follow from the cell that it stands in alone, and it does
    /// not flap at that cell's border: so viewers in the same cell want the same.
    pub stay_m: f64,
    /// Cells beyond these do not exist. `None` for a world without end. A shape that reaches beyond them touches the cells at
    /// the border.
    pub bounds: Option<CellBounds>,
}

impl Default for RingOptions {
    /// 4 x 4 x 2 sub-cells, the automatic margin, no stay and no bounds.
    fn default() -> RingOptions {
        RingOptions { subcells: [4, 4, 2], margin_m: None, stay_m: 0.0, bounds: None }
    }
}

/// Why interest cannot be set up, or a viewer's wish cannot be met. The caller is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum InterestError {
    /// An axis has no sub-cells, or there are more than [`MAX_SUBCELLS`] of them.
    #[error("{subcells:?} sub-cells: at least 1 on each axis, at most {MAX_SUBCELLS} together")]
    Subcells {
        /// Sub-cells along x, y and z.
        subcells: [u8; 3],
    },
    /// The margin is negative or not finite.
    #[error("a margin of {margin_m} m is not a finite number of at least 0")]
    Margin {
        /// The margin given, in metres.
        margin_m: f64,
    },
    /// The stay is negative or not finite.
    #[error("a stay of {stay_m} m is not a finite number of at least 0")]
    Stay {
        /// The stay given, in metres.
        stay_m: f64,
    },
    /// The farthest ring reaches over more than [`MAX_STAMP_CELLS`] cells.
    #[error("the farthest ring reaches over a box of {cells} cells, more than {MAX_STAMP_CELLS}: use larger cells")]
    TooManyCells {
        /// Cells of the enclosing box, or more.
        cells: u64,
    },
    /// More than [`MAX_VIEWPOINTS`] positions.
    #[error("{viewpoints} viewpoints are more than {MAX_VIEWPOINTS}: merge those that are near each other")]
    TooManyViewpoints {
        /// Positions given.
        viewpoints: usize,
    },
    /// More than [`MAX_SHAPES`] shapes.
    #[error("{shapes} shapes are more than {MAX_SHAPES}: use fewer and larger ones")]
    TooManyShapes {
        /// Shapes given.
        shapes: usize,
    },
    /// More than [`MAX_EXPLICIT_CELLS`] cells named one by one.
    #[error("{cells} named cells are more than {MAX_EXPLICIT_CELLS}: use a shape")]
    TooManyExplicitCells {
        /// Cells given.
        cells: usize,
    },
    /// A cell was named with a ring that does not exist.
    #[error("cell {cell} is wanted at ring {ring}, which does not exist: add the ring, or name another")]
    NoSuchRing {
        /// The cell.
        cell: CellId,
        /// The ring given.
        ring: u8,
    },
    /// A shape is not valid or too large.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

impl InterestError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            InterestError::Subcells { .. } => "interest_subcells",
            InterestError::Margin { .. } => "interest_margin",
            InterestError::Stay { .. } => "interest_stay",
            InterestError::TooManyCells { .. } => "interest_too_many_cells",
            InterestError::TooManyViewpoints { .. } => "interest_too_many_viewpoints",
            InterestError::TooManyShapes { .. } => "interest_too_many_shapes",
            InterestError::TooManyExplicitCells { .. } => "interest_too_many_explicit_cells",
            InterestError::NoSuchRing { .. } => "interest_no_such_ring",
            InterestError::Shape(error) => error.tag(),
        }
    }
}

/// Everything that one viewer wants. A cell wanted for several reasons is held once, at the nearest ring.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sources<'a> {
    /// Positions with rings around them, in metres. At most [`MAX_VIEWPOINTS`].
    pub positions: &'a [[f64; 3]],
    /// Shapes, without hysteresis. At most [`MAX_SHAPES`].
    pub shapes: &'a [Shape],
    /// Cells named one by one, with their ring, without hysteresis. At most [`MAX_EXPLICIT_CELLS`].
    pub cells: &'a [(CellId, u8)],
}

/// Rings around positions: see the [crate's front page](crate).
///
/// Read-only after it is made, so that threads can share it; each brings its own [`Scratch`]. A viewer must stay with
/// the `RingInterest` that it was first used with, or be [cleared](Viewer::clear) in between.
#[derive(Clone, Debug)]
pub struct RingInterest {
    grid: Grid,
    rings: Rings,
    margin_m: f64,
    stamps: Stamps,
    longest_stamp: usize,
    bounds: Option<CellBounds>,
}

impl RingInterest {
    /// Works out the stamps: one for each sub-cell, 8 bytes for each cell in reach.
    ///
    /// # Errors
    /// [`InterestError::Subcells`], [`InterestError::Margin`] or [`InterestError::TooManyCells`].
    pub fn new(grid: Grid, rings: Rings, options: RingOptions) -> Result<RingInterest, InterestError> {
        let subcells = checked_subcells(&grid, options.subcells)?;
        let margin_m = options.margin_m.unwrap_or_else(|| plane_diagonal_m(&grid, subcells));
        if !margin_m.is_finite() || margin_m < 0.0 {
            return Err(InterestError::Margin { margin_m });
        }
        let stay_m = options.stay_m;
        if !stay_m.is_finite() || stay_m < 0.0 {
            return Err(InterestError::Stay { stay_m });
        }
        let stamps = Stamps::new(grid, &rings, subcells, (margin_m, stay_m))
            .map_err(|cells| InterestError::TooManyCells { cells })?;
        let bounds = options.bounds;
        let longest_stamp = stamps.longest().min(bounds.map_or(usize::MAX, |bounds| bounds.count()));
        Ok(RingInterest { grid, rings, margin_m, stamps, longest_stamp, bounds })
    }

    /// The grid.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The rings.
    pub fn rings(&self) -> &Rings {
        &self.rings
    }

    /// The margin in use, in metres.
    pub fn margin_m(&self) -> f64 {
        self.margin_m
    }

    /// The most cells that a viewer with one position can hold.
    pub fn max_cells(&self) -> usize {
        self.longest_stamp
    }

    /// Brings `viewer` to `position` (metres), telling `sink` what changed. Returns whether anything had to be looked
    /// at: false when the viewer is still in the same sub-cell.
    ///
    /// Never fails: see [`Grid::cell_of`] for positions that are not finite. Allocates in a viewer's first update, and
    /// while `scratch` is still growing.
    #[inline]
    pub fn update(&self, viewer: &mut Viewer, position: [f64; 3], scratch: &mut Scratch, sink: &mut impl Sink) -> bool {
        !viewer.is_calm_at(position) && self.move_to(viewer, position, scratch, sink)
    }

    /// Like [`update`](RingInterest::update), for a viewer that looks from several positions (a player and its camera,
    /// split screen): the union, each cell at the ring of the nearest position. With no positions it holds nothing.
    ///
    /// # Errors
    /// [`InterestError::TooManyViewpoints`]; the viewer is then unchanged.
    pub fn update_many(
        &self,
        viewer: &mut Viewer,
        positions: &[[f64; 3]],
        scratch: &mut Scratch,
        sink: &mut impl Sink,
    ) -> Result<bool, InterestError> {
        self.update_from(viewer, &Sources { positions, ..Sources::default() }, scratch, sink)
    }

    /// Like [`update_many`](RingInterest::update_many), with shapes and named cells besides the positions.
    ///
    /// Shapes and named cells are worked out again at each call: call it when they changed, or every few ticks.
    ///
    /// # Errors
    /// Too many positions, shapes or cells, a shape that is not valid, or a ring that does not exist; the viewer is
    /// then unchanged.
    pub fn update_from(
        &self,
        viewer: &mut Viewer,
        sources: &Sources<'_>,
        scratch: &mut Scratch,
        sink: &mut impl Sink,
    ) -> Result<bool, InterestError> {
        check_counts(sources)?;
        let viewpoints: SmallVec<[Viewpoint; MAX_VIEWPOINTS]> =
            sources.positions.iter().map(|&position| self.stamps.viewpoint(position)).collect();
        let only_positions = sources.shapes.is_empty() && sources.cells.is_empty();
        if only_positions && viewer.stands_at(&viewpoints) {
            return Ok(false);
        }
        self.collect(sources, &viewpoints, scratch)?;
        viewer.merge(scratch.union.wanted().iter().copied(), &mut scratch.merge, sink);
        viewer.settle(&viewpoints, Extent::EMPTY, only_positions);
        Ok(true)
    }

    /// An update that may leave the sub-cell.
    fn move_to(&self, viewer: &mut Viewer, position: [f64; 3], scratch: &mut Scratch, sink: &mut impl Sink) -> bool {
        let viewpoint = self.stamps.viewpoint(position);
        if viewer.stands_at(&[viewpoint]) {
            return false;
        }
        viewer.reserve(self.longest_stamp);
        viewer.merge(self.wanted_at(viewpoint), &mut scratch.merge, sink);
        viewer.settle(&[viewpoint], self.stamps.extent(position), true);
        true
    }

    /// Gathers all wishes in `scratch.union`.
    fn collect(
        &self,
        sources: &Sources<'_>,
        viewpoints: &[Viewpoint],
        scratch: &mut Scratch,
    ) -> Result<(), InterestError> {
        let union = &mut scratch.union;
        union.clear();
        for &(cell, ring) in sources.cells {
            if usize::from(ring) >= self.rings.len() {
                return Err(InterestError::NoSuchRing { cell, ring });
            }
            if self.bounds.is_none_or(|bounds| bounds.contains(cell)) {
                union.unsorted.push(Wanted { cell, enter: ring, hold: ring });
            }
        }
        for shape in sources.shapes {
            self.grid.cells_in(shape, &self.rings, |cell, ring| {
                // Objects beyond the bounds are held at the border.
                let cell = self.bounds.map_or(cell, |bounds| bounds.nearest(cell));
                union.unsorted.push(Wanted { cell, enter: ring, hold: ring });
            })?;
        }
        union.add_unsorted();
        for &viewpoint in viewpoints {
            union.add_sorted(self.wanted_at(viewpoint));
        }
        Ok(())
    }

    /// The wishes of one viewpoint, without the cells that do not exist.
    #[inline]
    fn wanted_at(&self, viewpoint: Viewpoint) -> impl Iterator<Item = Wanted> + '_ {
        self.stamps.around(viewpoint).iter().filter_map(move |near| {
            let cell = viewpoint.cell.checked_offset(near.offset)?;
            if self.bounds.is_some_and(|bounds| !bounds.contains(cell)) {
                return None;
            }
            Some(Wanted { cell, enter: near.enter, hold: near.hold })
        })
    }
}

fn checked_subcells(grid: &Grid, subcells: [u8; 3]) -> Result<[u8; 3], InterestError> {
    let product: usize = subcells.iter().map(|&n| usize::from(n)).product();
    if !(1..=MAX_SUBCELLS).contains(&product) {
        return Err(InterestError::Subcells { subcells });
    }
    Ok([0, 1, 2].map(|axis| if grid.is_single_layer(axis) { 1 } else { subcells[axis] }))
}

/// The diagonal of a sub-cell along the ground, in metres. An axis with a single layer is never crossed and adds 0.
fn plane_diagonal_m(grid: &Grid, subcells: [u8; 3]) -> f64 {
    let side_m = |axis: usize| match grid.is_single_layer(axis) {
        true => 0.0,
        false => grid.cell_m()[axis] / f64::from(subcells[axis]),
    };
    // Where y is up and a single layer, the plane is x and z.
    let across = if grid.is_single_layer(1) { 2 } else { 1 };
    side_m(0).hypot(side_m(across))
}

fn check_counts(sources: &Sources<'_>) -> Result<(), InterestError> {
    if sources.positions.len() > MAX_VIEWPOINTS {
        return Err(InterestError::TooManyViewpoints { viewpoints: sources.positions.len() });
    }
    if sources.shapes.len() > MAX_SHAPES {
        return Err(InterestError::TooManyShapes { shapes: sources.shapes.len() });
    }
    if sources.cells.len() > MAX_EXPLICIT_CELLS {
        return Err(InterestError::TooManyExplicitCells { cells: sources.cells.len() });
    }
    Ok(())
}
