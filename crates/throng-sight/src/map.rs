//! A baked map: bytes that were checked once, and the queries on them.

use std::sync::Arc;

use bytemuck::{Zeroable, try_cast_slice};
use glam::Vec3;

use crate::fog::{CellError, CellVisibility, cells};
use crate::format::{
    BLOCK_BYTES, BLOCK_LANES, BLOCKS_MAX, Block, Child, DEPTH_MAX, FIRST, HEADER_BYTES, Header, LEAF, MAGIC,
    MARK_BYTES, MarkBytes, NODE_BYTES, Node, SOURCES_BYTES, VERSION, checksum, margin_m,
};
use crate::lanes::Processor;
use crate::ray::{COORDINATE_MAX_M, Layers, TriangleId};

/// Bytes that a map lies in: a file in memory, or what the bake made. They must not change while the map lives.
pub type MapBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A baked map, ready for queries.
///
/// A clone shares the bytes, and so may any number of threads, matches, and, if the bytes are a mapped file, processes.
/// Nothing in a map changes, and no query allocates.
#[derive(Clone)]
pub struct Map {
    bytes: MapBytes,
    header: Header,
    margin: f32,
    pub(crate) processor: Processor,
}

/// A place with a name, for example where a team begins. The game gives it a meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark<'a> {
    /// Its name. Several places can have the same one.
    pub name: &'a str,
    /// Lowest and highest corner of its box; the same twice for a point.
    pub bounds: [Vec3; 2],
}

/// Why bytes are not a map that can be used. The file is at fault, except for [`MapError::Misaligned`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The bytes do not begin as a map does.
    #[error("this is not a baked map: make one with `throng bake`")]
    NotAMap,
    /// The map was baked by another version.
    #[error("the map has format {found}, and this program reads format {VERSION}: bake the map again")]
    OtherVersion {
        /// The version that the bytes name.
        found: u32,
    },
    /// The length is not what the head says.
    #[error("the map has {found} bytes instead of {expected}: it was cut short or added to, so copy or bake it again")]
    WrongLength {
        /// The length that the head says, or that its counts need.
        expected: u64,
        /// The length of the bytes.
        found: u64,
    },
    /// The checksum does not fit the bytes.
    #[error("the map is damaged: its checksum is {found:016x} instead of {expected:016x}; copy or bake it again")]
    Damaged {
        /// The checksum that the head says.
        expected: u64,
        /// The checksum of the bytes.
        found: u64,
    },
    /// The checksum fits, but a part breaks the rules of the format: the program that wrote the map is at fault.
    #[error("the map breaks its format: {what} {index}; bake it again")]
    Broken {
        /// The part and its fault.
        what: &'static str,
        /// The number of the part.
        index: usize,
    },
    /// The bytes do not begin at a multiple of 64. The caller has to lay them out so.
    #[error("the bytes of a map have to begin at a multiple of 64 in memory: map the file, or use `aligned`")]
    Misaligned,
    /// The visible cells in the file are damaged, or belong to another map.
    #[error("{cause}")]
    Cells {
        /// Their fault.
        cause: CellError,
    },
}

impl MapError {
    /// A stable name for metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            MapError::NotAMap => "map_not_a_map",
            MapError::OtherVersion { .. } => "map_other_version",
            MapError::WrongLength { .. } => "map_wrong_length",
            MapError::Damaged { .. } => "map_damaged",
            MapError::Broken { .. } => "map_broken",
            MapError::Misaligned => "map_misaligned",
            MapError::Cells { cause } => cause.tag(),
        }
    }
}

/// The parts of a map that queries read.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) nodes: &'a [Node],
    pub(crate) blocks: &'a [Block],
    pub(crate) margin: f32,
    /// Nodes, then blocks.
    bytes: &'a [u8],
    blocks_at: usize,
}

