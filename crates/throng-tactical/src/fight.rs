//! The second half of a step: shots, wounds, the bomb, and who has won.

use glam::Vec3;
use throng_match::{Scopes, Seat, Subsystem};
use throng_rewind::{Break, Outcome};
use throng_sight::{Ray, town};

use crate::bomb::{Bomb, DEFUSE_REACH_M, FALL_M, REACH_M};
use crate::character::Work;
use crate::command::Buttons;
use crate::event::{Ending, Event};
use crate::inbox::{Order, Refusal};
use crate::rules::{KILL_MONEY, LOSS_MONEY, OBJECTIVE_MONEY, WIN_MONEY};
use crate::senses::{RoundPhase, Team};
use crate::shot::{self, Range, Wound};
use crate::skeleton::Zone;
use crate::tactical::{POSE_TICKS, Tactical};
use crate::weapon::Weapon;

/// Views older than this are not kept by any history, whatever the delay is, in milliseconds.
const VIEW_KEPT_MS: f64 = 1_000.0;
/// A shot's claimed place may be so far off, besides what the delay explains, in metres.
const PLACE_SLACK_M: f32 = 1.0;
/// Speed that explains a distance between what a client knows of itself and the truth, in m/s.
const PLACE_SPEED: f32 = 8.0;
/// Added to the measured delay for that, in seconds.
const PLACE_SLACK_S: f32 = 0.1;
/// Slower than this counts as standing, in m/s.
const STILL_SPEED: f32 = 0.5;

impl Tactical {
    /// Fires and judges all shots of this tick. Wounds wait until all are judged, so the order of seats gives nobody an
    /// advantage.
    pub(crate) fn shoot(&mut self, scopes: &mut Scopes) {
        self.wounds.clear();
        for seat in 0..self.characters.len() {
            if !self.fires(seat) {
                continue;
            }
            if let Err(refusal) = self.check_shot(seat) {
                self.refusals.count(refusal);
                continue;
            }
            scopes.time(Subsystem::PHYSICS, |_| self.fire(seat));
        }
    }

    /// Whether a seat's order of this tick is a shot for which its weapon is ready.
    pub(crate) fn fires(&self, seat: usize) -> bool {
        let (Order { command, is_fresh }, pressed) = self.orders[seat];
        let character = &self.characters[seat];
        if !is_fresh || !character.is_alive || character.work != Work::Nothing {
            return false;
        }
        let wants = if character.carried().weapon.facts().is_automatic { command.buttons } else { pressed };
        wants.contains(Buttons::FIRE) && character.carried().is_ready(self.now_us())
    }

    /// For each team: whether an enemy fires in this tick who sees so young a picture that no pose of it is stored yet.
    pub(crate) fn seen_between_poses(&self) -> [bool; 2] {
        let mut teams = [false; 2];
        for (seat, character) in self.characters.iter().enumerate().filter(|(seat, _)| self.fires(*seat)) {
            let claim = shot::claim(&self.orders[seat].0.command, self.now);
            let view = self.rewind.options().judge.view.decide(claim, self.now, self.latency(seat));
            if throng_rewind::Moment::at(self.now).ticks_since(view.moment) < f64::from(POSE_TICKS) {
                teams[1 - character.team as usize] = true;
            }
        }
        teams
    }

    /// Whether the claims of a shot are possible at all.
    fn check_shot(&self, seat: usize) -> Result<(), Refusal> {
        let (Order { command, .. }, _) = self.orders[seat];
        let rtt_s = self.inboxes[seat].rtt_us as f32 / 1e6;
        let rules = &self.rewind.options().judge.view;
        let ago_ms = rules.ms(throng_rewind::Moment::at(self.now).ticks_since(shot::claim(&command, self.now)));
        if ago_ms > VIEW_KEPT_MS + f64::from(rtt_s) * 1_000.0 {
            return Err(Refusal::ViewTooOld);
        }
        let allowed_m = PLACE_SLACK_M + PLACE_SPEED * (rtt_s + PLACE_SLACK_S);
        if command.distance_from_place_m(self.characters[seat].mover.feet) > allowed_m {
            return Err(Refusal::FarOrigin);
        }
        Ok(())
    }

