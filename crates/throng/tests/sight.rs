//! The view of a client is complete and true. The truth is kept by the tests: what they did to the world, tick by tick.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::harness::{World, WorldOptions};
use throng::net::Condition;
use throng::{
    ChannelKey, ClientEvent, DespawnReason, Facet, GridOptions, GridShape, ObjectId, Placement, Replicate, Replication,
    Ring, Schema,
};

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Hero {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
    #[replicate(integer(min = 0, max = 999), owner_only)]
    ammunition: u16,
    #[replicate(integer(min = 0, max = 999), skip_owner)]
    facing: u16,
}

/// Nothing about it is private: that it is owned can be known by its owner's records alone.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Shot {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
}

/// Has a secret from its owner.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Cursed {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
    #[replicate(integer(min = 0, max = 999), hide_from_owner)]
    curse: u16,
}

/// An input.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Stride {
    #[replicate(integer(min = -100, max = 100))]
    centimetres: i16,
}

fn options(seed: u64, rings: &[(f64, u32)]) -> WorldOptions {
    let schema = Schema::builder().kind::<Hero>().kind::<Shot>().kind::<Cursed>().kind::<Stride>().build();
    let mut options = WorldOptions::new(seed);
    options.schema = Arc::new(schema.expect("good kinds"));
    let rings = rings.iter().map(|&(radius_m, interval_ticks)| Ring { radius_m, interval_ticks }).collect();
    options.server.grids = vec![GridOptions {
        shape: GridShape::flat(throng::Up::Z, [10.0, 10.0, 20.0]),
        rings,
        ..GridOptions::new(throng::Up::Z)
    }];
    options
}

fn preset(name: &str) -> Condition {
    name.parse().expect("a preset")
}

/// In the steps of the wire.
fn centimetres(position: [f32; 3]) -> [i32; 3] {
    position.map(|axis| (f64::from(axis) * 100.0).round() as i32)
}

/// Whether the positions are the same, except for the rounding of numbers halfway between two steps.
fn is_same_place(a: [f32; 3], b: [f32; 3]) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() < 0.006)
}

/// Neighbours in 60 m x 60 m that walk about, and where each of them has been.
struct Crowd {
    ids: Vec<ObjectId>,
    been: HashMap<ObjectId, BTreeMap<[i32; 3], [f32; 3]>>,
}

impl Crowd {
    fn new(world: &mut World, count: usize) -> Crowd {
        let mut crowd = Crowd { ids: Vec::new(), been: HashMap::new() };
        for _ in 0..count {
            let position = [world.rng.f32() * 60.0 - 30.0, world.rng.f32() * 60.0 - 30.0, 1.0];
            let hero = Hero { position, ammunition: 5, facing: 7 };
            let id = world.server.spawn(hero, Placement::Cell(0)).expect("room");
            crowd.ids.push(id);
            crowd.note(id, position);
        }
        crowd
    }

    fn walk(&mut self, world: &mut World) {
        for index in 0..self.ids.len() {
            let id = self.ids[index];
            let (x, y) = (world.rng.f32() * 0.3 - 0.15, world.rng.f32() * 0.3 - 0.15);
            let hero = world.server.get_mut::<Hero>(id).expect("it is there");
            hero.position[0] += x;
            hero.position[1] += y;
            let position = hero.position;
            self.note(id, position);
        }
    }

    fn note(&mut self, id: ObjectId, position: [f32; 3]) {
        self.been.entry(id).or_default().insert(centimetres(position), position);
    }

    fn has_been(&self, id: ObjectId, position: [f32; 3]) -> bool {
        let near = |x: i32, y: i32, [a, b, c]: [i32; 3]| [a + x, b + y, c];
        let steps = (-1..=1).flat_map(|x| (-1..=1).map(move |y| (x, y)));
        let been = &self.been[&id];
        steps.filter_map(|(x, y)| been.get(&near(x, y, centimetres(position)))).any(|&at| is_same_place(at, position))
    }
}

