//! Scripted duels at stated latencies: the computed advantage of the one who peeks, and the one that comes out.
//!
//! A wall at x = 5 hides everything with y < 0 from both. The holder waits at the origin; the peeker runs along x = 10
//! in the direction of y. Each sees the other once the peeker's y is above 0: the peeker on its own screen, at once; the
//! holder on a screen that shows what the server knew a while ago.

use throng_rewind::{
    BodyId, Bone, BonePose, Capsule, Case, Flags, HistoryOptions, JudgeRules, Latency, Models, Moment, Outcome,
    PeekPath, Rewind, RewindOptions, Shot, Skeleton, Transform, Verdict, ViewRules, WorldHit,
};
use throng_wire::Tick;

const TICK_MS: f64 = 1_000.0 / 128.0;
const SPEED_M_PER_MS: f64 = 0.005_4;
const PEEKER: BodyId = BodyId(0);
const HOLDER: BodyId = BodyId(1);
const STEP_MS: f64 = 0.125;

/// The wall that hides one player from the other.
fn wall(origin_m: [f64; 3], direction: [f64; 3], range_m: f64) -> Option<WorldHit> {
    let distance_m = (5.0 - origin_m[0]) / direction[0];
    let is_wall = origin_m[1] + direction[1] * distance_m < 0.0;
    (is_wall && (0.0..=range_m).contains(&distance_m)).then_some(WorldHit { distance_m, surface: 1 })
}

struct Duel {
    path: PeekPath,
    /// When the peeker's own screen first shows the holder.
    seen_ms: f64,
    rewind: Rewind,
}

impl Duel {
    /// The peeker steps out at `seen_ms`: that frame is sent when it is done, and counts from the next tick on.
    fn new(path: PeekPath, seen_ms: f64, max_ms: f64) -> Duel {
        let mut models = Models::new();
        let ball = Skeleton::new(vec![Bone::new("head", 0, Capsule::ball([0.0; 3], 0.02))]).unwrap();
        let ball = models.add_skeleton(ball).unwrap();
        // The server's estimate is right, but for the wait of the shot for its tick. So no more is tolerated.
        let view = ViewRules { max_ms, tolerance_ms: 1.01 * TICK_MS, ..ViewRules::default() };
        let options = RewindOptions {
            history: HistoryOptions::default().full_rate(),
            judge: JudgeRules { view, ..JudgeRules::default() },
        };
        let mut rewind = Rewind::new(options, models).unwrap();
        assert_eq!(rewind.add_body(ball), Ok(PEEKER));
        let frame_ms = path.enemy_client_frame_ms;
        for tick in 0..120 {
            let arrived_ms = tick as f64 * TICK_MS - path.enemy_one_way_ms - frame_ms - seen_ms;
            let frames = (arrived_ms / frame_ms + 1e-9).floor();
            let y = frames * frame_ms * SPEED_M_PER_MS + 1e-6;
            let root = Transform::at([10.0, y, 1.65]);
            rewind.record(PEEKER, Tick(tick), &root, &[BonePose::at([0.0; 3])]).unwrap();
        }
        Duel { path, seen_ms, rewind }
    }

    /// The moment that the holder's screen shows at a time.
    fn shown(&self, ms: f64) -> Moment {
        let ticks = (ms - self.path.own_one_way_ms - self.path.interpolation_ms) / TICK_MS;
        Moment::new(Tick(ticks as u64), ticks.fract() as f32)
    }

    /// The tick in which the server handles what the holder does at a time.
    fn handled(&self, ms: f64) -> Tick {
        Tick(((ms + self.path.own_one_way_ms) / TICK_MS).ceil() as u64)
    }

    /// The holder fires at what its screen shows.
    fn holder_fires(&mut self, ms: f64) -> Verdict {
        let (claim, mut bones) = (self.shown(ms), Vec::new());
        assert!(self.rewind.body(PEEKER).unwrap().sample(claim, Default::default(), &mut bones));
        let at = bones[0].position_m;
        let path = &self.path;
        let shot = Shot {
            shooter: HOLDER,
            now: self.handled(ms),
            claim,
            latency: Latency {
                rtt_us: (path.own_one_way_ms * 2_000.0) as u32,
                interpolation_us: (path.interpolation_ms * 1_000.0) as u32,
            },
            origin_m: [0.0, 0.0, 1.65],
            direction: [at[0], at[1], at[2] - 1.65],
            range_m: 100.0,
            mask: 1,
        };
        self.rewind.judge(&shot, &[PEEKER], &wall, &mut Case::new()).unwrap()
    }

