//! The messages of clients since the last tick: bounded, in order, ready for a step.

use throng::{ConnectionId, MAX_INPUT_BYTES, Tick};

use crate::{Seat, SeatCommand, SeatLatency, Seats, TickInput};

/// A seat earns so many shares of a command in a tick, and a command costs [`COMMAND_SHARES`]. An honest client whose clock
/// runs fast by up to 6 % loses nothing.
const EARNED_SHARES: u32 = 17;
const COMMAND_SHARES: u32 = 16;

/// Round trips are rounded to this, so that a log holds them exactly.
const LATENCY_STEP_US: u64 = 100;

/// Most commands of a seat that any match takes in one tick.
pub const COMMANDS_PER_TICK_MAX: u8 = 16;

/// How many commands of a player reach the game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandLimits {
    /// Most commands of a seat in one tick, up to [`COMMANDS_PER_TICK_MAX`]. Further ones are refused.
    pub per_tick: u8,
    /// Most commands of a seat that may come at once after a silence. On average, a seat has one command per tick.
    pub burst: u8,
}

impl Default for CommandLimits {
    /// Four in a tick, and sixteen after a silence.
    fn default() -> CommandLimits {
        CommandLimits { per_tick: 4, burst: 16 }
    }
}

/// Why a command of a client did not reach the game. The client's fault, or its path's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its number is not newer than that of a former one: it came twice, or out of order.
    Stale,
    /// The seat has as many commands in this tick as it may.
    TickFull,
    /// The seat has sent more than one command per tick for too long.
    TooFast,
    /// The connection has no seat.
    NoSeat,
}

/// Commands by their fate, since the start of a match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandCounters {
    /// Commands that reached the game.
    pub taken: u64,
    /// [`Refusal::Stale`].
    pub stale: u64,
    /// [`Refusal::TickFull`].
    pub tick_full: u64,
    /// [`Refusal::TooFast`].
    pub too_fast: u64,
    /// [`Refusal::NoSeat`].
    pub no_seat: u64,
}

