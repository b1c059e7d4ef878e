//! Requests that a game or a client may not make are refused in words, and do not affect others.

use std::time::Duration;

use throng::net::Condition;
use throng::replica::LimitReached;
use throng::{ChannelKey, GridOptions, GridShape, ObjectId, Placement, Replication, Ring, ServerEvent, StartError, Up};
use throng_testkit::{Beacon, Chat, Score, Steering};

use crate::harness::{World, WorldOptions};

/// Subscriptions that a view of these options needs, and those kept for other channels.
fn needed_subscriptions(options: &WorldOptions) -> usize {
    let mut options = options.clone();
    options.server.replicator.limits.subscriptions_per_connection = 1;
    match throng::Channels::new(&options.schema, &options.server) {
        Err(StartError::View { cells, limit: 1 }) => cells + 16,
        _ => panic!("a view does not fit into one subscription"),
    }
}

#[test]
fn a_view_that_cannot_fit_its_limit_is_an_error_at_the_start() {
    let mut options = WorldOptions::new(1);
    let needed = needed_subscriptions(&options);
    options.server.replicator.limits.subscriptions_per_connection = needed - 1;
    assert!(throng::Channels::new(&options.schema, &options.server).is_err());
    options.server.replicator.limits.subscriptions_per_connection = needed;
    assert!(throng::Channels::new(&options.schema, &options.server).is_ok());
}

#[test]
fn rings_with_an_interval_that_is_no_time_are_an_error_at_the_start() {
    for (interval_ticks, is_possible) in [(0, false), (1, true), (65_535, true), (65_536, false), (70_000, false)] {
        let mut options = WorldOptions::new(1);
        let rings = vec![Ring { radius_m: 12.0, interval_ticks }];
        options.server.grids = vec![GridOptions { rings, ..options.server.grids[0].clone() }];
        let made = throng::Channels::new(&options.schema, &options.server);
        assert_eq!(made.is_ok(), is_possible, "{interval_ticks}");
    }
}

#[test]
fn a_passenger_who_heard_nothing_for_a_while_sees_everything_again() {
    let mut options = WorldOptions::new(3);
    options.server.idle_timeout = std::time::Duration::from_secs(600);
    options.client.idle_timeout = std::time::Duration::from_secs(600);
    options.server.replicator.limits.subscriptions_per_connection = needed_subscriptions(&options) + 20;
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    let mut lamps: Vec<(ObjectId, f64)> = Vec::new();
    for number in 0..100 {
        let x_m = f64::from(number) * 4.0;
        let lamp = Beacon { position: [x_m as f32, 1.0, 1.0], ..Beacon::default() };
        lamps.push((world.server.spawn(lamp, Placement::Cell(0)).expect("room"), x_m));
    }
    let mut x_m = 0.0;
    let mut ride = |world: &mut World, steps: usize, speed_m: f64| {
        for _ in 0..steps {
            x_m += speed_m;
            world.server.set_viewpoint(connection, [x_m, 1.0, 1.0]);
            world.step();
        }
        x_m
    };
    ride(&mut world, 30, 1.0);
    world.set_condition(Condition::BLACKOUT);
    ride(&mut world, 200, 1.0);
    let refused = |world: &World| world.server.limits_reached().find(|(name, _)| *name == "views_refused");
    assert!(refused(&world).is_some_and(|(_, count)| count > 0), "numbers have run out, or this proves nothing");
    world.set_condition(Condition::NONE);
    let at_m = ride(&mut world, 90, 0.0);
    let replica = world.guests[0].client.replica().expect("connected");
    for &(id, lamp_m) in lamps.iter().filter(|(_, lamp_m)| (lamp_m - at_m).abs() < 24.0) {
        assert!(replica.object(id).is_some(), "the lamp at {lamp_m} m is dark, seen from {at_m} m");
    }
}

