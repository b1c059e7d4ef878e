//! The first half of a step: rounds turn, players choose, buy, use abilities and walk.

use glam::Vec3;
use throng_rewind::{BonePose, Break, Escape, PartId, Transform};
use throng_sight::{Ray, town};

use crate::ability::{
    Barrier, DASH_ABILITY, DASH_S, DASH_SPEED, Dash, SMOKE_DELAY_S, SMOKE_RANGE_M, SMOKE_S, SMOKES_MAX, Smoke,
    WALL_DISTANCE_M, WALL_KEPT_S, WALL_RISE_S, WALL_S,
};
use crate::angle::{direction, level, sine_cosine, sine_cosine_of, yaw_rad};
use crate::bomb::Bomb;
use crate::character::{Character, Work};
use crate::command::{Buttons, Choice, Command};
use crate::event::{Ending, Event};
use crate::inbox::Order;
use crate::pose::pose;
use crate::round::Turn;
use crate::senses::{RoundPhase, Team};
use crate::tactical::{POSE_TICKS, Tactical};
use crate::walk::{CROUCH_PACE, Ground, Intent, WALK_PACE};

/// A dash is remembered for so long after its end, in seconds: no shot is rewound farther.
const DASH_KEPT_S: f32 = 1.0;

impl Tactical {
    /// Ends and begins phases and rounds.
    pub(crate) fn turn_round(&mut self) {
        match self.round.turn(&self.rules, self.now) {
            Turn::GoesOn => {}
            Turn::Begins => self.begin_round(),
            Turn::GoesLive => {
                self.round.go_live(&self.rules, self.now);
                self.note(Event::WentLive);
                for character in &self.characters {
                    self.rewind.break_body(character.body, self.now, Break::Spawn);
                    if let Some(twin) = &mut self.twin {
                        twin.break_body(character.body, self.now, Break::Spawn);
                    }
                }
            }
            // With a planted bomb the time ends with the explosion.
            Turn::TimeIsOver if self.bomb.is_planted() => {}
            Turn::TimeIsOver => self.end_round(Team::Defenders, Ending::Time),
            Turn::MatchEnds => self.round.over(self.now),
        }
    }

    fn begin_round(&mut self) {
        self.round.begin(&self.rules, self.now);
        self.smokes.clear();
        while let Some(barrier) = self.barriers.pop() {
            self.break_part(barrier.part, Break::Death);
            self.free_parts.push(barrier.part);
        }
        self.free_parts.extend(self.fallen.drain(..).map(|barrier| barrier.part));
        let yaws = Team::BOTH.map(|team| self.arena.spawn_yaw(team));
        let team_size = usize::from(self.rules.team_size);
        for (seat, character) in self.characters.iter_mut().enumerate() {
            let place = self.arena.spawns(character.team)[seat % team_size];
            character.spawn(place, yaws[character.team as usize]);
            self.inboxes[seat].turn(character.yaw);
        }
        let carrier = self.random.usize(..team_size);
        self.bomb = Bomb::Carried(self.characters[carrier].seat);
        self.note(Event::RoundBegan { round: self.round.number });
    }

    /// Breaks the way of a wall's part: shots of later moments do not meet the wall that had it.
    fn break_part(&mut self, part: PartId, cause: Break) {
        self.rewind.break_part(part, self.now, cause);
        if let Some(twin) = &mut self.twin {
            twin.break_part(part, self.now, cause);
        }
    }

    /// The actions of all players in this tick.
    pub(crate) fn take_orders(&mut self) {
        let now_us = self.now_us();
        let is_buying = self.round.phase == RoundPhase::Buy;
        for seat in 0..self.characters.len() {
            let character = &mut self.characters[seat];
            let events = &mut self.events;
            let order = self.inboxes[seat].take(|choice| match choice {
                Choice::Nothing => {}
                _ if !character.is_alive => {}
                Choice::Draw(slot) => character.draw(slot, now_us),
                Choice::Buy(item) => {
                    if is_buying && character.buy(item) && events.len() < events.capacity() {
                        events.push(Event::Bought { seat: character.seat, item });
                    }
                }
            });
            let command = order.command;
            let pressed = character.pressed(&command);
            character.held = command.buttons;
            self.orders[seat] = (order, pressed);
            if !character.is_alive {
                continue;
            }
            (character.yaw, character.pitch) = (command.yaw, command.pitch);
            let carried = character.carried_mut();
            carried.settle(now_us);
            if pressed.contains(Buttons::RELOAD) || carried.loaded == 0 {
                carried.reload(now_us);
            }
            if !is_buying {
                self.use_abilities(seat, &command, pressed);
            }
        }
        let kept = self.rules.ticks(DASH_KEPT_S);
        for character in &mut self.characters {
            character.dash = character.dash.filter(|dash| self.now < dash.until.after(kept));
        }
    }

