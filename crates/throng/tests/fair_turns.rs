//! Inside one connection every subscription gets a share: large frames do not delay small ones, and the own character
//! comes first. Ages are those of the numbers that a client holds, against what the test wrote at the server.

use crate::harness::{World, WorldOptions};
use throng::{ChannelKey, GridOptions, GridShape, ObjectId, Placement, Ring, Up};
use throng_seeds::for_seeds;
use throng_testkit::{Beacon, Score};

const LARGE: ChannelKey = ChannelKey::Custom(7);

/// One client with a character of its own and ten neighbours in the cells around it, all of which change every tick.
struct Square {
    world: World,
    own: ObjectId,
    neighbours: Vec<ObjectId>,
    /// The other changes.
    others: Vec<ObjectId>,
    tick: u32,
    /// The oldest that the client has held since the last reset: of its own character, and of a neighbour.
    oldest: (u32, u32),
}

impl Square {
    fn new(options: WorldOptions) -> Square {
        let mut world = World::with_guests(options, 1);
        let connection = world.connection(0);
        let beacon = |x: f32, y: f32| Beacon { position: [x, y, 1.0], number: 0 };
        let own = world.server.spawn_owned(beacon(1.0, 1.0), Placement::Cell(0), Some(connection)).expect("room");
        let neighbours = (0..10).map(|number| {
            let (x, y) = ((number % 2) as f32 * 8.0 - 4.0, (number % 3) as f32 * 4.0 - 4.0);
            world.server.spawn(beacon(x, y), Placement::Cell(0)).expect("room")
        });
        let neighbours = neighbours.collect();
        world.server.set_viewpoint(connection, [1.0, 1.0, 1.0]);
        let mut square = Square { world, own, neighbours, others: Vec::new(), tick: 0, oldest: (0, 0) };
        square.play(60);
        square
    }

    fn begin(&mut self) {
        self.world.begin_step();
        self.tick += 1;
        for &id in self.neighbours.iter().chain([&self.own]).chain(&self.others) {
            self.world.server.get_mut::<Beacon>(id).expect("it is there").number = self.tick;
        }
    }

    fn age(&self, id: ObjectId) -> u32 {
        self.world.guests[0].client.get::<Beacon>(id).map_or(u32::MAX, |seen| self.tick - seen.number)
    }

    fn end(&mut self) {
        self.world.end_step();
        let neighbours = self.neighbours.iter().map(|&id| self.age(id)).max().expect("there are some");
        self.oldest = (self.oldest.0.max(self.age(self.own)), self.oldest.1.max(neighbours));
    }

    fn play(&mut self, ticks: usize) {
        for _ in 0..ticks {
            self.begin();
            self.end();
        }
    }

    fn known(&self) -> usize {
        self.world.guests[0].client.replica().expect("connected").object_count()
    }
}

fn square(seed: u64, client_bytes_per_s: u32) -> Square {
    let mut options = WorldOptions::new(seed);
    options.server.client_bytes_per_s = client_bytes_per_s;
    Square::new(options)
}

/// The client is subscribed to a channel of this many objects. Returns how many ticks it takes to learn them all.
fn join(square: &mut Square, objects: usize) -> usize {
    let spawn = |number: u32| {
        let score = Score { points: number, open: false };
        square.world.server.spawn(score, Placement::Channel(LARGE)).expect("room");
    };
    (0..objects as u32).for_each(spawn);
    let before = square.known();
    square.oldest = (0, 0);
    let connection = square.world.connection(0);
    square.world.server.subscribe(connection, LARGE, 1).expect("room");
    for ticks in 0..3_000 {
        if square.known() == before + objects {
            return ticks;
        }
        square.play(1);
    }
    panic!("{} of {objects} objects are known after 3,000 ticks", square.known() - before);
}

#[test]
fn r15_while_five_thousand_objects_are_loaded_the_neighbours_go_on_moving() {
    for_seeds(2, |seed| {
        let mut square = square(seed, 64_000);
        let ticks = join(&mut square, 5_000);
        let (own, neighbour) = square.oldest;
        if own > 2 || neighbour > 5 {
            return Err(format!(
                "in {ticks} ticks the own character was up to {own} ticks old, a neighbour {neighbour}"
            ));
        }
        // 5,000 introductions of about 5 bytes beside 200 bytes per tick for the neighbours.
        if !(10..=45).contains(&ticks) {
            return Err(format!("the join took {ticks} ticks"));
        }
        Ok(())
    });
}

#[test]
fn on_three_kilobytes_a_second_the_neighbours_are_seen_every_second_while_five_thousand_objects_are_loaded() {
    for_seeds(2, |seed| {
        let mut square = square(seed, 3_000);
        let ticks = join(&mut square, 5_000);
        let (own, neighbour) = square.oldest;
        if own > 30 || neighbour > 30 {
            return Err(format!(
                "in {ticks} ticks the own character was up to {own} ticks old, a neighbour {neighbour}"
            ));
        }
        Ok(())
    });
}

