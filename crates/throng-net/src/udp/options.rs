use std::io;
use std::net::SocketAddr;

/// How a UDP socket is opened and used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpOptions {
    /// Kernel receive buffer to ask for, in bytes; `None` keeps the system's default. It must hold what arrives between
    /// two calls of `receive`: count about 800 bytes for a 60-byte datagram, since the kernel charges its own
    /// bookkeeping.
    pub receive_buffer_bytes: Option<usize>,
    /// Kernel send buffer to ask for, in bytes; `None` keeps the system's default.
    pub send_buffer_bytes: Option<usize>,
    /// A call of `receive` asks the kernel for no more once it delivered this many datagrams. It can exceed that by one
    /// batch. At least 1.
    pub receive_limit_datagrams: usize,
    /// How often a send is tried again at once when the kernel's buffer is full, before the datagrams are dropped. Each
    /// try waits about a microsecond.
    pub send_retries: u32,
    /// Whether several datagrams of equal length go to the kernel in one call.
    pub segmentation: Segmentation,
}

impl UdpOptions {
    /// For a socket with many peers: 4 MiB buffers, 65,536 datagrams per call.
    pub fn server() -> UdpOptions {
        UdpOptions {
            receive_buffer_bytes: Some(4 << 20),
            send_buffer_bytes: Some(4 << 20),
            receive_limit_datagrams: 65_536,
            send_retries: 2,
            segmentation: Segmentation::Offload,
        }
    }

    /// For a socket with one peer: the system's buffers, 1,024 datagrams per call.
    pub fn client() -> UdpOptions {
        UdpOptions {
            receive_buffer_bytes: None,
            send_buffer_bytes: None,
            receive_limit_datagrams: 1_024,
            send_retries: 0,
            segmentation: Segmentation::Offload,
        }
    }
}

/// The part of the system that cuts a batch into datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segmentation {
    /// The kernel or the network card, where they can (UDP GSO); one call per batch.
    Offload,
    /// We do: one call per datagram.
    OneByOne,
}

/// The kernel buffers of a socket, in the terms in which [`UdpOptions`] ask for them. (Linux reserves and reports twice
/// as much, for its bookkeeping; that is taken out here.) `net.core.rmem_max` and
/// `net.core.wmem_max` set the most that Linux grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketBuffers {
    /// Bytes for datagrams that wait to be received.
    pub receive_bytes: usize,
    /// Bytes for datagrams that wait to be sent.
    pub send_bytes: usize,
}

impl SocketBuffers {
    /// Whether the kernel gave less than `options` asked for.
    pub fn fall_short_of(&self, options: &UdpOptions) -> bool {
        options.receive_buffer_bytes.is_some_and(|asked| self.receive_bytes < asked)
            || options.send_buffer_bytes.is_some_and(|asked| self.send_bytes < asked)
    }
}

/// Why a socket could not be opened. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another socket has the port.
    #[error("{address} is in use: stop the program that holds it or choose another port (0 lets the system choose)")]
    PortInUse {
        /// The wanted address.
        address: SocketAddr,
    },
    /// No interface of this machine has the address.
    #[error("{address} is not an address of this machine: use one that is, or 0.0.0.0 for all of them")]
    AddressNotLocal {
        /// The wanted address.
        address: SocketAddr,
    },
    /// A privileged port, or a firewall.
    #[error("{address} may not be opened by this user: choose a port above 1023")]
    NotPermitted {
        /// The wanted address.
        address: SocketAddr,
    },
    /// No route to the peer.
    #[error("{address} cannot be reached from this machine: check the address and the network")]
    Unreachable {
        /// The peer.
        address: SocketAddr,
    },
    /// The peer's address has port 0 or is the unspecified address.
    #[error("{address} is not an address to connect to: name the server's address and its port")]
    BadPeer {
        /// The peer.
        address: SocketAddr,
    },
    /// The process or the system ran out of file descriptors.
    #[error("no more sockets can be opened: raise the limit with `ulimit -n` or open fewer")]
    TooManySockets,
    /// Usually IPv6 on a machine without it.
    #[error("{address} is of an address family that this machine does not speak")]
    FamilyNotSupported {
        /// The wanted address.
        address: SocketAddr,
    },
    /// Anything else that the operating system said.
    #[error("{address} cannot be opened: {source}")]
    Socket {
        /// The wanted address.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
}

impl BindError {
    /// A stable name for metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            BindError::PortInUse { .. } => "port_in_use",
            BindError::AddressNotLocal { .. } => "address_not_local",
            BindError::NotPermitted { .. } => "not_permitted",
            BindError::Unreachable { .. } => "unreachable",
            BindError::BadPeer { .. } => "bad_peer",
            BindError::TooManySockets => "too_many_sockets",
            BindError::FamilyNotSupported { .. } => "family_not_supported",
            BindError::Socket { .. } => "socket",
        }
    }
}
