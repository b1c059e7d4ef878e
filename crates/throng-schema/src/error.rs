use thiserror::Error;
use throng_wire::ReadError;

/// Why the fields of an object could not be decoded. Always the fault of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes ended early or a number was malformed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A code stands for no value of the field.
    #[error("the value of field `{field}` is out of range")]
    OutOfRange {
        /// Name of the field.
        field: &'static str,
    },
    /// A text or byte string is longer than its field allows.
    #[error("the value of field `{field}` is longer than allowed")]
    TooLong {
        /// Name of the field.
        field: &'static str,
    },
    /// A text is not UTF-8.
    #[error("the text of field `{field}` is not UTF-8")]
    InvalidText {
        /// Name of the field.
        field: &'static str,
    },
}

impl DecodeError {
    /// A stable short name, for metric labels.
    pub fn tag(self) -> &'static str {
        match self {
            DecodeError::Read(error) => error.tag(),
            DecodeError::OutOfRange { .. } => "field_out_of_range",
            DecodeError::TooLong { .. } => "field_too_long",
            DecodeError::InvalidText { .. } => "field_invalid_text",
        }
    }
}

/// Why a kind or schema could not be built. Always our own misuse.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A kind's name is empty or longer than [`MAX_NAME_BYTES`](crate::MAX_NAME_BYTES).
    #[error("the name of kind `{kind}` must have 1 to {} bytes", crate::MAX_NAME_BYTES)]
    KindName {
        /// Name of the kind.
        kind: String,
    },
    /// A kind has more than [`MAX_FIELDS`](crate::MAX_FIELDS) fields.
    #[error("kind `{kind}` has {count} fields, and at most {} are possible: split it", crate::MAX_FIELDS)]
    TooManyFields {
        /// Name of the kind.
        kind: String,
        /// Number of its fields.
        count: usize,
    },
    /// Two fields of a kind have the same name.
    #[error("kind `{kind}` has two fields called `{field}`")]
    DuplicateField {
        /// Name of the kind.
        kind: String,
        /// Name of the fields.
        field: String,
    },
    /// Two fields of a kind are positions.
    #[error("kind `{kind}` has two positions, `{first}` and `{second}`: write one of them as fixed point")]
    TwoPositions {
        /// Name of the kind.
        kind: String,
        /// Name of the first position.
        first: String,
        /// Name of the second position.
        second: String,
    },
    /// The parameters of a field are out of range.
    #[error("field `{field}` of kind `{kind}`: {reason}")]
    Field {
        /// Name of the kind.
        kind: String,
        /// Name of the field.
        field: String,
        /// The rule that is broken.
        reason: &'static str,
    },
    /// Two kinds have the same name.
    #[error("two kinds are called `{kind}`: rename one with #[replicate(name = \"...\")]")]
    DuplicateName {
        /// Name of the kinds.
        kind: String,
    },
    /// A type was given twice.
    #[error("kind `{kind}` was added twice")]
    DuplicateType {
        /// Name of the kind.
        kind: String,
    },
    /// The schema has more than [`MAX_KINDS`](crate::MAX_KINDS) kinds.
    #[error("the schema has more than {} kinds", crate::MAX_KINDS)]
    TooManyKinds,
    /// The text of the code tables is wrong: see [`SchemaBuilder::codes`](crate::SchemaBuilder::codes).
    #[error("line {line} of the code tables: {reason}")]
    Codes {
        /// The line, counted from 1.
        line: usize,
        /// The rule that is broken.
        reason: &'static str,
    },
}

impl SchemaError {
    /// A stable short name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            SchemaError::KindName { .. } => "kind_name",
            SchemaError::TooManyFields { .. } => "too_many_fields",
            SchemaError::DuplicateField { .. } => "duplicate_field",
            SchemaError::TwoPositions { .. } => "two_positions",
            SchemaError::Field { .. } => "field",
            SchemaError::DuplicateName { .. } => "duplicate_name",
            SchemaError::DuplicateType { .. } => "duplicate_type",
            SchemaError::TooManyKinds => "too_many_kinds",
            SchemaError::Codes { .. } => "codes",
        }
    }
}

/// Why a schema's summary could not be read. Always the fault of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SummaryError {
    /// The bytes end early.
    #[error("the summary of the schema ends early")]
    UnexpectedEnd,
    /// Bytes follow the summary.
    #[error("bytes follow the summary of the schema")]
    TrailingBytes,
    /// It names more than [`MAX_KINDS`](crate::MAX_KINDS) kinds.
    #[error("the summary of the schema names {count} kinds, more than {}", crate::MAX_KINDS)]
    TooManyKinds {
        /// Number of kinds that it names.
        count: usize,
    },
    /// The name of a kind is empty, longer than [`MAX_NAME_BYTES`](crate::MAX_NAME_BYTES), not UTF-8 or a repetition.
    #[error("the summary of the schema has an invalid name for kind {kind}")]
    InvalidName {
        /// Number of the kind.
        kind: usize,
    },
}

impl SummaryError {
    /// A stable short name, for metric labels.
    pub fn tag(self) -> &'static str {
        match self {
            SummaryError::UnexpectedEnd => "summary_unexpected_end",
            SummaryError::TrailingBytes => "summary_trailing_bytes",
            SummaryError::TooManyKinds { .. } => "summary_too_many_kinds",
            SummaryError::InvalidName { .. } => "summary_invalid_name",
        }
    }
}
