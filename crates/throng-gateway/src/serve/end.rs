//! How connections end.

use super::counters::Reason;

/// How a connection came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer closed it in an orderly way.
    PeerClosed,
    /// The transport failed.
    Lost,
    /// The peer did what it may not.
    Refused(Reason),
    /// The engine wanted it, and everything has gone out.
    Done,
    /// The gateway is going down.
    Gone,
}

impl End {
    /// A stable name for logs.
    pub(crate) fn tag(self) -> &'static str {
        match self {
            End::PeerClosed => "closed_by_peer",
            End::Lost => "lost",
            End::Refused(reason) => reason.tag(),
            End::Done => "closed_by_us",
            End::Gone => "shut_down",
        }
    }
}
