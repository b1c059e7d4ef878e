//! The time of a fog's update, for two teams of five that walk through a town of 200,000 triangles at 128 ticks per second.
//!
//! An update of 23 µs is 0.3 % of a core. A walk of 8 s without a clock then counts what is sent, and what of it needlessly.

#[path = "../tests/fog/walkers.rs"]
mod walkers;

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use fastrand::Rng;
use throng_sight::fog::{Fog, FogAudit, FogOptions, Target, Viewer};
use throng_sight::town::SIGHT;
use walkers::{Town, Walker};

const TICKS: usize = 1_024;

type Tick = (Vec<Option<Viewer>>, Vec<Option<Target>>);

fn fog(bench: &mut Criterion) {
    let town = Town::new(3, 200_000);
    for latency_ms in [30.0, 80.0, 150.0] {
        let ticks = walk(&town, latency_ms);
        let mut fog = Fog::new(FogOptions::default(), 10, 10);
        let mut tick = 0;
        bench.bench_function(&format!("update, {latency_ms} ms"), |bench| {
            bench.iter(|| {
                let (viewers, targets) = &ticks[tick as usize % TICKS];
                fog.update(tick, &town.world(&[]), black_box(viewers), targets);
                tick += 1;
            });
        });
        watch(&town, &ticks);
    }
}

/// One walk without a clock: how many pairs are sent, and how many of them needlessly.
fn watch(town: &Town, ticks: &[Tick]) {
    let mut fog = Fog::new(FogOptions::default(), 10, 10);
    let mut audit = FogAudit::new(&fog, 10);
    let mut sent = 0;
    for (tick, (viewers, targets)) in (0..).zip(ticks) {
        fog.update(tick, &town.world(&[]), viewers, targets);
        audit.watch(tick, &fog, (&town.map, SIGHT), viewers, targets);
        sent += (0..100).filter(|pair| pair / 10 % 2 != pair % 10 % 2 && fog.may_see(pair / 10, pair % 10)).count();
    }
    let (counts, found) = (fog.counts(), audit.counts());
    println!(
        "{:.1} % of pairs sent, {:.1} % of them needlessly; {} of {} hidden were visible; {:.2} rays a look, {counts:?}",
        2.0 * sent as f64 / ticks.len() as f64,
        100.0 * found.sent_needlessly_share(),
        found.hidden_but_visible,
        found.hidden,
        counts.rays as f64 / counts.looks as f64,
    );
}

fn walk(town: &Town, latency_ms: f32) -> Vec<Tick> {
    let mut random = Rng::with_seed(1);
    let mut walkers: Vec<Walker> = (0..10).map(|_| town.walker(&mut random)).collect();
    let mut step = || {
        walkers.iter_mut().for_each(|walker| walker.step(&town.map, 1.0 / 128.0, &mut random));
        let viewers = walkers.iter().enumerate().map(|(place, walker)| Some(walker.viewer(place, latency_ms)));
        (viewers.collect(), walkers.iter().enumerate().map(|(place, walker)| Some(walker.target(place))).collect())
    };
    (0..TICKS).map(|_| step()).collect()
}

criterion_group!(benches, fog);
criterion_main!(benches);