#[test]
fn clients_that_jump_far_in_each_tick_do_not_fill_the_table_of_channels() {
    const RETENTION_TICKS: usize = 32;
    let mut options = WorldOptions::new(4);
    options.server.replicator.retention_ticks = RETENTION_TICKS as u32;
    let rings = vec![Ring { radius_m: 60.0, interval_ticks: 1 }];
    options.server.grids =
        vec![GridOptions { shape: GridShape::flat(Up::Z, [10.0, 10.0, 20.0]), rings, ..GridOptions::new(Up::Z) }];
    let mut world = World::with_guests(options, 3);
    let guests = [0, 1, 2].map(|guest| world.connection(guest));
    let (mut most, mut made) = (0, 0);
    for step in 0..400 {
        for (lane, &guest) in guests.iter().enumerate() {
            world.server.set_viewpoint(guest, [f64::from(step) * 10_000.0, lane as f64 * 1_000.0, 0.0]);
        }
        world.step();
        let hub = world.server.replicator().hub_ref();
        let seen = guests.map(|guest| hub.connection(guest).expect("it stays").subscription_count());
        (most, made) = (most.max(hub.channel_count()), made.max(seen.iter().sum::<usize>()));
    }
    assert!(made > 300, "{made} cells in a tick are too few to prove something");
    // Twice what is made while a channel rests, and in the ticks in which it comes and goes.
    let limit = 2 * made * (RETENTION_TICKS + 3);
    assert!(most <= limit, "{most} channels, and {limit} are enough for {made} in each tick");
}

#[test]
fn cells_that_were_refused_come_nearest_first_when_there_is_room() {
    let mut options = WorldOptions::new(8);
    options.server.grids = vec![GridOptions {
        shape: GridShape::flat(Up::Z, [8.0; 3]),
        rings: vec![Ring { radius_m: 16.0, interval_ticks: 1 }, Ring { radius_m: 48.0, interval_ticks: 2 }],
        ..GridOptions::new(Up::Z)
    }];
    let limit = needed_subscriptions(&options);
    options.server.replicator.limits.subscriptions_per_connection = limit;
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    let mut spawn = |x: f32, y: f32| {
        let lamp = Beacon { position: [x, y, 1.0], number: 0 };
        world.server.spawn(lamp, Placement::Cell(0)).expect("room")
    };
    let lamps = |radius_m: f32, spawn: &mut dyn FnMut(f32, f32) -> ObjectId| -> Vec<ObjectId> {
        let angles = (0..24).map(|number| number as f32 / 24.0 * std::f32::consts::TAU);
        angles.map(|angle| spawn(angle.cos() * radius_m, angle.sin() * radius_m)).collect()
    };
    let near = lamps(13.0, &mut spawn);
    let far = lamps(42.0, &mut spawn);
    // The game has taken all seats but a few.
    let mut taken: Vec<ChannelKey> = (0..limit as u32 - 4).map(ChannelKey::Custom).collect();
    taken.iter().for_each(|&key| world.server.subscribe(connection, key, 1).expect("room"));
    world.server.set_viewpoint(connection, [0.0; 3]);
    world.steps(10);
    let seen = |world: &World, lamps: &[ObjectId]| {
        let client = &world.guests[0].client;
        lamps.iter().filter(|&&lamp| client.get::<Beacon>(lamp).is_some()).count()
    };
    assert!(seen(&world, &near) < near.len(), "some cells of the nearest ring were refused, or this proves nothing");
    let mut nears = Vec::new();
    while let Some(key) = taken.pop() {
        world.server.unsubscribe(connection, key);
        world.steps(4);
        nears.push(seen(&world, &near));
        assert!(seen(&world, &far) == 0 || seen(&world, &near) == near.len(), "a far cell came first: {nears:?}");
    }
    assert_eq!((seen(&world, &near), seen(&world, &far)), (near.len(), far.len()));
}

