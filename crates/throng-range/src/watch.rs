//! The game with a window in it: what it counts while it is played, for the report.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use glam::Vec3;
use throng_match::{Flow, Game, Scopes, Seat, TickInput};
use throng_rewind::RewindCounters;
use throng_sight::fog::FogCounts;
use throng_tactical::{Counters, Event, SenseRoom, Tactical};

use crate::observe::Observer;

/// Most events that are kept of a match.
const EVENTS_KEPT_MAX: usize = 100_000;
/// Most places that are kept of a player's path: at 4 Hz more than an hour.
const PLACES_KEPT_MAX: usize = 16_384;
/// Most bytes of verdicts that are kept: about 100,000 shots.
const VERDICT_BYTES_MAX: usize = 256 << 20;
/// Paths have so many places per second.
const PLACES_PER_S: u32 = 4;

/// The facts about a match from its inside.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Watched {
    /// Frames until now.
    pub(crate) watched_frames: u64,
    /// Time that was spent here in all of them.
    pub(crate) watching_ns: u64,
    pub(crate) counters: Counters,
    pub(crate) rewind: RewindCounters,
    pub(crate) fog: FogCounts,
    pub(crate) refused: u64,
    pub(crate) history_bytes: usize,
    pub(crate) score: [u8; 2],
    pub(crate) rounds: u16,
    /// The phase of the round.
    pub(crate) phase: &'static str,
    /// Events with their ticks, of the match that is looked at closely.
    pub(crate) events: Vec<(u64, Event)>,
    /// For each seat its places on the map, with a gap (`None`) at each death and new round.
    pub(crate) paths: Vec<Vec<Option<Vec3>>>,
    /// A log of verdicts, for `throng_rewind::replay`.
    pub(crate) verdicts: Vec<u8>,
}

/// A handle to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window(Arc<Mutex<Watched>>);

impl Window {
    pub(crate) fn look(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells a window about the game.
pub(crate) struct Watcher {
    window: Window,
    /// Whether events, paths and verdicts are kept.
    is_close: bool,
    room: SenseRoom,
    frames: u64,
    spent: Duration,
}

impl Watcher {
    pub(crate) fn new(game: &Tactical, window: Window, is_close: bool) -> Watcher {
        if is_close {
            let mut watched = window.look();
            watched.paths = vec![Vec::with_capacity(PLACES_KEPT_MAX); game.rules().seats()];
            watched.events.reserve(EVENTS_KEPT_MAX);
        }
        Watcher { window, is_close, room: SenseRoom::default(), frames: 0, spent: Duration::ZERO }
    }

    /// Once a second the counters, and for a match that is looked at closely its events in each tick.
    fn tell(&mut self, game: &mut Tactical, is_last: bool) {
        let tick = game.now().0;
        let rate_hz = game.rules().tick_hz;
        let is_second = is_last || tick.is_multiple_of(rate_hz.into());
        let is_place = tick.is_multiple_of((rate_hz / PLACES_PER_S).max(1).into());
        if !is_second && !(self.is_close && (is_place || !game.events().is_empty())) {
            return;
        }
        let mut watched = self.window.look();
        if is_second {
            (watched.watched_frames, watched.watching_ns) = (self.frames, self.spent.as_nanos() as u64);
            watched.counters = game.counters();
            watched.rewind = *game.rewind_counters();
            watched.fog = game.fog_counts();
            watched.refused = game.refusals().all().iter().map(|(_, count)| count).sum();
            watched.history_bytes = game.history_bytes();
            (watched.score, watched.rounds, watched.phase) = (game.score(), game.round(), game.phase().name());
        }
        if !self.is_close {
            return;
        }
        if is_second && watched.verdicts.len() < VERDICT_BYTES_MAX {
            game.take_verdicts(&mut watched.verdicts);
        }
        let room = EVENTS_KEPT_MAX.saturating_sub(watched.events.len());
        watched.events.extend(game.events().iter().take(room).map(|&event| (tick, event)));
        if is_place {
            for (seat, path) in watched.paths.iter_mut().enumerate().filter(|(_, path)| path.len() < PLACES_KEPT_MAX) {
                let me = game.senses(Seat(seat as u16), &mut self.room).map(|senses| senses.me);
                let place = me.filter(|me| me.is_alive).map(|me| me.position);
                if place.is_some() || path.last().is_some_and(Option::is_some) {
                    path.push(place);
                }
            }
        }
    }
}

impl Observer for Watcher {
    fn step(&mut self, game: &mut Tactical, input: &TickInput<'_>, scopes: &mut Scopes) -> Flow {
        let flow = game.step(input, scopes);
        let began = Instant::now();
        self.tell(game, flow == Flow::Over);
        self.spent += began.elapsed();
        self.frames += 1;
        flow
    }
}
