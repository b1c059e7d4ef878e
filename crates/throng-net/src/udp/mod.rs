//! Real sockets.

mod buffers;
mod driver;
mod kernel_drops;
mod options;
mod os_error;
mod socket;

pub use buffers::{Addressed, ReceiveBuffers};
pub use driver::UdpDriver;
pub use options::{BindError, Segmentation, SocketBuffers, UdpOptions};
pub use socket::LightUdpSocket;
