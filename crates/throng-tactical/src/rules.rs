//! The rules of a match, as numbers.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Ticks per second that a match may have.
pub const TICK_HZ: RangeInclusive<u32> = 10..=1_000;

/// Seconds that a phase, and what is done in it, may take.
pub const PHASE_S: RangeInclusive<f32> = 0.1..=3_600.0;

/// Most players of a team.
pub const TEAM_SIZE_MAX: u16 = 8;

/// Most players of a match.
pub const SEATS_MAX: usize = 2 * TEAM_SIZE_MAX as usize;

/// The choices for a match.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// Ticks per second, in [`TICK_HZ`].
    pub tick_hz: u32,
    /// Players of a team, 1 to [`TEAM_SIZE_MAX`].
    pub team_size: u16,
    /// A team that has won so many rounds has won the match; 1 to [`ROUNDS_TO_WIN_MAX`].
    pub rounds_to_win: u8,
    /// Length of the buy phase in seconds, in [`PHASE_S`] like all times.
    pub buy_s: f32,
    /// Length of the live phase in seconds, if the bomb is not planted.
    pub live_s: f32,
    /// Length of the end phase in seconds.
    pub end_s: f32,
    /// Time from the planting to the explosion, in seconds.
    pub fuse_s: f32,
    /// Time to plant, in seconds.
    pub plant_s: f32,
    /// Time to defuse without a kit, in seconds; with a kit it takes half of it.
    pub defuse_s: f32,
    /// Money of everybody at the beginning.
    pub money: u32,
    /// Whether fog of war hides enemies. Without it, everybody is sent everybody: to compare costs.
    pub has_fog: bool,
    /// How far the clients show the world behind its newest state, in ticks. Part of the estimate of what a shooter saw.
    pub interpolation_ticks: u8,
}

impl Default for Rules {
    /// 5 against 5 at 128 Hz, to 5 rounds of at most 100 s.
    fn default() -> Rules {
        Rules {
            tick_hz: 128,
            team_size: 5,
            rounds_to_win: 5,
            buy_s: 8.0,
            live_s: 100.0,
            end_s: 3.0,
            fuse_s: 40.0,
            plant_s: 3.5,
            defuse_s: 7.0,
            money: 800,
            has_fog: true,
            interpolation_ticks: 1,
        }
    }
}

/// A number of the rules is out of its range. The caller is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{field} of the rules of the match must be {range}")]
pub struct RulesError {
    /// The field.
    pub field: &'static str,
    /// Its range, in words.
    pub range: &'static str,
}

impl RulesError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        "rules_range"
    }
}

impl Rules {
    /// Whether every number is in its range.
    ///
    /// # Errors
    /// The first one that is not.
    pub fn check(&self) -> Result<(), RulesError> {
        let is_time = |seconds: f32| PHASE_S.contains(&seconds);
        let time = "from 0.1 to 3600 s";
        let fields = [
            ("tick_hz", TICK_HZ.contains(&self.tick_hz), "from 10 to 1000"),
            ("team_size", (1..=TEAM_SIZE_MAX).contains(&self.team_size), "from 1 to 8"),
            ("rounds_to_win", (1..=ROUNDS_TO_WIN_MAX).contains(&self.rounds_to_win), "from 1 to 100"),
            ("buy_s", is_time(self.buy_s), time),
            ("live_s", is_time(self.live_s), time),
            ("end_s", is_time(self.end_s), time),
            ("fuse_s", is_time(self.fuse_s), time),
            ("plant_s", is_time(self.plant_s), time),
            ("defuse_s", is_time(self.defuse_s), time),
            ("money", self.money <= MONEY_MAX, "at most 9000"),
            (
                "interpolation_ticks",
                u32::from(self.interpolation_ticks) * 4 <= self.tick_hz,
                "at most a quarter of tick_hz",
            ),
        ];
        match fields.iter().find(|(_, is_right, _)| !is_right) {
            Some(&(field, _, range)) => Err(RulesError { field, range }),
            None => Ok(()),
        }
    }