#[test]
fn a_cell_that_finds_no_subscription_is_counted_whether_its_channel_was_there_or_not() {
    let refused = |are_there: bool| {
        let mut options = WorldOptions::new(8);
        let limit = needed_subscriptions(&options);
        options.server.replicator.limits.subscriptions_per_connection = limit;
        let mut world = World::with_guests(options, 2);
        let connection = world.connection(0);
        let taken = limit as u32 - 4;
        (0..taken).for_each(|key| world.server.subscribe(connection, ChannelKey::Custom(key), 1).expect("room"));
        if are_there {
            world.server.set_viewpoint(world.connection(1), [0.0; 3]);
            world.steps(3);
        }
        world.server.set_viewpoint(connection, [0.0; 3]);
        world.steps(10);
        world.server.limits_reached().find(|(name, _)| *name == "views_refused").expect("it is counted").1
    };
    let counts = [false, true].map(refused);
    assert!(counts[1] > 20, "{counts:?}");
    assert_eq!(counts[0], counts[1]);
}

#[test]
fn what_makes_no_sense_is_an_error_and_not_a_panic() {
    let mut world = World::with_guests(WorldOptions::new(4), 2);
    let (one, other) = (world.connection(0), world.connection(1));
    let server = &mut world.server;
    let far = ChannelKey::Cell { grid: 9, cell: [0; 3] };
    assert_eq!(server.spawn(Beacon::default(), Placement::Cell(9)), Err(LimitReached::UnknownGrid(9)));
    assert_eq!(server.spawn(Beacon::default(), Placement::Channel(far)), Err(LimitReached::UnknownGrid(9)));
    assert_eq!(server.spawn(Score::default(), Placement::Cell(0)), Err(LimitReached::NoPosition("Score")));
    let beacon = server.spawn(Beacon::default(), Placement::Cell(0)).expect("room");
    let score = server.spawn(Score::default(), Placement::Entity).expect("room");
    assert_eq!(server.set_placement(beacon, Placement::Cell(1)), Err(LimitReached::UnknownGrid(1)));
    assert_eq!(server.set_placement(score, Placement::Cell(0)), Err(LimitReached::NoPosition("Score")));
    assert_eq!(server.subscribe(one, far, 1), Err(LimitReached::UnknownGrid(9)));
    assert_eq!(server.subscribe(one, ChannelKey::Owner(other), 1), Err(LimitReached::ForeignOwner));
    assert_eq!(server.subscribe(one, ChannelKey::Global(0), 0), Err(LimitReached::Interval));
    server.despawn(score);
    let gone = ChannelKey::Entity { object: score, facet: throng::Facet::Public };
    assert_eq!(server.subscribe(one, gone, 1), Err(LimitReached::UnknownObject));
    world.steps(30);
    assert!(world.guests.iter().all(|guest| guest.end().is_none()), "nobody lost its connection for it");
    assert!(world.server.get::<Beacon>(beacon).is_some(), "the object has stayed where it was");
}

