//! Fog of war: which enemies a player may see, within the player's latency. See docs/sight.md.

mod audit;
pub(crate) mod cells;
mod cover;
mod occluder;
mod reach;
mod search;
mod shaft;
mod walls;

use glam::Vec3;

pub use audit::{AuditCounts, FogAudit};
pub use cells::{CellError, CellOptions, CellVisibility};
pub use occluder::Occluder;
use reach::Walls;
use search::{Answer, Memory, Search};
use shaft::{Shaft, Space};
pub use walls::FogWalls;

/// Added to the speed of a fall for each second, in m/s: no game's gravity is stronger.
const FALL_MPS2: f32 = 30.0;

/// A velocity that a game computed is rounded: so much faster than the fastest is not faster.
const SPEED_SLACK: f32 = 1.01;

/// How a [`Fog`] works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FogOptions {
    /// Ticks per second.
    pub tick_hz: f32,
    /// Each pair that is hidden is looked at every so many ticks; at least 1. Different viewers have their turn in
    /// different ticks. The longer, the more is sent needlessly.
    pub interval_ticks: u32,
    /// The fastest that anybody moves up or down without falling, in m/s: a jump, or standing up.
    pub climb_mps: f32,
    /// A latency above this counts as this, in milliseconds: so nobody sees more with a latency that is made up.
    pub latency_max_ms: f32,
    /// Rays for one look at a pair. If they do not suffice, the pair may see each other.
    pub rays_max: u32,
    /// A target is sent so many ticks before it can be seen, so that the first packets may be lost or late.
    pub ahead_ticks: u32,
    /// A target stays in sight for so many ticks at least, so that it does not come and go. Until then it costs nothing.
    pub linger_ticks: u32,
    /// As `linger_ticks`, after a look that did not find an answer within its rays: such looks cost most.
    pub doubt_ticks: u32,
}

impl Default for FogOptions {
    /// For a match of 128 ticks per second.
    fn default() -> FogOptions {
        FogOptions {
            tick_hz: 128.0,
            interval_ticks: 2,
            climb_mps: 4.0,
            latency_max_ms: 250.0,
            rays_max: 28,
            ahead_ticks: 1,
            linger_ticks: 8,
            doubt_ticks: 8,
        }
    }
}

/// Somebody who looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Viewer {
    /// Its team: targets of the same one are always in sight, at no cost.
    pub group: u8,
    /// Where its eye is.
    pub eye: Vec3,
    /// How it moves, in m/s.
    pub velocity: Vec3,
    /// The fastest that it can move across within its latency, in m/s; with a dash, if it may begin one.
    pub speed_max_mps: f32,
    /// Round trip and interpolation delay, in milliseconds: how much later than now its screen shows this tick, on the
    /// server's clock.
    pub latency_ms: f32,
}

/// Somebody who is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Its team.
    pub group: u8,
    /// Lowest corner of a box around all of it.
    pub lowest: Vec3,
    /// Highest corner.
    pub highest: Vec3,
    /// How it moves, in m/s.
    pub velocity: Vec3,
    /// The fastest that it can move across until the next look, in m/s; with a dash, if it may begin one.
    pub speed_max_mps: f32,
}

/// The things that block sight.
#[derive(Clone, Copy, Debug)]
pub struct FogWorld<'a> {
    /// The walls of the map.
    pub walls: &'a FogWalls,
    /// Smokes and walls of this tick.
    pub occluders: &'a [Occluder],
}

/// How much a [`Fog`] has done, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FogCounts {
    /// Looks at pairs.
    pub looks: u64,
    /// Looks that found a free line.
    pub free: u64,
    /// Looks that proved a target hidden.
    pub hidden: u64,
    /// Looks that the cells of the map answered alone: hidden.
    pub by_cells: u64,
    /// Looks without an answer within their rays: such a target may be seen.
    pub doubts: u64,
    /// Rays.
    pub rays: u64,
    /// Parts of looks that a wall answered that was remembered, without a ray.
    pub remembered: u64,
}

