//! Objects seen from afar: a client is sent a copy of some fields, in larger steps, beside those that it sees near.

use std::sync::Arc;

use throng::replica::GridError;
use throng::{
    ChannelKey, Channels, ClientEvent, FarOptions, GridOptions, GridShape, ObjectId, Placement, Replicate, Ring,
    Schema, StartError, Tick, Up,
};

use crate::harness::{World, WorldOptions};

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Ship {
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03), far(step = 0.5))]
    position: [f64; 3],
    #[replicate(fixed(min = -50, max = 50, step = 0.1))]
    velocity: [f64; 3],
    #[replicate(text(max_bytes = 20), far)]
    name: String,
    #[replicate(integer)]
    crew: u16,
}

const PARTS: u16 = 3;

fn options(parts: u16) -> WorldOptions {
    let schema = Schema::builder().kind::<Ship>().build().expect("a good kind");
    let mut options = WorldOptions { schema: Arc::new(schema), ..WorldOptions::new(11) };
    let grid = |cell_m, radius_m, interval_ticks| GridOptions {
        shape: GridShape::flat(Up::Z, [cell_m, cell_m, 20.0]),
        rings: vec![Ring { radius_m, interval_ticks }],
        ..GridOptions::new(Up::Z)
    };
    options.server.grids = vec![grid(10.0, 20.0, 1), grid(100.0, 150.0, 6)];
    options.server.far = Some(FarOptions { grid: 1, parts });
    options
}

fn ship(x: f64) -> Ship {
    Ship { position: [x, 3.21, 1.0], velocity: [0.0; 3], name: format!("ship at {x}"), crew: 9 }
}

/// A world in which a client at 0 m owns a ship there, and looks at one near it, one far away and one that is too far.
fn world(options: WorldOptions) -> (World, [ObjectId; 4]) {
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    let own = world.server.spawn_owned(ship(0.0), Placement::Cell(0), Some(connection)).expect("room");
    let others = [8.04, 120.3, 900.0].map(|x| world.server.spawn(ship(x), Placement::Cell(0)).expect("room"));
    world.server.set_viewpoint(connection, [0.0; 3]);
    world.steps(30);
    (world, [own, others[0], others[1], others[2]])
}

fn seen(world: &World, id: ObjectId) -> Option<Ship> {
    world.guests[0].client.get::<Ship>(id)
}

fn newest_tick(world: &World, id: ObjectId) -> Option<Tick> {
    Some(world.guests[0].client.replica()?.object(id)?.newest_tick())
}

/// Events of one ship since the last call: come, changed with these fields, gone.
fn events(world: &mut World, of: ObjectId) -> Vec<Option<u64>> {
    let told = |event| match event {
        ClientEvent::Spawned(id) if id == of => Some(None),
        ClientEvent::Changed { id, fields } if id == of => Some(Some(fields)),
        ClientEvent::Despawned { id, .. } if id == of => Some(Some(0)),
        _ => None,
    };
    world.guests[0].events.drain(..).filter_map(told).collect()
}

#[test]
fn far_ships_are_seen_coarsely_and_near_ones_wholly() {
    for parts in [1, PARTS] {
        let (mut world, [own, near, far, too_far]) = world(options(parts));
        assert_eq!(seen(&world, near).map(|near| near.crew), Some(9));
        let coarse = Ship { position: [120.5, 3.0, 1.0], name: ship(120.3).name, ..Ship::default() };
        assert_eq!(seen(&world, far), Some(coarse.clone()));
        assert_eq!((seen(&world, too_far), seen(&world, own).map(|own| own.name)), (None, Some(ship(0.0).name)));
        assert_eq!(events(&mut world, far), [None]);
        assert_eq!([own, near, far, too_far].map(|id| world.guests[0].client.is_near(id)), [true, true, false, false]);

        // It comes near: the rest becomes known, and the position exact. Its newest news is what is known of it now, and not
        // the last word from afar.
        let came_at = world.server.current_tick();
        *world.server.get_mut::<Ship>(far).expect("it is there") = ship(14.04);
        world.steps(30);
        let shown = seen(&world, far).expect("near");
        assert!((shown.position[0] - 14.04).abs() < 1e-9, "{shown:?}");
        assert_eq!((shown.crew, shown.name), (9, ship(14.04).name));
        assert_eq!(newest_tick(&world, far), Some(came_at));
        let fields = events(&mut world, far).into_iter().flatten().fold(0, |all, fields| all | fields);
        assert_eq!(fields & Ship::FIELD_CREW, Ship::FIELD_CREW);

        // And away again: what only near clients know is forgotten.
        *world.server.get_mut::<Ship>(far).expect("it is there") = ship(120.3);
        world.steps(30);
        assert_eq!(seen(&world, far), Some(coarse));
        let fields = events(&mut world, far);
        assert!(!fields.contains(&None) && !fields.contains(&Some(0)), "it was in sight all the time: {fields:?}");
        assert!(fields.iter().flatten().any(|fields| fields & Ship::FIELD_CREW != 0), "{fields:?}");

        world.server.despawn(far);
        world.steps(30);
        assert_eq!((seen(&world, far), events(&mut world, far)), (None, vec![Some(0)]));
    }
}

