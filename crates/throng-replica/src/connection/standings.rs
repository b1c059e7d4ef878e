//! The standings of one connection: of those subscriptions that have turns of their own, or something under way.
//!
//! A subscription that a shared view serves needs neither: the view knows where it stands. So the table of subscriptions is small,
//! and this one short, for all members of views.
//!
//! ```text
//! subscriptions | shared | open, 1 | shared | shared, 2 | ...     by number; the second has something under way
//! standings     | nobody |    1    |   2    |                     by place
//! ```

use std::cmp::Reverse;

use throng_wire::Tick;

use crate::send_ticks::SendTicks;
use crate::subscription::{Pace, Stage, Standing, Subscription};

/// When nobody is due.
pub(super) const NEVER: Tick = Tick(i64::MAX as u64);

/// The place of a subscription that has none. It can be read: nothing is under way there, and nothing ever due.
const NOBODY: u16 = 0;

/// Standings that are looked at together.
const BLOCK: usize = 16;

/// The table grows by so many places, or by an eighth of them: as many as a step into the next cell needs.
const MORE_PLACES: usize = 32;

/// A table that rests has so many places, or twice as many as are in use.
const RESTING_PLACES: usize = 4;

/// Bytes of a place.
const PLACE_BYTES: usize = size_of::<Standing>() + size_of::<Tick>() + size_of::<Pace>();

/// The standings of one connection.
#[derive(Debug)]
pub(super) struct Standings {
    standings: Vec<Standing>,
    /// When each is due next: apart from the rest, because it is scanned every tick.
    due_at: Vec<Tick>,
    /// How fast the priority of each grows. A plan by priority scans this list and the one above, and nothing else.
    paces: Vec<Pace>,
    free: Vec<u16>,
}

/// The priority of a subscription in a tick without room for all. The greatest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(super) score: u64,
    /// That of its standing. Of two with one score, the one with the lower place goes first.
    pub(super) place: Reverse<u16>,
}

impl Default for Standings {
    fn default() -> Standings {
        Standings {
            standings: vec![Standing::default()],
            due_at: vec![NEVER],
            paces: vec![Pace::default()],
            free: Vec::new(),
        }
    }
}

impl Standings {
    /// The standing of a subscription. One that has none stands nowhere, and has nothing under way.
    #[inline]
    pub(super) fn of(&self, subscription: &Subscription) -> &Standing {
        &self.standings[usize::from(subscription.standing)]
    }

    /// The standing of a subscription that has one.
    #[inline]
    pub(super) fn of_mut(&mut self, subscription: &Subscription) -> &mut Standing {
        debug_assert!(subscription.standing != NOBODY, "it has a standing");
        &mut self.standings[usize::from(subscription.standing)]
    }

    #[inline]
    pub(super) fn due_at(&self, subscription: &Subscription) -> Tick {
        self.due_at[usize::from(subscription.standing)]
    }

    /// Does nothing if it has no standing.
    #[inline]
    pub(super) fn set_due_at(&mut self, subscription: &Subscription, at: Tick) {
        if subscription.standing != NOBODY {
            self.due_at[usize::from(subscription.standing)] = at;
        }
    }

    /// The interval or the weight of the subscription is another one. Does nothing if it has no standing.
    pub(super) fn set_pace(&mut self, subscription: &Subscription) {
        if subscription.standing != NOBODY {
            self.paces[usize::from(subscription.standing)] = subscription.pace();
        }
    }

    /// Whether the pace of the subscription's standing is that of its interval and weight.
    pub(super) fn has_pace_of(&self, subscription: &Subscription) -> bool {
        self.paces[usize::from(subscription.standing)] == subscription.pace()
    }

    /// Those that are due at a time are due in the last of these ticks until then.
    pub(super) fn bring_forward(&mut self, ticks: SendTicks) {
        for due_at in self.due_at.iter_mut().filter(|due_at| **due_at != NEVER) {
            *due_at = ticks.until(*due_at);
        }
    }

    /// The subscription has a standing from now on, if it has none yet: never due, and with nothing under way.
    pub(super) fn begin(&mut self, number: u16, subscription: &mut Subscription) -> &mut Standing {
        if subscription.standing == NOBODY {
            let (standing, pace) = (Standing { subscription: number, ..Standing::default() }, subscription.pace());
            subscription.standing = match self.free.pop() {
                Some(place) => {
                    (self.standings[usize::from(place)], self.paces[usize::from(place)]) = (standing, pace);
                    place
                }
                None => {
                    if self.standings.len() == self.standings.capacity() {
                        let more = (self.standings.len() / 8).max(MORE_PLACES);
                        self.standings.reserve_exact(more);
                        self.due_at.reserve_exact(more);
                        self.paces.reserve_exact(more);
                        self.free.reserve_exact(self.standings.capacity() - self.free.len());
                    }
                    self.standings.push(standing);
                    self.due_at.push(NEVER);
                    self.paces.push(pace);
                    (self.standings.len() - 1) as u16
                }
            };
        }
        &mut self.standings[usize::from(subscription.standing)]
    }

