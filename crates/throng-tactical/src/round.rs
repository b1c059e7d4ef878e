//! Rounds: buy, live, end, and the score of the match.

use throng::Tick;
use throng_match::{Digest, Phase};

use crate::event::Ending;
use crate::rules::Rules;
use crate::senses::{RoundPhase, Team};

/// The phases as telemetry knows them.
pub const BUY: Phase = Phase::new("buy");
/// See [`BUY`].
pub const LIVE: Phase = Phase::new("live");
/// See [`BUY`].
pub const END: Phase = Phase::new("end");
/// See [`BUY`].
pub const OVER: Phase = Phase::new("over");

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Round {
    /// From 1; 0 before the first step.
    pub(crate) number: u16,
    pub(crate) phase: RoundPhase,
    /// The tick in which the phase ends.
    pub(crate) ends: Tick,
    pub(crate) score: [u8; 2],
    pub(crate) last: Option<(Team, Ending)>,
}

/// The verdict of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    GoesOn,
    Begins,
    GoesLive,
    TimeIsOver,
    MatchEnds,
}

impl Round {
    pub(crate) fn new() -> Round {
        Round { number: 0, phase: RoundPhase::End, ends: Tick(0), score: [0; 2], last: None }
    }

    /// The change that is due in this tick.
    pub(crate) fn turn(&self, rules: &Rules, now: Tick) -> Turn {
        let is_due = now >= self.ends;
        match self.phase {
            RoundPhase::Over => Turn::GoesOn,
            _ if !is_due => Turn::GoesOn,
            RoundPhase::Buy => Turn::GoesLive,
            RoundPhase::Live => Turn::TimeIsOver,
            RoundPhase::End if self.winner(rules).is_some() => Turn::MatchEnds,
            RoundPhase::End => Turn::Begins,
        }
    }

    pub(crate) fn begin(&mut self, rules: &Rules, now: Tick) {
        self.number += 1;
        self.enter(RoundPhase::Buy, now, rules.ticks(rules.buy_s));
    }

    pub(crate) fn go_live(&mut self, rules: &Rules, now: Tick) {
        self.enter(RoundPhase::Live, now, rules.ticks(rules.live_s));
    }

    pub(crate) fn end(&mut self, rules: &Rules, now: Tick, winner: Team, ending: Ending) {
        self.score[winner as usize] += 1;
        self.last = Some((winner, ending));
        self.enter(RoundPhase::End, now, rules.ticks(rules.end_s));
    }

    pub(crate) fn over(&mut self, now: Tick) {
        self.enter(RoundPhase::Over, now, 0);
    }

    fn enter(&mut self, phase: RoundPhase, now: Tick, ticks: u32) {
        (self.phase, self.ends) = (phase, now.after(ticks));
    }

    /// The team that has won the match.
    pub(crate) fn winner(&self, rules: &Rules) -> Option<Team> {
        Team::BOTH.into_iter().find(|team| self.score[*team as usize] >= rules.rounds_to_win)
    }

    pub(crate) fn label(&self) -> Phase {
        match self.phase {
            RoundPhase::Buy => BUY,
            RoundPhase::Live => LIVE,
            RoundPhase::End => END,
            RoundPhase::Over => OVER,
        }
    }

    pub(crate) fn outcome(&self, rules: &Rules) -> Option<String> {
        let winner = self.winner(rules).filter(|_| self.phase == RoundPhase::Over)?;
        let (own, others) = (self.score[winner as usize], self.score[winner.other() as usize]);
        Some(format!("{} win {own} to {others}", winner.name()))
    }

    pub(crate) fn digest(&self, hash: &mut Digest) {
        hash.add(u64::from(self.number) | (self.phase as u64) << 16);
        hash.add(self.ends.0);
        hash.add_bytes(&self.score);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_follow_each_other_until_a_team_has_won_enough() {
        let rules = Rules { tick_hz: 10, rounds_to_win: 2, buy_s: 1.0, live_s: 2.0, end_s: 0.5, ..Rules::default() };
        let mut round = Round::new();
        let mut phases = Vec::new();
        for now in (0..).map(Tick) {
            match round.turn(&rules, now) {
                Turn::GoesOn => {}
                Turn::Begins => round.begin(&rules, now),
                Turn::GoesLive => round.go_live(&rules, now),
                Turn::TimeIsOver if round.number == 2 => {
                    round.end(&rules, now, Team::Attackers, Ending::Eliminated);
                }
                Turn::TimeIsOver => round.end(&rules, now, Team::Defenders, Ending::Time),
                Turn::MatchEnds => {
                    round.over(now);
                    break;
                }
            }
            if phases.last() != Some(&round.phase) {
                phases.push(round.phase);
            }
        }
        assert_eq!(phases, [RoundPhase::Buy, RoundPhase::Live, RoundPhase::End].repeat(3));
        assert_eq!((round.number, round.score), (3, [1, 2]));
        assert_eq!(round.outcome(&rules).as_deref(), Some("defenders win 2 to 1"));
        assert_eq!(round.label().name(), "over");
    }
}
