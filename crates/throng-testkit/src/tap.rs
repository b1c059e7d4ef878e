//! Ears on the wire: a driver that writes down what it sends.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use throng_net::{Driver, Transmit};
use throng_wire::Time;

use crate::intercepted::Intercepted;

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

    /// Puts the tap on what a driver sends.
    pub fn on<D: Driver>(&self, driver: D) -> impl Driver + use<D> {
        let tap = self.clone();
        Intercepted::new(driver, move |driver: &mut D, now, transmit: &Transmit<'_>| {
            tap.hear(now, transmit);
            driver.send(now, transmit)
        })
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
