//! One channel as the engine knows it: who owns it, who subscribes, and what it holds.

use std::sync::Arc;

use throng_channeld::proto::{ChannelDataAccess, ChannelDataMergeOptions, ChannelSubscriptionOptions, ChannelType};
use throng_replica::{SubscriptionId, Variant};
use throng_wire::Tick;

use super::port::Key;
use crate::settings::ChannelSettings;

/// A channel beside what the hub keeps of it.
pub(crate) struct Channel {
    pub(crate) id: u32,
    pub(crate) kind: ChannelType,
    pub(crate) metadata: String,
    pub(crate) settings: Arc<ChannelSettings>,
    /// Place of the connection that decides over it.
    pub(crate) owner: Option<usize>,
    /// By place of the connection.
    pub(crate) subscribers: Subscribers,
    pub(crate) merge: ChannelDataMergeOptions,
    /// The connection that created it and has it counted; it may be gone.
    pub(crate) creator: Option<Key>,
    /// Its owner was lost and may come back.
    pub(crate) is_awaited: bool,
}

/// The subscriptions of one channel by place of the connection: a sorted list, 24 bytes each, where a hash map would
/// take twice that. A thousand channels with a thousand subscribers each are a million of them.
#[derive(Debug, Default)]
pub(crate) struct Subscribers(Vec<(u32, Subscriber)>);

impl Subscribers {
    fn find(&self, connection: u32) -> Result<usize, usize> {
        self.0.binary_search_by_key(&connection, |&(place, _)| place)
    }

    pub(crate) fn get(&self, connection: &u32) -> Option<&Subscriber> {
        self.find(*connection).ok().map(|index| &self.0[index].1)
    }

    pub(crate) fn insert(&mut self, connection: u32, subscriber: Subscriber) {
        match self.find(connection) {
            Ok(index) => self.0[index].1 = subscriber,
            Err(index) => self.0.insert(index, (connection, subscriber)),
        }
    }

    pub(crate) fn remove(&mut self, connection: &u32) -> Option<Subscriber> {
        self.find(*connection).ok().map(|index| self.0.remove(index).1)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &u32> {
        self.0.iter().map(|(place, _)| place)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Subscriber> {
        self.0.iter().map(|(_, subscriber)| subscriber)
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (u32, Subscriber)> + '_ {
        self.0.drain(..)
    }
}

/// One connection's subscription. 20 bytes: there are millions where many see many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subscriber {
    pub(crate) interval_ms: u32,
    pub(crate) delay_ms: i32,
    /// When it began.
    pub(crate) since: Tick,
    pub(crate) variant: Variant,
    pub(crate) id: SubscriptionId,
    pub(crate) access: Access,
    flags: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Access {
    None,
    Read,
    Write,
}

const SKIP_SELF: u8 = 1;
const SKIP_FIRST: u8 = 2;
const RELIABLE: u8 = 4;

impl Channel {
    pub(crate) fn subscriber(&self, connection: usize) -> Option<&Subscriber> {
        self.subscribers.get(&(connection as u32))
    }

    pub(crate) fn is_owner(&self, connection: usize) -> bool {
        self.owner == Some(connection)
    }
}

impl Access {
    pub(crate) fn from_wire(access: ChannelDataAccess) -> Access {
        match access {
            ChannelDataAccess::NoAccess => Access::None,
            ChannelDataAccess::ReadAccess => Access::Read,
            ChannelDataAccess::WriteAccess => Access::Write,
        }
    }

    fn to_wire(self) -> ChannelDataAccess {
        match self {
            Access::None => ChannelDataAccess::NoAccess,
            Access::Read => ChannelDataAccess::ReadAccess,
            Access::Write => ChannelDataAccess::WriteAccess,
        }
    }
}

/// What is asked of a subscription, complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) interval_ms: u32,
    pub(crate) delay_ms: i32,
    pub(crate) variant: Variant,
    pub(crate) access: Access,
    pub(crate) skip_self: bool,
    pub(crate) skip_first: bool,
    /// Its state must not get lost on its way.
    pub(crate) reliable: bool,
}

impl Wanted {
    /// What a subscriber gets who asks for nothing.
    pub(crate) fn usual(settings: &ChannelSettings) -> Wanted {
        Wanted {
            interval_ms: settings.default_fan_out_interval_ms,
            delay_ms: settings.default_fan_out_delay_ms,
            variant: Variant::default(),
            access: Access::Read,
            skip_self: true,
            skip_first: false,
            reliable: false,
        }
    }

    /// With what the options name laid over it. Field masks are not looked at.
    pub(crate) fn with(self, options: &ChannelSubscriptionOptions) -> Wanted {
        let access = options.data_access.map(|number| ChannelDataAccess::try_from(number).unwrap_or_default());
        Wanted {
            interval_ms: options.fan_out_interval_ms.unwrap_or(self.interval_ms),
            delay_ms: options.fan_out_delay_ms.unwrap_or(self.delay_ms),
            variant: self.variant,
            access: access.map_or(self.access, Access::from_wire),
            skip_self: options.skip_self_update_fan_out.unwrap_or(self.skip_self),
            skip_first: options.skip_first_fan_out.unwrap_or(self.skip_first),
            reliable: options.reliable_fan_out.unwrap_or(self.reliable),
        }
    }
}

impl Subscriber {
    pub(crate) fn new(id: SubscriptionId, wanted: Wanted, since: Tick) -> Subscriber {
        let flags = (u8::from(wanted.skip_self) * SKIP_SELF)
            | (u8::from(wanted.skip_first) * SKIP_FIRST)
            | (u8::from(wanted.reliable) * RELIABLE);
        let Wanted { interval_ms, delay_ms, variant, access, .. } = wanted;
        Subscriber { interval_ms, delay_ms, since, variant, id, access, flags }
    }

    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            interval_ms: self.interval_ms,
            delay_ms: self.delay_ms,
            variant: self.variant,
            access: self.access,
            skip_self: self.skips_self(),
            skip_first: self.flags & SKIP_FIRST != 0,
            reliable: self.flags & RELIABLE != 0,
        }
    }

    pub(crate) fn skips_self(&self) -> bool {
        self.flags & SKIP_SELF != 0
    }

    /// The options as they are in effect. Field masks are for the caller to add.
    pub(crate) fn to_wire(self) -> ChannelSubscriptionOptions {
        ChannelSubscriptionOptions {
            data_access: Some(self.access.to_wire().into()),
            data_field_masks: Vec::new(),
            fan_out_interval_ms: Some(self.interval_ms),
            fan_out_delay_ms: Some(self.delay_ms),
            skip_self_update_fan_out: Some(self.skips_self()),
            skip_first_fan_out: Some(self.flags & SKIP_FIRST != 0),
            // Ours; channeld's clients do not know it.
            reliable_fan_out: (self.flags & RELIABLE != 0).then_some(true),
        }
    }
}