#[test]
fn nobody_sees_an_object_at_a_place_where_it_never_was() {
    throng_seeds::for_seeds(4, |seed| {
        let bytes_per_s = [8_000, 16_000][seed as usize % 2];
        let mut options = options(seed, &[(15.0, 2), (40.0, 5)]);
        options.server.client_bytes_per_s = bytes_per_s;
        let mut world = World::with_guests(options, 2);
        let mut crowd = Crowd::new(&mut world, 600);
        let (owner, witness) = (world.connection(0), world.connection(1));
        let position = [3.0, 4.0, 1.0];
        let hero = Hero { position, ammunition: 77, facing: 9 };
        let hero = world.server.spawn_owned(hero, Placement::Cell(0), Some(owner)).expect("room");
        crowd.note(hero, position);
        crowd.ids.push(hero);
        for connection in [owner, witness] {
            world.server.set_viewpoint(connection, [3.0, 4.0, 1.0]);
        }
        let (mut looked_at, mut first_seen) = (0, None);
        for step in 0..240 {
            // The first packets with anything in them are lost.
            let weather = if step < 2 { Condition::BLACKOUT } else { Condition::NONE };
            world.set_way_to(0, weather.clone());
            world.set_way_to(1, weather);
            world.begin_step();
            crowd.walk(&mut world);
            world.end_step();
            for guest in 0..2 {
                for (id, seen) in world.guests[guest].client.objects::<Hero>() {
                    looked_at += 1;
                    assert!(crowd.has_been(id, seen.position), "{id}: {seen:?}");
                    let is_own = guest == 0 && id == hero;
                    assert_eq!(seen.ammunition, if is_own { 77 } else { 0 }, "{id}");
                    assert_eq!(seen.facing, if id == hero { 9 } else { 7 }, "{id}");
                    assert_eq!(world.guests[guest].client.is_mine(id), is_own);
                    if is_own {
                        first_seen.get_or_insert(step);
                    }
                }
            }
            for guest in &mut world.guests {
                for event in guest.events.drain(..) {
                    if let ClientEvent::Spawned(id) = event {
                        // A client can look at every object of which it has an event, unless the object has gone by
                        // then.
                        assert!(guest.client.get::<Hero>(id).is_some(), "{id}");
                    }
                }
            }
        }
        assert!(looked_at > 10_000, "{looked_at}");
        // The own hero does not wait in the queue behind 600 neighbours.
        assert!(first_seen.is_some_and(|step| step < 20), "{first_seen:?}");
    });
}

