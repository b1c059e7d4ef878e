//! The kinds that go over the network: objects and messages.
//!
//! | kind | lives in | for |
//! |---|---|---|
//! | [`Figure`] | a channel of its own | viewers whom fog lets see it; team mates always; owner's fields for its player |
//! | [`MateNote`], [`BombNote`] | the channel of a team | the members of the team |
//! | [`SmokeNote`], [`WallNote`] | a channel of its own | the team of its maker; others from when fog lets them see it |
//! | [`Board`] | the global channel | everybody |
//!
//! Everybody hears where the bomb was planted, who died by whom, and who planted and defused: these are the rules of the game.
//!
//! Messages: [`ShotFired`] for those who see the shooter, [`HitMark`] for shooter and target, [`Feed`] for everybody.

use std::sync::Arc;
use std::time::Duration;

use throng::{ChannelKey, Key, Replicate, ReplicateEnum, Schema, SchemaError, ServerOptions};

use crate::event::Ending;
use crate::rules::{Rules, SEATS_MAX};
use crate::senses::{RoundPhase, Team};
use crate::weapon::Weapon;

/// The game and the version of its kinds: clients and servers must have the same.
pub const PROTOCOL_ID: u64 = 0x7468_7274_6163_0001;

/// The channel of everybody.
pub const EVERYBODY: ChannelKey = ChannelKey::Global(0);

/// The lane of messages that must arrive, as in [`throng::default_lanes`].
pub const LANE_EVENTS: u8 = 0;
/// The lane of messages that may be lost: shots.
pub const LANE_SHOTS: u8 = 2;

/// The channel of a team.
pub fn team_channel(team: Team) -> ChannelKey {
    ChannelKey::Custom(team as u32)
}

/// A character's fields for its player alone.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct Private {
    /// 0 to 100.
    #[replicate(integer(min = 0, max = 100))]
    pub health: u8,
    /// 0 to 50.
    #[replicate(integer(min = 0, max = 50))]
    pub armour: u8,
    /// Rounds in the magazine of the weapon in the hand.
    #[replicate(integer(min = 0, max = 63))]
    pub ammunition: u16,
    /// Rounds besides.
    #[replicate(integer(min = 0, max = 127))]
    pub reserve: u16,
    /// Whether the weapon is being reloaded.
    #[replicate(bool)]
    pub is_reloading: bool,
    /// For the buy phase.
    #[replicate(integer(min = 0, max = 9_000))]
    pub money: u32,
    /// The first weapon.
    #[replicate(enumeration)]
    pub primary: Option<Weapon>,
    /// Whether this player carries the bomb.
    #[replicate(bool)]
    pub has_bomb: bool,
    /// Whether this player has a kit.
    #[replicate(bool)]
    pub has_kit: bool,
    /// Charges of smoke, wall and dash.
    #[replicate(integer(min = 0, max = 3))]
    pub charges: [u8; 3],
    /// How far planting or defusing has gone.
    #[replicate(integer)]
    pub progress: u8,
    /// Where the player looks, exactly.
    #[replicate(integer)]
    pub yaw: u16,
    /// Where the player looks, exactly.
    #[replicate(integer)]
    pub pitch: i16,
}

/// A character as others see it.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct Figure {
    /// The player.
    #[replicate(integer(min = 0, max = 15), initial_only)]
    pub seat: u8,
    /// Where it stands.
    #[replicate(position(step = 0.01))]
    pub position: [f32; 3],
    /// Metres per second.
    #[replicate(fixed(min = -32.0, max = 32.0, step = 0.05))]
    pub velocity: [f32; 3],
    /// Where it looks: 4,096 steps in the full circle.
    #[replicate(integer(min = 0, max = 4_095))]
    pub yaw: u16,
    /// Where it looks: -128 to 127 from straight down to straight up.
    #[replicate(integer)]
    pub pitch: i8,
    /// 0 stands, 1 crouches.
    #[replicate(fixed(min = 0.0, max = 1.0, step = 0.066_666_67))]
    pub crouch: f32,
    /// Whether there is ground below its feet.
    #[replicate(bool)]
    pub is_grounded: bool,
    /// False from death to the next round.
    #[replicate(bool)]
    pub is_alive: bool,
    /// The weapon in its hand.
    #[replicate(enumeration)]
    pub weapon: Weapon,
    /// For its player.
    #[replicate(nested, owner_only)]
    pub private: Private,
}

/// The facts that a team knows of a member.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct MateNote {
    /// The player.
    #[replicate(integer(min = 0, max = 15), initial_only)]
    pub seat: u8,
    /// 0 to 100.
    #[replicate(integer(min = 0, max = 100))]
    pub health: u8,
    /// Whether this player carries the bomb.
    #[replicate(bool)]
    pub has_bomb: bool,
}

/// Where the bomb is, by what a team knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, ReplicateEnum)]
pub enum BombPlace {
    /// The team does not know.
    #[default]
    Unknown,
    /// A member carries it.
    Carried,
    /// It lies somewhere.
    Dropped,
    /// It is planted.
    Planted,
    /// It was defused.
    Defused,
    /// It has exploded.
    Exploded,
}

