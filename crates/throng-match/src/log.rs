//! The input log of a match: everything that its steps depended on.
//!
//! All numbers are little-endian. A checksum is XXH3 with 64 bits, seeded with the checksum before it, so that no block can
//! be changed, moved or left out.
//!
//! ```text
//! head     "THRONGIL", version u16, length u32, content, checksum u64 over all before it
//!          content: build text, game text, seed u64, map checksum u64, rate u32, seats u16, first tick u64,
//!                   settings: the rest
//!          text: length u16, UTF-8
//! block    kind u8 (1 ticks, 2 end), length u32, content, checksum u64 over kind, length and content
//! ticks    content: one record for each tick, and digests between them; ticks follow each other without a gap
//! record   flags u8: 1 joined, 2 left, 4 commands, 8 latencies; then those that are there, in this order:
//!          joined, left  count u16, then for each: seat u16, rising
//!          commands      count u16, then for each: seat u16, not falling; number u32; length u8; bytes
//!          latencies     count u16, then for each that is new: seat u16, rising; round trip u32 in units of 100 µs
//! digest   flags u8: 128; digest u64 of the state after the tick before it
//! end      ticks u64, digest u64, is over u8 (0, 1), outcome: the rest, UTF-8
//! ```

use std::io::{self, Write};

use thiserror::Error;
use throng::Tick;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{SeatLatency, TickInput};

pub(crate) const MAGIC: &[u8; 8] = b"THRONGIL";
/// The version of the format.
pub const LOG_VERSION: u16 = 1;
pub(crate) const TICKS: u8 = 1;
pub(crate) const END: u8 = 2;
pub(crate) const JOINED: u8 = 1;
pub(crate) const LEFT: u8 = 2;
pub(crate) const COMMANDS: u8 = 4;
pub(crate) const LATENCIES: u8 = 8;
pub(crate) const DIGEST: u8 = 128;
/// Kind and length before the content of a block.
pub(crate) const BLOCK_HEAD: usize = 5;
/// Units of round trips.
pub(crate) const LATENCY_UNIT_US: u32 = 100;

/// A block is written when it has so many bytes, or a digest.
const BLOCK_BYTES: usize = 64 << 10;
/// Longest text of a head, in bytes.
const TEXT_MAX: usize = 1_024;
/// Longest settings, in bytes.
pub const SETTINGS_MAX: usize = 64 << 10;

/// The inputs of a match: enough to make it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// The program that wrote it: see [`build_id`](crate::build_id).
    pub build: String,
    /// The name of the game.
    pub game: String,
    /// The seed of the game.
    pub seed: u64,
    /// The checksum of the map; 0 without one.
    pub map_checksum: u64,
    /// Ticks per second.
    pub rate_hz: u32,
    /// Number of seats.
    pub seats: u16,
    /// The first tick.
    pub first_tick: Tick,
    /// Settings of the game, in a form of its own, at most [`SETTINGS_MAX`] bytes.
    pub settings: Vec<u8>,
}

/// Why a log cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LogError {
    /// It does not begin as a log does.
    #[error("this is not an input log of a match")]
    NotALog,
    /// It has another version.
    #[error(
        "this input log has version {version}, and this program reads version {LOG_VERSION}: use the program that wrote it"
    )]
    Version {
        /// Its version.
        version: u16,
    },
    /// Another program wrote it.
    #[error(
        "this input log was written by another build: {log}; this is {own}. Only the same build replays a match bit for bit"
    )]
    Build {
        /// The build that wrote it.
        log: String,
        /// This build.
        own: String,
    },
    /// It is of another game.
    #[error("this input log is of the game \"{log}\", and not of \"{own}\"")]
    Game {
        /// The game of the log.
        log: String,
        /// This game.
        own: String,
    },
    /// The match was played on another map.
    #[error(
        "this match was played on a map with checksum {log:016x}, and the map given has {own:016x}: give the same map"
    )]
    Map {
        /// The checksum in the log.
        log: u64,
        /// The checksum of the map given.
        own: u64,
    },
    /// It ends before its end block.
    #[error(
        "this input log was cut short after {ticks} whole ticks: the match or its program ended without writing the rest"
    )]
    CutShort {
        /// Whole ticks before the cut.
        ticks: u64,
    },
    /// A checksum is wrong.
    #[error("this input log is damaged after {ticks} ticks: a checksum is wrong")]
    Damaged {
        /// Whole ticks before the damage.
        ticks: u64,
    },
    /// A checksum is right, and the content makes no sense.
    #[error("this input log has an impossible content after {ticks} ticks: this program did not write it")]
    Content {
        /// Whole ticks before it.
        ticks: u64,
    },
}

