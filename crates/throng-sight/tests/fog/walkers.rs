//! Players who walk through a town.

use fastrand::Rng;
use glam::{Vec3, vec3};
use throng_sight::fog::{FogWalls, FogWorld, Occluder, Target, Viewer};
use throng_sight::{Map, Ray, bake, town};

pub(super) const SPEED_MPS: f32 = 6.0;
const RADIUS_M: f32 = 0.4;
const HEIGHT_M: f32 = 1.8;
const EYE_M: f32 = 1.65;

pub(super) struct Town {
    pub(super) map: Map,
    pub(super) walls: FogWalls,
}

impl Town {
    pub(super) fn new(seed: u64, triangles: usize) -> Town {
        let map = bake(&town::town(seed, triangles)).unwrap();
        let walls = FogWalls::new(&map, town::SIGHT, town::BODIES).unwrap();
        Town { map, walls }
    }

    pub(super) fn world<'a>(&'a self, occluders: &'a [Occluder]) -> FogWorld<'a> {
        FogWorld { walls: &self.walls, occluders }
    }

    /// Somebody who stands on a floor or in a street.
    pub(super) fn walker(&self, random: &mut Rng) -> Walker {
        let [low, high] = self.map.bounds();
        loop {
            let point = low + (high - low) * vec3(random.f32(), 0.0, random.f32());
            let from = vec3(point.x, [1.0, 1.0, 4.0][random.usize(..3)], point.z);
            let Some(feet) = floor(&self.map, from) else { continue };
            let walker = Walker { feet, heading: 0.0, velocity: Vec3::ZERO, rise_mps: 0.0, air_m: 0.0 };
            if walker.fits(&self.map, feet) {
                return walker;
            }
        }
    }
}

fn floor(map: &Map, from: Vec3) -> Option<Vec3> {
    let down = Ray::new(from, -Vec3::Y, 4.0).ok()?;
    map.closest(&down, town::BODIES).map(|hit| down.at(hit.distance_m))
}

#[derive(Clone)]
pub(super) struct Walker {
    feet: Vec3,
    heading: f32,
    velocity: Vec3,
    rise_mps: f32,
    air_m: f32,
}

impl Walker {
    pub(super) fn eye(&self) -> Vec3 {
        self.feet + EYE_M * Vec3::Y
    }

    pub(super) fn bounds(&self) -> [Vec3; 2] {
        [self.feet - vec3(RADIUS_M, 0.0, RADIUS_M), self.feet + vec3(RADIUS_M, HEIGHT_M, RADIUS_M)]
    }

    pub(super) fn viewer(&self, place: usize, latency_ms: f32) -> Viewer {
        let group = (place % 2) as u8;
        Viewer { group, eye: self.eye(), velocity: self.velocity, speed_max_mps: SPEED_MPS, latency_ms }
    }

    pub(super) fn target(&self, place: usize) -> Target {
        let [lowest, highest] = self.bounds();
        let group = (place % 2) as u8;
        Target { group, lowest, highest, velocity: self.velocity, speed_max_mps: SPEED_MPS }
    }

    /// Runs ahead, turns at walls and at whim, stops, goes back, jumps, takes stairs.
    pub(super) fn step(&mut self, map: &Map, step_s: f32, random: &mut Rng) {
        match random.u8(..) {
            0..4 => self.heading += 4.0 * (random.f32() - 0.5),
            4 => self.heading += std::f32::consts::PI,
            5 if self.air_m == 0.0 => self.rise_mps = 3.5,
            _ => {}
        }
        let way = vec3(self.heading.cos(), 0.0, self.heading.sin()) * SPEED_MPS * step_s;
        let before = self.feet;
        self.rise_mps -= 9.81 * step_s;
        self.air_m = (self.air_m + self.rise_mps * step_s).max(0.0);
        let ground = self.feet + way + 0.5 * Vec3::Y;
        let next = floor(map, ground).filter(|next| (next.y - (self.feet.y - self.air_m)).abs() < 0.25);
        match next.map(|next| next + self.air_m * Vec3::Y).filter(|next| self.fits(map, *next)) {
            Some(next) => self.feet = vec3(next.x, self.feet.y + (next.y - self.feet.y).clamp(-0.03, 0.03), next.z),
            None => {
                self.heading += 2.0 * random.f32();
                (self.air_m, self.rise_mps) = (0.0, 0.0);
            }
        }
        if self.air_m == 0.0 {
            self.rise_mps = 0.0;
        }
        self.velocity = (self.feet - before) / step_s;
    }

    /// Whether no wall is within the body, at some heights and in sixteen directions.
    fn fits(&self, map: &Map, feet: Vec3) -> bool {
        [0.4, 0.9, 1.3, EYE_M, 1.75].iter().all(|height| {
            let middle = feet + *height * Vec3::Y;
            (0..16).all(|direction| {
                let angle = std::f32::consts::TAU * direction as f32 / 16.0;
                let side = middle + 1.05 * RADIUS_M * vec3(angle.cos(), 0.0, angle.sin());
                Ray::between(middle, side).is_ok_and(|ray| !map.is_blocked(&ray, town::BODIES))
            })
        })
    }
}
