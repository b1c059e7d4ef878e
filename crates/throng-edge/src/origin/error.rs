//! The errors of an origin.

use thiserror::Error;
use throng::{LimitReached, MessageError};

use super::edge_seat::WAITING_MAX;
use crate::talk::BODY_MAX;

/// Why something could not be done for a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OriginError {
    /// The player has left.
    #[error("the player does not exist: it has left, or its event has not been polled yet")]
    UnknownPlayer,
    /// A message is too long.
    #[error("a message of {0} bytes is too long for an edge: at most {BODY_MAX}")]
    TooLong(usize),
    /// The message could not be encoded.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The player is on its way to another origin.
    #[error("the player is handed over to another server")]
    Moving,
    /// The edge takes no more messages: it is slow, or gone and not given up yet.
    #[error("{WAITING_MAX} messages wait for the player's edge already")]
    Full,
    /// The object could not be given.
    #[error(transparent)]
    Limit(#[from] LimitReached),
}

impl OriginError {
    /// A stable short name.
    pub fn tag(self) -> &'static str {
        match self {
            OriginError::UnknownPlayer => "unknown_player",
            OriginError::TooLong(_) => "too_long",
            OriginError::Message(_) => "message",
            OriginError::Moving => "moving",
            OriginError::Full => "full",
            OriginError::Limit(limit) => limit.tag(),
        }
    }
}