impl LogError {
    /// A stable word for each kind of error.
    pub fn tag(&self) -> &'static str {
        match self {
            LogError::NotALog => "not_a_log",
            LogError::Version { .. } => "version",
            LogError::Build { .. } => "build",
            LogError::Game { .. } => "game",
            LogError::Map { .. } => "map",
            LogError::CutShort { .. } => "cut_short",
            LogError::Damaged { .. } => "damaged",
            LogError::Content { .. } => "content",
        }
    }
}

/// Writes the input log of one match. Allocates when it is made; later only if a tick is larger than any before it.
///
/// If writing fails, the log ends there and the match goes on: see [`error`](LogWriter::error).
pub struct LogWriter {
    sink: Box<dyn Write + Send>,
    checksum: u64,
    block: Vec<u8>,
    /// The latencies that a reader knows, by seat.
    latencies: Vec<Option<u32>>,
    ticks: u64,
    error: Option<io::Error>,
}

impl LogWriter {
    /// Writes the head.
    ///
    /// # Errors
    /// Writing failed, or a text or the settings are too long.
    pub fn begin(mut sink: Box<dyn Write + Send>, head: &LogHead) -> io::Result<LogWriter> {
        let too_long = [&head.build, &head.game].iter().any(|text| text.len() > TEXT_MAX);
        if too_long || head.settings.len() > SETTINGS_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a name in an input log has at most {TEXT_MAX} bytes, and its settings {SETTINGS_MAX}"),
            ));
        }
        let mut bytes = Vec::with_capacity(BLOCK_BYTES * 2);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&LOG_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let start = bytes.len();
        for text in [&head.build, &head.game] {
            bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend_from_slice(&head.seed.to_le_bytes());
        bytes.extend_from_slice(&head.map_checksum.to_le_bytes());
        bytes.extend_from_slice(&head.rate_hz.to_le_bytes());
        bytes.extend_from_slice(&head.seats.to_le_bytes());
        bytes.extend_from_slice(&head.first_tick.0.to_le_bytes());
        bytes.extend_from_slice(&head.settings);
        let length = (bytes.len() - start) as u32;
        bytes[start - 4..start].copy_from_slice(&length.to_le_bytes());
        let checksum = xxh3_64_with_seed(&bytes, 0);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        sink.write_all(&bytes)?;
        bytes.clear();
        begin_block(&mut bytes, TICKS);
        let latencies = vec![None; usize::from(head.seats)];
        Ok(LogWriter { sink, checksum, block: bytes, latencies, ticks: 0, error: None })
    }

    /// Adds the next tick. Called before its step, so that the log has the input of a step that fails.
    ///
    /// A tick that the format has no room for ends the log before it, with an [`error`](LogWriter::error): one with a command of more
    /// than 255 bytes, or with more than 65,535 commands. A runtime delivers neither.
    pub fn record(&mut self, input: &TickInput<'_>) {
        if self.error.is_some() {
            return;
        }
        if let Some(reason) = too_large(input) {
            self.write_rest();
            self.error.get_or_insert(io::Error::new(io::ErrorKind::InvalidInput, reason));
            return;
        }
        for seat in input.left {
            if let Some(latency) = self.latencies.get_mut(seat.index()) {
                *latency = None;
            }
        }
        let news = input.latencies.iter().filter(|latency| is_new(&self.latencies, latency)).count();
        let parts = [
            (JOINED, !input.joined.is_empty()),
            (LEFT, !input.left.is_empty()),
            (COMMANDS, !input.commands.is_empty()),
            (LATENCIES, news > 0),
        ];
        let flags = parts.iter().filter(|(_, is_there)| *is_there).fold(0, |flags, (flag, _)| flags | flag);
        let block = &mut self.block;
        block.push(flags);
        for seats in [input.joined, input.left].into_iter().filter(|seats| !seats.is_empty()) {
            put_count(block, seats.len());
            seats.iter().for_each(|seat| block.extend_from_slice(&seat.0.to_le_bytes()));
        }
        if !input.commands.is_empty() {
            put_count(block, input.commands.len());
            for command in input.commands {
                block.extend_from_slice(&command.seat.0.to_le_bytes());
                block.extend_from_slice(&command.number.to_le_bytes());
                block.push(command.bytes.len() as u8);
                block.extend_from_slice(command.bytes);
            }
        }
        if news > 0 {
            put_count(block, news);
            for latency in input.latencies {
                if is_new(&self.latencies, latency) {
                    self.latencies[latency.seat.index()] = Some(latency.rtt_us);
                    block.extend_from_slice(&latency.seat.0.to_le_bytes());
                    block.extend_from_slice(&(latency.rtt_us / LATENCY_UNIT_US).to_le_bytes());
                }
            }
        }
        self.ticks += 1;
        if self.block.len() >= BLOCK_BYTES {
            self.write_block();
        }
    }

    /// Adds the digest of the state after the tick that was recorded last, and writes what waits.
    pub fn digest(&mut self, digest: u64) {
        if self.error.is_none() {
            self.block.push(DIGEST);
            self.block.extend_from_slice(&digest.to_le_bytes());
            self.write_block();
        }
    }

    /// Writes the end. `is_over` says whether the game ended by itself.
    ///
    /// # Errors
    /// Writing failed, now or before. The log is cut short then.
    pub fn finish(mut self, digest: u64, is_over: bool, outcome: Option<&str>) -> io::Result<()> {
        self.write_rest();
        self.block.clear();
        begin_block(&mut self.block, END);
        self.block.extend_from_slice(&self.ticks.to_le_bytes());
        self.block.extend_from_slice(&digest.to_le_bytes());
        self.block.push(u8::from(is_over));
        self.block.extend_from_slice(kept_outcome(outcome.map(str::to_owned)).unwrap_or_default().as_bytes());
        self.write_block();
        match self.error.take() {
            Some(error) => Err(error),
            None => self.sink.flush(),
        }
    }

    /// Writes the ticks that wait, and no end: a reader learns that the match did not end by itself.
    ///
    /// # Errors
    /// Writing failed, now or before.
    pub fn abandon(mut self) -> io::Result<()> {
        self.write_rest();
        match self.error.take() {
            Some(error) => Err(error),
            None => self.sink.flush(),
        }
    }

    /// Why writing failed, if it did.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// Ticks in the log.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    fn write_rest(&mut self) {
        if self.block.len() > BLOCK_HEAD {
            self.write_block();
        }
    }

    fn write_block(&mut self) {
        let length = (self.block.len() - BLOCK_HEAD) as u32;
        self.block[1..BLOCK_HEAD].copy_from_slice(&length.to_le_bytes());
        self.checksum = xxh3_64_with_seed(&self.block, self.checksum);
        self.block.extend_from_slice(&self.checksum.to_le_bytes());
        if self.error.is_none() {
            self.error = self.sink.write_all(&self.block).err();
        }
        self.block.clear();
        begin_block(&mut self.block, TICKS);
    }
}

