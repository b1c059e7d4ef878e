//! Rewound bodies are where an independent calculation puts them: never beyond a break, never extrapolated.

use crate::support::{Player, about, pose, skeleton};
use proptest::prelude::*;
use throng_rewind::{
    BonePose, Break, HistoryOptions, Interpolation, MAX_BODY_M, Moment, PoseHistory, Recorded, Transform,
};
use throng_wire::Tick;

fn moment(ticks: f64) -> Moment {
    Moment::new(Tick(ticks as u64), ticks.fract() as f32)
}

/// x of the root, or none if the body was not there. In these tests the pelvis is 0.95 m above the root.
fn x_at(history: &PoseHistory, ticks: f64) -> Option<f64> {
    let mut bones = Vec::new();
    history.sample(moment(ticks), Interpolation::Linear, &mut bones).then(|| bones[0].position_m[0])
}

fn standing() -> Vec<BonePose> {
    let mut bones = pose(0.0, 0.0, 0.0);
    bones[0] = BonePose::at([0.0, 0.0, 0.95]);
    bones
}

fn at_x(x: f64) -> Transform {
    Transform::at([x, 0.0, 0.0])
}

/// The matrix of a rotation, column by column. The textbook's formula, not the one of the crate.
fn matrix(q: [f64; 4]) -> [[f64; 3]; 3] {
    let [x, y, z, w] = q;
    [
        [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y + z * w), 2.0 * (x * z - y * w)],
        [2.0 * (x * y - z * w), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z + x * w)],
        [2.0 * (x * z + y * w), 2.0 * (y * z - x * w), 1.0 - 2.0 * (x * x + y * y)],
    ]
}

fn nlerp(a: [f32; 4], b: [f32; 4], part: f64) -> [f64; 4] {
    let (a, b) = (a.map(f64::from), b.map(f64::from));
    let sign = if (0..4).map(|i| a[i] * b[i]).sum::<f64>() < 0.0 { -1.0 } else { 1.0 };
    let mix = [0, 1, 2, 3].map(|i| (1.0 - part) * a[i] + part * sign * b[i]);
    let norm = mix.iter().map(|value| value * value).sum::<f64>().sqrt();
    mix.map(|value| value / norm)
}

fn times(matrix: [[f64; 3]; 3], v: [f64; 3]) -> [f64; 3] {
    [0, 1, 2].map(|row| (0..3).map(|column| matrix[column][row] * v[column]).sum())
}

#[test]
fn bones_are_where_an_oracle_mixes_them() {
    throng_seeds::for_seeds(20, |seed| {
        let (skeleton, mut player) = (skeleton(), Player::new(seed, [4_000.0, -300.0, 0.0]));
        let mut history = PoseHistory::new(&skeleton, HistoryOptions::default());
        let mut stored: Vec<(u64, Transform, Vec<BonePose>)> = Vec::new();
        for tick in 0..200 {
            player.step();
            let (mut root, mut bones) = (player.root(), player.bones());
            if tick % 8 == 4 {
                // The same rotations, written the other way.
                root.rotation = root.rotation.map(|value| -value);
                bones.iter_mut().for_each(|bone| bone.rotation = bone.rotation.map(|value| -value));
            }
            let recorded = history.record(&skeleton, Tick(tick), &root, &bones).unwrap();
            let expected = if tick % 4 == 0 { Recorded::Stored } else { Recorded::Head };
            assert_eq!(recorded, expected, "tick {tick}");
            if tick % 4 == 0 || tick == 199 {
                stored.push((tick, root, bones));
            }
        }
        let mut bones = Vec::new();
        for _ in 0..200 {
            let ticks = 73.0 + player.random.f64() * 126.0;
            let after = stored.iter().position(|(tick, ..)| *tick as f64 > f64::from(ticks as f32)).unwrap();
            let ticks = f64::from(ticks as f32);
            let (a, b) = (&stored[after - 1], &stored[after]);
            let part = (ticks - a.0 as f64) / (b.0 - a.0) as f64;
            assert!(history.sample(moment(ticks), Interpolation::Linear, &mut bones));
            let root = matrix(nlerp(a.1.rotation, b.1.rotation, part));
            for (i, bone) in bones.iter().enumerate() {
                let mix = |a: f64, b: f64| (1.0 - part) * a + part * b;
                // The middle of the capsule moves straight, and the bone turns about it.
                let capsule = skeleton.bones()[i].capsule;
                let middle = [0, 1, 2].map(|k| f64::from(capsule.from_m[k] + capsule.to_m[k]) / 2.0);
                let of = |pose: &BonePose| {
                    let arm = times(matrix(pose.rotation.map(f64::from)), middle);
                    [0, 1, 2].map(|k| f64::from(pose.position_m[k]) + arm[k])
                };
                let (from, to) = (of(&a.2[i]), of(&b.2[i]));
                let local = matrix(nlerp(a.2[i].rotation, b.2[i].rotation, part));
                let arm = times(local, middle);
                let turned = times(root, [0, 1, 2].map(|k| mix(from[k], to[k]) - arm[k]));
                let whole = [0, 1, 2].map(|k| mix(a.1.position_m[k], b.1.position_m[k]) + turned[k]);
                // A point a metre from the bone, on each axis.
                for axis in [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]] {
                    let end = times(root, times(local, axis));
                    let (given, expected) = (bone.point(axis), [0, 1, 2].map(|k| whole[k] + end[k]));
                    let error = (0..3).map(|k| (given[k] - expected[k]).abs()).fold(0.0, f64::max);
                    assert!(error < 2e-4, "bone {i} at {ticks} is off by {error} m");
                }
            }
        }
    });
}

