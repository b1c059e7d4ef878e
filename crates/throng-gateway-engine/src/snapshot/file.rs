//! Records as a file.
//!
//! ```text
//!  file     magic "throngGS"  version u32  record ..  END record
//!  record   kind u8  length u32  checksum u64  content           all numbers little-endian
//!  END      content: number of the records before it, u64
//! ```
//!
//! The checksum is XXH3 of the content, seeded with the record's place in the file and its kind: so a record that is
//! missing, doubled or in another place is found as well.

use std::io::Read;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::records::{Head, Kind, Part, Record};
use super::{RECORD_MAX_BYTES, SnapshotError};

/// The first bytes of every snapshot.
pub const MAGIC: [u8; 8] = *b"throngGS";

/// The version of the format that this gateway writes, and the only one that it reads.
pub const VERSION: u32 = 1;

/// Bytes before the content of a record.
const HEAD_BYTES: usize = 13;

/// A content is read in pieces of this size: what a file says about its length allocates nothing.
const PIECE_BYTES: u64 = 64 << 10;

/// Ticks of a file are below: 139 years.
const TICK_MAX: u64 = 1 << 42;

/// Changes are dated at most one tick ahead of the head, so the first tick after it is free.
const AHEAD_TICKS: u64 = 2;

/// Writes records one after the other.
#[derive(Debug, Default)]
pub struct Framing {
    records: u64,
}

impl Framing {
    /// The beginning of the file, appended to `out`.
    pub fn begin(out: &mut Vec<u8>) -> Framing {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        Framing::default()
    }

    /// The records of a part, appended to `out`.
    pub fn put(&mut self, part: &Part, out: &mut Vec<u8>) {
        for (kind, content) in part.records() {
            self.record(kind, content, out);
        }
    }

    /// The end of the file, appended to `out`.
    pub fn end(mut self, out: &mut Vec<u8>) {
        let records = self.records.to_le_bytes();
        self.record(Kind::End as u8, &records, out);
    }

    fn record(&mut self, kind: u8, content: &[u8], out: &mut Vec<u8>) {
        out.push(kind);
        // A longer one is refused by who reads it; no state can become so long.
        out.extend_from_slice(&u32::try_from(content.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&checksum(self.records, kind, content).to_le_bytes());
        out.extend_from_slice(content);
        self.records += 1;
    }
}

fn checksum(number: u64, kind: u8, content: &[u8]) -> u64 {
    xxh3_64_with_seed(content, number << 8 | u64::from(kind))
}

/// Reads the records of a file.
#[derive(Debug)]
pub struct Records<R> {
    source: R,
    records: u64,
    has_begun: bool,
    has_ended: bool,
}

impl<R: Read> Records<R> {
    /// From the first byte on.
    pub fn new(source: R) -> Records<R> {
        Records { source, records: 0, has_begun: false, has_ended: false }
    }

    /// The next record; `None` after the last one, if the file ends there.
    ///
    /// # Errors
    /// The file is not whole. Nothing more can be read of it then.
    pub fn read_next(&mut self) -> Result<Option<Record>, SnapshotError> {
        if self.has_ended {
            return Ok(None);
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            self.begin()?;
        }
        let mut head = [0; HEAD_BYTES];
        self.exactly(&mut head)?;
        let [kind, l0, l1, l2, l3, sum @ ..] = head;
        let (length, sum) = (u32::from_le_bytes([l0, l1, l2, l3]), u64::from_le_bytes(sum));
        if length > RECORD_MAX_BYTES {
            return Err(self.damaged("it is too long"));
        }
        let content = self.content(length)?;
        if checksum(self.records, kind, &content) != sum {
            return Err(self.damaged("the checksum is wrong"));
        }
        let Some(kind) = Kind::from_number(kind) else { return Err(self.damaged("its kind is not known")) };
        if kind == Kind::End {
            return self.end(&content);
        }
        let record = Record { number: self.records, kind, content };
        self.records += 1;
        Ok(Some(record))
    }

