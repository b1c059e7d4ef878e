//! The walkable grid of a map.
//!
//! ```text
//!   column (x, z)          a column holds its cells, lowest first: ground, first floor, roof ...
//!   +-----+-----+
//!   | o   |  o  |          o: the point of a cell where a body can stand. It is the middle if there is room
//!   +-----+--o--+             else the free one of 25 places that is nearest to it
//!   |  o -> o   |          ->: a link to one of eight neighbours: the body was moved along it, step by step
//!   +-----+-----+
//! ```
//!
//! A cell is *open* if the body can stand anywhere in its square. Straight ways lead through open cells only.

mod clearance;
mod islands;
mod survey;

use std::sync::Arc;

use glam::{Vec2, Vec3, vec2};
use throng_sight::{COORDINATE_MAX_M, Layers, Map};

use islands::Part;

/// The most columns of a grid: with the usual cells an area of one square kilometre.
pub const COLUMNS_MAX: usize = 1 << 22;
/// The most cells of a grid. A cell takes 24 bytes.
pub const CELLS_MAX: usize = 1 << 21;
/// The most cells above each other.
pub const FLOORS_MAX: usize = 32;
/// The most triangles near the cells of a row, counted once for each cell: memory holds two rows, and each takes 64 bytes.
pub(crate) const FACES_MAX: usize = 1 << 20;
/// The most triangles that a survey looks at, counted each time it looks at one: some ten seconds of work.
pub const WORK_MAX: u64 = 1 << 32;

/// Places in a cell where its point can be, along one side.
const SPOTS: usize = 5;
const NO_LINK: u8 = 0xff;
const DROP: u8 = 0x40;
/// The eight neighbours. The opposite of a direction is four further.
const DIRECTIONS: [[i32; 2]; 8] = [[1, 0], [1, 1], [0, 1], [-1, 1], [-1, 0], [-1, -1], [0, -1], [1, -1]];

/// An upright body that walks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BodyShape {
    /// Its height in metres, above its step and at most 10.
    pub height_m: f32,
    /// Its radius in metres, from 0.05 to 2.
    pub radius_m: f32,
    /// The highest step that it takes while it walks, in metres, from 0 to below its height.
    pub step_m: f32,
    /// How far it may fall, in metres, from 0 to 20. Such a link leads one way.
    pub drop_m: f32,
}

impl Default for BodyShape {
    fn default() -> BodyShape {
        BodyShape { height_m: 1.8, radius_m: 0.35, step_m: 0.4, drop_m: 2.0 }
    }
}

/// How a grid is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NavigationOptions {
    /// The body that walks.
    pub body: BodyShape,
    /// The side of a cell in metres, from 0.25 to 4.
    pub cell_m: f32,
    /// The layers of the map that carry and stop bodies.
    pub layers: Layers,
}

impl NavigationOptions {
    /// The usual body, and cells of 0.5 m.
    pub fn new(layers: Layers) -> NavigationOptions {
        NavigationOptions { body: BodyShape::default(), cell_m: 0.5, layers }
    }

    fn is_sensible(&self) -> bool {
        let BodyShape { height_m, radius_m, step_m, drop_m } = self.body;
        (0.25..=4.0).contains(&self.cell_m)
            && (0.05..=2.0).contains(&radius_m)
            && (0.0..=20.0).contains(&drop_m)
            && step_m >= 0.0
            && step_m < height_m
            && height_m <= 10.0
    }
}

/// Why there is no grid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NavigationError {
    /// An option is outside of its range, or no number. The caller is at fault.
    #[error("the body or the cell size of a walkable grid is out of range: {options:?}")]
    Options {
        /// The options.
        options: NavigationOptions,
    },
    /// The map is too wide for the cell size.
    #[error("the map is {width_m:.0} m x {depth_m:.0} m: use larger cells than {cell_m} m, or a smaller map")]
    TooWide {
        /// The size along x.
        width_m: f32,
        /// The size along z.
        depth_m: f32,
        /// The side of a cell.
        cell_m: f32,
    },
    /// More than [`CELLS_MAX`] cells would be walkable.
    #[error("more than {CELLS_MAX} cells of the map are walkable: use larger cells, or a smaller map")]
    TooManyCells,
    /// Too many triangles above each other.
    #[error("the map has too many triangles above each other for a walkable grid: use larger cells, or a simpler map")]
    TooDense,
    /// A body can stand nowhere.
    #[error("a body can stand nowhere on the map: are the layers those that carry bodies?")]
    NothingWalkable,
}

