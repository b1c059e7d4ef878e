//! The generated town: as large as asked, the same every time, and walkable.

use std::collections::HashSet;

use glam::{Vec3, vec3};
use throng_sight::town::{self, BODIES, BULLETS, SIGHT};
use throng_sight::{Map, Ray, bake};

#[test]
fn a_town_has_the_triangles_that_were_asked_for() {
    for triangles in [5_000, 12_345, 60_000, 200_000] {
        let mesh = town::town(9, triangles);
        let found = mesh.triangles.len();
        assert!((triangles..triangles + 4_000 + triangles / 10).contains(&found), "{found} instead of {triangles}");
        mesh.check().unwrap();
    }
}

#[test]
fn a_seed_gives_the_same_town_and_another_seed_another() {
    assert_eq!(town::town(1, 20_000), town::town(1, 20_000));
    assert_ne!(town::town(1, 20_000), town::town(2, 20_000));
    let checksum = bake(&town::town(1, 5_000)).unwrap().checksum();
    assert_ne!(checksum, bake(&town::town(2, 5_000)).unwrap().checksum());
}

#[test]
fn windows_and_leaves_block_what_they_should() {
    let mesh = town::town(4, 20_000);
    let count = |layers| mesh.layers.iter().filter(|found| **found == layers).count();
    assert!(count(BODIES) > 50, "panes and wire block bodies alone");
    assert!(count(SIGHT) > 200, "leaves block sight alone");
    assert!(count(BODIES | SIGHT | BULLETS) > 10_000, "walls block everything");
}

/// Where a body can walk from `start`, in cells of a quarter of a metre: along free lines at three heights, over steps of
/// at most 0.3 m, under ceilings of at least 1.8 m.
fn reachable(map: &Map, start: Vec3) -> HashSet<[i32; 3]> {
    const CELL_M: f32 = 0.25;
    let is_free = |from: Vec3, to: Vec3| !map.is_blocked(&Ray::between(from, to).unwrap(), BODIES);
    let cell = |place: Vec3| [place.x / CELL_M, place.y / CELL_M, place.z / CELL_M].map(|part| part.round() as i32);
    let mut found = HashSet::from([cell(start)]);
    let mut open = vec![start];
    while let Some(place) = open.pop() {
        for way in [vec3(CELL_M, 0.0, 0.0), vec3(-CELL_M, 0.0, 0.0), vec3(0.0, 0.0, CELL_M), vec3(0.0, 0.0, -CELL_M)] {
            let next = place + way;
            let down = Ray::new(next + 0.5 * Vec3::Y, -Vec3::Y, 0.9).unwrap();
            let Some(floor) = map.closest(&down, BODIES) else { continue };
            let next = down.at(floor.distance_m);
            let is_step = (next.y - place.y).abs() <= 0.3;
            let heights = [0.5, 1.1, 1.7].map(|height| height * Vec3::Y);
            let is_clear =
                heights.iter().all(|height| is_free(place + *height, vec3(next.x, place.y, next.z) + *height));
            if is_step && is_clear && is_free(next + 0.1 * Vec3::Y, next + 1.8 * Vec3::Y) && found.insert(cell(next)) {
                open.push(next);
            }
        }
    }
    found
}

#[test]
fn a_body_can_walk_from_one_team_to_the_other_and_up_the_stairs_of_houses() {
    let map = bake(&town::town(6, 52_000)).unwrap();
    let mark = |name: &str| {
        let mark = map.marks().find(|mark| mark.name == name).unwrap_or_else(|| panic!("there is no mark {name}"));
        let [low, high] = mark.bounds;
        vec3((low.x + high.x) / 2.0, low.y, (low.z + high.z) / 2.0)
    };
    let found = reachable(&map, mark("spawn/a"));
    for name in ["spawn/b", "site/a", "site/b"] {
        let target = mark(name);
        let near =
            |cell: &&[i32; 3]| (vec3(cell[0] as f32, cell[1] as f32, cell[2] as f32) / 4.0 - target).length() < 3.0;
        assert!(found.iter().find(near).is_some(), "{name} cannot be reached");
    }
    let upstairs = found.iter().filter(|cell| cell[1] == 12).count();
    assert!(upstairs > 4_000, "only {upstairs} cells of upper floors can be reached");
}
