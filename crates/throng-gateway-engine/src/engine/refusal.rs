//! Why a peer's request was refused.

use thiserror::Error;

/// Why a message was dropped. Each is counted under its [`tag`](Refusal::tag).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The body is not the message that its type says. The peer's fault.
    #[error("the body is malformed")]
    Malformed,
    /// The connection's state machine does not let this type through now.
    #[error("the state machine does not allow this message now")]
    StateMachine,
    /// There is no handler for the type.
    #[error("the message type is not known")]
    UnknownType,
    /// The channel does not exist.
    #[error("the channel does not exist")]
    UnknownChannel,
    /// The connection that the message names does not exist.
    #[error("the connection does not exist")]
    UnknownConnection,
    /// The message has to be sent on another channel.
    #[error("the message belongs on another channel")]
    WrongChannel,
    /// The access rules say no.
    #[error("the access rules do not allow it")]
    NotAllowed,
    /// The sender is no subscriber who may write, nor the owner.
    #[error("the sender may not write")]
    NoWriteAccess,
    /// The channel has an owner already, or its id is taken.
    #[error("the channel exists or has an owner")]
    ChannelExists,
    /// The channel has no owner to decide.
    #[error("the channel has no owner")]
    NoOwner,
    /// The state could not be changed, for this reason.
    #[error("the update does not fit the channel's state: {0}")]
    Data(&'static str),
    /// A limit stands in the way; which.
    #[error("a limit is reached: {0}")]
    Limit(&'static str),
    /// No login in time.
    #[error("not authenticated in time")]
    Unauthenticated,
    /// The world is not there, or the position is not in it.
    #[error("not in the spatial world: {0}")]
    Spatial(&'static str),
    /// The connection is about to end.
    #[error("the connection is closing")]
    Closing,
}

impl Refusal {
    /// A stable short name, for metric labels.
    pub fn tag(self) -> &'static str {
        match self {
            Refusal::Malformed => "malformed",
            Refusal::StateMachine => "state_machine",
            Refusal::UnknownType => "unknown_type",
            Refusal::UnknownChannel => "unknown_channel",
            Refusal::UnknownConnection => "unknown_connection",
            Refusal::WrongChannel => "wrong_channel",
            Refusal::NotAllowed => "not_allowed",
            Refusal::NoWriteAccess => "no_write_access",
            Refusal::ChannelExists => "channel_exists",
            Refusal::NoOwner => "no_owner",
            Refusal::Data(why) | Refusal::Limit(why) | Refusal::Spatial(why) => why,
            Refusal::Unauthenticated => "unauthenticated",
            Refusal::Closing => "closing",
        }
    }
}
