//! Wavefront OBJ.

use std::path::Path;

use glam::Vec3;
use throng_sight::Mesh;

use super::{ReadError, ReadOptions, malformed, read_file};

pub(super) fn read(path: &Path, options: &ReadOptions) -> Result<Mesh, ReadError> {
    let bytes = read_file(path)?;
    let load = tobj::LoadOptions { triangulate: true, ignore_points: true, ignore_lines: true, ..Default::default() };
    let no_materials = |_: &Path| Ok(Default::default());
    let (models, _) =
        tobj::load_obj_buf(&mut bytes.as_slice(), &load, no_materials).map_err(|error| malformed(path, error))?;
    let mut mesh = Mesh::default();
    for model in &models {
        let first = u32::try_from(mesh.positions.len()).map_err(|_| malformed(path, "too many positions"))?;
        mesh.positions.extend(model.mesh.positions.chunks_exact(3).map(Vec3::from_slice));
        let layers = options.layers_of([model.name.as_str()]);
        for corners in model.mesh.indices.chunks_exact(3) {
            mesh.triangles.push([corners[0], corners[1], corners[2]].map(|corner| first.saturating_add(corner)));
            mesh.layers.push(layers);
        }
    }
    Ok(mesh)
}
