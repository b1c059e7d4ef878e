//! The verdict on a shot.

use crate::models::{Models, SkeletonId};
use crate::view::View;
use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// The number of a body in a [`crate::Rewind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyId(pub u16);

/// The number of a moving part of the world in a [`crate::Rewind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartId(pub u16);

/// The set of special conditions of a verdict.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(u16);

impl Flags {
    /// The empty set.
    pub const NONE: Flags = Flags(0);
    /// The shooter saw something older than the limit; the shot was judged at the limit.
    pub const CLAMPED: Flags = Flags(1);
    /// The claimed view time was too far from the server's estimate, which was taken instead.
    pub const REPLACED: Flags = Flags(1 << 1);
    /// The claimed view time was in the future; the present was taken.
    pub const FUTURE: Flags = Flags(1 << 2);
    /// The way of the target was broken (teleport, death) between the moment of the view and now.
    pub const DISCONTINUITY: Flags = Flags(1 << 3);
    /// The history of the target did not reach back to the moment of the view; its oldest pose was taken.
    pub const HISTORY_SHORT: Flags = Flags(1 << 4);
    /// The target was held at a pose, because no later one that belongs to the same way was there.
    pub const HELD: Flags = Flags(1 << 5);
    /// A shot that missed, near the stored poses of a named target that was not there at the moment of the view: it had
    /// not spawned yet, or was gone.
    pub const ABSENT: Flags = Flags(1 << 6);
    /// A nearer target would have been hit, and had escaped.
    pub const ESCAPED: Flags = Flags(1 << 7);

    const ALL: u16 = (1 << 8) - 1;

    /// Whether all of `other` are in this set.
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The set as bits.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The set of some bits. `None` if one of them has no meaning.
    pub fn from_bits(bits: u16) -> Option<Flags> {
        (bits & !Flags::ALL == 0).then_some(Flags(bits))
    }

    /// The names of the flags in this set, stable, for metric labels.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let names = ["clamped", "replaced", "future", "discontinuity", "history_short", "held", "absent", "escaped"];
        names.into_iter().enumerate().filter(move |(bit, _)| self.0 & 1 << bit != 0).map(|(_, name)| name)
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// A point at which a shot meets a body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Struck {
    /// The body.
    pub body: BodyId,
    /// Its skeleton.
    pub skeleton: SkeletonId,
    /// The bone whose capsule is met first, as an index in the skeleton.
    pub bone: u8,
    /// The zone of that bone.
    pub zone: u8,
    /// From the shot's origin, in metres.
    pub distance_m: f64,
}

/// The capsule that a shot missed by the least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NearMiss {
    /// The body.
    pub body: BodyId,
    /// Its skeleton.
    pub skeleton: SkeletonId,
    /// The bone, as an index in the skeleton.
    pub bone: u8,
    /// Between the line of the shot and the capsule, in metres.
    pub missed_by_m: f64,
}

/// How a shot ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// It hit.
    Hit(Struck),
    /// It would have hit, and something stood before the target: [`Verdict::blocked`].
    Blocked(Struck),
    /// It would have hit, and an ability of the target began before the shot was fired.
    Escaped {
        /// Where it would have hit.
        struck: Struck,
        /// The game's number of the ability.
        ability: u32,
    },
    /// It met no target. With the nearest capsule, if there was one within the distance for near misses.
    Missed(Option<NearMiss>),
}

/// Something that stops shots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// The static world, with the number that the game's ray query gave.
    World(u32),
    /// A moving part of the world.
    Part(PartId),
}

/// Where the world stopped a shot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// By what.
    pub by: Blocker,
    /// From the shot's origin, in metres.
    pub distance_m: f64,
}

/// The verdict on one shot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// How it ended.
    pub outcome: Outcome,
    /// The moment at which it was judged.
    pub view: View,
    /// Special conditions of the view, and of the target that the outcome names.
    pub flags: Flags,
    /// Where the world stopped the shot. None if it hit, or met nothing within its range.
    pub blocked: Option<Block>,
}

impl Verdict {
    /// The hit, if it was one.
    pub fn hit(&self) -> Option<Struck> {
        match self.outcome {
            Outcome::Hit(struck) => Some(struck),
            _ => None,
        }
    }

    /// By how much the shot missed the nearest capsule, in metres, if it missed by little.
    pub fn missed_by_m(&self) -> Option<f64> {
        match self.outcome {
            Outcome::Missed(near) => near.map(|near| near.missed_by_m),
            _ => None,
        }
    }

