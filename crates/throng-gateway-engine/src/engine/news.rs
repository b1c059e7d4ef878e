//! Notices for the owners of channels: somebody has subscribed, or does not any more.
//!
//! One client that leaves may have thousands of subscriptions, and a thousand clients may leave at once. So the
//! gateway queues as many notices as the owner's queue has room for. The others wait here, in order, in 16 bytes each, and
//! are queued while the owner reads. The list is bounded, and counts as memory of the gateway.

use std::collections::VecDeque;

use throng_channeld::proto::{ChannelType, ConnectionType, UnsubscribedFromChannelResultMessage};
use throng_channeld::{Header, message_type};
use throng_replica::ChannelIndex;

use super::Engine;
use super::channel::Channel;
use super::place::Place;
use super::port::Side;
use super::refusal::Refusal;

/// One notice that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct News {
    channel: ChannelIndex,
    /// The low half of [`Channel::birth`]: another channel may get the same index.
    birth: u32,
    /// The connection id of the subscriber.
    connection: u32,
    side: Side,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Begun,
    Ended,
}

impl News {
    /// A subscription has begun, or has other rights now.
    pub(super) fn begun(channel: (ChannelIndex, &Channel), subscriber: (u32, Side)) -> News {
        News::new(channel, subscriber, What::Begun)
    }

    /// A subscription has ended.
    pub(super) fn ended(channel: (ChannelIndex, &Channel), subscriber: (u32, Side)) -> News {
        News::new(channel, subscriber, What::Ended)
    }

    fn new((index, channel): (ChannelIndex, &Channel), (connection, side): (u32, Side), what: What) -> News {
        News { channel: index, birth: low_half(channel.birth), connection, side, what }
    }
}

/// The word of the protocol for a side.
pub(super) fn connection_type(side: Side) -> ConnectionType {
    match side {
        Side::Server => ConnectionType::Server,
        Side::Client => ConnectionType::Client,
    }
}

/// The notice to an owner that a subscription has ended.
pub(super) fn ended_result((conn_id, side): (u32, Side), kind: ChannelType) -> UnsubscribedFromChannelResultMessage {
    UnsubscribedFromChannelResultMessage { conn_id, conn_type: connection_type(side).into(), channel_type: kind.into() }
}

fn low_half(birth: u64) -> u32 {
    birth as u32
}

/// The notices that wait for one owner, oldest first.
#[derive(Debug, Default)]
pub(super) struct NewsList(VecDeque<News>);

impl NewsList {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<News>()) as u64
    }

    /// Appends a notice, if the list then has at most `most_bytes`. Returns whether it did.
    fn push(&mut self, news: News, most_bytes: usize) -> bool {
        let most = most_bytes / size_of::<News>();
        if self.0.len() >= most {
            return false;
        }
        if self.0.len() == self.0.capacity() {
            // Its memory is bounded too.
            let more = self.0.capacity().max(64).min(most - self.0.len());
            self.0.reserve_exact(more);
        }
        self.0.push_back(news);
        true
    }

    fn pop(&mut self) -> Option<News> {
        let news = self.0.pop_front()?;
        if self.0.is_empty() {
            self.0 = VecDeque::new();
        }
        Some(news)
    }
}

/// Notices that are looked at in one step: some milliseconds of work, also if none of them is of interest any more.
const NEWS_PER_STEP: usize = 1 << 16;

impl Engine {
    /// Whether an owner can be told at once. If not, the notice waits until the owner has read more.
    pub(super) fn may_tell(&mut self, owner: Place, news: News) -> bool {
        let limits = &self.settings.limits;
        let Some(connection) = self.connections.get_mut(owner) else { return false };
        if connection.news.is_empty() && connection.has_room_for_news(limits) {
            return true;
        }
        let has_room = connection.news.push(news, connection.hard_bytes(limits));
        self.connections.put_dirty(owner);
        if !has_room {
            self.counters.refuse(Refusal::Limit("owner_notices"));
        }
        false
    }

    /// Tells the owner of a channel, if there is one, that somebody is no subscriber any more.
    pub(super) fn tell_owner_of_end(&mut self, index: ChannelIndex, subscriber: (u32, Side)) {
        let channel = self.channels.at(index);
        let (id, kind, Some(owner)) = (channel.id, channel.kind, channel.owner) else { return };
        if self.may_tell(owner, News::ended((index, self.channels.at(index)), subscriber)) {
            let result = ended_result(subscriber, kind);
            self.send(owner, Header::new(id, message_type::UNSUB_FROM_CHANNEL), &result);
        }
    }

    /// Tells an owner of what waits, as far as its queue has room. Returns the bytes queued.
    pub(super) fn tell_waiting_news(&mut self, owner: Place) -> usize {
        let limits = self.settings.limits;
        let before = self.connections.at(owner).out_bytes();
        for _ in 0..NEWS_PER_STEP {
            if !self.connections.at(owner).has_room_for_news(&limits) {
                break;
            }
            let Some(news) = self.connections.at_mut(owner).news.pop() else { break };
            self.tell_news(owner, news);
        }
        self.connections.at(owner).out_bytes() - before
    }

    /// Tells an owner of one thing that has waited, unless it is no concern of the owner any more.
    fn tell_news(&mut self, owner: Place, News { channel: index, birth, connection, side, what }: News) {
        let Some(channel) = self.channels.get(index) else { return };
        if low_half(channel.birth) != birth || !channel.is_owner(owner) {
            return;
        }
        let id = channel.id;
        match what {
            What::Ended => {
                let result = ended_result((connection, side), channel.kind);
                self.send(owner, Header::new(id, message_type::UNSUB_FROM_CHANNEL), &result);
            }
            What::Begun => {
                let result = self.party(connection).ok().and_then(|party| self.subscribed_result(party, index));
                let Some(result) = result else { return };
                self.send(owner, Header::new(id, message_type::SUB_TO_CHANNEL), &result);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_that_waits_takes_16_bytes() {
        assert_eq!(size_of::<News>(), 16);
    }
}
