//! Throng and Embree find the same, where Embree is installed. Elsewhere these tests say so and pass.

use fastrand::Rng;
use glam::{Vec3, vec3};
use throng_map::embree::Embree;
use throng_seeds::for_seeds;
use throng_sight::{Layers, Ray, bake, town};

fn embree() -> Option<Embree> {
    Embree::load().map_err(|error| println!("not compared: {error}")).ok()
}

#[test]
fn rays_through_a_town_hit_the_same_distances() {
    let Some(embree) = embree() else { return };
    let mesh = town::town(8, 60_000);
    let map = bake(&mesh).unwrap();
    let scene = embree.scene(&mesh, true);
    let [low, high] = map.bounds();
    for_seeds(20, |seed| {
        let mut random = Rng::with_seed(seed);
        let mut differences = 0;
        for _ in 0..2_000 {
            let from = low + (high - low) * vec3(random.f32(), random.f32(), random.f32());
            let direction = vec3(random.f32() - 0.5, random.f32() - 0.5, random.f32() - 0.5);
            let ray = Ray::new(from, direction, 60.0).unwrap();
            let (ours, theirs) = (map.closest(&ray, Layers::ALL), scene.closest(&ray));
            let is_equal = match (ours, theirs) {
                (Some(ours), Some(theirs)) => (ours.distance_m - theirs.distance_m).abs() < 1e-3,
                (None, None) => true,
                _ => false,
            };
            differences += u32::from(!is_equal || map.is_blocked(&ray, Layers::ALL) != scene.is_blocked(&ray));
        }
        // Rays along walls, and those that begin in one, are decided by rounding.
        assert!(differences <= 2, "{differences} of 2,000 rays differ");
    });
}

#[test]
fn a_ray_past_the_town_hits_nothing_in_either() {
    let Some(embree) = embree() else { return };
    let mesh = town::town(8, 5_000);
    let scene = embree.scene(&mesh, false);
    let up = Ray::new(vec3(0.0, 50.0, 0.0), Vec3::Y, 1_000.0).unwrap();
    assert_eq!(scene.closest(&up), None);
    assert!(!scene.is_blocked(&up));
    assert!(!bake(&mesh).unwrap().is_blocked(&up, Layers::ALL));
}

#[test]
fn embree_can_go_and_come_back() {
    for _ in 0..3 {
        let Some(embree) = embree() else { return };
        let scene = embree.scene(&town::town(8, 60_000), false);
        drop(embree);
        let down = Ray::new(vec3(1.0, 50.0, 1.0), Vec3::NEG_Y, 100.0).unwrap();
        assert!(scene.closest(&down).is_some());
    }
}
