//! Rays find what is there: against all triangles one by one, on every processor, alone and in batches.

use fastrand::Rng;
use glam::{Vec3, vec3};
use throng_seeds::for_seeds;
use throng_sight::{Hit, Layers, Map, Mesh, Processor, Ray, RayError, bake, town};

use crate::support::{check, push, ray, soup};

#[test]
fn rays_through_soups_agree_with_all_triangles_one_by_one() {
    for_seeds(60, |seed| {
        let mut random = Rng::with_seed(seed);
        let count = [1, 2, 5, 9, 40, 300][random.usize(..6)];
        let mesh = soup(&mut random, count, 100.0);
        let map = bake(&mesh).map_err(|error| error.to_string())?;
        (0..200).try_for_each(|_| check(&map, &ray(&mut random, &mesh, 100.0), 1e-3))
    });
}

#[test]
fn rays_through_a_town_agree_with_all_triangles_one_by_one() {
    let mesh = town::town(3, 5_000);
    let map = bake(&mesh).unwrap();
    for_seeds(4, |seed| {
        let mut random = Rng::with_seed(seed);
        (0..50).try_for_each(|_| check(&map, &ray(&mut random, &mesh, 40.0), 1e-3))
    });
}

/// Everything that queries answer about some rays.
fn answers(map: &Map, rays: &[Ray], layers: Layers) -> Vec<(Option<Hit>, bool)> {
    rays.iter().map(|ray| (map.closest(ray, layers), map.is_blocked(ray, layers))).collect()
}

#[test]
fn every_processor_gives_the_same_answers_bit_for_bit() {
    for_seeds(30, |seed| {
        let mut random = Rng::with_seed(seed);
        let size_m = [1.0, 100.0, 5_000.0][random.usize(..3)];
        let mut mesh = soup(&mut random, 500, size_m);
        mesh.layers = mesh.triangles.iter().map(|_| Layers(random.u16(..8))).collect();
        let map = bake(&mesh).unwrap();
        let rays: Vec<Ray> = (0..300).map(|_| ray(&mut random, &mesh, size_m)).collect();
        for layers in [Layers::ALL, Layers(2), Layers::NONE] {
            let plain = answers(&map.clone().with_processor(Processor::Plain), &rays, layers);
            for processor in Processor::available() {
                let found = answers(&map.clone().with_processor(processor), &rays, layers);
                let differs = (0..rays.len()).find(|ray| found[*ray] != plain[*ray]);
                assert!(
                    differs.is_none(),
                    "{processor:?}: {:?}",
                    differs.map(|ray| (rays[ray], found[ray], plain[ray]))
                );
            }
        }
    });
}

#[test]
fn batches_give_the_answers_of_single_rays_bit_for_bit() {
    for_seeds(30, |seed| {
        let mut random = Rng::with_seed(seed);
        let mut mesh = soup(&mut random, 500, 100.0);
        mesh.layers = mesh.triangles.iter().map(|_| Layers(random.u16(..8))).collect();
        let map = bake(&mesh).unwrap();
        let count = random.usize(..400);
        let eye = 50.0 * vec3(random.f32(), random.f32(), random.f32());
        let rays: Vec<Ray> = (0..count)
            .map(|_| {
                let any = ray(&mut random, &mesh, 100.0);
                if random.bool() { any } else { Ray::between(eye, any.origin()).unwrap() }
            })
            .collect();
        for layers in [Layers::ALL, Layers(2), Layers::NONE] {
            let singles = answers(&map, &rays, layers);
            for processor in Processor::available() {
                let map = map.clone().with_processor(processor);
                let mut hits = vec![None; count];
                map.closest_batch(&rays, layers, &mut hits);
                let mut blocked = vec![false; count];
                map.is_blocked_batch(&rays, layers, &mut blocked);
                let batch: Vec<(Option<Hit>, bool)> = hits.into_iter().zip(blocked).collect();
                let differs = (0..count).find(|ray| batch[*ray] != singles[*ray]);
                assert!(
                    differs.is_none(),
                    "{processor:?}: {:?}",
                    differs.map(|ray| (rays[ray], batch[ray], singles[ray]))
                );
            }
        }
    });
}

#[test]
fn of_triangles_at_the_same_distance_the_lowest_number_is_hit() {
    let mut mesh = Mesh::default();
    for _ in 0..50 {
        push(&mut mesh, [vec3(0.0, 0.0, 1.0), vec3(3.0, 0.0, 1.0), vec3(0.0, 3.0, 1.0)]);
    }
    let map = bake(&mesh).unwrap();
    let ray = Ray::new(vec3(0.5, 0.5, 0.0), Vec3::Z, 5.0).unwrap();
    let lowest = map.triangles().min();
    for processor in Processor::available() {
        let hit = map.clone().with_processor(processor).closest(&ray, Layers::ALL);
        assert_eq!(hit.map(|hit| hit.triangle), lowest);
    }
}

