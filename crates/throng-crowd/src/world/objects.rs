//! The objects other than characters.

use std::f32::consts::TAU;

use crate::scenario::Scenario;

use super::{family, mix, spawn};

/// Distance of the nearest and of the farthest chest from the spawn point it surrounds, in metres.
const CHEST_DISTANCE_M: [f32; 2] = [2.0, 8.0];

/// Where the `chest`-th chest around the spawn point of the `slot`-th character lies.
pub fn chest_position(scenario: &Scenario, slot: u32, chest: u32) -> [f32; 3] {
    let stream = u64::from(slot) << 32 | u64::from(chest);
    let mut rng = fastrand::Rng::with_seed(mix(scenario.seed, family::CHEST, stream));
    let [near, far] = CHEST_DISTANCE_M;
    let (distance_m, angle) = (near + rng.f32() * (far - near), rng.f32() * TAU);
    let home = spawn::point(scenario, slot);
    let [x, y] = [home[0] + distance_m * angle.cos(), home[1] + distance_m * angle.sin()];
    let [half_x, half_y] = scenario.area_m.map(|side| side / 2.0);
    [x.clamp(-half_x, half_x), y.clamp(-half_y, half_y), 0.0]
}

/// The chest's generated property: another value every `chest_change_ticks`.
pub fn chest_contents(scenario: &Scenario, tick: u32, slot: u32, chest: u32) -> u16 {
    let period = tick / scenario.chest_change_ticks.max(1);
    let base = mix(scenario.seed, family::CHEST, u64::from(slot) << 32 | u64::from(chest)) as u16;
    base.wrapping_add(period.wrapping_mul(40_503) as u16)
}

/// Where the objects that never change lie.
#[derive(Clone, Debug)]
pub struct IdleObjects {
    rng: fastrand::Rng,
    area_m: [f32; 2],
    left: u32,
}

impl IdleObjects {
    /// All idle objects of the scenario, one after the other, anywhere on the ground.
    pub fn new(scenario: &Scenario) -> IdleObjects {
        IdleObjects {
            rng: fastrand::Rng::with_seed(mix(scenario.seed, family::IDLE, 0)),
            area_m: scenario.area_m,
            left: scenario.idle_objects,
        }
    }
}

impl Iterator for IdleObjects {
    type Item = [f32; 3];

    fn next(&mut self) -> Option<[f32; 3]> {
        self.left = self.left.checked_sub(1)?;
        let [width, depth] = self.area_m;
        Some([(self.rng.f32() - 0.5) * width, (self.rng.f32() - 0.5) * depth, 0.0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Overrides;

    #[test]
    fn chests_surround_their_character_and_change_every_period() {
        let mut scenario = Scenario::resolve("sparse-10", &Overrides::default()).unwrap();
        scenario.chest_change_ticks = 3;
        for slot in 0..scenario.players {
            let home = spawn::point(&scenario, slot);
            for chest in 0..scenario.chests_per_player {
                let [x, y, _] = chest_position(&scenario, slot, chest);
                let distance_m = (x - home[0]).hypot(y - home[1]);
                assert!((1.9..8.1).contains(&distance_m), "{distance_m}");
                let contents = |tick| chest_contents(&scenario, tick, slot, chest);
                assert_eq!(contents(3), contents(5));
                assert_ne!(contents(5), contents(6));
            }
        }
    }

    #[test]
    fn there_are_as_many_idle_objects_as_asked_for() {
        let overrides = Overrides { idle_objects: Some(1000), ..Overrides::default() };
        let scenario = Scenario::resolve("crowd", &overrides).unwrap();
        let all: Vec<_> = IdleObjects::new(&scenario).collect();
        assert_eq!(all.len(), 1000);
        assert!(all.iter().all(|[x, y, _]| x.abs() <= 50.0 && y.abs() <= 50.0));
        assert!(all.windows(2).any(|pair| pair[0] != pair[1]));
    }
}
