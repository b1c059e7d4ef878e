//! The standings of one connection: of those subscriptions that have turns of their own, or something under way.
//!
//! A subscription that a shared view serves needs neither: the view knows where it stands. So the table of subscriptions is small,
//! and this one short, for all members of views.
//!
//! ```text
//! subscriptions | shared | open, 1 | shared | shared, 2 | ...     by number; the second has something under way
//! standings     | nobody |    1    |   2    |                     by place
//! ```

use throng_wire::Tick;

use crate::subscription::{Stage, Standing, Subscription};

/// When nobody is due.
pub(super) const NEVER: Tick = Tick(i64::MAX as u64);

/// The place of a subscription that has none. It can be read: nothing is under way there, and nothing ever due.
const NOBODY: u16 = 0;

/// Standings that are looked at together.
const BLOCK: usize = 16;

/// The table grows by so many places, or by an eighth of them.
const MORE_PLACES: usize = 16;

/// It is made shorter when it has so many free places beside twice those in use.
const FREE_PLACES: usize = 32;

/// The standings of one connection.
#[derive(Debug)]
pub(super) struct Standings {
    standings: Vec<Standing>,
    /// When each is due next: apart from the rest, because it is scanned every tick.
    due_at: Vec<Tick>,
    free: Vec<u16>,
}

impl Default for Standings {
    fn default() -> Standings {
        Standings { standings: vec![Standing::default()], due_at: vec![NEVER], free: Vec::new() }
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

    /// The subscription has a standing from now on, if it has none yet: never due, and with nothing under way.
    pub(super) fn begin(&mut self, number: u16, subscription: &mut Subscription) -> &mut Standing {
        if subscription.standing == NOBODY {
            let standing = Standing { subscription: number, ..Standing::default() };
            subscription.standing = match self.free.pop() {
                Some(place) => {
                    self.standings[usize::from(place)] = standing;
                    place
                }
                None => {
                    if self.standings.len() == self.standings.capacity() {
                        let more = (self.standings.len() / 8).max(MORE_PLACES);
                        self.standings.reserve_exact(more);
                        self.due_at.reserve_exact(more);
                    }
                    self.standings.push(standing);
                    self.due_at.push(NEVER);
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
        let number = |place: usize| self.standings[place].subscription;
        let (blocks, rest) = self.due_at.as_chunks::<BLOCK>();
        for (block, due_at) in blocks.iter().enumerate() {
            // A bit for each, without a branch: only those that are due are looked at one by one.
            let mut due = due_at.iter().rev().fold(0u32, |due, due_at| due << 1 | u32::from(*due_at <= now));
            while due != 0 {
                numbers.push(number(block * BLOCK + due.trailing_zeros() as usize));
                due &= due - 1;
            }
        }
        for (place, due_at) in rest.iter().enumerate() {
            if *due_at <= now {
                numbers.push(number(blocks.len() * BLOCK + place));
            }
        }
        numbers.sort_unstable();
    }

    /// Gives back the memory of places that are not in use.
    pub(super) fn shrink(&mut self, subscriptions: &mut [Subscription]) {
        let used = self.standings.len() - self.free.len();
        if self.free.len() <= used + FREE_PLACES {
            return;
        }
        let (mut standings, mut due_at) =
            (Vec::with_capacity(used + MORE_PLACES), Vec::with_capacity(used + MORE_PLACES));
        standings.push(Standing::default());
        due_at.push(NEVER);
        for subscription in subscriptions.iter_mut().filter(|subscription| subscription.standing != NOBODY) {
            standings.push(*self.of(subscription));
            due_at.push(self.due_at(subscription));
            subscription.standing = (standings.len() - 1) as u16;
        }
        *self = Standings { standings, due_at, free: Vec::new() };
    }

    /// See [`Connection::fetch_plan`](crate::Connection).
    pub(super) fn fetch(&self) -> u64 {
        self.due_at.last().map_or(0, |due_at| due_at.0)
    }

    /// Bytes of memory beyond the struct's own, about.
    pub(super) fn memory_bytes(&self) -> usize {
        self.standings.capacity() * (size_of::<Standing>() + size_of::<Tick>())
            + self.free.capacity() * size_of::<u16>()
    }
}
