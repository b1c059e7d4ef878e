//! A house: outer walls with doors and windows, four rooms on each storey, stairs, furniture, a roof.

use fastrand::Rng;
use glam::{Vec3, vec3};

use super::BODIES;
use super::shapes::{Opening, Shapes, Wall};

const STOREY_M: f32 = 3.0;
const SLAB_M: f32 = 0.2;
const OUTER_M: f32 = 0.25;
const INNER_M: f32 = 0.12;
const STEPS: usize = 16;
const STEP_LENGTH_M: f32 = 0.28;
const STAIRS_WIDTH_M: f32 = 1.2;
/// How far the first step is from the outer wall.
const STAIRS_FROM_M: f32 = 1.2;
const DOOR: [f32; 2] = [1.1, 2.1];
const WINDOW: [f32; 2] = [1.2, 1.2];
const SILL_M: f32 = 0.9;
/// The height of the ground floor above the street.
const FLOOR_M: f32 = 0.1;

/// The inside of a house: lowest corner of the ground floor, width, depth.
#[derive(Clone, Copy)]
struct House {
    corner: Vec3,
    width: f32,
    depth: f32,
    storeys: usize,
    /// Where the two inner walls stand, from the corner.
    cross: [f32; 2],
    is_furnished: bool,
}

/// Without furniture and window frames if not `is_furnished`.
pub(super) fn house(shapes: &mut Shapes, random: &mut Rng, lot: Vec3, lot_m: f32, is_furnished: bool) {
    let (width, depth) = (11.0 + 3.0 * random.f32(), 13.2 + 1.4 * random.f32());
    let (free_x, free_z) = (lot_m - width - 4.0, lot_m - depth - 4.0);
    let corner = lot + vec3(2.0 + free_x * random.f32(), FLOOR_M, 2.0 + free_z * random.f32());
    let cross = [width * (0.45 + 0.1 * random.f32()), 6.7 + (depth - 13.2) * random.f32()];
    let storeys = if is_furnished { 2 + usize::from(random.u8(..3) == 0) } else { 2 };
    let house = House { corner, width, depth, storeys, cross, is_furnished };
    // The ground floor lies a little deeper than the street, so that nothing lies in the same plane.
    shapes.cuboid(corner - vec3(0.0, FLOOR_M + 0.05, 0.0), corner + vec3(width, 0.0, depth));
    for storey in 0..house.storeys {
        outer_walls(shapes, random, house, storey);
        inner_walls(shapes, house, storey);
        slab(shapes, house, storey);
        if storey + 1 < house.storeys {
            stairs(shapes, house, storey);
        }
        if is_furnished {
            furniture(shapes, random, house, storey);
        }
    }
    roof(shapes, random, house);
}

impl House {
    fn base(&self, storey: usize) -> Vec3 {
        self.corner + vec3(0.0, STOREY_M * storey as f32, 0.0)
    }
}

fn outer_walls(shapes: &mut Shapes, random: &mut Rng, house: House, storey: usize) {
    let base = house.base(storey);
    let height = STOREY_M - SLAB_M;
    let wall = |corner: Vec3, along_x: bool, length: f32| Wall { corner, along_x, length, height, thickness: OUTER_M };
    let inset = vec3(0.0, 0.0, OUTER_M);
    let walls = [
        (wall(base, true, house.width), true),
        (wall(base + vec3(0.0, 0.0, house.depth - OUTER_M), true, house.width), true),
        (wall(base + inset, false, house.depth - 2.0 * OUTER_M), false),
        (wall(base + inset + vec3(house.width - OUTER_M, 0.0, 0.0), false, house.depth - 2.0 * OUTER_M), false),
    ];
    for (wall, may_have_door) in walls {
        let mut openings = Vec::new();
        let count = ((wall.length - 1.2) / 2.6) as usize;
        let distance = wall.length / count as f32;
        let door = if may_have_door && storey == 0 { random.usize(..count) } else { usize::MAX };
        for place in 0..count {
            let middle = distance * (place as f32 + 0.5);
            let [width, high] = if place == door { DOOR } else { WINDOW };
            let (low, high) = if place == door { (0.0, high) } else { (SILL_M, SILL_M + high) };
            openings.push(Opening { from: middle - width / 2.0, to: middle + width / 2.0, low, high });
        }
        shapes.wall(wall, &openings);
        for (place, opening) in openings.iter().enumerate() {
            if house.is_furnished {
                frame(shapes, wall, *opening, place != door);
            }
            if place != door && random.u8(..10) < 7 {
                pane(shapes, wall, *opening);
            }
        }
    }
}

