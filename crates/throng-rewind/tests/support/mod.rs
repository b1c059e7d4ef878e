//! People who run, strafe, turn, crouch and jump, with 20 bones. z points up, and people look along x.

#![allow(dead_code, reason = "each target uses a part of it")]

use std::f32::consts::TAU;
use throng_rewind::{Bone, BonePose, Capsule, Skeleton, Transform};

pub(crate) const TICKS_PER_S: u32 = 128;

const BONES: [(&str, u8, [f32; 3], f32); 20] = [
    ("pelvis", 1, [0.0, 0.0, 0.12], 0.15),
    ("belly", 1, [0.0, 0.0, 0.14], 0.14),
    ("chest", 1, [0.0, 0.0, 0.2], 0.16),
    ("neck", 0, [0.0, 0.0, 0.08], 0.06),
    ("head", 0, [0.0, 0.0, 0.12], 0.11),
    ("left shoulder", 1, [0.0, 0.15, 0.0], 0.07),
    ("left upper arm", 2, [0.0, 0.0, -0.28], 0.055),
    ("left forearm", 2, [0.0, 0.0, -0.25], 0.045),
    ("left hand", 2, [0.0, 0.0, -0.1], 0.045),
    ("right shoulder", 1, [0.0, -0.15, 0.0], 0.07),
    ("right upper arm", 2, [0.0, 0.0, -0.28], 0.055),
    ("right forearm", 2, [0.0, 0.0, -0.25], 0.045),
    ("right hand", 2, [0.0, 0.0, -0.1], 0.045),
    ("left thigh", 2, [0.0, 0.0, -0.42], 0.085),
    ("left shin", 2, [0.0, 0.0, -0.4], 0.06),
    ("left foot", 2, [0.18, 0.0, 0.0], 0.05),
    ("right thigh", 2, [0.0, 0.0, -0.42], 0.085),
    ("right shin", 2, [0.0, 0.0, -0.4], 0.06),
    ("right foot", 2, [0.18, 0.0, 0.0], 0.05),
    ("pack", 1, [-0.05, 0.0, 0.25], 0.13),
];

pub(crate) fn skeleton() -> Skeleton {
    let bones =
        BONES.iter().map(|(name, zone, end, radius)| Bone::new(name, *zone, Capsule::new([0.0; 3], *end, *radius)));
    Skeleton::new(bones.collect()).unwrap()
}

/// A rotation about an axis of length 1.
pub(crate) fn about(axis: [f32; 3], angle: f32) -> [f32; 4] {
    let (sine, cosine) = (angle / 2.0).sin_cos();
    [axis[0] * sine, axis[1] * sine, axis[2] * sine, cosine]
}

fn turned(q: [f32; 4], v: [f32; 3]) -> [f32; 3] {
    let whole = Transform::new([0.0; 3], q).point(v.map(f64::from));
    whole.map(|value| value as f32)
}