#[test]
fn a_cell_of_a_thousand_people_beside_ones_own_does_not_slow_the_neighbours_down() {
    let mut options = WorldOptions::new(5);
    options.server.grids.push(GridOptions {
        shape: GridShape::flat(Up::Z, [100.0, 100.0, 20.0]),
        rings: vec![Ring { radius_m: 60.0, interval_ticks: 1 }],
        ..GridOptions::new(Up::Z)
    });
    let mut square = Square::new(options);
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..1_000 {
        let position = [rng.f32() * 99.0, rng.f32() * 99.0, 1.0];
        let id = square.world.server.spawn(Beacon { position, number: square.tick }, Placement::Cell(1)).expect("room");
        square.others.push(id);
    }
    square.oldest = (0, 0);
    square.play(60);
    let (own, neighbour) = square.oldest;
    assert!(own <= 2 && neighbour <= 5, "the own character was up to {own} ticks old, a neighbour {neighbour}");
    // 8 kB that all change every tick, on what is left of 2,133 bytes per tick.
    let ages: Vec<u32> = square.others.iter().map(|&id| square.age(id)).collect();
    let oldest = ages.iter().max().expect("a thousand");
    assert!(*oldest <= 20, "one of the thousand is {oldest} ticks old");
}

#[test]
fn what_was_lost_of_a_large_channel_does_not_keep_the_neighbours_waiting() {
    for_seeds(2, |seed| {
        let mut square = square(seed, 64_000);
        let condition = throng::net::Condition { delay_us: 50_000, ..throng::net::Condition::NONE };
        square.world.set_condition(condition.clone());
        square.play(30);
        let connection = square.world.connection(0);
        for number in 0..20_000 {
            let score = Score { points: number, open: false };
            square.world.server.spawn(score, Placement::Channel(LARGE)).expect("room");
        }
        square.world.server.subscribe(connection, LARGE, 1).expect("room");
        square.play(10);
        // Ten ticks of it are lost.
        let silence = throng::net::Condition { loss: 1.0, ..condition.clone() };
        square.world.set_way_to(0, silence);
        square.play(10);
        square.world.set_way_to(0, condition);
        // The path takes less than two ticks; what is lost is noticed from now on, and sent again: 16 kB, at what the
        // congestion control still allows, which may be 5 kB a second.
        square.play(12);
        square.oldest = (0, 0);
        square.play(60);
        let (own, neighbour) = square.oldest;
        if own > 6 || neighbour > 15 {
            return Err(format!("the own character was up to {own} ticks old, a neighbour {neighbour}"));
        }
        Ok(())
    });
}

#[test]
fn r12_nobody_waits_longer_than_the_configuration_says() {
    for_seeds(4, |seed| {
        const RATE: u32 = 6_000;
        let mut options = WorldOptions::new(seed);
        options.server.client_bytes_per_s = RATE;
        let mut world = World::with_guests(options, 1);
        let connection = world.connection(0);
        let mut rng = fastrand::Rng::with_seed(seed);
        // One large channel, and a hundred small ones.
        let mut watched = Vec::new();
        let mut wanted_bytes = 0.0;
        let mut watch = |world: &mut World, key: ChannelKey, objects: u32, interval_ticks: u16| {
            for _ in 0..objects {
                let beacon = Beacon::default();
                let id = world.server.spawn(beacon, Placement::Channel(key)).expect("room");
                watched.push((id, u32::from(interval_ticks)));
            }
            world.server.subscribe(connection, key, interval_ticks).expect("room");
            // A share takes at most a packet and the rest of a segment: 3 bytes and a bit for each number that changes,
            // with its head; the first introductions follow the share that begins a frame.
            let turn_bytes = f64::from(objects * 5 + 8).min(1_160.0 + 384.0);
            wanted_bytes += turn_bytes / f64::from(interval_ticks);
        };
        watch(&mut world, LARGE, 1_000, 1);
        for channel in 100..200 {
            watch(&mut world, ChannelKey::Custom(channel), 1 + rng.u32(..4), [1, 2, 5, 15][rng.usize(..4)]);
        }
        // All packets cost 59 bytes besides, and the smallest have 380.
        let bytes_per_tick = f64::from(RATE) / 30.0 * 380.0 / 440.0;
        let intervals = (wanted_bytes / bytes_per_tick).max(1.0);
        let large_turns = (1_000.0 * 5.0 / 1_160.0f64).ceil();
        let ticks = 2_400;
        for tick in 1..=ticks {
            world.begin_step();
            for &(id, _) in &watched {
                world.server.get_mut::<Beacon>(id).expect("it is there").number = tick;
            }
            world.end_step();
            if tick < 1_200 {
                continue;
            }
            for (number, &(id, interval)) in watched.iter().enumerate() {
                let seen = world.guests[0].client.get::<Beacon>(id).ok_or_else(|| format!("{id} was never sent"))?;
                // A frame of several shares is as old as all of them.
                let turns = if number < 1_000 { 2.0 * large_turns } else { 1.0 };
                let bound = 2.0 * intervals * f64::from(interval) * turns + 30.0;
                let age = f64::from(tick - seen.number);
                if age > bound {
                    return Err(format!("{id}, every {interval} ticks, is {age} ticks old: more than {bound:.0}"));
                }
            }
        }
        Ok(())
    });
}