impl NavigationError {
    /// A stable name for metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            NavigationError::Options { .. } => "navigation_options",
            NavigationError::TooWide { .. } => "navigation_too_wide",
            NavigationError::TooManyCells => "navigation_too_many_cells",
            NavigationError::TooDense => "navigation_too_dense",
            NavigationError::NothingWalkable => "navigation_nothing_walkable",
        }
    }
}

/// The number of a cell within one grid, from 0 to the number of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellId(pub u32);

/// A way from a cell to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The neighbour.
    pub to: CellId,
    /// The length in millimetres, rounded up, and half as much again if the neighbour is not open: ways keep off walls
    /// where they can. A fall counts as the way through the air.
    pub cost_mm: u32,
    /// Whether the body falls by more than a step on the way, so that there may be no way back.
    pub is_drop: bool,
}

/// Whether a cell can be reached from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// There is a way.
    Yes,
    /// There is none.
    No,
    /// Only a search can tell. Between two cells that both are off the largest area alone.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    height_m: f32,
    column: u32,
    part: u32,
    links: [u8; 8],
    spot: u8,
    room: u8,
    is_open: bool,
}

/// Where a body can walk on a map. A clone shares the memory; nothing in it changes.
#[derive(Clone)]
pub struct Navigation(Arc<Grid>);

struct Grid {
    options: NavigationOptions,
    origin: Vec2,
    columns: usize,
    rows: usize,
    /// The first cell of each column, and the number of cells at the end.
    first: Vec<u32>,
    cells: Vec<Cell>,
    parts: Vec<Part>,
    /// The number of the largest area.
    main: u32,
}

impl Navigation {
    /// Surveys a map: a few seconds for 200,000 triangles. Needs 4 bytes for each column and 24 for each cell, and
    /// while it works the triangles of two rows of columns.
    ///
    /// # Errors
    /// If options are out of range, or if the map exceeds a limit: no map makes this run or grow without end.
    pub fn survey(map: &Map, options: &NavigationOptions) -> Result<Navigation, NavigationError> {
        if !options.is_sensible() {
            return Err(NavigationError::Options { options: *options });
        }
        let [lowest, highest] = map.bounds();
        let size = highest - lowest;
        let [columns, rows] = [size.x, size.z].map(|length| ((length / options.cell_m).ceil() as usize).max(1));
        if columns.saturating_mul(rows) > COLUMNS_MAX {
            return Err(NavigationError::TooWide { width_m: size.x, depth_m: size.z, cell_m: options.cell_m });
        }
        let origin = vec2(lowest.x, lowest.z);
        let (first, cells, parts) = (Vec::new(), Vec::new(), Vec::new());
        let mut grid = Grid { options: *options, origin, columns, rows, first, cells, parts, main: 0 };
        survey::survey(&mut grid, map)?;
        if grid.cells.is_empty() {
            return Err(NavigationError::NothingWalkable);
        }
        grid.cells.shrink_to_fit();
        islands::find(&mut grid);
        Ok(Navigation(Arc::new(grid)))
    }

    /// The number of cells.
    pub fn cell_count(&self) -> usize {
        self.0.cells.len()
    }

