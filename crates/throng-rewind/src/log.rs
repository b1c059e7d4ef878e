//! A log of verdicts that can be judged again.
//!
//! ```text
//! head     "THRONGRW", version u16
//! entry    kind u8 (1 skeleton, 2 shape, 3 shot), length u32, content, checksum u64 over kind, length and content
//! ```
//!
//! `codec.rs` draws the contents. Skeletons and shapes are numbered in the order of their entries, and come before the
//! first shot that needs them. A log can be cut off behind any entry. Twenty bones of one target are 800 bytes of a shot.

use crate::case::Case;
use crate::codec::{
    Checksum, Input, Sink, read_case, read_shape, read_skeleton, read_verdict, write_case, write_shape, write_skeleton,
    write_verdict,
};
use crate::models::Models;
use crate::verdict::Verdict;
use thiserror::Error;

const MAGIC: &[u8; 8] = b"THRONGRW";
const VERSION: u16 = 1;
const SKELETON: u8 = 1;
const SHAPE: u8 = 2;
const SHOT: u8 = 3;
/// Kind and length before the content of an entry.
const ENTRY_HEAD: usize = 5;
const CHECKSUM: usize = 8;

/// Longest content of an entry: more than 256 targets with 64 bones need.
const MAX_ENTRY_BYTES: u32 = 1 << 20;

/// Why a log cannot be read any further. The log is damaged, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LogError {
    /// It does not begin as a log does.
    #[error("this is not a log of verdicts")]
    NotALog,
    /// It has another version.
    #[error("this log of verdicts has version {version}, and this program reads version {VERSION}")]
    Version {
        /// Its version.
        version: u16,
    },
    /// It ends in the middle of an entry.
    #[error("the log of verdicts ends in the middle of an entry: the part before it can be used")]
    CutOff,
    /// A checksum is wrong.
    #[error("an entry of the log of verdicts is damaged: its checksum is wrong")]
    Checksum,
    /// An entry has the right checksum and a content that makes no sense.
    #[error("an entry of the log of verdicts has an impossible content: it was not written by this program")]
    Content,
}

impl LogError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            LogError::NotALog => "log_not_a_log",
            LogError::Version { .. } => "log_version",
            LogError::CutOff => "log_cut_off",
            LogError::Checksum => "log_checksum",
            LogError::Content => "log_content",
        }
    }
}

/// Writes verdicts with all their inputs, one after the other, into a buffer that the caller empties.
///
/// Allocates only when a buffer grows.
#[derive(Clone, Debug, Default)]
pub struct LogWriter {
    has_begun: bool,
    skeletons: usize,
    shapes: usize,
    content: Vec<u8>,
}

impl LogWriter {
    /// Nothing written yet.
    pub fn new() -> LogWriter {
        LogWriter::default()
    }

    /// Nothing written yet, with room for entries of so many bytes.
    pub fn with_capacity(entry_bytes: usize) -> LogWriter {
        LogWriter { content: Vec::with_capacity(entry_bytes), ..LogWriter::default() }
    }

    /// Appends a case and its verdict to `out`, and before it what a reader needs and has not got yet. `models` are those
    /// of the rewind that judged.
    ///
    /// # Panics
    /// If the case is of other models.
    pub fn append(&mut self, models: &Models, case: &Case, verdict: &Verdict, out: &mut Vec<u8>) {
        if !self.has_begun {
            self.has_begun = true;
            out.extend_from_slice(MAGIC);
            out.extend_from_slice(&VERSION.to_le_bytes());
        }
        for skeleton in &models.skeletons()[self.skeletons..] {
            self.content.clear();
            write_skeleton(skeleton, &mut self.content);
            write_entry(SKELETON, &self.content, out);
        }
        for shape in &models.shapes()[self.shapes..] {
            self.content.clear();
            write_shape(shape, &mut self.content);
            write_entry(SHAPE, &self.content, out);
        }
        (self.skeletons, self.shapes) = (models.skeletons().len(), models.shapes().len());
        self.content.clear();
        write_verdict(verdict, &mut self.content);
        write_case(case, models, &mut self.content);
        write_entry(SHOT, &self.content, out);
    }
}

fn write_entry(kind: u8, content: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.u8(kind);
    out.u32(content.len() as u32);
    out.extend_from_slice(content);
    out.u64(checksum(&out[start..]));
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = Checksum::new();
    sum.put(bytes);
    sum.0
}

