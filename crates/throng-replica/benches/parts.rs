//! Time of each step of a tick, for the scenes of the lab. See docs/benchmarking.md.
#![allow(missing_docs)]

mod scene;

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use scene::{CROWD_10K, CROWD_1000, DENSE_100, SPARSE_100, Scene};

/// A step of a tick, by name.
type Step = (&'static str, fn(&mut Scene));

/// The steps of a tick, in order.
const STEPS: [Step; 7] = [
    ("settle", Scene::settle),
    ("simulate", Scene::simulate),
    ("commit", Scene::commit),
    ("plan", Scene::plan),
    ("encode", Scene::encode),
    ("write", Scene::write),
    ("apply", Scene::apply),
];

/// Runs whole ticks, and adds up the time of one step.
fn time_of(scene: &mut Scene, step: &str, ticks: u64) -> Duration {
    let mut total = Duration::ZERO;
    for _ in 0..ticks {
        for (name, run) in STEPS {
            let start = Instant::now();
            run(scene);
            if name == step {
                total += start.elapsed();
            }
        }
    }
    total
}

fn steps(c: &mut Criterion, name: &str, scene: &mut Scene) {
    let mut group = c.benchmark_group(name);
    for step in ["settle", "commit", "plan", "encode", "write", "apply"] {
        // The client is one, whatever the number of connections.
        let per = if step == "apply" { 1 } else { scene.connections() };
        group.throughput(Throughput::Elements(per as u64));
        group.bench_function(step, |b| b.iter_custom(|ticks| time_of(scene, step, ticks)));
    }
    group.finish();
    println!(
        "{name}: {} subscriptions and {} bytes of memory per connection",
        scene.subscriptions(),
        scene.memory_bytes()
    );
}

fn all(c: &mut Criterion) {
    steps(c, "dense_100", &mut Scene::new(DENSE_100));
    steps(c, "sparse_100", &mut Scene::new(SPARSE_100));
    let mut crowd = Scene::new(CROWD_1000);
    steps(c, "crowd_1000", &mut crowd);
    crowd.lose(200);
    steps(c, "crowd_1000_loss_2_percent", &mut crowd);
}

fn ten_thousand(c: &mut Criterion) {
    steps(c, "crowd_10k", &mut Scene::new(CROWD_10K));
}

criterion_group! {
    name = parts;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = all, ten_thousand
}
criterion_main!(parts);
