//! The two tests that queries consist of, for several boxes or triangles at once, in the instructions of each processor.
//!
//! *Triangles* are tested with the watertight method of Woop, Benthin and Wald ("Watertight Ray/Triangle Intersection",
//! JCGT 2013), without fused operations, so each implementation returns the same bits. A ray through an edge or a corner
//! that triangles share hits at least one of them: the three signed areas of neighbours differ in nothing but their sign.
//!
//! A distance along a ray that grazes a triangle is mostly rounding. So it is moved into the box around the triangle, and
//! a hit whose ray misses that box is none. That is what makes answers independent of the order of tests: a triangle that
//! is hit at some distance has only boxes around it that the ray meets before that distance.
//!
//! *Boxes* are tested generously: a box counts as met if rounding could hide it. So which triangles a query tests
//! differs between implementations, but not which ones it finds.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod plain;

use crate::format::{BLOCK_LANES, Block, Node, WIDTH};
use crate::ray::Ray;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use plain::Plain;

/// The instructions that queries use. Answers do not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Processor {
    /// Plain Rust: what every processor has. The compiler may use vectors of four, on ARM those of NEON.
    Plain,
    /// x86-64 with AVX2 and FMA: boxes by eight.
    Avx2,
    /// x86-64 with AVX-512: near and far sides of eight boxes at once.
    Avx512,
}

impl Processor {
    /// Those that work on this machine, the slowest first.
    pub fn available() -> Vec<Processor> {
        let mut found = vec![Processor::Plain];
        #[cfg(target_arch = "x86_64")]
        {
            found.extend(pulp::x86::V3::is_available().then_some(Processor::Avx2));
            found.extend(pulp::x86::V4::is_available().then_some(Processor::Avx512));
        }
        found
    }

    /// The fastest that works on this machine. Where there is AVX2 it is that: a box fills its registers, and AVX-512 gains
    /// nothing from putting two of them together. docs/sight.md has the figures.
    pub fn best() -> Processor {
        #[cfg(target_arch = "x86_64")]
        if pulp::x86::V3::is_available() {
            return Processor::Avx2;
        }
        Processor::Plain
    }
}

/// An axis of space, as an index that needs no check.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Axis {
    X,
    Y,
    Z,
}

/// A far distance is made larger by this factor before it is compared. Distances to boxes are rounded by less than
/// 2^-21 of themselves; what is rounded in units of the box lies within the margin that the bake adds.
pub(crate) const SLACK: f32 = 1.0 + 1.0 / 524_288.0;

/// Components of a direction below this count as this: the reciprocal stays finite, and its products do.
const COMPONENT_MIN: f32 = 1e-18;

/// The values of a ray that the tests need, computed once.
#[derive(Clone, Copy)]
pub(crate) struct Prepared {
    /// One by the direction.
    pub(crate) inverse: [f32; 3],
    /// The origin, negated, times `inverse`.
    pub(crate) shift: [f32; 3],
    /// Whether the ray goes down an axis, and meets the high side first.
    pub(crate) goes_down: [bool; 3],
    /// The same for AVX-512: bit 3 of each byte.
    pub(crate) swap: [u32; 3],
    pub(crate) start: f32,
    pub(crate) end: f32,
    pub(crate) origin: [f32; 3],
    /// By how much the box around a triangle is larger than the triangle: half of the margin of the map's boxes.
    pub(crate) margin: f32,
    /// Two axes across the ray's main direction, and that direction.
    pub(crate) axes: [Axis; 3],
    /// The origin in the order of `axes`.
    pub(crate) turned: [f32; 3],
    /// How far the two axes move for a step along the main one, and the ray's length for such a step.
    pub(crate) shear: [f32; 3],
}

impl Prepared {
    pub(crate) const NONE: Prepared = Prepared {
        inverse: [1.0; 3],
        shift: [0.0; 3],
        goes_down: [false; 3],
        swap: [0; 3],
        start: 0.0,
        end: 0.0,
        origin: [0.0; 3],
        margin: 0.0,
        axes: [Axis::X, Axis::Y, Axis::Z],
        turned: [0.0; 3],
        shear: [0.0; 3],
    };