proptest! {
    #![proptest_config(throng_seeds::cases(300))]

    /// A body walks forward, with breaks: x grows by 0.01 m per tick, and by 100 m at each break.
    #[test]
    fn samples_stay_within_their_way_and_go_forward_in_time(
        steps in prop::collection::vec((1u64..9, 0u8..20), 2..120),
        every_ticks in 1u32..9,
    ) {
        let skeleton = skeleton();
        let options = HistoryOptions { every_ticks, poses: 256, ..HistoryOptions::default() };
        let mut history = PoseHistory::new(&skeleton, options);
        let (mut tick, mut base) = (5u64, 0.0);
        // For each way its first tick, the tick at which it ends, and its base.
        let mut ways = vec![(5u64, u64::MAX, 0.0)];
        let mut last = 5;
        for (step, kind) in steps {
            history.record(&skeleton, Tick(tick), &at_x(base + tick as f64 * 0.01), &standing()).unwrap();
            last = tick;
            tick += step;
            if kind == 0 {
                history.break_at(Tick(tick), Break::Teleport);
                base += 100.0;
                ways.last_mut().unwrap().1 = tick;
                ways.push((tick, u64::MAX, base));
            }
        }
        let mut before = f64::NEG_INFINITY;
        for eighth in 0..(last + 20) * 8 {
            let ticks = eighth as f64 / 8.0;
            let given = x_at(&history, ticks);
            let way = ways.iter().rev().find(|way| way.0 as f64 <= ticks);
            let Some(&(first, until, base)) = way.filter(|way| way.0 <= last) else {
                let is_after = way.is_some();
                prop_assert_eq!(given, None, "at {}, after the last: {}", ticks, is_after);
                continue;
            };
            let x = given.unwrap();
            // Nothing is known between the last pose of a way and its end: the body is held, never extrapolated.
            let latest = if until == u64::MAX { last as f64 } else { until as f64 };
            let (low, high) = (base + first as f64 * 0.01, base + ticks.min(latest) * 0.01);
            prop_assert!((low - 1e-9..=high + 1e-9).contains(&x), "x = {} at {}, not in {}..{}", x, ticks, low, high);
            prop_assert!(high - x < 0.01 * 9.0 + 1e-9, "held {} m behind at {}", high - x, ticks);
            prop_assert!(x >= before - 1e-12, "went back at {}", ticks);
            before = x;
        }
    }

    /// Near a stored pose the body is near it: there is no jump at the joints.
    #[test]
    fn samples_are_continuous_at_poses(seed in 0u64..1 << 40, every_ticks in 1u32..9) {
        let (skeleton, mut player) = (skeleton(), Player::new(seed, [10.0, 0.0, 0.0]));
        let mut history = PoseHistory::new(&skeleton, HistoryOptions { every_ticks, ..HistoryOptions::default() });
        for tick in 0..40 {
            player.step();
            history.record(&skeleton, Tick(tick), &player.root(), &player.bones()).unwrap();
        }
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let oldest = 40u64.saturating_sub(31 * u64::from(every_ticks)).next_multiple_of(u64::from(every_ticks)).max(1);
        for tick in oldest..39 {
            prop_assert!(history.sample(moment(tick as f64 - 1.0 / 4_096.0), Interpolation::Linear, &mut before));
            prop_assert!(history.sample(moment(tick as f64), Interpolation::Linear, &mut after));
            for (a, b) in before.iter().zip(&after) {
                let step = (0..3).map(|k| (a.position_m[k] - b.position_m[k]).abs()).fold(0.0, f64::max);
                prop_assert!(step < 1e-4, "{} m in a 4,096th of tick {}", step, tick);
            }
        }
    }
}

