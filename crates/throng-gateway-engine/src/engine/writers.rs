//! Numbers of writers that no connection has.

/// The gateway's own writes have no writer.
pub(super) const GATEWAY: u32 = u32::MAX - 1;

/// The writer of [`FramePart`](throng_replica::FramePart)s that say where a segment's value lies, and of who has not
/// written anything.
pub(super) const NOBODY: u32 = u32::MAX;
