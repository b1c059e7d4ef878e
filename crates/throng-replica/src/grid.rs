//! Cells: which one a quantised position lies in, and how positions are written relative to it.

use thiserror::Error;
use throng_schema::{Facet, Kind, Quantiser, Schema, Space};

use crate::store::position_field;

/// How a grid divides the world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GridShape {
    /// Size of a cell along x, y and z in metres.
    pub cell_m: [f64; 3],
    /// The layers of cells.
    pub layers: Layers,
    /// Which axis points up: along it, cells of a single layer are not cut.
    pub up: Up,
}

/// The axis that points up. Bevy, Unity and Godot have y, Unreal Engine, Blender and maps have z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Up {
    /// The second number of a position is its height.
    Y,
    /// The third number of a position is its height.
    Z,
}

impl Up {
    /// The index of the height in a position: 1 or 2.
    pub fn axis(self) -> usize {
        match self {
            Up::Y => 1,
            Up::Z => 2,
        }
    }
}

/// Whether cells are stacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// As many as the world is high: for worlds with floors that do not see each other.
    Stacked,
    /// One, whatever the height. Heights from 0 to the cell's take few bits, others 32 more.
    Single,
}

impl GridShape {
    /// Whether cells end along this axis.
    pub fn is_cut(&self, axis: usize) -> bool {
        self.layers == Layers::Stacked || axis != self.up.axis()
    }

    /// Cells with one layer, `cell_m` along x, y and z. The size along the axis that points `up` is the range of heights,
    /// from 0 on, that takes few bits.
    pub fn flat(up: Up, cell_m: [f64; 3]) -> GridShape {
        GridShape { cell_m, layers: Layers::Single, up }
    }

    /// Cells with cells above and below, `cell_m` along x, y and z. They are cut along all axes alike.
    pub fn stacked(cell_m: [f64; 3]) -> GridShape {
        GridShape { cell_m, layers: Layers::Stacked, up: Up::Z }
    }
}

/// A grid of cells, as big as the world may get: cells exist only where something lives or looks.
#[derive(Clone, Debug)]
pub struct CellGrid {
    shape: GridShape,
    bounds: Option<[[i32; 3]; 2]>,
    /// Per kind; `None` for kinds without a position.
    measures: Vec<Option<Measure>>,
    /// The same for the positions of kinds seen from afar.
    far_measures: Vec<Option<Measure>>,
}

/// A cell in the quantised units of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Measure {
    size: [i32; 3],
    bits: [u8; 3],
    /// How far beyond the cell a position can still be written: an object may stray that far before it moves house,
    /// so that standing on a border does not make it move every tick.
    margin: [i32; 3],
}

/// Why a grid cannot be used with a schema. Our side's mistake.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum GridError {
    /// A cell size is not a positive finite number.
    #[error("a cell of {0} m is not possible: give three sizes above 0")]
    Size(f64),
    /// A cell is not a whole number of the position's steps, or too many.
    #[error("kind {kind}: a cell of {cell_m} m is not a whole number (2 to 2^24) of its position's steps of {step} m")]
    Step {
        /// The kind.
        kind: &'static str,
        /// The cell's size on the axis in question.
        cell_m: f64,
        /// The position's step.
        step: f64,
    },
    /// The grid for far facets has not been added.
    #[error("there is no grid {0}: add it before it is made the one for far facets; the first is number 0")]
    Unknown(u8),
    /// The cells for far facets cannot have so many channels.
    #[error("cells for far facets cannot have {0} parts: give at least 1, and only 1 if cells are stacked")]
    Parts(u16),
}

impl CellGrid {
    /// A grid of this shape for the kinds of `schema`.
    pub fn new(shape: GridShape, schema: &Schema) -> Result<CellGrid, GridError> {
        let cell_m = shape.cell_m;
        if let Some(&size) = cell_m.iter().find(|size| !(size.is_finite() && **size > 0.0)) {
            return Err(GridError::Size(size));
        }
        let measures = |facet| schema.kinds().iter().map(move |kind| Measure::new(cell_m, kind, facet));
        let far_measures = measures(Facet::Far).map(|measure| measure.ok().flatten()).collect();
        Ok(CellGrid { shape, bounds: None, measures: measures(Facet::Public).collect::<Result<_, _>>()?, far_measures })
    }

    /// Checks that far facets can live in the cells: see [`Replicator::set_far_grid`](crate::Replicator::set_far_grid).
    ///
    /// # Errors
    /// The kind whose position for clients far away has steps of which a cell is not a whole number.
    pub(crate) fn check_far(&self, schema: &Schema) -> Result<(), GridError> {
        schema.kinds().iter().try_for_each(|kind| Measure::new(self.shape.cell_m, kind, Facet::Far).map(|_| ()))
    }

    fn measure(&self, kind: usize, facet: Facet) -> Option<&Measure> {
        let measures = if facet == Facet::Far { &self.far_measures } else { &self.measures };
        measures.get(kind)?.as_ref()
    }

