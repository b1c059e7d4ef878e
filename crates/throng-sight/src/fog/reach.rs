//! Where something can be after a while: a box that grows with time, and ends at walls.

use glam::Vec3;

use super::cover::Patch;
use super::shaft::{Plane, Rect, Space};
use super::walls::FogWalls;
use crate::ray::Ray;

/// Down and up first: with floor and ceiling found, walls need to reach no farther.
const SIDES: [(usize, bool); 6] = [(1, false), (1, true), (0, false), (0, true), (2, false), (2, true)];
/// Things that stand before a wall are passed by so many rays.
const HITS_MAX: usize = 2;
/// Nobody's eye comes nearer to a wall, in metres.
const APART_M: f32 = 0.02;
/// How far behind a hit the next one is looked for, in metres.
const BEHIND_M: f32 = 0.01;

/// The walls around something that moves: what it cannot pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walls([Option<Patch>; 6]);

impl Walls {
    pub(super) const NONE: Walls = Walls([None; 6]);

    /// Where `space` can be after a while: it moves at most by `reach`, and its middle not through the planes that are
    /// remembered, if they cover the whole box. So no way within the box leads past them.
    pub(super) fn possible(&self, space: Space, reach: Vec3) -> Space {
        let mut grown = space.grown(reach);
        for ((axis, is_up), patch) in SIDES.into_iter().zip(&self.0) {
            if let Some(place) = patch.and_then(|patch| stops(&patch, grown, space.middle(), (axis, is_up))) {
                if is_up {
                    grown.highest[axis] = grown.highest[axis].min((place - APART_M).max(space.highest[axis]));
                } else {
                    grown.lowest[axis] = grown.lowest[axis].max((place + APART_M).min(space.lowest[axis]));
                }
            }
        }
        grown
    }

    /// Looks for the walls again, where those that are remembered do not serve. Returns the number of rays.
    pub(super) fn look(&mut self, space: Space, reach: Vec3, walls: &FogWalls) -> u64 {
        let mut rays = 0;
        let middle = space.middle();
        for (side, (axis, is_up)) in SIDES.into_iter().enumerate() {
            let grown = self.possible(space, reach);
            if self.0[side].is_some_and(|patch| stops(&patch, grown, middle, (axis, is_up)).is_some()) {
                continue;
            }
            self.0[side] = None;
            let way = if is_up { Vec3::AXES[axis] } else { -Vec3::AXES[axis] };
            let length_m = (if is_up { grown.highest - middle } else { middle - grown.lowest })[axis];
            let Ok(line) = Ray::new(middle, way, length_m) else { continue };
            let mut start_m = 0.0;
            for _ in 0..HITS_MAX {
                let Ok(rest) = line.between_distances(start_m, length_m) else { break };
                rays += 1;
                let Some(hit) = walls.map.closest(&rest, walls.body_layers) else { break };
                start_m = hit.distance_m + BEHIND_M;
                let mut panels = walls.bodies.holding(hit.triangle).filter_map(|panel| walls.bodies.panel(panel));
                let held = panels.find(|panel| stops(panel, grown, middle, (axis, is_up)).is_some());
                if held.is_some() {
                    self.0[side] = held.copied();
                    break;
                }
            }
        }
        rays
    }
}

/// The places of a box on a plane that stands across an axis.
fn section(plane: &Plane, space: Space) -> Rect {
    Rect { low: plane.place(space.lowest), high: plane.place(space.highest) }
}

/// Where a wall stops a way from the middle of the box to its side.
fn stops(patch: &Patch, grown: Space, middle: Vec3, (axis, is_up): (usize, bool)) -> Option<f32> {
    let place = patch.plane.distance as f32;
    let is_between = if is_up {
        middle[axis] < place && place < grown.highest[axis]
    } else {
        grown.lowest[axis] < place && place < middle[axis]
    };
    (patch.plane.axis == axis && is_between && patch.rect.holds(section(&patch.plane, grown))).then_some(place)
}