/// Reads a log of verdicts. Never panics, whatever the bytes are, and never allocates more than they justify.
#[derive(Clone, Debug)]
pub struct LogReader<'a> {
    rest: &'a [u8],
    models: Models,
}

impl<'a> LogReader<'a> {
    /// Reads the head.
    ///
    /// # Errors
    /// Something else than a log, or another version.
    pub fn new(bytes: &'a [u8]) -> Result<LogReader<'a>, LogError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(LogError::NotALog)?;
        let (version, rest) = rest.split_first_chunk::<2>().ok_or(LogError::CutOff)?;
        let version = u16::from_le_bytes(*version);
        if version != VERSION {
            return Err(LogError::Version { version });
        }
        Ok(LogReader { rest, models: Models::new() })
    }

    /// Skeletons and shapes read so far.
    pub fn models(&self) -> &Models {
        &self.models
    }

    /// The next shot: its verdict as recorded, and its inputs in `case`. `None` at the end.
    ///
    /// # Errors
    /// Damage. The reader stays before it, so the error comes again.
    pub fn next(&mut self, case: &mut Case) -> Result<Option<Verdict>, LogError> {
        loop {
            if self.rest.is_empty() {
                return Ok(None);
            }
            let (kind, content, rest) = split_entry(self.rest)?;
            let mut input = Input::new(content);
            let verdict = match kind {
                SKELETON => {
                    let number = self.models.skeletons().len();
                    let id = self.models.add_skeleton(read_skeleton(&mut input)?).map_err(|_| LogError::Content)?;
                    (usize::from(id.0) == number).then_some(None).ok_or(LogError::Content)?
                }
                SHAPE => {
                    let number = self.models.shapes().len();
                    let id = self.models.add_shape(read_shape(&mut input)?).map_err(|_| LogError::Content)?;
                    (usize::from(id.0) == number).then_some(None).ok_or(LogError::Content)?
                }
                SHOT => {
                    let verdict = read_verdict(&mut input)?;
                    read_case(&mut input, &self.models, case)?;
                    Some(verdict)
                }
                _ => return Err(LogError::Content),
            };
            if !input.is_empty() {
                return Err(LogError::Content);
            }
            self.rest = rest;
            if verdict.is_some() {
                return Ok(verdict);
            }
        }
    }
}

/// Kind and content of the first entry, and what comes after it.
fn split_entry(bytes: &[u8]) -> Result<(u8, &[u8], &[u8]), LogError> {
    let head = bytes.first_chunk::<ENTRY_HEAD>().ok_or(LogError::CutOff)?;
    let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    if length > MAX_ENTRY_BYTES {
        return Err(LogError::Checksum);
    }
    let end = ENTRY_HEAD + length as usize;
    let (entry, rest) = bytes.split_at_checked(end).ok_or(LogError::CutOff)?;
    let (sum, rest) = rest.split_first_chunk::<CHECKSUM>().ok_or(LogError::CutOff)?;
    if u64::from_le_bytes(*sum) != checksum(entry) {
        return Err(LogError::Checksum);
    }
    Ok((head[0], &entry[ENTRY_HEAD..], rest))
}

/// The result of judging a whole log again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSummary {
    /// Shots in the log.
    pub shots: u64,
    /// Shots whose verdict came out the same in every bit.
    pub identical: u64,
    /// The first other one, counted from 0.
    pub first_difference: Option<u64>,
}

/// Judges all shots of a log again, and compares each verdict with the recorded one, bit for bit.
///
/// # Errors
/// Damage of the log.
pub fn replay(bytes: &[u8]) -> Result<LogSummary, LogError> {
    let (mut reader, mut case) = (LogReader::new(bytes)?, Case::new());
    let mut summary = LogSummary::default();
    let (mut recorded, mut again) = (Vec::new(), Vec::new());
    while let Some(verdict) = reader.next(&mut case)? {
        recorded.clear();
        again.clear();
        write_verdict(&verdict, &mut recorded);
        write_verdict(&case.judge_again(reader.models()).map_err(|_| LogError::Content)?, &mut again);
        if recorded == again {
            summary.identical += 1;
        } else if summary.first_difference.is_none() {
            summary.first_difference = Some(summary.shots);
        }
        summary.shots += 1;
    }
    Ok(summary)
}

impl Verdict {
    /// A number of 64 bits that differs for verdicts that differ in any bit, but for rare accidents. To compare two runs.
    pub fn digest(&self) -> u64 {
        let mut sum = Checksum::new();
        write_verdict(self, &mut sum);
        sum.0
    }
}
