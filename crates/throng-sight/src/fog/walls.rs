//! The parts of a map that can hide somebody: its large triangles, and the rectangles that they cover together.

use std::collections::BTreeMap;

use super::cells::CellVisibility;
use super::cover::{Cover, Patch};
use super::shaft::{Plane, Rect};
use crate::bake::bake;
use crate::map::Map;
use crate::mesh::{Mesh, MeshError};
use crate::ray::{Layers, TriangleId};

/// Smaller triangles hide nobody, in square metres.
const AREA_MIN_M2: f64 = 0.3;
/// Narrower ones neither, in metres.
const WIDTH_MIN_M: f64 = 0.15;
/// A rectangle grows at most so often in one direction.
const STEPS_MAX: usize = 64;
/// A side has to reach past so much of a coordinate to count as beyond it, in metres.
const BEYOND_M: f32 = 1e-3;

/// The walls of a map, for [`Fog`](super::Fog): its large triangles alone, and which rectangles they cover together.
///
/// Leaves, furniture and other small things hide nobody for long, but cost most of the rays. Without them a fog still
/// hides nobody who is seen, because it knows of fewer walls, not of more. Make it once for each map; all matches share
/// it.
#[derive(Clone, Debug)]
pub struct FogWalls {
    pub(super) map: Map,
    pub(super) sight: Panels,
    pub(super) bodies: Panels,
    pub(super) sight_layers: Layers,
    pub(super) body_layers: Layers,
    pub(super) cells: Option<CellVisibility>,
}

/// Rectangles on planes across an axis, as large as may be, that triangles cover.
#[derive(Clone, Debug)]
pub(super) struct Panels {
    panels: Vec<Patch>,
    /// For each rectangle the first one on its plane, and the one after the last.
    planes: Vec<[u32; 2]>,
    /// For each triangle two of them that hold it; [`NONE`] if there is none.
    of: Vec<[u32; 2]>,
}

pub(super) const NONE: u32 = u32::MAX;

impl FogWalls {
    /// Finds the walls of a map: layers that block sight, and layers that bodies cannot pass. Takes about a second for a
    /// town. If the map has visible cells for these layers of sight, they are used.
    ///
    /// # Errors
    /// If the map has no large triangle in these layers: nothing hides anybody then.
    pub fn new(map: &Map, sight: Layers, bodies: Layers) -> Result<FogWalls, MeshError> {
        let cells = map.cells().filter(|cells| cells.sight() == sight);
        let map = bake(&large(map, sight | bodies))?;
        let (sight_panels, body_panels) = (Panels::of(&map, sight), Panels::of(&map, bodies));
        Ok(FogWalls { map, sight: sight_panels, bodies: body_panels, sight_layers: sight, body_layers: bodies, cells })
    }

    /// The same walls with cells: a pair whose cells cannot see each other costs no ray.
    pub fn with_cells(self, cells: CellVisibility) -> FogWalls {
        FogWalls { cells: Some(cells), ..self }
    }

    /// The number of cells that are looked up before a ray is cast, if there are any.
    pub fn cell_count(&self) -> Option<u32> {
        self.cells.as_ref().map(CellVisibility::cell_count)
    }

    /// The number of triangles of the walls.
    pub fn triangle_count(&self) -> u32 {
        self.map.triangle_count()
    }

    /// The number of rectangles that block sight.
    pub fn panel_count(&self) -> usize {
        self.sight.panels.len()
    }
}

fn large(map: &Map, layers: Layers) -> Mesh {
    let mut mesh = Mesh::default();
    for triangle in map.triangles() {
        let (Some(corners), Some(of)) = (map.corners(triangle), map.layers_of(triangle)) else { continue };
        let [a, b, c] = corners.map(|corner| corner.as_dvec3());
        let area_m2 = 0.5 * (b - a).cross(c - a).length();
        let longest_m = (b - a).length().max((c - b).length()).max((a - c).length());
        if of.meets(layers) && area_m2 >= AREA_MIN_M2 && 2.0 * area_m2 >= WIDTH_MIN_M * longest_m {
            let first = mesh.positions.len() as u32;
            mesh.positions.extend(corners);
            mesh.triangles.push([first, first + 1, first + 2]);
            mesh.layers.push(of);
        }
    }
    mesh
}

