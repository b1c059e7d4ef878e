//! One match: a game, its server, its seats, and the order of a frame.
//!
//! ```text
//!  receive     datagrams of the match's own socket                              network
//!  collect     who came and left; commands, bounded; round trips                network
//!  log         what the step depends on
//!  step        the game                                                         what the game says
//!  publish     spawns, values, subscriptions, messages                          what the game says
//!  tick        inputs acknowledged; quantise, plan, encode, write               replication
//!              encrypt, send                                                    network
//! ```

use std::fmt;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use thiserror::Error;
use throng::{ReceiveError, Server, ServerEvent, Tick, Time};
use throng_telemetry::{Recorder, Subsystem};

use crate::inbox::{CommandCounters, CommandLimits, Inbox};
use crate::log::{LogHead, LogWriter, kept_outcome};
use crate::{Flow, Game, GameError, Seats, panics};

/// The round trip of a seat is looked up every so many ticks.
const LATENCY_INTERVAL_TICKS: u64 = 8;

/// After this time beyond [`MatchOptions::farewell`], a match is over although connections have not ended.
const FAREWELL_GRACE: Duration = Duration::from_secs(1);

/// Settings of a [`Match`].
pub struct MatchOptions {
    /// Its name in lines of text.
    pub name: String,
    /// Ticks per second, the same as the server's [`tick_interval`](throng::ServerOptions::tick_interval).
    pub rate_hz: u32,
    /// Its seats.
    pub seats: Seats,
    /// How many commands of a player reach the game.
    pub commands: CommandLimits,
    /// After the last step, clients have so long to receive what was sent to them.
    pub farewell: Duration,
    /// Writes an input log.
    pub recording: Option<Recording>,
}

impl MatchOptions {
    /// 128 ticks per second, ten open seats, two seconds for the farewell, no log.
    pub fn new(name: impl Into<String>) -> MatchOptions {
        MatchOptions {
            name: name.into(),
            rate_hz: 128,
            seats: Seats::open(10),
            commands: CommandLimits::default(),
            farewell: Duration::from_secs(2),
            recording: None,
        }
    }
}

/// Where the input log of a match goes, and what its head says.
pub struct Recording {
    /// The log: a file, for example. It is written to once per second, in the match's frame.
    pub sink: Box<dyn Write + Send>,
    /// The program: [`build_id`](crate::build_id).
    pub build: String,
    /// The name of the game.
    pub game: String,
    /// The seed of the game.
    pub seed: u64,
    /// The checksum of the map; 0 without one.
    pub map_checksum: u64,
    /// Settings of the game, in a form of its own.
    pub settings: Vec<u8>,
}

/// Where a match stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The game is played.
    Playing,
    /// The game has ended; clients get the rest of what was sent to them.
    Leaving,
    /// All has ended: the match can be dropped.
    Ended,
}

/// The cause that ended a match before its game was over.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MatchError {
    /// The game cannot go on.
    #[error("the game cannot go on: {0}")]
    Game(#[from] GameError),
    /// The game, or the server below it, panicked.
    #[error("the game panicked: {message}")]
    Panicked {
        /// The panic's message and place, in one line.
        message: String,
    },
    /// The socket is broken.
    #[error("the socket is broken: {0}")]
    Socket(#[from] ReceiveError),
    /// It was stopped from outside.
    #[error("stopped: {reason}")]
    Stopped {
        /// Why.
        reason: String,
    },
    /// The thread that played it panicked outside of the game: a fault of the runtime.
    #[error("its worker died: {message}")]
    Worker {
        /// The panic's message and place, in one line.
        message: String,
    },
}

impl MatchError {
    /// A stable word for each kind of error.
    pub fn tag(&self) -> &'static str {
        match self {
            MatchError::Game(_) => "game",
            MatchError::Panicked { .. } => "panicked",
            MatchError::Socket(_) => "socket",
            MatchError::Stopped { .. } => "stopped",
            MatchError::Worker { .. } => "worker",
        }
    }
}