#[test]
fn sending_many_inputs_does_not_raise_their_number_per_tick() {
    let mut world = World::with_guests(WorldOptions::new(5), 2);
    let connections = [world.connection(0), world.connection(1)];
    let mut most = [0; 2];
    let mut number = 0;
    for step in 0..200 {
        let greedy = if step % 10 == 0 { 42 } else { 3 };
        for (guest, count) in world.guests.iter_mut().zip([greedy, 1]) {
            for _ in 0..count {
                number += 1;
                let _ = guest.client.send_typed_input(&Steering { number, direction: 0.0 });
            }
        }
        world.inputs.clear();
        world.step();
        for (most, connection) in most.iter_mut().zip(connections) {
            let count = world.inputs.iter().filter(|(from, _)| *from == connection).count();
            *most = count.max(*most);
        }
    }
    assert_eq!(most[0], 4, "the default of ServerOptions::inputs_per_tick, whatever is sent");
    assert!((1..=4).contains(&most[1]), "{most:?}");
    let overflowed =
        |world: &World| world.server.limits_reached().find(|(name, _)| *name == "inputs_overflowed").unwrap().1;
    assert_eq!(overflowed(&world), 0, "bursts find room");
    for _ in 0..100 {
        for _ in 0..6 {
            number += 1;
            world.guests[0].client.send_typed_input(&Steering { number, direction: 0.0 }).expect("room");
            world.guests[0].client.update(world.now).expect("the network is in memory");
        }
        world.step();
    }
    let while_connected = overflowed(&world);
    assert!((80..=200).contains(&while_connected), "two more than a tick returns: {while_connected}");
    world.server.disconnect(connections[0], world.now, "enough");
    (0..30).for_each(|_| world.step());
    assert!(world.server.link_statistics(connections[0]).is_none());
    assert!(overflowed(&world) >= while_connected, "the count stays when the connection has ended");
}

#[test]
fn a_game_that_receives_often_gets_no_more_inputs_per_tick() {
    let mut world = World::with_guests(WorldOptions::new(5), 1);
    let connection = world.connection(0);
    let (mut number, mut most, mut total) = (0, 0, 0);
    for _ in 0..100 {
        let end = world.now.after(world.options().server.tick_interval);
        let mut in_tick = 0;
        for part in 1..=11 {
            let now = world.now.after(Duration::from_millis(3 * part));
            for _ in 0..4 {
                number += 1;
                let _ = world.guests[0].client.send_typed_input(&Steering { number, direction: 0.0 });
            }
            world.guests[0].client.update(now).expect("the network is in memory");
            world.server.receive(now).expect("the network is in memory");
            while world.server.poll_event().is_some() {}
            // It polls before and after each tick, and between.
            while let Some((from, _)) = world.server.poll_input() {
                in_tick += usize::from(from == connection);
            }
        }
        (most, total) = (most.max(in_tick), total + in_tick);
        world.now = end;
        world.server.tick(end);
    }
    assert_eq!(most, 4, "the default of ServerOptions::inputs_per_tick, however often the game receives");
    assert!(total > 300, "{total} inputs in 100 ticks");
}

#[test]
fn a_client_that_floods_messages_drops_nobodys() {
    let mut options = WorldOptions::new(6);
    options.server.waiting_messages = 8;
    let mut world = World::with_guests(options, 2);
    let connections = [world.connection(0), world.connection(1)];
    let mut sent = [0; 2];
    for step in 0..120 {
        for (place, guest) in world.guests.iter_mut().enumerate() {
            for _ in 0..[50, usize::from(step % 8 == 0)][place] {
                let chat = Chat { number: sent[place], text: "x".repeat(100) };
                sent[place] += u32::from(guest.client.send(0, &chat).is_ok());
            }
        }
        // The game is busy: it polls nothing.
        world.now = world.now.after(world.options().server.tick_interval);
        world.server.receive(world.now).expect("the network is in memory");
        world.end_step();
    }
    world.events.clear();
    world.begin_step();
    let count = |world: &World, place: usize| {
        let of = |event: &&ServerEvent| matches!(event, ServerEvent::Message { connection, .. } if *connection == connections[place]);
        world.events.iter().filter(of).count()
    };
    assert!(count(&world, 0) <= 8 && count(&world, 1) <= 8, "{} {}", count(&world, 0), count(&world, 1));
    world.end_step();
    world.steps(3_000);
    for place in 0..2 {
        let numbers: Vec<u32> = world
            .events
            .iter()
            .filter_map(|event| match event {
                ServerEvent::Message { connection, message, .. } if *connection == connections[place] => {
                    message.get::<Chat>().map(|chat| chat.number)
                }
                _ => None,
            })
            .collect();
        assert_eq!(numbers, (0..sent[place]).collect::<Vec<u32>>(), "client {place}");
    }
}