impl Panels {
    fn of(map: &Map, layers: Layers) -> Panels {
        let mut groups: BTreeMap<(usize, u32), Vec<(TriangleId, Rect)>> = BTreeMap::new();
        for triangle in map.triangles() {
            let (Some(corners), Some(of)) = (map.corners(triangle), map.layers_of(triangle)) else { continue };
            let Some(plane) = Plane::of(corners).filter(|plane| plane.is_upright && of.meets(layers)) else { continue };
            let [a, b, c] = corners.map(|corner| plane.place(corner));
            let rect = Rect { low: a.min(b).min(c), high: a.max(b).max(c) };
            groups.entry((plane.axis, (plane.distance as f32).to_bits())).or_default().push((triangle, rect));
        }
        let last = map.triangles().last().map_or(0, |triangle| triangle.0 as usize + 1);
        let mut found = Panels { panels: Vec::new(), planes: Vec::new(), of: vec![[NONE; 2]; last] };
        let mut cover = Cover::new();
        for ((axis, place), triangles) in &groups {
            let plane = Plane::across(*axis, f32::from_bits(*place));
            let first = found.panels.len();
            found.add(map, layers, plane, triangles, &mut cover);
            found.planes.resize(found.panels.len(), [first as u32, found.panels.len() as u32]);
        }
        found
    }

    /// Adds the rectangles of one plane.
    fn add(&mut self, map: &Map, layers: Layers, plane: Plane, triangles: &[(TriangleId, Rect)], cover: &mut Cover) {
        let coordinates: [Vec<f32>; 2] = std::array::from_fn(|axis| {
            let mut all: Vec<f32> = triangles.iter().flat_map(|(_, rect)| [rect.low[axis], rect.high[axis]]).collect();
            all.sort_by(f32::total_cmp);
            all.dedup();
            all
        });
        let first = self.panels.len();
        // Those that grew along the first axis first, and those that grew along the second.
        let mut known: [Vec<u32>; 2] = Default::default();
        for (triangle, rect) in triangles {
            for (order, known) in known.iter_mut().enumerate() {
                let held = known.iter().copied().find(|panel| self.panels[*panel as usize].rect.holds(*rect));
                let panel = match held {
                    Some(panel) => panel,
                    None if !cover.is_covered(map, layers, plane, *rect) => NONE,
                    None => {
                        let rect = grow(*rect, [order, 1 - order], &coordinates, |strip| {
                            cover.is_covered(map, layers, plane, strip)
                        });
                        let patch = Patch { plane, rect };
                        let same = self.panels[first..].iter().position(|panel| *panel == patch);
                        let panel = same.map_or(self.panels.len(), |place| first + place);
                        if same.is_none() {
                            self.panels.push(patch);
                        }
                        known.push(panel as u32);
                        panel as u32
                    }
                };
                self.of[triangle.0 as usize][order] = panel;
            }
        }
    }

    /// The numbers of the rectangles that hold a triangle.
    pub(super) fn holding(&self, triangle: TriangleId) -> impl Iterator<Item = u32> + use<> {
        let [first, second] = self.of.get(triangle.0 as usize).copied().unwrap_or([NONE; 2]);
        let second = if second == first { NONE } else { second };
        [first, second].into_iter().filter(|panel| *panel != NONE)
    }

    /// The rectangle with a number.
    pub(super) fn panel(&self, panel: u32) -> Option<&Patch> {
        self.panels.get(panel as usize)
    }

    /// All rectangles on the plane of one of them.
    pub(super) fn beside(&self, panel: u32) -> &[Patch] {
        let range = self.planes.get(panel as usize).map(|[first, end]| *first as usize..*end as usize);
        range.and_then(|range| self.panels.get(range)).unwrap_or_default()
    }
}

/// A covered rectangle, made larger along one axis and then the other, coordinate by coordinate, while what is added is
/// covered.
fn grow(
    mut rect: Rect,
    order: [usize; 2],
    coordinates: &[Vec<f32>; 2],
    mut is_covered: impl FnMut(Rect) -> bool,
) -> Rect {
    for axis in order {
        for _ in 0..STEPS_MAX {
            let next = coordinates[axis].iter().copied().find(|place| *place > rect.high[axis] + BEYOND_M);
            let Some(next) = next else { break };
            let mut strip = rect;
            (strip.low[axis], strip.high[axis]) = (rect.high[axis] - BEYOND_M, next);
            if !is_covered(strip) {
                break;
            }
            rect.high[axis] = next;
        }
        for _ in 0..STEPS_MAX {
            let next = coordinates[axis].iter().rev().copied().find(|place| *place < rect.low[axis] - BEYOND_M);
            let Some(next) = next else { break };
            let mut strip = rect;
            (strip.low[axis], strip.high[axis]) = (next, rect.low[axis] + BEYOND_M);
            if !is_covered(strip) {
                break;
            }
            rect.low[axis] = next;
        }
    }
    rect
}
