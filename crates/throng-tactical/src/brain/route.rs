//! Feet: follow a path, notice when that does not work, get unstuck.

use fastrand::Rng;
use glam::Vec3;
use throng_agent::{CellId, Path};

use super::watch::right;
use crate::command::{Buttons, Command};
use crate::senses::Own;

/// A point of the path is reached so near.
const REACHED_M: f32 = 0.3;
/// Feet aim at the point of the line that is so far ahead.
const AHEAD_M: f32 = 0.8;
/// The end of the way is reached so near.
const ARRIVED_M: f32 = 0.45;
/// Progress is looked at so often, in seconds.
const CHECK_S: f32 = 0.8;
/// Less than this way in that time is stuck.
const STUCK_M: f32 = 0.4;
/// Room for so many points of a path is there from the beginning.
const POINTS: usize = 256;
/// Jumping and stepping aside takes so long, in seconds.
const FREE_S: f32 = 0.45;

/// Where the feet go.
#[derive(Clone, Debug)]
pub(super) struct Route {
    /// The cell to which a path is wanted, until it comes.
    wanted: Option<CellId>,
    goal: Option<CellId>,
    path: Path,
    /// The point of the path that is next.
    next: usize,
    checked_at: Vec3,
    unchecked_s: f32,
    /// Times stuck, or without a path, since the goal was forgiven.
    pub(super) stuck: u32,
    free_s: f32,
    aside: f32,
}

impl Route {
    pub(super) fn new() -> Route {
        Route {
            wanted: None,
            goal: None,
            path: Path::with_capacity(POINTS),
            next: 0,
            checked_at: Vec3::ZERO,
            unchecked_s: 0.0,
            stuck: 0,
            free_s: 0.0,
            aside: 1.0,
        }
    }

    /// Goes to a cell. The same goal again changes nothing.
    pub(super) fn go(&mut self, goal: CellId) {
        if self.goal != Some(goal) {
            (self.goal, self.wanted) = (Some(goal), Some(goal));
        }
    }

    /// Forgets that it was stuck.
    pub(super) fn forgive(&mut self) {
        self.stuck = 0;
    }

    /// Goes nowhere.
    pub(super) fn halt(&mut self) {
        (self.goal, self.wanted) = (None, None);
        self.path.clear();
        self.next = 0;
    }

    /// The cell to which a path has to be found.
    pub(super) fn wanted(&self) -> Option<CellId> {
        self.wanted
    }

    /// A path was found, or none.
    pub(super) fn answer(&mut self, write: impl FnOnce(&mut Path)) {
        write(&mut self.path);
        self.wanted = None;
        self.next = 1.min(self.path.points().len());
        self.unchecked_s = 0.0;
        if self.path.points().is_empty() {
            self.goal = None;
            self.stuck += 1;
        }
    }

    /// A point of the path some metres ahead: where to look while walking.
    pub(super) fn ahead(&self, feet: Vec3, metres: f32) -> Option<Vec3> {
        let rest = self.path.points().get(self.next..)?;
        rest.iter().find(|point| point.distance(feet) > metres).or(rest.last()).copied()
    }

    /// Writes the movement of a tick.
    pub(super) fn act(&mut self, me: &Own, share: f32, tick_s: f32, random: &mut Rng, command: &mut Command) {
        let Some(way) = self.way(me.position) else { return };
        self.check(me.position, tick_s, random);
        if self.free_s > 0.0 {
            self.free_s -= tick_s;
            let aside = right(super::turn::yaw(super::turn::look(way)[0])) * self.aside;
            command.walk_along(way.normalize_or_zero() * 0.5 + aside, 1.0);
            command.buttons |= Buttons::JUMP;
            return;
        }
        command.walk_along(way, share);
    }

    /// The direction of the next stride.
    fn way(&mut self, feet: Vec3) -> Option<Vec3> {
        let points = self.path.points();
        loop {
            let to = *points.get(self.next)?;
            let from = points[self.next - 1];
            let (line, left) = (level(to - from), level(to - feet));
            let reach = if self.next + 1 == points.len() { ARRIVED_M } else { REACHED_M };
            let is_past = left.dot(line) <= 0.0 && left.length() < 1.2;
            if (left.length() < reach || is_past) && (to.y - feet.y).abs() < 1.5 {
                self.next += 1;
                continue;
            }
            // The place on the line a little ahead: feet come back to the line after a push.
            let length = line.length();
            let along = line.normalize_or_zero();
            let done = (length - left.dot(along) + AHEAD_M).clamp(0.0, length);
            let ahead = level(from - feet) + along * done;
            return Some(if ahead.length() > 0.05 { ahead } else { left });
        }
    }

    fn check(&mut self, feet: Vec3, tick_s: f32, random: &mut Rng) {
        self.unchecked_s += tick_s;
        if self.unchecked_s < CHECK_S {
            return;
        }
        if self.checked_at.distance(feet) < STUCK_M {
            self.stuck += 1;
            self.free_s = FREE_S;
            self.aside = if random.bool() { 1.0 } else { -1.0 };
            // From here there may be another way.
            self.wanted = self.goal;
        }
        (self.checked_at, self.unchecked_s) = (feet, 0.0);
    }
}

fn level(way: Vec3) -> Vec3 {
    Vec3::new(way.x, 0.0, way.z)
}
