//! Checks of a recorded match that is played again: whether it is the same, how long a shot takes to judge, whether
//! verdicts differ with a pose for each tick, and whether the fog hid what could be seen.

use glam::{Quat, Vec3};
use throng_match::{Flow, Game, InputLog, ReplayError, Replayed, Scopes, Seat, Subsystem, TickInput};
use throng_rewind::Comparison;
use throng_sight::fog::{AuditCounts, FogAudit, Occluder};
use throng_sight::{Map, Ray, town};
use throng_tactical::senses::{RoundPhase, Senses, WallSeen};
use throng_tactical::{SenseRoom, Tactical};
use throng_telemetry::{Recorder, Telemetry, TelemetryOptions};

use crate::RangeError;
use crate::observe::{Observed, Observer};
use crate::watch::{Watched, Watcher, Window};

/// The fog is checked every so many ticks.
const FOG_TICKS: u64 = 16;
/// Most moments that are kept: at 8 Hz more than an hour.
const MOMENTS_KEPT_MAX: usize = 32_768;
/// Pairs at which the fog's watcher looks in each tick of the live and the end phase; a look costs up to 0.1 ms.
const PAIRS_PER_STEP: usize = 2;
/// Half the width of a body, in metres, within its shoulders.
const HALF_WIDTH_M: f32 = 0.28;
/// The head is so much above the eye.
const ABOVE_EYE_M: f32 = 0.1;
/// Heights of a body that are looked at.
const HEIGHTS: u8 = 6;

/// The results.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Checks {
    /// The replay, or why it differs.
    pub(crate) replay: Option<Result<Replayed, ReplayError>>,
    pub(crate) us_per_shot: Option<f64>,
    /// The verdicts on shots, beside those with a pose for each tick.
    pub(crate) comparison: Comparison,
    /// Looks at pairs of a viewer and an enemy.
    pub(crate) fog: AuditCounts,
    /// The verdict of the fog on each pair, in every [`FOG_TICKS`]th tick of the live and the end phase.
    pub(crate) moments: Moments,
    /// The facts of the match from its inside.
    pub(crate) watched: Option<Watched>,
}

/// Moments of a match in rising order, with what each viewer was sent of each enemy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    pub(crate) seats: usize,
    /// Time from one moment to the next.
    pub(crate) step_s: f64,
    /// Ticks.
    pub(crate) ticks: Vec<u64>,
    /// For each tick, each viewer, each target.
    pub(crate) veils: Vec<Veil>,
}

impl Moments {
    /// The verdicts of the fog on a pair, at each moment.
    pub(crate) fn of(&self, viewer: usize, target: usize) -> impl Iterator<Item = Veil> + '_ {
        let place = viewer * self.seats + target;
        self.veils.iter().skip(place).step_by((self.seats * self.seats).max(1)).copied()
    }
}

/// The verdict of the fog on a viewer and an enemy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Veil {
    /// One of the two is dead, or they are of one team.
    #[default]
    None,
    /// The enemy was sent.
    Sent,
    /// The enemy was hidden, behind the map.
    Map,
    /// The enemy was hidden, and without smokes and raised walls it would have been in sight.
    Ability,
    /// The enemy was hidden, and in sight: a fault of the fog.
    Fault,
}

/// Plays a log again on games that `make` makes as the match was made. Twice: as it was, and with all that is compared.
pub(crate) fn check(log: &InputLog<'_>, make: impl Fn() -> Result<Tactical, RangeError>) -> Result<Checks, RangeError> {
    let mut timed = Observed { game: make()?, observer: Timing::new()? };
    let replay = log.clone().replay(&mut timed);
    let mut checks = Checks { us_per_shot: timed.observer.us_per_shot(), ..Checks::default() };
    if replay.is_ok() {
        // Each shot is judged a second time, with a pose for each tick.
        let game = make()?.with_comparison()?;
        let window = Window::default();
        let mut compared = Observed { observer: Looking::new(&game, window.clone()), game };
        // It is the same match, whose digests were compared before.
        let _ = log.clone().replay(&mut compared);
        (checks.fog, checks.moments) = (compared.observer.audit.counts(), compared.observer.moments);
        checks.watched = Some(std::mem::take(&mut *window.look()));
        checks.comparison = compared.game.comparison().copied().unwrap_or_default();
    }
    Ok(Checks { replay: Some(replay), ..checks })
}

