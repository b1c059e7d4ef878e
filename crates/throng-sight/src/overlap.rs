//! Triangles near a place, for collision.

use glam::Vec3;

use crate::format::{BLOCK_LANES, Child, DEPTH_MAX, Node, WIDTH};
use crate::map::Map;
use crate::ray::{Layers, TriangleId};

const STACK: usize = DEPTH_MAX as usize * (WIDTH - 1) + 1;

impl Map {
    /// Calls `visit` with the number and the corners of every triangle of `layers` whose box touches the box from
    /// `lowest` to `highest`: always in the same order for the same map, on every processor. A large triangle can come
    /// more than once, under several numbers. Does not allocate.
    ///
    /// A box that is not one (a corner that is no number, a lowest corner above the highest) touches nothing.
    pub fn for_each_triangle_in(
        &self,
        lowest: Vec3,
        highest: Vec3,
        layers: Layers,
        mut visit: impl FnMut(TriangleId, [Vec3; 3]),
    ) {
        if !lowest.cmple(highest).all() {
            return;
        }
        let parts = self.parts();
        let mut stack = [0_u32; STACK];
        let mut height = 1;
        while height > 0 {
            height -= 1;
            match Child::of(stack[height]) {
                Child::None => {}
                Child::Node(index) => {
                    let Some(node) = parts.nodes.get(index as usize) else { continue };
                    // The last child first onto the stack, so that the first one is visited first.
                    for child in (0..WIDTH).rev() {
                        if node.layers[child] & layers.0 != 0 && touches(node, child, lowest, highest) {
                            stack[height] = node.children[child];
                            height += 1;
                        }
                    }
                }
                Child::Leaf { first, count } => {
                    for number in first * BLOCK_LANES as u32..(first + count) * BLOCK_LANES as u32 {
                        let (block, lane) = (number as usize / BLOCK_LANES, number as usize % BLOCK_LANES);
                        let Some(block) = parts.blocks.get(block) else { break };
                        if block.layers[lane] & layers.0 == 0 {
                            continue;
                        }
                        let corners = block.triangle(lane);
                        let low = corners[0].min(corners[1]).min(corners[2]);
                        let high = corners[0].max(corners[1]).max(corners[2]);
                        if low.cmple(highest).all() && lowest.cmple(high).all() {
                            visit(TriangleId(number), corners);
                        }
                    }
                }
            }
        }
    }
}

fn touches(node: &Node, child: usize, lowest: Vec3, highest: Vec3) -> bool {
    (0..3).all(|axis| {
        let place = |plane: u8| node.origin[axis] + f32::from(plane) * node.step[axis];
        place(node.planes[axis][0][child]) <= highest[axis] && lowest[axis] <= place(node.planes[axis][1][child])
    })
}