impl Drop for LogWriter {
    /// A log without its end has all ticks nevertheless.
    fn drop(&mut self) {
        self.write_rest();
    }
}

impl std::fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogWriter").field("ticks", &self.ticks).field("error", &self.error).finish_non_exhaustive()
    }
}

/// The part of an outcome that a log has, and a replay compares: at most [`TEXT_MAX`] bytes. An empty one is none.
pub(crate) fn kept_outcome(outcome: Option<String>) -> Option<String> {
    let mut outcome = outcome?;
    let mut length = outcome.len().min(TEXT_MAX);
    while !outcome.is_char_boundary(length) {
        length -= 1;
    }
    outcome.truncate(length);
    (length > 0).then_some(outcome)
}

/// Whether a reader does not know this round trip yet. One of a seat that does not exist is left out.
fn is_new(known: &[Option<u32>], latency: &SeatLatency) -> bool {
    known.get(latency.seat.index()).is_some_and(|known| *known != Some(latency.rtt_us))
}

fn begin_block(block: &mut Vec<u8>, kind: u8) {
    block.push(kind);
    block.extend_from_slice(&[0; BLOCK_HEAD - 1]);
}

/// Why a record cannot hold this tick.
fn too_large(input: &TickInput<'_>) -> Option<String> {
    let most = [input.joined.len(), input.left.len(), input.commands.len(), input.latencies.len()].into_iter().max();
    if let Some(count) = most.filter(|count| *count > usize::from(u16::MAX)) {
        return Some(format!("tick {} has a list of {count}, and an input log takes {}", input.tick.0, u16::MAX));
    }
    let long = input.commands.iter().find(|command| command.bytes.len() > usize::from(u8::MAX))?;
    let (seat, bytes) = (long.seat.0, long.bytes.len());
    Some(format!(
        "a command of seat {seat} in tick {} has {bytes} bytes, and an input log takes {}: send shorter commands",
        input.tick.0,
        u8::MAX
    ))
}

/// At most 65,535: see [`too_large`].
fn put_count(block: &mut Vec<u8>, count: usize) {
    block.extend_from_slice(&(count as u16).to_le_bytes());
}
