//! A steady-state server tick allocates nothing, and a long life holds no more memory than a short one.
#![allow(unsafe_code, reason = "a global allocator that counts has to be one")]

mod counting;
mod harness;

use std::sync::Arc;
use std::time::Duration;

use counting::{allocations, first_allocation, held_bytes};
use harness::{World, WorldOptions};
use throng::net::Condition;
use throng::{
    ChannelKey, FarOptions, GridOptions, GridShape, LooksFrom, ObjectId, Placement, Replicate, Ring, Schema, Up,
};
use throng_testkit::{Steering, Walker};

const GUESTS: usize = 64;
/// Everything repeats after this many ticks.
const ROUND_TICKS: u32 = 128;
/// Until every buffer of the pools has been used for the longest of its kind.
const WARM_UP_TICKS: u32 = 12 * ROUND_TICKS;
const TICKS: u32 = 2 * ROUND_TICKS;

/// Everybody walks in the same circle, through several cells, and turns.
fn walk(world: &mut World, walkers: &[ObjectId], tick: u32) {
    for (number, &id) in walkers.iter().enumerate() {
        let angle = ((tick + number as u32 * 7) % ROUND_TICKS) as f32 / ROUND_TICKS as f32 * std::f32::consts::TAU;
        let walker = world.server.get_mut::<Walker>(id).expect("it is there");
        walker.position = [angle.cos() * 12.0, angle.sin() * 12.0, 1.0];
        walker.health = (tick % 1_000) as u16;
        walker.ammunition = tick;
        walker.yaw = angle;
        let position = walker.position.map(f64::from);
        let connection = world.connection(number);
        world.server.set_viewpoint(connection, position);
    }
}

/// A function of its own, so that its name is in the backtrace without debug information, too.
#[inline(never)]
fn allocates_once() {
    drop(std::hint::black_box(Box::new(1u8)));
}

#[test]
fn the_counting_allocator_counts() {
    assert_eq!(allocations(allocates_once), 1);
    assert!(first_allocation().contains("allocates_once"));
    assert_eq!(allocations(|| {}), 0);
}

#[test]
fn a_steady_state_tick_allocates_nothing() {
    steady_state(LooksFrom::Position, 0);
}

#[test]
fn a_steady_state_tick_with_shared_views_allocates_next_to_nothing() {
    // The lists of subscriptions that sleep in empty cells at the edge of sight still grow: two allocations in each of 32
    // ticks.
    let views = steady_state(LooksFrom::Cell, u64::from(TICKS) / 2);
    assert!(views > 0, "no connections share a view");
}

/// There are at most so many allocations. Returns the number of shared views at the end.
fn steady_state(looks_from: LooksFrom, most: u64) -> usize {
    let mut options = WorldOptions::new(3);
    options.server.grids[0].looks_from = looks_from;
    options.server.client_bytes_per_s = 250_000;
    // The clients' results are not checked here.
    options.client.decode = throng::Decode::Nothing;
    let mut world = World::with_guests(options, GUESTS);
    let walkers: Vec<ObjectId> = (0..GUESTS)
        .map(|guest| {
            let owner = Some(world.connection(guest));
            world.server.spawn_owned(Walker::default(), Placement::Cell(0), owner).expect("room")
        })
        .collect();
    let mut counted = 0;
    let mut ticks_with = 0;
    for tick in 0..WARM_UP_TICKS + TICKS {
        for guest in &mut world.guests {
            guest.client.send_typed_input(&Steering { number: tick, direction: 1.0 }).expect("connected");
            guest.client.flush(world.now);
        }
        world.now = world.now.after(std::time::Duration::from_micros(33_333));
        let now = world.now;
        let mut inputs = 0;
        let mut received = 0;
        received += allocations(|| world.server.receive(now).expect("in memory"));
        received += allocations(|| {
            while let Some((connection, input)) = world.server.poll_input() {
                world.server.acknowledge_input(connection, input.number);
                inputs += 1;
            }
        });
        let walked = allocations(|| walk(&mut world, &walkers, tick));
        let sent = allocations(|| world.server.tick(now));
        for guest in &mut world.guests {
            guest.client.update(now).expect("in memory");
            while guest.client.poll_event().is_some() {}
        }
        if tick >= WARM_UP_TICKS {
            assert!(inputs >= GUESTS, "inputs arrive: {inputs}");
            assert_eq!(world.server.last_tick().counters.objects_quantised, GUESTS as u64);
            let all = received + walked + sent;
            if all > 0 && counted == 0 {
                eprintln!("tick {tick}: receive {received}, walk {walked}, tick {sent}\n{}", first_allocation());
            }
            ticks_with += u32::from(all > 0);
            counted += all;
        } else {
            first_allocation();
        }
    }
    let bytes = world.guests[0].client.replication_bytes() / u64::from(WARM_UP_TICKS + TICKS);
    assert!(bytes > 300, "clients see each other: {bytes} bytes per tick");
    assert!(counted <= most, "{counted} allocations in {TICKS} ticks, in {ticks_with} of them");
    world.server.replicator().hub_ref().shared_views().0
}

