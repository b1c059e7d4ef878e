//! Keyframed clips: how bones are turned, key after key.
//!
//! A clip is written down as degrees for the bones that move. At the first use, all clips become rotations for all bones.

use std::sync::LazyLock;

use crate::rotation::{Rotation, UNTURNED, of_degrees};
use crate::skeleton::{
    BONES, CHEST, FOOT_L, FOOT_R, FOREARM_L, FOREARM_R, HEAD, NECK, PELVIS, SHIN_L, SHIN_R, SPINE, THIGH_L, THIGH_R,
    UPPER_ARM_L, UPPER_ARM_R, WAIST,
};

/// How far the pelvis is lowered, in metres, and how bones are turned around x, y and z, in degrees.
type Written = (f32, &'static [(usize, [f32; 3])]);

/// Both hands at the weapon, in every clip of somebody who lives.
const ARMS: [(usize, [f32; 3]); 4] = [
    (UPPER_ARM_R, [-40.0, 10.0, 0.0]),
    (FOREARM_R, [-75.0, 25.0, 0.0]),
    (UPPER_ARM_L, [-65.0, -25.0, 0.0]),
    (FOREARM_L, [-45.0, -30.0, 0.0]),
];

const IDLE: &[Written] =
    &[(0.0, &[(CHEST, [2.0, 0.0, 0.0])]), (0.008, &[(CHEST, [4.5, 0.0, 0.0]), (HEAD, [-2.0, 0.0, 0.0])])];

const WALK: &[Written] = &[
    (
        0.02,
        &[
            (SPINE, [4.0, 0.0, 0.0]),
            (THIGH_L, [-24.0, 0.0, 0.0]),
            (SHIN_L, [8.0, 0.0, 0.0]),
            (THIGH_R, [18.0, 0.0, 0.0]),
            (SHIN_R, [16.0, 0.0, 0.0]),
        ],
    ),
    (
        0.0,
        &[
            (SPINE, [4.0, 0.0, 0.0]),
            (THIGH_L, [-2.0, 0.0, 0.0]),
            (SHIN_L, [4.0, 0.0, 0.0]),
            (THIGH_R, [-8.0, 0.0, 0.0]),
            (SHIN_R, [42.0, 0.0, 0.0]),
        ],
    ),
    (
        0.02,
        &[
            (SPINE, [4.0, 0.0, 0.0]),
            (THIGH_L, [18.0, 0.0, 0.0]),
            (SHIN_L, [16.0, 0.0, 0.0]),
            (THIGH_R, [-24.0, 0.0, 0.0]),
            (SHIN_R, [8.0, 0.0, 0.0]),
        ],
    ),
    (
        0.0,
        &[
            (SPINE, [4.0, 0.0, 0.0]),
            (THIGH_L, [-8.0, 0.0, 0.0]),
            (SHIN_L, [42.0, 0.0, 0.0]),
            (THIGH_R, [-2.0, 0.0, 0.0]),
            (SHIN_R, [4.0, 0.0, 0.0]),
        ],
    ),
];

const RUN: &[Written] = &[
    (
        0.06,
        &[
            (PELVIS, [6.0, -8.0, 0.0]),
            (SPINE, [6.0, 4.0, 0.0]),
            (THIGH_L, [-48.0, 0.0, 0.0]),
            (SHIN_L, [26.0, 0.0, 0.0]),
            (THIGH_R, [26.0, 0.0, 0.0]),
            (SHIN_R, [38.0, 0.0, 0.0]),
        ],
    ),
    (
        0.02,
        &[
            (PELVIS, [6.0, 0.0, 0.0]),
            (SPINE, [6.0, 0.0, 0.0]),
            (THIGH_L, [-10.0, 0.0, 0.0]),
            (SHIN_L, [14.0, 0.0, 0.0]),
            (THIGH_R, [-22.0, 0.0, 0.0]),
            (SHIN_R, [88.0, 0.0, 0.0]),
        ],
    ),
    (
        0.06,
        &[
            (PELVIS, [6.0, 8.0, 0.0]),
            (SPINE, [6.0, -4.0, 0.0]),
            (THIGH_L, [26.0, 0.0, 0.0]),
            (SHIN_L, [38.0, 0.0, 0.0]),
            (THIGH_R, [-48.0, 0.0, 0.0]),
            (SHIN_R, [26.0, 0.0, 0.0]),
        ],
    ),
    (
        0.02,
        &[
            (PELVIS, [6.0, 0.0, 0.0]),
            (SPINE, [6.0, 0.0, 0.0]),
            (THIGH_L, [-22.0, 0.0, 0.0]),
            (SHIN_L, [88.0, 0.0, 0.0]),
            (THIGH_R, [-10.0, 0.0, 0.0]),
            (SHIN_R, [14.0, 0.0, 0.0]),
        ],
    ),
];

const CROUCH: &[Written] = &[
    (
        0.46,
        &[
            (SPINE, [6.0, 0.0, 0.0]),
            (WAIST, [4.0, 0.0, 0.0]),
            (THIGH_L, [-98.0, 0.0, 0.0]),
            (SHIN_L, [118.0, 0.0, 0.0]),
            (FOOT_L, [-20.0, 0.0, 0.0]),
            (THIGH_R, [-72.0, 0.0, 0.0]),
            (SHIN_R, [122.0, 0.0, 0.0]),
            (FOOT_R, [-50.0, 0.0, 0.0]),
        ],
    ),
    (
        0.46,
        &[
            (SPINE, [6.0, 0.0, 0.0]),
            (WAIST, [4.0, 0.0, 0.0]),
            (THIGH_L, [-72.0, 0.0, 0.0]),
            (SHIN_L, [122.0, 0.0, 0.0]),
            (FOOT_L, [-50.0, 0.0, 0.0]),
            (THIGH_R, [-98.0, 0.0, 0.0]),
            (SHIN_R, [118.0, 0.0, 0.0]),
            (FOOT_R, [-20.0, 0.0, 0.0]),
        ],
    ),
];

const JUMP: &[Written] = &[
    (
        0.0,
        &[
            (SPINE, [8.0, 0.0, 0.0]),
            (THIGH_L, [-52.0, 0.0, 0.0]),
            (SHIN_L, [70.0, 0.0, 0.0]),
            (FOOT_L, [25.0, 0.0, 0.0]),
            (THIGH_R, [-30.0, 0.0, 0.0]),
            (SHIN_R, [60.0, 0.0, 0.0]),
            (FOOT_R, [25.0, 0.0, 0.0]),
        ],
    ),
    (
        0.0,
        &[
            (SPINE, [4.0, 0.0, 0.0]),
            (THIGH_L, [-25.0, 0.0, 0.0]),
            (SHIN_L, [35.0, 0.0, 0.0]),
            (THIGH_R, [-12.0, 0.0, 0.0]),
            (SHIN_R, [25.0, 0.0, 0.0]),
        ],
    ),
];

const DEATH: &[Written] = &[
    (0.0, &[(CHEST, [-10.0, 0.0, 5.0])]),
    (
        0.45,
        &[
            (PELVIS, [-35.0, 0.0, 10.0]),
            (THIGH_L, [-50.0, 0.0, 0.0]),
            (SHIN_L, [90.0, 0.0, 0.0]),
            (THIGH_R, [-40.0, 0.0, 0.0]),
            (SHIN_R, [85.0, 0.0, 0.0]),
            (NECK, [20.0, 0.0, 10.0]),
        ],
    ),
    (
        0.84,
        &[
            (PELVIS, [-86.0, 0.0, 12.0]),
            (THIGH_L, [-10.0, 0.0, 8.0]),
            (SHIN_L, [25.0, 0.0, 0.0]),
            (THIGH_R, [-4.0, 0.0, -8.0]),
            (SHIN_R, [12.0, 0.0, 0.0]),
            (NECK, [14.0, 20.0, 0.0]),
        ],
    ),
];

/// How bones are turned upwards for somebody who looks straight up: the aim offset.
const AIM_UP: &[Written] = &[(
    0.0,
    &[
        (SPINE, [-14.0, 0.0, 0.0]),
        (WAIST, [-16.0, 0.0, 0.0]),
        (CHEST, [-18.0, 0.0, 0.0]),
        (NECK, [-14.0, 0.0, 0.0]),
        (HEAD, [-12.0, 0.0, 0.0]),
    ],
)];

/// A clip, ready to be played.
pub(crate) struct Clip {
    keys: Vec<Key>,
    is_looped: bool,
}

pub(crate) struct Key {
    pub(crate) drop_m: f32,
    pub(crate) bones: [Rotation; BONES],
}

pub(crate) struct Clips {
    pub(crate) idle: Clip,
    pub(crate) walk: Clip,
    pub(crate) run: Clip,
    pub(crate) crouch: Clip,
    pub(crate) jump: Clip,
    pub(crate) death: Clip,
    pub(crate) aim_up: Clip,
}

impl Clip {
    fn new(written: &[Written], base: &[(usize, [f32; 3])], is_looped: bool) -> Clip {
        let key = |(drop_m, turned): &Written| {
            let mut bones = [UNTURNED; BONES];
            for (bone, degrees) in base.iter().chain(turned.iter()) {
                bones[*bone] = of_degrees(*degrees);
            }
            Key { drop_m: *drop_m, bones }
        };
        Clip { keys: written.iter().map(key).collect(), is_looped }
    }

    /// The keys around a time, and how far it is from the first to the second. `time` counts from 0 to 1, once through the
    /// clip; a looped clip goes on.
    pub(crate) fn at(&self, time: f32) -> (&Key, &Key, f32) {
        let count = self.keys.len();
        let ways = if self.is_looped { count } else { count - 1 };
        let time = if self.is_looped { time - time.floor() } else { time.clamp(0.0, 1.0) };
        let place = time * ways as f32;
        let first = (place as usize).min(ways.saturating_sub(1));
        (&self.keys[first], &self.keys[(first + 1) % count], place - first as f32)
    }
}

/// All clips.
pub(crate) static CLIPS: LazyLock<Clips> = LazyLock::new(|| Clips {
    idle: Clip::new(IDLE, &ARMS, true),
    walk: Clip::new(WALK, &ARMS, true),
    run: Clip::new(RUN, &ARMS, true),
    crouch: Clip::new(CROUCH, &ARMS, true),
    jump: Clip::new(JUMP, &ARMS, false),
    death: Clip::new(DEATH, &[], false),
    aim_up: Clip::new(AIM_UP, &[], false),
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_met_at_their_times_and_loops_close() {
        let run = &CLIPS.run;
        let drop = |time: f32| {
            let (a, b, part) = run.at(time);
            a.drop_m + (b.drop_m - a.drop_m) * part
        };
        assert_eq!((drop(0.0), drop(0.25), drop(0.5)), (0.06, 0.02, 0.06));
        assert!((drop(0.125) - 0.04).abs() < 1e-6);
        assert!((drop(0.999_9) - drop(0.0)).abs() < 1e-3);
        assert_eq!((drop(7.25), drop(-0.75)), (0.02, 0.02));
        let (a, b, part) = CLIPS.death.at(2.0);
        assert_eq!((a.drop_m, b.drop_m, part), (0.45, 0.84, 1.0));
        assert_eq!(CLIPS.aim_up.at(0.5).2, 0.0, "a clip of one key stands still");
    }
}
