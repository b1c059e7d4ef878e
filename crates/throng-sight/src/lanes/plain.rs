//! The tests in plain Rust: the twin that the others are compared with, and the path of processors without one.

use super::{Lanes, Prepared, SLACK};
use crate::format::{BLOCK_LANES, Block, Node, WIDTH};

#[derive(Clone, Copy)]
pub(crate) struct Plain;

type Lane = [f32; BLOCK_LANES];

impl Lanes for Plain {
    #[inline(always)]
    fn boxes(self, node: &Node, ray: &Prepared, limit: f32) -> (u32, [f32; WIDTH]) {
        let mut near = [ray.start; WIDTH];
        let mut far = [limit; WIDTH];
        for axis in 0..3 {
            let factor = node.step[axis] * ray.inverse[axis];
            let offset = node.origin[axis] * ray.inverse[axis] + ray.shift[axis];
            let planes = &node.planes[axis];
            let side = usize::from(ray.goes_down[axis]);
            for child in 0..WIDTH {
                let enter = f32::from(planes[side][child]) * factor + offset;
                let leave = f32::from(planes[1 - side][child]) * factor + offset;
                near[child] = if enter > near[child] { enter } else { near[child] };
                far[child] = if leave < far[child] { leave } else { far[child] };
            }
        }
        let mask = (0..WIDTH).fold(0, |mask, child| mask | u32::from(near[child] <= far[child] * SLACK) << child);
        (mask, near)
    }

    #[inline(always)]
    fn triangles(self, block: &Block, ray: &Prepared, limit: f32) -> (u32, Lane) {
        let [x, y, z] = ray.axes.map(|axis| axis as usize);
        // Each corner relative to the ray: across it twice, and along its main axis.
        let relative = |corner: usize| -> [Lane; 3] {
            let corner = &block.corners[corner];
            let along: Lane = std::array::from_fn(|lane| corner[z][lane] - ray.turned[2]);
            let across = |axis: usize, place: usize| -> Lane {
                let shift = |lane: usize| ray.shear[place] * along[lane];
                std::array::from_fn(|lane| (corner[axis][lane] - ray.turned[place]) - shift(lane))
            };
            [across(x, 0), across(y, 1), along]
        };
        let (a, b, c) = (relative(0), relative(1), relative(2));
        let mut mask = 0;
        let mut distances = [0.0; BLOCK_LANES];
        for lane in 0..BLOCK_LANES {
            let u = c[0][lane] * b[1][lane] - c[1][lane] * b[0][lane];
            let v = a[0][lane] * c[1][lane] - a[1][lane] * c[0][lane];
            let w = b[0][lane] * a[1][lane] - b[1][lane] * a[0][lane];
            let is_inside = (u >= 0.0 && v >= 0.0 && w >= 0.0) || (u <= 0.0 && v <= 0.0 && w <= 0.0);
            let area = (u + v) + w;
            let along = (u * a[2][lane] + v * b[2][lane]) + w * c[2][lane];
            let distance = ray.shear[2] * along / area;
            if !is_inside || area == 0.0 {
                continue;
            }
            // The box around the triangle: where the ray enters and leaves it.
            let (mut enter, mut leave) = (f32::NEG_INFINITY, f32::INFINITY);
            for axis in 0..3 {
                let [a, b, c] = [0, 1, 2].map(|corner| block.corners[corner][axis][lane]);
                let (low, high) = (least(least(a, b), c) - ray.margin, most(most(a, b), c) + ray.margin);
                let low = (low - ray.origin[axis]) * ray.inverse[axis];
                let high = (high - ray.origin[axis]) * ray.inverse[axis];
                enter = most(least(low, high), enter);
                leave = least(most(low, high), leave);
            }
            let distance = least(most(distance, enter), leave);
            mask |= u32::from(enter <= leave && distance >= ray.start && distance <= limit) << lane;
            distances[lane] = distance;
        }
        (mask, distances)
    }
}

/// As the processors' instructions do it: the second if they are equal.
#[inline(always)]
fn least(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

#[inline(always)]
fn most(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}
