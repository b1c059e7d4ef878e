//! Connections in rows of neighbours, to be subscribed and unsubscribed by several threads at once.
//!
//! ```text
//! rows       | connections 0 .. len | len .. 2 * len | ..     each can be changed without the others
//! shared     channels by key, objects, homes                  nobody changes them meanwhile
//! changes    | subscribers + - ..   | ..             |        noted for each row, made afterwards
//! ```

use rustc_hash::FxHashMap;
use throng_schema::Facet;
use throng_wire::{ConnectionId, ObjectId, Tick};

use crate::connection::{Connection, SubscriptionId};
use crate::hub::{Channel, ChannelIndex, ChannelState};
use crate::key::ChannelKey;
use crate::limits::LimitReached;
use crate::log::ObjectLog;
use crate::reader::ConnectionSlot;
use crate::replicator::{Ownership, owner_of};
use crate::store::ObjectStore;

/// The changes of a row that concern everybody: to be handed to
/// [`Replicator::note_row`](crate::Replicator::note_row). Keeps its memory.
#[derive(Debug, Default)]
pub struct RowChanges {
    /// Channels with a subscriber more, and with one less.
    pub(crate) joined: Vec<u32>,
    pub(crate) left: Vec<u32>,
    pub(crate) limit_reached: u64,
}

/// Some connections beside each other, of which each can be subscribed to channels that exist.
#[derive(Debug)]
pub struct SubscriberRow<'a> {
    pub(crate) by_key: &'a FxHashMap<ChannelKey, u32>,
    pub(crate) channels: &'a [Channel<ObjectLog>],
    pub(crate) store: &'a ObjectStore,
    pub(crate) ownership: &'a [Ownership],
    /// The tick of the last plan.
    pub(crate) planned: Tick,
    /// The index of the first connection.
    pub(crate) first: usize,
    pub(crate) slots: &'a mut [ConnectionSlot],
    pub(crate) changes: &'a mut RowChanges,
}

impl SubscriberRow<'_> {
    /// The tick of the next plan.
    pub fn tick(&self) -> Tick {
        self.planned.after(1)
    }

    /// The channel with this key, if there is one.
    pub fn find(&self, key: ChannelKey) -> Option<ChannelIndex> {
        self.by_key.get(&key).map(|&index| ChannelIndex(index))
    }

    /// The channel's key.
    pub fn key(&self, channel: ChannelIndex) -> ChannelKey {
        self.channels[channel.0 as usize].key
    }

    /// The channel in which a facet of an object lives at the moment.
    pub fn home(&self, id: ObjectId, facet: Facet) -> Option<ChannelIndex> {
        self.store.channel_of(id, facet).map(ChannelIndex)
    }

    /// The owner of the object.
    pub fn owner(&self, id: ObjectId) -> Option<ConnectionId> {
        owner_of(self.store, self.ownership, id)
    }

    /// The objects.
    pub fn store(&self) -> &ObjectStore {
        self.store
    }

    /// The connection of that name, if it is still there and in this row.
    pub fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        let slot = self.slots.get((id.index as usize).checked_sub(self.first)?)?;
        slot.reader().filter(|_| slot.generation == id.generation)
    }

    /// The connection of that name, if it is still there and in this row.
    pub fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut((id.index as usize).checked_sub(self.first)?)?;
        if slot.generation == id.generation { slot.changing() } else { None }
    }

    /// As [`Hub::subscribe`](crate::Hub::subscribe).
    ///
    /// # Errors
    /// The connection is not in this row, has a subscription of the channel, or as many as it may have.
    pub fn subscribe(
        &mut self,
        id: ConnectionId,
        channel: ChannelIndex,
        interval_ticks: u16,
        weight: u8,
    ) -> Result<SubscriptionId, LimitReached> {
        if self.connection(id).is_some_and(|connection| connection.is_subscribed(channel.0)) {
            return Err(LimitReached::Subscribed);
        }
        self.subscribe_unseen(id, channel, interval_ticks, weight)
    }

    /// As [`Hub::subscribe_unseen`](crate::Hub::subscribe_unseen).
    ///
    /// # Errors
    /// The connection is not in this row, or has as many subscriptions as it may have.
    pub fn subscribe_unseen(
        &mut self,
        id: ConnectionId,
        channel: ChannelIndex,
        interval_ticks: u16,
        weight: u8,
    ) -> Result<SubscriptionId, LimitReached> {
        let (opened, key) = (self.tick(), self.key(channel));
        let retention_ticks = self.channels[channel.0 as usize].state.retention_ticks();
        let connection = self.connection_mut(id).ok_or(LimitReached::UnknownConnection)?;
        match connection.open((channel, key), retention_ticks, interval_ticks, weight, opened) {
            Ok(subscription) => {
                self.changes.joined.push(channel.0);
                Ok(subscription)
            }
            Err(error) => {
                self.changes.limit_reached += 1;
                Err(error)
            }
        }
    }

    /// As [`Hub::unsubscribe`](crate::Hub::unsubscribe).
    pub fn unsubscribe(&mut self, id: ConnectionId, subscription: SubscriptionId) {
        let channel = self.connection_mut(id).and_then(|connection| connection.unsubscribe(subscription));
        self.changes.left.extend(channel);
    }
}