/// A channel whose objects come and go all the time, and a client that joins it.
fn churning_join(churn: bool) -> usize {
    let mut options = WorldOptions::new(9);
    options.server.client_bytes_per_s = 3_000;
    options.server.replicator.retention_ticks = 40;
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    let mut rng = fastrand::Rng::with_seed(9);
    let spawn = |world: &mut World, points: u32| {
        world.server.spawn(Score { points, open: true }, Placement::Channel(LARGE)).expect("room")
    };
    let mut alive: Vec<ObjectId> = (0..2_000).map(|points| spawn(&mut world, points)).collect();
    world.steps(60);
    world.server.subscribe(connection, LARGE, 1).expect("room");
    for tick in 0..1_500 {
        world.begin_step();
        if churn {
            let gone = alive.swap_remove(rng.usize(..alive.len()));
            world.server.despawn(gone);
            alive.push(spawn(&mut world, tick as u32));
        }
        world.end_step();
        let client = &world.guests[0].client;
        // Of those that have been there for a second, all are known.
        let settled = &alive[..alive.len() - if churn { 30 } else { 0 }];
        let unknown = settled.iter().filter(|&&id| client.get::<Score>(id).is_none()).count();
        if unknown > 0 {
            continue;
        }
        for _ in 0..120 {
            world.step();
        }
        let client = &world.guests[0].client;
        let replica = client.replica().expect("connected");
        assert_eq!(replica.object_count(), alive.len(), "whoever has gone is known to have gone");
        for &id in &alive {
            let value = client.get::<Score>(id);
            assert_eq!(value.as_ref(), world.server.get::<Score>(id), "{id}");
        }
        return tick;
    }
    panic!("after 50 s the client still does not know the channel");
}

#[test]
fn a_slow_join_of_a_channel_where_somebody_comes_and_goes_in_every_tick_ends() {
    let still = churning_join(false);
    let churning = churning_join(true);
    // Churn costs 300 of 2,500 bytes a second, and what came during the join follows it.
    assert!(churning * 2 <= still * 3 + 60, "{churning} ticks with churn, {still} without");
}

#[test]
fn the_cell_of_ones_own_character_comes_first_wherever_it_goes() {
    let mut options = WorldOptions::new(2);
    options.server.client_bytes_per_s = 3_000;
    let mut square = Square::new(options);
    // A crowd in view that takes four times the budget.
    let mut rng = fastrand::Rng::with_seed(2);
    for _ in 0..200 {
        let position = [rng.f32() * 40.0 - 16.0, rng.f32() * 16.0 - 8.0, 1.0];
        square
            .others
            .push(square.world.server.spawn(Beacon { position, number: 0 }, Placement::Cell(0)).expect("room"));
    }
    square.play(150);
    square.oldest = (0, 0);
    let connection = square.world.connection(0);
    let (mut ages, mut others) = (Vec::new(), Vec::new());
    for step in 0..300 {
        square.begin();
        // It walks 12 m, through three cells, and the view with it.
        let x = 1.0 + step as f32 * 0.04;
        square.world.server.get_mut::<Beacon>(square.own).expect("it is there").position[0] = x;
        square.world.server.set_viewpoint(connection, [f64::from(x), 1.0, 1.0]);
        square.end();
        ages.push(square.age(square.own));
        others.extend(square.others.iter().map(|&id| square.age(id)).filter(|age| *age != u32::MAX));
    }
    let mean = |ages: &[u32]| ages.iter().map(|&age| f64::from(age)).sum::<f64>() / ages.len() as f64;
    let (own, other) = (mean(&ages), mean(&others));
    assert!(own * 2.0 <= other, "the own character is {own:.1} ticks old on average, the others {other:.1}");
    // Without an owner, it is one of many.
    square.world.server.set_owner(square.own, None).expect("room");
    ages.clear();
    for _ in 0..300 {
        square.play(1);
        ages.push(square.age(square.own));
    }
    assert!(mean(&ages) > own, "{:.1} ticks when it belongs to nobody, {own:.1} when it was one's own", mean(&ages));
}
