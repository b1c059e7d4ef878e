//! Where the world of a scenario lies in the replicated space, and who sees what of it.

use throng::{GridOptions, GridShape, Up};

use super::{LooksFrom, Ring, Scenario, View};

impl Scenario {
    /// The world counts from the centre of its area; what is replicated counts from the corner, where the first cell begins.
    pub fn from_corner(&self, position: [f32; 3]) -> [f32; 3] {
        let [width, depth] = self.area_m;
        [position[0] + width / 2.0, position[1] + depth / 2.0, position[2]]
    }

    /// The cells of its area, and the distances at which clients are sent them.
    pub fn grid(&self) -> GridOptions {
        let [width, depth] = self.area_m.map(f64::from);
        let ring =
            |ring: &Ring| throng::Ring { radius_m: f64::from(ring.radius_m), interval_ticks: ring.interval_ticks };
        let rings = match self.view {
            View::Rings => self.rings.iter().map(ring).collect(),
            View::Everything => vec![throng::Ring { radius_m: width.hypot(depth), interval_ticks: 1 }],
        };
        let looks_from = match self.looks_from {
            LooksFrom::Position => throng::LooksFrom::Position,
            LooksFrom::Cell => throng::LooksFrom::Cell,
        };
        GridOptions {
            shape: GridShape::flat(Up::Z, self.cell_m.map(f64::from)),
            bounds_m: Some([[0.0; 3], [width, depth, f64::from(self.height_m)]]),
            rings,
            looks_from,
        }
    }
}
