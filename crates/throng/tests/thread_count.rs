//! The bytes do not depend on the number of threads.

use crate::harness::WorldOptions;
use crate::harness::storm::{Storm, StormOptions};
use throng_seeds::for_seeds;
use throng_testkit::Wire;

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
