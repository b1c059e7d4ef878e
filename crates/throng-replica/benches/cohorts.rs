//! How well sharing holds when the budget is short or packets are lost: frames per tick, time of planning and encoding
//! by that of a crowd with enough budget, and how old what clients see is. Times are ratios within one process, and
//! everything else is the same in every run.
#![allow(missing_docs)]

mod scene;

use std::time::{Duration, Instant};

use scene::{CLOSE_400, CLOSE_400_AMPLE, Scene, Shape};

const TICKS: u32 = 120;
const OBSERVERS: usize = 24;

/// The results of one scene, per tick.
struct Seen {
    frames: f64,
    shared: f64,
    bytes: f64,
    encoding: Duration,
    near: Vec<u32>,
    far: Vec<u32>,
}

fn observe(shape: Shape, loss_of_10_000: u32) -> Seen {
    let mut scene = Scene::observed(shape, OBSERVERS);
    scene.lose(loss_of_10_000);
    // Until the connections with the least data have received something.
    for _ in 0..300 {
        scene.tick();
    }
    let (mut frames, mut shared, mut encoding) = (0, 0, Duration::ZERO);
    let (mut near, mut far) = (Vec::new(), Vec::new());
    let before = scene.bytes_written;
    for _ in 0..TICKS {
        scene.settle();
        scene.simulate();
        scene.commit();
        let start = Instant::now();
        scene.plan();
        scene.encode();
        encoding += start.elapsed();
        let counted = scene.frames();
        frames += counted.0;
        shared += counted.1;
        scene.write();
        scene.apply();
        scene.ages(&mut near, &mut far);
    }
    near.sort_unstable();
    far.sort_unstable();
    let per_tick = |sum: u64| sum as f64 / f64::from(TICKS);
    Seen {
        frames: per_tick(frames),
        shared: per_tick(shared),
        bytes: per_tick(scene.bytes_written - before) / scene.connections() as f64,
        encoding,
        near,
        far,
    }
}

fn percentile(sorted: &[u32], percent: usize) -> String {
    match sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))) {
        Some(&u32::MAX) => "never".to_owned(),
        Some(age) => age.to_string(),
        None => "-".to_owned(),
    }
}

fn mean(ages: &[u32]) -> f64 {
    let known = ages.iter().filter(|age| **age != u32::MAX);
    known.clone().map(|&age| f64::from(age)).sum::<f64>() / known.count().max(1) as f64
}

fn main() {
    println!(
        "{:28} {:>7} {:>8} {:>8} {:>9} {:>28} {:>28}",
        "scene", "frames", "given", "bytes", "encoding", "near: mean p50 p99 max", "far: mean p50 p99 max"
    );
    let mut ample = None;
    for (name, shape, loss) in [
        ("enough budget", CLOSE_400_AMPLE, 0),
        ("enough budget, 10 % lost", CLOSE_400_AMPLE, 1_000),
        ("64 kbit/s", CLOSE_400, 0),
        ("64 kbit/s, 10 % lost", CLOSE_400, 1_000),
    ] {
        let seen = observe(shape, loss);
        let ratio = seen.encoding.as_secs_f64() / ample.get_or_insert(seen.encoding).as_secs_f64();
        let ages = |ages: &[u32]| {
            let of = |percent| percentile(ages, percent);
            format!("{:.1} {:>6} {:>6} {:>6}", mean(ages), of(50), of(99), of(100))
        };
        let (near, far) = (ages(&seen.near), ages(&seen.far));
        println!(
            "{name:28} {:7.1} {:8.0} {:8.0} {ratio:8.2}x {near:>28} {far:>28}",
            seen.frames, seen.shared, seen.bytes
        );
    }
}
