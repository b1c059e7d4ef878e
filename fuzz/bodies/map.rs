//! The bytes of a baked map.

use std::sync::LazyLock;

use glam::{Vec3, vec3};
use throng_sight::{Layers, Map, Mesh, Processor, Ray, aligned, bake};

/// A small map with several nodes.
static GENUINE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut mesh = Mesh::default();
    for number in 0..100_u32 {
        let corner = vec3((number % 10) as f32, (number % 7) as f32, (number / 10) as f32);
        let first = mesh.positions.len() as u32;
        mesh.positions.extend([corner, corner + Vec3::X, corner + vec3(0.0, 1.0, 0.5)]);
        mesh.triangles.push([first, first + 1, first + 2]);
    }
    bake(&mesh).expect("the mesh is sound").as_bytes().to_vec()
});

/// Any bytes; or a genuine map in which the input's bytes replace some, four bytes each: three for the place, one for the
/// value. The checksum is made to fit, so that the checks behind it are reached. Maps that are accepted answer queries.
pub(crate) fn run(input: &[u8]) {
    let Some((choice, rest)) = input.split_first() else { return };
    let mut bytes = if choice % 4 == 0 { rest.to_vec() } else { GENUINE.clone() };
    if choice % 4 != 0 {
        for change in rest.chunks_exact(4) {
            let place = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize % bytes.len();
            bytes[place] = change[3];
        }
    }
    if choice % 4 != 3 && bytes.len() >= 32 {
        let sum = xxhash_rust::xxh3::xxh3_64(&bytes[32..]);
        bytes[24..32].copy_from_slice(&sum.to_le_bytes());
    }
    let map = match Map::new(aligned(&bytes)) {
        Ok(map) => map,
        Err(error) => {
            assert!(!error.tag().is_empty() && !error.to_string().contains('\n'));
            return;
        }
    };
    for processor in Processor::available() {
        let map = map.clone().with_processor(processor);
        let ends = [Vec3::ZERO, Vec3::splat(9.0), vec3(5.0, -3.0, 5.0), vec3(4.0, 20.0, 6.0)];
        let rays: Vec<Ray> =
            ends.iter().flat_map(|from| ends.map(|to| Ray::between(*from, to).expect("both are near"))).collect();
        for layers in [Layers::ALL, Layers(1)] {
            for ray in &rays {
                if let Some(hit) = map.closest(ray, layers) {
                    map.corners(hit.triangle);
                    map.normal(hit.triangle);
                }
                map.is_blocked(ray, layers);
            }
            map.closest_batch(&rays, layers, &mut [None; 16]);
            map.is_blocked_batch(&rays, layers, &mut [false; 16]);
        }
        map.for_each_triangle_in(Vec3::ZERO, Vec3::splat(3.0), Layers::ALL, |_, _| {});
    }
}