/// Objects come and go, owners change, clients crash and come back, the path loses a tenth of the packets every other time.
/// The clients' budget does not suffice for all of it. After a tenth of 200,000 lives the pools grow only to the largest
/// size that any of them ever needs.
#[test]
fn memory_does_not_grow_with_the_number_of_lives() {
    const LIVES_PER_TICK: usize = 40;
    const LIFE_TICKS: usize = 6;
    const LIFE_OF_A_GUEST_TICKS: usize = 150;
    const RECORDS: usize = 10;
    const RECORD_TICKS: usize = 500;

    let mut world = World::with_guests(WorldOptions::new(5), 4);
    let mut alive = std::collections::VecDeque::new();
    let mut most_bytes = [0; RECORDS];
    let mut lives = 0u32;
    for tick in 0..RECORDS * RECORD_TICKS {
        if tick % RECORD_TICKS == 0 {
            let loss = if (tick / RECORD_TICKS).is_multiple_of(2) { 0.0 } else { 0.1 };
            world.set_condition(Condition { loss, ..Condition::NONE });
        }
        world.begin_step();
        let owners: Vec<_> = world.guests.iter().filter_map(|guest| guest.connection).collect();
        for number in 0..LIVES_PER_TICK {
            let angle = number as f32;
            let position = [angle.cos() * 10.0, angle.sin() * 10.0, 1.0];
            let name = "n".repeat(number);
            let walker = Walker { position, name, ammunition: lives, ..Walker::default() };
            let owner = owners.get(number).copied();
            let placement = match number % 5 {
                0 => Placement::Entity,
                1 => Placement::Channel(ChannelKey::Global(0)),
                _ => Placement::Cell(0),
            };
            alive.push_back(world.server.spawn_owned(walker, placement, owner).expect("room"));
            lives += 1;
        }
        for &id in alive.iter().rev().skip(LIVES_PER_TICK).take(LIVES_PER_TICK) {
            if let Some(walker) = world.server.get_mut::<Walker>(id) {
                walker.position[0] += 3.0;
            }
            world.server.set_owner(id, owners.first().copied()).expect("room");
        }
        while alive.len() > LIVES_PER_TICK * LIFE_TICKS {
            world.server.despawn(alive.pop_front().expect("not empty"));
        }
        for &owner in &owners {
            world.server.set_viewpoint(owner, [0.0; 3]);
        }
        world.end_step();
        world.events.clear();
        world.inputs.clear();
        world.guests.iter_mut().for_each(|guest| guest.events.clear());
        if tick % LIFE_OF_A_GUEST_TICKS == LIFE_OF_A_GUEST_TICKS - 1 {
            drop(world.kill(0));
            world.join();
        }
        let most = &mut most_bytes[tick / RECORD_TICKS];
        *most = held_bytes().max(*most);
        let known = world.guests.iter().map(|guest| guest.client.objects::<Walker>().count()).max();
        assert!(
            known.is_some_and(|known| known < 10 * alive.len()),
            "tick {tick}: {known:?} objects of {}",
            alive.len()
        );
    }
    assert_eq!(lives as usize, LIVES_PER_TICK * RECORDS * RECORD_TICKS);
    assert!(world.guests[0].client.replication_bytes() > 10_000, "clients are told of it");
    let early = most_bytes[1..3].iter().copied().max().expect("two records");
    let late = most_bytes[8..].iter().copied().max().expect("two records");
    assert!(late * 100 <= early * 130, "most bytes held, every {RECORD_TICKS} ticks: {most_bytes:?}");
}

