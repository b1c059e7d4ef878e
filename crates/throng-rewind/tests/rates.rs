//! Every 4th pose is enough: the verdicts are those of all poses.

use crate::support::{Player, skeleton};
use throng_rewind::{
    BodyId, Case, Comparison, HistoryOptions, Interpolation, JudgeRules, Latency, Models, Moment, OpenSpace, Rewind,
    RewindOptions, Shot,
};
use throng_wire::Tick;

const PLAYERS: u64 = 10;

/// Two rewinds of the same players, and shots at them as good players aim: half of them within 0.15 m of a bone.
fn compare(one: RewindOptions, other: RewindOptions, seed: u64, total: &mut Comparison) {
    let rewind = |options| {
        let mut models = Models::new();
        let skeleton = models.add_skeleton(skeleton()).unwrap();
        let mut rewind = Rewind::new(options, models).unwrap();
        let bodies: Vec<BodyId> = (0..PLAYERS).map(|_| rewind.add_body(skeleton).unwrap()).collect();
        (rewind, bodies)
    };
    let ((mut one, bodies), (mut other, _)) = (rewind(one), rewind(other));
    let place = |i: u64| [(i % 4) as f64 * 6.0, (i / 4) as f64 * 6.0, 0.0];
    let mut players: Vec<Player> = (0..PLAYERS).map(|i| Player::new(seed * PLAYERS + i, place(i))).collect();
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut case, mut bones) = (Case::new(), Vec::new());
    for tick in 0..128 * 8 {
        for (player, body) in players.iter_mut().zip(&bodies) {
            player.step();
            // Each player begins in a tick of its own, so not all are evaluated in the same one.
            if tick < u64::from(body.0) % 4 {
                continue;
            }
            if one.body(*body).unwrap().is_due(Tick(tick)) {
                one.record(*body, Tick(tick), &player.root(), &player.bones()).unwrap();
            } else {
                one.record_root(*body, Tick(tick), &player.root()).unwrap();
            }
            other.record(*body, Tick(tick), &player.root(), &player.bones()).unwrap();
        }
        if tick < 128 {
            continue;
        }
        for _ in 0..2 {
            let latency = Latency { rtt_us: random.u32(20_000..120_000), interpolation_us: 7_812 };
            let rules = one.options().judge.view;
            let claim = Moment::at(Tick(tick)).before(rules.ticks(latency.age_when_handled_ms()));
            let target = *random.choice(&bodies).unwrap();
            other.body(target).unwrap().sample(claim, Interpolation::Linear, &mut bones);
            let aim = random.choice(&bones).unwrap().position_m;
            let angle = random.f64() * std::f64::consts::TAU;
            let origin_m = [aim[0] + 20.0 * angle.cos(), aim[1] + 20.0 * angle.sin(), 1.65];
            let spread = if random.bool() { 0.15 } else { 0.6 };
            let direction = [0, 1, 2].map(|k| aim[k] + (random.f64() * 2.0 - 1.0) * spread - origin_m[k]);
            let shot = Shot {
                shooter: BodyId(255),
                now: Tick(tick),
                claim,
                latency,
                origin_m,
                direction,
                range_m: 100.0,
                mask: 1,
            };
            let a = one.judge(&shot, &bodies, &OpenSpace, &mut case).unwrap();
            let b = other.judge(&shot, &bodies, &OpenSpace, &mut case).unwrap();
            total.add(&a, &b);
            total.add_bones(&one, &other, target, claim);
        }
    }
    assert!(one.counters().hits * 4 > one.counters().shots, "most shots are worth a comparison");
}

#[test]
fn every_fourth_pose_gives_the_verdicts_of_all_poses() {
    let fourth = RewindOptions::default();
    let full = RewindOptions { history: HistoryOptions::default().full_rate(), ..fourth };
    let nearest = JudgeRules { interpolation: Interpolation::Nearest, ..JudgeRules::default() };
    let (mut mixed, mut rough) = (Comparison::default(), Comparison::default());
    throng_seeds::for_seeds(6, |seed| {
        compare(fourth, full, seed, &mut mixed);
        compare(RewindOptions { judge: nearest, ..fourth }, full, seed, &mut rough);
    });
    println!("linear: {mixed:?}, {:.4}; nearest: {rough:?}, {:.4}", mixed.equal_share(), rough.equal_share());
    assert!(mixed.equal_share() >= 0.995, "{} of {} shots", mixed.equal, mixed.shots);
    assert!(mixed.largest_bone_error_m < 0.06, "{} m", mixed.largest_bone_error_m);
    assert!(rough.equal_share() < mixed.equal_share(), "the nearest pose is worse, and the comparison sees it");
}
