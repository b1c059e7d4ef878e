//! The time of a ray through the town, of each kind, alone and in batches, on each processor. The example `rays` of
//! `throng-map` compares with Embree.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use glam::vec3;
use throng_sight::{Layers, Processor, Ray, bake, town};

fn rays(bench: &mut Criterion) {
    let map = bake(&town::town(1, 240_000)).expect("the town can be baked");
    let [low, high] = map.bounds();
    let mut random = fastrand::Rng::with_seed(1);
    let mut point = || {
        let place = low + (high - low) * vec3(random.f32(), 0.0, random.f32());
        vec3(place.x, [1.6, 4.7][random.usize(..2)], place.z)
    };
    let rays: Vec<Ray> = (0..1_024).filter_map(|_| Ray::new(point(), point() - point(), 50.0).ok()).collect();
    for processor in Processor::available() {
        let map = map.clone().with_processor(processor);
        let (mut hits, mut blocked) = (vec![None; rays.len()], vec![false; rays.len()]);
        let name = |kind: &str| format!("{kind}, {} rays, {processor:?}", rays.len());
        bench.bench_function(&name("closest"), |bench| {
            bench.iter(|| black_box(&rays).iter().filter(|ray| map.closest(ray, Layers::ALL).is_some()).count());
        });
        bench.bench_function(&name("closest in a batch"), |bench| {
            bench.iter(|| map.closest_batch(black_box(&rays), Layers::ALL, &mut hits));
        });
        bench.bench_function(&name("is blocked"), |bench| {
            bench.iter(|| black_box(&rays).iter().filter(|ray| map.is_blocked(ray, Layers::ALL)).count());
        });
        bench.bench_function(&name("is blocked in a batch"), |bench| {
            bench.iter(|| map.is_blocked_batch(black_box(&rays), Layers::ALL, &mut blocked));
        });
    }
}

criterion_group!(benches, rays);
criterion_main!(benches);
