//! Peers of one socket with work to do, and the way to wake their task.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// Peers that are to be looked after. One may be in it more than once.
#[derive(Debug)]
pub(crate) struct WakeList<P> {
    peers: Mutex<Vec<P>>,
    wake: Notify,
}

impl<P> Default for WakeList<P> {
    fn default() -> WakeList<P> {
        WakeList { peers: Mutex::default(), wake: Notify::default() }
    }
}

impl<P: PartialEq> WakeList<P> {
    /// Waits until there is something in it.
    pub(crate) async fn wait(&self) {
        self.wake.notified().await;
    }

    /// Appends what is in it to `into`, and leaves it empty.
    pub(crate) fn take(&self, into: &mut Vec<P>) {
        into.append(&mut self.peers.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Adds a peer, and wakes who waits.
    pub(crate) fn add(&self, peer: P) {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        // Most often the same peer says several things in a row.
        if peers.last() != Some(&peer) {
            peers.push(peer);
        }
        drop(peers);
        self.wake.notify_one();
    }
}
