//! Fog hides nobody who is seen, and hides those behind walls.

mod cells;
mod walkers;

use fastrand::Rng;
use glam::{Quat, Vec3, vec3};
use throng_seeds::for_seeds;
use throng_sight::fog::{Fog, FogAudit, FogOptions, FogWalls, Occluder, Target, Viewer};
use throng_sight::{Layers, Map, Mesh, Ray, bake, town};

use crate::support::push;
use walkers::{Town, Walker};

const TICK_HZ: f32 = 128.0;

/// Whether any of some hundred lines from an eye into a box is free.
fn sees(map: &Map, sight: Layers, occluders: &[Occluder], eye: Vec3, [lowest, highest]: [Vec3; 2]) -> bool {
    const STEPS: [u32; 3] = [6, 10, 6];
    let share = |step: u32, axis: usize| step as f32 / (STEPS[axis] - 1) as f32;
    (0..STEPS[0] * STEPS[1] * STEPS[2]).any(|number| {
        let (x, y, z) = (number % STEPS[0], number / STEPS[0] % STEPS[1], number / STEPS[0] / STEPS[1]);
        let point = lowest + (highest - lowest) * vec3(share(x, 0), share(y, 1), share(z, 2));
        let is_free = |point| Ray::between(eye, point).is_ok_and(|ray| !map.is_blocked(&ray, sight));
        !occluders.iter().any(|occluder| occluder.blocks(eye, point)) && is_free(point)
    })
}

/// The findings of a run of walkers through a town.
#[derive(Default)]
struct Found {
    /// Pairs that were hidden although the viewer's screen showed a free line.
    wrong: Vec<String>,
    sent: u64,
    /// Sent, and no line was free.
    needless: u64,
    hidden: u64,
}

/// Two teams of five walk for some seconds. The screens of all show each tick a latency later.
fn walk(town: &Town, seed: u64, latency_ms: f32, occluders: &[Occluder]) -> (Found, Fog) {
    let mut random = Rng::with_seed(seed);
    let mut walkers: Vec<Walker> = (0..10).map(|_| town.walker(&mut random)).collect();
    let mut fog = Fog::new(FogOptions::default(), 10, 10);
    let late_ticks = (latency_ms / 1_000.0 * TICK_HZ).floor() as usize;
    // For each tick: boxes, and who may see whom.
    let mut past: Vec<(Vec<[Vec3; 2]>, Vec<bool>)> = Vec::new();
    let mut found = Found::default();
    for tick in 0..3 * TICK_HZ as u64 {
        walkers.iter_mut().for_each(|walker| walker.step(&town.map, 1.0 / TICK_HZ, &mut random));
        let viewers: Vec<Option<Viewer>> =
            walkers.iter().enumerate().map(|(place, walker)| Some(walker.viewer(place, latency_ms))).collect();
        let targets: Vec<Option<Target>> =
            walkers.iter().enumerate().map(|(place, walker)| Some(walker.target(place))).collect();
        fog.update(tick, &town.world(occluders), &viewers, &targets);
        let may_see = (0..100).map(|pair| fog.may_see(pair / 10, pair % 10)).collect();
        past.push((walkers.iter().map(Walker::bounds).collect(), may_see));
        let Some(shown) = (tick as usize).checked_sub(late_ticks) else { continue };
        if tick % 3 != 0 {
            continue;
        }
        let (boxes, may_see) = &past[shown];
        for pair in (0..100).filter(|pair| pair / 10 % 2 != pair % 10 % 2) {
            let (viewer, target) = (pair / 10, pair % 10);
            let eye = walkers[viewer].eye();
            // Those that are sent need fewer looks.
            if may_see[pair] && !random.u8(..).is_multiple_of(16) {
                continue;
            }
            let is_seen = sees(&town.map, town::SIGHT, occluders, eye, boxes[target]);
            match (may_see[pair], is_seen) {
                (false, false) => found.hidden += 1,
                (false, true) => {
                    found.wrong.push(format!("tick {tick}, {viewer} at {eye} sees {target} at {:?}", boxes[target]))
                }
                (true, is_seen) => {
                    found.sent += 1;
                    found.needless += u64::from(!is_seen);
                }
            }
        }
    }
    (found, fog)
}

#[test]
fn nobody_is_hidden_who_is_seen_at_any_latency() {
    let town = Town::new(3, 60_000);
    let walk_with = |latency_ms| report(&town, latency_ms, &[]);
    std::thread::scope(|scope| {
        for latency_ms in [0.0, 30.0, 80.0, 150.0] {
            scope.spawn(move || walk_with(latency_ms));
        }
    });
}

