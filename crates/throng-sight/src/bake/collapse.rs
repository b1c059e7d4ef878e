//! From two children per node to eight, at the least expected cost of a ray.
//!
//! The expected cost of a part of the tree is its surface times what is done there (the surface area heuristic). For each
//! part, and for each number of roots from one to eight, the cheapest cut is found from those of its two children: as in
//! Ylitie, Karras and Laine, "Efficient Incoherent Ray Traversal on GPUs Through Compressed Wide BVHs", HPG 2017.

use super::{Binary, BinaryKind, Bounds};
use crate::format::{BLOCK_LANES, LEAF_BLOCKS_MAX, WIDTH};
use crate::mesh::MeshError;

/// The cost of testing a block of triangles; a node costs one.
const BLOCK_COST: f32 = 0.6;
/// The most triangles in a leaf.
const LEAF_MAX: u32 = (2 * BLOCK_LANES) as u32;
const _: () = assert!(LEAF_MAX as usize <= LEAF_BLOCKS_MAX * BLOCK_LANES);

/// The cost of testing so many triangles; a node costs one.
pub(super) fn leaf_cost(triangles: u32) -> f32 {
    triangles.div_ceil(BLOCK_LANES as u32) as f32 * BLOCK_COST
}

/// A tree with at most eight children per node. The root is the first node, children come after their parents.
pub(super) struct Wide {
    pub(super) nodes: Vec<WideNode>,
    pub(super) depth: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct WideNode {
    pub(super) children: Vec<(Bounds, WideChild)>,
}

#[derive(Clone, Debug)]
pub(super) enum WideChild {
    Node(usize),
    /// Triangles of the mesh.
    Leaf(Vec<u32>),
}

/// How a part of the binary tree is cut into at most so many roots.
#[derive(Clone, Copy)]
struct Cut {
    cost: f32,
    /// How many of the roots are left; 0: as with one root less. With one root: 0 a leaf, 1 a node.
    left: u8,
}

struct Cuts<'a> {
    binary: &'a Binary,
    /// For each binary node the cheapest cuts into 1 to 8 roots.
    cuts: Vec<[Cut; WIDTH]>,
    /// For each binary node how many of eight places its left child takes.
    shares: Vec<u8>,
    counts: Vec<u32>,
}

pub(super) fn collapse(binary: &Binary) -> Result<Wide, MeshError> {
    let cuts = Cuts::new(binary);
    let mut nodes = vec![WideNode::default()];
    let mut depth = 1;
    // Each wide node, the binary node that it stands for, and its level.
    let mut open = vec![(0, 0_usize, 1)];
    while let Some((index, part, level)) = open.pop() {
        depth = depth.max(level);
        let mut roots = Vec::with_capacity(WIDTH);
        match binary.nodes[part].kind {
            BinaryKind::Triangle(_) => roots.push(part),
            BinaryKind::Inner(left) => {
                let share = usize::from(cuts.shares[part]);
                cuts.roots(left as usize, share, &mut roots);
                cuts.roots(left as usize + 1, WIDTH - share, &mut roots);
            }
        }
        let mut children = Vec::with_capacity(roots.len());
        for root in roots {
            let bounds = binary.nodes[root].bounds;
            if cuts.cuts[root][0].left == 0 {
                children.push((bounds, WideChild::Leaf(triangles_below(binary, root))));
            } else {
                children.push((bounds, WideChild::Node(nodes.len())));
                open.push((nodes.len(), root, level + 1));
                nodes.push(WideNode::default());
            }
        }
        nodes[index].children = children;
    }
    if nodes.len() >= 1 << 31 { Err(MeshError::TooLarge) } else { Ok(Wide { nodes, depth }) }
}

impl Cuts<'_> {
    fn new(binary: &Binary) -> Cuts<'_> {
        let count = binary.nodes.len();
        let none = [Cut { cost: f32::INFINITY, left: 0 }; WIDTH];
        let mut cuts = Cuts { binary, cuts: vec![none; count], shares: vec![0; count], counts: vec![0; count] };
        for node in children_first(binary) {
            cuts.find(node);
        }
        cuts
    }

    fn find(&mut self, node: usize) {
        let area = self.binary.nodes[node].bounds.half_area();
        let leaf_cost = |count: u32| area * leaf_cost(count);
        let BinaryKind::Inner(left) = self.binary.nodes[node].kind else {
            self.counts[node] = 1;
            self.cuts[node] = [Cut { cost: leaf_cost(1), left: 0 }; WIDTH];
            return;
        };
        let (left, right) = (left as usize, left as usize + 1);
        self.counts[node] = self.counts[left].saturating_add(self.counts[right]);
        let shared = |places: usize| {
            let cost = |share: usize| self.cuts[left][share - 1].cost + self.cuts[right][places - share - 1].cost;
            let best = (1..places).min_by(|a, b| cost(*a).total_cmp(&cost(*b))).unwrap_or(1);
            Cut { cost: cost(best), left: best as u8 }
        };
        let whole = shared(WIDTH);
        let mut best = [Cut { cost: area + whole.cost, left: 1 }; WIDTH];
        let count = self.counts[node];
        if count <= LEAF_MAX && leaf_cost(count) <= best[0].cost {
            best[0] = Cut { cost: leaf_cost(count), left: 0 };
        }
        for places in 2..=WIDTH {
            let cut = if places == WIDTH { whole } else { shared(places) };
            let fewer = Cut { cost: best[places - 2].cost, left: 0 };
            best[places - 1] = if cut.cost < fewer.cost { cut } else { fewer };
        }
        self.shares[node] = whole.left;
        self.cuts[node] = best;
    }

    /// The parts into which `node` is cut if it may have `places` roots.
    fn roots(&self, node: usize, mut places: usize, roots: &mut Vec<usize>) {
        while places > 1 && self.cuts[node][places - 1].left == 0 {
            places -= 1;
        }
        match self.binary.nodes[node].kind {
            BinaryKind::Inner(left) if places > 1 => {
                let share = usize::from(self.cuts[node][places - 1].left);
                self.roots(left as usize, share, roots);
                self.roots(left as usize + 1, places - share, roots);
            }
            _ => roots.push(node),
        }
    }
}

fn children_first(binary: &Binary) -> Vec<usize> {
    let mut order = Vec::with_capacity(binary.nodes.len());
    let mut open = vec![0];
    while let Some(node) = open.pop() {
        order.push(node);
        if let BinaryKind::Inner(left) = binary.nodes[node].kind {
            open.extend([left as usize, left as usize + 1]);
        }
    }
    order.reverse();
    order
}

/// Each once, although the builder may have cut large ones into several parts.
fn triangles_below(binary: &Binary, node: usize) -> Vec<u32> {
    let mut found = Vec::new();
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        match binary.nodes[node].kind {
            BinaryKind::Inner(left) => open.extend([left as usize + 1, left as usize]),
            BinaryKind::Triangle(triangle) if !found.contains(&triangle) => found.push(triangle),
            BinaryKind::Triangle(_) => {}
        }
    }
    found
}
