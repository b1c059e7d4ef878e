//! A driver with something between it and its owner.

use throng_net::{Driver, SendError, Transmit, Wrapper};
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

impl<D, F> Wrapper for Intercepted<D, F>
where
    D: Driver,
    F: FnMut(&mut D, Time, &Transmit<'_>) -> Result<usize, SendError> + Send,
{
    type Inner = D;

    fn inner(&self) -> &D {
        &self.driver
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    fn wrap_send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        (self.send)(&mut self.driver, now, transmit)
    }
}
