//! Path finding and perception do not allocate once their buffers have grown.

use fastrand::Rng;
use glam::{Vec3, vec3};
use throng_agent::{
    CellId, Look, Navigation, NavigationOptions, POINTS_MAX, Pair, Path, PathFinder, Perception, PerceptionOptions,
    Scene,
};
use throng_counting::so_far;
use throng_sight::{Ray, bake, town};

/// Ten people in a row that moves.
struct Row(f32);

impl Scene for Row {
    fn look(&self, pair: Pair) -> Look {
        let place = |who: u32| vec3(2.0 * who as f32 - 10.0, 1.5, self.0);
        let mut points = [Vec3::ZERO; POINTS_MAX];
        points[0] = place(pair.target);
        points[1] = place(pair.target) - 0.5 * Vec3::Y;
        Look::At { eye: place(pair.viewer), points, point_count: 2 }
    }

    fn blocks(&self, _: &Ray) -> bool {
        false
    }
}

#[test]
fn agents_that_walk_and_look_for_a_while_allocate_nothing() {
    let map = bake(&town::town(3, 5_000)).unwrap();
    let navigation = Navigation::survey(&map, &NavigationOptions::new(town::BODIES)).unwrap();
    let mut finder = PathFinder::new(&navigation);
    let mut path = Path::default();
    let pairs: Vec<Pair> = (0..10).flat_map(|viewer| (0..10).map(move |target| Pair { viewer, target })).collect();
    let options =
        PerceptionOptions { rays_per_tick: 20, points_max: 2, tick_hz: 128, recheck_ms: 500, layers: town::SIGHT };
    let mut perception = Perception::new(options, &pairs).unwrap();
    let (mut random, mut found) = (Rng::with_seed(1), 0);
    let mut tick = |now: u64| {
        perception.update(now, &map, &Row(now as f32 * 0.01 - 10.0));
        let any = |random: &mut Rng| CellId(random.u32(..navigation.cell_count() as u32));
        finder.find(any(&mut random), any(&mut random));
        finder.path(&mut path);
        found += path.points().len();
    };
    (0..500).for_each(&mut tick);
    let before = so_far();
    (500..2_000).for_each(&mut tick);
    let after = so_far();
    assert!(before > 0, "the allocator counts");
    assert!(found > 10_000, "{found} points of paths are too few");
    assert_eq!(after, before, "allocations in 1,500 ticks with a path each");
}
