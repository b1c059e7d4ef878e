//! The bytes of a baked map, which are also its form in memory: a file can be mapped and used as it is.
//!
//! All numbers are little endian. Sizes and places are in bytes.
//!
//! ```text
//! header, 128 bytes
//!     0  8   "THRNGMAP"
//!     8  4   version of the format: 2
//!    12  4   length of this header: 128
//!    16  8   length of the file
//!    24  8   XXH3-64 (seed 0) of all bytes from 32 to the cells, or to the end: it names the map
//!    32  4   N, the number of nodes, at least 1
//!    36  4   B, the number of blocks, at least 1
//!    40  4   T, the number of triangles of the mesh that was baked
//!    44  2   layers: the union of the layers of all triangles
//!    46  2   depth of the tree: 1 if the root is the only node
//!    48  12  lowest corner of the map's bounds, three f32
//!    60  12  highest corner
//!    72  4   M, the number of marks
//!    76  4   V, the length of the cells; 0 without them
//!    80  48  zeros
//! nodes, N x 128 bytes, the root first, every node before its children
//!     0  12  origin: lowest corner of the node, three f32
//!    12  4   zeros
//!    16  12  step: a power of two for each axis, three f32
//!    28  4   zeros
//!    32  32  eight children: child[0] to child[7], u32. Those likelier to block a ray, at less cost, come later
//!              0xffff_ffff               no child
//!              bit 31 = 0                the number of a node
//!              bit 31 = 1                a leaf: bits 28 to 30 are the number of its blocks less one, bits 0 to 27 its
//!                                        first block
//!    64  48  for each axis x, y, z: eight u8 `low`, then eight u8 `high`, one for each child.
//!              The child's box reaches from origin + low * step to origin + high * step. It is larger than what it
//!              holds by the margin on each side: 2^-20 of the map's largest coordinate, at least 0.000,001
//!   112  16  eight u16: the union of the layers below each child
//! blocks, B x 160 bytes: four triangles each; unused ones are all zeros
//!     0  144 for each corner 0, 1, 2: for each axis x, y, z: four f32, one for each triangle
//!   144  8   layers of the four triangles, u16
//!   152  8   zeros
//! sources, B x 16 bytes
//!     0  16  for each triangle of the block: its number in the mesh that was baked; 0xffff_ffff for unused ones
//! marks, M x 64 bytes
//!     0  40  name: UTF-8, filled up with zeros
//!    40  12  lowest corner, three f32
//!    52  12  highest corner
//! cells, V bytes: which parts of the map can be seen from which, drawn in fog/cells.rs. They have a checksum of their own
//! ```
//!
//! The number of a triangle ([`TriangleId`](crate::TriangleId)) is 4 x block + its place in the block.

use bytemuck::{Pod, Zeroable};

pub(crate) const MAGIC: [u8; 8] = *b"THRNGMAP";
pub(crate) const VERSION: u32 = 2;
pub(crate) const WIDTH: usize = 8;
pub(crate) const BLOCK_LANES: usize = 4;
/// The deepest tree that is accepted: queries keep a stack of this many levels.
pub(crate) const DEPTH_MAX: u16 = 36;
pub(crate) const BLOCKS_MAX: usize = (1 << 28) - 1;
pub(crate) const LEAF_BLOCKS_MAX: usize = 8;
/// The longest name of a mark, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 40;
/// Boxes are larger than what they hold by this part of the map's largest coordinate on each side: more than rounding can
/// move a ray that begins within a few times that distance.
const MARGIN: f32 = 1.0 / 1_048_576.0;
const MARGIN_MIN_M: f32 = 1e-6;

/// The margin of a map with these corners.
pub(crate) fn margin_m(lowest: [f32; 3], highest: [f32; 3]) -> f32 {
    let size = lowest.iter().chain(&highest).fold(0.0, |size: f32, place| size.max(place.abs()));
    (size * MARGIN).max(MARGIN_MIN_M)
}

/// Where the bytes begin that the checksum covers.
pub(crate) const CHECKED_FROM: usize = 32;

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
    pub(crate) header_bytes: u32,
    pub(crate) file_bytes: u64,
    pub(crate) checksum: u64,
    pub(crate) node_count: u32,
    pub(crate) block_count: u32,
    pub(crate) triangle_count: u32,
    pub(crate) layers: u16,
    pub(crate) depth: u16,
    pub(crate) lowest: [f32; 3],
    pub(crate) highest: [f32; 3],
    pub(crate) mark_count: u32,
    pub(crate) cell_bytes: u32,
    pub(crate) zeros: [u32; 12],
}

/// Eight children with their boxes, in two cache lines.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Node {
    /// The fourth number is zero, so that four can be read at once.
    pub(crate) origin: [f32; 4],
    pub(crate) step: [f32; 4],
    pub(crate) children: [u32; WIDTH],
    /// For each axis: low, high.
    pub(crate) planes: [[[u8; WIDTH]; 2]; 3],
    pub(crate) layers: [u16; WIDTH],
}

/// Four triangles, axis by axis.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(32))]
pub(crate) struct Block {
    /// For each corner, for each axis.
    pub(crate) corners: [[[f32; BLOCK_LANES]; 3]; 3],
    pub(crate) layers: [u16; BLOCK_LANES],
    pub(crate) zeros: [u32; 2],
}

/// A named box.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct MarkBytes {
    pub(crate) name: [u8; NAME_BYTES_MAX],
    pub(crate) lowest: [f32; 3],
    pub(crate) highest: [f32; 3],
}

impl MarkBytes {
    /// None if the bytes are not text, or go on after a zero.
    pub(crate) fn name(&self) -> Option<&str> {
        let len = self.name.iter().position(|byte| *byte == 0).unwrap_or(self.name.len());
        let (name, rest) = self.name.split_at(len);
        if rest.iter().any(|byte| *byte != 0) { None } else { std::str::from_utf8(name).ok() }
    }
}

/// A child of a node as its number says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    None,
    Node(u32),
    Leaf { first: u32, count: u32 },
}

pub(crate) const NO_CHILD: u32 = u32::MAX;
pub(crate) const LEAF: u32 = 1 << 31;
pub(crate) const FIRST: u32 = (1 << 28) - 1;

impl Child {
    #[inline(always)]
    pub(crate) fn of(number: u32) -> Child {
        if number & LEAF == 0 {
            Child::Node(number)
        } else if number == NO_CHILD {
            Child::None
        } else {
            Child::Leaf { first: number & FIRST, count: (number >> 28 & 7) + 1 }
        }
    }

    /// The number of a leaf. Eight blocks from the last possible one would read as no child: [`BLOCKS_MAX`] prevents it.
    pub(crate) fn leaf(first: usize, count: usize) -> u32 {
        debug_assert!(first < BLOCKS_MAX && (1..=LEAF_BLOCKS_MAX).contains(&count));
        LEAF | (count as u32 - 1) << 28 | first as u32
    }
}

pub(crate) const HEADER_BYTES: usize = size_of::<Header>();
pub(crate) const NODE_BYTES: usize = size_of::<Node>();
pub(crate) const BLOCK_BYTES: usize = size_of::<Block>();
pub(crate) const MARK_BYTES: usize = size_of::<MarkBytes>();
pub(crate) const SOURCES_BYTES: usize = 4 * BLOCK_LANES;

const _: () = assert!(HEADER_BYTES == 128 && NODE_BYTES == 128 && BLOCK_BYTES == 160 && MARK_BYTES == 64);
const _: () = assert!(cfg!(target_endian = "little"), "maps are used as they lie in the file: little endian");

pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&bytes[CHECKED_FROM..])
}
