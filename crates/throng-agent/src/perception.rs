//! Sight between pairs of a viewer and a target, with a budget of rays per tick.
//!
//! Each tick the pairs of a viewer and a target that need rays are put in order, and the first ones are looked at:
//!
//! ```text
//!   urgent: the pair has to be looked at now to be looked at in time         the oldest first
//!   the others: age x (newly in view, near, seen the last time)              the most important first
//! ```
//!
//! With N pairs, budget for k pairs per tick and a window of W ticks, a pair becomes urgent at the age of W - ceil(N / k)
//! ticks. From then on at most N - 1 pairs are older, and k of them are looked at per tick. So no pair is older than W.

use glam::Vec3;
use throng_sight::{Hit, Layers, Map, Ray};

/// The most points of a target that are looked at.
pub const POINTS_MAX: usize = 6;
/// The most pairs.
pub const PAIRS_MAX: usize = 1 << 16;

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerceptionOptions {
    /// The most rays per tick; one pair needs up to `points_max` of them.
    pub rays_per_tick: u32,
    /// The most points of a target, from 1 to [`POINTS_MAX`]. Further ones are not looked at.
    pub points_max: u32,
    /// Ticks per second, above 0.
    pub tick_hz: u32,
    /// Within this time every pair is looked at again. 500 ms is usual.
    pub recheck_ms: u32,
    /// The layers of the map that block sight.
    pub layers: Layers,
}

/// Why there is no perception with these options. The caller is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PerceptionError {
    /// A number is zero or above its limit.
    #[error("perception needs 1 to {POINTS_MAX} points, ticks per second above 0, and at most {PAIRS_MAX} pairs")]
    Options,
    /// The rays do not suffice to look at each pair in time.
    #[error(
        "{pairs} pairs cannot be looked at within {recheck_ms} ms with {rays_per_tick} rays per tick: {needed} are needed"
    )]
    BudgetTooSmall {
        /// The number of pairs.
        pairs: usize,
        /// The time that was asked for.
        recheck_ms: u32,
        /// The budget that was given.
        rays_per_tick: u32,
        /// The smallest budget that suffices; `u32::MAX` if the time is shorter than a tick.
        needed: u32,
    },
}

impl PerceptionError {
    /// A stable name for metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            PerceptionError::Options => "perception_options",
            PerceptionError::BudgetTooSmall { .. } => "perception_budget_too_small",
        }
    }
}

/// A viewer and a target, by the caller's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// The one who looks.
    pub viewer: u32,
    /// The one who may be seen.
    pub target: u32,
}

/// The question about a pair in a tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Look {
    /// There is none: one of the two is not there. The pair is not seen.
    Absent,
    /// The target is out of view without a ray: too far away, or behind the viewer. It is not seen.
    Outside,
    /// Rays have to tell: from the eye to the points.
    At {
        /// The viewer's eye.
        eye: Vec3,
        /// Points of the target: it is seen if one of them is.
        points: [Vec3; POINTS_MAX],
        /// How many of the points count.
        point_count: u32,
    },
}

/// The moving things of the world.
pub trait Scene {
    /// The question about a pair in this tick. Is called for each pair in each tick.
    fn look(&self, pair: Pair) -> Look;

    /// Whether anything but the map blocks the ray: smoke, a wall that a player has built. Is called for rays that the map
    /// lets pass.
    fn blocks(&self, ray: &Ray) -> bool;
}

/// The answers to rays: a [`Map`], or another engine with the same triangles, for comparison.
pub trait Rays {
    /// Whether each ray is blocked by a triangle of `layers`, in the order of the rays. Both lists are equally long.
    fn are_blocked(&self, rays: &[Ray], layers: Layers, is_blocked: &mut [bool]);

    /// How far each ray is free of triangles of `layers`: the distance of the nearest one, or the ray's end.
    fn free_distances(&self, rays: &[Ray], layers: Layers, distances_m: &mut [f32]);
}

impl Rays for Map {
    fn are_blocked(&self, rays: &[Ray], layers: Layers, is_blocked: &mut [bool]) {
        self.is_blocked_batch(rays, layers, is_blocked);
    }

    fn free_distances(&self, rays: &[Ray], layers: Layers, distances_m: &mut [f32]) {
        const CHUNK: usize = 64;
        for (rays, distances_m) in rays.chunks(CHUNK).zip(distances_m.chunks_mut(CHUNK)) {
            let mut hits = [None; CHUNK];
            self.closest_batch(rays, layers, &mut hits[..rays.len()]);
            for ((ray, distance_m), hit) in rays.iter().zip(distances_m).zip(hits) {
                *distance_m = hit.map_or(ray.end_m(), |hit: Hit| hit.distance_m);
            }
        }
    }
}