#[test]
fn a_life_begins_with_its_spawn_and_ends_with_its_death() {
    let skeleton = skeleton();
    let mut history = PoseHistory::new(&skeleton, HistoryOptions::default());
    let record = |history: &mut PoseHistory, tick: u64| {
        history.record(&skeleton, Tick(tick), &at_x(tick as f64 * 0.01), &standing()).unwrap()
    };
    (0..10).for_each(|tick| assert!(record(&mut history, tick) != Recorded::StoredAfterBreak));
    history.break_at(Tick(10), Break::Death);
    assert!((x_at(&history, 9.5).unwrap() - 0.09).abs() < 1e-9, "held at its last pose");
    assert_eq!(x_at(&history, 10.0), None, "gone");
    assert!((x_at(&history, 8.5).unwrap() - 0.085).abs() < 1e-9, "the last pose, between two stored ones, was kept");
    history.break_at(Tick(30), Break::Spawn);
    assert_eq!(x_at(&history, 9.5), None, "another life");
    assert_eq!(record(&mut history, 30), Recorded::Stored);
    assert_eq!((x_at(&history, 29.9), x_at(&history, 30.0)), (None, Some(0.3)));
    assert_eq!(history.newest(), Some(Tick(30)));
}

#[test]
fn a_jump_or_a_long_silence_is_a_break() {
    let skeleton = skeleton();
    let mut history = PoseHistory::new(&skeleton, HistoryOptions::default());
    let mut record = |tick: u64, x: f64| history.record(&skeleton, Tick(tick), &at_x(x), &standing()).unwrap();
    assert_eq!(record(0, 0.0), Recorded::Stored);
    assert_eq!(record(4, 1.9), Recorded::Stored);
    assert_eq!(record(6, 1.9), Recorded::Head);
    assert_eq!(record(8, 4.0), Recorded::StoredAfterBreak, "2.1 m");
    assert_eq!(record(24, 4.0), Recorded::Stored, "16 ticks");
    assert_eq!(record(41, 4.0), Recorded::StoredAfterBreak, "17 ticks");
    assert_eq!(x_at(&history, 7.9), Some(1.9), "held at the newest pose before the jump");
    assert_eq!(history.breaks(), 2);
}

#[test]
fn before_a_jump_the_body_is_held_in_its_newest_pose_with_all_bones() {
    let skeleton = skeleton();
    let mut history = PoseHistory::new(&skeleton, HistoryOptions::default());
    history.record(&skeleton, Tick(0), &at_x(0.0), &pose(0.0, 1.0, 0.0)).unwrap();
    history.record(&skeleton, Tick(2), &at_x(0.0), &pose(0.25, 1.0, 1.0)).unwrap();
    let (mut newest, mut held) = (Vec::new(), Vec::new());
    assert!(history.sample(moment(2.0), Interpolation::Linear, &mut newest));
    let recorded = history.record(&skeleton, Tick(4), &at_x(50.0), &pose(0.5, 1.0, 0.0)).unwrap();
    assert_eq!(recorded, Recorded::StoredAfterBreak);
    assert!(history.sample(moment(3.5), Interpolation::Linear, &mut held));
    assert_eq!(held, newest);
}

#[test]
fn a_history_that_is_too_short_holds_its_oldest_pose() {
    let skeleton = skeleton();
    let options = HistoryOptions { poses: 8, every_ticks: 2, ..HistoryOptions::default() };
    let mut history = PoseHistory::new(&skeleton, options);
    for tick in 0..100 {
        history.record(&skeleton, Tick(tick), &at_x(tick as f64 * 0.01), &standing()).unwrap();
    }
    // Stored: 84, 86 ... 98. The head is 99.
    assert!((x_at(&history, 20.0).unwrap() - 0.84).abs() < 1e-9);
    assert!((x_at(&history, 85.5).unwrap() - 0.855).abs() < 1e-9);
    assert!((x_at(&history, 98.5).unwrap() - 0.985).abs() < 1e-9);
    assert!((x_at(&history, 500.0).unwrap() - 0.99).abs() < 1e-9, "never extrapolated");
}