impl Parts<'_> {
    /// Begins to fetch what a child refers to, so that it is there when it is needed.
    #[inline(always)]
    pub(crate) fn prefetch(&self, child: u32) {
        #[cfg(target_arch = "x86_64")]
        {
            let node = child as usize * NODE_BYTES;
            let block = self.blocks_at + (child & FIRST) as usize * BLOCK_BYTES;
            let at = if child & LEAF == 0 { node } else { block };
            if let Some(bytes) = self.bytes.get(at..at + NODE_BYTES) {
                safe_arch::prefetch_t0(&bytes[0]);
                safe_arch::prefetch_t0(&bytes[64]);
                safe_arch::prefetch_t0(&bytes[127]);
            }
        }
    }
}

impl Map {
    /// Checks `bytes` and makes them usable. Reads all of them, and allocates two bytes for each node.
    ///
    /// # Errors
    /// If the bytes are not a whole, undamaged map of this version. No bytes make this function or a later query panic,
    /// read elsewhere, or run without end.
    pub fn new(bytes: MapBytes) -> Result<Map, MapError> {
        let header = check((*bytes).as_ref())?;
        let margin = margin_m(header.lowest, header.highest);
        Ok(Map { bytes, header, margin, processor: Processor::best() })
    }

    /// The same map for another processor: [`Processor::available`] lists those that work here. Answers are the same bit
    /// for bit.
    pub fn with_processor(self, processor: Processor) -> Map {
        Map { processor, ..self }
    }

    /// The instructions that queries use.
    pub fn processor(&self) -> Processor {
        self.processor
    }

    /// The number of triangles of the mesh that was baked.
    pub fn triangle_count(&self) -> u32 {
        self.header.triangle_count
    }

    /// The corners of the box around all triangles.
    pub fn bounds(&self) -> [Vec3; 2] {
        [self.header.lowest, self.header.highest].map(Vec3::from_array)
    }

    /// The union of the layers of all triangles.
    pub fn layers(&self) -> Layers {
        Layers(self.header.layers)
    }

    /// The number of levels of the tree.
    pub fn depth(&self) -> u16 {
        self.header.depth
    }

    /// Tells maps apart: two maps with the same checksum are the same map, and have the same cells.
    pub fn checksum(&self) -> u64 {
        match self.cells() {
            // The checksum of the head leaves the cells out, and names their length alone.
            Some(cells) => xxhash_rust::xxh3::xxh3_64_with_seed(&cells.checksum().to_le_bytes(), self.header.checksum),
            None => self.header.checksum,
        }
    }

    /// The checksum in the head, by which cells name the map that they belong to.
    pub(crate) fn head_checksum(&self) -> u64 {
        self.header.checksum
    }

    /// The same map with visible cells, which its file holds too. They replace those that it had.
    ///
    /// # Errors
    /// If the cells were baked for another map.
    pub fn with_cells(&self, cells: &CellVisibility) -> Result<Map, CellError> {
        let cell_bytes = cells.as_bytes().len();
        let mut bytes = self.as_bytes()[..self.cells_at()].to_vec();
        let mut header =
            Header { file_bytes: (bytes.len() + cell_bytes) as u64, cell_bytes: cell_bytes as u32, ..self.header };
        bytes[..HEADER_BYTES].copy_from_slice(bytemuck::bytes_of(&header));
        header.checksum = checksum(&bytes);
        bytes[..HEADER_BYTES].copy_from_slice(bytemuck::bytes_of(&header));
        bytes.extend(cells.bytes_for(self.head_checksum(), header.checksum)?);
        let map = Map::new(aligned(&bytes)).expect("the bake keeps its own format");
        Ok(map.with_processor(self.processor))
    }

    /// The visible cells of the map's file, if it has any.
    pub fn cells(&self) -> Option<CellVisibility> {
        (self.header.cell_bytes > 0).then(|| CellVisibility::within(&self.bytes, self.cells_at()).ok()).flatten()
    }

    fn cells_at(&self) -> usize {
        self.header.file_bytes as usize - self.header.cell_bytes as usize
    }

