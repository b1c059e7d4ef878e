//! The game's subscriptions to channels of single objects: who has them, and when they end after the object has.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use throng_replica::ChannelKey;
use throng_wire::{ConnectionId, Tick};

/// The game's subscriptions to channels of single objects.
#[derive(Default)]
pub(crate) struct Watches {
    watchers: BTreeSet<(ChannelKey, ConnectionId)>,
    /// Channels whose object has ended, with the tick by which all watchers have received the end.
    ended: BinaryHeap<Reverse<(Tick, ChannelKey)>>,
}

impl Watches {
    /// A connection has a subscription to a channel.
    pub(crate) fn add(&mut self, key: ChannelKey, watcher: ConnectionId) {
        if matches!(key, ChannelKey::Entity { .. }) {
            self.watchers.insert((key, watcher));
        }
    }

    pub(crate) fn remove(&mut self, key: ChannelKey, watcher: ConnectionId) {
        self.watchers.remove(&(key, watcher));
    }

    /// The connections that watch a channel.
    pub(crate) fn of(&self, key: ChannelKey) -> impl Iterator<Item = ConnectionId> + '_ {
        let first = ConnectionId { index: 0, generation: 0 };
        let from = self.watchers.range((key, first)..);
        from.take_while(move |&&(watched, _)| watched == key).map(|&(_, watcher)| watcher)
    }

    /// The object has ended, and all watchers will have received that by `told_at`.
    pub(crate) fn end(&mut self, key: ChannelKey, told_at: Tick) {
        self.ended.push(Reverse((told_at, key)));
    }

    /// The next channel of which all watchers have received the end by `now`.
    pub(crate) fn next_told(&mut self, now: Tick) -> Option<ChannelKey> {
        let is_told = self.ended.peek().is_some_and(|Reverse((told_at, _))| *told_at <= now);
        is_told.then(|| self.ended.pop()).flatten().map(|Reverse((_, key))| key)
    }

    /// A connection that watches a channel.
    pub(crate) fn first_of(&self, key: ChannelKey) -> Option<ConnectionId> {
        self.of(key).next()
    }

    /// Subscriptions to channels of single objects.
    pub(crate) fn len(&self) -> usize {
        self.watchers.len()
    }

    /// Channels that wait until all watchers have received the end.
    pub(crate) fn ended_len(&self) -> usize {
        self.ended.len()
    }
}