#[test]
fn nobody_is_hidden_who_is_seen_between_smokes_and_walls() {
    let town = Town::new(4, 60_000);
    let mut random = Rng::with_seed(9);
    let [low, high] = town.map.bounds();
    let mut place = |height| (low + (high - low) * vec3(random.f32(), 0.0, random.f32())).with_y(height);
    let occluders: Vec<Occluder> = (0..30)
        .map(|number| match number % 2 {
            0 => Occluder::Ball { middle: place(1.5), radius_m: 4.0 },
            _ => {
                let rotation = Quat::from_rotation_y(number as f32);
                Occluder::Cuboid { middle: place(2.0), half: vec3(4.0, 2.5, 0.2), rotation }
            }
        })
        .collect();
    report(&town, 60.0, &occluders);
}

fn report(town: &Town, latency_ms: f32, occluders: &[Occluder]) {
    let (mut sent, mut needless, mut hidden, mut looks, mut rays) = (0, 0, 0, 0, 0);
    for_seeds(3, |seed| {
        let (found, fog) = walk(town, seed, latency_ms, occluders);
        sent += 16 * found.sent;
        needless += 16 * found.needless;
        hidden += found.hidden;
        looks += fog.counts().looks;
        rays += fog.counts().rays;
        match found.wrong.first() {
            None => Ok(()),
            Some(first) => Err(format!("{} hidden but visible at {latency_ms} ms: {first}", found.wrong.len())),
        }
    });
    println!(
        "{latency_ms} ms: none of {hidden} hidden was visible; about {sent} sent, {:.1} % of them needlessly; {:.1} rays per look",
        100.0 * needless as f64 / sent as f64,
        rays as f64 / looks as f64
    );
    assert!(throng_seeds::is_partial() || hidden > 300, "only {hidden} were hidden: nothing was tried");
}

/// A wall across x at zero, from z = -20 to 20 and 8 m high, with a hole from z = -`hole_m` to `hole_m`; and a floor.
fn wall(hole_m: f32) -> (Map, FogWalls) {
    let mut mesh = Mesh::default();
    let mut quad = |corners: [Vec3; 4]| {
        let [a, b, c, d] = corners;
        push(&mut mesh, [a, b, c]);
        push(&mut mesh, [a, c, d]);
    };
    for side in [-1.0, 1.0] {
        let (from, to) = (side * hole_m, side * 20.0);
        quad([vec3(0.0, -1.0, from), vec3(0.0, -1.0, to), vec3(0.0, 8.0, to), vec3(0.0, 8.0, from)]);
    }
    quad([vec3(-50.0, 0.0, -50.0), vec3(50.0, 0.0, -50.0), vec3(50.0, 0.0, 50.0), vec3(-50.0, 0.0, 50.0)]);
    let map = bake(&mesh).unwrap();
    let walls = FogWalls::new(&map, Layers::ALL, Layers::ALL).unwrap();
    (map, walls)
}

fn viewer(eye: Vec3, latency_ms: f32) -> Option<Viewer> {
    Some(Viewer { group: 0, eye, velocity: Vec3::ZERO, speed_max_mps: 6.0, latency_ms })
}

fn target(feet: Vec3) -> Option<Target> {
    let half = vec3(0.4, 0.0, 0.4);
    let (lowest, highest) = (feet - half, feet + half + 1.8 * Vec3::Y);
    Some(Target { group: 1, lowest, highest, velocity: Vec3::ZERO, speed_max_mps: 6.0 })
}

/// Whether a new fog shows the target.
fn is_shown(walls: &FogWalls, occluders: &[Occluder], viewer: Option<Viewer>, target: Option<Target>) -> bool {
    let mut fog = Fog::new(FogOptions::default(), 1, 1);
    fog.update(0, &throng_sight::fog::FogWorld { walls, occluders }, &[viewer], &[target]);
    fog.may_see(0, 0)
}

#[test]
fn a_wall_hides_and_a_hole_of_two_centimetres_shows() {
    let (eye, feet) = (vec3(-10.0, 1.6, 1.0), vec3(10.0, 0.0, 0.0));
    assert!(!is_shown(&wall(0.0).1, &[], viewer(eye, 50.0), target(feet)));
    assert!(is_shown(&wall(0.01).1, &[], viewer(eye, 50.0), target(feet)));
    // Through the hole the line leads past the target, so far away that it cannot come there in time.
    assert!(!is_shown(&wall(0.01).1, &[], viewer(eye.with_z(9.0), 50.0), target(feet)));
}

#[test]
fn a_longer_latency_shows_earlier_and_only_up_to_a_limit() {
    let (_, walls) = wall(0.0);
    // Along the wall to its end at z = 20, which is 3 m away.
    let (eye, feet) = (vec3(-1.0, 1.6, 17.0), vec3(12.0, 0.0, 17.0));
    let shown: Vec<bool> =
        [0.0, 100.0, 600.0, 1e9].map(|ms| is_shown(&walls, &[], viewer(eye, ms), target(feet))).to_vec();
    let near = is_shown(&walls, &[], viewer(eye.with_z(18.8), 250.0), target(feet));
    assert_eq!((shown, near), (vec![false, false, false, false], true));
}