    fn fire(&mut self, seat: usize) {
        let (Order { command, .. }, _) = self.orders[seat];
        let (now, now_us, latency) = (self.now, self.now_us(), self.latency(seat));
        let tick_us = 1_000_000 / u64::from(self.rules.tick_hz);
        let chance = [self.random.f32(), self.random.f32()];
        let character = &mut self.characters[seat];
        let (by, team, mover) = (character.seat, character.team, character.mover);
        let carried = character.carried_mut();
        let (weapon, facts) = (carried.weapon, carried.weapon.facts());
        let place = carried.fire(now_us, tick_us);
        let spread = carried.spread(place, mover.pace(facts.speed), mover.is_grounded, mover.crouch > 0.5);
        let direction = shot::direction(&command, carried.recoil(place), spread, chance);
        let claim = shot::claim(&command, now);
        let fired = shot::shot((character.body, mover.eye()), (now, claim, latency), direction, weapon);

        let view = self.rewind.options().judge.view.decide(claim, now, latency).moment;
        self.targets.clear();
        self.escapes.clear();
        for other in self.characters.iter().filter(|other| other.is_alive && other.team != team) {
            self.targets.push(other.body);
            self.escapes.extend(shot::escape(other.dash.as_ref(), view).map(|escape| (other.body, escape)));
        }
        let range = Range { map: self.arena.map(), escapes: &self.escapes };
        // A shot is refused for numbers that the checks above leave no way for; the rewinding counts it.
        let Ok(verdict) = self.rewind.judge(&fired, &self.targets, &range, &mut self.case) else { return };
        self.counters.shots += 1;
        self.log.append(&self.rewind, &self.case, &verdict);
        if let Some(twin) = &mut self.twin {
            twin.judge((&self.rewind, &verdict), &fired, &self.targets, &range);
        }
        let long_m = shot::length_m(&verdict, facts.range_m);
        let to = mover.eye() + direction.normalize_or(Vec3::Z) * long_m;
        self.note(Event::Shot { by, weapon, from: mover.eye(), to });
        match verdict.outcome {
            Outcome::Hit(struck) => {
                let zone = Zone::of(struck.zone);
                let damage = facts.damage * facts.falloff(long_m) * zone.factor();
                self.wounds.push(Wound { by, target: struck.body, zone, damage, weapon });
            }
            Outcome::Escaped { struck, .. } => {
                if let Some(target) = self.seat_of(struck.body) {
                    self.note(Event::Escaped { by, target });
                }
            }
            Outcome::Blocked(_) | Outcome::Missed(_) => {}
        }
    }

    fn seat_of(&self, body: throng_rewind::BodyId) -> Option<Seat> {
        self.characters.iter().find(|character| character.body == body).map(|character| character.seat)
    }

    /// Takes the damage of this tick's hits.
    pub(crate) fn wound(&mut self) {
        for place in 0..self.wounds.len() {
            let Wound { by, target, zone, damage, weapon } = self.wounds[place];
            let Some(target) = self.seat_of(target) else { continue };
            let character = &mut self.characters[target.index()];
            if !character.is_alive {
                continue;
            }
            let damage = character.hurt(damage, zone);
            let is_dead = character.health == 0;
            self.note(Event::Hit { by, target, zone, damage });
            if is_dead {
                self.kill(target.index(), Some((by, weapon)), zone == Zone::Head);
            }
        }
    }

    /// Somebody dies.
    pub(crate) fn kill(&mut self, seat: usize, by: Option<(Seat, Weapon)>, is_headshot: bool) {
        let now = self.now;
        let character = &mut self.characters[seat];
        character.is_alive = false;
        character.health = 0;
        character.deaths += 1;
        character.died = now;
        character.dash = None;
        character.stop_work();
        let (victim, at) = (character.seat, character.mover.feet);
        self.rewind.break_body(character.body, now, Break::Death);
        if let Some(twin) = &mut self.twin {
            twin.break_body(character.body, now, Break::Death);
        }
        if let Some((by, _)) = by {
            let killer = &mut self.characters[by.index()];
            killer.kills += 1;
            killer.earn(KILL_MONEY);
        }
        let weapon = by.map_or(Weapon::Pistol, |(_, weapon)| weapon);
        self.note(Event::Died { seat: victim, by: by.map(|(by, _)| by), at, weapon, is_headshot });
        if self.bomb.is_carried_by(victim) {
            // A player who dies in a fall leaves it on the ground, and not in the air where nobody reaches it.
            let down = Ray::new(at + 0.1 * Vec3::Y, Vec3::NEG_Y, FALL_M);
            let ground =
                down.ok().and_then(|ray| Some(ray.at(self.arena.map().closest(&ray, town::BODIES)?.distance_m)));
            let at = ground.unwrap_or(at);
            self.bomb = Bomb::Dropped(at);
            self.note(Event::BombDropped { at });
        }
    }

