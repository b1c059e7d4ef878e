//! Whether any line of a shaft may be free: by rays, and by rectangles of planes that are covered.
//!
//! ```text
//!   possible eyes        a wall         possible target       1. a ray between the middles: free? then it may be seen
//!     +-----+            |                  +-------+         2. does the wall that it hit cover the whole crossing of
//!     |  o--+------------#------------------+---o   |            the shaft? then nothing is seen through the shaft
//!     +-----+            #                  +-------+         3. else there are holes: from each, all lines to one of the
//!                      hole                                      boxes have to be blocked; that is a narrower shaft
//!                        |                                    4. else the shaft is cut in two
//! ```
//!
//! Hidden is what is proved for all lines. If the rays are used up before a pair is decided, the pair may be seen.
//!
//! The walls that helped are remembered: the next search tries them before it casts a ray.

use glam::Vec3;

use super::cover::{Cover, Patch};
use super::occluder::Occluder;
use super::shaft::{EDGE_M, Plane, Rect, Shaft, Space};
use super::walls::{FogWalls, NONE};
use crate::ray::{Hit, Ray};

/// Walls across an axis that a pair remembers, and others.
const PANELS: usize = 16;
const PATCHES: usize = 2;
/// Boxes with shorter sides are not cut, in metres.
const SIDE_MIN_M: f32 = 0.03;
/// With more holes in a wall, the shaft is cut instead.
const HOLES_MAX: usize = 8;
/// Shafts that wait.
const OPEN_MAX: usize = 256;

/// The results of earlier searches for a pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// The numbers of walls, the newest that helped first.
    panels: [u32; PANELS],
    patches: [Option<Patch>; PATCHES],
    /// The line that was free, as shares of the boxes' sides.
    free: Option<[Vec3; 2]>,
}

impl Memory {
    pub(super) const NOTHING: Memory = Memory { panels: [NONE; PANELS], patches: [None; PATCHES], free: None };

    pub(super) fn forget_the_free_line(&mut self) {
        self.free = None;
    }

    fn covers(&mut self, shaft: &Shaft, walls: &FogWalls) -> bool {
        let covers = |panel: &u32| walls.sight.panel(*panel).is_some_and(|panel| panel.covers(shaft));
        if let Some(place) = self.panels.iter().position(covers) {
            self.panels[..=place].rotate_right(1);
            return true;
        }
        self.patches.iter().flatten().any(|patch| patch.covers(shaft))
    }

