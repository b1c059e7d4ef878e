//! Reads input logs, and plays matches again from them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::{fs, io};

use thiserror::Error;
use throng::Tick;
use throng_telemetry::Scopes;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64_with_seed};

use crate::inbox::recycle;
use crate::log::{
    BLOCK_HEAD, COMMANDS, DIGEST, END, JOINED, LATENCIES, LATENCY_UNIT_US, LEFT, LOG_VERSION, LogError, LogHead, MAGIC,
    SETTINGS_MAX, TICKS, kept_outcome,
};
use crate::panics;
use crate::{COMMANDS_PER_TICK_MAX, Flow, Game, RATE_MAX_HZ, SEATS_MAX, Seat, SeatCommand, SeatLatency, TickInput};

/// Names the running program: its version, and the checksum of its file. Programs with one name replay each other's
/// matches bit for bit.
///
/// # Errors
/// The program's file cannot be read.
pub fn build_id() -> io::Result<String> {
    build_id_of(&std::env::current_exe()?)
}

fn build_id_of(program: &Path) -> io::Result<String> {
    let mut file = fs::File::open(program)?;
    let (mut hasher, mut buffer) = (Xxh3Default::new(), vec![0; 256 << 10]);
    loop {
        match io::Read::read(&mut file, &mut buffer)? {
            0 => break,
            bytes => hasher.update(&buffer[..bytes]),
        }
    }
    Ok(format!("{}-{:016x}", env!("CARGO_PKG_VERSION"), hasher.digest()))
}

/// An input log in memory, whose head is read. Any bytes are safe to open.
#[derive(Clone, Debug)]
pub struct InputLog<'a> {
    head: LogHead,
    blocks: Blocks<'a>,
}

/// A match that was played again, and is what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Ticks played.
    pub ticks: u64,
    /// Digests that were compared, the one at the end included.
    pub digests: u64,
    /// Whether the game ended by itself.
    pub is_over: bool,
    /// The result.
    pub outcome: Option<String>,
}

/// Why a replay is not the match that was recorded. The state of the game is that of the tick named.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The log cannot be used. All ticks before the fault were played and were equal.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The state differs.
    #[error(
        "the replay differs from the match: after tick {tick} the digest is {replayed:016x}, and it was {recorded:016x}"
    )]
    Diverged {
        /// The first tick whose digest differs. The ticks since the digest before it may differ too.
        tick: u64,
        /// The digest in the log.
        recorded: u64,
        /// The digest of the replay.
        replayed: u64,
    },
    /// The game ended at another tick.
    #[error("the replay differs from the match: it is over at tick {tick}, and the match was not")]
    Over {
        /// The tick.
        tick: u64,
    },
    /// The end differs.
    #[error("the replay differs from the match: its result is {replayed:?}, and it was {recorded:?}")]
    Outcome {
        /// The result in the log.
        recorded: Option<String>,
        /// The result of the replay.
        replayed: Option<String>,
    },
    /// The game panicked.
    #[error("the game panicked in tick {tick} of the replay: {message}")]
    Panicked {
        /// The tick.
        tick: u64,
        /// The panic's message, in one line.
        message: String,
    },
}

impl ReplayError {
    /// A stable word for each kind of error.
    pub fn tag(&self) -> &'static str {
        match self {
            ReplayError::Log(error) => error.tag(),
            ReplayError::Diverged { .. } => "diverged",
            ReplayError::Over { .. } => "over",
            ReplayError::Outcome { .. } => "outcome",
            ReplayError::Panicked { .. } => "panicked",
        }
    }
}

impl<'a> InputLog<'a> {
    /// Reads the head of a log. Allocates no more than the head is long.
    ///
    /// # Errors
    /// It is no log, or of another version, or its head is damaged or cut short.
    pub fn open(bytes: &'a [u8]) -> Result<InputLog<'a>, LogError> {
        let mut rest = Bytes(bytes);
        if !bytes.starts_with(MAGIC) {
            return Err(LogError::NotALog);
        }
        let cut_short = || LogError::CutShort { ticks: 0 };
        rest.take(MAGIC.len()).ok_or_else(cut_short)?;
        let version = rest.u16().ok_or_else(cut_short)?;
        if version != LOG_VERSION {
            return Err(LogError::Version { version });
        }
        let length = rest.u32().ok_or_else(cut_short)? as usize;
        let content = rest.take(length).ok_or_else(cut_short)?;
        let before = &bytes[..bytes.len() - rest.0.len()];
        let checksum = rest.u64().ok_or_else(cut_short)?;
        if checksum != xxh3_64_with_seed(before, 0) {
            return Err(LogError::Damaged { ticks: 0 });
        }
        let head = read_head(Bytes(content)).ok_or(LogError::Content { ticks: 0 })?;
        Ok(InputLog { head, blocks: Blocks { rest, checksum } })
    }

    /// The inputs of the match.
    pub fn head(&self) -> &LogHead {
        &self.head
    }

    /// Whether this program, with this game and this map, can replay it.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(&self, build: &str, game: &str, map_checksum: u64) -> Result<(), LogError> {
        let head = &self.head;
        if head.game != game {
            return Err(LogError::Game { log: head.game.clone(), own: game.to_owned() });
        }
        if head.build != build {
            return Err(LogError::Build { log: head.build.clone(), own: build.to_owned() });
        }
        if head.map_checksum != map_checksum {
            return Err(LogError::Map { log: head.map_checksum, own: map_checksum });
        }
        Ok(())
    }

