//! Whether any line of a shaft may be free: by rays, and by rectangles of planes that are covered.
//!
//! ```text
//!   possible eyes        walls          possible target        1. a ray between the middles: free? then it may be seen
//!     +-----+          |                   +-------+           2. else the wall that it hit: does it cover the whole
//!     |  o--+----------#-------------------+---o   |              crossing of the shaft? then this shaft is hidden
//!     +-----+          #                   +-------+           3. else the next wall on the ray; else the shaft is cut
//!                      |                                          in two, and both halves are looked at
//! ```
//!
//! Hidden is what is proved for all lines. What is not decided when the rays are used up may be seen.
//!
//! The walls that helped are remembered: the next search tries them before it casts a ray.

use glam::Vec3;

use super::cover::{Cover, Patch};
use super::occluder::Occluder;
use super::shaft::{Plane, Shaft, Space};
use crate::map::Map;
use crate::ray::{Layers, Ray};

/// Walls that a pair remembers.
const PATCHES: usize = 8;
/// Walls on one ray that are tried before a shaft is cut.
const HITS_MAX: usize = 3;
/// How far behind a wall the next one is looked for, in metres: a wall has two sides.
const BEHIND_M: f32 = 0.3;
/// Boxes with shorter sides are not cut, in metres.
const SIDE_MIN_M: f32 = 0.03;

/// What is known about a pair from searches before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// The newest that helped first.
    patches: [Option<Patch>; PATCHES],
    /// The line that was free, as shares of the boxes' sides.
    free: Option<[Vec3; 2]>,
}

impl Memory {
    pub(super) const NOTHING: Memory = Memory { patches: [None; PATCHES], free: None };

    fn covers(&mut self, shaft: &Shaft) -> bool {
        let found = self.patches.iter().position(|patch| patch.as_ref().is_some_and(|patch| patch.covers(shaft)));
        if let Some(place) = found {
            self.patches[..=place].rotate_right(1);
        }
        found.is_some()
    }

    fn remember(&mut self, patch: Patch) {
        self.patches.rotate_right(1);
        self.patches[0] = Some(patch);
    }
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A line is free.
    Free,
    /// No line is free; `by_occluder` if only because of a smoke or a wall of the match.
    Hidden { by_occluder: bool },
    /// Not decided within the rays.
    Doubt,
}

/// How much work searches did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) rays: u64,
    pub(super) remembered: u64,
}

/// Looks for free lines. Keeps memory, so that a search does not allocate.
#[derive(Clone, Debug)]
pub(super) struct Search {
    cover: Cover,
    open: Vec<Shaft>,
    rays_max: u32,
    pub(super) work: Work,
}

impl Search {
    pub(super) fn new(rays_max: u32) -> Search {
        // Each cut follows a ray, and adds two shafts.
        let room = 2 * rays_max as usize + 1;
        Search { cover: Cover::new(), open: Vec::with_capacity(room), rays_max, work: Work::default() }
    }

    pub(super) fn cover(&mut self) -> &mut Cover {
        &mut self.cover
    }

    /// Searches among all lines of a shaft.
    pub(super) fn run(
        &mut self,
        shaft: Shaft,
        (map, sight): (&Map, Layers),
        occluders: &[Occluder],
        memory: &mut Memory,
    ) -> Answer {
        if shaft.from.overlaps(shaft.to) || self.is_still_free(&shaft, (map, sight), occluders, memory) {
            return Answer::Free;
        }
        let mut rays_left = self.rays_max;
        let mut by_occluder = false;
        self.open.clear();
        self.open.push(shaft);
        let mut next = 0;
        while next < self.open.len() {
            let shaft = self.open[next];
            next += 1;
            if memory.covers(&shaft) {
                self.work.remembered += 1;
                continue;
            }
            if occluders.iter().any(|occluder| occluder.hides(&shaft)) {
                by_occluder = true;
                continue;
            }
            let [from, to] = [shaft.from.middle(), shaft.to.middle()];
            match self.walls_on_the_line(&shaft, (map, sight), &mut rays_left, memory) {
                Wall::Covers => {}
                Wall::Free if !occluders.iter().any(|occluder| occluder.blocks(from, to)) => {
                    memory.free =
                        Some([share_of(from, outer(&self.open, true)), share_of(to, outer(&self.open, false))]);
                    return Answer::Free;
                }
                Wall::NoRays => return Answer::Doubt,
                Wall::Free | Wall::Partly(_) if is_small(&shaft) => return Answer::Doubt,
                Wall::Free => self.open.extend(shaft.split(None)),
                Wall::Partly(plane) => self.open.extend(shaft.split(plane.as_ref())),
            }
        }
        Answer::Hidden { by_occluder }
    }

    /// Whether the line that was free the last time, moved with the boxes, is free again.
    fn is_still_free(
        &mut self,
        shaft: &Shaft,
        (map, sight): (&Map, Layers),
        occluders: &[Occluder],
        memory: &mut Memory,
    ) -> bool {
        let Some([from, to]) = memory.free else { return false };
        let (from, to) = (at_share(from, shaft.from), at_share(to, shaft.to));
        self.work.rays += 1;
        let is_free = !occluders.iter().any(|occluder| occluder.blocks(from, to))
            && Ray::between(from, to).is_ok_and(|ray| !map.is_blocked(&ray, sight));
        if !is_free {
            memory.free = None;
        }
        is_free
    }

    fn walls_on_the_line(
        &mut self,
        shaft: &Shaft,
        (map, sight): (&Map, Layers),
        rays_left: &mut u32,
        memory: &mut Memory,
    ) -> Wall {
        // Without a ray there is no answer.
        let Ok(line) = Ray::between(shaft.from.middle(), shaft.to.middle()) else { return Wall::NoRays };
        let (mut start_m, mut first) = (0.0, None);
        for number in 0..HITS_MAX {
            let Ok(rest) = line.between_distances(start_m, line.end_m()) else { break };
            if *rays_left == 0 {
                return Wall::NoRays;
            }
            *rays_left -= 1;
            self.work.rays += 1;
            let Some(hit) = map.closest(&rest, sight) else {
                if number == 0 {
                    return Wall::Free;
                }
                break;
            };
            start_m = hit.distance_m + BEHIND_M;
            let Some(plane) = map.corners(hit.triangle).and_then(Plane::of) else { continue };
            if let Some(patch) = self.cover.patch(map, sight, plane, shaft) {
                memory.remember(patch);
                return Wall::Covers;
            }
            first = first.or(Some(plane));
        }
        Wall::Partly(first)
    }
}

enum Wall {
    Free,
    Covers,
    Partly(Option<Plane>),
    NoRays,
}

/// The first shaft of a search holds all others.
fn outer(open: &[Shaft], is_from: bool) -> Space {
    if is_from { open[0].from } else { open[0].to }
}

fn share_of(point: Vec3, space: Space) -> Vec3 {
    (point - space.lowest) / (space.highest - space.lowest).max(Vec3::splat(1e-6))
}

fn at_share(share: Vec3, space: Space) -> Vec3 {
    space.lowest + share * (space.highest - space.lowest)
}

fn is_small(shaft: &Shaft) -> bool {
    let size = |space: &Space| (space.highest - space.lowest).max_element();
    size(&shaft.from).max(size(&shaft.to)) < SIDE_MIN_M
}