#[test]
fn the_bytes_that_wait_for_a_busy_game_are_bounded() {
    const LIMIT_BYTES: usize = 20_000;
    const TEXT_BYTES: usize = 800;
    let mut options = WorldOptions::new(9);
    options.server.waiting_message_bytes = LIMIT_BYTES;
    options.client.bytes_per_s = 1_000_000;
    let mut world = World::with_guests(options, 1);
    let mut sent = 0;
    for _ in 0..120 {
        for _ in 0..10 {
            let chat = Chat { number: sent, text: "x".repeat(TEXT_BYTES) };
            sent += u32::from(world.guests[0].client.send(0, &chat).is_ok());
        }
        // The game is busy: it polls nothing.
        world.now = world.now.after(world.options().server.tick_interval);
        world.server.receive(world.now).expect("the network is in memory");
        world.end_step();
    }
    let waiting = std::iter::from_fn(|| world.server.poll_event()).count();
    assert!((1..=LIMIT_BYTES / TEXT_BYTES + 1).contains(&waiting), "{waiting} messages waited");
    world.steps(600);
    let came = world.events.iter().filter(|event| matches!(event, ServerEvent::Message { .. })).count();
    assert_eq!(came + waiting, sent as usize, "the others have waited at the client");
}

#[test]
fn a_budget_is_that_of_one_client() {
    let mut options = WorldOptions::new(7);
    options.server.client_bytes_per_s = 64_000;
    let mut world = World::with_guests(options, 2);
    let connections = [world.connection(0), world.connection(1)];
    let scores: Vec<ObjectId> = (0..900)
        .map(|_| world.server.spawn(Score::default(), Placement::Channel(ChannelKey::Global(0))).expect("room"))
        .collect();
    for connection in connections {
        world.server.subscribe(connection, ChannelKey::Global(0), 1).expect("room");
    }
    world.server.set_budget(connections[1], 16_000, world.now);
    world.steps(60);
    let sent = |world: &World, place: usize| {
        world.server.link_statistics(connections[place]).expect("connected").counters.bytes_sent
    };
    let before = [sent(&world, 0), sent(&world, 1)];
    for step in 0..300 {
        for &score in &scores {
            world.server.get_mut::<Score>(score).expect("it is there").points = step;
        }
        world.step();
    }
    let bytes_per_s = [0, 1].map(|place| (sent(&world, place) - before[place]) / 10);
    assert!(bytes_per_s[0] > 50_000, "{bytes_per_s:?}");
    assert!((10_000..=16_500).contains(&bytes_per_s[1]), "{bytes_per_s:?}");
}

#[test]
fn watching_a_thousand_things_that_end_leaves_nothing_behind() {
    let mut options = WorldOptions::new(8);
    options.server.replicator.retention_ticks = 32;
    let mut world = World::with_guests(options, 2);
    let connections = [world.connection(0), world.connection(1)];
    let followed = |world: &World| connections.map(|connection| world.server.replication().followed_count(connection));
    world.steps(10);
    let before = (followed(&world), world.server.replicator().hub_ref().channel_count());
    let mut most = 0;
    for round in 0..1_000 {
        let shot = world.server.spawn(Score { points: round, open: true }, Placement::Entity).expect("room");
        let key = ChannelKey::Entity { object: shot, facet: throng::Facet::Public };
        for connection in connections {
            world.server.subscribe(connection, key, 1).expect("room");
        }
        world.step();
        world.server.despawn(shot);
        world.step();
        most = most.max(followed(&world)[0]);
    }
    assert!(most < before.0[0] + 40, "{most} subscriptions at once");
    world.steps(600);
    assert_eq!((followed(&world), world.server.replicator().hub_ref().channel_count()), before);
    for guest in &world.guests {
        assert_eq!(guest.client.replica().expect("connected").object_count(), 0, "they were told of each end");
    }
}