    fn use_abilities(&mut self, seat: usize, command: &Command, pressed: Buttons) {
        let charges = self.characters[seat].charges;
        if pressed.contains(Buttons::SMOKE) && charges.smoke > 0 && self.smokes.len() < SMOKES_MAX {
            self.throw_smoke(seat, command);
        }
        if pressed.contains(Buttons::WALL) && charges.wall > 0 {
            self.raise_wall(seat, command);
        }
        if pressed.contains(Buttons::DASH) && charges.dash > 0 {
            self.dash(seat, command);
        }
    }

    fn throw_smoke(&mut self, seat: usize, command: &Command) {
        let character = &self.characters[seat];
        let ahead = direction(command.yaw, command.pitch);
        let Ok(ray) = Ray::new(character.mover.eye(), ahead, SMOKE_RANGE_M) else { return };
        let hit = self.arena.map().closest(&ray, town::BODIES);
        let far_m = hit.map_or(SMOKE_RANGE_M, |hit| (hit.distance_m - 0.3).max(0.0));
        let (from, at) = (self.now.after(self.rules.ticks(SMOKE_DELAY_S)), ray.at(far_m));
        self.made += 1;
        let (number, maker) = (self.made, self.characters[seat].seat);
        let until = from.after(self.rules.ticks(SMOKE_S));
        self.smokes.push(Smoke { number, maker, middle: at, from, until });
        self.characters[seat].charges.smoke -= 1;
        self.note(Event::Smoke { by: self.characters[seat].seat, at });
    }

    /// A wall stands on ground that its maker sees, and in nobody's way.
    fn raise_wall(&mut self, seat: usize, command: &Command) {
        let character = &self.characters[seat];
        let ahead = direction(command.yaw, 0);
        let above = character.mover.feet + ahead * WALL_DISTANCE_M + Vec3::new(0.0, 1.2, 0.0);
        let map = self.arena.map();
        let is_hidden = Ray::between(character.mover.eye(), above).is_ok_and(|ray| map.is_blocked(&ray, town::BODIES));
        let down = Ray::new(above, Vec3::NEG_Y, 2.4).ok();
        let ground = down.and_then(|ray| Some(ray.at(map.closest(&ray, town::BODIES)?.distance_m)));
        let Some(foot) = ground.filter(|_| !is_hidden) else { return };
        let mut barrier = Barrier {
            number: self.made + 1,
            maker: character.seat,
            part: PartId(0),
            foot,
            yaw: command.yaw,
            from: self.now,
            until: self.now.after(self.rules.ticks(WALL_S)),
        };
        let is_in_the_way = |other: &Character| {
            let mut feet = other.mover.feet;
            other.is_alive
                && (barrier.is_above(feet) || barrier.push(&mut feet, other.mover.body().height_m) != Ok(None))
        };
        if self.characters.iter().any(is_in_the_way) {
            return;
        }
        let Some(part) = self.free_parts.pop() else { return };
        // Nothing is left of the wall that had this part before.
        self.break_part(part, Break::Spawn);
        barrier.part = part;
        self.made = barrier.number;
        self.barriers.push(barrier);
        self.characters[seat].charges.wall -= 1;
        self.note(Event::Wall { by: barrier.maker, at: foot });
    }

    fn dash(&mut self, seat: usize, command: &Command) {
        let way = level(command.yaw, command.forward, command.right);
        let ahead = if way.length_squared() > 0.01 { way.normalize() } else { direction(command.yaw, 0) };
        let began = self.rewind.options().judge.view.fired(self.now, self.latency(seat));
        let until = self.now.after(self.rules.ticks(DASH_S));
        let character = &mut self.characters[seat];
        character.charges.dash -= 1;
        let escape = Escape { began, ability: DASH_ABILITY };
        character.dash = Some(Dash { velocity: ahead * DASH_SPEED, until, escape });
        let by = character.seat;
        self.note(Event::Dash { by });
    }

