use thiserror::Error;

/// Bounds on what a hub holds.
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
    /// There are as many channels as allowed.
    #[error("there are {0} channels already: raise the limit or use larger cells")]
    Channels(usize),
    /// There are as many connections as allowed.
    #[error("there are {0} connections already")]
    Connections(usize),
    /// The connection has as many subscriptions as allowed.
    #[error("the connection has {0} subscriptions already: use larger cells or a smaller view")]
    Subscriptions(usize),
    /// The connection is gone.
    #[error("the connection does not exist")]
    UnknownConnection,
    /// There are as many objects as allowed.
    #[error("there are {0} objects already")]
    Objects(usize),
}

impl LimitReached {
    /// A stable short name, for metric labels.
    pub fn tag(self) -> &'static str {
        match self {
            LimitReached::Channels(_) => "channels",
            LimitReached::Connections(_) => "connections",
            LimitReached::Subscriptions(_) => "subscriptions",
            LimitReached::UnknownConnection => "unknown_connection",
            LimitReached::Objects(_) => "objects",
        }
    }
}