/// How late clients noticed the ends of shots, in ticks: for each of `shots` of 30 m/s that end after 20 ticks in view.
fn ends(seed: u64, rings: &[(f64, u32)], weather: &str, shots: usize) -> Vec<u32> {
    const LIFE_TICKS: u32 = 20;
    let mut options = options(seed, rings);
    options.server.client_bytes_per_s = 200_000;
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    world.server.set_viewpoint(connection, [5.0, 5.0, 1.0]);
    world.set_condition(preset(weather));
    world.steps(10);
    world.guests[0].events.clear();
    // Shots that fly: position, speed in metres per tick, ticks to go. Ends, and the tick of each.
    let mut flying: Vec<(ObjectId, [f32; 2], u32)> = Vec::new();
    let mut ended: BTreeMap<ObjectId, u32> = BTreeMap::new();
    let mut told: BTreeMap<ObjectId, Vec<ClientEvent>> = BTreeMap::new();
    let mut late = BTreeMap::new();
    let (mut made, mut now) = (0, 0);
    while late.len() < shots {
        now += 1;
        assert!(now < 8_000, "seed {seed}: {} of {shots} ends were noticed", late.len());
        world.begin_step();
        if made < shots {
            let angle = world.rng.f32() * std::f32::consts::TAU;
            let (x, y) = (5.0 + world.rng.f32() * 16.0 - 8.0, 5.0 + world.rng.f32() * 16.0 - 8.0);
            let shot = Shot { position: [x, y, 1.0] };
            let id = world.server.spawn(shot, Placement::Cell(0)).expect("room");
            flying.push((id, [angle.cos(), angle.sin()], LIFE_TICKS));
            made += 1;
        }
        for (id, speed, left) in &mut flying {
            let shot = world.server.get_mut::<Shot>(*id).expect("it flies");
            shot.position[0] += speed[0];
            shot.position[1] += speed[1];
            *left -= 1;
        }
        for (id, ..) in flying.extract_if(.., |(_, _, left)| *left == 0) {
            world.server.despawn(id);
            ended.insert(id, now);
        }
        world.end_step();
        for event in world.guests[0].events.drain(..) {
            let (ClientEvent::Spawned(id) | ClientEvent::Despawned { id, .. }) = event else { continue };
            told.entry(id).or_default().push(event);
        }
        let client = &world.guests[0].client;
        for (&id, &tick) in &ended {
            if !late.contains_key(&id) && client.get::<Shot>(id).is_none() {
                late.insert(id, now - tick);
            }
        }
    }
    world.steps(60);
    assert_eq!(world.guests[0].client.objects::<Shot>().count(), 0, "seed {seed}: nothing came back");
    for (id, events) in told {
        // On a bad path it may be out of sight for a moment; but it ends once, and never comes back.
        let destroyed = ClientEvent::Despawned { id, reason: DespawnReason::Destroyed };
        let out_of_sight = ClientEvent::Despawned { id, reason: DespawnReason::OutOfSight };
        // With packets out of order it may be out of sight for a moment, and end unseen; but it never comes back after
        // its end.
        let last = events.last().expect("it was told of");
        assert!(*last == destroyed || *last == out_of_sight, "seed {seed}, {id}: {events:?}");
        assert!(!events[..events.len() - 1].contains(&destroyed), "seed {seed}, {id}: {events:?}");
        assert!(weather != "none" || events == [ClientEvent::Spawned(id), destroyed], "seed {seed}, {id}: {events:?}");
    }
    late.into_values().collect()
}

#[test]
fn no_shot_outlives_its_end_on_a_client() {
    for rings in [&[(15.0, 1), (40.0, 3)][..], &[(40.0, 1)], &[(15.0, 2), (40.0, 6)], &[(12.0, 1), (40.0, 30)]] {
        let late = ends(1, rings, "none", 700);
        let worst = late.iter().max().copied().unwrap_or(0);
        let slowest = rings.iter().map(|ring| ring.1).max().unwrap_or(1);
        let beyond = |limit| late.iter().filter(|&&ticks| ticks > limit).count();
        assert_eq!((late.len(), beyond(slowest + 2)), (700, 0), "rings {rings:?}: the worst is {worst} ticks late");
        // However slow the ring is in which they end: clients that knew them in a faster ring get the end there.
        assert!(beyond(8) <= 3, "rings {rings:?}: {} are more than 8 ticks late", beyond(8));
    }
}

#[test]
fn no_shot_outlives_its_end_for_long_on_a_phone_in_town() {
    // A path of 35 ms with 25 ms of jitter: 2 ticks. A loss is noticed after about a round trip and three packets.
    const BOUND_TICKS: u32 = 30;
    throng_seeds::for_seeds(3, |seed| {
        let late = ends(seed, &[(15.0, 1), (40.0, 3)], "4g", 700);
        let worst = late.iter().max().copied().unwrap_or(0);
        assert!(worst <= BOUND_TICKS, "seed {seed}: the worst is {worst} ticks late");
    });
}