    /// The bytes of the map: the content of its file.
    pub fn as_bytes(&self) -> &[u8] {
        (*self.bytes).as_ref()
    }

    /// The corners of a triangle, if there is one of this number.
    pub fn corners(&self, triangle: TriangleId) -> Option<[Vec3; 3]> {
        self.source(triangle)?;
        let block = self.parts().blocks.get(triangle.0 as usize / BLOCK_LANES)?;
        Some(block.triangle(triangle.0 as usize % BLOCK_LANES))
    }

    /// The number that a triangle had in the mesh that was baked. A large triangle can have several numbers in the map,
    /// all with the same source.
    pub fn source(&self, triangle: TriangleId) -> Option<u32> {
        sections(&self.header, self.as_bytes())?
            .sources
            .get(triangle.0 as usize)
            .copied()
            .filter(|source| *source != u32::MAX)
    }

    /// The unit vector that stands on a triangle, on the side of its front: from there, the corners go counter-clockwise.
    pub fn normal(&self, triangle: TriangleId) -> Option<Vec3> {
        let [a, b, c] = self.corners(triangle)?.map(|corner| corner.as_dvec3());
        (b - a).cross(c - a).try_normalize().map(|normal| normal.as_vec3())
    }

    /// The normal of a triangle on that side from which a ray in `direction` comes.
    pub fn normal_against(&self, triangle: TriangleId, direction: Vec3) -> Option<Vec3> {
        let normal = self.normal(triangle)?;
        Some(if normal.dot(direction) > 0.0 { -normal } else { normal })
    }

    /// The layers of a triangle, if there is one of this number.
    pub fn layers_of(&self, triangle: TriangleId) -> Option<Layers> {
        self.source(triangle)?;
        let block = self.parts().blocks.get(triangle.0 as usize / BLOCK_LANES)?;
        Some(Layers(block.layers[triangle.0 as usize % BLOCK_LANES]))
    }

    /// All triangles, in the order of their numbers.
    pub fn triangles(&self) -> impl Iterator<Item = TriangleId> + '_ {
        let count = (self.header.block_count as usize * BLOCK_LANES) as u32;
        (0..count).map(TriangleId).filter(|triangle| self.source(*triangle).is_some())
    }

    /// The named places of the map, in the order in which they were baked.
    pub fn marks(&self) -> impl Iterator<Item = Mark<'_>> {
        let marks = sections(&self.header, self.as_bytes()).map_or(&[][..], |sections| sections.marks);
        marks.iter().filter_map(|mark| {
            Some(Mark { name: mark.name()?, bounds: [mark.lowest, mark.highest].map(Vec3::from_array) })
        })
    }

    /// Empty if the bytes changed their length since they were checked.
    #[inline]
    pub(crate) fn parts(&self) -> Parts<'_> {
        let bytes = self.as_bytes();
        let blocks_at = HEADER_BYTES + self.header.node_count as usize * NODE_BYTES;
        let sources_at = blocks_at + self.header.block_count as usize * BLOCK_BYTES;
        let both = bytes.get(HEADER_BYTES..sources_at).unwrap_or_default();
        let nodes = bytes.get(HEADER_BYTES..blocks_at).and_then(|nodes| try_cast_slice(nodes).ok());
        let blocks = bytes.get(blocks_at..sources_at).and_then(|blocks| try_cast_slice(blocks).ok());
        Parts {
            nodes: nodes.unwrap_or_default(),
            blocks: blocks.unwrap_or_default(),
            margin: self.margin,
            bytes: both,
            blocks_at: blocks_at - HEADER_BYTES,
        }
    }
}

impl std::fmt::Debug for Map {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Map")
            .field("triangles", &self.triangle_count())
            .field("nodes", &self.header.node_count)
            .field("blocks", &self.header.block_count)
            .field("depth", &self.depth())
            .field("bounds", &self.bounds())
            .field("checksum", &format_args!("{:016x}", self.checksum()))
            .finish_non_exhaustive()
    }
}

