//! One subscription: where a connection stands in one channel's log.

use throng_wire::{ShortTick, Tick};

use crate::lattice;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    #[default]
    Free,
    /// Open, and nothing was sent yet.
    Fresh,
    Open,
    /// Open, and a frame that did not fit into earlier ticks is being sent.
    Sending,
    /// Open, but the channel had nothing new at the last turn, and wakes the subscription when it has.
    Asleep,
    /// Served by the shared view in which the connection is a member: the view knows where it stands.
    Shared,
    /// The client has not acknowledged the end yet.
    Closing,
}

/// A quarter of a cache line: a connection has a hundred of them, and most are served by a shared view, which knows where they
/// stand. All others have a [`Standing`].
#[derive(Debug, Default)]
pub(crate) struct Subscription {
    pub(crate) channel: u32,
    /// First tick of this incarnation of the number; once something was sent, that of the first frame.
    pub(crate) opened: ShortTick,
    pub(crate) interval_ticks: u16,
    /// The place of its standing, 0 for none.
    pub(crate) standing: u16,
    pub(crate) weight: u8,
    pub(crate) stage: Stage,
    flags: u8,
}

const _: () = assert!(size_of::<Subscription>() == 16);

/// Bits of [`Subscription::flags`]: the client is known to have the channel's name; a shared view may serve its channel; its
/// channel remembers that it sleeps; and its turns are too far apart for a shared view.
const ANNOUNCED: u8 = 1;
const MAY_SHARE: u8 = 2;
const REMEMBERED: u8 = 4;
const SELDOM: u8 = 8;

/// Where a subscription stands that has turns of its own, and what it has under way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    /// Everything up to this tick has been sent (though perhaps not delivered). Counts once something was sent. Of a shared
    /// subscription it is 0, unless it is later than where the view stands.
    pub(crate) since: Tick,
    pub(crate) flight: Flight,
    pub(crate) subscription: u16,
}

const _: () = assert!(size_of::<Standing>() == 24);

impl Standing {
    /// Whether something undelivered is too old for another frame.
    pub(crate) fn is_held_back(&self, stage: Stage, now: Tick, retention_ticks: u32) -> bool {
        stage != Stage::Sending
            && self.flight.oldest_basis().is_some_and(|basis| basis.ticks_until(now) > retention_ticks)
    }

    pub(crate) fn begin_frame(&mut self, subscription: &mut Subscription, tick: Tick) {
        // A new subscriber's client holds nothing that an undelivered segment could contradict.
        let basis = match subscription.stage {
            Stage::Fresh => {
                // A channel may have been empty for years until now.
                subscription.opened = tick.short();
                tick
            }
            _ => self.since,
        };
        self.flight.begin(basis.short());
        subscription.stage = Stage::Open;
    }

    /// The frame is written to its end. If the channel is to wake the subscription, it has not changed since the plan.
    pub(crate) fn end_frame(&mut self, subscription: &mut Subscription, tick: Tick) {
        subscription.stage = if subscription.is_remembered() { Stage::Asleep } else { Stage::Open };
        self.since = tick;
    }

    /// It says nothing that the subscription's view does not.
    pub(crate) fn is_idle(&self) -> bool {
        self.since == Tick(0) && self.flight.is_empty()
    }
}

impl Subscription {
    pub(crate) fn open(channel: u32, interval_ticks: u16, weight: u8, opened: Tick) -> Subscription {
        Subscription {
            channel,
            opened: opened.short(),
            interval_ticks: interval_ticks.max(1),
            weight: weight.max(1),
            stage: Stage::Fresh,
            ..Subscription::default()
        }
    }

    /// A shared view may serve its channel.
    pub(crate) fn let_share(&mut self) {
        self.flags |= MAY_SHARE;
    }

    /// Sets the interval. A frame is as old as the interval when it is written, and a late one holds back all that a shared
    /// view serves. So a view serves it only if that leaves as much time again for a round trip, within the retention.
    pub(crate) fn set_interval(&mut self, interval_ticks: u16, retention_ticks: u32) {
        self.interval_ticks = interval_ticks.max(1);
        self.flags &= !SELDOM;
        if 2 * u32::from(self.interval_ticks) > retention_ticks {
            self.flags |= SELDOM;
        }
    }

