//! The meaning of the operating system's errors for a UDP socket.
//!
//! The standard library has no names for some of them; their numbers are the kernel's interface (Linux
//! `include/uapi/asm-generic/errno*.h`).

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;

use crate::{BindError, DriverCounters, SendError};

#[cfg(any(target_os = "linux", target_os = "android"))]
mod number {
    pub(super) const EIO: i32 = 5;
    pub(super) const ENFILE: i32 = 23;
    pub(super) const EMFILE: i32 = 24;
    pub(super) const EAFNOSUPPORT: i32 = 97;
    pub(super) const ENOBUFS: i32 = 105;
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod number {
    // BSD numbering, shared by macOS; on Windows none of these occurs, and such errors keep their own text.
    pub(super) const EIO: i32 = 5;
    pub(super) const ENFILE: i32 = 23;
    pub(super) const EMFILE: i32 = 24;
    pub(super) const EAFNOSUPPORT: i32 = 47;
    pub(super) const ENOBUFS: i32 = 55;
}

/// The kernel has no room now, or was interrupted: worth another try.
pub(super) fn is_full(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
        || error.raw_os_error() == Some(number::ENOBUFS)
}

/// An earlier datagram met a closed port. The report arrives with whatever call comes next.
pub(super) fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset)
}

/// Errors with which kernels and interfaces turn down segmentation offload.
pub(super) fn may_be_offload(error: &Error) -> bool {
    error.kind() == ErrorKind::InvalidInput
        || error.raw_os_error() == Some(number::EIO)
        || quinn_udp::is_msg_size_err(error)
}

/// The error of a send, counted by its reason.
pub(super) fn send_error(error: Error, to: SocketAddr, bytes: usize, counters: &mut DriverCounters) -> SendError {
    if quinn_udp::is_msg_size_err(&error) {
        counters.too_large += 1;
        return SendError::TooLarge { bytes };
    }
    match error.kind() {
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
            counters.unreachable += 1;
            SendError::Unreachable { to }
        }
        ErrorKind::PermissionDenied => {
            counters.not_permitted += 1;
            SendError::NotPermitted { to }
        }
        ErrorKind::InvalidInput => {
            counters.bad_destination += 1;
            SendError::BadDestination { to }
        }
        _ if error.raw_os_error() == Some(number::EAFNOSUPPORT) => {
            counters.bad_destination += 1;
            SendError::BadDestination { to }
        }
        _ => {
            counters.socket_errors += 1;
            SendError::Socket { to, source: error }
        }
    }
}

/// The error of opening a socket at (or towards) `address`.
pub(super) fn bind_error(error: Error, address: SocketAddr) -> BindError {
    match error.kind() {
        ErrorKind::AddrInUse => BindError::PortInUse { address },
        ErrorKind::AddrNotAvailable => BindError::AddressNotLocal { address },
        ErrorKind::PermissionDenied => BindError::NotPermitted { address },
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => BindError::Unreachable { address },
        _ => match error.raw_os_error() {
            Some(number::EMFILE | number::ENFILE) => BindError::TooManySockets,
            Some(number::EAFNOSUPPORT) => BindError::FamilyNotSupported { address },
            _ => BindError::Socket { address, source: error },
        },
    }
}
