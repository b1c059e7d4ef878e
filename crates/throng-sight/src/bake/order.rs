//! The order of the children of a node: best last, for a ray that any triangle may block.
//!
//! Such a ray is over with its first hit, so it should go first where it is likely to be blocked at little cost. A random ray
//! that meets a box is blocked by a triangle in it with the odds of twice the triangle's area by the box's surface (Cauchy).
//! From these, bottom up: the odds that a part blocks a ray that meets it, and what it costs to find out. Visiting children in
//! the order of odds by cost has the least expected cost. Compare Nah and Manocha, "SATO: Surface Area Traversal Order for
//! Shadow Ray Tracing", CGF 2014.

use super::Bounds;
use super::collapse::{Wide, WideChild, leaf_cost};
use crate::mesh::Mesh;

/// The fate of a ray that meets the box of a part.
#[derive(Clone, Copy, Default)]
struct Fate {
    /// The probability that a triangle of the part blocks it.
    blocked: f32,
    /// The expected cost until it is known, where the test of a node costs one.
    cost: f32,
}

impl Fate {
    fn of_leaf(mesh: &Mesh, triangles: &[u32], bounds: &Bounds) -> Fate {
        let area = |triangle: &u32| {
            let [a, b, c] = mesh.corners(*triangle as usize);
            0.5 * (b - a).cross(c - a).length()
        };
        let area: f32 = triangles.iter().map(area).sum();
        Fate { blocked: (area / bounds.half_area()).min(1.0), cost: leaf_cost(triangles.len() as u32) }
    }

    /// The same for a ray that meets a larger box around the part, which it misses in part of the cases.
    fn within(self, bounds: &Bounds, around: &Bounds) -> Fate {
        let share = (bounds.half_area() / around.half_area()).min(1.0);
        Fate { blocked: share * self.blocked, cost: share * self.cost }
    }

    fn merit(self) -> f32 {
        self.blocked / self.cost
    }
}

/// Sorts the children of each node.
pub(super) fn sort_children(tree: &mut Wide, mesh: &Mesh) {
    let mut fates = vec![Fate::default(); tree.nodes.len()];
    // Children come after their parents.
    for (index, node) in tree.nodes.iter_mut().enumerate().rev() {
        let around = node.children.iter().fold(Bounds::EMPTY, |sum, (bounds, _)| sum.and(*bounds));
        let mut children: Vec<_> = std::mem::take(&mut node.children)
            .into_iter()
            .map(|(bounds, child)| {
                let fate = match &child {
                    WideChild::Node(below) => fates[*below],
                    WideChild::Leaf(triangles) => Fate::of_leaf(mesh, triangles, &bounds),
                };
                (fate.within(&bounds, &around), (bounds, child))
            })
            .collect();
        children.sort_by(|a, b| a.0.merit().total_cmp(&b.0.merit()));
        let (mut open, mut cost) = (1.0, 1.0);
        for (fate, _) in children.iter().rev() {
            cost += open * fate.cost;
            open *= 1.0 - fate.blocked;
        }
        fates[index] = Fate { blocked: 1.0 - open, cost };
        node.children = children.into_iter().map(|(_, child)| child).collect();
    }
}