    fn begin(&mut self) -> Result<(), SnapshotError> {
        let mut magic = [0; MAGIC.len()];
        let mut version = [0; 4];
        if !self.fill(&mut magic)? || magic != MAGIC {
            return Err(SnapshotError::Foreign);
        }
        self.exactly(&mut version)?;
        match u32::from_le_bytes(version) {
            VERSION => Ok(()),
            found => Err(SnapshotError::Version { found, known: VERSION }),
        }
    }

    fn end(&mut self, content: &[u8]) -> Result<Option<Record>, SnapshotError> {
        self.has_ended = true;
        if content != self.records.to_le_bytes() {
            return Err(self.damaged("it ends with another number of records"));
        }
        match self.fill(&mut [0])? {
            true => Err(self.damaged("something follows the end")),
            false => Ok(None),
        }
    }

    fn content(&mut self, length: u32) -> Result<Vec<u8>, SnapshotError> {
        let mut content = Vec::new();
        let mut left = u64::from(length);
        while left > 0 {
            let piece = left.min(PIECE_BYTES);
            let got = self.source.by_ref().take(piece).read_to_end(&mut content)?;
            if got as u64 != piece {
                return Err(SnapshotError::CutOff { records: self.records });
            }
            left -= piece;
        }
        Ok(content)
    }

    fn exactly(&mut self, into: &mut [u8]) -> Result<(), SnapshotError> {
        match self.fill(into)? {
            true => Ok(()),
            false => Err(SnapshotError::CutOff { records: self.records }),
        }
    }

    /// Whether there were bytes enough.
    fn fill(&mut self, into: &mut [u8]) -> Result<bool, SnapshotError> {
        match self.source.read_exact(into) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn damaged(&self, what: &'static str) -> SnapshotError {
        SnapshotError::Damaged { record: self.records, what }
    }
}

/// Facts of a whole file that have to be known before its first record is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The last tick of any engine.
    pub(crate) tick: u64,
    /// The calendar's time of the snapshot.
    pub(crate) unix_ns: i64,
    /// Numbers of writers up to here were given out.
    pub(crate) writers: u32,
    /// The next connection id, if they are counted.
    pub(crate) next_connection_id: u32,
    /// Number of records.
    pub(crate) records: u64,
}

impl Survey {
    /// Reads a file to its end, and keeps nothing of it.
    ///
    /// # Errors
    /// It is not whole, or not one of ours.
    pub fn of(source: impl Read) -> Result<Survey, SnapshotError> {
        let mut survey = Survey { tick: 0, unix_ns: 0, writers: 0, next_connection_id: 1, records: 0 };
        let mut records = Records::new(source);
        while let Some(record) = records.read_next()? {
            let is_head = record.kind == Kind::Head;
            if is_head {
                let head: Head = record.decode()?;
                if head.tick >= TICK_MAX {
                    return Err(SnapshotError::Damaged {
                        record: record.number,
                        what: "its time is beyond all measure",
                    });
                }
                survey.tick = survey.tick.max(head.tick);
                survey.unix_ns = survey.unix_ns.max(head.unix_ns);
                survey.writers = survey.writers.max(head.writers);
                survey.next_connection_id = survey.next_connection_id.max(head.next_connection_id);
            } else if survey.records == 0 {
                return Err(SnapshotError::Damaged { record: 0, what: "it is not the head" });
            }
            survey.records += 1;
        }
        Ok(survey)
    }

    /// When it was written, in ns since 1970.
    pub fn unix_ns(&self) -> i64 {
        self.unix_ns
    }

    /// The tick at which a gateway starts from it when the calendar says `unix_ns`.
    pub(crate) fn next_tick(&self, unix_ns: i64) -> u64 {
        let away_ms = unix_ns.saturating_sub(self.unix_ns).max(0) as u64 / 1_000_000;
        self.tick.saturating_add(away_ms.max(AHEAD_TICKS)).min(TICK_MAX)
    }
}
