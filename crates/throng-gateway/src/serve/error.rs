//! Why a gateway does not start.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

use super::tls::TlsError;

/// A gateway that cannot be started. The operator is at fault, or the machine.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An address cannot be listened at.
    #[error("cannot listen at {address}: {}", listen_advice(cause))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        cause: io::Error,
    },
    /// An address is none, or its host is not known.
    #[error("{0:?} is not an address to listen at")]
    Address(String),
    /// The key of a link's door cannot be read, or is none.
    #[error("{0}: a file with a key of 32 bytes, as 64 hexadecimal digits, is expected")]
    Key(String),
    /// The certificates of a door cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The description of a door is invalid.
    #[error("the {transport} door at {address} {what}")]
    Door {
        /// Its transport.
        transport: &'static str,
        /// Its address.
        address: SocketAddr,
        /// The error.
        what: &'static str,
    },
    /// The folder for recordings cannot be made.
    #[error("cannot create the folder for recordings: {0}")]
    Recordings(io::Error),
    /// Snapshots cannot be written.
    #[error("-snapshot: the file, or FILE.new beside it, cannot be written: {0}")]
    Snapshots(io::Error),
    /// The engine's thread has panicked. Ours, always: nothing that a peer does may bring that about.
    #[error("the engine has failed: {0}")]
    Engine(String),
    /// The system's signals cannot be listened to.
    #[error("cannot listen for signals: {0}")]
    Signals(io::Error),
    /// The system has no random numbers.
    #[error("the system has no random numbers: {0}")]
    Chance(getrandom::Error),
    /// The page for operators is to be on this machine alone.
    #[error("-admin={0}: the page for operators has no login, so use a loopback address, such as 127.0.0.1:8081")]
    AdminAddress(SocketAddr),
    /// Threads cannot be started.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
    /// The gateway was shut down already. Our misuse.
    #[error("the gateway has ended")]
    Ended,
}

impl ServeError {
    /// A stable name for logs.
    pub fn tag(&self) -> &'static str {
        match self {
            ServeError::Listen { .. } => "listen",
            ServeError::Tls(error) => error.tag(),
            ServeError::Door { .. } => "door",
            ServeError::Address(_) => "address",
            ServeError::Key(_) => "key",
            ServeError::Recordings(_) => "recordings",
            ServeError::Snapshots(_) => "snapshots",
            ServeError::Engine(_) => "engine",
            ServeError::Signals(_) => "signals",
            ServeError::Chance(_) => "chance",
            ServeError::AdminAddress(_) => "admin_address",
            ServeError::Threads(_) => "threads",
            ServeError::Ended => "ended",
        }
    }
}

/// The error, and the next step.
fn listen_advice(cause: &io::Error) -> String {
    let advice = match cause.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there already: stop it, or choose another port (0 lets the system choose)"
        }
        io::ErrorKind::PermissionDenied => {
            "that takes rights that this process does not have: choose a port above 1023"
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address: leave the host out for all interfaces",
        _ => return cause.to_string(),
    };
    advice.to_owned()
}
