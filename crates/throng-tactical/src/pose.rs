//! Poses: from what a character does to the places of its bones.

use glam::Vec3;
use throng_rewind::BonePose;

use crate::clip::{CLIPS, Clip};
use crate::rotation::{Rotation, UNTURNED, add_share, around, product, turned, unit};
use crate::skeleton::{BONES, FACTS, PELVIS, PELVIS_M, SPINE};

/// At this speed a character walks, and at the next one it runs, in m/s.
const WALK_SPEED: f32 = 2.2;
const RUN_SPEED: f32 = 5.0;
/// Time to change between ground and air, in seconds.
const AIR_BLEND_S: f32 = 0.1;
/// Length of two steps in metres, at rest and for each m/s.
const STRIDE_M: [f32; 2] = [1.0, 0.35];
/// The hips turn this far towards the way at most, in radians.
const HIPS_MAX: f32 = 0.9;
/// Time of the clip `death`, in seconds.
const DEATH_S: f32 = 0.7;
/// Time of the clip `idle`, in seconds.
const IDLE_S: f32 = 3.2;

/// The values on which a pose depends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Motion {
    /// Level speed in m/s.
    pub speed: f32,
    /// The way relative to the direction of looking: 1 is forwards; and to the left.
    pub way: [f32; 2],
    /// 0 stands, 1 crouches.
    pub crouch: f32,
    /// 0 is on the ground, 1 in the air.
    pub air: f32,
    /// Upwards, in m/s.
    pub rise: f32,
    /// -1 looks straight down, 1 straight up.
    pub aim: f32,
    /// Pairs of steps so far: the part behind the point counts.
    pub stride: f32,
    /// Seconds since the beginning of the match.
    pub time_s: f32,
    /// Seconds since death, if the character is dead.
    pub dead_s: Option<f32>,
}

impl Motion {
    /// Goes on by `seconds` with a velocity, seen by somebody who looks along a yaw with this sine and cosine.
    pub(crate) fn advance(&mut self, velocity: Vec3, (sine, cosine): (f32, f32), is_grounded: bool, seconds: f32) {
        let level = Vec3::new(velocity.x, 0.0, velocity.z);
        self.speed = level.length();
        let ahead = level.x * sine + level.z * cosine;
        let left = level.x * cosine - level.z * sine;
        self.way = if self.speed > 0.1 { [ahead / self.speed, left / self.speed] } else { [1.0, 0.0] };
        let towards = if is_grounded { -seconds } else { seconds };
        self.air = (self.air + towards / AIR_BLEND_S).clamp(0.0, 1.0);
        self.rise = velocity.y;
        let stride = self.speed * seconds / (STRIDE_M[0] + STRIDE_M[1] * self.speed);
        // Backwards, the clip runs backwards.
        let stride = self.stride + if ahead < -0.1 { -stride } else { stride };
        self.stride = stride - stride.floor();
    }
}

/// A pose that is mixed of clips.
struct Mix {
    bones: [Rotation; BONES],
    drop_m: f32,
}

impl Mix {
    fn add(&mut self, clip: &Clip, time: f32, share: f32) {
        if share <= 0.0 {
            return;
        }
        let (a, b, part) = clip.at(time);
        let (for_a, for_b) = (share * (1.0 - part), share * part);
        self.drop_m += a.drop_m * for_a + b.drop_m * for_b;
        for bone in 0..BONES {
            add_share(&mut self.bones[bone], a.bones[bone], for_a);
            add_share(&mut self.bones[bone], b.bones[bone], for_b);
        }
    }
}

/// The places of all bones in the coordinates of the body: its origin is between the feet, z is where it looks.
pub fn pose(motion: &Motion) -> [BonePose; BONES] {
    let clips = &*CLIPS;
    let mut mix = Mix { bones: [[0.0; 4]; BONES], drop_m: 0.0 };
    if let Some(dead_s) = motion.dead_s {
        mix.add(&clips.death, dead_s / DEATH_S, 1.0);
    } else {
        let ground = 1.0 - motion.air;
        let standing = ground * (1.0 - motion.crouch);
        let running = ((motion.speed - WALK_SPEED) / (RUN_SPEED - WALK_SPEED)).clamp(0.0, 1.0);
        let moving = (motion.speed / WALK_SPEED).clamp(0.0, 1.0);
        mix.add(&clips.idle, motion.time_s / IDLE_S, standing * (1.0 - moving));
        mix.add(&clips.walk, motion.stride, standing * moving * (1.0 - running));
        mix.add(&clips.run, motion.stride, standing * moving * running);
        mix.add(&clips.crouch, motion.stride, ground * motion.crouch);
        mix.add(&clips.jump, 0.5 - 0.1 * motion.rise, motion.air);
    }
    for bone in &mut mix.bones {
        *bone = unit(*bone);
    }
    if motion.dead_s.is_none() {
        aim(&mut mix, motion.aim);
        hips(&mut mix, motion);
    }
    place(&mix)
}