/// Counters of a match since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchCounters {
    /// Steps of the game.
    pub ticks: u64,
    /// Deadlines that were skipped, because frames were too late.
    pub missed_ticks: u64,
    /// Commands by their fate.
    pub commands: CommandCounters,
    /// Players that got a seat, returning ones included.
    pub joined: u64,
    /// Clients that got none, because all seats have players or are reserved for others, or the match is over.
    pub turned_away: u64,
    /// Clients that the server refused for their protocol, schema or token.
    pub refused: u64,
    /// Messages on lanes. A match plays by commands alone, and ignores them.
    pub messages_ignored: u64,
}

/// How a match ended. Its text is one line.
#[derive(Debug)]
pub struct MatchEnd {
    /// The match.
    pub name: String,
    /// The last tick.
    pub tick: Tick,
    /// The result, if the game has one.
    pub outcome: Option<String>,
    /// Why it ended before the game was over.
    pub error: Option<MatchError>,
    /// The input log is incomplete, for this reason.
    pub log_error: Option<io::Error>,
    /// The counters.
    pub counters: MatchCounters,
}

impl fmt::Display for MatchEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, tick {}: ", self.name, self.tick.0)?;
        match (&self.error, &self.outcome) {
            (Some(error), _) => write!(f, "{error}")?,
            (None, Some(outcome)) => write!(f, "{outcome}")?,
            (None, None) => f.write_str("over, without a result")?,
        }
        match &self.log_error {
            Some(error) => write!(f, " (its input log is incomplete: {error})"),
            None => Ok(()),
        }
    }
}

/// One match. [`frame`](Match::frame) plays a tick, on whichever thread.
pub struct Match {
    name: String,
    game: Box<dyn Game>,
    server: Server,
    recorder: Recorder,
    seats: Seats,
    inbox: Inbox,
    log: Option<LogWriter>,
    rate_hz: u32,
    farewell: Duration,
    stage: Stage,
    /// When a match that is left has ended at the latest.
    until: Time,
    end: Option<MatchEnd>,
    tick: Tick,
    counters: MatchCounters,
}

impl Match {
    /// A match of `game`, with a server that is its own. `recorder` measures its frames.
    ///
    /// # Errors
    /// The head of the input log could not be written.
    pub fn new(options: MatchOptions, game: Box<dyn Game>, server: Server, recorder: Recorder) -> io::Result<Match> {
        let seats = options.seats;
        let rate_hz = options.rate_hz.clamp(1, crate::RATE_MAX_HZ);
        let log = options.recording.map(|recording| {
            let head = LogHead {
                build: recording.build,
                game: recording.game,
                seed: recording.seed,
                map_checksum: recording.map_checksum,
                rate_hz,
                seats: seats.count(),
                first_tick: server.current_tick(),
                settings: recording.settings,
            };
            LogWriter::begin(recording.sink, &head)
        });
        Ok(Match {
            name: options.name,
            inbox: Inbox::new(seats.count(), options.commands),
            log: log.transpose()?,
            rate_hz,
            farewell: options.farewell,
            stage: Stage::Playing,
            until: Time(0),
            end: None,
            tick: server.current_tick(),
            counters: MatchCounters::default(),
            game,
            server,
            recorder,
            seats,
        })
    }

    /// Plays the next tick. `now` never falls. The frame begins `late_ns` nanoseconds after its deadline.
    ///
    /// A game that panics or fails ends the match, and nothing else: the next calls let the clients leave.
    pub fn frame(&mut self, now: Time, late_ns: u64) -> Stage {
        let result = panics::caught(|| {
            catch_unwind(AssertUnwindSafe(|| match self.stage {
                Stage::Playing => self.play(now, late_ns),
                Stage::Leaving | Stage::Ended => self.leave(now).map(|()| Flow::Continue),
            }))
        });
        let result = result.unwrap_or_else(|message| Err(MatchError::Panicked { message }));
        match (self.stage, result) {
            (Stage::Playing, Ok(Flow::Continue)) => {}
            (Stage::Playing, Ok(Flow::Over)) => self.finish(now, None),
            (Stage::Playing, Err(error)) => self.finish(now, Some(error)),
            (Stage::Leaving, Ok(_)) if self.server.connection_count() > 0 && now < self.until => {}
            // Nothing is owed to clients of a server that fails a second time.
            (Stage::Leaving | Stage::Ended, _) => self.stage = Stage::Ended,
        }
        self.stage
    }