    /// The subscription has no standing any more.
    pub(super) fn end(&mut self, subscription: &mut Subscription) {
        let place = std::mem::replace(&mut subscription.standing, NOBODY);
        if place != NOBODY {
            self.due_at[usize::from(place)] = NEVER;
            self.free.push(place);
        }
    }

    /// A piece is delivered, or no longer needed. A shared subscription with nothing else under way needs none any more.
    #[inline]
    pub(super) fn settle(&mut self, subscription: &mut Subscription, parity: bool) {
        if subscription.standing == NOBODY {
            return;
        }
        let standing = self.of_mut(subscription);
        standing.flight.settle(parity);
        if subscription.stage == Stage::Shared && standing.is_idle() {
            self.end(subscription);
        }
    }

    /// The numbers of the subscriptions that are due, in order.
    pub(super) fn find_due(&self, now: Tick, numbers: &mut Vec<u16>) {
        self.each_due(now, |place| numbers.push(self.standings[place].subscription));
        numbers.sort_unstable();
    }

    /// The priorities of the subscriptions that are due, in the order of their places.
    #[inline]
    pub(super) fn rank_due(&self, now: Tick, mut found: impl FnMut(Rank)) {
        self.each_due(now, |place| found(self.rank(place, now)));
    }

    #[inline]
    fn rank(&self, place: usize, now: Tick) -> Rank {
        Rank { score: self.paces[place].score(now.since(self.due_at[place])), place: Reverse(place as u16) }
    }

    /// The subscription of a place.
    #[inline]
    pub(super) fn number(&self, rank: Rank) -> u16 {
        self.standings[usize::from(rank.place.0)].subscription
    }

    #[inline]
    fn each_due(&self, now: Tick, mut found: impl FnMut(usize)) {
        let (blocks, rest) = self.due_at.as_chunks::<BLOCK>();
        for (block, due_at) in blocks.iter().enumerate() {
            // A bit for each, without a branch: only those that are due are looked at one by one.
            let mut due = due_at.iter().rev().fold(0u32, |due, due_at| due << 1 | u32::from(*due_at <= now));
            while due != 0 {
                found(block * BLOCK + due.trailing_zeros() as usize);
                due &= due - 1;
            }
        }
        for (place, due_at) in rest.iter().enumerate() {
            if *due_at <= now {
                found(blocks.len() * BLOCK + place);
            }
        }
    }

    fn used(&self) -> usize {
        self.standings.len() - self.free.len()
    }

    /// Ends the standings of subscriptions that their view has passed: the views with these ticks have had all their turns until
    /// now.
    pub(super) fn end_passed(&mut self, subscriptions: &mut [Subscription], now: Tick, ticks: SendTicks) {
        for place in 1..self.standings.len() {
            let standing = self.standings[place];
            let owner = subscriptions.get_mut(usize::from(standing.subscription));
            let Some(owner) = owner.filter(|owner| usize::from(owner.standing) == place) else { continue };
            let turn = ticks.from(standing.since.after(u32::from(owner.interval_ticks)));
            if owner.stage == Stage::Shared && standing.flight.is_empty() && !turn.is_newer_than(now) {
                // It was ahead of its view, which has had a turn since.
                self.end(owner);
            }
        }
    }

    /// Gives back the memory of a table that is nearly empty. A step into the next cell needs some places for a second or two:
    /// ten thousand connections that all kept them would have a hundred times what is in use.
    pub(super) fn give_back(&mut self, subscriptions: &mut [Subscription]) {
        let room = RESTING_PLACES.max(2 * self.used());
        if self.standings.capacity() < room + MORE_PLACES {
            return;
        }
        let (mut standings, mut due_at) = (Vec::with_capacity(room), Vec::with_capacity(room));
        let mut paces = Vec::with_capacity(room);
        for (place, &standing) in self.standings.iter().enumerate() {
            let in_use = match place as u16 {
                NOBODY => true,
                place => {
                    let owner = subscriptions.get_mut(usize::from(standing.subscription));
                    let owner = owner.filter(|subscription| subscription.standing == place);
                    owner.map(|subscription| subscription.standing = standings.len() as u16).is_some()
                }
            };
            if in_use {
                standings.push(standing);
                due_at.push(self.due_at[place]);
                paces.push(self.paces[place]);
            }
        }
        *self = Standings { standings, due_at, paces, free: Vec::new() };
    }

    /// See [`Connection::fetch_plan`](crate::Connection).
    pub(super) fn fetch(&self) -> u64 {
        self.due_at.last().map_or(0, |due_at| due_at.0)
    }

