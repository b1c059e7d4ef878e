//! The cost of a shot at 9 targets with 20 capsules each and a second of history, and of recording a pose.

#[path = "../tests/support/mod.rs"]
mod support;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use support::{Player, pose, skeleton};
use throng_rewind::{
    BodyId, Case, HistoryOptions, Latency, LogWriter, Models, Moment, OpenSpace, PoseHistory, Rewind, RewindOptions,
    Shot, Transform,
};
use throng_wire::Tick;

const NOW: u64 = 400;

struct Scene {
    rewind: Rewind,
    targets: Vec<BodyId>,
    players: Vec<Player>,
    random: fastrand::Rng,
}

impl Scene {
    fn new(place: impl Fn(usize) -> [f64; 3]) -> Scene {
        let mut models = Models::new();
        let skeleton = models.add_skeleton(skeleton()).unwrap();
        let mut rewind = Rewind::new(RewindOptions::default(), models).unwrap();
        let targets: Vec<BodyId> = (0..9).map(|_| rewind.add_body(skeleton).unwrap()).collect();
        let mut players: Vec<Player> = (0..9).map(|i| Player::new(i as u64, place(i))).collect();
        for tick in 0..=NOW {
            for (player, body) in players.iter_mut().zip(&targets) {
                player.step();
                rewind.record(*body, Tick(tick), &player.root(), &player.bones()).unwrap();
            }
        }
        Scene { rewind, targets, players, random: fastrand::Rng::with_seed(1) }
    }

    /// From a position 20 m away at a player, `spread_m` off.
    fn shots(&mut self, spread_m: f64) -> Vec<Shot> {
        (0..1_024)
            .map(|_| {
                let at = self.players[self.random.usize(..9)].at;
                let angle = self.random.f64() * std::f64::consts::TAU;
                let origin_m = [at[0] + 20.0 * angle.cos(), at[1] + 20.0 * angle.sin(), 1.65];
                let mut off = || (self.random.f64() * 2.0 - 1.0) * spread_m;
                let aim = [at[0] + off(), at[1] + off(), 1.1 + off()];
                let direction = [0, 1, 2].map(|k| aim[k] - origin_m[k]);
                shot(Moment::new(Tick(NOW - self.random.u64(3..24)), self.random.f32() * 0.99), origin_m, direction)
            })
            .collect()
    }

    fn judge_all(&mut self, shots: &[Shot], case: &mut Case) -> u32 {
        let mut hits = 0;
        for shot in shots {
            let verdict = self.rewind.judge(black_box(shot), &self.targets, &OpenSpace, case);
            hits += u32::from(verdict.is_ok_and(|verdict| verdict.hit().is_some()));
        }
        hits
    }
}

fn shot(claim: Moment, origin_m: [f64; 3], direction: [f64; 3]) -> Shot {
    Shot {
        shooter: BodyId(255),
        now: Tick(NOW),
        claim,
        latency: Latency { rtt_us: 60_000, interpolation_us: 7_812 },
        origin_m,
        direction,
        range_m: 200.0,
        mask: 1,
    }
}

fn shots(c: &mut Criterion) {
    let mut case = Case::new();
    let mut group = c.benchmark_group("shot");
    let mut town = Scene::new(|i| [(i % 3) as f64 * 12.0, (i / 3) as f64 * 12.0, 0.0]);
    for (name, spread_m) in [("at_9_in_36_m", 0.3), ("near_9_in_36_m", 1.2)] {
        let shots = town.shots(spread_m);
        group.throughput(Throughput::Elements(shots.len() as u64));
        group.bench_function(name, |b| b.iter(|| town.judge_all(&shots, &mut case)));
        let hits = town.judge_all(&shots, &mut case);
        let before = town.rewind.counters().candidates;
        town.judge_all(&shots, &mut case);
        let candidates = town.rewind.counters().candidates - before;
        println!("{name}: {hits} of {} hit, {:.2} candidates", shots.len(), candidates as f64 / shots.len() as f64);
    }
    // All nine one behind the other: the ray comes near each of them.
    let mut row = Scene::new(|i| [i as f64 * 0.5, 0.0, 0.0]);
    for (name, spread_m) in [("at_9_in_a_crowd", 0.5), ("past_9_in_a_crowd", 2.0)] {
        let shots: Vec<Shot> = row.shots(spread_m);
        group.bench_function(name, |b| b.iter(|| row.judge_all(&shots, &mut case)));
        let before = *row.rewind.counters();
        row.judge_all(&shots, &mut case);
        let (now, all) = (row.rewind.counters(), shots.len() as f64);
        println!(
            "{name}: {} hit, {:.2} candidates",
            now.hits - before.hits,
            (now.candidates - before.candidates) as f64 / all
        );
    }
    group.finish();
}

fn parts(c: &mut Criterion) {
    let skeleton = skeleton();
    let mut history = PoseHistory::new(&skeleton, HistoryOptions::default());
    let bones = pose(0.3, 1.0, 0.0);
    let mut tick = 0;
    c.bench_function("record/pose_of_20_bones", |b| {
        b.iter(|| {
            tick += 4;
            history.record(&skeleton, Tick(tick), &Transform::at([1.0, 2.0, 3.0]), black_box(&bones))
        })
    });

    let mut town = Scene::new(|i| [(i % 3) as f64 * 12.0, (i / 3) as f64 * 12.0, 0.0]);
    let shot = town.shots(0.3)[0];
    let (mut case, mut writer, mut log) = (Case::new(), LogWriter::new(), Vec::new());
    let verdict = town.rewind.judge(&shot, &town.targets, &OpenSpace, &mut case).unwrap();
    writer.append(town.rewind.models(), &case, &verdict, &mut log);
    c.bench_function("log/append", |b| {
        b.iter(|| {
            log.clear();
            writer.append(town.rewind.models(), black_box(&case), &verdict, &mut log);
        })
    });
    println!("log bytes per shot: {}; history bytes per body: {}", log.len(), history.memory_bytes());
}

criterion_group!(benches, shots, parts);
criterion_main!(benches);