    /// Plays the whole match again, without a server, on a game that was made as the match was: of the seed, map and
    /// settings of the head. Compares every digest.
    ///
    /// # Errors
    /// The first fault of the log, or the first difference. A log that was cut short is played up to the cut.
    pub fn replay(self, game: &mut dyn Game) -> Result<Replayed, ReplayError> {
        let InputLog { head, mut blocks } = self;
        let mut state = State::new(&head);
        let mut replayed = Replayed { ticks: 0, digests: 0, is_over: false, outcome: None };
        let mut scopes = Scopes::off();
        loop {
            let ticks = replayed.ticks;
            let (kind, mut content) = blocks.next(ticks)?;
            if kind == END {
                let end = End::read(content, &blocks).filter(|end| end.ticks == ticks);
                let end = end.ok_or(LogError::Content { ticks })?;
                return finish(game, &end, (replayed, state.tick));
            }
            while !content.0.is_empty() {
                state.read(&mut content, game, &mut (&mut scopes, &mut replayed))?;
            }
        }
    }
}

/// The end of a match, as the log has it.
struct End {
    ticks: u64,
    digest: u64,
    is_over: bool,
    outcome: Option<String>,
}

impl End {
    /// `None` if it makes no sense, or something comes after it.
    fn read(mut content: Bytes<'_>, blocks: &Blocks<'_>) -> Option<End> {
        let (ticks, digest, is_over) = (content.u64()?, content.u64()?, content.u8()?);
        let outcome = std::str::from_utf8(content.0).ok()?;
        let outcome = (!outcome.is_empty()).then(|| outcome.to_owned());
        (is_over <= 1 && blocks.rest.0.is_empty()).then_some(End { ticks, digest, is_over: is_over == 1, outcome })
    }
}

fn finish(game: &dyn Game, end: &End, (played, tick): (Replayed, Tick)) -> Result<Replayed, ReplayError> {
    compare(game, end.digest, tick.before(1))?;
    if played.is_over != end.is_over {
        return Err(ReplayError::Over { tick: tick.before(1).0 });
    }
    let outcome = kept_outcome(asked(tick.before(1), || game.outcome())?);
    if outcome != end.outcome {
        return Err(ReplayError::Outcome { recorded: end.outcome.clone(), replayed: outcome });
    }
    Ok(Replayed { digests: played.digests + 1, outcome, ..played })
}

fn compare(game: &dyn Game, recorded: u64, tick: Tick) -> Result<(), ReplayError> {
    let replayed = asked(tick, || game.digest())?;
    match replayed == recorded {
        true => Ok(()),
        false => Err(ReplayError::Diverged { tick: tick.0, recorded, replayed }),
    }
}

/// Asks the game, and catches its panic.
fn asked<T>(tick: Tick, game: impl FnOnce() -> T) -> Result<T, ReplayError> {
    panics::caught(|| catch_unwind(AssertUnwindSafe(game)))
        .map_err(|message| ReplayError::Panicked { tick: tick.0, message })
}

/// The state of a reader between records. The lists are reused.
struct State {
    tick: Tick,
    seats: u16,
    joined: Vec<Seat>,
    left: Vec<Seat>,
    latencies: Vec<SeatLatency>,
    commands: Vec<SeatCommand<'static>>,
}

impl State {
    fn new(head: &LogHead) -> State {
        let (tick, seats) = (head.first_tick, head.seats);
        State { tick, seats, joined: vec![], left: vec![], latencies: vec![], commands: vec![] }
    }

    /// Reads the next record or digest: plays it, or compares it.
    fn read(
        &mut self,
        content: &mut Bytes<'_>,
        game: &mut dyn Game,
        (scopes, replayed): &mut (&mut Scopes, &mut Replayed),
    ) -> Result<(), ReplayError> {
        let impossible = LogError::Content { ticks: replayed.ticks };
        let flags = content.u8().ok_or(impossible.clone())?;
        if flags == DIGEST && replayed.ticks > 0 {
            let recorded = content.u64().ok_or(impossible)?;
            replayed.digests += 1;
            return compare(game, recorded, self.tick.before(1));
        }
        let mut commands = recycle(std::mem::take(&mut self.commands));
        self.read_tick(flags, content, &mut commands).ok_or(impossible)?;
        if replayed.is_over {
            return Err(ReplayError::Over { tick: self.tick.before(1).0 });
        }
        let input = TickInput {
            tick: self.tick,
            joined: &self.joined,
            left: &self.left,
            commands: &commands,
            latencies: &self.latencies,
        };
        let flow = asked(self.tick, || game.step(&input, scopes));
        self.commands = recycle(commands);
        replayed.is_over = flow? == Flow::Over;
        replayed.ticks += 1;
        self.tick = self.tick.after(1);
        Ok(())
    }

