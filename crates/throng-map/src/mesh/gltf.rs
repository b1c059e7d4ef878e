//! glTF 2.0, as text (.gltf) or binary (.glb).
//!
//! The crate `gltf` reads the document; the numbers are read here, because a faulty file must not panic.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use glam::{Mat4, Vec3};
use gltf::accessor::{DataType, Dimensions};
use gltf::buffer::Source;
use gltf::mesh::Mode;
use gltf::{Accessor, Gltf, Node, Primitive, Semantic};
use throng_sight::{Mesh, NamedBox, TRIANGLES_MAX};

use super::{ReadError, ReadOptions, malformed, read_file};

struct Reader<'a> {
    path: &'a Path,
    options: &'a ReadOptions,
    buffers: Vec<Vec<u8>>,
    mesh: Mesh,
}

pub(super) fn read(path: &Path, options: &ReadOptions) -> Result<Mesh, ReadError> {
    let gltf = Gltf::from_slice(&read_file(path)?).map_err(|error| malformed(path, error))?;
    let buffers = buffers(path, &gltf)?;
    let scene = gltf.default_scene().or_else(|| gltf.scenes().next());
    let scene = scene.ok_or_else(|| malformed(path, "the file has no scene"))?;
    let mut open: Vec<(Node<'_>, Mat4)> = scene.nodes().map(|node| (node, Mat4::IDENTITY)).collect();
    let mut nodes = Vec::new();
    let (mut triangles, mut positions) = (0usize, 0usize);
    while let Some((node, parent)) = open.pop() {
        if nodes.len() == gltf.nodes().count() {
            return Err(malformed(path, "a node has several parents, or is its own ancestor"));
        }
        for primitive in node.mesh().iter().flat_map(triangles_of) {
            let count = primitive.get(&Semantic::Positions).map_or(0, |positions| positions.count());
            positions = positions.saturating_add(count);
            triangles = triangles.saturating_add(primitive.indices().map_or(count, |indices| indices.count()) / 3);
        }
        let place = parent * Mat4::from_cols_array_2d(&node.transform().matrix());
        open.extend(node.children().map(|child| (child, place)));
        nodes.push((node, place));
    }
    // Nodes share meshes: a small file may stand for any number of triangles.
    if triangles > TRIANGLES_MAX || positions > 3 * TRIANGLES_MAX {
        let found = format!("its nodes have {triangles} triangles with {positions} positions");
        return Err(malformed(path, format!("{found}, and a map holds at most {TRIANGLES_MAX} triangles: split it")));
    }
    let mut reader = Reader { path, options, buffers, mesh: Mesh::default() };
    for (node, place) in nodes {
        reader.node(&node, place)?;
    }
    Ok(reader.mesh)
}

/// The parts of a mesh that have triangles.
fn triangles_of<'a>(mesh: &gltf::Mesh<'a>) -> impl Iterator<Item = Primitive<'a>> {
    mesh.primitives().filter(|primitive| primitive.mode() == Mode::Triangles)
}

/// Reads at most `length` bytes of a file beside the document, or in a folder beside it.
fn read_beside(path: &Path, uri: &str, length: usize) -> Result<Vec<u8>, ReadError> {
    let name = uri.replace("%20", " ");
    let is_beside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(&name).components().all(is_beside) {
        return Err(malformed(path, "a buffer lies outside of the folder of the file"));
    }
    let path = path.parent().unwrap_or(Path::new("")).join(name);
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(length as u64).read_to_end(&mut bytes));
    read.map(|_| bytes).map_err(|cause| ReadError::Io { path, cause })
}

/// The buffers of a document have so many bytes together: some times what the most triangles need.
const BUFFERS_BYTES_MAX: usize = 4 << 30;

fn buffers(path: &Path, gltf: &Gltf) -> Result<Vec<Vec<u8>>, ReadError> {
    let all = gltf.buffers().map(|buffer| buffer.length()).fold(0, usize::saturating_add);
    if all > BUFFERS_BYTES_MAX {
        return Err(malformed(path, "its buffers have more than 4 GiB together"));
    }
    let bytes_of = |buffer: gltf::Buffer<'_>| match buffer.source() {
        Source::Bin if buffer.index() > 0 => Err(malformed(path, "only the first buffer may be the binary part")),
        Source::Bin => gltf.blob.clone().ok_or_else(|| malformed(path, "the binary part is missing")),
        Source::Uri(uri) => match uri.strip_prefix("data:") {
            Some(inline) => {
                let (_, text) =
                    inline.split_once(";base64,").ok_or_else(|| malformed(path, "inline bytes are not base64"))?;
                STANDARD.decode(text).map_err(|error| malformed(path, format!("inline bytes: {error}")))
            }
            None => read_beside(path, uri, buffer.length()),
        },
    };
    gltf.buffers().map(bytes_of).collect()
}

