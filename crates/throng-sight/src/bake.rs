//! From a mesh to the bytes of a map.
//!
//! ```text
//!  Mesh -- check --> obvhs: a binary tree of boxes, optimised -- collapse --> eight children per node -- order,
//!  pack --> bytes
//! ```
//!
//! The same mesh always gives the same bytes.

mod balanced;
mod collapse;
mod order;
mod pack;

use std::time::Duration;

use glam::{Vec3, Vec3A};
use obvhs::BvhBuildParams;
use obvhs::ploc::{PlocSearchDistance, SortPrecision};
use obvhs::triangle::Triangle;

use crate::format::DEPTH_MAX;
use crate::map::{Map, aligned};
use crate::mesh::{Mesh, MeshError};

/// Takes about 2 s and 1 kB for each triangle while it works, for a million of them.
const BUILD: BvhBuildParams = BvhBuildParams {
    pre_split: false,
    ploc_search_distance: PlocSearchDistance::High,
    search_depth_threshold: 2,
    reinsertion_batch_ratio: 0.2,
    post_collapse_reinsertion_batch_ratio_multiplier: 0.0,
    sort_precision: SortPrecision::U64,
    max_prims_per_leaf: 1,
    collapse_traversal_cost: 1.0,
};

/// A box by its lowest and highest corner.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bounds {
    lowest: [f32; 3],
    highest: [f32; 3],
}

impl Bounds {
    const EMPTY: Bounds = Bounds { lowest: [f32::INFINITY; 3], highest: [f32::NEG_INFINITY; 3] };

    fn of(points: &[Vec3]) -> Bounds {
        let point = |point: &Vec3| Bounds { lowest: point.to_array(), highest: point.to_array() };
        points.iter().fold(Bounds::EMPTY, |bounds, place| bounds.and(point(place)))
    }

    fn and(self, other: Bounds) -> Bounds {
        let lower = |axis: usize| self.lowest[axis].min(other.lowest[axis]);
        let higher = |axis: usize| self.highest[axis].max(other.highest[axis]);
        Bounds { lowest: [0, 1, 2].map(lower), highest: [0, 1, 2].map(higher) }
    }

    /// Half of the surface, and at least a little: so flat boxes differ in cost.
    fn half_area(self) -> f32 {
        let [x, y, z] = [0, 1, 2].map(|axis| (self.highest[axis] - self.lowest[axis]).max(1e-6));
        x * y + y * z + z * x
    }
}

/// A binary tree: the boxes of parts, and below them triangles of the mesh.
struct Binary {
    /// The root first.
    nodes: Vec<BinaryNode>,
}

struct BinaryNode {
    bounds: Bounds,
    kind: BinaryKind,
}

#[derive(Clone, Copy)]
enum BinaryKind {
    /// The number of the left child; the right one follows it.
    Inner(u32),
    /// A triangle of the mesh.
    Triangle(u32),
}

/// Bakes a mesh: checks it, builds the tree, and returns a map whose [bytes](Map::as_bytes) are its file.
///
/// # Errors
/// If the mesh is faulty or too large.
pub fn bake(mesh: &Mesh) -> Result<Map, MeshError> {
    mesh.check()?;
    let mut wide = collapse::collapse(&optimised(mesh))?;
    if wide.depth > usize::from(DEPTH_MAX) {
        wide = collapse::collapse(&balanced::build(mesh))?;
    }
    order::sort_children(&mut wide, mesh);
    let bytes = pack::pack(&wide, mesh)?;
    Ok(Map::new(aligned(&bytes)).expect("the bake keeps its own format"))
}

fn optimised(mesh: &Mesh) -> Binary {
    let corners = |triangle| mesh.corners(triangle).map(Vec3A::from);
    let triangles: Vec<Triangle> = (0..mesh.triangles.len())
        .map(|triangle| {
            let [v0, v1, v2] = corners(triangle);
            Triangle { v0, v1, v2 }
        })
        .collect();
    let mut time = Duration::ZERO;
    let tree = obvhs::bvh2::builder::build_bvh2_from_tris(&triangles, BUILD, &mut time);
    let mut nodes: Vec<BinaryNode> = tree
        .nodes
        .iter()
        .map(|node| BinaryNode {
            bounds: Bounds { lowest: node.aabb().min.to_array(), highest: node.aabb().max.to_array() },
            kind: match node.prim_count {
                0 => BinaryKind::Inner(node.first_index),
                _ => BinaryKind::Triangle(tree.primitive_indices[node.first_index as usize]),
            },
        })
        .collect();
    expand_leaves(&mut nodes, &tree);
    Binary { nodes }
}

/// The builder is asked for one triangle in each leaf; should it give more, they become leaves of their own.
fn expand_leaves(nodes: &mut Vec<BinaryNode>, tree: &obvhs::bvh2::Bvh2) {
    for (index, node) in tree.nodes.iter().enumerate().filter(|(_, node)| node.prim_count > 1) {
        let (first, count) = (node.first_index as usize, node.prim_count as usize);
        let mut parent = index;
        for place in first..first + count - 1 {
            let left = nodes.len() as u32;
            let bounds = nodes[parent].bounds;
            let leaf = |place: usize| BinaryKind::Triangle(tree.primitive_indices[place]);
            nodes.push(BinaryNode { bounds, kind: leaf(place) });
            nodes.push(BinaryNode { bounds, kind: leaf(place + 1) });
            nodes[parent].kind = BinaryKind::Inner(left);
            parent = left as usize + 1;
        }
    }
}
