//! The engine's data about one channel: owner, subscribers and state.

use std::sync::Arc;

use throng_channeld::proto::{ChannelDataAccess, ChannelDataMergeOptions, ChannelSubscriptionOptions, ChannelType};
use throng_replica::{SubscriptionId, Variant};
use throng_wire::Tick;

use super::place::Place;
use super::port::{Key, Side};
use crate::channel_types::ChannelSettings;
use crate::limits::Limits;
use throng_protostate::{MergeOptions, allocated};

/// A channel beside what the hub keeps of it.
pub(crate) struct Channel {
    pub(crate) id: u32,
    /// No other channel has or had this number, whatever its id.
    pub(crate) birth: u64,
    pub(crate) kind: ChannelType,
    pub(crate) metadata: String,
    pub(crate) settings: Arc<ChannelSettings>,
    /// The connection that controls the channel.
    pub(crate) owner: Option<Place>,
    /// By index of the connection.
    pub(crate) subscribers: Subscribers,
    pub(crate) merge: ChannelDataMergeOptions,
    /// The connection that created it and has it counted; it may be gone.
    pub(crate) creator: Option<Creator>,
    /// Its owner was lost and may come back.
    pub(crate) is_awaited: bool,
}

/// The creator of a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Creator {
    pub(crate) key: Key,
    pub(crate) side: Side,
}

/// The subscriptions of one channel by index of the connection: a sorted list, 16 bytes each, where a hash map would
/// take twice that. A thousand channels with a thousand subscribers each are a million of them.
#[derive(Debug, Default)]
pub(crate) struct Subscribers(Vec<(Place, Subscriber)>);

impl Subscribers {
    fn find(&self, connection: Place) -> Result<usize, usize> {
        self.0.binary_search_by_key(&connection, |&(place, _)| place)
    }

    pub(crate) fn get(&self, connection: Place) -> Option<&Subscriber> {
        self.find(connection).ok().map(|index| &self.0[index].1)
    }

    pub(crate) fn insert(&mut self, connection: Place, subscriber: Subscriber) {
        match self.find(connection) {
            Ok(index) => self.0[index].1 = subscriber,
            Err(index) => self.0.insert(index, (connection, subscriber)),
        }
    }

    pub(crate) fn remove(&mut self, connection: Place) -> Option<Subscriber> {
        self.find(connection).ok().map(|index| self.0.remove(index).1)
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.0.iter().map(|&(place, _)| place)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Place, Subscriber)> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Subscriber> {
        self.0.iter().map(|(_, subscriber)| subscriber)
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Place, Subscriber)> + '_ {
        self.0.drain(..)
    }
}

/// One connection's subscription. 16 bytes: there are millions where many see many. The hub alone keeps its data about
/// the channel, such as the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(crate) struct Subscriber {
    /// When it began.
    pub(crate) since: Tick,
    /// The delay in ms above [`FLAG_BITS`], access and the rest below.
    delay_and_flags: i32,
    pub(crate) variant: Variant,
    pub(crate) id: SubscriptionId,
}

const FLAG_BITS: u32 = 8;

/// The largest number that fits beside the flags: 2.3 hours, more than any setting allows.
const DELAY_MAX_MS: i32 = i32::MAX >> FLAG_BITS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Access {
    None,
    Read,
    Write,
}

/// An [`Access`] by its number.
const ACCESS: i32 = 3;
const SKIP_SELF: i32 = 4;
const SKIP_FIRST: i32 = 8;
const RELIABLE: i32 = 16;

impl Channel {
    pub(crate) fn subscriber(&self, connection: Place) -> Option<&Subscriber> {
        self.subscribers.get(connection)
    }

    /// Bytes of memory that it takes beside its state, as far as peers decide about them.
    pub(crate) fn beside_bytes(&self) -> u64 {
        allocated(self.metadata.len()) as u64
    }

    /// How its updates are merged: as its creator said, and its type.
    pub(crate) fn merge_options(&self) -> MergeOptions {
        MergeOptions {
            replace_lists: self.merge.should_replace_list,
            list_size_limit: self.merge.list_size_limit,
            truncate_top: self.merge.truncate_top,
            remove_map_entries: self.merge.should_check_removable_map_field,
            merge_map_entries: self.settings.merge_map_entries,
        }
    }