impl CommandCounters {
    /// All refused commands.
    pub fn refused(&self) -> u64 {
        self.stale + self.tick_full + self.too_fast + self.no_seat
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct SeatState {
    /// The connection at the last tick.
    present: Option<ConnectionId>,
    /// The connection whose commands count, and its newest one.
    connection: Option<ConnectionId>,
    newest: Option<u32>,
    in_tick: u8,
    shares: u32,
    is_unacknowledged: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    seat: Seat,
    /// Counts arrivals in a tick.
    order: u32,
    number: u32,
    start: u32,
    length: u8,
}

/// Collects the inputs of one match. Allocates when it is made, and never again.
#[derive(Debug)]
pub struct Inbox {
    limits: CommandLimits,
    states: Vec<SeatState>,
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    arrivals: u32,
    joined: Vec<Seat>,
    left: Vec<Seat>,
    latencies: Vec<SeatLatency>,
    commands: Vec<SeatCommand<'static>>,
    counters: CommandCounters,
}

impl Inbox {
    /// An inbox for `seats` seats. A limit of 0 counts as 1.
    pub fn new(seats: u16, limits: CommandLimits) -> Inbox {
        let per_tick = limits.per_tick.clamp(1, COMMANDS_PER_TICK_MAX);
        let limits = CommandLimits { per_tick, burst: limits.burst.max(1) };
        let count = usize::from(seats);
        let commands = count * usize::from(limits.per_tick);
        let shares = u32::from(limits.burst) * COMMAND_SHARES;
        Inbox {
            limits,
            states: vec![SeatState { shares, ..SeatState::default() }; count],
            entries: Vec::with_capacity(commands),
            bytes: Vec::with_capacity(commands * MAX_INPUT_BYTES),
            arrivals: 0,
            joined: Vec::with_capacity(count),
            left: Vec::with_capacity(count),
            latencies: Vec::with_capacity(count),
            commands: Vec::with_capacity(commands),
            counters: CommandCounters::default(),
        }
    }

    /// A command of `connection` came. It counts for the seat of the connection.
    ///
    /// # Errors
    /// The command is refused, and counted.
    pub fn push(
        &mut self,
        seats: &Seats,
        connection: ConnectionId,
        number: u32,
        bytes: &[u8],
    ) -> Result<Seat, Refusal> {
        let taken = self.take(seats, connection, number, bytes);
        let counter = match taken {
            Ok(_) => &mut self.counters.taken,
            Err(Refusal::Stale) => &mut self.counters.stale,
            Err(Refusal::TickFull) => &mut self.counters.tick_full,
            Err(Refusal::TooFast) => &mut self.counters.too_fast,
            Err(Refusal::NoSeat) => &mut self.counters.no_seat,
        };
        *counter += 1;
        taken
    }

    fn take(&mut self, seats: &Seats, connection: ConnectionId, number: u32, bytes: &[u8]) -> Result<Seat, Refusal> {
        let seat = seats.seat(connection).ok_or(Refusal::NoSeat)?;
        let state = self.states.get_mut(seat.index()).ok_or(Refusal::NoSeat)?;
        if state.connection != Some(connection) {
            // The first command of a new connection. Those of the former one do not count any more.
            (state.connection, state.newest) = (Some(connection), None);
            self.entries.retain(|entry| entry.seat != seat);
        }
        let state = &mut self.states[seat.index()];
        if state.newest.is_some_and(|newest| number.wrapping_sub(newest) as i32 <= 0) {
            return Err(Refusal::Stale);
        }
        (state.newest, state.is_unacknowledged) = (Some(number), true);
        if state.in_tick == self.limits.per_tick {
            return Err(Refusal::TickFull);
        }
        if state.shares < COMMAND_SHARES {
            return Err(Refusal::TooFast);
        }
        state.shares -= COMMAND_SHARES;
        state.in_tick += 1;
        let bytes = &bytes[..bytes.len().min(MAX_INPUT_BYTES)];
        let (start, order) = (self.bytes.len() as u32, self.arrivals);
        self.arrivals += 1;
        self.bytes.extend_from_slice(bytes);
        self.entries.push(Entry { seat, order, number, start, length: bytes.len() as u8 });
        Ok(seat)
    }

    /// The round trip of a connected seat, in microseconds.
    pub fn set_latency(&mut self, seat: Seat, rtt_us: u64) {
        let rounded = (rtt_us.saturating_add(LATENCY_STEP_US / 2) / LATENCY_STEP_US).saturating_mul(LATENCY_STEP_US);
        let rtt_us = u32::try_from(rounded).unwrap_or(u32::MAX / 100 * 100);
        match self.latencies.binary_search_by_key(&seat, |latency| latency.seat) {
            Ok(place) => self.latencies[place].rtt_us = rtt_us,
            Err(place) if seat.index() < self.states.len() => {
                self.latencies.insert(place, SeatLatency { seat, rtt_us })
            }
            Err(_) => {}
        }
    }

    /// Whether a seat has a round trip.
    pub fn has_latency(&self, seat: Seat) -> bool {
        self.latencies.binary_search_by_key(&seat, |latency| latency.seat).is_ok()
    }

    /// Calls `work` with everything that came since the last call, and forgets it.
    pub fn deliver<T>(&mut self, tick: Tick, seats: &Seats, work: impl FnOnce(&TickInput<'_>) -> T) -> T {
        self.note_changes(seats);
        self.entries.sort_unstable_by_key(|entry| (entry.seat, entry.order));
        let mut commands = recycle(std::mem::take(&mut self.commands));
        commands.extend(self.entries.iter().map(|entry| SeatCommand {
            seat: entry.seat,
            number: entry.number,
            bytes: &self.bytes[entry.start as usize..][..usize::from(entry.length)],
        }));
        let input =
            TickInput { tick, joined: &self.joined, left: &self.left, commands: &commands, latencies: &self.latencies };
        let result = work(&input);
        self.commands = recycle(commands);
        self.entries.clear();
        self.bytes.clear();
        self.arrivals = 0;
        let most_shares = u32::from(self.limits.burst) * COMMAND_SHARES;
        for state in &mut self.states {
            state.in_tick = 0;
            state.shares = (state.shares + EARNED_SHARES).min(most_shares);
        }
        result
    }

    /// Calls `acknowledge` with the newest command of each connection that sent any since the last call, those that were
    /// refused included: the state that is published now contains all that they will ever do.
    pub fn acknowledge(&mut self, mut acknowledge: impl FnMut(ConnectionId, u32)) {
        for state in &mut self.states {
            let is_due = std::mem::take(&mut state.is_unacknowledged);
            if let (true, Some(connection), Some(newest)) = (is_due, state.connection, state.newest) {
                acknowledge(connection, newest);
            }
        }
    }

    /// Commands by their fate.
    pub fn counters(&self) -> CommandCounters {
        self.counters
    }

    /// Finds out which seats have another connection than at the last tick.
    fn note_changes(&mut self, seats: &Seats) {
        self.joined.clear();
        self.left.clear();
        for (index, state) in self.states.iter_mut().enumerate() {
            let (seat, now) = (Seat(index as u16), seats.connection(Seat(index as u16)));
            if state.connection != now {
                (state.connection, state.newest) = (now, None);
                self.entries.retain(|entry| entry.seat != seat);
            }
            let before = std::mem::replace(&mut state.present, now);
            if before == now {
                continue;
            }
            if before.is_some() {
                self.left.push(seat);
            }
            if now.is_some() {
                self.joined.push(seat);
            }
            self.latencies.retain(|latency| latency.seat != seat);
        }
    }
}

/// An empty list with the memory of another one. The standard library collects in place, because both elements have one
/// layout; `tests/allocation.rs` counts that it does.
pub(crate) fn recycle<'a>(mut commands: Vec<SeatCommand<'_>>) -> Vec<SeatCommand<'a>> {
    commands.clear();
    commands.into_iter().map(|_| unreachable!("the list is empty")).collect()
}