/// The facts that a team knows of the bomb.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct BombNote {
    /// Where it is.
    #[replicate(enumeration)]
    pub place: BombPlace,
    /// The carrier.
    #[replicate(integer(min = 0, max = 15))]
    pub carrier: u8,
    /// Where it lies or stood.
    #[replicate(position(step = 0.01))]
    pub position: [f32; 3],
    /// Low half of the tick in which it explodes.
    #[replicate(integer)]
    pub explodes: u32,
    /// Whether somebody defuses it. Always false for attackers.
    #[replicate(bool)]
    pub is_being_defused: bool,
}

/// The state of the match.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct Board {
    /// Ticks per second.
    #[replicate(integer, initial_only)]
    pub tick_hz: u16,
    /// Players of a team.
    #[replicate(integer, initial_only)]
    pub team_size: u8,
    /// The part of the round.
    #[replicate(enumeration)]
    pub phase: RoundPhase,
    /// Low half of the tick in which it ends.
    #[replicate(integer)]
    pub ends: u32,
    /// Rounds that have begun.
    #[replicate(integer)]
    pub round: u16,
    /// Rounds won by attackers and defenders.
    #[replicate(integer)]
    pub score: [u8; 2],
}

/// A smoke that hangs in the air.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct SmokeNote {
    /// Its middle.
    #[replicate(position(step = 0.01), initial_only)]
    pub middle: [f32; 3],
    /// Low half of the tick in which it is gone.
    #[replicate(integer, initial_only)]
    pub until: u32,
}

/// A wall that stands.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct WallNote {
    /// The middle of its foot.
    #[replicate(position(step = 0.01), initial_only)]
    pub foot: [f32; 3],
    /// Across this direction it is thin.
    #[replicate(integer, initial_only)]
    pub yaw: u16,
    /// Low half of the tick in which it falls.
    #[replicate(integer, initial_only)]
    pub until: u32,
}

/// A shot, for those who see the shooter.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct ShotFired {
    /// The shooter.
    #[replicate(integer(min = 0, max = 15))]
    pub by: u8,
    /// With what.
    #[replicate(enumeration)]
    pub weapon: Weapon,
    /// Where it ended.
    #[replicate(position(step = 0.01))]
    pub to: [f32; 3],
}

/// A hit, for the shooter and the target.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct HitMark {
    /// The shooter.
    #[replicate(integer(min = 0, max = 15))]
    pub by: u8,
    /// The target.
    #[replicate(integer(min = 0, max = 15))]
    pub target: u8,
    /// Whether it was the head.
    #[replicate(bool)]
    pub is_head: bool,
    /// The health that it took.
    #[replicate(integer(min = 0, max = 100))]
    pub damage: u8,
}

/// News for everybody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, ReplicateEnum)]
pub enum News {
    /// A round begins.
    #[default]
    RoundBegan,
    /// Somebody died: `about`, by a shot of `by`.
    Died,
    /// The bomb was planted by `by`.
    Planted,
    /// The bomb was defused by `by`.
    Defused,
    /// The bomb exploded.
    Exploded,
    /// A round is decided: `winner` and `ending`.
    RoundEnded,
}

/// A line of the news.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct Feed {
    /// The event.
    #[replicate(enumeration)]
    pub news: News,
    /// The seat that did it.
    #[replicate(integer(min = 0, max = 15))]
    pub by: Option<u8>,
    /// The seat to which it happened.
    #[replicate(integer(min = 0, max = 15))]
    pub about: Option<u8>,
    /// With which weapon.
    #[replicate(enumeration)]
    pub weapon: Weapon,
    /// Which team won.
    #[replicate(enumeration)]
    pub winner: Team,
    /// Why the round ended.
    #[replicate(enumeration)]
    pub ending: Ending,
}

/// All kinds.
///
/// # Errors
/// None: the kinds are those of this crate, and a test builds them.
pub fn schema() -> Result<Arc<Schema>, SchemaError> {
    let schema = Schema::builder()
        .kind::<Figure>()
        .kind::<MateNote>()
        .kind::<BombNote>()
        .kind::<Board>()
        .kind::<SmokeNote>()
        .kind::<WallNote>()
        .kind::<ShotFired>()
        .kind::<HitMark>()
        .kind::<Feed>()
        .build()?;
    Ok(Arc::new(schema))
}

/// Options of a server for a match with these rules.
pub fn server_options(rules: &Rules, private_key: Key) -> ServerOptions {
    ServerOptions {
        tick_interval: Duration::from_secs(1) / rules.tick_hz,
        max_clients: SEATS_MAX as u32,
        // Two teams at full rate are far below; a burst at the beginning of a round is not.
        client_bytes_per_s: 200_000,
        client_packets_per_s: 4 * rules.tick_hz,
        ..ServerOptions::new(PROTOCOL_ID, private_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_make_a_schema_and_the_private_ones_are_for_the_owner() {
        let schema = schema().unwrap();
        assert!(schema.kind_id::<Figure>().is_some() && schema.kind_id::<Feed>().is_some());
        assert_eq!(Rules::default().tick_hz, 128);
        let options = server_options(&Rules::default(), throng::random_key());
        assert_eq!(options.tick_interval, Duration::from_nanos(7_812_500));
    }
}