    /// How much later than the peeker the holder can hit what it sees, by trying at every moment.
    fn simulated_advantage_ms(&mut self) -> f64 {
        let mut ms = self.seen_ms - 20.0;
        loop {
            let verdict = self.holder_fires(ms);
            assert_eq!(verdict.flags, Flags::NONE, "an honest view is taken as it is");
            match verdict.outcome {
                Outcome::Hit(_) => return ms - self.seen_ms,
                Outcome::Blocked(_) => ms += STEP_MS,
                other => panic!("{other:?}: the shot goes through what the screen shows"),
            }
        }
    }
}

fn paths() -> [(&'static str, PeekPath); 4] {
    let path = |fps: f64, enemy_one_way_ms, own_one_way_ms, interpolation_ms| PeekPath {
        enemy_client_frame_ms: 1_000.0 / fps,
        enemy_one_way_ms,
        server_frame_ms: TICK_MS,
        own_one_way_ms,
        interpolation_ms,
    };
    [
        ("60 Hz, 17.5 ms each", path(60.0, 17.5, 17.5, TICK_MS)),
        ("240 Hz, 5 ms and 40 ms", path(240.0, 5.0, 40.0, TICK_MS)),
        ("144 Hz on a local network", path(144.0, 0.25, 0.25, TICK_MS)),
        ("60 Hz, 80 ms each, 4 ticks of interpolation", path(60.0, 80.0, 80.0, 4.0 * TICK_MS)),
    ]
}

#[test]
fn the_simulated_advantage_is_the_computed_one() {
    const PHASES: u32 = 16;
    for (name, path) in paths() {
        let simulated: Vec<f64> = (0..PHASES)
            .map(|phase| {
                let seen_ms = 300.0 + f64::from(phase) / f64::from(PHASES) * TICK_MS;
                Duel::new(path, seen_ms, 250.0).simulated_advantage_ms()
            })
            .collect();
        let most = simulated.iter().fold(0.0f64, |most, ms| most.max(*ms));
        let mean = simulated.iter().sum::<f64>() / f64::from(PHASES);
        println!("{name}: computed {:.2} ms, simulated at most {most:.2} ms", path.advantage_ms());
        println!("  mean: computed {:.2} ms, simulated {mean:.2} ms", path.mean_advantage_ms());
        // If several frames of the client fit into a tick, the way between two ticks shows the step within the tick, up to
        // a frame of the client earlier.
        let frame_ms = path.enemy_client_frame_ms;
        let early_ms = if frame_ms < TICK_MS { frame_ms } else { 0.0 };
        let (phase_ms, error_ms) = (TICK_MS / f64::from(PHASES), 2.0 * STEP_MS);
        assert!(most <= path.advantage_ms() + error_ms, "{name}: {most}");
        assert!(most >= path.advantage_ms() - phase_ms - error_ms - early_ms, "{name}: {most}");
        let late_ms = mean - path.mean_advantage_ms();
        assert!((-phase_ms - error_ms - early_ms..=phase_ms + error_ms).contains(&late_ms), "{name}: {mean}");
    }
    let published = paths()[0].1;
    assert!((published.advantage_ms() - (16.667 + 17.5 + 7.8125 + 17.5 + 7.8125)).abs() < 0.001);
}

/// Two who react as fast as each other: the holder's shot comes later by the advantage and the difference of the ways.
#[test]
fn with_equal_reactions_the_peeker_is_first_by_the_advantage() {
    const REACTION_MS: f64 = 150.0;
    for (name, path) in paths() {
        let seen_ms = 300.0;
        let mut duel = Duel::new(path, seen_ms, 250.0);
        let advantage_ms = duel.simulated_advantage_ms();
        let peeker_ms = seen_ms + REACTION_MS + path.enemy_one_way_ms;
        let holder_ms = seen_ms + advantage_ms + REACTION_MS + path.own_one_way_ms;
        let ways_ms = path.own_one_way_ms - path.enemy_one_way_ms;
        let computed_ms = path.advantage_ms() + ways_ms;
        let late_ms = holder_ms - peeker_ms;
        assert!(
            late_ms > 0.0 && (computed_ms - TICK_MS - STEP_MS..=computed_ms + STEP_MS).contains(&late_ms),
            "{name}"
        );
        let shot = duel.holder_fires(seen_ms + advantage_ms + REACTION_MS);
        assert!(shot.hit().is_some(), "{name}: late, and still where it was seen");
    }
}

#[test]
fn without_rewinding_a_shot_at_what_is_seen_misses() {
    let path = paths()[0].1;
    let mut with = Duel::new(path, 300.0, 250.0);
    let ms = 300.0 + with.simulated_advantage_ms() + 60.0;
    assert!(with.holder_fires(ms).hit().is_some());
    let verdict = Duel::new(path, 300.0, 0.0).holder_fires(ms);
    assert_eq!(verdict.flags, Flags::CLAMPED);
    // Two ways of 17.5 ms and the interpolation at 5.4 m/s are 0.23 m.
    assert!(verdict.missed_by_m().is_some_and(|missed_m| (0.1..0.35).contains(&missed_m)), "{verdict:?}");
}
