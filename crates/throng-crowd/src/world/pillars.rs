use crate::scenario::Scenario;

use super::{family, mix};

/// The free disc around the centre, where converging characters gather.
const CLEAR_RADIUS_M: f32 = 5.0;

/// A square, as high as the room, that blocks characters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pillar {
    /// Middle, in metres from the centre of the area.
    pub centre: [f32; 2],
    /// Half of a side, in metres.
    pub half_m: f32,
}

impl Pillar {
    /// Whether the point is inside.
    pub fn holds(&self, [x, y]: [f32; 2]) -> bool {
        (x - self.centre[0]).abs() < self.half_m && (y - self.centre[1]).abs() < self.half_m
    }
}

/// All pillars of a room.
#[derive(Clone, Debug, Default)]
pub(super) struct Pillars {
    pillars: Vec<Pillar>,
}

impl Pillars {
    pub(super) fn new(scenario: &Scenario) -> Pillars {
        let mut rng = fastrand::Rng::with_seed(mix(scenario.seed, family::PILLARS, 0));
        let [width, depth] = scenario.area_m;
        let largest_m = (width.min(depth) * 0.02).min(2.0);
        let pillars = (0..scenario.obstacles).filter_map(|_| {
            let half_m = largest_m * (0.5 + rng.f32() / 2.0);
            let centre = [(rng.f32() - 0.5) * width, (rng.f32() - 0.5) * depth];
            let clear_m = CLEAR_RADIUS_M.min(largest_m * 4.0) + half_m;
            (centre[0].hypot(centre[1]) > clear_m).then_some(Pillar { centre, half_m })
        });
        Pillars { pillars: pillars.collect() }
    }

    pub(super) fn block(&self, at: [f32; 2]) -> bool {
        self.pillars.iter().any(|pillar| pillar.holds(at))
    }

    pub(super) fn as_slice(&self) -> &[Pillar] {
        &self.pillars
    }
}