    /// All cells.
    pub fn cells(&self) -> impl Iterator<Item = CellId> + '_ {
        (0..self.0.cells.len() as u32).map(CellId)
    }

    /// The options that it was made with.
    pub fn options(&self) -> &NavigationOptions {
        &self.0.options
    }

    /// The memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        let grid = &*self.0;
        size_of_val(&grid.first[..]) + size_of_val(&grid.cells[..]) + size_of_val(&grid.parts[..])
    }

    /// Where the feet of a body in this cell stand.
    ///
    /// # Panics
    /// If the cell is of another grid and there is no cell of this number, here and in all functions that take one.
    pub fn point(&self, cell: CellId) -> Vec3 {
        self.0.point(&self.0.cells[cell.0 as usize])
    }

    /// Whether a body can stand anywhere in the square of this cell.
    pub fn is_open(&self, cell: CellId) -> bool {
        self.0.cells[cell.0 as usize].is_open
    }

    /// The ways to its neighbours, at most eight.
    pub fn links(&self, cell: CellId) -> impl Iterator<Item = Link> + '_ {
        let from = &self.0.cells[cell.0 as usize];
        (0..8).filter_map(move |direction| self.0.link(from, direction))
    }

    /// The cell whose point is nearest to the feet at `position`, at most `within_m` away. It looks at all columns
    /// within that distance (at most 16 m): give a small one in frequent calls. None for a position that is no number.
    pub fn nearest(&self, position: Vec3, within_m: f32) -> Option<CellId> {
        self.0.nearest(position, within_m, |_| true)
    }

    /// The same among the cells of the largest area: those that can be reached from it and lead back to it. Use it for
    /// goals.
    pub fn nearest_in_main(&self, position: Vec3, within_m: f32) -> Option<CellId> {
        self.0.nearest(position, within_m, |cell| cell.part == self.0.main)
    }

    /// Whether the cell belongs to the largest area.
    pub fn is_in_main(&self, cell: CellId) -> bool {
        self.part(cell) == self.0.main
    }

    /// Whether there is a way, without a search.
    pub fn reach(&self, from: CellId, to: CellId) -> Reach {
        islands::reach(&self.0.parts, self.part(from), self.part(to))
    }

    pub(crate) fn link_towards(&self, cell: CellId, direction: usize) -> Option<Link> {
        self.0.link(&self.0.cells[cell.0 as usize], direction)
    }

    pub(crate) fn is_open_between(&self, from: CellId, to: CellId, steps_max: usize) -> bool {
        self.0.is_open_between(from, to, steps_max)
    }

    /// The area of a cell: from a cell of a lower area there is no way to one of a higher area.
    pub(crate) fn part(&self, cell: CellId) -> u32 {
        self.0.cells[cell.0 as usize].part
    }

    /// Whether a body can walk straight from the point of one cell to the point of the other: they are linked, or both
    /// are open and so is all between them. `steps_max` limits the work.
    pub fn is_straight(&self, from: CellId, to: CellId, steps_max: usize) -> bool {
        from == to || self.links(from).any(|link| link.to == to) || self.0.is_open_between(from, to, steps_max)
    }
}

