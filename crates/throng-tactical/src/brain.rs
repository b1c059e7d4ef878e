//! Players without people: from what a player may know to the command of a tick.
//!
//! ```text
//!   Senses ---> perception: who can be seen, by rays       |  rays per tick
//!     |             |
//!     |             v
//!     +------> decide: target, task, goal  ---> path finder |  10 to 20 times a second
//!     |             |
//!     |             v
//!     +------> act: turn, walk, shoot, use ---> Command     |  each tick
//! ```
//!
//! The same [`Brain`] plays over the network ([`Player`]) and inside a match ([`Squad`]). Everything that is random comes
//! from its seed, and no function of the standard library decides that may differ from machine to machine: equal senses
//! give equal commands, bit for bit.

mod aim;
mod buy;
mod plan;
pub(crate) mod player;
mod route;
pub(crate) mod search;
mod squad;
mod turn;
pub(crate) mod watch;

use fastrand::Rng;
use glam::Vec3;
use throng_agent::{CellId, Navigation, NavigationError, NavigationOptions, Path, Rays, Sighting};
use throng_sight::{Map, Ray, town};

use crate::Seat;
use crate::command::{Buttons, Choice, Command};
use crate::rules::SEATS_MAX;
use crate::senses::{RoundPhase, Seen, Senses, Team};
use crate::weapon::{Slot, Weapon};

pub use aim::Skill;
pub use player::{Player, PlayerError, Stage};
pub use squad::{Squad, SquadOptions};
pub use watch::options as perception_options;

use aim::{Aim, Gaze};
use buy::Basket;
use plan::{Fan, Plan, Task};
use route::Route;

/// Decisions per second. Brains of a match take turns, by their seats.
pub const DECISIONS_PER_S: u32 = 16;
/// A sighting counts so long, in seconds.
const FRESH_S: f32 = 0.12;
/// A place where an enemy was seen is watched so long, in seconds.
const WATCHED_S: f32 = 2.5;
/// The radius of the bodies for which the grid is made: a little more than theirs, so that they do not scrape.
const NAVIGATION_RADIUS_M: f32 = 0.4;

/// Where bodies of this game can walk on a map. Once for each map; a clone shares it.
///
/// # Errors
/// As [`Navigation::survey`].
pub fn navigation(map: &Map) -> Result<Navigation, NavigationError> {
    let mut options = NavigationOptions::new(town::BODIES);
    options.body.radius_m = NAVIGATION_RADIUS_M;
    Navigation::survey(map, &options)
}

/// The world that does not change, as a brain sees it.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// The answers to rays: the map.
    pub rays: &'a dyn Rays,
    /// Where bodies can walk on it.
    pub navigation: &'a Navigation,
    /// Where enemies come from.
    pub threat: Vec3,
}

impl World<'_> {
    /// The cell near a place from which every other place can be reached.
    fn cell(&self, place: Vec3, within_m: f32) -> Option<CellId> {
        self.navigation.nearest_in_main(place, within_m)
    }

    /// A place to stand about `distance_m` from another one, with a free line to it if there is one. A few rays.
    fn post(&self, place: Vec3, distance_m: f32, random: &mut Rng) -> Option<CellId> {
        let up = Vec3::new(0.0, 1.4, 0.0);
        let mut best = None;
        for _ in 0..5 {
            let away = Vec3::new(random.f32() - 0.5, 0.0, random.f32() - 0.5).normalize_or(Vec3::X);
            let Some(cell) = self.cell(place + away * distance_m, 2.5) else { continue };
            let from = self.navigation.point(cell) + up;
            let mut is_blocked = [true];
            if let Ok(ray) = Ray::between(from, place + up) {
                self.rays.are_blocked(&[ray], town::SIGHT, &mut is_blocked);
            }
            if !is_blocked[0] {
                return Some(cell);
            }
            best = best.or(Some(cell));
        }
        best.or_else(|| self.cell(place, 4.0))
    }
}

/// The report of perception about an enemy.
#[derive(Clone, Copy, Debug, Default)]
struct View {
    points: u8,
    looked_at: u64,
}

/// An enemy who was noticed.
#[derive(Clone, Copy, Debug)]
struct Target {
    seat: Seat,
    noticed_at: u64,
    seen_at: u64,
    /// Where the chest was.
    chest: Vec3,
}

