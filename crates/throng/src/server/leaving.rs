//! How a server ends connections.

use std::time::Duration;

use throng_link::session::{CloseCode, CloseReason};
use throng_wire::{ConnectionId, Time};

use super::Server;
use crate::greeting::Stage;
use crate::replication::Replication;

/// A connection that is closed as soon as all data sent to it has arrived.
pub(super) struct Leaving {
    connection: ConnectionId,
    reason: CloseReason,
    until: Time,
}

impl<R: Replication> Server<R> {
    /// Ends a connection at once; the client gets the reason. Messages that have not arrived are cut off: see
    /// [`disconnect_after_flush`](Self::disconnect_after_flush).
    pub fn disconnect(&mut self, connection: ConnectionId, now: Time, reason: &str) {
        if let Some(peer) = self.peers.get_mut(connection) {
            peer.close(now, CloseReason::new(CloseCode::DONE, reason));
        }
    }

    /// Ends a connection when all messages that wait for it have arrived, and after `within` at the latest: then later
    /// messages are cut off, and [`limits_reached`](Self::limits_reached) counts the connection as `flushes_timed_out`.
    /// Until then the connection works as before, so send it nothing more. Of two calls the first counts.
    ///
    /// Messages on unreliable lanes count as arrived when they are sent.
    pub fn disconnect_after_flush(&mut self, connection: ConnectionId, now: Time, reason: &str, within: Duration) {
        let Some(peer) = self.peers.get_mut(connection).filter(|peer| !peer.is_flushed_first) else { return };
        if peer.stage == Stage::Live {
            peer.is_flushed_first = true;
            let reason = CloseReason::new(CloseCode::DONE, reason);
            self.leaving.push(Leaving { connection, reason, until: now.after(within) });
        }
    }

    /// Ends all connections at once; continue to call [`tick`](Self::tick) until
    /// [`connection_count`](Self::connection_count) is 0.
    pub fn shut_down(&mut self, now: Time, reason: &str) {
        for peer in self.peers.iter_mut() {
            peer.close(now, CloseReason::new(CloseCode::SHUTDOWN, reason));
        }
    }

    /// Closes the connections of [`disconnect_after_flush`](Self::disconnect_after_flush) whose time has come.
    pub(super) fn close_flushed(&mut self, now: Time) {
        let (peers, timed_out) = (&mut self.peers, &mut self.flushes_timed_out);
        self.leaving.retain(|leaving| {
            let Some(peer) = peers.get_mut(leaving.connection) else { return false };
            let (is_flushed, is_late) = (peer.session.pending_message_bytes() == 0, now >= leaving.until);
            if is_flushed || is_late {
                *timed_out += u64::from(!is_flushed && !peer.session.is_closing());
                peer.close(now, leaving.reason.clone());
            }
            !is_flushed && !is_late
        });
    }
}
