//! How a player walks.
//!
//! It keeps moving forward. Each second it turns left or right with a chance of one in ten, and jumps with the same
//! chance. At the edge of the world and at the pillars that stand every 60 m it turns round.

use fastrand::Rng;

use crate::load::GRID_CELLS;

/// Side of the square world, in metres.
pub(super) const SIDE_M: f32 = 300.0;
/// Side of a cell, in metres.
pub(super) const CELL_M: f32 = SIDE_M / GRID_CELLS as f32;
/// Speed of a player, in metres per second.
pub(super) const SPEED_M_PER_S: f32 = 6.0;

const CHANCE_PER_S: f32 = 0.1;
const PILLAR_SPACING_M: f32 = 60.0;
const PILLAR_RADIUS_M: f32 = 2.0;
const JUMP_S: f32 = 0.8;
const JUMP_M: f32 = 1.2;

/// A player's body. The world's corner is at (0, 0); `x` and `y` span the ground, `z` is up; metres and radians.
#[derive(Clone, Debug)]
pub(super) struct Walker {
    pub(super) x_m: f32,
    pub(super) y_m: f32,
    pub(super) z_m: f32,
    pub(super) yaw: f32,
    heading: (f32, f32),
    jump_s: f32,
    until_choice_s: f32,
    rng: Rng,
}

impl Walker {
    /// Where the player of a connection begins: both sides know it without a word.
    pub(super) fn of_connection(connection: u32) -> Walker {
        let mut rng = Rng::with_seed(u64::from(connection));
        let margin_m = 1.0;
        let mut place = || margin_m + rng.f32() * (SIDE_M - 2.0 * margin_m);
        let (x_m, y_m) = (place(), place());
        let yaw = rng.f32() * std::f32::consts::TAU;
        let until_choice_s = rng.f32();
        let heading = (yaw.cos(), yaw.sin());
        Walker { x_m, y_m, z_m: 0.0, yaw, heading, jump_s: 0.0, until_choice_s, rng }
    }

    /// Moves on by this many seconds.
    pub(super) fn step(&mut self, seconds: f32) {
        self.until_choice_s -= seconds;
        if self.until_choice_s <= 0.0 {
            self.until_choice_s += 1.0;
            self.choose();
        }
        self.jump_s = (self.jump_s - seconds).max(0.0);
        let height = self.jump_s / JUMP_S;
        self.z_m = 4.0 * JUMP_M * height * (1.0 - height);
        let x_m = self.x_m + self.heading.0 * SPEED_M_PER_S * seconds;
        let y_m = self.y_m + self.heading.1 * SPEED_M_PER_S * seconds;
        let inside = 0.0..SIDE_M;
        if !inside.contains(&x_m) || !inside.contains(&y_m) || is_pillar(x_m, y_m) && !is_pillar(self.x_m, self.y_m) {
            return self.turn(std::f32::consts::PI);
        }
        (self.x_m, self.y_m) = (x_m, y_m);
    }

    fn choose(&mut self) {
        if self.rng.f32() < CHANCE_PER_S {
            let right = std::f32::consts::FRAC_PI_2;
            let angle = if self.rng.bool() { right } else { -right };
            self.turn(angle);
        }
        if self.rng.f32() < CHANCE_PER_S {
            self.jump_s = JUMP_S;
        }
    }

    fn turn(&mut self, angle: f32) {
        self.yaw = (self.yaw + angle).rem_euclid(std::f32::consts::TAU);
        self.heading = (self.yaw.cos(), self.yaw.sin());
    }
}

fn is_pillar(x_m: f32, y_m: f32) -> bool {
    let off = |at: f32| at.rem_euclid(PILLAR_SPACING_M) - PILLAR_SPACING_M / 2.0;
    off(x_m).hypot(off(y_m)) < PILLAR_RADIUS_M
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walker_stays_in_the_world_and_gets_around() {
        for connection in 1..50 {
            let mut walker = Walker::of_connection(connection);
            let (mut walked_m, mut turns, mut highest_m) = (0.0, 0, 0f32);
            for _ in 0..30 * 120 {
                let before = walker.clone();
                walker.step(1.0 / 30.0);
                walked_m += (walker.x_m - before.x_m).hypot(walker.y_m - before.y_m);
                turns += u32::from(walker.yaw != before.yaw);
                highest_m = highest_m.max(walker.z_m);
                assert!((0.0..SIDE_M).contains(&walker.x_m) && (0.0..SIDE_M).contains(&walker.y_m));
            }
            assert!(walked_m > 500.0 && turns > 0 && highest_m > 0.5, "{connection}: {walked_m} m, {turns} turns");
        }
    }

    #[test]
    fn both_sides_agree_on_where_it_begins() {
        let (here, there) = (Walker::of_connection(7), Walker::of_connection(7));
        assert_eq!((here.x_m, here.y_m, here.yaw), (there.x_m, there.y_m, there.yaw));
    }
}
