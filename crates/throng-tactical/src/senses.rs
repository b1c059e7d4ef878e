//! The facts that one player may know: the input of a brain, and of whatever draws the world for a person.
//!
//! [`Tactical::senses`](crate::Tactical::senses) fills it for players inside the server, and
//! [`Eyes`](crate::client::Eyes) from a client that plays over the network. Both give the same: own state in full, team
//! mates always, enemies while they can be seen, the bomb where somebody of the own team sees it.
//!
//! Positions are in metres, y up. A position of a player is between the feet.

use glam::Vec3;
use throng::{ReplicateEnum, Tick};

use crate::Seat;
use crate::command::Command;
use crate::weapon::Weapon;

/// One of the two teams. Attackers have the low half of the seats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, ReplicateEnum)]
pub enum Team {
    /// They plant the bomb.
    #[default]
    Attackers,
    /// They keep it from exploding.
    Defenders,
}

impl Team {
    /// Both teams.
    pub const BOTH: [Team; 2] = [Team::Attackers, Team::Defenders];

    /// The other team.
    pub fn other(self) -> Team {
        match self {
            Team::Attackers => Team::Defenders,
            Team::Defenders => Team::Attackers,
        }
    }

    /// `attackers` or `defenders`.
    pub fn name(self) -> &'static str {
        match self {
            Team::Attackers => "attackers",
            Team::Defenders => "defenders",
        }
    }
}

/// The part of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, ReplicateEnum)]
pub enum RoundPhase {
    /// Everybody buys. Nobody leaves the place where the team begins, and nobody shoots.
    #[default]
    Buy,
    /// The fight.
    Live,
    /// The round is decided.
    End,
    /// The match is decided.
    Over,
}

/// How many charges of each ability somebody has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charges {
    /// Smokes.
    pub smoke: u8,
    /// Walls.
    pub wall: u8,
    /// Dashes.
    pub dash: u8,
}

/// The player's own state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Own {
    /// The player.
    pub seat: Seat,
    /// The player's team.
    pub team: Team,
    /// Where the player stands.
    pub position: Vec3,
    /// Metres per second.
    pub velocity: Vec3,
    /// Height of the eyes above the position.
    pub eye_height: f32,
    /// As in [`Command::yaw`].
    pub yaw: u16,
    /// As in [`Command::pitch`].
    pub pitch: i16,
    /// Whether there is ground below the feet.
    pub is_grounded: bool,
    /// False from death to the next round.
    pub is_alive: bool,
    /// 0 to 100.
    pub health: u8,
    /// 0 to 50.
    pub armour: u8,
    /// The weapon in the hand.
    pub weapon: Weapon,
    /// The first weapon that the player owns, in the hand or not.
    pub primary: Option<Weapon>,
    /// Rounds in the magazine of the weapon in the hand.
    pub ammunition: u16,
    /// Rounds besides.
    pub reserve: u16,
    /// Whether the weapon in the hand is being reloaded.
    pub is_reloading: bool,
    /// For the buy phase.
    pub money: u32,
    /// Whether the player carries the bomb.
    pub has_bomb: bool,
    /// Whether the player has a kit to defuse it faster.
    pub has_kit: bool,
    /// Charges of abilities.
    pub charges: Charges,
    /// How far planting or defusing has gone, 0 to 255; 0 while the player does neither.
    pub progress: u8,
}

impl Own {
    /// Where the eyes are: sight and shots begin there.
    pub fn eye(&self) -> Vec3 {
        self.position + Vec3::new(0.0, self.eye_height, 0.0)
    }
}

/// A player of the same team.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mate {
    /// The player.
    pub seat: Seat,
    /// Where the player stands, or died.
    pub position: Vec3,
    /// Metres per second.
    pub velocity: Vec3,
    /// As in [`Command::yaw`].
    pub yaw: u16,
    /// As in [`Command::pitch`].
    pub pitch: i16,
    /// 0 to 100; 0 is dead.
    pub health: u8,
    /// The weapon in the hand.
    pub weapon: Weapon,
    /// Whether the player carries the bomb.
    pub has_bomb: bool,
}

