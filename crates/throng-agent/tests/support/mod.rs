//! Maps, and an oracle for bodies that uses rays alone.

use std::f32::consts::TAU;

use glam::{Vec3, vec3};
use throng_agent::{CellId, Navigation, NavigationOptions};
use throng_sight::{Layers, Map, Mesh, Ray, bake, town};

pub(crate) fn town_map(seed: u64, triangles: usize) -> Map {
    bake(&town::town(seed, triangles)).expect("a town is a valid mesh")
}

pub(crate) fn survey(map: &Map) -> Navigation {
    Navigation::survey(map, &NavigationOptions::new(town::BODIES)).expect("a town can be walked")
}

pub(crate) fn mark(map: &Map, name: &str) -> Vec3 {
    let mark = map.marks().find(|mark| mark.name == name).expect("the town has this mark");
    vec3(0.5, 0.0, 0.5) * (mark.bounds[0] + mark.bounds[1]) + vec3(0.0, mark.bounds[0].y, 0.0)
}

/// A box of twelve triangles.
pub(crate) fn cuboid(mesh: &mut Mesh, low: Vec3, high: Vec3) {
    let first = mesh.positions.len() as u32;
    for bits in 0..8 {
        let pick = |bit: usize, axis: usize| if bits & bit == 0 { low[axis] } else { high[axis] };
        mesh.positions.push(vec3(pick(1, 0), pick(2, 1), pick(4, 2)));
    }
    for face in [[0, 4, 6, 2], [1, 3, 7, 5], [0, 1, 5, 4], [2, 6, 7, 3], [0, 2, 3, 1], [4, 5, 7, 6]] {
        let [a, b, c, d] = face.map(|corner| first + corner);
        mesh.triangles.extend([[a, b, c], [a, c, d]]);
        mesh.layers.extend([Layers(7); 2]);
    }
}

/// The height of the floor below `from`, if there is one within `depth_m`.
pub(crate) fn floor(map: &Map, from: Vec3, depth_m: f32) -> Option<f32> {
    let down = Ray::new(from, -Vec3::Y, depth_m).expect("a valid ray");
    map.closest(&down, town::BODIES).map(|hit| from.y - hit.distance_m)
}

/// Whether rays to all sides from several heights of a body find nothing within a radius.
pub(crate) fn has_room(map: &Map, feet: Vec3, radius_m: f32) -> bool {
    let heights = [0.42, 0.7, 1.0, 1.3, 1.6, 1.78];
    heights.iter().all(|height| {
        (0..24).all(|side| {
            let turn = TAU * side as f32 / 24.0;
            let direction = vec3(turn.cos(), 0.0, turn.sin());
            let ray = Ray::new(feet + vec3(0.0, *height, 0.0), direction, radius_m).expect("a valid ray");
            !map.is_blocked(&ray, town::BODIES)
        })
    })
}

pub(crate) fn any_cell(random: &mut fastrand::Rng, navigation: &Navigation) -> CellId {
    CellId(random.u32(..navigation.cell_count() as u32))
}