    /// Reads the record of a tick: its commands into `commands`, all else into this. `None` if it makes no sense.
    fn read_tick<'a>(&mut self, flags: u8, content: &mut Bytes<'a>, commands: &mut Vec<SeatCommand<'a>>) -> Option<()> {
        if flags & !(JOINED | LEFT | COMMANDS | LATENCIES) != 0 {
            return None;
        }
        let seats = self.seats;
        for (flag, list) in [(JOINED, &mut self.joined), (LEFT, &mut self.left)] {
            list.clear();
            let count = if flags & flag != 0 { content.count()? } else { 0 };
            for _ in 0..count {
                let seat = content.seat(seats)?;
                list.last().is_none_or(|last| *last < seat).then(|| list.push(seat))?;
            }
        }
        self.latencies.retain(|latency| !self.left.contains(&latency.seat));
        let count = if flags & COMMANDS != 0 { content.count()? } else { 0 };
        if usize::from(count) > usize::from(seats) * usize::from(COMMANDS_PER_TICK_MAX) {
            return None;
        }
        for _ in 0..count {
            let (seat, number, length) = (content.seat(seats)?, content.u32()?, content.u8()?);
            let bytes = content.take(length.into())?;
            commands.last().is_none_or(|last| last.seat <= seat).then_some(())?;
            commands.push(SeatCommand { seat, number, bytes });
        }
        let count = if flags & LATENCIES != 0 { content.count()? } else { 0 };
        for _ in 0..count {
            let (seat, units) = (content.seat(seats)?, content.u32()?);
            let latency = SeatLatency { seat, rtt_us: units.checked_mul(LATENCY_UNIT_US)? };
            match self.latencies.binary_search_by_key(&seat, |latency| latency.seat) {
                Ok(place) => self.latencies[place] = latency,
                Err(place) => self.latencies.insert(place, latency),
            }
        }
        Some(())
    }
}

fn read_head(mut content: Bytes<'_>) -> Option<LogHead> {
    let head = LogHead {
        build: content.text()?,
        game: content.text()?,
        seed: content.u64()?,
        map_checksum: content.u64()?,
        rate_hz: content.u32()?,
        seats: content.u16()?,
        first_tick: Tick(content.u64()?),
        settings: content.0.to_vec(),
    };
    let is_possible = (1..=RATE_MAX_HZ).contains(&head.rate_hz)
        && head.seats <= SEATS_MAX
        && head.first_tick.0 <= u64::MAX >> 1
        && head.settings.len() <= SETTINGS_MAX;
    is_possible.then_some(head)
}

/// The blocks after the head.
#[derive(Clone, Copy, Debug)]
struct Blocks<'a> {
    rest: Bytes<'a>,
    checksum: u64,
}

impl<'a> Blocks<'a> {
    /// The kind and the content of the next block, whose checksum is right. `ticks` have been read.
    fn next(&mut self, ticks: u64) -> Result<(u8, Bytes<'a>), LogError> {
        let cut_short = || LogError::CutShort { ticks };
        let start = self.rest.0;
        let kind = self.rest.u8().ok_or_else(cut_short)?;
        let length = self.rest.u32().ok_or_else(cut_short)? as usize;
        // A wrong length would look like a cut. A wrong kind, or the checksum, shows that the block is damaged.
        if kind != TICKS && kind != END {
            return Err(LogError::Damaged { ticks });
        }
        let content = self.rest.take(length).ok_or_else(cut_short)?;
        let checksum = self.rest.u64().ok_or_else(cut_short)?;
        if checksum != xxh3_64_with_seed(&start[..BLOCK_HEAD + length], self.checksum) {
            return Err(LogError::Damaged { ticks });
        }
        self.checksum = checksum;
        Ok((kind, Bytes(content)))
    }
}

/// Bytes that are read from the front. `None` when there are too few.
#[derive(Clone, Copy, Debug)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }
    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    /// A count of a list that is there: not 0.
    fn count(&mut self) -> Option<u16> {
        self.u16().filter(|&count| count > 0)
    }
    fn seat(&mut self, seats: u16) -> Option<Seat> {
        self.u16().filter(|&seat| seat < seats).map(Seat)
    }
    fn text(&mut self) -> Option<String> {
        let length = self.u16()?;
        std::str::from_utf8(self.take(length.into())?).ok().map(str::to_owned)
    }
}
