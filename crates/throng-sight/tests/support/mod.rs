//! Meshes, rays, and the plainest way to find what a ray hits.

use fastrand::Rng;
use glam::{DVec3, Vec3, vec3};
use throng_sight::{Map, Mesh, Ray};

/// Triangles anywhere in a box of `size_m`, of very different sizes.
pub(crate) fn soup(random: &mut Rng, count: usize, size_m: f32) -> Mesh {
    let mut mesh = Mesh::default();
    while mesh.triangles.len() < count {
        let mut part = || 2.0 * random.f32() - 1.0;
        let middle = size_m / 2.0 * vec3(part(), part(), part());
        let reach = size_m * 0.3 * part().powi(4);
        let corners = [0; 3].map(|_| middle + reach * vec3(part(), part(), part()));
        push(&mut mesh, corners);
    }
    mesh.drop_degenerate();
    mesh
}

pub(crate) fn push(mesh: &mut Mesh, corners: [Vec3; 3]) {
    let first = mesh.positions.len() as u32;
    mesh.positions.extend(corners);
    mesh.triangles.push([first, first + 1, first + 2]);
}

/// A ray that begins in or near the map: anywhere, along an axis, or straight at a corner or an edge of a triangle.
pub(crate) fn ray(random: &mut Rng, mesh: &Mesh, size_m: f32) -> Ray {
    let mut point = || size_m * 0.6 * (2.0 * vec3(random.f32(), random.f32(), random.f32()) - 1.0);
    let (from, to) = (point(), point());
    let corners = mesh.corners(random.usize(..mesh.triangles.len()));
    let length = if random.bool() { f32::INFINITY } else { size_m * random.f32() };
    match random.u8(..8) {
        0 => Ray::new(from, Vec3::AXES[random.usize(..3)], length),
        1 => Ray::new(from, -Vec3::AXES[random.usize(..3)], length),
        2 => Ray::new(from, corners[0] - from, f32::INFINITY),
        3 => Ray::new(from, (corners[0] + corners[1]) / 2.0 - from, f32::INFINITY),
        4 => Ray::between(from, to),
        5 => Ray::new(corners[random.usize(..3)], to, length),
        _ => Ray::new(from, to - from, length),
    }
    .expect("the points differ")
}

/// How a ray meets a triangle, by the formulas of a textbook, in 64 bits.
pub(crate) struct Meeting {
    pub(crate) distance_m: f64,
    /// How far inside the triangle it is, in metres: negative outside.
    pub(crate) inside_m: f64,
    /// The cosine of the angle between the ray and the triangle's normal.
    pub(crate) steepness: f64,
}

/// None if the ray runs along the triangle's plane.
pub(crate) fn meeting(ray: &Ray, corners: [Vec3; 3]) -> Option<Meeting> {
    let [a, b, c] = corners.map(|corner| corner.as_dvec3());
    let (origin, direction) = (ray.origin().as_dvec3(), ray.direction().as_dvec3());
    let normal = (b - a).cross(c - a).try_normalize()?;
    let steepness = normal.dot(direction);
    if steepness == 0.0 {
        return None;
    }
    let distance_m = normal.dot(a - origin) / steepness;
    let point = origin + distance_m * direction;
    let inside = |from: DVec3, to: DVec3| normal.cross(to - from).normalize().dot(point - from);
    let inside_m = inside(a, b).min(inside(b, c)).min(inside(c, a));
    Some(Meeting { distance_m, inside_m, steepness: steepness.abs() })
}

/// Compares an answer with all triangles. Rounding may decide for rays within `error_m` of an edge or an end.
pub(crate) fn check(map: &Map, ray: &Ray, error_m: f64) -> Result<(), String> {
    let layers = throng_sight::Layers::ALL;
    let hit = map.closest(ray, layers);
    if hit.is_some() != map.is_blocked(ray, layers) {
        return Err(format!("{ray:?}: closest finds {hit:?}, is_blocked says {}", hit.is_none()));
    }
    if let Some(hit) = hit {
        let corners = map.corners(hit.triangle).ok_or("the triangle does not exist")?;
        let meeting = meeting(ray, corners).ok_or_else(|| format!("{ray:?} runs along {corners:?}"))?;
        let slack = error_m / meeting.steepness.max(1e-3);
        if meeting.inside_m < -slack || (meeting.distance_m - f64::from(hit.distance_m)).abs() > slack {
            let Meeting { distance_m, inside_m, .. } = meeting;
            return Err(format!("{ray:?}: {hit:?}, but that triangle is at {distance_m}, inside by {inside_m}"));
        }
    }
    let nearest = hit.map_or(f64::INFINITY, |hit| f64::from(hit.distance_m));
    for triangle in map.triangles() {
        let corners = map.corners(triangle).ok_or("the triangle does not exist")?;
        let Some(meeting) = meeting(ray, corners) else { continue };
        let slack = error_m / meeting.steepness.max(1e-3);
        let is_clear = meeting.inside_m > slack
            && meeting.distance_m > f64::from(ray.start_m()) + slack
            && meeting.distance_m < f64::from(ray.end_m()) - slack;
        if is_clear && meeting.distance_m < nearest - slack {
            return Err(format!("{ray:?}: {hit:?}, but {triangle:?} is at {}", meeting.distance_m));
        }
    }
    Ok(())
}
