//! Time of a whole server's tick beyond the system calls, and of each subsystem in it. See docs/benchmarking.md.
#![allow(missing_docs)]

mod town;

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use throng::meter::Subsystem;
use town::{CROWD_1000, DENSE_100, SPARSE_100, Shape, Town};

/// Sums over measured ticks.
#[derive(Default)]
struct Sums {
    ticks: u64,
    subsystem_ns: [u64; Subsystem::STAGES.len()],
}

/// Runs whole turns, and adds up the time of `receive` and `tick`.
fn time_of(town: &mut Town, sums: &mut Sums, ticks: u64) -> Duration {
    let mut total = Duration::ZERO;
    for _ in 0..ticks {
        town.clients_turn();
        let start = Instant::now();
        town.receive();
        total += start.elapsed();
        town.simulate();
        let start = Instant::now();
        town.tick();
        total += start.elapsed();
        sums.ticks += 1;
        for (sum, subsystem) in sums.subsystem_ns.iter_mut().zip(Subsystem::STAGES) {
            *sum += town.record().ns(subsystem);
        }
    }
    total
}

fn server(c: &mut Criterion, name: &str, shape: Shape) {
    let mut town = Town::new(shape);
    let mut sums = Sums::default();
    let mut group = c.benchmark_group("tick");
    group.throughput(Throughput::Elements(town.connections()));
    group.bench_function(name, |b| b.iter_custom(|ticks| time_of(&mut town, &mut sums, ticks)));
    group.finish();
    let per_connection = |ns: u64| ns as f64 / (sums.ticks * town.connections()) as f64;
    for (subsystem, &ns) in Subsystem::STAGES.iter().zip(&sums.subsystem_ns) {
        if ns > 0 {
            println!("    {name}: {:>8.0} ns per connection  {}", per_connection(ns), subsystem.built_in_name());
        }
    }
}

fn all(c: &mut Criterion) {
    server(c, "dense_100", DENSE_100);
    server(c, "sparse_100", SPARSE_100);
    server(c, "crowd_1000", CROWD_1000);
}

criterion_group! {
    name = tick;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(5));
    targets = all
}
criterion_main!(tick);