#[test]
fn a_latency_lets_the_eye_move_on_and_not_the_target() {
    let (_, walls) = wall(0.0);
    // The target is 1 m from the end of the wall at z = 20: more than it runs until the next look.
    let still = |eye: Vec3, latency_ms| viewer(eye, latency_ms).map(|viewer| Viewer { speed_max_mps: 0.0, ..viewer });
    let (eye, feet) = (vec3(-10.0, 1.6, 19.8), vec3(10.0, 0.0, 18.4));
    assert!([0.0, 100.0, 250.0].iter().all(|ms| !is_shown(&walls, &[], still(eye, *ms), target(feet))));
    assert!(is_shown(&walls, &[], viewer(eye, 250.0), target(feet)), "an eye that runs comes round the end");
    // Sent so much earlier than it can be seen, it may have run there.
    let mut fog = Fog::new(FogOptions { ahead_ticks: 32, ..FogOptions::default() }, 1, 1);
    let world = throng_sight::fog::FogWorld { walls: &walls, occluders: &[] };
    fog.update(0, &world, &[still(eye, 0.0)], &[target(feet)]);
    assert!(fog.may_see(0, 0));
}

#[test]
fn a_target_in_sight_costs_nothing_until_it_may_be_hidden_again() {
    let (_, walls) = wall(5.0);
    let world = throng_sight::fog::FogWorld { walls: &walls, occluders: &[] };
    let (eye, seen, hidden) = (vec3(-10.0, 1.6, 0.0), vec3(10.0, 0.0, 0.0), vec3(10.0, 0.0, 15.0));
    let options = FogOptions { interval_ticks: 2, linger_ticks: 8, ..FogOptions::default() };
    let looks = |feet: Vec3| {
        let mut fog = Fog::new(options, 1, 1);
        (0..64).for_each(|tick| fog.update(tick, &world, &[viewer(eye, 50.0)], &[target(feet)]));
        (fog.may_see(0, 0), fog.counts().looks)
    };
    assert_eq!(looks(seen), (true, 8));
    assert_eq!(looks(hidden), (false, 32));
}

#[test]
fn a_smoke_hides_only_if_it_hides_everything_and_its_end_shows_at_once() {
    let (map, walls) = wall(5.0);
    let (eye, feet) = (vec3(-10.0, 1.6, 0.0), vec3(10.0, 0.0, 0.0));
    assert!(!map.is_blocked(&Ray::between(eye, feet + Vec3::Y).unwrap(), Layers::ALL));
    let smoke = |radius_m| Occluder::Ball { middle: vec3(0.0, 1.5, 0.0), radius_m };
    assert!(is_shown(&walls, &[], viewer(eye, 50.0), target(feet)));
    assert!(is_shown(&walls, &[smoke(1.0)], viewer(eye, 50.0), target(feet)));
    assert!(!is_shown(&walls, &[smoke(3.5)], viewer(eye, 50.0), target(feet)));
    let rotation = Quat::from_rotation_y(0.5);
    let cuboid = |half| Occluder::Cuboid { middle: vec3(1.0, 1.0, 0.0), half, rotation };
    assert!(is_shown(&walls, &[cuboid(vec3(0.2, 3.0, 0.4))], viewer(eye, 50.0), target(feet)));
    assert!(!is_shown(&walls, &[cuboid(vec3(0.2, 3.0, 4.0))], viewer(eye, 50.0), target(feet)));

    let mut fog = Fog::new(FogOptions { linger_ticks: 0, ..FogOptions::default() }, 1, 1);
    let mut shown = Vec::new();
    for tick in 0..12 {
        let occluders = if tick < 6 { vec![smoke(3.5)] } else { vec![] };
        let world = throng_sight::fog::FogWorld { walls: &walls, occluders: &occluders };
        fog.update(tick, &world, &[viewer(eye, 50.0)], &[target(feet)]);
        shown.push(fog.may_see(0, 0));
    }
    assert_eq!(shown, [vec![false; 6], vec![true; 6]].concat());
}

