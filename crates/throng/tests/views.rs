//! What lies within a ring is seen, wherever the game puts things and viewers.

use throng::{GridOptions, GridShape, ObjectId, Placement, Ring};
use throng_testkit::{Beacon, for_seeds};

use crate::harness::{World, WorldOptions};

const COMMAND: &str = "cargo test -p throng --test contracts views::";
const RADIUS_M: f64 = 12.0;

fn distance_m(a: [f64; 3], b: [f32; 3]) -> f64 {
    (0..3).map(|axis| (a[axis] - f64::from(b[axis])).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn everything_within_the_radius_is_seen_though_it_lives_in_the_cell_that_it_has_just_left() {
    for_seeds(COMMAND, 12, |seed| {
        let mut options = WorldOptions::new(seed);
        // 64 steps to a cell and 7 bits: there is room to stray by a quarter of a cell.
        let shape = GridShape::stacked([[8.0; 3], [0.64, 0.64, 8.0], [5.0, 11.0, 8.0]][seed as usize % 3]);
        let rings = vec![Ring { radius_m: if shape.cell_m[0] < 1.0 { 2.0 } else { RADIUS_M }, interval_ticks: 1 }];
        let radius_m = rings[0].radius_m;
        options.server.grids = vec![GridOptions { shape, rings, bounds_m: None }];
        let mut world = World::with_guests(options, 1);
        let connection = world.connection(0);
        let mut rng = fastrand::Rng::with_seed(seed);
        let spread = radius_m as f32 * 1.5;
        let place = |rng: &mut fastrand::Rng| [spread, spread, 1.0].map(|m| (rng.f32() * 2.0 - 1.0) * m);
        let beacons: Vec<ObjectId> = (0..60)
            .map(|_| {
                let beacon = Beacon { position: place(&mut rng), ..Beacon::default() };
                world.server.spawn(beacon, Placement::Cell(0)).expect("room")
            })
            .collect();
        for round in 0..80 {
            for &beacon in &beacons {
                let position = &mut world.server.get_mut::<Beacon>(beacon).expect("it is there").position;
                // Small steps: what stands at a border goes over it and back.
                *position = position.map(|m| m + (rng.f32() - 0.5) * spread * 0.04);
            }
            let viewpoint = place(&mut rng).map(f64::from);
            world.server.set_viewpoint(connection, viewpoint);
            world.steps(5);
            let replica = world.guests[0].client.replica().expect("connected");
            for &beacon in &beacons {
                let position = world.server.get::<Beacon>(beacon).expect("it is there").position;
                let away_m = distance_m(viewpoint, position);
                if away_m < radius_m - 0.01 && replica.object(beacon).is_none() {
                    return Err(format!("round {round}: {beacon} is {away_m:.2} m away and not seen"));
                }
            }
        }
        Ok(())
    });
}

#[test]
fn who_looks_from_outside_of_the_world_sees_its_border_and_itself() {
    let mut options = WorldOptions::new(3);
    options.server.grids[0].bounds_m = Some([[0.0; 3], [40.0, 40.0, 8.0]]);
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    let outside = Beacon { position: [90.0, 20.0, 1.0], ..Beacon::default() };
    let me = world.server.spawn_owned(outside, Placement::Cell(0), Some(connection)).expect("room");
    let neighbour = Beacon { position: [39.0, 20.0, 1.0], ..Beacon::default() };
    let neighbour = world.server.spawn(neighbour, Placement::Cell(0)).expect("room");
    world.server.set_viewpoint(connection, [90.0, 20.0, 1.0]);
    world.steps(20);
    let replica = world.guests[0].client.replica().expect("connected");
    assert!(replica.object(me).is_some() && replica.object(neighbour).is_some());
}

#[test]
fn a_hill_is_as_high_for_the_clients_as_for_the_game_and_so_is_a_pit_and_the_sky() {
    let mut options = WorldOptions::new(5);
    options.server.grids = vec![GridOptions::new(throng::Up::Z)];
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    let positions = [[0.0, 0.0, 30.0], [1.0, 2.0, -4.5], [3.0, 1.0, 19.99], [-1.0, 3.0, 20.48], [2.0, 2.0, 90_000.0]];
    let beacons = positions.map(|position| {
        let beacon = Beacon { position, ..Beacon::default() };
        (world.server.spawn(beacon, Placement::Cell(0)).expect("room"), position)
    });
    world.server.set_viewpoint(connection, [0.0, 0.0, 30.0]);
    world.steps(20);
    for (id, position) in beacons {
        let seen = world.guests[0].client.get::<Beacon>(id).expect("it is in view").position;
        assert!((0..3).all(|axis| (seen[axis] - position[axis]).abs() < 0.02), "{seen:?} is not {position:?}");
    }
}

#[test]
fn in_a_world_where_y_is_up_people_are_where_the_game_puts_them_and_neighbours_are_found_on_the_ground() {
    let mut options = WorldOptions::new(6);
    let rings = vec![Ring { radius_m: 15.0, interval_ticks: 1 }];
    options.server.grids = vec![GridOptions { rings, ..GridOptions::new(throng::Up::Y) }];
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    let positions = [[0.0, 1.0, 0.0], [5.0, 35.0, 14.0], [-9.0, -3.0, -9.0], [3.0, 2.0, 60.0], [60.0, 1.0, 3.0]];
    let beacons = positions.map(|position| {
        let beacon = Beacon { position, ..Beacon::default() };
        (world.server.spawn(beacon, Placement::Cell(0)).expect("room"), position)
    });
    world.server.set_viewpoint(connection, [0.0, 1.0, 0.0]);
    world.steps(20);
    for (number, (id, position)) in beacons.into_iter().enumerate() {
        let seen = world.guests[0].client.get::<Beacon>(id).map(|beacon| beacon.position);
        match number < 3 {
            true => {
                let seen = seen.expect("it is near, whatever its height");
                assert!((0..3).all(|axis| (seen[axis] - position[axis]).abs() < 0.02), "{seen:?} is not {position:?}");
            }
            false => assert_eq!(seen, None, "{position:?} is far along the ground"),
        }
    }
}
