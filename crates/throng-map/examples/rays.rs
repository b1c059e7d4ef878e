//! Rays per second, on one core, beside Embree 3 in the same run.
//!
//! ```text
//! cargo run --release -p throng-map --features embree --example rays -- 240000 1000000
//! ```
//!
//! Each number is a town of so many triangles. The rays are at most 50 m long: *fan*, 64 rays in 120 degrees from each of
//! many eyes; *random*, one ray from each of many eyes; *pairs*, lines of sight between eyes; *fog*, from an eye to the
//! eight corners of a box around each other one. The second pair of tables has the map in large pages. Engines take turns, five rounds after one that does not count; the
//! table has the medians.

use std::hint::black_box;
use std::time::Instant;

use fastrand::Rng;
use glam::{Vec3, vec3};
use throng_map::embree::{Embree, Scene};
use throng_sight::{Layers, Map, Mesh, Processor, Ray, aligned, bake, town};

const ROUNDS: usize = 5;
const REACH_M: f32 = 50.0;

fn main() {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let embree = Embree::load();
    if let Err(error) = &embree {
        println!("{error}");
    }
    for triangles in if sizes.is_empty() { vec![240_000] } else { sizes } {
        let mesh = town::town(1, triangles);
        let begin = Instant::now();
        let map = bake(&mesh).expect("the town can be baked");
        println!(
            "\n{} triangles, map of {:.1} MB, depth {}, baked in {:.1} s, {:?}",
            mesh.triangles.len(),
            map.as_bytes().len() as f64 / 1e6,
            map.depth(),
            begin.elapsed().as_secs_f64(),
            map.processor()
        );
        let scene = embree.as_ref().ok().map(|embree| embree.scene(&mesh, false));
        let robust = embree.as_ref().ok().map(|embree| embree.scene(&mesh, true));
        compare(&map, scene.as_ref(), robust.as_ref(), &mesh);
        println!("\nthe same map in large pages");
        let large = throng_map::in_large_pages(&map).expect("there is memory");
        compare(&large, scene.as_ref(), robust.as_ref(), &mesh);
        share(&map);
    }
}

/// A name and a function that traces all rays and returns how many of them hit.
type Engine<'a> = (String, Box<dyn FnMut(&[Ray]) -> usize + 'a>);

fn compare(map: &Map, scene: Option<&Scene>, robust: Option<&Scene>, mesh: &Mesh) {
    let eyes = eyes(map, mesh);
    let sets = [("fan", fan(&eyes)), ("random", random(&eyes)), ("pairs", pairs(&eyes)), ("fog", fog(&eyes))];
    for is_closest in [true, false] {
        println!("{}", if is_closest { "closest hit, million rays/s" } else { "any hit, million rays/s" });
        let mut engines = engines(map, scene, robust, is_closest);
        let mut rates = vec![Vec::new(); engines.len()];
        for (_, rays) in &sets {
            let mut times = vec![Vec::new(); engines.len()];
            let mut hits = vec![0; engines.len()];
            for round in 0..=ROUNDS {
                for (engine, (_, trace)) in engines.iter_mut().enumerate() {
                    let begin = Instant::now();
                    hits[engine] = black_box(trace(black_box(rays)));
                    if round > 0 {
                        times[engine].push(begin.elapsed().as_secs_f64());
                    }
                }
            }
            for engine in 0..engines.len() {
                times[engine].sort_by(f64::total_cmp);
                rates[engine].push(rays.len() as f64 / times[engine][ROUNDS / 2] / 1e6);
            }
            let (low, high) = (hits.iter().min().copied(), hits.iter().max().copied());
            if high.zip(low).is_some_and(|(high, low)| high - low > rays.len() / 2_000) {
                println!("hits differ: {hits:?} of {}", rays.len());
            }
        }
        print!("{:24}", "");
        sets.iter().for_each(|(name, _)| print!("{name:>9}"));
        println!();
        for ((name, _), rates) in engines.iter().zip(&rates) {
            print!("{name:24}");
            rates.iter().for_each(|rate| print!("{rate:9.2}"));
            println!();
        }
    }
}

fn engines<'a>(map: &'a Map, scene: Option<&'a Scene>, robust: Option<&'a Scene>, is_closest: bool) -> Vec<Engine<'a>> {
    let mut engines: Vec<Engine<'a>> = Vec::new();
    for processor in Processor::available() {
        let map = map.clone().with_processor(processor);
        let batch = map.clone();
        let single = move |rays: &[Ray]| {
            let is_hit = |ray: &&Ray| {
                if is_closest { map.closest(ray, Layers::ALL).is_some() } else { map.is_blocked(ray, Layers::ALL) }
            };
            rays.iter().filter(is_hit).count()
        };
        let (mut hits, mut blocked) = (Vec::new(), Vec::new());
        let many = move |rays: &[Ray]| {
            if is_closest {
                hits.resize(rays.len(), None);
                batch.closest_batch(rays, Layers::ALL, &mut hits);
                hits.iter().flatten().count()
            } else {
                blocked.resize(rays.len(), false);
                batch.is_blocked_batch(rays, Layers::ALL, &mut blocked);
                blocked.iter().filter(|blocked| **blocked).count()
            }
        };
        engines.push((format!("{processor:?} single"), Box::new(single)));
        engines.push((format!("{processor:?} batch"), Box::new(many)));
    }
    for (name, scene) in [("Embree 3 single", scene), ("Embree 3 single robust", robust)] {
        let Some(scene) = scene else { continue };
        let single = move |rays: &[Ray]| {
            let is_hit = |ray: &&Ray| if is_closest { scene.closest(ray).is_some() } else { scene.is_blocked(ray) };
            rays.iter().filter(is_hit).count()
        };
        engines.push((name.to_owned(), Box::new(single)));
    }
    engines
}