    /// The ticks between its turns, to which the turns of its readers are moved up.
    pub(crate) fn turn_grid(&self) -> u64 {
        u64::from(self.settings.tick_interval_ms.max(1))
    }

    pub(crate) fn is_owner(&self, connection: Place) -> bool {
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

/// The complete options of a requested subscription.
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
    /// The default options of a subscriber.
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

    /// With the interval and the delay within what the gateway serves.
    pub(crate) fn bounded(self, limits: &Limits) -> Wanted {
        let interval_ms = self.interval_ms.clamp(limits.min_interval_ms, limits.max_interval_ms);
        let delay_ms = self.delay_ms.clamp(limits.min_delay_ms, limits.max_delay_ms);
        Wanted { interval_ms, delay_ms, ..self }
    }

    /// As options that are in effect. Field masks are for the caller to add.
    pub(crate) fn to_wire(self) -> ChannelSubscriptionOptions {
        ChannelSubscriptionOptions {
            data_access: Some(self.access.to_wire().into()),
            data_field_masks: Vec::new(),
            fan_out_interval_ms: Some(self.interval_ms),
            fan_out_delay_ms: Some(self.delay_ms),
            skip_self_update_fan_out: Some(self.skip_self),
            skip_first_fan_out: Some(self.skip_first),
            // Ours; channeld's clients do not know it.
            reliable_fan_out: self.reliable.then_some(true),
        }
    }
}

impl Subscriber {
    pub(crate) fn new(id: SubscriptionId, wanted: Wanted, since: Tick) -> Subscriber {
        let flags = (wanted.access as i32)
            | (i32::from(wanted.skip_self) * SKIP_SELF)
            | (i32::from(wanted.skip_first) * SKIP_FIRST)
            | (i32::from(wanted.reliable) * RELIABLE);
        let delay_ms = wanted.delay_ms.clamp(-DELAY_MAX_MS, DELAY_MAX_MS);
        Subscriber { since, delay_and_flags: (delay_ms << FLAG_BITS) | flags, variant: wanted.variant, id }
    }

    /// The granted options, with the hub's interval.
    pub(crate) fn wanted(self, interval_ms: u32) -> Wanted {
        Wanted {
            interval_ms,
            delay_ms: self.delay_and_flags >> FLAG_BITS,
            variant: self.variant,
            access: self.access(),
            skip_self: self.skips_self(),
            skip_first: self.delay_and_flags & SKIP_FIRST != 0,
            reliable: self.delay_and_flags & RELIABLE != 0,
        }
    }

    pub(crate) fn access(self) -> Access {
        const READ: i32 = Access::Read as i32;
        const WRITE: i32 = Access::Write as i32;
        match self.delay_and_flags & ACCESS {
            READ => Access::Read,
            WRITE => Access::Write,
            _ => Access::None,
        }
    }

    pub(crate) fn skips_self(self) -> bool {
        self.delay_and_flags & SKIP_SELF != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_granted_is_what_comes_back() {
        let delays = [-3_600_000, -1, 0, 1, 3_600_000];
        for delay_ms in delays {
            for access in [Access::None, Access::Read, Access::Write] {
                for flags in 0..8 {
                    let wanted = Wanted {
                        interval_ms: 3_600_000,
                        delay_ms,
                        variant: Variant(u16::MAX),
                        access,
                        skip_self: flags & 1 != 0,
                        skip_first: flags & 2 != 0,
                        reliable: flags & 4 != 0,
                    };
                    let subscriber = Subscriber::new(SubscriptionId::from_number(u16::MAX), wanted, Tick(7));
                    assert_eq!(subscriber.wanted(3_600_000), wanted);
                }
            }
        }
    }

    #[test]
    fn a_subscriber_takes_20_bytes_with_the_place_of_its_connection() {
        assert_eq!(size_of::<(Place, Subscriber)>(), 20);
    }
}
