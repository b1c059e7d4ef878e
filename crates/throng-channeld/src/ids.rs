//! Ranges of channel ids, and the flags that say who gets a user message.

use std::ops::BitOr;

/// The channel that always exists.
pub const GLOBAL_CHANNEL: u32 = 0;
/// The first id of a cell; ids from 1 up to here belong to all other types. Gateways can be configured otherwise.
pub const FIRST_SPATIAL_CHANNEL: u32 = 0x1_0000;
/// The first id of an entity. Gateways can be configured otherwise.
pub const FIRST_ENTITY_CHANNEL: u32 = 0x8_0000;
/// Bits of a connection id, unless a gateway is configured otherwise.
pub const DEFAULT_CONNECTION_ID_BITS: u32 = 31;

/// The receivers of a user message: the flags of a message's `broadcast` field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Broadcast(pub u32);

impl Broadcast {
    /// The channel's owner.
    pub const NONE: Broadcast = Broadcast(0);
    /// The connection that the message names.
    pub const SINGLE_CONNECTION: Broadcast = Broadcast(1);
    /// All subscribers of the channel.
    pub const ALL: Broadcast = Broadcast(2);
    /// Not the connection that sent it.
    pub const ALL_BUT_SENDER: Broadcast = Broadcast(4);
    /// Not the channel's owner.
    pub const ALL_BUT_OWNER: Broadcast = Broadcast(8);
    /// No clients.
    pub const ALL_BUT_CLIENT: Broadcast = Broadcast(16);
    /// No servers.
    pub const ALL_BUT_SERVER: Broadcast = Broadcast(32);
    /// Subscribers of the cell and of its neighbours.
    pub const ADJACENT_CHANNELS: Broadcast = Broadcast(64);

    /// Whether all flags of `flags` are set.
    pub const fn contains(self, flags: Broadcast) -> bool {
        self.0 & flags.0 == flags.0
    }
}

impl BitOr for Broadcast {
    type Output = Broadcast;

    fn bitor(self, other: Broadcast) -> Broadcast {
        Broadcast(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_add_up() {
        let flags = Broadcast::ALL | Broadcast::ALL_BUT_SENDER;
        assert_eq!(flags, Broadcast(6));
        assert!(flags.contains(Broadcast::ALL) && !flags.contains(Broadcast::ALL_BUT_OWNER));
        assert!(flags.contains(Broadcast::NONE));
    }
}