/// A player without a person.
#[derive(Clone, Debug)]
pub struct Brain {
    skill: Skill,
    random: Rng,
    views: [View; SEATS_MAX],
    target: Option<Target>,
    aim: Aim,
    route: Route,
    plan: Plan,
    fan: Fan,
    task: Task,
    basket: Basket,
    /// Time since a button that is pressed once, or a weapon that is drawn.
    since_press_s: f32,
    strafe: f32,
    is_crouched: bool,
    /// A smoke is thrown to there.
    throws_at: Option<Vec3>,
    /// The first weapon has no rounds left in this round.
    is_spent: bool,
    decisions: u64,
    /// Of these, decisions with something to do, in which it looked around.
    looks: u64,
}

impl Brain {
    /// A brain. All of a team get the same `team_seed`, so that they go the same way; each has its own `seed`.
    pub fn new(seed: u64, team_seed: u64, skill: Skill) -> Brain {
        Brain {
            skill,
            random: Rng::with_seed(seed),
            views: [View::default(); SEATS_MAX],
            target: None,
            aim: Aim::new(),
            route: Route::new(),
            plan: Plan::new(team_seed),
            fan: Fan::new(skill.fan_rays),
            task: Task::Wait,
            basket: Basket::default(),
            since_press_s: 0.0,
            strafe: 0.0,
            is_crouched: false,
            throws_at: None,
            is_spent: false,
            decisions: 0,
            looks: 0,
        }
    }

    /// The newest sighting of an enemy.
    pub fn see(&mut self, enemy: Seat, sighting: &Sighting) {
        if let Some(view) = self.views.get_mut(enemy.index()) {
            let points = if sighting.is_seen { sighting.points } else { 0 };
            *view = View { points, looked_at: sighting.looked_at };
        }
    }

    /// The cell to which a path from the feet is wanted, if one is.
    pub fn wants_path_to(&self) -> Option<CellId> {
        self.route.wanted()
    }

    /// The answer: fills the path, or leaves it empty if there is none.
    pub fn take_path(&mut self, write: impl FnOnce(&mut Path)) {
        self.route.answer(write);
    }

    /// Decisions so far.
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    /// Decisions in which there was something to do: rays were cast to look around.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// Rays of those, so far.
    pub fn fan_rays(&self) -> u64 {
        self.fan.cast_count()
    }

    /// Decides what to do: call it [`DECISIONS_PER_S`] times a second.
    pub fn decide(&mut self, senses: &Senses<'_>, world: &World<'_>) {
        self.decisions += 1;
        if self.plan.begins(senses) {
            self.begin_round(senses);
        }
        self.choose_target(senses);
        let task = self.plan.task(senses, world, &self.route, &mut self.random);
        if std::mem::discriminant(&task) != std::mem::discriminant(&self.task) {
            self.is_crouched = self.random.u8(..10) < 3;
            self.route.forgive();
        }
        self.task = task;
        match task {
            Task::Walk { to } => self.route.go(to),
            Task::Hold { .. } | Task::Use | Task::Wait | Task::Buy => self.route.halt(),
        }
        if self.route.stuck > 4 {
            // The way does not work: another post, another spot.
            self.plan = self.plan.afresh();
            self.route.halt();
            self.route.forgive();
        }
        if task != Task::Wait {
            self.looks += 1;
            self.plan.look_around(senses, world, &mut self.fan, &mut self.random);
        }
        self.consider_smoke(senses, world);
    }

    fn begin_round(&mut self, senses: &Senses<'_>) {
        self.views = [View::default(); SEATS_MAX];
        (self.target, self.throws_at, self.is_spent) = (None, None, false);
        self.route.halt();
        self.aim.take_over(&senses.me);
        self.basket.fill(&senses.me, &mut self.random);
    }

