//! Triangles in a box are found, all of them, and always in the same order.

use fastrand::Rng;
use glam::{Vec3, vec3};
use throng_seeds::for_seeds;
use throng_sight::{Layers, TriangleId, bake};

use crate::support::soup;

#[test]
fn every_triangle_whose_box_touches_is_visited_once() {
    for_seeds(40, |seed| {
        let mut random = Rng::with_seed(seed);
        let mut mesh = soup(&mut random, 300, 100.0);
        mesh.layers = mesh.triangles.iter().map(|_| Layers(random.u16(..4))).collect();
        let map = bake(&mesh).unwrap();
        let layers = Layers(random.u16(..4));
        let mut point = || 60.0 * (2.0 * vec3(random.f32(), random.f32(), random.f32()) - 1.0);
        let (a, b) = (point(), point());
        let (lowest, highest) = (a.min(b), a.max(b));
        let mut visited: Vec<TriangleId> = Vec::new();
        map.for_each_triangle_in(lowest, highest, layers, |triangle, corners| {
            assert_eq!(map.corners(triangle), Some(corners));
            visited.push(triangle);
        });
        let touches = |triangle: &TriangleId| {
            let [a, b, c] = map.corners(*triangle).unwrap();
            let (low, high) = (a.min(b).min(c), a.max(b).max(c));
            map.layers_of(*triangle).unwrap().meets(layers) && low.cmple(highest).all() && lowest.cmple(high).all()
        };
        visited.sort_unstable();
        assert_eq!(visited, map.triangles().filter(touches).collect::<Vec<_>>());
    });
}

#[test]
fn a_box_that_is_none_touches_nothing() {
    let map = bake(&soup(&mut Rng::with_seed(1), 50, 10.0)).unwrap();
    let all = Vec3::splat(100.0);
    for (lowest, highest) in [(all, -all), (Vec3::NAN, all), (-all, vec3(1.0, f32::NAN, 1.0))] {
        map.for_each_triangle_in(lowest, highest, Layers::ALL, |triangle, _| panic!("{triangle:?} was visited"));
    }
}