/// Bends the upper body up or down, on top of everything else.
fn aim(mix: &mut Mix, aim: f32) {
    let (key, _, _) = CLIPS.aim_up.at(0.0);
    for (bone, up) in key.bones.iter().enumerate() {
        if *up == UNTURNED {
            continue;
        }
        // Downwards is the opposite turn.
        let full = if aim < 0.0 { [-up[0], -up[1], -up[2], up[3]] } else { *up };
        let mut share = UNTURNED.map(|part| part * (1.0 - aim.abs()));
        add_share(&mut share, full, aim.abs());
        mix.bones[bone] = product(mix.bones[bone], unit(share));
    }
}

/// Turns the hips towards the way, and the upper body back.
fn hips(mix: &mut Mix, motion: &Motion) {
    let [ahead, left] = motion.way;
    // The sine of the angle to the way, or to the way back.
    let turn = if ahead < -0.1 { -left } else { left };
    let angle = turn.clamp(-HIPS_MAX, HIPS_MAX) * (motion.speed / WALK_SPEED).clamp(0.0, 1.0);
    if angle.abs() > 0.01 {
        mix.bones[PELVIS] = product(around(1, angle), mix.bones[PELVIS]);
        mix.bones[SPINE] = product(around(1, -angle), mix.bones[SPINE]);
    }
}

/// From the turns of bones in their parents to places in the body.
fn place(mix: &Mix) -> [BonePose; BONES] {
    let mut poses = [BonePose { position_m: [0.0; 3], rotation: UNTURNED }; BONES];
    for (bone, facts) in FACTS.iter().enumerate() {
        let (position, rotation) = if bone == PELVIS {
            (Vec3::new(0.0, PELVIS_M - mix.drop_m, 0.0), mix.bones[PELVIS])
        } else {
            let parent = &poses[facts.parent];
            let begin = turned(parent.rotation, facts.begin);
            (Vec3::from_array(parent.position_m) + begin, product(parent.rotation, mix.bones[bone]))
        };
        poses[bone] = BonePose { position_m: position.to_array(), rotation };
    }
    poses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skeleton::{FOOT_L, FOOT_R, HEAD};

    fn height(motion: Motion, bone: usize) -> f32 {
        pose(&motion)[bone].position_m[1]
    }

    #[test]
    fn heads_are_where_eyes_are() {
        let still = Motion { way: [1.0, 0.0], ..Motion::default() };
        assert!((1.5..1.7).contains(&height(still, HEAD)), "{}", height(still, HEAD));
        let crouched = Motion { crouch: 1.0, ..still };
        assert!((1.0..1.2).contains(&height(crouched, HEAD)), "{}", height(crouched, HEAD));
        let dead = Motion { dead_s: Some(2.0), ..still };
        assert!((0.0..0.5).contains(&height(dead, HEAD)), "{}", height(dead, HEAD));
    }

    #[test]
    fn feet_stay_near_the_ground_and_step() {
        let mut lowest = f32::INFINITY;
        let mut highest = f32::NEG_INFINITY;
        for step in 0..40 {
            let motion = Motion { speed: 5.2, way: [1.0, 0.0], stride: step as f32 / 40.0, ..Motion::default() };
            let feet = [FOOT_L, FOOT_R].map(|foot| height(motion, foot));
            lowest = lowest.min(feet[0].min(feet[1]));
            highest = highest.max(feet[0].max(feet[1]));
        }
        assert!(lowest > -0.1 && lowest < 0.15, "{lowest}");
        assert!(highest > 0.3, "{highest}");
    }

    #[test]
    fn looking_up_moves_the_head_back_and_down_moves_it_forwards() {
        let head = |aim: f32| pose(&Motion { aim, way: [1.0, 0.0], ..Motion::default() })[HEAD].position_m[2];
        assert!(
            head(1.0) < head(0.0) - 0.1 && head(-1.0) > head(0.0) + 0.1,
            "{} {} {}",
            head(1.0),
            head(0.0),
            head(-1.0)
        );
    }

    #[test]
    fn a_pose_follows_its_motion_without_leaps() {
        let mut motion = Motion { way: [1.0, 0.0], ..Motion::default() };
        let mut before = pose(&motion);
        for tick in 0..600 {
            let seconds = 1.0 / 128.0;
            let speed = (tick as f32 / 60.0).min(5.2);
            motion.advance(Vec3::new(0.3 * speed, 0.0, 0.9 * speed), (0.0, 1.0), tick % 200 < 150, seconds);
            motion.crouch = if tick > 400 { ((tick - 400) as f32 / 20.0).min(1.0) } else { 0.0 };
            motion.time_s += seconds;
            let now = pose(&motion);
            for bone in 0..BONES {
                let step = Vec3::from_array(now[bone].position_m).distance(Vec3::from_array(before[bone].position_m));
                assert!(step < 0.12, "tick {tick}, bone {bone}: {step} m");
            }
            before = now;
        }
    }
}
