//! `throng bake`: its arguments, and what they lead to.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::{Args, ValueEnum};
use glam::Vec3;
use throng_map::{ReadOptions, read_mesh, save};
use throng_sight::fog::{CellError, CellOptions, CellVisibility, FogWalls};
use throng_sight::{Layers, Map, Mesh, bake as bake_mesh, town};

use crate::exit::{Failure, Outcome};
use crate::number::number;

/// More cells than this are not computed unless asked for: the time grows with the square.
const CELLS: usize = 3_000;

pub(crate) const LONG_ABOUT: &str = "\
Bake a mesh, or a generated town, into a map file for ray queries

  throng bake map.glb out.map
  throng bake map.obj out.map --up z --layer glass=1 --layer leaves=2 --other-layers 7
  throng bake --town 7 --triangles 240000 out.map

A map has y up, in metres. Triangles belong to layers, given as a sum of powers of two; a query names the layers that it \
looks for. The file also says which parts of the map can be seen from which (cells), for fog of war. In a town, triangles of layer 1 block bodies, layer 2 blocks sight, and layer 4 blocks bullets. Its marks are \
`spawn/a`, `spawn/b`, `site/a` and `site/b`. Nodes of a glTF file that have a name and no mesh become marks.";

/// Arguments of `throng bake`.
#[derive(Debug, Args)]
pub(crate) struct BakeArguments {
    /// The mesh file to read (.obj, .gltf or .glb), then the map file to write; with --town only the map file
    #[arg(required = true, num_args = 1..=2, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Bake a generated town of this seed instead of a mesh
    #[arg(long, value_name = "SEED", value_parser = number::<u64>(..))]
    town: Option<u64>,
    /// Least number of triangles of the town
    #[arg(long, value_name = "N", default_value_t = 240_000, requires = "town", value_parser = number(crate::args::TRIANGLES))]
    triangles: usize,
    /// The axis of the mesh that points up
    #[arg(long, value_enum, default_value_t = Up::Y, conflicts_with = "town")]
    up: Up,
    /// The layers of triangles whose object or material has this word in its name; may be repeated, the first match
    /// counts
    #[arg(long = "layer", value_name = "WORD=LAYERS", value_parser = layer, conflicts_with = "town")]
    layers: Vec<(String, Layers)>,
    /// The layers of all other triangles; without it, all layers
    #[arg(long, value_name = "LAYERS", conflicts_with = "town", value_parser = number::<u16>(..))]
    other_layers: Option<u16>,
    /// The layers that block sight, for the cells
    #[arg(long, value_name = "LAYERS", default_value_t = town::SIGHT.0, value_parser = number::<u16>(..))]
    sight: u16,
    /// The layers that bodies stand on and cannot pass, for the cells
    #[arg(long, value_name = "LAYERS", default_value_t = town::BODIES.0, value_parser = number::<u16>(..))]
    bodies: u16,
    /// Width of a cell in metres, at least 1; without it 6, or more for large maps, so that there are at most 3,000 cells
    #[arg(long, value_name = "M", value_parser = number(1.0f32..=1_000.0))]
    cell_m: Option<f32>,
    /// Write no cells
    #[arg(long, conflicts_with = "cell_m")]
    no_cells: bool,
    /// Leave triangles without area out, instead of refusing the mesh
    #[arg(long)]
    drop_degenerate: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Up {
    Y,
    Z,
}

fn layer(text: &str) -> Result<(String, Layers), String> {
    let (word, layers) = text.split_once('=').ok_or("write a word and its layers, for example glass=1")?;
    let layers = layers.parse().map_err(|_| format!("{layers} is not a sum of layers: write a number below 65536"))?;
    if word.is_empty() { Err("the word before = is empty".to_owned()) } else { Ok((word.to_owned(), Layers(layers))) }
}

/// Writes the map and says what it holds.
pub(crate) fn bake(arguments: &BakeArguments) -> Outcome {
    let (mut mesh, out) = match (arguments.town, arguments.files.as_slice()) {
        (Some(seed), [out]) => (town::town(seed, arguments.triangles), out),
        (None, [mesh, out]) if is_same_file(mesh, out) => {
            refuse!("{} is the mesh: give the map another name", out.display());
        }
        (None, [mesh, out]) => (read(arguments, mesh)?, out),
        (Some(_), _) => refuse!("--town takes one file: the map that is written"),
        (None, _) => refuse!("name a mesh and the map that is written, or use --town SEED"),
    };
    if arguments.drop_degenerate {
        let dropped = mesh.drop_degenerate();
        errln!("{dropped} triangles without area left out");
    }
    let source = arguments.files[0].display();
    let map = bake_mesh(&mesh).with_context(|| format!("{source} cannot be baked")).map_err(Failure::Usage)?;
    let (map, cells) = if arguments.no_cells { (map, "no cells".to_owned()) } else { with_cells(arguments, map)? };
    save(&map, out).context("the map cannot be written")?;
    outln!(
        "{}: {} triangles, {} marks, {cells}, {:.1} MB, checksum {:016x}",
        out.display(),
        map.triangle_count(),
        map.marks().count(),
        map.as_bytes().len() as f64 / 1e6,
        map.checksum()
    );
    Ok(ExitCode::SUCCESS)
}

/// Whether two names are those of one file, which exists.
fn is_same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// The map with its cells, and what there is to say about them.
fn with_cells(arguments: &BakeArguments, map: Map) -> Result<(Map, String), Failure> {
    let sight = Layers(arguments.sight);
    let walls = FogWalls::new(&map, sight, Layers(arguments.bodies)).ok().filter(|_| map.layers().meets(sight));
    let Some(walls) = walls else {
        return Ok((map, "no cells, because no large triangle blocks sight".to_owned()));
    };
    let begin = Instant::now();
    let mut options = CellOptions::default();
    match arguments.cell_m {
        Some(cell_m) => options.sides_m = Vec3::new(cell_m, options.sides_m.y, cell_m),
        None => options.cells_max = CELLS,
    }
    let cells = loop {
        match CellVisibility::bake(&map, &walls, &options) {
            Err(CellError::TooMany { .. }) if arguments.cell_m.is_none() => options.sides_m *= 1.5,
            cells => break cells.map_err(Failure::usage)?,
        }
    };
    let said = format!(
        "{} cells of {} m, {:.1} % of their pairs hidden, in {:.1} s",
        cells.cell_count(),
        options.sides_m.x,
        100.0 * cells.hidden_share(),
        begin.elapsed().as_secs_f64()
    );
    let map = map.with_cells(&cells).context("the cells do not fit the map").map_err(Failure::Usage)?;
    Ok((map, said))
}

fn read(arguments: &BakeArguments, path: &std::path::Path) -> Result<Mesh, Failure> {
    let options = ReadOptions {
        layers: arguments.layers.clone(),
        otherwise: arguments.other_layers.map(Layers),
        z_is_up: arguments.up == Up::Z,
    };
    read_mesh(path, &options).map_err(Failure::usage)
}
