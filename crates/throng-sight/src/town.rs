//! A town from a seed: a map of any size without an artist, for the reference game, tests and benchmarks.
//!
//! ```text
//!   ##########################################     #  boundary wall, 4 m high
//!   #                 street                 #
//!   #   +-----+-----+   +-----+-----+        #     lots of 20 m: a house of 2 or 3 storeys with rooms, doors,
//!   # A | lot | lot |   |  a  | lot |      B #     windows, stairs and furniture, and a garden around it
//!   #   +-----+-----+   +-----+-----+        #     a, b: squares with cover, the marks `site/a` and `site/b`
//!   #   | lot | lot |   | lot | lot |        #     A, B: the marks `spawn/a` and `spawn/b`
//!   #   +-----+-----+   +-----+-----+        #
//!   #                 street                 #     y is up, in metres; streets lie at y = 0
//!   ##########################################
//! ```
//!
//! A body of 0.4 m radius and 1.8 m height can walk into each house, through all rooms and up the stairs: doors are
//! 1.1 m wide and 2.1 m high, and steps are 0.19 m high. The same seed and number give the same town on every machine.

mod house;
mod shapes;
mod street;

use fastrand::Rng;
use glam::{Vec3, vec3};

use crate::mesh::{Mesh, NamedBox, TRIANGLES_MAX};
use crate::ray::Layers;

use shapes::Shapes;

/// The mask of things that block bodies: everything but leaves.
pub const BODIES: Layers = Layers(1);
/// The mask of things that block sight: everything but window panes and wire.
pub const SIGHT: Layers = Layers(2);
/// The mask of things that block bullets: everything but window panes, wire and leaves.
pub const BULLETS: Layers = Layers(4);
/// Walls, floors, furniture: in all three layers.
const SOLID: Layers = Layers(7);

const LOT_M: f32 = 20.0;
const STREET_M: f32 = 8.0;
/// Lots in a row between two streets.
const LOTS_BETWEEN_STREETS: usize = 2;
/// About as many triangles as a lot has before plants fill the town up.
const LOT_TRIANGLES: usize = 7_500;
const BOUNDARY_HEIGHT_M: f32 = 4.0;

/// A town of at least `triangles` triangles, and a few thousand more at most. Below 7,500 it is one house without
/// furniture, which has about 3,000. More than 16 million count as 16 million.
pub fn town(seed: u64, triangles: usize) -> Mesh {
    let triangles = triangles.min(TRIANGLES_MAX / 4);
    let mut random = Rng::with_seed(seed);
    let mut shapes = Shapes::default();
    let plan = Plan::new((triangles / LOT_TRIANGLES).max(1));
    street::ground(&mut shapes, plan.size_m(), BOUNDARY_HEIGHT_M);
    for (column, row) in plan.lots() {
        let corner = plan.corner(column, row);
        if plan.square_of(column, row).is_some() {
            street::square(&mut shapes, &mut random, corner, LOT_M);
        } else {
            house::house(&mut shapes, &mut random, corner, LOT_M, triangles >= LOT_TRIANGLES);
        }
        street::lot(&mut shapes, &mut random, corner, LOT_M);
    }
    // Plants in the gardens, lot after lot, until the number is reached.
    for (column, row) in plan.lots().cycle() {
        if shapes.mesh.triangles.len() >= triangles {
            break;
        }
        street::tree(&mut shapes, &mut random, plan.corner(column, row), LOT_M);
    }
    shapes.mesh.marks = plan.marks();
    shapes.mesh
}

/// Where lots and streets are.
struct Plan {
    count: usize,
    columns: usize,
    rows: usize,
}

impl Plan {
    fn new(count: usize) -> Plan {
        let columns = (1..).find(|columns| columns * columns >= count).unwrap_or(1);
        Plan { count, columns, rows: count.div_ceil(columns) }
    }

    fn lots(&self) -> impl Iterator<Item = (usize, usize)> + Clone {
        let columns = self.columns;
        (0..self.count).map(move |lot| (lot % columns, lot / columns))
    }

    /// The distance of a lot's near side from the town's edge.
    fn way(lot: usize) -> f32 {
        STREET_M + lot as f32 * LOT_M + (lot / LOTS_BETWEEN_STREETS) as f32 * STREET_M
    }

    fn size_m(&self) -> [f32; 2] {
        [self.columns, self.rows].map(|lots| Plan::way(lots - 1) + LOT_M + STREET_M)
    }

    /// The corner of a lot with the lowest coordinates. The middle of the town is zero.
    fn corner(&self, column: usize, row: usize) -> Vec3 {
        let [width, depth] = self.size_m();
        vec3(Plan::way(column) - width / 2.0, 0.0, Plan::way(row) - depth / 2.0)
    }

    /// The squares of the two sites, in towns of at least six lots: in the first row, and as far from the end.
    fn square_of(&self, column: usize, row: usize) -> Option<&'static str> {
        let (lot, first) = (row * self.columns + column, self.columns / 2);
        match lot {
            _ if self.count < 6 => None,
            _ if lot == first => Some("site/a"),
            _ if lot == self.count - 1 - first => Some("site/b"),
            _ => None,
        }
    }

    fn marks(&self) -> Vec<NamedBox> {
        let [width, depth] = self.size_m();
        let mark = |name: &str, middle: Vec3, half: Vec3| NamedBox {
            name: name.to_owned(),
            bounds: [middle - vec3(half.x, 0.0, half.z), middle + vec3(half.x, 2.0 * half.y, half.z)],
        };
        let side = width / 2.0 - STREET_M / 2.0;
        let spawn = vec3(2.0, 1.0, (depth / 2.0 - STREET_M).min(8.0));
        let mut marks =
            vec![mark("spawn/a", vec3(-side, 0.0, 0.0), spawn), mark("spawn/b", vec3(side, 0.0, 0.0), spawn)];
        let half_lot = vec3(LOT_M / 2.0, 0.0, LOT_M / 2.0);
        for (column, row) in self.lots() {
            if let Some(name) = self.square_of(column, row) {
                marks.push(mark(name, self.corner(column, row) + half_lot, vec3(4.0, 1.0, 4.0)));
            }
        }
        if marks.len() == 2 {
            let way = depth / 2.0 - STREET_M / 2.0;
            marks.push(mark("site/a", vec3(0.0, 0.0, -way), vec3(3.0, 1.0, 2.0)));
            marks.push(mark("site/b", vec3(0.0, 0.0, way), vec3(3.0, 1.0, 2.0)));
        }
        marks
    }
}