    /// Planting, defusing, and picking the bomb up.
    pub(crate) fn work(&mut self) {
        if self.round.phase != RoundPhase::Live {
            self.characters.iter_mut().for_each(|character| character.stop_work());
            return;
        }
        for seat in 0..self.characters.len() {
            let work = self.possible_work(seat);
            let takes = self.work_ticks(seat, work);
            let character = &mut self.characters[seat];
            if work == Work::Nothing {
                character.stop_work();
                continue;
            }
            if character.work != work {
                (character.work, character.worked, character.work_takes) = (work, 0, takes);
            }
            character.worked += 1;
            if character.worked >= character.work_takes {
                character.stop_work();
                self.finish_work(seat, work);
            }
        }
        if let Bomb::Dropped(at) = self.bomb {
            let is_near = |place: Vec3| (place - at).length_squared() < REACH_M * REACH_M;
            let taker = self.characters.iter().find(|character| {
                character.is_alive && character.team == Team::Attackers && is_near(character.mover.feet)
            });
            if let Some(by) = taker.map(|character| character.seat) {
                self.bomb = Bomb::Carried(by);
                self.note(Event::BombTaken { by });
            }
        }
    }

    /// The action of a player who holds the use button here.
    fn possible_work(&self, seat: usize) -> Work {
        let (Order { command, .. }, _) = self.orders[seat];
        let character = &self.characters[seat];
        let mover = &character.mover;
        let is_still = mover.is_grounded && mover.velocity.length_squared() < STILL_SPEED * STILL_SPEED;
        // A work that goes on stops its worker; one that begins waits until the worker stands.
        let can_work = character.is_alive && command.buttons.contains(Buttons::USE) && is_still;
        if !can_work {
            return Work::Nothing;
        }
        match self.bomb {
            Bomb::Carried(carrier) if carrier == character.seat && self.site_at(mover.feet).is_some() => Work::Planting,
            Bomb::Planted { at, .. }
                if character.team == Team::Defenders
                    && (mover.feet - at).length_squared() < DEFUSE_REACH_M * DEFUSE_REACH_M =>
            {
                Work::Defusing
            }
            _ => Work::Nothing,
        }
    }

    fn work_ticks(&self, seat: usize, work: Work) -> u32 {
        match work {
            Work::Defusing if self.characters[seat].has_kit => self.rules.ticks(self.rules.defuse_s / 2.0),
            Work::Defusing => self.rules.ticks(self.rules.defuse_s),
            Work::Planting | Work::Nothing => self.rules.ticks(self.rules.plant_s),
        }
    }

    fn site_at(&self, feet: Vec3) -> Option<char> {
        self.arena.sites().iter().find(|site| site.holds(feet)).map(|site| site.name)
    }

    fn finish_work(&mut self, seat: usize, work: Work) {
        let character = &mut self.characters[seat];
        character.earn(OBJECTIVE_MONEY);
        let (by, feet) = (character.seat, character.mover.feet);
        if work == Work::Planting {
            let explodes = self.now.after(self.rules.ticks(self.rules.fuse_s));
            self.bomb = Bomb::Planted { at: feet, by, explodes };
            self.round.ends = explodes;
            let site = self.site_at(feet).unwrap_or('a');
            self.note(Event::Planted { by, at: feet, site });
        } else if let Bomb::Planted { at, .. } = self.bomb {
            self.bomb = Bomb::Defused(at);
            self.note(Event::Defused { by });
        }
    }

    /// Lets the bomb explode when it is due, and ends the round if it is decided.
    pub(crate) fn decide(&mut self) {
        if self.round.phase != RoundPhase::Live {
            return;
        }
        if let Bomb::Planted { at, explodes, .. } = self.bomb
            && self.now >= explodes
        {
            self.explode(at);
        }
        let lives = |team: Team| self.characters.iter().any(|character| character.is_alive && character.team == team);
        let (attackers, defenders) = (lives(Team::Attackers), lives(Team::Defenders));
        match self.bomb {
            Bomb::Exploded(_) => self.end_round(Team::Attackers, Ending::Exploded),
            Bomb::Defused(_) => self.end_round(Team::Defenders, Ending::Defused),
            _ if !defenders => self.end_round(Team::Attackers, Ending::Eliminated),
            Bomb::Planted { .. } => {}
            _ if !attackers => self.end_round(Team::Defenders, Ending::Eliminated),
            _ => {}
        }
    }

    fn explode(&mut self, at: Vec3) {
        self.bomb = Bomb::Exploded(at);
        self.note(Event::Exploded { at });
        for seat in 0..self.characters.len() {
            let character = &mut self.characters[seat];
            let damage = Bomb::blast(character.mover.feet.distance(at));
            if character.is_alive && damage > 0.0 {
                character.hurt(damage, Zone::Body);
                if character.health == 0 {
                    self.kill(seat, None, false);
                }
            }
        }
    }

    pub(crate) fn end_round(&mut self, winner: Team, ending: Ending) {
        self.round.end(&self.rules, self.now, winner, ending);
        for character in &mut self.characters {
            character.earn(if character.team == winner { WIN_MONEY } else { LOSS_MONEY });
        }
        self.note(Event::RoundEnded { winner, ending, score: self.round.score });
    }
}
