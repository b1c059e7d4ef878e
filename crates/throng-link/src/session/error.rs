//! The errors of a session, and their causes.

use thiserror::Error;
use throng_wire::ReadError;

/// The cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Blame {
    /// The peer sent bytes that no implementation writes.
    PeerMalformed,
    /// The peer sent well-formed bytes that break a rule of the protocol.
    PeerMisbehaved,
    /// A named limit on our side was reached.
    Limit,
    /// The caller used the session wrongly.
    OurMisuse,
}

/// Why a packet was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The payload is longer than a packet may be.
    #[error("the payload is longer than a packet may be")]
    TooLong,
    /// The payload ended too early, or a number in it never ended.
    #[error("the payload cannot be read: {0}")]
    Unreadable(#[from] ReadError),
    /// The flags contradict each other.
    #[error("the flags contradict each other")]
    BadFlags,
    /// A wide acknowledgement says that it has fewer bytes than it needs to be one, or more than there can be.
    #[error("a wide acknowledgement must have 5 to 32 bytes")]
    BadAck,
    /// The close section has a text that is too long or not UTF-8.
    #[error("the close section is malformed")]
    BadClose,
    /// The input section has no inputs, too many, or one that is too long.
    #[error("the input section is malformed")]
    BadInputs,
    /// A message entry has unknown bits set, or a part lies outside its message.
    #[error("a message entry is malformed")]
    BadEntry,
    /// The peer acknowledged a packet that was never sent.
    #[error("a packet that was never sent was acknowledged")]
    AckOfUnsentPacket,
    /// The peer acknowledged an input that was never sent.
    #[error("an input that was never sent was acknowledged")]
    AckOfUnsentInput,
    /// A message names a lane that does not exist.
    #[error("a message names a lane that does not exist")]
    UnknownLane,
    /// A message is longer than its lane allows.
    #[error("a message is longer than its lane allows")]
    MessageTooLarge,
    /// A message lies beyond the window, or more bytes are unfinished than the lane allows.
    #[error("a message lies beyond the lane's window")]
    WindowExceeded,
    /// Two parts of a message disagree about its length.
    #[error("two parts of a message disagree about its length")]
    PartsDisagree,
}

impl PacketError {
    /// A stable short name, for metric labels.
    pub fn tag(self) -> &'static str {
        match self {
            PacketError::TooLong => "too_long",
            PacketError::Unreadable(error) => error.tag(),
            PacketError::BadFlags => "bad_flags",
            PacketError::BadAck => "bad_ack",
            PacketError::BadClose => "bad_close",
            PacketError::BadInputs => "bad_inputs",
            PacketError::BadEntry => "bad_entry",
            PacketError::AckOfUnsentPacket => "ack_of_unsent_packet",
            PacketError::AckOfUnsentInput => "ack_of_unsent_input",
            PacketError::UnknownLane => "unknown_lane",
            PacketError::MessageTooLarge => "message_too_large",
            PacketError::WindowExceeded => "window_exceeded",
            PacketError::PartsDisagree => "parts_disagree",
        }
    }

    /// The cause of the error: always the peer. The connection is best closed with
    /// [`CloseCode::PROTOCOL`](super::CloseCode::PROTOCOL).
    pub fn blame(self) -> Blame {
        match self {
            PacketError::TooLong
            | PacketError::Unreadable(_)
            | PacketError::BadFlags
            | PacketError::BadAck
            | PacketError::BadClose
            | PacketError::BadInputs
            | PacketError::BadEntry => Blame::PeerMalformed,
            PacketError::AckOfUnsentPacket
            | PacketError::AckOfUnsentInput
            | PacketError::UnknownLane
            | PacketError::MessageTooLarge
            | PacketError::WindowExceeded
            | PacketError::PartsDisagree => Blame::PeerMisbehaved,
        }
    }
}

/// Why a message was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The session is closing or closed.
    #[error("the session is closed")]
    Closed,
    /// There is no such lane.
    #[error("there is no such lane")]
    UnknownLane,
    /// The message is longer than the lane's limit.
    #[error("the message has {bytes} bytes, the lane allows {limit}")]
    TooLarge {
        /// Length of the message.
        bytes: usize,
        /// The lane's limit.
        limit: usize,
    },
    /// The lane holds as many messages or bytes as it may.
    #[error("the lane's queue is full: send less often, or raise its `queue_messages` and `queue_bytes`")]
    QueueFull,
}

impl SendError {
    /// A stable short name, for metric labels.
    pub fn tag(self) -> &'static str {
        match self {
            SendError::Closed => "closed",
            SendError::UnknownLane => "unknown_lane",
            SendError::TooLarge { .. } => "too_large",
            SendError::QueueFull => "queue_full",
        }
    }

    /// The cause of the error.
    pub fn blame(self) -> Blame {
        match self {
            SendError::QueueFull => Blame::Limit,
            SendError::Closed | SendError::UnknownLane | SendError::TooLarge { .. } => Blame::OurMisuse,
        }
    }
}

/// Why an input was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InputError {
    /// The session is closing or closed.
    #[error("the session is closed")]
    Closed,
    /// The client is not connected.
    #[error("the client is not connected: inputs can be sent from ClientEvent::Connected to ClientEvent::Ended")]
    NotConnected,
    /// The type of the input is not in the schema.
    #[error("the type is not in the schema: add it with Schema::builder().kind()")]
    UnknownKind,
    /// The input is longer than [`MAX_INPUT_BYTES`](super::MAX_INPUT_BYTES).
    #[error("an input has at most {} bytes", super::MAX_INPUT_BYTES)]
    TooLarge,
}

impl InputError {
    /// A stable short name, for metric labels.
    pub fn tag(self) -> &'static str {
        match self {
            InputError::Closed => "closed",
            InputError::NotConnected => "not_connected",
            InputError::UnknownKind => "unknown_kind",
            InputError::TooLarge => "too_large",
        }
    }

    /// The cause: always the caller.
    pub fn blame(self) -> Blame {
        Blame::OurMisuse
    }
}

/// Why options were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// There are more than [`MAX_LANES`](super::MAX_LANES) lanes.
    #[error("there are more than {} lanes", super::MAX_LANES)]
    TooManyLanes,
    /// A lane's weight is 0, or one of its limits is 0 or contradicts another.
    #[error("lane {lane}: {what}")]
    BadLane {
        /// Position of the lane.
        lane: usize,
        /// The error.
        what: &'static str,
    },
    /// Another value is out of its range.
    #[error("{what}")]
    OutOfRange {
        /// The error.
        what: &'static str,
    },
}

impl OptionsError {
    /// A stable short name, for metric labels.
    pub fn tag(self) -> &'static str {
        match self {
            OptionsError::TooManyLanes => "too_many_lanes",
            OptionsError::BadLane { .. } => "bad_lane",
            OptionsError::OutOfRange { .. } => "out_of_range",
        }
    }

    /// The cause: always the caller.
    pub fn blame(self) -> Blame {
        Blame::OurMisuse
    }
}
