//! Embree 3 behind the rays of agents, for comparison.

use anyhow::{Context, Result};
use glam::Vec3;
use throng_agent::Rays;
use throng_map::embree::{Embree, Scene};
use throng_sight::{Layers, Map, Mesh, Ray, town};

/// The triangles of a map that block sight, in Embree's tree.
pub(super) struct EmbreeRays(Scene);

/// # Errors
/// If Embree is not installed.
pub(super) fn load() -> Result<Embree> {
    Embree::load().context("--embree needs Embree 3")
}

pub(super) fn rays(embree: &Embree, map: &Map) -> EmbreeRays {
    let mut mesh = Mesh::default();
    for triangle in map.triangles() {
        if map.layers_of(triangle).is_some_and(|layers| layers.meets(town::SIGHT)) {
            let corners: [Vec3; 3] = map.corners(triangle).unwrap_or_default();
            let first = mesh.positions.len() as u32;
            mesh.positions.extend(corners);
            mesh.triangles.push([first, first + 1, first + 2]);
        }
    }
    EmbreeRays(embree.scene(&mesh, false))
}

/// Agents ask for what blocks sight alone.
impl Rays for EmbreeRays {
    fn are_blocked(&self, rays: &[Ray], _: Layers, is_blocked: &mut [bool]) {
        for (ray, is_blocked) in rays.iter().zip(is_blocked) {
            *is_blocked = self.0.is_blocked(ray);
        }
    }

    fn free_distances(&self, rays: &[Ray], _: Layers, distances_m: &mut [f32]) {
        for (ray, distance_m) in rays.iter().zip(distances_m) {
            *distance_m = self.0.closest(ray).map_or(ray.end_m(), |hit| hit.distance_m);
        }
    }
}
