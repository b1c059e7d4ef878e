//! The bomb: carried, dropped, planted, defused, exploded.

use glam::Vec3;
use throng::Tick;
use throng_match::{Digest, Seat};

/// The bomb is picked up within this distance.
pub(crate) const REACH_M: f32 = 1.2;
/// It falls no farther when it is dropped: no building of a map is higher.
pub(crate) const FALL_M: f32 = 200.0;
/// It is defused within this distance.
pub(crate) const DEFUSE_REACH_M: f32 = 1.6;
/// An explosion kills within this distance, and hurts up to three times as far.
pub(crate) const BLAST_M: f32 = 9.0;
/// Damage of the explosion near it.
pub(crate) const BLAST_DAMAGE: f32 = 250.0;

/// Where the bomb is, and in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Bomb {
    /// It is not there yet.
    #[default]
    Nowhere,
    Carried(Seat),
    Dropped(Vec3),
    Planted {
        at: Vec3,
        by: Seat,
        explodes: Tick,
    },
    Defused(Vec3),
    Exploded(Vec3),
}

impl Bomb {
    pub(crate) fn is_carried_by(&self, seat: Seat) -> bool {
        *self == Bomb::Carried(seat)
    }

    pub(crate) fn is_planted(&self) -> bool {
        matches!(self, Bomb::Planted { .. })
    }

    /// Damage of the explosion at a distance.
    pub(crate) fn blast(distance_m: f32) -> f32 {
        BLAST_DAMAGE * (1.0 - ((distance_m - BLAST_M) / (2.0 * BLAST_M)).clamp(0.0, 1.0))
    }

    pub(crate) fn digest(&self, hash: &mut Digest) {
        match *self {
            Bomb::Nowhere => _ = hash.add(0),
            Bomb::Carried(seat) => _ = hash.add(1 | u64::from(seat.0) << 8),
            Bomb::Dropped(at) => {
                hash.add(2);
                hash.add_f32s(&at.to_array());
            }
            Bomb::Planted { at, by, explodes } => {
                hash.add(3 | u64::from(by.0) << 8);
                hash.add_f32s(&at.to_array());
                hash.add(explodes.0);
            }
            Bomb::Defused(at) => {
                hash.add(4);
                hash.add_f32s(&at.to_array());
            }
            Bomb::Exploded(at) => {
                hash.add(5);
                hash.add_f32s(&at.to_array());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explosion_kills_near_and_fades() {
        assert_eq!((Bomb::blast(0.0), Bomb::blast(9.0)), (250.0, 250.0));
        assert_eq!((Bomb::blast(18.0), Bomb::blast(27.0), Bomb::blast(90.0)), (125.0, 0.0, 0.0));
    }
}
