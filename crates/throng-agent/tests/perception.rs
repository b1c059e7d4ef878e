//! Perception: within its budget, in time, and true. The truth comes from single rays in each tick.

use fastrand::Rng;
use glam::{Vec3, vec3};
use throng_agent::{Look, POINTS_MAX, Pair, Perception, PerceptionError, PerceptionOptions, Scene};
use throng_seeds::for_seeds;
use throng_sight::{Map, Ray, town};

use crate::support::town_map;

const PEOPLE: u32 = 10;
const POINTS: u32 = 3;

fn options(rays_per_tick: u32) -> PerceptionOptions {
    PerceptionOptions { rays_per_tick, points_max: POINTS, tick_hz: 128, recheck_ms: 500, layers: town::SIGHT }
}

fn all_pairs() -> Vec<Pair> {
    let pairs = (0..PEOPLE).flat_map(|viewer| (0..PEOPLE).map(move |target| Pair { viewer, target }));
    pairs.filter(|pair| pair.viewer != pair.target).collect()
}

/// People who walk about, a ball of smoke, and nobody sees farther than 25 m.
struct Crowd {
    feet: Vec<Vec3>,
    velocities: Vec<Vec3>,
    is_there: Vec<bool>,
    smoke: (Vec3, f32),
}

impl Crowd {
    fn new(random: &mut Rng) -> Crowd {
        let mut place = || vec3(30.0 * random.f32() - 15.0, 0.0, 30.0 * random.f32() - 15.0);
        let feet = (0..PEOPLE).map(|_| place()).collect();
        let velocities = (0..PEOPLE).map(|_| place() / 3.0).collect();
        Crowd { feet, velocities, is_there: vec![true; PEOPLE as usize], smoke: (place(), 3.0) }
    }

    fn step(&mut self, random: &mut Rng) {
        for (feet, velocity) in self.feet.iter_mut().zip(&mut self.velocities) {
            *feet += *velocity / 128.0;
            if feet.abs().max_element() > 16.0 {
                *velocity = -*velocity;
            }
        }
        if random.u8(..100) == 0 {
            let who = random.usize(..PEOPLE as usize);
            self.is_there[who] = !self.is_there[who];
        }
    }

    fn truth(&self, map: &Map, pair: Pair) -> u8 {
        let Look::At { eye, points, point_count } = self.look(pair) else { return 0 };
        let is_free = |point: &u32| {
            let ray = Ray::between(eye, points[*point as usize]).unwrap();
            !map.is_blocked(&ray, town::SIGHT) && !self.blocks(&ray)
        };
        (0..point_count).filter(is_free).fold(0, |bits, point| bits | 1 << point)
    }
}

impl Scene for Crowd {
    fn look(&self, pair: Pair) -> Look {
        let [viewer, target] = [pair.viewer as usize, pair.target as usize];
        if !self.is_there[viewer] || !self.is_there[target] {
            return Look::Absent;
        }
        let (eye, feet) = (self.feet[viewer] + vec3(0.0, 1.6, 0.0), self.feet[target]);
        if eye.distance(feet) > 25.0 {
            return Look::Outside;
        }
        let mut points = [Vec3::ZERO; POINTS_MAX];
        points[..3].copy_from_slice(&[1.6, 1.0, 0.3].map(|height| feet + vec3(0.0, height, 0.0)));
        Look::At { eye, points, point_count: POINTS }
    }

    fn blocks(&self, ray: &Ray) -> bool {
        let along = (self.smoke.0 - ray.origin()).dot(ray.direction()).clamp(0.0, ray.end_m());
        ray.at(along).distance(self.smoke.0) < self.smoke.1
    }
}

