//! Doors, lifts and walls are where they were when the shooter saw them.

use crate::support::{about, pose, skeleton};
use throng_rewind::{
    Blocker, BodyId, Break, Case, Convex, Latency, Models, Moment, OpenSpace, Outcome, PartId, Rewind, RewindOptions,
    Shot, Transform, Verdict,
};
use throng_wire::Tick;

/// One who stands at x = 10, and a part 2 m wide and 3 m high at x = 5.
fn scene() -> (Rewind, PartId) {
    let mut models = Models::new();
    let skeleton = models.add_skeleton(skeleton()).unwrap();
    let panel = models.add_shape(Convex::cuboid([0.05, 1.0, 1.5]).unwrap()).unwrap();
    let mut rewind = Rewind::new(RewindOptions::default(), models).unwrap();
    let body = rewind.add_body(skeleton).unwrap();
    for tick in 0..=200 {
        rewind.record(body, Tick(tick), &Transform::at([10.0, 0.0, 0.0]), &pose(0.0, 0.0, 0.0)).unwrap();
    }
    let part = rewind.add_part(panel, 0b01).unwrap();
    (rewind, part)
}

fn shoot(rewind: &mut Rewind, ticks: f64, mask: u32) -> Verdict {
    let shot = Shot {
        shooter: BodyId(9),
        now: Tick(200),
        claim: Moment::new(Tick(ticks as u64), ticks.fract() as f32),
        latency: Latency { rtt_us: 100_000, interpolation_us: 8_000 },
        origin_m: [0.0, 0.0, 1.65],
        direction: [1.0, 0.0, 0.0],
        range_m: 100.0,
        mask,
    };
    rewind.judge(&shot, &[BodyId(0)], &OpenSpace, &mut Case::new()).unwrap()
}

#[test]
fn a_wall_that_an_ability_made_stops_shots_of_those_who_saw_it() {
    let (mut rewind, wall) = scene();
    rewind.record_part(wall, Tick(180), &Transform::at([5.0, 0.0, 1.5])).unwrap();
    rewind.break_part(wall, Tick(190), Break::Death);
    assert!(shoot(&mut rewind, 179.9, 1).hit().is_some(), "not there yet");
    for ticks in [180.0, 183.3, 189.9] {
        let verdict = shoot(&mut rewind, ticks, 1);
        assert!(matches!(verdict.outcome, Outcome::Blocked(_)), "{ticks}: {verdict:?}");
        let block = verdict.blocked.unwrap();
        assert_eq!((block.by, block.distance_m), (Blocker::Part(wall), 4.95));
        let why = verdict.why(rewind.models()).to_string();
        assert!(why.starts_with("blocked by part 0 at 4.95 m, would have hit head of body 0"), "{why}");
    }
    assert!(shoot(&mut rewind, 190.0, 1).hit().is_some(), "gone");
    assert!(shoot(&mut rewind, 185.0, 0b10).hit().is_some(), "another mask");
}

#[test]
fn a_lift_moves_between_records_and_rests_without_them() {
    let (mut rewind, lift) = scene();
    let at = |z: f64| Transform::at([5.0, 0.0, z]);
    // Its upper edge is 1.5 m above its place. It rests below the shot, rises from tick 185 to 195 by 0.2 m per tick, and
    // rests again.
    rewind.record_part(lift, Tick(2), &at(-1.0)).unwrap();
    for tick in 186..=195 {
        rewind.record_part(lift, Tick(tick), &at(-1.0 + 0.2 * (tick - 185) as f64)).unwrap();
    }
    for (ticks, z) in [(2.0f64, -1.0), (100.0, -1.0), (185.0, -1.0), (187.5, -0.5), (193.25, 0.65), (199.0, 1.0)] {
        let given = rewind.part(lift).unwrap().sample(Moment::new(Tick(ticks as u64), ticks.fract() as f32)).unwrap();
        assert!((given.position_m[2] - z).abs() < 1e-6, "{} at {ticks}, not {z}", given.position_m[2]);
    }
    assert!(shoot(&mut rewind, 190.5, 1).hit().is_some(), "its edge is at 1.6 m");
    assert!(shoot(&mut rewind, 191.0, 1).hit().is_none(), "its edge is at 1.7 m");
}

#[test]
fn a_door_turns() {
    let (mut rewind, door) = scene();
    // Closed at tick 180, turned by a quarter around its middle at tick 184: it stands along the shot, 1 m to the side.
    let place = |y: f64, angle: f32| Transform::new([5.0, y, 1.5], about([0.0, 0.0, 1.0], angle));
    rewind.record_part(door, Tick(180), &place(0.0, 0.0)).unwrap();
    rewind.record_part(door, Tick(184), &place(1.0, std::f32::consts::FRAC_PI_2)).unwrap();
    assert!(shoot(&mut rewind, 180.0, 1).hit().is_none());
    let verdict = shoot(&mut rewind, 181.0, 1);
    let block = verdict.blocked.unwrap();
    assert!((4.9..5.3).contains(&block.distance_m) && block.by == Blocker::Part(door), "{verdict:?}");
    assert!(shoot(&mut rewind, 184.0, 1).hit().is_some(), "open");
}

#[test]
fn wrong_places_are_refused_and_counted() {
    let (mut rewind, part) = scene();
    let good = Transform::at([5.0, 0.0, 1.5]);
    rewind.record_part(part, Tick(5), &good).unwrap();
    assert_eq!(rewind.record_part(part, Tick(5), &good).unwrap_err().tag(), "record_order");
    assert_eq!(rewind.record_part(part, Tick(6), &Transform::at([f64::NAN; 3])).unwrap_err().tag(), "record_value");
    assert_eq!(rewind.record_part(PartId(7), Tick(6), &good).unwrap_err().tag(), "record_unknown");
    assert_eq!(rewind.counters().refused_records, 3);
    rewind.remove_part(part);
    assert!(shoot(&mut rewind, 190.0, 1).hit().is_some());
}