    /// Whether a shared view may serve it at this interval.
    pub(crate) fn may_share(&self) -> bool {
        self.flags & (MAY_SHARE | SELDOM) == MAY_SHARE
    }

    /// Whether a shared view may serve it at some interval.
    pub(crate) fn could_share(&self) -> bool {
        self.flags & MAY_SHARE != 0
    }

    /// The channel is to remember that it sleeps. False if it does already.
    pub(crate) fn begin_sleep(&mut self) -> bool {
        let is_new = self.flags & REMEMBERED == 0;
        self.flags |= REMEMBERED;
        is_new
    }

    /// Whether the channel remembers that it sleeps, or is going to: the next change wakes it.
    pub(crate) fn is_remembered(&self) -> bool {
        self.flags & REMEMBERED != 0
    }

    /// The channel has forgotten it.
    pub(crate) fn end_sleep(&mut self) {
        self.flags &= !REMEMBERED;
    }

    /// Whether the client is known to have the channel's name.
    pub(crate) fn is_announced(&self) -> bool {
        self.flags & ANNOUNCED != 0
    }

    pub(crate) fn announce(&mut self) {
        self.flags |= ANNOUNCED;
    }

    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.stage, Stage::Free | Stage::Closing)
    }

    /// Whether this is still the use of the number that began at `opened`.
    pub(crate) fn is_incarnation(&self, opened: ShortTick) -> bool {
        self.is_open() && self.opened == opened
    }

    /// The next tick after `now` at which the whole rate class of the channel is due.
    pub(crate) fn next_turn(&self, now: Tick, phase: u32) -> Tick {
        lattice::next_turn(now, self.interval_ticks, phase)
    }

    /// How fast its priority grows.
    pub(crate) fn pace(&self) -> Pace {
        Pace((u32::from(self.weight) << 24) / u32::from(self.interval_ticks.max(1)))
    }
}

/// How fast the priority of a subscription grows with the ticks that it waits: its weight by its interval, in 2^-24.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace(u32);

impl Pace {
    /// Priority: how many intervals it has waited, times its weight. Grows without bound, so nothing starves.
    #[inline]
    pub(crate) fn score(self, wait_ticks: u32) -> u64 {
        (u64::from(wait_ticks) + 1) * u64::from(self.0)
    }
}

/// How old the oldest undelivered segment of a subscription is, in constant space.
///
/// Segments in flight form two generations. A frame joins the younger one while the older one is not empty; when the
/// older one is delivered, the younger takes its place. The age is that of the older generation's first frame.
///
/// The counts are bounded by the packets that a link lets be in flight, and what fits into each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flight {
    basis: ShortTick,
    /// Ticks from the basis of the older generation to that of the younger. No frame begins so late that it does not fit:
    /// the subscription is held back before. If one did, its generation would look older than it is, which is safe.
    younger_after: u16,
    count: u16,
    younger_count: u16,
    /// Which of the two generations is the older, and that of the frame that is being sent.
    flags: u8,
}

/// Bits of [`Flight::flags`].
const PARITY: u8 = 1;
const FRAME_PARITY: u8 = 2;

impl Flight {
    /// A frame with changes since `basis` begins.
    fn begin(&mut self, basis: ShortTick) {
        if self.count == 0 {
            self.basis = basis;
            return self.set(FRAME_PARITY, self.parity());
        }
        if self.younger_count == 0 {
            self.younger_after = basis.0.wrapping_sub(self.basis.0).min(u16::MAX.into()) as u16;
        }
        self.set(FRAME_PARITY, !self.parity());
    }

    /// A segment of the frame that began last is written. Returns the generation to remember.
    pub(crate) fn depart(&mut self) -> bool {
        if self.frame_parity() != self.parity() && self.count == 0 {
            self.rotate();
        }
        match self.frame_parity() == self.parity() {
            true => self.count = self.count.saturating_add(1),
            false => self.younger_count = self.younger_count.saturating_add(1),
        }
        self.frame_parity()
    }

