//! Where the world of a scenario lies in the replicated space, and who sees what of it.

use throng::{FarOptions, GridOptions, GridShape, Up};

use super::{Far, LooksFrom, Model, Ring, Scenario, View};

impl Scenario {
    /// The world counts from the centre of its area; what is replicated counts from the corner, where the first cell begins.
    pub fn from_corner(&self, position: [f32; 3]) -> [f32; 3] {
        let [width, depth] = self.area_m;
        [position[0] + width / 2.0, position[1] + depth / 2.0, position[2]]
    }

    /// The cells of its area, and the distances at which clients are sent them; then the cells for what they see from afar,
    /// if they do: see [`Scenario::far_options`].
    pub fn grids(&self) -> Vec<GridOptions> {
        let [width, depth] = self.area_m.map(f64::from);
        let rings = match self.view {
            View::Rings => rings(&self.rings),
            View::Everything => vec![throng::Ring { radius_m: width.hypot(depth), interval_ticks: 1 }],
        };
        let looks_from = match self.looks_from {
            LooksFrom::Position => throng::LooksFrom::Position,
            LooksFrom::Cell => throng::LooksFrom::Cell,
        };
        let grid = |cell_m: [f32; 3], rings| GridOptions {
            shape: GridShape::flat(Up::Z, cell_m.map(f64::from)),
            bounds_m: Some([[0.0; 3], [width, depth, f64::from(self.height_m)]]),
            rings,
            looks_from,
        };
        let far = self.seen_from_afar().map(|far| grid(far.cell_m, self::rings(&far.rings)));
        std::iter::once(grid(self.cell_m, rings)).chain(far).collect()
    }

    /// How clients see what is far away.
    pub fn far_options(&self) -> Option<FarOptions> {
        self.seen_from_afar().map(|far| FarOptions { grid: 1, parts: far.parts })
    }

    /// The most ticks between two sends of a cell.
    pub fn slowest_interval_ticks(&self) -> u32 {
        let far = self.seen_from_afar().into_iter().flat_map(|far| &far.rings);
        self.rings.iter().chain(far).map(|ring| ring.interval_ticks).max().unwrap_or(1)
    }

    fn seen_from_afar(&self) -> Option<&Far> {
        self.far.as_ref().filter(|_| self.model == Model::Throng && self.view == View::Rings)
    }
}

fn rings(rings: &[Ring]) -> Vec<throng::Ring> {
    let ring = |ring: &Ring| throng::Ring { radius_m: f64::from(ring.radius_m), interval_ticks: ring.interval_ticks };
    rings.iter().map(ring).collect()
}