    /// The same grid, for a world that ends: what lies beyond the cells `min` to `max`, both included, lives in the
    /// nearest of them, and takes more bits.
    pub fn bounded(self, min: [i32; 3], max: [i32; 3]) -> CellGrid {
        CellGrid { bounds: Some([min, max]), ..self }
    }

    /// How the grid divides the world.
    pub fn shape(&self) -> GridShape {
        self.shape
    }

    /// How far beyond its cell an object may be and still live in it, along each axis, in metres: then standing on a
    /// border does not make it move every tick. A viewer that looks for near objects has to look so much farther.
    pub fn stray_m(&self) -> [f64; 3] {
        self.stray_of(&self.measures)
    }

    /// [`CellGrid::stray_m`] of objects whose far facets live in the grid's cells. Half a step farther, because the steps are
    /// large.
    pub fn far_stray_m(&self) -> [f64; 3] {
        let half_step = |axis: usize| {
            let sizes = self.far_measures.iter().flatten().map(|measure| f64::from(measure.size[axis]));
            sizes.map(|size| self.shape.cell_m[axis] / size / 2.0).fold(0.0, f64::max)
        };
        let stray_m = self.stray_of(&self.far_measures);
        std::array::from_fn(|axis| stray_m[axis] + half_step(axis))
    }

    fn stray_of(&self, measures: &[Option<Measure>]) -> [f64; 3] {
        let of = |measure: &Measure, axis: usize| {
            self.shape.cell_m[axis] * f64::from(measure.margin[axis]) / f64::from(measure.size[axis])
        };
        std::array::from_fn(|axis| measures.iter().flatten().map(|measure| of(measure, axis)).fold(0.0, f64::max))
    }

    /// The cell of a quantised position; `present` is kept as long as the position can be written relative to it.
    pub(crate) fn cell_of(
        &self,
        (kind, facet): (usize, Facet),
        position: [i32; 3],
        present: Option<[i32; 3]>,
    ) -> [i32; 3] {
        let Some(measure) = self.measure(kind, facet) else { return [0; 3] };
        if let Some(cell) = present
            && measure.holds(cell, position, &self.shape)
        {
            return cell;
        }
        std::array::from_fn(|axis| {
            let cell = if self.shape.is_cut(axis) { position[axis].div_euclid(measure.size[axis]) } else { 0 };
            self.bounds.map_or(cell, |[min, max]| cell.clamp(min[axis], max[axis].max(min[axis])))
        })
    }

    /// How positions of a kind's facet are written in a cell.
    pub(crate) fn space(&self, kind: usize, facet: Facet, cell: [i32; 3]) -> Space {
        let Some(measure) = self.measure(kind, facet) else { return Space::WORLD };
        // Along the other axis, the number is that of a part of the cell: see `Replicator::set_far_grid`.
        let cell: [i32; 3] = std::array::from_fn(|axis| if self.shape.is_cut(axis) { cell[axis] } else { 0 });
        Space { origin: std::array::from_fn(|axis| measure.origin(cell, axis)), bits: measure.bits }
    }
}

impl Measure {
    fn new(cell_m: [f64; 3], kind: &Kind, facet: Facet) -> Result<Option<Measure>, GridError> {
        let Some(position) = position_field(kind, facet) else { return Ok(None) };
        let Quantiser::Position { step } = kind.fields[position].quantiser else { return Ok(None) };
        let mut measure = Measure { size: [0; 3], bits: [0; 3], margin: [0; 3] };
        for (axis, cell_m) in cell_m.into_iter().enumerate() {
            let steps = cell_m / step;
            let whole = steps.round();
            if !(2.0..=f64::from(1 << 24)).contains(&whole) || (steps - whole).abs() > 1e-6 * whole {
                return Err(GridError::Step { kind: kind.name, cell_m, step });
            }
            let size = whole as i32;
            // Room for a margin of at least a hundredth of the cell on either side.
            let bits = 32 - ((size + 2 * (size / 100).max(1)) - 1).leading_zeros();
            measure.size[axis] = size;
            measure.bits[axis] = bits as u8;
            measure.margin[axis] = (((1 << bits) - size) / 2).min(size / 8 + 1);
        }
        Ok(Some(measure))
    }

    fn origin(&self, cell: [i32; 3], axis: usize) -> i32 {
        let origin = i64::from(cell[axis]) * i64::from(self.size[axis]) - i64::from(self.margin[axis]);
        origin.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
    }

    fn holds(&self, cell: [i32; 3], position: [i32; 3], shape: &GridShape) -> bool {
        (0..3).filter(|&axis| shape.is_cut(axis)).all(|axis| {
            let offset = i64::from(position[axis]) - i64::from(self.origin(cell, axis));
            (0..i64::from(self.size[axis]) + 2 * i64::from(self.margin[axis])).contains(&offset)
        })
    }
}
