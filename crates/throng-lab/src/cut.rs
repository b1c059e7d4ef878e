//! A network that can be cut: while it is, everything that a process sends or is sent is lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use throng::Time;
use throng::net::{Driver, ReceiveError, SendError, Transmit, Wrapper};

/// Cuts the network of its drivers, and mends it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cut(Arc<AtomicBool>);

impl Cut {
    /// A driver whose network this cuts.
    pub(crate) fn driver(&self, inner: Box<dyn Driver>) -> CutDriver {
        CutDriver { inner, cut: self.clone() }
    }

    pub(crate) fn set(&self, is_cut: bool) {
        self.0.store(is_cut, Ordering::Relaxed);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// See [`Cut::driver`].
pub(crate) struct CutDriver {
    inner: Box<dyn Driver>,
    cut: Cut,
}

impl Wrapper for CutDriver {
    type Inner = Box<dyn Driver>;

    fn inner(&self) -> &Box<dyn Driver> {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut Box<dyn Driver> {
        &mut self.inner
    }

    fn wrap_send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        match self.cut.is_cut() {
            true => transmit.check().map(|()| transmit.datagrams()),
            false => self.inner.send(now, transmit),
        }
    }

    fn wrap_receive(
        &mut self,
        now: Time,
        sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8]),
    ) -> Result<usize, ReceiveError> {
        match self.cut.is_cut() {
            // Datagrams that have come by then are lost, and do not wait for the end of the cut.
            true => self.inner.receive(now, &mut |_, _, _| {}).map(|_| 0),
            false => self.inner.receive(now, sink),
        }
    }
}

#[cfg(test)]
mod tests {
    use throng::net::{UdpDriver, UdpOptions};

    use super::*;

    #[test]
    fn nothing_passes_a_cut_in_either_direction_and_nothing_waits_for_its_end() {
        let bind = || UdpDriver::bind(([127, 0, 0, 1], 0).into(), &UdpOptions::client()).expect("a port");
        let (cut, mut other, now) = (Cut::default(), bind(), Time(0));
        let mut driver = cut.driver(Box::new(bind()));
        let (here, there) = (driver.local_address(), other.local_address());
        let received = |driver: &mut dyn Driver| {
            let mut texts = Vec::new();
            driver.receive(now, &mut |_, _, bytes| texts.push(bytes.to_vec())).expect("loopback");
            texts
        };
        for is_cut in [false, true, false] {
            cut.set(is_cut);
            assert_eq!(driver.send(now, &Transmit::single(there, b"out")).expect("loopback"), 1);
            assert_eq!(other.send(now, &Transmit::single(here, b"in")).expect("loopback"), 1);
            let expected = |text: &[u8]| if is_cut { vec![] } else { vec![text.to_vec()] };
            assert_eq!((received(&mut other), received(&mut driver)), (expected(b"out"), expected(b"in")));
        }
    }
}