/// Everybody in a crowd of this kind.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Stroller {
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03), far(step = 0.5))]
    position: [f32; 3],
    #[replicate(fixed(min = -40.0, max = 40.0, step = 0.02))]
    velocity: [f32; 3],
    #[replicate(angle(bits = 9))]
    yaw: f32,
}

/// Bytes that the server gives back when it ends: all that it holds, and nothing of the clients or the network. The rings are
/// those of the scenario `crowd-10k`, and so is the density.
fn held_by_server(guests: usize) -> usize {
    const DENSITY_PER_M2: f64 = 0.11;
    const SPEED_M_PER_S: f32 = 4.0;
    let ring = |radius_m: f64, interval_ticks: u32| Ring { radius_m, interval_ticks };
    let grid = |cell_m: f64, rings: Vec<Ring>| GridOptions {
        shape: GridShape::flat(Up::Z, [cell_m, cell_m, 20.0]),
        rings,
        looks_from: LooksFrom::Cell,
        ..GridOptions::new(Up::Z)
    };
    let schema = Arc::new(Schema::builder().kind::<Stroller>().build().expect("a good kind"));
    let mut options = WorldOptions { schema, ..WorldOptions::new(7) };
    options.server.grids = vec![grid(10.0, vec![ring(9.0, 2), ring(49.0, 10)]), grid(300.0, vec![ring(450.0, 100)])];
    options.server.grids[1].bounds_m = Some([[0.0; 3], [299.0, 299.0, 19.0]]);
    options.server.far = Some(FarOptions { grid: 1, parts: 50 });
    options.server.tick_interval = Duration::from_millis(100);
    // With so many seats the keys are bare.
    options.server.max_clients = 4_096;
    options.client.decode = throng::Decode::Nothing;
    let side_m = (guests as f64 / DENSITY_PER_M2).sqrt();
    let mut world = World::with_guests(options, guests);
    let strollers: Vec<ObjectId> = (0..guests)
        .map(|guest| {
            let [x, y] = [(); 2].map(|()| (world.rng.f64() * side_m) as f32);
            let stroller = Stroller { position: [x, y, 1.0], ..Stroller::default() };
            let owner = Some(world.connection(guest));
            world.server.spawn_owned(stroller, Placement::Cell(0), owner).expect("room")
        })
        .collect();
    // Two rounds of the census of send ticks, and a rest.
    for tick in 0..260 {
        for (guest, &id) in strollers.iter().enumerate() {
            // To and fro: everybody steps into another cell now and then.
            let along = if (tick / 20 + guest) % 2 == 0 { SPEED_M_PER_S } else { -SPEED_M_PER_S };
            let stroller = world.server.get_mut::<Stroller>(id).expect("it is there");
            stroller.position[0] += along / 10.0;
            stroller.velocity[0] = along;
            let position = stroller.position.map(f64::from);
            let connection = world.connection(guest);
            world.server.set_viewpoint(connection, position);
        }
        world.step();
    }
    if guests > 0 {
        assert!(world.server.replicator().hub_ref().shared_views().0 > guests / 10, "clients share views");
    }
    let before = held_bytes();
    drop(world.server);
    usize::try_from(before - held_bytes()).expect("a server holds memory")
}

/// All that exists for a connection's sake: session, keys, subscriptions, and its part of views, frames, cells and objects. In so
/// small a crowd each connection has a larger part of cells and views than among ten thousand. A change that needs more than the
/// limit says in docs/benchmarks.md what for.
#[test]
fn a_connection_in_a_crowd_is_small() {
    const GUESTS: usize = 200;
    const LIMIT_BYTES: usize = 30_000;
    let bytes = (held_by_server(GUESTS) - held_by_server(0)) / GUESTS;
    assert!(bytes <= LIMIT_BYTES, "{bytes} bytes for each connection");
}
