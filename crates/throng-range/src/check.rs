//! What a recorded match shows when it is played again: whether it is the same, how long a shot takes to judge, whether
//! verdicts differ with a pose for each tick, and whether the fog hid what could be seen.

use glam::{Quat, Vec3};
use throng_match::{Flow, Game, InputLog, ReplayError, Replayed, Scopes, Seat, Subsystem, TickInput};
use throng_sight::fog::Occluder;
use throng_sight::{Map, Ray, town};
use throng_tactical::senses::{Senses, WallSeen};
use throng_tactical::{SenseRoom, Tactical};
use throng_telemetry::{Recorder, Telemetry, TelemetryOptions};

use crate::RangeError;
use crate::observe::{Observed, Observer};

/// The fog is checked every so many ticks.
const FOG_TICKS: u64 = 16;
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
    pub(crate) compared_shots: u64,
    pub(crate) equal_verdicts: u64,
    pub(crate) largest_bone_error_m: f64,
    pub(crate) fog: FogCheck,
}

/// Pairs of a viewer and an enemy, at moments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FogCheck {
    /// Pairs that were looked at.
    pub(crate) pairs: u64,
    /// Pairs in which the enemy was sent.
    pub(crate) shown: u64,
    /// Of these: no dense ray reached the enemy.
    pub(crate) shown_needlessly: u64,
    /// Pairs in which the enemy was hidden, and a dense ray reached it.
    pub(crate) hidden_but_visible: u64,
}

/// Plays a log again on games that `make` makes as the match was made. Twice: as it was, and with all that is compared.
pub(crate) fn check(log: &InputLog<'_>, make: impl Fn() -> Result<Tactical, RangeError>) -> Result<Checks, RangeError> {
    let mut timed = Observed { game: make()?, observer: Timing::new()? };
    let replay = log.clone().replay(&mut timed);
    let mut checks = Checks { us_per_shot: timed.observer.us_per_shot(), ..Checks::default() };
    if replay.is_ok() {
        // Each shot is judged a second time, with a pose for each tick.
        let mut compared = Observed { game: make()?.with_comparison()?, observer: Looking::default() };
        // It is the same match, whose digests were compared before.
        let _ = log.clone().replay(&mut compared);
        checks.fog = compared.observer.fog;
        if let Some(comparison) = compared.game.comparison() {
            checks.compared_shots = comparison.shots;
            checks.equal_verdicts = comparison.equal;
            checks.largest_bone_error_m = comparison.largest_bone_error_m;
        }
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

    /// The time that a shot adds to a step.
    fn us_per_shot(&self) -> Option<f64> {
        let usual_ns = self.without.0 as f64 / self.without.1.max(1) as f64;
        let added_ns = self.with.0 as f64 - usual_ns * self.with.1 as f64;
        (self.shots > 0).then(|| added_ns.max(0.0) / self.shots as f64 / 1_000.0)
    }
}

impl Observer for Timing {
    fn step(&mut self, game: &mut Tactical, input: &TickInput<'_>, _: &mut Scopes) -> Flow {
        let before = game.rewind_counters().shots;
        let mut frame = self.recorder.begin(input.tick.0, game.phase());
        let flow = game.step(input, &mut frame);
        frame.finish();
        let spent_ns = self.recorder.last().ns(Subsystem::PHYSICS);
        let shots = game.rewind_counters().shots - before;
        self.shots += shots;
        if game.phase().name() == "live" {
            let sums = if shots > 0 { &mut self.with } else { &mut self.without };
            *sums = (sums.0 + spent_ns, sums.1 + 1);
        }
        flow
    }
}

/// Looks at each pair with dense rays.
#[derive(Default)]
struct Looking {
    fog: FogCheck,
    rooms: [SenseRoom; 2],
}

impl Looking {
    fn check_fog(&mut self, game: &Tactical) {
        let seats = game.rules().seats() as u16;
        let [of_viewer, of_target] = &mut self.rooms;
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
                let is_visible = sees(game.arena().map(), &senses, other.position, other.eye_height);
                self.fog.pairs += 1;
                match game.may_see(viewer, target) {
                    true => {
                        self.fog.shown += 1;
                        self.fog.shown_needlessly += u64::from(!is_visible);
                    }
                    false => self.fog.hidden_but_visible += u64::from(is_visible),
                }
            }
        }
    }
}

impl Observer for Looking {
    fn step(&mut self, game: &mut Tactical, input: &TickInput<'_>, scopes: &mut Scopes) -> Flow {
        let flow = game.step(input, scopes);
        if input.tick.0.is_multiple_of(FOG_TICKS) && game.phase().name() == "live" {
            self.check_fog(game);
        }
        flow
    }
}

/// Whether any of many rays from the eye reaches the body that stands at `feet`.
fn sees(map: &Map, senses: &Senses<'_>, feet: Vec3, eye_height: f32) -> bool {
    let eye = senses.me.eye();
    let across = (feet - eye).cross(Vec3::Y).normalize_or(Vec3::X) * HALF_WIDTH_M;
    let points = (0..HEIGHTS).flat_map(|step| {
        let height = 0.1 + (eye_height + ABOVE_EYE_M - 0.1) * f32::from(step) / f32::from(HEIGHTS - 1);
        [-1.0, 0.0, 1.0].map(|side| feet + Vec3::Y * height + across * side)
    });
    let smokes = senses.smokes.iter().map(|smoke| Occluder::Ball { middle: smoke.middle, radius_m: smoke.radius_m });
    let occluders: Vec<Occluder> = smokes.chain(senses.walls.iter().map(of_wall)).collect();
    points.into_iter().any(|point| {
        let is_open = Ray::between(eye, point).is_ok_and(|ray| !map.is_blocked(&ray, town::SIGHT));
        is_open && !occluders.iter().any(|occluder| occluder.blocks(eye, point))
    })
}

fn of_wall(wall: &WallSeen) -> Occluder {
    Occluder::Cuboid {
        middle: wall.foot + Vec3::Y * (wall.size_m.y / 2.0),
        half: Vec3::new(wall.size_m.x, wall.size_m.y / 2.0, wall.size_m.z),
        rotation: Quat::from_rotation_y(f32::from(wall.yaw) * std::f32::consts::TAU / 65_536.0),
    }
}