    /// Enemies who can be seen now, by the newest rays.
    fn in_view<'a>(&self, senses: &Senses<'a>) -> impl Iterator<Item = (&'a Seen, u8)> + use<'a> {
        let views = self.views;
        let (now, fresh) = (senses.tick, (FRESH_S * senses.tick_hz as f32).ceil() as u64);
        senses.enemies.iter().filter_map(move |enemy| {
            let view = views.get(enemy.seat.index())?;
            let is_now = enemy.seen_at == now && now.0.saturating_sub(view.looked_at) <= fresh;
            (is_now && view.points != 0).then_some((enemy, view.points))
        })
    }

    fn choose_target(&mut self, senses: &Senses<'_>) {
        let me = senses.me.position;
        let old = self.target.map(|target| target.seat);
        let cost = |enemy: &Seen| enemy.feet.distance(me) * if old == Some(enemy.seat) { 0.6 } else { 1.0 };
        let best = self.in_view(senses).min_by(|(a, _), (b, _)| cost(a).total_cmp(&cost(b)));
        match best {
            Some((enemy, _)) if old != Some(enemy.seat) => {
                let chest = enemy.feet + Vec3::new(0.0, 0.72 * enemy.eye_height, 0.0);
                let now = senses.tick.0;
                self.target = Some(Target { seat: enemy.seat, noticed_at: now, seen_at: now, chest });
                self.aim.startle(&mut self.random);
                self.strafe = if self.random.bool() { 1.0 } else { -1.0 };
                self.is_crouched = enemy.feet.distance(me) > 18.0 && self.random.u8(..10) < 4;
            }
            Some(_) => {}
            None => {
                let watched = (WATCHED_S * senses.tick_hz as f32) as u64;
                let is_known = |target: &Target| senses.enemies.iter().any(|enemy| enemy.seat == target.seat);
                let is_over = |t: &Target| senses.tick.0.saturating_sub(t.seen_at) > watched || !is_known(t);
                if self.target.as_ref().is_some_and(is_over) {
                    self.target = None;
                }
            }
        }
    }

    /// Attackers throw a smoke between themselves and the far side of a site.
    fn consider_smoke(&mut self, senses: &Senses<'_>, world: &World<'_>) {
        let me = &senses.me;
        let is_time = senses.phase == RoundPhase::Live && me.charges.smoke > 0 && self.target.is_none();
        if !is_time || self.throws_at.is_some() || self.random.u8(..12) != 0 {
            return;
        }
        let place = match (self.task, me.team) {
            (Task::Walk { to }, Team::Attackers) => world.navigation.point(to),
            _ => return,
        };
        let distance = place.distance(me.position);
        if (9.0..18.0).contains(&distance) {
            self.throws_at = Some(place + (place - me.position) * 0.3 + Vec3::new(0.0, 1.0, 0.0));
        }
    }

    /// The command of this tick. Turns, walks, shoots, uses.
    pub fn act(&mut self, senses: &Senses<'_>) -> Command {
        let mut command = senses.command();
        let me = &senses.me;
        let tick_s = 1.0 / senses.tick_hz as f32;
        self.since_press_s += tick_s;
        if !me.is_alive || senses.phase == RoundPhase::Over {
            return command;
        }
        let enemy = self.update_target(senses);
        let gaze = self.gaze(senses, enemy);
        let act = self.aim.act(me, gaze, &self.skill, tick_s, &mut self.random);
        act.write(&mut command);
        // An enemy who is out of sight does not stop work.
        let is_busy = me.has_bomb || self.task == Task::Use;
        match (self.task, enemy.is_some() || (self.is_alert(senses) && !is_busy)) {
            (Task::Buy, _) => {
                if let Some(item) = self.basket.take(tick_s) {
                    command.choice = Choice::Buy(item);
                    return command;
                }
            }
            (Task::Use, is_fight) => {
                // A fight comes first, unless the work is nearly done.
                if !is_fight || me.progress > 150 {
                    command.buttons = Buttons::USE;
                    self.raise_wall(senses, &mut command);
                    return command;
                }
                self.fight(senses, enemy, &mut command);
            }
            (_, true) => self.fight(senses, enemy, &mut command),
            (Task::Walk { .. }, false) => {
                self.route.act(me, 1.0, tick_s, &mut self.random, &mut command);
                command.buttons |= Buttons::USE;
                self.throw(senses, &mut command);
            }
            (Task::Hold { .. }, false) if self.is_crouched => command.buttons |= Buttons::CROUCH,
            _ => {}
        }
        self.handle_weapon(senses, enemy.is_some(), &mut command);
        command
    }

    /// The point of the target that can be hit now, if reaction time has passed.
    fn update_target(&mut self, senses: &Senses<'_>) -> Option<Vec3> {
        let mut target = self.target?;
        let (enemy, bits) = self.in_view(senses).find(|(enemy, _)| enemy.seat == target.seat)?;
        target.seen_at = senses.tick.0;
        target.chest = enemy.feet + Vec3::new(0.0, 0.72 * enemy.eye_height, 0.0);
        self.target = Some(target);
        let reaction = u64::from(self.skill.reaction_ms) * u64::from(senses.tick_hz) / 1_000;
        if senses.tick.0 < target.noticed_at + reaction {
            return None;
        }
        let points = watch::points(senses.me.eye(), enemy.feet, enemy.eye_height);
        // The chest if it shows, else the head, else a shoulder.
        let order = if senses.me.weapon == Weapon::Pistol { [0, 1, 2, 3] } else { [1, 0, 2, 3] };
        order.into_iter().find(|bit| bits & (1 << bit) != 0).map(|bit: usize| points[bit])
    }

    /// Whether an enemy was just seen: the player stays and watches the place for a moment.
    fn is_alert(&self, senses: &Senses<'_>) -> bool {
        self.target.is_some_and(|target| senses.tick.0 < target.seen_at + u64::from(senses.tick_hz))
    }

    fn gaze(&self, senses: &Senses<'_>, enemy: Option<Vec3>) -> Gaze {
        let me = &senses.me;
        let reaction = u64::from(self.skill.reaction_ms) * u64::from(senses.tick_hz) / 1_000;
        match (enemy, self.target, self.task) {
            (Some(point), _, _) => Gaze::Enemy(point),
            (_, Some(target), _) if senses.tick.0 >= target.noticed_at + reaction => Gaze::At(target.chest),
            (_, _, Task::Walk { .. }) => match (self.throws_at, self.route.ahead(me.position, 3.0)) {
                (Some(place), _) => Gaze::At(place),
                (_, Some(ahead)) if !self.plan.glances() => {
                    let way = ahead - me.position;
                    Gaze::Along(Vec3::new(way.x, 0.4 * way.y, way.z).normalize_or(self.plan.view()))
                }
                _ => Gaze::Along(self.plan.view()),
            },
            _ => Gaze::Along(self.plan.view()),
        }
    }

    /// Stands to shoot, and steps aside between bursts.
    fn fight(&mut self, senses: &Senses<'_>, enemy: Option<Vec3>, command: &mut Command) {
        let me = &senses.me;
        let is_empty = me.ammunition == 0 || me.is_reloading;
        let steps_aside = enemy.is_some() && (is_empty || self.aim.pauses());
        if self.random.f32() < 1.2 / senses.tick_hz as f32 {
            self.strafe = -self.strafe;
        }
        if steps_aside {
            command.walk_along(watch::right(command.yaw) * self.strafe, 1.0);
            if is_empty && me.health < 60 && me.charges.dash > 0 && self.press() {
                command.buttons |= Buttons::DASH;
            }
        } else if self.is_crouched && enemy.is_some() {
            command.buttons |= Buttons::CROUCH;
        }
    }

    fn throw(&mut self, senses: &Senses<'_>, command: &mut Command) {
        let Some(place) = self.throws_at else { return };
        let [yaw, _] = turn::look(place - senses.me.eye());
        if turn::wrap(yaw - self.aim.yaw()).abs() < 0.12 && self.press() {
            command.buttons |= Buttons::SMOKE;
            self.throws_at = None;
        }
    }

    fn raise_wall(&mut self, senses: &Senses<'_>, command: &mut Command) {
        if senses.me.charges.wall > 0 && senses.me.progress > 10 && self.press() {
            command.buttons |= Buttons::WALL;
        }
    }

    /// Whether a button may be pressed once now.
    fn press(&mut self) -> bool {
        let may = self.since_press_s > 0.6;
        if may {
            self.since_press_s = 0.0;
        }
        may
    }

    /// Reloads and changes weapons.
    fn handle_weapon(&mut self, senses: &Senses<'_>, is_fight: bool, command: &mut Command) {
        let me = &senses.me;
        let is_primary = me.weapon.slot() == Slot::Primary;
        if is_primary && me.ammunition == 0 && me.reserve == 0 {
            self.is_spent = true;
        }
        let facts = me.weapon.facts();
        let near = self.target.is_some_and(|target| target.chest.distance(me.eye()) < 12.0);
        let wants_sidearm = is_primary && me.ammunition == 0 && (self.is_spent || (is_fight && near));
        let wants_primary = !is_primary && me.primary.is_some() && !self.is_spent && !is_fight;
        if (wants_sidearm || wants_primary) && self.press() {
            command.choice = Choice::Draw(if wants_primary { Slot::Primary } else { Slot::Sidearm });
        } else if me.reserve > 0
            && !me.is_reloading
            && (me.ammunition == 0 || (self.target.is_none() && me.ammunition * 2 < facts.magazine))
        {
            command.buttons |= Buttons::RELOAD;
        }
    }
}
