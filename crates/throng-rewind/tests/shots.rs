//! Verdicts are those of a slow judge who tests everything and knows no formula but the distance to a line.

use crate::support::{Player, pose, skeleton};
use throng_rewind::{
    Block, Blocker, BodyId, Bone, Break, Capsule, Case, Escape, Flags, Interpolation, Latency, Models, Moment,
    OpenSpace, Outcome, Rewind, RewindOptions, Shot, Skeleton, Surroundings, Transform, Verdict, WorldHit,
};
use throng_wire::Tick;

fn minus(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn length(a: [f64; 3]) -> f64 {
    dot(a, a).sqrt()
}

/// The distance from a point of the ray to the line of a capsule.
fn distance(shot: &Shot, s: f64, ends: [[f64; 3]; 2]) -> f64 {
    let unit = length(shot.direction);
    let point = [0, 1, 2].map(|k| shot.origin_m[k] + shot.direction[k] / unit * s);
    let axis = minus(ends[1], ends[0]);
    let away = minus(point, ends[0]);
    let share = if dot(axis, axis) > 0.0 { (dot(away, axis) / dot(axis, axis)).clamp(0.0, 1.0) } else { 0.0 };
    length(minus(away, axis.map(|value| value * share)))
}

/// The least distance of a ray from a capsule's line, and where the ray enters the capsule: by halving intervals, since
/// the distance from a convex thing along a line first falls and then grows.
fn slowly(shot: &Shot, ends: [[f64; 3]; 2], radius: f64) -> (f64, Option<f64>) {
    let (mut low, mut high) = (0.0, shot.range_m);
    for _ in 0..300 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if distance(shot, a, ends) < distance(shot, b, ends) { high = b } else { low = a }
    }
    let least = distance(shot, low, ends);
    if least > radius {
        return (least, None);
    }
    let (mut outside, mut inside) = (0.0, low);
    if distance(shot, 0.0, ends) <= radius {
        return (least, Some(0.0));
    }
    for _ in 0..200 {
        let middle = (outside + inside) / 2.0;
        if distance(shot, middle, ends) > radius { outside = middle } else { inside = middle }
    }
    (least, Some(inside))
}

struct Scene {
    rewind: Rewind,
    targets: Vec<BodyId>,
    case: Case,
}

impl Scene {
    fn new(players: usize, options: RewindOptions) -> Scene {
        let mut models = Models::new();
        let skeleton = models.add_skeleton(skeleton()).unwrap();
        let mut rewind = Rewind::new(options, models).unwrap();
        let targets = (0..players).map(|_| rewind.add_body(skeleton).unwrap()).collect();
        Scene { rewind, targets, case: Case::new() }
    }

    /// One player who stands at x = 10 from tick 0 to 40.
    fn standing() -> Scene {
        let mut scene = Scene::new(1, RewindOptions::default());
        for tick in 0..=40 {
            let root = Transform::at([10.0, 0.0, 0.0]);
            scene.rewind.record(BodyId(0), Tick(tick), &root, &pose(0.0, 0.0, 0.0)).unwrap();
        }
        scene
    }

    fn judge(&mut self, shot: &Shot, surroundings: &impl Surroundings) -> Verdict {
        self.rewind.judge(shot, &self.targets, surroundings, &mut self.case).unwrap()
    }
}

/// From eye height towards the head of the one who stands.
fn head_shot() -> Shot {
    Shot {
        shooter: BodyId(99),
        now: Tick(40),
        claim: Moment::at(Tick(36)),
        latency: Latency { rtt_us: 30_000, interpolation_us: 7_812 },
        origin_m: [0.0, 0.0, 1.65],
        direction: [1.0, 0.0, 0.0],
        range_m: 100.0,
        mask: u32::MAX,
    }
}

