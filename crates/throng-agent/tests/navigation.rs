//! The walkable grid: bodies fit where it says, and all that it leaves out is out of reach.

use fastrand::Rng;
use glam::{Vec3, vec3};
use throng_agent::{BodyShape, CellId, Navigation, NavigationError, NavigationOptions, Reach};
use throng_seeds::for_seeds;
use throng_sight::{Map, Mesh, bake, town};

use crate::support::{any_cell, cuboid, floor, has_room, mark, survey, town_map};

#[test]
fn a_body_fits_where_the_grid_says_so() {
    for_seeds(3, |seed| {
        let map = town_map(seed, 5_000);
        let navigation = survey(&map);
        let mut random = Rng::with_seed(seed);
        for _ in 0..600 {
            let cell = any_cell(&mut random, &navigation);
            let feet = navigation.point(cell);
            assert!(has_room(&map, feet, 0.345), "no room at {feet}");
            let height = floor(&map, feet + vec3(0.0, 0.05, 0.0), 0.1).expect("a floor below the feet");
            assert!((height - feet.y).abs() < 0.01, "the floor at {feet} is at {height}");
        }
    });
}

#[test]
fn where_a_body_has_much_room_there_is_a_cell() {
    for_seeds(3, |seed| {
        let map = town_map(seed, 5_000);
        let navigation = survey(&map);
        let mut random = Rng::with_seed(seed);
        let [low, high] = map.bounds();
        let mut places = 0;
        for _ in 0..3_000 {
            let part = vec3(random.f32(), random.f32(), random.f32());
            let above = low + part * (high - low);
            let Some(height) = floor(&map, above, 30.0) else { continue };
            let feet = vec3(above.x, height, above.z);
            // Floors that are not level, and triangles seen from inside of furniture, are no places.
            if height > above.y - 1.8
                || !has_room(&map, feet, 0.5)
                || floor(&map, feet + vec3(0.3, 0.1, 0.0), 0.2).is_none()
            {
                continue;
            }
            places += 1;
            let cell = navigation.nearest(feet, 0.6);
            assert!(cell.is_some(), "no cell near {feet}, where there is room");
        }
        assert!(places > 300, "{places} places are too few");
    });
}

#[test]
fn all_marks_and_all_storeys_of_a_town_are_one_area() {
    for_seeds(4, |seed| {
        let map = town_map(seed, 5_000);
        let navigation = survey(&map);
        for name in ["spawn/a", "spawn/b", "site/a", "site/b"] {
            let cell = navigation.nearest(mark(&map, name), 2.0);
            assert!(cell.is_some_and(|cell| navigation.is_in_main(cell)), "{name} is not in the largest area");
        }
        let upstairs = navigation.cells().filter(|cell| navigation.is_in_main(*cell));
        let upstairs = upstairs.filter(|cell| (navigation.point(*cell).y - 3.1).abs() < 0.05).count();
        assert!(upstairs > 100, "{upstairs} cells of the upper storey can be reached");
    });
}

/// A floor of 20 m x 10 m with a wall across the middle that has a gap.
fn two_rooms(gap_m: f32) -> Map {
    let mut mesh = Mesh::default();
    cuboid(&mut mesh, vec3(0.0, -1.0, 0.0), vec3(20.0, 0.0, 10.0));
    cuboid(&mut mesh, vec3(9.9, 0.0, 0.0), vec3(10.1, 3.0, 4.13));
    cuboid(&mut mesh, vec3(9.9, 0.0, 4.13 + gap_m), vec3(10.1, 3.0, 10.0));
    bake(&mesh).expect("a valid mesh")
}

fn reach(navigation: &Navigation, from: Vec3, to: Vec3) -> Reach {
    let cell = |place| navigation.nearest(place, 0.5).expect("a cell at this place");
    navigation.reach(cell(from), cell(to))
}

#[test]
fn a_door_is_passed_if_it_is_wider_than_the_body() {
    for (gap_m, expected) in [(1.1, Reach::Yes), (0.95, Reach::Yes), (0.65, Reach::No)] {
        let navigation = survey(&two_rooms(gap_m));
        let (left, right) = (vec3(3.0, 0.0, 5.0), vec3(17.0, 0.0, 5.0));
        assert_eq!(reach(&navigation, left, right), expected, "{gap_m} m");
        assert_eq!(reach(&navigation, right, left), expected, "{gap_m} m");
    }
}

#[test]
fn steps_lead_both_ways_and_falls_one_way() {
    for (height_m, up, down) in [(0.38, true, true), (0.45, false, true), (1.9, false, true), (2.2, false, false)] {
        let mut mesh = Mesh::default();
        cuboid(&mut mesh, vec3(0.0, -1.0, 0.0), vec3(20.0, 0.0, 10.0));
        cuboid(&mut mesh, vec3(10.0, 0.0, 0.0), vec3(20.0, height_m, 10.0));
        let navigation = survey(&bake(&mesh).expect("a valid mesh"));
        let (low, high) = (vec3(3.0, 0.0, 5.0), vec3(15.0, height_m, 5.0));
        let expected = |is_way| if is_way { Reach::Yes } else { Reach::No };
        assert_eq!(reach(&navigation, low, high), expected(up), "{height_m} m up");
        assert_eq!(reach(&navigation, high, low), expected(down), "{height_m} m down");
    }
}