#[test]
fn an_object_that_walks_into_slower_rings_stays_in_sight_until_it_leaves_the_last() {
    let mut world = World::with_guests(options(1, &[(15.0, 1), (40.0, 3), (80.0, 75)]), 1);
    let connection = world.connection(0);
    world.server.set_viewpoint(connection, [5.0, 5.0, 1.0]);
    world.steps(5);
    let id = world.server.spawn(Shot { position: [5.0, 5.0, 1.0] }, Placement::Cell(0)).expect("room");
    let (mut events, mut stale) = (Vec::new(), 0);
    for step in 0..1_200 {
        world.begin_step();
        if let Some(shot) = world.server.get_mut::<Shot>(id) {
            shot.position[0] += 0.1;
        }
        world.end_step();
        events.append(&mut world.guests[0].events);
        let at_m = 5.0 + 0.1 * (step + 1) as f32;
        let client = &world.guests[0].client;
        stale += u32::from(client.is_stale(id));
        if step > 80 && at_m < 80.0 {
            assert!(client.get::<Shot>(id).is_some(), "it vanished at {at_m} m");
        }
        assert!(at_m < 115.0 || client.get::<Shot>(id).is_none(), "it is still there at {at_m} m");
    }
    let comes_or_goes = |event: &&ClientEvent| matches!(event, ClientEvent::Spawned(_) | ClientEvent::Despawned { .. });
    let came_and_went: Vec<_> = events.iter().filter(comes_or_goes).collect();
    let gone = ClientEvent::Despawned { id, reason: DespawnReason::OutOfSight };
    assert_eq!(came_and_went, [&ClientEvent::Spawned(id), &gone]);
    assert!((1..300).contains(&stale), "it was waited for in {stale} ticks");
}

#[test]
fn r16_what_is_taken_out_of_sight_is_gone_in_the_next_tick() {
    let mut world = World::with_guests(options(1, &[(15.0, 1), (40.0, 3)]), 2);
    for guest in 0..2 {
        let connection = world.connection(guest);
        world.server.set_viewpoint(connection, [5.0, 5.0, 1.0]);
    }
    let team = world.connection(1);
    world.server.subscribe(team, ChannelKey::Custom(7), 1).expect("room");
    let spawn =
        |world: &mut World, x| world.server.spawn(Shot { position: [x, 5.0, 1.0] }, Placement::Cell(0)).unwrap();
    let (spy, bystander, traveller) = (spawn(&mut world, 6.0), spawn(&mut world, 7.0), spawn(&mut world, 8.0));
    world.steps(10);
    for id in [spy, bystander, traveller] {
        assert!(world.guests[0].client.get::<Shot>(id).is_some());
    }
    world.guests[0].events.clear();
    // One hides, one is teleported, and then the viewer itself goes.
    world.server.set_placement(spy, Placement::Channel(ChannelKey::Custom(7))).expect("room");
    world.server.get_mut::<Shot>(traveller).expect("it is there").position[0] = 2_000.0;
    world.step();
    let gone = |id| ClientEvent::Despawned { id, reason: DespawnReason::OutOfSight };
    assert!(world.guests[0].client.get::<Shot>(spy).is_none() && world.guests[1].client.get::<Shot>(spy).is_some());
    assert!(world.guests[0].client.get::<Shot>(traveller).is_none());
    let viewer = world.connection(0);
    world.server.set_viewpoint(viewer, [500.0, 500.0, 1.0]);
    world.step();
    assert!(world.guests[0].client.get::<Shot>(bystander).is_none());
    let told = &world.guests[0].events;
    for id in [spy, traveller, bystander] {
        assert_eq!(told.iter().filter(|event| **event == gone(id)).count(), 1, "{told:?}");
    }
    // Unlike what has ended, they may come back.
    world.server.set_viewpoint(viewer, [5.0, 5.0, 1.0]);
    world.steps(3);
    assert!(world.guests[0].client.get::<Shot>(bystander).is_some());
}

/// A client's information about its inputs.
#[derive(Debug, Default)]
struct Prediction {
    looks: usize,
    /// Looks at a state that is not the one after the input that it is said to be.
    wrong: usize,
    /// The most inputs that were sent and not acknowledged at a look.
    most_pending: u32,
    /// Whether the newest input was acknowledged in the end.
    is_caught_up: bool,
}

