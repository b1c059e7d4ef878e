//! Where a character walks: gait, jump, gravity, steps, and what stops it.

use glam::Vec3;
use throng_sight::Map;

use crate::ability::Barrier;
use crate::solid::{Body, CROUCHED_M, Push, RADIUS_M, STANDING_M, STEP_M, Solids};

/// Downwards, in m/s².
const GRAVITY: f32 = 17.0;
/// Upwards at the beginning of a jump, in m/s.
const JUMP_SPEED: f32 = 5.4;
/// Nobody falls faster, in m/s.
const FALL_SPEED_MAX: f32 = 30.0;
/// Change of velocity on the ground, in m/s².
const ACCELERATION: f32 = 45.0;
/// Change of velocity in the air, in m/s².
const AIR_ACCELERATION: f32 = 7.0;
/// Walking is slower than running by this factor.
pub(crate) const WALK_PACE: f32 = 0.52;
/// Crouched walking is slower than running by this factor.
pub(crate) const CROUCH_PACE: f32 = 0.42;
/// Time to crouch or to stand up, in seconds.
const STANCE_S: f32 = 0.15;
/// Feet stay on ground that is so far below them.
const SNAP_M: f32 = 0.3;
/// The longest part of a step: well below the radius.
const PART_M: f32 = 0.4 * RADIUS_M;
/// Parts of a step at most: a longer way is cut off.
const PARTS_MAX: u32 = 32;
/// The way of feet that a step may look at beyond its own.
const SLACK_M: f32 = 0.15;

/// The height of eyes above the feet, standing and crouched.
const EYES_M: [f32; 2] = [1.62, 1.08];

/// The height of eyes above the feet; 0 stands, 1 crouches.
pub(crate) fn eye_height_of(crouch: f32) -> f32 {
    EYES_M[0] + (EYES_M[1] - EYES_M[0]) * crouch
}

/// A body that moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mover {
    /// Between the feet.
    pub(crate) feet: Vec3,
    /// Metres per second.
    pub(crate) velocity: Vec3,
    /// 0 stands, 1 crouches.
    pub(crate) crouch: f32,
    pub(crate) is_grounded: bool,
}

/// The wish of a body for one step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Intent {
    /// Level, in metres per second.
    pub(crate) velocity: Vec3,
    pub(crate) jumps: bool,
    pub(crate) crouches: bool,
    /// The velocity is taken at once, and gravity waits.
    pub(crate) is_dash: bool,
}

/// The surroundings of a body.
pub(crate) struct Ground<'a> {
    pub(crate) map: &'a Map,
    pub(crate) barriers: &'a [Barrier],
    pub(crate) solids: &'a mut Solids,
}

impl Mover {
    pub(crate) fn at(feet: Vec3) -> Mover {
        Mover { feet, velocity: Vec3::ZERO, crouch: 0.0, is_grounded: true }
    }

    pub(crate) fn body(&self) -> Body {
        Body { height_m: STANDING_M + (CROUCHED_M - STANDING_M) * self.crouch }
    }

    pub(crate) fn eye_height(&self) -> f32 {
        eye_height_of(self.crouch)
    }

    pub(crate) fn eye(&self) -> Vec3 {
        self.feet + Vec3::new(0.0, self.eye_height(), 0.0)
    }

    /// The level speed as a part of `full`.
    pub(crate) fn pace(&self, full: f32) -> f32 {
        Vec3::new(self.velocity.x, 0.0, self.velocity.z).length() / full
    }

    /// Moves for `seconds`. True if the map had to be asked for triangles.
    pub(crate) fn step(&mut self, intent: Intent, seconds: f32, ground: &mut Ground<'_>) -> bool {
        self.accelerate(intent, seconds);
        let way = self.velocity * seconds;
        let parts = ((way.length() / PART_M).ceil() as u32).clamp(1, PARTS_MAX);
        let part = (way / parts as f32).clamp_length_max(PART_M);
        let reach = part * parts as f32;
        let slack = Vec3::splat(SLACK_M);
        let (low, high) = (self.feet.min(self.feet + reach) - slack, self.feet.max(self.feet + reach) + slack);
        let has_asked = ground.solids.gather(ground.map, low, high);
        self.stand(intent.crouches, seconds, ground);
        for _ in 0..parts {
            let falls = Vec3::new(0.0, part.y.min(0.0), 0.0);
            let is_done =
                self.part(part, intent.is_dash, ground) || (falls.y < 0.0 && self.part(falls, intent.is_dash, ground));
            if !is_done {
                break;
            }
        }
        has_asked
    }

    fn accelerate(&mut self, intent: Intent, seconds: f32) {
        if intent.is_dash {
            self.velocity = intent.velocity;
            return;
        }
        let level = Vec3::new(self.velocity.x, 0.0, self.velocity.z);
        let most = if self.is_grounded { ACCELERATION } else { AIR_ACCELERATION } * seconds;
        let level = level + (intent.velocity - level).clamp_length_max(most);
        (self.velocity.x, self.velocity.z) = (level.x, level.z);
        if self.is_grounded && intent.jumps {
            self.velocity.y = JUMP_SPEED;
            self.is_grounded = false;
        } else if !self.is_grounded {
            self.velocity.y = (self.velocity.y - GRAVITY * seconds).max(-FALL_SPEED_MAX);
        }
    }

    /// Crouches or stands up, as far as there is room.
    fn stand(&mut self, crouches: bool, seconds: f32, ground: &mut Ground<'_>) {
        let change = seconds / STANCE_S;
        if crouches {
            self.crouch = (self.crouch + change).min(1.0);
        } else if self.crouch > 0.0 {
            let taller = Mover { crouch: (self.crouch - change).max(0.0), ..*self };
            let (mut feet, mut velocity) = (self.feet, self.velocity);
            let push = ground.solids.push_out(ground.barriers, taller.body(), &mut feet, &mut velocity);
            if push != Push::Stuck && feet.distance_squared(self.feet) < 1e-6 {
                self.crouch = taller.crouch;
            }
        }
    }

    /// One part of a step. False if there is no place: then the body stays where it was.
    fn part(&mut self, way: Vec3, is_dash: bool, ground: &mut Ground<'_>) -> bool {
        let before = *self;
        self.feet += way;
        let push = ground.solids.push_out(ground.barriers, self.body(), &mut self.feet, &mut self.velocity);
        let Push::Free { is_held } = push else { return self.undo(before) };
        if self.velocity.y > 0.0 && !is_dash {
            self.is_grounded = false;
            return true;
        }
        let snap = if before.is_grounded { SNAP_M } else { 0.0 };
        let low = self.feet.y.min(before.feet.y) - snap;
        match ground.solids.ground(ground.barriers, self.feet, low, before.feet.y.max(self.feet.y) + STEP_M) {
            Some(height) if height >= self.feet.y || before.is_grounded => {
                self.feet.y = height;
                let push = ground.solids.push_out(ground.barriers, self.body(), &mut self.feet, &mut self.velocity);
                if push == Push::Stuck {
                    return self.undo(before);
                }
                self.velocity.y = 0.0;
                self.is_grounded = true;
            }
            _ => self.is_grounded = is_held,
        }
        if is_held {
            self.velocity.y = self.velocity.y.max(0.0);
        }
        true
    }

    fn undo(&mut self, before: Mover) -> bool {
        let fall = if before.is_grounded { 0.0 } else { before.velocity.y.min(0.0) };
        *self = Mover { velocity: Vec3::new(0.0, fall, 0.0), ..before };
        false
    }
}
