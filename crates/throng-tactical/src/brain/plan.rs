//! The choice of the next action: by the phase, the team and the bomb.

use std::f32::consts::TAU;

use fastrand::Rng;
use glam::Vec3;
use throng_agent::CellId;
use throng_sight::{Ray, town};

use super::World;
use super::route::Route;
use crate::Seat;
use crate::angle::sine_cosine_of;
use crate::senses::{BombSeen, RoundPhase, Senses, Site, Team};

/// Planting and defusing work so near to the place.
const AT_HAND_M: f32 = 0.9;
/// Knowledge about enemies counts so long, in seconds.
const FRESH_S: f32 = 6.0;
/// An enemy within this distance of a site attacks it.
const AT_SITE_M: f32 = 22.0;

/// Too little is left of the fuse to do anything but run, in seconds.
const LATE_S: f32 = 6.0;
/// To there.
const AWAY_M: [f32; 2] = [25.0, 32.0];

/// Farther than this, all is equally free.
const FAR_M: f32 = 30.0;

/// The next action of a player.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Task {
    /// Nothing: the player is dead, or the round is over.
    #[default]
    Wait,
    /// Buy, and stand.
    Buy,
    /// Go somewhere; pick up what lies there.
    Walk {
        /// There.
        to: CellId,
    },
    /// Stand at a place and watch.
    Hold {
        /// There.
        at: CellId,
    },
    /// Plant or defuse: stand still and hold the button.
    Use,
}

/// The decisions of a round that stay.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The same for the whole team, so that it goes to one site.
    team_seed: u64,
    round: u16,
    /// Where the player stands guard, and around which place that is.
    post: Option<(CellId, Vec3)>,
    /// Where the bomb is to be planted.
    spot: Option<CellId>,
    /// Where to look around, and how much is to see there.
    view: (Vec3, f32),
    view_until_s: f32,
}

impl Plan {
    pub(super) fn new(team_seed: u64) -> Plan {
        Plan { team_seed, round: 0, post: None, spot: None, view: (Vec3::Z, 0.0), view_until_s: 0.0 }
    }

    /// Whether a new round has begun since the last call.
    pub(super) fn begins(&mut self, senses: &Senses<'_>) -> bool {
        if self.round == senses.round {
            return false;
        }
        *self = Plan { round: senses.round, ..Plan::new(self.team_seed) };
        true
    }

    /// The same round with other places.
    pub(super) fn afresh(&self) -> Plan {
        Plan { round: self.round, view: self.view, ..Plan::new(self.team_seed) }
    }

    /// Where to look around now.
    pub(super) fn view(&self) -> Vec3 {
        self.view.0
    }

    /// Whether to glance there while walking: a part of the time.
    pub(super) fn glances(&self) -> bool {
        self.view_until_s < 0.4
    }

    /// Decides.
    pub(super) fn task(&mut self, senses: &Senses<'_>, world: &World<'_>, route: &Route, random: &mut Rng) -> Task {
        if !senses.me.is_alive || senses.sites.is_empty() {
            return Task::Wait;
        }
        match senses.phase {
            RoundPhase::Buy => Task::Buy,
            RoundPhase::End | RoundPhase::Over => Task::Wait,
            RoundPhase::Live => match senses.me.team {
                Team::Attackers => self.attack(senses, world, route, random),
                Team::Defenders => self.defend(senses, world, random),
            },
        }
    }

    fn attack(&mut self, senses: &Senses<'_>, world: &World<'_>, route: &Route, random: &mut Rng) -> Task {
        let feet = senses.me.position;
        let site = &senses.sites[self.number() as usize % senses.sites.len()];
        match senses.bomb {
            _ if senses.me.has_bomb => {
                let spot = self.spot(site, world, random);
                let is_there = site.holds(feet) && (is_at(world, spot, feet) || route.stuck > 1);
                if is_there { Task::Use } else { go(spot) }
            }
            BombSeen::Dropped(place) if is_nearest(senses, place) => go(world.cell(place, 3.0)),
            BombSeen::Dropped(place) => self.hold(place, [2.0, 7.0], senses, world, random),
            BombSeen::Planted { position, ticks_left, .. } if is_late(senses, ticks_left) => {
                self.hold(position, AWAY_M, senses, world, random)
            }
            BombSeen::Planted { position, .. } => self.hold(position, [3.0, 11.0], senses, world, random),
            _ => self.hold(site.middle(), [0.0, 8.0], senses, world, random),
        }
    }

    fn defend(&mut self, senses: &Senses<'_>, world: &World<'_>, random: &mut Rng) -> Task {
        match senses.bomb {
            BombSeen::Planted { position, ticks_left, .. }
                if is_late(senses, ticks_left) && senses.me.progress == 0 =>
            {
                self.hold(position, AWAY_M, senses, world, random)
            }
            BombSeen::Planted { position, .. } => {
                if !is_nearest(senses, position) {
                    return self.hold(position, [1.0, 6.0], senses, world, random);
                }
                let way = position - senses.me.position;
                let is_there = Vec3::new(way.x, 0.0, way.z).length() < AT_HAND_M && way.y.abs() < 1.5;
                if is_there { Task::Use } else { go(world.cell(position, 3.0)) }
            }
            BombSeen::Dropped(place) => self.hold(place, [2.0, 8.0], senses, world, random),
            _ => {
                // Seats next to each other guard different sites; the round decides who stands alone.
                let own = (u64::from(senses.me.seat.0) + self.number()) as usize % senses.sites.len();
                let site = attacked(senses).unwrap_or(own);
                self.hold(senses.sites[site].middle(), [1.0, 10.0], senses, world, random)
            }
        }
    }

