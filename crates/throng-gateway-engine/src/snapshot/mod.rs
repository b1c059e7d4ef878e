//! The file that a gateway writes its state to, to start from it: channels with their states, entities, groups, and the
//! sessions that may come back.
//!
//! ```text
//!  engine, one part at a time           the file                               engine, at the next start
//!  --------------------------           --------                               -------------------------
//!  snapshot_part() --> Part ----------> magic, version                 ------> Survey: is it whole, and of when?
//!    HEAD      which engine, when       record: kind u8, length u32,   ------> Engine::restored: in the order of the
//!    CHANNEL   with its state             checksum u64, content                records
//!    GONE      removed since            ...                            ------> finish_restore: who is waited for, and
//!    SESSION   who may come back        END: number of records                 whose channels are given up
//!    GROUP, LOCK, UNBORN, WORLD
//!    HEAD again: when the last was
//! ```
//!
//! A part is made between two steps of an engine. So a snapshot shows each channel as it was at one moment, with its
//! owner, but two channels at two moments. Contradictions between them are put right when the file is read: an entity
//! stands in the cell that its own record names.
//!
//! An engine that starts from a snapshot is as if every connection had been lost at the moment of the snapshot. Ticks go
//! on where they were, so that no change is older than one that was before.
//!
//! A file is believed nothing: every record has a checksum that its place in the file goes into, sizes are limited, and
//! whatever does not fit is one error.

mod file;
mod records;

use thiserror::Error;
use throng_protostate::LoadError;

pub use file::{Framing, MAGIC, Records, Survey, VERSION};
pub(crate) use records::{
    Channel, EndedSubscription, EntityData, Group, Head, Kind, Lock, Mark, Merging, Session, Subscription, Unborn,
    World,
};
pub use records::{Part, Record};

/// The longest record. The state of a channel that fills `max_state_bytes` is shorter.
pub const RECORD_MAX_BYTES: u32 = 512 << 20;

/// Why a file is no snapshot that this gateway can start from.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The system cannot read it.
    #[error("it cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// It does not begin as a snapshot does.
    #[error("it is not a snapshot of a gateway")]
    Foreign,
    /// Another version of the gateway wrote it.
    #[error("it has version {found} of the format, and this gateway reads version {known}")]
    Version {
        /// That of the file.
        found: u32,
        /// That of the gateway.
        known: u32,
    },
    /// It ends too early.
    #[error("it is cut off after {records} records")]
    CutOff {
        /// Whole records.
        records: u64,
    },
    /// Its bytes are not those that were written.
    #[error("it is damaged at record {record}: {what}")]
    Damaged {
        /// Counted from 0.
        record: u64,
        /// The fault.
        what: &'static str,
    },
    /// The state of a channel cannot be read.
    #[error("the state of channel {channel}: {error}")]
    State {
        /// The channel's id.
        channel: u32,
        /// Why not.
        error: LoadError,
    },
    /// It was written with settings that these contradict.
    #[error("it does not fit the present settings: {0}")]
    Misfit(&'static str),
    /// It has more channels than a gateway can have.
    #[error("it has more channels than a gateway can have")]
    TooManyChannels,
}

impl SnapshotError {
    /// A short stable name, for logs and metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            SnapshotError::Read(_) => "snapshot_read",
            SnapshotError::Foreign => "snapshot_foreign",
            SnapshotError::Version { .. } => "snapshot_version",
            SnapshotError::CutOff { .. } => "snapshot_cut_off",
            SnapshotError::Damaged { .. } => "snapshot_damaged",
            SnapshotError::State { .. } => "snapshot_state",
            SnapshotError::Misfit(_) => "snapshot_misfit",
            SnapshotError::TooManyChannels => "snapshot_channels",
        }
    }
}
