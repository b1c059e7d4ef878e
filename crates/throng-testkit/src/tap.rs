//! Ears on the wire: a driver that writes down what it sends.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use throng_net::{Driver, DriverCounters, ReceiveError, SendError, Transmit};
use throng_wire::Time;

/// One datagram as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wire {
    /// When.
    pub at: Time,
    /// To whom.
    pub to: SocketAddr,
    /// Its bytes, sealed.
    pub bytes: Vec<u8>,
}

/// The received datagrams. A handle; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Tap {
    heard: Arc<Mutex<Heard>>,
}

#[derive(Debug, Default)]
struct Heard {
    is_open: bool,
    datagrams: Vec<Wire>,
}

impl Tap {
    /// A tap that records nothing until it is opened.
    pub fn new() -> Tap {
        Tap::default()
    }

    /// From now on everything is written down.
    pub fn open(&self) {
        self.lock().is_open = true;
    }

    /// Takes what was written down since the last call.
    pub fn take(&self) -> Vec<Wire> {
        std::mem::take(&mut self.lock().datagrams)
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        // Nothing panics under the lock but an allocation.
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, at: Time, transmit: &Transmit<'_>) {
        let mut heard = self.lock();
        if heard.is_open {
            let datagrams = transmit.iter().map(|bytes| Wire { at, to: transmit.to, bytes: bytes.to_vec() });
            heard.datagrams.extend(datagrams);
        }
    }
}

/// A driver with a [`Tap`] on what it sends.
pub struct Tapped<D> {
    driver: D,
    tap: Tap,
}

impl<D: Driver> Tapped<D> {
    /// Puts a tap on a driver.
    pub fn new(driver: D, tap: Tap) -> Tapped<D> {
        Tapped { driver, tap }
    }
}

impl<D: Driver> Driver for Tapped<D> {
    fn send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        self.tap.hear(now, transmit);
        self.driver.send(now, transmit)
    }

    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8])) -> Result<usize, ReceiveError> {
        self.driver.receive(now, sink)
    }

    fn flush(&mut self, now: Time) -> Result<usize, SendError> {
        self.driver.flush(now)
    }

    fn next_due(&self) -> Option<Time> {
        self.driver.next_due()
    }

    fn local_address(&self) -> SocketAddr {
        self.driver.local_address()
    }

    fn max_segments(&self) -> usize {
        self.driver.max_segments()
    }

    fn counters(&self) -> &DriverCounters {
        self.driver.counters()
    }
}