    /// Ends the match; clients get the reason. A match that has ended stays as it is.
    pub fn stop(&mut self, now: Time, reason: &str) {
        if self.stage == Stage::Playing {
            self.finish(now, Some(MatchError::Stopped { reason: reason.to_owned() }));
        }
    }

    fn play(&mut self, now: Time, late_ns: u64) -> Result<Flow, MatchError> {
        let Match { game, server, recorder, seats, inbox, log, counters, .. } = self;
        self.tick = server.current_tick();
        let mut frame = recorder.begin(self.tick.0, game.phase());
        frame.note_lateness_ns(late_ns);
        frame.time(Subsystem::NETWORK, |_| {
            server.receive(now)?;
            collect(now, server, (seats, inbox), counters);
            Ok::<_, ReceiveError>(())
        })?;
        let flow = inbox.deliver(self.tick, seats, |input| {
            if let Some(log) = log {
                log.record(input);
            }
            game.step(input, &mut frame)
        });
        counters.ticks += 1;
        if let Some(log) = log
            && counters.ticks.is_multiple_of(self.rate_hz.into())
        {
            log.digest(game.digest());
        }
        frame.set_phase(game.phase());
        game.publish(server, seats, &mut frame)?;
        let mut scope = frame.enter(Subsystem::REPLICATION);
        inbox.acknowledge(|connection, number| server.acknowledge_input(connection, number));
        server.tick(now);
        let stages = server.last_tick().subsystem_ns;
        scope.claim(Subsystem::NETWORK, stages[Subsystem::SEAL.index()] + stages[Subsystem::SEND.index()]);
        server.wait();
        drop(scope);
        frame.finish();
        Ok(flow)
    }

    fn leave(&mut self, now: Time) -> Result<(), MatchError> {
        self.server.receive(now)?;
        while let Some(event) = self.server.poll_event() {
            // A client that came in now would hold the farewell up, and be told nothing at its end.
            if let ServerEvent::Connected { connection, .. } = event {
                self.counters.turned_away += 1;
                if let Some(end) = &mut self.end {
                    end.counters.turned_away += 1;
                }
                self.server.disconnect(connection, now, "the match is over");
            }
        }
        while self.server.poll_input().is_some() {}
        self.server.tick(now);
        self.server.wait();
        Ok(())
    }

    /// The game is played no more. Ends the log, and sends the clients away.
    fn finish(&mut self, now: Time, error: Option<MatchError>) {
        self.stage = Stage::Leaving;
        self.until = now.after(self.farewell + FAREWELL_GRACE);
        self.counters.commands = self.inbox.counters();
        // The state of a game that panicked may be anything, and its log ends with the tick that it did not survive.
        let is_sound = matches!(error, None | Some(MatchError::Stopped { .. }));
        let told = panics::caught(|| {
            catch_unwind(AssertUnwindSafe(|| is_sound.then(|| (kept_outcome(self.game.outcome()), self.game.digest()))))
        });
        let (outcome, digest, error) = match told {
            Ok(Some((outcome, digest))) => (outcome, Some(digest), error),
            Ok(None) => (None, None, error),
            // The reason of a stop would hide the fault.
            Err(message) => (None, None, Some(MatchError::Panicked { message })),
        };
        let log = self.log.take().map(|log| match digest {
            Some(digest) => log.finish(digest, error.is_none(), outcome.as_deref()),
            None => log.abandon(),
        });
        let log_error = log.and_then(Result::err);
        let reason = match (&error, &outcome) {
            (Some(MatchError::Stopped { reason }), _) => reason.clone(),
            (Some(_), _) => "the match ended with an error".to_owned(),
            (None, Some(outcome)) => outcome.clone(),
            (None, None) => "the match is over".to_owned(),
        };
        let (name, tick, counters) = (self.name.clone(), self.tick, self.counters);
        self.end = Some(MatchEnd { name, tick, outcome, error, log_error, counters });
        self.send_away(now, &reason);
    }