/// The state of one match: which viewers may see which targets.
///
/// ```
/// use glam::{Vec3, vec3};
/// use throng_sight::fog::{Fog, FogOptions, FogWalls, FogWorld, Target, Viewer};
/// use throng_sight::{bake, town};
///
/// let map = bake(&town::town(7, 5_000))?;
/// let walls = FogWalls::new(&map, town::SIGHT, town::BODIES)?;
/// let mut fog = Fog::new(FogOptions::default(), 1, 1);
///
/// // In each tick, after the step:
/// let eye = vec3(-17.0, 1.6, 0.0);
/// let viewer = Viewer { group: 0, eye, velocity: Vec3::ZERO, speed_max_mps: 6.0, latency_ms: 60.0 };
/// let (lowest, highest) = (vec3(16.6, 0.0, -0.4), vec3(17.4, 1.8, 0.4));
/// let target = Target { group: 1, lowest, highest, velocity: Vec3::ZERO, speed_max_mps: 6.0 };
/// fog.update(1, &FogWorld { walls: &walls, occluders: &[] }, &[Some(viewer)], &[Some(target)]);
///
/// // Before sending: subscribe the viewer's connection to the target's channel, or end the subscription.
/// assert!(!fog.may_see(0, 0), "there is a house between them");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Hidden is a target only if all lines are blocked from all places where the viewer's eye can be when its screen shows
/// this tick, or one until the next look, to all places where the target can be until the next look. On doubt a
/// target may be seen. An update does not allocate, and depends on nothing but its arguments.
#[derive(Clone, Debug)]
pub struct Fog {
    options: FogOptions,
    viewers: Vec<Mover>,
    targets: Vec<Mover>,
    /// Those of the first viewer first.
    pairs: Vec<Pair>,
    /// The occluders of the newest look.
    occluders: Vec<Occluder>,
    search: Search,
    counts: FogCounts,
}

/// Somebody who moves, as of the newest update.
#[derive(Clone, Copy, Debug)]
struct Mover {
    space: Option<Space>,
    speed_mps: f32,
    group: Option<u8>,
    /// It came, jumped, changed its group, or is faster than was foretold: its pairs are looked at now.
    is_hasty: bool,
    /// It came or jumped: where it was says nothing about who sees it.
    has_jumped: bool,
    walls: Walls,
}

impl Mover {
    const NOBODY: Mover =
        Mover { space: None, speed_mps: 0.0, group: None, is_hasty: true, has_jumped: true, walls: Walls::NONE };
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    may_see: bool,
    by_occluder: bool,
    /// Until this tick it stays in sight.
    until_tick: u64,
    memory: Memory,
}

/// Most occluders of a match. With more, the rest hides nothing.
pub const OCCLUDERS_MAX: usize = 64;

impl Fog {
    /// For so many viewers and targets, which are named by their places from zero on. Allocates about 0.7 kB for each
    /// pair, and never again.
    pub fn new(options: FogOptions, viewers: usize, targets: usize) -> Fog {
        let options = FogOptions { interval_ticks: options.interval_ticks.max(1), ..options };
        let pair = Pair { may_see: false, by_occluder: false, until_tick: 0, memory: Memory::NOTHING };
        Fog {
            options,
            viewers: vec![Mover::NOBODY; viewers],
            targets: vec![Mover::NOBODY; targets],
            pairs: vec![pair; viewers * targets],
            occluders: Vec::with_capacity(OCCLUDERS_MAX),
            search: Search::new(options.rays_max),
            counts: FogCounts::default(),
        }
    }

