//! Several engines that share the channels out among themselves.
//!
//! ```text
//!                          +--> engine 0: logins, GLOBAL, cells and entities, its part of the ordinary channels
//!  connection -- Session --+--> engine 1: its part of the ordinary channels
//!                          +--> engine 2: ...            |
//!       ^                                                |
//!       +-------------- one Outbox, which all of them fill
//! ```
//!
//! An ordinary channel lives in the engine that its number [names](Shards::home), from its creation to its end. Each
//! engine has a queue of its own, and may run in a thread of its own: none waits for another. A connection is known to
//! all of them from its login on; what it says is sorted by its [`Session`], in the order in which it came.
//!
//! # Order
//!
//! channeld handles each channel in a goroutine of its own, and promises an order within a channel only. So it is here,
//! with several engines:
//!
//! - The messages of one connection in one channel are done in the order in which it sent them.
//! - All that a connection is sent about one channel arrives in the order in which it happened there: the beginning of
//!   the subscription, updates, forwarded messages, the end.
//! - A connection's login is known everywhere before it is answered; the creation of a channel is done before it is
//!   answered.
//! - Between channels of different engines nothing is promised. With one engine there is one order for everything.
//!
//! # Limits
//!
//! - States and channels of all engines together have the bounds that they have in one engine: each sees what the others
//!   [use](Use). Two engines that grow at the same moment may exceed a bound by one message each.
//! - Backlogs, costly requests of a client and channels of a server are bounded by equal parts: an engine cannot see how
//!   much of that the others do.
//! - The subscriptions of a connection, and its malformed messages, are counted by each engine for itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use throng_channeld::proto::{ChannelType, CreateChannelMessage, RemoveChannelMessage};
use throng_channeld::{GLOBAL_CHANNEL, Message, message_type};

use crate::ChannelMeters;
use crate::fsm::Fsm;
use crate::port::Side;

/// How the channels are shared out among engines.
#[derive(Clone, Debug)]
pub struct Shards {
    count: u32,
    /// Ordinary channels are below.
    ordinary_end: u32,
    /// The engine that the next channel of a server is made in.
    next: Arc<AtomicU32>,
    /// By engine.
    uses: Arc<[Use]>,
    meters: Arc<ChannelMeters>,
}

/// The memory and number of one engine's channels, for the others to see.
#[derive(Debug, Default)]
pub struct Use {
    /// Bytes of all states.
    pub(crate) state_bytes: AtomicU64,
    /// Of these, those of channels that clients have created.
    pub(crate) client_state_bytes: AtomicU64,
    /// Channels, GLOBAL included.
    pub(crate) channels: AtomicU64,
}

/// The engine that does a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// This one.
    To(u32),
    /// All of them: each answers for its own channels.
    ToAll,
    /// None: the connection's state machine forbids it.
    Forbidden,
}

impl Shards {
    /// `count` engines (1 at least). Channels from `ordinary_end` on, the cells and entities, belong to the first.
    pub fn new(count: u32, ordinary_end: u32) -> Shards {
        let count = count.max(1);
        let uses = (0..count).map(|_| Use::default()).collect();
        Shards { count, ordinary_end, next: Arc::default(), uses, meters: Arc::default() }
    }

    pub(crate) fn uses(&self) -> &Arc<[Use]> {
        &self.uses
    }

    /// How channels do, in all engines.
    pub(crate) fn meters(&self) -> &Arc<ChannelMeters> {
        &self.meters
    }

    /// Number of engines.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The engine in which a channel lives.
    pub fn home(&self, channel_id: u32) -> u32 {
        match channel_id {
            GLOBAL_CHANNEL => 0,
            id if id >= self.ordinary_end => 0,
            // Numbers are given out one after the other, so the remainder spreads them evenly.
            id => id % self.count,
        }
    }

    /// The engine for a message of this connection.
    pub(crate) fn route(&self, message: &Message, side: Side, connection_id: u32) -> Route {
        match message.msg_type {
            message_type::CREATE_CHANNEL if makes_an_ordinary_one(message) => {
                Route::To(self.birthplace(side, connection_id))
            }
            // Its own channel is named in the body.
            message_type::REMOVE_CHANNEL => {
                let named = message.decode::<RemoveChannelMessage>().map_or(GLOBAL_CHANNEL, |body| body.channel_id);
                Route::To(self.home(named))
            }
            message_type::LIST_CHANNEL => Route::ToAll,
            _ => Route::To(self.home(message.channel_id)),
        }
    }

    /// The engine that makes a channel for this connection. A client's channels are all in one, which so knows how many
    /// it has; a server's are spread.
    fn birthplace(&self, side: Side, connection_id: u32) -> u32 {
        match side {
            Side::Client => connection_id % self.count,
            Side::Server => self.next.fetch_add(1, Ordering::Relaxed) % self.count,
        }
    }
}

/// One connection, from its login on: sorts what it says.
#[derive(Debug)]
pub struct Session {
    shards: Shards,
    side: Side,
    connection_id: u32,
    fsm: Fsm,
}

impl Session {
    pub(crate) fn new(shards: Shards, side: Side, connection_id: u32, fsm: Fsm) -> Session {
        Session { shards, side, connection_id, fsm }
    }

    /// Goes on by the rules of a session that the engine has given out since, in the state of the same name.
    pub fn take_rules_of(&mut self, newer: &Session) {
        self.fsm.reload(newer.fsm.machine());
    }

    /// The engine for the connection's next message.
    pub fn route(&mut self, message: &Message) -> Route {
        if !self.fsm.accepts(message.msg_type) {
            return Route::Forbidden;
        }
        self.fsm.received(message.msg_type);
        self.shards.route(message, self.side, self.connection_id)
    }
}

/// Whether the message asks for a channel that any engine may have. Everything else is for the first one to judge.
fn makes_an_ordinary_one(message: &Message) -> bool {
    let wanted = message.decode::<CreateChannelMessage>().ok();
    let kind = wanted.and_then(|wanted| ChannelType::try_from(wanted.channel_type).ok());
    let special = [ChannelType::Unknown, ChannelType::Global, ChannelType::Spatial, ChannelType::Entity];
    message.channel_id == GLOBAL_CHANNEL && kind.is_some_and(|kind| !special.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_channel_has_one_home_and_the_ordinary_ones_are_spread_evenly() {
        let shards = Shards::new(3, 0x1_0000);
        let homes = |ids: std::ops::Range<u32>| ids.map(|id| shards.home(id)).collect::<Vec<_>>();
        assert_eq!(homes(0..7), [0, 1, 2, 0, 1, 2, 0]);
        assert!(homes(0x1_0000..0x1_0100).iter().all(|&home| home == 0), "the world is whole");
        assert!(homes(0x8_0000..0x8_0100).iter().all(|&home| home == 0), "its entities too");
        assert_eq!(Shards::new(0, 9).count(), 1);
    }
}
