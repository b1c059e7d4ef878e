//! The limits of a state, its merge options, and the reasons for refusing an update.

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
    /// Whether an update merges messages in maps field by field with what is there, instead of putting the new message in
    /// its place as protobuf's own merge does. `None`: by field for the types whose games merge so, see
    /// [`Schema`](super::Schema), and in place for all others.
    pub merge_map_entries: Option<bool>,
}

/// Bounds of one channel's state. All of them are also bounds of what a peer can make the gateway keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateLimits {
    /// Bytes of memory of the state. The size of an update is estimated before it is merged; growing containers may
    /// exceed this by a quarter.
    pub state_bytes: usize,
    /// Messages inside messages.
    pub depth: u32,
    /// Values: fields, list elements and map entries, of all levels together.
    pub entries: usize,
    /// Removed map entries that are remembered for subscribers that have not received the removal.
    pub tombstones: usize,
    /// Occurrences of one length-delimited field that a state without a schema keeps as they came.
    pub verbatim_occurrences: usize,
    /// Fields of one message that its schema does not know; without a schema, all fields of a message.
    pub unknown_fields: usize,
    /// Bytes, with all that is around it, of what cannot be cut into several messages: a string, a list element, a map
    /// entry that is replaced as a whole. A longer value could never be delivered.
    pub unit_bytes: usize,
    /// Bytes of a map's key. It is sent with every piece of a large entry.
    pub key_bytes: usize,
}

impl Default for StateLimits {
    fn default() -> StateLimits {
        StateLimits {
            state_bytes: 64 << 20,
            depth: 32,
            entries: 1 << 20,
            tombstones: 65_536,
            verbatim_occurrences: 64,
            unknown_fields: 1_024,
            unit_bytes: 60_000,
            key_bytes: 1_024,
        }
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
    /// More unknown fields in one message than [`StateLimits::unknown_fields`].
    #[error("a message would have more than {limit} unknown fields")]
    TooManyFields {
        /// The bound.
        limit: usize,
    },
    /// A value is longer than [`StateLimits::unit_bytes`], or a key than [`StateLimits::key_bytes`].
    #[error("field {number} has a value or a key that is too long for any message to a subscriber")]
    Undeliverable {
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
    /// The state would grow by more than it may now, see
    /// [`DataState::merge_within`](super::DataState::merge_within).
    #[error("the state would grow by more than {room_bytes} bytes")]
    NoRoom {
        /// The bound.
        room_bytes: usize,
    },
    /// The state would grow beyond [`StateLimits::entries`].
    #[error("the state would have more than {limit} values")]
    TooManyEntries {
        /// The bound.
        limit: usize,
    },
    /// The named field is not a map, or its keys are of another kind.
    #[error("field {number} is not a map with such keys")]
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
            MergeError::TooManyFields { .. } => "too_many_fields",
            MergeError::Undeliverable { .. } => "undeliverable",
            MergeError::TooDeep => "too_deep",
            MergeError::TooLarge { .. } => "too_large",
            MergeError::NoRoom { .. } => "no_room",
            MergeError::TooManyEntries { .. } => "too_many_entries",
            MergeError::NotAMap { .. } => "not_a_map",
        }
    }
}

/// The effect of an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Values written: scalars, strings, list elements. A value that is written again unchanged counts too: subscribers
    /// get it, as if the update were forwarded.
    pub values: u32,
    /// Map entries that were removed.
    pub removed: u32,
    /// List elements that [`MergeOptions::list_size_limit`] pushed out or kept out.
    pub truncated: u32,
    /// Occurrences that a state without a schema had to give up to stay within its limits, and fields that nothing is
    /// known of beyond [`StateLimits::unknown_fields`].
    pub dropped: u32,
    /// Tombstones that were forgotten because there were more than [`StateLimits::tombstones`].
    pub tombstones_dropped: u32,
    /// Work that the merge took: fields read, moved and looked at. At most a small multiple of the update's bytes and of
    /// what it throws away.
    pub steps: u64,
}