    /// A number of the round that all of the team know.
    fn number(&self) -> u64 {
        let mixed = (self.team_seed ^ u64::from(self.round)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)) >> 7
    }

    fn spot(&mut self, site: &Site, world: &World<'_>, random: &mut Rng) -> Option<CellId> {
        for _ in 0..4 {
            if self.spot.is_some() {
                break;
            }
            let part = Vec3::new(0.2 + 0.6 * random.f32(), 0.0, 0.2 + 0.6 * random.f32());
            let place = site.lowest + part * (site.highest - site.lowest);
            self.spot = world.cell(place, 2.0).filter(|cell| site.holds(world.navigation.point(*cell)));
        }
        self.spot
    }

    /// Guards a place from a post of the player's own, between two distances from it.
    fn hold(
        &mut self,
        place: Vec3,
        [near, far]: [f32; 2],
        senses: &Senses<'_>,
        world: &World<'_>,
        random: &mut Rng,
    ) -> Task {
        let is_right = |post: &(CellId, Vec3)| post.1.distance_squared(place) < 1.0;
        if !self.post.as_ref().is_some_and(is_right) {
            let post = world.post(place, near + (far - near) * random.f32(), random);
            self.post = post.map(|cell| (cell, place));
        }
        let Some((post, _)) = self.post else { return Task::Wait };
        if is_at(world, Some(post), senses.me.position) { Task::Hold { at: post } } else { Task::Walk { to: post } }
    }

    /// Looks around: where much is to see, and rather where enemies come from, or where the feet go. One ray for each
    /// direction.
    pub(super) fn look_around(&mut self, senses: &Senses<'_>, world: &World<'_>, fan: &mut Fan, random: &mut Rng) {
        self.view_until_s -= 1.0 / super::DECISIONS_PER_S as f32;
        if self.view_until_s <= 0.0 {
            (self.view, self.view_until_s) = ((self.view.0, 0.0), 1.0 + 1.5 * random.f32());
        }
        let eye = senses.me.eye();
        let newest = senses.enemies.iter().max_by_key(|enemy| enemy.seen_at);
        let threat = newest.map_or(world.threat - eye, |enemy| enemy.feet - eye);
        let wanted = [threat, senses.me.velocity].map(|way| Vec3::new(way.x, 0.0, way.z).normalize_or_zero());
        fan.cast(eye, world, random);
        for (ray, free_m) in fan.rays.iter().zip(&fan.free_m) {
            let towards = |way: Vec3| ray.direction().dot(way).max(0.0);
            let score = free_m * (0.6 + towards(wanted[0]) + 2.0 * towards(wanted[1]));
            if score > self.view.1 {
                self.view = (ray.direction(), score);
            }
        }
    }
}

/// Rays to all sides, and how far each is free.
#[derive(Clone, Debug)]
pub(super) struct Fan {
    count: u32,
    rays: Vec<Ray>,
    free_m: Vec<f32>,
    /// Rays so far.
    cast_count: u64,
}

impl Fan {
    pub(super) fn new(count: u32) -> Fan {
        Fan {
            count,
            rays: Vec::with_capacity(count as usize),
            free_m: Vec::with_capacity(count as usize),
            cast_count: 0,
        }
    }

    pub(super) fn cast_count(&self) -> u64 {
        self.cast_count
    }

    fn cast(&mut self, eye: Vec3, world: &World<'_>, random: &mut Rng) {
        let phase = random.f32();
        let steps = (0..self.count).map(|step| TAU * (step as f32 + phase) / self.count as f32);
        self.rays.clear();
        self.rays.extend(steps.filter_map(|turn| {
            let (sine, cosine) = sine_cosine_of(turn);
            let direction = Vec3::new(sine, 0.3 * (random.f32() - 0.5), cosine);
            Ray::new(eye, direction, FAR_M).ok()
        }));
        self.cast_count += self.rays.len() as u64;
        self.free_m.clear();
        self.free_m.resize(self.rays.len(), 0.0);
        world.rays.free_distances(&self.rays, town::SIGHT, &mut self.free_m);
    }
}

fn is_late(senses: &Senses<'_>, ticks_left: u32) -> bool {
    (ticks_left as f32) < LATE_S * senses.tick_hz as f32
}

fn go(to: Option<CellId>) -> Task {
    to.map_or(Task::Wait, |to| Task::Walk { to })
}

fn is_at(world: &World<'_>, cell: Option<CellId>, feet: Vec3) -> bool {
    cell.is_some_and(|cell| {
        let way = world.navigation.point(cell) - feet;
        Vec3::new(way.x, 0.0, way.z).length() < AT_HAND_M && way.y.abs() < 1.0
    })
}

/// Whether no living team mate is nearer to a place. Of two at the same distance the lower seat counts as nearer.
fn is_nearest(senses: &Senses<'_>, place: Vec3) -> bool {
    let key = |seat: Seat, feet: Vec3| (feet.distance(place), seat);
    let me = key(senses.me.seat, senses.me.position);
    senses.mates.iter().filter(|mate| mate.health > 0).all(|mate| me <= key(mate.seat, mate.position))
}

/// The site near which at least two enemies were seen lately.
fn attacked(senses: &Senses<'_>) -> Option<usize> {
    let fresh = FRESH_S * senses.tick_hz as f32;
    let near = |site: &Site| {
        let is_near = |feet: Vec3| feet.distance(site.middle()) < AT_SITE_M;
        let seen = senses.enemies.iter().filter(|enemy| senses.tick.0.saturating_sub(enemy.seen_at.0) as f32 <= fresh);
        seen.filter(|enemy| is_near(enemy.feet)).count()
    };
    let (site, count) = senses.sites.iter().map(near).enumerate().max_by_key(|(_, count)| *count)?;
    (count >= 2).then_some(site)
}
