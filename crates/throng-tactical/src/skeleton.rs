//! The skeleton of a character: 20 bones with the capsules that shots hit.
//!
//! ```text
//!                 head                 each bone: its parent, where it begins in the parent's coordinates,
//!                 neck                 and its capsule in its own; y is up, z is forwards, x is to the left
//!     clavicle -- chest -- clavicle
//!     upper arm   waist    upper arm   parents come before their children
//!     forearm     spine    forearm
//!     hand       pelvis    hand
//!            thigh   thigh
//!             shin   shin
//!             foot   foot
//! ```

use glam::Vec3;
use throng_rewind::{Bone, Capsule, ModelError, Skeleton};

/// Bones of a character.
pub const BONES: usize = 20;

/// The part of a body that was hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Zone {
    /// Head and neck.
    Head,
    /// From the pelvis to the shoulders.
    Body,
    /// Arms and hands.
    Arm,
    /// Legs and feet.
    Leg,
}

impl Zone {
    const ALL: [Zone; 4] = [Zone::Head, Zone::Body, Zone::Arm, Zone::Leg];

    /// The zone of a hit.
    pub fn of(number: u8) -> Zone {
        Zone::ALL.get(usize::from(number)).copied().unwrap_or(Zone::Body)
    }

    /// By how much damage is multiplied.
    pub fn factor(self) -> f32 {
        match self {
            Zone::Head => 4.0,
            Zone::Body => 1.0,
            Zone::Arm => 0.9,
            Zone::Leg => 0.75,
        }
    }
}

pub(crate) const PELVIS: usize = 0;
pub(crate) const SPINE: usize = 1;
pub(crate) const WAIST: usize = 2;
pub(crate) const CHEST: usize = 3;
pub(crate) const NECK: usize = 4;
pub(crate) const HEAD: usize = 5;
pub(crate) const UPPER_ARM_L: usize = 7;
pub(crate) const FOREARM_L: usize = 8;
pub(crate) const UPPER_ARM_R: usize = 11;
pub(crate) const FOREARM_R: usize = 12;
pub(crate) const THIGH_L: usize = 14;
pub(crate) const SHIN_L: usize = 15;
pub(crate) const FOOT_L: usize = 16;
pub(crate) const THIGH_R: usize = 17;
pub(crate) const SHIN_R: usize = 18;
pub(crate) const FOOT_R: usize = 19;

/// Height of the pelvis above the feet of a character that stands upright.
pub(crate) const PELVIS_M: f32 = 0.96;

/// A bone: name, zone, parent, where it begins, and the ends and radius of its capsule.
pub(crate) struct BoneFacts {
    name: &'static str,
    zone: Zone,
    pub(crate) parent: usize,
    pub(crate) begin: Vec3,
    from: [f32; 3],
    to: [f32; 3],
    radius: f32,
}

const fn bone(
    name: &'static str,
    zone: Zone,
    (parent, begin): (usize, [f32; 3]),
    (from, to, radius): ([f32; 3], [f32; 3], f32),
) -> BoneFacts {
    BoneFacts { name, zone, parent, begin: Vec3::from_array(begin), from, to, radius }
}

const O: [f32; 3] = [0.0; 3];

pub(crate) const FACTS: [BoneFacts; BONES] = [
    bone("pelvis", Zone::Body, (0, [0.0, PELVIS_M, 0.0]), ([-0.08, 0.0, 0.0], [0.08, 0.0, 0.0], 0.14)),
    bone("spine", Zone::Body, (PELVIS, [0.0, 0.12, 0.0]), (O, [0.0, 0.1, 0.0], 0.13)),
    bone("waist", Zone::Body, (SPINE, [0.0, 0.14, 0.0]), ([-0.04, 0.02, 0.0], [0.04, 0.02, 0.0], 0.14)),
    bone("chest", Zone::Body, (WAIST, [0.0, 0.16, 0.0]), ([-0.07, 0.04, 0.0], [0.07, 0.04, 0.0], 0.16)),
    bone("neck", Zone::Head, (CHEST, [0.0, 0.17, 0.0]), (O, [0.0, 0.07, 0.01], 0.06)),
    bone("head", Zone::Head, (NECK, [0.0, 0.1, 0.01]), ([0.0, 0.05, 0.01], [0.0, 0.12, 0.02], 0.105)),
    bone("clavicle_l", Zone::Body, (CHEST, [0.04, 0.12, 0.0]), (O, [0.1, 0.0, 0.0], 0.07)),
    bone("upper_arm_l", Zone::Arm, (6, [0.14, 0.0, 0.0]), (O, [0.0, -0.26, 0.0], 0.055)),
    bone("forearm_l", Zone::Arm, (UPPER_ARM_L, [0.0, -0.28, 0.0]), (O, [0.0, -0.22, 0.0], 0.045)),
    bone("hand_l", Zone::Arm, (FOREARM_L, [0.0, -0.25, 0.0]), (O, [0.0, -0.08, 0.0], 0.045)),
    bone("clavicle_r", Zone::Body, (CHEST, [-0.04, 0.12, 0.0]), (O, [-0.1, 0.0, 0.0], 0.07)),
    bone("upper_arm_r", Zone::Arm, (10, [-0.14, 0.0, 0.0]), (O, [0.0, -0.26, 0.0], 0.055)),
    bone("forearm_r", Zone::Arm, (UPPER_ARM_R, [0.0, -0.28, 0.0]), (O, [0.0, -0.22, 0.0], 0.045)),
    bone("hand_r", Zone::Arm, (FOREARM_R, [0.0, -0.25, 0.0]), (O, [0.0, -0.08, 0.0], 0.045)),
    bone("thigh_l", Zone::Leg, (PELVIS, [0.1, -0.04, 0.0]), (O, [0.0, -0.38, 0.0], 0.085)),
    bone("shin_l", Zone::Leg, (THIGH_L, [0.0, -0.43, 0.0]), (O, [0.0, -0.36, 0.0], 0.06)),
    bone("foot_l", Zone::Leg, (SHIN_L, [0.0, -0.42, 0.0]), ([0.0, -0.03, 0.0], [0.0, -0.03, 0.16], 0.045)),
    bone("thigh_r", Zone::Leg, (PELVIS, [-0.1, -0.04, 0.0]), (O, [0.0, -0.38, 0.0], 0.085)),
    bone("shin_r", Zone::Leg, (THIGH_R, [0.0, -0.43, 0.0]), (O, [0.0, -0.36, 0.0], 0.06)),
    bone("foot_r", Zone::Leg, (SHIN_R, [0.0, -0.42, 0.0]), ([0.0, -0.03, 0.0], [0.0, -0.03, 0.16], 0.045)),
];

/// The skeleton as rewinding needs it.
pub(crate) fn skeleton() -> Result<Skeleton, ModelError> {
    let bone =
        |facts: &BoneFacts| Bone::new(facts.name, facts.zone as u8, Capsule::new(facts.from, facts.to, facts.radius));
    Skeleton::new(FACTS.iter().map(bone).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bones_come_after_their_parents_and_have_the_zones_of_their_numbers() {
        for (number, facts) in FACTS.iter().enumerate().skip(1) {
            assert!(facts.parent < number, "{}", facts.name);
            assert_eq!(Zone::of(facts.zone as u8), facts.zone);
        }
        assert_eq!(skeleton().unwrap().bones().len(), BONES);
    }
}
