//! Objects that do not change cost nothing: counted in work, not in time.

use crate::harness::{World, WorldOptions};
use throng::meter::Counters;
use throng::{ObjectId, Placement};
use throng_testkit::Beacon;

/// Unchanging objects, most of them out of sight.
const IDLE: u32 = 100_000;

fn world_with(idle: u32) -> World {
    let mut options = WorldOptions::new(1);
    options.server.client_bytes_per_s = 500_000;
    let mut world = World::with_guests(options, 4);
    for number in 0..idle {
        let position = [(number % 400) as f32, (number / 400 % 250) as f32, 1.0];
        world.server.spawn(Beacon { position, number: 7 }, Placement::Cell(0)).expect("room");
    }
    for guest in 0..4 {
        let connection = world.connection(guest);
        world.server.set_viewpoint(connection, [200.0, 100.0 + guest as f64 * 8.0, 1.0]);
    }
    world
}

/// The work of a world's ticks, by the counters of visited things.
fn work(world: &mut World, ticks: usize, mut each: impl FnMut(&mut World)) -> Vec<Counters> {
    let mut work = Vec::new();
    for _ in 0..ticks {
        world.begin_step();
        each(world);
        world.end_step();
        work.push(world.server.last_tick().counters);
    }
    work
}

#[test]
fn a_hundred_thousand_idle_objects_are_not_looked_at() {
    let mut world = world_with(IDLE);
    world.steps(150);
    let known = world.guests[0].client.replica().expect("connected").object_count();
    assert!(known > 1_000, "the client sees {known} of them");
    for counters in work(&mut world, 60, |_| {}) {
        assert_eq!(counters.objects_quantised, 0);
        assert_eq!((counters.frames_encoded, counters.frames_shared, counters.channels_encoded), (0, 0, 0));
    }
}

#[test]
fn one_that_moves_among_them_costs_what_it_costs_alone() {
    let mut counted = Vec::new();
    for idle in [0, IDLE] {
        let mut world = world_with(idle);
        let spot = [200.5, 100.5, 1.0];
        let beacon = Beacon { position: spot, number: 0 };
        let mover: ObjectId = world.server.spawn(beacon, Placement::Cell(0)).expect("room");
        world.steps(150);
        counted.push(work(&mut world, 60, |world| {
            world.server.get_mut::<Beacon>(mover).expect("it is there").number += 1;
        }));
        assert_eq!(world.guests[0].client.get::<Beacon>(mover).map(|seen| seen.number), Some(60));
    }
    for (alone, among) in counted[0].iter().zip(&counted[1]) {
        assert_eq!(alone.objects_quantised, 1);
        assert!(alone.frames_encoded >= 1);
        let work = |counters: &Counters| (counters.objects_quantised, counters.frames_encoded, counters.frames_shared);
        assert_eq!(work(alone), work(among));
        assert_eq!(alone.packets_sent, among.packets_sent);
        // The slot number is wider among many.
        assert!(among.bytes_sent <= alone.bytes_sent + 2 * alone.packets_sent);
    }
}
