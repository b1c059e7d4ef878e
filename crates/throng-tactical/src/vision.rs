//! Viewers and whom they may see: fog of war, and what players remember of enemies.

use glam::{Quat, Vec3};
use throng::Tick;
use throng_match::Digest;
use throng_sight::fog::{Fog, FogAudit, FogCounts, FogOptions, FogWalls, FogWorld, Occluder, Target, Viewer};
use throng_sight::{Map, town};

use crate::ability::{Barrier, DASH_SPEED, SMOKE_RADIUS_M, SMOKES_MAX, Smoke, WALL_RISE_S, WALL_SIZE_M, WALLS_MAX};
use crate::angle::{sine_cosine_of, yaw_rad};
use crate::character::Character;
use crate::inbox::Inbox;
use crate::parts::Parts;
use crate::rules::Rules;
use crate::senses::Seen;
use crate::weapon::Weapon;

/// Nothing of a character is farther than this from its feet, level.
const WIDE_M: f32 = 0.7;
/// Nothing of a character is higher above its feet.
const HIGH_M: f32 = 1.9;
/// Nobody runs faster, in m/s.
const RUN_MAX: f32 = 6.0;

#[derive(Clone, Debug)]
pub(crate) struct Vision {
    fog: Fog,
    parts: Parts,
    seats: usize,
    viewers: Vec<Option<Viewer>>,
    ignores_latency: bool,
    targets: Vec<Option<Target>>,
    occluders: Vec<Occluder>,
    /// For each viewer all targets: whether it may see the target since the newest update.
    is_seen: Vec<bool>,
    /// For each viewer all targets: what was seen last of an enemy.
    remembered: Vec<Option<Seen>>,
}

/// Everything of a match that decides who may see whom.
pub(crate) struct Scene<'a> {
    pub(crate) walls: Option<&'a FogWalls>,
    pub(crate) rules: &'a Rules,
    pub(crate) characters: &'a [Character],
    pub(crate) inboxes: &'a [Inbox],
    pub(crate) smokes: &'a [Smoke],
    pub(crate) barriers: &'a [Barrier],
}

impl Vision {
    pub(crate) fn new(rules: &Rules) -> Vision {
        let seats = rules.seats();
        let options = FogOptions { tick_hz: rules.tick_hz as f32, climb_mps: 6.0, ..FogOptions::default() };
        Vision {
            fog: Fog::new(options, seats, seats),
            parts: Parts::new(options, seats),
            seats,
            viewers: vec![None; seats],
            ignores_latency: false,
            targets: vec![None; seats],
            occluders: Vec::with_capacity(SMOKES_MAX + WALLS_MAX),
            is_seen: vec![false; seats * seats],
            remembered: vec![None; seats * seats],
        }
    }

    /// Whether the viewer may be sent the target. The one place that decides it.
    pub(crate) fn visible(&self, viewer: usize, target: usize) -> bool {
        self.is_seen[viewer * self.seats + target]
    }

    /// A viewer's memory of an enemy that is hidden now.
    pub(crate) fn remembered(&self, viewer: usize, target: usize) -> Option<&Seen> {
        self.remembered[viewer * self.seats + target].as_ref()
    }

    /// Whether the viewer knows the smoke or the wall with this number.
    pub(crate) fn knows_part(&self, viewer: usize, number: u32) -> bool {
        self.parts.knows(viewer, number)
    }

    /// From now on the fog takes everybody's latency for none.
    pub(crate) fn ignore_latency(&mut self) {
        self.ignores_latency = true;
    }

    pub(crate) fn audit(&self, pairs_per_tick: usize) -> FogAudit {
        FogAudit::new(&self.fog, pairs_per_tick)
    }

    pub(crate) fn watch(&self, now: Tick, map: &Map, audit: &mut FogAudit) {
        audit.watch(now.0, &self.fog, (map, town::SIGHT), &self.viewers, &self.targets);
    }

    /// Work of the looks at enemies.
    pub(crate) fn counts(&self) -> FogCounts {
        self.fog.counts()
    }

    /// A new round: nobody remembers anybody.
    pub(crate) fn forget(&mut self) {
        self.remembered.fill(None);
    }

    pub(crate) fn update(&mut self, now: Tick, scene: &Scene<'_>) {
        let walls = scene.walls.filter(|_| scene.rules.has_fog);
        if let Some(walls) = walls {
            self.look(now, scene, walls);
        }
        let world = walls.map(|walls| FogWorld { walls, occluders: &self.occluders });
        let parts = (scene.smokes, scene.barriers);
        self.parts.update(now, parts, (scene.characters, &self.viewers), world.as_ref());
        self.settle(now, scene, walls.is_some());
    }

