use std::collections::BTreeSet;

/// Half a step of a position in hundredths of a metre, with some slack for single precision.
const ROUNDING_M: f64 = 0.006;
/// An object stays in its cell until it is outside by a margin: at most this share of the cell, and a step.
const STRAY_SHARE: f64 = 0.125;
const STEP_M: f64 = 0.01;

/// The cells in which an object may live, as far as its positions tell: nearly always one.
///
/// An object lives in the cell in which it stands. It stays there while it stands close to the border on the other side.
///
/// ```
/// # use throng_testkit::Homes;
/// let mut homes = Homes::new([8.0; 3], 2, [7.0, 1.0, 90.0]);
/// homes.note([8.5, 1.0, 90.0]);
/// assert_eq!(homes.cells().collect::<Vec<_>>(), [[0, 0, 0], [1, 0, 0]]);
/// homes.note([9.5, 1.0, 90.0]);
/// assert_eq!(homes.cells().collect::<Vec<_>>(), [[1, 0, 0]]);
/// ```
#[derive(Clone, Debug)]
pub struct Homes {
    cell_m: [f64; 3],
    axes: usize,
    cells: BTreeSet<[i32; 3]>,
}

impl Homes {
    /// An object that begins at a position, in a grid whose first `axes` axes are cut into cells.
    pub fn new(cell_m: [f64; 3], axes: usize, position_m: [f32; 3]) -> Homes {
        let mut homes = Homes { cell_m, axes, cells: BTreeSet::new() };
        homes.settle(position_m);
        homes
    }

    /// The cells.
    pub fn cells(&self) -> impl Iterator<Item = [i32; 3]> + '_ {
        self.cells.iter().copied()
    }

    /// The object is placed again at this position: it may move to the cell of the position, or stay.
    pub fn settle(&mut self, position_m: [f32; 3]) {
        let mut cells = vec![[0; 3]];
        for (axis, (&at_m, &cell_m)) in position_m.iter().zip(&self.cell_m).enumerate().take(self.axes) {
            let cell_at = |offset_m: f64| ((f64::from(at_m) + offset_m) / cell_m).floor() as i32;
            let (low, high) = (cell_at(-ROUNDING_M), cell_at(ROUNDING_M));
            cells = cells.iter().flat_map(|&cell| (low..=high).map(move |at| with(cell, axis, at))).collect();
        }
        self.cells.extend(cells);
    }

    /// It is at this position now.
    pub fn note(&mut self, position_m: [f32; 3]) {
        let stray_m: f64 = (0..self.axes).map(|axis| self.cell_m[axis] * STRAY_SHARE).fold(0.0, f64::max);
        let may_leave = self.cells.iter().any(|&cell| self.outside_m(cell, position_m) > -ROUNDING_M);
        let has_left = |cell: [i32; 3]| self.outside_m(cell, position_m) > stray_m + STEP_M + ROUNDING_M;
        let cells = self.cells.iter().copied().filter(|&cell| !has_left(cell)).collect();
        self.cells = cells;
        if may_leave {
            self.settle(position_m);
        }
    }

    /// How far outside a cell a position is along the axis on which it is farthest; negative within it.
    fn outside_m(&self, cell: [i32; 3], position_m: [f32; 3]) -> f64 {
        let outside_m = |axis: usize| {
            let (at, low) = (f64::from(position_m[axis]), f64::from(cell[axis]) * self.cell_m[axis]);
            (low - at).max(at - low - self.cell_m[axis])
        };
        (0..self.axes).map(outside_m).fold(f64::NEG_INFINITY, f64::max)
    }
}

fn with(mut cell: [i32; 3], axis: usize, at: i32) -> [i32; 3] {
    cell[axis] = at;
    cell
}