#[test]
fn every_verdict_is_that_of_a_slow_judge() {
    let (mut hits, mut near) = (0, 0);
    throng_seeds::for_seeds(12, |seed| {
        let mut scene = Scene::new(9, RewindOptions::default());
        let place = |i: u32| [5_000.0 + f64::from(i % 3) * 1.5, f64::from(i / 3) * 1.5, 0.0];
        let mut players: Vec<Player> = (0..9).map(|i| Player::new(seed * 9 + u64::from(i), place(i))).collect();
        for tick in 0..200 {
            for (player, body) in players.iter_mut().zip(&scene.targets) {
                player.step();
                scene.rewind.record(*body, Tick(tick), &player.root(), &player.bones()).unwrap();
            }
        }
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..150 {
            let shot = random_shot(&mut random, &players);
            let verdict = scene.judge(&shot, &OpenSpace);
            let (expected, least) = slow_verdict(&scene, &shot, verdict.view.moment);
            match (verdict.outcome, expected) {
                (Outcome::Hit(struck), Some((body, bone, at))) => {
                    hits += 1;
                    let is_same = (struck.body, usize::from(struck.bone)) == (body, bone);
                    let is_tie = (struck.distance_m - at).abs() < 1e-4;
                    if !is_tie {
                        return Err(format!("{verdict:?}, and slowly {bone} of {body:?} at {at}; same {is_same}"));
                    }
                }
                (Outcome::Missed(missed), None) => {
                    let given = missed.map_or(0.5, |missed| missed.missed_by_m);
                    near += usize::from(missed.is_some());
                    if (given - least.min(0.5)).abs() > 1e-4 {
                        return Err(format!("{verdict:?}, and slowly missed by {least}"));
                    }
                }
                // At the surface both are right.
                _ if least.abs() < 1e-5 => {}
                (given, expected) => return Err(format!("{given:?}, and slowly {expected:?}, {least}")),
            }
        }
        Ok(())
    });
    assert!(throng_seeds::is_partial() || (hits > 300 && near > 150), "{hits} hits and {near} near misses");
}

/// Somewhere near the players, towards one of them or into the sky, sometimes short, sometimes from inside.
fn random_shot(random: &mut fastrand::Rng, players: &[Player]) -> Shot {
    let target = random.choice(players).unwrap();
    let away = if random.bool() { 15.0 } else { 2.0 };
    let mut jitter = |most: f64| (random.f64() * 2.0 - 1.0) * most;
    let origin_m = [target.at[0] + jitter(away), target.at[1] + jitter(away), 1.0 + jitter(0.8)];
    let aim = [target.at[0] + jitter(0.6), target.at[1] + jitter(0.6), target.at[2] + 0.9 + jitter(1.1)];
    let range_m = if random.u8(..) < 30 { random.f64() * 10.0 + 0.1 } else { 200.0 };
    let claim = Moment::new(Tick(random.u64(170..199)), random.f32() * 0.999);
    Shot { now: Tick(199), claim, origin_m, direction: minus(aim, origin_m), range_m, ..head_shot() }
}

type Found = Option<(BodyId, usize, f64)>;

/// The first capsule along the ray, and the least distance from any capsule's surface; negative inside.
fn slow_verdict(scene: &Scene, shot: &Shot, moment: Moment) -> (Found, f64) {
    let (mut found, mut least): (Found, f64) = (None, f64::INFINITY);
    let mut bones = Vec::new();
    for &body in &scene.targets {
        assert!(scene.rewind.body(body).unwrap().sample(moment, Interpolation::Linear, &mut bones));
        for (number, (bone, described)) in bones.iter().zip(skeleton().bones()).enumerate() {
            let capsule = described.capsule;
            let ends = [capsule.from_m, capsule.to_m].map(|end| bone.point(end.map(f64::from)));
            let (distance, at) = slowly(shot, ends, capsule.radius_m.into());
            least = least.min(distance - f64::from(capsule.radius_m));
            if let Some(at) = at.filter(|at| found.is_none_or(|(_, _, best)| *at < best)) {
                found = Some((body, number, at));
            }
        }
    }
    (found, least)
}

#[test]
fn a_head_is_hit_where_it_was() {
    let mut scene = Scene::standing();
    let verdict = scene.judge(&head_shot(), &OpenSpace);
    let struck = verdict.hit().unwrap();
    assert_eq!((struck.body, struck.bone, struck.zone), (BodyId(0), 4, 0));
    assert!((struck.distance_m - 9.89).abs() < 1e-3, "{}", struck.distance_m);
    assert_eq!((verdict.view.rewound_ms, verdict.flags, verdict.blocked), (31.25, Flags::NONE, None));
    let why = verdict.why(scene.rewind.models()).to_string();
    assert_eq!(why, "hit head of body 0 at 9.89 m; rewound 31.2 ms");

    let high = Shot { origin_m: [0.0, 0.0, 2.0], ..head_shot() };
    let verdict = scene.judge(&high, &OpenSpace);
    let missed_by_m = verdict.missed_by_m().unwrap();
    assert!((missed_by_m - 0.22).abs() < 1e-3, "{missed_by_m}");
    assert_eq!(verdict.why(scene.rewind.models()).to_string(), "missed by 0.220 m: head of body 0; rewound 31.2 ms");
    let far = Shot { direction: [0.0, 1.0, 0.0], ..head_shot() };
    let why = scene.judge(&far, &OpenSpace).why(scene.rewind.models()).to_string();
    assert_eq!(why, "missed every target by far; rewound 31.2 ms");
}

