//! A driver with something between it and its owner.

use std::net::SocketAddr;

use throng_net::{Driver, DriverCounters, ReceiveError, SendError, SocketBuffers, Transmit};
use throng_wire::Time;

/// A driver that hands sent datagrams to a function, which decides what to send. All other calls go to the inner driver.
pub struct Intercepted<D, F> {
    driver: D,
    send: F,
}

impl<D, F> Intercepted<D, F>
where
    D: Driver,
    F: FnMut(&mut D, Time, &Transmit<'_>) -> Result<usize, SendError> + Send,
{
    /// Puts a function before the sends of a driver. Its return value is the result of the send.
    pub fn new(driver: D, send: F) -> Intercepted<D, F> {
        Intercepted { driver, send }
    }
}

impl<D, F> Driver for Intercepted<D, F>
where
    D: Driver,
    F: FnMut(&mut D, Time, &Transmit<'_>) -> Result<usize, SendError> + Send,
{
    fn send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        (self.send)(&mut self.driver, now, transmit)
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

    fn kernel_dropped(&self) -> Option<u64> {
        self.driver.kernel_dropped()
    }

    fn buffer_shortfall(&self) -> Option<SocketBuffers> {
        self.driver.buffer_shortfall()
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