#[test]
fn a_small_step_of_a_far_ship_is_not_sent_and_a_large_one_is() {
    let (mut world, [.., far, _]) = world(options(PARTS));
    let mut move_to = |x: f64| {
        world.server.get_mut::<Ship>(far).expect("it is there").position[0] = x;
        let before = world.guests[0].client.replica().expect("connected").counters().updates;
        world.steps(30);
        let replica = world.guests[0].client.replica().expect("connected");
        (seen(&world, far).expect("far").position[0], replica.counters().updates - before)
    };
    assert_eq!(move_to(120.4), (120.5, 0));
    assert_eq!(move_to(121.4), (121.5, 1));
}

#[test]
fn a_part_is_a_channel_that_the_game_can_subscribe_to_more_often_and_give_back() {
    let (mut world, [.., far, _]) = world(options(PARTS));
    let connection = world.connection(0);
    let part = (far.index % u32::from(PARTS)) as i32;
    let key = |column, part| ChannelKey::Cell { grid: 1, cell: [column, 0, part] };
    let subscriptions = |world: &World| {
        let hub = world.server.replicator().hub_ref();
        hub.connection(connection).expect("connected").subscription_count()
    };
    // A message to a channel goes to its readers.
    let reads = |world: &mut World, key| world.server.send_to_channel(key, 0, &ship(0.0)).expect("room").clients == 1;
    let before = subscriptions(&world);
    assert!(reads(&mut world, key(1, part)) && !reads(&mut world, key(1, 3)));
    assert!(reads(&mut world, key(-1, 2)) && !reads(&mut world, key(9, 0)));
    world.server.subscribe(connection, key(1, part), 1).expect("room");
    world.server.subscribe(connection, key(9, 0), 1).expect("room");
    assert_eq!(subscriptions(&world), before + 1, "the other one was there");
    let ages = |world: &mut World| {
        let steps = (0..40).map(|step| {
            world.server.get_mut::<Ship>(far).expect("it is there").position[0] = 120.0 + f64::from(step);
            world.step();
            120.0 + f64::from(step) - seen(world, far).expect("far").position[0]
        });
        steps.skip(20).fold(0.0, f64::max)
    };
    assert!(ages(&mut world) <= 3.0);
    world.server.unsubscribe(connection, key(1, part));
    world.server.unsubscribe(connection, key(9, 0));
    world.steps(10);
    assert_eq!(subscriptions(&world), before);
    assert!((4.0..=9.0).contains(&ages(&mut world)), "every six ticks again");
    // All parts of all cells go when the client looks from elsewhere, also one that the game takes meanwhile.
    world.server.subscribe(connection, key(1, part), 1).expect("room");
    world.server.set_viewpoint(connection, [1e4, 1e4, 0.0]);
    world.steps(30);
    assert!(reads(&mut world, key(1, part)) && !reads(&mut world, key(1, 2 - part)));
    assert_eq!(seen(&world, far).map(|far| far.crew), Some(0));
    world.server.unsubscribe(connection, key(1, part));
    world.steps(60);
    assert_eq!((seen(&world, far), subscriptions(&world)), (None, before));
}

/// A kind with a secret from its owner.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Spy {
    #[replicate(position(step = 0.01))]
    position: [f64; 3],
    #[replicate(integer, hide_from_owner)]
    bounty: u16,
}

