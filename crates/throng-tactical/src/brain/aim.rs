//! The hand with the mouse: turns towards a point with limited speed and an error that shrinks, pulls against recoil,
//! and pulls the trigger only when the shot would be near.

use fastrand::Rng;
use glam::Vec3;

use super::turn::{look, wrap};
use crate::command::{Buttons, Command};
use crate::senses::Own;
use crate::weapon::Weapon;

/// How good a player is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Skill {
    /// Time from the sight of an enemy to the first movement, in milliseconds.
    pub reaction_ms: u32,
    /// Fastest turn in radians per second.
    pub turn_per_s: f32,
    /// How far beside the enemy the hand aims at first, in metres; it shrinks to a fifth within a second.
    pub error_m: f32,
    /// Directions in which the player looks how far all is free, for each decision: where to look next comes from them.
    pub fan_rays: u32,
}

impl Default for Skill {
    /// A fair player.
    fn default() -> Skill {
        Skill { reaction_ms: 230, turn_per_s: 7.0, error_m: 0.5, fan_rays: 4 }
    }
}

/// Change of the speed of turning, in radians per second squared.
const ACCELERATION: f32 = 90.0;
/// Share of the remaining angle that is turned in a second, if nothing else limits it.
const GAIN: f32 = 14.0;
/// The part of the error that stays.
const ERROR_REST: f32 = 0.2;
/// The error falls to 1/e in this time, in seconds.
const ERROR_S: f32 = 0.3;
/// The part of the recoil that is pulled against.
const PULL: f32 = 0.85;
/// The trigger is pulled if the shot would pass so near to the point, in metres.
const NEAR_M: f32 = 0.24;
/// A burst cools down by a shot in this time, in seconds.
const COOL_S: f32 = 0.09;

/// The state of the hand.
#[derive(Clone, Debug)]
pub(super) struct Aim {
    /// Yaw and pitch in radians.
    at: [f32; 2],
    speed: [f32; 2],
    /// How far the hand aims to the right and above, as parts of the error.
    error: [f32; 2],
    error_left: f32,
    shots: f32,
    shown_rounds: Option<(Weapon, u16)>,
    since_shot_s: f32,
    trigger: Trigger,
}

/// Shots come in bursts with pauses.
#[derive(Clone, Copy, Debug, Default)]
struct Trigger {
    shots_left: u16,
    pause_s: f32,
    is_held: bool,
}

/// Where to look, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Gaze {
    /// Along this direction.
    Along(Vec3),
    /// At a point, without shooting.
    At(Vec3),
    /// At a point of an enemy who can be hit.
    Enemy(Vec3),
}

impl Aim {
    pub(super) fn new() -> Aim {
        Aim {
            at: [0.0; 2],
            speed: [0.0; 2],
            error: [0.0; 2],
            error_left: 0.0,
            shots: 0.0,
            shown_rounds: None,
            since_shot_s: 9.0,
            trigger: Trigger::default(),
        }
    }

    /// The hand takes over where the player looks.
    pub(super) fn take_over(&mut self, me: &Own) {
        self.at = [wrap(crate::angle::yaw_rad(me.yaw)), crate::angle::pitch_rad(me.pitch)];
        self.speed = [0.0; 2];
        self.shown_rounds = None;
    }

    /// The yaw in radians.
    pub(super) fn yaw(&self) -> f32 {
        self.at[0]
    }

    /// An enemy was noticed: the first aim is far off.
    pub(super) fn startle(&mut self, random: &mut Rng) {
        self.error = [bell(random), bell(random)];
        self.error_left = 1.0;
        self.trigger = Trigger::default();
    }

    /// Whether a burst is over and the next has not begun.
    pub(super) fn pauses(&self) -> bool {
        self.trigger.pause_s > 0.0
    }

    /// Turns the hand for a tick and writes yaw, pitch and trigger into the command.
    pub(super) fn act(&mut self, me: &Own, gaze: Gaze, skill: &Skill, tick_s: f32, random: &mut Rng) -> Act {
        self.count_shots(me, tick_s);
        self.error_left -= (self.error_left - ERROR_REST) * (tick_s / ERROR_S).min(1.0);
        if random.f32() < 3.0 * tick_s {
            self.error = [bell(random), bell(random)];
        }
        let (wanted, distance) = self.wanted(me, gaze, skill);
        for (axis, wanted) in wanted.into_iter().enumerate() {
            let left = wrap(wanted - self.at[axis]);
            let speed = (left * GAIN).clamp(-skill.turn_per_s, skill.turn_per_s);
            let change = (speed - self.speed[axis]).clamp(-ACCELERATION * tick_s, ACCELERATION * tick_s);
            self.speed[axis] += change;
            self.at[axis] += self.speed[axis] * tick_s;
        }
        self.at = [wrap(self.at[0]), self.at[1].clamp(-1.5, 1.5)];
        let buttons = match gaze {
            Gaze::Enemy(point) => self.pull(me, point, distance, tick_s, random),
            _ => {
                self.trigger = Trigger::default();
                Buttons::NONE
            }
        };
        Act { yaw: super::turn::yaw(self.at[0]), pitch: super::turn::pitch(self.at[1]), buttons }
    }

