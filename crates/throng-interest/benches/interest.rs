//! The cost of an update: in the same sub-cell, into the next sub-cell, into an unknown place.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use throng_interest::{CellId, Grid, Ring, RingInterest, RingOptions, Rings, Scratch, Sink, Viewer};

/// Hands out tags and adds up what comes back, as little as a sink can do.
#[derive(Default)]
struct Tags(u32);

impl Sink for Tags {
    fn enter(&mut self, _cell: CellId, _ring: u8) -> u32 {
        self.0 = self.0.wrapping_add(1);
        self.0
    }
    fn change(&mut self, _cell: CellId, tag: u32, ring: u8) {
        self.0 ^= tag + u32::from(ring);
    }
    fn leave(&mut self, _cell: CellId, tag: u32) {
        self.0 ^= tag;
    }
}

fn interest() -> RingInterest {
    let grid = Grid::new([10.0, 10.0, f64::INFINITY]).unwrap();
    let rings = [Ring { radius_m: 10.0, interval_ticks: 1 }, Ring { radius_m: 50.0, interval_ticks: 3 }];
    RingInterest::new(grid, Rings::new(&rings).unwrap(), RingOptions::default()).unwrap()
}

fn updates(c: &mut Criterion) {
    let interest = interest();
    let (mut scratch, mut tags) = (Scratch::new(), Tags::default());

    let mut crowd: Vec<(Viewer, [f64; 3])> =
        (0..64).map(|i| (Viewer::new(), [f64::from(i) * 2.5 + 1.0, 1.0, 0.0])).collect();
    c.bench_function("update/same_subcell_64_viewers", |b| {
        b.iter(|| {
            for (viewer, position) in black_box(&mut crowd) {
                interest.update(viewer, *position, &mut scratch, &mut tags);
            }
        })
    });

    let mut viewer = Viewer::new();
    let mut step = 0u32;
    c.bench_function("update/next_subcell", |b| {
        b.iter(|| {
            step = step.wrapping_add(1);
            let position = [f64::from(step) * 2.5, f64::from(step / 4) * 2.5, 0.0];
            interest.update(&mut viewer, position, &mut scratch, &mut tags)
        })
    });

    c.bench_function("update/far_jump", |b| {
        b.iter(|| {
            step = step.wrapping_add(1);
            interest.update(&mut viewer, [f64::from(step) * 1_000.0, 0.0, 0.0], &mut scratch, &mut tags)
        })
    });
    println!("cells held: {}, most: {}", viewer.held().len(), interest.max_cells());
}

criterion_group!(benches, updates);
criterion_main!(benches);