/// Measures the part of steps in which shots are judged.
struct Timing {
    recorder: Recorder,
    shots: u64,
    /// Time of that part in steps with shots and without, and how many steps these are.
    with: (u64, u64),
    without: (u64, u64),
}

impl Timing {
    fn new() -> Result<Timing, RangeError> {
        let recorder = Telemetry::start(TelemetryOptions::default())?.recorder("replay");
        Ok(Timing { recorder, shots: 0, with: (0, 0), without: (0, 0) })
    }

    /// Takes a step. Those that did not begin in the live phase do not count, neither their shots nor their time.
    fn note(&mut self, is_live: bool, shots: u64, spent_ns: u64) {
        if !is_live {
            return;
        }
        self.shots += shots;
        let sums = if shots > 0 { &mut self.with } else { &mut self.without };
        *sums = (sums.0 + spent_ns, sums.1 + 1);
    }

    /// The time that a shot adds to a step.
    fn us_per_shot(&self) -> Option<f64> {
        let usual_ns = self.without.0 as f64 / self.without.1.max(1) as f64;
        let added_ns = self.with.0 as f64 - usual_ns * self.with.1 as f64;
        (self.shots > 0).then(|| added_ns.max(0.0) / self.shots as f64 / 1_000.0)
    }
}

impl Observer for Timing {
    fn step(&mut self, game: &mut Tactical, input: &TickInput<'_>, _: &mut Scopes) -> Flow {
        let is_live = game.phase().name() == "live";
        let before = game.rewind_counters().shots;
        let mut frame = self.recorder.begin(input.tick.0, game.phase());
        let flow = game.step(input, &mut frame);
        frame.finish();
        let spent_ns = self.recorder.last().ns(Subsystem::PHYSICS);
        let shots = game.rewind_counters().shots - before;
        self.note(is_live, shots, spent_ns);
        flow
    }
}

/// Watches the fog, and keeps what hid whom for the report.
struct Looking {
    watcher: Watcher,
    audit: FogAudit,
    moments: Moments,
    rooms: [SenseRoom; 2],
}

impl Looking {
    fn new(game: &Tactical, window: Window) -> Looking {
        let (seats, step_s) = (game.rules().seats(), FOG_TICKS as f64 / f64::from(game.rules().tick_hz));
        let moments = Moments { seats, step_s, ..Moments::default() };
        let watcher = Watcher::new(game, window, true);
        Looking { watcher, audit: game.fog_audit(PAIRS_PER_STEP), moments, rooms: Default::default() }
    }

    fn check_fog(&mut self, game: &Tactical) {
        let seats = game.rules().seats() as u16;
        let [of_viewer, of_target] = &mut self.rooms;
        let first = self.moments.veils.len();
        if self.moments.ticks.len() < MOMENTS_KEPT_MAX {
            self.moments.ticks.push(game.now().0);
            self.moments.veils.resize(first + usize::from(seats * seats), Veil::None);
        }
        for viewer in (0..seats).map(Seat) {
            let Some(senses) = game.senses(viewer, of_viewer) else { continue };
            if !senses.me.is_alive {
                continue;
            }
            for target in (0..seats).map(Seat) {
                let Some(other) = game.senses(target, of_target).map(|senses| senses.me) else { continue };
                if other.team == senses.me.team || !other.is_alive {
                    continue;
                }
                let hidden = hidden_by(game.arena().map(), &senses, other.position, other.eye_height);
                let veil = match game.may_see(viewer, target) {
                    true => Veil::Sent,
                    false => hidden.unwrap_or(Veil::Fault),
                };
                let place = first + viewer.index() * usize::from(seats) + target.index();
                if let Some(kept) = self.moments.veils.get_mut(place) {
                    *kept = veil;
                }
            }
        }
    }
}

