//! The engine's memory, and which peers get nothing more while little is left.
//!
//! The shell counts everything else, and knows the budget (`Memory`). It decides which peers
//! can add nothing more, and how much has to be freed.

use std::cmp::Reverse;
use std::time::Duration;

use throng_channeld::message_type;
use throng_wire::Time;

use super::Engine;
use super::place::Place;
use super::port::{EndCause, Key, Side};
use super::refusal::Refusal;

/// The peers that can add nothing more, because there is little memory left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// There is enough.
    #[default]
    Nobody,
    /// The rest is for world servers.
    Clients,
    /// Nothing is left.
    Everybody,
}

impl Pressure {
    /// Whether this side gets nothing new.
    pub fn is_on(self, side: Side) -> bool {
        match side {
            Side::Client => self >= Pressure::Clients,
            Side::Server => self >= Pressure::Everybody,
        }
    }
}

/// The memory of a channel without its state.
const CHANNEL_BYTES: u64 = 1_024;
/// Memory of an entity without its channel: its entries in the tables of entities, of cells and of those without a channel.
const ENTITY_BYTES: u64 = 192;
/// The memory of a subscription: its cursor, its entry in the channel's list, its slot in the hub's tables.
const SUBSCRIPTION_BYTES: u64 = 128;
/// The memory of a connection that came through an edge, without what it is sent: its records here, in the hub and in the
/// shell. That of all others is counted by the shell, with their tasks and buffers.
const BEHIND_BYTES: u64 = (size_of::<super::Connection>() + size_of::<throng_replica::Stream>()) as u64 + 512;
/// How often subscriptions and frames that wait are counted.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// No connection is closed for a queue smaller than this: it would free next to nothing.
const SHED_BYTES_MIN: u64 = 32 << 10;

/// Memory that is counted only now and then, because it takes a walk over all connections.
#[derive(Debug, Default)]
pub(super) struct Counted {
    bytes: u64,
    next: Time,
}

impl Engine {
    /// Bytes that the engine holds: states, channels, subscriptions, lost connections, what waits to be sent in slices.
    pub fn memory_bytes(&mut self) -> u64 {
        if self.clock.now() >= self.counted.next {
            let oldest = self.heard_until();
            self.connections.iter_mut().for_each(|connection| connection.ends.forget_before(oldest));
            let subscriptions = |connection: &super::Connection| {
                let stream = self.fanout.hub.connection(self.connections.hub_id(connection.place()));
                stream.map_or(0, |stream| stream.subscription_count() as u64)
            };
            let of_connection = |connection: &super::Connection| {
                let own_bytes = if connection.behind.is_some() { BEHIND_BYTES } else { 0 };
                let kept_bytes = own_bytes + connection.kept_bytes() + connection.name_bytes();
                kept_bytes + subscriptions(connection) * SUBSCRIPTION_BYTES
            };
            let bytes = self.connections.iter().map(of_connection).sum();
            self.counted = Counted { bytes, next: self.clock.now().after(COUNT_EVERY) };
        }
        let entities = self.entities.len() as u64 * ENTITY_BYTES;
        let channels = self.channels.len() as u64 * CHANNEL_BYTES;
        self.memory.bytes() + channels + entities + self.lost.bytes() + self.fanout.forms.bytes() + self.counted.bytes
    }

    /// From now on these get nothing new: requests that need memory are refused, and updates that would make a state grow.
    pub fn set_pressure(&mut self, pressure: Pressure) {
        self.pressure = pressure;
    }

    /// Disconnects those for whom most waits, clients before servers, until `bytes` are free. How many that were.
    pub fn shed(&mut self, now: Time, bytes: u64) -> usize {
        self.clock.set(now);
        let weight = |connection: &super::Connection| connection.queued_bytes() as u64 + connection.kept_bytes();
        let all = self.connections.iter().filter(|connection| !connection.is_ending);
        let mut queues: Vec<(bool, Reverse<u64>, Key)> = all
            .map(|connection| (connection.is_server(), Reverse(weight(connection)), connection.key))
            .filter(|&(_, Reverse(bytes), _)| bytes >= SHED_BYTES_MIN)
            .collect();
        queues.sort_unstable();
        let (mut freed, mut ended) = (0, 0);
        for (_, Reverse(queued), key) in queues {
            if freed >= bytes {
                break;
            }
            freed += queued;
            ended += 1;
            self.counters.refuse(Refusal::Limit("memory"));
            if let Some(index) = self.connections.place(key) {
                self.connections.at(index).abandon();
            }
            self.connections.end_for(key, EndCause::Stalled);
        }
        if ended > 0 {
            // Their memory is counted anew before anybody else is ended.
            self.counted.next = now;
        }
        ended
    }

    /// Whether there is memory for what a message asks for. Updates are looked at when they are merged: those that do not
    /// make a state grow need none.
    pub(super) fn check_memory(&self, from: Place, msg_type: u32) -> Result<(), Refusal> {
        let grows = matches!(
            msg_type,
            message_type::CREATE_CHANNEL
                | message_type::CREATE_SPATIAL_CHANNEL
                | message_type::CREATE_ENTITY_CHANNEL
                | message_type::SUB_TO_CHANNEL
                | message_type::ENTITY_GROUP_ADD
                | message_type::UPDATE_SPATIAL_INTEREST
        );
        match grows && self.pressure.is_on(self.connections.at(from).side) {
            true => Err(Refusal::Limit("memory")),
            false => Ok(()),
        }
    }
}