    fn look(&mut self, now: Tick, scene: &Scene<'_>, walls: &FogWalls) {
        self.occluders.clear();
        self.occluders.extend(scene.smokes.iter().filter(|smoke| smoke.is_thick(now)).map(of_smoke));
        let rise = scene.rules.ticks(WALL_RISE_S);
        let is_up = |barrier: &&Barrier| now >= barrier.from.after(rise);
        self.occluders.extend(scene.barriers.iter().filter(is_up).map(of_barrier));
        let interpolation_ms = f32::from(scene.rules.interpolation_ticks) * 1_000.0 / scene.rules.tick_hz as f32;
        for (place, character) in scene.characters.iter().enumerate() {
            if !character.is_alive {
                (self.viewers[place], self.targets[place]) = (None, None);
                continue;
            }
            let mover = &character.mover;
            let can_dash = character.charges.dash > 0 || character.dash.is_some();
            let speed_max_mps = if can_dash { DASH_SPEED } else { RUN_MAX };
            let wide = Vec3::new(WIDE_M, 0.0, WIDE_M);
            let group = character.team as u8;
            self.viewers[place] = Some(Viewer {
                group,
                eye: mover.eye(),
                velocity: mover.velocity,
                speed_max_mps,
                latency_ms: scene.inboxes[place].rtt_us as f32 / 1_000.0 + interpolation_ms,
            });
            self.targets[place] = Some(Target {
                group,
                lowest: mover.feet - wide - Vec3::new(0.0, 0.1, 0.0),
                highest: mover.feet + wide + Vec3::new(0.0, HIGH_M, 0.0),
                velocity: mover.velocity,
                speed_max_mps,
            });
        }
        let world = FogWorld { walls, occluders: &self.occluders };
        if self.ignores_latency {
            let viewers: Vec<Option<Viewer>> =
                self.viewers.iter().map(|viewer| viewer.map(|viewer| Viewer { latency_ms: 0.0, ..viewer })).collect();
            self.fog.update(now.0, &world, &viewers, &self.targets);
        } else {
            self.fog.update(now.0, &world, &self.viewers, &self.targets);
        }
    }

    /// Notes who is in sight, and where: those who go out of it are remembered as they were in their last tick in sight.
    fn settle(&mut self, now: Tick, scene: &Scene<'_>, has_fog: bool) {
        for (from, viewer) in scene.characters.iter().enumerate() {
            for (to, target) in scene.characters.iter().enumerate() {
                let place = from * self.seats + to;
                let is_mate = viewer.team == target.team;
                let is_in_sight = !has_fog || self.fog.may_see(from, to);
                let may_see = is_mate || (viewer.is_alive && target.is_alive && is_in_sight);
                if is_mate || !target.is_alive {
                    self.remembered[place] = None;
                } else if may_see {
                    self.remembered[place] = Some(seen(target, now));
                }
                self.is_seen[place] = may_see;
            }
        }
    }

    pub(crate) fn digest(&self, hash: &mut Digest) {
        for bits in self.is_seen.chunks(64) {
            hash.add(bits.iter().enumerate().fold(0, |word, (bit, is_seen)| word | u64::from(*is_seen) << bit));
        }
        self.parts.digest(hash);
        for seen in self.remembered.iter().flatten() {
            hash.add(seen.seen_at.0 << 16 | u64::from(seen.seat.0));
            hash.add_f32s(&seen.feet.to_array());
        }
    }
}

/// The state of an enemy as a viewer sees it.
pub(crate) fn seen(target: &Character, now: Tick) -> Seen {
    Seen {
        seat: target.seat,
        feet: target.mover.feet,
        eye_height: target.mover.eye_height(),
        velocity: target.mover.velocity,
        yaw: target.yaw,
        weapon: target.weapons[target.hand as usize].map_or(Weapon::Pistol, |carried| carried.weapon),
        seen_at: now,
    }
}

fn of_smoke(smoke: &Smoke) -> Occluder {
    Occluder::Ball { middle: smoke.middle, radius_m: SMOKE_RADIUS_M }
}

fn of_barrier(barrier: &Barrier) -> Occluder {
    let (sine, cosine) = sine_cosine_of(yaw_rad(barrier.yaw) / 2.0);
    Occluder::Cuboid {
        middle: barrier.foot + Vec3::new(0.0, WALL_SIZE_M.y / 2.0, 0.0),
        half: Vec3::new(WALL_SIZE_M.x, WALL_SIZE_M.y / 2.0, WALL_SIZE_M.z),
        rotation: Quat::from_xyzw(0.0, sine, 0.0, cosine),
    }
}