impl Reader<'_> {
    fn node(&mut self, node: &Node<'_>, place: Mat4) -> Result<(), ReadError> {
        let name = node.name().unwrap_or_default();
        let Some(mesh) = node.mesh() else {
            let is_place = node.camera().is_none() && node.skin().is_none() && node.children().len() == 0;
            if is_place && !name.is_empty() {
                // Tools show such a node as a cube from -1 to 1: its scale is the size of the box.
                let corner = |number: u32| {
                    let side = |bit: u32| if number >> bit & 1 == 0 { -1.0 } else { 1.0 };
                    place.transform_point3(Vec3::new(side(0), side(1), side(2)))
                };
                let bounds = (1..8)
                    .fold([corner(0); 2], |[low, high], number| [low.min(corner(number)), high.max(corner(number))]);
                self.mesh.marks.push(NamedBox { name: name.to_owned(), bounds });
            }
            return Ok(());
        };
        for primitive in triangles_of(&mesh) {
            let material = primitive.material();
            let names = [name, mesh.name().unwrap_or_default(), material.name().unwrap_or_default()];
            self.primitive(&primitive, place, names)?;
        }
        Ok(())
    }

    fn primitive(&mut self, primitive: &Primitive<'_>, place: Mat4, names: [&str; 3]) -> Result<(), ReadError> {
        let positions = primitive.get(&Semantic::Positions);
        let positions = positions.ok_or_else(|| malformed(self.path, "a mesh has no positions"))?;
        let first = u32::try_from(self.mesh.positions.len()).map_err(|_| malformed(self.path, "too many positions"))?;
        let places: Vec<Vec3> = self
            .items(&positions, DataType::F32, Dimensions::Vec3)?
            .map(|bytes| {
                let number = |at: usize| f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
                place.transform_point3(Vec3::new(number(0), number(4), number(8)))
            })
            .collect();
        let corners: Vec<u32> = match primitive.indices() {
            None => (0..places.len() as u32).collect(),
            Some(indices) => self
                .items(&indices, indices.data_type(), Dimensions::Scalar)?
                .map(|bytes| bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
                .collect(),
        };
        let layers = self.options.layers_of(names);
        self.mesh.positions.extend(places);
        for corners in corners.chunks_exact(3) {
            let number = |corner: u32| first.saturating_add(corner);
            let [a, b, c] = [number(corners[0]), number(corners[1]), number(corners[2])];
            // A place that mirrors turns triangles round.
            self.mesh.triangles.push(if place.determinant() < 0.0 { [a, c, b] } else { [a, b, c] });
            self.mesh.layers.push(layers);
        }
        Ok(())
    }

    /// The bytes of each element of an accessor.
    fn items(
        &self,
        accessor: &Accessor<'_>,
        data_type: DataType,
        dimensions: Dimensions,
    ) -> Result<impl Iterator<Item = &[u8]>, ReadError> {
        let fault = |reason: &str| malformed(self.path, format!("accessor {}: {reason}", accessor.index()));
        if accessor.data_type() != data_type || accessor.dimensions() != dimensions {
            return Err(fault("the numbers have another type than their use needs"));
        }
        let is_index = matches!(data_type, DataType::U8 | DataType::U16 | DataType::U32);
        if dimensions == Dimensions::Scalar && !is_index {
            return Err(fault("corners need whole numbers"));
        }
        if accessor.sparse().is_some() {
            return Err(fault("sparse numbers are not supported: export without them"));
        }
        let view = accessor.view().ok_or_else(|| fault("it has no bytes"))?;
        let size = accessor.size();
        let stride = view.stride().unwrap_or(size);
        let (offset, count) = (view.offset().checked_add(accessor.offset()), accessor.count());
        let len = count.saturating_sub(1).checked_mul(stride).and_then(|way| way.checked_add(size));
        let bytes = self.buffers.get(view.buffer().index());
        let part = offset.zip(len).and_then(|(offset, len)| bytes?.get(offset..offset.checked_add(len)?));
        let part = part.filter(|_| stride >= size).ok_or_else(|| fault("its bytes lie beyond the buffer"))?;
        Ok((0..count).map(move |item| &part[item * stride..item * stride + size]))
    }
}