/// Places where people stand: 1.6 m above what is below a random point.
fn eyes(map: &Map, mesh: &Mesh) -> Vec<Vec3> {
    let mut random = Rng::with_seed(2);
    let [low, high] = map.bounds();
    let mut eyes = Vec::new();
    while eyes.len() < 1_024.min(mesh.triangles.len()) {
        let point = low + (high - low) * vec3(random.f32(), 0.0, random.f32());
        let point = vec3(point.x, 1.0 + 6.0 * random.f32(), point.z);
        let down = Ray::new(point, -Vec3::Y, 20.0).expect("a direction");
        if let Some(hit) = map.closest(&down, town::BODIES) {
            eyes.push(down.at(hit.distance_m) + 1.6 * Vec3::Y);
        }
    }
    eyes
}

fn fan(eyes: &[Vec3]) -> Vec<Ray> {
    let mut random = Rng::with_seed(3);
    let mut rays = Vec::new();
    for eye in eyes {
        let turn = random.f32() * std::f32::consts::TAU;
        for ray in 0..64 {
            let (column, row) = ((ray % 16) as f32 / 15.0 - 0.5, (ray / 16) as f32 / 3.0 - 0.5);
            let angle = turn + column * 120.0_f32.to_radians();
            rays.push(Ray::new(*eye, vec3(angle.cos(), 0.5 * row, angle.sin()), REACH_M).expect("a direction"));
        }
    }
    rays
}

fn random(eyes: &[Vec3]) -> Vec<Ray> {
    let mut random = Rng::with_seed(4);
    let mut rays = Vec::new();
    while rays.len() < 65_536 {
        let mut part = || 2.0 * random.f32() - 1.0;
        let direction = vec3(part(), 0.5 * part(), part());
        let eye = eyes[random.usize(..eyes.len())];
        rays.extend(Ray::new(eye, direction, REACH_M));
    }
    rays
}

fn pairs(eyes: &[Vec3]) -> Vec<Ray> {
    let mut rays = Vec::new();
    for from in eyes {
        rays.extend(near(eyes, *from).filter_map(|to| Ray::between(*from, to).ok()).take(64));
    }
    rays
}

fn fog(eyes: &[Vec3]) -> Vec<Ray> {
    let mut rays = Vec::new();
    for from in eyes {
        for to in near(eyes, *from).take(8) {
            for corner in 0..8 {
                let sign = |bit: usize| if corner & bit == 0 { -1.0 } else { 1.0 };
                let half = vec3(1.2 * sign(1), 0.9 * sign(2), 1.2 * sign(4));
                rays.extend(Ray::between(*from, to - 0.7 * Vec3::Y + half));
            }
        }
    }
    rays
}

fn near(eyes: &[Vec3], from: Vec3) -> impl Iterator<Item = Vec3> + '_ {
    eyes.iter().copied().filter(move |to| *to != from && (*to - from).length() <= REACH_M)
}

/// Sixteen matches in turn on one core, each with its 200 lines of sight per tick: on one map, and on copies of it.
fn share(map: &Map) {
    let mut random = Rng::with_seed(5);
    let mesh = Mesh { triangles: vec![[0; 3]; 4_096], ..Mesh::default() };
    let eyes = eyes(map, &mesh);
    let all = pairs(&eyes);
    let matches: Vec<Vec<Ray>> =
        (0..16).map(|_| (0..4_000).map(|_| all[random.usize(..all.len())]).collect()).collect();
    let trace = |maps: &[Map]| {
        let begin = Instant::now();
        let mut hits = 0;
        for tick in 0..20 {
            for (number, rays) in matches.iter().enumerate() {
                let map = &maps[number % maps.len()];
                let rays = &rays[200 * tick..200 * (tick + 1)];
                hits += rays.iter().filter(|ray| map.is_blocked(ray, Layers::ALL)).count();
            }
        }
        black_box(hits);
        (16 * 4_000) as f64 / begin.elapsed().as_secs_f64() / 1e6
    };
    let copies: Vec<Map> = (0..16).filter_map(|_| Map::new(aligned(map.as_bytes())).ok()).collect();
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..=ROUNDS {
        rates[0].push(trace(std::slice::from_ref(map)));
        rates[1].push(trace(&copies));
    }
    let [shared, private] = rates.map(|mut rates| {
        rates.remove(0);
        rates.sort_by(f64::total_cmp);
        rates[ROUNDS / 2]
    });
    println!(
        "16 matches in turn: one map {shared:.2}, a copy each {private:.2} million rays/s, {:.2} times",
        shared / private
    );
}
