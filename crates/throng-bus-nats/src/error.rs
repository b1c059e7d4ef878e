//! Why a bus over NATS does not start.

use std::io;

use thiserror::Error;
use throng_bus::ClusterError;

use crate::SERVER_VERSION_MIN;

/// Why a bus over NATS does not start. Each text is one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// No server answers.
    #[error("no NATS server answers at {servers}: {reason}; start nats-server, or correct the address")]
    Unreachable {
        /// The addresses as they were given.
        servers: String,
        /// The client's reason.
        reason: String,
    },
    /// The server does not let us in.
    #[error("the NATS server at {servers} refuses our user, password or token: correct them")]
    NotAllowed {
        /// The addresses as they were given.
        servers: String,
    },
    /// The server is too old.
    #[error("the NATS server at {servers} has version {found}, and leases need {}.{}: install a newer nats-server", SERVER_VERSION_MIN.0, SERVER_VERSION_MIN.1)]
    TooOld {
        /// The addresses as they were given.
        servers: String,
        /// Its version.
        found: String,
    },
    /// The server takes only shorter messages than this member may send: those beyond would be lost without a word.
    #[error(
        "the NATS server at {servers} takes messages of {most} bytes, and this member may send {needed}: raise max_payload, or lower \
         Limits::payload_bytes"
    )]
    Payload {
        /// The addresses as they were given.
        servers: String,
        /// The limit of the server.
        most: usize,
        /// The longest message of this member.
        needed: usize,
    },
    /// There is no JetStream, or it cannot be used.
    #[error(
        "the NATS server at {servers} has no key-value store for us: {reason}; start it with -js, and allow this user JetStream"
    )]
    NoStore {
        /// The addresses as they were given.
        servers: String,
        /// The server's reason.
        reason: String,
    },
    /// The settings do not fit what is in the store.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The system has no room for a thread.
    #[error("the thread of the bus could not be started: {0}")]
    Thread(#[from] io::Error),
}

impl StartError {
    /// A stable word for each kind of error.
    pub fn tag(&self) -> &'static str {
        match self {
            StartError::Unreachable { .. } => "unreachable",
            StartError::NotAllowed { .. } => "not_allowed",
            StartError::TooOld { .. } => "too_old",
            StartError::Payload { .. } => "payload",
            StartError::NoStore { .. } => "no_store",
            StartError::Cluster(error) => error.tag(),
            StartError::Thread(_) => "thread",
        }
    }
}

/// An error of the client as one short line.
pub(crate) fn line(error: &dyn std::fmt::Display) -> String {
    error.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}
