//! The spatial controller file: channeld's format, and our own for worlds with layers.
//!
//! ```json
//! { "SpatialControllerType": "StaticGrid2D",
//!   "Config": { "WorldOffsetX": -150, "WorldOffsetZ": -150,      where the first cell begins
//!               "GridWidth": 20, "GridHeight": 20,               size of a cell along x and z
//!               "GridCols": 15, "GridRows": 15,                  cells along x and z
//!               "ServerCols": 3, "ServerRows": 3,                servers along x and z
//!               "ServerInterestBorderSize": 1,                   cells that a server sees around its own
//!
//!               "WorldOffsetY": -50, "GridLayerHeight": 20,      "StaticGrid3D" only: the same along y
//!               "GridLayers": 5, "ServerLayers": 1,
//!
//!               "Damping": [ { "Distance": 0, "FanOutIntervalMs": 20 } ] } }     ours, optional
//! ```

use std::ops::Range;

use super::grid::{Axis, Damping, Grid, MAX_CELLS};
use crate::config_file::{Document, FileError, Node, Note};

/// Most entries of a damping table.
pub const MAX_DAMPING_STEPS: usize = 256;

/// Largest fan-out interval that a damping table may name, in ms.
const MAX_INTERVAL_MS: u32 = 3_600_000;

/// The type in channeld's own files, which never looks at it and always makes the same controller.
const PLANAR_NAMES: [&str; 3] = ["StaticGrid2D", "StaticGrid2DSpatialController", "Static2DSpatialController"];
const LAYERED_NAMES: [&str; 2] = ["StaticGrid3D", "StaticGrid3DSpatialController"];

const PLANAR_KEYS: [&str; 10] = [
    "WorldOffsetX",
    "WorldOffsetZ",
    "GridWidth",
    "GridHeight",
    "GridCols",
    "GridRows",
    "ServerCols",
    "ServerRows",
    "ServerInterestBorderSize",
    "Damping",
];
const LAYER_KEYS: [&str; 4] = ["WorldOffsetY", "GridLayerHeight", "GridLayers", "ServerLayers"];

/// A spatial controller's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct SpatialConfig {
    /// The world.
    pub grid: Grid,
}

impl SpatialConfig {
    /// Reads the text of a file. `file` is its name, for complaints. The cells get the channels from `channels.start`
    /// on and have to end before `channels.end`.
    ///
    /// # Errors
    /// A text that is not JSON, lacks a key, or describes no grid.
    pub fn parse(
        file: &str,
        text: &[u8],
        channels: Range<u32>,
        notes: &mut Vec<Note>,
    ) -> Result<SpatialConfig, FileError> {
        let document = Document::parse(file, text)?;
        let root = document.root();
        root.note_unknown(&["SpatialControllerType", "Config"], notes)?;
        let has_layers = has_layers(&root, notes)?;
        let config = root.get("Config")?.ok_or_else(|| root.error("there is no object \"Config\""))?;
        note_unknown(&config, has_layers, notes)?;

        let columns = read_axis(&config, ["WorldOffsetX", "GridWidth", "GridCols", "ServerCols"])?;
        let rows = read_axis(&config, ["WorldOffsetZ", "GridHeight", "GridRows", "ServerRows"])?;
        let layer_keys = ["WorldOffsetY", "GridLayerHeight", "GridLayers", "ServerLayers"];
        let layers = if has_layers { Some(read_axis(&config, layer_keys)?) } else { None };
        let border_cells = match config.get("ServerInterestBorderSize")? {
            Some(border) => border.integer(0..=MAX_CELLS)?,
            None => 0,
        };
        let damping = match config.get("Damping")? {
            Some(table) => read_damping(&table, notes)?,
            None => Damping::default(),
        };
        let grid = Grid::new([columns, rows], layers, channels, border_cells, damping)
            .map_err(|error| config.error(error.to_string()))?;
        note_idle_servers(&config, &grid, notes);
        Ok(SpatialConfig { grid })
    }
}

fn has_layers(root: &Node<'_>, notes: &mut Vec<Note>) -> Result<bool, FileError> {
    let Some(kind) = root.get("SpatialControllerType")? else {
        return Ok(false);
    };
    let name = kind.string()?;
    if LAYERED_NAMES.contains(&name) {
        return Ok(true);
    }
    if !PLANAR_NAMES.contains(&name) {
        notes.push(kind.note(format!("\"{name}\" is not known and is taken as {}", PLANAR_NAMES[0])));
    }
    Ok(false)
}

fn note_unknown(config: &Node<'_>, has_layers: bool, notes: &mut Vec<Note>) -> Result<(), FileError> {
    let mut known = PLANAR_KEYS.to_vec();
    if has_layers {
        known.extend(LAYER_KEYS);
    }
    config.note_unknown(&known, notes)
}

fn read_axis(config: &Node<'_>, [offset, size, cells, servers]: [&str; 4]) -> Result<Axis, FileError> {
    let needed = |key: &str| config.get(key)?.ok_or_else(|| config.error(format!("there is no \"{key}\"")));
    let offset_m = match config.get(offset)? {
        Some(offset) => offset.number()?,
        None => 0.0,
    };
    let size = needed(size)?;
    let cell_m = size.number()?;
    if cell_m <= 0.0 {
        return Err(size.error("a number above 0 is expected here"));
    }
    let cells = needed(cells)?.integer(1..=MAX_CELLS)?;
    let servers = needed(servers)?;
    let count = servers.integer(1..=MAX_CELLS)?;
    if count > cells {
        return Err(servers.error(format!("{count} servers cannot share {cells} cells: some would own nothing")));
    }
    Ok(Axis { offset_m, cell_m, cells, servers: count })
}

fn read_damping(table: &Node<'_>, notes: &mut Vec<Note>) -> Result<Damping, FileError> {
    let elements = table.elements()?;
    if elements.len() > MAX_DAMPING_STEPS {
        return Err(table.error(format!("there are more than {MAX_DAMPING_STEPS} entries")));
    }
    let mut pairs = Vec::with_capacity(elements.len());
    for element in elements {
        element.note_unknown(&["Distance", "FanOutIntervalMs"], notes)?;
        let part = |key: &str| element.get(key)?.ok_or_else(|| element.error(format!("there is no \"{key}\"")));
        let distance = part("Distance")?.integer(0..=MAX_CELLS)?;
        pairs.push((distance, part("FanOutIntervalMs")?.integer(1..=MAX_INTERVAL_MS)?));
    }
    Ok(Damping::new(pairs))
}

fn note_idle_servers(config: &Node<'_>, grid: &Grid, notes: &mut Vec<Note>) {
    let idle = (0..grid.servers()).filter(|&server| grid.cells_of(server).next().is_none()).count();
    if idle > 0 {
        notes.push(config.note(format!("the cells do not divide by the servers: {idle} servers will own none")));
    }
}