/// The newest knowledge about a pair. Ticks are those of [`Perception::update`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sighting {
    /// Whether the target was seen the last time.
    pub is_seen: bool,
    /// The points that were seen then, one bit for each.
    pub points: u8,
    /// The tick of that look.
    pub looked_at: u64,
    /// The last tick in which the target was seen, if there was one.
    pub seen_at: Option<u64>,
    /// The tick in which an uninterrupted sight began; counts only while the target is seen.
    pub seen_since: u64,
}

impl Sighting {
    /// How many ticks ago the pair was looked at.
    pub fn age_ticks(&self, now: u64) -> u64 {
        now.saturating_sub(self.looked_at)
    }
}

/// Counts of the work of perception so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerceptionCounters {
    /// Rays through the map.
    pub rays: u64,
    /// Looks that needed rays.
    pub looks: u64,
    /// The largest age in ticks that a pair with a question had before it was looked at.
    pub age_max_ticks: u64,
    /// Points and eyes that were out of range or no number. They count as not seen.
    pub refused: u64,
}

#[derive(Clone, Copy, Debug)]
struct State {
    pair: Pair,
    sighting: Sighting,
    /// Whether rays had to tell in the tick before.
    was_asked: bool,
    has_entered: bool,
}

/// A question of this tick that rays have to answer.
#[derive(Clone, Copy, Debug)]
struct Question {
    /// The place of the pair.
    index: usize,
    eye: Vec3,
    points: [Vec3; POINTS_MAX],
    point_count: usize,
    is_answered: bool,
}

/// When a question is answered. The smallest rank comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    rank: u64,
    question: u32,
}

/// Keeps what each pair knows, and decides who looks next.
#[derive(Clone, Debug)]
pub struct Perception {
    options: PerceptionOptions,
    urgent_ticks: u64,
    states: Vec<State>,
    turns: Vec<Turn>,
    questions: Vec<Question>,
    rays: Vec<Ray>,
    /// The place of the pair, and the point, of each ray.
    sources: Vec<(usize, u8)>,
    is_blocked: Vec<bool>,
    counters: PerceptionCounters,
}

impl Perception {
    /// Perception for fixed pairs. It allocates here and never again.
    ///
    /// # Errors
    /// If a number is out of range, or if the budget does not suffice to look at all pairs in time.
    pub fn new(options: PerceptionOptions, pairs: &[Pair]) -> Result<Perception, PerceptionError> {
        let is_sensible = (1..=POINTS_MAX as u32).contains(&options.points_max) && options.tick_hz > 0;
        if !is_sensible || pairs.len() > PAIRS_MAX {
            return Err(PerceptionError::Options);
        }
        let window = u64::from(options.recheck_ms) * u64::from(options.tick_hz) / 1_000;
        let per_tick = u64::from(options.rays_per_tick / options.points_max);
        let count = pairs.len() as u64;
        let round = if per_tick == 0 { u64::MAX } else { count.div_ceil(per_tick) };
        if count > 0 && round > window {
            let needed = match window {
                0 => u32::MAX,
                _ => count.div_ceil(window) as u32 * options.points_max,
            };
            let PerceptionOptions { recheck_ms, rays_per_tick, .. } = options;
            return Err(PerceptionError::BudgetTooSmall { pairs: pairs.len(), recheck_ms, rays_per_tick, needed });
        }
        let states: Vec<State> = pairs
            .iter()
            .map(|pair| State { pair: *pair, sighting: Sighting::default(), was_asked: false, has_entered: false })
            .collect();
        let most_rays = (options.rays_per_tick as usize).min(pairs.len() * options.points_max as usize);
        Ok(Perception {
            options,
            urgent_ticks: window.saturating_sub(round),
            turns: Vec::with_capacity(states.len()),
            questions: Vec::with_capacity(states.len()),
            rays: Vec::with_capacity(most_rays),
            sources: Vec::with_capacity(most_rays),
            is_blocked: Vec::with_capacity(most_rays),
            states,
            counters: PerceptionCounters::default(),
        })
    }

    /// The options that it was made with.
    pub fn options(&self) -> &PerceptionOptions {
        &self.options
    }

    /// The pairs in the order in which they were given, each with its newest sighting.
    pub fn sightings(&self) -> impl Iterator<Item = (Pair, &Sighting)> {
        self.states.iter().map(|state| (state.pair, &state.sighting))
    }