#[test]
fn every_look_is_true_and_no_pair_waits_longer_than_promised() {
    for_seeds(4, |seed| {
        let map = town_map(seed, 5_000);
        let mut random = Rng::with_seed(seed);
        let mut crowd = Crowd::new(&mut random);
        // The smallest budget: two pairs of 90 per tick, and 64 ticks.
        let mut perception = Perception::new(options(6), &all_pairs()).expect("the budget suffices");
        let (mut looks, mut seen, mut hidden_by_smoke) = (0, 0, 0);
        for now in 1..2_000 {
            crowd.step(&mut random);
            let rays = perception.counters().rays;
            perception.update(now, &map, &crowd);
            assert!(perception.counters().rays - rays <= 6, "more rays than the budget");
            for (pair, sighting) in perception.sightings() {
                assert!(sighting.age_ticks(now) <= 64, "{pair:?} waits for {} ticks", sighting.age_ticks(now));
                if sighting.looked_at == now {
                    let truth = crowd.truth(&map, pair);
                    assert_eq!((sighting.points, sighting.is_seen), (truth, truth != 0), "{pair:?} in tick {now}");
                    assert_eq!(sighting.is_seen, sighting.seen_at == Some(now));
                    looks += 1;
                    seen += u32::from(sighting.is_seen);
                    let smoke = std::mem::replace(&mut crowd.smoke.1, 0.0);
                    hidden_by_smoke += u32::from(!sighting.is_seen && crowd.truth(&map, pair) != 0);
                    crowd.smoke.1 = smoke;
                }
            }
        }
        assert!(looks > 3_000 && seen > 100 && seen < looks, "{seen} seen of {looks}");
        assert!(hidden_by_smoke > 10, "the smoke hid {hidden_by_smoke}");
        assert!(perception.counters().age_max_ticks > 30, "the budget was short");
    });
}

#[test]
fn near_pairs_and_new_ones_are_looked_at_more_often() {
    let map = town_map(1, 5_000);
    let (mut near, mut far) = (0, 0);
    /// Nobody moves, everybody is in view; one target is near and the others are far away.
    struct Row;
    impl Scene for Row {
        fn look(&self, pair: Pair) -> Look {
            let distance_m = if pair.target == 1 { 5.0 } else { 100.0 };
            Look::At {
                eye: vec3(0.0, 20.0, 0.0),
                points: [vec3(distance_m, 20.0, 0.0); POINTS_MAX],
                point_count: POINTS,
            }
        }
        fn blocks(&self, _: &Ray) -> bool {
            true
        }
    }
    let pairs: Vec<Pair> = (1..=20).map(|target| Pair { viewer: 0, target }).collect();
    let mut perception = Perception::new(options(3), &pairs).expect("the budget suffices");
    for now in 1..1_000 {
        perception.update(now, &map, &Row);
        let (_, sighting) = perception.sightings().next().expect("twenty pairs");
        near += u32::from(sighting.looked_at == now);
        far += u32::from(perception.sighting(7).expect("twenty pairs").looked_at == now);
    }
    assert!(near > 2 * far && far > 10, "near {near}, far {far}");
}

#[test]
fn a_budget_that_does_not_suffice_is_refused_with_the_one_that_does() {
    let pairs = all_pairs();
    let error = Perception::new(options(5), &pairs).map(|_| ()).unwrap_err();
    let expected = PerceptionError::BudgetTooSmall { pairs: 90, recheck_ms: 500, rays_per_tick: 5, needed: 6 };
    assert_eq!(error, expected);
    assert!(Perception::new(options(6), &pairs).is_ok());
    let error = Perception::new(PerceptionOptions { recheck_ms: 5, ..options(600) }, &pairs).map(|_| ()).unwrap_err();
    assert!(matches!(error, PerceptionError::BudgetTooSmall { needed: u32::MAX, .. }), "{error}");
    let error = Perception::new(PerceptionOptions { points_max: 0, ..options(6) }, &pairs).map(|_| ()).unwrap_err();
    assert_eq!(error.tag(), "perception_options");
}

#[test]
fn positions_that_are_no_numbers_are_not_seen_and_counted() {
    struct Nowhere;
    impl Scene for Nowhere {
        fn look(&self, _: Pair) -> Look {
            Look::At { eye: Vec3::NAN, points: [Vec3::ZERO; POINTS_MAX], point_count: u32::MAX }
        }
        fn blocks(&self, _: &Ray) -> bool {
            false
        }
    }
    let mut perception = Perception::new(options(6), &all_pairs()).expect("the budget suffices");
    perception.update(1, &town_map(1, 3_000), &Nowhere);
    assert_eq!(perception.counters().refused, 6);
    assert!(perception.sightings().all(|(_, sighting)| !sighting.is_seen));
}

#[test]
fn what_was_forgotten_is_not_seen() {
    let map = town_map(1, 5_000);
    let crowd = Crowd::new(&mut Rng::with_seed(4));
    let mut perception = Perception::new(options(600), &all_pairs()).expect("the budget suffices");
    perception.update(1, &map, &crowd);
    assert!(perception.sightings().any(|(_, sighting)| sighting.seen_at.is_some()));
    perception.forget(1);
    assert!(perception.sightings().all(|(_, sighting)| sighting.seen_at.is_none() && !sighting.is_seen));
}
