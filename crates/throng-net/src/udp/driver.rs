use std::net::SocketAddr;

use throng_wire::Time;

use super::{BindError, LightUdpSocket, ReceiveBuffers, SocketBuffers, UdpOptions};
use crate::{Driver, DriverCounters, ReceiveError, SendError, Transmit};

/// A UDP socket with receive buffers of its own: the driver of a server, or of a single client.
///
/// A batch for one peer goes to the kernel in one call (UDP GSO), received datagrams come in batches (`recvmmsg`) and,
/// where the kernel coalesced a sender's train, many to a buffer (UDP GRO). Both need Linux; elsewhere the same calls
/// work one datagram at a time.
///
/// A socket bound to all addresses of a host answers from the address that the route picks: on a host with several,
/// bind to the one that peers know.
pub struct UdpDriver {
    socket: LightUdpSocket,
    buffers: ReceiveBuffers,
    /// The buffers that the kernel granted, if they are smaller than requested.
    shortfall: Option<SocketBuffers>,
}

impl UdpDriver {
    /// Opens a socket for many peers.
    ///
    /// # Errors
    ///
    /// [`BindError`], with a message that says what to do.
    pub fn bind(address: SocketAddr, options: &UdpOptions) -> Result<UdpDriver, BindError> {
        UdpDriver::with(LightUdpSocket::bind(address, options)?, ReceiveBuffers::default(), options)
    }

    /// Opens a socket for one peer, at a port that the system chooses. Datagrams of others never arrive.
    ///
    /// # Errors
    ///
    /// [`BindError`]. That the peer answers is not checked.
    pub fn connect(peer: SocketAddr, options: &UdpOptions) -> Result<UdpDriver, BindError> {
        UdpDriver::with(LightUdpSocket::connect(peer, options)?, ReceiveBuffers::new(4), options)
    }

    fn with(socket: LightUdpSocket, buffers: ReceiveBuffers, options: &UdpOptions) -> Result<UdpDriver, BindError> {
        let granted = socket.socket_buffers()?;
        let shortfall = granted.fall_short_of(options).then_some(granted);
        Ok(UdpDriver { socket, buffers, shortfall })
    }

    /// The buffers that the kernel granted, of those requested.
    ///
    /// # Errors
    ///
    /// [`BindError::Socket`] when the kernel does not tell.
    pub fn socket_buffers(&self) -> Result<SocketBuffers, BindError> {
        self.socket.socket_buffers()
    }

    /// A second handle of the same socket, for another thread to send through. It counts for itself.
    ///
    /// # Errors
    ///
    /// [`BindError::TooManySockets`] or [`BindError::Socket`].
    pub fn sender(&self) -> Result<LightUdpSocket, BindError> {
        self.socket.try_clone()
    }
}

impl Driver for UdpDriver {
    fn send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        self.socket.send(now, transmit)
    }

    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8])) -> Result<usize, ReceiveError> {
        self.socket.receive_with(now, &mut self.buffers, sink)
    }

    fn kernel_dropped(&self) -> Option<u64> {
        self.socket.kernel_dropped()
    }

    fn buffer_shortfall(&self) -> Option<SocketBuffers> {
        self.shortfall
    }

    fn local_address(&self) -> SocketAddr {
        self.socket.local_address()
    }

    fn max_segments(&self) -> usize {
        self.socket.max_segments()
    }

    fn counters(&self) -> &DriverCounters {
        self.socket.counters()
    }
}
