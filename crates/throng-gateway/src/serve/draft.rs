//! The file of a snapshot while it is written: under another name, until it is complete and on the disk.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;
use throng_file::WholeFile;
use throng_gateway_engine::histogram::Histogram;
use throng_gateway_engine::snapshot::{Framing, Part};

/// Where and when snapshots are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotOptions {
    /// The file.
    pub file: PathBuf,
    /// From the end of one to the beginning of the next; `None`: one at the end, and no other.
    pub every: Option<Duration>,
    /// A longer one is given up.
    pub max_bytes: u64,
}

/// How snapshots went.
#[derive(Debug, Default)]
pub struct SnapshotCounters {
    /// Snapshots that were written.
    pub written: AtomicU64,
    /// Snapshots that were not.
    pub failed: AtomicU64,
    /// Bytes of the last one.
    pub bytes: AtomicU64,
    /// How long it took to make the last one, in ms.
    pub took_ms: AtomicU64,
    /// How long engines were held up by one part.
    pub part: Histogram,
    /// When the last one was complete, or the gateway began to make them. `None`: it makes none.
    since: Mutex<Option<Instant>>,
}

impl SnapshotCounters {
    /// The age of the last snapshot; before the first one, the time since the start. `None` if none are made.
    pub fn age(&self) -> Option<Duration> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).map(|since| since.elapsed())
    }

    pub(super) fn begin_to_age(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// Why a snapshot was not written.
#[derive(Debug, Error)]
pub(super) enum WriteError {
    #[error("the file cannot be written: {0}")]
    File(#[from] io::Error),
    #[error("it would have more than max_snapshot_bytes = {limit_bytes}")]
    TooLong { limit_bytes: u64 },
    #[error("an engine does not answer")]
    NoAnswer,
    #[error("the gateway ends")]
    Ended,
}

/// A snapshot that is being written.
pub(super) struct Draft<'a> {
    max_bytes: u64,
    out: throng_file::Draft<'a>,
    framing: Framing,
    buffer: Vec<u8>,
    bytes: u64,
}

impl Draft<'_> {
    pub(super) fn begin(file: &WholeFile, max_bytes: u64) -> Result<Draft<'_>, WriteError> {
        let mut buffer = Vec::new();
        let framing = Framing::begin(&mut buffer);
        let mut draft = Draft { max_bytes, out: file.begin()?, framing, buffer, bytes: 0 };
        draft.flush()?;
        Ok(draft)
    }

    pub(super) fn put(&mut self, part: &Part) -> Result<(), WriteError> {
        self.framing.put(part, &mut self.buffer);
        self.flush()
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        self.bytes += self.buffer.len() as u64;
        if self.bytes > self.max_bytes {
            return Err(WriteError::TooLong { limit_bytes: self.max_bytes });
        }
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// The file takes the place of the one before it; its length.
    pub(super) fn complete(mut self) -> Result<u64, WriteError> {
        let framing = std::mem::take(&mut self.framing);
        framing.end(&mut self.buffer);
        self.flush()?;
        self.out.complete()?;
        Ok(self.bytes)
    }
}
