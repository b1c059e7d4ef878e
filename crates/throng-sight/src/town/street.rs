//! The objects outside of houses: ground, boundary, gardens, trees, cars, lamps.

use fastrand::Rng;
use glam::{Vec3, vec3};

use super::shapes::{Shapes, cosine};
use super::{BODIES, SIGHT, SOLID};

/// The ground, with its middle at zero, and a wall around it.
pub(super) fn ground(shapes: &mut Shapes, size: [f32; 2], wall_m: f32) {
    let [width, depth] = size;
    let corner = vec3(-width / 2.0, 0.0, -depth / 2.0);
    shapes.floor(corner, size, 4.0);
    let low = corner - vec3(0.5, 0.5, 0.5);
    let (far_x, far_z) = (width + 1.0, depth + 1.0);
    let height = wall_m + 0.5;
    shapes.cuboid(low, low + vec3(far_x, height, 0.5));
    shapes.cuboid(low + vec3(0.0, 0.0, far_z - 0.5), low + vec3(far_x, height, far_z));
    shapes.cuboid(low + vec3(0.0, 0.0, 0.5), low + vec3(0.5, height, far_z - 0.5));
    shapes.cuboid(low + vec3(far_x - 0.5, 0.0, 0.5), low + vec3(far_x, height, far_z - 0.5));
}

/// The parts of every lot: lamps, a car in the street before it, fences at the corners, a tree.
pub(super) fn lot(shapes: &mut Shapes, random: &mut Rng, corner: Vec3, lot_m: f32) {
    lamp(shapes, corner + vec3(0.3, 0.0, 0.3));
    if random.bool() {
        car(shapes, corner + vec3(3.0 + (lot_m - 10.0) * random.f32(), 0.0, -2.4));
    }
    if random.bool() {
        fence(shapes, corner + vec3(1.0, 0.0, 0.5), 4.0 + random.u8(..3) as f32);
    }
    fence(shapes, corner + vec3(lot_m - 6.0, 0.0, lot_m - 0.6), 4.0);
    tree(shapes, random, corner, lot_m);
}

/// An open square with cover: crates and low walls.
pub(super) fn square(shapes: &mut Shapes, random: &mut Rng, corner: Vec3, lot_m: f32) {
    for _ in 0..14 {
        let place = corner + vec3(2.0 + (lot_m - 5.0) * random.f32(), 0.0, 2.0 + (lot_m - 5.0) * random.f32());
        let middle = corner + vec3(lot_m / 2.0, 0.0, lot_m / 2.0);
        if (place - middle).length_squared() < 9.0 {
            continue;
        }
        let height = if random.bool() { 1.1 } else { 1.9 };
        let size = if random.bool() { vec3(1.2, height, 1.2) } else { vec3(2.4, height, 0.3) };
        shapes.cuboid(place, place + size);
        shapes.cuboid(place + vec3(-0.05, size.y, -0.05), place + size + vec3(0.05, 0.08, 0.05));
    }
}

/// A tree in the strip of garden around a house: a trunk that blocks all, and leaves that block sight.
pub(super) fn tree(shapes: &mut Shapes, random: &mut Rng, corner: Vec3, lot_m: f32) {
    let along = 1.0 + (lot_m - 2.0) * random.f32();
    let across = 0.5 + 0.9 * random.f32();
    let place = match random.u8(..4) {
        0 => vec3(along, 0.0, across),
        1 => vec3(along, 0.0, lot_m - across),
        2 => vec3(across, 0.0, along),
        _ => vec3(lot_m - across, 0.0, along),
    };
    let foot = corner + place;
    let height = 2.2 + 1.5 * random.f32();
    shapes.prism(foot, 0.15, height, 9);
    let middle = foot + vec3(0.0, height + 0.8, 0.0);
    let radius = 1.0 + 0.5 * random.f32();
    let mut part = || 2.0 * random.f32() - 1.0;
    for _ in 0..60 {
        let place = middle + radius * vec3(part(), part(), part());
        let side = vec3(part(), part(), part()).normalize_or(Vec3::X);
        let up = 0.25 * side.any_orthonormal_vector();
        let side = 0.25 * side;
        shapes.quad([place - side - up, place + side - up, place + side + up, place - side + up], SIGHT);
    }
}

fn lamp(shapes: &mut Shapes, foot: Vec3) {
    shapes.prism(foot, 0.08, 4.5, 8);
    shapes.cuboid(foot + vec3(-0.1, 4.5, -0.1), foot + vec3(0.9, 4.65, 0.1));
}

fn car(shapes: &mut Shapes, foot: Vec3) {
    shapes.cuboid(foot + vec3(0.0, 0.35, 0.0), foot + vec3(4.2, 0.95, 1.7));
    shapes.cuboid(foot + vec3(1.0, 0.95, 0.1), foot + vec3(3.4, 1.5, 1.6));
    for (x, z) in [(0.8, 0.0), (3.4, 0.0), (0.8, 1.5), (3.4, 1.5)] {
        wheel(shapes, foot + vec3(x, 0.32, z));
    }
}

fn wheel(shapes: &mut Shapes, hub: Vec3) {
    const SIDES: usize = 12;
    let rim = |side: usize, z: f32| {
        let turn = std::f32::consts::TAU * side as f32 / SIDES as f32;
        hub + vec3(0.32 * cosine(turn), 0.32 * cosine(turn - std::f32::consts::FRAC_PI_2), z)
    };
    for side in 0..SIDES {
        shapes.quad([rim(side, 0.0), rim(side + 1, 0.0), rim(side + 1, 0.2), rim(side, 0.2)], SOLID);
        shapes.face([hub, rim(side + 1, 0.0), rim(side, 0.0)]);
    }
}

/// Posts, rails and wire along x.
fn fence(shapes: &mut Shapes, foot: Vec3, length: f32) {
    let posts = length as usize;
    for post in 0..=posts {
        let place = foot + vec3(post as f32 * length / posts as f32, 0.0, 0.0);
        shapes.cuboid(place, place + vec3(0.08, 1.3, 0.08));
    }
    for height in [0.3, 1.1] {
        shapes.cuboid(foot + vec3(0.08, height, 0.02), foot + vec3(length, height + 0.06, 0.06));
    }
    let (low, high) = (foot + vec3(0.08, 0.05, 0.04), foot + vec3(length, 1.25, 0.04));
    shapes.quad([low, vec3(high.x, low.y, low.z), high, vec3(low.x, high.y, high.z)], BODIES);
}
