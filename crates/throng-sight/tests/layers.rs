//! A query sees the triangles of its layers and no others.

use fastrand::Rng;
use throng_seeds::for_seeds;
use throng_sight::{Layers, Mesh, Ray, bake};

use crate::support::{ray, soup};

#[test]
fn a_query_answers_as_if_other_layers_were_not_there() {
    for_seeds(30, |seed| {
        let mut random = Rng::with_seed(seed);
        let mut mesh = soup(&mut random, 300, 100.0);
        mesh.layers = mesh.triangles.iter().map(|_| Layers(random.u16(..16))).collect();
        let map = bake(&mesh).unwrap();
        let layers = Layers(1 + random.u16(..15));
        let mut part = Mesh { positions: mesh.positions.clone(), ..Mesh::default() };
        for (triangle, corners) in mesh.triangles.iter().enumerate() {
            if mesh.layers[triangle].meets(layers) {
                part.triangles.push(*corners);
            }
        }
        let alone = bake(&part).unwrap();
        for _ in 0..200 {
            let ray: Ray = ray(&mut random, &mesh, 100.0);
            let hit = map.closest(&ray, layers);
            let expected = alone.closest(&ray, Layers::ALL);
            assert_eq!(hit.map(|hit| hit.distance_m), expected.map(|hit| hit.distance_m), "{ray:?}");
            assert_eq!(map.is_blocked(&ray, layers), expected.is_some(), "{ray:?}");
            if let Some(hit) = hit {
                assert!(map.layers_of(hit.triangle).unwrap().meets(layers));
            }
        }
    });
}
