//! Characters walk as they should, and never through anything.

use glam::{Vec3, vec3};
use throng_sight::{Map, Ray, town};
use throng_tactical::Rules;
use throng_tactical::command::{Buttons, Choice, Command, Item};
use throng_tactical::weapon::Weapon;

use crate::support::{Play, course, ground_m, quick, small_town};

/// How far somebody gets in a second after a start, with a command.
fn pace(change: impl Fn(&mut Command)) -> f32 {
    let mut play = Play::live(quick());
    play.put(0, vec3(-50.0, 0.0, 20.0), Vec3::X);
    play.hold(0, 64, &change);
    let from = play.me(0).position;
    play.hold(0, 128, &change);
    play.me(0).position.distance(from)
}

#[test]
fn the_speed_depends_on_the_gait() {
    let run = pace(|command| command.forward = 127);
    let full = Weapon::Pistol.facts().speed;
    assert!((run - full).abs() < 0.05, "{run}");
    let half = pace(|command| command.forward = 64);
    assert!((half - full * 64.0 / 127.0).abs() < 0.05, "{half}");
    let aslant = pace(|command| (command.forward, command.right) = (127, 127));
    assert!((aslant - full).abs() < 0.05, "not faster aslant: {aslant}");
    let walk = pace(|command| (command.forward, command.buttons) = (127, Buttons::WALK));
    let crouch = pace(|command| (command.forward, command.buttons) = (127, Buttons::CROUCH));
    assert!(crouch > 1.0 && crouch < walk && walk < 0.6 * run, "{crouch} {walk} {run}");
    assert!(pace(|_| ()) < 0.01);
}

#[test]
fn the_speed_does_not_depend_on_the_tick_rate() {
    let distance = |tick_hz: u32| {
        let mut play = Play::live(Rules { tick_hz, ..quick() });
        play.put(0, vec3(-50.0, 0.0, 20.0), Vec3::X);
        play.hold(0, 2 * tick_hz, |command| command.forward = 127);
        play.me(0).position.x
    };
    let usual = distance(128);
    for tick_hz in [20, 60, 500] {
        let other = distance(tick_hz);
        assert!((other - usual).abs() < 0.4, "{tick_hz} Hz: {other} instead of {usual}");
    }
}

#[test]
fn a_wall_without_thickness_stops_every_speed_at_every_tick_rate() {
    for tick_hz in [10, 20, 64, 128] {
        for dashes in [false, true] {
            for offset in 0..4 {
                let mut play = Play::new(course(), Rules { tick_hz, buy_s: 1.0, ..quick() }, 1);
                let dash = Command { choice: Choice::Buy(Item::Dash), ..Command::default() };
                play.send(0, dash);
                play.until(throng_tactical::senses::RoundPhase::Live);
                play.put(0, vec3(17.3 + 0.11 * offset as f32, 0.0, 0.0), Vec3::X);
                let buttons = if dashes { Buttons::DASH } else { Buttons::NONE };
                play.hold(0, tick_hz, |command| (command.forward, command.buttons) = (127, buttons));
                let x = play.me(0).position.x;
                assert!((19.4..19.66).contains(&x), "{tick_hz} Hz, dash {dashes}: stopped at {x}");
                assert_eq!(play.me(0).charges.dash, u8::from(!dashes));
            }
        }
    }
}

#[test]
fn stairs_are_climbed_and_descended_without_a_jump() {
    let mut play = Play::live(quick());
    play.put(0, vec3(-18.0, 0.0, -30.0), Vec3::NEG_X);
    play.hold(0, 256, |command| command.forward = 127);
    let top = play.me(0);
    assert!((top.position.y - 3.0).abs() < 0.01 && top.position.x < -25.0, "{}", top.position);
    play.put(0, vec3(-25.0, 3.0, -30.0), Vec3::X);
    let mut was_in_the_air = false;
    for _ in 0..256 {
        play.hold(0, 1, |command| command.forward = 127);
        was_in_the_air |= !play.me(0).is_grounded;
    }
    assert!(play.me(0).position.y.abs() < 0.01 && play.me(0).position.x > -18.0, "{}", play.me(0).position);
    assert!(!was_in_the_air, "feet stay on the steps");
}

