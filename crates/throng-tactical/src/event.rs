//! The events of a step: for messages, reports and tests.

use glam::Vec3;
use throng_match::Seat;

use crate::command::Item;
use crate::senses::Team;
use crate::skeleton::Zone;
use crate::weapon::Weapon;

/// Events of one step at most. Further ones are counted and dropped.
pub const EVENTS_MAX: usize = 256;

/// Why a round ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, throng::ReplicateEnum)]
pub enum Ending {
    /// All of the other team are dead.
    #[default]
    Eliminated,
    /// The time is over.
    Time,
    /// The bomb exploded.
    Exploded,
    /// The bomb was defused.
    Defused,
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A new round begins with its buy phase.
    RoundBegan {
        /// Its number, from 1.
        round: u16,
    },
    /// The buy phase is over.
    WentLive,
    /// Somebody bought something.
    Bought {
        /// The player.
        seat: Seat,
        /// The item.
        item: Item,
    },
    /// A shot was fired.
    Shot {
        /// By whom.
        by: Seat,
        /// With what.
        weapon: Weapon,
        /// From where.
        from: Vec3,
        /// Where it ended.
        to: Vec3,
    },
    /// A shot hit somebody.
    Hit {
        /// The shooter.
        by: Seat,
        /// The target.
        target: Seat,
        /// Where.
        zone: Zone,
        /// The health that it took.
        damage: u8,
    },
    /// Somebody died.
    Died {
        /// The player.
        seat: Seat,
        /// By whose shot; none for the bomb and falls.
        by: Option<Seat>,
        /// Where.
        at: Vec3,
        /// With which weapon.
        weapon: Weapon,
        /// Whether the last shot hit the head.
        is_headshot: bool,
    },
    /// A smoke was thrown.
    Smoke {
        /// By whom.
        by: Seat,
        /// Where it hangs.
        at: Vec3,
    },
    /// A wall was raised.
    Wall {
        /// By whom.
        by: Seat,
        /// Where it stands.
        at: Vec3,
    },
    /// A dash began.
    Dash {
        /// The player.
        by: Seat,
    },
    /// A shot came too late for a dash.
    Escaped {
        /// The shooter.
        by: Seat,
        /// The player who dashed.
        target: Seat,
    },
    /// The bomb was planted.
    Planted {
        /// By whom.
        by: Seat,
        /// Where.
        at: Vec3,
        /// The name of the site.
        site: char,
    },
    /// The bomb was defused.
    Defused {
        /// By whom.
        by: Seat,
    },
    /// The bomb exploded.
    Exploded {
        /// Where.
        at: Vec3,
    },
    /// The bomb lies on the ground.
    BombDropped {
        /// Where.
        at: Vec3,
    },
    /// Somebody picked the bomb up.
    BombTaken {
        /// The player.
        by: Seat,
    },
    /// A round is decided.
    RoundEnded {
        /// The winners.
        winner: Team,
        /// How.
        ending: Ending,
        /// Rounds won by attackers and defenders.
        score: [u8; 2],
    },
}
