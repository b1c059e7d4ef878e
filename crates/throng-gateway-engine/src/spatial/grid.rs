//! The division of the world into cells, and of the cells among servers.

use std::ops::Range;

use prost::Message as _;
use thiserror::Error;
use throng_channeld::proto::{SpatialInfo, SpatialRegion};
use xxhash_rust::xxh3::Xxh3;

/// Most cells of a grid: as many as there are spatial channel ids, 0x10000 to 0x7FFFF.
pub const MAX_CELLS: u32 = 0x8_0000 - 0x1_0000;

/// channeld's bounds of a cell upwards and downwards in a grid without layers: half of the largest `f32`.
const ENDLESS_M: f64 = 3.402_823_47e38 / 2.0;

/// Beyond this many metres from 0 an `f64` no longer tells centimetres apart.
const MAX_COORDINATE_M: f64 = 1e13;

/// A position: left-handed, y up, in the units of the settings file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Position {
    /// To the right.
    pub x: f64,
    /// Up. Without meaning in a grid without layers.
    pub y: f64,
    /// Forwards.
    pub z: f64,
}

impl From<SpatialInfo> for Position {
    fn from(info: SpatialInfo) -> Position {
        Position { x: info.x, y: info.y, z: info.z }
    }
}

impl From<Position> for SpatialInfo {
    fn from(position: Position) -> SpatialInfo {
        SpatialInfo { x: position.x, y: position.y, z: position.z }
    }
}

impl Position {
    /// In the order of a grid's axes.
    pub(super) fn along(self) -> [f64; 3] {
        [self.x, self.z, self.y]
    }
}

/// How the world is cut along one axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// Where the first cell begins, in metres.
    pub offset_m: f64,
    /// The length of each cell, above 0, in metres.
    pub cell_m: f64,
    /// How many cells there are, at least 1.
    pub cells: u32,
    /// Among how many servers they are dealt out, at least 1.
    pub servers: u32,
}

impl Axis {
    /// The cell at a coordinate; `None` outside and for NaN.
    #[inline]
    fn cell_at(&self, coordinate_m: f64) -> Option<u32> {
        let cell = ((coordinate_m - self.offset_m) / self.cell_m).floor();
        (cell >= 0.0 && cell < f64::from(self.cells)).then_some(cell as u32)
    }

    fn border_m(&self, cell: u32) -> f64 {
        self.offset_m + self.cell_m * f64::from(cell)
    }

    /// Where the last cell ends, in metres.
    pub(super) fn end_m(&self) -> f64 {
        self.border_m(self.cells)
    }

    /// Cells of a server that is not at the end: the number of cells over the number of servers, rounded up.
    fn cells_per_server(&self) -> u32 {
        self.cells.div_ceil(self.servers)
    }

    /// The cells of one server. The last server gets the rest, which may be empty.
    fn cells_of(&self, server: u32) -> Range<u32> {
        let first = u64::from(server) * u64::from(self.cells_per_server());
        let end = first + u64::from(self.cells_per_server());
        let within = |cell: u64| cell.min(u64::from(self.cells)) as u32;
        within(first)..within(end)
    }

    /// The same cells and `border` more on either side, as far as there are any.
    fn widened(&self, cells: &Range<u32>, border: u32) -> Range<u32> {
        cells.start.saturating_sub(border)..cells.end.saturating_add(border).min(self.cells)
    }
}

/// How often an area of interest is updated, by its distance in cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damping {
    /// Distance and interval in ms, ordered by distance.
    steps: Vec<(u32, u32)>,
}

impl Default for Damping {
    /// channeld's: 20 ms in the cell itself, 50 ms at distance 1, 100 ms at distance 2.
    fn default() -> Damping {
        Damping { steps: vec![(0, 20), (1, 50), (2, 100)] }
    }
}

impl Damping {
    /// From pairs of distance and interval in ms. Of two for one distance the last one counts.
    pub fn new(pairs: impl IntoIterator<Item = (u32, u32)>) -> Damping {
        let mut steps: Vec<(u32, u32)> = Vec::new();
        for (distance, interval_ms) in pairs {
            match steps.binary_search_by_key(&distance, |step| step.0) {
                Ok(at) => steps[at].1 = interval_ms,
                Err(at) => steps.insert(at, (distance, interval_ms)),
            }
        }
        Damping { steps }
    }

    /// The fan-out interval at a distance, in ms; `None` where the channel's own default holds.
    pub fn interval_ms(&self, distance: u32) -> Option<u32> {
        self.steps.binary_search_by_key(&distance, |step| step.0).ok().map(|at| self.steps[at].1)
    }
}

