use thiserror::Error;

use crate::replicator::EntryTooLong;

/// Bounds on what a hub holds.
///
/// ```
/// # use throng_replica::HubLimits;
/// let defaults = HubLimits::default();
/// assert_eq!((defaults.channels, defaults.connections), (1 << 20, 65_536));
/// assert_eq!(defaults.subscriptions_per_connection, 4_096);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HubLimits {
    /// Channels at once.
    pub channels: usize,
    /// Connections at once.
    pub connections: usize,
    /// Subscriptions of one connection, those included whose end is not acknowledged yet. At most 16,383.
    pub subscriptions_per_connection: usize,
}

impl Default for HubLimits {
    fn default() -> HubLimits {
        HubLimits { channels: 1 << 20, connections: 65_536, subscriptions_per_connection: 4_096 }
    }
}

/// Something could not be done because a limit stands in the way. Always our side's doing, never the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LimitReached {
    /// Objects of this kind do not fit into a packet.
    #[error(transparent)]
    Entry(#[from] EntryTooLong),
    /// There are as many channels as allowed.
    #[error("there are {0} channels already: raise the limit or use larger cells")]
    Channels(usize),
    /// All slots of a channel are in use, or rest after the objects in them have gone.
    #[error("a channel has {0} objects already, those gone lately included: use more channels or a shorter retention")]
    Slots(usize),
    /// There are as many connections as allowed.
    #[error("there are {0} connections already: raise the limit, or wait until one has ended")]
    Connections(usize),
    /// The connection has as many subscriptions as allowed.
    #[error("the connection has {0} subscriptions already: use larger cells or a smaller view")]
    Subscriptions(usize),
    /// The connection has a subscription of this channel already: change that one instead.
    #[error("the connection is subscribed to this channel already: change its interval instead")]
    Subscribed,
    /// The connection is gone.
    #[error("the connection does not exist: it has ended, or its event has not been polled yet")]
    UnknownConnection,
    /// There are as many objects as allowed.
    #[error("there are {0} objects already: raise the limit, or despawn some")]
    Objects(usize),
    /// A placement or a channel names a grid that does not exist.
    #[error("there is no grid {0}: add one to ServerOptions::grids; the first is number 0")]
    UnknownGrid(u8),
    /// An object without a position cannot live in the cell that it lies in.
    #[error("kind {0} has no position: place it in a channel, or give it a field with `position`")]
    NoPosition(&'static str),
    /// An object that is meant is gone.
    #[error("the object does not exist: it has been despawned")]
    UnknownObject,
    /// Quantised values are not those of the kind.
    #[error("the values are not those of the kind: it has another number of words or texts")]
    Values,
    /// The channel of what only another connection may know.
    #[error("an owner's channel is for that owner alone: give the object to the connection, or use another channel")]
    ForeignOwner,
    /// Never is not a time between two sends.
    #[error("an interval of 0 ticks is not possible: choose 1 to 65,535, or unsubscribe")]
    Interval,
}

impl LimitReached {
    /// A stable short name, for metric labels.
    pub fn tag(self) -> &'static str {
        match self {
            LimitReached::Entry(_) => "entry_too_long",
            LimitReached::Channels(_) => "channels",
            LimitReached::Slots(_) => "slots",
            LimitReached::Connections(_) => "connections",
            LimitReached::Subscriptions(_) => "subscriptions",
            LimitReached::Subscribed => "subscribed",
            LimitReached::UnknownConnection => "unknown_connection",
            LimitReached::Objects(_) => "objects",
            LimitReached::UnknownGrid(_) => "unknown_grid",
            LimitReached::NoPosition(_) => "no_position",
            LimitReached::UnknownObject => "unknown_object",
            LimitReached::Values => "values",
            LimitReached::ForeignOwner => "foreign_owner",
            LimitReached::Interval => "interval",
        }
    }
}