#[test]
fn a_low_ceiling_stops_a_body_that_is_taller() {
    let mut mesh = Mesh::default();
    cuboid(&mut mesh, vec3(0.0, -1.0, 0.0), vec3(20.0, 0.0, 10.0));
    cuboid(&mut mesh, vec3(8.0, 1.5, 0.0), vec3(12.0, 3.5, 10.0));
    let map = bake(&mesh).expect("a valid mesh");
    let mut options = NavigationOptions::new(town::BODIES);
    let (left, right) = (vec3(3.0, 0.0, 5.0), vec3(17.0, 0.0, 5.0));
    assert_eq!(reach(&Navigation::survey(&map, &options).unwrap(), left, right), Reach::No);
    options.body = BodyShape { height_m: 1.4, ..options.body };
    assert_eq!(reach(&Navigation::survey(&map, &options).unwrap(), left, right), Reach::Yes);
}

/// All cells that a search from `start` reaches.
fn reached(navigation: &Navigation, start: CellId) -> Vec<bool> {
    let mut is_reached = vec![false; navigation.cell_count()];
    is_reached[start.0 as usize] = true;
    let mut open = vec![start];
    while let Some(cell) = open.pop() {
        for link in navigation.links(cell) {
            if !std::mem::replace(&mut is_reached[link.to.0 as usize], true) {
                open.push(link.to);
            }
        }
    }
    is_reached
}

#[test]
fn what_is_said_about_reach_is_true() {
    for_seeds(2, |seed| {
        let navigation = survey(&town_map(seed, 8_000));
        let mut random = Rng::with_seed(seed);
        let mut said = [0; 3];
        for _ in 0..60 {
            let from = any_cell(&mut random, &navigation);
            let is_reached = reached(&navigation, from);
            for to in navigation.cells() {
                match navigation.reach(from, to) {
                    Reach::Yes => assert!(is_reached[to.0 as usize], "{from:?} to {to:?}: said yes"),
                    Reach::No => assert!(!is_reached[to.0 as usize], "{from:?} to {to:?}: said no"),
                    Reach::Unknown => {}
                }
                said[navigation.reach(from, to) as usize] += 1;
            }
        }
        assert!(said[0] > 0 && said[1] > 0, "both answers come: {said:?}");
        assert!(said[2] * 100 < said[0] + said[1], "most answers are sure: {said:?}");
    });
}

#[test]
fn the_same_map_gives_the_same_grid() {
    let map = town_map(5, 5_000);
    let (a, b) = (survey(&map), survey(&map));
    assert_eq!(a.cell_count(), b.cell_count());
    for cell in a.cells() {
        assert_eq!(a.point(cell), b.point(cell));
        assert!(a.links(cell).eq(b.links(cell)));
    }
}

#[test]
fn bad_options_and_unfit_maps_are_refused() {
    let map = two_rooms(1.0);
    let good = NavigationOptions::new(town::BODIES);
    let refused = |options: NavigationOptions| Navigation::survey(&map, &options).map(|_| ()).unwrap_err().tag();
    assert_eq!(refused(NavigationOptions { cell_m: 0.01, ..good }), "navigation_options");
    assert_eq!(refused(NavigationOptions { cell_m: f32::NAN, ..good }), "navigation_options");
    let body = BodyShape { radius_m: f32::INFINITY, ..good.body };
    assert_eq!(refused(NavigationOptions { body, ..good }), "navigation_options");
    let body = BodyShape { step_m: 2.0, ..good.body };
    assert_eq!(refused(NavigationOptions { body, ..good }), "navigation_options");
    let layers = throng_sight::Layers(8);
    assert_eq!(refused(NavigationOptions { layers, ..good }), "navigation_nothing_walkable");

    let mut mesh = Mesh::default();
    cuboid(&mut mesh, vec3(0.0, -1.0, 0.0), vec3(9_000.0, 0.0, 9_000.0));
    let wide = bake(&mesh).expect("a valid mesh");
    let error = Navigation::survey(&wide, &good).unwrap_err();
    assert_eq!(error, NavigationError::TooWide { width_m: 9_000.0, depth_m: 9_000.0, cell_m: 0.5 });
}

#[test]
fn triangles_that_are_near_all_cells_of_a_row_take_bounded_memory() {
    // A thousand walls in one place, each along the whole map: all of them are near each of its 5,000 cells.
    let corners = [vec3(0.0, 0.0, 0.0), vec3(2_500.0, 0.0, 0.0), vec3(2_500.0, 3.0, 0.0), vec3(0.0, 3.0, 0.0)];
    let mut mesh = Mesh { positions: corners.to_vec(), ..Mesh::default() };
    for _ in 0..500 {
        mesh.triangles.extend([[0, 1, 2], [0, 2, 3]]);
        mesh.layers.extend([town::BODIES; 2]);
    }
    let map = bake(&mesh).expect("a valid mesh");
    let error = Navigation::survey(&map, &NavigationOptions::new(town::BODIES)).unwrap_err();
    assert_eq!(error, NavigationError::TooDense);
}

#[test]
fn places_off_the_map_have_no_cell() {
    let navigation = survey(&two_rooms(1.0));
    for place in [vec3(-50.0, 0.0, 5.0), vec3(5.0, 9.0, 5.0), vec3(f32::NAN, 0.0, 0.0), vec3(f32::INFINITY, 0.0, 0.0)] {
        assert_eq!(navigation.nearest(place, 2.0), None, "{place}");
    }
    let cell = navigation.nearest(vec3(5.2, 0.3, 5.1), 1.0).expect("a cell");
    assert!(navigation.point(cell).distance(vec3(5.2, 0.0, 5.1)) < 0.4);
}