/// Bars around an opening; in a window also a cross and a board.
fn frame(shapes: &mut Shapes, wall: Wall, hole: Opening, is_window: bool) {
    const BAR: f32 = 0.06;
    let mut bar = |from: f32, to: f32, low: f32, high: f32, across: [f32; 2]| {
        shapes.cuboid(wall.place(from, low, across[0]), wall.place(to, high, across[1]));
    };
    let across = [-0.03, wall.thickness + 0.03];
    bar(hole.from - BAR, hole.from, hole.low, hole.high, across);
    bar(hole.to, hole.to + BAR, hole.low, hole.high, across);
    bar(hole.from - BAR, hole.to + BAR, hole.high, hole.high + BAR, across);
    if is_window {
        let (middle, half) = ((hole.from + hole.to) / 2.0, 0.02);
        let inside = [0.08, 0.12];
        bar(middle - half, middle + half, hole.low, hole.high, inside);
        bar(hole.from - 0.1, hole.to + 0.1, hole.low - 0.04, hole.low, [-0.1, wall.thickness + 0.15]);
    }
}

fn pane(shapes: &mut Shapes, wall: Wall, hole: Opening) {
    let corner = |along: f32, up: f32| wall.place(along, up, 0.1);
    let corners = [
        corner(hole.from, hole.low),
        corner(hole.to, hole.low),
        corner(hole.to, hole.high),
        corner(hole.from, hole.high),
    ];
    shapes.quad(corners, BODIES);
}

fn inner_walls(shapes: &mut Shapes, house: House, storey: usize) {
    let base = house.base(storey) + vec3(OUTER_M, 0.0, OUTER_M);
    let [along_z, along_x] = house.cross;
    let [width, depth] = [house.width, house.depth].map(|length| length - 2.0 * OUTER_M);
    let height = STOREY_M - SLAB_M;
    let door =
        |middle: f32| Opening { from: middle - DOOR[0] / 2.0, to: middle + DOOR[0] / 2.0, low: 0.0, high: DOOR[1] };
    // Across the house, with a door into each rear room; the left one leaves room for the landing of the stairs.
    let across =
        Wall { corner: base + vec3(0.0, 0.0, along_x), along_x: true, length: width, height, thickness: INNER_M };
    let doors = [door(along_z - 1.2), door((along_z + width) / 2.0)];
    shapes.wall(across, &doors);
    // Two walls along the house, with a door each.
    let front =
        Wall { corner: base + vec3(along_z, 0.0, 0.0), along_x: false, length: along_x, height, thickness: INNER_M };
    shapes.wall(front, &[door(along_x - 1.3)]);
    let rear_from = along_x + INNER_M;
    let rear_length = depth - rear_from;
    let rear = Wall { corner: base + vec3(along_z, 0.0, rear_from), length: rear_length, ..front };
    shapes.wall(rear, &[door(rear_length / 2.0)]);
}

/// The ceiling of a storey, with a hole above the stairs.
fn slab(shapes: &mut Shapes, house: House, storey: usize) {
    let low = house.base(storey) + vec3(0.0, STOREY_M - SLAB_M, 0.0);
    let mut part = |x: [f32; 2], z: [f32; 2]| {
        shapes.cuboid(low + vec3(x[0], 0.0, z[0]), low + vec3(x[1], SLAB_M, z[1]));
    };
    let (width, depth) = (house.width, house.depth);
    if storey + 1 == house.storeys {
        return part([0.0, width], [0.0, depth]);
    }
    let hole_x = OUTER_M + STAIRS_WIDTH_M + 0.1;
    let hole_from = OUTER_M + STAIRS_FROM_M;
    let hole_to = hole_from + STEPS as f32 * STEP_LENGTH_M;
    part([hole_x, width], [0.0, depth]);
    part([0.0, hole_x], [0.0, hole_from]);
    part([0.0, hole_x], [hole_to, depth]);
    part([0.0, OUTER_M], [hole_from, hole_to]);
    // A rail beside the hole.
    let floor = low + vec3(hole_x, SLAB_M, 0.0);
    shapes.cuboid(floor + vec3(0.0, 0.9, hole_from), floor + vec3(0.06, 0.96, hole_to));
    for post in 0..8 {
        let way = hole_from + (hole_to - hole_from - 0.06) * post as f32 / 7.0;
        shapes.cuboid(floor + vec3(0.0, 0.0, way), floor + vec3(0.06, 0.9, way + 0.06));
    }
}

/// Steps along the left outer wall, upwards with z.
fn stairs(shapes: &mut Shapes, house: House, storey: usize) {
    let foot = house.base(storey) + vec3(OUTER_M, 0.0, OUTER_M + STAIRS_FROM_M);
    let rise = STOREY_M / STEPS as f32;
    for step in 0..STEPS {
        let (top, way) = (rise * (step + 1) as f32, STEP_LENGTH_M * step as f32);
        let bottom = (top - 2.0 * rise).max(0.0);
        shapes.cuboid(foot + vec3(0.0, bottom, way), foot + vec3(STAIRS_WIDTH_M, top, way + STEP_LENGTH_M));
    }
}