    /// Players of the match.
    pub fn seats(&self) -> usize {
        2 * usize::from(self.team_size)
    }

    /// Seconds as ticks, rounded, at least one.
    pub fn ticks(&self, seconds: f32) -> u32 {
        ((seconds * self.tick_hz as f32).round() as u32).max(1)
    }

    /// The length of a tick in seconds.
    pub fn tick_s(&self) -> f32 {
        1.0 / self.tick_hz as f32
    }
}

/// Most rounds that a team can have to win.
pub const ROUNDS_TO_WIN_MAX: u8 = 100;
/// Most money that somebody can have.
pub const MONEY_MAX: u32 = 9_000;
/// Money of the winners of a round.
pub(crate) const WIN_MONEY: u32 = 3_000;
/// Money of the losers of a round.
pub(crate) const LOSS_MONEY: u32 = 1_900;
/// Money for a kill.
pub(crate) const KILL_MONEY: u32 = 300;
/// Money for planting or defusing.
pub(crate) const OBJECTIVE_MONEY: u32 = 300;

/// Prices of what is no weapon.
pub(crate) const ARMOUR_PRICE: u32 = 650;
pub(crate) const SMOKE_PRICE: u32 = 200;
pub(crate) const WALL_PRICE: u32 = 400;
pub(crate) const DASH_PRICE: u32 = 200;
pub(crate) const KIT_PRICE: u32 = 400;

/// Most charges of one ability.
pub(crate) const CHARGES_MAX: u8 = 2;
/// The protection of bought armour.
pub(crate) const ARMOUR: u8 = 50;
/// Health of a new life.
pub(crate) const HEALTH: u8 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_right_and_wrong_rules_are_refused_by_name() {
        assert_eq!(Rules::default().check(), Ok(()));
        let refused = |rules: Rules| rules.check().unwrap_err().field;
        assert_eq!(refused(Rules { tick_hz: 0, ..Rules::default() }), "tick_hz");
        assert_eq!(refused(Rules { team_size: 9, ..Rules::default() }), "team_size");
        assert_eq!(refused(Rules { rounds_to_win: 0, ..Rules::default() }), "rounds_to_win");
        assert_eq!(refused(Rules { live_s: f32::NAN, ..Rules::default() }), "live_s");
        assert_eq!(refused(Rules { fuse_s: 1e9, ..Rules::default() }), "fuse_s");
        assert_eq!(refused(Rules { money: 9_001, ..Rules::default() }), "money");
        assert_eq!(refused(Rules { interpolation_ticks: 33, ..Rules::default() }), "interpolation_ticks");
        let words = |rules: Rules| rules.check().unwrap_err().to_string();
        assert!(words(Rules { team_size: 0, ..Rules::default() }).ends_with(&format!("from 1 to {TEAM_SIZE_MAX}")));
        let rounds = Rules { rounds_to_win: 101, ..Rules::default() };
        assert!(words(rounds).ends_with(&format!("from 1 to {ROUNDS_TO_WIN_MAX}")));
        let hz = format!("from {} to {}", TICK_HZ.start(), TICK_HZ.end());
        assert!(words(Rules { tick_hz: 9, ..Rules::default() }).ends_with(&hz));
        let seconds = format!("from {} to {} s", PHASE_S.start(), PHASE_S.end());
        assert!(words(Rules { buy_s: 0.0, ..Rules::default() }).ends_with(&seconds));
        assert!(words(Rules { money: 9_001, ..Rules::default() }).ends_with(&format!("at most {MONEY_MAX}")));
    }

    #[test]
    fn seconds_become_ticks() {
        let rules = Rules { tick_hz: 60, ..Rules::default() };
        assert_eq!((rules.ticks(1.5), rules.ticks(0.0), rules.seats()), (90, 1, 10));
    }
}