    #[inline(always)]
    pub(crate) fn new(ray: &Ray, margin: f32) -> Prepared {
        let (origin, direction) = (ray.origin().to_array(), ray.direction().to_array());
        let inverse = direction.map(|part| {
            let size = if part.abs() < COMPONENT_MIN { COMPONENT_MIN } else { part.abs() };
            1.0 / size.copysign(part)
        });
        let [x, y, z] = direction.map(f32::abs);
        let axes = if x >= y && x >= z {
            [Axis::Y, Axis::Z, Axis::X]
        } else if y >= z {
            [Axis::Z, Axis::X, Axis::Y]
        } else {
            [Axis::X, Axis::Y, Axis::Z]
        };
        let main = direction[axes[2] as usize];
        let shear = [direction[axes[0] as usize] / main, direction[axes[1] as usize] / main, 1.0 / main];
        Prepared {
            inverse,
            shift: std::array::from_fn(|axis| -origin[axis] * inverse[axis]),
            goes_down: inverse.map(|part| part < 0.0),
            swap: inverse.map(|part| 0x0101_0101 * (part.to_bits() >> 28 & 8)),
            start: ray.start_m(),
            end: ray.end_m(),
            origin,
            margin: 0.5 * margin,
            axes,
            turned: axes.map(|axis| origin[axis as usize]),
            shear,
        }
    }
}

/// A child with its distance before it, so that sorting the numbers sorts by distance: both are at least zero.
#[inline(always)]
pub(crate) fn entry(near: f32, child: u32) -> u64 {
    u64::from(near.to_bits()) << 32 | u64::from(child)
}

/// The tests in one processor's instructions.
pub(crate) trait Lanes: Copy {
    /// The children of `node` whose boxes the ray meets before `limit`, one bit each, and how far they are: at least the
    /// ray's start.
    fn boxes(self, node: &Node, ray: &Prepared, limit: f32) -> (u32, [f32; WIDTH]);

    /// The triangles of `block` that the ray hits between its start and `limit`, both included, one bit each, and how
    /// far they are.
    fn triangles(self, block: &Block, ray: &Prepared, limit: f32) -> (u32, [f32; BLOCK_LANES]);

    /// The children of `node` whose boxes the ray meets before `limit`, those of `layers` if `MASKED`, in their order, and
    /// how many they are. The bits behind them mean nothing.
    #[inline(always)]
    fn met<const MASKED: bool>(self, node: &Node, ray: &Prepared, limit: f32, layers: u16) -> ([u32; WIDTH], usize) {
        let (mut mask, _) = self.boxes(node, ray, limit);
        if MASKED {
            mask &= self.layers_of_children(node, layers);
        }
        let (mut met, mut count) = ([0; WIDTH], 0);
        for child in 0..WIDTH {
            met[count & (WIDTH - 1)] = node.children[child];
            count += (mask >> child & 1) as usize;
        }
        (met, count)
    }

    /// The same as [`entry`]s from the farthest to the nearest.
    #[inline(always)]
    fn sorted<const MASKED: bool>(self, node: &Node, ray: &Prepared, limit: f32, layers: u16) -> ([u64; WIDTH], usize) {
        let (mut mask, near) = self.boxes(node, ray, limit);
        if MASKED {
            mask &= self.layers_of_children(node, layers);
        }
        let (mut sorted, mut count) = ([0; WIDTH], 0);
        while mask != 0 {
            let child = (mask.trailing_zeros() & 7) as usize;
            mask &= mask - 1;
            let other = entry(near[child], node.children[child]);
            let mut place = count;
            while place > 0 && sorted[place - 1] < other {
                sorted[place] = sorted[place - 1];
                place -= 1;
            }
            sorted[place] = other;
            count += 1;
        }
        (sorted, count)
    }

    /// The layers that meet `layers`, one bit each.
    #[inline(always)]
    fn layers_of_children(self, node: &Node, layers: u16) -> u32 {
        let mut mask = 0;
        for child in 0..WIDTH {
            mask |= u32::from(node.layers[child] & layers != 0) << child;
        }
        mask
    }

    /// The triangles of `block` whose layers meet `layers`, one bit each.
    #[inline(always)]
    fn layers_of_triangles(self, block: &Block, layers: u16) -> u32 {
        let mut mask = 0;
        for lane in 0..BLOCK_LANES {
            mask |= u32::from(block.layers[lane] & layers != 0) << lane;
        }
        mask
    }
}