impl Observer for Looking {
    fn step(&mut self, game: &mut Tactical, input: &TickInput<'_>, scopes: &mut Scopes) -> Flow {
        let flow = self.watcher.step(game, input, scopes);
        // Nobody moves in the buy phase.
        if game.round_phase() != RoundPhase::Buy {
            game.watch_fog(&mut self.audit);
            if input.tick.0.is_multiple_of(FOG_TICKS) {
                self.check_fog(game);
            }
        }
        flow
    }
}

/// Why none of many rays from the eye reaches the body that stands at `feet`; `None` if one does.
fn hidden_by(map: &Map, senses: &Senses<'_>, feet: Vec3, eye_height: f32) -> Option<Veil> {
    let eye = senses.me.eye();
    let across = (feet - eye).cross(Vec3::Y).normalize_or(Vec3::X) * HALF_WIDTH_M;
    let points = (0..HEIGHTS).flat_map(|step| {
        let height = 0.1 + (eye_height + ABOVE_EYE_M - 0.1) * f32::from(step) / f32::from(HEIGHTS - 1);
        [-1.0, 0.0, 1.0].map(|side| feet + Vec3::Y * height + across * side)
    });
    let smokes = senses.smokes.iter().map(|smoke| Occluder::Ball { middle: smoke.middle, radius_m: smoke.radius_m });
    let occluders: Vec<Occluder> = smokes.chain(senses.walls.iter().map(of_wall)).collect();
    let mut veil = Veil::Map;
    for point in points {
        if Ray::between(eye, point).is_ok_and(|ray| !map.is_blocked(&ray, town::SIGHT)) {
            if !occluders.iter().any(|occluder| occluder.blocks(eye, point)) {
                return None;
            }
            veil = Veil::Ability;
        }
    }
    Some(veil)
}

fn of_wall(wall: &WallSeen) -> Occluder {
    Occluder::Cuboid {
        middle: wall.foot + Vec3::Y * (wall.size_m.y / 2.0),
        half: Vec3::new(wall.size_m.x, wall.size_m.y / 2.0, wall.size_m.z),
        rotation: Quat::from_rotation_y(f32::from(wall.yaw) * std::f32::consts::TAU / 65_536.0),
    }
}

#[cfg(test)]
mod tests {
    use throng::Tick;
    use throng_tactical::Rules;

    use super::*;
    use crate::{MapSource, Stage};

    #[test]
    fn the_fog_is_watched_from_the_first_live_tick_to_the_end_of_the_match() {
        let stage = Stage::open(&MapSource::Town { seed: 1, triangles: 5_000 }).unwrap();
        let rules = Rules { tick_hz: 32, buy_s: 1.0, live_s: 1.0, end_s: 2.0, rounds_to_win: 1, ..Rules::default() };
        let mut game = Tactical::new(stage.arena.clone(), rules, 1).unwrap();
        let mut looking = Looking::new(&game, Window::default());
        let mut ticks = std::collections::BTreeMap::<&str, u64>::new();
        let mut looks = ticks.clone();
        for tick in (1..).map(Tick) {
            let input = TickInput { tick, joined: &[], left: &[], commands: &[], latencies: &[] };
            let pairs = |looking: &Looking| looking.audit.counts().sent + looking.audit.counts().hidden;
            let before = pairs(&looking);
            let flow = looking.step(&mut game, &input, &mut Scopes::off());
            *ticks.entry(game.phase().name()).or_default() += 1;
            *looks.entry(game.phase().name()).or_default() += pairs(&looking) - before;
            if flow == Flow::Over {
                break;
            }
        }
        assert_eq!(ticks, [("buy", 32), ("live", 32), ("end", 64), ("over", 1)].into());
        // In the first tick there is no former one that a screen could show.
        assert_eq!(looks, [("buy", 0), ("live", 62), ("end", 128), ("over", 2)].into());
    }

    #[test]
    fn shots_outside_of_the_live_phase_do_not_make_others_cheaper() {
        let mut timing = Timing::new().unwrap();
        for _ in 0..10 {
            timing.note(true, 0, 5_000);
            timing.note(true, 2, 9_000);
            timing.note(false, 4, 100_000);
        }
        assert_eq!(timing.us_per_shot(), Some(2.0));
    }
}