/// Why a grid is none. The author of the settings is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum GridError {
    /// A cell has no size, or one that is not finite.
    #[error("the size of a cell is {size_m}: it must be above 0")]
    CellSize {
        /// The size.
        size_m: f64,
    },
    /// The world reaches farther than numbers are exact.
    #[error("the world reaches to {coordinate_m}, beyond {MAX_COORDINATE_M:e} from the origin")]
    TooFar {
        /// Where it would reach.
        coordinate_m: f64,
    },
    /// No cells, or no servers, along an axis.
    #[error("there must be at least one cell and one server along each axis")]
    Empty,
    /// More servers than cells along an axis: some would own nothing.
    #[error("{servers} servers share {cells} cells along an axis: some would own nothing")]
    IdleServers {
        /// Servers along the axis.
        servers: u32,
        /// Cells along the axis.
        cells: u32,
    },
    /// The grid has more cells than there are channel ids for them.
    #[error("the grid has {cells} cells, but there are ids for {room} only")]
    TooManyCells {
        /// Cells of the grid.
        cells: u64,
        /// Ids from the first spatial channel to the first entity.
        room: u32,
    },
}

impl GridError {
    /// A short stable name.
    pub fn tag(&self) -> &'static str {
        match self {
            GridError::CellSize { .. } => "grid_cell_size",
            GridError::TooFar { .. } => "grid_too_far",
            GridError::Empty => "grid_empty",
            GridError::IdleServers { .. } => "grid_idle_servers",
            GridError::TooManyCells { .. } => "grid_too_many_cells",
        }
    }
}

/// A static grid: cells of one size, each a channel, each owned by one of a fixed number of servers.
///
/// A grid without layers is a grid with a single one that is endlessly high: `y` is not looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// x, z, y.
    axes: [Axis; 3],
    /// Axes that are looked at: two without layers, three with.
    dimensions: usize,
    first_channel: u32,
    border_cells: u32,
    /// Length of a cell's diagonal, in metres: the unit of distances of interest.
    diagonal_m: f64,
    damping: Damping,
}

impl Grid {
    /// A grid of columns along x and rows along z; with `layers`, also of layers along y. Its cells are the channels
    /// from `first_channel` on, all below `end_channel`. A server is shown `border_cells` around its own.
    ///
    /// # Errors
    /// The settings make no grid.
    pub fn new(
        [columns, rows]: [Axis; 2],
        layers: Option<Axis>,
        channels: Range<u32>,
        border_cells: u32,
        damping: Damping,
    ) -> Result<Grid, GridError> {
        let endless = Axis { offset_m: -ENDLESS_M, cell_m: 2.0 * ENDLESS_M, cells: 1, servers: 1 };
        let dimensions = if layers.is_some() { 3 } else { 2 };
        let axes = [columns, rows, layers.unwrap_or(endless)];
        axes[..dimensions].iter().try_for_each(check_axis)?;
        let cells = axes.iter().fold(1u64, |cells, axis| cells.saturating_mul(axis.cells.into()));
        let room = channels.end.saturating_sub(channels.start).min(MAX_CELLS);
        if cells > room.into() {
            return Err(GridError::TooManyCells { cells, room });
        }
        let diagonal_m = axes[..dimensions].iter().map(|axis| axis.cell_m * axis.cell_m).sum::<f64>().sqrt();
        Ok(Grid { axes, dimensions, first_channel: channels.start, border_cells, diagonal_m, damping })
    }

    /// How many cells there are.
    pub fn cells(&self) -> u32 {
        self.axes.iter().map(|axis| axis.cells).product()
    }

    /// How many servers share the cells.
    pub fn servers(&self) -> u32 {
        self.axes.iter().map(|axis| axis.servers).product()
    }

    /// All channels of the grid.
    pub fn channels(&self) -> Range<u32> {
        self.first_channel..self.first_channel + self.cells()
    }

    /// How often areas of interest are updated.
    pub fn damping(&self) -> &Damping {
        &self.damping
    }

    /// Whether `y` counts.
    pub fn has_layers(&self) -> bool {
        self.dimensions == 3
    }

    /// The channel at a position; `None` outside of the world and for what is not a number.
    pub fn channel_at(&self, position: Position) -> Option<u32> {
        let at = position.along();
        let mut cell = [0; 3];
        for axis in 0..self.dimensions {
            cell[axis] = self.axes[axis].cell_at(at[axis])?;
        }
        Some(self.channel_of(cell))
    }

    /// The lower and the upper corner of a channel's cell; `None` if the channel is not of this grid.
    pub fn bounds(&self, channel: u32) -> Option<[Position; 2]> {
        let [column, row, layer] = self.cell_of(channel)?;
        let corner = |more: u32| Position {
            x: self.axes[0].border_m(column + more),
            z: self.axes[1].border_m(row + more),
            y: self.axes[2].border_m(layer + more),
        };
        Some([corner(0), corner(1)])
    }

    /// Which server a channel is dealt to, whether it is there or not.
    pub fn server_of(&self, channel: u32) -> Option<u32> {
        let cell = self.cell_of(channel)?;
        let server = |axis: usize| cell[axis] / self.axes[axis].cells_per_server();
        Some(server(0) + self.axes[0].servers * (server(1) + self.axes[1].servers * server(2)))
    }