    fn remember_panel(&mut self, panel: u32) {
        let known = self.panels.iter().position(|known| *known == panel).unwrap_or(PANELS - 1);
        self.panels[..=known].rotate_right(1);
        self.panels[0] = panel;
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

/// Lines that have to be blocked.
#[derive(Clone, Copy, Debug)]
struct Task {
    shaft: Shaft,
    /// Whether they lead from the eyes to the target; else they are parts of such lines, and of others.
    is_whole: bool,
}

/// Looks for free lines. Keeps memory, so that a search does not allocate.
#[derive(Clone, Debug)]
pub(super) struct Search {
    cover: Cover,
    open: Vec<Task>,
    holes: Vec<Rect>,
    next_holes: Vec<Rect>,
    rays_max: u32,
    rays_left: u32,
    pub(super) work: Work,
}

/// The result of a ray along the middle of a shaft.
enum Middle {
    Free,
    /// Nothing is seen through the shaft.
    Covered,
    /// The triangle covers a part of it.
    Partly(Hit),
}

/// The rays are used up.
struct NoRays;

impl Search {
    pub(super) fn new(rays_max: u32) -> Search {
        Search {
            cover: Cover::new(),
            open: Vec::with_capacity(OPEN_MAX),
            holes: Vec::with_capacity(4 * HOLES_MAX),
            next_holes: Vec::with_capacity(4 * HOLES_MAX),
            rays_max,
            rays_left: 0,
            work: Work::default(),
        }
    }

    /// Searches among all lines of a shaft.
    pub(super) fn run(
        &mut self,
        shaft: Shaft,
        walls: &FogWalls,
        occluders: &[Occluder],
        memory: &mut Memory,
    ) -> Answer {
        if shaft.from.overlaps(shaft.to) || self.is_still_free(&shaft, walls, occluders, memory) {
            return Answer::Free;
        }
        self.rays_left = self.rays_max;
        self.open.clear();
        self.open.push(Task { shaft, is_whole: true });
        let mut by_occluder = false;
        let mut next = 0;
        while let Some(task) = self.open.get(next).copied() {
            next += 1;
            if memory.covers(&task.shaft, walls) {
                self.work.remembered += 1;
                continue;
            }
            if occluders.iter().any(|occluder| occluder.hides(&task.shaft)) {
                by_occluder = true;
                continue;
            }
            let Ok(middle) = self.middle(&task.shaft, walls, memory) else { return Answer::Doubt };
            let plane = match middle {
                Middle::Covered => continue,
                Middle::Free => {
                    if self.is_free(&task, &shaft, walls, occluders, memory) {
                        return Answer::Free;
                    }
                    None
                }
                Middle::Partly(hit) => match self.through_holes(&task, hit, walls, memory) {
                    Ok(true) => continue,
                    Ok(false) => walls.map.corners(hit.triangle).and_then(Plane::of),
                    Err(NoRays) => return Answer::Doubt,
                },
            };
            if is_small(&task.shaft) || self.open.len() + 2 > OPEN_MAX {
                return Answer::Doubt;
            }
            self.open.extend(task.shaft.split(plane.as_ref()).map(|shaft| Task { shaft, ..task }));
        }
        Answer::Hidden { by_occluder }
    }

    /// Whether the line that was free the last time, moved with the boxes, is free again.
    fn is_still_free(&mut self, shaft: &Shaft, walls: &FogWalls, occluders: &[Occluder], memory: &mut Memory) -> bool {
        let Some([from, to]) = memory.free else { return false };
        let (from, to) = (at_share(from, shaft.from), at_share(to, shaft.to));
        let is_free = self.is_line_free(from, to, walls, occluders);
        if !is_free {
            memory.free = None;
        }
        is_free
    }

    fn is_line_free(&mut self, from: Vec3, to: Vec3, walls: &FogWalls, occluders: &[Occluder]) -> bool {
        self.work.rays += 1;
        !occluders.iter().any(|occluder| occluder.blocks(from, to))
            && Ray::between(from, to).is_ok_and(|ray| !walls.map.is_blocked(&ray, walls.sight_layers))
    }

    /// Whether the free middle of a shaft belongs to a free line from the eyes to the target.
    fn is_free(
        &mut self,
        task: &Task,
        root: &Shaft,
        walls: &FogWalls,
        occluders: &[Occluder],
        memory: &mut Memory,
    ) -> bool {
        let (mut from, mut to) = (task.shaft.from.middle(), task.shaft.to.middle());
        if task.is_whole {
            if occluders.iter().any(|occluder| occluder.blocks(from, to)) {
                return false;
            }
        } else {
            let ends = root.from.meets_line(from, to).zip(root.to.meets_line(from, to));
            let Some(([_, leave], [enter, _])) = ends.filter(|([_, leave], [enter, _])| leave < enter) else {
                return false;
            };
            (from, to) = (from + leave * (to - from), from + enter * (to - from));
            if !self.is_line_free(from, to, walls, occluders) {
                return false;
            }
        }
        memory.free = Some([share_of(from, root.from), share_of(to, root.to)]);
        true
    }

    /// Casts a ray along the middle of a shaft, and tries the wall that it hits.
    fn middle(&mut self, shaft: &Shaft, walls: &FogWalls, memory: &mut Memory) -> Result<Middle, NoRays> {
        // Without a ray there is no answer.
        let line = Ray::between(shaft.from.middle(), shaft.to.middle()).map_err(|_| NoRays)?;
        self.rays_left = self.rays_left.checked_sub(1).ok_or(NoRays)?;
        self.work.rays += 1;
        let Some(hit) = walls.map.closest(&line, walls.sight_layers) else { return Ok(Middle::Free) };
        let covers = |panel: &u32| walls.sight.panel(*panel).is_some_and(|panel| panel.covers(shaft));
        if let Some(panel) = walls.sight.holding(hit.triangle).find(covers) {
            memory.remember_panel(panel);
            return Ok(Middle::Covered);
        }
        let plane = walls.map.corners(hit.triangle).and_then(Plane::of).filter(|plane| !plane.is_upright);
        let patch = plane.and_then(|plane| self.cover.patch(&walls.map, walls.sight_layers, plane, shaft));
        if let Some(patch) = patch {
            memory.remember(patch);
            return Ok(Middle::Covered);
        }
        Ok(Middle::Partly(hit))
    }

    /// Lines pass the plane of a wall only through its holes. For each hole, all lines from the eyes to it or all lines
    /// from it to the target have to be blocked: that becomes a task. False if no good tasks were found.
    fn through_holes(&mut self, task: &Task, hit: Hit, walls: &FogWalls, memory: &mut Memory) -> Result<bool, NoRays> {
        let Some(number) = walls.sight.holding(hit.triangle).next() else { return Ok(false) };
        let Some(plane) = walls.sight.panel(number).map(|panel| panel.plane) else { return Ok(false) };
        let Some(rect) = plane.crossing(&task.shaft) else { return Ok(false) };
        if !self.find_holes(rect, walls.sight.beside(number)) {
            return Ok(false);
        }
        let before = self.open.len();
        for place in 0..self.holes.len() {
            let hole = plane.flat(self.holes[place]);
            let to_hole = Shaft { from: task.shaft.from, to: hole };
            let from_hole = Shaft { from: hole, to: task.shaft.to };
            if memory.covers(&to_hole, walls) || memory.covers(&from_hole, walls) {
                self.work.remembered += 1;
                continue;
            }
            let ahead = self.middle(&from_hole, walls, memory)?;
            if matches!(ahead, Middle::Covered) {
                continue;
            }
            let shaft = match (self.middle(&to_hole, walls, memory)?, ahead) {
                (Middle::Covered, _) => continue,
                (_, Middle::Partly(_)) => from_hole,
                (Middle::Partly(_), _) => to_hole,
                _ => {
                    self.open.truncate(before);
                    return Ok(false);
                }
            };
            if self.open.len() == OPEN_MAX {
                return Err(NoRays);
            }
            self.open.push(Task { shaft, is_whole: false });
        }
        Ok(true)
    }

    /// The parts of a rectangle that none of the walls covers. False if there are too many.
    fn find_holes(&mut self, rect: Rect, walls: &[Patch]) -> bool {
        self.holes.clear();
        self.holes.push(rect);
        for wall in walls {
            self.next_holes.clear();
            for hole in &self.holes {
                let is_open = |hole: &Rect| (hole.high - hole.low).min_element() > 2.0 * EDGE_M;
                self.next_holes.extend(hole.without(wall.rect).filter(is_open));
            }
            std::mem::swap(&mut self.holes, &mut self.next_holes);
            if self.holes.len() > HOLES_MAX {
                return false;
            }
        }
        true
    }
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