#[test]
fn a_kerb_is_walked_over_and_a_block_needs_a_jump() {
    let highest = |z: f32, buttons: Buttons| {
        let mut play = Play::live(quick());
        play.put(0, vec3(27.0, 0.0, z), Vec3::X);
        let mut highest = 0.0f32;
        for tick in 0..100 {
            let buttons = if tick == 25 { buttons } else { Buttons::NONE };
            play.hold(0, 1, |command| (command.forward, command.buttons) = (127, buttons));
            let me = play.me(0);
            highest = if me.is_grounded { highest.max(me.position.y) } else { highest };
        }
        highest
    };
    assert!((highest(30.0, Buttons::NONE) - 0.3).abs() < 0.01);
    assert!(highest(40.0, Buttons::NONE) < 0.01);
    assert!((highest(40.0, Buttons::JUMP) - 0.7).abs() < 0.01);
}

#[test]
fn under_a_low_roof_one_has_to_crouch_and_cannot_stand_up() {
    let mut play = Play::live(quick());
    play.put(0, vec3(35.0, 0.0, 0.0), Vec3::X);
    play.hold(0, 200, |command| command.forward = 127);
    assert!(play.me(0).position.x < 38.0, "the roof stops those who stand: {}", play.me(0).position);
    play.hold(0, 200, |command| (command.forward, command.buttons) = (127, Buttons::CROUCH));
    let under = play.me(0);
    assert!((38.5..41.5).contains(&under.position.x), "{}", under.position);
    play.hold(0, 64, |_| ());
    assert!(
        play.me(0).eye_height < 1.3 && play.me(0).position.distance(under.position) < 0.1,
        "there is no room to stand up: {:?}, {under:?}",
        play.me(0)
    );
    play.hold(0, 256, |command| command.forward = 127);
    assert!(play.me(0).eye_height > 1.6 && play.me(0).position.x > 42.0);
}

#[test]
fn a_jump_rises_and_a_fall_ends_on_the_ground() {
    let mut play = Play::live(quick());
    play.put(0, vec3(0.0, 0.0, 20.0), Vec3::X);
    let mut highest = 0.0f32;
    for tick in 0..128 {
        let buttons = if tick == 0 { Buttons::JUMP } else { Buttons::NONE };
        play.hold(0, 1, |command| command.buttons = buttons);
        highest = highest.max(play.me(0).position.y);
    }
    assert!((0.75..0.95).contains(&highest), "{highest}");
    assert_eq!((play.me(0).position.y, play.me(0).is_grounded), (0.0, true));
    play.put(0, vec3(0.0, 40.0, 20.0), Vec3::X);
    play.hold(0, 4, |_| ());
    assert!(!play.me(0).is_grounded);
    play.hold(0, 512, |_| ());
    assert_eq!((play.me(0).position.y, play.me(0).is_grounded), (0.0, true));
}

#[test]
fn nobody_moves_or_is_posed_in_the_buy_phase() {
    let mut play = Play::new(course(), Rules { buy_s: 1.0, ..Rules::default() }, 1);
    let from = play.me(0).position;
    play.hold(0, 100, |command| (command.forward, command.buttons) = (127, Buttons::JUMP | Buttons::FIRE));
    assert_eq!(play.me(0).position, from);
    let counters = play.game.counters();
    assert_eq!((counters.poses, counters.shots, counters.map_queries), (0, 0, 0));
    // Of ten players, 2.5 are posed in each tick of other phases.
    let poses = counters.poses_saved_by_phase;
    assert!(poses.abs_diff(10 * counters.steps / 4) <= 3, "{poses} in {} steps", counters.steps);
    assert_eq!(poses + counters.poses_saved_by_cadence, 10 * counters.steps);
    assert!(counters.fog_saved_by_phase >= 100);
}

/// Random runs, jumps, crouches and dashes of everybody, on a seed.
fn wander(random: &mut fastrand::Rng, command: &mut Command, tick: u64) {
    if tick.is_multiple_of(96) || random.u8(..200) == 0 {
        command.yaw = random.u16(..);
        command.forward = if random.u8(..6) == 0 { random.i8(-127..=127) } else { 127 };
        command.right = if random.bool() { 0 } else { random.i8(-127..=127) };
    }
    command.buttons =
        [Buttons::NONE, Buttons::JUMP, Buttons::CROUCH, Buttons::DASH, Buttons::NONE, Buttons::NONE][random.usize(..6)];
}

