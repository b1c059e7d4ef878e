//! The places worth a look: eyes, bodies, smoke and walls, as perception asks for them.

use glam::Vec3;
use throng_agent::{Look, POINTS_MAX, Pair, PerceptionOptions, Scene};
use throng_sight::{Ray, town};

use crate::Seat;
use crate::ability::{SMOKES_MAX, WALLS_MAX};
use crate::angle::{right_of, sine_cosine};
use crate::rules::SEATS_MAX;
use crate::senses::{Senses, SmokeSeen, WallSeen};

/// Points of a body that are looked at: head, chest, and both shoulders.
pub(super) const POINTS: u32 = 4;
/// How far agents see.
const RANGE_M: f32 = 120.0;
/// The cosine of half of the field of view: 120 degrees in all.
const FIELD: f32 = 0.5;
/// Nearer enemies are heard: the field of view does not matter.
const HEARD_M: f32 = 7.0;
/// From the middle to a shoulder.
const SHOULDER_M: f32 = 0.24;

/// The options of perception for agents of a match: `rays_per_tick` for all of them.
pub fn options(rays_per_tick: u32, tick_hz: u32) -> PerceptionOptions {
    PerceptionOptions { rays_per_tick, points_max: POINTS, tick_hz, recheck_ms: 500, layers: town::SIGHT }
}

/// The points of a body that an eye looks at.
pub(super) fn points(eye: Vec3, feet: Vec3, eye_height: f32) -> [Vec3; POINTS_MAX] {
    let way = feet - eye;
    let side = Vec3::new(-way.z, 0.0, way.x).normalize_or_zero() * SHOULDER_M;
    let up = |share: f32| feet + Vec3::new(0.0, share * eye_height, 0.0);
    let mut points = [Vec3::ZERO; POINTS_MAX];
    points[..4].copy_from_slice(&[up(1.0), up(0.72), up(0.8) + side, up(0.8) - side]);
    points
}

#[derive(Clone, Copy, Default)]
struct Body {
    feet: Vec3,
    eye_height: f32,
    yaw: u16,
    is_there: bool,
}

/// The scene of a tick for any number of viewers. Keep it: it then does not allocate.
#[derive(Clone)]
pub(crate) struct Scenery {
    bodies: [Body; SEATS_MAX],
    /// Which enemies the server shows to a seat now, one bit for each.
    shown: [u32; SEATS_MAX],
    smokes: Vec<SmokeSeen>,
    walls: Vec<WallSeen>,
}

impl Scenery {
    pub(crate) fn new() -> Scenery {
        Scenery {
            bodies: [Body::default(); SEATS_MAX],
            shown: [0; SEATS_MAX],
            smokes: Vec::with_capacity(SMOKES_MAX),
            walls: Vec::with_capacity(WALLS_MAX),
        }
    }

    /// Begins a tick.
    pub(crate) fn clear(&mut self) {
        self.bodies = [Body::default(); SEATS_MAX];
        self.shown = [0; SEATS_MAX];
        self.smokes.clear();
        self.walls.clear();
    }

    /// Adds what a viewer knows: itself, and the enemies that it is shown, with the smokes and walls that it knows.
    pub(crate) fn add(&mut self, senses: &Senses<'_>) {
        let me = &senses.me;
        let Some(body) = self.bodies.get_mut(me.seat.index()) else { return };
        *body = Body { feet: me.position, eye_height: me.eye_height, yaw: me.yaw, is_there: me.is_alive };
        for enemy in senses.enemies.iter().filter(|enemy| enemy.seen_at == senses.tick) {
            if let Some(body) = self.bodies.get_mut(enemy.seat.index()) {
                *body = Body { feet: enemy.feet, eye_height: enemy.eye_height, yaw: enemy.yaw, is_there: true };
                self.shown[me.seat.index()] |= 1 << enemy.seat.index();
            }
        }
        for smoke in senses.smokes {
            if !self.smokes.contains(smoke) {
                self.smokes.push(*smoke);
            }
        }
        for wall in senses.walls {
            if !self.walls.contains(wall) {
                self.walls.push(*wall);
            }
        }
    }

    /// Whether smoke or a wall is between two points.
    pub(crate) fn is_covered(&self, from: Vec3, to: Vec3) -> bool {
        self.smokes.iter().any(|smoke| smoke.blocks(from, to)) || self.walls.iter().any(|wall| wall.blocks(from, to))
    }
}

impl Scene for Scenery {
    fn look(&self, pair: Pair) -> Look {
        let [viewer, target] = [pair.viewer as usize, pair.target as usize];
        let is_shown = self.shown.get(viewer).is_some_and(|shown| shown & (1 << target) != 0);
        let (Some(from), Some(to)) = (self.bodies.get(viewer), self.bodies.get(target)) else { return Look::Absent };
        if !is_shown || !from.is_there || !to.is_there {
            return Look::Absent;
        }
        let eye = from.feet + Vec3::new(0.0, from.eye_height, 0.0);
        let way = to.feet - from.feet;
        let distance = way.length();
        let (sine, cosine) = sine_cosine(from.yaw);
        let is_ahead = way.x * sine + way.z * cosine >= FIELD * distance;
        if distance > RANGE_M || !(is_ahead || distance < HEARD_M) {
            return Look::Outside;
        }
        Look::At { eye, points: points(eye, to.feet, to.eye_height), point_count: POINTS }
    }

    fn blocks(&self, ray: &Ray) -> bool {
        self.is_covered(ray.origin(), ray.at(ray.end_m()))
    }
}

/// The pairs of perception for some viewers: each of them looks at the seats of the other half.
pub(crate) fn pairs(viewers: impl Iterator<Item = Seat>, seats: usize) -> impl Iterator<Item = Pair> {
    viewers.flat_map(move |viewer| {
        let is_low = viewer.index() < seats / 2;
        let targets = if is_low { seats / 2..seats } else { 0..seats / 2 };
        targets.map(move |target| Pair { viewer: u32::from(viewer.0), target: target as u32 })
    })
}

/// The direction to the right of a yaw.
pub(super) fn right(yaw: u16) -> Vec3 {
    let (sine, cosine) = sine_cosine(yaw);
    right_of(sine, cosine)
}