#[test]
fn a_runner_is_hit_at_every_place_of_the_history() {
    let mut scene = Scene::new(1, RewindOptions::default());
    let x_of = |tick: u64| tick as f64 * 0.1;
    for tick in (0..=124).step_by(4) {
        scene
            .rewind
            .record(BodyId(0), Tick(tick), &Transform::at([x_of(tick), 0.0, 0.0]), &pose(0.0, 0.0, 0.0))
            .unwrap();
    }
    for tick in 98..=124 {
        let origin_m = [x_of(tick), -10.0, 1.65];
        let claim = Moment::at(Tick(tick));
        let shot = Shot { now: Tick(124), claim, origin_m, direction: [0.0, 1.0, 0.0], ..head_shot() };
        assert!(scene.judge(&shot, &OpenSpace).hit().is_some_and(|struck| struck.bone == 4), "tick {tick}");
    }
}

#[test]
fn a_shooter_is_not_hit_by_its_own_shot() {
    let mut scene = Scene::standing();
    let shot = Shot { shooter: BodyId(0), ..head_shot() };
    assert_eq!(scene.judge(&shot, &OpenSpace).outcome, Outcome::Missed(None));
}

#[test]
fn the_world_stops_a_shot_before_its_target_only() {
    let mut scene = Scene::standing();
    let wall = |at: f64| {
        move |_: [f64; 3], _: [f64; 3], range_m: f64| (at <= range_m).then_some(WorldHit { distance_m: at, surface: 7 })
    };
    let verdict = scene.judge(&head_shot(), &wall(6.0));
    assert!(matches!(verdict.outcome, Outcome::Blocked(struck) if struck.bone == 4), "{verdict:?}");
    assert_eq!(verdict.blocked, Some(Block { by: Blocker::World(7), distance_m: 6.0 }));
    let why = verdict.why(scene.rewind.models()).to_string();
    assert_eq!(
        why,
        "blocked by the world (surface 7) at 6.00 m, would have hit head of body 0 at 9.89 m; rewound 31.2 ms"
    );
    assert!(scene.judge(&head_shot(), &wall(12.0)).hit().is_some());
    // The world is asked only as far as the target, and an answer beyond that does not count.
    let eager = |_: [f64; 3], _: [f64; 3], range_m: f64| {
        assert!((9.8..9.9).contains(&range_m), "{range_m}");
        Some(WorldHit { distance_m: 12.0, surface: 7 })
    };
    assert!(scene.judge(&head_shot(), &eager).hit().is_some());
    for wrong in [f64::NAN, -1.0, f64::INFINITY] {
        let broken = move |_: [f64; 3], _: [f64; 3], _: f64| Some(WorldHit { distance_m: wrong, surface: 7 });
        assert!(scene.judge(&head_shot(), &broken).hit().is_some());
    }
}

/// A world in which body 0 has an ability.
struct Dash {
    began: Moment,
}

impl Surroundings for Dash {
    fn closest_hit(&self, _: [f64; 3], _: [f64; 3], _: f64) -> Option<WorldHit> {
        None
    }

    fn escape(&self, target: BodyId) -> Option<Escape> {
        (target == BodyId(0)).then_some(Escape { began: self.began, ability: 3 })
    }
}

#[test]
fn an_ability_that_began_before_the_shot_beats_it() {
    let mut scene = Scene::standing();
    // Half of 30 ms before tick 40: the shot was fired at tick 38.08.
    let fired = scene.rewind.options().judge.view.fired(Tick(40), head_shot().latency);
    assert_eq!(fired.tick, Tick(38));
    let verdict = scene.judge(&head_shot(), &Dash { began: Moment::at(Tick(38)) });
    assert!(matches!(verdict.outcome, Outcome::Escaped { ability: 3, struck } if struck.bone == 4), "{verdict:?}");
    let why = verdict.why(scene.rewind.models()).to_string();
    assert!(why.starts_with("escaped: ability 3 began before the shot, which would have hit head of body 0"), "{why}");
    assert!(scene.judge(&head_shot(), &Dash { began: Moment::new(Tick(38), 0.2) }).hit().is_some(), "too late");
    assert!(scene.judge(&head_shot(), &Dash { began: fired }).hit().is_some(), "at the same time: the shot");
    assert_eq!(scene.rewind.counters().escaped, 1);

    // Another target behind can be hit.
    let skeleton = scene.rewind.models_mut().add_skeleton(skeleton()).unwrap();
    let behind = scene.rewind.add_body(skeleton).unwrap();
    scene.targets.push(behind);
    scene.rewind.record(behind, Tick(30), &Transform::at([20.0, 0.0, 0.0]), &pose(0.0, 0.0, 0.0)).unwrap();
    let verdict = scene.judge(&head_shot(), &Dash { began: Moment::at(Tick(38)) });
    assert_eq!((verdict.hit().map(|struck| struck.body), verdict.flags), (Some(behind), Flags::ESCAPED | Flags::HELD));
}

