//! A tree that halves its triangles at every node: for meshes whose optimised tree would be too deep.

use super::{Binary, BinaryKind, BinaryNode, Bounds};
use crate::mesh::Mesh;

pub(super) fn build(mesh: &Mesh) -> Binary {
    let bounds: Vec<Bounds> = (0..mesh.triangles.len()).map(|triangle| Bounds::of(&mesh.corners(triangle))).collect();
    let mut order: Vec<u32> = (0..bounds.len() as u32).collect();
    let mut nodes = vec![BinaryNode { bounds: Bounds::EMPTY, kind: BinaryKind::Triangle(0) }];
    let mut open = vec![(0, 0, order.len())];
    while let Some((node, from, to)) = open.pop() {
        let part = &mut order[from..to];
        let around = part.iter().fold(Bounds::EMPTY, |sum, triangle| sum.and(bounds[*triangle as usize]));
        nodes[node].bounds = around;
        if let [triangle] = part {
            nodes[node].kind = BinaryKind::Triangle(*triangle);
            continue;
        }
        let extent = |axis: &usize| around.highest[*axis] - around.lowest[*axis];
        let axis = [0, 1, 2].into_iter().max_by(|a, b| extent(a).total_cmp(&extent(b))).unwrap_or(0);
        let twice_middle = |triangle: u32| {
            let bounds = bounds[triangle as usize];
            bounds.lowest[axis] + bounds.highest[axis]
        };
        let middle = part.len() / 2;
        part.select_nth_unstable_by(middle, |a, b| {
            twice_middle(*a).total_cmp(&twice_middle(*b)).then_with(|| a.cmp(b))
        });
        let left = nodes.len();
        nodes[node].kind = BinaryKind::Inner(left as u32);
        for _ in 0..2 {
            nodes.push(BinaryNode { bounds: Bounds::EMPTY, kind: BinaryKind::Triangle(0) });
        }
        open.push((left, from, from + middle));
        open.push((left + 1, from + middle, to));
    }
    Binary { nodes }
}
