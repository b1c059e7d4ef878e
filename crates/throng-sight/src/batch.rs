//! Queries with many rays at once.
//!
//! Rays that begin near one another and lead the same way meet the same boxes. So a batch is cut into chunks, sorted by
//! place and direction, and sent through the tree in packets of sixteen: each box is tested against a whole packet. Where
//! only a few rays of a packet are left, they go on alone. A ray that is to be blocked first tries the triangles that
//! blocked the ray before it.
//!
//! Packets: Wald et al., "Interactive Rendering with Coherent Ray Tracing", Eurographics 2001; going on alone: Benthin
//! et al., "Combining Single and Packet-Ray Tracing for Arbitrary Ray Distributions on the Intel MIC Architecture", TVCG
//! 2012.

use crate::format::{BLOCK_LANES, Child};
use crate::lanes::{Lanes, PACKET, Packet, Prepared};
use crate::map::{Map, Parts};
use crate::ray::{Hit, Layers, Ray, TriangleId};
use crate::single::{Nearest, Query, STACK, any, closest, in_block, on};

const CHUNK: usize = 64;
/// With at most so many rays of a packet in a box, they go on alone.
const ALONE: u32 = 3;

impl Map {
    /// As [`closest`](Map::closest) for each ray, with the same answers bit for bit.
    ///
    /// # Panics
    /// If there are not as many places for answers as rays.
    pub fn closest_batch(&self, rays: &[Ray], layers: Layers, hits: &mut [Option<Hit>]) {
        assert_eq!(rays.len(), hits.len(), "each ray needs a place for its answer");
        let parts = self.parts();
        let is_masked = self.layers().0 & !layers.0 != 0;
        for (rays, hits) in rays.chunks(CHUNK).zip(hits.chunks_mut(CHUNK)) {
            let chunk = Chunk { parts, rays, layers: layers.0, bounds: self.bounds().map(|corner| corner.to_array()) };
            if is_masked {
                on(self.processor, ClosestOf::<true>(chunk, hits));
            } else {
                on(self.processor, ClosestOf::<false>(chunk, hits));
            }
        }
    }

    /// As [`is_blocked`](Map::is_blocked) for each ray, with the same answers.
    ///
    /// # Panics
    /// If there are not as many places for answers as rays.
    pub fn is_blocked_batch(&self, rays: &[Ray], layers: Layers, blocked: &mut [bool]) {
        assert_eq!(rays.len(), blocked.len(), "each ray needs a place for its answer");
        let parts = self.parts();
        let is_masked = self.layers().0 & !layers.0 != 0;
        for (rays, blocked) in rays.chunks(CHUNK).zip(blocked.chunks_mut(CHUNK)) {
            let chunk = Chunk { parts, rays, layers: layers.0, bounds: self.bounds().map(|corner| corner.to_array()) };
            if is_masked {
                on(self.processor, BlockedOf::<true>(chunk, blocked));
            } else {
                on(self.processor, BlockedOf::<false>(chunk, blocked));
            }
        }
    }
}

/// At most [`CHUNK`] rays.
#[derive(Clone, Copy)]
struct Chunk<'a> {
    parts: Parts<'a>,
    rays: &'a [Ray],
    layers: u16,
    bounds: [[f32; 3]; 2],
}

struct ClosestOf<'a, const MASKED: bool>(Chunk<'a>, &'a mut [Option<Hit>]);

impl<const MASKED: bool> Query for ClosestOf<'_, MASKED> {
    type Answer = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let ClosestOf(chunk, hits) = self;
        let order = chunk.order();
        let (mut stack, mut alone_stack) = ([(0, 0); STACK], [0; STACK]);
        for group in order[..chunk.rays.len()].chunks(PACKET) {
            let (rays, mut packet) = chunk.packet(group);
            let mut nearest = [Nearest { distance: 0.0, triangle: u32::MAX }; PACKET];
            for lane in 0..PACKET {
                nearest[lane].distance = rays[lane].end;
            }
            let everyone = (1 << group.len()) - 1;
            let mut nearer = Nearer::<MASKED> { rays: &rays, nearest: &mut nearest, stack: &mut alone_stack };
            walk(lanes, &chunk, &mut packet, everyone, &mut nearer, &mut stack);
            for (lane, ray) in group.iter().enumerate() {
                let Nearest { distance, triangle } = nearest[lane];
                let hit = Hit { distance_m: distance, triangle: TriangleId(triangle) };
                hits[usize::from(*ray)] = (triangle != u32::MAX).then_some(hit);
            }
        }
    }
}

/// The way of a ray that leaves its packet.
trait Alone {
    /// Takes the ray below `child`. Returns whether it needs to go no further.
    fn go<L: Lanes>(&mut self, lanes: L, chunk: &Chunk<'_>, lane: usize, child: u32, packet: &mut Packet) -> bool;
}

struct Nearer<'a, const MASKED: bool> {
    rays: &'a [Prepared; PACKET],
    nearest: &'a mut [Nearest; PACKET],
    stack: &'a mut [u64; STACK],
}