fn plus(a: [f32; 3], b: [f32; 3]) -> [f32; 3] {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

/// The bones in a phase of the walk (0 to 1), with a length of stride (0 to 1) and a depth of crouch (0 to 1).
pub(crate) fn pose(phase: f32, stride: f32, crouch: f32) -> Vec<BonePose> {
    let swing = (phase * TAU).sin() * 0.6 * stride;
    let about_y = |angle: f32| about([0.0, 1.0, 0.0], angle);
    let hip = [0.0, 0.0, 0.95 - 0.35 * crouch + 0.03 * (phase * 2.0 * TAU).cos() * stride];
    let lean = about_y(0.1 * stride + 0.3 * crouch);
    let up = |height: f32| plus(hip, turned(lean, [0.0, 0.0, height]));
    let mut bones = vec![
        BonePose::new(hip, lean),
        BonePose::new(up(0.12), lean),
        BonePose::new(up(0.28), lean),
        BonePose::new(up(0.5), lean),
        BonePose::new(up(0.6), about_y(0.0)),
    ];
    for (side, swing) in [(1.0f32, swing), (-1.0, -swing)] {
        let shoulder = plus(up(0.45), [0.0, 0.05 * side, 0.0]);
        let joint = plus(shoulder, [0.0, 0.17 * side, 0.0]);
        let (upper, lower) = (about_y(swing - 0.5), about_y(swing - 1.2));
        let elbow = plus(joint, turned(upper, [0.0, 0.0, -0.28]));
        let wrist = plus(elbow, turned(lower, [0.0, 0.0, -0.25]));
        bones.push(BonePose::at(shoulder));
        bones.push(BonePose::new(joint, upper));
        bones.push(BonePose::new(elbow, lower));
        bones.push(BonePose::new(wrist, lower));
    }
    for (side, swing) in [(1.0f32, -swing), (-1.0, swing)] {
        let joint = plus(hip, [0.0, 0.1 * side, 0.0]);
        let (upper, lower) = (about_y(swing - 0.9 * crouch), about_y(swing * 0.5 + 0.3 * stride + 0.9 * crouch));
        let knee = plus(joint, turned(upper, [0.0, 0.0, -0.42]));
        let ankle = plus(knee, turned(lower, [0.0, 0.0, -0.4]));
        bones.push(BonePose::new(joint, upper));
        bones.push(BonePose::new(knee, lower));
        bones.push(BonePose::at(ankle));
    }
    bones.push(BonePose::new(plus(up(0.25), [-0.15, 0.0, 0.0]), lean));
    bones
}

/// A player under the control of a seed.
pub(crate) struct Player {
    pub(crate) random: fastrand::Rng,
    pub(crate) at: [f64; 3],
    velocity: [f64; 2],
    wish: [f64; 2],
    wish_ticks: u32,
    yaw: f32,
    turn: f32,
    phase: f32,
    crouch: f32,
    wish_crouch: f32,
    climb: f64,
}

impl Player {
    pub(crate) fn new(seed: u64, at: [f64; 3]) -> Player {
        let random = fastrand::Rng::with_seed(seed);
        Player {
            random,
            at,
            velocity: [0.0; 2],
            wish: [0.0; 2],
            wish_ticks: 0,
            yaw: 0.0,
            turn: 0.0,
            phase: 0.0,
            crouch: 0.0,
            wish_crouch: 0.0,
            climb: 0.0,
        }
    }

    /// Moves by one tick: 5.4 m/s at most, 40 m/s² of acceleration, flicks of up to 720 degrees per second.
    pub(crate) fn step(&mut self) {
        let dt = 1.0 / f64::from(TICKS_PER_S);
        if self.wish_ticks == 0 {
            let random = &mut self.random;
            self.wish_ticks = random.u32(20..140);
            let angle = random.f64() * std::f64::consts::TAU;
            let speed = *random.choice(&[0.0, 2.7, 5.4, 5.4]).unwrap();
            self.wish = [speed * angle.cos(), speed * angle.sin()];
            self.turn = (random.f32() * 2.0 - 1.0).powi(3) * 12.5;
            self.wish_crouch = if random.u8(..) < 50 { 1.0 } else { 0.0 };
            if self.at[2] == 0.0 && random.u8(..) < 40 {
                self.climb = 3.0;
            }
        }
        self.wish_ticks -= 1;
        for axis in 0..2 {
            let most = 40.0 * dt;
            self.velocity[axis] += (self.wish[axis] - self.velocity[axis]).clamp(-most, most);
            self.at[axis] += self.velocity[axis] * dt;
        }
        self.climb -= 9.81 * dt;
        self.at[2] = (self.at[2] + self.climb * dt).max(0.0);
        if self.at[2] == 0.0 {
            self.climb = 0.0;
        }
        self.turn *= 0.97;
        self.yaw += self.turn * dt as f32;
        self.crouch += (self.wish_crouch - self.crouch).clamp(-5.0 * dt as f32, 5.0 * dt as f32);
        self.phase = (self.phase + self.stride() * 1.8 * dt as f32).fract();
    }

    fn stride(&self) -> f32 {
        (self.velocity[0].hypot(self.velocity[1]) / 5.4) as f32
    }

    pub(crate) fn root(&self) -> Transform {
        Transform::new(self.at, about([0.0, 0.0, 1.0], self.yaw))
    }

    pub(crate) fn bones(&self) -> Vec<BonePose> {
        pose(self.phase, self.stride(), self.crouch)
    }
}