    /// The angles that the hand turns to, and the distance of the point.
    fn wanted(&self, me: &Own, gaze: Gaze, skill: &Skill) -> ([f32; 2], f32) {
        let eye = me.eye();
        match gaze {
            Gaze::Along(direction) => (look(direction), 0.0),
            Gaze::At(point) => (look(point - eye), (point - eye).length()),
            Gaze::Enemy(point) => {
                let way = point - eye;
                let distance = way.length().max(0.5);
                let size = skill.error_m * self.error_left / distance;
                let [yaw, pitch] = look(way);
                let [up, right] = self.recoil(me);
                // To the right is towards smaller yaws.
                let yaw = yaw - self.error[0] * size + PULL * right;
                ([yaw, pitch + 0.6 * self.error[1] * size - PULL * up], distance)
            }
        }
    }

    /// How far the next shot goes up and to the right.
    fn recoil(&self, me: &Own) -> [f32; 2] {
        let pattern = me.weapon.facts().recoil;
        let place = (self.shots as usize).min(pattern.len().saturating_sub(1));
        pattern.get(place).copied().unwrap_or_default()
    }

    fn count_shots(&mut self, me: &Own, tick_s: f32) {
        self.since_shot_s += tick_s;
        let fired = match self.shown_rounds {
            Some((weapon, rounds)) if weapon == me.weapon => rounds.saturating_sub(me.ammunition),
            _ => {
                self.shots = 0.0;
                0
            }
        };
        self.shown_rounds = Some((me.weapon, me.ammunition));
        if fired > 0 {
            self.shots += f32::from(fired);
            self.since_shot_s = 0.0;
            self.trigger.shots_left = self.trigger.shots_left.saturating_sub(fired);
        } else if self.since_shot_s > me.weapon.facts().interval_us as f32 * 1e-6 {
            self.shots = (self.shots - tick_s / COOL_S).max(0.0);
        }
    }

    /// Whether to hold the trigger.
    fn pull(&mut self, me: &Own, point: Vec3, distance: f32, tick_s: f32, random: &mut Rng) -> Buttons {
        let facts = me.weapon.facts();
        if self.trigger.pause_s > 0.0 {
            self.trigger.pause_s -= tick_s;
            return Buttons::NONE;
        }
        let [yaw, pitch] = look(point - me.eye());
        let [up, right] = self.recoil(me);
        let off = [wrap(self.at[0] - right - yaw), self.at[1] + up - pitch];
        let miss_m = distance * (off[0] * off[0] + off[1] * off[1]).sqrt();
        let is_still = me.velocity.length() < 0.3 * facts.speed || distance < 3.0;
        if self.trigger.shots_left == 0 {
            self.trigger.is_held = false;
            self.trigger.shots_left = match (facts.is_automatic, distance) {
                (false, _) => 1,
                (true, d) if d < 10.0 => random.u16(8..14),
                (true, d) if d < 25.0 => random.u16(4..7),
                _ => random.u16(2..4),
            };
            if self.since_shot_s < 1.0 {
                // A shot of a weapon that is no automatic needs a released trigger.
                let rest = if facts.is_automatic { 0.15 + distance * 0.006 } else { facts.interval_us as f32 * 1e-6 };
                self.trigger.pause_s = rest * (0.7 + 0.5 * random.f32());
                return Buttons::NONE;
            }
        }
        let may = miss_m < NEAR_M * if self.trigger.is_held { 2.0 } else { 1.0 };
        self.trigger.is_held = may && is_still && me.ammunition > 0 && !me.is_reloading;
        if self.trigger.is_held { Buttons::FIRE } else { Buttons::NONE }
    }
}

/// A tick of the hand.
pub(super) struct Act {
    pub(super) yaw: u16,
    pub(super) pitch: i16,
    pub(super) buttons: Buttons,
}

impl Act {
    pub(super) fn write(&self, command: &mut Command) {
        (command.yaw, command.pitch) = (self.yaw, self.pitch);
        command.buttons |= self.buttons;
    }
}

/// A number around 0, seldom beyond 1.
fn bell(random: &mut Rng) -> f32 {
    (0..4).map(|_| random.f32() - 0.5).sum()
}