#[test]
fn a_root_alone_moves_the_newest_pose() {
    let skeleton = skeleton();
    let mut history = PoseHistory::new(&skeleton, HistoryOptions::default());
    assert_eq!(history.record_root(Tick(0), &at_x(0.0)).unwrap_err().tag(), "record_no_pose");
    history.record(&skeleton, Tick(0), &at_x(0.0), &standing()).unwrap();
    history.record_root(Tick(2), &at_x(0.5)).unwrap();
    assert_eq!(x_at(&history, 1.0), Some(0.25));
    history.record_root(Tick(4), &at_x(9.0)).unwrap();
    assert_eq!(history.newest(), Some(Tick(2)), "a pose is due in tick 4");
    let mut bones = Vec::new();
    assert!(history.sample(moment(1.0), Interpolation::Linear, &mut bones));
    assert!((bones[0].position_m[2] - 0.95).abs() < 1e-6);
}

#[test]
fn a_root_alone_moves_the_newest_pose_also_if_that_is_not_kept() {
    let skeleton = skeleton();
    let mut history = PoseHistory::new(&skeleton, HistoryOptions::default());
    let at_height = |z: f32| {
        let mut bones = standing();
        bones[0] = BonePose::at([0.0, 0.0, z]);
        bones
    };
    let mut bones = Vec::new();
    let mut height = |history: &PoseHistory, ticks: f64| {
        assert!(history.sample(moment(ticks), Interpolation::Linear, &mut bones));
        bones[0].position_m[2]
    };
    history.record(&skeleton, Tick(0), &at_x(0.0), &at_height(0.95)).unwrap();
    assert_eq!(history.record(&skeleton, Tick(1), &at_x(0.1), &at_height(0.5)).unwrap(), Recorded::Head);
    for tick in [2, 3] {
        history.record_root(Tick(tick), &at_x(0.1 * tick as f64)).unwrap();
        assert!((height(&history, tick as f64) - 0.5).abs() < 1e-6, "{}", height(&history, tick as f64));
    }
    assert_eq!(history.newest(), Some(Tick(3)));
}

#[test]
fn the_nearest_pose_is_taken_if_asked_for() {
    let skeleton = skeleton();
    let mut history = PoseHistory::new(&skeleton, HistoryOptions::default());
    for tick in [0, 4] {
        history.record(&skeleton, Tick(tick), &at_x(tick as f64 * 0.1), &standing()).unwrap();
    }
    let mut bones = Vec::new();
    for (ticks, expected) in [(1.9, 0.0), (2.1, 0.4), (4.0, 0.4)] {
        assert!(history.sample(moment(ticks), Interpolation::Nearest, &mut bones));
        assert_eq!(bones[0].position_m[0], expected, "at {ticks}");
    }
}

#[test]
fn a_second_of_twenty_bones_takes_less_than_eighteen_kibibytes() {
    let history = PoseHistory::new(&skeleton(), HistoryOptions::default());
    let bytes = history.memory_bytes();
    println!("history_bytes_per_player {bytes}");
    assert!((33 * (20 * 20 + 64)..=18 * 1_024).contains(&bytes), "{bytes} bytes");
}

#[test]
fn wrong_poses_change_nothing() {
    let skeleton = skeleton();
    let mut history = PoseHistory::new(&skeleton, HistoryOptions::default());
    history.record(&skeleton, Tick(8), &at_x(1.0), &standing()).unwrap();
    let refused = |history: &mut PoseHistory, tick: u64, root: Transform, bones: &[BonePose]| {
        history.record(&skeleton, Tick(tick), &root, bones).unwrap_err().tag()
    };
    let with = |change: fn(&mut BonePose)| {
        let mut bones = standing();
        change(&mut bones[7]);
        bones
    };
    let bones = standing();
    assert_eq!(refused(&mut history, 8, at_x(1.0), &bones), "record_order");
    assert_eq!(refused(&mut history, 7, at_x(1.0), &bones), "record_order");
    assert_eq!(refused(&mut history, 9, at_x(1.0), &bones[1..]), "record_bone_count");
    assert_eq!(refused(&mut history, 9, at_x(f64::NAN), &bones), "record_value");
    assert_eq!(refused(&mut history, 9, Transform::new([0.0; 3], [0.0; 4]), &bones), "record_value");
    assert_eq!(refused(&mut history, 9, at_x(1.0), &with(|bone| bone.position_m[1] = f32::NAN)), "record_value");
    assert_eq!(
        refused(&mut history, 9, at_x(1.0), &with(|bone| bone.position_m[1] = 2.0 * MAX_BODY_M)),
        "record_value"
    );
    assert_eq!(refused(&mut history, 9, at_x(1.0), &with(|bone| bone.rotation[3] = f32::INFINITY)), "record_value");
    assert_eq!((x_at(&history, 8.0), history.newest()), (Some(1.0), Some(Tick(8))));
    history.record(&skeleton, Tick(12), &Transform::new([1.0, 0.0, 0.0], about([0.0, 0.0, 1.0], 3.0)), &bones).unwrap();
}