/// Things along the right sides of the four rooms, away from doors and stairs.
fn furniture(shapes: &mut Shapes, random: &mut Rng, house: House, storey: usize) {
    let base = house.base(storey);
    let [along_z, along_x] = [house.cross[0] + OUTER_M, house.cross[1] + OUTER_M];
    let places = [
        (vec3(along_z - 1.2, 0.0, OUTER_M + 0.1), false),
        (vec3(house.width - OUTER_M - 1.2, 0.0, OUTER_M + 0.2), true),
        (vec3(OUTER_M + 0.2, 0.0, along_x + 1.6), true),
        (vec3(house.width - OUTER_M - 1.2, 0.0, along_x + 1.4), true),
    ];
    for (place, has_room) in places {
        let foot = base + place;
        match random.u8(..4) {
            0 => shelf(shapes, random, foot),
            1 => crates(shapes, random, foot),
            _ if !has_room => shelf(shapes, random, foot),
            2 => table(shapes, foot),
            _ => {
                bed(shapes, foot);
                shelf(shapes, random, foot + vec3(0.0, 0.0, 2.3));
            }
        }
    }
}

fn shelf(shapes: &mut Shapes, random: &mut Rng, foot: Vec3) {
    for side in [0.0, 0.96] {
        shapes.cuboid(foot + vec3(side, 0.0, 0.0), foot + vec3(side + 0.04, 2.0, 0.3));
    }
    for board in 0..5 {
        let height = 0.1 + 0.45 * board as f32;
        shapes.cuboid(foot + vec3(0.04, height, 0.0), foot + vec3(0.96, height + 0.03, 0.3));
        let mut way = 0.06;
        while board < 4 && way < 0.8 {
            let (thick, high) = (0.03 + 0.05 * random.f32(), 0.2 + 0.15 * random.f32());
            let bottom = foot + vec3(way, height + 0.03, 0.02);
            shapes.cuboid(bottom, bottom + vec3(thick, high, 0.2));
            way += thick + 0.03 + 0.2 * random.f32();
        }
    }
}

fn table(shapes: &mut Shapes, foot: Vec3) {
    legs(shapes, foot, [1.0, 1.6], 0.72);
    shapes.cuboid(foot + vec3(0.0, 0.72, 0.0), foot + vec3(1.0, 0.76, 1.6));
    for (x, z) in [(-0.6, 0.2), (-0.6, 1.0)] {
        let chair = foot + vec3(x, 0.0, z);
        legs(shapes, chair, [0.42, 0.42], 0.45);
        shapes.cuboid(chair + vec3(0.0, 0.45, 0.0), chair + vec3(0.42, 0.49, 0.42));
        shapes.cuboid(chair + vec3(0.0, 0.49, 0.0), chair + vec3(0.04, 0.95, 0.42));
    }
}

fn legs(shapes: &mut Shapes, foot: Vec3, size: [f32; 2], height: f32) {
    for (x, z) in [(0.0, 0.0), (size[0] - 0.06, 0.0), (0.0, size[1] - 0.06), (size[0] - 0.06, size[1] - 0.06)] {
        shapes.cuboid(foot + vec3(x, 0.0, z), foot + vec3(x + 0.06, height, z + 0.06));
    }
}

fn bed(shapes: &mut Shapes, foot: Vec3) {
    legs(shapes, foot, [1.0, 2.0], 0.25);
    shapes.cuboid(foot + vec3(0.0, 0.25, 0.0), foot + vec3(1.0, 0.5, 2.0));
    shapes.cuboid(foot + vec3(0.15, 0.5, 0.05), foot + vec3(0.85, 0.6, 0.4));
    shapes.cuboid(foot + vec3(0.0, 0.25, -0.05), foot + vec3(1.0, 1.0, 0.0));
}

fn crates(shapes: &mut Shapes, random: &mut Rng, foot: Vec3) {
    for place in 0..2 {
        let mut height = 0.0;
        for _ in 0..1 + random.u8(..3) {
            let size = 0.45 + 0.2 * random.f32();
            let low = foot + vec3(0.1 * random.f32(), height, 0.75 * place as f32 + 0.05 * random.f32());
            shapes.cuboid(low, low + vec3(size, size, size));
            for rim in [0.0, size - 0.05] {
                shapes.cuboid(low + vec3(-0.02, rim, -0.02), low + vec3(size + 0.02, rim + 0.05, 0.0));
            }
            height += size;
        }
    }
}

/// A rim around a flat roof, and things on it.
fn roof(shapes: &mut Shapes, random: &mut Rng, house: House) {
    let low = house.base(house.storeys);
    let (width, depth) = (house.width, house.depth);
    let rim = 0.9;
    shapes.cuboid(low, low + vec3(width, rim, 0.2));
    shapes.cuboid(low + vec3(0.0, 0.0, depth - 0.2), low + vec3(width, rim, depth));
    shapes.cuboid(low + vec3(0.0, 0.0, 0.2), low + vec3(0.2, rim, depth - 0.2));
    shapes.cuboid(low + vec3(width - 0.2, 0.0, 0.2), low + vec3(width, rim, depth - 0.2));
    for _ in 0..2 + random.u8(..3) {
        let place = low + vec3(1.0 + (width - 3.0) * random.f32(), 0.0, 1.0 + (depth - 3.0) * random.f32());
        let size = vec3(0.5 + random.f32(), 0.5 + 0.6 * random.f32(), 0.5 + random.f32());
        shapes.cuboid(place, place + size);
        shapes.prism(place + vec3(-0.4, 0.0, 0.3), 0.12, 1.2, 10);
    }
}