/// A runner in a crowd, whose client sends a stride in each tick; some of them are of no length.
fn run_in_a_crowd(seed: u64, bytes_per_s: u32, neighbours: usize, weather: &str) -> Prediction {
    let mut options = options(seed, &[(15.0, 1), (40.0, 3)]);
    options.server.client_bytes_per_s = bytes_per_s;
    let mut world = World::with_guests(options, 1);
    let mut crowd = Crowd::new(&mut world, neighbours);
    let connection = world.connection(0);
    let start = Hero { position: [0.0, 0.0, 1.0], ammunition: 100, facing: 0 };
    let hero = world.server.spawn_owned(start.clone(), Placement::Cell(0), Some(connection)).expect("room");
    world.server.set_viewpoint(connection, [0.0, 0.0, 1.0]);
    world.set_condition(preset(weather));
    // The hero's state after each input that the game took: the truth.
    let mut after: BTreeMap<u32, Hero> = BTreeMap::new();
    let mut truth = start.clone();
    let mut seen = Prediction::default();
    let mut sent = 0;
    for step in 0..700u32 {
        world.begin_step();
        crowd.walk(&mut world);
        for (_, input) in std::mem::take(&mut world.inputs) {
            let stride: Stride = world.server.read_input(&input).expect("a stride");
            truth.position[0] += f32::from(stride.centimetres) / 100.0;
            // Now and then only something private changes, and now and then nothing at all.
            truth.ammunition -= u16::from(input.number % 16 == 3);
            *world.server.get_mut::<Hero>(hero).expect("it is there") = truth.clone();
            world.server.set_viewpoint(connection, truth.position.map(f64::from));
            world.server.acknowledge_input(connection, input.number);
            after.insert(input.number, truth.clone());
        }
        world.end_step();
        let client = &mut world.guests[0].client;
        if (20..620).contains(&step) {
            let centimetres = if step / 30 % 3 == 2 { 0 } else { 27 };
            sent = client.send_typed_input(&Stride { centimetres }).expect("open") + 1;
        }
        let Some(view) = client.get::<Hero>(hero) else { continue };
        let acked = client.input_acked();
        assert_eq!(client.input_acked_by(hero), acked);
        let expected = acked.map_or(&start, |number| &after[&number]);
        let is_right = is_same_place(view.position, expected.position) && view.ammunition == expected.ammunition;
        seen.looks += 1;
        seen.wrong += usize::from(!is_right);
        seen.most_pending = seen.most_pending.max(sent - acked.map_or(0, |number| number + 1));
        seen.is_caught_up = acked.map_or(0, |number| number + 1) == sent;
    }
    seen
}

#[test]
fn an_acknowledged_input_is_in_the_state_and_no_later_one_is() {
    for (bytes_per_s, neighbours, pending) in [(64_000, 300, 4), (16_000, 300, 6), (8_000, 600, 8), (3_000, 600, 16)] {
        let seen = run_in_a_crowd(1, bytes_per_s, neighbours, "none");
        assert!(seen.looks >= 598 && seen.wrong == 0 && seen.is_caught_up, "{bytes_per_s} B/s: {seen:?}");
        assert!(seen.most_pending <= pending, "{bytes_per_s} B/s: {seen:?}");
    }
}

#[test]
fn an_acknowledged_input_is_in_the_state_on_bad_paths_too() {
    throng_seeds::for_seeds(3, |seed| {
        for (weather, bytes_per_s, neighbours) in [("4g", 64_000, 20), ("4g", 16_000, 300), ("bad", 32_000, 100)] {
            let seen = run_in_a_crowd(seed, bytes_per_s, neighbours, weather);
            assert!(seen.looks >= 598 && seen.wrong == 0, "seed {seed}, {weather}: {seen:?}");
        }
    });
}

