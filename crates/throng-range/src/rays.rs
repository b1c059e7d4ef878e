//! How many rays the map answers per second, from places where people stand.

use std::hint::black_box;
use std::time::Instant;

use glam::{Vec3, vec3};
use throng_judge::median;
use throng_sight::{Layers, Map, Ray, town};

use crate::summary::Sight;

/// Rays of a round.
const RAYS: usize = 8_192;
/// Rounds; the median counts. One more warms up.
const ROUNDS: usize = 5;
/// The longest ray, in metres.
const LENGTH_M: f32 = 50.0;

/// Closest hits, one ray after the other. Ours and Embree's take turns, where it is there. Nothing is known of a map without ground.
pub(crate) fn measure(map: &Map) -> Sight {
    let rays = rays(map);
    if rays.is_empty() {
        return Sight::default();
    }
    let embree = embree(map);
    let mut times: [Vec<f64>; 2] = Default::default();
    for round in 0..=ROUNDS {
        let ours = seconds(&rays, |ray| map.closest(ray, Layers::ALL).is_some());
        let theirs = embree.as_ref().map(|closest| seconds(&rays, closest));
        if round > 0 {
            times[0].push(ours);
            times[1].extend(theirs);
        }
    }
    let [ours, theirs] = times.each_ref().map(|times| median(times));
    let ratio_to_embree = theirs.zip(ours).map(|(theirs, ours)| theirs / ours);
    Sight { rays_per_s: ours.map(|seconds| rays.len() as f64 / seconds), ratio_to_embree }
}

fn seconds(rays: &[Ray], is_hit: impl Fn(&Ray) -> bool) -> f64 {
    let began = Instant::now();
    black_box(rays.iter().filter(|ray| is_hit(black_box(ray))).count());
    began.elapsed().as_secs_f64()
}

/// From eyes above the ground in all directions, a little up and down.
fn rays(map: &Map) -> Vec<Ray> {
    let [low, high] = map.bounds();
    // Those that begin in the streets hit more than those from the roofs, but a pit may be lower than any street.
    let streets = rays_from(map, low.y + 8.0, 20.0);
    if streets.len() == RAYS { streets } else { rays_from(map, high.y + 1.0, high.y - low.y + 2.0) }
}

fn rays_from(map: &Map, above_m: f32, depth_m: f32) -> Vec<Ray> {
    let mut random = fastrand::Rng::with_seed(3);
    let [low, high] = map.bounds();
    let mut rays = Vec::with_capacity(RAYS);
    for _ in 0..RAYS * 8 {
        let point = low + (high - low) * vec3(random.f32(), 0.0, random.f32());
        let Ok(down) = Ray::new(vec3(point.x, above_m, point.z), -Vec3::Y, depth_m) else { continue };
        let Some(ground) = map.closest(&down, town::BODIES) else { continue };
        let direction = vec3(random.f32() - 0.5, (random.f32() - 0.5) * 0.2, random.f32() - 0.5);
        rays.extend(Ray::new(down.at(ground.distance_m) + 1.6 * Vec3::Y, direction, LENGTH_M));
        if rays.len() == RAYS {
            break;
        }
    }
    rays
}

#[cfg(feature = "embree")]
fn embree(map: &Map) -> Option<impl Fn(&Ray) -> bool> {
    let mut mesh = throng_sight::Mesh::default();
    for triangle in map.triangles() {
        let first = mesh.positions.len() as u32;
        mesh.positions.extend(map.corners(triangle)?);
        mesh.triangles.push([first, first + 1, first + 2]);
        mesh.layers.push(map.layers_of(triangle)?);
    }
    let scene = throng_map::embree::Embree::load().ok()?.scene(&mesh, false);
    Some(move |ray: &Ray| scene.closest(ray).is_some())
}

#[cfg(not(feature = "embree"))]
fn embree(_: &Map) -> Option<fn(&Ray) -> bool> {
    None
}