impl Block {
    pub(crate) fn triangle(&self, lane: usize) -> [Vec3; 3] {
        self.corners.map(|corner| Vec3::from_array(corner.map(|axis| axis[lane])))
    }
}

struct Sections<'a> {
    nodes: &'a [Node],
    blocks: &'a [Block],
    sources: &'a [u32],
    marks: &'a [MarkBytes],
}

/// The three parts after the head. The counts of a checked head fit the length, so nothing here overflows.
#[inline]
fn sections<'a>(header: &Header, bytes: &'a [u8]) -> Option<Sections<'a>> {
    let blocks_at = HEADER_BYTES + header.node_count as usize * NODE_BYTES;
    let sources_at = blocks_at + header.block_count as usize * BLOCK_BYTES;
    let marks_at = sources_at + header.block_count as usize * SOURCES_BYTES;
    let nodes = try_cast_slice(bytes.get(HEADER_BYTES..blocks_at)?).ok()?;
    let blocks = try_cast_slice(bytes.get(blocks_at..sources_at)?).ok()?;
    let sources = try_cast_slice(bytes.get(sources_at..marks_at)?).ok()?;
    let cells_at = marks_at + header.mark_count as usize * MARK_BYTES;
    let marks = try_cast_slice(bytes.get(marks_at..cells_at)?).ok()?;
    Some(Sections { nodes, blocks, sources, marks })
}

fn check(bytes: &[u8]) -> Result<Header, MapError> {
    let header = check_header(bytes)?;
    if !bytes.as_ptr().addr().is_multiple_of(64) {
        return Err(MapError::Misaligned);
    }
    let Sections { nodes, blocks, sources, marks } = sections(&header, bytes).ok_or(MapError::Misaligned)?;
    check_nodes(nodes, &header)?;
    check_blocks(blocks)?;
    check_marks(marks)?;
    if header.cell_bytes > 0 {
        let cells = &bytes[bytes.len() - header.cell_bytes as usize..];
        cells::check_for(cells, header.checksum).map_err(|cause| MapError::Cells { cause })?;
    }
    let unknown = sources.iter().position(|source| *source >= header.triangle_count && *source != u32::MAX);
    match unknown {
        Some(index) => Err(MapError::Broken { what: "unknown source of triangle", index }),
        None => Ok(header),
    }
}

fn check_header(bytes: &[u8]) -> Result<Header, MapError> {
    let found = bytes.len() as u64;
    if !bytes.starts_with(&MAGIC) {
        return Err(MapError::NotAMap);
    }
    let mut header = Header::zeroed();
    let Some(head) = bytes.get(..HEADER_BYTES) else {
        return Err(MapError::WrongLength { expected: HEADER_BYTES as u64, found });
    };
    bytemuck::bytes_of_mut(&mut header).copy_from_slice(head);
    if header.version != VERSION || header.header_bytes as usize != HEADER_BYTES {
        return Err(MapError::OtherVersion { found: header.version });
    }
    if header.file_bytes != found {
        return Err(MapError::WrongLength { expected: header.file_bytes, found });
    }
    let expected = HEADER_BYTES as u64
        + u64::from(header.node_count) * NODE_BYTES as u64
        + u64::from(header.block_count) * (BLOCK_BYTES + SOURCES_BYTES) as u64
        + u64::from(header.mark_count) * MARK_BYTES as u64
        + u64::from(header.cell_bytes);
    if expected != found {
        return Err(MapError::WrongLength { expected, found });
    }
    let sum = checksum(&bytes[..bytes.len() - header.cell_bytes as usize]);
    if sum != header.checksum {
        return Err(MapError::Damaged { expected: header.checksum, found: sum });
    }
    let bounds_are_numbers = header.lowest.iter().chain(&header.highest).all(|bound| bound.abs() <= COORDINATE_MAX_M);
    let faults = [
        (header.node_count == 0, "number of nodes"),
        (header.block_count == 0 || header.block_count as usize > BLOCKS_MAX, "number of blocks"),
        (header.depth == 0 || header.depth > DEPTH_MAX, "depth"),
        (!bounds_are_numbers, "bounds"),
        (header.zeros != [0; 12], "reserved bytes of the head"),
    ];
    match faults.iter().find(|(is_fault, _)| *is_fault) {
        Some((_, what)) => Err(MapError::Broken { what, index: 0 }),
        None => Ok(header),
    }
}

