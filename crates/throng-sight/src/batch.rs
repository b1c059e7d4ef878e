//! Queries with many rays at once.
//!
//! A ray alone mostly waits: for a box to be tested before the next one is known, for memory, and for the processor to
//! turn back where it guessed wrongly which way the ray goes. So a batch has several rays on their way at once. They
//! take turns, one node or leaf each, and while one waits, the others go on.
//!
//! A ray that is to be blocked first tries the triangles that blocked another ray last.
//!
//! Source of the turns: the "ray streams" of Wald, Benthin and Boulos, "Getting Rid of Packets", RT 2008; what is gained here is
//! not shared work but waiting time.

use crate::format::{Child, WIDTH};
use crate::lanes::{Lanes, Prepared, SLACK};
use crate::map::{Map, Parts};
use crate::ray::{Hit, Layers, Ray};
use crate::single::{DEPTH_USUAL, Nearest, Query, STACK, STACK_USUAL, in_block, leaf, on};

/// How many rays are on their way at once: enough to fill the time of waiting, few enough to stay in the nearest memory.
const WALKS: usize = 8;

impl Map {
    /// As [`closest`](Map::closest) for each ray, with the same answers bit for bit.
    ///
    /// # Panics
    /// If there are not as many places for answers as rays.
    pub fn closest_batch(&self, rays: &[Ray], layers: Layers, hits: &mut [Option<Hit>]) {
        assert_eq!(rays.len(), hits.len(), "each ray needs a place for its answer");
        let batch = Batch { parts: self.parts(), rays, layers: layers.0, next: 0 };
        match (self.layers().0 & !layers.0 == 0, self.depth() <= DEPTH_USUAL) {
            (true, true) => on(self.processor, ClosestOf::<false, STACK_USUAL> { batch, hits }),
            (false, true) => on(self.processor, ClosestOf::<true, STACK_USUAL> { batch, hits }),
            (true, false) => on(self.processor, ClosestOf::<false, STACK> { batch, hits }),
            (false, false) => on(self.processor, ClosestOf::<true, STACK> { batch, hits }),
        }
    }

    /// As [`is_blocked`](Map::is_blocked) for each ray, with the same answers.
    ///
    /// # Panics
    /// If there are not as many places for answers as rays.
    pub fn is_blocked_batch(&self, rays: &[Ray], layers: Layers, blocked: &mut [bool]) {
        assert_eq!(rays.len(), blocked.len(), "each ray needs a place for its answer");
        let batch = Batch { parts: self.parts(), rays, layers: layers.0, next: 0 };
        match (self.layers().0 & !layers.0 == 0, self.depth() <= DEPTH_USUAL) {
            (true, true) => on(self.processor, BlockedOf::<false, STACK_USUAL> { batch, blocked, blocker: 0 }),
            (false, true) => on(self.processor, BlockedOf::<true, STACK_USUAL> { batch, blocked, blocker: 0 }),
            (true, false) => on(self.processor, BlockedOf::<false, STACK> { batch, blocked, blocker: 0 }),
            (false, false) => on(self.processor, BlockedOf::<true, STACK> { batch, blocked, blocker: 0 }),
        }
    }
}

#[derive(Clone, Copy)]
struct Batch<'a> {
    parts: Parts<'a>,
    rays: &'a [Ray],
    layers: u16,
    /// The first ray that has not set out yet.
    next: usize,
}

/// A ray on its way.
struct Walk<T, const STACK: usize> {
    ray: Prepared,
    /// Its place in the batch.
    number: usize,
    nearest: Nearest,
    /// The nodes that are left to visit, the next on top.
    stack: [T; STACK],
    height: usize,
}

impl<T: Copy, const STACK: usize> Walk<T, STACK> {
    fn none(zero: T) -> Walk<T, STACK> {
        Walk { ray: Prepared::NONE, number: 0, nearest: Nearest::NONE, stack: [zero; STACK], height: 0 }
    }

    /// At the root.
    #[inline(always)]
    fn start(&mut self, ray: Prepared, number: usize, root: T) {
        self.nearest = Nearest { distance: ray.end, ..Nearest::NONE };
        self.ray = ray;
        self.number = number;
        self.stack[0] = root;
        self.height = 1;
    }

    #[inline(always)]
    fn pop(&mut self) -> T {
        self.height -= 1;
        self.stack[self.height]
    }
}

trait Turns<const STACK: usize> {
    /// A child that is left to visit.
    type Left: Copy + Default;

    /// Sends the next ray of the batch out. False if there is none.
    fn start<L: Lanes>(&mut self, lanes: L, walk: &mut Walk<Self::Left, STACK>) -> bool;

    /// One turn of a ray. Its way is over when nothing is left to visit.
    fn turn<L: Lanes>(&mut self, lanes: L, walk: &mut Walk<Self::Left, STACK>);

    /// Takes the answer of a ray whose way is over.
    fn end(&mut self, walk: &Walk<Self::Left, STACK>);
}