/// An enemy who was seen. It stays in the list, with its last known state, until the round or its life ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The player.
    pub seat: Seat,
    /// Where the player stood at `seen_at`.
    pub feet: Vec3,
    /// Height of the eyes above the feet.
    pub eye_height: f32,
    /// Metres per second, at `seen_at`.
    pub velocity: Vec3,
    /// As in [`Command::yaw`].
    pub yaw: u16,
    /// The weapon in the hand.
    pub weapon: Weapon,
    /// The tick of this state. Equal to [`Senses::tick`]: the server sends this enemy now. Whether a wall hides it is for
    /// rays to say: the server sends enemies a little before they can be seen.
    pub seen_at: Tick,
}

/// The facts that the player knows of the bomb.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum BombSeen {
    /// Nothing: an attacker carries it, or it lies where nobody of the team has seen it.
    #[default]
    Unknown,
    /// A team mate, or the player, carries it.
    Carried(Seat),
    /// It lies there.
    Dropped(Vec3),
    /// It is planted.
    Planted {
        /// There.
        position: Vec3,
        /// Ticks to the explosion.
        ticks_left: u32,
        /// Whether somebody defuses it. Always false for attackers.
        is_being_defused: bool,
    },
    /// It was defused.
    Defused(Vec3),
    /// It has exploded.
    Exploded(Vec3),
}

/// A smoke: sight does not pass through the ball.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmokeSeen {
    /// The middle.
    pub middle: Vec3,
    /// In metres.
    pub radius_m: f32,
    /// Ticks until it is gone.
    pub ticks_left: u32,
}

/// A wall made by an ability: an upright box that stops bodies, sight and shots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WallSeen {
    /// The middle of its foot.
    pub foot: Vec3,
    /// Across this direction it is thin.
    pub yaw: u16,
    /// Half of its width, its height, and half of its thickness, in metres.
    pub size_m: Vec3,
    /// Ticks until it falls.
    pub ticks_left: u32,
}

/// A place where the bomb can be planted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Site {
    /// `a` or `b`.
    pub name: char,
    /// Lowest corner of its box.
    pub lowest: Vec3,
    /// Highest corner of its box.
    pub highest: Vec3,
}

impl Site {
    /// The middle of its floor.
    pub fn middle(&self) -> Vec3 {
        let middle = (self.lowest + self.highest) / 2.0;
        Vec3::new(middle.x, self.lowest.y, middle.z)
    }

    /// Whether feet at `position` are in it: heights count a metre more generously.
    pub fn holds(&self, position: Vec3) -> bool {
        let slack = Vec3::new(0.0, 1.0, 0.0);
        (self.lowest - slack).cmple(position).all() && position.cmple(self.highest + slack).all()
    }
}

/// The facts that one player may know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Senses<'a> {
    /// The newest tick that the player has: the moment that its screen shows.
    pub tick: Tick,
    /// How much of the way to the next tick the screen has gone, in 1/256.
    pub fraction: u8,
    /// Ticks per second.
    pub tick_hz: u32,
    /// The part of the round.
    pub phase: RoundPhase,
    /// Ticks until it ends, if nothing happens before.
    pub phase_ticks_left: u32,
    /// Rounds that have begun, from 1.
    pub round: u16,
    /// Rounds won by attackers and defenders.
    pub score: [u8; 2],
    /// The player.
    pub me: Own,
    /// The others of the team, dead ones too, by seat.
    pub mates: &'a [Mate],
    /// Enemies who were seen in this round and are not known to be dead, by seat.
    pub enemies: &'a [Seen],
    /// The bomb.
    pub bomb: BombSeen,
    /// Smokes that hang in the air.
    pub smokes: &'a [SmokeSeen],
    /// Walls that stand.
    pub walls: &'a [WallSeen],
    /// Where the bomb can be planted.
    pub sites: &'a [Site],
}

impl Senses<'_> {
    /// A command that stands still and looks where the player looks, with the moment and the place that belong to these
    /// senses. A brain changes the rest.
    pub fn command(&self) -> Command {
        Command {
            // The low half: the server restores the whole tick.
            view_tick: self.tick.0 as u32,
            view_fraction: self.fraction,
            yaw: self.me.yaw,
            pitch: self.me.pitch,
            place: Command::place_of(self.me.position),
            ..Command::default()
        }
    }
}