/// Every node but the root has exactly one parent, which comes before it: so the nodes are a tree, and every walk down
/// ends.
fn check_nodes(nodes: &[Node], header: &Header) -> Result<(), MapError> {
    let mut depths = vec![0_u16; nodes.len()];
    depths[0] = 1;
    let mut deepest = 1;
    for (index, node) in nodes.iter().enumerate() {
        let broken = |what| Err(MapError::Broken { what, index });
        let is_number = |place: &f32| place.abs() <= 2.0 * COORDINATE_MAX_M;
        let is_power =
            |step: &f32| step.is_normal() && *step > 0.0 && *step <= COORDINATE_MAX_M && step.to_bits() << 9 == 0;
        if !node.origin.iter().all(is_number) || node.origin[3].to_bits() != 0 {
            return broken("origin of node");
        }
        if !node.step[..3].iter().all(is_power) || node.step[3].to_bits() != 0 {
            return broken("step of node");
        }
        let depth = depths[index];
        if depth == 0 {
            return broken("no parent of node");
        }
        for child in node.children {
            match Child::of(child) {
                Child::None => {}
                Child::Leaf { first, count } => {
                    if first + count > header.block_count {
                        return broken("leaf beyond the blocks in node");
                    }
                }
                Child::Node(child) => {
                    let child = child as usize;
                    if child <= index || child >= nodes.len() || depths[child] != 0 {
                        return broken("child out of order in node");
                    }
                    depths[child] = depth + 1;
                    deepest = deepest.max(depth + 1);
                    if deepest > header.depth {
                        return broken("depth of node");
                    }
                }
            }
        }
    }
    if deepest == header.depth { Ok(()) } else { Err(MapError::Broken { what: "depth", index: 0 }) }
}

fn check_blocks(blocks: &[Block]) -> Result<(), MapError> {
    let is_number =
        |block: &Block| block.corners.as_flattened().as_flattened().iter().all(|c| c.abs() <= COORDINATE_MAX_M);
    match blocks.iter().position(|block| !is_number(block)) {
        Some(index) => Err(MapError::Broken { what: "corner of block", index }),
        None => Ok(()),
    }
}

fn check_marks(marks: &[MarkBytes]) -> Result<(), MapError> {
    let is_fine = |mark: &MarkBytes| {
        let bounds_are_numbers = mark.lowest.iter().chain(&mark.highest).all(|place| place.abs() <= COORDINATE_MAX_M);
        bounds_are_numbers && mark.name().is_some()
    };
    match marks.iter().position(|mark| !is_fine(mark)) {
        Some(index) => Err(MapError::Broken { what: "mark", index }),
        None => Ok(()),
    }
}

/// Memory that begins at a multiple of 64, as [`Map::new`] needs it.
#[derive(Clone)]
struct Aligned {
    lines: Vec<Line>,
    len: usize,
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(128))]
struct Line([u8; 128]);

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.lines).get(..self.len).unwrap_or_default()
    }
}

/// Copies bytes to memory that begins at a multiple of 64: for maps that come from elsewhere than a mapped file.
pub fn aligned(bytes: &[u8]) -> MapBytes {
    let mut lines = vec![Line::zeroed(); bytes.len().div_ceil(128)];
    bytemuck::cast_slice_mut::<Line, u8>(&mut lines)[..bytes.len()].copy_from_slice(bytes);
    Arc::new(Aligned { lines, len: bytes.len() })
}