/// A place on the ground, in a house or outside, where a body touches nothing.
fn free_place(map: &Map, random: &mut fastrand::Rng) -> Vec3 {
    let [lowest, highest] = map.bounds();
    loop {
        let mut between = |axis: usize| lowest[axis] + (highest[axis] - lowest[axis]) * random.f32();
        let above = vec3(between(0), 1.5, between(2));
        let Some(height) = ground_m(map, above).filter(|height| (-0.01..0.2).contains(height)) else { continue };
        let feet = vec3(above.x, height, above.z);
        let mut is_free = true;
        let (low, high) = (feet + vec3(-0.4, 0.2, -0.4), feet + vec3(0.4, 1.9, 0.4));
        map.for_each_triangle_in(low, high, town::BODIES, |_, _| is_free = false);
        if is_free {
            return feet;
        }
    }
}

#[test]
fn nobody_ever_goes_through_a_wall_or_out_of_the_town() {
    let arena = small_town();
    let map = arena.map();
    let [lowest, highest] = map.bounds();
    let (mut way_m, mut inside) = (0.0f64, 0);
    throng_seeds::for_seeds(3, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut play =
            Play::new(arena.clone(), Rules { buy_s: 0.1, money: 9_000, has_fog: false, ..Rules::default() }, seed);
        for seat in 0..10 {
            for _ in 0..2 {
                play.send(seat, Command { choice: Choice::Buy(Item::Dash), ..Command::default() });
            }
        }
        play.until(throng_tactical::senses::RoundPhase::Live);
        for seat in 0..10 {
            play.put(seat, free_place(map, &mut random), Vec3::X);
        }
        let mut commands = [Command::default(); 10];
        let mut before: Vec<Vec3> = (0..10).map(|seat| play.me(seat).position).collect();
        for tick in 0..1_500 {
            for seat in 0..10 {
                wander(&mut random, &mut commands[usize::from(seat)], tick + u64::from(seat) * 5);
                let moment = Command { view_tick: play.tick as u32, ..commands[usize::from(seat)] };
                play.send(seat, moment);
            }
            play.step();
            for seat in 0..10 {
                let me = play.me(seat);
                let from = &mut before[usize::from(seat)];
                // A point that is inside of every body, standing and crouched.
                let middle = vec3(0.0, 0.85, 0.0);
                let (a, b) = (*from + middle, me.position + middle);
                let way = Ray::between(a, b).unwrap();
                assert!(!map.is_blocked(&way, town::BODIES), "seat {seat}, tick {tick}: through a wall, {a} to {b}");
                let is_in = lowest.cmple(me.position + 0.2).all() && me.position.cmple(highest).all();
                assert!(is_in, "seat {seat}, tick {tick}: out of the town, {}", me.position);
                if me.is_grounded {
                    // Ground under the feet, or under one of their sides.
                    let near = [Vec3::ZERO, 0.2 * Vec3::X, -0.2 * Vec3::X, 0.2 * Vec3::Z, -0.2 * Vec3::Z];
                    let has_ground = near.iter().any(|side| {
                        let above = me.position + *side + vec3(0.0, 0.3, 0.0);
                        ground_m(map, above).is_some_and(|height| height > me.position.y - 0.6)
                    });
                    assert!(has_ground, "seat {seat}, tick {tick}: nothing under the feet at {}", me.position);
                }
                way_m += f64::from(from.distance(me.position));
                inside += u32::from(ground_m(map, b + vec3(0.0, 0.2, 0.0)).is_some_and(|height| height > 0.05));
                *from = me.position;
            }
        }
        assert_eq!(play.game.counters().fallen, 0);
    });
    assert!(way_m > 300.0, "they hardly moved: {way_m} m");
    assert!(inside > 300, "they were never in a house or on anything: {inside}");
}

#[test]
fn the_triangles_that_are_kept_change_nothing() {
    // A character that was put elsewhere and back has other triangles at hand, and goes the same way.
    let arena = small_town();
    let end = |detour: bool| {
        let mut play = Play::new(arena.clone(), quick(), 5);
        play.until(throng_tactical::senses::RoundPhase::Live);
        let from = play.me(0).position;
        if detour {
            play.put(0, arena.spawns(throng_tactical::senses::Team::Defenders)[7], Vec3::X);
        }
        play.hold(0, 1, |_| ());
        play.put(0, from, Vec3::X);
        play.hold(0, 500, |command| (command.forward, command.yaw) = (127, 15_000));
        play.me(0).position
    };
    assert_eq!(end(false).to_array().map(f32::to_bits), end(true).to_array().map(f32::to_bits));
}