#[test]
fn teams_the_absent_and_those_who_jump_are_decided_in_the_same_tick() {
    let (_, walls) = wall(0.0);
    let world = throng_sight::fog::FogWorld { walls: &walls, occluders: &[] };
    let mut fog = Fog::new(FogOptions { linger_ticks: 0, ..FogOptions::default() }, 1, 2);
    let mate = target(vec3(10.0, 0.0, 3.0)).map(|target| Target { group: 0, ..target });
    let mut update = |tick, eye, enemy| {
        fog.update(tick, &world, &[viewer(eye, 50.0)], &[target(enemy), mate]);
        [fog.may_see(0, 0), fog.may_see(0, 1)]
    };
    let (here, there) = (vec3(-10.0, 1.6, 0.0), vec3(10.0, 0.0, 0.0));
    assert_eq!(update(1, here, there), [false, true]);
    assert_eq!(update(2, here, there.with_x(-5.0)), [true, true], "the enemy jumps");
    assert_eq!(update(3, here, there), [false, true]);
    assert_eq!(update(5, here.with_x(9.0), there), [true, true], "the viewer jumps");
    assert_eq!(update(6, Vec3::NAN, there), [true, true], "on doubt it is shown");
    fog.update(7, &world, &[None], &[target(there), mate]);
    assert_eq!([fog.may_see(0, 0), fog.may_see(0, 1)], [false, false]);
}

/// As at the beginning of a round, after which nobody is looked at for a while.
#[test]
fn who_was_seen_before_a_jump_does_not_stay_in_sight_after_it() {
    let (_, walls) = wall(0.0);
    let world = throng_sight::fog::FogWorld { walls: &walls, occluders: &[] };
    let options = FogOptions::default();
    assert!(options.linger_ticks > 1);
    let (here, hidden) = (vec3(-10.0, 1.6, 0.0), vec3(10.0, 0.0, 0.0));
    for (from, to) in [((here, hidden.with_x(-5.0)), (here, hidden)), ((here.with_x(9.0), hidden), (here, hidden))] {
        let mut fog = Fog::new(options, 1, 1);
        let mut update = |tick, (eye, enemy): (Vec3, Vec3)| {
            fog.update(tick, &world, &[viewer(eye, 50.0)], &[target(enemy)]);
            fog.may_see(0, 0)
        };
        assert!(update(1, from));
        assert!(!update(2, to), "one of them was put behind the wall");
    }
}

#[test]
fn who_changes_the_team_is_looked_at_in_the_same_tick() {
    let (_, walls) = wall(0.0);
    let world = throng_sight::fog::FogWorld { walls: &walls, occluders: &[] };
    let mut fog = Fog::new(FogOptions { interval_ticks: 8, linger_ticks: 0, ..FogOptions::default() }, 1, 1);
    let (eye, there) = (viewer(vec3(-10.0, 1.6, 0.0), 50.0), target(vec3(10.0, 0.0, 0.0)));
    // With an interval of 8 ticks the viewer has its turn in tick 8.
    let mate = there.map(|target| Target { group: 0, ..target });
    let other = eye.map(|viewer| Viewer { group: 1, ..viewer });
    for tick in 1..7 {
        for (viewer, target, may_see) in
            [(eye, there, false), (eye, mate, true), (eye, there, false), (other, there, true)]
        {
            fog.update(tick, &world, &[viewer], &[target]);
            assert_eq!(fog.may_see(0, 0), may_see, "tick {tick}");
        }
    }
}

#[test]
fn an_audit_finds_what_is_hidden_although_it_is_seen_and_what_is_sent_needlessly() {
    let (map, walls) = wall(5.0);
    let world = throng_sight::fog::FogWorld { walls: &walls, occluders: &[] };
    let watch = |enemy: Vec3, fog: &Fog| {
        let mut audit = FogAudit::new(fog, 1);
        for tick in 0..20 {
            let viewers = [viewer(vec3(-10.0, 1.6, 0.0), 50.0)];
            audit.watch(tick, fog, (&map, Layers::ALL), &viewers, &[target(enemy)]);
        }
        audit.counts()
    };
    let (seen, hidden) = (vec3(10.0, 0.0, 0.0), vec3(10.0, 0.0, 15.0));
    // This one has never been updated: it hides everybody. A screen shows a tick six ticks later.
    let mut fog = Fog::new(FogOptions::default(), 1, 1);
    let counts = watch(seen, &fog);
    assert_eq!((counts.hidden, counts.hidden_but_visible, counts.sent), (14, 14, 0));
    assert_eq!(watch(hidden, &fog).hidden_but_visible, 0);
    fog.update(0, &world, &[viewer(vec3(-10.0, 1.6, 0.0), 50.0)], &[target(seen)]);
    let counts = watch(hidden, &fog);
    assert_eq!((counts.sent, counts.sent_needlessly, counts.sent_needlessly_share()), (14, 14, 1.0));
    assert_eq!(watch(seen, &fog).sent_needlessly, 0);
}

#[test]
fn the_same_updates_give_the_same_answers() {
    let town = Town::new(5, 20_000);
    let (first, fog) = walk(&town, 1, 40.0, &[]);
    let (second, other) = walk(&town, 1, 40.0, &[]);
    assert_eq!((first.sent, first.hidden, fog.counts()), (second.sent, second.hidden, other.counts()));
}