#[test]
fn a_client_knows_what_is_its_own_and_forgets_what_was() {
    let mut world = World::with_guests(options(1, &[(15.0, 1), (40.0, 3)]), 2);
    let (ada, bob) = (world.connection(0), world.connection(1));
    let hero = Hero { position: [5.0, 5.0, 1.0], ammunition: 77, facing: 9 };
    let hero = world.server.spawn_owned(hero, Placement::Cell(0), Some(ada)).expect("room");
    let shot = world.server.spawn_owned(Shot { position: [900.0, 5.0, 1.0] }, Placement::Cell(0), Some(ada)).unwrap();
    for connection in [ada, bob] {
        world.server.set_viewpoint(connection, [5.0, 5.0, 1.0]);
    }
    world.steps(10);
    assert_eq!((world.server.owner(hero), world.server.owner(shot)), (Some(ada), Some(ada)));
    let client = &world.guests[0].client;
    assert_eq!(client.owned().collect::<BTreeSet<_>>(), BTreeSet::from([hero, shot]));
    assert_eq!(
        client.owned_objects::<Hero>().map(|(id, hero)| (id, hero.ammunition)).collect::<Vec<_>>(),
        [(hero, 77)]
    );
    assert_eq!(client.get::<Shot>(shot).map(|shot| shot.position[0]), Some(900.0), "its own is in sight however far");
    assert!(world.guests[1].client.owned().next().is_none() && world.guests[1].client.get::<Shot>(shot).is_none());
    let own_events = |world: &World, guest: usize| -> Vec<ClientEvent> {
        let events = world.guests[guest].events.iter();
        events.filter(|e| !matches!(e, ClientEvent::Changed { .. } | ClientEvent::Connected { .. })).cloned().collect()
    };
    let told = own_events(&world, 0);
    for id in [hero, shot] {
        let at = |event: ClientEvent| told.iter().position(|told| *told == event).expect("it was told");
        assert_eq!(at(ClientEvent::Spawned(id)) + 1, at(ClientEvent::Owned(id)), "{told:?}");
    }
    assert_eq!(own_events(&world, 1), [ClientEvent::Spawned(hero)]);

    // A far one moves: the owner's knowledge is never old.
    world.server.get_mut::<Shot>(shot).expect("it is there").position[0] = 901.0;
    world.step();
    assert_eq!(world.guests[0].client.get::<Shot>(shot).map(|shot| shot.position[0]), Some(901.0));

    world.guests.iter_mut().for_each(|guest| guest.events.clear());
    world.server.set_owner(hero, Some(bob)).expect("room");
    world.server.set_owner(shot, Some(bob)).expect("room");
    world.server.get_mut::<Hero>(hero).expect("it is there").ammunition = 42;
    world.steps(4);
    let [former, present] = [0, 1].map(|guest| world.guests[guest].client.get::<Hero>(hero).expect("in sight"));
    assert_eq!((former.ammunition, present.ammunition), (0, 42));
    let known = world.guests[0].client.replica().and_then(|replica| replica.object(hero)).expect("in sight");
    assert_eq!(known.known_fields() & Hero::FIELD_AMMUNITION, 0);
    assert_eq!(known.facets().collect::<Vec<_>>(), [Facet::Public]);
    assert_eq!([0, 1].map(|guest| world.guests[guest].client.is_mine(hero)), [false, true]);
    let gone = ClientEvent::Despawned { id: shot, reason: DespawnReason::OutOfSight };
    let former = own_events(&world, 0);
    assert!(former.len() == 2 && former.contains(&ClientEvent::Disowned(hero)) && former.contains(&gone), "{former:?}");
    let forgotten = world.guests[0].events.iter().any(|event| {
        matches!(event, ClientEvent::Changed { id, fields } if *id == hero && fields & Hero::FIELD_AMMUNITION != 0)
    });
    assert!(forgotten, "{:?}", world.guests[0].events);
    let present = own_events(&world, 1);
    let wanted = [ClientEvent::Owned(hero), ClientEvent::Spawned(shot), ClientEvent::Owned(shot)];
    assert!(wanted.iter().all(|event| present.contains(event)) && present.len() == 3, "{present:?}");

    world.server.despawn(hero);
    world.step();
    assert!(world.guests[1].client.owned().eq([shot]));
    let destroyed = ClientEvent::Despawned { id: hero, reason: DespawnReason::Destroyed };
    for guest in 0..2 {
        assert_eq!(own_events(&world, guest).last(), Some(&destroyed));
    }
}

