//! A subscription begins, and ends.

use throng_wire::Tick;

use super::{Connection, SubscriptionId};
use crate::hub::ChannelIndex;
use crate::key::ChannelKey;
use crate::limits::LimitReached;
use crate::shared_view::may_share;
use crate::subscription::{Stage, Subscription};

/// The table of subscriptions grows by so many, or by an eighth of them: doubled, it would be half empty in most connections.
const MORE_SUBSCRIPTIONS: usize = 16;

impl Connection {
    /// Subscribes it to a channel of which it has no open subscription.
    pub(crate) fn open(
        &mut self,
        (channel, key): (ChannelIndex, ChannelKey),
        retention_ticks: u32,
        interval_ticks: u16,
        weight: u8,
        opened: Tick,
    ) -> Result<SubscriptionId, LimitReached> {
        debug_assert!(!self.is_subscribed(channel.0), "the connection has a subscription of the channel");
        let mut subscription = Subscription::open(channel.0, interval_ticks, weight, opened);
        if may_share(key) {
            subscription.let_share();
            self.sharing.retention_ticks = retention_ticks;
        }
        subscription.set_interval(interval_ticks, retention_ticks);
        let number = match self.free.pop() {
            Some(number) => {
                self.subscriptions[usize::from(number)] = subscription;
                number
            }
            None if self.subscriptions.len() <= self.limit => {
                if self.subscriptions.len() == self.subscriptions.capacity() {
                    let more = (self.subscriptions.len() / 8).max(MORE_SUBSCRIPTIONS);
                    self.subscriptions.reserve_exact(more);
                }
                self.subscriptions.push(subscription);
                (self.subscriptions.len() - 1) as u16
            }
            None => return Err(LimitReached::Subscriptions(self.limit)),
        };
        let subscription = &mut self.subscriptions[usize::from(number)];
        self.standings.begin(number, subscription);
        self.standings.set_due_at(subscription, opened);
        self.sharing.add(subscription);
        self.sharing.note_exception(number);
        Ok(SubscriptionId(number))
    }

    /// Ends a subscription; returns its channel if it was open.
    pub(crate) fn unsubscribe(&mut self, id: SubscriptionId) -> Option<u32> {
        let subscription = self.subscriptions.get_mut(usize::from(id.0)).filter(|s| s.is_open())?;
        if subscription.stage == Stage::Sending {
            self.sending.retain(|sending| sending.subscription != id.0);
        }
        self.sharing.has_closed |= subscription.may_share() || subscription.stage == Stage::Shared;
        subscription.stage = Stage::Closing;
        self.standings.end(subscription);
        self.sharing.remove(subscription);
        if self.first == id.0 {
            (self.first, self.needs_full_packet) = (0, false);
        }
        self.closes.push_back(id.0);
        Some(subscription.channel)
    }
}
