//! Writes a wide tree in the format of the map.

use bytemuck::{Zeroable, bytes_of, cast_slice};

use super::Bounds;
use super::collapse::{Wide, WideChild, WideNode};
use crate::format::{
    BLOCK_BYTES, BLOCK_LANES, BLOCKS_MAX, Block, Child, HEADER_BYTES, Header, MAGIC, MARK_BYTES, MarkBytes,
    NAME_BYTES_MAX, NO_CHILD, NODE_BYTES, Node, SOURCES_BYTES, VERSION, WIDTH, checksum, margin_m,
};
use crate::mesh::{Mesh, MeshError};

struct Packer<'a> {
    mesh: &'a Mesh,
    margin: f64,
    blocks: Vec<Block>,
    sources: Vec<[u32; BLOCK_LANES]>,
}

pub(super) fn pack(tree: &Wide, mesh: &Mesh) -> Result<Vec<u8>, MeshError> {
    let bounds = (0..mesh.triangles.len())
        .fold(Bounds::EMPTY, |bounds, triangle| bounds.and(Bounds::of(&mesh.corners(triangle))));
    let margin = f64::from(margin_m(bounds.lowest, bounds.highest));
    let mut packer = Packer { mesh, margin, blocks: Vec::new(), sources: Vec::new() };
    let (order, places) = near_one_another(tree);
    let mut nodes = Vec::with_capacity(order.len());
    for index in &order {
        nodes.push(packer.node(&tree.nodes[*index], &places)?);
    }
    let layers = layers_upwards(&mut nodes);
    Ok(packer.bytes(&nodes, bounds, layers, tree.depth))
}

/// Gives each node the layers below its children, and returns those of the root. Children come after their parents, so
/// the last node is first.
fn layers_upwards(nodes: &mut [Node]) -> u16 {
    let mut layers = vec![0_u16; nodes.len()];
    for (place, node) in nodes.iter_mut().enumerate().rev() {
        for child in 0..WIDTH {
            if let Child::Node(below) = Child::of(node.children[child]) {
                node.layers[child] = layers[below as usize];
            }
            layers[place] |= node.layers[child];
        }
    }
    layers[0]
}

/// An order in which the children of a node lie together, and large parts before small ones; and where each node is in
/// it.
fn near_one_another(tree: &Wide) -> (Vec<usize>, Vec<u32>) {
    let mut order = vec![0];
    let mut places = vec![0_u32; tree.nodes.len()];
    let mut open = vec![0];
    while let Some(index) = open.pop() {
        let node: &WideNode = &tree.nodes[index];
        let mut below: Vec<(f32, usize)> = node
            .children
            .iter()
            .filter_map(|(bounds, child)| match child {
                WideChild::Node(child) => Some((bounds.half_area(), *child)),
                WideChild::Leaf(_) => None,
            })
            .collect();
        below.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, child) in &below {
            places[*child] = order.len() as u32;
            order.push(*child);
        }
        open.extend(below.iter().rev().map(|(_, child)| *child));
    }
    (order, places)
}

impl Packer<'_> {
    fn node(&mut self, wide: &WideNode, places: &[u32]) -> Result<Node, MeshError> {
        let around = wide.children.iter().fold(Bounds::EMPTY, |sum, (bounds, _)| sum.and(*bounds));
        let mut node = Node::zeroed();
        node.children = [NO_CHILD; WIDTH];
        for axis in 0..3 {
            // Rounding to 32 bits must not move the origin upwards.
            let origin = ((f64::from(around.lowest[axis]) - self.margin) as f32).next_down();
            let extent = f64::from(around.highest[axis]) + self.margin - f64::from(origin);
            let step = (extent / 255.0).log2().ceil().exp2();
            let step = if step * 255.0 < extent { step * 2.0 } else { step };
            node.origin[axis] = origin;
            node.step[axis] = step as f32;
            node.planes[axis][0] = [u8::MAX; WIDTH];
            for (child, (bounds, _)) in wide.children.iter().enumerate() {
                let low = (f64::from(bounds.lowest[axis]) - self.margin - f64::from(origin)) / step;
                let high = (f64::from(bounds.highest[axis]) + self.margin - f64::from(origin)) / step;
                node.planes[axis][0][child] = low.floor().clamp(0.0, 255.0) as u8;
                node.planes[axis][1][child] = high.ceil().clamp(0.0, 255.0) as u8;
            }
        }
        for (child, (_, below)) in wide.children.iter().enumerate() {
            node.children[child] = match below {
                WideChild::Node(index) => places[*index],
                WideChild::Leaf(triangles) => {
                    let layers = |triangle: &u32| self.mesh.layers_of(*triangle as usize).0;
                    node.layers[child] = triangles.iter().fold(0, |sum, triangle| sum | layers(triangle));
                    self.leaf(triangles)?
                }
            };
        }
        Ok(node)
    }

    fn leaf(&mut self, triangles: &[u32]) -> Result<u32, MeshError> {
        let first = self.blocks.len();
        for part in triangles.chunks(BLOCK_LANES) {
            let mut block = Block::zeroed();
            let mut sources = [u32::MAX; BLOCK_LANES];
            for (lane, triangle) in part.iter().enumerate() {
                sources[lane] = *triangle;
                block.layers[lane] = self.mesh.layers_of(*triangle as usize).0;
                for (corner, place) in self.mesh.corners(*triangle as usize).iter().enumerate() {
                    for axis in 0..3 {
                        block.corners[corner][axis][lane] = place[axis];
                    }
                }
            }
            self.blocks.push(block);
            self.sources.push(sources);
        }
        if self.blocks.len() > BLOCKS_MAX {
            return Err(MeshError::TooLarge);
        }
        Ok(Child::leaf(first, self.blocks.len() - first))
    }

    fn bytes(&self, nodes: &[Node], bounds: Bounds, layers: u16, depth: usize) -> Vec<u8> {
        let len = HEADER_BYTES + nodes.len() * NODE_BYTES + self.blocks.len() * (BLOCK_BYTES + SOURCES_BYTES);
        let len = len + self.mesh.marks.len() * MARK_BYTES;
        let mut header = Header {
            magic: MAGIC,
            version: VERSION,
            header_bytes: HEADER_BYTES as u32,
            file_bytes: len as u64,
            checksum: 0,
            node_count: nodes.len() as u32,
            block_count: self.blocks.len() as u32,
            triangle_count: self.mesh.triangles.len() as u32,
            layers,
            depth: depth as u16,
            lowest: bounds.lowest,
            highest: bounds.highest,
            mark_count: self.mesh.marks.len() as u32,
            cell_bytes: 0,
            zeros: [0; 12],
        };
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(bytes_of(&header));
        bytes.extend_from_slice(cast_slice(nodes));
        bytes.extend_from_slice(cast_slice(&self.blocks));
        bytes.extend_from_slice(cast_slice(&self.sources));
        for mark in &self.mesh.marks {
            let mut name = [0; NAME_BYTES_MAX];
            name[..mark.name.len()].copy_from_slice(mark.name.as_bytes());
            let [lowest, highest] = mark.bounds.map(|corner| corner.to_array());
            bytes.extend_from_slice(bytes_of(&MarkBytes { name, lowest, highest }));
        }
        header.checksum = checksum(&bytes);
        bytes[..HEADER_BYTES].copy_from_slice(bytes_of(&header));
        bytes
    }
}
