//! The contract between the runtime and a game.

use std::fmt;

use throng::{LimitReached, MessageError, Server, Tick};
use throng_telemetry::{Phase, Scopes};

use crate::Seats;

/// The number of a player in a match, from 0. A player keeps it after a reconnect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat(pub u16);

impl Seat {
    /// Its place in an array with one element for each seat.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seat {}", self.0)
    }
}

/// Whether a match goes on after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// There is another tick.
    Continue,
    /// That was the last step. The runtime publishes it, and ends the match.
    Over,
}

/// One command of a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatCommand<'a> {
    /// The player.
    pub seat: Seat,
    /// The number that the client gave it. It rises, and wraps around after 2^32 commands.
    pub number: u32,
    /// The bytes that the client passed to [`send_input`](throng::ClientCore::send_input). Any bytes are possible.
    pub bytes: &'a [u8],
}

/// The round trip of a player, as the server measures it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatLatency {
    /// The player.
    pub seat: Seat,
    /// The smoothed round trip in microseconds, a multiple of 100.
    pub rtt_us: u32,
}

/// Everything on which a step depends, besides the state of the game.
///
/// The lists are in the order of seats. The commands of one seat are in the order of their numbers, each number once.
#[derive(Clone, Copy, Debug, Default)]
pub struct TickInput<'a> {
    /// The tick, as clients see it in the packets of this frame.
    pub tick: Tick,
    /// Seats whose player has connected since the last tick. After a quick reconnect, a seat is in both lists: the player
    /// left first.
    pub joined: &'a [Seat],
    /// Seats whose player has left since the last tick.
    pub left: &'a [Seat],
    /// Commands that came since the last tick, of connected seats only.
    pub commands: &'a [SeatCommand<'a>],
    /// The round trips of the connected seats that are known.
    pub latencies: &'a [SeatLatency],
}

/// A game that the runtime plays.
///
/// The runtime calls, for each tick: [`step`](Game::step), [`publish`](Game::publish), [`phase`](Game::phase). A replay
/// calls `step` with the same inputs and nothing else, so everything that a match decides belongs into `step`.
///
/// A game that panics ends its own match, with one line. Other matches are not harmed.
pub trait Game: Send {
    /// Plays one tick. Everything that it depends on is in `input`: no clock, no socket, no outside randomness, no order
    /// of a hash map. Equal inputs after equal states give equal states, bit for bit.
    ///
    /// Bytes of commands come from clients: they may say anything, and must not make it panic.
    fn step(&mut self, input: &TickInput<'_>, scopes: &mut Scopes) -> Flow;

    /// Writes to the server what clients shall see: spawns, values, subscriptions, messages. Changes nothing that `step`
    /// reads.
    ///
    /// # Errors
    /// The match cannot go on. It ends with this error.
    fn publish(&mut self, server: &mut Server, seats: &Seats, scopes: &mut Scopes) -> Result<(), GameError>;

    /// The phase of the match after the last step: a label of telemetry.
    fn phase(&self) -> Phase;

    /// A hash of the whole state that `step` reads and writes. It is compared bit for bit in a replay.
    fn digest(&self) -> u64;

    /// The result in one line, as `attackers win 5 to 3`; `None` while the match goes on. Its first 1,024 bytes are kept, and
    /// an empty one counts as none.
    fn outcome(&self) -> Option<String>;
}

/// Why a game cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GameError {
    /// The server has no room for an object, a channel or a subscription.
    #[error(transparent)]
    Limit(#[from] LimitReached),
    /// A message could not be sent.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A reason of the game itself.
    #[error("{0}")]
    Game(Box<dyn std::error::Error + Send + Sync>),
}

impl GameError {
    /// A reason of the game itself: an error, or a text.
    pub fn new(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> GameError {
        GameError::Game(reason.into())
    }

    /// A stable word for each kind of error.
    pub fn tag(&self) -> &'static str {
        match self {
            GameError::Limit(_) => "limit",
            GameError::Message(_) => "message",
            GameError::Game(_) => "game",
        }
    }
}