#[test]
fn a_field_that_owners_predict_costs_nothing_for_each_pair() {
    let mut counted = Vec::new();
    for objects in [50, 500] {
        let mut options = options(1, &[(15.0, 1), (40.0, 3)]);
        options.server.client_bytes_per_s = 2_000_000;
        let mut world = World::with_guests(options, 3);
        let owner = world.connection(0);
        let mut heroes = Vec::new();
        for number in 0..objects {
            let position = [world.rng.f32() * 9.0, world.rng.f32() * 9.0, 1.0];
            let hero = Hero { position, ammunition: 5, facing: 7 };
            let owner = world.connection(number % 3);
            heroes.push(world.server.spawn_owned(hero, Placement::Cell(0), Some(owner)).expect("room"));
        }
        for guest in 0..3 {
            let connection = world.connection(guest);
            world.server.set_viewpoint(connection, [5.0, 5.0, 1.0]);
        }
        world.steps(40);
        let before = world.guests[1].client.replication_bytes();
        for step in 0..30u16 {
            world.begin_step();
            for &hero in &heroes {
                world.server.get_mut::<Hero>(hero).expect("it is there").facing = 100 + step;
            }
            world.end_step();
        }
        let bytes = world.guests[1].client.replication_bytes() - before;
        counted.push((world.server.replication().followed_count(owner), bytes, objects as u64));
        // Everybody gets the event, but owners keep their own values.
        for (number, &hero) in heroes.iter().enumerate() {
            for guest in 0..3 {
                let seen = world.guests[guest].client.get::<Hero>(hero).expect("in sight").facing;
                assert_eq!(seen, if number % 3 == guest { 7 } else { 129 });
            }
        }
        let mine = Hero { facing: 321, ..Hero::default() };
        assert!(world.guests[0].client.predict(heroes[0], &mine) && !world.guests[1].client.predict(heroes[0], &mine));
        world.server.get_mut::<Hero>(heroes[0]).expect("it is there").facing = 500;
        world.step();
        let seen = world.guests[0].client.get::<Hero>(heroes[0]).expect("in sight");
        assert_eq!((seen.facing, seen.ammunition), (321, 5), "only what the owner predicts is its own");
        world.server.set_owner(heroes[0], None).expect("room");
        world.steps(2);
        assert_eq!(world.guests[0].client.get::<Hero>(heroes[0]).map(|seen| seen.facing), Some(500));
    }
    let [(few, few_bytes, _), (many, many_bytes, objects)] = counted[..] else { unreachable!("two worlds") };
    assert_eq!(few, many, "subscriptions of a connection");
    // Slot, mask and 10 bits, in 30 ticks; the own third is in records of its own, which do not have the field.
    assert!(many_bytes < objects * 30 * 5 && many_bytes > few_bytes, "{many_bytes} bytes for {objects}");
}

#[test]
fn a_secret_from_the_owner_is_whole_for_all_others_and_in_no_state_of_the_owner() {
    let mut world = World::with_guests(options(1, &[(15.0, 2), (40.0, 3)]), 2);
    let owner = world.connection(0);
    for guest in 0..2 {
        let connection = world.connection(guest);
        world.server.set_viewpoint(connection, [5.0, 5.0, 1.0]);
    }
    let cursed = Cursed { position: [5.0, 5.0, 1.0], curse: 13 };
    let id = world.server.spawn_owned(cursed, Placement::Cell(0), Some(owner)).expect("room");
    for _ in 0..20 {
        world.step();
        let [own, others] = [0, 1].map(|guest| world.guests[guest].client.get::<Cursed>(id));
        assert!(own.is_none_or(|own| own.curse == 0) && others.is_none_or(|others| others.curse == 13));
    }
    assert!([0, 1].iter().all(|&guest| world.guests[guest].client.get::<Cursed>(id).is_some()));
    world.server.set_owner(id, Some(world.connection(1))).expect("room");
    world.steps(10);
    let seen = [0, 1].map(|guest| world.guests[guest].client.get::<Cursed>(id).expect("in sight").curse);
    assert_eq!(seen, [13, 0], "the former owner is told, and the present one has forgotten it");
}

