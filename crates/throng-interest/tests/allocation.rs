//! Moving viewers do not allocate once their first updates are behind them.

use throng_counting::so_far;
use throng_interest::{CellId, Grid, Ring, RingInterest, RingOptions, Rings, Scratch, Sink, Viewer};

struct Tags(u32);

impl Sink for Tags {
    fn enter(&mut self, _cell: CellId, _ring: u8) -> u32 {
        self.0 += 1;
        self.0
    }
    fn change(&mut self, _cell: CellId, _tag: u32, _ring: u8) {}
    fn leave(&mut self, _cell: CellId, _tag: u32) {}
}

#[test]
fn a_crowd_of_walkers_allocates_nothing_after_its_first_steps() {
    const WALKERS: usize = 200;
    let grid = Grid::new([10.0, 10.0, 10.0]).unwrap();
    let rings = [Ring { radius_m: 10.0, interval_ticks: 1 }, Ring { radius_m: 50.0, interval_ticks: 3 }];
    let interest = RingInterest::new(grid, Rings::new(&rings).unwrap(), RingOptions::default()).unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let mut walkers: Vec<(Viewer, Viewer, [f64; 3])> =
        (0..WALKERS).map(|_| (Viewer::new(), Viewer::new(), [0.0; 3].map(|_: f64| random.f64() * 300.0))).collect();
    let (mut scratch, mut tags) = (Scratch::new(), Tags(0));

    let mut step = |random: &mut fastrand::Rng| {
        for (single, double, position) in &mut walkers {
            *position = position.map(|coordinate| coordinate + random.f64() * 6.0 - 3.0);
            interest.update(single, *position, &mut scratch, &mut tags);
            let camera = [position[0] + 5.0, position[1], position[2] + 3.0];
            interest.update_many(double, &[*position, camera], &mut scratch, &mut tags).unwrap();
        }
        tags.0
    };
    (0..100).for_each(|_| {
        step(&mut random);
    });
    let before = (so_far(), step(&mut random));
    (0..100).for_each(|_| {
        step(&mut random);
    });
    let after = (so_far(), step(&mut random));
    assert!(after.1 > before.1 + 1_000, "the walkers moved");
    assert!(before.0 > 0, "the allocator counts");
    assert_eq!(after.0, before.0, "allocations in 100 steps of {WALKERS} walkers");
}