    /// Looks at the pairs whose turn it is in this tick, and at those that cannot wait: after a jump, or when a smoke has
    /// changed that hid somebody. Call it in every tick. `None` is somebody who is not there: it sees and shows nothing.
    ///
    /// # Panics
    /// If there are not as many viewers and targets as the fog was made for.
    pub fn update(&mut self, tick: u64, world: &FogWorld<'_>, viewers: &[Option<Viewer>], targets: &[Option<Target>]) {
        assert_eq!(viewers.len(), self.viewers.len(), "as many viewers as the fog was made for");
        assert_eq!(targets.len(), self.targets.len(), "as many targets as the fog was made for");
        let occluders = &world.occluders[..world.occluders.len().min(OCCLUDERS_MAX)];
        let has_new_occluders = self.occluders != occluders;
        if has_new_occluders {
            self.occluders.clear();
            self.occluders.extend_from_slice(occluders);
        }
        let interval = u64::from(self.options.interval_ticks);
        let is_turn = |place: usize| (tick + place as u64).is_multiple_of(interval);
        for (place, viewer) in viewers.iter().enumerate() {
            let motion = viewer.map(|viewer| {
                let space = Space::around(viewer.eye, Vec3::ZERO);
                (space, viewer.velocity, viewer.speed_max_mps, self.window_s(&viewer), viewer.group)
            });
            self.follow(true, place, motion, world.walls, is_turn(place));
        }
        for (place, target) in targets.iter().enumerate() {
            let motion = target.map(|target| {
                let space = Space { lowest: target.lowest, highest: target.highest };
                (space, target.velocity, target.speed_max_mps, self.ahead_s(), target.group)
            });
            self.follow(false, place, motion, world.walls, is_turn(place));
        }
        for (from, viewer) in viewers.iter().enumerate() {
            for (to, target) in targets.iter().enumerate() {
                let pair = &self.pairs[from * targets.len() + to];
                let (Some(viewer), Some(target)) = (viewer, target) else {
                    self.set(from, to, false, tick);
                    continue;
                };
                if viewer.group == target.group {
                    self.set(from, to, true, tick);
                    continue;
                }
                let is_due = (is_turn(from) && !(pair.may_see && tick < pair.until_tick))
                    || self.viewers[from].is_hasty
                    || self.targets[to].is_hasty
                    || (pair.by_occluder && has_new_occluders);
                if is_due {
                    self.look(tick, world, (from, viewer), (to, target));
                }
            }
        }
    }

    /// Whether the viewer may see the target, as of the newest update: only then the target is sent to it.
    ///
    /// # Panics
    /// If there is no such viewer or target.
    pub fn may_see(&self, viewer: usize, target: usize) -> bool {
        assert!(target < self.targets.len(), "there is no target {target}");
        self.pairs[viewer * self.targets.len() + target].may_see
    }

    /// The work so far.
    pub fn counts(&self) -> FogCounts {
        let work = self.search.work;
        FogCounts { rays: self.counts.rays + work.rays, remembered: work.remembered, ..self.counts }
    }

    /// For how long a target moves on under one answer: a screen shows the places that it had until the next look, and
    /// no later ones.
    fn ahead_s(&self) -> f32 {
        (self.options.interval_ticks + self.options.ahead_ticks) as f32 / self.options.tick_hz
    }

    /// For how long a viewer moves on under one answer: until its screen shows the last of these places.
    fn window_s(&self, viewer: &Viewer) -> f32 {
        viewer.latency_ms.clamp(0.0, self.options.latency_max_ms) / 1_000.0 + self.ahead_s()
    }

    fn set(&mut self, viewer: usize, target: usize, may_see: bool, tick: u64) {
        let pair = &mut self.pairs[viewer * self.targets.len() + target];
        (pair.may_see, pair.by_occluder, pair.until_tick) = (may_see, false, tick);
    }