    /// The newest sighting of the pair with this place in the list of pairs, if there is one.
    pub fn sighting(&self, index: usize) -> Option<&Sighting> {
        self.states.get(index).map(|state| &state.sighting)
    }

    /// Counts of its work so far.
    pub fn counters(&self) -> PerceptionCounters {
        self.counters
    }

    /// Forgets all sightings: a new round begins.
    pub fn forget(&mut self, now: u64) {
        for state in &mut self.states {
            state.sighting = Sighting { looked_at: now, ..Sighting::default() };
            (state.was_asked, state.has_entered) = (false, false);
        }
    }

    /// Looks at the pairs whose turn it is. `now` counts ticks and goes up by one from call to call: the promised time
    /// holds for calls. Does not allocate.
    pub fn update(&mut self, now: u64, world: &(impl Rays + ?Sized), scene: &impl Scene) {
        self.ask(now, scene);
        self.turns.sort_unstable();
        self.cast(now, world, scene);
    }

    /// Collects the questions of this tick and ranks them.
    fn ask(&mut self, now: u64, scene: &impl Scene) {
        self.turns.clear();
        self.questions.clear();
        for (index, state) in self.states.iter_mut().enumerate() {
            let Look::At { eye, points, point_count } = scene.look(state.pair) else {
                state.sighting = Sighting { is_seen: false, points: 0, looked_at: now, ..state.sighting };
                (state.was_asked, state.has_entered) = (false, false);
                continue;
            };
            state.has_entered |= !state.was_asked;
            state.was_asked = true;
            let age = state.sighting.age_ticks(now).min(1 << 32);
            let rank = match age >= self.urgent_ticks {
                true => (1 << 32) - age,
                false => (1 << 40) - importance(state, eye.distance_squared(points[0])) * (age + 1),
            };
            self.turns.push(Turn { rank, question: self.questions.len() as u32 });
            let point_count = point_count.min(self.options.points_max) as usize;
            self.questions.push(Question { index, eye, points, point_count, is_answered: false });
        }
    }

    /// Answers as many questions as the budget allows.
    fn cast(&mut self, now: u64, world: &(impl Rays + ?Sized), scene: &impl Scene) {
        self.collect_rays(now);
        self.counters.rays += self.rays.len() as u64;
        self.is_blocked.clear();
        self.is_blocked.resize(self.rays.len(), false);
        world.are_blocked(&self.rays, self.options.layers, &mut self.is_blocked);
        for ((ray, is_blocked), (index, point)) in self.rays.iter().zip(&self.is_blocked).zip(&self.sources) {
            if !is_blocked && !scene.blocks(ray) {
                self.states[*index].sighting.points |= 1 << point;
            }
        }
        for question in self.questions.iter().filter(|question| question.is_answered) {
            let sighting = &mut self.states[question.index].sighting;
            let was_seen = sighting.is_seen;
            sighting.is_seen = sighting.points != 0;
            if sighting.is_seen {
                sighting.seen_at = Some(now);
                sighting.seen_since = if was_seen { sighting.seen_since } else { now };
            }
        }
    }

    fn collect_rays(&mut self, now: u64) {
        self.rays.clear();
        self.sources.clear();
        let mut budget = self.options.rays_per_tick as usize;
        for turn in &self.turns {
            let question = &mut self.questions[turn.question as usize];
            if question.point_count > budget {
                break;
            }
            budget -= question.point_count;
            question.is_answered = true;
            let state = &mut self.states[question.index];
            self.counters.looks += 1;
            self.counters.age_max_ticks = self.counters.age_max_ticks.max(state.sighting.age_ticks(now));
            (state.sighting.looked_at, state.sighting.points, state.has_entered) = (now, 0, false);
            for (point, target) in question.points.iter().take(question.point_count).enumerate() {
                match Ray::between(question.eye, *target) {
                    Ok(ray) => {
                        self.rays.push(ray);
                        self.sources.push((question.index, point as u8));
                    }
                    Err(_) => self.counters.refused += 1,
                }
            }
        }
    }
}

/// A factor from 1 to 64: near targets, those that were seen the last time, and those that have just come into view change
/// the most.
fn importance(state: &State, distance_squared: f32) -> u64 {
    let near = match distance_squared {
        d if d < 225.0 => 4,
        d if d < 1_600.0 => 2,
        _ => 1,
    };
    let last = if state.sighting.is_seen { 2 } else { 1 };
    let entered = if state.has_entered { 8 } else { 1 };
    near * last * entered
}
