//! Recording and judging do not allocate once the first shots are behind them.

mod support;

use support::{about, pose, skeleton};
use throng_counting::so_far;
use throng_rewind::{
    BodyId, BonePose, Break, Case, Convex, Latency, LogWriter, Models, Moment, OpenSpace, Rewind, RewindOptions, Shot,
    Transform,
};
use throng_wire::Tick;

#[test]
fn a_match_that_is_played_for_a_while_allocates_nothing() {
    let mut models = Models::new();
    let skeleton = models.add_skeleton(skeleton()).unwrap();
    let door = models.add_shape(Convex::cuboid([0.5, 2.0, 3.0]).unwrap()).unwrap();
    let mut rewind = Rewind::new(RewindOptions::default(), models).unwrap();
    let bodies: Vec<BodyId> = (0..10).map(|_| rewind.add_body(skeleton).unwrap()).collect();
    let door = rewind.add_part(door, 1).unwrap();
    let poses: Vec<Vec<BonePose>> = (0..16).map(|i| pose(i as f32 / 16.0, 1.0, 0.0)).collect();
    let (mut case, mut writer, mut log) = (Case::new(), LogWriter::new(), Vec::with_capacity(1 << 16));
    let mut tick_of = |rewind: &mut Rewind, tick: u64| {
        for (i, body) in bodies.iter().enumerate() {
            let root = Transform::new([2.0 * i as f64, tick as f64 * 0.01, 0.0], about([0.0, 0.0, 1.0], tick as f32));
            rewind.record(*body, Tick(tick), &root, &poses[tick as usize % 16]).unwrap();
            if tick % 100 == 7 {
                rewind.break_body(*body, Tick(tick + 1), Break::Teleport);
            }
        }
        rewind.record_part(door, Tick(tick), &Transform::at([9.0, tick as f64 * 0.01, 0.0])).unwrap();
        if tick < 10 {
            return;
        }
        // Through all of them.
        let shot = Shot {
            shooter: bodies[0],
            now: Tick(tick),
            claim: Moment::new(Tick(tick - 5), 0.3),
            latency: Latency { rtt_us: 30_000, interpolation_us: 7_812 },
            origin_m: [-5.0, tick as f64 * 0.01, 1.0],
            direction: [1.0, 0.0, 0.001],
            range_m: 100.0,
            mask: 1,
        };
        log.clear();
        let verdict = rewind.judge(&shot, &bodies, &OpenSpace, &mut case).unwrap();
        writer.append(rewind.models(), &case, &verdict, &mut log);
    };
    (0..200).for_each(|tick| tick_of(&mut rewind, tick));
    let before = so_far();
    (200..2_000).for_each(|tick| tick_of(&mut rewind, tick));
    let after = so_far();
    assert!(before > 0, "the allocator counts");
    assert!(rewind.counters().candidates > 1_800, "the shots were worth something");
    assert_eq!(after, before, "allocations in 1,800 ticks with a shot each");
}