    /// Notes where somebody is, and now and then looks for the walls around it.
    fn follow(
        &mut self,
        is_viewer: bool,
        place: usize,
        motion: Option<(Space, Vec3, f32, f32, u8)>,
        walls: &FogWalls,
        is_turn: bool,
    ) {
        let mover = if is_viewer { &mut self.viewers[place] } else { &mut self.targets[place] };
        let Some((space, velocity, speed_max_mps, window_s, group)) = motion else {
            *mover = Mover::NOBODY;
            return;
        };
        let step_s = 1.0 / self.options.tick_hz;
        let allowed_m = reach(&self.options, velocity, mover.speed_mps.max(speed_max_mps), step_s) + 0.01;
        let has_jumped = mover.space.is_none_or(|before| {
            !((space.lowest - before.lowest).abs().cmple(allowed_m).all()
                && (space.highest - before.highest).abs().cmple(allowed_m).all())
        });
        let foretold_mps = mover.speed_mps.max(speed_max_mps) * SPEED_SLACK;
        let is_too_fast = velocity.with_y(0.0).length() > foretold_mps;
        mover.has_jumped = has_jumped;
        mover.is_hasty = has_jumped || is_too_fast || mover.group != Some(group);
        (mover.space, mover.speed_mps, mover.group) = (Some(space), speed_max_mps, Some(group));
        if has_jumped {
            mover.walls = Walls::NONE;
        }
        if is_turn || has_jumped {
            let far = reach(&self.options, velocity, speed_max_mps, window_s);
            self.counts.rays += mover.walls.look(space, far, walls);
        }
    }

    fn look(
        &mut self,
        tick: u64,
        world: &FogWorld<'_>,
        (from, viewer): (usize, &Viewer),
        (to, target): (usize, &Target),
    ) {
        let possible = |mover: &Mover, velocity: Vec3, speed_max_mps: f32, time_s: f32| {
            let far = reach(&self.options, velocity, speed_max_mps, time_s);
            mover.space.map(|space| mover.walls.possible(space, far))
        };
        let eye = possible(&self.viewers[from], viewer.velocity, viewer.speed_max_mps, self.window_s(viewer));
        let body = possible(&self.targets[to], target.velocity, target.speed_max_mps, self.ahead_s());
        let has_jumped = self.viewers[from].has_jumped || self.targets[to].has_jumped;
        let pair = &mut self.pairs[from * self.targets.len() + to];
        if has_jumped {
            // Nobody lingers in sight at the place where he has been put.
            pair.until_tick = tick;
        }
        let answer = match (eye, body) {
            (Some(from), Some(to)) if is_sound(from) && is_sound(to) => {
                let shaft = Shaft { from, to };
                let is_far = world.walls.cells.as_ref().is_some_and(|cells| cells.hides(&shaft));
                self.counts.by_cells += u64::from(is_far);
                let hidden = is_far.then_some(Answer::Hidden { by_occluder: false });
                hidden.unwrap_or_else(|| self.search.run(shaft, world.walls, &self.occluders, &mut pair.memory))
            }
            _ => Answer::Doubt,
        };
        self.counts.looks += 1;
        pair.by_occluder = false;
        let stay_ticks = match answer {
            Answer::Free => {
                self.counts.free += 1;
                self.options.linger_ticks
            }
            Answer::Doubt => {
                self.counts.doubts += 1;
                self.options.doubt_ticks.max(self.options.linger_ticks)
            }
            Answer::Hidden { by_occluder } => {
                self.counts.hidden += 1;
                pair.by_occluder = by_occluder;
                pair.may_see = pair.may_see && tick < pair.until_tick;
                return;
            }
        };
        pair.may_see = true;
        pair.until_tick = tick + u64::from(stay_ticks);
    }
}

/// How far somebody can get in a time, along each axis.
fn reach(options: &FogOptions, velocity: Vec3, speed_max_mps: f32, time_s: f32) -> Vec3 {
    let across = velocity.with_y(0.0).length().max(speed_max_mps) * SPEED_SLACK * time_s;
    let up = options.climb_mps.max(velocity.y.abs() + FALL_MPS2 * time_s) * time_s;
    Vec3::new(across, up, across)
}

fn is_sound(space: Space) -> bool {
    space.lowest.is_finite() && space.highest.is_finite() && space.lowest.cmple(space.highest).all()
}