    fn send_away(&mut self, now: Time, reason: &str) {
        let sent = panics::caught(|| {
            catch_unwind(AssertUnwindSafe(|| {
                let connections: Vec<_> = self.server.connections().collect();
                for connection in connections {
                    self.server.disconnect_after_flush(connection, now, reason, self.farewell);
                }
            }))
        });
        if sent.is_err() {
            self.stage = Stage::Ended;
        }
    }

    /// A deadline passed without a frame.
    pub fn note_missed(&mut self, ticks: u64) {
        self.counters.missed_ticks += ticks;
    }

    /// How it ended, once the game is played no more.
    pub fn end(&self) -> Option<&MatchEnd> {
        self.end.as_ref()
    }

    /// Takes the match apart, after its end or before it.
    pub fn into_end(mut self, error: impl FnOnce() -> MatchError) -> MatchEnd {
        let end = self.end.take().unwrap_or_else(|| MatchEnd {
            name: self.name.clone(),
            tick: self.tick,
            outcome: None,
            error: Some(error()),
            log_error: None,
            counters: self.counters(),
        });
        // A game may panic when it is dropped, and harms nobody by it.
        let _ = panics::caught(|| catch_unwind(AssertUnwindSafe(|| drop(self))));
        end
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ticks per second.
    pub fn rate_hz(&self) -> u32 {
        self.rate_hz
    }

    /// Its stage.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Its seats.
    pub fn seats(&self) -> &Seats {
        &self.seats
    }

    /// Its game.
    pub fn game(&self) -> &dyn Game {
        &*self.game
    }

    /// Its server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Its counters.
    pub fn counters(&self) -> MatchCounters {
        MatchCounters { commands: self.inbox.counters(), ..self.counters }
    }
}

impl fmt::Debug for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Match").field("name", &self.name).field("stage", &self.stage).field("tick", &self.tick).finish()
    }
}

/// Takes what the server has received into seats and inbox.
fn collect(now: Time, server: &mut Server, (seats, inbox): (&mut Seats, &mut Inbox), counters: &mut MatchCounters) {
    while let Some(event) = server.poll_event() {
        match event {
            ServerEvent::Connected { connection, client_id, .. } => match seats.join(client_id, connection) {
                Some(_) => counters.joined += 1,
                None => {
                    counters.turned_away += 1;
                    server.disconnect(connection, now, "this match has no seat for you");
                }
            },
            ServerEvent::Disconnected { connection, .. } => {
                seats.leave(connection);
            }
            ServerEvent::Refused { .. } | ServerEvent::Denied { .. } => counters.refused += 1,
            ServerEvent::Message { .. } => counters.messages_ignored += 1,
            _ => {}
        }
    }
    while let Some((connection, input)) = server.poll_input() {
        // A refused command is counted there.
        let _ = inbox.push(seats, connection, input.number, input.bytes());
    }
    let turn = server.current_tick().0;
    for (seat, connection) in seats.connected() {
        if turn.wrapping_add(u64::from(seat.0)).is_multiple_of(LATENCY_INTERVAL_TICKS) || !inbox.has_latency(seat) {
            let statistics = server.link_statistics(connection);
            if let Some(round_trip) = statistics.and_then(|statistics| statistics.round_trip) {
                inbox.set_latency(seat, round_trip.as_micros() as u64);
            }
        }
    }
}
