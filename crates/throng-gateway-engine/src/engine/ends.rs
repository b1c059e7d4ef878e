//! Subscriptions of a client that ended a short time ago.
//!
//! A network fails before the gateway notices. So a lost client may have missed messages from before its loss, and the gateway tells it of
//! these ends again when it comes back.

use std::collections::VecDeque;

use throng_channeld::proto::ChannelType;
use throng_wire::Time;

/// How a subscription ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Unsubscribed(ChannelType),
    /// The channel was removed.
    Removed,
}

/// The gateway remembers at most so many ends of a client: the newest ones.
const RECENT_MAX: usize = 1_024;

/// A list with room for so many keeps it.
const ROOM_KEPT: usize = 64;

/// The newest ends of a client's subscriptions, oldest first.
#[derive(Debug, Default)]
pub(super) struct RecentEnds(VecDeque<(Time, u32, Ended)>);

impl RecentEnds {
    /// Remembers the end of the subscription to the channel with this id, and forgets those before `oldest`.
    pub(super) fn note(&mut self, now: Time, oldest: Time, id: u32, ended: Ended) {
        while self.0.len() >= RECENT_MAX || self.0.front().is_some_and(|&(at, ..)| at < oldest) {
            self.0.pop_front();
        }
        if self.0.capacity() > ROOM_KEPT && self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to(2 * self.0.len());
        }
        self.0.push_back((now, id, ended));
    }

    /// The ends since `oldest`, in order.
    pub(super) fn since(&self, oldest: Time) -> impl Iterator<Item = (u32, Ended)> {
        self.0.iter().filter(move |&&(at, ..)| at >= oldest).map(|&(_, id, ended)| (id, ended))
    }

    /// Forgets those before `oldest`, and gives their memory back.
    pub(super) fn forget_before(&mut self, oldest: Time) {
        if self.0.back().is_some_and(|&(at, ..)| at < oldest) {
            *self = RecentEnds::default();
        }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<(Time, u32, Ended)>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_ends_within_the_time_are_remembered() {
        let mut ends = RecentEnds::default();
        for id in 0..3_000 {
            ends.note(Time(id.into()), Time(0), id, Ended::Removed);
        }
        assert!(ends.bytes() <= 2 * (RECENT_MAX * 24) as u64, "{} bytes", ends.bytes());
        assert_eq!(ends.since(Time(0)).map(|(id, _)| id).collect::<Vec<_>>(), (1_976..3_000).collect::<Vec<_>>());
        assert_eq!(ends.since(Time(2_998)).map(|(id, _)| id).collect::<Vec<_>>(), [2_998, 2_999]);
        ends.note(Time(5_000), Time(2_999), 7, Ended::Unsubscribed(ChannelType::Test));
        assert_eq!(ends.since(Time(0)).map(|(id, _)| id).collect::<Vec<_>>(), [2_999, 7]);
        ends.note(Time(5_001), Time(2_999), 8, Ended::Removed);
        assert!(ends.bytes() <= (ROOM_KEPT * 24) as u64, "{} bytes", ends.bytes());
        ends.forget_before(Time(5_001));
        assert_eq!(ends.since(Time(0)).count(), 3);
        ends.forget_before(Time(5_002));
        assert_eq!((ends.since(Time(0)).count(), ends.bytes()), (0, 0));
    }
}