    /// The table of cells for `SPATIAL_REGIONS_UPDATE`, in the order of channels.
    pub fn regions(&self) -> impl Iterator<Item = SpatialRegion> + '_ {
        self.channels().filter_map(|channel_id| {
            let [min, max] = self.bounds(channel_id)?;
            let server_index = self.server_of(channel_id)?;
            Some(SpatialRegion { min: Some(min.into()), max: Some(max.into()), channel_id, server_index })
        })
    }

    /// A number of how the world is cut: where each cell is, and whose. Another cut has another one.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hash = Xxh3::new();
        for region in self.regions() {
            hash.update(&region.encode_to_vec());
        }
        hash.digest()
    }

    /// The channels around one, itself not included, in ascending order: up to 8, with layers up to 26. None for a
    /// channel that is not of this grid.
    pub fn adjacent(&self, channel: u32) -> impl Iterator<Item = u32> + '_ {
        let cell = self.cell_of(channel);
        let ranges = cell.map(|cell| [0, 1, 2].map(|axis| self.axes[axis].widened(&(cell[axis]..cell[axis] + 1), 1)));
        ranges.into_iter().flat_map(|ranges| self.channels_in(ranges)).filter(move |&near| near != channel)
    }

    /// The channels that a server owns, in ascending order. Where the grid does not divide by the servers, the last
    /// ones own fewer. None for a server that the grid does not have.
    pub fn cells_of(&self, server: u32) -> impl Iterator<Item = u32> + '_ {
        self.block_of(server).into_iter().flat_map(|block| self.channels_in(block))
    }

    /// The channels next to those of a server that it is also shown, in ascending order and each once: those within
    /// the border on the sides, not over the corners, as channeld has it.
    pub fn border_of(&self, server: u32) -> impl Iterator<Item = u32> + '_ {
        let block = self.block_of(server).filter(|_| self.border_cells > 0);
        let wide =
            block.clone().map(|block| [0, 1, 2].map(|axis| self.axes[axis].widened(&block[axis], self.border_cells)));
        let is_beside = move |channel: &u32| {
            let Some((cell, block)) = self.cell_of(*channel).zip(block.as_ref()) else { return false };
            (0..3).filter(|&axis| !block[axis].contains(&cell[axis])).count() == 1
        };
        wide.into_iter().flat_map(|ranges| self.channels_in(ranges)).filter(is_beside)
    }

    pub(super) fn axes(&self) -> &[Axis] {
        &self.axes[..self.dimensions]
    }

    pub(super) fn diagonal_m(&self) -> f64 {
        self.diagonal_m
    }

    /// The cell along one axis at a coordinate.
    pub(super) fn cell_along(&self, axis: usize, coordinate_m: f64) -> Option<u32> {
        self.axes[axis].cell_at(coordinate_m)
    }

    /// The channel of a cell: column, row, layer.
    #[inline]
    pub(super) fn channel_of(&self, [column, row, layer]: [u32; 3]) -> u32 {
        self.first_channel + column + self.axes[0].cells * (row + self.axes[1].cells * layer)
    }

    /// Column, row and layer of a channel.
    fn cell_of(&self, channel: u32) -> Option<[u32; 3]> {
        let index = channel.checked_sub(self.first_channel).filter(|&index| index < self.cells())?;
        let (columns, rows) = (self.axes[0].cells, self.axes[1].cells);
        Some([index % columns, index / columns % rows, index / columns / rows])
    }

    /// Columns, rows and layers of a server.
    fn block_of(&self, server: u32) -> Option<[Range<u32>; 3]> {
        if server >= self.servers() {
            return None;
        }
        let (columns, rows) = (self.axes[0].servers, self.axes[1].servers);
        let place = [server % columns, server / columns % rows, server / columns / rows];
        Some([0, 1, 2].map(|axis| self.axes[axis].cells_of(place[axis])))
    }

    fn channels_in(&self, [columns, rows, layers]: [Range<u32>; 3]) -> impl Iterator<Item = u32> + '_ {
        layers.flat_map(move |layer| {
            let columns = columns.clone();
            rows.clone().flat_map(move |row| columns.clone().map(move |column| self.channel_of([column, row, layer])))
        })
    }
}

fn check_axis(axis: &Axis) -> Result<(), GridError> {
    let Axis { offset_m, cell_m, cells, servers } = *axis;
    if !(cell_m > 0.0 && cell_m.is_finite()) {
        return Err(GridError::CellSize { size_m: cell_m });
    }
    if cells == 0 || servers == 0 {
        return Err(GridError::Empty);
    }
    if servers > cells {
        return Err(GridError::IdleServers { servers, cells });
    }
    for coordinate_m in [offset_m, axis.end_m()] {
        if coordinate_m.is_nan() || coordinate_m.abs() > MAX_COORDINATE_M {
            return Err(GridError::TooFar { coordinate_m });
        }
    }
    Ok(())
}