impl std::fmt::Debug for Navigation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Navigation")
            .field("columns", &[self.0.columns, self.0.rows])
            .field("cells", &self.cell_count())
            .field("areas", &self.0.parts.len())
            .field("bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}

impl Grid {
    fn spot(&self, column: usize, spot: u8) -> Vec2 {
        let corner = vec2((column % self.columns) as f32, (column / self.columns) as f32);
        let inside = vec2((spot as usize % SPOTS) as f32 + 0.5, (spot as usize / SPOTS) as f32 + 0.5);
        self.origin + (corner + inside / SPOTS as f32) * self.options.cell_m
    }

    fn point(&self, cell: &Cell) -> Vec3 {
        let spot = self.spot(cell.column as usize, cell.spot);
        Vec3::new(spot.x, cell.height_m, spot.y)
    }

    /// The column that contains a place, if there is one.
    fn column_at(&self, x: f32, z: f32) -> Option<usize> {
        let place = ((vec2(x, z) - self.origin) / self.options.cell_m).floor();
        let is_inside = place.x >= 0.0 && place.y >= 0.0 && place.x < self.columns as f32 && place.y < self.rows as f32;
        is_inside.then(|| place.y as usize * self.columns + place.x as usize)
    }

    fn neighbour(&self, column: usize, [dx, dz]: [i32; 2]) -> Option<usize> {
        let x = (column % self.columns).checked_add_signed(dx as isize)?;
        let z = (column / self.columns).checked_add_signed(dz as isize)?;
        (x < self.columns && z < self.rows).then(|| z * self.columns + x)
    }

    fn in_column(&self, column: usize) -> std::ops::Range<usize> {
        self.first[column] as usize..self.first[column + 1] as usize
    }

    fn target(&self, from: &Cell, direction: usize) -> Option<usize> {
        let link = from.links[direction];
        if link == NO_LINK {
            return None;
        }
        let column = self.neighbour(from.column as usize, DIRECTIONS[direction])?;
        Some(self.first[column] as usize + (link & !DROP) as usize)
    }

    fn link(&self, from: &Cell, direction: usize) -> Option<Link> {
        let to = self.target(from, direction)?;
        let length_mm = length_mm(self.point(from), self.point(&self.cells[to])).ceil() as u32 + 1;
        let cost_mm = if self.cells[to].is_open { length_mm } else { length_mm + length_mm / 2 };
        Some(Link { to: CellId(to as u32), cost_mm, is_drop: from.links[direction] & DROP != 0 })
    }

    fn nearest(&self, position: Vec3, within_m: f32, accepts: impl Fn(&Cell) -> bool) -> Option<CellId> {
        if !position.abs().cmple(Vec3::splat(2.0 * COORDINATE_MAX_M)).all() {
            return None;
        }
        let within_m = within_m.clamp(0.0, 16.0);
        let cell = |place: f32, origin: f32| ((place - origin) / self.options.cell_m).floor() as i64;
        let range = |place: f32, origin: f32, count: usize| {
            let last = count as i64 - 1;
            let from = cell(place - within_m, origin).clamp(0, last + 1);
            from..=cell(place + within_m, origin).clamp(-1, last)
        };
        let mut best = (within_m * within_m, None);
        for z in range(position.z, self.origin.y, self.rows) {
            for x in range(position.x, self.origin.x, self.columns) {
                for index in self.in_column(z as usize * self.columns + x as usize) {
                    let distance = self.point(&self.cells[index]).distance_squared(position);
                    let is_nearer = distance < best.0 || (best.1.is_none() && distance == best.0);
                    if is_nearer && accepts(&self.cells[index]) {
                        best = (distance, Some(CellId(index as u32)));
                    }
                }
            }
        }
        best.1
    }

    /// Walks along the columns that the straight line crosses (Amanatides and Woo 1987), by links that do not fall.
    fn is_open_between(&self, from: CellId, to: CellId, steps_max: usize) -> bool {
        let (start, end) = (&self.cells[from.0 as usize], &self.cells[to.0 as usize]);
        if !start.is_open || !end.is_open {
            return false;
        }
        let cell_m = self.options.cell_m;
        let [a, b] = [start, end].map(|cell| (self.spot(cell.column as usize, cell.spot) - self.origin) / cell_m);
        let way = b - a;
        let step = [way.x, way.y].map(|part| if part > 0.0 { 1_i32 } else { -1 });
        // The part of the way up to the next border, and from border to border.
        let border = |place: f32, step: i32| if step > 0 { place.floor() + 1.0 } else { place.floor() };
        let mut next = [0, 1].map(|axis| {
            if way[axis] == 0.0 { f32::INFINITY } else { (border(a[axis], step[axis]) - a[axis]) / way[axis] }
        });
        let between = [0, 1].map(|axis| (1.0 / way[axis]).abs());
        let mut at = from.0 as usize;
        for _ in 0..steps_max {
            if at == to.0 as usize {
                return true;
            }
            let axis = usize::from(next[1] < next[0]);
            if next[axis] > 1.0 {
                return false;
            }
            next[axis] += between[axis];
            let direction = match (axis, step[axis] > 0) {
                (0, true) => 0,
                (0, false) => 4,
                (_, true) => 2,
                (_, false) => 6,
            };
            let cell = &self.cells[at];
            match self.target(cell, direction) {
                Some(target) if cell.links[direction] & DROP == 0 && self.cells[target].is_open => at = target,
                _ => return false,
            }
        }
        at == to.0 as usize
    }
}

/// The distance in millimetres. In 64 bits: its rounding errors are far below the millimetre that links have to spare,
/// so an estimate that is rounded down never exceeds a way.
pub(crate) fn length_mm(from: Vec3, to: Vec3) -> f64 {
    let way = (to.as_dvec3() - from.as_dvec3()) * 1_000.0;
    (way.x * way.x + way.y * way.y + way.z * way.z).sqrt()
}
