//! The plan of a connection that lacks room for all: in order of priority, until the budget is used up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use throng_wire::Tick;

use super::Connection;
use super::standings::Rank;
use crate::hub::{ChannelState, Planner};
use crate::subscription::Stage;

/// Scratch: the subscriptions of one connection that may be due, by priority.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    high: Vec<Rank>,
    low: Vec<Rank>,
}

/// The priority of the subscription that goes first in the next packet.
const GOES_FIRST: u64 = u64::MAX;

impl Connection {
    /// Plans turns in order of priority until the budget is used up. Returns whether it has left some out.
    pub(super) fn plan_in_order<S: ChannelState>(&mut self, planner: &mut Planner<'_, S>) -> bool {
        debug_assert!(!self.sharing.is_member(), "a member has room for all");
        let now = planner.now;
        // Sizes are guessed from those of the last shares, so a little more is asked for than is likely to fit.
        let reach = planner.allowance_bytes.saturating_add(planner.allowance_bytes / 4);
        // The budget will last about as far as in the last tick. Those far behind that point need not be brought into order.
        let likely = self.cut_score / 2;
        let Ranks { mut high, mut low } = std::mem::take(&mut planner.part.ranks);
        self.rank_candidates(now, likely, (&mut high, &mut low));
        let mut ranks = BinaryHeap::from(high);
        let mut last_score = GOES_FIRST;
        let mut asked_bytes = self.plan_ranked(&mut ranks, (0, reach), &mut last_score, planner);
        if asked_bytes < reach {
            let none = ranks.into_vec();
            ranks = BinaryHeap::from(std::mem::replace(&mut low, none));
            asked_bytes = self.plan_ranked(&mut ranks, (asked_bytes, reach), &mut last_score, planner);
        }
        debug_assert!(asked_bytes >= reach || low.is_empty(), "some that fit were not asked for");
        debug_assert!(self.is_each_due_once(), "one was asked for twice");
        let is_cut = !low.is_empty() || !ranks.is_empty();
        self.cut_score = if is_cut && last_score < GOES_FIRST { last_score } else { 0 };
        planner.part.ranks = Ranks { high: ranks.into_vec(), low };
        is_cut
    }

    fn is_each_due_once(&self) -> bool {
        let mut numbers: Vec<u16> = self.due.iter().map(|due| due.subscription).collect();
        numbers.sort_unstable();
        numbers.windows(2).all(|pair| pair[0] < pair[1])
    }

    /// Plans these, the greatest priority first, until `reach` bytes are asked for. Some are asked for already. Returns how many
    /// are then.
    fn plan_ranked<S: ChannelState>(
        &mut self,
        ranks: &mut BinaryHeap<Rank>,
        (mut asked_bytes, reach): (usize, usize),
        last_score: &mut u64,
        planner: &mut Planner<'_, S>,
    ) -> usize {
        while asked_bytes < reach
            && let Some(rank) = ranks.pop()
        {
            debug_assert!(rank.score <= *last_score, "in order");
            *last_score = rank.score;
            let number = usize::from(self.standings.number(rank));
            debug_assert!(self.standings.has_pace_of(&self.subscriptions[number]), "a setter has left its pace behind");
            asked_bytes += self.plan_turn(number, true, planner);
        }
        asked_bytes
    }

    /// The priorities of the subscriptions whose next turn is not after `now`, and of those of which something was lost: those from
    /// `least` on, and those below it.
    fn rank_candidates(&self, now: Tick, least: u64, (high, low): (&mut Vec<Rank>, &mut Vec<Rank>)) {
        high.clear();
        low.clear();
        self.standings.rank_due(now, |rank| if rank.score >= least { high.push(rank) } else { low.push(rank) });
        let mut found = [high.len(), low.len()];
        let lost = self.resends.chunk_by(|a, b| a.subscription == b.subscription).map(|lost| lost[0].subscription);
        let begun = self.sending.iter().map(|sending| sending.subscription).filter(|&number| number != self.first);
        let others = begun.chain([self.first]).filter(|&number| number != 0 && !self.has_lost(number));
        for number in lost.chain(others) {
            let place = self.subscriptions[usize::from(number)].standing;
            debug_assert!(place != 0, "it has something under way");
            // A subscription that is not due writes all the same if something of it was lost.
            let mut has_something = self.has_lost(number);
            for (ranks, found) in [&mut *high, &mut *low].into_iter().zip(&mut found) {
                if let Ok(at) = ranks[..*found].binary_search_by_key(&place, |rank| rank.place.0) {
                    ranks.remove(at);
                    (*found, has_something) = (*found - 1, true);
                }
            }
            if has_something {
                let rank = Rank { score: self.special_score(number, now), place: Reverse(place) };
                if rank.score >= least { high.push(rank) } else { low.push(rank) }
            }
        }
    }

    /// Whether more than its wait and its weight count for its priority.
    #[inline]
    fn is_special(&self, number: u16) -> bool {
        let stage = self.subscriptions[usize::from(number)].stage;
        number == self.first || stage == Stage::Sending || self.has_lost(number)
    }

    fn has_lost(&self, number: u16) -> bool {
        !self.resends.is_empty() && self.resends_of(number).next().is_some()
    }

    /// The priority of a subscription that has something to be sent, perhaps lost segments.
    #[inline]
    pub(super) fn score(&self, number: u16, now: Tick) -> u64 {
        if self.is_special(number) {
            return self.special_score(number, now);
        }
        let subscription = &self.subscriptions[usize::from(number)];
        subscription.pace().score(now.since(self.standings.due_at(subscription)))
    }

    /// The priority of a subscription that may go first, continues a frame, or has lost something.
    fn special_score(&self, number: u16, now: Tick) -> u64 {
        if number == self.first {
            return GOES_FIRST;
        }
        let subscription = &self.subscriptions[usize::from(number)];
        let mut wait_ticks = now.since(self.standings.due_at(subscription));
        if subscription.stage == Stage::Sending
            && let Some(begun) = self.sending.iter().find(|sending| sending.subscription == number)
        {
            wait_ticks = now.since(begun.waits_since);
        }
        let lost = self.resends_of(number).map(|resend| now.since(resend.waits_since));
        subscription.pace().score(lost.fold(wait_ticks, u32::max))
    }
}
