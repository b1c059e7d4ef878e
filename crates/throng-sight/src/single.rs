//! Queries with one ray.

use pulp::NullaryFnOnce;

use crate::format::{BLOCK_LANES, Block, Child, DEPTH_MAX, NO_CHILD, Node, WIDTH};
#[cfg(target_arch = "x86_64")]
use crate::lanes::{Avx2, Avx512};
use crate::lanes::{Lanes, Plain, Prepared, Processor, SLACK, entry};
use crate::map::{Map, Parts};
use crate::ray::{Hit, Layers, Ray, TriangleId};

/// A node leaves at most seven children behind on each level, what is taken from the stack was put there, and eight are
/// written above it even if fewer are met.
pub(crate) const STACK: usize = DEPTH_MAX as usize * (WIDTH - 1) + 1 + WIDTH;
/// The depth of most maps. Clearing the large stack takes a tenth of a ray's time.
pub(crate) const DEPTH_USUAL: u16 = 14;
pub(crate) const STACK_USUAL: usize = DEPTH_USUAL as usize * (WIDTH - 1) + 1 + WIDTH;

impl Map {
    /// The nearest triangle of `layers` on the ray; of several at the same distance, the one with the lowest number.
    pub fn closest(&self, ray: &Ray, layers: Layers) -> Option<Hit> {
        let parts = self.parts();
        match (self.layers().0 & !layers.0 == 0, self.depth() <= DEPTH_USUAL) {
            (true, true) => on(self.processor, Closest::<false, STACK_USUAL> { parts, ray, layers }),
            (false, true) => on(self.processor, Closest::<true, STACK_USUAL> { parts, ray, layers }),
            (true, false) => on(self.processor, Closest::<false, STACK> { parts, ray, layers }),
            (false, false) => on(self.processor, Closest::<true, STACK> { parts, ray, layers }),
        }
    }

    /// Whether a triangle of `layers` is on the ray. Faster than [`closest`](Map::closest), since any one will do.
    pub fn is_blocked(&self, ray: &Ray, layers: Layers) -> bool {
        self.blocker(ray, layers).is_some()
    }

    /// A triangle of `layers` that is on the ray, if there is one. Which one of several depends on the processor: only
    /// whether there is one belongs into a game's state.
    pub fn blocker(&self, ray: &Ray, layers: Layers) -> Option<TriangleId> {
        let parts = self.parts();
        match (self.layers().0 & !layers.0 == 0, self.depth() <= DEPTH_USUAL) {
            (true, true) => on(self.processor, Any::<false, STACK_USUAL> { parts, ray, layers }),
            (false, true) => on(self.processor, Any::<true, STACK_USUAL> { parts, ray, layers }),
            (true, false) => on(self.processor, Any::<false, STACK> { parts, ray, layers }),
            (false, false) => on(self.processor, Any::<true, STACK> { parts, ray, layers }),
        }
    }
}

/// A query that runs in the instructions of any processor.
pub(crate) trait Query {
    type Answer;
    fn run<L: Lanes>(self, lanes: L) -> Self::Answer;
}

/// Runs a query in the instructions of `processor`; in plain ones where they do not exist.
#[inline(always)]
pub(crate) fn on<Q: Query>(processor: Processor, query: Q) -> Q::Answer {
    match processor {
        #[cfg(target_arch = "x86_64")]
        Processor::Avx512 => match pulp::x86::V4::try_new() {
            Some(simd) => simd.vectorize(Inlined(query, Avx512(simd))),
            None => query.run(Plain),
        },
        #[cfg(target_arch = "x86_64")]
        Processor::Avx2 => match pulp::x86::V3::try_new() {
            Some(simd) => simd.vectorize(Inlined(query, Avx2(simd))),
            None => query.run(Plain),
        },
        _ => query.run(Plain),
    }
}

struct Inlined<Q, L>(Q, L);

impl<Q: Query, L: Lanes> NullaryFnOnce for Inlined<Q, L> {
    type Output = Q::Answer;

    #[inline(always)]
    fn call(self) -> Q::Answer {
        self.0.run(self.1)
    }
}

struct Closest<'a, const MASKED: bool, const STACK: usize> {
    parts: Parts<'a>,
    ray: &'a Ray,
    layers: Layers,
}

impl<const MASKED: bool, const STACK: usize> Query for Closest<'_, MASKED, STACK> {
    type Answer = Option<Hit>;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> Option<Hit> {
        let (ray, mut stack) = (Prepared::new(self.ray, self.parts.margin), [0; STACK]);
        closest::<L, MASKED, STACK>(lanes, self.parts, &ray, self.layers.0, &mut stack).hit()
    }
}

struct Any<'a, const MASKED: bool, const STACK: usize> {
    parts: Parts<'a>,
    ray: &'a Ray,
    layers: Layers,
}