/// A ball of triangles without a gap.
fn ball(middle: Vec3, radius_m: f32, rings: usize) -> Mesh {
    let mut mesh = Mesh::default();
    let place = |ring: usize, sector: usize| {
        let (polar, turn) = (
            std::f64::consts::PI * ring as f64 / rings as f64,
            std::f64::consts::TAU * (sector % rings) as f64 / rings as f64,
        );
        let unit = glam::dvec3(polar.sin() * turn.cos(), polar.cos(), polar.sin() * turn.sin());
        let unit = if ring == 0 {
            glam::DVec3::Y
        } else if ring == rings {
            -glam::DVec3::Y
        } else {
            unit
        };
        middle + radius_m * unit.as_vec3()
    };
    for ring in 0..rings {
        for sector in 0..rings {
            let [a, b] = [place(ring, sector), place(ring, sector + 1)];
            let [c, d] = [place(ring + 1, sector), place(ring + 1, sector + 1)];
            if ring > 0 {
                push(&mut mesh, [a, b, d]);
            }
            if ring + 1 < rings {
                push(&mut mesh, [a, d, c]);
            }
        }
    }
    mesh
}

/// Rays from inside a closed surface, straight at its corners and edges.
#[test]
fn no_ray_slips_through_an_edge_or_a_corner() {
    for_seeds(20, |seed| {
        let mut random = Rng::with_seed(seed);
        let middle = 400.0 * vec3(random.f32(), random.f32(), random.f32());
        let radius_m = [0.2, 3.0, 80.0][random.usize(..3)];
        let mesh = ball(middle, radius_m, 24);
        let map = bake(&mesh).unwrap();
        for _ in 0..2_000 {
            let corners = mesh.corners(random.usize(..mesh.triangles.len()));
            let way = [0.0, 0.5, random.f32()][random.usize(..3)];
            let target = corners[0] + way * (corners[1] - corners[0]);
            let shift = 0.5 * radius_m * (vec3(random.f32(), random.f32(), random.f32()) - 0.5);
            let ray = Ray::new(middle + shift, target - middle - shift, f32::INFINITY).unwrap();
            for processor in Processor::available() {
                let map = map.clone().with_processor(processor);
                assert!(map.closest(&ray, Layers::ALL).is_some(), "{processor:?} {ray:?} slips through at {target}");
                assert!(map.is_blocked(&ray, Layers::ALL), "{processor:?} {ray:?} slips through at {target}");
            }
        }
    });
}

#[test]
fn both_ends_of_a_ray_count() {
    let mut mesh = Mesh::default();
    push(&mut mesh, [vec3(-1.0, -1.0, 2.0), vec3(3.0, -1.0, 2.0), vec3(-1.0, 3.0, 2.0)]);
    let map = bake(&mesh).unwrap();
    let ray = |start_m: f32, end_m: f32| {
        Ray::new(Vec3::ZERO, Vec3::Z, end_m).unwrap().between_distances(start_m, end_m).unwrap()
    };
    for (start_m, end_m, is_hit) in [(0.0, 1.999, false), (0.0, 2.0, true), (2.0, 2.0, true), (2.001, 9.0, false)] {
        assert_eq!(map.closest(&ray(start_m, end_m), Layers::ALL).is_some(), is_hit, "{start_m} to {end_m}");
        assert_eq!(map.is_blocked(&ray(start_m, end_m), Layers::ALL), is_hit, "{start_m} to {end_m}");
    }
    let from_behind = Ray::new(vec3(0.0, 0.0, 4.0), -Vec3::Z, 9.0).unwrap();
    let hit = map.closest(&from_behind, Layers::ALL).unwrap();
    assert_eq!((hit.distance_m, map.normal(hit.triangle)), (2.0, Some(Vec3::Z)));
    assert_eq!(map.normal_against(hit.triangle, Vec3::Z), Some(-Vec3::Z));
}

#[test]
fn a_ray_that_is_none_is_refused() {
    let zero = Vec3::ZERO;
    assert_eq!(Ray::new(zero, zero, 1.0), Err(RayError::NoDirection));
    assert_eq!(Ray::new(zero, vec3(f32::INFINITY, 0.0, 0.0), 1.0), Err(RayError::NoDirection));
    assert_eq!(Ray::new(zero, vec3(f32::NAN, 0.0, 0.0), 1.0), Err(RayError::NoDirection));
    assert_eq!(Ray::new(zero, Vec3::X, -1.0), Err(RayError::NoLength));
    assert_eq!(Ray::new(zero, Vec3::X, f32::NAN), Err(RayError::NoLength));
    assert_eq!(Ray::new(vec3(0.0, f32::NAN, 0.0), Vec3::X, 1.0), Err(RayError::OutOfRange));
    assert_eq!(Ray::new(vec3(0.0, 2e6, 0.0), Vec3::X, 1.0), Err(RayError::OutOfRange));
    assert_eq!(Ray::between(zero, vec3(f32::INFINITY, 0.0, 0.0)), Err(RayError::OutOfRange));
    let ray = Ray::new(zero, Vec3::X, 5.0).unwrap();
    assert_eq!(ray.between_distances(3.0, 2.0), Err(RayError::NoLength));
    assert_eq!(ray.between_distances(f32::NAN, 2.0), Err(RayError::NoLength));
    assert!(Ray::between(Vec3::ONE, Vec3::ONE).is_ok());
    assert!(Ray::new(zero, vec3(1e-30, 0.0, 0.0), 1.0).is_ok());
}
