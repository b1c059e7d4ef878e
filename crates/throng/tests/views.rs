//! Objects within a ring are seen, wherever the game puts objects and viewers.

use throng::{ChannelKey, ClientEvent, GridOptions, GridShape, InterestError, ObjectId, Placement, Ring, Shape};
use throng_seeds::for_seeds;
use throng_testkit::Beacon;

use crate::harness::{World, WorldOptions};

const RADIUS_M: f64 = 12.0;

fn distance_m(a: [f64; 3], b: [f32; 3]) -> f64 {
    (0..3).map(|axis| (a[axis] - f64::from(b[axis])).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn everything_within_the_radius_is_seen_though_it_lives_in_the_cell_that_it_has_just_left() {
    for_seeds(120, |seed| {
        let mut options = WorldOptions::new(seed);
        // 64 steps to a cell and 7 bits: there is room to stray by a quarter of a cell.
        let shape = GridShape::stacked([[8.0; 3], [0.64, 0.64, 8.0], [5.0, 11.0, 8.0]][seed as usize % 3]);
        let rings = vec![Ring { radius_m: if shape.cell_m[0] < 1.0 { 2.0 } else { RADIUS_M }, interval_ticks: 1 }];
        let radius_m = rings[0].radius_m;
        options.server.grids = vec![GridOptions { shape, rings, ..GridOptions::new(throng::Up::Z) }];
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
fn a_viewer_outside_of_the_world_sees_its_border_and_itself() {
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

/// Beacons on a plane, one every 2 m.
fn field_of_beacons(world: &mut World) -> Vec<(ObjectId, [f32; 3])> {
    let places = (-20..20).flat_map(|x| (-20..20).map(move |y| [x as f32 * 2.0, y as f32 * 2.0, 1.0]));
    let spawn = |position| {
        let beacon = Beacon { position, ..Beacon::default() };
        (world.server.spawn(beacon, Placement::Cell(0)).expect("room"), position)
    };
    places.map(spawn).collect()
}

/// A world of small cells, with one ring of 5 m.
fn short_sighted(seed: u64) -> World {
    let mut options = WorldOptions::new(seed);
    let rings = vec![Ring { radius_m: 5.0, interval_ticks: 1 }];
    options.server.grids =
        vec![GridOptions { shape: GridShape::stacked([2.56; 3]), rings, ..GridOptions::new(throng::Up::Z) }];
    World::with_guests(options, 1)
}

/// Everything that `is_wanted` is seen, and nothing that is more than some cells away from it.
fn check_sight(
    world: &World,
    beacons: &[(ObjectId, [f32; 3])],
    away_m: impl Fn([f64; 3]) -> f64,
    what: &str,
) -> Result<(), String> {
    for &(id, position) in beacons {
        let (away_m, seen) = (away_m(position.map(f64::from)), world.guests[0].client.kind(id).is_some());
        if away_m <= 0.0 && !seen || away_m > 9.0 && seen {
            return Err(format!("{what}: the beacon at {position:?}, {away_m:.1} m away, is seen: {seen}"));
        }
    }
    Ok(())
}

#[test]
fn a_client_that_looks_from_several_places_sees_what_is_around_each_of_them() {
    for_seeds(80, |seed| {
        let mut world = short_sighted(seed);
        let connection = world.connection(0);
        let beacons = field_of_beacons(&mut world);
        let mut rng = fastrand::Rng::with_seed(seed);
        for round in 0..12 {
            let viewpoints: Vec<[f64; 3]> =
                (0..rng.usize(0..5)).map(|_| [rng.f64() * 60.0 - 30.0, rng.f64() * 60.0 - 30.0, 1.0]).collect();
            world.server.set_viewpoints(connection, &viewpoints).expect("few");
            world.steps(6);
            let away_m = |from: [f64; 3]| {
                let away_m = viewpoints.iter().map(|to| (from[0] - to[0]).hypot(from[1] - to[1]) - 5.0);
                away_m.fold(f64::INFINITY, f64::min)
            };
            check_sight(&world, &beacons, away_m, &format!("round {round}, {} viewpoints", viewpoints.len()))?;
        }
        // One again, by the way for one.
        world.server.set_viewpoint(connection, [0.0, 0.0, 1.0]);
        world.steps(6);
        check_sight(&world, &beacons, |from| from[0].hypot(from[1]) - 5.0, "one viewpoint")
    });
}

#[test]
fn a_client_sees_what_is_in_its_shapes_besides_what_is_around_its_viewpoint() {
    let mut world = short_sighted(1);
    let connection = world.connection(0);
    let beacons = field_of_beacons(&mut world);
    let around = |from: [f64; 3]| from[0].hypot(from[1]) - 5.0;
    let scope = Shape::Cone { apex: [0.0, 0.0, 1.0], axis: [2.0, 2.0, 0.0], half_angle_rad: 0.3, range_m: 30.0 };
    let in_scope = |from: [f64; 3]| {
        let (distance_m, along) = (from[0].hypot(from[1]), from[1].atan2(from[0]) - std::f64::consts::FRAC_PI_4);
        (distance_m - 30.0).max(distance_m * (along.abs() - 0.3))
    };
    let room = Shape::Box { min: [-30.0, -30.0, 0.0], max: [-20.0, -25.0, 2.0] };
    let in_room = |from: [f64; 3]| (-30.0 - from[0]).max(from[0] + 20.0).max(-30.0 - from[1]).max(from[1] + 25.0);
    let ward = Shape::Sphere { centre: [30.0, -30.0, 1.0], radius_m: 6.0 };
    let in_ward = |from: [f64; 3]| (from[0] - 30.0).hypot(from[1] + 30.0) - 6.0;

    world.server.set_viewpoint(connection, [0.0, 0.0, 1.0]);
    world.server.set_shapes(connection, &[scope, room, ward]).expect("good shapes");
    world.steps(6);
    let all = |from| around(from).min(in_scope(from)).min(in_room(from)).min(in_ward(from));
    check_sight(&world, &beacons, all, "three shapes").unwrap();

    // The player turns round and leaves the room; the shapes replace those before.
    world.server.set_shapes(connection, &[ward]).expect("a good shape");
    world.steps(6);
    check_sight(&world, &beacons, |from| around(from).min(in_ward(from)), "one shape").unwrap();
    // Without a viewpoint the shape stays.
    world.server.set_viewpoints(connection, &[]).expect("none");
    world.steps(6);
    check_sight(&world, &beacons, in_ward, "a shape alone").unwrap();
    world.server.set_shapes(connection, &[]).expect("none");
    world.steps(6);
    check_sight(&world, &beacons, |_| f64::INFINITY, "nothing").unwrap();
    let gone = world.guests[0].events.iter().filter(|event| matches!(event, ClientEvent::Despawned { .. })).count();
    assert!(gone > 100, "{gone}");
}

#[test]
fn what_strays_from_a_cell_that_a_shape_touches_is_seen_in_the_shape() {
    let mut options = WorldOptions::new(4);
    // 64 steps to a cell and 7 bits: there is room to stray by a quarter of a cell.
    let rings = vec![Ring { radius_m: 1.0, interval_ticks: 1 }];
    options.server.grids =
        vec![GridOptions { shape: GridShape::stacked([0.64, 0.64, 8.0]), rings, ..GridOptions::new(throng::Up::Z) }];
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    let start = Beacon { position: [0.60, 0.3, 1.0], ..Beacon::default() };
    let beacon = world.server.spawn(start, Placement::Cell(0)).expect("room");
    // Over the border and into the room, while it lives in the cell before it.
    let room = Shape::Box { min: [0.66, 0.0, 0.0], max: [1.2, 0.6, 2.0] };
    world.server.set_shapes(connection, &[room]).expect("a good shape");
    world.steps(3);
    world.server.get_mut::<Beacon>(beacon).expect("it is there").position[0] = 0.67;
    world.steps(6);
    assert!(world.guests[0].client.kind(beacon).is_some(), "it stands in the room");
}

#[test]
fn a_cone_is_the_same_however_long_its_direction_is() {
    let mut options = WorldOptions::new(4);
    let rings = vec![Ring { radius_m: 1.0, interval_ticks: 1 }];
    options.server.grids =
        vec![GridOptions { shape: GridShape::stacked([0.64, 0.64, 8.0]), rings, ..GridOptions::new(throng::Up::Z) }];
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    let cells = [1.0, 5e-324, 1e-200, 1e200, f64::MAX].map(|length| {
        let axis = [length, length, 0.0];
        let scope = Shape::Cone { apex: [0.1, 0.1, 1.0], axis, half_angle_rad: 0.3, range_m: 6.0 };
        world.server.set_shapes(connection, &[scope]).expect("a direction of any length");
        world.steps(10);
        let hub = world.server.replicator().hub_ref();
        let mut cells: Vec<ChannelKey> = hub.channels_of(connection).map(|channel| hub.key(channel)).collect();
        cells.sort_unstable();
        world.server.set_shapes(connection, &[]).expect("none");
        world.steps(10);
        cells
    });
    let counts = cells.each_ref().map(Vec::len);
    assert!(counts[0] > 20 && cells.iter().all(|of| *of == cells[0]), "{counts:?} cells");
}

#[test]
fn viewpoints_and_shapes_that_cannot_be_are_errors_and_change_nothing() {
    let mut world = short_sighted(2);
    let connection = world.connection(0);
    let beacons = field_of_beacons(&mut world);
    let ward = Shape::Sphere { centre: [30.0, -30.0, 1.0], radius_m: 6.0 };
    world.server.set_viewpoint(connection, [0.0, 0.0, 1.0]);
    world.server.set_shapes(connection, &[ward]).expect("a good shape");
    let too_many = world.server.set_viewpoints(connection, &[[0.0; 3]; 9]);
    assert_eq!(too_many, Err(InterestError::TooManyViewpoints { viewpoints: 9 }));
    assert_eq!(world.server.set_shapes(connection, &[ward; 9]), Err(InterestError::TooManyShapes { shapes: 9 }));
    let cone = |half_angle_rad, range_m| Shape::Cone { apex: [0.0; 3], axis: [1.0, 0.0, 0.0], half_angle_rad, range_m };
    let bad = [
        Shape::Sphere { centre: [f64::NAN, 0.0, 0.0], radius_m: 1.0 },
        Shape::Sphere { centre: [0.0; 3], radius_m: -1.0 },
        Shape::Sphere { centre: [0.0; 3], radius_m: 1e6 },
        Shape::Box { min: [1.0; 3], max: [0.0; 3] },
        cone(0.0, 1.0),
        cone(1e-300, 1.0),
        cone(4.0, 1.0),
    ];
    for shape in bad {
        assert!(world.server.set_shapes(connection, &[ward, shape]).is_err(), "{shape:?}");
    }
    world.steps(6);
    let wanted = |from: [f64; 3]| {
        let in_ward = (from[0] - 30.0).hypot(from[1] + 30.0) - 6.0;
        in_ward.min(from[0].hypot(from[1]) - 5.0)
    };
    check_sight(&world, &beacons, wanted, "after the errors").unwrap();
    // Of a connection that is gone nothing is kept, and nothing breaks.
    world.server.disconnect(connection, world.now, "bye");
    world.steps(40);
    assert_eq!(world.server.set_shapes(connection, &[ward]), Ok(()));
    assert_eq!(world.server.set_viewpoints(connection, &[[0.0; 3]; 2]), Ok(()));
    world.steps(3);
}

/// The steps, out of many, in which each client learned another position of its beacon.
fn steps_with_news(world: &mut World, beacons: &[ObjectId]) -> Vec<Vec<usize>> {
    steps_with_news_while(world, beacons, |_, _| {})
}

fn steps_with_news_while(
    world: &mut World,
    beacons: &[ObjectId],
    mut each: impl FnMut(&mut World, usize),
) -> Vec<Vec<usize>> {
    let mut news = vec![Vec::new(); beacons.len()];
    let position = |world: &World, number: usize| {
        let client = &world.guests[number].client;
        client.get::<Beacon>(beacons[number]).map(|beacon| beacon.position)
    };
    let mut seen: Vec<_> = (0..beacons.len()).map(|number| position(world, number)).collect();
    for step in 0..60 {
        for (number, &beacon) in beacons.iter().enumerate() {
            let beacon = world.server.get_mut::<Beacon>(beacon).expect("it is there");
            beacon.position = [1.0 + number as f32, 1.0 + (step % 7) as f32, 1.0];
        }
        each(world, step);
        world.step();
        for number in 0..beacons.len() {
            let now_seen = position(world, number);
            if std::mem::replace(&mut seen[number], now_seen) != now_seen {
                news[number].push(step);
            }
        }
    }
    news
}

#[test]
fn clients_whose_nearest_ring_is_sent_every_second_tick_take_turns_with_everything_that_they_see_and_own() {
    for is_owned in [false, true] {
        let mut options = WorldOptions::new(9);
        options.server.grids[0].rings = vec![Ring { radius_m: 30.0, interval_ticks: 2 }];
        let mut world = World::with_guests(options, 2);
        let beacons: Vec<ObjectId> = (0..2)
            .map(|guest| {
                let connection = world.connection(guest);
                world.server.set_viewpoint(connection, [1.0; 3]);
                let owner = is_owned.then_some(connection);
                world.server.spawn_owned(Beacon::default(), Placement::Cell(0), owner).expect("room")
            })
            .collect();
        world.steps(10);
        let news = steps_with_news(&mut world, &beacons);
        for steps in &news {
            assert!((28..=31).contains(&steps.len()), "owned: {is_owned}, {news:?}");
        }
        assert!(news[0].iter().all(|step| !news[1].contains(step)), "owned: {is_owned}, {news:?}");
    }
}

#[test]
fn a_client_that_the_game_subscribes_to_something_frequent_is_sent_to_as_often_and_later_as_seldom_as_before() {
    let mut options = WorldOptions::new(9);
    options.server.grids[0].rings = vec![Ring { radius_m: 30.0, interval_ticks: 4 }];
    let mut world = World::with_guests(options.clone(), 1);
    let connection = world.connection(0);
    let scores = ChannelKey::Custom(7);
    let beacon = world.server.spawn(Beacon::default(), Placement::Channel(scores)).expect("room");
    let news_with = |world: &mut World, interval_ticks: u16| {
        world.server.subscribe(connection, scores, interval_ticks).expect("room");
        world.steps(10);
        steps_with_news(world, &[beacon])[0].len()
    };
    let counts = [4, 1, 2, 4].map(|interval_ticks| news_with(&mut world, interval_ticks));
    for (count, expected) in counts.into_iter().zip([15, 60, 30, 15]) {
        assert!(count.abs_diff(expected) <= 2, "{counts:?}");
    }

    // The option says it for all clients.
    options.server.send_interval_ticks = std::num::NonZeroU16::new(1);
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    let own = world.server.spawn_owned(Beacon::default(), Placement::Cell(0), Some(connection)).expect("room");
    world.steps(10);
    let news = steps_with_news(&mut world, &[own]);
    assert!(news[0].len() >= 58, "its own is sent in every tick: {news:?}");
}

#[test]
fn a_client_that_watched_something_frequent_is_sent_to_as_seldom_as_before_when_that_has_ended() {
    let mut options = WorldOptions::new(9);
    options.server.grids[0].rings = vec![Ring { radius_m: 30.0, interval_ticks: 4 }];
    options.server.replicator.retention_ticks = 20;
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    let own = world.server.spawn_owned(Beacon::default(), Placement::Cell(0), Some(connection)).expect("room");
    let watched = world.server.spawn(Beacon::default(), Placement::Entity).expect("room");
    let key = ChannelKey::Entity { object: watched, facet: throng::Facet::Public };
    world.server.subscribe(connection, key, 1).expect("room");
    world.steps(10);
    assert!(steps_with_news(&mut world, &[own])[0].len() >= 58, "while it watches");
    world.server.despawn(watched);
    world.steps(60);
    let after = steps_with_news(&mut world, &[own])[0].len();
    assert!((14..=16).contains(&after), "{after}");
}

#[test]
fn newcomers_take_the_ticks_in_which_fewer_clients_are_sent_to() {
    let mut options = WorldOptions::new(9);
    options.server.grids[0].rings = vec![Ring { radius_m: 30.0, interval_ticks: 2 }];
    let mut world = World::with_guests(options, 8);
    for guest in [0, 2, 4, 6] {
        let connection = world.connection(guest);
        world.server.disconnect(connection, world.now, "bye");
    }
    world.steps(60);
    world.guests.retain(|guest| guest.connection.is_some());
    assert_eq!(world.guests.len(), 4);
    for _ in 0..4 {
        world.join();
    }
    world.connect_all();
    let beacons: Vec<ObjectId> = (0..8)
        .map(|guest| {
            let connection = world.connection(guest);
            world.server.spawn_owned(Beacon::default(), Placement::Cell(0), Some(connection)).expect("room")
        })
        .collect();
    world.steps(10);
    let news = steps_with_news(&mut world, &beacons);
    for step in [40, 41] {
        let served = news.iter().filter(|steps| steps.contains(&step)).count();
        assert_eq!(served, 4, "step {step}: {news:?}");
    }
}

#[test]
fn neighbours_are_sent_to_in_the_same_ticks_and_who_walks_to_others_never_waits_for_longer_than_the_interval() {
    const GUESTS: usize = 24;
    let mut options = WorldOptions::new(9);
    options.server.grids[0].rings = vec![Ring { radius_m: 10.0, interval_ticks: 2 }];
    let mut world = World::with_guests(options, GUESTS);
    let look_from = |world: &mut World, guest: usize, x_m: f64| {
        let connection = world.connection(guest);
        world.server.set_viewpoint(connection, [x_m, 5.0, 1.0]);
    };
    let mut beacons = Vec::new();
    for guest in 0..GUESTS {
        let connection = world.connection(guest);
        beacons.push(world.server.spawn_owned(Beacon::default(), Placement::Cell(0), Some(connection)).expect("room"));
        look_from(&mut world, guest, 10.0 * guest as f64);
    }
    // A census takes 64 ticks, and the next one finds those who are to have other ticks.
    world.steps(150);
    let news = steps_with_news(&mut world, &beacons);
    assert!(news.iter().all(|steps| steps.windows(2).all(|steps| steps[1] - steps[0] == 2)), "{news:?}");
    let parities: Vec<usize> = news.iter().map(|steps| steps[0] % 2).collect();
    let changes = parities.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let first = parities.iter().filter(|&&parity| parity == parities[0]).count();
    assert!(changes == 1 && first.abs_diff(GUESTS / 2) <= 4, "two halves of about the same size: {parities:?}");

    // A channel that the first alone is subscribed to: no view serves it.
    let scores = ChannelKey::Custom(7);
    let first = world.connection(0);
    world.server.subscribe(first, scores, 2).expect("room");
    let watched = world.server.spawn(Beacon::default(), Placement::Channel(scores)).expect("room");
    world.steps(10);

    // The first walks to the last, and back, across the border.
    let mut walk = |world: &mut World, step: usize| look_from(world, 0, 220.0 * (step as f64 * 0.2).sin().abs());
    for beacon in [beacons[0], watched] {
        let news = steps_with_news_while(&mut world, &[beacon], &mut walk);
        let gaps: Vec<usize> = news[0].windows(2).map(|steps| steps[1] - steps[0]).collect();
        assert!(
            gaps.iter().all(|&gap| gap <= 2) && gaps.contains(&1),
            "its ticks change, and it does not wait: {gaps:?}"
        );
    }
}

#[test]
fn a_game_with_slow_rings_sends_own_objects_five_times_a_second_and_more_than_that_can_be_asked_for() {
    let mut options = WorldOptions::new(9);
    options.server.grids[0].rings = vec![Ring { radius_m: 30.0, interval_ticks: 60 }];
    let ticks = (0.2 / options.server.tick_interval.as_secs_f64()) as u16;
    let mut world = World::with_guests(options.clone(), 1);
    let connection = world.connection(0);
    let own = world.server.spawn_owned(Beacon::default(), Placement::Cell(0), Some(connection)).expect("room");
    world.steps(10);
    let news = steps_with_news(&mut world, &[own])[0].len();
    assert!(news.abs_diff(60 / usize::from(ticks)) <= 1, "{news} times in 60 ticks");
    for (asked, is_possible) in [(1, true), (ticks, true), (ticks + 1, false), (u16::MAX, false)] {
        options.server.send_interval_ticks = std::num::NonZeroU16::new(asked);
        let driver = endpoint_of_its_own(&options);
        let server = throng::Server::new(driver, options.schema.clone(), options.server.clone());
        assert_eq!(server.is_ok(), is_possible, "{asked}");
    }
}

/// An endpoint of a network of its own.
fn endpoint_of_its_own(options: &WorldOptions) -> Box<dyn throng::net::Driver> {
    let network =
        throng::net::MemoryNetwork::new(throng::net::Condition::NONE, options.seed).expect("a good condition");
    Box::new(network.endpoint(crate::harness::server_address()).expect("a free address"))
}

#[test]
fn what_lives_in_a_clients_own_channel_reaches_it_alone_as_soon_as_it_has_room_for_the_subscription() {
    let mut options = WorldOptions::new(9);
    options.server.grids.clear();
    options.server.replicator.limits.subscriptions_per_connection = 64;
    let mut world = World::with_guests(options, 2);
    let [first, second] = [0, 1].map(|guest| world.connection(guest));
    let known =
        |world: &World, id: ObjectId| [0, 1].map(|guest| world.guests[guest].client.get::<Beacon>(id).is_some());
    let spawn = |world: &mut World, key: ChannelKey| {
        world.server.spawn(Beacon::default(), Placement::Channel(key)).expect("room")
    };
    let secret = spawn(&mut world, ChannelKey::Owner(first));
    world.steps(10);
    assert_eq!(known(&world, secret), [true, false]);

    // The other client has used up its subscriptions when something comes into its channel.
    let has_room = |&number: &u32| world.server.subscribe(second, ChannelKey::Custom(number), 1).is_ok();
    assert_eq!((1..100).take_while(has_room).count(), 64);
    let moved = spawn(&mut world, ChannelKey::Custom(900));
    world.server.set_placement(moved, Placement::Channel(ChannelKey::Owner(second))).expect("room");
    world.steps(10);
    assert_eq!(known(&world, moved), [false, false]);
    world.server.unsubscribe(second, ChannelKey::Custom(1));
    world.steps(20);
    assert_eq!(known(&world, moved), [false, true]);
}
