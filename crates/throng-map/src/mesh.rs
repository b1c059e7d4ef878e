//! Meshes of other tools: OBJ, and glTF as text or binary.

mod gltf;
mod obj;

use std::io;
use std::path::{Path, PathBuf};

use throng_sight::{Layers, Mesh};

/// How a mesh is read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Layers by name, the first that fits counts. A name fits a triangle if it is a part of the name of its object (OBJ:
    /// object or group; glTF: node, mesh or material), in any case of letters.
    pub layers: Vec<(String, Layers)>,
    /// The layers of all other triangles; [`Layers::ALL`] unless set.
    pub otherwise: Option<Layers>,
    /// Whether z is up in the file, as in many OBJ files. Maps have y up, as glTF has.
    pub z_is_up: bool,
}

/// Why a mesh cannot be read. Its file is at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file, or one that it names, cannot be read.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The name ends in none of the known endings.
    #[error("{}: the name has to end in .obj, .gltf or .glb", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// The file is not what its name says.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The fault in the file.
        reason: String,
    },
}

impl ReadError {
    /// A stable name for metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            ReadError::Io { .. } => "mesh_file_io",
            ReadError::UnknownFormat { .. } => "mesh_file_unknown_format",
            ReadError::Malformed { .. } => "mesh_file_malformed",
        }
    }
}

/// Reads the triangles of an OBJ, glTF or GLB file. Faces with more corners are cut into triangles; points, lines,
/// normals, textures and animations are ignored. Nodes of a glTF file that have a name, and no mesh, camera, light or
/// children, become marks.
///
/// # Errors
/// If the file cannot be read or understood. Faults of single triangles are found by the bake.
pub fn read_mesh(path: &Path, options: &ReadOptions) -> Result<Mesh, ReadError> {
    let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
    let mut mesh = match ending.as_ref().and_then(|ending| ending.to_str()) {
        Some("obj") => obj::read(path, options)?,
        Some("gltf" | "glb") => gltf::read(path, options)?,
        _ => return Err(ReadError::UnknownFormat { path: path.to_owned() }),
    };
    if options.z_is_up {
        for place in &mut mesh.positions {
            *place = glam::Vec3::new(place.x, place.z, -place.y);
        }
        for mark in &mut mesh.marks {
            let [low, high] = mark.bounds;
            mark.bounds = [glam::Vec3::new(low.x, low.z, -high.y), glam::Vec3::new(high.x, high.z, -low.y)];
        }
    }
    Ok(mesh)
}

impl ReadOptions {
    fn layers_of<'a>(&self, names: impl IntoIterator<Item = &'a str> + Clone) -> Layers {
        let fits = |part: &str| {
            let part = part.to_lowercase();
            names.clone().into_iter().any(|name| name.to_lowercase().contains(&part))
        };
        let found = self.layers.iter().find(|(part, _)| fits(part));
        found.map(|(_, layers)| *layers).or(self.otherwise).unwrap_or(Layers::ALL)
    }
}

fn malformed(path: &Path, reason: impl ToString) -> ReadError {
    ReadError::Malformed { path: path.to_owned(), reason: reason.to_string() }
}

fn read_file(path: &Path) -> Result<Vec<u8>, ReadError> {
    std::fs::read(path).map_err(|cause| ReadError::Io { path: path.to_owned(), cause })
}