    /// A stable short name of the outcome, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self.outcome {
            Outcome::Hit(_) => "hit",
            Outcome::Blocked(_) => "blocked",
            Outcome::Escaped { .. } => "escaped",
            Outcome::Missed(_) => "missed",
        }
    }

    /// One line for people that says what happened and why. `models` are those of the rewind or of the log.
    pub fn why<'a>(&'a self, models: &'a Models) -> Why<'a> {
        Why { verdict: self, models }
    }
}

/// The text of [`Verdict::why`].
#[derive(Clone, Copy, Debug)]
pub struct Why<'a> {
    verdict: &'a Verdict,
    models: &'a Models,
}

impl Why<'_> {
    fn bone(&self, f: &mut fmt::Formatter<'_>, skeleton: SkeletonId, bone: u8, body: BodyId) -> fmt::Result {
        match self.models.bone_name(skeleton, bone) {
            Some(name) => write!(f, "{name} of body {}", body.0),
            None => write!(f, "bone {bone} of body {}", body.0),
        }
    }

    fn struck(&self, f: &mut fmt::Formatter<'_>, struck: &Struck) -> fmt::Result {
        self.bone(f, struck.skeleton, struck.bone, struck.body)?;
        write!(f, " at {:.2} m", struck.distance_m)
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            Blocker::World(surface) => write!(f, "the world (surface {surface}) at {:.2} m", self.distance_m),
            Blocker::Part(part) => write!(f, "part {} at {:.2} m", part.0, self.distance_m),
        }
    }
}

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = self.verdict;
        match &verdict.outcome {
            Outcome::Hit(struck) => {
                f.write_str("hit ")?;
                self.struck(f, struck)?;
            }
            Outcome::Blocked(struck) => {
                f.write_str("blocked")?;
                if let Some(block) = &verdict.blocked {
                    write!(f, " by {block}")?;
                }
                f.write_str(", would have hit ")?;
                self.struck(f, struck)?;
            }
            Outcome::Escaped { struck, ability } => {
                write!(f, "escaped: ability {ability} began before the shot, which would have hit ")?;
                self.struck(f, struck)?;
            }
            Outcome::Missed(Some(near)) => {
                write!(f, "missed by {:.3} m: ", near.missed_by_m)?;
                self.bone(f, near.skeleton, near.bone, near.body)?;
            }
            Outcome::Missed(None) => f.write_str("missed every target by far")?,
        }
        if let (Outcome::Missed(_), Some(block)) = (&verdict.outcome, &verdict.blocked) {
            write!(f, "; ended at {block}")?;
        }
        write!(f, "; rewound {:.1} ms", verdict.view.rewound_ms)?;
        for (flag, text) in FLAG_TEXTS {
            if verdict.flags.contains(flag) {
                write!(f, "; {text}")?;
            }
        }
        Ok(())
    }
}

const FLAG_TEXTS: [(Flags, &str); 8] = [
    (Flags::CLAMPED, "clamped: the shooter's picture was older than the limit"),
    (Flags::REPLACED, "the claimed view time was far from the measured latency, which was taken instead"),
    (Flags::FUTURE, "the claimed view time was in the future, the present was taken"),
    (Flags::DISCONTINUITY, "the target teleported, died or spawned since"),
    (Flags::HISTORY_SHORT, "the history is too short, its oldest pose was taken"),
    (Flags::HELD, "the target was held at its last known pose"),
    (Flags::ABSENT, "a named target was not there at that moment"),
    (Flags::ESCAPED, "a nearer target had escaped"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_has_its_own_bit_name_and_text() {
        let names = ["clamped", "replaced", "future", "discontinuity", "history_short", "held", "absent", "escaped"];
        for ((flag, text), name) in FLAG_TEXTS.into_iter().zip(names) {
            assert!(flag.names().eq([name]) && !text.is_empty(), "{flag:?}");
            assert_eq!(Flags::from_bits(flag.bits()), Some(flag));
        }
        let all = FLAG_TEXTS.into_iter().fold(Flags::NONE, |all, (flag, _)| all | flag);
        assert!(all.names().eq(names) && all.contains(Flags::HELD | Flags::ESCAPED));
        assert_eq!(Flags::from_bits(1 << 8), None);
    }
}
