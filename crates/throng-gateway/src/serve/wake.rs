//! Peers of one socket with work to do, and the way to wake their task.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// Addresses that are to be looked after. An address may be in it more than once.
#[derive(Debug, Default)]
pub(crate) struct WakeList {
    addresses: Mutex<Vec<SocketAddr>>,
    wake: Notify,
}

impl WakeList {
    /// Waits until there is something in it.
    pub(crate) async fn wait(&self) {
        self.wake.notified().await;
    }

    /// Appends what is in it to `into`, and leaves it empty.
    pub(crate) fn take(&self, into: &mut Vec<SocketAddr>) {
        into.append(&mut self.addresses.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Adds an address, and wakes who waits.
    pub(crate) fn add(&self, address: SocketAddr) {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        // Most often the same peer says several things in a row.
        if addresses.last() != Some(&address) {
            addresses.push(address);
        }
        drop(addresses);
        self.wake.notify_one();
    }
}