    /// Bytes of memory beyond the struct's own, about.
    pub(super) fn memory_bytes(&self) -> usize {
        self.standings.capacity() * PLACE_BYTES + self.free.capacity() * size_of::<u16>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subscription_finds_its_own_standing_however_many_begin_and_end() {
        throng_seeds::for_seeds(20, |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut subscriptions: Vec<Subscription> = (0..200).map(|_| Subscription::default()).collect();
            let mut standings = Standings::default();
            let mut expected = vec![None; subscriptions.len()];
            for step in 0..2_000u64 {
                // Now nearly all have one, now nearly none.
                let begins = random.u8(..10) < if step / 500 % 2 == 0 { 8 } else { 1 };
                let number = random.usize(1..subscriptions.len());
                let subscription = &mut subscriptions[number];
                if begins {
                    standings.begin(number as u16, subscription).since = Tick(step);
                    standings.set_due_at(subscription, Tick(step % 50));
                    expected[number] = Some(step);
                } else {
                    standings.end(subscription);
                    expected[number] = None;
                }
                if random.bool() {
                    let subscription = &mut subscriptions[number];
                    (subscription.interval_ticks, subscription.weight) = (random.u16(1..50), random.u8(1..9));
                    standings.set_pace(subscription);
                }
                if random.u8(..8) == 0 {
                    standings.end_passed(&mut subscriptions, Tick(step), SendTicks::default());
                    standings.give_back(&mut subscriptions);
                }
                for (subscription, expected) in subscriptions.iter().zip(&expected) {
                    let expected = expected.map_or((0, NEVER), |step: u64| (step, Tick(step % 50)));
                    assert_eq!((standings.of(subscription).since.0, standings.due_at(subscription)), expected);
                }
                let is_due = |step: &Option<u64>| step.is_some_and(|step| step % 50 <= 20);
                let due: Vec<u16> = (0..200).filter(|&number| is_due(&expected[usize::from(number)])).collect();
                let mut found = Vec::new();
                standings.find_due(Tick(20), &mut found);
                assert_eq!(found, due, "in the order of numbers");
                let mut ranks = Vec::new();
                standings.rank_due(Tick(20), |rank| ranks.push(rank));
                assert!(ranks.is_sorted_by_key(|rank| rank.place.0), "in the order of places");
                ranks.sort_unstable_by_key(|&rank| standings.number(rank));
                assert_eq!(ranks.iter().map(|&rank| standings.number(rank)).collect::<Vec<_>>(), due);
                for rank in ranks {
                    let subscription = &subscriptions[usize::from(standings.number(rank))];
                    let waits = Tick(20).since(standings.due_at(subscription));
                    let expected = (subscription.pace().score(waits), subscription.standing);
                    assert_eq!((rank.score, rank.place.0), expected);
                }
            }
        });
    }

    #[test]
    fn a_table_that_is_nearly_empty_is_given_back() {
        let mut subscriptions: Vec<Subscription> = (0..200).map(|_| Subscription::default()).collect();
        let mut standings = Standings::default();
        let begin = |standings: &mut Standings, subscriptions: &mut [Subscription], count: usize| {
            for (number, subscription) in subscriptions.iter_mut().enumerate().take(count).skip(1) {
                standings.begin(number as u16, subscription);
            }
        };
        begin(&mut standings, &mut subscriptions, 200);
        let crowded = standings.memory_bytes();
        standings.give_back(&mut subscriptions);
        assert_eq!(standings.memory_bytes(), crowded, "all of it is in use");
        subscriptions.iter_mut().skip(2).for_each(|subscription| standings.end(subscription));
        standings.give_back(&mut subscriptions);
        let resting = standings.memory_bytes();
        assert!(resting <= RESTING_PLACES * PLACE_BYTES, "{resting} bytes");
        begin(&mut standings, &mut subscriptions, 20);
        let places = standings.standings.as_ptr();
        subscriptions.iter_mut().skip(2).for_each(|subscription| standings.end(subscription));
        begin(&mut standings, &mut subscriptions, 20);
        assert_eq!(standings.standings.as_ptr(), places, "a table in use is not moved");
    }

    #[test]
    fn a_shared_subscription_has_a_standing_only_while_something_is_under_way() {
        let mut subscription = Subscription::open(0, 1, 1, Tick(0));
        subscription.stage = Stage::Shared;
        let mut standings = Standings::default();
        let lost = standings.begin(5, &mut subscription).flight.rejoin(Tick(3).short());
        let again = standings.begin(5, &mut subscription).flight.rejoin(Tick(4).short());
        standings.settle(&mut subscription, lost);
        assert_ne!(subscription.standing, NOBODY);
        standings.settle(&mut subscription, again);
        assert_eq!(subscription.standing, NOBODY);
        standings.settle(&mut subscription, again);
        assert!(standings.of(&subscription).flight.is_empty(), "nothing is under way of nobody");
    }
}