#[test]
fn a_secret_from_the_owner_is_sent_as_seldom_as_the_rest_of_the_object() {
    let mut world = World::with_guests(options(1, &[(15.0, 1)]), 1);
    let connection = world.connection(0);
    world.server.subscribe(connection, ChannelKey::Custom(3), 10).expect("room");
    let cursed = Cursed { position: [5.0, 5.0, 1.0], curse: 0 };
    let id = world.server.spawn(cursed, Placement::Channel(ChannelKey::Custom(3))).expect("room");
    world.steps(20);
    world.guests[0].events.clear();
    for _ in 0..100 {
        world.begin_step();
        world.server.get_mut::<Cursed>(id).expect("it is there").curse += 1;
        world.end_step();
    }
    let changes = world.guests[0].events.iter().filter(|event| matches!(event, ClientEvent::Changed { .. })).count();
    assert!((9..=11).contains(&changes), "{changes} changes in 100 ticks, at an interval of 10");
}

#[test]
fn a_mirror_kept_by_events_is_right_after_more_events_than_any_queue_held() {
    const FORMER_BOUND: usize = 1 << 18;
    let mut options = options(1, &[(40.0, 1)]);
    options.server.client_bytes_per_s = 20_000_000;
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    world.server.set_viewpoint(connection, [5.0, 5.0, 1.0]);
    let mut mirror = BTreeSet::new();
    let mut mind = |event: ClientEvent| match event {
        ClientEvent::Spawned(id) => assert!(mirror.insert(id), "{id} is told twice"),
        ClientEvent::Despawned { id, .. } => assert!(mirror.remove(&id), "{id} was not there"),
        _ => {}
    };
    let mut alive: Vec<ObjectId> = Vec::new();
    let (mut happened, mut longest, mut most_held) = (0, 0, 0);
    for step in 0..200 {
        world.begin_step();
        happened += alive.len();
        alive.drain(..).for_each(|id| world.server.despawn(id));
        for number in 0..800 {
            let position = [(number % 10) as f32, (number / 80) as f32, 1.0];
            alive.push(world.server.spawn(Shot { position }, Placement::Cell(0)).expect("room"));
        }
        happened += alive.len();
        world.server.tick(world.now);
        // The client takes everything in, and the game asks for events only in the first ticks and after the last.
        let client = &mut world.guests[0].client;
        client.update(world.now).expect("in memory");
        while step < 3
            && let Some(event) = client.poll_event()
        {
            mind(event);
        }
        let held = client.replica().expect("connected").occupancy();
        (longest, most_held) = (longest.max(held.events), most_held.max(held.objects));
    }
    assert!(happened > FORMER_BOUND, "only {happened} things happened");
    assert!(longest <= 4 * most_held, "{longest} events waited, with {most_held} objects");
    world.steps(20);
    std::mem::take(&mut world.guests[0].events).into_iter().for_each(&mut mind);
    let seen: BTreeSet<ObjectId> = world.guests[0].client.objects::<Shot>().map(|(id, _)| id).collect();
    assert!(mirror == seen && seen == alive.iter().copied().collect(), "{} and {}", mirror.len(), seen.len());
}

#[test]
fn a_client_that_is_told_of_an_object_seldom_is_told_of_its_end() {
    let mut options = options(5, &[(10.0, 1)]);
    options.server.replicator.retention_ticks = 30;
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    // One ends in each part of the interval.
    let heroes = [0, 1, 2, 3, 4, 5].map(|_| {
        let id = world.server.spawn(Hero::default(), Placement::Entity).expect("room");
        let key = ChannelKey::Entity { object: id, facet: Facet::Public };
        world.server.subscribe(connection, key, 100).expect("room");
        id
    });
    world.steps(120);
    assert!(heroes.iter().all(|&id| world.guests[0].client.get::<Hero>(id).is_some()));
    world.guests[0].events.clear();
    for hero in heroes {
        world.server.despawn(hero);
        world.steps(20);
    }
    world.steps(220);
    let ends: BTreeMap<ObjectId, DespawnReason> = world.guests[0]
        .events
        .iter()
        .filter_map(|event| match *event {
            ClientEvent::Despawned { id, reason } => Some((id, reason)),
            _ => None,
        })
        .collect();
    assert_eq!(ends, heroes.map(|id| (id, DespawnReason::Destroyed)).into());
    let followed = world.server.replicator().hub_ref().connection(connection).expect("connected").subscription_count();
    assert_eq!(followed, 0, "the subscriptions have ended as well");
}