#[test]
fn a_target_that_teleported_can_be_hit_where_it_was_and_the_verdict_says_so() {
    let mut scene = Scene::standing();
    scene.rewind.break_body(BodyId(0), Tick(41), Break::Teleport);
    let there = Transform::at([10.0, 50.0, 0.0]);
    scene.rewind.record(BodyId(0), Tick(41), &there, &pose(0.0, 0.0, 0.0)).unwrap();
    let shot = Shot { now: Tick(44), claim: Moment::new(Tick(40), 0.5), ..head_shot() };
    let verdict = scene.judge(&shot, &OpenSpace);
    assert!(verdict.hit().is_some());
    assert_eq!(verdict.flags, Flags::DISCONTINUITY | Flags::HELD);
    let verdict = scene.judge(&Shot { claim: Moment::at(Tick(41)), ..shot }, &OpenSpace);
    assert_eq!((verdict.hit(), verdict.flags), (None, Flags::NONE));

    scene.rewind.break_body(BodyId(0), Tick(50), Break::Spawn);
    scene.rewind.record(BodyId(0), Tick(50), &Transform::at([10.0, 0.0, 0.0]), &pose(0.0, 0.0, 0.0)).unwrap();
    let verdict = scene.judge(&Shot { now: Tick(52), claim: Moment::at(Tick(49)), ..shot }, &OpenSpace);
    assert_eq!((verdict.hit(), verdict.flags), (None, Flags::ABSENT), "a body has no past before its spawn");
    assert_eq!(scene.rewind.counters().discontinuity, 1);
}

#[test]
fn a_single_capsule_is_hit_from_every_side() {
    // A long thin capsule along x, turned upright.
    let half = std::f32::consts::FRAC_1_SQRT_2;
    let rod = Skeleton::new(vec![Bone::new("", 9, Capsule::new([-1.0, 0.0, 0.0], [1.0, 0.0, 0.0], 0.25))]).unwrap();
    let mut models = Models::new();
    let rod = models.add_skeleton(rod).unwrap();
    let mut rewind = Rewind::new(RewindOptions::default(), models).unwrap();
    let body = rewind.add_body(rod).unwrap();
    let upright = [throng_rewind::BonePose::new([0.0; 3], [0.0, half, 0.0, half])];
    rewind.record(body, Tick(0), &Transform::at([0.0; 3]), &upright).unwrap();
    let mut shoot = |origin_m: [f64; 3], direction: [f64; 3]| {
        let shot = Shot { now: Tick(0), claim: Moment::at(Tick(0)), origin_m, direction, ..head_shot() };
        let verdict = rewind.judge(&shot, &[body], &OpenSpace, &mut Case::new()).unwrap();
        verdict.hit().map(|struck| (struck.distance_m * 1e4).round() / 1e4)
    };
    assert_eq!(shoot([-5.0, 0.0, 0.5], [1.0, 0.0, 0.0]), Some(4.75), "from the side");
    assert_eq!(shoot([0.0, 0.0, 5.0], [0.0, 0.0, -1.0]), Some(3.75), "along the axis");
    assert_eq!(shoot([0.2, 0.0, 5.0], [0.0, 0.0, -1.0]), Some(3.85), "beside the axis");
    assert_eq!(shoot([0.3, 0.0, 5.0], [0.0, 0.0, -1.0]), None);
    assert_eq!(shoot([0.0, 0.0, 0.3], [1.0, 0.0, 0.0]), Some(0.0), "from inside");
    assert_eq!(shoot([-5.0, 0.0, 1.2], [1.0, 0.0, 0.0]), Some(4.85), "through the round end");
    assert_eq!(shoot([-5.0, 0.0, 1.3], [1.0, 0.0, 0.0]), None, "above it");
    assert_eq!(shoot([-5.0, 0.0, 0.5], [-1.0, 0.0, 0.0]), None, "away from it");
}