impl<const MASKED: bool> Alone for Nearer<'_, MASKED> {
    #[inline(always)]
    fn go<L: Lanes>(&mut self, lanes: L, chunk: &Chunk<'_>, lane: usize, child: u32, packet: &mut Packet) -> bool {
        let nearest = &mut self.nearest[lane];
        closest::<L, MASKED, STACK>(lanes, chunk.parts, &self.rays[lane], chunk.layers, child, nearest, self.stack);
        packet.end[lane] = nearest.distance;
        false
    }
}

struct BlockedOf<'a, const MASKED: bool>(Chunk<'a>, &'a mut [bool]);

impl<const MASKED: bool> Query for BlockedOf<'_, MASKED> {
    type Answer = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let BlockedOf(chunk, blocked) = self;
        let order = chunk.order();
        let (mut stack, mut alone_stack) = ([(0, 0); STACK], [0; STACK]);
        let mut blocker = 0;
        for group in order[..chunk.rays.len()].chunks(PACKET) {
            let (rays, mut packet) = chunk.packet(group);
            let mut open = 0;
            for (lane, ray) in rays.iter().enumerate().take(group.len()) {
                let is_blocked = in_block::<L, MASKED>(lanes, chunk.parts, ray, chunk.layers, blocker).is_some();
                open |= u32::from(!is_blocked) << lane;
            }
            let mut first = First::<MASKED> { rays: &rays, blocker, blocked: !open, stack: &mut alone_stack };
            walk(lanes, &chunk, &mut packet, open, &mut first, &mut stack);
            blocker = first.blocker;
            for (lane, ray) in group.iter().enumerate() {
                blocked[usize::from(*ray)] = first.blocked >> lane & 1 == 1;
            }
        }
    }
}

struct First<'a, const MASKED: bool> {
    rays: &'a [Prepared; PACKET],
    /// The block with the triangle that blocked a ray last.
    blocker: u32,
    /// One bit for each ray that is blocked.
    blocked: u32,
    stack: &'a mut [u32; STACK],
}

impl<const MASKED: bool> Alone for First<'_, MASKED> {
    #[inline(always)]
    fn go<L: Lanes>(&mut self, lanes: L, chunk: &Chunk<'_>, lane: usize, child: u32, _: &mut Packet) -> bool {
        let found = any::<L, MASKED, STACK>(lanes, chunk.parts, &self.rays[lane], chunk.layers, child, self.stack);
        if let Some(triangle) = found {
            self.blocker = triangle / BLOCK_LANES as u32;
            self.blocked |= 1 << lane;
        }
        found.is_some()
    }
}

impl Chunk<'_> {
    /// The rays by place, then by direction.
    #[inline(always)]
    fn order(&self) -> [u8; CHUNK] {
        let [lowest, highest] = self.bounds;
        let scale: [f32; 3] = std::array::from_fn(|axis| 8.0 / (highest[axis] - lowest[axis]).max(1.0));
        let mut keys = [u32::MAX; CHUNK];
        for (number, ray) in self.rays.iter().enumerate() {
            let (origin, direction) = (ray.origin().to_array(), ray.direction().to_array());
            let mut key = 0;
            for axis in 0..3 {
                // Beyond the map, the nearest cell of it.
                let cell = ((origin[axis] - lowest[axis]) * scale[axis]).clamp(0.0, 7.0) as u32;
                key = key << 3 | cell;
            }
            for part in direction {
                key = key << 1 | u32::from(part < 0.0);
            }
            keys[number] = key << 8 | number as u32;
        }
        keys[..self.rays.len()].sort_unstable();
        keys.map(|key| key as u8)
    }

    #[inline(always)]
    fn packet(&self, group: &[u8]) -> ([Prepared; PACKET], Packet) {
        let mut prepared = [Prepared::NONE; PACKET];
        let mut packet = Packet::NONE;
        for (lane, ray) in group.iter().enumerate() {
            let ray = Prepared::new(&self.rays[usize::from(*ray)], self.parts.margin);
            for axis in 0..3 {
                packet.inverse[axis][lane] = ray.inverse[axis];
                packet.shift[axis][lane] = ray.shift[axis];
            }
            packet.start[lane] = ray.start;
            packet.end[lane] = ray.end;
            prepared[lane] = ray;
        }
        (prepared, packet)
    }
}

/// Takes the rays of a packet through the tree, those of `open`. Those that are few in a box go on alone.
#[inline(always)]
fn walk<L: Lanes>(
    lanes: L,
    chunk: &Chunk<'_>,
    packet: &mut Packet,
    mut open: u32,
    alone: &mut impl Alone,
    stack: &mut [(u32, u32); STACK],
) {
    stack[0] = (0, open);
    let mut height = 1;
    while height > 0 && open != 0 {
        height -= 1;
        let (child, mask) = stack[height];
        let mut mask = mask & open;
        let node = match Child::of(child) {
            Child::Node(index) if mask.count_ones() > ALONE => chunk.parts.nodes.get(index as usize),
            _ => None,
        };
        if let Some(node) = node {
            let masks = lanes.boxes_of_packet(node, packet, mask);
            for (child, mask) in node.children.iter().zip(masks) {
                if mask != 0 {
                    stack[height] = (*child, mask);
                    height += 1;
                }
            }
        } else {
            while mask != 0 {
                let lane = (mask.trailing_zeros() & 15) as usize;
                mask &= mask - 1;
                if alone.go(lanes, chunk, lane, child, packet) {
                    open &= !(1 << lane);
                }
            }
        }
    }
}