#[inline(always)]
fn take_turns<L: Lanes, T: Turns<STACK>, const STACK: usize>(lanes: L, mut turns: T) {
    let mut walks: [Walk<T::Left, STACK>; WALKS] = std::array::from_fn(|_| Walk::none(T::Left::default()));
    let mut count = 0;
    while count < WALKS && turns.start(lanes, &mut walks[count]) {
        count += 1;
    }
    while count > 0 {
        let mut place = 0;
        while place < count {
            let walk = &mut walks[place];
            turns.turn(lanes, walk);
            if walk.height == 0 {
                turns.end(walk);
                if !turns.start(lanes, walk) {
                    count -= 1;
                    walks.swap(place, count);
                    continue;
                }
            }
            place += 1;
        }
    }
}

struct ClosestOf<'a, const MASKED: bool, const STACK: usize> {
    batch: Batch<'a>,
    hits: &'a mut [Option<Hit>],
}

impl<const MASKED: bool, const STACK: usize> Query for ClosestOf<'_, MASKED, STACK> {
    type Answer = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        take_turns(lanes, self);
    }
}

impl<const MASKED: bool, const STACK: usize> Turns<STACK> for ClosestOf<'_, MASKED, STACK> {
    /// As in the stack of a ray alone: the distance before the child.
    type Left = u64;

    #[inline(always)]
    fn start<L: Lanes>(&mut self, _: L, walk: &mut Walk<u64, STACK>) -> bool {
        let Some(ray) = self.batch.rays.get(self.batch.next) else { return false };
        walk.start(Prepared::new(ray, self.batch.parts.margin), self.batch.next, 0);
        self.batch.next += 1;
        true
    }

    #[inline(always)]
    fn turn<L: Lanes>(&mut self, lanes: L, walk: &mut Walk<u64, STACK>) {
        let top = walk.pop();
        if f32::from_bits((top >> 32) as u32) > walk.nearest.distance * SLACK {
            return;
        }
        let (child, Batch { parts, layers, .. }) = (top as u32, self.batch);
        if let Some(node) = parts.nodes.get(child as usize) {
            let (sorted, count) = lanes.sorted::<MASKED>(node, &walk.ray, walk.nearest.distance, layers);
            walk.stack[walk.height..walk.height + WIDTH].copy_from_slice(&sorted);
            walk.height += count;
            if walk.height > 0 {
                parts.prefetch(walk.stack[walk.height - 1] as u32);
            }
        } else if let Child::Leaf { first, count } = Child::of(child) {
            leaf::<L, MASKED>(lanes, parts, &walk.ray, layers, (first, count), &mut walk.nearest);
        }
    }

    #[inline(always)]
    fn end(&mut self, walk: &Walk<u64, STACK>) {
        self.hits[walk.number] = walk.nearest.hit();
    }
}

struct BlockedOf<'a, const MASKED: bool, const STACK: usize> {
    batch: Batch<'a>,
    blocked: &'a mut [bool],
    /// The block with the triangle that blocked a ray last.
    blocker: u32,
}

impl<const MASKED: bool, const STACK: usize> Query for BlockedOf<'_, MASKED, STACK> {
    type Answer = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        take_turns(lanes, self);
    }
}

impl<const MASKED: bool, const STACK: usize> Turns<STACK> for BlockedOf<'_, MASKED, STACK> {
    type Left = u32;

    #[inline(always)]
    fn start<L: Lanes>(&mut self, lanes: L, walk: &mut Walk<u32, STACK>) -> bool {
        let Batch { parts, layers, .. } = self.batch;
        while let Some(ray) = self.batch.rays.get(self.batch.next) {
            let (ray, number) = (Prepared::new(ray, parts.margin), self.batch.next);
            self.batch.next += 1;
            let is_blocked = in_block::<L, MASKED>(lanes, parts, &ray, layers, self.blocker).is_some();
            self.blocked[number] = is_blocked;
            if !is_blocked {
                walk.start(ray, number, 0);
                return true;
            }
        }
        false
    }

    #[inline(always)]
    fn turn<L: Lanes>(&mut self, lanes: L, walk: &mut Walk<u32, STACK>) {
        let (child, Batch { parts, layers, .. }) = (walk.pop(), self.batch);
        if let Some(node) = parts.nodes.get(child as usize) {
            let (met, count) = lanes.met::<MASKED>(node, &walk.ray, walk.ray.end, layers);
            walk.stack[walk.height..walk.height + WIDTH].copy_from_slice(&met);
            walk.height += count;
            if walk.height > 0 {
                parts.prefetch(walk.stack[walk.height - 1]);
            }
        } else if let Child::Leaf { first, count } = Child::of(child) {
            for block in first..first + count {
                if in_block::<L, MASKED>(lanes, parts, &walk.ray, layers, block).is_some() {
                    self.blocked[walk.number] = true;
                    self.blocker = block;
                    walk.height = 0;
                    return;
                }
            }
        }
    }

    #[inline(always)]
    fn end(&mut self, _: &Walk<u32, STACK>) {}
}