#[test]
fn an_object_that_the_game_puts_into_a_part_is_near_with_what_its_owner_may_not_know() {
    let mut options = options(PARTS);
    options.schema = Arc::new(Schema::builder().kind::<Ship>().kind::<Spy>().build().expect("good kinds"));
    let mut world = World::with_guests(options, 2);
    let owner = world.connection(0);
    for viewer in [owner, world.connection(1)] {
        world.server.set_viewpoint(viewer, [0.0; 3]);
    }
    world.steps(10);
    // The last one is in no part that viewers have.
    let part = |part| Placement::Channel(ChannelKey::Cell { grid: 1, cell: [0, 0, part] });
    let spies = [0, 1, 2, 3].map(|number| {
        let spy = Spy { position: [5.0, 5.0, 1.0], bounty: 7 };
        world.server.spawn_owned(spy, part(number), Some(owner)).expect("room")
    });
    world.steps(30);
    let bounties =
        |world: &World, guest: usize| spies.map(|id| world.guests[guest].client.get::<Spy>(id).map(|spy| spy.bounty));
    assert_eq!(bounties(&world, 1), [Some(7), Some(7), Some(7), None]);
    assert!(spies[..3].iter().all(|&id| world.guests[1].client.is_near(id)));
    assert_eq!(bounties(&world, 0), [Some(0); 4], "the owner knows the rest");

    // One moves to another part, and the viewers follow it.
    world.server.set_placement(spies[0], part(2)).expect("room");
    world.steps(30);
    world.server.get_mut::<Spy>(spies[0]).expect("it is there").bounty = 9;
    world.steps(30);
    assert_eq!(bounties(&world, 1), [Some(9), Some(7), Some(7), None]);
}

#[test]
fn a_cell_gets_all_of_its_parts_or_none_until_there_is_room() {
    let mut options = options(PARTS);
    let limits = &mut options.server.replicator.limits;
    limits.subscriptions_per_connection = 1;
    let Err(StartError::View { cells, .. }) = Channels::new(&options.schema, &options.server) else {
        panic!("one subscription is not enough")
    };
    let limit = cells + 16;
    options.server.replicator.limits.subscriptions_per_connection = limit;
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    let ids: Vec<ObjectId> =
        (0..3 * PARTS).map(|_| world.server.spawn(ship(60.0), Placement::Cell(0)).expect("room")).collect();
    // All numbers are taken but those for the 20 nearest cells, and two: too few for the parts of a far one.
    let taken: Vec<ChannelKey> = (0..limit as u32 - 2).map(ChannelKey::Custom).collect();
    taken.iter().for_each(|&key| world.server.subscribe(connection, key, 1).expect("room"));
    world.server.set_viewpoint(connection, [0.0; 3]);
    world.steps(20);
    let far = |world: &World| ids.iter().filter(|&&id| seen(world, id).is_some()).count();
    assert_eq!(far(&world), 0);
    let control_bytes =
        |world: &World| world.server.replication_counters(connection).expect("it is connected").control_bytes;
    for &key in &taken {
        let before = control_bytes(&world);
        world.server.unsubscribe(connection, key);
        world.step();
        assert!([0, ids.len()].contains(&far(&world)) || far(&world).is_multiple_of(3));
        // A cell waits for room for all of its parts without a word to the client.
        world.steps(20);
        let told = control_bytes(&world) - before;
        assert!(told <= 3, "{told} bytes, and 3 say that one subscription has ended");
    }
    world.steps(30);
    assert_eq!(far(&world), ids.len());
}

#[test]
fn a_grid_that_cannot_be_for_far_ships_is_an_error_at_the_start() {
    let start = |change: &dyn Fn(&mut WorldOptions)| {
        let mut options = options(PARTS);
        change(&mut options);
        Channels::new(&options.schema, &options.server).map(|_| ())
    };
    assert!(start(&|_| ()).is_ok());
    let far = |grid, parts| move |options: &mut WorldOptions| options.server.far = Some(FarOptions { grid, parts });
    assert!(matches!(start(&far(7, 1)), Err(StartError::Grid(GridError::Unknown(7)))));
    assert!(matches!(start(&far(1, 0)), Err(StartError::Grid(GridError::Parts(0)))));
    let stacked = |options: &mut WorldOptions| options.server.grids[1].shape = GridShape::stacked([100.0; 3]);
    assert!(matches!(start(&stacked), Err(StartError::Grid(GridError::Parts(PARTS)))));
    // 10.1 m are whole steps of 0.01 m, and no whole steps of 0.5 m.
    let odd = |options: &mut WorldOptions| options.server.grids[1].shape = GridShape::flat(Up::Z, [10.1, 10.1, 20.0]);
    assert!(matches!(start(&odd), Err(StartError::Grid(GridError::Step { step: 0.5, .. }))));
}