    /// A segment is delivered, or no longer needed.
    pub(crate) fn settle(&mut self, parity: bool) {
        if parity != self.parity() {
            self.younger_count = self.younger_count.saturating_sub(1);
            return;
        }
        self.count = self.count.saturating_sub(1);
        if self.count == 0 && self.younger_count > 0 {
            self.rotate();
        }
    }

    /// A segment with changes since `basis` that was sent by other means is to be sent again. Returns the generation to
    /// remember: the older one, whose age is never less than that of what joins it.
    pub(crate) fn rejoin(&mut self, basis: ShortTick) -> bool {
        let older_by = self.basis.0.wrapping_sub(basis.0);
        if self.count == 0 {
            self.basis = basis;
        } else if older_by < 1 << 31 {
            self.younger_after = self.younger_after.saturating_add(older_by.min(u16::MAX.into()) as u16);
            self.basis = basis;
        }
        self.count = self.count.saturating_add(1);
        self.parity()
    }

    fn rotate(&mut self) {
        self.set(PARITY, !self.parity());
        self.basis = ShortTick(self.basis.0.wrapping_add(self.younger_after.into()));
        self.count = std::mem::take(&mut self.younger_count);
    }

    /// Since when the client may lack something; `None` when everything sent was delivered.
    pub(crate) fn oldest_basis(&self) -> Option<ShortTick> {
        (self.count > 0).then_some(self.basis)
    }

    /// Everything sent was delivered.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0 && self.younger_count == 0
    }

    fn parity(&self) -> bool {
        self.flags & PARITY != 0
    }

    fn frame_parity(&self) -> bool {
        self.flags & FRAME_PARITY != 0
    }

    fn set(&mut self, flag: u8, to: bool) {
        self.flags = self.flags & !flag | if to { flag } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flight_knows_its_oldest_frame() {
        let mut flight = Flight::default();
        assert_eq!(flight.oldest_basis(), None);
        flight.begin(ShortTick(1));
        let first = flight.depart();
        flight.depart();
        flight.begin(ShortTick(5));
        let second = flight.depart();
        flight.begin(ShortTick(9));
        let third = flight.depart();
        assert_ne!(first, second);
        assert_eq!(second, third);
        flight.settle(first);
        assert_eq!(flight.oldest_basis(), Some(ShortTick(1)));
        flight.settle(second);
        flight.settle(first);
        assert_eq!(flight.oldest_basis(), Some(ShortTick(5)), "the younger generation is aged by its first frame");
        flight.settle(third);
        assert_eq!(flight.oldest_basis(), None);
    }

    #[test]
    fn a_frame_begun_in_the_younger_generation_survives_the_end_of_the_older() {
        let mut flight = Flight::default();
        flight.begin(ShortTick(1));
        let first = flight.depart();
        flight.begin(ShortTick(7));
        flight.settle(first);
        let sent = flight.depart();
        assert_eq!(flight.oldest_basis(), Some(ShortTick(7)));
        flight.depart();
        flight.settle(sent);
        flight.settle(sent);
        assert_eq!(flight.oldest_basis(), None);
    }

    #[test]
    fn a_generation_that_begins_very_much_later_than_the_one_before_looks_older_than_it_is() {
        let mut flight = Flight::default();
        flight.begin(ShortTick(u32::MAX - 1));
        let first = flight.depart();
        flight.begin(ShortTick(100_000));
        flight.depart();
        flight.settle(first);
        assert_eq!(flight.oldest_basis(), Some(ShortTick((u32::MAX - 1).wrapping_add(65_535))));
    }

    #[test]
    fn waiting_raises_priority_without_bound() {
        let pace = |interval_ticks, weight| Subscription::open(0, interval_ticks, weight, Tick(0)).pace();
        let (near, far) = (pace(1, 1), pace(30, 1));
        assert!(near.score(0) > far.score(0));
        assert!(far.score(60) > near.score(0));
        let (rare, heavy) = (pace(u16::MAX, 1), pace(1, 2));
        assert!(rare.score(1 << 18) > heavy.score(0), "the rarest has its turn beside the heaviest and most frequent");
    }
}
