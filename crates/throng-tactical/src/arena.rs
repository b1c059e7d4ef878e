//! The map of a match, and the places on it that the rules need.

use std::fmt;
use std::sync::Arc;

use glam::{Vec3, vec3};
use thiserror::Error;
use throng_sight::fog::FogWalls;
use throng_sight::{Map, Ray, town};

use crate::rules::TEAM_SIZE_MAX;
use crate::senses::{Site, Team};
use crate::solid::{Body, Solids};

/// Players begin at least so far from each other, in metres.
const SPAWN_DISTANCE_M: f32 = 1.0;
/// So many places of a box are looked at.
const PLACES_MAX: f64 = 65_536.0;
/// Places of a spawn box are tried in steps of so many metres.
const SPAWN_STEP_M: f32 = 0.5;

/// A map with its sites and the places where players begin. Shared by all matches on it.
#[derive(Clone)]
pub struct Arena {
    inner: Arc<Inner>,
}

struct Inner {
    map: Map,
    walls: Option<FogWalls>,
    sites: Vec<Site>,
    spawns: [Vec<Vec3>; 2],
    lowest_m: f32,
}

/// Why a map is no arena. The map is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// A named place is missing.
    #[error("the map has no place with the name `{name}`: the game needs spawn/a, spawn/b, site/a and site/b")]
    NoMark {
        /// Its name.
        name: &'static str,
    },
    /// Not enough free ground for a team.
    #[error(
        "only {found} players can stand at `{name}`, and {TEAM_SIZE_MAX} should: the box is too small, or not on ground"
    )]
    NoRoom {
        /// The name of the box.
        name: &'static str,
        /// Players that can stand there.
        found: usize,
    },
}

impl ArenaError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            ArenaError::NoMark { .. } => "arena_no_mark",
            ArenaError::NoRoom { .. } => "arena_no_room",
        }
    }
}

impl Arena {
    /// Looks for the named places of a map, for free ground where the teams begin, and for the walls that hide players.
    /// Takes about a second for a town: share the arena.
    ///
    /// # Errors
    /// A place is missing, or has no room.
    pub fn new(map: Map) -> Result<Arena, ArenaError> {
        let site = |name: &'static str| {
            let mark = map.marks().find(|mark| mark.name == name).ok_or(ArenaError::NoMark { name })?;
            let letter = if name.ends_with('a') { 'a' } else { 'b' };
            Ok(Site { name: letter, lowest: mark.bounds[0], highest: mark.bounds[1] })
        };
        let sites = vec![site("site/a")?, site("site/b")?];
        let spawns = [spawns(&map, "spawn/a")?, spawns(&map, "spawn/b")?];
        let lowest_m = map.bounds()[0].y;
        // A map without walls hides nobody.
        let walls = FogWalls::new(&map, town::SIGHT, town::BODIES).ok();
        Ok(Arena { inner: Arc::new(Inner { map, walls, sites, spawns, lowest_m }) })
    }

    /// The map.
    pub fn map(&self) -> &Map {
        &self.inner.map
    }

    /// The walls that hide players; none if nothing hides anybody.
    pub fn walls(&self) -> Option<&FogWalls> {
        self.inner.walls.as_ref()
    }

    /// Where the bomb can be planted.
    pub fn sites(&self) -> &[Site] {
        &self.inner.sites
    }

    /// Where the players of a team begin.
    pub fn spawns(&self, team: Team) -> &[Vec3] {
        &self.inner.spawns[team as usize]
    }

    /// The direction from a spawn to the middle of the map, as a yaw.
    pub fn spawn_yaw(&self, team: Team) -> u16 {
        let [lowest, highest] = self.map().bounds();
        let towards = (lowest + highest) / 2.0 - self.spawns(team)[0];
        // Of eight directions the nearest one, so that no function of the standard library decides.
        let eighth = |turn: u16| crate::angle::direction(turn * 8_192, 0).dot(towards);
        let best = (0..8).max_by(|a, b| eighth(*a).total_cmp(&eighth(*b))).unwrap_or(0);
        best * 8_192
    }

    /// Nothing that is still in the game is below this height.
    pub fn lowest_m(&self) -> f32 {
        self.inner.lowest_m
    }

    /// Whether nothing that blocks bullets is between two points.
    pub fn is_open(&self, from: Vec3, to: Vec3) -> bool {
        Ray::between(from, to).is_ok_and(|ray| !self.map().is_blocked(&ray, town::BULLETS))
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("map", &self.inner.map).field("sites", &self.inner.sites).finish_non_exhaustive()
    }
}

/// Free places in the box of a mark, the nearest to its middle first.
fn spawns(map: &Map, name: &'static str) -> Result<Vec<Vec3>, ArenaError> {
    let mark = map.marks().find(|mark| mark.name == name).ok_or(ArenaError::NoMark { name })?;
    let [lowest, highest] = mark.bounds;
    let middle = (lowest + highest) / 2.0;
    // A map may call all of itself a place.
    let area_m2 = f64::from(highest.x - lowest.x) * f64::from(highest.z - lowest.z);
    let step_m = SPAWN_STEP_M.max((area_m2 / PLACES_MAX).sqrt() as f32);
    let count = |axis: usize| (((highest[axis] - lowest[axis]) / step_m) as usize).min(PLACES_MAX as usize);
    let mut places = Vec::new();
    for x in 0..=count(0) {
        for z in 0..=count(2) {
            let place = lowest + step_m * vec3(x as f32, 0.0, z as f32);
            let from = vec3(place.x, highest.y, place.z);
            let ray = Ray::new(from, Vec3::NEG_Y, highest.y - lowest.y + 1.0);
            let ground = ray.ok().and_then(|ray| Some(ray.at(map.closest(&ray, town::BODIES)?.distance_m)));
            let mut solids = Solids::new();
            let is_free = |feet: &Vec3| solids.is_free(map, Body::standing(), *feet);
            places.extend(ground.filter(is_free));
        }
    }
    places.sort_by(|a: &Vec3, b: &Vec3| (*a - middle).length_squared().total_cmp(&(*b - middle).length_squared()));
    let mut chosen: Vec<Vec3> = Vec::new();
    for place in places {
        let is_apart = chosen.iter().all(|other| other.distance(place) >= SPAWN_DISTANCE_M);
        if is_apart && chosen.len() < usize::from(TEAM_SIZE_MAX) {
            chosen.push(place);
        }
    }
    if chosen.len() < usize::from(TEAM_SIZE_MAX) {
        return Err(ArenaError::NoRoom { name, found: chosen.len() });
    }
    Ok(chosen)
}