impl<const MASKED: bool, const STACK: usize> Query for Any<'_, MASKED, STACK> {
    type Answer = Option<TriangleId>;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> Option<TriangleId> {
        let (ray, mut stack) = (Prepared::new(self.ray, self.parts.margin), [0; STACK]);
        any::<L, MASKED, STACK>(lanes, self.parts, &ray, self.layers.0, &mut stack).map(TriangleId)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Nearest {
    pub(crate) distance: f32,
    pub(crate) triangle: u32,
}

impl Nearest {
    pub(crate) const NONE: Nearest = Nearest { distance: 0.0, triangle: u32::MAX };

    #[inline(always)]
    pub(crate) fn hit(self) -> Option<Hit> {
        let hit = Hit { distance_m: self.distance, triangle: TriangleId(self.triangle) };
        (self.triangle != u32::MAX).then_some(hit)
    }
}

/// The nearest triangle on the ray.
#[inline(always)]
fn closest<L: Lanes, const MASKED: bool, const STACK: usize>(
    lanes: L,
    parts: Parts<'_>,
    ray: &Prepared,
    layers: u16,
    stack: &mut [u64; STACK],
) -> Nearest {
    let mut nearest = Nearest { distance: ray.end, ..Nearest::NONE };
    let (mut height, mut next) = (0, 0);
    loop {
        // Down to a leaf, always into the nearest child.
        while let Some(node) = parts.nodes.get(next as usize) {
            let (mut mask, near) = lanes.boxes(node, ray, nearest.distance);
            if MASKED {
                mask &= lanes.layers_of_children(node, layers);
            }
            next = push_farther(node, &near, mask, stack, &mut height);
        }
        if let Child::Leaf { first, count } = Child::of(next) {
            leaf::<L, MASKED>(lanes, parts, ray, layers, (first, count), &mut nearest);
        }
        loop {
            if height == 0 {
                return nearest;
            }
            height -= 1;
            let top = stack[height];
            if f32::from_bits((top >> 32) as u32) <= nearest.distance * SLACK {
                next = top as u32;
                break;
            }
        }
    }
}

/// Puts the children of `mask` onto the stack, the nearer ones above, except for the nearest, which is returned.
#[inline(always)]
fn push_farther<const STACK: usize>(
    node: &Node,
    near: &[f32; WIDTH],
    mut mask: u32,
    stack: &mut [u64; STACK],
    height: &mut usize,
) -> u32 {
    if mask == 0 {
        return NO_CHILD;
    }
    let first = (mask.trailing_zeros() & 7) as usize;
    mask &= mask - 1;
    if mask == 0 {
        return node.children[first];
    }
    let base = *height;
    let mut best = entry(near[first], node.children[first]);
    while mask != 0 {
        let child = (mask.trailing_zeros() & 7) as usize;
        mask &= mask - 1;
        let mut other = entry(near[child], node.children[child]);
        if other < best {
            std::mem::swap(&mut other, &mut best);
        }
        let mut place = *height;
        while place > base && stack[place - 1] < other {
            stack[place] = stack[place - 1];
            place -= 1;
        }
        stack[place] = other;
        *height += 1;
    }
    best as u32
}

#[inline(always)]
fn blocks_of(parts: Parts<'_>, (first, count): (u32, u32)) -> &[Block] {
    parts.blocks.get(first as usize..(first + count) as usize).unwrap_or_default()
}

#[inline(always)]
pub(crate) fn leaf<L: Lanes, const MASKED: bool>(
    lanes: L,
    parts: Parts<'_>,
    ray: &Prepared,
    layers: u16,
    range: (u32, u32),
    nearest: &mut Nearest,
) {
    for (place, block) in blocks_of(parts, range).iter().enumerate() {
        let (mut mask, distances) = lanes.triangles(block, ray, nearest.distance);
        if MASKED {
            mask &= lanes.layers_of_triangles(block, layers);
        }
        while mask != 0 {
            let lane = (mask.trailing_zeros() & 3) as usize;
            mask &= mask - 1;
            // Zero without its sign.
            let distance = distances[lane] + 0.0;
            let triangle = (range.0 + place as u32) * BLOCK_LANES as u32 + lane as u32;
            if distance < nearest.distance || (distance == nearest.distance && triangle < nearest.triangle) {
                *nearest = Nearest { distance, triangle };
            }
        }
    }
}

/// A triangle on the ray.
#[inline(always)]
fn any<L: Lanes, const MASKED: bool, const STACK: usize>(
    lanes: L,
    parts: Parts<'_>,
    ray: &Prepared,
    layers: u16,
    stack: &mut [u32; STACK],
) -> Option<u32> {
    let (mut height, mut next) = (0, 0);
    loop {
        while let Some(node) = parts.nodes.get(next as usize) {
            let (mut mask, _) = lanes.boxes(node, ray, ray.end);
            if MASKED {
                mask &= lanes.layers_of_children(node, layers);
            }
            if mask == 0 {
                next = NO_CHILD;
                break;
            }
            loop {
                next = node.children[(mask.trailing_zeros() & 7) as usize];
                mask &= mask - 1;
                if mask == 0 {
                    break;
                }
                parts.prefetch(next);
                stack[height] = next;
                height += 1;
            }
        }
        if let Child::Leaf { first, count } = Child::of(next) {
            for block in first..first + count {
                if let Some(lane) = in_block::<L, MASKED>(lanes, parts, ray, layers, block) {
                    return Some(block * BLOCK_LANES as u32 + lane);
                }
            }
        }
        if height == 0 {
            return None;
        }
        height -= 1;
        next = stack[height];
    }
}

/// The place of a triangle on the ray in one block.
#[inline(always)]
pub(crate) fn in_block<L: Lanes, const MASKED: bool>(
    lanes: L,
    parts: Parts<'_>,
    ray: &Prepared,
    layers: u16,
    block: u32,
) -> Option<u32> {
    let block = parts.blocks.get(block as usize)?;
    let (mut mask, _) = lanes.triangles(block, ray, ray.end);
    if MASKED {
        mask &= lanes.layers_of_triangles(block, layers);
    }
    (mask != 0).then_some(mask.trailing_zeros())
}