    /// Everybody walks.
    pub(crate) fn walk(&mut self) {
        let seconds = self.rules.tick_s();
        for (seat, character) in self.characters.iter_mut().enumerate() {
            if !character.is_alive {
                continue;
            }
            let (Order { command, .. }, pressed) = self.orders[seat];
            let is_busy = character.work != Work::Nothing;
            let full = character.carried().weapon.facts().speed;
            let pace = match () {
                () if character.mover.crouch > 0.5 => CROUCH_PACE,
                () if command.buttons.contains(Buttons::WALK) => WALK_PACE,
                () => 1.0,
            };
            let way = if is_busy { Vec3::ZERO } else { level(command.yaw, command.forward, command.right) };
            let dash = character.dash.filter(|dash| self.now < dash.until);
            let intent = Intent {
                velocity: dash.map_or(way * full * pace, |dash| dash.velocity),
                jumps: pressed.contains(Buttons::JUMP) && !is_busy,
                crouches: command.buttons.contains(Buttons::CROUCH),
                is_dash: dash.is_some(),
            };
            let solids = &mut self.solids[seat];
            let mut ground = Ground { map: self.arena.map(), barriers: &self.barriers, solids };
            self.counters.map_queries += u64::from(character.mover.step(intent, seconds, &mut ground));
        }
        for seat in 0..self.characters.len() {
            let character = &self.characters[seat];
            if character.is_alive && character.mover.feet.y < self.arena.lowest_m() - 10.0 {
                self.counters.fallen += 1;
                self.kill(seat, None, false);
            }
        }
    }

    /// Smokes end; walls rise, stand and fall.
    pub(crate) fn move_parts(&mut self) {
        let now = self.now;
        self.smokes.retain(|smoke| now < smoke.until);
        let rise = self.rules.ticks(WALL_RISE_S);
        let mut place = 0;
        while let Some(barrier) = self.barriers.get(place).copied() {
            if now >= barrier.until {
                self.barriers.remove(place);
                self.break_part(barrier.part, Break::Death);
                self.fallen.push(barrier);
                continue;
            }
            let age = now.since(barrier.from);
            if age <= rise {
                let transform = barrier.transform(age as f32 / rise as f32);
                // A part is refused only for wrong numbers, and the rewinding counts it.
                let _ = self.rewind.record_part(barrier.part, now, &transform);
                if let Some(twin) = &mut self.twin {
                    twin.record_part(barrier.part, now, &transform);
                }
            }
            place += 1;
        }
        let kept = self.rules.ticks(WALL_KEPT_S);
        while let Some(barrier) = self.fallen.first().copied().filter(|barrier| now >= barrier.until.after(kept)) {
            self.fallen.remove(0);
            self.free_parts.push(barrier.part);
        }
    }

    /// Records where everybody is; poses when they are due, each character in its own ticks, and when somebody fires who
    /// sees this character later than in its newest pose.
    pub(crate) fn animate(&mut self) {
        let seconds = self.rules.tick_s();
        let seen_between = self.seen_between_poses();
        for (seat, character) in self.characters.iter_mut().enumerate() {
            if !character.is_alive {
                continue;
            }
            let mover = &character.mover;
            character.motion.advance(mover.velocity, sine_cosine(character.yaw), mover.is_grounded, seconds);
            let (sine, cosine) = sine_cosine_of(yaw_rad(character.yaw) / 2.0);
            let root = Transform::new(mover.feet.as_dvec3(), [0.0, sine, 0.0, cosine]);
            let is_new = self.rewind.body(character.body).is_some_and(|history| history.newest().is_none());
            let is_due = is_new
                || seen_between[character.team as usize]
                || (self.now.0 + seat as u64).is_multiple_of(POSE_TICKS.into());
            let mut bones: Option<[BonePose; crate::skeleton::BONES]> = None;
            if is_due || self.twin.is_some() {
                character.motion.crouch = mover.crouch;
                character.motion.aim = f32::from(character.pitch) / f32::from(i16::MAX);
                character.motion.time_s = (self.now.0 % (1 << 20)) as f32 * seconds;
                bones = Some(pose(&character.motion));
            }
            // Places are refused only for wrong numbers, and the rewinding counts them.
            if let (true, Some(bones)) = (is_due, &bones) {
                let _ = self.rewind.record(character.body, self.now, &root, bones);
                self.counters.poses += 1;
            } else {
                let _ = self.rewind.record_root(character.body, self.now, &root);
                self.counters.poses_saved_by_cadence += 1;
            }
            if let (Some(twin), Some(bones)) = (&mut self.twin, &bones) {
                twin.record(character.body, self.now, &root, bones);
            }
        }
    }
}
