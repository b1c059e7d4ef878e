//! Fog hides nobody who is seen, and hides those behind walls.

mod walkers;

use fastrand::Rng;
use glam::{Vec3, vec3};
use throng_seeds::for_seeds;
use throng_sight::fog::{Fog, FogOptions, FogWorld, Occluder, Target, Viewer};
use throng_sight::{Layers, Map, Ray, town};

use walkers::{Town, Walker};

const TICK_HZ: f32 = 128.0;

fn options() -> FogOptions {
    FogOptions::new(town::SIGHT, town::BODIES)
}

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

/// What a run of walkers through a town found.
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
fn walk(town: &Town, seed: u64, latency_ms: f32, seconds: f32, occluders: &[Occluder]) -> (Found, Fog) {
    let mut random = Rng::with_seed(seed);
    let mut walkers: Vec<Walker> = (0..10).map(|_| town.walker(&mut random)).collect();
    let mut fog = Fog::new(options(), 10, 10);
    let late_ticks = (latency_ms / 1_000.0 * TICK_HZ).floor() as usize;
    // For each tick: boxes, and who may see whom.
    let mut past: Vec<(Vec<[Vec3; 2]>, Vec<bool>)> = Vec::new();
    let mut found = Found::default();
    for tick in 0..(seconds * TICK_HZ) as u64 {
        walkers.iter_mut().for_each(|walker| walker.step(&town.map, 1.0 / TICK_HZ, &mut random));
        let viewers: Vec<Option<Viewer>> =
            walkers.iter().enumerate().map(|(place, walker)| Some(walker.viewer(place, latency_ms))).collect();
        let targets: Vec<Option<Target>> =
            walkers.iter().enumerate().map(|(place, walker)| Some(walker.target(place))).collect();
        fog.update(tick, &FogWorld { map: &town.map, occluders }, &viewers, &targets);
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
    for latency_ms in [0.0, 30.0, 80.0, 150.0] {
        let (mut sent, mut needless, mut hidden, mut looks, mut rays) = (0, 0, 0, 0, 0);
        for_seeds(2, |seed| {
            let (found, fog) = walk(&town, seed, latency_ms, 4.0, &[]);
            sent += found.sent;
            needless += found.needless;
            hidden += found.hidden;
            looks += fog.counts().looks;
            rays += fog.counts().rays;
            match found.wrong.first() {
                None => Ok(()),
                Some(first) => Err(format!("{} hidden but visible at {latency_ms} ms: {first}", found.wrong.len())),
            }
        });
        let share = needless as f64 / sent as f64;
        println!(
            "{latency_ms} ms: 0 of {hidden} hidden were visible; {:.1} % of what was sent was sent needlessly; {:.1} rays per look",
            100.0 * share,
            rays as f64 / looks as f64
        );
        assert!(hidden > 100, "only {hidden} were hidden: nothing was tried");
    }
}
