//! The bytes do not depend on the number of threads.

use crate::harness::storm::{Storm, StormOptions};
use crate::harness::{World, WorldOptions};
use throng::{ConnectionId, LooksFrom, Placement};
use throng_seeds::for_seeds;
use throng_testkit::{Beacon, Wire};

/// Every sealed datagram to connected clients. The bytes before (challenges) are random.
fn datagrams(seed: u64, threads: usize) -> Vec<Wire> {
    let mut options = WorldOptions::new(seed);
    options.server.threads = threads;
    // Not all of it fits, so that priorities count.
    options.server.client_bytes_per_s = 12_000;
    let storm_options = StormOptions { clients: 40, churn: false, changes_per_tick: 30, ..StormOptions::default() };
    let mut storm = Storm::new(options, storm_options);
    storm.world.connect_all();
    storm.world.tap.take();
    let mut heard = Vec::new();
    for tick in 0..60 {
        if tick % 30 == 10 {
            storm.world.set_condition(throng_testkit::storm(&mut fastrand::Rng::with_seed(seed)));
        }
        storm.stormy_tick_unaudited();
        heard.append(&mut storm.world.tap.take());
    }
    heard
}

#[test]
fn r21_one_and_many_threads_send_the_same_bytes_in_the_same_order() {
    for_seeds(8, |seed| {
        let one = datagrams(seed, 1);
        assert!(one.len() > 1_000, "{} datagrams", one.len());
        for threads in [2, 3, 7] {
            let many = datagrams(seed, threads);
            if let Some(at) = (0..one.len()).find(|&at| one.get(at) != many.get(at)) {
                return Err(format!("{threads} threads: datagram {at} to {} differs", one[at].to));
            }
            if one.len() != many.len() {
                return Err(format!("{threads} threads send {} datagrams, not {}", many.len(), one.len()));
            }
        }
        Ok(())
    });
}

/// Every datagram to a crowd of 40 who all step into empty cells in the same tick, a row of them beside the next, and stay
/// there for long enough to share views. Also the part of the segments that came from such views.
fn migration(threads: usize) -> (Vec<Wire>, f64) {
    let mut options = WorldOptions::new(0);
    options.server.threads = threads;
    options.server.client_bytes_per_s = 500_000;
    options.server.grids[0].looks_from = LooksFrom::Cell;
    let mut world = World::with_guests(options, 40);
    world.tap.open();
    world.connect_all();
    let connections: Vec<ConnectionId> = world.guests.iter().filter_map(|guest| guest.connection).collect();
    assert_eq!(connections.len(), 40);
    world.tap.take();
    let mut beacons = Vec::new();
    for tick in 0..80u32 {
        world.begin_step();
        if tick % 40 == 0 {
            let x_m = |row: usize| 300.0 * f64::from(tick / 40 + 1) + 16.0 * (row / 5) as f64;
            for (row, &connection) in connections.iter().enumerate() {
                world.server.set_viewpoint(connection, [x_m(row), 4.0, 4.0]);
            }
        }
        if tick % 40 == 1 {
            beacons.drain(..).for_each(|id| world.server.despawn(id));
            let place = |x: u32| [300.0 * (tick / 40 + 1) as f32 + 8.0 * x as f32 - 20.0, 4.0, 4.0];
            let beacon = |x: u32| Beacon { position: place(x), number: 0 };
            beacons.extend((0..20).map(|x| world.server.spawn(beacon(x), Placement::Cell(0)).expect("room")));
        }
        for &id in &beacons {
            world.server.get_mut::<Beacon>(id).expect("it is there").number = tick;
        }
        world.end_step();
    }
    let counters = connections.iter().filter_map(|&id| world.server.replication_counters(id));
    let (all, shared) = counters.fold((0, 0), |sum, of| (sum.0 + of.segments, sum.1 + of.shared_segments));
    (world.tap.take(), shared as f64 / all as f64)
}

#[test]
fn a_crowd_that_steps_into_empty_cells_is_sent_the_same_bytes_by_one_and_many_threads() {
    let (one, shared) = migration(1);
    assert!(one.len() > 1_000 && shared > 0.2, "{} datagrams, {shared:.2} of the segments shared", one.len());
    for threads in [2, 3, 7] {
        let (many, _) = migration(threads);
        let differs = (0..one.len().max(many.len())).find(|&at| one.get(at) != many.get(at));
        assert_eq!(differs, None, "{threads} threads");
    }
}
