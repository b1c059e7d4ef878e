//! The tick of ten thousand clients on one thread and on two, beyond the system calls: which stages use the second thread, and
//! the share of the work that does not. See docs/benchmarking.md.
#![allow(missing_docs)]

mod town;

use std::time::Duration;

use throng::LooksFrom;
use throng::meter::Subsystem;
use town::{CROWD_1000, Shape, Times, Town};

/// The density, rings and budget of the scenario `crowd-10k`.
const TEN_THOUSAND: Shape = Shape {
    players: 10_000,
    area_m: 300.0,
    tick_interval: Duration::from_millis(100),
    client_bytes_per_s: 32_000,
    rings: &[(9.0, 2), (49.0, 10)],
    looks_from: LooksFrom::Cell,
    ..CROWD_1000
};

/// Ticks that are measured of each, in turns, so that a change of the machine's speed meets both.
const TICKS: usize = 30;
const THREADS: usize = 2;

fn main() {
    if std::env::args().any(|word| word == "--test") {
        return;
    }
    let mut towns = [1, THREADS].map(|threads| (Town::new(Shape { threads, ..TEN_THOUSAND }), Times::new()));
    for _ in 0..TICKS {
        for (town, times) in &mut towns {
            times.measure(town);
        }
    }
    let [(town, one), (_, two)] = towns;
    let per_connection = |ns: u64| ns as f64 / TICKS as f64 / town.connections() as f64 / 1e3;
    println!("processor time per connection and tick, µs     one thread  {THREADS} threads together");
    for (stage, (one_ns, two_ns)) in Subsystem::STAGES.iter().zip(one.stages_ns.iter().zip(&two.stages_ns)) {
        if *one_ns > 0 {
            let name = stage.built_in_name();
            println!("  {name:<44} {:>10.2} {:>18.2}", per_connection(*one_ns), per_connection(*two_ns));
        }
    }
    let (one_ms, two_ms) = (one.median_ms(), two.median_ms());
    let ratio = two_ms / one_ms;
    let threads = THREADS as f64;
    let serial = ((ratio * threads - 1.0) / (threads - 1.0)).clamp(0.0, 1.0);
    println!("median tick: {one_ms:.1} ms on one thread, {two_ms:.1} ms on {THREADS}: {ratio:.2} of it");
    println!("share of the work that does not use a second thread (Amdahl): {:.0} %", serial * 100.0);
    for cores in [4.0, 16.0, 64.0] {
        println!("  forecast for {cores} cores: {:.2} of the time of one", serial + (1.0 - serial) / cores);
    }
}
