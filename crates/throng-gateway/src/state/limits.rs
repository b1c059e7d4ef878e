//! What a state may grow to, how it merges, and the ways in which an update can be refused.

/// How updates change a channel's state; `ChannelDataMergeOptions` of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeOptions {
    /// A list in an update replaces the list of the state, instead of being appended to it.
    pub replace_lists: bool,
    /// Longest list, in elements; 0 for no limit beyond [`StateLimits`].
    pub list_size_limit: u32,
    /// A list that is too long loses its oldest elements; otherwise what does not fit is not appended.
    pub truncate_top: bool,
    /// Map entries whose value has a field `removed` that is true are removed.
    pub remove_map_entries: bool,
}

/// Bounds of one channel's state. All of them are also bounds of what a peer can make the gateway keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateLimits {
    /// Bytes of the state, about as it would be encoded.
    pub state_bytes: usize,
    /// Messages inside messages.
    pub depth: u32,
    /// Values: fields, list elements and map entries, of all levels together.
    pub entries: usize,
    /// Removed map entries that are remembered for subscribers who have not been told yet.
    pub tombstones: usize,
    /// Occurrences of one length-delimited field that a state without a schema keeps as they came.
    pub verbatim_occurrences: usize,
}

impl Default for StateLimits {
    fn default() -> StateLimits {
        StateLimits { state_bytes: 16 << 20, depth: 32, entries: 1 << 20, tombstones: 65_536, verbatim_occurrences: 64 }
    }
}

/// Why an update was refused. The state is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// The update carries no data: neither a type nor a value.
    #[error("the update carries no data")]
    MissingData,
    /// The update is of another message type than the state.
    #[error("the update is of another message type than the channel's state")]
    WrongType,
    /// The bytes are not a protobuf message, or a string in it is not UTF-8.
    #[error("the update's value is not a well-formed protobuf message")]
    Malformed,
    /// A field of the schema came in a wire type that its declaration does not have.
    #[error("field {number} has a wire type that its declaration does not allow")]
    WireType {
        /// The field's number.
        number: u32,
    },
    /// Messages are nested deeper than [`StateLimits::depth`].
    #[error("the update's messages are nested too deeply")]
    TooDeep,
    /// The state would grow beyond [`StateLimits::state_bytes`].
    #[error("the state would have more than {limit_bytes} bytes")]
    TooLarge {
        /// The bound.
        limit_bytes: usize,
    },
    /// The state would grow beyond [`StateLimits::entries`].
    #[error("the state would have more than {limit} values")]
    TooManyEntries {
        /// The bound.
        limit: usize,
    },
    /// The named field is not a map, or its keys are of another kind.
    #[error("field {number} is no map with such keys")]
    NotAMap {
        /// The field's number.
        number: u32,
    },
}

impl MergeError {
    /// The label of this error in metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            MergeError::MissingData => "missing_data",
            MergeError::WrongType => "wrong_type",
            MergeError::Malformed => "malformed",
            MergeError::WireType { .. } => "wire_type",
            MergeError::TooDeep => "too_deep",
            MergeError::TooLarge { .. } => "too_large",
            MergeError::TooManyEntries { .. } => "too_many_entries",
            MergeError::NotAMap { .. } => "not_a_map",
        }
    }
}

/// What an update did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Values written: scalars, strings, list elements. A value that is written again with what it was counts too:
    /// subscribers are told of it, as they would be if the update were forwarded.
    pub values: u32,
    /// Map entries that were removed.
    pub removed: u32,
    /// List elements that [`MergeOptions::list_size_limit`] pushed out or kept out.
    pub truncated: u32,
    /// Occurrences that a state without a schema had to give up to stay within its limits.
    pub dropped: u32,
    /// Tombstones that were forgotten because there were more than [`StateLimits::tombstones`].
    pub tombstones_dropped: u32,
}
